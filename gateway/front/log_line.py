"""The line of the log that a request leaves behind."""

from functools import partial

import structlog

from gateway.core.events import Verdict
from gateway.core.ports import Lines
from gateway.core.sentences import why
from gateway.front.summary import MAX_ID_CHARS, Summary

__all__ = ["write_line"]

MAX_SHOWN = 16
"""An answer may hold thousands of candidates; a line of the log need not."""

_LONGEST_NAME = 128
"""Of a model, which its client may call anything at any length."""

log = structlog.get_logger("toolgate")


def write_line(summary: Summary, lines: Lines | None) -> None:
    """Say what the request came to, and louder where the gateway itself was at fault."""
    if summary.noise:
        log.warning("reading_differs", strategy=summary.strategy, model=summary.model, dialect=summary.dialect)
    if summary.is_reader_broken:
        log.error("reader_failed", strategy=summary.strategy, model=summary.model)
    facts, foreign = summary.facts, [summary.id]
    told: dict[str, object] = {
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        # What `round` gives, in a tenth of its time.
        "duration_s": (summary.duration_s * 1e4 + 0.5) // 1 / 1e4,
        "overhead_s": (summary.overhead_s * 1e6 + 0.5) // 1 / 1e6,
    }
    if summary.upstream_first_s is not None:
        told["upstream_first_s"] = (summary.upstream_first_s * 1e4 + 0.5) // 1 / 1e4
    if summary.first_sent_s is not None:
        told["first_sent_s"] = (summary.first_sent_s * 1e4 + 0.5) // 1 / 1e4
    if facts.finish_reasons:
        reasons = facts.finish_reasons.values()
        told["finish_reasons"] = named = list(reasons) if len(reasons) == 1 else sorted(set(reasons))
        foreign += named
    if summary.answer_id and summary.has_answer:
        told["completion_id"] = shown = summary.answer_id[:MAX_ID_CHARS]
        foreign.append(shown)
    if facts.usage:
        told["usage"] = facts.usage
    if facts.held_bytes_max:
        told["held_bytes_max"] = facts.held_bytes_max
    is_plain = summary.is_plain and summary.failure is None and not summary.notes
    rest: dict[str, object] = {} if is_plain and summary.follows == "nothing" else _rest(summary)
    if lines is None:
        log.info("request_ended", **_common(summary), **told, **rest)
        return
    told["request_id"] = summary.id
    if summary.trace is not None:
        told["trace_id"] = summary.trace
    # What many lines have in common is written as JSON once for all of them.
    key = None if summary.model is not None and len(summary.model) > _LONGEST_NAME else summary.kind
    lines.write("request_ended", key, partial(_common, summary), told, foreign, rest)


def _common(summary: Summary) -> dict[str, object]:
    """What many requests have in common."""
    fields: dict[str, object] = {
        "route": summary.route,
        "method": summary.method,
        "model": summary.model,
        "stream": summary.stream,
        "strategy": summary.strategy,
        "arm": summary.arm,
        "reason": summary.selected,
        "status": summary.status,
        "end": summary.end,
        "error": summary.error,
        "upstream": summary.upstream if summary.cause or (summary.error or "").startswith("upstream_") else None,
        "cause": summary.cause,
        "upstream_status": summary.upstream_status,
        "retries": summary.retries or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _rest(summary: Summary) -> dict[str, object]:
    """What is told only where there is something to be told."""
    fields: dict[str, object] = {}
    if summary.verdict is not None:
        fields["verdict"] = summary.verdict
    if summary.follows != "nothing":
        fields["follows"] = summary.follows
    if summary.notes:
        fields["notes"] = summary.notes
    if summary.failure is not None:
        fields["failure"] = summary.failure
    if summary.has_answer:
        _add_answer(fields, summary)
    return fields


def _add_answer(fields: dict[str, object], summary: Summary) -> None:
    facts = summary.facts
    if facts.calls or summary.attempted or facts.intents:
        _add_candidates(fields, summary)
    structured = facts.structured.classes
    told: tuple[tuple[str, object], ...] = (
        ("undelivered", facts.undelivered),
        ("broken", facts.broken and facts.broken[:MAX_SHOWN]),
        ("native_calls", facts.native_calls),
        ("unusable_calls", facts.unusable_calls),
        ("structured", structured and {each.value: number for each, number in structured.items()}),
        ("repaired", facts.has_second_answer),
        ("mended", facts.mended and dict(facts.mended)),
        ("dropped", facts.dropped and dict(facts.dropped)),
    )
    fields.update([each for each in told if each[1]])


def _add_candidates(fields: dict[str, object], summary: Summary) -> None:
    facts = summary.facts
    if facts.calls:
        shown = [_shown(each.verdict) for each in facts.calls[:MAX_SHOWN]]
        fields["calls" if summary.arm == "live" else "would_call"] = shown
    if summary.attempted:
        fields["refused"] = [_refused(verdict, summary) for verdict in summary.attempted[:MAX_SHOWN]]
    if facts.intents:
        fields["overheard"] = [_shown(verdict) for verdict in facts.intents[:MAX_SHOWN]]


def _refused(verdict: Verdict, summary: Summary) -> dict[str, object]:
    told = why(verdict, next(iter(summary.facts.finish_reasons.values()), None))
    shown = _shown(verdict) | {"reason": told.reason.value, "sentence": told.sentence}
    return shown | ({"setting": told.setting} if told.setting else {})


def _shown(verdict: Verdict) -> dict[str, object]:
    return {
        "tool": verdict.name,
        "dialect": verdict.dialect,
        "score": verdict.score / 100,
        "reasons": list(verdict.reasons),
    }
