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
    numbers, rest = _numbers(summary), _rest(summary)
    if lines is None:
        log.info("request_ended", **_common(summary), **numbers, **rest)
        return
    ids = {"request_id": summary.id}
    if summary.trace is not None:
        ids["trace_id"] = summary.trace
    # What many lines have in common is written as JSON once for all of them.
    lines.write("request_ended", _key(summary), partial(_common, summary), numbers, rest, ids)


def _key(summary: Summary) -> tuple[str | int | None, ...] | None:
    """What `_common` is made of; `None` where a client's name for its model is too long to be remembered."""
    model = summary.model
    if model is not None and len(model) > _LONGEST_NAME:
        return None
    return (
        *(summary.route, summary.method, model, summary.stream, summary.strategy, summary.arm, summary.selected),
        *(summary.status, summary.end, summary.error, summary.upstream, summary.cause, summary.upstream_status),
        summary.retries,
    )


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


def _numbers(summary: Summary) -> dict[str, float]:
    numbers: dict[str, float] = {
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        "duration_s": round(summary.duration_s, 4),
    }
    if summary.upstream_first_s is not None:
        numbers["upstream_first_s"] = round(summary.upstream_first_s, 4)
    if summary.first_sent_s is not None:
        numbers["first_sent_s"] = round(summary.first_sent_s, 4)
    numbers["overhead_s"] = round(summary.overhead_s, 6)
    return numbers


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
        ("completion_id", summary.answer_id and summary.answer_id[:MAX_ID_CHARS]),
        ("mended", facts.mended and dict(facts.mended)),
        ("dropped", facts.dropped and dict(facts.dropped)),
        ("held_bytes_max", facts.held_bytes_max),
        ("finish_reasons", facts.finish_reasons and sorted(set(facts.finish_reasons.values()))),
        ("usage", facts.usage),
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
