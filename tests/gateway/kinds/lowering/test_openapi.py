"""Schemas in the words that Gemini takes, and how any schema is gone through: references, places, words."""

# ruff: noqa: E501 - a schema and what becomes of it stand side by side
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gateway.kinds.lowering.openapi import openapi_subset
from gateway.kinds.lowering.refusals import KEPT_BY_GEMINI, LOWERABLE, REFERENCES, REFUSALS, UNIONS_REFUSED_AT_ROOT
from gateway.kinds.lowering.rooted import is_rooted, rooted_object
from gateway.kinds.lowering.walk import PLACES, in_words, inside, note, referred
from gateway.kinds.lowering.without import lowered as lowered_without
from gateway.kinds.lowering.without import without
from tests.support.cost import steps
from tests.support.gemini_server import SCHEMA as TAKEN_BY_GEMINI
from tests.support.gemini_server import fault_of_schema
from tests.support.openai_server import keywords_of


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


ROOT: dict[str, Any] = {"$defs": {"a/b": {"x": 1}, "c~d": {"x": 2}, "e f": {"x": 3}, "list": [{"x": 4}, 5]}}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", {"x": 1}),
        ("#/$defs/c~0d", {"x": 2}),
        ("#/$defs/e%20f", {"x": 3}),
        ("#/$defs/list/0", {"x": 4}),
        ("#/$defs/list/1", {}),
        ("#/$defs/list/2", {}),
        ("#/$defs/list/-1", {}),
        ("#/$defs/list/000000", {}),
        ("#/$defs/gone/on", {}),
        ("#a", {}),
        ("http://x/#/$defs", {}),
        ("", {}),
        (None, {}),
        ({}, {}),
    ],
)
def test_a_reference_leads_to_a_schema_of_the_document_or_nowhere(reference: object, found: Any) -> None:
    assert referred(ROOT, reference) == found


@pytest.mark.parametrize("key", [*PLACES, "enum", "const", "default", "x"])
def test_only_what_stands_in_a_place_for_schemas_is_lowered(key: str) -> None:
    told = [inside(key, value, lambda inner: ("low", inner)) for value in ({"a": 1}, [1, 2], True)]
    one = [("low", {"a": 1}), ("low", [1, 2]), ("low", True)]
    by_name, in_a_row = {"a": ("low", 1)}, [("low", 1), ("low", 2)]
    place = PLACES.get(key)
    if key == "items":
        assert told == [one[0], in_a_row, one[2]]
    elif place is object:
        assert told == one
    else:
        assert told == [by_name if place is dict else {"a": 1}, in_a_row if place is list else [1, 2], True]


def test_words_are_added_and_bounded() -> None:
    out: dict[str, Any] = {"description": "Said."}
    note(out, "More.")
    assert out == {"description": "Said. More."}
    odd: dict[str, Any] = {"description": 3}
    note(odd, "More.")
    assert odd == {"description": "More."}
    assert len(in_words("x" * 10_000)) == 400
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert in_words(deep) == "..."


# --- The table of what each server refuses: whole, and at one with itself


@pytest.mark.parametrize("keyword", REFUSALS)
def test_what_goes_together_is_in_the_table(keyword: str) -> None:
    together = REFUSALS[keyword].together
    assert not together or keyword in together
    assert set(together) - {"items"} <= LOWERABLE


def test_what_a_schema_is_made_of_is_never_taken_out() -> None:
    assert LOWERABLE.isdisjoint({"type", "properties", "required", "items", "description"})
    assert set(PLACES) - {"properties", "items"} <= LOWERABLE


def test_what_gemini_keeps_it_takes() -> None:
    assert set(KEPT_BY_GEMINI) <= TAKEN_BY_GEMINI
    assert not TAKEN_BY_GEMINI & set(REFERENCES)


def test_no_union_stands_at_anthropics_root() -> None:
    assert set(UNIONS_REFUSED_AT_ROOT) == {"allOf", "anyOf", "oneOf"}


# --- Schemas without the keywords that a server refuses: never narrower than they were


@pytest.mark.parametrize(
    ("schema", "keywords", "told"),
    [
        ({"type": "string", "pattern": "^a"}, ["pattern"], {"type": "string", "description": '(pattern: "^a")'}),
        (
            {"description": "When.", "format": "date", "minLength": 3},
            ["format"],
            {"description": 'When. (format: "date")', "minLength": 3},
        ),
        ({"properties": {"pattern": {"type": "string"}}}, ["pattern"], {"properties": {"pattern": {"type": "string"}}}),
        ({"const": "a"}, ["const"], {"enum": ["a"]}),
        ({"const": "a"}, ["const", "enum"], {"description": '(const: "a")'}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, ["oneOf"], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"oneOf": [{"type": "string"}]}, ["oneOf", "anyOf"], {}),
        ({"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}, ["pattern"], {"anyOf": [{"description": '(pattern: "a")'}, {"description": '(pattern: "b")'}]}),
        ({"not": {"pattern": "a"}, "type": "string"}, ["pattern"], {"type": "string"}),
        ({"if": {"minLength": 2}, "then": {"maxLength": 9}}, ["minLength"], {}),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, ["patternProperties"], {}),
        ({"prefixItems": [{}], "items": False, "type": "array"}, ["prefixItems"], {"type": "array"}),
        ({"minContains": 0, "contains": {"type": "string"}}, ["minContains"], {}),
        ({"unevaluatedProperties": False, "format": "x"}, ["format"], {"description": '(format: "x")'}),
        ({"minimum": 1, "exclusiveMinimum": True}, ["minimum"], {"description": "(minimum: 1)"}),
        (
            {"$defs": {"d": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/d", "description": "D"}}},
            ["$ref"],
            {"properties": {"a": {"type": "string", "description": "D"}}},
        ),
        ({"$ref": "#nowhere"}, ["$ref"], {}),
        ({"properties": {"next": {"$ref": "#"}}}, ["$ref"], {"properties": {"next": {"properties": {"next": {}}}}}),
        (
            {"$defs": {"d": {"type": "object", "properties": {"a": {}}}}, "allOf": [{"$ref": "#/$defs/d"}]},
            ["allOf"],
            {"$defs": {"d": {"type": "object", "properties": {"a": {}}}}, "type": "object", "properties": {"a": {}}},
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"minLength": 2}}}]},
            ["allOf"],
            {"properties": {"a": {}}},
        ),
        ({"type": "object", "required": ["a"]}, ["type", "required", "properties"], {"type": "object", "required": ["a"]}),
    ],
)  # fmt: skip
def test_a_keyword_goes_with_what_hangs_on_it(schema: Any, keywords: list[str], told: Any) -> None:
    assert without(schema, keywords) == told


