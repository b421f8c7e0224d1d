"""What a tool's declared schema says about values: types from text, certain conversions, and whether a value fits.

A string parameter is never converted. Every other conversion is one that leaves no choice; what does not convert
stays the text it was, with the fault named. Schemas are the client's and may be anything: references are followed
within the schema only, cycles and nesting are bounded, and what cannot be understood asks for nothing.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from gateway.core.tools import Tool
from strategies.jsonish import JsonFault, loads_strict, parse

__all__ = ["BODY_PARAMETERS", "Adapted", "Prop", "ToolSchema", "Value", "from_markup", "schema_of"]

BODY_PARAMETERS: frozenset[str] = frozenset(
    {
        "body",
        "code",
        "code_edit",
        "command",
        "content",
        "diff",
        "input",
        "message",
        "newString",
        "new_str",
        "new_string",
        "oldString",
        "old_str",
        "old_string",
        "patch",
        "patchText",
        "prompt",
        "replace",
        "result",
        "search",
        "text",
    }
)
"""Parameters that hold code or documents: their text may look like anything, markup of calls included."""

_STRING = frozenset({"string"})
_ALL_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_ALIASES = {
    "string": ("string", "str", "text", "varchar", "char", "enum", "uuid", "date", "datetime", "date-time", "time"),
    "integer": ("long", "short", "bigint"),
    "number": ("decimal",),
    "null": ("null", "none"),
    "object": ("object",),
    "array": ("arr", "tuple", "set"),
}
_TYPE_OF_ALIAS = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}
_TYPE_OF_PREFIX = (
    ("int", "integer"),
    ("uint", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("num", "number"),
    ("bool", "boolean"),
    ("dict", "object"),
    ("map", "object"),
    ("list", "array"),
    ("array", "array"),
    ("str", "string"),
)
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
_UNIONS = ("anyOf", "oneOf")
_WRAPPERS = frozenset({"arguments", "args", "input", "parameters", "params"})
_BARE = frozenset({"code", "command", "input", "query"})
_PROTOTYPE_KEYS = frozenset({"__proto__", "constructor", "prototype"})

_MAX_NESTING = 64
_MAX_PARTS = 64
_MAX_VIEWS = 2_000
_MAX_CACHED_NAME = 64
_MAX_WORK = 20_000
"""Steps of one check or conversion; what lies beyond is left as it is and taken to fit."""

_WHOLE = re.compile(r"[+-]?[0-9]++(?:\.0++)?")
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")

Schema = Mapping[str, Any]


@frozen(kw_only=True)
class Prop:
    """One parameter: the types it may have, and whether it holds code or documents."""

    types: frozenset[str]
    enum: tuple[Any, ...] | None = None
    body: bool = False
    schema: Schema = field(factory=dict, repr=False)
    name: str = ""
    book: "_Book" = field(factory=lambda: _Book({}), repr=False, eq=False)
    """The whole schema, in which references are looked up."""

    @property
    def is_string(self) -> bool:
        """A string is allowed."""
        return "string" in self.types

    @property
    def only_string(self) -> bool:
        """Nothing but a string is allowed."""
        return self.types == _STRING

    def item(self, index: int) -> "Prop":
        """What the array's item at this index may be; it has no name of its own."""
        return self.book.prop("", self.book.item(self.schema, index))


@frozen
class Value:
    """A parameter's value; with a fault it is the text, which cannot fit."""

    value: Any
    mends: tuple[str, ...] = ()
    fault: str | None = None


@frozen
class Adapted:
    """Arguments brought to their types as far as that is certain."""

    arguments: dict[str, Any]
    mends: tuple[str, ...] = ()


