"""What goes on beside the requests: where nothing happens the store is left alone, and others are still heard of within
a second; and the look for cycles, now and then.
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
from gateway.background.tick import Upkeep
from gateway.config.load import load
from gateway.rollout.assignment import Assignment
from gateway.rollout.codec import STATE_KEY, encoded, state_of
from gateway.rollout.stages import killed, unkilled
from gateway.state import sqlite_connection
from gateway.state.opening import open_store
from gateway.telemetry.metrics import Metrics


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
