"""Records on their way to the store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.background import recorder as recorder_module
from gateway.background.recorder import Recorder
from gateway.core.ports import BadRecord, StoreError
from gateway.core.records import FeedbackRecord, Record, RequestRecord
from tests.support.cost import Pulse, steps
from tests.support.stores import FailingStore, Gauges, rating

StartRecorder = Callable[..., Awaitable[Recorder]]


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


@pytest.fixture
def gauges() -> Gauges:
    return Gauges()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing waits longer than a moment."""
    for name in ("GATHER_S", "STEADY_GATHER_S", "FIRST_RETRY_S", "LONGEST_RETRY_S"):
        monkeypatch.setattr(recorder_module, name, 0.001)


@pytest.fixture
async def start(store, gauges, no_leaks: None) -> AsyncIterator[StartRecorder]:
    running: list[asyncio.Task[None]] = []

    async def started(recorder: Recorder | None = None, **options: Any) -> Recorder:
        recorder = recorder or Recorder(store=store, telemetry=gauges, **options)
        running.append(asyncio.get_running_loop().create_task(recorder.run()))
        return recorder

    yield started
    for task in running:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def kept(store: FailingStore) -> list[float]:
    return [record.at async for record in store.scan(FeedbackRecord)]


async def test_what_is_put_is_written_in_batches(store, gauges, start):
    recorder = await start()
    for number in range(1234):
        recorder.put(rating(float(number)))
    assert await recorder.flush(5)
    assert await kept(store) == [float(number) for number in range(1234)]
    assert max(store.batches) == 500
    assert recorder.healthy
    assert recorder.lag_s == gauges.gauges["toolgate_store_lag_seconds"] == 0
    assert gauges.lost == {}


async def test_records_are_gathered_behind_a_full_batch_too(store, gauges, start, monkeypatch):
    monkeypatch.setattr(recorder_module, "GATHER_S", 0.2)
    recorder = await start()
    for number in range(500):
        recorder.put(rating(float(number)))
    async with asyncio.timeout(5):
        while store.batches != (500,):  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.001)
        recorder.put(rating(500.0))
        for _ in range(20):
            await asyncio.sleep(0)
        recorder.put(rating(501.0))
        while len(store.batches) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert store.batches == (500, 2)


async def test_records_put_before_it_runs_are_not_lost(store, gauges, start):
    recorder = Recorder(store=store, telemetry=gauges)
    recorder.put(rating(1.0))
    assert recorder.lag_s > 0
    await start(recorder)
    assert await recorder.flush(5)
    assert await kept(store) == [1.0]


async def test_a_full_queue_drops_the_new_and_counts_it(store, gauges):
    recorder = Recorder(store=store, telemetry=gauges, max_queue=3)
    for number in range(5):
        recorder.put(rating(float(number)))
    assert gauges.lost == {"queue_full": 2}


