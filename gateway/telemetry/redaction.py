"""Takes secrets out of what is logged, and makes any value one that a log line can hold."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

__all__ = ["REDACTED", "SUSPECT_SMALL", "Redactor"]

REDACTED = "[redacted]"

_MAX_READ_CHARS = 1 << 16
_MAX_CHARS = 1 << 13
_MAX_DEPTH = 6
_MAX_ITEMS = 100
# Python refuses to write very long numbers:
# https://docs.python.org/3/library/stdtypes.html#integer-string-conversion-length-limitation
_MAX_INT_BITS = 256
# What JSON's encoder here takes as a number of 64 bits.
_PLAIN_INT = 1 << 63
_SHORT = 64
_MAX_KNOWN = 4096
# A secret of three letters would black out half of all words.
_SHORTEST_SECRET = 4

_SECRET_KEYS = ("authorization", "apikey", "secret", "password", "cookie", "credential")
_VALUE = r"(?:[^\s\"',;&\\]|\\(?![\\\"nrt]))+"
"""A secret ends where JSON, which may be nested in JSON, goes on: at an escaped quote or the end of a line."""
_QUOTE = r"(?:\\{1,7}[\"']|[\"'])?"
_BEARER = re.compile(rf"(\b(?:bearer|basic) +){_VALUE}", re.IGNORECASE)
# OpenAI, Anthropic, GitHub, GitLab, Hugging Face, xAI, Groq, Slack; then AWS, Google, and signed tokens:
# https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns
_VENDOR_KEY = re.compile(
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))(?:"
    r"(?:sk|pk|gh[oprsu]|github_pat|glpat|hf|xai|gsk|xox[abeoprs])[-_][A-Za-z0-9_-]{8,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{30,}"
    r"|eyJ[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]+){0,2})"
)
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----).*?(?=-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_SIGNS = ("AKIA", "ASIA", "AIza", "eyJ")
"""How keys begin whose first letters are too frequent to be searched for one by one."""
_SUSPECT_WORDS = (
    r"[btkpsghx](?:earer|asic|ey|oken|assw|ecret|[kf][-_]|h[oprsu][-_]|ithub_pat|lpat|ox[abeoprs][-_]|ai[-_]|sk[-_])"
)
_SUSPECT = re.compile(_SUSPECT_WORDS, re.IGNORECASE).search
"""What any of the other patterns needs, told by its first letters; most texts have nothing of it."""
SUSPECT_SMALL = re.compile(_SUSPECT_WORDS).search
"""The same for small letters, five times as fast."""
_PAIR = re.compile(rf"((?:api[-_]?key|token|password|secret){_QUOTE}[=:] ?{_QUOTE}){_VALUE}", re.IGNORECASE)


class Redactor:
    """Knows the secrets by value, the names they go by, and what keys look like."""

    __slots__ = ("_keys", "_known", "_secrets", "signs")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: dict[str, str] = {}
        """Short texts that have been read before: most of a log line is the same each time."""
        self._keys: dict[str, tuple[str, bool]] = {}
        """Names of fields: how each is written, and whether it names a secret."""
        # Longest first: one may be the beginning of another.
        self._secrets = sorted({word for word in secrets if len(word) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self.signs = re.compile("|".join(map(re.escape, (*self._secrets, *_SIGNS)))).search
        """Finds the beginning of a secret in a text, where `SUSPECT_SMALL` finds none in its small letters."""

    def text(self, raw: str) -> str:
        """The text with every secret in it replaced, and not too long for a line."""
        if len(raw) > _SHORT:
            return self._read(raw)
        clean = self._known.get(raw)
        if clean is None:
            # Emptied, not thinned: what is usual is known again at once, and no order has to be kept.
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            clean = self._known[raw] = self._read(raw)
        return clean

    def mask(self, raw: str) -> str:
        """The text with every secret in it replaced, however long it is."""
        if not (self.signs(raw) or (SUSPECT_SMALL(raw.lower()) if raw.isascii() else _SUSPECT(raw))):
            return raw  # as most texts are
        for word in self._secrets:
            raw = raw.replace(word, REDACTED)
        raw = _BEARER.sub(rf"\1{REDACTED}", raw)
        raw = _PAIR.sub(rf"\1{REDACTED}", raw)
        raw = _PRIVATE_KEY.sub(rf"\1{REDACTED}", raw)
        return _VENDOR_KEY.sub(REDACTED, raw)

    def _read(self, raw: str) -> str:
        # Cut before it is read: a text of megabytes must not cost a line its time. What stands for a secret may be
        # longer than it was, so it is cut again behind.
        clean = self.mask(raw[:_MAX_READ_CHARS])
        if len(clean) <= _MAX_CHARS and len(raw) <= _MAX_READ_CHARS:
            return clean
        return f"{clean[:_MAX_CHARS]}... ({len(raw)} characters)"

    def fields(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event, each safe to write."""
        return self._mapped(event.items(), 0)

    def _mapped(self, items: Iterable[tuple[object, Any]], depth: int) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for key, value in items:
            name, is_secret = self._keys.get(key) or self._key(key)  # type: ignore[call-overload]
            if is_secret and value:
                clean[name] = REDACTED
            elif (kind := type(value)) is str:
                clean[name] = self._known.get(value) or self.text(value)
            elif value is None or kind is bool or (kind is int and -_PLAIN_INT < value < _PLAIN_INT):
                clean[name] = value
            elif kind is float and math.isfinite(value):
                clean[name] = value
            elif kind is dict and depth < _MAX_DEPTH:
                clean[name] = self._mapped(islice(value.items(), _MAX_ITEMS), depth + 1)
            elif kind is list and depth < _MAX_DEPTH:
                clean[name] = self._listed(value, depth)
            else:
                clean[name] = self._value(value, depth)
        return clean

    def _listed(self, items: Iterable[Any], depth: int) -> list[Any]:
        clean = []
        for item in islice(items, _MAX_ITEMS):
            known = self._known.get(item) if type(item) is str else None
            clean.append(self._value(item, depth + 1) if known is None else known)
        return clean

    def _key(self, key: object) -> tuple[str, bool]:
        raw = str(key)
        known = self.text(raw), _is_secret_key(raw)
        if type(key) is str and len(key) <= _SHORT:
            if len(self._keys) >= _MAX_KNOWN:
                self._keys.clear()
            self._keys[key] = known
        return known

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
            case dict() | Mapping() if depth < _MAX_DEPTH:
                return self._mapped(islice(value.items(), _MAX_ITEMS), depth + 1)
            case list() | tuple() | Sequence() | set() | frozenset() if depth < _MAX_DEPTH:
                return self._listed(value, depth)
            case Mapping() | Sequence() | set() | frozenset():
                return "(nested too deeply)"
            case _:
                return self.text(_described(value))


def _described(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a value that cannot be described must not harm what is being logged
        return f"({type(value).__name__})"


def _is_secret_key(key: str) -> bool:
    folded = key.lower().replace("-", "").replace("_", "")
    # `max_tokens` is no secret, `access_token` is one.
    return folded.endswith("token") or any(word in folded for word in _SECRET_KEYS)
