"""Schemas in the words that Gemini takes."""

# ruff: noqa: E501 - a schema and what becomes of it stand side by side

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.kinds.lowering.openapi import openapi_subset
from gateway.kinds.lowering.rooted import is_rooted, rooted_object
from tests.support.cost import steps
from tests.support.gemini_server import fault_of_schema


def lowered(schema: Any, **root: Any) -> Any:
    """The one property of an object, lowered."""
    whole = openapi_subset({"type": "object", "properties": {"p": schema}, **root})
    assert whole is not None
    return whole["properties"]["p"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string", "format": "uri", "minLength": 1}, {"type": "string", "minLength": 1}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"const": 3}, {"type": "integer", "description": "One of: 3."}),
        ({"enum": [1, 2], "description": "Level."}, {"type": "integer", "description": "Level. One of: 1, 2."}),
        ({"type": "string", "enum": ["a", "a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"type": "string", "enum": ["", "b"]}, {"type": "string", "description": 'One of: "", "b".'}),
        ({"type": "string", "enum": ["a", None]}, {"type": "string", "enum": ["a"]}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "D"}, {"type": "string", "description": "D", "nullable": True}),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            {"anyOf": [{"type": "string", "nullable": True}, {"type": "integer", "nullable": True}]},
        ),
        (
            {"anyOf": [{}, {"type": "null"}]},
            {"anyOf": [{"type": "string", "nullable": True}, {"type": "number", "nullable": True}, {"type": "boolean", "nullable": True}]},
        ),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, {"type": "string", "enum": ["a", "b"]}),
        (
            {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"required": ["b"]}], "properties": {"b": {"type": "integer"}}},
            {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a", "b"]},
        ),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9}, {"type": "integer", "minimum": 1, "maximum": 8}),
        ({"type": "number", "exclusiveMinimum": 0.5}, {"type": "number", "minimum": 0.5, "description": "Must be greater than 0.5."}),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, {"type": "integer", "minimum": 4}),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "string"}]}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "items": [{"type": "string"}]}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "object", "required": ["x"], "additionalProperties": False}, {"type": "object"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "object", "description": 'Any keys; each value as in {"type":"string"}'}),
        ({"$ref": "#/$defs/d", "description": "D"}, {"type": "string", "description": "D"}),
        ({"$ref": "#/$defs/loop"}, {"type": "object", "properties": {"next": {"type": "object"}}}),
        ({"$ref": "#/$defs/a~1b"}, {"type": "boolean"}),
        ({"type": "string", "nullable": True}, {"type": "string", "nullable": True}),
        ({"type": "string", "multipleOf": 2, "examples": ["x"], "$comment": "c", "default": "x"}, {"type": "string", "default": "x"}),
    ],
)  # fmt: skip
def test_a_schema_is_told_in_words_that_are_taken(schema: Any, told: Any) -> None:
    loop = {"type": "object", "properties": {"next": {"$ref": "#/$defs/loop"}}}
    definitions = {"d": {"type": "string"}, "loop": loop, "a/b": {"type": "boolean"}}
    assert lowered(schema, **{"$defs": definitions}) == told


@pytest.mark.parametrize("schema", [{}, True, {"description": "anything"}, {"not": {}}, {"$ref": "#/nowhere"}])
def test_what_may_be_anything_may_be_any_plain_value(schema: Any) -> None:
    assert [branch["type"] for branch in lowered(schema)["anyOf"]] == ["string", "number", "boolean"]


def test_a_function_without_parameters_has_no_schema() -> None:
    assert openapi_subset({}) is None
    assert openapi_subset({"type": "object", "properties": {}, "required": ["x"]}) is None


def test_only_what_is_there_is_required() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "required": ["a", "a", "gone", 3]}
    whole = openapi_subset(schema)
    assert whole == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert openapi_subset({**schema, "required": ["a", "a", "gone"]}) == {**(whole or {}), "required": ["a"]}


def test_references_that_multiply_end_in_plain_objects() -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 30):
        child = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"type": "object", "properties": {"a": child, "b": child, "c": child}}
    found: list[Any] = []
    assert steps(lambda: found.append(lowered({"$ref": "#/$defs/d29"}, **{"$defs": definitions})), most=1_000_000)
    [told] = found
    assert len(msgspec.json.encode(told)) < 2_000_000
    assert not fault_of_schema(told, "p")