class ToolSchema:
    """The parameters of one tool: reading, converting and checking their values."""

    __slots__ = ("_book", "_extra", "_root", "body_keys", "open", "properties", "required", "tool")

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._root: Schema = tool.parameters
        self._book = _Book(self._root)
        view = self._book.view(self._root)
        self._extra = view.get("additionalProperties")
        self.open: bool = self._extra is not False
        self.properties: Mapping[str, Prop] = MappingProxyType(
            {name: self._book.prop(name, schema) for name, schema in self._book.every_property(view).items()}
        )
        self.required: frozenset[str] = frozenset(_required(view))
        self.body_keys: tuple[str, ...] = tuple(
            name for name, prop in self.properties.items() if prop.body and prop.is_string
        )

    def prop(self, name: str) -> Prop:
        """The parameter of this name; an undeclared one is a string unless the schema says otherwise."""
        found = self.properties.get(name)
        return found if found is not None else self._book.prop(name, self._extra)

    def from_text(self, name: str, text: str) -> Value:
        """One parameter's raw text as the value its type asks for."""
        prop = self.prop(name)
        return _judged(prop, _read_text(prop, text), text)

    def from_texts(self, name: str, texts: Sequence[str]) -> Value:
        """The value of a parameter given several times, one item of its array each time."""
        prop = self.prop(name)
        whole = "\n".join(texts)
        if "array" not in prop.types:
            return Value(whole, (), f"`{name}` is given {len(texts)} times")
        found = [_read_text(prop.item(index), text) for index, text in enumerate(texts)]
        mends = [mend for item in found for mend in item.mends]
        return _judged(prop, Value([item.value for item in found], _unique(mends)), whole)

    def from_json(self, arguments: Mapping[str, Any]) -> Adapted:
        """Arguments with text turned into what the schema asks for where it excludes text; never the reverse.

        An optional argument that is null against its type is left out.
        """
        mends: list[str] = []
        work = _Work(self._book, mends)
        kept: dict[str, Any] = {}
        for key, value in arguments.items():
            if key in _PROTOTYPE_KEYS and key not in self.properties:
                mends.append("prototype_key")
            elif value is None and self._is_spare(key):
                mends.append("null_dropped")
            else:
                kept[key] = work.adapt(value, self.prop(key).schema, 1)
        return Adapted(kept, _unique(mends))

    def _is_spare(self, key: str) -> bool:
        """An optional parameter that is given as null but cannot be null: it was meant to be absent."""
        prop = self.properties.get(key)
        if prop is None or key in self.required:
            return False
        types = self._book.types(prop.schema)
        return bool(types) and "null" not in types

    def fill_nullable(self, arguments: Mapping[str, Any]) -> Adapted:
        """Arguments with `null` for each required one that is missing and may be null."""
        filled = dict(arguments)
        for name, prop in self.properties.items():
            if name in self.required and name not in filled and "null" in prop.types:
                filled[name] = None
        return Adapted(filled, ("null_filled",) if len(filled) != len(arguments) else ())

    def open_container(self, value: Any) -> Adapted | None:
        """The arguments inside what stood where they belong: nothing, an object, its JSON as a string, a wrapper.

        `None` when there is no telling. The values themselves are left to `from_json`.
        """
        if value is None:
            return Adapted({})
        if isinstance(value, str):
            return self._from_string(value)
        return self._unwrapped(value, ()) if isinstance(value, dict) else None

    def check(self, arguments: Mapping[str, Any]) -> str | None:
        """Why these arguments are not a call of this tool, in words; `None` if they are."""
        return _Work(self._book, []).fault(dict(arguments), self._root, "", 0)

    def _from_string(self, text: str) -> Adapted | None:
        try:
            parsed = parse(text, closed=True, body_keys=self.body_keys, known_keys=tuple(self.properties))
        except JsonFault:
            return self._bare(text)
        if isinstance(parsed.value, dict) and not text[parsed.end :].strip():
            return self._unwrapped(parsed.value, ("stringified", *parsed.steps))
        return self._bare(text)

    def _bare(self, text: str) -> Adapted | None:
        """A text alone is the one required string of a tool that takes a command or a query."""
        if len(self.required) != 1 or text.lstrip()[:1] in ("", "{", "["):
            return None
        (name,) = self.required
        return Adapted({name: text}, ("bare_argument",)) if name in _BARE and self.prop(name).is_string else None

    def _unwrapped(self, arguments: dict[str, Any], mends: tuple[str, ...]) -> Adapted:
        if len(arguments) == 1:
            ((key, inner),) = arguments.items()
            if key in _WRAPPERS and key not in self.properties and isinstance(inner, dict):
                if all(name in self.properties for name in inner):
                    return Adapted(inner, (*mends, "wrapped"))
        return Adapted(arguments, mends)


