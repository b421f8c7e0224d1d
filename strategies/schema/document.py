"""A tool's declared schema as a document: what its parts say once references and combinations are resolved.

Schemas are the client's and may be anything: references are followed within the document only, each part is looked at
once, so cycles end, and what cannot be understood asks for nothing.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, field

from strategies.schema.patterns import pattern_of

__all__ = [
    "BODY_PARAMETERS",
    "Document",
    "Prop",
    "Schema",
    "branches",
    "has_type",
    "listed",
    "member",
    "named_types",
    "properties",
    "required",
    "type_of",
]

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
# Cline's editor takes `old_text` and `new_text`, Anthropic's `file_text` and `insert_text`, Windsurf's `TargetContent`,
# notebooks `new_source`, Codex `cmd`: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/text-editor-tool
_BODY_NAME = re.compile(
    r"(?:(?:new|old|file|insert(?:ion)?|replace(?:ment)?|original|updated|modified|edited|search|find|target|cell|code"
    r"|full)_?(?:text|str|string|contents?|code|source|block|snippet|body)|contents|script|cmd)\Z",
    re.IGNORECASE,
)
"""The same, in the words of tools that nobody has seen yet."""

_STRING = frozenset({"string"})
# Words that stand for types in schemas made from Python, SQL or other languages, as vLLM's parser knows them, too:
# https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/qwen3coder_tool_parser.py
_ALIASES = {
    "string": ("string", "str", "text", "varchar", "char", "enum", "uuid", "date", "datetime", "date-time", "time"),
    "integer": ("long", "short", "bigint"),
    "number": ("decimal",),
    "null": ("null", "none"),
    "object": ("object",),
    "array": ("arr", "tuple", "set"),
}
_PLAIN_TYPES = {
    name: frozenset({name}) for name in ("string", "integer", "number", "boolean", "null", "object", "array")
}
"""What nearly every schema names."""
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
_UNIONS = ("anyOf", "oneOf")
_MAX_PARTS = 64
_MAX_PATTERNS = 32
_MAX_VIEWS = 2_000
_MAX_CACHED_NAME = 64

Schema = Mapping[str, Any]
_OBJECT = (dict, Mapping)
"""Nearly all are the first, which is seen at once: an abstract class is asked in Python."""


class Prop(Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """One parameter: the types it may have, and whether it holds code or documents."""

    # One is made for each parameter of each tool that comes: an attrs class takes four times as long to make.

    types: frozenset[str]
    enum: tuple[Any, ...] | None = None
    is_untyped: bool = False
    """Declared, but without a word on what it may be."""
    body: bool = False
    schema: Schema = field(default_factory=dict)
    name: str = ""
    document: "Document" = field(default_factory=lambda: Document({}))
    """The whole schema, in which references are looked up."""

    @property
    def is_string(self) -> bool:
        """A string is allowed."""
        return "string" in self.types

    @property
    def only_string(self) -> bool:
        """Nothing but a string is allowed, or nothing is said: then text stays text."""
        return self.types == _STRING

    @property
    def may_be_null(self) -> bool:
        """The word null alone means null: the schema allows it, or says nothing of a value that is no document."""
        return "null" in self.types or (self.is_untyped and not self.body)

    @property
    def flows(self) -> bool:
        """The text that comes is the value, so it can be shown before all of it is there."""
        return self.types == _STRING and (self.body or not self.is_untyped)

    def item(self, index: int) -> "Prop":
        """What the array's item at this index may be; it has no name of its own."""
        return self.document.prop("", self.document.item(self.schema, index))


