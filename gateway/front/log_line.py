"""The line of the log that a request leaves behind."""

from itertools import filterfalse

import structlog

from gateway.core.events import Verdict
from gateway.core.sentences import why
from gateway.front.summary import MAX_ID_CHARS, Summary

__all__ = ["write_line"]

MAX_SHOWN = 16
"""An answer may hold thousands of candidates; a line of the log need not."""

_NOTHING: dict[str, object] = {}

log = structlog.get_logger("toolgate")


def write_line(summary: Summary) -> None:
    """Say what the request came to, and louder where the gateway itself was at fault."""
    if summary.noise:
        log.warning("reading_differs", strategy=summary.strategy, model=summary.model, dialect=summary.dialect)
    if summary.is_reader_broken:
        log.error("reader_failed", strategy=summary.strategy, model=summary.model)
    log.info("request_ended", **_fields(summary))


def _fields(summary: Summary) -> dict[str, object]:
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
        "bytes_in": summary.bytes_in,
        "bytes_out": summary.bytes_out,
        "duration_s": round(summary.duration_s, 4),
        "upstream_first_s": None if summary.upstream_first_s is None else round(summary.upstream_first_s, 4),
        "first_sent_s": None if summary.first_sent_s is None else round(summary.first_sent_s, 4),
        "overhead_s": round(summary.overhead_s, 6),
        "verdict": summary.verdict,
        "follows": summary.follows if summary.follows != "nothing" else None,
        "notes": summary.notes or None,
        "failure": summary.failure,
        **(_answer_fields(summary) if summary.has_answer else _NOTHING),
    }
    for name in [*filterfalse(fields.get, fields)]:
        if fields[name] is None:
            del fields[name]
    return fields


def _answer_fields(summary: Summary) -> dict[str, object]:
    facts, classes = summary.facts, summary.facts.structured.classes
    fields: dict[str, object] = {
        "calls" if summary.arm == "live" else "would_call": facts.calls
        and [_shown(each.verdict) for each in facts.calls[:MAX_SHOWN]],
        "refused": summary.attempted and [_refused(verdict, summary) for verdict in summary.attempted[:MAX_SHOWN]],
        "overheard": facts.intents and [_shown(verdict) for verdict in facts.intents[:MAX_SHOWN]],
        "undelivered": facts.undelivered,
        "broken": facts.broken[:MAX_SHOWN],
        "native_calls": facts.native_calls,
        "unusable_calls": facts.unusable_calls,
        "structured": classes and {each.value: number for each, number in classes.items()},
        "repaired": facts.has_second_answer,
        "completion_id": (summary.answer_id or "")[:MAX_ID_CHARS],
        "mended": dict(facts.mended),
        "dropped": dict(facts.dropped),
        "held_bytes_max": facts.held_bytes_max,
        "finish_reasons": sorted(set(facts.finish_reasons.values())),
        "usage": facts.usage,
    }
    for name in [*filterfalse(fields.get, fields)]:
        del fields[name]
    return fields


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