_cache: OrderedDict[int, tuple[Tool, ToolSchema]] = OrderedDict()
_CACHE_SIZE = 512


def schema_of(tool: Tool) -> ToolSchema:
    """The schema of this tool; the most recently used ones are kept."""
    entry = _cache.get(id(tool))
    if entry is not None and entry[0] is tool:
        _cache.move_to_end(id(tool))
        return entry[1]
    schema = ToolSchema(tool)
    _cache[id(tool)] = (tool, schema)
    if len(_cache) > _CACHE_SIZE:
        _cache.popitem(last=False)
    return schema


def from_markup(prop: Prop, text: str) -> Value | None:
    """The array or object that nested child tags spell by the schema; `None` if `text` is no such markup."""
    if prop.is_string:
        return None
    mends: list[str] = []
    try:
        value = _Markup(text, mends).container(prop, "", 0)
    except _NoMarkup:
        return None
    return Value(value, _unique(mends))


# Schemas: references, combinations, types.


class _Book:
    """One schema document: its references followed and its combinations merged, each looked up once."""

    __slots__ = ("_props", "_root", "_views")

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._props: dict[tuple[str, int], Prop] = {}
        self._views: dict[int, tuple[Any, Schema, frozenset[str]]] = {}

    def view(self, schema: Any) -> Schema:
        """The schema with its reference followed and what `allOf` adds merged in."""
        return self._entry(schema)[1]

    def types(self, schema: Any) -> frozenset[str]:
        """The JSON types that fit; empty when the schema does not say."""
        return self._entry(schema)[2]

    def prop(self, name: str, schema: Any) -> Prop:
        view, types = self._entry(schema)[1:]
        found = self._props.get((name, id(view)))
        if found is not None and found.schema is view:
            return found
        listed = _listed(view)
        prop = Prop(
            types=types or _STRING,
            enum=None if listed is None else tuple(listed),
            body=name in BODY_PARAMETERS,
            schema=view,
            name=name,
            book=self,
        )
        if len(self._props) < _MAX_VIEWS and len(name) <= _MAX_CACHED_NAME:
            self._props[name, id(view)] = prop
        return prop

    def every_property(self, view: Schema) -> dict[str, Any]:
        """The properties of a schema, those of its alternatives included."""
        result: dict[str, Any] = {}
        for branch in _branches(view):
            result.update(_properties(self.view(branch)))
        result.update(_properties(view))
        return result

    def item(self, view: Schema, index: int) -> Any:
        """The schema of an array's item."""
        for key in ("prefixItems", "items"):
            items = view.get(key)
            if isinstance(items, list) and index < len(items):
                return items[index]
            if isinstance(items, Mapping):
                return items
        arrays = [branch for branch in _branches(view) if "array" in self.types(branch)]
        return self.view(arrays[0]).get("items") if arrays else None

    def _entry(self, schema: Any) -> tuple[Any, Schema, frozenset[str]]:
        entry = self._views.get(id(schema))
        if entry is None or entry[0] is not schema:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
                self._props.clear()
            view = self._merged(schema)
            entry = (schema, view, self._types(view))
            self._views[id(schema)] = entry
        return entry

    def _merged(self, schema: Any) -> Schema:
        if not isinstance(schema, Mapping):
            return {}
        if "$ref" not in schema and "allOf" not in schema:
            return schema
        result: dict[str, Any] = {}
        for part in self._parts(schema):
            _add(result, part)
        return result

    def _parts(self, schema: Schema) -> list[Schema]:
        """The schema and all it refers to or combines, what it says itself last; each once, so cycles end."""
        parts: list[Schema] = []
        seen: set[int] = set()
        left: list[Any] = [schema]
        while left and len(parts) < _MAX_PARTS:
            part = left.pop()
            if not isinstance(part, Mapping) or id(part) in seen:
                continue
            seen.add(id(part))
            parts.append(part)
            combined = part.get("allOf")
            left.extend(combined[:_MAX_PARTS] if isinstance(combined, list) else ())
            if "$ref" in part:
                left.append(_target(part["$ref"], self._root))
        parts.reverse()
        return parts

    def _types(self, view: Schema) -> frozenset[str]:
        """Own types and those of the alternatives, each alternative looked at once."""
        types = _own_types(view)
        branches = _branches(view)
        seen = {id(view)}
        union: set[str] = set()
        while branches:
            branch = branches.pop()
            if id(branch) in seen or len(seen) > _MAX_PARTS:
                continue
            seen.add(id(branch))
            inner = self._merged(branch)
            own = _own_types(inner)
            deeper = _branches(inner)
            if not own and not deeper:
                return types
            union |= own | ({"null"} if own and inner.get("nullable") is True else set())
            branches.extend(() if own else deeper)
        narrowed = types & union or types or frozenset(union)
        return narrowed | {"null"} if narrowed and view.get("nullable") is True else narrowed


