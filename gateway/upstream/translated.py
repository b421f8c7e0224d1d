"""Chat with a model server of any kind: what comes back looks like an OpenAI server's answer.

For the kind `openai` that is the answer itself. Any other kind has a dialogue: what to ask, what to ask next, and what
its answers mean; this module sends and receives for it.
"""

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Self

import msgspec
import structlog
from multidict import CIMultiDict, CIMultiDictProxy

from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamError, UpstreamRejected
from gateway.core.ports import Sink
from gateway.kinds.lowering.without import lowered
from gateway.kinds.shared.faults import waiting_time
from gateway.kinds.shared.port import Dialogue, HttpAsk, Reply, Situation
from gateway.request.headers import headers_of, lines_of
from gateway.request.state import RequestState
from gateway.upstream.attempts import open_reply
from gateway.upstream.client import UpstreamReply, error_body, gathered
from gateway.upstream.heads import chat_head
from gateway.wire.chat_request import ChatRequest
from gateway.wire.chat_reshape import body_to_stream, stream_to_body
from gateway.wire.sse import DONE, encode

__all__ = ["ChatReply", "TranslatedReply", "client_scope", "finish_session", "open_chat"]

MAX_STEPS = 4
"""Requests that one dialogue may need; more would be a loop."""
SCOPE_BYTES = 16
FIRST_EVENT_S = 5.0
"""How long the first event of a stream that may turn out void is waited for, while a status is still free."""
ERROR_EVENT = b'data: {"error":'
END = encode(DONE)

log = structlog.get_logger("toolgate")


def open_chat(
    state: RequestState, body: bytes, *, stream: bool, original: ChatRequest | None = None, repeatable: bool = True
) -> "Awaitable[ChatReply]":
    """An answer to the request that `body` is, its head read; `original` is the client's own request."""
    upstream = state.upstream
    # Before any kind sees it: what a server refuses of a schema it refuses in each of the wires.
    if upstream.down_level:
        body = lowered(body, upstream.down_level)
    lines = chat_head(state, stream=stream)
    if upstream.row.is_translated:
        return _open_translated(state, body, headers_of(lines), original, repeatable=repeatable)
    target = upstream.chat_target
    return open_reply(state, "POST", upstream.chat_url, lines=lines, body=body, repeatable=repeatable, target=target)


async def _open_translated(
    state: RequestState, body: bytes, headers: CIMultiDict[str], original: ChatRequest | None, *, repeatable: bool
) -> "TranslatedReply":
    return await _converse(state, await _begun(state, body, original), headers, repeatable=repeatable)


async def finish_session(state: RequestState, reply: "ChatReply", body: bytes | None = None) -> None:
    """Keep what the next request of the conversation needs; `body` is what the client is about to be given whole."""
    if isinstance(reply, TranslatedReply):
        await reply.finish_session(body)


