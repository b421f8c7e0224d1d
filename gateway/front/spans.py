"""What a request's span says when it ends: what it came to, and what became of calls: names and numbers, no texts."""

import re
from collections.abc import Callable, Iterator

from gateway.core.events import Verdict
from gateway.core.ports import Attributes, Happening, RequestSpan
from gateway.core.sentences import reason_of
from gateway.front.summary import Summary

__all__ = ["end_span"]

_MAX_EVENTS = 16
_NAME = re.compile(r"[\w./:-]{1,64}")


def end_span(span: RequestSpan, summary: Summary, mask: Callable[[str], str]) -> None:
    """Say what the request came to."""
    error = summary.error or summary.failure
    if error is None and summary.end == "client_abort":
        error = summary.end
    span.end(_attributes(summary), _asked(summary, mask), tuple(_happenings(summary)), error)


def _attributes(summary: Summary) -> Attributes:
    facts = summary.facts
    found: dict[str, str | int | float | bool | None] = {
        "http.response.status_code": summary.status,
        "toolgate.surface": summary.surface,
        "toolgate.stream": summary.stream,
        "toolgate.strategy": summary.strategy,
        "toolgate.arm": summary.arm,
        "toolgate.reason": summary.selected,
        "toolgate.dialect": summary.dialect,
        "toolgate.end": summary.end,
        "toolgate.verdict": summary.verdict,
        "toolgate.upstream": summary.upstream,
        "toolgate.cause": summary.cause,
        "toolgate.retries": summary.retries,
        "toolgate.overhead_ms": round(summary.overhead_s * 1000, 3),
        "toolgate.calls.recovered": len(facts.calls),
        "toolgate.calls.stayed_text": len(summary.attempted),
        "toolgate.calls.native": facts.native_calls,
        "toolgate.asked_again": summary.asked_again or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _asked(summary: Summary, mask: Callable[[str], str]) -> Attributes:
    """Of the last answer of a model server, by the names that GenAI has for it."""
    facts = summary.facts
    found: dict[str, str | int | float | tuple[str, ...]] = {
        f"gen_ai.usage.{kind}_tokens": tokens for kind, tokens in facts.usage.items() if kind in ("input", "output")
    }
    if facts.finish_reasons:
        reasons = {reason for reason in facts.finish_reasons.values() if reason and _NAME.fullmatch(reason)}
        found["gen_ai.response.finish_reasons"] = tuple(sorted(reasons))
    if summary.answer_id:
        found["gen_ai.response.id"] = mask(summary.answer_id[:128])
    if summary.upstream_first_s is not None:
        found["gen_ai.response.time_to_first_chunk"] = round(summary.upstream_first_s, 6)
    return found


def _happenings(summary: Summary) -> Iterator[Happening]:
    """Calls that were found in text, and what was meant as one and stayed text."""
    name = "toolgate.call" if summary.arm == "live" else "toolgate.would_call"
    for call in summary.facts.calls[:_MAX_EVENTS]:
        yield name, _facts(call.verdict)
    for verdict in summary.attempted[:_MAX_EVENTS]:
        yield "toolgate.stayed_text", {**_facts(verdict), "toolgate.reason": reason_of(verdict)}


def _facts(verdict: Verdict) -> dict[str, str | float]:
    # What a model wrote in the place of a name may be anything.
    tool = verdict.name if _NAME.fullmatch(verdict.name or "") else ""
    return {"gen_ai.tool.name": tool, "toolgate.dialect": verdict.dialect, "toolgate.score": verdict.score / 100}
