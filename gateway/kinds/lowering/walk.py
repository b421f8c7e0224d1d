"""JSON Schema for servers that understand less of it.

What a server cannot say is dropped or said in words, so a lowered schema allows at least all that the original allows;
the answer is held against the original elsewhere. Two forms: `rooted_object`, full JSON Schema of draft 2020-12 whose
root is a plain object (Anthropic), and `openapi_subset`, the part of OpenAPI 3.0 that Gemini's `parameters` takes.

Bounds: nothing deeper than 64 is looked at, references that lead in a circle or into a schema of more than
`MAX_NODES` nodes become plain objects. Work is linear in what comes out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

__all__ = [
    "LISTS",
    "MAPS",
    "MAX_DEPTH",
    "MAX_NODES",
    "SINGLES",
    "Schema",
    "in_words",
    "is_rooted",
    "note",
    "openapi_subset",
    "referred",
    "rooted_object",
]

MAX_DEPTH = 64
MAX_NODES = 10_000
_MAX_HOPS = 8
"""How many references in a row a root may be away from what it is."""
_TYPES = ("string", "number", "integer", "boolean", "array", "object")
_KEPT = (
    "title",
    "description",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "pattern",
    "minimum",
    "maximum",
    "default",
)
# https://ai.google.dev/api/caching#Schema
_FORMATS = {"string": ("date-time", "enum"), "number": ("float", "double"), "integer": ("int32", "int64")}
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLES = ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames")
"""Where in a schema further ones stand: by name, in a row, alone."""
_NOTE_CHARS = 400

Schema = dict[str, Any]


def rooted_object(schema: Mapping[str, Any]) -> Schema:
    """The schema with a plain object at its root, and without the forms of older drafts."""
    root = _modern_object(schema, 0)
    for _ in range(_MAX_HOPS):
        if "$ref" in root:
            reference = root.pop("$ref")
            root = {**referred(root, reference), **root}
    root.pop("$ref", None)
    for union in ("allOf", "anyOf", "oneOf"):
        if union in root:
            root = _merged_root(root, union)
    root.pop("$schema", None)
    return {**root, "type": "object"}


def is_rooted(schema: Mapping[str, Any]) -> bool:
    """Whether `rooted_object` leaves a schema as it is, but for what says nothing of values."""
    return rooted_object(schema) == {"type": "object", **{key: schema[key] for key in schema if key != "$schema"}}


def _modern(schema: Any, depth: int) -> Any:
    """The schema in words of draft 2020-12."""
    if isinstance(schema, dict):
        return _modern_object(schema, depth) if depth <= MAX_DEPTH else {}
    return schema if isinstance(schema, bool) else {}


def _modern_object(schema: Mapping[str, Any], depth: int) -> Schema:
    out = dict(schema)
    if isinstance(out.get("items"), list):
        out["prefixItems"] = out.pop("items")
    for key in MAPS:
        if key in out:
            entries = out[key].items() if isinstance(out[key], dict) else ()
            out[key] = {name: _modern(value, depth + 1) for name, value in entries}
    for key in LISTS:
        if key in out:
            entries = out[key] if isinstance(out[key], list) else []
            out[key] = [_modern(value, depth + 1) for value in entries]
            if not entries:
                del out[key]
    for key in SINGLES:
        if key in out:
            out[key] = _modern(out[key], depth + 1)
    _modernize_words(out)
    return out


def _modernize_words(out: Schema) -> None:
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if out.get(exclusive) is True and inclusive in out:
            out[exclusive] = out.pop(inclusive)
        elif isinstance(out.get(exclusive), bool):
            del out[exclusive]
    if "required" in out and not _is_strings(out["required"]):
        del out["required"]
    if "type" in out:
        types = [name for name in _listed(out["type"]) if name in (*_TYPES, "null")]
        if types:
            out["type"] = types[0] if len(types) == 1 else types
        else:
            del out["type"]
    if "enum" in out and not (isinstance(out["enum"], list) and out["enum"]):
        del out["enum"]


def _merged_root(root: Schema, union: str) -> Schema:
    """The root with the branches of a union put into it: all that any of them takes."""
    branches = [branch for branch in root[union] if isinstance(branch, dict)]
    branches = [referred(root, branch["$ref"]) if "$ref" in branch else branch for branch in branches]
    properties: Schema = {}
    for branch in branches:
        properties.update(_objects(branch.get("properties")))
    demanded = [set(_strings(branch.get("required"))) for branch in branches]
    if union == "allOf":
        needed = set().union(*demanded)
    else:
        needed = set.intersection(*demanded) if demanded else set()
    out = {key: value for key, value in root.items() if key != union}
    out["properties"] = {**properties, **_objects(root.get("properties"))}
    required = dict.fromkeys(_strings(root.get("required")))
    required.update(dict.fromkeys(name for name in out["properties"] if name in needed))
    if required:
        out["required"] = list(required)
    return out


def referred(root: Schema, reference: object) -> Schema:
    """What a reference within the document points to; empty where it points nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return {}
    value: Any = root
    for step in reference[1:].split("/")[1:MAX_DEPTH]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and len(name) < 6 and int(name) < len(value):
            value = value[int(name)]
        else:
            return {}
    return value if isinstance(value, dict) else {}