def _add(result: dict[str, Any], more: Schema) -> None:
    for key, value in more.items():
        known = result.get(key)
        if key == "properties" and isinstance(value, Mapping) and isinstance(known, Mapping):
            result[key] = {**known, **value}
        elif key == "required" and isinstance(value, list) and isinstance(known, list):
            result[key] = [*known, *value]
        elif key not in ("$ref", "allOf"):
            result[key] = value


def _target(reference: Any, root: Schema) -> Any:
    """What a local reference (`#/$defs/x`) points to; `None` for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node: Any = root
    for step in reference[1:].split("/")[1:_MAX_PARTS]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and len(key) < 6 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _branches(schema: Schema) -> list[Any]:
    """The alternatives of a union, if the schema is one."""
    for key in _UNIONS:
        union = schema.get(key)
        if isinstance(union, list) and union:
            return union[:_MAX_PARTS]
    return []


def _properties(schema: Schema) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _required(schema: Schema) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _own_types(schema: Schema) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return _named_types([declared])
    if isinstance(declared, list):
        return frozenset() if "any" in declared else _named_types(declared)
    if isinstance(schema.get("enum"), list):
        return frozenset(_type_of(member) for member in schema["enum"])
    if "const" in schema:
        return frozenset({_type_of(schema["const"])})
    if "properties" in schema or isinstance(schema.get("additionalProperties"), Mapping):
        return frozenset({"object"})
    if "items" in schema or "prefixItems" in schema:
        return frozenset({"array"})
    return frozenset()


def _named_types(names: Sequence[Any]) -> frozenset[str]:
    return frozenset(found for name in names if isinstance(name, str) and (found := _named_type(name.lower())))


def _named_type(name: str) -> str | None:
    if name == "any":
        return None
    if name in _TYPE_OF_ALIAS:
        return _TYPE_OF_ALIAS[name]
    return next((found for prefix, found in _TYPE_OF_PREFIX if name.startswith(prefix)), "string")


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list | tuple) else "string"


def _has_type(value: Any, types: frozenset[str]) -> bool:
    found = _type_of(value)
    if found in types:
        return True
    if found == "integer":
        return "number" in types
    return found == "number" and "integer" in types and float(value).is_integer()


def _is_same(left: Any, right: Any) -> bool:
    """Equal as JSON: `true` is not 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


# Text to value.


def _judged(prop: Prop, found: Value, text: str) -> Value:
    fault = _Work(prop.book, []).fault(found.value, prop.schema, prop.name, 0)
    return found if fault is None else Value(text, (), fault)


def _read_text(prop: Prop, text: str) -> Value:
    if not prop.is_string:
        return _convert(prop, text) or Value(text)
    if prop.only_string:
        return Value(_enum_member(prop, text))
    trimmed = text.strip()
    if "null" in prop.types and trimmed.lower() == "null" and not _lists(prop, text):
        return Value(None)
    if trimmed[:1] in ("{", "["):
        return _strict_container(prop, trimmed) or Value(text)
    return Value(_enum_member(prop, text))


