"""What work costs, told by clocks that other processes cannot move."""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Self

__all__ = ["Pulse", "assert_linear", "steps"]

_TIMES = 4
_MOST = 8.0
"""Four times the work that is linear costs four times as much, the square of it sixteen times."""
_UNMEASURABLE_S = 0.002
_LONG_S = 1.0


def steps(work: Callable[[], object], *, most: int) -> int:
    """The calls of functions that the work makes, in Python and in C; it is stopped when they are too many."""
    count = 0

    def counting(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1
            if count > most:
                raise AssertionError(f"more than {most} steps")

    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(None)
    # What is at work may catch it: nothing that a reader raises gets out of its guard.
    if count > most:
        raise AssertionError(f"more than {most} steps")
    return count


def assert_linear(work_of: Callable[[int], Callable[[], object]], size: int) -> None:
    """What `work_of(size)` makes ready costs in proportion to the size; sizes grow until they can be measured."""
    for _ in range(4):
        once = _seconds(work_of(size))
        work = work_of(_TIMES * size)
        for _ in range(2):
            more = _seconds(work, runs=1)
            if more <= _MOST * once + _UNMEASURABLE_S:
                return
        if once > _LONG_S:
            break
        size *= 2
    raise AssertionError(f"{_TIMES} times as much costs {more / once:.1f} times as much at {size}")


def _seconds(work: Callable[[], object], *, runs: int = 2) -> float:
    """The time that this thread spends on it, the best of several."""
    best = float("inf")
    for _ in range(runs):
        started = time.thread_time()
        work()
        best = min(best, time.thread_time() - started)
    return best


class Pulse:
    """The seconds that pass in this event loop: where it has to wait for a processor, none of its beats passes."""

    _BEAT_S = 0.005

    def __init__(self) -> None:
        self.seconds = 0.0

    async def __aenter__(self) -> Self:
        self._beating = asyncio.ensure_future(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()
        with suppress(asyncio.CancelledError):
            await self._beating

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._BEAT_S)
            self.seconds += self._BEAT_S
