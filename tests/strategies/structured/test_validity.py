"""What JSON Schema takes: held against the reference library, over schemas and values that nobody wrote by hand."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator  # type: ignore[import-untyped]

from gateway.core.tools import Tool, ToolSet
from strategies.structured.judge import declared, judge
from strategies.structured.prefix import is_right_so_far
from strategies.structured.validity import Validity
from tests.support.cost import assert_linear

KEYS = ("a", "b", "c", "path", "x-1")

LEAVES = (None, True, False, 0, 1, -1, 2, 5, 1.0, 2.5, 10, "", "a", "abc", "12", "x-1", 1e3)


class Drawn:
    """Schemas and values by a seed: the same in every run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        draw = self.random.random()
        if depth < 3 and draw < 0.2:
            return {self.random.choice(KEYS): self.value(depth + 1) for _ in range(self.random.randrange(4))}
        if depth < 3 and draw < 0.35:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return self.random.choice(LEAVES)

    def schema(self, depth: int = 0) -> Any:
        if self.random.random() < 0.05:
            return self.random.choice([True, False])
        return {
            key: make() for key, make in self.keywords(depth).items() if self.random.random() < SHARES.get(key, 6) / 100
        }

    def keywords(self, depth: int) -> dict[str, Any]:
        pick, count = self.random.choice, lambda: self.random.randrange(3)

        def inner() -> Any:
            return self.schema(depth + 1) if depth < 3 else {}

        def pattern() -> str:
            return pick(["^a", "[0-9]+$", "b|c"])

        found: dict[str, Any] = {
            "type": lambda: pick([*"string integer number boolean null object array".split(), ["string", "null"]]),
            "enum": lambda: [self.value(2) for _ in range(3)],
            "const": lambda: self.value(2),
            "properties": lambda: {pick(KEYS): inner() for _ in range(3)},
            "required": lambda: sorted({pick(KEYS) for _ in range(2)}),
            "patternProperties": lambda: {pattern(): inner()},
            "pattern": pattern,
            "prefixItems": lambda: [inner(), inner()],
            "uniqueItems": lambda: pick([True, False]),
            "multipleOf": lambda: pick([1, 2, 5]),
            "dependentRequired": lambda: {pick(KEYS): [pick(KEYS)]},
            "dependentSchemas": lambda: {pick(KEYS): inner()},
        }
        for key in "additionalProperties unevaluatedProperties unevaluatedItems propertyNames items contains".split():
            found[key] = inner
        for key in "not if then else".split():
            found[key] = inner
        for key in "anyOf oneOf allOf".split():
            found[key] = lambda: [inner(), inner()]
        for key in "minProperties maxProperties minItems maxItems minLength maxLength minContains maxContains".split():
            found[key] = count
        for key in "minimum maximum exclusiveMinimum exclusiveMaximum".split():
            found[key] = count
        if depth:
            found["$ref"] = lambda: pick(["#/$defs/A", "#/$defs/B"])
        return found


SHARES = {"type": 60, "properties": 40, "required": 20, "items": 20, "additionalProperties": 15, "enum": 10}


@pytest.mark.parametrize("seed", range(8))
def test_the_reference_says_the_same(seed: int) -> None:
    drawn = Drawn(seed)
    valid = 0
    for _ in range(500):
        schema = drawn.schema()
        if isinstance(schema, bool):
            continue
        tree = {"type": "object", "properties": {"a": {"$ref": "#/$defs/B"}}}
        schema["$defs"] = {"A": drawn.schema(2), "B": tree}
        value = drawn.value()
        wanted = Draft202012Validator(schema).is_valid(value)
        valid += wanted
        assert (Validity(schema).fault(value) is None) == wanted, json.dumps([schema, value])
    assert valid > 50


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a"]),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a", 1]),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}),
        ({"dependencies": {"a": {"required": ["b"]}}}, {"a": 1, "b": 2}),
        ({"$ref": "#/definitions/x", "type": "string", "definitions": {"x": {"type": "integer"}}}, 5),
    ],
)
def test_what_older_drafts_wrote_otherwise(schema: dict[str, Any], value: Any) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    assert (Validity(schema).fault(value) is None) == Draft7Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"properties": {"n": {"type": "integer"}}}, {"n": "5"}, "`n` must be a whole number"),
        ({"required": ["path"]}, {}, "missing required argument `path`"),
        ({"properties": {"m": {"enum": ["a", "b"]}}}, {"m": "c"}, "`m` must be one of a, b"),
        ({"properties": {"o": {"properties": {"x": {"minimum": 3}}}}}, {"o": {"x": 1}}, "`o.x` must be at least 3"),
        ({"additionalProperties": False, "properties": {}}, {"z": 1}, "`z` is not known"),
        ({"properties": {"s": {"pattern": "^a"}}}, {"s": "b"}, "`s` must match ^a"),
        ({"properties": {"f": {"items": {"type": "string"}}}}, {"f": ["a", 1]}, "`f[1]` must be a string"),
        ({"properties": {"e": {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "null"}]}}}, {"e": "ab"},
         "`e` must have at most 1 characters"),
    ],
)  # fmt: skip
def test_a_fault_is_told_in_words_for_its_writer(schema: dict[str, Any], value: Any, words: str) -> None:
    assert Validity(schema).fault(value) == words


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}},
        {"not": {"not": {"$ref": "#"}}},
        {"$ref": "https://example.com/elsewhere"},
        {"$ref": "#/no/such"},
        {"pattern": "(?<=a)b", "type": "object"},
        {"type": "nonsense"},
        {"type": 5, "enum": "x", "required": 3, "properties": [], "items": 3, "minimum": "x", "anyOf": {}},
    ],
)
def test_what_leads_nowhere_asks_for_nothing(schema: dict[str, Any]) -> None:
    assert Validity(schema).fault({"a": [1, {"b": "b"}]}) is None


