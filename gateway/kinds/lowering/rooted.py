"""Full JSON Schema of draft 2020-12 whose root is a plain object, as Anthropic's API takes it.

Unions of the root are merged into one object that takes all that any branch takes; forms of older drafts are put into
the words of the new one.
"""

from collections.abc import Mapping
from typing import Any

from gateway.kinds.lowering.refusals import UNIONS_REFUSED_AT_ROOT
from gateway.kinds.lowering.walk import (
    LATER_PLACES,
    MAX_DEPTH,
    PLACES,
    TYPES,
    Schema,
    inside,
    listed,
    objects,
    referred,
    strings,
)

__all__ = ["is_rooted", "rooted_object"]

_MAX_HOPS = 8
"""How many references in a row a root may be away from what it is."""


def rooted_object(schema: Mapping[str, Any]) -> Schema:
    """The schema with a plain object at its root, and without the forms of older drafts."""
    root = _modern_object(schema, 0)
    for _ in range(_MAX_HOPS):
        if "$ref" in root:
            reference = root.pop("$ref")
            root = {**referred(root, reference), **root}
    root.pop("$ref", None)
    # https://github.com/anthropics/claude-code/issues/40075
    for union in UNIONS_REFUSED_AT_ROOT:
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
    # Draft 7 lists the items' schemas under `items`, draft 2020-12 under `prefixItems`; zod-to-json-schema writes the
    # one: https://json-schema.org/draft/2020-12/release-notes
    if isinstance(out.get("items"), list):
        out["prefixItems"] = out.pop("items")
    for key in [key for key in out if key in PLACES and key not in LATER_PLACES]:
        place = PLACES[key]
        value = out[key] if isinstance(out[key], place) else place()
        if place is list and not value:
            del out[key]
        else:
            out[key] = inside(key, value, lambda inner: _modern(inner, depth + 1))
    _modernize_words(out)
    return out


def _modernize_words(out: Schema) -> None:
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        # Draft 4 had a flag beside the bound where later ones have the bound itself.
        if out.get(exclusive) is True and inclusive in out:
            out[exclusive] = out.pop(inclusive)
        elif isinstance(out.get(exclusive), bool):
            del out[exclusive]
    # Draft 3 wrote `required: true` at each property, which is no schema of today.
    if "required" in out and strings(out["required"]) != out["required"]:
        del out["required"]
    if "type" in out:
        types = [name for name in listed(out["type"]) if name in (*TYPES, "null")]
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
        properties.update(objects(branch.get("properties")))
    demanded = [set(strings(branch.get("required"))) for branch in branches]
    if union == "allOf":
        needed = set().union(*demanded)
    else:
        # Of one that is chosen nobody knows which; only what every branch demands is certain.
        needed = set.intersection(*demanded) if demanded else set()
    out = {key: value for key, value in root.items() if key != union}
    out["properties"] = {**properties, **objects(root.get("properties"))}
    required = dict.fromkeys(strings(root.get("required")))
    required.update(dict.fromkeys(name for name in out["properties"] if name in needed))
    if required:
        out["required"] = list(required)
    return out
