"""What is particular to the store in a file; which store an address names; and stores whose failures are counted."""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from gateway.core.ports import BadRecord, Block, StoreError
from gateway.core.records import FeedbackRecord, RequestRecord
from gateway.state import sqlite_connection as sqlite_line
from gateway.state.backoff import FIRST_S, LONGEST_S, Pause
from gateway.state.memory import MemoryStore
from gateway.state.metered import WatchedStore
from gateway.state.opening import open_store
from gateway.state.redis import RedisStore
from gateway.state.sqlite import SqliteStore
from tests.bench.store_load import Load
from tests.support.stores import FailingStore, Gauges, rating

MIGRATE = """
import asyncio, sys
from pathlib import Path
from gateway.state.sqlite import SqliteStore

async def migrate(path):
    sys.stdin.readline()
    store = SqliteStore(Path(path))
    await store.open()
    await store.put(sys.argv[2], b"1")
    await store.close()

asyncio.run(migrate(sys.argv[1]))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, no_leaks: None) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


def run(path: Path, sql: str, *arguments: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, arguments).fetchall()


def schema(path: Path) -> list[tuple[object, ...]]:
    return run(path, "SELECT type, name, sql FROM sqlite_master ORDER BY name")


async def ratings(store: SqliteStore) -> list[float]:
    return [record.at async for record in store.scan(FeedbackRecord)]


async def test_the_file_and_its_journal_are_for_their_owner_alone(store, path):
    await store.append([rating(1.0)])
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


async def test_the_file_is_one_that_an_operator_can_read(store, path):
    await store.append([rating(1.0)])
    assert run(path, "SELECT json_extract(body, '$.rating') FROM feedback") == [("good",)]
    assert run(path, "PRAGMA journal_mode") == [("wal",)]
    assert run(path, "PRAGMA user_version") == [(1,)]


async def test_processes_that_begin_at_once_migrate_once(path):
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MIGRATE, str(path), f"k{number}"),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for number in range(4)
    ]
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0, 0, 0, 0], outputs
    lone = SqliteStore(path.with_name("lone.db"))
    await lone.open()
    await lone.close()
    assert schema(path) == schema(path.with_name("lone.db"))
    assert run(path, "SELECT count(*) FROM kept") == [(4,)]


async def test_who_comes_while_another_migrates_waits(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("BEGIN EXCLUSIVE")
        store = SqliteStore(path, timeout_s=0.01)
        opening = asyncio.ensure_future(store.open())
        await asyncio.sleep(0.1)
        assert not opening.done()
        other.execute("COMMIT")
        await opening
        await store.close()


async def test_a_migration_that_fails_leaves_the_old_schema(path, monkeypatch):
    before = SqliteStore(path)
    await before.append([rating(1.0)])
    await before.close()
    old = schema(path)
    migrations = (*sqlite_line._MIGRATIONS, ("CREATE TABLE new (a)", "CREATE TABLE kept (a)"))
    monkeypatch.setattr(sqlite_line, "_MIGRATIONS", migrations)
    store = SqliteStore(path)
    with pytest.raises(StoreError):
        await store.open()
    await store.close()
    assert schema(path) == old
    monkeypatch.setattr(sqlite_line, "_MIGRATIONS", (*sqlite_line._MIGRATIONS[:1], ("CREATE TABLE new (a)",)))
    store = SqliteStore(path)
    assert await ratings(store) == [1.0]
    await store.close()
    assert run(path, "PRAGMA user_version") == [(2,)]


async def test_a_file_of_a_newer_version_is_left_alone(store, path):
    await store.close()
    run(path, "PRAGMA user_version=7")
    with pytest.raises(StoreError, match=r"newer version \(schema 7; this one knows 1\)"):
        await store.get("a")
    run(path, "PRAGMA user_version=1")
    assert await store.get("a") == {}


async def test_records_of_other_versions_are_read_as_far_as_they_can_be(store, path):
    known = '{"at": 1.0, "completion_id": "c", "rating": "good", "stars": [5], "arm": "live"}'
    for at, body in ((1.0, known), (2.0, '{"at": 2.0, "completion_id": "c", "rating": "splendid"}'), (3.0, "{")):
        run(path, "INSERT INTO feedback (at, body) VALUES (?, ?)", at, body)
    assert [record async for record in store.scan(FeedbackRecord)] == [
        FeedbackRecord(at=1.0, completion_id="c", rating="good", arm="live")
    ]


async def test_trimming_gives_the_room_back_to_the_disk(store, path):
    text = "x" * 4000
    for begin in range(0, 3000, 500):
        await store.append(
            [
                RequestRecord(id="r", at=float(at), key="", model="", upstream="", answer_text=text)
                for at in range(begin, begin + 500)
            ]
        )
    await store.trim(before=0.0, max_bytes=1 << 30)
    full = path.stat().st_size
    assert full > 12_000_000
    await store.trim(before=2900.0, max_bytes=1 << 30)
    assert path.stat().st_size < full / 10
    assert path.with_name("store.db-wal").stat().st_size < 5 << 20


async def test_trimming_forgets_values_whose_time_is_over(store, path):
    await store.put("a", b"1", ttl_s=-1.0)
    await store.put("b", b"1", ttl_s=60.0)
    await store.trim(before=0.0, max_bytes=1 << 30)
    assert run(path, "SELECT key FROM kept") == [("b",)]


@pytest.fixture
async def wall(path: Path, no_leaks: None) -> list[float]:
    return [1000.0]


async def test_blocks_close_with_their_second(path, wall):
    store = SqliteStore(path, wall=lambda: wall[0])
    await store.tally({"a": 1}, ["x"])
    assert await store.blocks(0) == []
    wall[0] = 1001.0
    await store.tally({"a": 5}, [])
    [block] = await store.blocks(0)
    assert (block.number, dict(block.counts), set(block.marks)) == (1000, {"a": 1}, {"x"})
    await store.close()


async def test_no_block_closes_while_somebody_is_writing(path, wall, monkeypatch):
    monkeypatch.setattr("gateway.state.sqlite._WORK_S", 20.0)  # whoever is slow waits for the lock no longer
    store = SqliteStore(path, timeout_s=0.01, wall=lambda: wall[0])
    await store.tally({"a": 1}, [])
    wall[0] = 1002.0
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO counts VALUES (1001, 'a', 1)")
        with pytest.raises(StoreError, match="locked"):
            await store.blocks(0)
        other.execute("COMMIT")
    await asyncio.sleep(FIRST_S)
    assert [block.number for block in await store.blocks(0)] == [1000, 1001]
    await store.close()


async def test_a_connection_that_opens_when_nobody_waits_for_it_is_closed(path, monkeypatch):
    may_open, closed = threading.Event(), []

    class Connection(sqlite3.Connection):
        def close(self) -> None:
            closed.append(self)
            super().close()

    def connect(*arguments: Any, **options: Any) -> Connection:
        opened = original(*arguments, **options, factory=Connection)
        may_open.wait(20)
        return opened

    original = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    store = SqliteStore(path, timeout_s=0.01)
    with pytest.raises(StoreError, match="in time"):
        await store.get("k")
    assert closed == []
    may_open.set()
    await store.close()
    assert len(closed) == 1


async def test_a_clock_that_is_set_back_keeps_the_order_of_blocks(path, wall):
    store = SqliteStore(path, wall=lambda: wall[0])
    await store.tally({"a": 1}, [])
    wall[0] = 990.0
    await store.tally({"a": 1}, [])
    wall[0] = 1001.0
    assert [(block.number, block.counts["a"]) for block in await store.blocks(0)] == [(1000, 2)]
    await store.tally({"a": 1}, [])
    wall[0] = 500.0
    await store.tally({"a": 7}, [])  # a clock that was wrong: its blocks would never close
    wall[0] = 501.0
    assert [block.number for block in await store.blocks(0)] == [500]
    assert [block.number for block in await store.blocks(1001)] == [500], "who had seen those begins again"
    assert await store.blocks(500) == []
    await store.close()


async def test_blocks_are_kept_for_two_days_and_given_in_portions(path, wall):
    store = SqliteStore(path, wall=lambda: wall[0])
    for _ in range(505):
        wall[0] += 1
        await store.tally({"a": 1}, ["m"])
    wall[0] += 1
    first = await store.blocks(0)
    assert len(first) == 500
    assert [block.number for block in await store.blocks(first[-1].number)] == [1501, 1502, 1503, 1504, 1505]
    wall[0] += 48 * 3600
    await store.trim(before=0.0, max_bytes=1 << 30)
    assert await store.blocks(0) == []
    await store.close()


async def test_a_reader_of_another_process_leaves_the_journal_to_those_who_use_it(store, path):
    """Whoever closes any descriptor of the file drops this process's locks, and the next one to leave deletes it."""
    await store.append([rating(1.0)])
    await store.get("anything")
    assert [record async for record in store.scan(FeedbackRecord)]
    journal = path.with_name("store.db-wal")
    before = journal.stat().st_ino
    reader = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute("
        "'SELECT count(*) FROM feedback').fetchone(); "
        "c.close()",
        str(path),
    )
    assert await reader.wait() == 0
    assert journal.stat().st_ino == before
    await store.append([rating(2.0)])
    assert run(path, "SELECT count(*) FROM feedback") == [(2,)]


