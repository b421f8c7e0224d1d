"""Values beside their schema: text becomes a value only where that is certain."""

from typing import Any

import pytest

from strategies.schema.document import Document
from strategies.schema.values import is_same, judged, read_text, unique


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
