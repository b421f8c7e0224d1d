"""A store whose failures are counted and told once."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar

import structlog
from attrs import define, field

from gateway.core.ports import BadRecord, Block, Counted, Glance, Meter, Store, StoreError, Written
from gateway.core.records import Brief, OutcomeRecord, Record, RequestRecord

__all__ = ["StoreTelemetry", "WatchedStore"]

R = TypeVar("R", bound=Record)
V = TypeVar("V")
Sort = Literal["read", "append", "write", "tally"]

FORGOTTEN_S = 10.0
"""A failure counts no longer when what failed was not tried again for so long; most things are, every second."""

log = structlog.get_logger("toolgate")


class StoreTelemetry(Meter, Protocol):
    """Metrics with gauges."""

    def set(self, name: str, labels: Mapping[str, str], value: float) -> None: ...


@define
class WatchedStore:
    """Does what the store in it does; `is_up` while no sort of operation has just failed."""

    _store: Store
    _telemetry: StoreTelemetry
    _now: Callable[[], float] = time.monotonic
    _failing: dict[Sort, float] = field(init=False, factory=dict)

    @property
    def is_up(self) -> bool:
        """The store answers."""
        return all(self._now() - failed_at >= FORGOTTEN_S for failed_at in self._failing.values())

    async def open(self) -> None:
        """Connect; create or migrate what is kept there."""
        with self._watch("read"):
            await self._store.open()

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def append(self, records: Sequence[Record]) -> None:
        """Keep all of these, or none."""
        with self._watch("append"):
            await self._store.append(records)

    async def scan(self, kind: type[R], *, since: float = 0.0, until: float = float("inf")) -> AsyncIterator[R]:
        """The records of a kind with `since <= at < until`, oldest first."""
        with self._watch("read"):
            async for record in self._store.scan(kind, since=since, until=until):
                yield record

    async def since(self, cursor: str, limit: int) -> list[Written[Record]]:
        """The next records of all kinds behind a cursor."""
        with self._watch("read"):
            return await self._store.since(cursor, limit)

    async def end(self) -> str:
        """The cursor behind all records that there are."""
        with self._watch("read"):
            return await self._store.end()

    async def latest(
        self, view: type[V], before: str, limit: int, holding: Collection[str] = (), glance: Glance | None = None
    ) -> list[Written[V]]:
        """The requests that were written last, the last one first."""
        with self._watch("read"):
            return await self._store.latest(view, before, limit, holding, glance)

    async def fared(self, keys: Collection[str]) -> list[OutcomeRecord] | None:
        """The outcomes of these conversations, where the store can find them."""
        with self._watch("read"):
            return await self._store.fared(keys)

    async def counted(self, since: float, add: Callable[[Brief, int], None]) -> Counted | None:
        """The requests since then, counted, where the store can count them."""
        with self._watch("read"):
            return await self._store.counted(since, add)

    async def find_answer(self, completion_id: str) -> RequestRecord | None:
        """The request kept last of those whose answer had this id."""
        with self._watch("read"):
            return await self._store.find_answer(completion_id)

    async def trim(self, *, before: float, max_bytes: int) -> int:
        """Forget records older than `before`, and the oldest ones while all take more room; says how many."""
        with self._watch("write"):
            return await self._store.trim(before=before, max_bytes=max_bytes)

    async def get(self, *keys: str) -> dict[str, bytes]:
        """The values of those keys that have one."""
        with self._watch("read"):
            return await self._store.get(*keys)

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> None:
        """Keep a value, for ever or for a while."""
        with self._watch("write"):
            await self._store.put(key, value, ttl_s=ttl_s)

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Put `new` if the value is still `old`."""
        with self._watch("write"):
            return await self._store.swap(key, old, new)

    async def tally(self, counts: Mapping[str, int], marks: Collection[str]) -> None:
        """Add counts and marks to the block of this second."""
        with self._watch("tally"):
            await self._store.tally(counts, marks)

    async def blocks(self, after: int) -> list[Block]:
        """The blocks behind number `after` that nobody adds to any more, oldest first."""
        with self._watch("tally"):
            return await self._store.blocks(after)

    def watch(self, hear: Callable[[], None]) -> Callable[[], None] | None:
        """Have `hear` called soon after another process may have written, where the store can tell."""
        return self._store.watch(hear)

    @contextmanager
    def _watch(self, sort: Sort) -> Iterator[None]:
        try:
            yield
        # A fault of one record's and not of the store's: nothing is wrong with where it would have been kept.
        except BadRecord:
            raise
        except StoreError as error:
            self._failed(sort, str(error))
            raise
        if self._failing.pop(sort, None) is not None:
            log.info("store_recovered", op=sort)
        self._telemetry.set("toolgate_shared_state_up", {}, float(self.is_up))

    def _failed(self, sort: Sort, fault: str) -> None:
        operation = "write" if sort == "append" else sort
        self._telemetry.count("toolgate_shared_state_errors_total", {"op": operation})
        if sort not in self._failing:
            log.warning("store_failed", op=sort, fault=fault)
        self._failing[sort] = self._now()
        self._telemetry.set("toolgate_shared_state_up", {}, 0)
