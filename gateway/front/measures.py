"""What a request adds to the metrics."""

from gateway.answer.facts import Facts
from gateway.answer.structured.review import CallFacts
from gateway.core.call_class import CallClass
from gateway.core.events import IN_REASONING, Verdict
from gateway.core.reasons import Reason
from gateway.core.sentences import reason_of
from gateway.front.summary import Summary
from gateway.request.shared import Telemetry
from strategies.grammar.confidence import UNDECLARED

__all__ = ["measure"]

SKIPPED = frozenset({Reason.NOT_LISTED, Reason.LOW_CONFIDENCE, Reason.PROVENANCE, Reason.SLICE_OFF, Reason.UNSAYABLE})
"""Why a candidate that could be read was left alone on purpose."""


def measure(summary: Summary, telemetry: Telemetry) -> None:
    """Count what the request came to."""
    arm = summary.arm or "off"  # only requests of the main job have one; the others are relayed in any case
    _measure_request(summary, telemetry, arm)
    if summary.upstream_s is not None:
        _measure_upstream(summary, telemetry, summary.upstream_s)
    if summary.stream and summary.first_sent_s is not None:
        _measure_stream(summary, telemetry, arm, summary.first_sent_s)
    if summary.has_answer:
        _measure_answer(summary.facts, telemetry, summary.upstream)
        _measure_structured(summary, summary.facts.structured, telemetry)
    if summary.facts.read:
        _measure_reading(summary, telemetry, arm)


def _measure_request(summary: Summary, telemetry: Telemetry, arm: str) -> None:
    stream = "true" if summary.stream else "false"
    telemetry.count(
        "toolgate_requests_total",
        {
            "route": summary.route,
            "stream": stream,
            "code": f"{summary.status // 100}xx",
            "arm": arm,
            "health": "ok" if summary.is_healthy else "unhealthy",
        },
    )
    telemetry.observe_traced(
        "toolgate_request_duration_seconds",
        {"route": summary.route, "stream": stream, "arm": arm},
        summary.duration_s,
        summary.trace,
    )


def _measure_upstream(summary: Summary, telemetry: Telemetry, seconds: float) -> None:
    upstream = summary.upstream
    telemetry.observe(
        "toolgate_upstream_request_duration_seconds", {"upstream": upstream, "code": summary.upstream_code}, seconds
    )
    if summary.upstream_first_s is not None:
        telemetry.observe("toolgate_upstream_first_token_seconds", {"upstream": upstream}, summary.upstream_first_s)


def _measure_stream(summary: Summary, telemetry: Telemetry, arm: str, first_sent_s: float) -> None:
    telemetry.count("toolgate_stream_ends_total", {"reason": summary.end, "arm": arm})
    telemetry.observe("toolgate_stream_gap_seconds", {"arm": arm}, summary.longest_gap_s)
    telemetry.observe_traced(
        "toolgate_time_to_first_token_seconds", {"upstream": summary.upstream, "arm": arm}, first_sent_s, summary.trace
    )


def _measure_answer(facts: Facts, telemetry: Telemetry, upstream: str) -> None:
    for fault, times in facts.mended.items():
        telemetry.count("toolgate_native_faults_mended_total", {"fault": fault}, times)
    for reason, times in facts.dropped.items():
        telemetry.count("toolgate_dropped_text_total", {"reason": reason}, times)
    for kind, tokens in facts.usage.items():
        telemetry.count("toolgate_tokens_total", {"type": kind, "upstream": upstream}, max(0, tokens))
    for result, number in (("translated", facts.translated), ("refused", facts.untranslated)):
        if number:
            telemetry.count("toolgate_mapped_calls_total", {"result": result}, number)


def _measure_structured(summary: Summary, found: CallFacts, telemetry: Telemetry) -> None:
    """The calls that the model server made itself, in every arm."""
    if found.classes:
        upstream, model = summary.upstream, summary.model or ""
        telemetry.admit("model", model)
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
    if summary.facts.undelivered and not summary.facts.read:
        labels = {"strategy": summary.strategy or "none"}
        telemetry.count("toolgate_undelivered_calls_total", labels, summary.facts.undelivered)


def _measure_reading(summary: Summary, telemetry: Telemetry, arm: str) -> None:
    strategy, dialect, facts = summary.strategy or "none", summary.dialect, summary.facts
    is_error = facts.broken or summary.attempted
    outcome = "success" if facts.calls or facts.has_second_answer else "error" if is_error else "noop"
    telemetry.count(
        "toolgate_transforms_total", {"strategy": strategy, "dialect": dialect, "arm": arm, "outcome": outcome}
    )
    model = summary.model or ""
    if summary.end == "completed":
        telemetry.admit("model", model)
    telemetry.count("toolgate_transforms_by_model_total", {"model": model, "arm": arm, "outcome": outcome})
    if summary.verdict is not None:
        _measure_verdict(summary, telemetry, summary.verdict)
    for phase, seconds in (("prepare", summary.prepare_s), ("read", summary.read_s), ("total", summary.overhead_s)):
        telemetry.observe("toolgate_transform_overhead_seconds", {"strategy": strategy, "phase": phase}, seconds)
    if summary.stream:
        telemetry.observe("toolgate_stream_held_bytes", {"family": strategy}, facts.held_bytes_max)
        telemetry.observe("toolgate_hold_seconds", {}, summary.longest_hold_s)
    if facts.late_events:
        telemetry.count("toolgate_stream_late_events_total", {"strategy": strategy}, facts.late_events)
    for verdict in facts.intents:
        telemetry.count("toolgate_overheard_calls_total", {"dialect": verdict.dialect})
    if copies := facts.dropped["duplicate"]:
        telemetry.count("toolgate_duplicate_calls_total", {"strategy": strategy}, copies)
    if facts.undelivered:
        telemetry.count("toolgate_undelivered_calls_total", {"strategy": strategy}, facts.undelivered)
    _measure_calls(facts, telemetry, strategy, arm)
    for verdict in summary.attempted:
        _measure_refusal(verdict, telemetry, strategy, arm)


def _measure_verdict(summary: Summary, telemetry: Telemetry, verdict: str) -> None:
    telemetry.count("toolgate_dryrun_verdicts_total", {"dialect": summary.dialect, "verdict": verdict})
    if verdict == "dropped":
        telemetry.count("toolgate_transform_skips_total", {"reason": "over_budget"})
    elif verdict == "would_change":
        telemetry.count("toolgate_transform_skips_total", {"reason": "control_arm"})
    if summary.noise:
        telemetry.count("toolgate_dryrun_noise_total", {"dialect": summary.dialect})


def _measure_calls(facts: Facts, telemetry: Telemetry, strategy: str, arm: str) -> None:
    for call in facts.calls:
        verdict = call.verdict
        dialect = {"dialect": verdict.dialect}
        telemetry.admit("tool", verdict.name)
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


def _measure_refusal(verdict: Verdict, telemetry: Telemetry, strategy: str, arm: str) -> None:
    reason = reason_of(verdict)
    if reason in SKIPPED:
        telemetry.count("toolgate_transform_skips_total", {"reason": reason})
    else:
        telemetry.count("toolgate_transform_errors_total", {"strategy": strategy, "reason": reason})
    telemetry.count("toolgate_transforms_by_tool_total", {"tool": verdict.name, "arm": arm, "outcome": "error"})
    if verdict.score:
        telemetry.observe(
            "toolgate_transform_confidence_ratio", {"strategy": strategy, "decision": "pass"}, verdict.score / 100
        )
