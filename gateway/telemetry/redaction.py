"""Takes secrets out of what is logged, and makes any value one that a log line can hold."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["REDACTED", "Redactor"]

REDACTED = "[redacted]"

_MAX_READ_CHARS = 1 << 16
_MAX_CHARS = 1 << 13
_MAX_DEPTH = 6
_MAX_ITEMS = 100
_MAX_INT_BITS = 256
_SHORT = 64
_MAX_KNOWN = 4096
_SHORTEST_SECRET = 4

_SECRET_KEYS = ("authorization", "apikey", "secret", "password", "cookie", "credential")
_BEARER = re.compile(r"(\b(?:bearer|basic) +)[^\s\"',;]+", re.IGNORECASE)
_VENDOR_KEY = re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|ghp|hf|xai|gsk)[-_][A-Za-z0-9_-]{8,}")
_SUSPECT = re.compile("bearer|basic|key|token|passw|secret|(?:sk|pk|ghp|hf|xai|gsk)[-_]", re.IGNORECASE)
"""What any of the patterns needs; most texts have nothing of it."""
_PAIR = re.compile(r"((?:api[-_]?key|token|password|secret)[\"']?[=:] ?[\"']?)[^\s\"',;&]+", re.IGNORECASE)


class Redactor:
    """Knows the secrets by value, the names they go by, and what keys look like."""

    __slots__ = ("_known", "_secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: dict[str, str] = {}
        """Short texts that have been read before: most of a log line is the same each time."""
        self._secrets = sorted({word for word in secrets if len(word) >= _SHORTEST_SECRET}, key=len, reverse=True)

    def text(self, raw: str) -> str:
        """The text with every secret in it replaced, and not too long for a line."""
        if len(raw) > _SHORT:
            return self._read(raw)
        clean = self._known.get(raw)
        if clean is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            clean = self._known[raw] = self._read(raw)
        return clean

    def mask(self, raw: str) -> str:
        """The text with every secret in it replaced, however long it is."""
        if not _SUSPECT.search(raw) and not any(word in raw for word in self._secrets):
            return raw
        for word in self._secrets:
            raw = raw.replace(word, REDACTED)
        raw = _BEARER.sub(rf"\1{REDACTED}", raw)
        raw = _PAIR.sub(rf"\1{REDACTED}", raw)
        return _VENDOR_KEY.sub(REDACTED, raw)

    def _read(self, raw: str) -> str:
        clean = self.mask(raw[:_MAX_READ_CHARS])
        if len(clean) <= _MAX_CHARS and len(raw) <= _MAX_READ_CHARS:
            return clean
        return f"{clean[:_MAX_CHARS]}... ({len(raw)} characters)"

    def fields(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event, each safe to write."""
        return {self.text(str(key)): self._field(key, value, 0) for key, value in event.items()}

    def _field(self, key: object, value: Any, depth: int) -> Any:
        return REDACTED if value and _is_secret_key(str(key)) else self._value(value, depth)

    def _value(self, value: Any, depth: int) -> Any:
        match value:
            case None | bool():
                return value
            case int():
                return int(value) if value.bit_length() <= _MAX_INT_BITS else "(a very long number)"
            case float():
                return float(value) if math.isfinite(value) else repr(value)
            case str():
                return self.text(value)
            case bytes() | bytearray():
                return f"({len(value)} bytes)"
            case Mapping() if depth < _MAX_DEPTH:
                items = list(value.items())[:_MAX_ITEMS]
                return {self.text(str(key)): self._field(key, item, depth + 1) for key, item in items}
            case Sequence() | set() | frozenset() if depth < _MAX_DEPTH:
                return [self._value(item, depth + 1) for item in list(value)[:_MAX_ITEMS]]
            case Mapping() | Sequence() | set() | frozenset():
                return "(nested too deeply)"
            case _:
                return self.text(_described(value))


def _described(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a value that cannot be described must not harm what is being logged
        return f"({type(value).__name__})"


@lru_cache(maxsize=1024)
def _is_secret_key(key: str) -> bool:
    folded = key.lower().replace("-", "").replace("_", "")
    return folded.endswith("token") or any(word in folded for word in _SECRET_KEYS)
