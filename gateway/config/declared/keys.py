"""The keys that open the gateway: kept as hashes, compared in constant time, each with its end and its quota."""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from attrs import evolve, field, frozen

from gateway.core.rules import Quota

__all__ = ["Key", "KeyRing"]

_DIGEST = re.compile(r"sha256:([0-9A-Fa-f]{64})")
_MAX_QUOTA = 1_000_000_000
_QUOTAS = {"requests/min": "requests", "tokens/min": "tokens", "streams": "streams"}
"""How a line of a key file names what its key may use."""


@frozen(kw_only=True)
class Key:
    """One key, as the SHA-256 of its text."""

    digest: bytes = field(repr=False)
    expires: datetime | None = None
    quota: Quota | None = None
    """What it may use; None for as much as there is."""

    @property
    def name(self) -> str:
        """What it goes by where it must not be known."""
        return self.digest.hex()[:32]

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
        return cls(tuple(_key(part.strip()) for part in value.split(",") if part.strip()))

    @classmethod
    def from_lines(cls, content: str) -> "KeyRing":
        """One key per line, plain or `sha256:<hex>`, then what holds for it; blank and `#` lines are skipped."""
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

    @classmethod
    def from_tables(cls, tables: Any, faults: list[str], *, path: str, read_file: Callable[[str], str]) -> "KeyRing":
        """The tables `[keys.NAME]` of a TOML file, each with `key` or `key_file` and what a line of a key file has."""
        if not isinstance(tables, dict):
            faults.append(f"{path}: keys must be tables, such as [keys.team]")
            return cls()
        keys: list[Key] = []
        for name, table in tables.items():
            try:
                keys += _keys_of_table(table, read_file)
            except ValueError as error:
                faults.append(f"{path}: keys.{name[:64]}: {error}")
        return cls(tuple(keys))

    @property
    def is_open(self) -> bool:
        """No key is asked for."""
        return not self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def check(self, token: str, now: datetime) -> Key | None:
        """The key that the token is, unless it has expired; every key is compared, whichever matches."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        accepted = None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest) and not key.is_expired(now):
                accepted = key
        return accepted


def _keys_of_line(entry: str) -> list[Key]:
    """`KEY[,KEY...] [expires=DATE] [requests/min=N] [tokens/min=N] [streams=N]`."""
    head, *rest = re.split(r"\s+(?=[a-z/]+=)", entry)
    given: dict[str, str] = {}
    for part in rest:
        name, _, value = part.partition("=")
        if name in given:
            raise ValueError(f"{name}= stands twice")
        if name != "expires" and name not in _QUOTAS:
            raise ValueError(f"{name}= is none of expires, {', '.join(_QUOTAS)}")
        given[name] = value
    expires = _end_of(given.pop("expires")) if "expires" in given else None
    quota = Quota(**{_QUOTAS[name]: _amount(name, value) for name, value in given.items()}) if given else None
    return [evolve(_key(part.strip()), expires=expires, quota=quota) for part in head.split(",") if part.strip()]


def _keys_of_table(table: Any, read_file: Callable[[str], str]) -> list[Key]:
    if not isinstance(table, dict):
        raise ValueError("must be a table")
    given = {name.replace("_per_min", "/min"): str(value) for name, value in table.items()}
    if ("key" in given) == ("key_file" in given):
        raise ValueError("key or key_file must say which key it is, and not both")
    word = given.pop("key", None) or read_file(given.pop("key_file")).strip()
    # It becomes a part of a line, which white space and commas would divide.
    if re.search(r"[\s,]", word) or not word:
        raise ValueError("key must be one key, without white space and commas")
    return _keys_of_line(" ".join((word, *(f"{name}={value}" for name, value in given.items()))))


def _amount(name: str, word: str) -> int:
    # Of very many digits Python makes no number, and says so by an error.
    if not (word.isascii() and word.isdigit() and 1 <= int(word[:12]) <= _MAX_QUOTA):
        raise ValueError(f"{name}= must be a whole number from 1 to {_MAX_QUOTA}")
    return int(word)


def _key(word: str) -> Key:
    if word.startswith("sha256:"):
        match = _DIGEST.fullmatch(word)
        if match is None:
            raise ValueError("sha256: must be followed by 64 hexadecimal digits")
        return Key(digest=bytes.fromhex(match[1]))
    if not word.isascii() or not word.isprintable() or " " in word:
        raise ValueError("a key must be printable ASCII without white space")
    return Key(digest=hashlib.sha256(word.encode()).digest())


def _end_of(word: str) -> datetime:
    """A bare date lasts to the end of that day, UTC; a time without a zone is UTC."""
    try:
        if len(word) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(word) + timedelta(days=1), time(), tzinfo=UTC)
        moment = datetime.fromisoformat(word)
    except (ValueError, OverflowError):
        raise ValueError("expires= must be an ISO date such as 2027-01-31") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