async def test_a_batch_waits_for_another_writer_and_trimming_holds_none_up(path: Path) -> None:
    """Two workers on one disk: the one that trims must not cost the other its batch."""
    one, two = SqliteStore(path, timeout_s=0.05), SqliteStore(path, timeout_s=0.05)
    await one.open()
    await two.open()
    held = sqlite3.connect(path, isolation_level=None)
    try:
        held.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(two.append([rating(1.0)]))
        # Longer than the lock is waited for at once.
        assert not (await asyncio.wait([waiting], timeout=0.2))[0]
        held.execute("COMMIT")
        await waiting
        seen: list[str] = []
        await one.append([rating(float(number)) for number in range(2000)])
        async with one._journal.use(5.0) as connection:
            await connection.set_trace_callback(seen.append)
        await one.trim(before=1000.0, max_bytes=1 << 40)
        assert [line for line in seen if "wal_checkpoint" in line] == ["PRAGMA wal_checkpoint(PASSIVE)"]
    finally:
        held.close()
        await one.close()
        await two.close()


# --- Addresses of stores


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        ("sqlite:///toolgate.db", SqliteStore),
        ("sqlite:////var/lib/toolgate.db", SqliteStore),
        ("redis://localhost", RedisStore),
        ("redis://user:p%40ss@localhost:6380/3", RedisStore),
        ("rediss://[::1]:6379/0", RedisStore),
        ("unix:///run/redis.sock?db=1", RedisStore),
    ],
)
def test_an_address_names_its_store(url, kind):
    assert isinstance(open_store(url, prefix="p:", timeout_ms=200), kind)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "toolgate.db",
        "memory://x",
        "sqlite:toolgate.db",
        "sqlite://toolgate.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///a%00b",
        "sqlite:///a.db?mode=ro",
        "redis://",
        "redis:///0",
        "redis://:hunter22@",
        "redis://u:hunter22@h:port/0",
        "redis://u:hunter22@h/notadb",
        "redis://u:hunter22@h/0?socket_timeout=hunter22",
        "redis://u:hunter22@h/0?hunter22=1",
        "rediss://u:hunter22@[::1/0",
        "unix://",
        "http://h/",
    ],
)
def test_an_address_of_no_store_is_refused_without_being_repeated(url):
    with pytest.raises(ValueError, match="must") as refused:
        open_store(url, prefix="p:", timeout_ms=200)
    assert "hunter22" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one():
    relative = open_store("sqlite:///a/b%20c.db", prefix="", timeout_ms=1)
    absolute = open_store("sqlite:////a/b.db", prefix="", timeout_ms=1)
    assert [cast("SqliteStore", store)._journal.path for store in (relative, absolute)] == [
        Path("a/b c.db"),
        Path("/a/b.db"),
    ]


# --- A store whose failures are counted


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


# --- The command that puts SQLite under load says what it is for, in little


@pytest.mark.long
async def test_no_record_is_lost_while_two_workers_share_a_file(tmp_path: Path) -> None:
    load = Load(seconds=5, rate=100)
    await load.run(tmp_path)
    assert len(load.ids) == 500
    assert load.is_whole, load.told()
