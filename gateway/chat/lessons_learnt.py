"""What a request teaches about its model: whether to give it native tools, and what its answer may be rated by."""

import structlog

from gateway.answer.candidates import broken_calls
from gateway.answer.facts import Facts
from gateway.answer.rescue.faces import Swallowed
from gateway.answer.structured.review import CallFacts
from gateway.core.call_class import CallClass
from gateway.core.errors import UpstreamRejected
from gateway.core.reasons import Reason
from gateway.request.state import RequestState
from gateway.traffic.lesson_rules import WEEK_S, Fault, Terms, quotes_refusal, refuses_tools
from gateway.wire.chat_request import ChatRequest
from strategies.factory import NATIVE_STRATEGIES, PROMPTED, Capability
from strategies.schema.structured import function_of

__all__ = ["fall_back", "known_of", "learn_from", "learn_refusal", "may_fall_back", "may_rescue", "note_rescue"]

LEARNED_NATIVE = "learned_native"

log = structlog.get_logger("toolgate")


def may_fall_back(state: RequestState, error: UpstreamRejected) -> bool:
    """Whether this refusal was one of native tools, which the request can do without."""
    return (
        state.configuration.settings.native_fallback
        and state.found.enrolled.arm == "live"
        and state.found.way.strategy in NATIVE_STRATEGIES
        and refuses_tools(error.upstream_status, error.payload)
    )


def may_rescue(state: RequestState, request: ChatRequest) -> bool:
    """Whether an answer to this request may be replaced where the server's parser swallowed it."""
    return (
        state.configuration.settings.rescue
        and request.wants_tools
        # A turn is replaced as a whole: with several choices the good ones would go with it.
        and request.body.get("n") in (None, 1)
        and not state.upstream.row.is_translated
    )


def note_rescue(state: RequestState, swallowed: Swallowed, result: str) -> None:
    """Take down what came of a swallowed turn."""
    labels = {"upstream": state.upstream.name, "face": swallowed.face.name, "result": result}
    state.shared.telemetry.count("toolgate_rescues_total", labels)
    state.found.notes.append(f"parser_failed: {swallowed.face.name}, {result}")
    log.info("parser_failed", model=state.model, upstream_status=state.upstream_status, **labels)


def learn_refusal(state: RequestState, error: UpstreamRejected, asked: bytes) -> None:
    """The request without native tools was taken: they were what this refusal was about."""
    # An error that quotes the request may have the telling words from its user.
    if not quotes_refusal(error.upstream_status, error.payload, asked):
        fall_back(state, "refused")


def fall_back(state: RequestState, reason: str) -> None:
    """From now on, for a while, this model is told of its tools in the prompt."""
    upstream, model = state.upstream.name, state.model or ""
    state.shared.lessons.learn(upstream, model, reason, state.deadline.now())
    state.shared.telemetry.count("toolgate_native_fallbacks_total", {"upstream": upstream, "reason": reason})
    log.info("native_fallback", reason=reason, model=model, upstream=upstream, upstream_status=state.upstream_status)


def known_of(state: RequestState, request: ChatRequest, model: str) -> Capability:
    """What was learned of the model, for this request: a conversation that was prompted stays so."""
    known = state.capability(model)
    if known.native_tools and _was_prompted(state, request):
        return Capability()
    return known


def _was_prompted(state: RequestState, request: ChatRequest) -> bool:
    """Whether a call of the conversation was made of a prompted answer, as its id tells."""
    for message in reversed(request.messages):
        for call in message.get("tool_calls") or () if isinstance(message.get("tool_calls"), list) else ():
            given = call.get("id") if isinstance(call, dict) else None
            mark = state.shared.call_ids.read(given) if isinstance(given, str) else None
            if mark is not None:
                return mark.strategy == PROMPTED
    return False


def _weigh_native(state: RequestState, facts: Facts) -> None:
    """An answer to native tools tells whether its model calls them well, where the table would have it prompted."""
    enrolled, shared, now = state.found.enrolled, state.shared, state.deadline.now()
    request, strategy = enrolled.request, state.found.way.strategy
    if not state.configuration.settings.native_fallback or request is None or not request.wants_tools:
        return
    upstream, model = state.upstream.name, state.model or ""
    lesson = shared.lessons.recall(upstream, model, now)
    is_learned = lesson is not None and lesson.is_native
    is_untouched = enrolled.arm in ("control", "dry_run")
    if not is_learned and not (is_untouched and strategy == PROMPTED and lesson is None):
        return
    if not is_untouched and strategy not in NATIVE_STRATEGIES:
        return
    has_misfits = any(number for kind, number in facts.structured.classes.items() if kind is not CallClass.VALID)
    is_bad = bool(has_misfits or facts.unusable_calls or facts.calls or broken_calls(facts) or facts.broken_calls)
    news = shared.native_evidence.observe(
        upstream, model, calls=facts.native_calls, is_bad=is_bad, is_learned=is_learned
    )
    if news == "learned":
        shared.lessons.learn(upstream, model, LEARNED_NATIVE, now, Terms(rule="recovery", seconds=WEEK_S))
    elif news == "ended":
        shared.lessons.forget(upstream, model, now)
    if news is not None:
        log.info("native_learned" if news == "learned" else "native_unlearned", model=model, upstream=upstream)