async def test_large_records_fill_the_queue_by_their_size(store, gauges, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_QUEUE_CHARS", 1000)
    recorder = Recorder(store=store, telemetry=gauges)
    for number in range(5):
        recorder.put(RequestRecord(id="r", at=float(number), key="", model="", upstream="", answer_text="x" * 400))
    recorder.put(rating(1.0))
    assert gauges.lost == {"queue_full": 3}


async def test_large_records_make_small_batches(store, gauges, start, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_BATCH_CHARS", 1000)
    recorder = await start()
    for number in range(6):
        recorder.put(RequestRecord(id="r", at=float(number), key="", model="", upstream="", answer_text="x" * 400))
    recorder.put(RequestRecord(id="r", at=7.0, key="", model="", upstream="", answer_text="x" * 4000))
    assert await recorder.flush(5)
    assert store.batches == (2, 2, 2, 1)


async def test_nothing_is_lost_while_the_store_is_away_for_a_moment(store, gauges, start):
    store.is_away = True
    recorder = await start()
    for number in range(700):
        recorder.put(rating(float(number)))
    assert not await recorder.flush(0.1)
    assert not recorder.healthy
    assert gauges.gauges["toolgate_store_lag_seconds"] > 0
    store.is_away = False
    assert await recorder.flush(5)
    assert await kept(store) == [float(number) for number in range(700)]
    assert recorder.healthy
    assert gauges.lost == {}


async def test_a_batch_that_failed_is_tried_again_unchanged(store, gauges, start, monkeypatch):
    tried: list[list[float]] = []

    async def fails_once(self: FailingStore, records: Sequence[Record]) -> None:
        tried.append([record.at for record in records])
        recorder.put(rating(2.0))
        if len(tried) == 3:
            monkeypatch.undo()
        raise StoreError("no answer")

    recorder = await start()
    monkeypatch.setattr(FailingStore, "append", fails_once)
    recorder.put(rating(1.0))
    assert await recorder.flush(5)
    assert tried == [[1.0]] * 3
    assert await kept(store) == [1.0, 2.0, 2.0, 2.0]


async def test_a_bad_record_costs_only_itself(store, gauges, start):
    recorder = await start()
    for number in range(10):
        recorder.put(rating(float("nan") if number in (0, 4, 9) else float(number)))
    assert await recorder.flush(5)
    assert await kept(store) == [1, 2, 3, 5, 6, 7, 8]
    assert gauges.lost == {"write_failed": 3}
    assert recorder.healthy


async def test_a_record_that_never_can_be_written_does_not_stop_the_others(store, gauges, start):
    store.refuses = frozenset({0.0, 300.0, 698.0})
    recorder = await start()
    for number in range(700):
        recorder.put(rating(float(number)))
    assert await recorder.flush(20)
    assert await kept(store) == [float(number) for number in range(700) if number not in store.refuses]
    assert gauges.lost == {"write_failed": 3}


@pytest.mark.parametrize("faults", [(ZeroDivisionError,), (BadRecord, ZeroDivisionError)])
async def test_a_store_with_a_fault_of_its_own_does_not_end_the_recorder(store, gauges, start, monkeypatch, faults):
    recorder = await start()
    left = list(faults)

    async def broken(self: FailingStore, records: object) -> None:
        fault = left.pop(0)
        if not left:
            monkeypatch.undo()
        raise fault

    monkeypatch.setattr(FailingStore, "append", broken)
    recorder.put(rating(1.0))
    assert await recorder.flush(5)
    assert await kept(store) == [1.0]


async def test_while_the_store_is_locked_the_metrics_say_what_waits_and_what_is_lost(store, gauges, start):
    """Of a store that another process holds: every record stands somewhere, or is told as lost."""
    recorder = await start(max_queue=50)
    store.is_away = True
    for number in range(70):
        recorder.put(rating(float(number)))
    async with asyncio.timeout(20):
        while gauges.gauges.get("toolgate_store_records_waiting") != 50:  # noqa: ASYNC110 - its own time must pass
            await asyncio.sleep(0.001)
    assert gauges.lost == {"queue_full": 20}
    store.is_away = False
    assert await recorder.flush(20)
    assert await kept(store) == [float(number) for number in range(50)]
    assert gauges.gauges["toolgate_store_records_waiting"] == 0


async def test_the_lag_is_the_age_of_the_oldest_record_that_waits(store, gauges, start, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(recorder_module, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 0.0))
    recorder = Recorder(store=store, telemetry=gauges)
    for at in (100.0, 107.0, 109.0):
        now[0] = at
        recorder.put(rating(at))
    now[0] = 110.0
    assert recorder.lag_s == 10.0
    monkeypatch.setattr(recorder_module, "MAX_BATCH", 1)
    recorder._most = 1
    told: list[float] = []

    def tell(_self: object, name: str, _labels: object, value: float) -> None:
        if name == "toolgate_store_lag_seconds":
            told.append(value)

    monkeypatch.setattr(type(gauges), "set", tell)
    await start(recorder)
    async with asyncio.timeout(20):
        while len(told) < 3:  # noqa: ASYNC110 - the recorder's own time must pass
            await asyncio.sleep(0.001)
    assert told == [3.0, 1.0, 0.0], "each writing leaves the next one the oldest"


async def test_closing_writes_what_is_there_and_takes_no_more(store, gauges, start):
    recorder = await start()
    recorder.put(rating(1.0))
    await recorder.close()
    recorder.put(rating(2.0))
    assert await kept(store) == [1.0]
    assert gauges.lost == {"queue_full": 1}


async def test_closing_without_a_store_counts_what_is_lost(store, gauges, start):
    store.is_away = True
    recorder = await start()
    for number in range(7):
        recorder.put(rating(float(number)))
    async with Pulse() as pulse:
        await recorder.close(0.05)
    assert pulse.seconds < 1
    assert gauges.lost == {"write_failed": 7}
    assert recorder.lag_s == 0


async def test_of_several_processes_one_trims(store, gauges, start, monkeypatch):
    monkeypatch.setattr(recorder_module, "_TRIM_LOOK_S", 0.001)
    trims: list[float] = []

    async def trim(self: FailingStore, *, before: float, max_bytes: int) -> int:
        trims.append(before)
        return 0

    monkeypatch.setattr(FailingStore, "trim", trim)
    now = [1000.0]
    for _ in range(3):
        await start(wall=lambda: now[0], retention_s=100.0)
    store.is_away = True
    await asyncio.sleep(0.02)
    store.is_away = False

    async def trimmed(times: int) -> None:
        async with asyncio.timeout(30):
            while len(trims) < times:  # noqa: ASYNC110 - the recorder's own time must pass
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(trims) == times, "once is enough"

    await trimmed(1)
    now[0] += 301
    await trimmed(2)
    assert trims == [900.0, 1201.0]
    await store.put("trimmed_at", b"rubbish")
    await trimmed(3)


async def test_putting_takes_few_steps(store, gauges):
    recorder = Recorder(store=store, telemetry=gauges)
    record = RequestRecord(id="r", at=1.0, key="", model="", upstream="")

    def put() -> None:
        for _ in range(10_000):
            recorder.put(record)

    assert steps(put, most=10_000 * 30)
