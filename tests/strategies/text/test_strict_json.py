"""Valid JSON, and what is refused although it is valid: numbers and characters that nobody can write."""

import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.text import strict_json
from strategies.text.dumping import dumping, dumps
from strategies.text.strict_json import JsonFault, cutting, decoding, loads_strict
from strategies.text.tolerant_json import parse
from strategies.text.turns import LONG, TURN, Turns, whole
from tests.support.cost import steps


@pytest.mark.parametrize(
    "text", ["NaN", "[1e999]", '{"a":1} x', "", "{'a':1}", "[" * 70 + "]" * 70, '"\\ud800"', '"a\nb"']
)
def test_strict_reading_accepts_nothing_but_json(text):
    with pytest.raises(JsonFault):
        loads_strict(text)


@pytest.mark.parametrize("size", [4, LONG])
def test_whole_numbers_are_the_same_in_a_short_text_and_in_a_long_one(size):
    """A long text is looked through for long numbers first, and read faster where it holds none."""
    digits = ("9" * 300, "1" + "0" * 149, "-0", "7")
    told = loads_strict(f'[{", ".join(digits)}, "{"x" * size}"]')
    assert [repr(each) for each in told[:-1]] == [repr(loads_strict(each)) for each in digits]


# --- A long document decoded in parts is what it is decoded in one go, or is refused with it


def value_of(rng: random.Random, depth: int) -> Any:
    roll = rng.random()
    if depth > 6 or roll < 0.3:
        return rng.choice(["", "a,b", "]}", '\\"', "{[", "x" * 30, 0, -1.5, 12, True, False, None, "\u00e9\n"])
    if roll < 0.65:
        return [value_of(rng, depth + 1) for _ in range(rng.randint(0, 5))]
    return {rng.choice("abcdefgh-") * rng.randint(1, 3): value_of(rng, depth + 1) for _ in range(rng.randint(0, 5))}


def in_parts(text: str, *, strict: bool = True) -> tuple[Any, int, int] | None:
    """The value, where it ends, and how many parts it was read in."""
    notes = []

    def hook(items: list[tuple[str, Any]]) -> dict[str, Any]:
        notes.extend([1] if len(dict(items)) != len(items) else [])
        return dict(items)

    cuts = whole(cutting(text, 0, 64))
    if cuts is None:
        return None
    try:
        value = whole(
            decoding(
                text,
                0,
                cuts,
                lambda pairs: json.JSONDecoder(strict=strict, object_pairs_hook=pairs),
                hook,
            )
        )
    except ValueError:
        return None
    return value, cuts[-1].at, (len(notes) and -len(cuts)) or len(cuts)


SHARES = pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, 9))])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of few characters."""
    monkeypatch.setattr(strict_json, "_PART", 7)
    monkeypatch.setattr(strict_json, "_LOOK", 5)


@pytest.mark.usefixtures("small")
@SHARES
def test_what_is_read_in_parts_is_what_is_read_in_one_go(share: int) -> None:
    rng = random.Random(7 + share)
    parted = 0
    for _ in range(500):
        given = [value_of(rng, 0), value_of(rng, 0)]
        text = json.dumps(given, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1]))
        found = in_parts(text + rng.choice(["", " x", "]", ', {"a": 1}']))
        assert found is not None
        assert (found[0], found[1]) == (given, len(text))
        assert json.dumps(found[0]) == json.dumps(given), "members stand in their order"
        parted += abs(found[2]) > 2
    assert parted > 160


@pytest.mark.usefixtures("small")
@SHARES
def test_what_is_damaged_is_refused_in_parts_as_in_one_go(share: int) -> None:
    rng = random.Random(8 + share)
    valid = 0
    for _ in range(1_000):
        text = json.dumps([value_of(rng, 0), value_of(rng, 1), {"b": value_of(rng, 1)}])
        at = rng.randrange(1, len(text))
        text = text[:at] + rng.choice(['"', ",", "]", "}", "{", "[", ":", "", "1", "\t", "\\", " "]) + text[at + 1 :]
        try:
            told: Any = json.JSONDecoder().raw_decode(text)
        except ValueError:
            told = None
        found = in_parts(text)
        assert (found and found[:2]) == told, text
        valid += told is not None
    assert valid > 30


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("text", ["[" + " " * 99 + ", 1, 2]", "[1, 2, 3, 4, {   , 5}]", "[1, 2, 3, 4, 5, , 6]"])
def test_a_comma_behind_nothing_is_no_end_of_a_part(text: str) -> None:
    assert in_parts(text) is None


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "text",
    ['{"a": [1, 2, 3, 4, 5, 6], "b": 1, "a": 2}', '{"a": 1, "bbbbbbbb": [[1, 2, 3], 2], "a": {"c": [1, 2, 3]}}'],
)
def test_a_name_that_comes_twice_counts_last_and_is_told(text: str) -> None:
    found = in_parts(text)
    assert found is not None
    assert found[0] == json.loads(text)
    assert found[2] < 0, "told"


@pytest.mark.parametrize("way", [loads_strict, lambda text: parse(text).value])
@pytest.mark.parametrize("tail", ["", "]", " x"])
def test_a_long_document_is_read_as_a_short_one(way: Any, tail: str) -> None:
    given = [{"id": f"i{number}", "deep": [[[number]]], "n": -0.5, "t": 'a"b\\n'} for number in range(3_000)]
    text = json.dumps(given)
    assert len(text) > LONG
    if tail and way is loads_strict:
        with pytest.raises(JsonFault):
            way(text + tail)
    else:
        assert way(text + tail) == given


def test_a_long_document_with_half_a_character_or_nested_too_deep_is_refused() -> None:
    text = json.dumps(["a" * 50] * 2_000)
    with pytest.raises(JsonFault, match="surrogate"):
        loads_strict(text[:-1] + ', "\\ud800"]')
    with pytest.raises(JsonFault, match="too deep"):
        parse(text[:-1] + ", " + "[" * 70 + "]" * 70 + "]")


@pytest.mark.cost
@pytest.mark.parametrize("item", ["[" * 40 + '"v"' + "]" * 40, '{"id": "i", "rank": 1}', "1"])
def test_no_turn_decodes_more_than_a_part(item: str) -> None:
    text = f"[{', '.join([item] * (400_000 // len(item)))}]"
    work = cutting(text, 0, 64)
    while True:
        try:
            steps(lambda: next(work), most=15_000)
        except StopIteration as end:
            cuts = end.value
            break
    sizes = [behind.at - before.at for before, behind in pairwise(cuts)]
    assert len(cuts) > 15
    assert max(sizes) < 30_000


# --- Large values as JSON in turns: the same text, however they are nested


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
