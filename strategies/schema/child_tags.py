"""Nested child tags as the arrays and objects of a schema: `<files><file>a</file></files>`.

Which tags may come is the schema's to say; a string is always raw, whatever it looks like. A leaf ends at the first of
its closing tags that the markup around it goes on from. Every character is read once but for that search, which only
moves forward; nesting is bounded; anything unexpected means that the text is no such markup.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from strategies.schema.document import Prop
from strategies.text.turns import Turns

__all__ = ["NoMarkup", "TagReader"]

ReadLeaf = Callable[[Prop, str], Turns[tuple[Any, tuple[str, ...]]]]
"""The value of a leaf's text and the mends it needed."""

_MAX_NESTING = 64
_AT_ONCE = 250
"""Children that are read in one turn."""
_OPENER = re.compile(r"<([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})>")
_GAP = re.compile(r"\s*+")
_ANY_CONTAINER = {"type": ["object", "array"]}
_ITEM_NAMES = frozenset({"item", "element", "entry"})


class NoMarkup(Exception):
    """The text is not nested tags of this schema."""


class TagReader:
    """Reads child tags by schema, each character once but for a leaf's search for its end; `container` is its work."""

    __slots__ = ("_at", "_left", "_mends", "_read_leaf", "_text")

    def __init__(self, text: str, read_leaf: ReadLeaf, mends: list[str]) -> None:
        self._text = text
        self._read_leaf = read_leaf
        self._mends = mends
        self._at = 0
        self._left = _AT_ONCE

    def container(self, prop: Prop, closer: str, depth: int) -> Turns[Any]:
        """The array or object between here and the closing tag; no closing tag means the end of the text."""
        if depth > _MAX_NESTING:
            raise NoMarkup
        opener = self._opener()
        if opener is None:
            raise NoMarkup
        # Models name an item by the singular of the list, by its index, or leave the tag around it out.
        is_item = _is_item(opener, prop, 0)
        if "array" in prop.types and ("object" not in prop.types or is_item):
            if not is_item:
                return [(yield from self._sole_item(prop.item(0), opener, closer, depth))]
            return (yield from self._array(prop, closer, depth))
        if "object" not in prop.types:
            raise NoMarkup
        return (yield from self._object(prop, closer, depth))

    def _opener(self) -> str | None:
        self._gap()
        match = _OPENER.match(self._text, self._at)
        return match.group(1) if match else None

    def _gap(self) -> None:
        match = _GAP.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _children(self, closer: str) -> Iterator[str]:
        """The names of the child tags, each left at its content, up to the closer."""
        while True:
            self._gap()
            if closer and self._text.startswith(closer, self._at):
                self._at += len(closer)
                return
            if self._at == len(self._text) and not closer:
                return
            name = self._opener()
            if name is None:
                raise NoMarkup
            self._at += len(name) + 2
            yield name

    def _array(self, prop: Prop, closer: str, depth: int) -> Turns[list[Any]]:
        result: list[Any] = []
        names: set[str] = set()
        for name in self._children(closer):
            if not _is_item(name, prop, len(result)):
                raise NoMarkup
            names.add("0" if name.isdecimal() else name)
            result.append((yield from self._child(prop.item(len(result)), name, closer, depth)))
        # Items of two names are no list: what they have in common only the model knows.
        if len(names) != 1:
            raise NoMarkup
        return result

    def _sole_item(self, prop: Prop, opener: str, closer: str, depth: int) -> Turns[dict[str, Any]]:
        """The one object of an array, whose members stand where a tag of its own should be around them.

        Where no schema says what members there are, a single one leaves no choice.
        """
        is_free = not prop.schema
        if not is_free and opener not in prop.document.every_property(prop.schema):
            raise NoMarkup
        found = yield from self._object(prop, closer, depth)
        if is_free and len(found) != 1:
            raise NoMarkup
        self._mends.append("item_unwrapped")
        return found

    def _object(self, prop: Prop, closer: str, depth: int) -> Turns[dict[str, Any]]:
        result: dict[str, Any] = {}
        lists: set[str] = set()
        declared = prop.document.every_property(prop.schema)
        for name in self._children(closer):
            if declared and name not in declared:
                raise NoMarkup
            child = prop.document.prop(name, declared.get(name, prop.schema.get("additionalProperties")))
            if name in lists:
                result[name].append((yield from self._child(child.item(len(result[name])), name, closer, depth)))
            elif self._is_sibling_list(child):
                lists.add(name)
                result[name] = [(yield from self._child(child.item(0), name, closer, depth))]
            # Twice the same member leaves a choice.
            elif name in result:
                raise NoMarkup
            elif declared or child.schema:
                result[name] = yield from self._child(child, name, closer, depth)
            else:
                result[name] = yield from self._free(child, name, closer, depth)
        return result

    def _free(self, prop: Prop, name: str, outer_closer: str, depth: int) -> Turns[Any]:
        """A child that no schema describes: what its own tags spell, else its text."""
        start = self._at
        self._left -= 1
        if not self._left:
            self._left = _AT_ONCE
            yield
        if self._opener() is not None:
            try:
                return (yield from self.container(prop.document.prop(name, _ANY_CONTAINER), f"</{name}>", depth + 1))
            except NoMarkup:
                pass
        self._at = start
        return (yield from self._leaf(prop, name, outer_closer))

    def _is_sibling_list(self, prop: Prop) -> bool:
        """An array whose items are the repeated tags themselves, not children of one tag."""
        if prop.types != {"array"}:
            return False
        match = _GAP.match(self._text, self._at)
        start = match.end() if match else self._at
        # A list written as JSON inside one tag is no repeated item.
        if self._text.startswith("[", start):
            return False
        opener = _OPENER.match(self._text, start)
        return opener is None or not _is_item(opener.group(1), prop, 0)

    def _child(self, prop: Prop, name: str, outer_closer: str, depth: int) -> Turns[Any]:
        self._left -= 1
        if not self._left:
            self._left = _AT_ONCE
            yield
        if not prop.is_string and prop.types & {"array", "object"}:
            self._gap()
            if self._text.startswith("<", self._at):
                return (yield from self.container(prop, f"</{name}>", depth + 1))
        return (yield from self._leaf(prop, name, outer_closer))

    def _leaf(self, prop: Prop, name: str, outer_closer: str) -> Turns[Any]:
        raw = self._raw(f"</{name}>", outer_closer)
        # Blanks around a path are layout, those at the edges of a file are the file's.
        text = _unwrapped(raw) if prop.body else raw.strip()
        value, mends = yield from self._read_leaf(prop, text)
        # A text where the schema wants another type was not read as what it is.
        if not prop.is_string and isinstance(value, str):
            raise NoMarkup
        self._mends.extend(mends)
        return value

    def _raw(self, closer: str, outer_closer: str) -> str:
        """The text up to the first closing tag that the markup around it goes on from."""
        start = self._at
        # The first closer alone would cut a file that shows one: https://github.com/smg-project/smg/issues/1942
        end = self._text.find(closer, start)
        while end >= 0:
            after = end + len(closer)
            if self._goes_on(after, outer_closer):
                self._at = after
                return self._text[start:end]
            end = self._text.find(closer, after)
        raise NoMarkup

    def _goes_on(self, position: int, outer_closer: str) -> bool:
        match = _GAP.match(self._text, position)
        position = match.end() if match else position
        if outer_closer and self._text.startswith(outer_closer, position):
            return True
        return position == len(self._text) or _OPENER.match(self._text, position) is not None


def _is_item(name: str, prop: Prop, index: int) -> bool:
    """Whether an item of the array may be called this; by the array's own name, unless its items have such a member."""
    if name in _ITEM_NAMES or name in _singulars(prop.name) or name == str(index):
        return True
    return name == prop.name and name not in prop.document.every_property(prop.item(0).schema)


def _singulars(key: str) -> set[str]:
    """What one of `key` may be called: `file` of `files`, `entry` of `entries`, `match` of `matches`."""
    names = {key[:-1]} if key.endswith("s") and len(key) > 1 else set()
    if key.endswith("ies"):
        names.add(key[:-3] + "y")
    if key.endswith("es"):
        names.add(key[:-2])
    return names - {""}


def _unwrapped(text: str) -> str:
    """Without the one newline on each side that belongs to the layout."""
    for newline in ("\r\n", "\n"):
        if text.startswith(newline):
            text = text[len(newline) :]
            break
    for newline in ("\r\n", "\n"):
        if text.endswith(newline):
            return text[: -len(newline)]
    return text
