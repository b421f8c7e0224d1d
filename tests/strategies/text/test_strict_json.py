"""Valid JSON, and what is refused although it is valid: numbers and characters that nobody can write."""

import pytest

from strategies.text.strict_json import JsonFault, loads_strict
from strategies.text.turns import LONG


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
