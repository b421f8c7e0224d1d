"""How a schema is gone through: references, places, words."""

from typing import Any

import pytest

from gateway.kinds.lowering.walk import PLACES, in_words, inside, note, referred

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
