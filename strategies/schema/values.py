"""Values beside their schema: text to typed values, conversion where it is certain, and whether a value fits.

A string parameter is never converted. Every other conversion is one that leaves no choice; what does not convert
stays the text it was. Walks over values are bounded in depth and in work.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from strategies.schema.child_tags import NoMarkup, TagReader
from strategies.schema.document import Document, Prop, Schema, branches, has_type, listed, required, type_of
from strategies.schema.fitting import Fitting
from strategies.text.numbers import number_text
from strategies.text.strict_json import loading_strict
from strategies.text.tolerant_json import JsonFault, parsing
from strategies.text.turns import LONG, Turns, whole

__all__ = ["Value", "Walk", "from_markup", "is_same", "judged", "judging", "read_text", "reading", "unique"]

_WORD_OF_TYPE = {
    "string": "a string",
    "integer": "a number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "an object",
    "array": "an array",
}
_TYPE_ORDER = tuple(_WORD_OF_TYPE)
_MAX_NESTING = 64
_LARGE = 50
"""How many items or members make it worth to ask first whether all of them fit."""
_MAX_WORK = 20_000
"""Steps of one check or conversion; what lies beyond is left as it is and taken to fit."""
_WALKED = 200
"""Steps of a conversion in one turn."""

_LISTED = re.compile(r"\A[-*]|[,;|\n\r]|\band\b")
"""What may part the items of a list that is written as words."""
_ELEMENT = re.compile(r"<(item|value)>([^<>]{0,400})</\1>")
"""An element that only says that it holds a value."""
_MAX_DIGITS = 308
"""Longer whole numbers are no numbers to clients that count in doubles."""
_WHOLE = re.compile(r"[+-]?[0-9]++(?:\.0++)?")
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")


class Value(Struct, frozen=True):
    """A parameter's value; with a fault it is the text, which cannot fit."""

    value: Any
    mends: tuple[str, ...] = ()
    fault: str | None = None


def judged(prop: Prop, found: Value, text: str) -> Value:
    """What was found if it fits, else the text and the fault."""
    return whole(judging(prop, found, text))


def judging(prop: Prop, found: Value, text: str) -> Turns[Value]:
    """The same in turns."""
    fault = yield from Walk(prop.document, []).faulting(found.value, prop.schema, prop.name, 0)
    return found if fault is None else Value(text, (), fault)


def read_text(prop: Prop, text: str) -> Value:
    """The value that the text spells by the types allowed, else the text."""
    return _at_hand(prop, text) or whole(_further(prop, text))


def reading(prop: Prop, text: str) -> Turns[Value]:
    """The same in turns."""
    return _at_hand(prop, text) or (yield from _further(prop, text))


def _at_hand(prop: Prop, text: str) -> Value | None:
    """The value, unless it may be an object or a list."""
    if not prop.is_string:
        return _simple(prop, text)
    # A file's content is often valid JSON, and must stay the text it is: https://github.com/ollama/ollama/issues/17914
    if prop.flows:
        return Value(_enum_member(prop, text))
    trimmed = text.strip()
    if prop.may_be_null and trimmed.lower() == "null" and not _lists(prop, text):
        return Value(None)
    if trimmed[:1] in ("{", "["):
        return None if prop.types & {"object", "array"} else Value(text)
    return Value(_enum_member(prop, text))


def _further(prop: Prop, text: str) -> Turns[Value]:
    """The object or list that the text spells, else the text."""
    convert = _strict_container if prop.is_string else _converting
    return (yield from convert(prop, text.strip())) or Value(text)


def _lists(prop: Prop, text: str) -> bool:
    return prop.enum is not None and (text in prop.enum or text.strip() in prop.enum)


def _enum_member(prop: Prop, text: str) -> str:
    """The enumerated word that the text is but for white space, else the text."""
    return text.strip() if _lists(prop, text) and text not in (prop.enum or ()) else text


def _strict_container(prop: Prop, text: str) -> Turns[Value | None]:
    try:
        value = yield from loading_strict(text)
    except JsonFault:
        return None
    return (yield from _finished(prop, value, ())) if type_of(value) in prop.types else None