def openapi_subset(schema: Mapping[str, Any]) -> Schema | None:
    """The parameters of a function in OpenAPI's words; None for a function without any."""
    lowered = _Lowering(dict(schema)).lowered(rooted_object(schema), 0)
    return lowered if lowered.get("properties") else None


class _Lowering:
    """One schema on its way down."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._nodes = 0
        self._open: list[str] = []
        """The references that are being followed."""

    def lowered(self, schema: Any, depth: int) -> Schema:
        """The schema in OpenAPI's words."""
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            return {"type": "object"}
        if not isinstance(schema, dict):
            return _anything()
        if "$ref" in schema:
            return self._referred(schema, depth)
        for union in ("anyOf", "oneOf"):
            if isinstance(schema.get(union), list):
                return self._union(schema, union, depth)
        if isinstance(schema.get("allOf"), list):
            return self._all_of(schema, depth)
        types = [name for name in _listed(schema.get("type")) if name in (*_TYPES, "null")]
        plain = [name for name in types if name != "null"] or _implied(schema, types)
        if len(plain) > 1:
            branches = [{**schema, "type": name} for name in plain]
            return self._union({**_words(schema), "anyOf": [*branches, *_null("null" in types)]}, "anyOf", depth)
        if not plain:
            return _anything(schema.get("description"))
        return _or_null(self._typed(schema, plain[0], depth), "null" in types or schema.get("nullable") is True)

    def _referred(self, schema: Schema, depth: int) -> Schema:
        reference = schema["$ref"]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if not isinstance(reference, str) or reference in self._open:
            return {"type": "object", **_words(beside)}
        self._open.append(reference)
        try:
            return self.lowered({**referred(self._root, reference), **beside}, depth + 1)
        finally:
            self._open.pop()

    def _union(self, schema: Schema, union: str, depth: int) -> Schema:
        branches = [branch for branch in schema[union] if isinstance(branch, dict)]
        real = [branch for branch in branches if branch.get("type") != "null" and branch.get("const", "") is not None]
        may_be_null = len(real) < len(branches) or schema.get("nullable") is True
        beside = {key: value for key, value in schema.items() if key not in (union, "nullable")}
        if not real:
            return _or_null(self.lowered({**beside, "type": beside.get("type", "string")}, depth + 1), may_be_null)
        if len(real) == 1:
            return _or_null(self.lowered(_both(real[0], beside), depth + 1), may_be_null)
        if all("const" in branch and isinstance(branch["const"], str) for branch in real):
            constants = [branch["const"] for branch in real]
            return _or_null(self.lowered({**beside, "type": "string", "enum": constants}, depth + 1), may_be_null)
        shared = {key: value for key, value in beside.items() if key not in ("description", "title", "default")}
        lowered = [self.lowered(_both(branch, shared), depth + 1) for branch in real]
        flat = [inner for branch in lowered for inner in branch.get("anyOf", (branch,))]
        if isinstance(words := schema.get("description"), str):
            flat[0].setdefault("description", words)
        return _or_null({"anyOf": flat}, may_be_null)

    def _all_of(self, schema: Schema, depth: int) -> Schema:
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for branch in schema["allOf"]:
            if not isinstance(branch, dict):
                continue
            if "$ref" in branch and branch["$ref"] not in self._open:
                branch = {**referred(self._root, branch["$ref"]), **{k: v for k, v in branch.items() if k != "$ref"}}
            merged = _both(merged, {key: value for key, value in branch.items() if key not in ("$ref", "allOf")})
        return self.lowered(merged, depth + 1)

    def _typed(self, schema: Schema, kind: str, depth: int) -> Schema:
        out: Schema = {"type": kind}
        out.update({key: schema[key] for key in _KEPT if _fits(key, schema.get(key))})
        if schema.get("format") in _FORMATS.get(kind, ()):
            out["format"] = schema["format"]
        _exclusive(schema, kind, out)
        _enumerate(schema, kind, out)
        if kind == "array":
            out["items"] = self._items(schema, depth)
        elif kind == "object":
            self._members(schema, out, depth)
        return out

    def _items(self, schema: Schema, depth: int) -> Schema:
        items = schema.get("items")
        if isinstance(items, dict):
            return self.lowered(items, depth + 1)
        places = schema.get("prefixItems", items)
        if isinstance(places, list) and places:
            return self.lowered({"anyOf": list(_distinct(places))}, depth + 1)
        return _anything()

    def _members(self, schema: Schema, out: Schema, depth: int) -> None:
        properties = _objects(schema.get("properties"), with_flags=True)
        if properties:
            out["properties"] = {name: self.lowered(value, depth + 1) for name, value in properties.items()}
            required = [name for name in dict.fromkeys(_strings(schema.get("required"))) if name in properties]
            if required:
                out["required"] = required
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and not properties:
            note(out, f"Any keys; each value as in {in_words(values)}")


