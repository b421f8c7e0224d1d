"""Where the client and the model server speak the same wire: the request as it came, the answer as it comes.

Only what must be known of an answer is heard beside. Of a server that may have the wire or not it is found out by
asking; one that has none is known for an hour.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypedDict
from weakref import WeakMethod

import msgspec
import structlog
from aiohttp import web
from attrs import define, frozen
from multidict import CIMultiDict
from yarl import URL

from gateway.answer.body import BodyExchange
from gateway.answer.choice import MakeId
from gateway.answer.endings import error_event
from gateway.answer.facts import Facts
from gateway.answer.same_wire import (
    HEARD_WIRES,
    SameWireReading,
    SameWireStream,
    facts_of,
    heard_plain,
    heard_whole,
    hearing,
)
from gateway.answer.watch import WatchedBody, WatchTerms
from gateway.chat.accept import count_path
from gateway.chat.pump import pump
from gateway.chat.repeat import ask_again, second_answer
from gateway.chat.watched import finish_watch, in_turns
from gateway.core.errors import GatewayError, UpstreamRejected
from gateway.core.limits import Limits
from gateway.core.rules import ModelRule
from gateway.kinds.shared.answer import Plain
from gateway.kinds.shared.port import Dialogue, Situation
from gateway.request.headers import response_headers
from gateway.request.responses import Streamed, Whole
from gateway.request.servers import Target, target_of
from gateway.request.state import RequestState
from gateway.surfaces.chat import ChatTelling
from gateway.surfaces.port import Asked, Carrier, Telling
from gateway.traffic.absent_paths import ABSENT_STATUSES
from gateway.traffic.routing import Route
from gateway.upstream.attempts import open_reply
from gateway.upstream.client import UpstreamReply
from gateway.upstream.heads import same_wire_head
from gateway.wire.chat_request import ChatRequest, renamed
from strategies.base import Prepared
from strategies.factory import Selection

__all__ = ["PathAbsent", "Reading", "Terms", "may_be_read", "may_go_as_it_is", "relayed"]

NATIVE = "native"
PASSED = "passthrough"
RECOVERED = "recovery"
READ_AS_IT_IS = (NATIVE, PASSED, RECOVERED)
"""Strategies that ask nothing else of the model than the client did."""
_UNREAD = (NATIVE, PASSED)
"""Those of them that read nothing in an answer but what is certainly none of its text."""

log = structlog.get_logger("toolgate")
Hear = Callable[[bytes], bytes]
"""Says what a whole answer is in chat."""
HearPlain = Callable[[bytes], Plain | None]
"""The same of one that is one text and nothing else."""


class PathAbsent(Exception):
    """The model server does not speak the client's wire after all."""


def may_go_as_it_is(
    state: RequestState, asked: Asked, selection: Selection, rule: ModelRule | None, *, arm: str
) -> bool:
    """Whether a request is to be sent in the wire that it came in."""
    wire, path, upstream = state.surface.name, state.surface.path, state.upstream
    is_sure = _is_sure(state)
    # Where calls are mended in chat, all but what has no form in it goes there.
    is_mended = arm == "live" and selection.strategy.name not in (READ_AS_IT_IS if is_sure else _UNREAD)
    if is_mended and selection.reason != "disabled" and not (is_sure and asked.refusal is not None):
        return False
    if wire not in HEARD_WIRES or not upstream.speaks(wire):
        return False
    if not is_sure and state.shared.absent_paths.has(upstream.name, path, state.deadline.now()):
        return False
    # Nobody looks at the answer, so nothing has to be understood.
    if arm == "off" or selection.reason == "disabled":
        return True
    if asked.refusal is not None:
        if is_sure:
            return True
    elif asked.is_bound:
        return False
    if arm == "live" and not _needs_no_chat(state, asked, selection, rule, is_sure=is_sure):
        return False
    if is_sure:
        return True
    # A server that may have the wire is asked by it only where nothing would be read in its answers: elsewhere calls
    # are mended, and a server that is asked in chat is known to answer.
    model = asked.request.model
    named = state.configuration.strategy_of(model, state.capability(model), upstream.kind.name, asked=model)
    return named == NATIVE


def _is_sure(state: RequestState) -> bool:
    """Whether the server certainly has the path: what is deeper than its wire it may lack."""
    wire, upstream = state.surface.name, state.upstream
    return state.surface.path == wire and (wire == upstream.row.wire or wire in upstream.wires)


