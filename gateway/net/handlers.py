"""The main job: a chat request in, the answer of its model server out, read by the strategy that was chosen."""

import time
from typing import Literal

import structlog
from aiohttp import web

from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamTimeout
from gateway.exchange import BodyExchange, StreamExchange
from gateway.net.attempts import open_reply, upstream_headers
from gateway.net.headers import response_headers
from gateway.net.middleware import json_response
from gateway.net.streams import pump
from gateway.net.turn import Turn
from gateway.net.upstream import UpstreamReply
from gateway.policy.routing import route
from gateway.wire.chat_forms import body_to_stream, stream_to_body
from gateway.wire.openai_chat import ChatRequest, parse_request
from strategies.base import Prepared
from strategies.factory import Passthrough, Selection

__all__ = ["chat"]

Shape = Literal["json", "sse", "other"]

OWN_HEADERS = frozenset({"content-type", "content-encoding"})
STREAM_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
MAX_PEEK_BYTES = 64 << 10
BOM = b"\xef\xbb\xbf"

log = structlog.get_logger("toolgate")


async def chat(turn: Turn) -> web.StreamResponse:
    """`POST /v1/chat/completions`."""
    request = parse_request(await turn.read_body())
    turn.model, turn.stream = request.model, request.stream
    route(request.model)
    prepared = _prepare(turn, request)
    headers = upstream_headers(turn)
    headers["Content-Type"] = "application/json"
    headers["Accept"] = "text/event-stream" if request.stream else "application/json"
    headers["Accept-Encoding"] = "identity"
    reply = await open_reply(turn, "POST", turn.configuration.chat_url, headers=headers, body=prepared.body)
    with reply:
        if request.stream:
            return await _stream(turn, reply, prepared)
        return await _whole(turn, reply, prepared)


def _prepare(turn: Turn, request: ChatRequest) -> Prepared:
    configuration = turn.configuration
    selection = configuration.decide(request)
    turn.arm, turn.reason = configuration.arm, selection.reason
    started = time.perf_counter()
    try:
        prepared = selection.strategy.prepare(request, configuration.options(selection.dialect))
    except GatewayError:
        turn.strategy = selection.strategy.name
        raise
    except Exception:
        log.exception("strategy_failed", strategy=selection.strategy.name)
        prepared = _unchanged(turn, request, selection)
    turn.prepare_s = time.perf_counter() - started
    turn.strategy = prepared.strategy
    turn.notes.extend(prepared.warnings)
    return prepared


def _unchanged(turn: Turn, request: ChatRequest, failed: Selection) -> Prepared:
    """A broken strategy costs its request the transformation, not the answer."""
    turn.reason = f"{failed.strategy.name}_failed"
    return Passthrough().prepare(request, turn.configuration.options(None))


async def _whole(turn: Turn, reply: UpstreamReply, prepared: Prepared) -> web.StreamResponse:
    body = await _read_all(turn, reply)
    match _shape(body):
        case "sse":
            body = stream_to_body(body)
        case "other":
            raise UpstreamBadReply("the model server's answer is not JSON")
    exchange = BodyExchange(prepared, make_id=turn.shared.make_call_id, limits=turn.configuration.limits)
    turn.facts = exchange.facts
    started = time.perf_counter()
    answer = exchange.transform(body)
    turn.read_s += time.perf_counter() - started
    response = json_response(answer)
    response.headers.extend(response_headers(reply.headers, also_dropped=OWN_HEADERS))
    return await turn.send(response)


async def _stream(turn: Turn, reply: UpstreamReply, prepared: Prepared) -> web.StreamResponse:
    exchange = StreamExchange(prepared, make_id=turn.shared.make_call_id, limits=turn.configuration.limits)
    turn.facts = exchange.facts
    first = b"" if reply.content_type == "text/event-stream" else await _opening(turn, reply)
    response = web.StreamResponse(headers=response_headers(reply.headers, also_dropped=OWN_HEADERS))
    response.headers["Content-Type"] = "text/event-stream"
    response.headers["Cache-Control"] = "no-cache, no-transform"
    response.headers["X-Accel-Buffering"] = "no"
    return await pump(turn, reply, exchange, response, first=first)


async def _opening(turn: Turn, reply: UpstreamReply) -> bytes:
    """The beginning of a stream that was not announced as one; a JSON answer becomes a whole stream."""
    head = await _peek(turn, reply)
    match _shape(head):
        case "sse":
            return head
        case "json":
            return body_to_stream(head + await _read_all(turn, reply))
        case _:
            raise UpstreamBadReply("the model server's answer is not an event stream")


async def _read_all(turn: Turn, reply: UpstreamReply) -> bytes:
    settings = turn.configuration.settings
    body = await reply.read_all(
        first_due=turn.upstream_started + settings.first_byte_timeout_s,
        idle_s=settings.idle_timeout_s,
        total_due=turn.upstream_started + settings.total_timeout_s,
    )
    if turn.upstream_first is None:
        turn.upstream_first = turn.patience.now()
    return body


async def _peek(turn: Turn, reply: UpstreamReply) -> bytes:
    """As much of an answer as tells what it is."""
    due = turn.upstream_started + turn.configuration.settings.first_byte_timeout_s
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
    return any(known.startswith(start) and known != start for known in STREAM_STARTS)


def _shape(body: bytes) -> Shape:
    start = _start(body)
    if start.startswith(STREAM_STARTS):
        return "sse"
    return "json" if start.startswith(b"{") else "other"
