"""Cycles among long-lived objects are looked for now and then, when that is quick.

Python looks at its oldest objects once very many new ones have come to stay, which in a gateway is hours; until then a
cycle that lived long enough to be old keeps all it holds. Ours are undone where they are known; libraries make others.
"""

import gc
from collections.abc import Callable

__all__ = ["Garbage"]

LOOK_S = 60
"""Between two looks; also how many calls."""
FEW = 100_000
"""Objects that are looked at in some 8 ms. Where there are more, as of a large value that is read just now, the look
waits for them to go: twice as many are let pass at each next one."""


class Garbage:
    """To be called every second."""

    def __init__(self, collect: Callable[[], object] = gc.collect) -> None:
        self._collect = collect
        self._seconds = 0
        self._most = FEW
        self._seen = 0
        """How often young objects have been looked at: where that is as before, next to nothing was made."""

    def __call__(self) -> None:
        self._seconds += 1
        if self._seconds < LOOK_S:
            return
        self._seconds = 0
        young = gc.get_stats()[0]["collections"]
        if young == self._seen:
            return
        if len(gc.get_objects()) > self._most:
            self._most *= 2
            return
        self._collect()
        self._most, self._seen = FEW, gc.get_stats()[0]["collections"]