def _needs_no_chat(
    state: RequestState, asked: Asked, selection: Selection, rule: ModelRule | None, *, is_sure: bool
) -> bool:
    """Whether the request would not be changed in chat, and the answer can be read as it is."""
    request, configuration = asked.request, state.configuration
    may_map = request.wants_tools and (rule is not None or configuration.settings.tool_map)
    mapping = configuration.tool_map(request.model, rule) if may_map else None
    may_read = is_sure and asked.carry is not None
    return selection.strategy.name in (READ_AS_IT_IS if may_read else _UNREAD) and mapping in (None, "none")


def may_be_read(state: RequestState, request: ChatRequest, selection: Selection) -> bool:
    """Whether the answer to a request that goes as it came may be read: for others nothing has to be prepared."""
    name = selection.strategy.name
    # Servers of a kind that is native by itself keep calls and text apart; where calls are forbidden their markup may
    # have to go all the same.
    is_apart = name == NATIVE and state.upstream.row.strategy == NATIVE and request.wants_tools
    return name in READ_AS_IT_IS and not is_apart


class Terms(TypedDict):
    """On what terms an answer is read."""

    make_id: MakeId
    limits: Limits
    asks: int
    keep_text: bool


@frozen(kw_only=True)
class Reading:
    """How calls are looked for in an answer."""

    prepared: Prepared
    terms: Terms


@define(eq=False, kw_only=True)
class _AsItIs(ChatTelling):
    """The server's own words; only a sign of life is ours."""

    inner: Telling
    unheard: "WeakMethod[Callable[[], bytes]] | None" = None
    """Says the last of what went on unread: weakly, else the request would keep its answer, and that the request."""

    def feed(self, data: bytes) -> bytes:
        if self.inner.overhears:
            self._catch_up()
            self.inner.overhear(data)
        return data

    def keep_alive(self) -> bytes:
        if self.inner.overhears:
            self._catch_up()
        return self.inner.keep_alive()

    def _catch_up(self) -> None:
        unheard = self.unheard() if self.unheard is not None else None
        if unheard is not None and (data := unheard()):
            self.inner.overhear(data)


async def relayed(
    state: RequestState,
    asked: Asked,
    raw: bytes,
    route: Route,
    terms: Callable[[], WatchTerms],
    reading: Reading | None = None,
) -> web.StreamResponse:
    """Send the request as it came and its answer as it comes; raises `PathAbsent` where the server has no such wire.

    With a `reading` calls are looked for in its text.
    """
    telling = asked.tell()
    send_as = None if route.rule is None else route.rule.send_as
    reply = await _opened(state, renamed(raw, send_as) if send_as else raw)
    try:
        count_path(state, "same_wire")
        state.telling, state.delivered, state.found.answer_id = _AsItIs(inner=telling), None, None
        situation = Situation(now=state.shared.wall(), make_id=state.make_call_id, answer_id="")
        is_stream = reply.content_type == "text/event-stream"
        if reading is not None and asked.carry is not None and is_stream:
            return await _read_stream(state, reply, reading, asked.carry(), telling)
        wire, model = state.surface.name, asked.request.model
        if is_stream:
            return await _stream(state, reply, terms(), hearing(wire, model, situation, stream=True), telling)
        hear = partial(heard_whole, wire, model, situation, reply.headers)
        plain = partial(heard_plain, wire, model, situation)
        if reading is not None and asked.carry is not None:
            return await _read_whole(state, reply, reading, asked.carry, hear, plain)
        return await _whole(state, reply, terms(), hear, plain)
    finally:
        reply.close()


async def _opened(state: RequestState, body: bytes) -> UpstreamReply:
    upstream = state.upstream
    try:
        url, target = _url(state)
        return await open_reply(state, "POST", url, lines=same_wire_head(state), body=body, target=target)
    except UpstreamRejected as error:
        if _is_sure(state) or error.upstream_status not in ABSENT_STATUSES or _is_own(error.payload):
            raise
    path = state.surface.path
    state.shared.absent_paths.note(upstream.name, path, state.deadline.now())
    log.info("wire_absent", upstream=upstream.name, path=path)
    raise PathAbsent