def _simple(prop: Prop, text: str) -> Value | None:
    """The number, truth or nothing that the text spells, if the types allow it."""
    value = _scalar(prop.types, text.strip())
    return None if value is _NOTHING else Value(value)


def _converting(prop: Prop, trimmed: str) -> Turns[Value | None]:
    """The one other value of the types, none of them string, that the text spells."""
    if prop.types & {"object", "array"}:
        return (yield from _container(prop, trimmed)) or (yield from _sole_item(prop, trimmed))
    inner = _ELEMENT.fullmatch(trimmed)
    if inner is not None:
        value = _scalar(prop.types, inner[2].strip())
        return None if value is _NOTHING else Value(value, ("element_unwrapped",))
    # A number in quotes, as JSON would have a text.
    quoted = trimmed[1:-1] if len(trimmed) > 2 and trimmed[0] == trimmed[-1] == '"' else ""
    value = _scalar(prop.types, quoted)
    return None if value is _NOTHING else Value(value, ("typed_string",))


_NOTHING = object()


def _scalar(types: frozenset[str], text: str) -> Any:
    # Templates of the Qwen family show null as Python writes it.
    if "null" in types and text.lower() in ("null", "none"):
        return None
    if types & {"integer", "number"}:
        number = _number(types, text)
        if number is not None:
            return number
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return _NOTHING


def _number(types: frozenset[str], text: str) -> int | float | None:
    # `20.0` for a line's number is what models write that count in floats.
    is_whole = _WHOLE.fullmatch(text) is not None
    if is_whole and ("." not in text or "integer" in types):
        digits = text.partition(".")[0]
        return int(digits) if len(digits) <= _MAX_DIGITS else None
    if "number" in types and _DECIMAL.fullmatch(text):
        number = float(text)
        # Infinity is no JSON, and 1e999 reads as one.
        return number if number - number == 0 else None
    return None


def _container(prop: Prop, text: str) -> Turns[Value | None]:
    """JSON first, mended if need be; then JSON inside a JSON string; then nested tags."""
    try:
        parsed = yield from parsing(text, closed=True)
    except JsonFault:
        return (yield from reading_markup(prop, text))
    if text[parsed.end :].strip():
        return None
    # One level of a string around an object: https://github.com/HunorLaczko/ha-groq-cloud-api/issues/20
    if isinstance(parsed.value, str):
        return (yield from _unstrung(prop, parsed.value))
    if not has_type(parsed.value, prop.types):
        return None
    if len(text) > LONG:
        yield
    return (yield from _finished(prop, parsed.value, parsed.steps))


def _sole_item(prop: Prop, text: str) -> Turns[Value | None]:
    """The one item of an array that is given as often as there are items, unless the text may itself be a list."""
    item = prop.item(0) if prop.types == {"array"} else None
    if item is None or not item.schema or "array" in item.types or not text or text[0] in "<[{":
        return None
    # To split it is to guess, and to take it as one item is to guess the other way.
    if item.is_string and _LISTED.search(text):
        return None
    found = yield from reading(item, text)
    is_item = item.is_string or not isinstance(found.value, str)
    return Value([found.value], (*found.mends, "item_unwrapped")) if is_item else None


def _unstrung(prop: Prop, text: str) -> Turns[Value | None]:
    try:
        parsed = yield from parsing(text, closed=True)
    except JsonFault:
        return None
    if text[parsed.end :].strip() or not isinstance(parsed.value, dict | list):
        return None
    if not has_type(parsed.value, prop.types):
        return None
    return (yield from _finished(prop, parsed.value, ("stringified", *parsed.steps)))


def _finished(prop: Prop, value: Any, steps: tuple[str, ...]) -> Turns[Value]:
    mends = list(steps)
    found = yield from Walk(prop.document, mends).adapt(value, prop.schema, 0)
    return Value(found, unique(mends))


def unique(mends: Sequence[str]) -> tuple[str, ...]:
    """Each mend once, in order."""
    return tuple(dict.fromkeys(mends))


def from_markup(prop: Prop, text: str) -> Value | None:
    """The array or object that nested child tags spell by the schema; `None` if `text` is no such markup."""
    return whole(reading_markup(prop, text))


