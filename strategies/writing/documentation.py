"""Tools in words: what each one does, which parameters it takes, and of what type they are.

Everything in a tool definition is data. Three rules keep it so:

- every line but the first of a description is indented, so that only our own lines begin in column 0;
- a `<` that would open or close one of our own tags, or start the marker, becomes `&lt;` (in JSON `\\u003c`);
- a name that is no plain identifier is shown as a JSON string on one line.

Schemas are walked to a fixed depth and size, whatever `$ref` makes of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from json import JSONEncoder
from json.encoder import encode_basestring
from typing import Any

from gateway.core.tools import Tool
from strategies.schema.document import Document, Schema, branches, properties, required
from strategies.schema.tool_schema import schema_of
from strategies.writing.prompt import guarded

__all__ = [
    "forms",
    "is_plain_name",
    "json_lines",
    "parameter_lines",
    "tool_document",
    "types",
]

_MAX_DEPTH = 12
_INDENTS = tuple("  " * depth for depth in range(_MAX_DEPTH + 1))
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_MAX_LINES = 4000
_MAX_CHARACTERS = 1 << 20
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$.:@-]{1,80}\Z")
_FACTS = {"enum", "const", "default"}
_SAID = {*_FACTS, "description"}
_INNER = {"properties", "additionalProperties", "items", "anyOf", "oneOf"}
_dumps = JSONEncoder(ensure_ascii=False).encode
_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")


def types(document: Document, schema: object) -> tuple[str, ...]:
    """The types that a part of the document allows, null the last; nothing when it does not say."""
    return _in_order(document.types(schema))


@cache  # of seven words there are few sets
def _in_order(allowed: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in _TYPES if name in allowed)


@cache
def _in_words(allowed: frozenset[str]) -> str:
    return " or ".join(_in_order(allowed)) or "any"


def forms(document: Document, view: Schema) -> list[Schema]:
    """The alternatives of a union."""
    found = branches(view)
    return [document.view(branch) for branch in found] if found else []


class _Lines:
    """Collects one tool's parameter lines, up to the bound."""

    def __init__(self, document: Document, words: Sequence[str]) -> None:
        self._document = document
        self._words = words
        self._look = document.looked
        self._characters_left = _MAX_CHARACTERS
        self._required: dict[int, tuple[object, frozenset[str]]] = {}
        self.lines: list[str] = []

    @property
    def full(self) -> bool:
        return self._characters_left <= 0 or len(self.lines) >= _MAX_LINES

    def fields(self, schema: Schema, depth: int) -> None:
        needed = self._names(schema)
        for name, raw in properties(schema).items():
            shown = name if _PLAIN_NAME.match(name) else guarded(_data(name), self._words)
            if not self._entry(f"{shown}: (required)" if name in needed else f"{shown}: (optional)", raw, depth):
                return
        others = schema.get("additionalProperties")
        if others and isinstance(others, Mapping):
            self._entry("any other name: (optional)", others, depth)

    def _names(self, schema: Mapping[str, Any]) -> frozenset[str]:
        """The required names; one list may be reached by many references and is read once."""
        listed = schema.get("required")
        if listed is None:
            return frozenset()
        if id(listed) not in self._required:
            self._required[id(listed)] = (listed, frozenset(required(schema)))
        return self._required[id(listed)][1]

    def _entry(self, label: str, raw: object, depth: int) -> bool:
        """Whether there was room for it."""
        lines = self.lines
        if self._characters_left <= 0 or len(lines) >= _MAX_LINES:
            return False
        schema, allowed = self._look(raw)
        keys = schema.keys()
        type_ = self._type(schema, allowed) if "array" in allowed else _in_words(allowed)
        line = f"{_INDENTS[depth]}- {label} {type_}{'' if _SAID.isdisjoint(keys) else self._description(schema)}"
        self._characters_left -= len(line)
        lines.append(line)
        # A schema that refers to itself has no end.
        if depth < _MAX_DEPTH and not _INNER.isdisjoint(keys):
            self._inside(schema, depth + 1)
        return True

    def _inside(self, schema: Mapping[str, Any], depth: int) -> None:
        if "properties" in schema or "additionalProperties" in schema:
            self.fields(schema, depth)
        if "items" in schema and isinstance(schema["items"], Mapping):
            self._entry("each item:", schema["items"], depth)
        for form in forms(self._document, schema) if "anyOf" in schema or "oneOf" in schema else ():
            if "properties" in form or "items" in form or "enum" in form or "const" in form:
                self._entry("one form:", form, depth)

    def _type(self, schema: Mapping[str, Any], allowed: frozenset[str]) -> str:
        return " or ".join(self._array(schema) if name == "array" else name for name in _in_order(allowed))

    def _array(self, schema: Mapping[str, Any]) -> str:
        names = types(self._document, schema.get("items"))
        return f"array of {' or '.join(names)}" if names else "array"

    def _description(self, schema: Mapping[str, Any]) -> str:
        text = schema.get("description")
        words = _one_line(text) if isinstance(text, str) else ""
        facts = "" if _FACTS.isdisjoint(schema.keys()) else "; ".join(_facts(schema))
        told = f"{words} ({facts})" if words and facts else words or facts
        return f" - {guarded(told, self._words)}" if told else ""


def _facts(schema: Mapping[str, Any]) -> Iterator[str]:
    enum = schema.get("enum")
    if isinstance(enum, list) and enum:
        yield f"one of: {', '.join(map(_data, enum))}"
    if "const" in schema:
        yield f"always: {_data(schema['const'])}"
    if "default" in schema:
        yield f"default: {_data(schema['default'])}"


def parameter_lines(tool: Tool, words: Sequence[str] = ()) -> list[str]:
    """One line per parameter, `- name: (required|optional) type - description`, nested fields indented below it."""
    schema = schema_of(tool)
    found = _Lines(schema.document, words)
    found.fields(schema.view, 0)
    if found.full:
        found.lines.append("- ... (more fields than can be listed here)")
    return found.lines


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
        function = {"name": tool.name, "description": tool.description, "parameters": dict(schema_of(tool).root)}
        # As `tools` of Hugging Face's templates is written, which these families were trained on:
        # https://huggingface.co/Qwen/Qwen3-32B/blob/main/tokenizer_config.json
        line = _data({"type": "function", "function": function})
        lines.append(guarded(line, opening="\\u003c"))
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _paragraphs(text: str) -> str:
    """Lines kept, all but the first indented: only our own markup begins in column 0."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return "\n".join(f"  {line}" if line and index else line for index, line in enumerate(lines))


def _data(value: object) -> str:
    """A JSON value from a schema, on one line."""
    try:
        # JSON leaves these line ends as they are, and a line of our own would end there.
        text = encode_basestring(value) if isinstance(value, str) else _dumps(value)
        return text if text.isascii() else text.translate(_LINE_ENDS)
    except (RecursionError, ValueError, TypeError):
        return "..."
