"""What a request leaves behind: one line in the log and its share of the metrics."""

import structlog

from gateway.answer.candidates import attempts, dialect_of, refusal
from gateway.answer.facts import Facts
from gateway.core.events import Verdict
from gateway.front.request_record import keep
from gateway.request.state import Turn
from strategies.grammar.confidence import UNDECLARED

__all__ = ["account"]

UNHEALTHY_ENDS = frozenset({"upstream_error", "upstream_timeout", "gateway_error"})
ABANDONED_STATUS = 499
"""nginx's word for a client that left before it had a status."""
MAX_ID_CHARS = 128
MAX_SHOWN = 16
"""An answer may hold thousands of candidates; a line of the log need not."""

SKIPPED = frozenset({"low_confidence", "provenance", "slice_off", "unsayable"})
"""Why a candidate that could be read was left alone on purpose."""

log = structlog.get_logger("toolgate")


def account(turn: Turn) -> None:
    """Write the request down; called once, when it has ended. A fault in it costs the record, never the answer."""
    try:
        _account(turn)
    except Exception:
        log.exception("accounting_failed", route=turn.route)


def _account(turn: Turn) -> None:
    ended = turn.patience.now()
    _measure_request(turn, ended)
    _measure_upstream(turn, ended)
    if turn.stream and turn.first_sent is not None:
        _measure_stream(turn, turn.first_sent)
    if turn.facts is not None:
        _measure_answer(turn, turn.facts)
    if turn.facts is not None and any(verdict.reasons[-1:] == ("internal",) for verdict in turn.facts.refused):
        log.error("reader_failed", strategy=turn.strategy, model=turn.model)
    log.info("request_ended", **_fields(turn, ended))
    keep(turn, ended, healthy=turn.end_reason not in UNHEALTHY_ENDS)


