"""Tools in words: what each one does, which parameters it takes, and of what type they are.

Everything in a tool definition is data. Three rules keep it so:

- every line but the first of a description is indented, so that only our own lines begin in column 0;
- a `<` that would open or close one of our own tags, or start the marker, becomes `&lt;` (in JSON `\\u003c`);
- a name that is no plain identifier is shown as a JSON string on one line.

Schemas are walked to a fixed depth and size, whatever `$ref` makes of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps
from typing import Any

from gateway.core.tools import Tool
from strategies.prompts import guarded

__all__ = [
    "forms",
    "is_plain_name",
    "json_lines",
    "parameter_lines",
    "properties",
    "required_names",
    "resolved",
    "tool_document",
    "types",
]

_MAX_DEPTH = 12
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_MAX_LINES = 4000
_MAX_CHARACTERS = 1 << 20
_MAX_REFS = 16
_MAX_FORMS = 64
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$.:@-]{1,80}\Z")
_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
_ALIASES = {
    **{"str": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean"},
    **{"dict": "object", "map": "object", "list": "array", "tuple": "array"},
}
_KEYWORDS = (
    *("type", "properties", "required", "additionalProperties", "items", "minItems", "anyOf", "oneOf", "allOf"),
    *("enum", "const", "default", "examples", "description", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
)


def resolved(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema's known keywords: local references followed, `allOf` merged one level deep."""
    current = _followed(schema, root)
    parts = current.pop("allOf", None)
    if isinstance(parts, list):
        for part in parts[:_MAX_FORMS]:
            _merge(current, _followed(part, root))
    return current


