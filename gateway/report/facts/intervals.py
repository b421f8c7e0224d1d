"""Shares with their 95 % intervals, as a report says them."""

from attrs import frozen

from gateway.rollout.intervals import wilson

__all__ = ["TOO_FEW", "Rate", "rate"]

TOO_FEW = 30
"""Below this many cases a share says next to nothing: 29 of 30 is anything from 83 to 99 %."""


@frozen(kw_only=True)
class Rate:
    """So many of so many; without cases there is no share, and the interval is everything."""

    hits: int
    of: int
    share: float | None
    low: float
    high: float
    too_few: bool


def rate(hits: int, of: int) -> Rate:
    """A share with its interval."""
    # Outcomes of a period may be about requests before it, and so be more than its requests.
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