def _url(state: RequestState) -> tuple[URL, Target | None]:
    raw_path = state.http.raw_path
    query = state.http.rel_url.raw_query_string if "?" in raw_path or "#" in raw_path else ""
    return _url_of(state.upstream.base, state.surface.path, query)


@lru_cache(maxsize=64)
def _url_of(base: str, path: str, query: str) -> tuple[URL, Target | None]:
    url = URL(base).joinpath(*path.split("/"))
    # As it came: written anew, a query may say the same in other letters.
    url = URL(f"{url}?{query}", encoded=True) if query else url
    return url, target_of(url)


def _is_own(payload: bytes | None) -> bool:
    """Whether an error speaks the wire: then the path is there, and the error is about the request."""
    try:
        body = msgspec.json.decode(payload or b"")
    except ValueError:
        return False
    if not isinstance(body, dict):
        return False
    error = body.get("error")
    if body.get("type") == "error":
        return True
    # One that names a field has read the request: what it does not find is what that field names.
    return isinstance(error, dict) and (isinstance(error.get("param"), str) or error.get("code") == "model_not_found")


async def _stream(
    state: RequestState, reply: UpstreamReply, terms: WatchTerms, dialogue: Dialogue, telling: Telling
) -> web.StreamResponse:
    def tell_error(error: GatewayError, unheard: bytes) -> bytes:
        if unheard and telling.overhears:
            telling.overhear(unheard)
        return telling.feed(error_event(error))

    exchange = SameWireStream(terms, dialogue, tell_error, wire=state.surface.name)
    state.telling = _AsItIs(inner=telling, unheard=WeakMethod(exchange.unheard))
    state.found.facts = exchange.facts
    response = Streamed(headers=_headers(reply))
    try:
        return await pump(state, reply, exchange, response, first=b"")
    finally:
        if terms.prepared is not None:
            finish_watch(state, exchange)


async def _read_stream(
    state: RequestState, reply: UpstreamReply, reading: Reading, carrier: Carrier, telling: Telling
) -> web.StreamResponse:
    exchange = SameWireReading(reading.prepared, carrier, **reading.terms)
    state.telling = _AsItIs(inner=telling, unheard=WeakMethod(exchange.unheard))
    state.found.facts = exchange.facts
    return await pump(state, reply, exchange, Streamed(headers=_headers(reply)), first=b"")


async def _read_whole(
    state: RequestState,
    reply: UpstreamReply,
    reading: Reading,
    carry: Callable[[], Carrier],
    hear: Hear,
    hear_plain: HearPlain,
) -> web.StreamResponse:
    body = reply.here() or await reply.read_all(**state.deadlines)
    state.upstream_first = state.deadline.now()
    plain = hear_plain(body)
    # What one text comes to in chat need not be written to be read; then the server's own bytes stand for it.
    chat = body if plain is not None else hear(body)
    exchange = BodyExchange(reading.prepared, **reading.terms)
    state.found.facts = exchange.facts
    answer = await in_turns(exchange.steps(chat, plain.said() if plain is not None else None))
    while (wanted := exchange.ask_again) is not None:
        answer = await ask_again(state, exchange, wanted, partial(second_answer, state))
    # Where nothing was read, the client gets the server's own bytes.
    told = body if answer == chat else carry().whole(body, answer)
    return await state.send(Whole(told, headers=_headers(reply)))


async def _whole(
    state: RequestState, reply: UpstreamReply, terms: WatchTerms, hear: Hear, hear_plain: HearPlain
) -> web.StreamResponse:
    body = reply.here() or await reply.read_all(**state.deadlines)
    state.upstream_first = state.deadline.now()
    state.found.facts = Facts()
    # Sent first: nobody waits for what is only watched.
    response = await state.send(Whole(body, headers=_headers(reply)))
    if terms.prepared is None and (plain := hear_plain(body)) is not None:
        state.found.facts = facts_of(plain)
        return response
    exchange = WatchedBody(terms)
    state.found.facts = exchange.facts
    await in_turns(exchange.steps(hear(body)))
    if terms.prepared is not None:
        finish_watch(state, exchange)
    return response


def _headers(reply: UpstreamReply) -> CIMultiDict[str]:
    # The body was decoded on its way here.
    return response_headers(reply.headers, also_dropped=frozenset({"content-encoding"}))
