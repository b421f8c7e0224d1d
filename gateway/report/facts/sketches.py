"""Summaries of bounded size, made in one pass: quantiles, distinct names, random choices, counts by name.

None of them draws a random number: the same records give the same summary, in whatever order they come.
"""

import math
from collections.abc import Callable, Iterator
from hashlib import blake2b
from heapq import heappush, heapreplace
from typing import Generic, TypeVar
from zlib import crc32

from attrs import frozen

__all__ = ["OTHER", "Chosen", "Counts", "Distinct", "Quantiles", "Spread", "draw"]

T = TypeVar("T")

OTHER = "other"
_GROWTH = 1.02
_LOG_GROWTH = math.log(_GROWTH)
_SMALLEST = 1e-9
_MAX_DISTINCT = 1 << 17
_WITHOUT_TEXT = 1 << 64


@frozen(kw_only=True)
class Spread:
    """Quantiles of a quantity, `None` where nothing was measured."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    highest: float | None


class Quantiles:
    """Counts by buckets that grow by 2 %, so a quantile is within 1 % of the exact one; some hundreds of buckets."""

    __slots__ = ("_buckets", "_count", "_highest")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._count = 0
        self._highest = 0.0

    def add(self, value: float) -> None:
        # Nothing has no logarithm: all that is next to it has a bucket of its own.
        bucket = math.ceil(math.log(value) / _LOG_GROWTH) if value > _SMALLEST else -1_000_000
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._count += 1
        self._highest = max(self._highest, value)

    def spread(self) -> Spread:
        """The usual quantiles."""
        return Spread(
            count=self._count,
            p50=self._quantile(0.50),
            p95=self._quantile(0.95),
            p99=self._quantile(0.99),
            highest=self._highest if self._count else None,
        )

    def _quantile(self, share: float) -> float | None:
        rank = math.ceil(share * self._count)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0 < self._count:
                middle = _GROWTH**bucket * 2 / (1 + _GROWTH) if bucket > -1_000_000 else 0.0
                # The middle of the last bucket may lie above all that was measured.
                return min(middle, self._highest)
        return None


class Distinct:
    """How many different names there were: exact up to 131,072 of them, then from the share that is still kept."""

    __slots__ = ("_kept", "_level")

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self._level = 0

    def add(self, name: str) -> None:
        if self._level and self._is_left_out(name):
            return
        self._kept.add(name)
        while len(self._kept) > _MAX_DISTINCT:
            self._level += 1
            self._kept = {each for each in self._kept if not self._is_left_out(each)}

    def count(self) -> int:
        return len(self._kept) << self._level

    def _is_left_out(self, name: str) -> bool:
        # A checksum and not `hash`, which differs from process to process: the same records have to give the same
        # figures.
        return bool(crc32(name.encode("utf-8", "replace")) & ((1 << self._level) - 1))


def draw(request_id: str, number: int, *, has_text: bool) -> int:
    """The lot of one candidate; whatever can be looked at comes before what cannot."""
    digest = blake2b(f"{request_id}:{number}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest) + (0 if has_text else _WITHOUT_TEXT)


class Chosen(Generic[T]):
    """The items with the lowest lots: a random choice that needs neither a second pass nor a generator."""

    __slots__ = ("_heap", "_order", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[int, int, T]] = []
        self._order = 0

    def wants(self, lot: int) -> bool:
        """Whether an item of that lot would be among the chosen; once refused, always refused."""
        return len(self._heap) < self._size or -self._heap[0][0] > lot

    def offer(self, lot: int, make: Callable[[], T]) -> None:
        """Take the item if its lot is low enough; only then is it made."""
        if not self.wants(lot):
            return
        self._order += 1
        # With the order of their coming, as items of one lot cannot be compared.
        entry = (-lot, self._order, make())
        if len(self._heap) < self._size:
            heappush(self._heap, entry)
        else:
            heapreplace(self._heap, entry)

    def items(self) -> list[T]:
        """The chosen, lowest lot first."""
        return [item for _, _, item in sorted(self._heap, key=lambda entry: (-entry[0], entry[1]))]


class Counts(Generic[T]):
    """Something per name for a bounded number of names; the names behind them share `other`."""

    __slots__ = ("_by_name", "_limit", "_make")

    def __init__(self, make: Callable[[], T], *, limit: int = 500) -> None:
        self._make = make
        self._limit = limit
        self._by_name: dict[str, T] = {}

    def at(self, name: str) -> T:
        found = self._by_name.get(name)
        if found is None:
            # The row that all others share may come late, and must not ask for itself.
            if len(self._by_name) >= self._limit and name != OTHER:
                return self.at(OTHER)
            found = self._by_name[name] = self._make()
        return found

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(self._by_name.items())

    def __len__(self) -> int:
        return len(self._by_name)
