"""Token counts of two answers, told as one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.usage import summed_usage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 4, "b": 2}),
        ({"a": 1}, {"c": 5}, {"a": 1, "c": 5}),
        ({"d": {"x": 1, "y": None}}, {"d": {"x": 2, "y": 3}}, {"d": {"x": 3, "y": 3}}),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": True, "b": "s"}, {"a": True, "b": "t"}, {"a": True, "b": "s"}),
        ({"cost": 0.5}, {"cost": 0.25}, {"cost": 0.75}),
    ],
)
def test_numbers_are_added_and_the_rest_stays(one: Any, other: Any, both: Any) -> None:
    assert summed_usage(one, other) == both


@given(JSON, JSON)
def test_any_shape_can_be_added(one: Any, other: Any) -> None:
    summed_usage(one, other)


@given(st.dictionaries(st.text(max_size=2), st.integers(), max_size=4))
def test_nothing_added_changes_nothing(usage: dict[str, int]) -> None:
    assert summed_usage(usage, {}) == usage
    assert summed_usage(usage, dict.fromkeys(usage, 0)) == usage