def _fields(turn: Turn, ended: float) -> dict[str, object]:
    fields: dict[str, object] = {
        "route": turn.route,
        "method": turn.http.method,
        "model": turn.model,
        "stream": turn.stream,
        "strategy": turn.strategy,
        "arm": turn.arm,
        "reason": turn.reason,
        "status": turn.status or ABANDONED_STATUS,
        "end": turn.end_reason,
        "error": turn.error.code if turn.error is not None else None,
        "upstream_status": turn.upstream_status,
        "retries": turn.retries or None,
        "bytes_in": turn.bytes_in,
        "bytes_out": turn.bytes_out,
        "duration_s": round(ended - turn.started, 4),
        "upstream_first_s": _since(turn.started, turn.upstream_first),
        "first_sent_s": _since(turn.started, turn.first_sent),
        "overhead_s": round(turn.prepare_s + turn.read_s, 6),
        "verdict": turn.verdict,
        "follows": turn.follows if turn.follows != "nothing" else None,
        "notes": turn.notes or None,
        "failure": turn.facts.failure if turn.facts is not None and not turn.client_gone else None,
        **(_answer_fields(turn.facts, would=turn.arm != "live") if turn.facts is not None else {}),
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


def _measure_request(turn: Turn, ended: float) -> None:
    telemetry = turn.shared.telemetry
    stream = "true" if turn.stream else "false"
    arm = _arm(turn)
    telemetry.count(
        "toolgate_requests_total",
        {
            "route": turn.route,
            "stream": stream,
            "code": f"{(turn.status or ABANDONED_STATUS) // 100}xx",
            "arm": arm,
            "health": "unhealthy" if turn.end_reason in UNHEALTHY_ENDS else "ok",
        },
    )
    telemetry.observe_traced(
        "toolgate_request_duration_seconds",
        {"route": turn.route, "stream": stream, "arm": arm},
        ended - turn.started,
        turn.trace,
    )


def _measure_upstream(turn: Turn, ended: float) -> None:
    if not turn.upstream_started:
        return
    telemetry = turn.shared.telemetry
    upstream = turn.upstream.name
    telemetry.observe(
        "toolgate_upstream_request_duration_seconds",
        {"upstream": upstream, "code": turn.upstream_code},
        ended - turn.upstream_started,
    )
    if turn.upstream_first is not None:
        telemetry.observe(
            "toolgate_upstream_first_token_seconds", {"upstream": upstream}, turn.upstream_first - turn.started
        )


def _measure_stream(turn: Turn, first_sent: float) -> None:
    telemetry = turn.shared.telemetry
    arm = _arm(turn)
    telemetry.count("toolgate_stream_ends_total", {"reason": turn.end_reason, "arm": arm})
    telemetry.observe("toolgate_stream_gap_seconds", {"arm": arm}, turn.longest_gap_s)
    telemetry.observe_traced(
        "toolgate_time_to_first_token_seconds",
        {"upstream": turn.upstream.name, "arm": arm},
        first_sent - turn.started,
        turn.trace,
    )


def _measure_answer(turn: Turn, facts: Facts) -> None:
    telemetry = turn.shared.telemetry
    for fault, times in facts.mended.items():
        telemetry.count("toolgate_native_faults_mended_total", {"fault": fault}, times)
    for reason, times in facts.dropped.items():
        telemetry.count("toolgate_dropped_text_total", {"reason": reason}, times)
    for kind, tokens in facts.usage.items():
        telemetry.count("toolgate_tokens_total", {"type": kind, "upstream": turn.upstream.name}, max(0, tokens))
    for result, number in (("translated", facts.translated), ("refused", facts.untranslated)):
        if number:
            telemetry.count("toolgate_mapped_calls_total", {"result": result}, number)
    if facts.read:
        _measure_reading(turn, facts)


def _measure_reading(turn: Turn, facts: Facts) -> None:
    telemetry = turn.shared.telemetry
    strategy, arm = turn.strategy or "none", _arm(turn)
    attempted = attempts(facts)
    outcome = "success" if facts.calls or facts.repaired else "error" if facts.broken or attempted else "noop"
    dialect = dialect_of(facts)
    telemetry.count(
        "toolgate_transforms_total", {"strategy": strategy, "dialect": dialect, "arm": arm, "outcome": outcome}
    )
    model = turn.model or ""
    if turn.end_reason == "completed":
        telemetry.admit("model", model)
    telemetry.count("toolgate_transforms_by_model_total", {"model": model, "arm": arm, "outcome": outcome})
    if turn.verdict is not None:
        _measure_verdict(turn, dialect)
    for phase, seconds in (("prepare", turn.prepare_s), ("read", turn.read_s), ("total", turn.prepare_s + turn.read_s)):
        telemetry.observe("toolgate_transform_overhead_seconds", {"strategy": strategy, "phase": phase}, seconds)
    if turn.stream:
        telemetry.observe("toolgate_stream_held_bytes", {"family": strategy}, facts.held_bytes_max)
        telemetry.observe("toolgate_hold_seconds", {}, turn.longest_hold_s)
    if facts.late_events:
        telemetry.count("toolgate_stream_late_events_total", {"strategy": strategy}, facts.late_events)
    for verdict in facts.overheard:
        telemetry.count("toolgate_overheard_calls_total", {"dialect": verdict.dialect})
    if copies := facts.dropped["duplicate"]:
        telemetry.count("toolgate_duplicate_calls_total", {"strategy": strategy}, copies)
    if facts.undelivered:
        telemetry.count("toolgate_undelivered_calls_total", {"strategy": strategy}, facts.undelivered)
    _measure_calls(turn, facts, strategy)
    for verdict in attempted:
        _measure_refusal(turn, verdict, strategy)


def _measure_verdict(turn: Turn, dialect: str) -> None:
    telemetry = turn.shared.telemetry
    telemetry.count("toolgate_dryrun_verdicts_total", {"dialect": dialect, "verdict": turn.verdict or "identical"})
    if turn.verdict == "dropped":
        telemetry.count("toolgate_transform_skips_total", {"reason": "over_budget"})
    elif turn.verdict == "would_change":
        telemetry.count("toolgate_transform_skips_total", {"reason": "control_arm"})
    if turn.noise:
        telemetry.count("toolgate_dryrun_noise_total", {"dialect": dialect})
        log.warning("reading_differs", strategy=turn.strategy, model=turn.model, dialect=dialect)


def _measure_calls(turn: Turn, facts: Facts, strategy: str) -> None:
    telemetry = turn.shared.telemetry
    for call in facts.calls:
        verdict = call.verdict
        dialect = {"dialect": verdict.dialect}
        telemetry.admit("tool", verdict.name)
        telemetry.count(
            "toolgate_transforms_by_tool_total", {"tool": verdict.name, "arm": _arm(turn), "outcome": "success"}
        )
        telemetry.observe(
            "toolgate_transform_confidence_ratio", {"strategy": strategy, "decision": "apply"}, verdict.score / 100
        )
        if turn.arm != "live":
            continue  # the client was given none of them
        telemetry.count("toolgate_recovered_calls_total", dialect)
        telemetry.observe("toolgate_call_bytes", dialect, call.size)
        if any(reason == UNDECLARED or reason.startswith("known_tool_only") for reason in verdict.reasons):
            telemetry.count("toolgate_undeclared_calls_total", dialect)


def _measure_refusal(turn: Turn, verdict: Verdict, strategy: str) -> None:
    telemetry = turn.shared.telemetry
    reason = refusal(verdict)
    if reason in SKIPPED:
        telemetry.count("toolgate_transform_skips_total", {"reason": reason})
    else:
        telemetry.count("toolgate_transform_errors_total", {"strategy": strategy, "reason": reason})
    telemetry.count("toolgate_transforms_by_tool_total", {"tool": verdict.name, "arm": _arm(turn), "outcome": "error"})
    if verdict.score:
        telemetry.observe(
            "toolgate_transform_confidence_ratio", {"strategy": strategy, "decision": "pass"}, verdict.score / 100
        )


def _arm(turn: Turn) -> str:
    """Only requests of the main job have an arm; the others are relayed in any case."""
    return turn.arm or "off"
