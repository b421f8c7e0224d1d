"""Briefs beside the requests, whoever writes and deletes them."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from gateway.core.records import Brief, CallRecord, RequestRecord
from gateway.state.sqlite import SqliteStore

CALL = CallRecord(number=0, dialect="hermes", tool="t", score=97, decision="delivered", stage="sent")


def request(number: int, **fields: Any) -> RequestRecord:
    given = RequestRecord(
        id=f"r{number}", at=float(number), key="k", model="llama" if number % 3 else "qwen", upstream="u"
    )
    return evolve(given, **fields)


def run(path: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return list(connection.execute(sql, values))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db", timeout_s=5)
    yield opened
    await opened.close()


async def found(store: SqliteStore, glance: Any, before: str = "", limit: int = 100) -> list[str]:
    return [each.record.id for each in await store.latest(RequestRecord, before, limit, (), glance)]


def is_qwen(brief: Brief) -> bool:
    return brief.model == "qwen"


async def test_a_glance_leaves_out_what_it_says_no_to(store):
    await store.append([request(number) for number in range(20)])
    assert await found(store, is_qwen) == ["r18", "r15", "r12", "r9", "r6", "r3", "r0"]
    assert await found(store, is_qwen, limit=2) == ["r18", "r15"]
    assert await found(store, is_qwen, before="10", limit=2) == ["r6", "r3"]
    assert await found(store, lambda _: False) == []
    assert len(await found(store, lambda _: True)) == 20


async def test_a_glance_is_asked_once_for_all_that_are_alike(store):
    asked: list[Brief] = []
    await store.append([request(number, calls=(CALL,)) for number in range(300)])
    assert len(await found(store, lambda brief: asked.append(brief) or True, limit=500)) == 300  # type: ignore[func-returns-value]
    assert {brief.model for brief in asked} == {"qwen", "llama"}
    assert len(asked) == 2
    assert asked[0].calls[0].tool == "t"


async def test_what_an_older_version_wrote_has_no_brief_and_is_found(store, tmp_path):
    path = tmp_path / "store.db"
    await store.append([request(1), request(2)])
    body = run(path, "SELECT body FROM requests WHERE id = 1")[0][0]
    for number in (3, 4):  # it writes between two of ours
        old = str(body).replace('"r1"', f'"r{number}"')
        run(path, "INSERT INTO requests (at, body) VALUES (?, ?)", float(number), old)
    await store.append([request(6)])
    assert await found(store, is_qwen) == ["r6", "r4", "r3"]
    assert await found(store, is_qwen, limit=2) == ["r6", "r4"]
    run(path, "DELETE FROM briefs")
    assert await found(store, is_qwen) == ["r6", "r4", "r3", "r2", "r1"]


async def test_a_file_that_an_older_version_began_is_read_and_gets_briefs(store, tmp_path):
    path = tmp_path / "store.db"
    await store.append([request(1)])
    await store.close()
    run(path, "DROP TRIGGER requests_deleted")
    run(path, "DROP TABLE briefs")
    reading = SqliteStore(path, timeout_s=5, read_only=True)
    assert await found(reading, is_qwen) == ["r1"]
    await reading.close()
    assert await found(store, is_qwen) == ["r1"]
    await store.append([request(2), request(3)])
    assert await found(store, is_qwen) == ["r3", "r1"]


async def test_what_is_deleted_leaves_no_brief_whoever_deletes_it(store, tmp_path):
    path = tmp_path / "store.db"
    await store.append([request(number) for number in range(10)])
    await store.trim(before=5.0, max_bytes=1 << 30)
    assert run(path, "SELECT count(*) FROM briefs") == [(5,)]
    run(path, "DELETE FROM requests")
    assert run(path, "SELECT count(*) FROM briefs") == [(0,)]
    await store.append([request(3)])  # its number was another's
    assert await found(store, is_qwen) == ["r3"]


async def test_a_brief_of_another_version_passes(store, tmp_path):
    await store.append([request(1), request(3)])
    run(tmp_path / "store.db", "UPDATE briefs SET brief = '{' WHERE id = 1")
    assert await found(store, is_qwen) == ["r3", "r1"]
