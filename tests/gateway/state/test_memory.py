"""What is particular to the store of one process: its bounds, its cursors, and what it cannot be asked."""

import pytest

from gateway.core.ports import Block
from gateway.core.records import LabelRecord, Record, RequestRecord
from gateway.state import memory
from gateway.state.blocks import BLOCK_SECONDS
from gateway.state.memory import MemoryStore


class Clock:
    """The time on the wall, as far as it is told to go."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def request(number: int, *, at: float | None = None, answer: str = "", body: str = "") -> RequestRecord:
    return RequestRecord(
        id=f"r{number}",
        at=float(number) if at is None else at,
        key="k",
        model="m",
        upstream="u",
        completion_id=answer or None,
        answer_text=body or None,
    )


async def ids(store: MemoryStore) -> list[str]:
    return [each.id async for each in store.scan(RequestRecord)]


async def test_records_are_in_the_order_of_their_time_whenever_they_came() -> None:
    store = MemoryStore()
    await store.append([request(3), request(1)])
    await store.append([request(2), request(9, at=2.0)])
    assert await ids(store) == ["r1", "r2", "r9", "r3"]
    assert [each.id async for each in store.scan(RequestRecord, since=2.0, until=3.0)] == ["r2", "r9"]


async def test_a_cursor_of_an_earlier_run_has_all_of_it_new() -> None:
    store = MemoryStore()
    await store.append([request(1), request(2)])
    assert await store.end() == "2"
    for cursor, count in (("", 2), ("0", 2), ("1", 1), ("2", 0), ("77", 2), ("-1", 2), ("٢", 2)):
        assert len(await store.since(cursor, 10)) == count, cursor
    (first,) = await store.since("", 1)
    assert first.cursor == "1"


async def test_too_much_is_brought_well_below_the_bound_by_the_oldest_of_all_kinds() -> None:
    store = MemoryStore(max_bytes=20_000)
    label = LabelRecord(at=0.5, request_id="r1", number=0, is_right=True)
    records: list[Record] = [request(number, body="x" * 1000) for number in range(1, 12)]
    await store.append([label, *records])
    assert len(await ids(store)) == 11
    await store.append([request(number, body="x" * 1000) for number in range(12, 30)])
    left = await ids(store)
    assert left[-1] == "r29"
    assert left[0] != "r1"
    assert [each async for each in store.scan(LabelRecord)] == []
    size = store._bytes
    assert 20_000 * 0.8 < size <= 20_000 * 0.9
    await store.append([request(30)])
    assert (await ids(store))[0] == left[0], "what stays below the bound stays"


async def test_an_answer_is_found_until_its_record_goes_and_the_last_of_an_id_counts() -> None:
    store = MemoryStore()
    await store.append([request(1, answer="a"), request(2, answer="b"), request(3, answer="a")])
    found = await store.find_answer("a")
    assert found is not None
    assert found.id == "r3"
    assert await store.trim(before=3.0, max_bytes=1 << 20) == 2
    assert await store.find_answer("b") is None
    found = await store.find_answer("a")
    assert found is not None, "a later answer has the same id"
    assert found.id == "r3"
    assert await store.trim(before=0.0, max_bytes=0) == 1
    assert await store.find_answer("a") is None


async def test_the_least_recently_written_value_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_VALUES", 3)
    store = MemoryStore()
    for key in ("a", "b", "c", "a"):
        await store.put(key, key.encode())
    assert await store.get("b") == {"b": b"b"}
    await store.put("d", b"d")
    assert await store.get("a", "b", "c", "d") == {"a": b"a", "c": b"c", "d": b"d"}


async def test_a_value_is_gone_at_its_time_and_not_before() -> None:
    clock = Clock()
    store = MemoryStore(wall=clock)
    await store.put("k", b"v", ttl_s=5.0)
    clock.now += 4.9
    assert await store.swap("k", b"v", b"w")
    assert await store.get("k") == {"k": b"w"}
    await store.put("k", b"v", ttl_s=5.0)
    clock.now += 5.0
    assert not await store.swap("k", b"v", b"w")
    assert await store.swap("k", None, b"x")


async def test_a_block_is_told_once_its_second_is_over() -> None:
    clock = Clock()
    store = MemoryStore(wall=clock)
    await store.tally({"a": 1}, {"one"})
    await store.tally({"a": 2, "b": 1}, {"two"})
    assert await store.blocks(0) == []
    clock.now += 1
    (block,) = await store.blocks(999)
    assert block == Block(number=1000, counts={"a": 3, "b": 1}, marks=frozenset({"one", "two"}))
    assert await store.blocks(1000) == []


async def test_blocks_are_kept_for_as_long_as_somebody_may_ask() -> None:
    clock = Clock()
    store = MemoryStore(wall=clock)
    await store.tally({"a": 1}, ())
    clock.now += BLOCK_SECONDS + 1
    await store.tally({"a": 1}, ())
    assert [*store._counts] == [*store._marks] == [1000 + BLOCK_SECONDS + 1]


async def test_what_other_stores_are_asked_is_not_known_here() -> None:
    store = MemoryStore()
    assert await store.fared(["k"]) is None
    assert await store.counted(0.0, lambda _brief, _count: None) is None
    stop = store.watch(lambda: None)
    assert stop is not None
    stop()


async def test_the_latest_requests_are_those_that_hold_all_that_is_asked_for() -> None:
    store = MemoryStore()
    await store.append([request(number, body=f"body {number % 2}") for number in range(1, 6)])

    async def latest(before: str, limit: int, *holding: str) -> list[str]:
        return [each.record.id for each in await store.latest(RequestRecord, before, limit, holding)]

    assert await latest("", 9) == ["r5", "r4", "r3", "r2", "r1"]
    assert await latest("4", 2) == ["r3", "r2"]
    assert await latest("", 9, "body 1") == ["r5", "r3", "r1"]
    assert await latest("", 9, "body 1", "r3") == ["r3"]
    assert await latest("", 9, "body 2") == []


async def test_nothing_more_goes_than_there_is() -> None:
    store = MemoryStore()
    await store.append([request(1)])
    assert await store.trim(before=0.0, max_bytes=-1) == 1
    assert await ids(store) == []
