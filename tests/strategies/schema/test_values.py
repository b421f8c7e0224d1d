"""Values beside their schema: text becomes a value only where that is certain."""

import random
from typing import Any

import pytest

from strategies.schema import values
from strategies.schema.document import Document
from strategies.schema.fitting import Fitting
from strategies.schema.values import Walk, is_same, judged, read_text, unique
from strategies.text.turns import whole


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, " 3 ", 3),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": null}', {"a": None}),
        ({"type": "string"}, "3", "3"),
        ({"type": "string"}, " [1] ", " [1] "),
        ({"enum": ["slow", "fast"]}, " fast\n", "fast"),
        ({"type": ["integer", "null"]}, "null", None),
        ({}, "3", "3"),
    ],
)
def test_text_is_read_by_its_schema(schema: dict[str, Any], text: str, value: object) -> None:
    found = read_text(Document({}).prop("value", schema), text)
    assert is_same(found.value, value)
    assert found.fault is None


@pytest.mark.parametrize(
    ("schema", "text"),
    [({"type": "integer"}, "three"), ({"type": "boolean"}, "perhaps"), ({"type": "object"}, "[1]")],
)
def test_text_that_spells_no_such_value_stays_text_and_has_a_fault(schema: dict[str, Any], text: str) -> None:
    prop = Document({}).prop("value", schema)
    found = judged(prop, read_text(prop, text), text)
    assert found.value == text
    assert found.fault is not None


def test_values_are_the_same_as_json_is() -> None:
    assert is_same({"a": [1, None]}, {"a": [1, None]})
    assert not is_same(True, 1)
    assert not is_same([False], [0])
    assert not is_same({"a": [{"b": 1}]}, {"a": [{"b": True}]})
    assert is_same([{"a": 1.0}], [{"a": 1}])


def test_each_mend_is_said_once_and_in_order() -> None:
    assert unique(["b", "a", "b"]) == ("b", "a")


# --- Large values that fit as they are: told fast, and never otherwise than by the walks that convert and explain


OBJECTS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["id"],
        "additionalProperties": False,
    },
}

SCHEMAS: tuple[dict[str, Any], ...] = (
    {},
    {"type": "string", "minLength": 1},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": ["integer", "null"]},
    {"enum": ["a", 1]},
    {"type": "string", "nullable": True},
    {"$ref": "#/$defs/node"},
    {"type": "array", "items": {"$ref": "#"}},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^a": {"type": "string"}}},
    {"type": "array"},
    {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]},
    {"type": "array", "prefixItems": [{"type": "integer"}]},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}}]},
    {"type": "dict"},
    OBJECTS,
)

NODE = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/node"}}}

SCALARS = ("", "a", "1", "true", "null", '{"a": 1}', "[1]", 0, 1, 1.0, 1.5, True, False, None)


def drawn_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    if depth < 2 and rng.random() < 0.5:
        inner = drawn_schema(rng, depth + 1)
        return rng.choice([{"type": "array", "items": inner}, {"type": "object", "properties": {"a": inner}}])
    return rng.choice(SCHEMAS)


def drawn_value(rng: random.Random, depth: int = 0) -> Any:
    if depth < 3 and rng.random() < 0.7:
        size = rng.randint(0, 4)
        if rng.random() < 0.5:
            return [drawn_value(rng, depth + 1) for _ in range(size)]
        return {rng.choice(("a", "b", "id", "count")): drawn_value(rng, depth + 1) for _ in range(size)}
    return rng.choice(SCALARS)


@pytest.mark.parametrize("seed", range(10))
def test_it_says_nothing_that_the_walks_do_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        schema = {**drawn_schema(rng), "$defs": {"node": NODE}}
        value = drawn_value(rng)
        found: list[Any] = []
        for large in (1 << 30, 0):
            monkeypatch.setattr(values, "_LARGE", large)
            mends: list[str] = []
            adapted = whole(Walk(Document(schema), mends).adapt(value, schema, 0))
            fault = Walk(Document(schema), []).fault(value, schema, "", 0)
            found.append((repr(adapted), mends, fault))
        assert found[0] == found[1], (schema, value)


def test_a_large_value_is_looked_at_in_few_steps() -> None:
    good: list[dict[str, Any]] = [{"id": str(number), "count": number} for number in range(10_000)]
    fitting = Fitting(Document(OBJECTS))
    assert fitting.fits(good, OBJECTS, 100_000) == 10_001 + 3 * 10_000
    assert fitting.fits([*good, {"count": 1}], OBJECTS, 100_000) == -1
    assert fitting.fits([*good, {"id": "a", "other": 1}], OBJECTS, 100_000) == -1


def test_what_lies_beyond_its_work_is_taken_to_fit() -> None:
    fitting = Fitting(Document(OBJECTS))
    good = [{"id": "a"}] * 1_000
    assert fitting.fits([*good, {"id": 1}], OBJECTS, 1_500) > 0
    assert fitting.fits([*good, {"id": 1}], OBJECTS, 100_000) == -1
    tags = {"type": "array", "items": {"type": "string"}}
    assert fitting.fits(["a"] * 1_000 + [1], tags, 500) >= 500
    assert fitting.fits(["a"] * 100 + [1] + ["a"] * 900, tags, 500) == -1