def test_names_of_parts_are_found() -> None:
    schema = {
        "properties": {"a": {"$ref": "#node"}, "b": {"$ref": "https://x/y"}},
        "$defs": {"n": {"$anchor": "node", "type": "string"}, "m": {"$id": "https://x/y", "type": "integer"}},
    }
    assert Validity(schema).fault({"a": "x", "b": 1}) is None
    assert Validity(schema).fault({"a": 1}) == "`a` must be a string"
    assert Validity(schema).fault({"b": "x"}) == "`b` must be a whole number"


def test_alternatives_that_share_a_part_do_not_multiply() -> None:
    tree: dict[str, Any] = {"properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}}
    tree["anyOf"] = [{"properties": {"l": {"$ref": "#"}}, "required": ["z"]}, {"properties": {"l": {"$ref": "#"}}}]
    value: Any = {}
    for _ in range(40):
        value = {"l": value}
    assert Validity(tree).fault(value) is None


@pytest.mark.cost
def test_a_long_list_against_a_long_choice_costs_its_length() -> None:
    def work_of(size: int) -> Callable[[], object]:
        schema = {"items": {"enum": [f"m{at}" for at in range(size)]}, "uniqueItems": True}
        value = [f"m{at}" for at in range(size)]
        return lambda: Validity(schema).fault(value)

    assert_linear(work_of, 1 << 10)


def test_a_deep_value_ends() -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    assert Validity({"items": {"$ref": "#"}}).fault(value) is None


def test_numbers_of_any_size_are_compared() -> None:
    assert Validity({"multipleOf": 0.01}).fault(4.35) is None
    assert Validity({"multipleOf": 3}).fault(10**40) == "the arguments must be a multiple of 3"
    assert Validity({"maximum": 5}).fault(float("inf")) == "the arguments must be at most 5"


# --- Beginnings of arguments: every one of right arguments is right, and none that has gone wrong


TOOL = Tool(
    name="edit",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer", "maximum": 10},
            "deep": {"type": "boolean"},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string"}, "n": {"type": "number"}},
                    "additionalProperties": False,
                },
            },
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)

TEXT = st.text(max_size=12)

RIGHT = st.fixed_dictionaries(
    {"path": TEXT},
    optional={
        "limit": st.integers(-20, 10) | st.none(),
        "deep": st.booleans(),
        "edits": st.lists(st.fixed_dictionaries({"old": TEXT}, optional={"n": st.floats(allow_nan=False)}), max_size=3),
        "note": TEXT | st.none(),
    },
)


@given(RIGHT, st.booleans(), st.sampled_from([None, 1]))
def test_every_beginning_of_right_arguments_is_right(value: dict[str, object], ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent, allow_nan=True)
    if not judge("edit", text, ToolSet([TOOL])).is_valid:
        return  # infinite numbers
    for end in range(len(text) + 1):
        assert is_right_so_far(text[:end], declared(TOOL)), text[:end]


@pytest.mark.parametrize(
    "text",
    [
        '{"path": 5',
        '{"Path":',
        '{"path":"a\n',
        '{"path":"\\x',
        '{"path":"\\u12g',
        "[",
        '"',
        "x",
        "{}",
        "{'path'",
        "```json",
        '{"path":"a","limit":11,',
        '{"path":"a","limit":"1',
        '{"path":"a","edits":["x',
        '{"path":"a","edits":[{"zz":',
        '{"path":"a","edits":[{"n":1.}',
        '{"path":"a"}{',
        '{"path":"a","deep":T',
        '{"path":"a",}',
        '{"path":"a" "limit"',
        "<parameter=path>",
    ],
)
def test_what_has_gone_wrong_is_told(text: str) -> None:
    assert not is_right_so_far(text, declared(TOOL))


def test_what_nests_too_deep_is_not_called_right() -> None:
    tool = Tool(name="any", parameters={})
    assert is_right_so_far('{"a":[[[', declared(tool))
    assert not is_right_so_far('{"a":' + "[" * 4000, declared(tool))