def _lists(prop: Prop, text: str) -> bool:
    return prop.enum is not None and (text in prop.enum or text.strip() in prop.enum)


def _enum_member(prop: Prop, text: str) -> str:
    """The enumerated word that the text is but for white space, else the text."""
    return text.strip() if _lists(prop, text) and text not in (prop.enum or ()) else text


def _strict_container(prop: Prop, text: str) -> Value | None:
    if not prop.types & {"object", "array"}:
        return None
    try:
        value = loads_strict(text)
    except JsonFault:
        return None
    return _finished(prop, value, ()) if _type_of(value) in prop.types else None


def _convert(prop: Prop, text: str) -> Value | None:
    """The one value of the types, none of them string, that the text spells."""
    trimmed = text.strip()
    value = _scalar(prop.types, trimmed)
    if value is not _NOTHING:
        return Value(value)
    if prop.types & {"object", "array"}:
        return _container(prop, trimmed)
    return None


_NOTHING = object()


def _scalar(types: frozenset[str], text: str) -> Any:
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
    is_whole = _WHOLE.fullmatch(text) is not None
    if is_whole and ("." not in text or "integer" in types):
        digits = text.partition(".")[0]
        return int(digits) if len(digits) < 4_000 else None
    if "number" in types and _DECIMAL.fullmatch(text):
        number = float(text)
        return number if number - number == 0 else None
    return None


def _container(prop: Prop, text: str) -> Value | None:
    """JSON first, mended if need be; then JSON inside a JSON string; then nested tags."""
    try:
        parsed = parse(text, closed=True)
    except JsonFault:
        return from_markup(prop, text)
    if text[parsed.end :].strip():
        return None
    if isinstance(parsed.value, str):
        return _unstrung(prop, parsed.value)
    return _finished(prop, parsed.value, parsed.steps) if _has_type(parsed.value, prop.types) else None


def _unstrung(prop: Prop, text: str) -> Value | None:
    try:
        parsed = parse(text, closed=True)
    except JsonFault:
        return None
    if text[parsed.end :].strip() or not isinstance(parsed.value, dict | list):
        return None
    return (
        _finished(prop, parsed.value, ("stringified", *parsed.steps)) if _has_type(parsed.value, prop.types) else None
    )


def _finished(prop: Prop, value: Any, steps: tuple[str, ...]) -> Value:
    mends = list(steps)
    return Value(_Work(prop.book, mends).adapt(value, prop.schema, 0), _unique(mends))


def _unique(mends: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(mends))


# Values of JSON: conversion and fit, both bounded in depth and in work.


