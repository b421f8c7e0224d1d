"""The head of an answer; where the server takes no native tools, or cannot compile them, that to another request.

A refusal costs no generation: tools that cannot be compiled are told in simpler words first, then in the prompt.
"""

import time

import structlog
from attrs import frozen
from msgspec import Struct
from msgspec.structs import replace

from gateway.answer.rescue.faces import Swallowed, of_refusal
from gateway.answer.rescue.remedies import SIMPLER, with_usage
from gateway.chat.length import open_within
from gateway.chat.lessons_learnt import learn_refusal, may_fall_back, may_rescue, note_rescue
from gateway.chat.prepare import options_for, with_tools
from gateway.core.errors import GatewayError, UpstreamRejected
from gateway.kinds.lowering.without import lowered
from gateway.request.findings import Way
from gateway.request.headers import client_of
from gateway.request.state import RequestState
from gateway.traffic.lesson_rules import LESSON_S
from gateway.traffic.routing import Route
from gateway.upstream.translated import ChatReply, open_chat
from gateway.wire.chat_request import ChatRequest
from strategies.base import Prepared
from strategies.factory import NATIVE_STRATEGIES, Selection

__all__ = ["Opened", "Prompted", "opened", "prompted"]

log = structlog.get_logger("toolgate")


class Opened(Struct, frozen=True, kw_only=True):
    """An answer whose head is there, and how it is to be read."""

    reply: ChatReply
    prepared: Prepared
    told_less: tuple[str, ...] = ()
    """Keywords that the tools' schemas were told without, beside those that the upstream never gets."""


@frozen(kw_only=True)
class Prompted:
    """A request with its tools in the prompt."""

    request: ChatRequest
    prepared: Prepared
    selection: Selection

    def take(self, state: RequestState) -> None:
        """It is what the client's answer comes from."""
        state.found.way = Way.prepared(self.selection.reason, self.request, self.prepared)
        state.found.notes.extend(self.prepared.warnings)


def prompted(
    state: RequestState, request: ChatRequest, route: Route, reason: str, *, dialect: str | None = None
) -> Prompted | None:
    """The request with its tools in the prompt; None where it cannot be had."""
    selection = replace(state.configuration.factory.prompted(reason), dialect=dialect)
    started = time.perf_counter()
    try:
        options = options_for(state, selection, client_of(state.http.headers))
        prepared = with_tools(state, request, selection, options, route.rule)
    except GatewayError as error:
        log.info("native_fallback_impossible", error=error.code, message=error.message)
        return None
    except Exception:
        log.exception("strategy_failed", strategy=selection.strategy.name)
        return None
    state.found.prepare_s += time.perf_counter() - started
    return Prompted(request=request, prepared=prepared, selection=selection)


async def opened(state: RequestState, request: ChatRequest, prepared: Prepared, route: Route) -> Opened:
    """The answer's head; where native tools are refused, that to the request with its tools in the prompt."""
    is_live = state.found.enrolled.arm == "live" and state.found.way.strategy in NATIVE_STRATEGIES
    rescues = is_live and may_rescue(state, request)
    known = state.shared.rescues
    wants_simpler = rescues and known.wants_simpler(state.upstream.name, state.model or "", state.deadline.now())
    told_less = SIMPLER if wants_simpler else ()
    body = lowered(prepared.body, told_less) if told_less else prepared.body
    # Silence is told from a swallowed turn by its tokens, which a stream may say only where it is asked for them.
    asks = rescues and request.stream and prepared.strategy == "recovery" and known.may_ask_usage(state.upstream.name)
    try:
        reply = await _with_usage(state, request, body) if asks else None
        if reply is None:
            opening = open_chat if state.surface.is_identity else open_within
            reply = await opening(state, body, stream=request.stream, original=request)
        return Opened(reply=reply, prepared=prepared, told_less=told_less)
    except UpstreamRejected as error:
        swallowed = of_refusal(error.upstream_status, error.payload) if rescues else None
        if swallowed is not None and swallowed.face.refuses_schema:
            other = await _without_grammar(state, request, prepared, route, swallowed, is_told_less=bool(told_less))
        elif may_fall_back(state, error):
            other = await _without_native(state, request, route, error)
        else:
            other = None
        if other is None:
            raise
        return other


async def _with_usage(state: RequestState, request: ChatRequest, body: bytes) -> ChatReply | None:
    """The head of an answer that tells its usage; None where the server is not to be asked for that."""
    asking = with_usage(body)
    if asking is None:
        return None
    try:
        reply = await open_within(state, asking, stream=request.stream, original=request)
    except UpstreamRejected as error:
        if not _refuses_usage(error):
            raise
        state.shared.rescues.refused_usage(state.upstream.name)
        return None
    state.found.asks_usage = True
    return reply


def _refuses_usage(error: UpstreamRejected) -> bool:
    # By the field's name, as each server has words of its own for a field that it does not know.
    return error.upstream_status in (400, 422) and b"stream_options" in (error.payload or b"")


async def _without_native(
    state: RequestState, request: ChatRequest, route: Route, error: UpstreamRejected
) -> Opened | None:
    other, budget = prompted(state, request, route, "refused"), state.shared.second_questions
    if other is None or not budget.take(state.shared.admission.active):
        return None
    try:
        other.take(state)
        reply = await open_within(state, other.prepared.body, stream=request.stream, original=request)
        learn_refusal(state, error, request.raw)
        return Opened(reply=reply, prepared=other.prepared)
    finally:
        budget.give_back()


async def _without_grammar(
    state: RequestState,
    request: ChatRequest,
    prepared: Prepared,
    route: Route,
    swallowed: Swallowed,
    *,
    is_told_less: bool,
) -> Opened | None:
    """The answer to simpler tools, else to those in the prompt; each is a request more, and no generation."""
    budget = state.shared.second_questions
    if not budget.take(state.shared.admission.active):
        note_rescue(state, swallowed, "not_possible")
        return None
    result = "failed"
    try:
        simpler = None if is_told_less else lowered(prepared.body, SIMPLER)
        if simpler is not None and simpler != prepared.body:
            reply = await _tried(state, request, simpler)
            if reply is not None:
                until = state.deadline.now() + LESSON_S
                state.shared.rescues.learn_simpler(state.upstream.name, state.model or "", until)
                result = "asked"
                return Opened(reply=reply, prepared=prepared, told_less=SIMPLER)
        other = prompted(state, request, route, "parser_failed")
        reply = await _tried(state, request, other.prepared.body) if other is not None else None
        if other is None or reply is None:
            return None
        other.take(state)
        result = "asked"
        return Opened(reply=reply, prepared=other.prepared)
    finally:
        budget.give_back()
        note_rescue(state, swallowed, result)


async def _tried(state: RequestState, request: ChatRequest, body: bytes) -> ChatReply | None:
    try:
        # This is a second try already: a broken connection is no reason for a third.
        return await open_chat(state, body, stream=request.stream, original=request, repeatable=False)
    except GatewayError as error:
        log.info("rescue_refused", error=error.code, upstream_status=state.upstream_status)
        return None