def test_what_is_nested_too_deeply_ends_in_plain_objects() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    assert not fault_of_schema(openapi_subset(schema) or {}, "p")
    assert rooted_object(schema)["type"] == "object"


def test_a_schema_is_left_as_it_was() -> None:
    schema = {"anyOf": [{"properties": {"a": {"type": ["string", "null"]}}}], "$schema": "x"}
    before = msgspec.json.encode(schema)
    rooted_object(schema)
    openapi_subset(schema)
    assert msgspec.json.encode(schema) == before


NAMES = st.sampled_from(["a", "b", "type", "$ref"])

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["string", "object", "null", "#/properties/a", "x"])
)


def keywords(schemas: Any) -> Any:
    """Whatever a client may take for a schema."""
    lists = st.lists(schemas, max_size=3)
    maps = st.dictionaries(NAMES, schemas, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": VALUES | st.lists(VALUES, max_size=3),
            "enum": st.lists(VALUES, max_size=3) | VALUES,
            "const": VALUES,
            "required": st.lists(VALUES, max_size=3) | VALUES,
            "properties": maps | VALUES,
            "items": schemas | lists,
            "prefixItems": lists | VALUES,
            "anyOf": lists | VALUES,
            "oneOf": lists,
            "allOf": lists | VALUES,
            "$ref": st.sampled_from(["#", "#/properties/a", "#/$defs/a", "http://x", "#/a/0"]) | VALUES,
            "$defs": maps,
            "additionalProperties": schemas,
            "description": VALUES,
            "minimum": VALUES,
            "exclusiveMinimum": VALUES,
            "exclusiveMaximum": VALUES,
            "format": VALUES,
            "nullable": VALUES,
            "default": VALUES,
        },
    )


SCHEMAS = st.recursive(VALUES, keywords, max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(keywords(SCHEMAS))
@example({"properties": {"a": {"oneOf": [None, {"const": None}]}}})
@example({"properties": {"a": {"oneOf": [{"type": ["string", "integer"]}], "nullable": True}}})
@example({"properties": {"a": {"anyOf": [{"type": "null"}], "type": ["string", "integer"]}}})
def test_every_lowered_schema_is_taken(schema: dict[str, Any]) -> None:
    told = openapi_subset(schema)
    assert told is None or not fault_of_schema(told, "parameters")
    rooted = rooted_object(schema)
    assert rooted["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & set(rooted)


# --- Schemas with a plain object at their root


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({}, {"type": "object"}),
        ({"$schema": "x", "type": "object", "properties": {}}, {"type": "object", "properties": {}}),
        (
            {"anyOf": [{"properties": {"a": {}}, "required": ["a", "c"]}, {"properties": {"b": {}, "c": {}}, "required": ["c"]}]},
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["c"]},
        ),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}], "properties": {"b": {}}, "required": ["b"]},
            {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b", "a"]},
        ),
        (
            {"$ref": "#/definitions/A", "definitions": {"A": {"type": "object", "properties": {"a": {}}}}},
            {"type": "object", "properties": {"a": {}}, "definitions": {"A": {"type": "object", "properties": {"a": {}}}}},
        ),
        ({"type": "object", "required": True}, {"type": "object"}),
        (
            {"properties": {"a": {"type": "any", "required": True, "enum": []}}},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {"properties": {"a": {"items": [{"type": "string"}], "type": "array"}}},
            {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [{"type": "string"}]}}},
        ),
    ],
)  # fmt: skip
def test_a_root_is_a_plain_object(schema: Any, told: Any) -> None:
    assert rooted_object(schema) == told


@pytest.mark.parametrize(
    ("schema", "is_whole"),
    [
        ({"type": "object"}, True),
        ({"$schema": "x", "type": "object", "properties": {"a": {"anyOf": [{}, {"type": "null"}]}}}, True),
        ({"properties": {}}, True),
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, False),
        ({"type": "object", "properties": {"a": {"items": [{}]}}}, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}, False),
    ],
)
def test_whether_all_of_a_schema_can_be_said(schema: Any, is_whole: bool) -> None:
    assert is_rooted(schema) is is_whole


def test_a_chain_of_references_is_followed_for_eight_steps() -> None:
    def chain(length: int) -> dict[str, Any]:
        steps = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
        return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{length}": {"properties": {"end": {}}}}}

    assert rooted_object(chain(7))["properties"] == {"end": {}}
    assert "properties" not in rooted_object(chain(8))
    assert "$ref" not in rooted_object(chain(8))