class _Work:
    """One walk over a value beside its schema."""

    __slots__ = ("_book", "_left", "_mends")

    def __init__(self, book: _Book, mends: list[str]) -> None:
        self._book = book
        self._mends = mends
        self._left = _MAX_WORK

    def _is_spent(self, depth: int) -> bool:
        self._left -= 1
        return self._left < 0 or depth > _MAX_NESTING

    def adapt(self, value: Any, schema: Any, depth: int) -> Any:
        """The value with each text converted whose schema excludes text, where that is certain."""
        if self._is_spent(depth) or not isinstance(value, str | dict | list):
            return value
        view = self._book.view(schema)
        if isinstance(value, str):
            return self._adapt_text(value, view, depth)
        branches = _branches(view)
        if branches:
            return self._adapt_union(value, view, branches, depth)
        if isinstance(value, dict):
            return {key: self.adapt(item, _member_schema(view, key), depth + 1) for key, item in value.items()}
        return [self.adapt(item, self._book.item(view, index), depth + 1) for index, item in enumerate(value)]

    def _adapt_text(self, text: str, view: Schema, depth: int) -> Any:
        prop = self._book.prop("", view)
        if prop.is_string or depth >= _MAX_NESTING:
            return text
        found = _scalar(prop.types, text.strip())
        if found is not _NOTHING:
            self._mends.append("typed_string")
            return found
        return self._adapt_stringified(text, prop, depth)

    def _adapt_stringified(self, text: str, prop: Prop, depth: int) -> Any:
        if not prop.types & {"object", "array"}:
            return text
        try:
            parsed = parse(text, closed=True)
        except JsonFault:
            return text
        if text[parsed.end :].strip() or _type_of(parsed.value) not in prop.types:
            return text
        self._mends.extend(("stringified", *parsed.steps))
        return self.adapt(parsed.value, prop.schema, depth + 1)

    def _adapt_union(self, value: Any, view: Schema, branches: list[Any], depth: int) -> Any:
        """By the first alternative under which the value fits, else unchanged."""
        for branch in branches:
            mark = len(self._mends)
            candidate = self.adapt(value, branch, depth + 1)
            if self.fault(candidate, branch, "", depth) is None:
                return candidate
            del self._mends[mark:]
        return value

    def fault(self, value: Any, schema: Any, where: str, depth: int) -> str | None:
        """Why the value cannot fit the schema; `where` is its path, empty for the arguments as a whole."""
        if self._is_spent(depth) or not isinstance(schema, Mapping):
            return None
        view = self._book.view(schema)
        types = self._book.types(schema)
        if types and not _has_type(value, types):
            return f"{_path(where)} must be {_words(types, value)}"
        listed = _listed(view)
        if listed is not None and not any(_is_same(value, member) for member in listed):
            return f"{_path(where)} must be {_choices(listed)}"
        return self._union_fault(value, view, where, depth) or self._inner_fault(value, view, where, depth)

    def _union_fault(self, value: Any, view: Schema, where: str, depth: int) -> str | None:
        faults: list[str] = []
        for branch in _branches(view):
            fault = self.fault(value, branch, where, depth + 1)
            if fault is None:
                return None
            faults.append(fault)
        return faults[0] if len(faults) == 1 else self._best(value, view, faults, where)

    def _best(self, value: Any, view: Schema, faults: list[str], where: str) -> str | None:
        """The fault of the one alternative that has the value's type, else a general one."""
        if not faults:
            return None
        fitting = [
            fault
            for fault, branch in zip(faults, _branches(view), strict=False)
            if not (types := self._book.types(branch)) or _has_type(value, types)
        ]
        return fitting[0] if len(fitting) == 1 else f"{_path(where)} fits none of its alternatives"

    def _inner_fault(self, value: Any, view: Schema, where: str, depth: int) -> str | None:
        if isinstance(value, dict):
            for name in _required(view):
                if name not in value:
                    return f"missing required argument `{_joined(where, name)}`"
            members = ((_joined(where, key), item, _member_schema(view, key)) for key, item in value.items())
        elif isinstance(value, list):
            members = ((f"{where}[{index}]", item, self._book.item(view, index)) for index, item in enumerate(value))
        else:
            return None
        for path, item, schema in members:
            fault = self.fault(item, schema, path, depth + 1) if schema is not None else None
            if fault is not None:
                return fault
        return None


def _member_schema(view: Schema, key: str) -> Any:
    properties = _properties(view)
    return properties[key] if key in properties else view.get("additionalProperties")


def _listed(view: Schema) -> list[Any] | None:
    enum = view.get("enum")
    if isinstance(enum, list):
        return [*enum, None] if view.get("nullable") is True else enum
    return [view["const"]] if "const" in view else None


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _path(where: str) -> str:
    return f"`{where}`" if where else "the arguments"


def _words(types: frozenset[str], value: Any) -> str:
    words = " or ".join(dict.fromkeys(_WORD_OF_TYPE[name] for name in _TYPE_ORDER if name in types))
    return words.replace("a number", "a whole number") if isinstance(value, float) else words


def _choices(members: Sequence[Any]) -> str:
    return "one of " + ", ".join(str(member) for member in members[:20])


# Nested tags.


class _NoMarkup(Exception):
    """The text is not nested tags of this schema."""


