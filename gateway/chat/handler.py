"""The main job: a chat request in, the answer of its model server out, read by the strategy that was chosen."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec

import msgspec
import structlog
from aiohttp import web
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.facts import Facts
from gateway.answer.rescue.faces import of_answer
from gateway.answer.stream import StreamExchange
from gateway.answer.structured.schema_check import held_to_schemas
from gateway.chat.accept import accept, begin_answer, count_path, count_unsaid, keep_answer
from gateway.chat.enrolment import enrol, hear, note_loop, steered
from gateway.chat.lessons_learnt import known_of, learn_from
from gateway.chat.opening import opened
from gateway.chat.prepare import options_for, with_tools
from gateway.chat.pump import pump
from gateway.chat.repeat import ask_again, second_answer
from gateway.chat.rescue import Chance, chance_of
from gateway.chat.same_wire import PathAbsent, Reading, Terms, may_be_read, may_go_as_it_is, relayed
from gateway.chat.tokens import estimate, learn_ratio, load_ratio
from gateway.chat.watched import WATCHED_ARMS, in_turns, preparation, watch_terms, watched
from gateway.core.client import Client
from gateway.core.errors import GatewayError, UpstreamRejected
from gateway.request.findings import Way
from gateway.request.headers import client_of, response_headers
from gateway.request.responses import Streamed, json_response
from gateway.request.state import RequestState
from gateway.rollout.assignment import Assignment
from gateway.surfaces.port import Asked
from gateway.traffic.routing import Route
from gateway.upstream.attempts import fail_over, may_fail_over
from gateway.upstream.client import UpstreamReply
from gateway.upstream.reply_shape import stream_opening, whole_body
from gateway.upstream.translated import ChatReply, finish_session
from gateway.wire.chat_request import ChatRequest
from strategies.asking.intent import IntentRecovery
from strategies.base import Prepared
from strategies.factory import Passthrough, Selection

__all__ = ["chat"]

OWN_HEADERS = frozenset({"content-type", "content-encoding"})

log = structlog.get_logger("toolgate")
P = ParamSpec("P")


async def chat(state: RequestState) -> web.StreamResponse:
    """A request for an answer, on whichever surface."""
    raw = await state.read_body()
    asked = await accept(state, raw)
    request = asked.request
    state.model, state.stream = request.model, request.stream
    if request.stream:
        await state.count_stream()
    route = state.configuration.router.route(request.model)
    state.found.enrolled, assignment = enrol(state, asked)
    first, *others = route.upstreams
    upstream = state.configuration.upstreams[first]
    state.upstream = upstream if route.rule is None else upstream.timed(route.rule)
    for name in others:
        try:
            return await _answered(state, asked, raw, route, assignment)
        except GatewayError as error:
            # A client that has been told a status cannot be given another server's answer.
            if state.status or not may_fail_over(error):
                raise
            fail_over(state, error)
        state.upstream = state.configuration.upstreams[name].timed(route.rule)
        if not state.surface.is_identity:  # what is asked may depend on who is asked
            asked = await accept(state, raw, state.upstream)
    return await _answered(state, asked, raw, route, assignment)


def _answered(
    state: RequestState, asked: Asked, raw: bytes, route: Route, assignment: Assignment
) -> Awaitable[web.StreamResponse]:
    """Answer by the upstream that the state names now."""
    send_as = None if route.rule is None else route.rule.send_as
    request = asked.request.renamed(send_as) if send_as else asked.request
    client = client_of(state.http.headers)
    selection = _selected(state, asked, request, client, route, assignment)
    if state.surface.is_identity:
        return _converted(state, request, selection, client, route, assignment)
    return _bridged(state, asked, raw, request, selection, client, route, assignment)


async def _bridged(
    state: RequestState,
    asked: Asked,
    raw: bytes,
    request: ChatRequest,
    selection: Selection,
    client: Client,
    route: Route,
    assignment: Assignment,
) -> web.StreamResponse:
    """Answer a client that speaks another wire than chat."""
    if not state.shared.token_ratios.knows(state.upstream.name, asked.request.model):
        await load_ratio(state, asked.request.model)
    try:
        if may_go_as_it_is(state, asked, selection, route.rule, arm=assignment.arm):
            try:
                return await _as_it_is(state, asked, raw, selection, client, route, assignment)
            except PathAbsent:
                pass
        count_path(state, "converted")
        begin_answer(state, asked)
        if request.stream:  # a whole answer is told when its server has said what it took
            state.input_tokens, _ = estimate(state, asked.request)
        return await _converted(state, request, selection, client, route, assignment)
    finally:
        if (learned := learn_ratio(state, asked)) is not None:
            await state.shared.sessions.remember({learned.key: learned.value}, learned.ttl_s)


async def _as_it_is(
    state: RequestState,
    asked: Asked,
    raw: bytes,
    selection: Selection,
    client: Client,
    route: Route,
    assignment: Assignment,
) -> web.StreamResponse:
    """Send the request as it came, in the wire that both sides speak."""
    is_watched = assignment.arm in WATCHED_ARMS
    request = asked.request
    beside = preparation(state, request, selection, client) if is_watched else None
    reading = None
    if assignment.arm == "live" and may_be_read(state, request, selection):
        prepared = _prepare(state, request, selection, client, route)
        if prepared.make_reader is not None:
            terms = _terms(state)
            if asked.refusal is not None:  # no second question can be put in chat
                terms["asks"] = 0
            reading = Reading(prepared=prepared, terms=terms)
    try:
        return await relayed(state, asked, raw, route, partial(watch_terms, state, request, beside), reading)
    finally:
        _afterwards(learn_from, state)


def _selected(
    state: RequestState,
    asked: Asked,
    request: ChatRequest,
    client: Client,
    route: Route,
    assignment: Assignment,
) -> Selection:
    """The strategy for the request, written down; and what it tells of the answer before it."""
    own = asked.request
    selection = state.configuration.decide(
        request,
        known_of(state, own, own.model),
        client,
        assignment.arm,
        state.upstream.kind.name,
        asked=own.model,
        is_chat=state.surface.is_identity,
    )
    if selection.reason == "intent" and route.rule is not None and route.rule.intent == "deliver":
        selection = replace(selection, strategy=IntentRecovery())
    found = state.found
    found.way = Way(strategy=selection.strategy.name, selected=selection.reason)
    if found.follows is None:  # else it is asked of another upstream, and tells what it told before
        found.follows = hear(state, own, assignment)
    note_loop(state, request)
    return selection


async def _converted(
    state: RequestState,
    request: ChatRequest,
    selection: Selection,
    client: Client,
    route: Route,
    assignment: Assignment,
) -> web.StreamResponse:
    """Ask in chat, whatever the client speaks."""
    found = state.found
    # Only a kind with sessions has to know what was said: any other answer would be held to its end for nothing.
    state.delivered = [] if state.upstream.row.is_translated else None
    if assignment.arm in WATCHED_ARMS:
        try:
            return await watched(state, request, selection, client)
        finally:
            _afterwards(learn_from, state)
            if state.telling.dropped or state.telling.mended:
                _afterwards(count_unsaid, state)
    if found.looping_tool is not None:
        request = steered(state, request)
    prepared = _prepare(state, request, selection, client, route)
    try:
        try:
            opening = await opened(state, request, prepared, route)
        except UpstreamRejected as error:
            chance = chance_of(state, request, prepared, route)
            instead = await chance.instead_of(error) if chance is not None else None
            if chance is None or instead is None:
                raise
            return await chance.send(instead)
        prepared, keywords = opening.prepared, (*state.upstream.down_level, *opening.told_less)
        if keywords or state.upstream.row.is_translated:
            prepared = held_to_schemas(prepared, state.upstream.kind, keywords)
        chance = chance_of(state, request, prepared, route)
        reply = opening.reply
        try:
            response = await (_stream if request.stream else _whole)(state, reply, prepared, chance)
            if not isinstance(reply, UpstreamReply):
                await finish_session(state, reply)
            return response
        finally:
            # However this ends, also by a client that leaves: its model server need not go on.
            reply.close()
    finally:
        _afterwards(learn_from, state)
        if state.telling.dropped or state.telling.mended:
            _afterwards(count_unsaid, state)
        if found.facts is not None and found.facts.calls:
            _afterwards(_audit, found.facts)


def _afterwards(work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do what is left to do when the client has its answer: a fault in it must not cut that off."""
    try:
        work(*args, **kwargs)
    except Exception:
        log.exception("afterwork_failed")


