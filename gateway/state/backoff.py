"""How long a store that was found to be away is left alone, so that nobody waits for it in vain."""

import time
from collections.abc import Callable

from attrs import define, field

from gateway.core.ports import StoreError

__all__ = ["Pause"]

FIRST_S = 0.25
LONGEST_S = 2.0


@define
class Pause:
    """After a failure operations are refused for a while that doubles; then one is let through to see."""

    _now: Callable[[], float] = time.monotonic
    _length_s: float = field(init=False, default=0.0)
    _until: float = field(init=False, default=0.0)

    def check(self) -> None:
        """Raises `StoreError` while the store is left alone; who gets through is the one who tries."""
        if not self._length_s:
            return
        now = self._now()
        # An operation that would wait for its deadline costs each request that deadline:
        # https://cwe.mitre.org/data/definitions/400.html
        if now < self._until:
            raise StoreError("the store is away")
        # Moved on before it is known how it ends: of many at once one tries.
        self._until = now + self._length_s

    def failed(self) -> None:
        """The store is away."""
        self._length_s = min(LONGEST_S, self._length_s * 2 or FIRST_S)
        self._until = self._now() + self._length_s

    def succeeded(self) -> None:
        """The store is there."""
        self._length_s = 0.0