_OPENER = re.compile(r"<([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})>")
_GAP = re.compile(r"\s*+")
_ITEM_NAMES = frozenset({"item", "element", "entry"})


class _Markup:
    """Reads child tags by schema, each character once but for a leaf's search for its end."""

    __slots__ = ("_at", "_mends", "_text")

    def __init__(self, text: str, mends: list[str]) -> None:
        self._text = text
        self._mends = mends
        self._at = 0

    def container(self, prop: Prop, closer: str, depth: int) -> Any:
        """The array or object between here and the closing tag; no closing tag means the end of the text."""
        if depth > _MAX_NESTING:
            raise _NoMarkup
        opener = self._opener()
        if opener is None:
            raise _NoMarkup
        if "array" in prop.types and ("object" not in prop.types or _is_item(opener, prop.name, 0)):
            return self._array(prop, closer, depth)
        if "object" not in prop.types:
            raise _NoMarkup
        return self._object(prop, closer, depth)

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
                raise _NoMarkup
            self._at += len(name) + 2
            yield name

    def _array(self, prop: Prop, closer: str, depth: int) -> list[Any]:
        result: list[Any] = []
        names: set[str] = set()
        for name in self._children(closer):
            if not _is_item(name, prop.name, len(result)):
                raise _NoMarkup
            names.add("0" if name.isdecimal() else name)
            result.append(self._child(prop.item(len(result)), name, closer, depth))
        if len(names) != 1:
            raise _NoMarkup
        return result

    def _object(self, prop: Prop, closer: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lists: set[str] = set()
        declared = prop.book.every_property(prop.schema)
        for name in self._children(closer):
            if declared and name not in declared:
                raise _NoMarkup
            child = prop.book.prop(name, declared.get(name, prop.schema.get("additionalProperties")))
            if name in lists:
                result[name].append(self._child(child.item(len(result[name])), name, closer, depth))
            elif self._is_sibling_list(child, name):
                lists.add(name)
                result[name] = [self._child(child.item(0), name, closer, depth)]
            elif name in result:
                raise _NoMarkup
            else:
                result[name] = self._child(child, name, closer, depth)
        return result

    def _is_sibling_list(self, prop: Prop, name: str) -> bool:
        """An array whose items are the repeated tags themselves, not children of one tag."""
        if prop.types != {"array"}:
            return False
        match = _GAP.match(self._text, self._at)
        start = match.end() if match else self._at
        if self._text.startswith("[", start):
            return False
        opener = _OPENER.match(self._text, start)
        return opener is None or not _is_item(opener.group(1), name, 0)

    def _child(self, prop: Prop, name: str, outer_closer: str, depth: int) -> Any:
        if not prop.is_string and prop.types & {"array", "object"}:
            self._gap()
            if self._text.startswith("<", self._at):
                return self.container(prop, f"</{name}>", depth + 1)
        return self._leaf(prop, name, outer_closer)

    def _leaf(self, prop: Prop, name: str, outer_closer: str) -> Any:
        raw = self._raw(f"</{name}>", outer_closer)
        text = _unwrapped(raw) if prop.body else raw.strip()
        found = _read_text(prop, text)
        if not prop.is_string and isinstance(found.value, str):
            raise _NoMarkup
        self._mends.extend(found.mends)
        return found.value

    def _raw(self, closer: str, outer_closer: str) -> str:
        """The text up to the first closing tag that the markup around it goes on from."""
        start = self._at
        end = self._text.find(closer, start)
        while end >= 0:
            after = end + len(closer)
            if self._goes_on(after, outer_closer):
                self._at = after
                return self._text[start:end]
            end = self._text.find(closer, after)
        raise _NoMarkup

    def _goes_on(self, position: int, outer_closer: str) -> bool:
        match = _GAP.match(self._text, position)
        position = match.end() if match else position
        if outer_closer and self._text.startswith(outer_closer, position):
            return True
        return position == len(self._text) or _OPENER.match(self._text, position) is not None


def _is_item(name: str, key: str, index: int) -> bool:
    return name in _ITEM_NAMES or name in _singulars(key) or name == str(index)


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