def _audit(facts: Facts) -> None:
    """Write down every command that was recovered from a shell block; what it says, for the debug log alone."""
    for call in facts.calls:
        if call.command:
            verdict = call.verdict
            log.info("shell_call_recovered", tool=verdict.name, score=verdict.score / 100, reasons=verdict.reasons)
            log.debug("shell_call_text", tool=verdict.name, arguments=call.command)


def _prepare(state: RequestState, request: ChatRequest, selection: Selection, client: Client, route: Route) -> Prepared:
    started, selected = time.perf_counter(), selection.reason
    try:
        prepared = with_tools(state, request, selection, options_for(state, selection, client), route.rule)
    # A refusal is meant for the client, such as that of too many tools; all else is a fault of the strategy's own.
    except GatewayError:
        raise
    except Exception:
        log.exception("strategy_failed", strategy=selection.strategy.name)
        # A broken strategy costs its request the transformation, not the answer.
        selected = f"{selection.strategy.name}_failed"
        prepared = Passthrough().prepare(request, state.configuration.options(None))
    found = state.found
    found.prepare_s = time.perf_counter() - started
    found.way = Way.prepared(selected, request, prepared)
    found.notes.extend(prepared.warnings)
    return prepared


async def _whole(
    state: RequestState, reply: ChatReply, prepared: Prepared, chance: Chance | None
) -> web.StreamResponse:
    body = await whole_body(state, reply)
    try:
        decoded = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        decoded = None  # what is wrong with it is said where it is read
    swallowed = of_answer(decoded) if chance is not None else None
    if chance is not None and swallowed is not None:
        instead = await chance.instead_of_body(swallowed, body)
        if instead is not None:
            return await chance.send(instead)
    exchange = BodyExchange(prepared, **_terms(state))
    state.found.facts = exchange.facts
    started = time.perf_counter()
    answer = await in_turns(exchange.steps(body, decoded))
    state.found.read_s += time.perf_counter() - started
    while (wanted := exchange.ask_again) is not None:
        # Both ways cost a generation, and one request may cost no more than one besides its own.
        if chance is not None and chance.is_spent:
            answer = await in_turns(exchange.no_second_steps())
        else:
            answer = await ask_again(state, exchange, wanted, partial(second_answer, state))
    if not isinstance(reply, UpstreamReply):
        await finish_session(state, reply, answer)  # first: the next request may come on the heels of the answer
    state.deliver(answer)
    if state.telling.is_identity:
        response = json_response(answer)
    else:
        response = json_response(state.telling.whole(answer))
        await keep_answer(state)
    response_headers(reply.headers, also_dropped=OWN_HEADERS, behind=response.headers)
    return await state.send(response)


async def _stream(
    state: RequestState, reply: ChatReply, prepared: Prepared, chance: Chance | None
) -> web.StreamResponse:
    exchange = StreamExchange(prepared, **_terms(state))
    state.found.facts = exchange.facts
    # Some servers answer with one JSON document though a stream was asked for.
    first = b"" if reply.content_type == "text/event-stream" else await stream_opening(state, reply)
    response = Streamed(headers=response_headers(reply.headers, also_dropped=OWN_HEADERS))
    response.headers["Content-Type"] = "text/event-stream"
    lookout = chance.lookout() if chance is not None else None
    return await pump(state, reply, exchange, response, first=first, lookout=lookout, chance=chance)


def _terms(state: RequestState) -> Terms:
    """On what terms an answer is read: how often it may be asked again, and whether its text is kept for a record."""
    settings = state.configuration.settings
    return Terms(
        make_id=state.make_call_id,
        limits=state.limits,
        asks=settings.repair_attempts if state.found.enrolled.arm == "live" else 0,
        keep_text=settings.audit_bodies != "none",
    )
