"""What a request leaves behind: one line in the log and its share of the metrics."""

import structlog

from gateway.answer.candidates import attempts, dialect_of, refusal
from gateway.answer.facts import Facts
from gateway.core.events import Verdict
from gateway.core.reasons import Reason
from gateway.front.request_record import keep
from gateway.request.state import RequestState
from strategies.grammar.confidence import UNDECLARED

__all__ = ["account"]

UNHEALTHY_ENDS = frozenset({"upstream_error", "upstream_timeout", "gateway_error"})
ABANDONED_STATUS = 499
"""nginx's word for a client that left before it had a status."""
MAX_ID_CHARS = 128
MAX_SHOWN = 16
"""An answer may hold thousands of candidates; a line of the log need not."""

SKIPPED = frozenset({Reason.LOW_CONFIDENCE, Reason.PROVENANCE, Reason.SLICE_OFF, Reason.UNSAYABLE})
"""Why a candidate that could be read was left alone on purpose."""

log = structlog.get_logger("toolgate")


def account(state: RequestState) -> None:
    """Write the request down; called once, when it has ended. A fault in it costs the record, never the answer."""
    try:
        _account(state)
    except Exception:
        log.exception("accounting_failed", route=state.route)


def _account(state: RequestState) -> None:
    ended = state.deadline.now()
    _measure_request(state, ended)
    _measure_upstream(state, ended)
    if state.stream and state.first_sent is not None:
        _measure_stream(state, state.first_sent)
    if state.facts is not None:
        _measure_answer(state, state.facts)
    if state.facts is not None and any(verdict.refusal is Reason.INTERNAL for verdict in state.facts.refused):
        log.error("reader_failed", strategy=state.strategy, model=state.model)
    log.info("request_ended", **_fields(state, ended))
    keep(state, ended, healthy=state.end_reason not in UNHEALTHY_ENDS)


