"""The keys that open the gateway: kept as hashes, compared in constant time, each with an end if it has one."""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from attrs import field, frozen

__all__ = ["Key", "KeyRing"]

_DIGEST = re.compile(r"sha256:([0-9A-Fa-f]{64})")
_EXPIRES = re.compile(r"\s+expires=(\S+)\s*")


@frozen(kw_only=True)
class Key:
    """One key, as the SHA-256 of its text."""

    digest: bytes = field(repr=False)
    expires: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires


@frozen
class KeyRing:
    """Every key that opens the gateway; an empty ring asks for none."""

    keys: tuple[Key, ...] = field(default=(), repr=False)

    @classmethod
    def from_setting(cls, value: str, *, read_file: Callable[[str], str]) -> "KeyRing":
        """A comma-separated list, or `@path` of a key file; raises `ValueError` without showing a key."""
        if value.startswith("@"):
            return cls.from_lines(read_file(value[1:]))
        return cls(tuple(_key(part.strip(), None) for part in value.split(",") if part.strip()))

    @classmethod
    def from_lines(cls, content: str) -> "KeyRing":
        """One key per line, plain or `sha256:<hex>`, with ` expires=<ISO date>`; blank and `#` lines are skipped."""
        keys: list[Key] = []
        faults = []
        for number, line in enumerate(content.split("\n"), start=1):
            entry = line.strip()
            if not entry or entry.startswith("#"):
                continue
            try:
                keys.extend(_keys_of_line(entry))
            except ValueError as error:
                faults.append(f"line {number}: {error}")
        if faults:
            raise ValueError("; ".join(faults))
        return cls(tuple(keys))

    @property
    def is_open(self) -> bool:
        """No key is asked for."""
        return not self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def check(self, token: str, now: datetime) -> bool:
        """The token is one of the keys and has not expired; every key is compared, whichever matches."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        accepted = False
        for key in self.keys:
            accepted |= hmac.compare_digest(key.digest, digest) & (not key.is_expired(now))
        return accepted


def _keys_of_line(entry: str) -> list[Key]:
    head, *rest = re.split(r"(?=\sexpires=)", entry, maxsplit=1)
    expires = None
    if rest:
        match = _EXPIRES.fullmatch(rest[0])
        if match is None:
            raise ValueError("after expires= only a date may follow")
        expires = _end_of(match[1])
    return [_key(part.strip(), expires) for part in head.split(",") if part.strip()]


def _key(word: str, expires: datetime | None) -> Key:
    if word.startswith("sha256:"):
        match = _DIGEST.fullmatch(word)
        if match is None:
            raise ValueError("sha256: must be followed by 64 hexadecimal digits")
        return Key(digest=bytes.fromhex(match[1]), expires=expires)
    if not word.isascii() or not word.isprintable() or " " in word:
        raise ValueError("a key must be printable ASCII without white space")
    return Key(digest=hashlib.sha256(word.encode()).digest(), expires=expires)


def _end_of(word: str) -> datetime:
    """A bare date lasts to the end of that day, UTC; a time without a zone is UTC."""
    try:
        if len(word) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(word) + timedelta(days=1), time(), tzinfo=UTC)
        moment = datetime.fromisoformat(word)
    except (ValueError, OverflowError):
        raise ValueError("expires= must be an ISO date such as 2027-01-31") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
