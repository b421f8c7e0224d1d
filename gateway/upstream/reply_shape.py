"""What a chat answer looks like before it is read: announced or not, streamed or whole."""

from typing import Literal

from gateway.core.errors import UpstreamBadReply, UpstreamTimeout
from gateway.request.state import RequestState
from gateway.upstream.translated import ChatReply
from gateway.wire.chat_reshape import body_to_stream, stream_to_body

__all__ = ["stream_opening", "whole_body"]

Shape = Literal["json", "sse", "other"]

STREAM_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
MAX_PEEK_BYTES = 64 << 10
# Some begin with a mark: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
BOM = b"\xef\xbb\xbf"


async def whole_body(state: RequestState, reply: ChatReply) -> bytes:
    """A whole answer, gathered when it came as a stream after all; raises `UpstreamBadReply` for what is neither."""
    here = reply.here()
    body = await reply.read_all(**state.deadlines) if here is None else here
    # A stream that was gathered has told before when it began.
    if state.upstream_first is None:
        state.upstream_first = state.deadline.now()
    if body.startswith(b"{"):
        return body
    match _shape(body):
        case "sse":
            return stream_to_body(body)
        case "other":
            raise UpstreamBadReply("the model server's answer is not JSON")
        case "json":
            return body


async def stream_opening(state: RequestState, reply: ChatReply) -> bytes:
    """The beginning of a stream that was not announced as one; a JSON answer becomes a whole stream."""
    # Some servers and proxies ignore `stream` where tools are given, or stream under `text/plain`; agents that asked
    # for a stream cannot read a body, and some wait for ever.
    head = await _peek(state, reply)
    match _shape(head):
        case "sse":
            return head
        case "json":
            body = await reply.read_all(**state.deadlines)
            if state.upstream_first is None:
                state.upstream_first = state.deadline.now()
            return body_to_stream(head + body)
        case "other":
            raise UpstreamBadReply("the model server's answer is not an event stream")


async def _peek(state: RequestState, reply: ChatReply) -> bytes:
    """As much of an answer as tells what it is."""
    due = state.upstream_started + state.upstream.first_byte_timeout_s
    head = b""
    while len(head) < MAX_PEEK_BYTES and _is_open(_start(head)):
        try:
            piece = await reply.read(due)
        except TimeoutError:
            raise UpstreamTimeout("the model server did not begin to answer in time") from None
        if not piece:
            break
        head += piece
    return head


def _start(body: bytes) -> bytes:
    return body.removeprefix(BOM).lstrip()[:8]


def _is_open(start: bytes) -> bool:
    # Blanks in front say nothing: some servers send them to keep a connection alive.
    return any(known.startswith(start) and known != start for known in STREAM_STARTS)


def _shape(body: bytes) -> Shape:
    start = _start(body)
    if start.startswith(STREAM_STARTS):
        return "sse"
    # A page with status 200, as proxies send for a server that is away, is neither.
    return "json" if start.startswith(b"{") else "other"