def _fields(state: RequestState, ended: float) -> dict[str, object]:
    fields: dict[str, object] = {
        "route": state.route,
        "method": state.http.method,
        "model": state.model,
        "stream": state.stream,
        "strategy": state.strategy,
        "arm": state.arm,
        "reason": state.reason,
        "status": state.status or ABANDONED_STATUS,
        "end": state.end_reason,
        "error": state.error.code if state.error is not None else None,
        "upstream_status": state.upstream_status,
        "retries": state.retries or None,
        "bytes_in": state.bytes_in,
        "bytes_out": state.bytes_out,
        "duration_s": round(ended - state.started, 4),
        "upstream_first_s": _since(state.started, state.upstream_first),
        "first_sent_s": _since(state.started, state.first_sent),
        "overhead_s": round(state.prepare_s + state.read_s, 6),
        "verdict": state.verdict,
        "follows": state.follows if state.follows != "nothing" else None,
        "notes": state.notes or None,
        "failure": state.facts.failure if state.facts is not None and not state.client_gone else None,
        **(_answer_fields(state.facts, would=state.arm != "live") if state.facts is not None else {}),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _answer_fields(facts: Facts, *, would: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "would_call" if would else "calls": [_shown(call.verdict) for call in facts.calls[:MAX_SHOWN]],
        "refused": [_shown(verdict) for verdict in attempts(facts)[:MAX_SHOWN]],
        "overheard": [_shown(verdict) for verdict in facts.overheard[:MAX_SHOWN]],
        "undelivered": facts.undelivered,
        "broken": facts.broken[:MAX_SHOWN],
        "native_calls": facts.native_calls,
        "unusable_calls": facts.unusable_calls,
        "repaired": facts.repaired,
        "completion_id": (facts.completion_id or "")[:MAX_ID_CHARS],
        "mended": dict(facts.mended),
        "dropped": dict(facts.dropped),
        "held_bytes_max": facts.held_bytes_max,
        "finish_reasons": sorted(set(facts.finish_reasons.values())),
        "usage": facts.usage,
    }
    return {name: value for name, value in fields.items() if value}


def _shown(verdict: Verdict) -> dict[str, object]:
    return {
        "tool": verdict.name,
        "dialect": verdict.dialect,
        "score": verdict.score / 100,
        "reasons": list(verdict.reasons),
    }


def _since(started: float, moment: float | None) -> float | None:
    return None if moment is None else round(moment - started, 4)


def _measure_request(state: RequestState, ended: float) -> None:
    telemetry = state.shared.telemetry
    stream = "true" if state.stream else "false"
    arm = _arm(state)
    telemetry.count(
        "toolgate_requests_total",
        {
            "route": state.route,
            "stream": stream,
            "code": f"{(state.status or ABANDONED_STATUS) // 100}xx",
            "arm": arm,
            "health": "unhealthy" if state.end_reason in UNHEALTHY_ENDS else "ok",
        },
    )
    telemetry.observe_traced(
        "toolgate_request_duration_seconds",
        {"route": state.route, "stream": stream, "arm": arm},
        ended - state.started,
        state.trace,
    )


def _measure_upstream(state: RequestState, ended: float) -> None:
    if not state.upstream_started:
        return
    telemetry = state.shared.telemetry
    upstream = state.upstream.name
    telemetry.observe(
        "toolgate_upstream_request_duration_seconds",
        {"upstream": upstream, "code": state.upstream_code},
        ended - state.upstream_started,
    )
    if state.upstream_first is not None:
        telemetry.observe(
            "toolgate_upstream_first_token_seconds", {"upstream": upstream}, state.upstream_first - state.started
        )


def _measure_stream(state: RequestState, first_sent: float) -> None:
    telemetry = state.shared.telemetry
    arm = _arm(state)
    telemetry.count("toolgate_stream_ends_total", {"reason": state.end_reason, "arm": arm})
    telemetry.observe("toolgate_stream_gap_seconds", {"arm": arm}, state.longest_gap_s)
    telemetry.observe_traced(
        "toolgate_time_to_first_token_seconds",
        {"upstream": state.upstream.name, "arm": arm},
        first_sent - state.started,
        state.trace,
    )


def _measure_answer(state: RequestState, facts: Facts) -> None:
    telemetry = state.shared.telemetry
    for fault, times in facts.mended.items():
        telemetry.count("toolgate_native_faults_mended_total", {"fault": fault}, times)
    for reason, times in facts.dropped.items():
        telemetry.count("toolgate_dropped_text_total", {"reason": reason}, times)
    for kind, tokens in facts.usage.items():
        telemetry.count("toolgate_tokens_total", {"type": kind, "upstream": state.upstream.name}, max(0, tokens))
    for result, number in (("translated", facts.translated), ("refused", facts.untranslated)):
        if number:
            telemetry.count("toolgate_mapped_calls_total", {"result": result}, number)
    if facts.read:
        _measure_reading(state, facts)


def _measure_reading(state: RequestState, facts: Facts) -> None:
    telemetry = state.shared.telemetry
    strategy, arm = state.strategy or "none", _arm(state)
    attempted = attempts(facts)
    outcome = "success" if facts.calls or facts.repaired else "error" if facts.broken or attempted else "noop"
    dialect = dialect_of(facts)
    telemetry.count(
        "toolgate_transforms_total", {"strategy": strategy, "dialect": dialect, "arm": arm, "outcome": outcome}
    )
    model = state.model or ""
    if state.end_reason == "completed":
        telemetry.admit("model", model)
    telemetry.count("toolgate_transforms_by_model_total", {"model": model, "arm": arm, "outcome": outcome})
    if state.verdict is not None:
        _measure_verdict(state, dialect)
    for phase, seconds in (
        ("prepare", state.prepare_s),
        ("read", state.read_s),
        ("total", state.prepare_s + state.read_s),
    ):
        telemetry.observe("toolgate_transform_overhead_seconds", {"strategy": strategy, "phase": phase}, seconds)
    if state.stream:
        telemetry.observe("toolgate_stream_held_bytes", {"family": strategy}, facts.held_bytes_max)
        telemetry.observe("toolgate_hold_seconds", {}, state.longest_hold_s)
    if facts.late_events:
        telemetry.count("toolgate_stream_late_events_total", {"strategy": strategy}, facts.late_events)
    for verdict in facts.overheard:
        telemetry.count("toolgate_overheard_calls_total", {"dialect": verdict.dialect})
    if copies := facts.dropped["duplicate"]:
        telemetry.count("toolgate_duplicate_calls_total", {"strategy": strategy}, copies)
    if facts.undelivered:
        telemetry.count("toolgate_undelivered_calls_total", {"strategy": strategy}, facts.undelivered)
    _measure_calls(state, facts, strategy)
    for verdict in attempted:
        _measure_refusal(state, verdict, strategy)


def _measure_verdict(state: RequestState, dialect: str) -> None:
    telemetry = state.shared.telemetry
    telemetry.count("toolgate_dryrun_verdicts_total", {"dialect": dialect, "verdict": state.verdict or "identical"})
    if state.verdict == "dropped":
        telemetry.count("toolgate_transform_skips_total", {"reason": "over_budget"})
    elif state.verdict == "would_change":
        telemetry.count("toolgate_transform_skips_total", {"reason": "control_arm"})
    if state.noise:
        telemetry.count("toolgate_dryrun_noise_total", {"dialect": dialect})
        log.warning("reading_differs", strategy=state.strategy, model=state.model, dialect=dialect)


def _measure_calls(state: RequestState, facts: Facts, strategy: str) -> None:
    telemetry = state.shared.telemetry
    for call in facts.calls:
        verdict = call.verdict
        dialect = {"dialect": verdict.dialect}
        telemetry.admit("tool", verdict.name)
        telemetry.count(
            "toolgate_transforms_by_tool_total", {"tool": verdict.name, "arm": _arm(state), "outcome": "success"}
        )
        telemetry.observe(
            "toolgate_transform_confidence_ratio", {"strategy": strategy, "decision": "apply"}, verdict.score / 100
        )
        if state.arm != "live":
            continue  # the client was given none of them
        telemetry.count("toolgate_recovered_calls_total", dialect)
        telemetry.observe("toolgate_call_bytes", dialect, call.size)
        if any(reason == UNDECLARED or reason.startswith("known_tool_only") for reason in verdict.reasons):
            telemetry.count("toolgate_undeclared_calls_total", dialect)


def _measure_refusal(state: RequestState, verdict: Verdict, strategy: str) -> None:
    telemetry = state.shared.telemetry
    reason = refusal(verdict)
    if reason in SKIPPED:
        telemetry.count("toolgate_transform_skips_total", {"reason": reason})
    else:
        telemetry.count("toolgate_transform_errors_total", {"strategy": strategy, "reason": reason})
    telemetry.count("toolgate_transforms_by_tool_total", {"tool": verdict.name, "arm": _arm(state), "outcome": "error"})
    if verdict.score:
        telemetry.observe(
            "toolgate_transform_confidence_ratio", {"strategy": strategy, "decision": "pass"}, verdict.score / 100
        )


def _arm(state: RequestState) -> str:
    """Only requests of the main job have an arm; the others are relayed in any case."""
    return state.arm or "off"