def test_only_the_schemas_of_tools_change() -> None:
    plain = {"type": "function", "function": {"name": "plain", "parameters": {"type": "object"}}}
    dated = {"type": "function", "function": {"name": "dated", "parameters": {"properties": {"d": {"format": "date"}}}}}
    body = json.dumps({"x": 1.50, "tools": [plain, dated, "odd", {"type": "custom"}], "y": [None]}).encode()
    told = lowered_without(body, ["format"])
    tools = json.loads(told)["tools"]
    assert tools[0] == plain
    assert "format" not in keywords_of(tools[1]["function"]["parameters"])
    assert tools[2:] == ["odd", {"type": "custom"}]
    assert told.startswith(b'{"x":1.5,')
    assert json.loads(told) == {**json.loads(body), "tools": tools}


@pytest.mark.parametrize(
    "body",
    [
        b'{ "tools": {"no": "list"} }',
        b'{ "tools": null, "n": 1e400 }',
        b'{"a": 1',
        b"[]",
        b'{ "tools": [{"function": {"name": "f", "parameters": {"type":"object"}}}], "a": 1.0 }',
    ],
)
def test_a_request_that_needs_no_change_is_left_byte_for_byte(body: bytes) -> None:
    assert lowered_without(body, ["format"]) == body


def test_deep_wide_and_circular_schemas_end_soon() -> None:
    deep: Any = {"format": "x"}
    for _ in range(5000):
        deep = {"properties": {"a": deep}}
    bomb = {f"d{i}": {"properties": {f"p{j}": {"$ref": f"#/$defs/d{i + 1}"} for j in range(9)}} for i in range(9)}
    wide = {"properties": {f"p{i}": {"$ref": "#/$defs/d0"} for i in range(2000)}, "$defs": bomb}
    assert steps(lambda: without(deep, ["format"]), most=10_000)
    assert steps(lambda: without(wide, ["$ref"]), most=500_000)


words = st.sampled_from(["a", "b", "ab"])

values = st.one_of(st.none(), st.booleans(), st.integers(-2, 4), words)

instances = st.recursive(
    values,
    lambda child: st.one_of(st.lists(child, max_size=3), st.dictionaries(words, child, max_size=3)),
    max_leaves=6,
)


def bigger(child: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = st.one_of(child, st.booleans())
    several = st.lists(schemas, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "object", "array", ["string", "null"]]),
            "pattern": st.sampled_from(["^a", "b$"]),
            "minLength": st.integers(0, 2),
            "minimum": st.integers(-1, 3),
            "exclusiveMaximum": st.integers(0, 4),
            "enum": st.lists(values, min_size=1, max_size=3),
            "const": values,
            "uniqueItems": st.booleans(),
            "properties": st.dictionaries(words, schemas, max_size=2),
            "required": st.lists(words, max_size=1),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), schemas, max_size=1),
            "additionalProperties": schemas,
            "propertyNames": schemas,
            "unevaluatedProperties": schemas,
            "unevaluatedItems": schemas,
            "prefixItems": several,
            "items": schemas,
            "contains": schemas,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": schemas,
            "if": schemas,
            "then": schemas,
            "else": schemas,
            "dependentSchemas": st.dictionaries(words, schemas, max_size=1),
            "$ref": st.just("#/$defs/d"),
            "$defs": st.fixed_dictionaries({"d": schemas}),
        },
    )


schemas_of_any_kind: st.SearchStrategy[dict[str, Any]] = st.recursive(st.just({}), bigger, max_leaves=8)

some_keywords = st.sets(st.sampled_from(sorted(LOWERABLE)), min_size=1, max_size=6)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(schemas_of_any_kind, some_keywords, st.lists(instances, min_size=1, max_size=4))
@example({"not": {"not": {"pattern": "a"}}}, {"pattern"}, ["b"])
def test_what_was_allowed_stays_allowed(schema: dict[str, Any], keywords: set[str], given_values: list[Any]) -> None:
    pointed_to = schema.get("$defs", {}).get("d")
    schema = {**schema, "$defs": {"d": pointed_to if isinstance(pointed_to, dict) else {}}}
    told = without(schema, keywords)
    assert not keywords & keywords_of(told)
    for value in given_values:
        if is_valid(schema, value):
            assert Draft202012Validator(told).is_valid(value), (told, value)


def is_valid(schema: dict[str, Any], value: Any) -> bool:
    try:
        return bool(Draft202012Validator(schema).is_valid(value))
    except RecursionError:  # a reference to itself
        return False
