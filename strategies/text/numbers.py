"""Numbers that remember how they were written."""

import math
from typing import Any

__all__ = ["number_text", "sayable", "written"]

_MAX_COMPARED = 400
"""Digits of a number that are compared with what would be written: more may be too many to write."""


class _WrittenFloat(float):
    """A number that is usually written otherwise."""

    __slots__ = ("digits",)
    digits: str


class _WrittenInt(int):
    """A whole number that is usually written otherwise."""

    digits: str


def written(value: int | float, digits: str) -> int | float:
    """The number, which remembers how it was written if that is not how it would be."""
    # Python writes very many digits in the square of their number, and more of them not at all: these keep their own.
    if len(digits) < _MAX_COMPARED and repr(value) == digits:
        return value
    number = _WrittenFloat(value) if isinstance(value, float) else _WrittenInt(value)
    number.digits = digits
    return number


def number_text(value: int | float) -> str:
    """The number as it was written."""
    return value.digits if isinstance(value, _WrittenInt | _WrittenFloat) else repr(value)


def sayable(value: Any) -> Any:
    """The value with a text in place of each number that JSON cannot say."""
    if isinstance(value, dict):
        return {key: sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sayable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # Python writes no whole number of more than 4,300 digits:
    # https://docs.python.org/3/library/stdtypes.html#int-max-str-digits
    if isinstance(value, int) and value.bit_length() > 14_283:
        return hex(value)
    return value
