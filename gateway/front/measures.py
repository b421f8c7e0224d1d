"""What a request adds to the metrics."""

from functools import partial

from gateway.answer.facts import Facts
from gateway.answer.structured.review import CallFacts
from gateway.core.call_class import CallClass
from gateway.core.events import IN_REASONING, NONE_MARKUP, Verdict
from gateway.core.ports import Fed
from gateway.core.reasons import Reason
from gateway.core.sentences import reason_of
from gateway.front.summary import Summary
from gateway.request.shared import Telemetry
from strategies.grammar.confidence import UNDECLARED, UNFIT

__all__ = ["measure"]

SKIPPED = frozenset({Reason.NOT_LISTED, Reason.LOW_CONFIDENCE, Reason.PROVENANCE, Reason.SLICE_OFF, Reason.UNSAYABLE})
"""Why a candidate that could be read was left alone on purpose."""


def measure(summary: Summary, telemetry: Telemetry) -> None:
    """Count what the request came to."""
    arm = summary.arm or "off"  # only requests of the main job have one; the others are relayed in any case
    facts, is_traced, is_stream = summary.facts, summary.trace is not None, summary.stream
    read = 1.0 if facts.read else None
    streamed = read if is_stream else None
    first_sent_s = summary.first_sent_s
    begun = 1.0 if is_stream and first_sent_s is not None else None  # its client has got something of it
    telemetry.feed(
        summary.kind,
        partial(_rows, summary, telemetry, arm),
        # In the order of `_rows`; times with a trace are told by themselves.
        (
            1.0,
            # A time with a trace is told by itself, as the trace belongs to it alone.
            None if is_traced else summary.duration_s,
            summary.upstream_s,
            None if summary.upstream_s is None else summary.upstream_first_s,
            begun,
            # Gaps of a stream that never began would be counted as none at all.
            begun and summary.longest_gap_s,
            None if is_traced else begun and first_sent_s,
            facts.usage.get("input"),
            facts.usage.get("output"),
            read,
            read,
            read and summary.prepare_s,
            read and summary.read_s,
            read and summary.overhead_s,
            streamed and facts.held_bytes_max,
            streamed and summary.longest_hold_s,
        ),
    )
    if summary.trace is not None:
        _measure_traced(summary, telemetry, arm, summary.trace)
    if not summary.is_plain:
        _measure_found(summary, telemetry, arm)


def _measure_found(summary: Summary, telemetry: Telemetry, arm: str) -> None:
    """What the answer had beside its text."""
    facts = summary.facts
    if summary.has_answer:
        _measure_answer(facts, telemetry)
        if facts.structured.classes or facts.structured.copies or facts.undelivered:
            _measure_structured(summary, facts.structured, telemetry)
    if facts.read:
        _measure_reading(summary, telemetry, arm)


def _rows(summary: Summary, telemetry: Telemetry, arm: str) -> tuple[Fed, ...]:
    """What the values of `measure` go under, in their order."""
    upstream, model, strategy = summary.upstream, summary.model or "", summary.strategy or "none"
    outcome = summary.outcome
    if summary.facts.read and summary.end == "completed":
        # Names become labels only by requests that went well: any client may call a model anything.
        telemetry.admit("model", model, summary.who)
    way = {"route": summary.route, "stream": _told(summary.stream), "arm": arm}
    ended = {**way, "code": f"{summary.status // 100}xx", "health": "ok" if summary.is_healthy else "unhealthy"}
    transform = {"strategy": strategy, "dialect": summary.dialect, "arm": arm, "outcome": outcome}
    return (
        Fed("toolgate_requests_total", ended),
        Fed("toolgate_request_duration_seconds", way),
        Fed("toolgate_upstream_request_duration_seconds", {"upstream": upstream, "code": summary.upstream_code}),
        Fed("toolgate_upstream_first_token_seconds", {"upstream": upstream}),
        Fed("toolgate_stream_ends_total", {"reason": summary.end, "arm": arm}),
        Fed("toolgate_stream_gap_seconds", {"arm": arm}),
        Fed("toolgate_time_to_first_token_seconds", {"upstream": upstream, "arm": arm}),
        Fed("toolgate_tokens_total", {"type": "input", "upstream": upstream}),
        Fed("toolgate_tokens_total", {"type": "output", "upstream": upstream}),
        Fed("toolgate_transforms_total", transform),
        Fed("toolgate_transforms_by_model_total", {"model": model, "arm": arm, "outcome": outcome}),
        Fed("toolgate_transform_overhead_seconds", {"strategy": strategy, "phase": "prepare"}),
        Fed("toolgate_transform_overhead_seconds", {"strategy": strategy, "phase": "read"}),
        Fed("toolgate_transform_overhead_seconds", {"strategy": strategy, "phase": "total"}),
        Fed("toolgate_stream_held_bytes", {"family": strategy}),
        Fed("toolgate_hold_seconds", {}),
    )


def _told(flag: bool) -> str:
    return "true" if flag else "false"


def _measure_traced(summary: Summary, telemetry: Telemetry, arm: str, trace: str) -> None:
    """The times that are told with the trace they belong to."""
    way = {"route": summary.route, "stream": _told(summary.stream), "arm": arm}
    telemetry.observe_traced("toolgate_request_duration_seconds", way, summary.duration_s, trace)
    if summary.stream and summary.first_sent_s is not None:
        to = {"upstream": summary.upstream, "arm": arm}
        telemetry.observe_traced("toolgate_time_to_first_token_seconds", to, summary.first_sent_s, trace)


