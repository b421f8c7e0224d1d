"""A schema as a document: references followed, combinations merged, and what nobody can tell left open."""

from typing import Any

import pytest

from strategies.schema.document import Document, has_type, listed, required, type_of


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"$ref": "#/$defs/text"}, {"string"}),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, {"string", "array"}),
        ({"allOf": [{"type": "object"}, {"description": "d"}]}, {"object"}),
        ({"$ref": "#/$defs/round"}, set()),
        ({"$ref": "https://example.com/elsewhere"}, set()),
        ({}, set()),
    ],
)
def test_types_are_found_behind_references_and_combinations(schema: dict[str, Any], types: set[str]) -> None:
    root = {"$defs": {"text": {"type": "string"}, "round": {"$ref": "#/$defs/round"}}}
    assert Document(root).types(schema) == types


def test_what_allof_adds_is_part_of_the_schema() -> None:
    schema = {"required": ["a"], "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["b"]}]}
    view = Document({}).view(schema)
    assert set(required(view)) == {"a", "b"}
    assert Document({}).member(view, "a") == {"type": "integer"}


def test_a_member_that_is_ruled_out_is_told_from_one_of_which_nothing_is_said() -> None:
    document = Document({})
    assert document.member(document.view({"additionalProperties": False}), "a") is False
    assert document.member(document.view({"type": "object"}), "a") is None
    view = document.view({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False})
    assert document.member(view, "x-a") == {"type": "string"}


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "boolean"), (1, "integer"), (1.5, "number"), ("", "string"), (None, "null"), ([], "array"), ({}, "object")],
)
def test_each_value_has_one_type(value: object, kind: str) -> None:
    assert type_of(value) == kind
    assert has_type(value, frozenset({kind}))


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    assert has_type(2.0, frozenset({"integer"}))
    assert not has_type(2.5, frozenset({"integer"}))
    assert not has_type(True, frozenset({"integer", "number"}))


def test_listed_values_are_all_there_are() -> None:
    assert listed({"enum": ["a", 1]}) == ["a", 1]
    assert listed({"const": "a"}) == ["a"]
    assert listed({"type": "string"}) is None
