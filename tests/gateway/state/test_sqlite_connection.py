"""The connection to a SQLite file: what a failure leaves behind, and on which file it goes on."""

import asyncio
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.ports import StoreError
from gateway.state.sqlite_connection import Line

PUT = "INSERT INTO counts (number, name, value) VALUES (1, 'a', 1)"


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    line = Line(path=tmp_path / "store.db", timeout_s=1)
    yield line
    await line.close()


async def count(line: Line) -> int:
    async with line.use(5) as connection:
        [[found]] = await connection.execute_fetchall("SELECT count(*) FROM counts")
    return int(found)


def put(connection: sqlite3.Connection) -> None:
    connection.execute(PUT)


async def broken_off(line: Line) -> None:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM counts")
        raise KeyError

    await line.write(5, work)


async def test_a_new_file_is_for_its_owner_alone(line: Line) -> None:
    assert await count(line) == 0
    assert stat.S_IMODE(line.path.stat().st_mode) == 0o600


async def test_a_transaction_stays_whole_or_not_at_all(line: Line) -> None:
    await line.write(5, put)
    assert await count(line) == 1
    with pytest.raises(KeyError):
        await broken_off(line)
    assert await count(line) == 1


async def test_a_caller_that_is_cancelled_leaves_nothing_open(line: Line) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hang(connection: sqlite3.Connection) -> None:
        put(connection)
        begun.set()
        may_end.wait(20)

    task = asyncio.create_task(line.write(60, hang))
    await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    await line.write(5, put)
    assert await count(line) == 1, "what nobody waited for any more does not stay"


async def test_a_file_that_was_replaced_is_opened_anew(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.state.sqlite_connection._LOOK_AGAIN_S", 0)
    await line.write(5, put)
    for path in line.path.parent.iterdir():
        path.unlink()
    assert await count(line) == 0
    assert line.path.exists()


async def test_a_file_of_a_newer_version_is_left_alone(line: Line) -> None:
    await count(line)
    await line.close()
    with sqlite3.connect(line.path) as other:
        other.execute("PRAGMA user_version=99")
    other.close()
    with pytest.raises(StoreError, match="a newer version"):
        await count(line)
