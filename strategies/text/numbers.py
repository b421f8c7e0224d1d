"""Numbers that remember how they were written."""

__all__ = ["number_text", "written"]

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
    if len(digits) < _MAX_COMPARED and repr(value) == digits:
        return value
    number = _WrittenFloat(value) if isinstance(value, float) else _WrittenInt(value)
    number.digits = digits
    return number


def number_text(value: int | float) -> str:
    """The number as it was written."""
    return value.digits if isinstance(value, _WrittenInt | _WrittenFloat) else repr(value)