def _measure_answer(facts: Facts, telemetry: Telemetry) -> None:
    for fault, times in facts.mended.items():
        telemetry.count("toolgate_native_faults_mended_total", {"fault": fault}, times)
    for reason, times in facts.dropped.items():
        telemetry.count("toolgate_dropped_text_total", {"reason": reason}, times)
    for result, number in (("translated", facts.translated), ("refused", facts.untranslated)):
        if number:
            telemetry.count("toolgate_mapped_calls_total", {"result": result}, number)


def _measure_structured(summary: Summary, found: CallFacts, telemetry: Telemetry) -> None:
    """The calls that the model server made itself, in every arm."""
    if found.classes:
        upstream, model = summary.upstream, summary.model or ""
        telemetry.admit("model", model, summary.who)
        for call_class, number in found.classes.items():
            labels = {"upstream": upstream, "model": model, "class": call_class.value}
            telemetry.count("toolgate_structured_calls_total", labels, number)
        if misfits := found.classes[CallClass.SCHEMA_MISMATCH]:
            telemetry.count("toolgate_native_misfits_total", {"upstream": upstream}, misfits)
        for outcome, number in found.outcomes.items():
            telemetry.count("toolgate_structured_outcomes_total", {"upstream": upstream, "outcome": outcome}, number)
        for step, number in found.steps.items():
            telemetry.count("toolgate_native_faults_mended_total", {"fault": step}, number)
    if found.copies:
        telemetry.count("toolgate_duplicate_calls_total", {"strategy": summary.strategy or "none"}, found.copies)
    # Where the answer was read it is counted with the reading, once.
    if summary.facts.undelivered and not summary.facts.read:
        labels = {"strategy": summary.strategy or "none"}
        telemetry.count("toolgate_undelivered_calls_total", labels, summary.facts.undelivered)


def _measure_reading(summary: Summary, telemetry: Telemetry, arm: str) -> None:
    strategy, facts = summary.strategy or "none", summary.facts
    if summary.verdict is not None:
        _measure_verdict(summary, telemetry, summary.verdict)
    if facts.late_events:
        telemetry.count("toolgate_stream_late_events_total", {"strategy": strategy}, facts.late_events)
    for verdict in facts.intents:
        if NONE_MARKUP in verdict.reasons:
            result = "dropped" if arm == "live" and facts.dropped.get(NONE_MARKUP) else "kept"
            telemetry.count("toolgate_none_markup_total", {"dialect": verdict.dialect, "result": result})
        else:
            telemetry.count("toolgate_overheard_calls_total", {"dialect": verdict.dialect})
    if copies := facts.dropped.get("duplicate"):
        telemetry.count("toolgate_duplicate_calls_total", {"strategy": strategy}, copies)
    if facts.undelivered:
        telemetry.count("toolgate_undelivered_calls_total", {"strategy": strategy}, facts.undelivered)
    if facts.calls:
        _measure_calls(facts, telemetry, strategy, arm, summary.who)
    for verdict in summary.attempted:
        _measure_refusal(verdict, telemetry, strategy, arm)


def _measure_verdict(summary: Summary, telemetry: Telemetry, verdict: str) -> None:
    telemetry.count("toolgate_dryrun_verdicts_total", {"dialect": summary.dialect, "verdict": verdict})
    if verdict == "dropped":
        telemetry.count("toolgate_transform_skips_total", {"reason": "over_budget"})
    # Counted as skipped: it would have been, but for the arm.
    elif verdict == "would_change":
        telemetry.count("toolgate_transform_skips_total", {"reason": "control_arm"})
    if summary.noise:
        telemetry.count("toolgate_dryrun_noise_total", {"dialect": summary.dialect})


def _measure_calls(facts: Facts, telemetry: Telemetry, strategy: str, arm: str, who: str) -> None:
    for call in facts.calls:
        verdict = call.verdict
        dialect = {"dialect": verdict.dialect}
        # A tool that was called well has earned its name as a label.
        telemetry.admit("tool", verdict.name, who)
        telemetry.count("toolgate_transforms_by_tool_total", {"tool": verdict.name, "arm": arm, "outcome": "success"})
        telemetry.observe(
            "toolgate_transform_confidence_ratio", {"strategy": strategy, "decision": "apply"}, verdict.score / 100
        )
        if IN_REASONING in verdict.reasons:
            telemetry.count("toolgate_reasoning_calls_total", {**dialect, "arm": arm})
        if arm != "live":
            continue  # the client was given none of them
        telemetry.count("toolgate_recovered_calls_total", dialect)
        telemetry.observe("toolgate_call_bytes", dialect, call.size)
        if any(reason == UNDECLARED or reason.startswith("known_tool_only") for reason in verdict.reasons):
            telemetry.count("toolgate_undeclared_calls_total", dialect)
        if UNFIT in verdict.reasons:
            telemetry.count("toolgate_unfit_calls_total", dialect)


def _measure_refusal(verdict: Verdict, telemetry: Telemetry, strategy: str, arm: str) -> None:
    reason = reason_of(verdict)
    # Left alone on purpose is no error, and must not be in the rate that alerts look at.
    if reason in SKIPPED:
        telemetry.count("toolgate_transform_skips_total", {"reason": reason})
    else:
        telemetry.count("toolgate_transform_errors_total", {"strategy": strategy, "reason": reason})
    telemetry.count("toolgate_transforms_by_tool_total", {"tool": verdict.name, "arm": arm, "outcome": "error"})
    if verdict.score:
        telemetry.observe(
            "toolgate_transform_confidence_ratio", {"strategy": strategy, "decision": "pass"}, verdict.score / 100
        )