class TranslatedReply:
    """The answer of a dialogue, with the surface of an upstream's own reply."""

    __slots__ = (
        "_body",
        "_dialogue",
        "_end",
        "_ended",
        "_first",
        "_headers",
        "_inner",
        "_is_finished",
        "_reads",
        "_state",
        "_whole",
    )

    def __init__(
        self,
        state: RequestState,
        dialogue: Dialogue,
        inner: UpstreamReply,
        *,
        headers: CIMultiDict[str],
        whole: bytes | None = None,
    ) -> None:
        self._state = state
        self._dialogue = dialogue
        self._inner = inner
        self._headers = headers
        self._body = whole
        self._whole = whole is not None
        self._reads = 0
        self._first = b""
        """What came before the answer was handed on."""
        self._end = b""
        """The last event, held until what the next request needs is kept: it may come on the heels of this one."""
        self._ended = False
        self._is_finished = False

    @property
    def status(self) -> int:
        return 200

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return self._inner.headers

    @property
    def content_type(self) -> str:
        return "application/json" if self._whole else "text/event-stream"

    @property
    def bytes_read(self) -> int:
        return self._inner.bytes_read

    async def begin(self) -> None:
        """Wait for the first event, if it may say that there must be another answer instead of this one."""
        state = self._state
        first_due = state.upstream_started + state.upstream.first_byte_timeout_s
        # A short wait, as the client's headers wait with it; what comes later is read as the answer.
        due = min(state.deadline.now() + FIRST_EVENT_S, first_due)
        with suppress(TimeoutError):
            while self._dialogue.may_be_void and not (self._first or self._ended):
                self._first = await self._more(due)

    async def read(self, due: float) -> bytes:
        """What has come, in OpenAI's form; `b""` at the clean end."""
        if self._whole:
            body, self._body = self._body, b""
            return body or b""
        out, self._first = self._first, b""
        # Bytes of the server may say nothing in chat: going on here spares every reader that case.
        while not (out or self._end or self._ended):
            out = await self._more(due)
        if out.endswith(END):
            # The end goes out by itself, and behind the keeping of what it was.
            out, self._end = out.removesuffix(END), END
        if out:
            return self._masked(out)
        end, self._end = self._end, b""
        if end:
            await self.finish_session()
        return end

    is_ready = is_over = False
    """Nobody knows what the other side's next bytes will come to."""

    async def flow(self, due: float, sink: Sink) -> bytes:
        """The same; no sink is used, as what has been read may be void and be asked for anew."""
        del sink
        return await self.read(due)

    def here(self) -> bytes | None:
        """A dialogue tells nothing before it is asked."""
        return None

    async def read_all(self, *, first_due: float, idle_s: float, total_due: float) -> bytes:
        """The whole answer."""
        deadline = self._state.deadline
        return await gathered(self.read, deadline, first_due=first_due, idle_s=idle_s, total_due=total_due)

    async def finish_session(self, body: bytes | None = None) -> None:
        """Keep what the dialogue wants kept, once; `body` is what the client is about to be given whole."""
        facts = self._state.found.facts
        if self._is_finished or (facts is not None and facts.has_second_answer):
            return  # a second answer was asked for elsewhere: what this dialogue knows is not what was said
        delivered = _delivered(self._state, body)
        # The client went away, or was given something else: the server would be told of a turn that nobody saw.
        if delivered is None:
            return
        self._is_finished = True
        try:
            for memory in self._dialogue.remember(delivered):
                await self._state.shared.sessions.remember({memory.key: memory.value}, memory.ttl_s)
        except Exception:  # the answer is there: that the next one lacks its past is the smaller harm
            log.exception("conversation_not_kept", upstream=self._state.upstream.name)

    def close(self) -> None:
        """Let go of the connection."""
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def _more(self, due: float) -> bytes:
        """What the next bytes of the upstream come to; nothing where they say nothing yet."""
        # An empty read is the clean end, so a dialogue is told of its end exactly once.
        data = await self._inner.read(due)
        self._ended = not data
        out = self._dialogue.feed(data) if data else self._dialogue.finish()
        again = self._dialogue.again
        return out if again is None else await self._restart(again)

    async def _restart(self, ask: HttpAsk) -> bytes:
        """What was fed is void, and none of it was given out: ask as the dialogue says instead."""
        self._inner.close()
        # Counted where it happens: the count of `_converse` begins anew with each call.
        self._reads += 1
        # A server that voids each answer would be asked for ever, at its client's cost.
        if self._reads > MAX_STEPS:
            raise _endless()
        other = await _converse(self._state, self._dialogue, self._headers, first=ask, repeatable=False)
        self._inner, self._ended = other._inner, other._whole
        return body_to_stream(other._body or b"") if other._whole else b""

    def _masked(self, out: bytes) -> bytes:
        """An error that ends the stream is in the server's own words, which may repeat what it was sent."""
        # At the start of a line alone: text that quotes such an event is the model's, and stays.
        at = out.rfind(ERROR_EVENT)
        if at < 0 or (at and out[at - 1 : at] != b"\n"):
            return out
        return out[:at] + self._state.upstream.masked(out[at:])


ChatReply = UpstreamReply | TranslatedReply


class _GoOn(Exception):
    """An answer that is no fault: the dialogue has more to ask."""

    def __init__(self, ask: HttpAsk) -> None:
        super().__init__()
        self.ask = ask


async def _begun(state: RequestState, raw: bytes, original: ChatRequest | None) -> Dialogue:
    kind = state.upstream.kind
    # The request as it came is decoded already, and may be long.
    body = original.body if original is not None and raw is original.raw else msgspec.json.decode(raw)
    scope = _scope(state)
    client = original.body if original is not None else None
    known = await state.shared.sessions.recall(*kind.keys(client or body, scope=scope))
    situation = Situation(
        now=state.shared.wall(),
        make_id=state.make_call_id,
        # Of the request's own id, so that a record is found by the id that the client shows.
        answer_id=f"chatcmpl-{state.id.removeprefix('req_')}",
        scope=scope,
        max_event_bytes=state.configuration.settings.max_event_bytes,
    )
    return kind.begin(body, raw, situation=situation, known=known, original=client)


