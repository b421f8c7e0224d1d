"""What an answer took, from chat's words to those of the Responses API."""

from collections.abc import Mapping
from typing import Any

__all__ = ["usage_of"]


def usage_of(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """The usage; None where the whole is not known, as clients shorten their conversations by it."""
    prompt, completion = _count(told, "prompt_tokens"), _count(told, "completion_tokens")
    if prompt is None or completion is None:
        return None
    read, given = _details(told, "prompt_tokens_details"), _details(told, "completion_tokens_details")
    total = _count(told, "total_tokens")
    return {
        "input_tokens": prompt,
        # These are numbers or the whole is unreadable to clients; a server that does not name them has none to name.
        "input_tokens_details": {
            "cached_tokens": _count(read, "cached_tokens") or 0,
            "cache_write_tokens": _count(read, "cache_write_tokens") or 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": _count(given, "reasoning_tokens") or 0},
        "total_tokens": prompt + completion if total is None else total,
    }


def _details(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    details = told.get(name)
    return details if isinstance(details, dict) else {}


def _count(told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
