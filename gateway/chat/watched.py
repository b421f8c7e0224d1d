"""The arms `control` and `dry_run`: the request as it came, the answer's own bytes, and what is watched of them."""

import time
from datetime import UTC, datetime

import structlog
from aiohttp import web
from multidict import CIMultiDict

from gateway.answer.rescue.faces import Swallowed, of_body, of_refusal
from gateway.answer.rescue.lookout import Lookout
from gateway.answer.watch import WatchedBody, WatchedStream, WatchTerms
from gateway.chat.accept import keep_answer
from gateway.chat.length import open_within
from gateway.chat.lessons_learnt import may_rescue, note_rescue
from gateway.chat.prepare import options_for
from gateway.chat.pump import pump
from gateway.chat.repeat import in_turns
from gateway.core.client import Client
from gateway.core.errors import UpstreamRejected
from gateway.request.headers import response_headers
from gateway.request.responses import Streamed, Whole
from gateway.request.state import RequestState
from gateway.upstream.client import UpstreamReply
from gateway.upstream.reply_shape import stream_opening, whole_body
from gateway.upstream.translated import ChatReply, finish_session
from gateway.wire.chat_request import TOOL_FIELDS, ChatRequest
from strategies.base import Prepared
from strategies.factory import NATIVE_STRATEGIES, Selection

__all__ = ["WATCHED_ARMS", "finish_watch", "in_turns", "preparation", "watch_terms", "watched"]

WATCHED_ARMS = frozenset({"control", "dry_run"})
MODEL_STRATEGIES = frozenset({*NATIVE_STRATEGIES, "xml_prompt"})
"""Strategies that a live request with tools would be answered by."""

log = structlog.get_logger("toolgate")


async def watched(
    state: RequestState, request: ChatRequest, selection: Selection, client: Client
) -> web.StreamResponse:
    """Relay the request and its answer as they are."""
    terms = watch_terms(state, request, preparation(state, request, selection, client))
    looks = may_rescue(state, request) and selection.strategy.name in MODEL_STRATEGIES
    try:
        opening = await open_within(state, _body(state, request), stream=request.stream, original=request)
    except UpstreamRejected as error:
        _would_rescue(state, of_refusal(error.upstream_status, error.payload) if looks else None)
        raise
    with opening as reply:
        # What is only watched is not gathered: a chat client gets the stream that its server sent unasked.
        is_stream = request.stream or (reply.content_type == "text/event-stream" and state.telling.is_identity)
        response = await (_stream if is_stream else _whole)(state, reply, terms, looks=looks)
        await finish_session(state, reply)
        return response


def _would_rescue(state: RequestState, swallowed: Swallowed | None) -> None:
    """A live answer would have been another one."""
    if swallowed is not None:
        note_rescue(state, swallowed, "would")


def watch_terms(state: RequestState, request: ChatRequest, prepared: Prepared | None) -> WatchTerms:
    """On what terms an answer is watched; without a preparation only its facts are taken down."""
    settings = state.configuration.settings
    return WatchTerms(
        prepared=prepared,
        tools=request.tools,
        # Processor time: on a busy machine a reading that did next to nothing was dropped for what others took.
        clock=time.thread_time,
        budget_s=settings.transform_budget_ms / 1000,
        today=datetime.fromtimestamp(state.shared.wall(), UTC).date(),
        ignore=settings.dry_run_ignore,
        limits=state.limits,
    )


def _body(state: RequestState, request: ChatRequest) -> bytes:
    """The request as it came, but for tools that a server of this kind cannot be sent at all."""
    if state.upstream.row.takes_tools or not request.wants_tools:
        return request.raw
    return request.replace(**dict.fromkeys(name for name in TOOL_FIELDS if name in request.body))


def preparation(state: RequestState, request: ChatRequest, selection: Selection, client: Client) -> Prepared | None:
    """How the answer is watched; `None` where it is not, or where the strategy refuses the request, or fails."""
    found = state.found
    found.verdict = None  # of another upstream, which was asked before
    settings = state.configuration.settings
    if found.enrolled.arm == "control" and settings.canary_rest == "control":
        return None
    # An answer to a request that was not told the tools in its prompt is read as one in which calls may have leaked.
    reading = state.configuration.factory.unprompted(selection)
    started = time.perf_counter()
    try:
        return reading.strategy.prepare(request, options_for(state, reading, client))
    except Exception as error:  # noqa: BLE001 - what a strategy does here costs its verdict, never the answer
        log.info("dry_run_unprepared", strategy=reading.strategy.name, fault=type(error).__name__)
        found.verdict = "would_fail"
        return None
    finally:
        found.prepare_s = time.perf_counter() - started


async def _whole(state: RequestState, reply: ChatReply, terms: WatchTerms, *, looks: bool) -> web.StreamResponse:
    is_identity = state.telling.is_identity
    body = await reply.read_all(**state.deadlines) if is_identity else await whole_body(state, reply)
    state.upstream_first = state.deadline.now()
    exchange = WatchedBody(terms)
    state.found.facts = exchange.facts
    await finish_session(state, reply, body)  # before the client can ask again, perhaps of another process
    state.deliver(body)
    headers = _headers(reply)
    if not is_identity:
        headers["Content-Type"] = "application/json"
    told = state.telling.whole(body)
    await keep_answer(state)
    response = await state.send(Whole(told, headers=headers))
    started = time.perf_counter()
    await in_turns(exchange.steps(body))
    state.found.read_s += time.perf_counter() - started
    finish_watch(state, exchange)
    _would_rescue(state, of_body(body) if looks else None)
    return response


async def _stream(state: RequestState, reply: ChatReply, terms: WatchTerms, *, looks: bool) -> web.StreamResponse:
    exchange = WatchedStream(terms)
    state.found.facts = exchange.facts
    headers, first = _headers(reply), b""
    if not state.telling.is_identity:
        headers["Content-Type"] = "text/event-stream"
        first = b"" if reply.content_type == "text/event-stream" else await stream_opening(state, reply)
    response = Streamed(headers=headers)
    size = state.configuration.settings.max_event_bytes
    lookout = Lookout(max_event_bytes=size) if looks else None
    try:
        return await pump(state, reply, exchange, response, first=first, lookout=lookout)
    finally:
        finish_watch(state, exchange)
        _would_rescue(state, lookout.swallowed if lookout is not None else None)


def finish_watch(state: RequestState, exchange: WatchedBody | WatchedStream) -> None:
    """Take down what the watch came to; where there was none, because of a fault, that is counted here."""
    found = state.found
    if found.verdict is not None:
        labels = {"dialect": "none", "verdict": found.verdict}
        state.shared.telemetry.count("toolgate_dryrun_verdicts_total", labels)
        return
    found.verdict, found.noise = exchange.verdict, exchange.noise()


def _headers(reply: ChatReply) -> CIMultiDict[str]:
    """The upstream's own, but for the encoding: the body has been decoded."""
    headers = response_headers(reply.headers, also_dropped=frozenset({"content-encoding"}))
    if not isinstance(reply, UpstreamReply):
        headers["Content-Type"] = reply.content_type
    return headers