async def _converse(
    state: RequestState,
    dialogue: Dialogue,
    headers: CIMultiDict[str],
    *,
    repeatable: bool,
    first: HttpAsk | None = None,
) -> TranslatedReply:
    ask = first or dialogue.ask
    # Some servers want a chat made first, or a login renewed: a few steps, and no more than that.
    for _ in range(MAX_STEPS):
        try:
            inner = await _sent(state, dialogue, ask, headers, repeatable=repeatable)
        except _GoOn as more:
            ask = more.ask
            continue
        # Both: servers answer a stream's request with one JSON object where they refuse or where they do not stream.
        if ask.streams and inner.content_type == "text/event-stream":
            return await _begun_reply(TranslatedReply(state, dialogue, inner, headers=headers))
        with inner:
            body = await inner.read_all(**state.deadlines)
        outcome = dialogue.answered(inner.status, inner.headers, body)
        if isinstance(outcome, HttpAsk):
            ask = outcome
        elif outcome.status >= 400:
            raise _refusal(state, outcome, inner.headers)
        else:
            return TranslatedReply(state, dialogue, inner, headers=headers, whole=outcome.body)
    raise _endless()


async def _begun_reply(reply: TranslatedReply) -> TranslatedReply:
    try:
        await reply.begin()
    except BaseException:
        reply.close()
        raise
    return reply


async def _sent(
    state: RequestState, dialogue: Dialogue, ask: HttpAsk, headers: CIMultiDict[str], *, repeatable: bool
) -> UpstreamReply:
    async def refused(reply: UpstreamReply) -> UpstreamError:
        outcome = dialogue.answered(reply.status, reply.headers, await error_body(reply, state.deadline))
        if isinstance(outcome, HttpAsk):
            # Thrown through the retries, which would take an answer for a failure and send the same again.
            raise _GoOn(outcome)
        return _refusal(state, outcome, reply.headers)

    sent = headers.copy()
    sent.update(ask.headers)
    return await open_reply(
        state,
        ask.method,
        state.upstream.url(ask),
        lines=lines_of(sent.items()),
        body=ask.body or None,
        repeatable=repeatable,
        refused=refused,
    )


def _refusal(state: RequestState, outcome: Reply, headers: Mapping[str, str]) -> UpstreamError:
    told = waiting_time(headers, state.shared.wall())
    # The client's own key was refused to it alone; ours would have it look for a fault that is not its own.
    key_is_ours = not state.upstream.forwards_credentials
    if outcome.status in (401, 403) and key_is_ours:
        return UpstreamRejected("the model server refused the gateway's own key", status=outcome.status)
    return UpstreamRejected(
        f"the model server answered with status {outcome.status}",
        status=outcome.status,
        payload=state.upstream.masked(outcome.body),
        retry_after_s=outcome.retry_after_s if told is None else told,
    )


def _endless() -> UpstreamBadReply:
    return UpstreamBadReply("the model server's conversation does not come to an answer")


def client_scope(state: RequestState) -> str:
    """Whose conversation it is, whoever answers it: no other client reads it."""
    told = f"client\0{state.credential or ''}".encode("utf-8", "surrogateescape")
    return blake2b(told, key=state.shared.secret, digest_size=SCOPE_BYTES).hexdigest()


def _scope(state: RequestState) -> str:
    """Whose conversation it is, and with whom: no other client reads it, and no other server is told of it."""
    return _digest(state, state.upstream.name, str(state.upstream.base_url), state.credential or "")


def _digest(state: RequestState, *named: str) -> str:
    # A sign that stands in none of them: `a` + `bc` must not be `ab` + `c`.
    told = "\0".join(named).encode("utf-8", "surrogateescape")
    return blake2b(told, key=state.shared.secret, digest_size=SCOPE_BYTES).hexdigest()


def _delivered(state: RequestState, body: bytes | None = None) -> Mapping[str, Any] | None:
    """The message that the client was given, once it was given all of it."""
    if body is None and state.delivered is None:
        return None
    data = b"".join(state.delivered or ()) if body is None else body
    try:
        answer = msgspec.json.decode(stream_to_body(data) if state.stream else data)
        message = answer["choices"][0]["message"]
    except (GatewayError, ValueError, RecursionError, LookupError, TypeError):
        return None
    return message if isinstance(message, dict) else None
