"""Token counts of several answers as one."""

from typing import Any

__all__ = ["summed_usage"]

_MAX_DEPTH = 4


def summed_usage(one: Any, other: Any, depth: int = 0) -> Any:
    """The sum of two usage objects, number by number; what only one of them has stays as it is there."""
    if isinstance(one, dict) and isinstance(other, dict) and depth < _MAX_DEPTH:
        shared = {key: summed_usage(one[key], other[key], depth + 1) for key in one if key in other}
        return {**one, **other, **shared}
    if _is_number(one) and _is_number(other):
        return one + other
    return one if other is None or one is not None else other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