class Document:
    """One schema with its references followed and its combinations merged, each looked up once."""

    __slots__ = ("_props", "_root", "_views")

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._props: dict[tuple[str, int], Prop] = {}
        self._views: dict[int, tuple[Any, Schema, frozenset[str]]] = {}

    def looked(self, schema: Any) -> tuple[Schema, frozenset[str]]:
        """The schema as `view` has it, and its types."""
        entry = self._views.get(id(schema))
        _, view, types = entry if entry is not None and entry[0] is schema else self._entry(schema)
        return view, types

    def view(self, schema: Any) -> Schema:
        """The schema with its reference followed and what `allOf` adds merged in."""
        entry = self._views.get(id(schema))
        return entry[1] if entry is not None and entry[0] is schema else self._entry(schema)[1]

    def types(self, schema: Any) -> frozenset[str]:
        """The JSON types that fit; empty when the schema does not say."""
        entry = self._views.get(id(schema))
        return entry[2] if entry is not None and entry[0] is schema else self._entry(schema)[2]

    def prop(self, name: str, schema: Any) -> Prop:
        """The parameter that this part of the document declares under that name."""
        view, types = self.looked(schema)
        found = self._props.get((name, id(view)))
        # The id may be that of a part that is gone.
        if found is not None and found.schema is view:
            return found
        enum = listed(view)
        prop = Prop(
            types=types or _STRING,
            enum=None if enum is None else tuple(enum),
            is_untyped=isinstance(schema, _OBJECT) and not types and enum is None,
            # By its name: no schema says that a text holds code.
            body=name in BODY_PARAMETERS or _BODY_NAME.match(name) is not None,
            schema=view,
            name=name,
            document=self,
        )
        if len(self._props) < _MAX_VIEWS and len(name) <= _MAX_CACHED_NAME:
            self._props[name, id(view)] = prop
        return prop

    def member(self, view: Schema, key: str) -> Any:
        """What the schema says of an object's member: a schema, `False` where it is ruled out, `None` for nothing."""
        declared = properties(view)
        if key in declared:
            return declared[key]
        found = self.patterned(view, key)
        if found is not None:
            return found
        # JSON Schema 2020-12 has the second for what combinations leave open.
        extra = view.get("additionalProperties", view.get("unevaluatedProperties"))
        # To forbid is to drop a model's argument: only where all patterns were understood.
        return None if extra is False and _is_half_understood(view) else extra

    def patterned(self, view: Schema, key: str) -> Any:
        """What the patterns that the member's name matches say of it; `None` where there is none."""
        found = None
        for pattern, schema in _patterns(view):
            known = pattern_of(pattern)
            if known is not None and known.matches(key):
                if schema is False:
                    return False
                found = schema if found is None else found
        return found

    def every_property(self, view: Schema) -> Mapping[str, Any]:
        """The properties of a schema, those of its alternatives included."""
        union = branches(view) if "anyOf" in view or "oneOf" in view else ()
        if not union:
            return properties(view)
        result: dict[str, Any] = {}
        for branch in union:
            result.update(properties(self.view(branch)))
        result.update(properties(view))
        return result

    def item(self, view: Schema, index: int) -> Any:
        """The schema of an array's item."""
        for key in ("prefixItems", "items"):
            items = view.get(key)
            if isinstance(items, list) and index < len(items):
                return items[index]
            if isinstance(items, _OBJECT):
                return items
        arrays = [branch for branch in branches(view) if "array" in self.types(branch)]
        return self.view(arrays[0]).get("items") if arrays else None

    def _entry(self, schema: Any) -> tuple[Any, Schema, frozenset[str]]:
        # An id may be given anew once its object is gone, so the object itself is kept and compared.
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
        if not isinstance(schema, _OBJECT):
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
            if not isinstance(part, _OBJECT) or id(part) in seen:
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
        left = branches(view) if "anyOf" in view or "oneOf" in view else []
        if not left:
            # OpenAPI 3.0's word: https://spec.openapis.org/oas/v3.0.3#schema-object
            return types | {"null"} if types and view.get("nullable") is True else types
        seen = {id(view)}
        union: set[str] = set()
        while left:
            branch = left.pop()
            if id(branch) in seen or len(seen) > _MAX_PARTS:
                continue
            seen.add(id(branch))
            inner = self._merged(branch)
            own = _own_types(inner)
            deeper = branches(inner)
            if not own and not deeper:
                # One alternative that says nothing of types allows all of them.
                return types
            union |= own | ({"null"} if own and inner.get("nullable") is True else set())
            left.extend(() if own else deeper)
        # Own types count where the alternatives contradict them: they were written for the whole.
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
    # Nothing is fetched for a client: an address in a schema would have the gateway ask any host.
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    # The first piece is what stands before the pointer's first slash.
    node: Any = root
    for step in reference[1:].split("/")[1:_MAX_PARTS]:
        node = member(node, step)
        if node is None:
            return None
    return node


