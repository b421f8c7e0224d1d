"""Briefs beside the requests, whoever writes and deletes them."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.core.ports import NEXT, Glance
from gateway.core.records import Brief, CallRecord, OutcomeRecord, RequestRecord
from gateway.state.sqlite import SqliteStore
from tests.support.week import evolve

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


def _words(word: str, _: Brief) -> tuple[str, ...]:
    return (word,)


async def found(store: SqliteStore, glance: Any, before: str = "", limit: int = 100) -> list[str]:
    return [each.record.id for each in await store.latest(RequestRecord, before, limit, (), glance)]


def by(passes: Callable[[Brief], object]) -> Glance:
    return Glance(brief=lambda brief: NEXT if passes(brief) else ())


IS_QWEN = by(lambda brief: brief.model == "qwen")


def outcome(number: int, at: float, word: str, reporter: str = "", key: str = "k") -> OutcomeRecord:
    made = OutcomeRecord(
        at=at, key=key, arm="live", strategy="s", dialect="d", epoch=0, outcome=cast("Any", word), reason=str(number)
    )
    return evolve(made, reported_by=reporter)


async def test_a_glance_leaves_out_what_it_says_no_to(store):
    await store.append([request(number) for number in range(20)])
    assert await found(store, IS_QWEN) == ["r18", "r15", "r12", "r9", "r6", "r3", "r0"]
    assert await found(store, IS_QWEN, limit=2) == ["r18", "r15"]
    assert await found(store, IS_QWEN, before="10", limit=2) == ["r6", "r3"]
    assert await found(store, by(lambda _: False)) == []
    assert len(await found(store, by(lambda _: True))) == 20


async def test_a_glance_is_asked_once_for_all_that_are_alike(store):
    asked: list[Brief] = []
    await store.append([request(number, calls=(CALL,)) for number in range(300)])
    assert len(await found(store, by(lambda brief: asked.append(brief) or True), limit=500)) == 300  # type: ignore[func-returns-value]
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
    assert await found(store, IS_QWEN) == ["r6", "r4", "r3"]
    assert await found(store, IS_QWEN, limit=2) == ["r6", "r4"]
    run(path, "DELETE FROM glances")
    assert await found(store, IS_QWEN) == ["r6", "r4", "r3", "r2", "r1"]


async def test_a_file_that_an_older_version_began_is_read_and_gets_briefs_when_it_is_trimmed(store, tmp_path):
    path = tmp_path / "store.db"
    await store.append([request(1), outcome(1, 2.0, "rejected"), *(request(number) for number in range(700, 1400))])
    await store.close()
    for kind in ("requests", "outcomes"):
        run(path, f"DROP TRIGGER {kind}_gone")
    for table in ("glances", "shapes", "fared"):
        run(path, f"DROP TABLE {table}")
    run(path, "UPDATE requests SET body = '{' WHERE id = 3")
    reading = SqliteStore(path, timeout_s=5, read_only=True)
    assert await found(reading, IS_QWEN, limit=2) == ["r1399", "r1398"]
    assert await reading.fared(["k"]) is None
    assert await reading.counted(0.0, lambda brief, many: None) is None
    await reading.close()
    assert (await found(store, IS_QWEN, limit=9999))[-1] == "r1"
    await store.append([request(2), request(3)])
    assert len(await found(store, IS_QWEN, limit=9999)) == 701
    await store.trim(before=0.0, max_bytes=1 << 30)
    assert (await found(store, IS_QWEN, limit=9999))[0] == "r3"
    assert len(await found(store, IS_QWEN, limit=9999)) == 234
    assert [each.reason for each in await store.fared(["k"]) or ()] == ["1"]
    assert await found(store, Glance(brief=lambda _: ("rejected",))) == ["r1"]


async def test_what_is_deleted_leaves_no_brief_whoever_deletes_it(store, tmp_path):
    path = tmp_path / "store.db"
    await store.append([request(number) for number in range(10)])
    await store.trim(before=5.0, max_bytes=1 << 30)
    assert run(path, "SELECT count(*) FROM glances") == [(5,)]
    run(path, "DELETE FROM requests")
    assert run(path, "SELECT count(*) FROM glances") == [(0,)]
    await store.append([request(2, model="gone")])
    await store.trim(before=3.0, max_bytes=1 << 30)
    assert [each for each in run(path, "SELECT brief FROM shapes") if "gone" in str(each)] == []
    await store.append([request(3)])  # its number was another's
    assert await found(store, IS_QWEN) == ["r3"]


async def test_a_brief_of_another_version_passes(store, tmp_path):
    await store.append([request(1), request(3)])
    run(tmp_path / "store.db", "UPDATE shapes SET brief = '{' WHERE brief LIKE '%llama%'")
    assert await found(store, IS_QWEN) == ["r3", "r1"]


async def test_ids_conversations_and_next_turns_are_looked_for_without_a_record(store, tmp_path):
    await store.append([request(number, key="k" if number < 4 else "other") for number in range(6)])
    await store.append([outcome(0, 2.5, "accepted", "r3"), outcome(0, 1.5, "no_tool_used", "r2")])
    await store.append([outcome(1, 1.5, "rejected", "r2"), outcome(2, 9.0, "no_tool_used", "r9")])
    assert await found(store, Glance(ids=["r1", "r5", "nobody"])) == ["r5", "r1"]
    assert await found(store, Glance(ids=["r5"] * 600)) == ["r5"]
    assert await found(store, Glance(has_id=lambda name: name > "r3")) == ["r5", "r4"]
    assert await found(store, Glance(has_id=lambda name: name > "r1"), limit=2) == ["r5", "r4"]
    assert await found(store, Glance(key="k"), before="3") == ["r1", "r0"]
    assert await found(store, Glance(brief=lambda _: (), also=["r2"])) == ["r2"]
    by_next = {word: await found(store, Glance(brief=partial(_words, word))) for word in NEXT}
    assert by_next == {"": ["r5", "r4"], "rejected": ["r1", "r0"], "accepted": ["r2"], "complained": ["r3"]}
    await store.append([outcome(3, 5.5, "accepted", "r5", key="other")])
    assert await found(store, Glance(brief=partial(_words, ""))) == ["r5"], "what it told is of the answer before it"
    run(tmp_path / "store.db", "DELETE FROM outcomes WHERE at = 5.5")
    assert await found(store, Glance(brief=lambda _: ("", "complained"))) == ["r5", "r4", "r3"]
