"""How numbers, times and names are said to people."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from gateway.core.errors import leaves, meaning
from gateway.core.sentences import REASON_WORDS
from gateway.report.facts.intervals import Rate
from gateway.report.facts.sketches import Spread

__all__ = [
    "bytes_words",
    "failure_words",
    "hours_words",
    "interval",
    "milliseconds",
    "miss_words",
    "moment",
    "number",
    "percent",
    "result_words",
    "share",
    "sign_words",
    "spread",
    "visible",
]

NONE = "–"

_SIGNS = {
    "in_fence": "stands in a code fence or a quotation",
    "undeclared": "names a tool that the request did not offer",
    "schema": "has arguments that do not fit the tool's schema",
    "echo": "repeats what the user or a tool had written",
    "native_beside": "stands beside a native call, and would double it",
    "rejected": "was delivered, and the client reported a fault in it",
    "prose_next": "was followed by a message that goes on as if there had been no call",
}
_MISSES = {
    "complained": "the client complained that no tool was used, and no call was found",
    "forced": "the request demanded a call, and none was found",
    "retried": "the same question came again within ten minutes, and no call was found",
}
_RESULTS: Mapping[str, Mapping[str, str]] = {
    "end": {
        "client_abort": "the client left",
        "upstream_error": "the model server failed",
        "upstream_timeout": "the model server took too long",
        "gateway_error": "the gateway failed",
        "drained": "the gateway was stopped",
    },
    "asked again": {
        "repaired": "the model then wrote the call rightly",
        "failed": "the model did not write the call rightly then either",
        "error": "the second question was not answered",
        "cancelled": "the client left before the second answer came",
        "no_budget": "there was no time or room left to ask",
    },
    "strategy": {
        "rule": "a rule of MODEL_RULES names it",
        "learned": "learned from the model's answers",
        "learned_native": "the model was seen to call by itself",
        "provider": "the kind of the model server has it",
        "table": "the model's family has it",
        "default": "nothing else is known of the model",
        "client": "the client reads calls as tags",
        "no_tools": "the request offered no tools",
        "intent": "the request means tools and offers none",
        "calls_forbidden": "the request forbids calls",
        "disabled": "reading calls is switched off",
        "off": "the rollout left this answer alone",
    },
    "next turn": {
        "unknown_tool": "the client knows no such tool",
        "missing_argument": "an argument that the tool needs was missing",
        "invalid_argument": "an argument was none that the tool takes",
    },
    "finish reason": {
        "stop": "the model ended its answer",
        "length": "the answer was cut by its length limit",
        "tool_calls": "the model called tools",
        "content_filter": "the answer was cut by a content filter",
    },
    "error": {each.code: meaning(each) for each in leaves()},
}
# The controls behind 127 too: one of them, 0x9b, begins a command in a terminal as ESC [ does.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}" for code in (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
}
"""What a terminal would obey, and what would turn a line around unseen."""


def visible(text: str) -> str:
    """The text without what a terminal would obey and what cannot be encoded."""
    # A lone surrogate, which JSON can say, has no UTF-8: printing it would end the command.
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def number(value: float | None) -> str:
    """A count, or a quantity with a few digits."""
    if value is None:
        return NONE
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def percent(share_: float | None) -> str:
    """A share in percent, with as many places as it needs."""
    if share_ is None:
        return NONE
    points = 100 * share_
    if points in (0, 100):
        return f"{points:.0f} %"
    # Near the ends one more place: 99.96 % must not be shown as all of it, nor 0.04 % as nothing.
    return f"{points:.1f} %" if 1 <= points <= 99 else f"{points:.2f} %"


def share(rate: Rate) -> str:
    """A share, or the remark that there are too few cases for one."""
    return NONE if rate.share is None else percent(rate.share)


def interval(rate: Rate) -> str:
    """The 95 % interval of a share."""
    if rate.share is None:
        return NONE
    words = f"{100 * rate.low:.1f}–{100 * rate.high:.1f}\u00a0%"
    return f"{words} (too few)" if rate.too_few else words


def milliseconds(value: float | None) -> str:
    if value is None:
        return NONE
    if abs(value) >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.2f} ms" if abs(value) < 10 else f"{value:.0f} ms"


def bytes_words(value: float | None) -> str:
    if value is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def hours_words(hours: float | None) -> str:
    if hours is None:
        return "never"
    if hours < 48:
        return f"{hours:.1f} hours"
    return f"{hours / 24:.1f} days"


def spread(values: Spread, say: Callable[[float | None], str]) -> tuple[str, str, str, str]:
    """The quantiles of a quantity."""
    return say(values.p50), say(values.p95), say(values.p99), say(values.highest)


def moment(at: float | None) -> str:
    """A time in UTC, to the second."""
    return NONE if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sign_words(sign: str) -> str:
    return _SIGNS.get(sign, sign)


def result_words(of: str, code: str) -> str:
    """What a code means that a request came to, of the closed list that `of` names; empty where it is none of it."""
    return _RESULTS[of].get(code, "")


def failure_words(reason: str) -> str:
    return REASON_WORDS.get(reason, "")


def miss_words(kind: str) -> str:
    return _MISSES.get(kind, kind)
