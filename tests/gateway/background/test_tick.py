"""What goes on beside the requests: where nothing happens the store is left alone, and others are still heard of within
a second; the look for cycles, now and then; and what processes learn from each other: lessons, sessions, secrets.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.background import tick
from gateway.background.garbage import LOOK_S, Garbage
from gateway.background.lesson_sync import SharedLessons
from gateway.background.secrets import kept_secret
from gateway.background.sessions import Sessions
from gateway.background.tick import Upkeep
from gateway.config.load import load
from gateway.rollout.assignment import Assignment
from gateway.rollout.codec import STATE_KEY, encoded, state_of
from gateway.rollout.stages import killed, unkilled
from gateway.state import sqlite_connection
from gateway.state.opening import open_store
from gateway.telemetry.metrics import Metrics
from gateway.traffic.lesson_rules import LESSON_S, MAX_PAIRS
from tests.support.stores import FailingStore


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that connections were asked for, one for each time."""
    monkeypatch.setattr(tick, "TICK_S", 0.002)
    monkeypatch.setattr(sqlite_connection, "LOOK_S", 0.005)
    used: list[str] = []
    use = sqlite_connection.Line.use

    def counted(line: sqlite_connection.Line, limit_s: float) -> Any:
        used.append(line.path.name)
        return use(line, limit_s)

    monkeypatch.setattr(sqlite_connection.Line, "use", counted)
    return used


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Upkeep]:
    settings = load({"STORE_URL": url, "TRANSFORM_MODE": "canary"})
    upkeep = await Upkeep.begin(settings, Metrics(), names=frozenset())
    work = asyncio.get_running_loop().create_task(upkeep.run())
    yield upkeep
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work
    await upkeep.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - the other side is a thread, or a file
            await asyncio.sleep(0.001)


async def rests(upkeep: Upkeep, used: list[str]) -> None:
    """It comes to rest, and what it does then, every second, costs the store nothing."""
    await until(lambda: not upkeep._awake)
    used.clear()
    for _ in range(50):
        upkeep.look_up()
        await asyncio.sleep(0)
    assert not used
    assert not upkeep._awake


def has_changed(upkeep: Upkeep, was: bool) -> bool:
    return upkeep.agent.killed != was


async def test_it_rests_until_another_process_writes(tmp_path: Path, used: list[str]) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with running(url) as upkeep:
        await rests(upkeep, used)
        other = open_store(url, prefix="", timeout_ms=2000)
        for _ in range(3):
            was = upkeep.agent.killed
            state = state_of((await other.get(STATE_KEY))[STATE_KEY])
            assert state is not None
            move = unkilled if was else killed
            await other.put(STATE_KEY, encoded(move(state, now=0.0, by="a test", reason="cli").state))
            await until(partial(has_changed, upkeep, was))
            await rests(upkeep, used)
        await other.close()


@pytest.mark.parametrize("store", ["sqlite", "memory"])
async def test_it_rests_until_something_happens_here(tmp_path: Path, used: list[str], store: str) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/store.db"
    async with running(url) as upkeep:
        await rests(upkeep, used)
        agent = upkeep.agent
        seen = Assignment(arm="live", epoch=agent.epoch)
        agent.ended(seen, strategy="s", dialect="d", key="k", bad=False)
        upkeep.look_up()
        await until(lambda: agent.is_still)
        await rests(upkeep, used)
        # What goes wrong does not wait for the second.
        agent.ended(seen, strategy="s", dialect="d", key="k", bad=True)
        await until(lambda: agent.is_still)
        await rests(upkeep, used)
        upkeep.lessons.learn("u", "m", "r", 0.0)
        upkeep.look_up()
        await until(lambda: upkeep.lessons.is_still)
        assert upkeep._awake


