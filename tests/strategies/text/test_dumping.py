"""Large values as JSON in turns: the same text, however they are nested."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.text.dumping import dumping, dumps
from strategies.text.turns import TURN, Turns, whole

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=3)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
_SHAPES: tuple[Callable[[Any], Any], ...] = (
    lambda one: one,
    lambda one: [one] * 60,
    lambda one: {f"k{number}": one for number in range(60)},
    lambda one: [one, [[one] * 60, one], *[one] * 60, {"": [one] * 60, '"': one}],
    lambda one: {"a": {f"k{number}": one for number in range(60)}, '"\n': [one] * 60, "b": one, "c": [[], {}]},
)


@given(_VALUES, st.sampled_from(_SHAPES))
def test_it_is_the_text_that_one_go_makes(value: Any, shape: Callable[[Any], Any]) -> None:
    assert whole(dumping(shape(value))) == dumps(shape(value))


LARGE: dict[str, Any] = {
    "items": {"items": [{"id": f"i{number}", "rank": number} for number in range(20_000)]},
    "members": {f"k{number}": "v" for number in range(20_000)},
    "nested": {"a": [{"b": [[number] for number in range(10_000)]}, *[1] * 10_000], "c": None},
    "no number": [*[0] * 20_000, float("nan")],
    "half a character": [*[0] * 20_000, "\ud83e"],
}


@pytest.mark.parametrize("large", LARGE)
def test_a_large_value_takes_turns(large: str) -> None:
    found: list[str] = []

    def work() -> Turns[None]:
        found.append((yield from dumping(LARGE[large])))

    assert sum(1 for _ in work()) >= 20_000 // TURN // 2
    assert found == [dumps(LARGE[large])]
