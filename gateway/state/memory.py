"""The store of one process alone: everything is gone with it. Bounded, so that it can stand in for a real one."""

import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import takewhile
from typing import TypeVar

from attrs import define, field, frozen

from gateway.core.ports import Block, Counted, Glance, Written
from gateway.core.records import RECORDS, Brief, OutcomeRecord, Record, RequestRecord
from gateway.state.blocks import BLOCK_SECONDS, MAX_BLOCKS, behind, current
from gateway.state.record_codec import KINDS, Packed, kind_of, pack, unpack, view_of

__all__ = ["MemoryStore"]

R = TypeVar("R", bound=Record)
V = TypeVar("V")

MAX_BYTES = 64 << 20
MAX_VALUES = 100_000
# What the objects around a body take in CPython, about: without it small records would outgrow the bound.
_OVERHEAD_BYTES = 200
_KEPT_PERCENT = 90
"""What overflowed is brought well below its bound, as each forgetting moves all that is kept."""


@frozen(order=True)
class _Kept:
    at: float
    number: int
    body: bytes = field(order=False)
    completion_id: str | None = field(order=False, default=None)

    @property
    def size(self) -> int:
        return len(self.body) + _OVERHEAD_BYTES


@frozen
class _Value:
    value: bytes
    until: float


@define(kw_only=True)
class MemoryStore:
    """Keeps to this process; `wall` tells the seconds since the epoch."""

    max_bytes: int = MAX_BYTES
    wall: Callable[[], float] = time.time
    _records: dict[str, list[_Kept]] = field(init=False, factory=lambda: {kind: [] for kind in KINDS})
    _answers: dict[str, _Kept] = field(init=False, factory=dict)
    _values: OrderedDict[str, _Value] = field(init=False, factory=OrderedDict)
    _counts: dict[int, dict[str, int]] = field(init=False, factory=dict)
    """By the block's number, in rising order."""
    _marks: dict[int, set[str]] = field(init=False, factory=dict)
    _appended: int = field(init=False, default=0)
    _bytes: int = field(init=False, default=0)

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """What was kept stays, for who still holds the store."""

    async def append(self, records: Sequence[Record]) -> None:
        """Keep all of these, or none."""
        for packed in pack(records):
            self._add(packed)
        if self._bytes > self.max_bytes:
            # Behind all of them: who appends many at once must not see its own first ones go before the last is in.
            self._shrink(self.max_bytes * _KEPT_PERCENT // 100)

    async def scan(self, kind: type[R], *, since: float = 0.0, until: float = float("inf")) -> AsyncIterator[R]:
        """The records of a kind with `since <= at < until`, oldest first."""
        kept = self._records[kind_of(kind)]
        begin, end = (bisect_left(kept, at, key=lambda one: one.at) for at in (since, until))
        for one in kept[begin:end]:
            record = unpack(kind, one.body)
            if record is not None:
                yield record

    async def since(self, cursor: str, limit: int) -> list[Written[Record]]:
        """The next records of all kinds behind a cursor, in the order in which they were written."""
        after = int(cursor) if cursor.isascii() and cursor.isdecimal() else 0
        # A cursor of an earlier run of the process: numbers began anew, and all that is here is new to its holder.
        after = after if after <= self._appended else 0
        behind_it = ((kept, kind) for kind in KINDS for kept in self._records[kind] if kept.number > after)
        found = nsmallest(limit, behind_it, key=lambda each: each[0].number)
        records = [(kept.number, unpack(RECORDS[kind], kept.body)) for kept, kind in found]
        return [Written(str(number), record) for number, record in records if record is not None]

    async def end(self) -> str:
        """The cursor behind all records that there are."""
        return str(self._appended)

    async def latest(
        self, view: type[V], before: str, limit: int, holding: Collection[str] = (), glance: Glance | None = None
    ) -> list[Written[V]]:
        """The requests that were written last, the last one first."""
        until = int(before) if before.isascii() and before.isdecimal() else self._appended + 1
        texts = [text.encode("utf-8", "replace") for text in holding]
        wanted = (
            kept
            for kept in self._records["requests"]
            if kept.number < until and all(text in kept.body for text in texts)
        )
        found = nlargest(limit, wanted, key=lambda kept: kept.number)
        return [Written(str(kept.number), each) for kept in found if (each := view_of(view, kept.body)) is not None]

    async def fared(self, keys: Collection[str]) -> list[OutcomeRecord] | None:
        """There is nothing to find them by."""
        return None

    async def counted(self, since: float, add: Callable[[Brief, int], None]) -> Counted | None:
        """There is nothing to count by."""
        return None

    async def find_answer(self, completion_id: str) -> RequestRecord | None:
        """The request kept last of those whose answer had this id."""
        kept = self._answers.get(completion_id)
        return None if kept is None else unpack(RequestRecord, kept.body)

    async def trim(self, *, before: float, max_bytes: int) -> int:
        """Forget records older than `before`, and the oldest ones while all take more room; says how many."""
        old = sum(
            self._forget(kind, bisect_left(self._records[kind], before, key=lambda one: one.at)) for kind in KINDS
        )
        return old + self._shrink(max_bytes)

    async def get(self, *keys: str) -> dict[str, bytes]:
        """The values of those keys that have one."""
        found = ((key, self._value(key)) for key in keys)
        return {key: value for key, value in found if value is not None}

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> None:
        """Keep a value, for ever or for a while."""
        until = float("inf") if ttl_s is None else self.wall() + ttl_s
        self._values[key] = _Value(value, until)
        # The least recently written goes first where there are too many; a look does not count.
        self._values.move_to_end(key)
        if len(self._values) > MAX_VALUES:
            self._values.popitem(last=False)

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Put `new` if the value is still `old`."""
        if self._value(key) != old:
            return False
        await self.put(key, new)
        return True

    async def tally(self, counts: Mapping[str, int], marks: Collection[str]) -> None:
        """Add counts and marks to the block of this second."""
        number = current(int(self.wall()), next(reversed(self._counts), 0))
        # The clock was set back by more than can be waited for.
        while (last := next(reversed(self._counts), number)) > number:
            del self._counts[last], self._marks[last]
        block = self._counts.setdefault(number, {})
        for name, count in counts.items():
            block[name] = block.get(name, 0) + count
        self._marks.setdefault(number, set()).update(marks)
        # Kept for as long as somebody may ask for a block late, and no longer.
        while (first := next(iter(self._counts))) < number - BLOCK_SECONDS:
            del self._counts[first], self._marks[first]

    async def blocks(self, after: int) -> list[Block]:
        """The blocks behind number `after` that nobody adds to any more, oldest first."""
        now = int(self.wall())
        after = behind(after, now)
        # From the end, as only the last few are wanted and all are kept in rising order.
        last_first = takewhile(lambda number: number > after, reversed(self._counts))
        closed = [number for number in last_first if number < now]
        return [
            Block(number=number, counts=dict(self._counts[number]), marks=frozenset(self._marks[number]))
            for number in closed[::-1][:MAX_BLOCKS]
        ]

    def watch(self, hear: Callable[[], None]) -> Callable[[], None] | None:
        """There is no other process."""
        return lambda: None

    def _add(self, packed: Packed) -> None:
        self._appended += 1
        kept = _Kept(packed.at, self._appended, packed.body, packed.completion_id)
        records = self._records[packed.kind]
        if not records or records[-1].at <= kept.at:  # nearly always
            records.append(kept)
        else:
            insort(records, kept, key=lambda one: one.at)
        if packed.completion_id is not None:
            self._answers[packed.completion_id] = kept
        self._bytes += kept.size

    def _shrink(self, max_bytes: int) -> int:
        """Forget the oldest of all kinds until they fit."""
        over = self._bytes - max_bytes
        doomed = dict.fromkeys(KINDS, 0)
        while over > 0:
            # The oldest of all, whatever its kind: kinds with few records would else be kept for ever or lost at once.
            kind = min(KINDS, key=lambda kind: self._at(kind, doomed[kind]))
            if doomed[kind] == len(self._records[kind]):
                break
            over -= self._records[kind][doomed[kind]].size
            doomed[kind] += 1
        return sum(self._forget(kind, count) for kind, count in doomed.items())

    def _at(self, kind: str, place: int) -> float:
        kept = self._records[kind]
        return kept[place].at if place < len(kept) else float("inf")

    def _forget(self, kind: str, count: int) -> int:
        kept = self._records[kind]
        for one in kept[:count]:
            self._bytes -= one.size
            # Not where a later answer had the same id: that one is still here.
            if one.completion_id is not None and self._answers.get(one.completion_id) is one:
                del self._answers[one.completion_id]
        del kept[:count]
        return count

    def _value(self, key: str) -> bytes | None:
        kept = self._values.get(key)
        if kept is None:
            return None
        if kept.until <= self.wall():
            del self._values[key]
            return None
        return kept.value