# --- The look for cycles: where something was made, and only while it is quick


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often young objects were looked at, and how many objects there are."""
    told = {"young": 1, "objects": 1}
    monkeypatch.setattr(gc, "get_stats", lambda: [{"collections": told["young"]}])
    monkeypatch.setattr(gc, "get_objects", lambda: range(told["objects"]))
    return told


def minute(garbage: Garbage) -> None:
    for _ in range(LOOK_S):
        garbage()


def test_it_looks_once_a_minute_where_something_was_made(made: dict[str, int]) -> None:
    looks: list[int] = []
    garbage = Garbage(lambda: looks.append(1))
    minute(garbage)
    assert len(looks) == 1
    minute(garbage)
    assert len(looks) == 1, "nothing was made since"
    made["young"] += 1
    minute(garbage)
    assert len(looks) == 2


def test_it_waits_for_large_values_to_go_but_not_for_ever(made: dict[str, int]) -> None:
    looks: list[int] = []
    garbage = Garbage(lambda: looks.append(1))
    made["objects"] = 300_000
    minute(garbage)
    minute(garbage)
    assert looks == [], "a look would take all others' time"
    minute(garbage)
    assert len(looks) == 1


class Wall:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def store(wall) -> FailingStore:
    return FailingStore(wall=wall)


@pytest.fixture
def workers(store, wall) -> tuple[SharedLessons, SharedLessons]:
    return SharedLessons(store, wall), SharedLessons(store, wall)


async def sync(*workers: SharedLessons) -> None:
    for worker in (*workers, *workers):
        await worker.sync()


async def test_what_one_worker_learns_the_other_knows_by_its_own_clock(workers):
    one, other = workers
    one.learn("u", "m", "refused", now=5.0)
    assert other.recall("u", "m", 900.0) is None
    await sync(one, other)
    lesson = other.recall("u", "m", 900.0)
    assert lesson is not None
    assert (lesson.reason, lesson.until) == ("refused", 900.0 + LESSON_S)
    assert other.recall("u", "other", 900.0) is None


async def test_both_may_learn_at_once(workers):
    one, other = workers
    one.learn("u", "m1", "refused", 0.0)
    other.learn("u", "m2", "as_text", 0.0)
    await sync(one, other)
    for worker in workers:
        assert worker.recall("u", "m1", 0.0)
        assert worker.recall("u", "m2", 0.0)


async def test_a_lesson_is_forgotten_after_an_hour(workers, wall, store):
    one, other = workers
    one.learn("u", "m", "refused", 0.0)
    await sync(one, other)
    wall.at += LESSON_S
    assert one.recall("u", "m", 0.0) is None
    await sync(one, other)
    assert other.recall("u", "m", 0.0) is None
    one.learn("u", "new", "refused", 0.0)
    await sync(one)
    assert b'"m"' not in (await store.get("lessons"))["lessons"]


async def test_learning_again_makes_it_last(workers, wall):
    one, other = workers
    one.learn("u", "m", "refused", 0.0)
    await sync(one, other)
    wall.at += LESSON_S - 1
    other.learn("u", "m", "as_text", 0.0)
    await sync(other, one)
    wall.at += 10
    assert one.recall("u", "m", 0.0).reason == "as_text"


async def test_lessons_hold_while_the_store_is_away_and_are_shared_when_it_is_back(workers, store):
    one, other = workers
    store.is_away = True
    one.learn("u", "m", "refused", 0.0)
    await sync(one, other)
    assert one.recall("u", "m", 0.0)
    store.is_away = False
    await sync(one, other)
    assert other.recall("u", "m", 0.0)


async def test_a_store_that_forgot_everything_learns_it_again(workers, store):
    one, other = workers
    one.learn("u", "m", "refused", 0.0)
    await sync(one)
    store._values.clear()
    await sync(one, other)
    assert other.recall("u", "m", 0.0)


@pytest.mark.parametrize("rubbish", [b"", b"{}", b"[[1]]", b"[" * 100_000, b'[["u", "m", "r", "x"]]', b"\xff"])
async def test_rubbish_in_the_store_counts_as_nothing(workers, store, rubbish):
    await store.put("lessons", rubbish)
    one, other = workers
    one.learn("u", "m", "refused", 0.0)
    await sync(one, other)
    assert other.recall("u", "m", 0.0)


async def test_a_clock_that_is_ahead_makes_no_lesson_last_longer(workers, store):
    await store.put("lessons", b'[["u", "m", "r", 9e15]]')
    await sync(workers[0])
    assert workers[0].recall("u", "m", 0.0).until == LESSON_S


async def test_clients_cannot_fill_the_store_with_names(workers, store, wall):
    one, other = workers
    for number in range(MAX_PAIRS + 50):
        wall.at += 0.01
        one.learn("u", f"m{number}", "refused", 0.0)
    one.learn("u", "x" * 100_000, "refused", 0.0)
    one.learn("u", "\ud800", "refused", 0.0)
    await sync(one, other)
    assert len((await store.get("lessons"))["lessons"]) < 100_000
    assert one.recall("u", "x" * 100_000, 0.0)
    assert one.recall("u", "m0", 0.0) is None
    assert other.recall("u", f"m{MAX_PAIRS + 49}", 0.0)
    assert other.recall("u", "x" * 100_000, 0.0) is None


@pytest.fixture
def sessions(store, wall) -> Sessions:
    return Sessions(store=store, now=wall)


async def test_another_process_goes_on_with_a_session(sessions, store, wall):
    await sessions.remember({"a": b"1", "b": b"2"}, 60.0)
    other = Sessions(store=store, now=wall)
    assert await other.recall("a", "b", "c") == {"a": b"1", "b": b"2"}
    await other.remember({"a": b"3"}, 60.0)
    assert await sessions.recall("a") == {"a": b"3"}


async def test_sessions_go_on_while_the_store_is_away(sessions, store, wall):
    store.is_away = True
    await sessions.remember({"a": b"1"}, 60.0)
    assert await sessions.recall("a", "b") == {"a": b"1"}
    await sessions.sync()
    store.is_away = False
    other = Sessions(store=store, now=wall)
    assert await other.recall("a") == {}
    assert await sessions.recall("a") == {"a": b"1"}
    wall.at += 10
    await sessions.sync()
    assert await other.recall("a") == {"a": b"1"}
    wall.at += 51
    assert await other.recall("a") == {}


async def test_what_was_not_written_is_newer_than_what_is_in_the_store(sessions, store):
    await sessions.remember({"a": b"old"}, 60.0)
    store.is_away = True
    await sessions.remember({"a": b"new"}, 60.0)
    store.is_away = False
    assert await sessions.recall("a") == {"a": b"new"}


async def test_a_session_ends_with_its_time(sessions, store, wall):
    store.is_away = True
    await sessions.remember({"a": b"1"}, 60.0)
    wall.at += 61
    assert await sessions.recall("a") == {}
    store.is_away = False
    await sessions.sync()
    assert await sessions.recall("a") == {}


async def test_the_memory_of_sessions_is_bounded(store, wall):
    sessions = Sessions(store=store, now=wall, max_sessions=3, max_bytes=10_000)
    store.is_away = True
    for number in range(5):
        await sessions.remember({f"s{number}": b"x"}, 60.0)
    assert await sessions.recall(*(f"s{number}" for number in range(5))) == dict.fromkeys(["s2", "s3", "s4"], b"x")
    await sessions.remember({"large": b"x" * 9_500}, 60.0)
    assert list(await sessions.recall("s2", "s3", "s4", "large")) == ["s4", "large"]


async def test_sessions_that_nobody_asks_for_again_go_with_their_time(store, wall):
    sessions = Sessions(store=store, now=wall)
    for number in range(5):
        await sessions.remember({f"s{number}": b"x" * 100}, 60.0)
        wall.at += 25
    assert sessions._bytes == 3 * 300
    assert list(sessions._sessions) == ["s2", "s3", "s4"]


async def test_a_secret_is_made_once(store):
    first = await kept_secret(store, "salt", lambda: b"one")
    second = await kept_secret(store, "salt", lambda: b"two")
    assert first == second
    assert first.is_shared
    assert (await kept_secret(store, "other", lambda: b"two")).value == b"two"


async def test_a_secret_without_a_store_is_not_shared(store):
    store.is_away = True
    secret = await kept_secret(store, "salt", lambda: b"one")
    assert (secret.value, secret.is_shared) == (b"one", False)


async def test_who_loses_the_race_for_a_secret_takes_the_other_one(store, monkeypatch):
    async def beaten(self: FailingStore, key: str, old: bytes | None, new: bytes) -> bool:
        await self.put(key, b"theirs")
        return False

    monkeypatch.setattr(FailingStore, "swap", beaten)
    assert (await kept_secret(store, "salt", lambda: b"ours")).value == b"theirs"