def _implied(schema: Schema, types: list[str]) -> list[str]:
    """The type of a schema that names none."""
    if types:
        return ["string"]
    if "properties" in schema or "additionalProperties" in schema:
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    return list(dict.fromkeys(_type_of(value) for value in values))


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "string"


def _exclusive(schema: Schema, kind: str, out: Schema) -> None:
    """Bounds that are not themselves allowed: the next whole number, else in words."""
    for exclusive, inclusive, step, words in (
        ("exclusiveMinimum", "minimum", 1, "greater than"),
        ("exclusiveMaximum", "maximum", -1, "less than"),
    ):
        bound = schema.get(exclusive)
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            continue
        if kind == "integer" and isinstance(bound, int):
            out.setdefault(inclusive, bound + step)
        elif kind in ("integer", "number"):
            out.setdefault(inclusive, bound)
            note(out, f"Must be {words} {bound}.")


def _enumerate(schema: Schema, kind: str, out: Schema) -> None:
    """Values by list: only text can be listed, all else is said in words."""
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    values = [
        value for value in values if _type_of(value) == kind or (kind == "number" and _type_of(value) == "integer")
    ]
    values = [value for value in values if value is not None]
    if kind == "string" and values and all(isinstance(value, str) and value for value in values):
        out["enum"] = list(dict.fromkeys(values))
    elif values:
        note(out, f"One of: {', '.join(map(in_words, values[:64]))}."[:_NOTE_CHARS])


def in_words(value: Any) -> str:
    """How the JSON of a value begins."""
    try:
        return msgspec.json.encode(value)[:_NOTE_CHARS].decode("utf-8", "ignore")
    except RecursionError:
        return "..."


def note(out: Schema, words: str) -> None:
    """Say what the schema no longer can."""
    said = out.get("description")
    out["description"] = f"{said} {words}" if isinstance(said, str) and said else words


def _both(one: Schema, other: Schema) -> Schema:
    """What holds where both hold; where they differ in a word, the second one's."""
    out = {**one, **other}
    if "properties" in one and "properties" in other:
        out["properties"] = {
            **_objects(one["properties"], with_flags=True),
            **_objects(other["properties"], with_flags=True),
        }
    if "required" in one and "required" in other:
        out["required"] = [*_strings(one["required"]), *_strings(other["required"])]
    return out


def _fits(key: str, value: object) -> bool:
    if key == "default":
        return value is not None
    if key in ("title", "description", "pattern"):
        return isinstance(value, str) and bool(value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _anything(description: object = None) -> Schema:
    """Any plain value."""
    branches: list[Schema] = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
    if isinstance(description, str) and description:
        branches[0]["description"] = description
    return {"anyOf": branches}


def _null(is_meant: bool) -> list[Schema]:
    return [{"type": "null"}] if is_meant else []


def _or_null(schema: Schema, is_meant: bool) -> Schema:
    """The lowered schema, or null; a union says so in each branch, as nothing may stand beside `anyOf`."""
    if is_meant:
        for branch in schema.get("anyOf", (schema,)):
            branch["nullable"] = True
    return schema


def _words(schema: Schema) -> Schema:
    return {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _strings(value: object) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def _objects(value: object, *, with_flags: bool = False) -> Schema:
    entries = value.items() if isinstance(value, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict) or (with_flags and entry is True)}


def _distinct(schemas: Iterable[Any]) -> Iterator[Any]:
    seen: set[bytes] = set()
    for schema in schemas:
        mark = msgspec.json.encode(schema)
        if mark not in seen:
            seen.add(mark)
            yield schema