def reading_markup(prop: Prop, text: str) -> Turns[Value | None]:
    """The same in turns."""
    if prop.is_string:
        return None
    mends: list[str] = []
    try:
        value = yield from TagReader(text, _read_leaf, mends).container(prop, "", 0)
    except NoMarkup:
        return None
    return Value(value, unique(mends))


def _read_leaf(prop: Prop, text: str) -> Turns[tuple[Any, tuple[str, ...]]]:
    found = yield from reading(prop, text)
    return found.value, found.mends


class Walk:
    """One walk over a value beside its schema."""

    __slots__ = ("_document", "_due", "_fitting", "_left", "_mends")

    def __init__(self, document: Document, mends: list[str]) -> None:
        self._document = document
        self._fitting = Fitting(document)
        self._mends = mends
        self._left = _MAX_WORK
        self._due = _MAX_WORK - _WALKED

    def _is_spent(self, depth: int) -> bool:
        self._left -= 1
        return self._left < 0 or depth > _MAX_NESTING

    def _fits(self, value: Any, schema: Any) -> bool:
        """Whether a large value fits as it is."""
        if not isinstance(value, dict | list) or len(value) < _LARGE:
            return False
        looked = self._fitting.fits(value, schema, self._left)
        self._left -= max(0, looked)
        return looked >= 0

    def _rest(self) -> Turns[None]:
        """Others have their turn, once enough was done."""
        if self._left < self._due:
            self._due = self._left - _WALKED
            yield

    def adapt(self, value: Any, schema: Any, depth: int) -> Turns[Any]:
        """The value with each text and number converted whose schema excludes it, where that is certain."""
        if self._fits(value, schema) or self._is_spent(depth) or not isinstance(value, str | dict | list | int | float):
            return value
        if isinstance(value, int | float):
            return self._adapt_number(value, schema)
        view = self._document.view(schema)
        if isinstance(value, str):
            return (yield from self._adapt_text(value, view, depth))
        union = branches(view)
        if union:
            return (yield from self._adapt_union(value, union, depth))
        if isinstance(value, dict):
            return (yield from self._adapt_members(value, view, depth))
        return (yield from self._adapt_items(value, view, depth))

    def _adapt_items(self, value: list[Any], view: Schema, depth: int) -> Turns[list[Any]]:
        """The items converted, as many as there is work left for; the rest stay as they are."""
        found: list[Any] = []
        for index, item in enumerate(value):
            if self._left <= 0:
                return [*found, *value[index:]]
            yield from self._rest()
            found.append((yield from self.adapt(item, self._document.item(view, index), depth + 1)))
        return found

    def _adapt_members(self, value: dict[str, Any], view: Schema, depth: int) -> Turns[dict[str, Any]]:
        """The members converted, without those that the schema rules out."""
        found: dict[str, Any] = {}
        for key, item in value.items():
            schema = self._document.member(view, key)
            if schema is False:
                self._mends.append("argument_left_out")
            else:
                yield from self._rest()
                found[key] = yield from self.adapt(item, schema, depth + 1)
        return found

    def _adapt_number(self, value: int | float, schema: Any) -> int | float | str:
        """A number where only text fits is the text that it was written as."""
        types = self._document.types(schema)
        # An id of digits: models write it without quotes, and clients compare it as text.
        if isinstance(value, bool) or "string" not in types or types & {"integer", "number"}:
            return value
        self._mends.append("number_as_text")
        return number_text(value)

    def _adapt_text(self, text: str, view: Schema, depth: int) -> Turns[Any]:
        prop = self._document.prop("", view)
        if prop.is_string or depth >= _MAX_NESTING:
            return text
        found = _scalar(prop.types, text.strip())
        if found is not _NOTHING:
            self._mends.append("typed_string")
            return found
        return (yield from self._adapt_stringified(text, prop, depth))

    def _adapt_stringified(self, text: str, prop: Prop, depth: int) -> Turns[Any]:
        if not prop.types & {"object", "array"}:
            return text
        try:
            parsed = yield from parsing(text, closed=True)
        except JsonFault:
            return text
        if text[parsed.end :].strip() or type_of(parsed.value) not in prop.types:
            return text
        self._mends.extend(("stringified", *parsed.steps))
        return (yield from self.adapt(parsed.value, prop.schema, depth + 1))

    def _adapt_union(self, value: Any, union: list[Any], depth: int) -> Turns[Any]:
        """By the first alternative under which the value fits, else unchanged."""
        for branch in union:
            mark = len(self._mends)
            candidate = yield from self.adapt(value, branch, depth + 1)
            if (yield from self.faulting(candidate, branch, "", depth)) is None:
                return candidate
            # What an alternative has mended that did not fit was never done.
            del self._mends[mark:]
        return value

    def fault(self, value: Any, schema: Any, where: str, depth: int) -> str | None:
        """Why the value cannot fit the schema; `where` is its path, empty for the arguments as a whole."""
        return whole(self.faulting(value, schema, where, depth))

    def faulting(self, value: Any, schema: Any, where: str, depth: int) -> Turns[str | None]:
        """The same in turns."""
        yield from self._rest()
        if self._fits(value, schema) or self._is_spent(depth) or not isinstance(schema, Mapping):
            return None
        view = self._document.view(schema)
        types = self._document.types(schema)
        if types and not has_type(value, types):
            return f"{_path(where)} must be {_words(types, value)}"
        members = listed(view)
        if members is not None and not any(is_same(value, member) for member in members):
            return f"{_path(where)} must be {_choices(members)}"
        fault = (yield from self._union_fault(value, view, where, depth)) if branches(view) else None
        if fault is None and isinstance(value, dict | list):
            fault = yield from self._inner_fault(value, view, where, depth)
        return fault

    def _union_fault(self, value: Any, view: Schema, where: str, depth: int) -> Turns[str | None]:
        faults: list[str] = []
        for branch in branches(view):
            fault = yield from self.faulting(value, branch, where, depth + 1)
            fault = fault or self._ruled_out(value, branch, where)
            if fault is None:
                return None
            faults.append(fault)
        return faults[0] if len(faults) == 1 else self._best(value, view, faults, where)

    def _ruled_out(self, value: Any, branch: Any, where: str) -> str | None:
        """Why a strict alternative does not take an object: it has a member that the alternative forbids."""
        if not isinstance(value, dict) or not isinstance(branch, Mapping):
            return None
        view = self._document.view(branch)
        extra = next((key for key in value if self._document.member(view, key) is False), None)
        return None if extra is None else f"{_path(_joined(where, extra))} is not known"

    def _best(self, value: Any, view: Schema, faults: list[str], where: str) -> str | None:
        """The fault of the one alternative that has the value's type, else a general one."""
        if not faults:
            return None
        fitting = [
            fault
            for fault, branch in zip(faults, branches(view), strict=False)
            if not (types := self._document.types(branch)) or has_type(value, types)
        ]
        return fitting[0] if len(fitting) == 1 else f"{_path(where)} fits none of its alternatives"

    def _inner_fault(
        self, value: dict[str, Any] | list[Any], view: Schema, where: str, depth: int
    ) -> Turns[str | None]:
        if isinstance(value, dict):
            for name in required(view):
                if name not in value:
                    return f"missing required argument `{_joined(where, name)}`"
            members = ((_joined(where, key), item, self._document.member(view, key)) for key, item in value.items())
        else:
            members = (
                (f"{where}[{index}]", item, self._document.item(view, index)) for index, item in enumerate(value)
            )
        for path, item, schema in members:
            if self._left <= 0:
                return None
            fault = (yield from self.faulting(item, schema, path, depth + 1)) if schema is not None else None
            if fault is not None:
                return fault
        return None


def is_same(left: Any, right: Any) -> bool:
    """Equal as JSON, at any depth: `true` is not 1."""
    # Python has `True == 1`.
    if left != right or isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, dict):
        return all(is_same(value, right[key]) for key, value in left.items())
    return not isinstance(left, list) or all(map(is_same, left, right))


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _path(where: str) -> str:
    return f"`{where}`" if where else "the arguments"


def _words(types: frozenset[str], value: Any) -> str:
    words = " or ".join(dict.fromkeys(_WORD_OF_TYPE[name] for name in _TYPE_ORDER if name in types))
    return words.replace("a number", "a whole number") if isinstance(value, float) else words


def _choices(members: Sequence[Any]) -> str:
    return "one of " + ", ".join(str(member) for member in members[:20])
