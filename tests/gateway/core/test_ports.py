"""What every store promises, whatever it is made of."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.ports import BadRecord, Block, Store, StoreError
from gateway.core.records import (
    RECORDS,
    CallRecord,
    DecisionRecord,
    FeedbackRecord,
    LabelRecord,
    OutcomeRecord,
    Record,
    RequestRecord,
)
from gateway.state.memory import MemoryStore
from gateway.state.redis import RedisStore
from gateway.state.sqlite import SqliteStore
from tests.support.stores import RedisServer, needs_redis
from tests.support.week import evolve

KINDS = ["memory", "sqlite", pytest.param("redis", marks=needs_redis)]
SHARED = KINDS[1:]
R = TypeVar("R")
OpenStore = Callable[[], Awaitable[Store]]

RACE = """
import asyncio, sys
from gateway.state.opening import open_store

async def race(url, key, rounds):
    store = open_store(url, prefix="toolgate:", timeout_ms=5000)
    await store.open()
    won = 0
    for number in range(rounds):
        won += await store.swap(f"{key}{number}", None, b"mine")
    await store.close()
    print(won)

asyncio.run(race(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where the store under test is."""
    match request.param:
        case "redis":
            server = await RedisServer(tmp_path).start()
            yield server.url
            await server.close()
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'store.db'}"
        case _:
            yield "memory://"


@pytest.fixture
async def open_store(address: str, no_leaks: None) -> AsyncIterator[OpenStore]:
    """Opens the store once more, as another process would."""
    opened: list[Store] = []

    async def open_once_more() -> Store:
        store = _made(address)
        opened.append(store)
        await store.open()
        return store

    yield open_once_more
    for store in opened:
        await store.close()


def _made(address: str) -> Store:
    if address == "memory://":
        return MemoryStore()
    if address.startswith("unix"):
        return RedisStore(address, timeout_s=2.0)
    return SqliteStore(Path(address.removeprefix("sqlite:///")), timeout_s=2.0)


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


every_store = pytest.mark.parametrize("address", KINDS, indirect=True)
shared_stores = pytest.mark.parametrize("address", SHARED, indirect=True)


def a_request(at: float = 1.0, **fields: Any) -> RequestRecord:
    return evolve(RequestRecord(id=f"r{at}", at=at, key="k", model="m", upstream="u"), **fields)


def an_outcome(at: float, key: str, outcome: Any) -> OutcomeRecord:
    return OutcomeRecord(at=at, key=key, arm="live", strategy="s", dialect="d", epoch=0, outcome=outcome)


def a_rating(at: float, completion_id: str = "c") -> FeedbackRecord:
    return FeedbackRecord(at=at, completion_id=completion_id, rating="good")


async def all_of(found: AsyncIterator[R]) -> list[R]:
    return [one async for one in found]


ALL_KINDS: tuple[Record, ...] = (
    a_request(
        calls=(CallRecord(number=0, dialect="hermes", tool="t", score=97, decision="delivered", stage="sent"),),
        usage={"prompt_tokens": 3},
        noise=False,
        answer_text="\x00 </x> \U0001f600",
    ),
    OutcomeRecord(at=1.0, key="k", arm="live", strategy="s", dialect="d", epoch=3, outcome="rejected"),
    a_rating(1.0),
    LabelRecord(at=1.0, request_id="r", number=0, is_right=True),
    DecisionRecord(
        at=1.0, decision="hold", reason="r", by="b", epoch=1, state_before="a", state_after="b", numbers={"x": 0.5}
    ),
)


@every_store
async def test_every_kind_of_record_comes_back(store):
    await store.append(ALL_KINDS)
    for record in ALL_KINDS:
        assert await all_of(store.scan(type(record))) == [record]


@every_store
async def test_records_come_in_the_order_of_their_own_time(store):
    await store.append([a_rating(3.0), a_rating(1.0)])
    await store.append([a_rating(2.0), a_rating(0.5)])
    assert [record.at for record in await all_of(store.scan(FeedbackRecord))] == [0.5, 1.0, 2.0, 3.0]


@every_store
async def test_a_scan_has_its_beginning_and_not_its_end(store):
    await store.append([a_rating(at) for at in (1.0, 2.0, 2.5, 3.0)])
    found = await all_of(store.scan(FeedbackRecord, since=2.0, until=3.0))
    assert [record.at for record in found] == [2.0, 2.5]


@every_store
@pytest.mark.parametrize("count", [199, 200, 201, 650])
async def test_no_page_of_a_scan_loses_or_repeats_a_record(store, count):
    ratings = [a_rating(float(number // 250), str(number)) for number in range(count)]  # many at the same time
    await store.append(ratings)
    found = await all_of(store.scan(FeedbackRecord))
    assert sorted(found, key=lambda record: int(record.completion_id)) == ratings


async def read_on(store: Store, cursor: str, limit: int) -> tuple[list[Record], str]:
    """Everything behind the cursor, a page after the other."""
    found: list[Record] = []
    while page := await store.since(cursor, limit):
        assert len(page) <= limit
        found += [each.record for each in page]
        cursor = page[-1].cursor
    return found, cursor


@every_store
@pytest.mark.parametrize("limit", [1, 7, 500])
async def test_what_was_written_since_a_cursor_comes_in_the_order_of_writing(store, limit):
    assert await store.since("", 10) == []
    first = [a_request(9.0), a_request(3.0), a_rating(5.0), a_request(1.0)]
    await store.append(first)
    found, cursor = await read_on(store, "", limit)
    assert [each for each in found if isinstance(each, RequestRecord)] == [first[0], first[1], first[3]]
    assert (len(found), await store.since(cursor, limit)) == (4, [])
    assert await store.end() == cursor
    await store.append([a_request(2.0), a_rating(2.0)])
    more, _ = await read_on(store, cursor, limit)
    assert more == [a_request(2.0), a_rating(2.0)]


@every_store
async def test_every_record_of_a_page_has_a_cursor_to_go_on_from(store):
    await store.append([a_request(float(at)) for at in range(20)])
    page = await store.since("", 20)
    for number, written in enumerate(page):
        behind_it, _ = await read_on(store, written.cursor, 6)
        assert behind_it == [each.record for each in page[number + 1 :]]


@every_store
@pytest.mark.parametrize("cursor", ["x", "9" * 30, "-", "1.2.3.4.5.6.7", "\x00", "99999.1.1.1.1", "é.."])
async def test_a_cursor_that_stands_nowhere_fails_nothing(store, cursor):
    await store.append([a_request(1.0)])
    assert len(await store.since(cursor, 10)) <= 1
    assert len(await store.latest(RequestRecord, cursor, 10)) <= 1


@every_store
async def test_a_store_that_was_emptied_is_read_from_its_beginning(store):
    await store.append([a_request(float(at)) for at in range(5)])
    _, cursor = await read_on(store, "", 10)
    await store.trim(before=100.0, max_bytes=1 << 30)
    await store.append([a_request(200.0)])
    assert [each.record.at for each in await store.since(cursor, 10)] == [200.0]


@every_store
@pytest.mark.parametrize("count", [0, 1, 199, 200, 450])
async def test_the_latest_requests_come_page_by_page_and_none_twice(store, count):
    await store.append([a_request(float(at), model="qwen" if at % 3 else "llama") for at in range(count)])
    seen, before = [], ""
    while page := await store.latest(RequestRecord, before, 100):
        seen += [each.record.at for each in page]
        before = page[-1].cursor
    assert seen == [float(at) for at in reversed(range(count))]
    llamas = await store.latest(RequestRecord, "", 1000, ('"model":"llama"',))
    assert [each.record.at for each in llamas] == [at for at in seen if not at % 3]
    assert await store.latest(RequestRecord, "", 10, ('"model":"nobody"',)) == []


@every_store
async def test_a_store_that_can_find_or_count_does_it_right(store):
    """Others say that they cannot, and are asked for the records."""
    told: list[tuple[str, int]] = []
    await store.append([a_request(float(at), key=f"k{at % 3}", tools=at % 4, overhead_s=at / 100) for at in range(40)])
    fared = [an_outcome(at, f"k{at % 2}", "accepted" if at < 30 else "rejected") for at in (1, 2, 3, 30, 31)]
    await store.append([*fared, an_outcome(32, "nobody", "rejected"), an_outcome(39, "k2", "no_tool_used")])
    found = await store.fared(["k0", "k1"])
    counted = await store.counted(4.0, lambda brief, many: told.append((brief.model, many)))
    if found is not None:
        assert found == fared
    if counted is None:
        assert told == []
        return
    assert told == [("m", 27)]
    assert (counted.conversations, counted.added_s) == (3, 0.38)
    assert sorted(counted.fared) == [("live", "no_tool_used", 1), ("live", "rejected", 3)]
    assert counted.rejected == [("m", 2)]


@every_store
async def test_appending_nothing_is_allowed(store):
    await store.append([])
    assert await all_of(store.scan(RequestRecord)) == []


@every_store
async def test_a_batch_with_a_bad_record_is_not_kept_at_all(store):
    with pytest.raises(BadRecord):
        await store.append([a_rating(1.0), a_rating(float("nan"))])
    assert await all_of(store.scan(FeedbackRecord)) == []


@every_store
@pytest.mark.parametrize(
    "fields", [{"usage": {"n": object()}}, {"usage": {"\ud800": object()}}, {"model": 7, "key": "\ud800"}]
)
async def test_what_is_no_proper_record_is_told_from_a_store_that_fails(store, fields):
    with pytest.raises(BadRecord):
        await store.append([a_request(**fields)])
    await store.append([a_request(1.0)])
    assert await all_of(store.scan(RequestRecord)) == [a_request(1.0)]


@every_store
async def test_half_a_surrogate_pair_costs_one_character(store):
    await store.append([a_request(answer_text="a\ud800b", completion_id="c\udfff", usage={"\ud800": 1})])
    [found] = await all_of(store.scan(RequestRecord))
    assert found.answer_text == "a?b"
    assert found.usage == {"?": 1}


@every_store
async def test_numbers_of_a_decision_that_json_cannot_say_stay_readable(store):
    decision = ALL_KINDS[4]
    assert isinstance(decision, DecisionRecord)
    decision = evolve(decision, numbers={"a": float("inf"), "b": float("-inf"), "c": float("nan"), "d": 1.0})
    await store.append([decision])
    [found] = await all_of(store.scan(DecisionRecord))
    assert found.numbers.keys() == {"a", "b", "d"}
    assert found.numbers["a"] > 1e300 > -1e300 > found.numbers["b"]


@every_store
async def test_the_last_request_with_an_answers_id_is_found(store):
    await store.append([a_request(2.0, completion_id="x"), a_request(3.0, completion_id="y")])
    await store.append([a_request(1.0, completion_id="x")])
    found = [await store.find_answer(name) for name in ("x", "y", "z", "", "\ud800")]
    assert [record and record.at for record in found] == [1.0, 3.0, None, None, None]


@every_store
async def test_old_records_are_forgotten(store):
    await store.append([a_rating(at) for at in (1.0, 2.0, 3.0)])
    await store.append([a_request(1.5, completion_id="x"), a_request(2.0)])
    assert await store.trim(before=2.0, max_bytes=1 << 30) == 2
    assert [record.at for record in await all_of(store.scan(FeedbackRecord))] == [2.0, 3.0]
    assert [record.at for record in await all_of(store.scan(RequestRecord))] == [2.0]
    assert await store.find_answer("x") is None


@every_store
async def test_the_oldest_records_go_when_all_take_too_much_room(store):
    text = "x" * 2000
    await store.append([a_request(float(at), answer_text=text) for at in range(1000)])
    await store.append([a_rating(0.5), a_rating(2000.0)])
    forgotten = await store.trim(before=0.0, max_bytes=1_000_000)
    kept = [record.at for record in await all_of(store.scan(RequestRecord))]
    assert 100 < len(kept) < 500
    assert kept == [float(at) for at in range(1000 - len(kept), 1000)]
    assert [record.at for record in await all_of(store.scan(FeedbackRecord))] == [2000.0]
    assert forgotten == 1002 - len(kept) - 1
    assert await store.trim(before=0.0, max_bytes=1_000_000) == 0


@every_store
async def test_an_empty_store_that_is_too_large_is_left_alone(store):
    assert await store.trim(before=1e12, max_bytes=0) == 0


@every_store
async def test_values_come_back_and_missing_ones_do_not(store):
    await store.put("a", b"\x00\xff")
    await store.put("\ud800", b"")
    await store.put("a", b"2")
    assert await store.get("a", "b", "\ud800") == {"a": b"2", "\ud800": b""}
    assert await store.get() == {}


@every_store
async def test_a_value_lives_as_long_as_it_was_given(store):
    await store.put("short", b"1", ttl_s=0.05)
    await store.put("long", b"2", ttl_s=60)
    await store.put("freed", b"3", ttl_s=0.05)
    await store.put("freed", b"3")
    async with asyncio.timeout(5):
        while "short" in (found := await store.get("short", "long", "freed")):  # noqa: ASYNC110 - time must pass
            await asyncio.sleep(0.01)
    assert found == {"long": b"2", "freed": b"3"}
    assert await store.swap("short", None, b"4")


@every_store
async def test_a_swap_succeeds_only_on_the_value_it_expects(store):
    assert not await store.swap("a", b"", b"1")
    assert await store.swap("a", None, b"1")
    assert not await store.swap("a", None, b"2")
    assert not await store.swap("a", b"2", b"3")
    assert await store.swap("a", b"1", b"")
    assert await store.swap("a", b"", b"3")
    assert await store.get("a") == {"a": b"3"}


@every_store
async def test_of_all_who_race_one_swap_succeeds(store, open_store, address):
    others = [store] if address == "memory://" else [store, *[await open_store() for _ in range(3)]]
    results = await asyncio.gather(*(others[n % len(others)].swap("a", None, b"%d" % n) for n in range(16)))
    assert results.count(True) == 1
    assert await store.get("a") == {"a": b"%d" % results.index(True)}


async def closed_blocks(store: Store, after: int = 0) -> list[Block]:
    """The blocks, as soon as there are any."""
    async with asyncio.timeout(5):
        while not (blocks := await store.blocks(after)):  # noqa: ASYNC110 - a second must pass
            await asyncio.sleep(0.02)
    return blocks


@every_store
async def test_tallies_add_up_in_blocks_that_close(store):
    await store.tally({"a": 1, "b\ud800": 2}, ["k1", "k2"])
    await store.tally({"a": 2}, ["k2"])
    await store.tally({}, [])
    blocks = await closed_blocks(store)
    await asyncio.sleep(0)
    while sum(block.counts["a"] for block in blocks) < 3:
        blocks += await closed_blocks(store, blocks[-1].number)
    assert frozenset().union(*(block.marks for block in blocks)) == {"k1", "k2"}
    numbers = [block.number for block in blocks]
    assert numbers == sorted(set(numbers))
    assert await store.blocks(numbers[-1]) == []
    behind_the_future = [block.number for block in await store.blocks(numbers[-1] + 3600)]
    assert behind_the_future[: len(numbers)] == numbers, "the clock was set back: all there are"


@shared_stores
async def test_no_tally_is_lost_between_processes_and_blocks(store, open_store):
    """Readers that go on from the last block they saw find every count once."""
    writers = [await open_store() for _ in range(3)]
    seen: list[Block] = []
    done = asyncio.Event()

    async def write(writer: Store) -> None:
        for _ in range(60):
            await writer.tally({"n": 1}, ["m"])
            await asyncio.sleep(0.02)

    async def read() -> None:
        while not done.is_set():
            seen.extend(await store.blocks(seen[-1].number if seen else 0))
            await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        async with asyncio.TaskGroup() as writing:
            for writer in writers:
                writing.create_task(write(writer))
        async with asyncio.timeout(5):
            while sum(block.counts["n"] for block in seen) < 180 and not reading.done():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        done.set()
    assert sum(block.counts["n"] for block in seen) == 180


@shared_stores
async def test_another_process_sees_what_was_kept(store, open_store):
    other = await open_store()
    await store.append([a_request(completion_id="c")])
    await store.put("a", b"1")
    assert (await other.find_answer("c")) == a_request(completion_id="c")
    assert await other.get("a") == {"a": b"1"}


@shared_stores
async def test_a_closed_store_opens_again_by_itself(store):
    await store.put("a", b"1")
    await store.close()
    assert await store.get("a") == {"a": b"1"}


@shared_stores
async def test_of_two_processes_one_swap_succeeds(address):
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", RACE, address, "k", "100", stdout=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = [await process.communicate() for process in processes]
    assert sum(int(output) for output, _ in outputs) == 100


@shared_stores
async def test_a_cancelled_caller_leaves_the_store_usable(store):
    for turns in range(12):
        task = asyncio.ensure_future(store.swap(f"k{turns}", None, b"v"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.put("a", b"1")
    assert await asyncio.gather(*(store.get("a") for _ in range(30))) == [{"a": b"1"}] * 30


texts = st.text(max_size=30)
times = st.floats(min_value=0, max_value=1e12)
calls = st.builds(
    CallRecord,
    number=st.integers(0, 9),
    dialect=texts,
    tool=texts,
    score=st.integers(0, 100),
    decision=st.sampled_from(["delivered", "refused"]),
    stage=st.sampled_from(["seen", "sent"]),
    reasons=st.lists(texts, max_size=3).map(tuple),
    before=texts,
    after=texts,
)
records = st.one_of(
    st.builds(
        RequestRecord,
        id=texts,
        at=times,
        key=texts,
        model=texts,
        upstream=texts,
        error=st.none() | texts,
        completion_id=st.none() | texts,
        usage=st.dictionaries(texts, st.integers()),
        duration_s=st.floats(allow_nan=False, allow_infinity=False),
        noise=st.none() | st.booleans(),
        calls=st.lists(calls, max_size=3).map(tuple),
    ),
    st.builds(
        DecisionRecord,
        at=times,
        decision=st.sampled_from(["hold", "promote"]),
        reason=texts,
        by=texts,
        epoch=st.integers(),
        state_before=texts,
        state_after=texts,
        numbers=st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False)),
        examples=st.lists(texts, max_size=3).map(tuple),
    ),
)


@every_store
async def test_any_record_survives(store):
    loop = asyncio.get_running_loop()
    kept: list[Record] = []

    @settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.lists(records, min_size=1, max_size=5))
    def survives(batch: list[Record]) -> None:
        kept.extend(batch)
        asyncio.run_coroutine_threadsafe(store.append(batch), loop).result(10)

    await asyncio.to_thread(survives)
    for kind in RECORDS.values():
        found = await all_of(store.scan(kind))
        assert {repr(record) for record in found} == {repr(record) for record in kept if type(record) is kind}


@pytest.mark.parametrize("address", [SHARED[0]], indirect=True)
async def test_store_errors_are_of_one_kind(open_store, tmp_path):
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StoreError):
        await open_store()
    assert [thread.name for thread in threading.enumerate() if "_connection_worker" in thread.name] == []
