"""What is particular to the store in a file."""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.core.ports import StoreError
from gateway.core.records import FeedbackRecord, RequestRecord
from gateway.state import sqlite_connection as sqlite_line
from gateway.state.backoff import FIRST_S
from gateway.state.sqlite import SqliteStore
from tests.support.stores import rating

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
