"""JSON texts that come again with each request, as an agent's tools do: decoded once, with what was made of them.

A value from here is shared by all requests that wrote it alike, so nobody may change it.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec

__all__ = ["adopt", "forget_all", "known_at", "known_value", "made_of"]

T = TypeVar("T")

# Agents send tens of KiB of tools with every turn, the same to the letter.
_MOST = 64
_LARGEST = 128 << 10
_ROOM = 4 << 20
"""Texts that are remembered, bytes of one, and of all."""
_SAMPLE = 64
_LATEST = 8
_LEAST = 2048
"""Of so many that came last it is looked whether they stand where they did, if they have so many bytes."""


class _Known:
    """A value, the text that it was, and what belongs to it."""

    __slots__ = ("adopted", "behind", "made", "start", "text", "value")

    def __init__(self, value: Any, text: bytes = b"") -> None:
        self.value = value
        self.text = text
        self.made: dict[Hashable, Any] = {}
        self.adopted: list[_Known] = []
        self.start = self.behind = 0
        """Where it stood last, and how much came behind it."""


_by_sample: dict[tuple[int, bytes], _Known] = {}
"""By the length and some of the letters: to compare a text with one that is there costs a tenth of its hash."""
_by_id: dict[int, _Known] = {}


_latest: deque[_Known] = deque(maxlen=_LATEST)


def known_at(whole: bytes) -> tuple[int, int, Any] | None:
    """Where a text stands that is remembered, and what it says: as far from the beginning or the end as it last stood.

    Whether a value stands there, and which, is for the caller to find out.
    """
    for known in _latest:
        size, start = len(known.text), known.start
        if not whole.startswith(known.text, start):
            start = len(whole) - known.behind - size
            if start < 0 or not whole.startswith(known.text, start):
                continue
        known.start, known.behind = start, len(whole) - start - size
        return start, start + size, known.value
    return None


def known_value(text: bytes, start: int = 0, behind: int = 0) -> Any:
    """What a text says; the same object for the same text, as far as it is remembered.

    `start` says where it stands in a larger one, `behind` how much comes behind it.
    """
    sample = (len(text), text[:: max(1, len(text) // _SAMPLE)])
    known = _by_sample.get(sample)
    if known is not None and known.text == text:
        known.start, known.behind = start, behind
        if len(text) >= _LEAST and known not in _latest:
            _latest.appendleft(known)
        return known.value
    value = msgspec.json.decode(text)
    if isinstance(value, list | dict) and len(text) <= _LARGEST:
        _forget(sample)
        while len(_by_sample) >= _MOST or sum(len(each.text) for each in _by_sample.values()) > _ROOM - len(text):
            _forget(next(iter(_by_sample)))
        _by_sample[sample] = _by_id[id(value)] = _Known(value, text)
    return value


def made_of(value: object, what: Hashable, make: Callable[[], T]) -> T:
    """What is made of a value: once, where that is remembered; `what` tells it from all else that is made of it."""
    known = _by_id.get(id(value))
    if known is None or known.value is not value:
        return make()
    found: T | None = known.made.get(what)
    if found is None:
        found = known.made[what] = make()
    return found


def adopt(value: object, made: object) -> None:
    """Remember what is made of `made`, too, for as long as the value of which that was made is remembered."""
    known = _of(value)
    if known is not None and _of(made) is None:
        child = _by_id[id(made)] = _Known(made)
        known.adopted.append(child)


def forget_all() -> None:
    """Begin anew."""
    _latest.clear()
    _by_sample.clear()
    _by_id.clear()


def _of(value: object) -> _Known | None:
    known = _by_id.get(id(value))
    return known if known is not None and known.value is value else None


def _forget(sample: tuple[int, bytes]) -> None:
    if (known := _by_sample.get(sample)) is not None and known in _latest:
        _latest.remove(known)
    leaving = [known] if (known := _by_sample.pop(sample, None)) is not None else []
    while leaving:
        known = leaving.pop()
        _by_id.pop(id(known.value), None)
        leaving += known.adopted
