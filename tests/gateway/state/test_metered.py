"""A store whose failures are counted."""

import pytest
from structlog.testing import capture_logs

from gateway.core.ports import BadRecord, Block, StoreError
from gateway.core.records import FeedbackRecord
from gateway.state.backoff import LONGEST_S, Pause
from gateway.state.metered import WatchedStore
from tests.support.stores import FailingStore, Gauges, rating


async def test_failures_are_counted_by_what_failed_and_the_gauge_follows():
    store, gauges = FailingStore(), Gauges()
    watched = WatchedStore(store, gauges)
    await watched.open()
    assert gauges.gauges["toolgate_shared_state_up"] == 1
    store.is_away = True
    for _ in range(2):
        with pytest.raises(StoreError):
            await watched.get("a")
    with pytest.raises(StoreError):
        await watched.append([rating(1.0)])
    assert gauges.counts["toolgate_shared_state_errors_total", "read"] == 2
    assert gauges.counts["toolgate_shared_state_errors_total", "write"] == 1
    store.is_away = False
    await watched.get("a")
    assert not watched.is_up
    assert gauges.gauges["toolgate_shared_state_up"] == 0
    await watched.append([rating(1.0)])
    assert watched.is_up
    assert gauges.gauges["toolgate_shared_state_up"] == 1


async def test_a_failure_is_told_once_and_so_is_its_end():
    store = FailingStore()
    watched = WatchedStore(store, Gauges())
    with capture_logs() as told:
        await watched.get("a")
        store.is_away = True
        for _ in range(3):
            with pytest.raises(StoreError):
                await watched.get("a")
        store.is_away = False
        for _ in range(3):
            await watched.get("a")
    assert [(line["event"], line["op"]) for line in told] == [("store_failed", "read"), ("store_recovered", "read")]
    assert told[0]["fault"] == "away"


async def test_what_failed_once_and_is_not_tried_again_is_no_fault_for_ever():
    store, gauges, now = FailingStore(), Gauges(), [0.0]
    watched = WatchedStore(store, gauges, lambda: now[0])
    store.is_away = True
    with pytest.raises(StoreError):
        await watched.put("a", b"1")
    store.is_away = False
    await watched.get("a")
    assert gauges.gauges["toolgate_shared_state_up"] == 0
    now[0] += 10
    await watched.get("a")
    assert gauges.gauges["toolgate_shared_state_up"] == 1


async def test_a_bad_record_is_no_failure_of_the_store():
    gauges = Gauges()
    watched = WatchedStore(FailingStore(), gauges)
    with pytest.raises(BadRecord):
        await watched.append([rating(float("inf"))])
    assert watched.is_up
    assert not gauges.counts


async def test_everything_else_is_passed_on():
    now = [5.0]
    store = FailingStore(wall=lambda: now[0])
    watched = WatchedStore(store, Gauges())
    await watched.append([rating(1.0)])
    assert [record async for record in watched.scan(FeedbackRecord)] == [rating(1.0)]
    assert await watched.find_answer("x") is None
    assert await watched.swap("a", None, b"1")
    await watched.put("b", b"2", ttl_s=1.0)
    assert await watched.get("a", "b") == {"a": b"1", "b": b"2"}
    await watched.tally({"n": 1}, ["m"])
    now[0] = 6.0
    assert await watched.blocks(0) == [Block(number=5, counts={"n": 1}, marks=frozenset("m"))]
    assert await watched.trim(before=2.0, max_bytes=0) == 1
    await watched.close()


def test_a_store_that_is_away_is_tried_by_one_after_a_while_that_grows():
    now = [0.0]
    pause = Pause(lambda: now[0])
    pause.check()
    for wait in (0.25, 0.5, 1.0, LONGEST_S, LONGEST_S):
        pause.failed()
        now[0] += wait - 0.01
        with pytest.raises(StoreError):
            pause.check()
        now[0] += 0.01
        pause.check()
        with pytest.raises(StoreError):
            pause.check()
    pause.succeeded()
    pause.check()
    pause.check()