def _followed(schema: object, root: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(_MAX_REFS):
        if not isinstance(schema, Mapping):
            break
        for key in _KEYWORDS:
            if key in schema:
                found.setdefault(key, schema[key])
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            break
        schema = _pointed(reference, root)
    return found


def _pointed(reference: str, root: Mapping[str, Any]) -> object:
    if not reference.startswith("#"):
        return None
    target: object = root
    for step in reference[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        target = target.get(key) if isinstance(target, Mapping) else None
    return target


def _merge(merged: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        have = merged.get(key)
        if key == "properties" and isinstance(have, Mapping) and isinstance(value, Mapping):
            merged[key] = {**have, **value}
        elif key == "required" and isinstance(have, list) and isinstance(value, list):
            merged[key] = [*have, *value]
        else:
            merged.setdefault(key, value)


def properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of an object schema."""
    fields = schema.get("properties")
    return fields if isinstance(fields, Mapping) else {}


def required_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """The fields an object must have."""
    required = schema.get("required")
    return frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()


def forms(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a union."""
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            return [resolved(option, root) for option in options[:_MAX_FORMS]]
    return []


def types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[str]:
    """The types that the schema allows, in its own order; nothing when it does not say."""
    found: list[str] = []
    pending = [schema]
    for _ in range(_MAX_FORMS):
        if not pending:
            break
        current = pending.pop(0)
        declared = current.get("type")
        listed = declared[:_MAX_FORMS] if isinstance(declared, list) else [declared]
        names = [_ALIASES.get(name, name) for name in listed if isinstance(name, str)]
        names = [name for name in names if name in _TYPES]
        found.extend(names or _implied_types(current))
        if not names:
            pending.extend(forms(current, root))
    return list(dict.fromkeys(found))


def _implied_types(schema: Mapping[str, Any]) -> list[str]:
    if "properties" in schema:
        return ["object"]
    if "items" in schema:
        return ["array"]
    enum = schema.get("enum")
    values = enum if isinstance(enum, list) else [schema["const"]] if "const" in schema else []
    return [_type_of(value) for value in values[:_MAX_FORMS]]


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


class _Document:
    """Collects one tool's parameter lines, up to the bound."""

    def __init__(self, root: Mapping[str, Any], words: Sequence[str]) -> None:
        self._root = root
        self._words = words
        self._characters_left = _MAX_CHARACTERS
        self._required: dict[int, tuple[object, frozenset[str]]] = {}
        self.lines: list[str] = []

    @property
    def full(self) -> bool:
        return self._characters_left <= 0 or len(self.lines) >= _MAX_LINES

    def fields(self, schema: Mapping[str, Any], depth: int) -> None:
        required = self._names(schema)
        for name, raw in properties(schema).items():
            if self.full:
                return
            need = "required" if name in required else "optional"
            self._entry(f"{guarded(_plain_name(name), self._words)}: ({need})", raw, depth)
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping) and others:
            self._entry("any other name: (optional)", others, depth)

    def _names(self, schema: Mapping[str, Any]) -> frozenset[str]:
        """The required names; one list may be reached by many references and is read once."""
        listed = schema.get("required")
        if id(listed) not in self._required:
            self._required[id(listed)] = (listed, required_names(schema))
        return self._required[id(listed)][1]

    def _entry(self, label: str, raw: object, depth: int) -> None:
        if self.full:
            return
        schema = resolved(raw, self._root)
        line = f"{'  ' * depth}- {label} {self._type(schema)}{self._description(schema)}"
        self._characters_left -= len(line)
        self.lines.append(line)
        if depth < _MAX_DEPTH:
            self._inside(schema, depth + 1)

    def _inside(self, schema: Mapping[str, Any], depth: int) -> None:
        self.fields(schema, depth)
        if isinstance(schema.get("items"), Mapping):
            self._entry("each item:", schema["items"], depth)
        for form in forms(schema, self._root):
            if "properties" in form or "items" in form or "enum" in form or "const" in form:
                self._entry("one form:", form, depth)

    def _type(self, schema: Mapping[str, Any]) -> str:
        names = types(schema, self._root)
        return " or ".join(self._array(schema) if name == "array" else name for name in names) or "any"

    def _array(self, schema: Mapping[str, Any]) -> str:
        names = types(resolved(schema.get("items"), self._root), self._root)
        return f"array of {' or '.join(names)}" if names else "array"

    def _description(self, schema: Mapping[str, Any]) -> str:
        text = schema.get("description")
        words = _one_line(text) if isinstance(text, str) else ""
        facts = "; ".join(_facts(schema))
        told = f"{words} ({facts})" if words and facts else words or facts
        return f" - {guarded(told, self._words)}" if told else ""


def _facts(schema: Mapping[str, Any]) -> Iterator[str]:
    enum = schema.get("enum")
    if isinstance(enum, list) and enum:
        yield f"one of: {', '.join(_data(value) for value in enum)}"
    if "const" in schema:
        yield f"always: {_data(schema['const'])}"
    if "default" in schema:
        yield f"default: {_data(schema['default'])}"


def parameter_lines(tool: Tool, words: Sequence[str] = ()) -> list[str]:
    """One line per parameter, `- name: (required|optional) type - description`, nested fields indented below it."""
    document = _Document(tool.parameters, words)
    document.fields(resolved(tool.parameters, tool.parameters), 0)
    if document.full:
        document.lines.append("- ... (more fields than can be listed here)")
    return document.lines


def is_plain_name(name: str) -> bool:
    """The name holds nothing that could be taken for markup."""
    return bool(_PLAIN_NAME.match(name))


def tool_document(tool: Tool, usage: str, words: Sequence[str] = ()) -> str:
    """One tool: name, description, parameters and an example of a call."""
    lines = parameter_lines(tool, words)
    description = guarded(_paragraphs(tool.description), words) or "none given"
    parameters = "\n".join(["Parameters:", *lines]) if lines else "Parameters: none"
    return f"## {tool.name}\nDescription: {description}\n{parameters}\nUsage:\n{usage}"


def json_lines(tools: Iterable[Tool]) -> str:
    """The tools as the model families know them from their templates: one JSON object per line."""
    lines = []
    for tool in tools:
        function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        line = _data({"type": "function", "function": function})
        lines.append(guarded(line, opening="\\u003c"))
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _paragraphs(text: str) -> str:
    """Lines kept, all but the first indented: only our own markup begins in column 0."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return "\n".join(f"  {line}" if line and index else line for index, line in enumerate(lines))


def _plain_name(name: str) -> str:
    return name if is_plain_name(name) else _data(name)


def _data(value: object) -> str:
    """A JSON value from a schema, on one line."""
    try:
        return dumps(value, ensure_ascii=False).translate(_LINE_ENDS)
    except (RecursionError, ValueError, TypeError):
        return "..."