def _weigh_abilities(state: RequestState, facts: Facts) -> None:
    """Whether the server does as a client asks of it by a named `tool_choice`, or by tools that are strict."""
    enrolled, strategy = state.found.enrolled, state.found.way.strategy
    request = enrolled.request
    if request is None or strategy not in (*NATIVE_STRATEGIES, PROMPTED) or facts.failure is not None:
        return
    # With its tools in the prompt a request asks nothing of the server: only one that went up as it came shows what it
    # obeys.
    if strategy == PROMPTED and enrolled.arm not in ("control", "dry_run"):
        return
    classes = facts.structured.classes
    is_valid = bool(classes) and all(kind is CallClass.VALID for kind, times in classes.items() if times)
    upstream, model = state.upstream.name, state.model or ""
    if isinstance(request.tool_choice, dict) and "function" in request.tool_choice:
        state.shared.abilities.observe(upstream, model, "named", worked=is_valid)
    tools = request.body.get("tools")
    entries = tools if isinstance(tools, list) else []
    if classes and any(function_of(entry).get("strict") is True for entry in entries):
        state.shared.abilities.observe(upstream, model, "strict", worked=is_valid)


def _weigh_context(state: RequestState, facts: Facts) -> None:
    """Whether the server has read all of the prompt; what pictures take is another matter."""
    request, tokens = state.found.enrolled.request, facts.usage.get("input", 0)
    # A second answer brings the tokens of its own request into the sum.
    if request is None or not tokens or facts.has_second_answer or request.has_pictures:
        return
    upstream, model = state.upstream.name, state.model or ""
    cut = state.shared.context_cuts.observe(upstream, model, size=len(request.raw), tokens=tokens)
    if cut is None:
        return
    state.found.notes.append(f"context_cut: {cut.at} tokens were read" + (f" of {cut.sent}" if cut.sent else ""))
    state.shared.telemetry.count("toolgate_context_cut_total", {"upstream": upstream, "model": model})
    log.warning("context_cut", upstream=upstream, model=model, tokens=cut.at, expected=cut.sent or None)


def learn_from(state: RequestState) -> None:
    """Take down how a request has ended: its answer can be rated, and its native calls were usable or not."""
    found = state.found
    facts, strategy, arm = found.facts, found.way.strategy, found.enrolled.arm
    if facts is None:
        return
    if facts.structured.classes or facts.structured.faults:
        _note_calls(state, facts.structured)
    if facts.completion_id is not None:
        shown = found.answer_id or facts.completion_id
        state.shared.answers.remember(shown, request_id=state.id, strategy=strategy, arm=arm, who=state.who)
    if state.stream and found.is_usage_unasked and facts.finish_reasons and facts.failure is None:
        state.shared.rescues.saw_usage(state.upstream.name, is_told=bool(facts.usage))
    request, classes = found.enrolled.request, facts.structured.classes
    if classes or (request is not None and isinstance(request.tool_choice, dict)):
        _weigh_abilities(state, facts)
    _weigh_context(state, facts)
    # Of calls any other answer tells nothing, good or bad.
    if facts.native_calls or classes or facts.calls or facts.refused or facts.unusable_calls or facts.broken_calls:
        _weigh_native(state, facts)
        _weigh_calls(state, facts)


def _weigh_calls(state: RequestState, facts: Facts) -> None:
    """Whether the model is better told of its tools in the prompt."""
    strategy, arm = state.found.way.strategy, state.found.enrolled.arm
    settings = state.configuration.settings
    if arm == "live" and strategy in NATIVE_STRATEGIES and (facts.native_calls or facts.calls):
        state.shared.rescues.answered(state.upstream.name, state.model or "")
    if (
        not (settings.native_fallback and settings.native_fallback_rate)
        or arm != "live"
        or strategy not in NATIVE_STRATEGIES
    ):
        return
    fault = _fault(facts)
    if fault is None and not facts.native_calls and not facts.calls:
        return
    learned = state.shared.native_record.observe(
        state.upstream.name,
        state.model or "",
        fault,
        state.deadline.now(),
        window=settings.native_fallback_window,
        percent=settings.native_fallback_rate,
    )
    if learned is not None:
        fall_back(state, learned)


def _note_calls(state: RequestState, found: CallFacts) -> None:
    """How well the model server's own calls fitted; tools and faults go into the log, what was called with does not."""
    upstream, model = state.upstream.name, state.model or ""
    state.shared.valid_calls.observe(upstream, model, found.classes)
    if found.faults:
        told = [{"tool": name, "fault": fault} for name, fault in found.faults]
        outcomes = dict(found.outcomes)
        log.warning("structured_calls_misfit", upstream=upstream, model=model, faults=told, outcomes=outcomes)


_SAME_WHEN_PROMPTED = (Reason.UNKNOWN_TOOL, Reason.SLICE_OFF)
"""A model that calls a tool nobody offered would do the same with its tools in the prompt; and what is switched off is
not to be got around by asking in another way."""


def _fault(facts: Facts) -> Fault | None:
    """What was wrong with an answer's calls; one that was recovered from text arrived as it should."""
    if facts.unusable_calls:
        return "bad_arguments"
    if facts.calls or facts.has_second_answer:
        return None
    is_lost = facts.broken_calls or (
        facts.refused and any(verdict.refusal not in _SAME_WHEN_PROMPTED for verdict in broken_calls(facts))
    )
    return "as_text" if is_lost else None
