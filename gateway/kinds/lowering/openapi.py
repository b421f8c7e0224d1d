"""The part of OpenAPI 3.0 that Gemini's `parameters` takes: https://ai.google.dev/api/caching#Schema.

What it cannot say is dropped or said in words; the answer is held against the original elsewhere. A reference is
replaced by what it points to, or by a plain object where it leads in a circle.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.kinds.lowering.refusals import KEPT_BY_GEMINI
from gateway.kinds.lowering.rooted import rooted_object
from gateway.kinds.lowering.walk import (
    NOTE_CHARS,
    TYPES,
    Schema,
    Walk,
    in_words,
    listed,
    note,
    objects,
    referred,
    strings,
)

__all__ = ["openapi_subset"]

_FORMATS = {"string": ("date-time", "enum"), "number": ("float", "double"), "integer": ("int32", "int64")}


def openapi_subset(schema: Mapping[str, Any]) -> Schema | None:
    """The parameters of a function in OpenAPI's words; None for a function without any."""
    lowered = _Lowering(dict(schema)).lowered(rooted_object(schema), 0)
    return lowered if lowered.get("properties") else None


class _Lowering(Walk):
    """One schema on its way down."""

    def lowered(self, schema: Any, depth: int) -> Schema:
        """The schema in OpenAPI's words."""
        if not self._enter(depth):
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
        types = [name for name in listed(schema.get("type")) if name in (*TYPES, "null")]
        plain = [name for name in types if name != "null"] or _implied(schema, types)
        # `type` takes one name here and no list.
        if len(plain) > 1:
            branches = [{**schema, "type": name} for name in plain]
            return self._union({**_words(schema), "anyOf": [*branches, *_null("null" in types)]}, "anyOf", depth)
        if not plain:
            return _anything(schema.get("description"))
        return _or_null(self._typed(schema, plain[0], depth), "null" in types or schema.get("nullable") is True)

    def _referred(self, schema: Schema, depth: int) -> Schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        found: Schema | None = self._followed(schema["$ref"], beside, depth)
        return {"type": "object", **_words(beside)} if found is None else found

    def _union(self, schema: Schema, union: str, depth: int) -> Schema:
        branches = [branch for branch in schema[union] if isinstance(branch, dict)]
        real = [branch for branch in branches if branch.get("type") != "null" and branch.get("const", "") is not None]
        may_be_null = len(real) < len(branches) or schema.get("nullable") is True
        beside = {key: value for key, value in schema.items() if key not in (union, "nullable")}
        if not real:
            return _or_null(self.lowered({**beside, "type": beside.get("type", "string")}, depth + 1), may_be_null)
        # What a library writes for an optional value, `anyOf` of a type and null, is `nullable` here:
        # https://github.com/taylorwilsdon/google_workspace_mcp/issues/1099
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
        out.update({key: schema[key] for key in KEPT_BY_GEMINI if _fits(key, schema.get(key))})
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
        # `items` may not be missing in an array: https://github.com/AstrBotDevs/AstrBot/issues/6029
        return _anything()

    def _members(self, schema: Schema, out: Schema, depth: int) -> None:
        properties = objects(schema.get("properties"), with_flags=True)
        if properties:
            out["properties"] = {name: self.lowered(value, depth + 1) for name, value in properties.items()}
            # `required` with a name that is no property is a 400: https://github.com/iBUHub/AIStudioToAPI/issues/154
            required = [name for name in dict.fromkeys(strings(schema.get("required"))) if name in properties]
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
    # An `enum` of numbers, or with an empty text, is a 400.
    if kind == "string" and values and all(isinstance(value, str) and value for value in values):
        out["enum"] = list(dict.fromkeys(values))
    elif values:
        note(out, f"One of: {', '.join(map(in_words, values[:64]))}."[:NOTE_CHARS])


def _both(one: Schema, other: Schema) -> Schema:
    """What holds where both hold; where they differ in a word, the second one's."""
    out = {**one, **other}
    if "properties" in one and "properties" in other:
        out["properties"] = {
            **objects(one["properties"], with_flags=True),
            **objects(other["properties"], with_flags=True),
        }
    if "required" in one and "required" in other:
        out["required"] = [*strings(one["required"]), *strings(other["required"])]
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


def _distinct(schemas: Iterable[Any]) -> Iterator[Any]:
    seen: set[bytes] = set()
    for schema in schemas:
        mark = msgspec.json.encode(schema)
        if mark not in seen:
            seen.add(mark)
            yield schema
