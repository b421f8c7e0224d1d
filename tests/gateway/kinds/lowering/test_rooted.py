"""Schemas with a plain object at their root."""

# ruff: noqa: E501 - a schema and what becomes of it stand side by side

from typing import Any

import pytest

from gateway.kinds.lowering.rooted import is_rooted, rooted_object


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