def member(node: Any, step: str) -> Any:
    """What one step of a JSON pointer (RFC 6901) leads to; `None` where that is nothing."""
    key = step.replace("~1", "/").replace("~0", "~")
    if isinstance(node, Mapping):
        return node.get(key)
    # Five digits are an index of no schema that anybody wrote; Python refuses to read some thousands at all.
    if isinstance(node, list) and key.isdecimal() and len(key) < 6 and int(key) < len(node):
        return node[int(key)]
    return None


def branches(schema: Schema) -> list[Any]:
    """The alternatives of a union, if the schema is one."""
    for key in _UNIONS:
        union = schema.get(key)
        if isinstance(union, list) and union:
            return union[:_MAX_PARTS]
    return []


def properties(schema: Schema) -> Mapping[str, Any]:
    """The declared properties; none if there is no telling."""
    declared = schema.get("properties")
    return declared if isinstance(declared, _OBJECT) else {}


def _patterns(schema: Schema) -> list[tuple[str, Any]]:
    declared = schema.get("patternProperties")
    if not isinstance(declared, _OBJECT):
        return []
    return [(name, inner) for name, inner in islice(declared.items(), _MAX_PATTERNS) if isinstance(name, str)]


def _is_half_understood(schema: Schema) -> bool:
    """Whether there is a pattern of which nobody can tell what names it matches."""
    declared = schema.get("patternProperties")
    too_many = isinstance(declared, _OBJECT) and len(declared) > _MAX_PATTERNS
    return too_many or any(pattern_of(name) is None for name, _ in _patterns(schema))


def required(schema: Schema) -> list[str]:
    """The names of the properties that must be there."""
    names = schema.get("required")
    if names is None:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _own_types(schema: Schema) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return _PLAIN_TYPES.get(declared) or _named_types([declared])
    if isinstance(declared, list):
        # `any` beside other words rules nothing out.
        return frozenset() if "any" in declared else _named_types(declared)
    if isinstance(schema.get("enum"), list):
        return frozenset(type_of(member) for member in schema["enum"])
    # Schemas that are made from types of a language often list values and leave the type out.
    if "const" in schema:
        return frozenset({type_of(schema["const"])})
    if "properties" in schema or isinstance(schema.get("additionalProperties"), Mapping):
        return frozenset({"object"})
    if "items" in schema or "prefixItems" in schema:
        return frozenset({"array"})
    return frozenset()


def _named_types(names: Sequence[Any]) -> frozenset[str]:
    return frozenset(found for name in names if isinstance(name, str) and (found := _named_type(name.lower())))


def named_types(declared: object) -> frozenset[str]:
    """The types that a schema names, in JSON's own words; none where one of its words is not known."""
    words = declared if isinstance(declared, list) else [declared]
    found = [_known_type(word.lower()) if isinstance(word, str) else None for word in words]
    return frozenset() if None in found else frozenset(found)  # type: ignore[arg-type]


def _named_type(name: str) -> str | None:
    return None if name == "any" else _known_type(name) or "string"


def _known_type(name: str) -> str | None:
    if name in _TYPE_OF_ALIAS:
        return _TYPE_OF_ALIAS[name]
    return next((found for prefix, found in _TYPE_OF_PREFIX if name.startswith(prefix)), None)


def type_of(value: Any) -> str:
    """The JSON type of a value."""
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


def has_type(value: Any, types: frozenset[str]) -> bool:
    """The value is of one of the types; a whole number is an integer however it is written."""
    found = type_of(value)
    if found in types:
        return True
    if found == "integer":
        return "number" in types
    # JSON Schema counts 1.0 as an integer: https://json-schema.org/draft/2020-12/json-schema-core#section-4.2.3
    return found == "number" and "integer" in types and float(value).is_integer()


def listed(view: Schema) -> list[Any] | None:
    """The only values that fit, if the schema lists them."""
    enum = view.get("enum")
    if isinstance(enum, list):
        return [*enum, None] if view.get("nullable") is True else enum
    return [view["const"]] if "const" in view else None
