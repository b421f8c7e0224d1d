"""Arguments that have only begun: whether everything so far is JSON that its tool takes.

The beginning is read once, by the schema; whole values are judged as in a whole call, open ones by their kind and by
what they hold so far. What a later member could still put right is not asked for.
"""

import re
from collections.abc import Mapping
from json import JSONDecoder
from typing import Any

from strategies.schema.document import Document, has_type
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import WRAPPERS
from strategies.structured.judge import Declared

__all__ = ["is_right_so_far"]

_MAX_NESTING = 16
_SPACE = re.compile(r"[ \t\n\r]*+")
_OPEN_TEXT = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z')
_OPEN_WORD = re.compile(r"-?[0-9.eE+-]*+\Z|t(?:r(?:ue?)?)?\Z|f(?:a(?:l(?:se?)?)?)?\Z|n(?:u(?:ll?)?)?\Z")
_WORD = re.compile(r"[-+.0-9A-Za-z]*+\Z")
_KINDS = {'"': "", "{": {}, "[": [], "t": True, "f": False, "n": None}
_DECODER = JSONDecoder()


class _Wrong(Exception):
    """What has come can be no right beginning, whatever follows."""


class _Open(Exception):
    """The text ends here, and all was right so far."""


def is_right_so_far(text: str, tool: Declared) -> bool:
    """Whether this can be the beginning of arguments of the tool."""
    reader = _Beginning(text, tool)
    try:
        reader.arguments()
    except _Open:
        return True
    except (_Wrong, RecursionError):
        return False
    return reader.is_at_end()


class _Beginning:
    """Walks over a beginning; each method leaves the position behind what it read."""

    __slots__ = ("_at", "_document", "_text", "_tool")

    def __init__(self, text: str, tool: Declared) -> None:
        self._text = text
        self._at = 0
        self._tool = tool
        self._document: Document = tool.schema.document

    def arguments(self) -> None:
        """All arguments, each of a parameter that the tool has."""
        if self._next() != "{":
            raise _Wrong
        try:
            told, self._at = _DECODER.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            self._members(self._tool.schema.root, 0)
        else:
            if self._tool.fault(told) is not None:
                raise _Wrong

    def is_at_end(self) -> bool:
        """Nothing but white space is left."""
        return _SPACE.match(self._text, self._at).end() == len(self._text)  # type: ignore[union-attr]

    def _next(self) -> str:
        """The next character that is no white space."""
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        if self._at == len(self._text):
            raise _Open
        return self._text[self._at]

    def _members(self, schema: Any, depth: int) -> None:
        self._at += 1
        while True:
            if self._next() != '"':
                raise _Wrong
            name = self._name()
            if self._next() != ":":
                raise _Wrong
            self._at += 1
            self._value(self._member(schema, name, depth), name, depth, is_spare=depth == 0 and self._is_spare(name))
            following = self._next()
            if following != ",":
                raise _Wrong  # a container that ends is whole, and was read as such
            self._at += 1

    def _name(self) -> str:
        try:
            name, end = _DECODER.raw_decode(self._text, self._at)
        except ValueError:
            raise self._ends_in(_OPEN_TEXT) from None
        self._at = end
        return str(name)

    def _member(self, schema: Any, name: str, depth: int) -> Any:
        if depth == 0:
            if not self._tool.schema.takes(name):
                raise _Wrong
            if self._tool.schema.declares(name):
                return self._tool.schema.prop(name).schema
            if self._stands_for_required(name):
                raise _Wrong
            return None
        member = self._document.member(self._document.view(schema), name)
        if member is False:
            raise _Wrong
        return member

    def _stands_for_required(self, name: str) -> bool:
        """Whether a name that the tool takes as well is another one of what must be given, or holds all of it."""
        schema = self._tool.schema
        is_holder = name in WRAPPERS or name == schema.name
        return bool(schema.required) and (is_holder or resolve_parameter(name, schema, ())[0] in schema.required)

    def _is_spare(self, name: str) -> bool:
        return name not in self._tool.schema.required

    def _value(self, schema: Any, where: str, depth: int, *, is_spare: bool = False) -> None:
        first = self._next()
        # A number or a word at the end may go on: `1` is the beginning of `12`, which the schema may rule out.
        if first not in '"{[' and _WORD.match(self._text, self._at):
            self._open_value(first, schema, where, depth)  # a number or a word may go on
            return
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            self._open_value(first, schema, where, depth)
            return
        if not (is_spare and value is None) and self._tool.validity.part_fault(value, schema, where) is not None:
            raise _Wrong
        self._at = end

    def _open_value(self, first: str, schema: Any, where: str, depth: int) -> None:
        """A value that the text ends in."""
        types = self._document.types(schema)
        kind = _KINDS.get(first, 0)
        # `null` has only begun: an optional parameter may be left out by it, whatever its type.
        if types and not (has_type(kind, types) or (kind == 0 and "number" in types)) and first != "n":
            raise _Wrong
        if first == '"':
            raise self._ends_in(_OPEN_TEXT)
        if first not in "{[":
            raise self._ends_in(_OPEN_WORD)
        if depth >= _MAX_NESTING:
            raise _Wrong
        if first == "{":
            self._members(schema if isinstance(schema, Mapping) else {}, depth + 1)
        else:
            self._items(schema, where, depth)

    def _items(self, schema: Any, where: str, depth: int) -> None:
        self._at += 1
        index = 0
        while True:
            item = self._document.item(self._document.view(schema), index)
            self._value(item, f"{where}[{index}]", depth + 1)
            if self._next() != ",":
                raise _Wrong
            self._at += 1
            index += 1

    def _ends_in(self, pattern: re.Pattern[str]) -> Exception:
        """Whether the text ends in the middle of this, as it has to where no whole one stands."""
        return _Open() if pattern.match(self._text, self._at) else _Wrong()
