"""A long document of JSON decoded in parts, so that no step takes longer than a part does; the value is the same.

The text is cut behind values, wherever brackets are open. A part is decoded by the standard decoder between brackets
that stand for those that are open where it begins and where it ends, and what it holds is put into what the parts
before it have left open. Every part is valid exactly where the whole document is.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from json import JSONDecoder
from typing import Any

from attrs import frozen

from gateway.wire.json_scan import JsonTooDeep
from strategies.text.turns import Turns

__all__ = ["Cut", "MembersHook", "cutting", "decoding"]

MembersHook = Callable[[list[tuple[str, Any]]], dict[str, Any]]

PART = 1 << 14
"""Characters that are decoded at once, or more where a text is longer."""
_LOOK = 1 << 13
_MANY = 2_000
"""Brackets that are looked at in one turn."""
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ANY = re.compile(rf'(?:[^"{{}}\[\]]++|{_STRING}|\{{\}}|\[\])*+', re.DOTALL)
"""What can be passed in one go inside a container."""
_ANY_FLAT = re.compile(rf'(?:[^"{{}}\[\]]++|{_STRING})*+', re.DOTALL)
"""The same at the deepest level, where an empty container is one too many."""
_TO_COMMA = re.compile(rf'(?:(?:[^",{{}}\[\]]++|{_STRING})*+,)++', re.DOTALL)
"""What can be passed up to a comma between values."""
_BLANK = re.compile(r"[ \t\r\n]*+")
_ONE_STRING = re.compile(_STRING, re.DOTALL)
_PAIRS = {"{": "}", "[": "]"}


@frozen
class Cut:
    """A place behind a value, and the brackets that are open there."""

    at: int
    open: str


def cutting(text: str, start: int, max_depth: int) -> Turns[list[Cut] | None]:
    """Where the value that begins here is cut; the last of them is its end, or `None` where it is no whole container.

    Raises `JsonTooDeep` where it nests deeper than it may.
    """
    if text[start : start + 1] not in ("{", "["):
        return None
    cuts: list[Cut] = []
    opened = [text[start]]
    at = inside = start + 1
    last, left = start, _MANY
    size = len(text)
    while at < size:
        left -= 1
        if left < 0:
            left = _MANY
            yield
        if at - last >= PART:
            match = _TO_COMMA.match(text, at, at + _LOOK)
            # Behind an opener a comma makes the document none, and a part that ended there would be one.
            if match is not None and _BLANK.match(text, inside).end() < match.end() - 1:  # type: ignore[union-attr]
                last = match.end() - 1
                cuts.append(Cut(last, "".join(opened)))
        begun = at
        at = (_ANY if len(opened) < max_depth else _ANY_FLAT).match(text, at, at + _LOOK).end()  # type: ignore[union-attr]
        if at >= size:
            break
        sign = text[at]
        if sign == '"':
            match = _ONE_STRING.match(text, at)
            if match is None:
                return None
            at = match.end()
        elif sign in _PAIRS:
            opened.append(sign)
            if len(opened) > max_depth:
                raise JsonTooDeep(f"nested deeper than {max_depth}")
            at = inside = at + 1
        elif sign in "}]":
            if _PAIRS[opened.pop()] != sign:
                return None
            at += 1
            if not opened:
                cuts.append(Cut(at, ""))
                return cuts
            if at - last >= PART:
                last = at
                cuts.append(Cut(last, "".join(opened)))
        if at - begun >= _LOOK:
            yield
    return None


def decoding(
    text: str, start: int, cuts: list[Cut], decoder: Callable[[MembersHook], JSONDecoder], hook: MembersHook
) -> Turns[Any]:
    """The value, its last cut at its end; raises `ValueError` where a part is no JSON."""
    joined = _Joined(_stranger(text), hook)
    decode = decoder(joined.pairs).decode
    begun, opened = start, ""
    for cut in cuts:
        joined.take(decode(joined.framed(text[begun : cut.at], opened, cut.open)), opened, cut.open)
        begun, opened = cut.at, cut.open
        yield
    return joined.root


def _stranger(text: str) -> str:
    """A name that no member of the document has."""
    name = "-"
    while name in text:
        name += "-"
    return name


class _Joined:
    """The parts of a document, joined so far."""

    __slots__ = ("_chain", "_hook", "_recent", "_stranger", "root")

    def __init__(self, stranger: str, hook: MembersHook) -> None:
        self._stranger = stranger
        self._hook = hook
        self._chain: list[Any] = []
        """The containers that are open, from the outermost one."""
        self._recent: deque[tuple[list[tuple[str, Any]], dict[str, Any]]] = deque()
        self.root: Any = None

    def framed(self, part: str, before: str, behind: str) -> str:
        """The part between the brackets that are open before and behind it."""
        self._recent = deque(maxlen=behind.count("{") or 1)
        key = f'{{"{self._stranger}":'
        opener = "".join(key if sign == "{" else "[" for sign in before)
        return f"{opener}{'null' if before else ''}{part}{''.join(_PAIRS[sign] for sign in reversed(behind))}"

    def pairs(self, items: list[tuple[str, Any]]) -> Any:
        """What the decoder makes of the members of an object."""
        if items and items[0][0] == self._stranger:
            return _More(items)
        result = self._hook(items)
        self._recent.append((items, result))
        return result

    def take(self, part: Any, before: str, behind: str) -> None:
        """Put what a part holds into what is open before it, and note what is open behind it."""
        if not before:
            self.root = part
        more = list(_continued(part, len(before)))
        for container, each in zip(self._chain, more, strict=True):
            self._add(container, each)
        chain = [self.root] if behind else []
        while len(chain) < len(behind):
            level = len(chain) - 1
            if level < len(more) and chain[level] is self._chain[level]:
                added = _items_of(more[level])[1:]
                chain.append(added[-1] if added else self._chain[level + 1])
            else:
                chain.append(self._last(chain[level]))
        self._chain = chain

    def _add(self, container: Any, more: Any) -> None:
        if isinstance(more, list):
            container += more[1:]
            return
        added = self._hook(more.items[1:])
        twice = next((key for key in added if key in container), None)
        if twice is not None:
            self._hook([(twice, None), (twice, None)])
        container.update(added)

    def _last(self, container: Any) -> Any:
        """What was put last into a container that this part has opened."""
        if isinstance(container, list):
            return container[-1]
        return next(items[-1][1] for items, result in self._recent if result is container)


class _More:
    """Further members of an object that a part before has opened."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        self.items = items


def _items_of(more: Any) -> list[Any]:
    return more if isinstance(more, list) else [item for _, item in more.items]


def _continued(part: Any, depth: int) -> Iterator[Any]:
    """What a part adds to each of the containers that are open before it."""
    for _ in range(depth):
        yield part
        part = _items_of(part)[0]
