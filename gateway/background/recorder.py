"""Records on their way to the store, off the request's path: put into a bounded queue, written in batches.

A record leaves the queue when it is written or given up, so that the queue's bound holds for those under way, too. A
batch that failed is tried again unchanged, since the store may have written it without being able to say so. Only if
that goes on are batches made smaller, down to the one record that may be the reason; it is given up once others were
written while it was not.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

import structlog
from attrs import define, field
from msgspec import Struct

from gateway.core.ports import BadRecord, Store, StoreError
from gateway.core.records import Record, RequestRecord
from gateway.state.metered import StoreTelemetry

__all__ = ["Recorder"]

MAX_BATCH = 500
# Records may hold whole requests: a batch of five hundred of them would lock the store for seconds.
MAX_BATCH_CHARS = 4 << 20
# What a store that is away may cost in memory.
MAX_QUEUE_CHARS = 64 << 20
GATHER_S = 0.2
STEADY_GATHER_S = 0.5
"""While records come all the time: each batch costs a transaction, and threads that take turns."""
STEADY_S = 1.0
"""So soon behind a batch the next one is of the same time."""
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 1.0
PATIENT_TRIES = 10
TRIM_PERIOD_S = 300.0
_TRIM_LOOK_S = 60.0
_TRIMMED = "trimmed_at"

log = structlog.get_logger("toolgate")


class _Waiting(Struct, eq=False):
    since: float
    chars: int
    record: Record
    suspected_at: int | None = None
    """How many had been written when it failed alone."""


@define(kw_only=True)
class Recorder:
    """Takes records without waiting; `run` writes them, and has old ones forgotten."""

    store: Store
    telemetry: StoreTelemetry
    retention_s: float = 14 * 86400.0
    max_bytes: int = 1 << 30
    max_queue: int = 10_000
    wall: Callable[[], float] = time.time
    is_store_up: Callable[[], bool] = lambda: True
    """Whether others who use the store find it there."""
    _queue: deque[_Waiting] = field(init=False, factory=deque)
    _chars: int = field(init=False, default=0)
    _accepted: int = field(init=False, default=0)
    _done: int = field(init=False, default=0)
    _written: int = field(init=False, default=0)
    _wrote_at: float = field(init=False, default=-STEADY_S)
    _failures: int = field(init=False, default=0)
    _most: int = field(init=False, default=MAX_BATCH)
    _again: list[_Waiting] = field(init=False, factory=list)
    _is_hasty: bool = field(init=False, default=False)
    _is_closed: bool = field(init=False, default=False)
    _some: asyncio.Event = field(init=False, factory=asyncio.Event)
    _enough: asyncio.Event = field(init=False, factory=asyncio.Event)
    _progress: asyncio.Condition = field(init=False, factory=asyncio.Condition)

    def put(self, record: Record) -> None:
        """Have a record written, some time; what finds no room is dropped and counted."""
        # Most records have no texts: they are not measured, as every request waits for this.
        is_short = isinstance(record, RequestRecord) and not (record.calls or record.request_body or record.answer_text)
        chars = 0 if is_short else _chars(record)
        # The newest is dropped, not the oldest: those before it may be in a batch that is being written.
        if self._is_closed or len(self._queue) >= self.max_queue or self._chars + chars > MAX_QUEUE_CHARS:
            self._lose("queue_full", 1)
            return
        self._queue.append(_Waiting(time.monotonic(), chars, record))
        self._chars += chars
        self._accepted += 1
        if self._failures:  # nobody writes, who would tell it otherwise
            self._tell_waiting()
        if len(self._queue) == 1:  # else it is set
            self._some.set()
        if len(self._queue) >= MAX_BATCH:
            self._enough.set()

    @property
    def lag_s(self) -> float:
        """Age of the oldest record that waits."""
        return time.monotonic() - self._queue[0].since if self._queue else 0.0

    @property
    def healthy(self) -> bool:
        """The last writing succeeded, and nothing else speaks against the next one."""
        return not self._failures and self.is_store_up()

    async def run(self) -> None:
        """Write what comes and trim what is old, until cancelled; `close` first."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write(), name="recorder-write")
            tasks.create_task(self._trim(), name="recorder-trim")

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all that was put before is written or given up; whether it was in time."""
        wanted = self._accepted
        # Who waits for all to be written must not wait for a batch to become full.
        self._is_hasty = True
        self._enough.set()
        try:
            async with asyncio.timeout(timeout_s), self._progress:
                await self._progress.wait_for(lambda: self._done >= wanted)
        except TimeoutError:
            return False
        finally:
            self._is_hasty = False
        return True

    async def close(self, timeout_s: float = 5.0) -> None:
        """Take no more, write what is there as far as the time allows, and count the rest as lost."""
        self._is_closed = True
        await self.flush(timeout_s)
        if self._queue:
            self._lose("write_failed", len(self._queue))
            await self._take_off(len(self._queue))

    async def _write(self) -> None:
        while True:
            await self._some.wait()
            await self._gather()
            # Unchanged after a failure: the store knows a batch that it has by its digest.
            batch = self._again or self._batch()
            self._again = []
            self._tell_waiting()  # before as well: a store that is locked takes seconds to say so
            try:
                is_written = await self._write_batch(batch)
            except Exception as error:  # noqa: BLE001 - nobody else would write the records that follow
                log.error("recorder_failed", fault=type(error).__name__)
                is_written = False
            self.telemetry.set("toolgate_store_lag_seconds", {}, self.lag_s)
            self._tell_waiting()
            if not is_written:
                await self._failed(batch)

    def _tell_waiting(self) -> None:
        self.telemetry.set("toolgate_store_records_waiting", {}, len(self._queue))

    async def _gather(self) -> None:
        """Give more records the time to come."""
        # While writing fails, the pauses between the tries gather enough.
        if len(self._queue) >= MAX_BATCH or self._is_hasty or self._failures:
            return
        self._enough.clear()
        try:
            is_steady = time.monotonic() - self._wrote_at < STEADY_S
            async with asyncio.timeout(STEADY_GATHER_S if is_steady else GATHER_S):
                await self._enough.wait()
        except TimeoutError:
            return

    def _batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        chars = 0
        for waiting in islice(self._queue, self._most):
            chars += waiting.chars
            # One that is larger than a batch goes alone: nothing behind it would ever be written otherwise.
            if batch and chars > MAX_BATCH_CHARS:
                break
            batch.append(waiting)
        return batch

    async def _write_batch(self, batch: list[_Waiting]) -> bool:
        try:
            await self.store.append([waiting.record for waiting in batch])
        except BadRecord:
            return await self._write_singly(batch)
        except StoreError:
            self._again = batch
            return False
        await self._wrote(len(batch))
        return True

    async def _write_singly(self, batch: list[_Waiting]) -> bool:
        """One of these is bad: write the others."""
        for waiting in batch:
            try:
                await self.store.append([waiting.record])
            except BadRecord as error:
                log.warning("record_lost", fault=str(error))
                self._lose("write_failed", 1)
                await self._take_off(1)
            except StoreError:
                return False
            else:
                await self._wrote(1)
        return True

    async def _wrote(self, count: int) -> None:
        self._failures, self._wrote_at = 0, time.monotonic()
        self._written += count
        # Back to large ones step by step, as the one that did harm may be among the next.
        self._most = min(MAX_BATCH, 2 * self._most)
        await self._take_off(count)

    async def _failed(self, batch: list[_Waiting]) -> None:
        self._failures += 1
        # So long all of them may fail by the store's own fault; only then one of them is suspected.
        if self._failures >= PATIENT_TRIES:
            self._again = []
            if self._most == 1:
                await self._suspect_it(batch[0])
            self._most = max(1, self._most // 2)
        await asyncio.sleep(min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(self._failures - 1, 8)))

    async def _suspect_it(self, waiting: _Waiting) -> None:
        """It failed alone: let the others go first, and give it up if they could be written."""
        # Of a batch that was written in part it may have left the queue.
        if not self._queue or self._queue[0] is not waiting:
            return
        if waiting.suspected_at is None:
            waiting.suspected_at = self._written
        if waiting.suspected_at < self._written:
            self._lose("write_failed", 1)
            await self._take_off(1)
        else:
            self._queue.rotate(-1)

    async def _take_off(self, count: int) -> None:
        for _ in range(min(count, len(self._queue))):
            self._chars -= self._queue.popleft().chars
            self._done += 1
        if not self._queue:
            self._some.clear()
        async with self._progress:
            self._progress.notify_all()

    def _lose(self, reason: str, count: int) -> None:
        self.telemetry.count("toolgate_store_records_lost_total", {"reason": reason}, count)

    async def _trim(self) -> None:
        """Of all processes one does it: who first writes down that he does."""
        while True:
            await asyncio.sleep(_TRIM_LOOK_S)
            try:
                if await self._is_mine_to_trim():
                    await self.trim()
            except StoreError:
                continue
            except Exception:
                log.exception("trim_failed")

    async def trim(self) -> int:
        """Have the store forget what is too old or too much; says how many records."""
        return await self.store.trim(before=self.wall() - self.retention_s, max_bytes=self.max_bytes)

    async def _is_mine_to_trim(self) -> bool:
        now = self.wall()
        last = (await self.store.get(_TRIMMED)).get(_TRIMMED)
        # `abs`: a clock that was set back must not keep everybody from trimming for hours.
        if last is not None and abs(now - _number(last)) < TRIM_PERIOD_S:
            return False
        return await self.store.swap(_TRIMMED, last, repr(now).encode())


def _number(raw: bytes) -> float:
    try:
        return float(raw)
    except ValueError:
        # What nobody can read stands for never: the next trim puts a time there.
        return 0.0


def _chars(record: Record) -> int:
    """About how much room a record takes, as far as texts of any length are in it."""
    if not isinstance(record, RequestRecord):
        return 0
    texts = len(record.request_body or "") + len(record.answer_text or "")
    for call in record.calls:
        texts += len(call.before) + len(call.after) + sum(map(len, call.reasons))
    return texts
