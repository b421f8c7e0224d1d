"""The filter over the list: `model:qwen* -arm:off score<0.9 launch`, space is "and", minus negates."""

import json
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from attrs import field, frozen

__all__ = ["KEYS", "BadFilter", "Filter", "Filterable", "parsed"]

KEYS = ("model", "tool", "dialect", "arm", "outcome", "reason", "decision", "label", "id", "score")
"""What may stand before a colon."""
_MAX_CHARS = 500
_MAX_TERMS = 20
_TERM = re.compile(r'(-?)(?:([a-z]+)(:|<=|>=|<|>))?("[^"]*"|\S+)')
_GLOB = re.compile(r"[*?\[]")
_IN_RECORDS = {"model": "model", "tool": "tool", "dialect": "dialect", "arm": "arm", "reason": "reason", "id": "id"}
"""Keys whose values stand in a record's JSON text under this name; those of tools in lists of names too."""


_UNSAID = {"arm": "live", "dialect": "none"}
"""What a record's JSON text does not say, as it is so by default."""


class BadFilter(ValueError):
    """What was typed is no filter, in words for who typed it."""


class Filterable(Protocol):
    """What a filter asks of a row."""

    def words(self, key: str) -> Sequence[str]:
        """All the values that a row has under a key."""
        ...

    @property
    def scores(self) -> Sequence[int]:
        """In hundredths."""
        ...


@frozen(kw_only=True)
class _Term:
    key: str
    sign: str
    value: str
    is_negated: bool

    @property
    def is_whole(self) -> bool:
        """The word itself is asked for, not one that looks like it."""
        return not _GLOB.search(self.value) and self.value != "none"

    def matches(self, row: Filterable) -> bool:
        return self._holds(row) is not self.is_negated

    def _holds(self, row: Filterable) -> bool:
        if self.key == "score":
            limit = round(float(self.value) * 100)
            return any(_COMPARES[self.sign](score, limit) for score in row.scores)
        if not self.key:
            value = self.value.lower()
            found = any(value in word.lower() for key in ("model", "tool", "dialect") for word in row.words(key))
            return found or self.value in row.words("id")
        words = row.words(self.key)
        if self.value in ("none", '""'):
            return not any(words) or "none" in words
        return any(fnmatchcase(word, self.value) for word in words)


_COMPARES: dict[str, Callable[[int, int], bool]] = {
    "<": lambda score, limit: score < limit,
    ">": lambda score, limit: score > limit,
    "<=": lambda score, limit: score <= limit,
    ">=": lambda score, limit: score >= limit,
    ":": lambda score, limit: score == limit,
}


@frozen(kw_only=True)
class Filter:
    """All of its terms hold."""

    terms: tuple[_Term, ...] = ()
    holding: tuple[str, ...] = field(default=())
    """Pieces of JSON that stand in the text of every record that can match."""

    def matches(self, row: Filterable) -> bool:
        return all(term.matches(row) for term in self.terms)

    @property
    def asks_for_label(self) -> bool:
        """Nothing matches that nobody has labelled."""
        return any(term.key == "label" and term.is_negated is (term.value == "none") for term in self.terms)

    def asks(self, *keys: str) -> bool:
        """Whether one of these keys is asked about."""
        return any(term.key in keys for term in self.terms)

    def values(self, key: str) -> set[str]:
        """All that is said under a key."""
        return {term.value for term in self.terms if term.key == key}

    def but(self, *keys: str) -> "Filter":
        """The same without what it says under these keys."""
        return Filter(terms=tuple(term for term in self.terms if term.key not in keys))

    def only(self, key: str) -> "Filter":
        """What it says under this key."""
        return Filter(terms=tuple(term for term in self.terms if term.key == key))

    @property
    def ids(self) -> Sequence[str]:
        """The ids that are asked for whole."""
        return [term.value for term in self._said("id") if term.is_whole]

    @property
    def asks_for_ids(self) -> bool:
        """Whether only the ids themselves can tell, as more is said of them than one that is whole."""
        return any(term.is_negated or not term.is_whole for term in self.only("id").terms)

    @property
    def bare(self) -> Sequence[str]:
        """The words without a key."""
        return [term.value for term in self._said("")]

    def _said(self, key: str) -> Sequence[_Term]:
        return [term for term in self.terms if term.key == key and not term.is_negated]


def parsed(text: str) -> Filter:
    """The filter that a text says; `BadFilter` where it says none."""
    if len(text) > _MAX_CHARS:
        raise BadFilter(f"a filter has at most {_MAX_CHARS} characters")
    terms = tuple(_term(found) for found in _TERM.finditer(text))
    if len(terms) > _MAX_TERMS:
        raise BadFilter(f"a filter has at most {_MAX_TERMS} terms")
    return Filter(terms=terms, holding=tuple(piece for term in terms if (piece := _piece(term))))


def _term(found: re.Match[str]) -> _Term:
    minus, key, sign, value = found[1], found[2] or "", found[3] or ":", found[4].strip('"')
    if key and key not in KEYS:
        raise BadFilter(f"there is no {key}: to filter by; there are {', '.join(KEYS)}")
    if sign != ":" and key != "score":
        raise BadFilter(f"only score can be compared: score{sign}{value[:40]}")
    if key == "score":
        try:
            if not 0 <= float(value) <= 1:
                raise ValueError
        except ValueError:
            raise BadFilter(f"a score is a number from 0 to 1, not {value[:40]!r}") from None
    return _Term(key=key, sign=sign, value=value, is_negated=bool(minus))


def _piece(term: _Term) -> str:
    """What the JSON text of a record that matches must hold, as it is written there."""
    name = _IN_RECORDS.get(term.key)
    # Other characters may stand in JSON as they are or as escapes.
    if name is None or term.is_negated or term.value == "none" or not term.value.isascii():
        return ""
    if any(sign in term.value for sign in '"\\'):
        return ""
    literal = _GLOB.split(term.value, maxsplit=1)[0]
    if not literal or _UNSAID.get(name, "").startswith(literal):
        return ""
    # Of a pattern only the beginning is certain, so the quote that would end it is left off.
    spelt = json.dumps(literal)[: None if literal == term.value else -1]
    return spelt if name == "tool" else f'"{name}":{spelt}'
