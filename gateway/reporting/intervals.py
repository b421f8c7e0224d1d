"""Shares with their 95 % intervals after Wilson: honest for few cases and for shares near 0 or 1."""

import math

from attrs import frozen

__all__ = ["TOO_FEW", "Rate", "rate", "wilson"]

TOO_FEW = 30
"""Below this many cases a share says next to nothing: 29 of 30 is anything from 83 to 99 %."""
_Z = 1.959963984540054


@frozen(kw_only=True)
class Rate:
    """So many of so many; without cases there is no share, and the interval is everything."""

    hits: int
    of: int
    share: float | None
    low: float
    high: float
    too_few: bool


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if of <= 0:
        return 0.0, 1.0
    share = hits / of
    square = _Z * _Z
    middle = share + square / (2 * of)
    reach = _Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    scale = 1 + square / of
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def rate(hits: int, of: int) -> Rate:
    """A share with its interval."""
    hits = min(hits, of)
    low, high = wilson(hits, of)
    return Rate(
        hits=hits,
        of=of,
        share=round(hits / of, 6) if of > 0 else None,
        low=round(low, 6),
        high=round(high, 6),
        too_few=of < TOO_FEW,
    )
