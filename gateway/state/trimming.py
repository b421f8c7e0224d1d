"""How a shared store forgets: the oldest records first, a few at a time, so that others get to use it meanwhile."""

import math
from collections.abc import Awaitable, Callable

__all__ = ["Forget", "trimmed"]

Forget = Callable[[float, int], Awaitable[int]]
"""Forgets up to so many of the oldest records from before a time; says how many there were."""


async def trimmed(
    forget: Forget,
    *,
    before: float,
    max_bytes: int,
    step: int,
    size: Callable[[], Awaitable[int]],
    count: Callable[[], Awaitable[int]],
) -> int:
    """Forget records older than `before`, and the oldest ones while all take more room; says how many."""
    forgotten = await _forgotten(forget, before, step)
    # Looked at anew each time: records differ in size, and others write meanwhile.
    while (used := await size()) > max_bytes:
        surplus = math.ceil(await count() * (1 - max_bytes / used))
        gone = await _forgotten(forget, math.inf, step, surplus)
        forgotten += gone
        if not gone:
            break
    return forgotten


async def _forgotten(forget: Forget, before: float, step: int, most: int | None = None) -> int:
    forgotten = 0
    while (few := step if most is None else min(step, most - forgotten)) > 0:
        gone = await forget(before, few)
        forgotten += gone
        if gone < few:
            break
    return forgotten
