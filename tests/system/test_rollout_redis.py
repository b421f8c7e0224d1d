"""Two real processes and one real Redis: one of them rolls back, both obey, and no fault of Redis harms either.

This file is also the program that the processes run: requests against a agent, some of them bad on command.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.stores import RedisServer, needs_redis

ROOT = Path(__file__).parents[2]
TICK_S = 0.2


class Process:
    """One process under test; it says on a line of JSON whatever changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []

    async def start(self, url: str) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            url,
            self.name,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def until(self, seconds: float = 15.0, **wanted: Any) -> dict[str, Any]:
        """The first line, from now on or the last one until now, that says all of this."""
        seen = max(0, len(self.lines) - 1)
        async with asyncio.timeout(seconds):
            while True:
                for line in self.lines[seen:]:
                    if all(line.get(name) == value for name, value in wanted.items()):
                        return line
                seen = max(0, len(self.lines) - 1)
                await asyncio.sleep(0.01)

    @property
    def decisions(self) -> list[str]:
        return [line["decision"] for line in self.lines if "decision" in line]

    async def stop(self) -> dict[str, Any]:
        """End it; what it says of the whole of its life."""
        self.say("quit")
        async with asyncio.timeout(15):
            await self._reading
            assert await self._process.wait() == 0
        return self.lines[-1]

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@pytest.fixture
async def pair(redis: RedisServer) -> AsyncIterator[tuple[Process, Process]]:
    one, two = [await Process(name).start(redis.url) for name in ("one", "two")]
    for process in (one, two):
        await process.until(state="canary", up=True)
    yield one, two
    for process in (one, two):
        await process.close()


def harmless(*ends: dict[str, Any]) -> None:
    for end in ends:
        assert end["raised"] == 0
        assert end["requests"] > 20
        assert end["p99_ms"] < 5, "requests waited for the store"


@needs_redis
async def test_one_rolls_back_and_both_obey_within_a_second(pair: tuple[Process, Process]) -> None:
    one, two = pair
    for process in pair:
        process.say("fault")
    lines = [await process.until(state="rolled_back") for process in pair]
    assert abs(lines[0]["at"] - lines[1]["at"]) < 1.0
    assert lines[0]["epoch"] == lines[1]["epoch"] == 2
    harmless(await one.stop(), await two.stop())
    assert sorted(one.decisions + two.decisions) == ["rollback"]


@needs_redis
async def test_redis_killed_and_begun_anew_empty(pair: tuple[Process, Process], redis: RedisServer) -> None:
    one, two = pair
    await redis.kill()
    for process in pair:
        await process.until(up=False, state="canary")
    one.say("fault")
    await one.until(state="rolled_back", up=False)
    assert two.lines[-1]["state"] == "canary", "it cannot know"
    await redis.start()
    await two.until(state="rolled_back", up=True)
    await one.until(state="rolled_back", up=True)
    ends = await one.stop(), await two.stop()
    harmless(*ends)
    assert one.decisions.count("rollback") + two.decisions.count("rollback") == 1


@needs_redis
async def test_redis_frozen_and_thawed(pair: tuple[Process, Process], redis: RedisServer) -> None:
    redis.freeze()
    for process in pair:
        await process.until(up=False, state="canary")
    redis.thaw()
    for process in pair:
        line = await process.until(5, up=True, state="canary")
        assert line["epoch"] == 1
    one, two = pair
    harmless(await one.stop(), await two.stop())
    assert one.decisions + two.decisions == []


@needs_redis
async def test_wrong_type_heals_when_it_is_gone(pair: tuple[Process, Process], redis: RedisServer) -> None:
    one, two = pair
    await redis.command("FLUSHALL")
    # In one step: between two of them a gateway may have written its value, and what has a type keeps it.
    await redis.command("LPUSH", "rubbish", "rubbish")
    assert await redis.command("RENAME", "rubbish", "test:value:rollout") == b"+OK"
    for process in pair:
        await process.until(up=False, state="canary")
    await redis.command("FLUSHALL")
    for process in pair:
        await process.until(up=True, state="canary")
    harmless(await one.stop(), await two.stop())


async def serve(url: str, name: str) -> None:
    """Requests against a agent until told to quit."""
    from gateway.background.rollout_agent import RolloutAgent
    from gateway.core.records import DecisionRecord
    from gateway.rollout.stages import RolloutRules
    from gateway.state.opening import open_store

    def say(**facts: Any) -> None:
        print(json.dumps({"at": time.time(), "name": name, **facts}), flush=True)

    def decided(record: DecisionRecord) -> None:
        say(decision=record.decision, reason=record.reason)

    store = open_store(url, prefix="test:", timeout_ms=200)
    await store.open()
    rules = RolloutRules(transform_mode="canary", canary_percent=3000, rollback_scope="all")
    agent = RolloutAgent(store=store, rules=rules, clock=time.time, salt=b"salt", on_decision=decided, name=name)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    rng = random.Random(name)
    word, requests, raised, shown = "fine", 0, 0, None
    took: list[float] = []
    reading = asyncio.ensure_future(commands.readline())
    ticking = asyncio.ensure_future(agent.tick())
    ticked = time.monotonic()
    while word != "quit":
        if reading.done():
            word = reading.result().decode().strip() or "quit"
            reading = asyncio.ensure_future(commands.readline())
        if ticking.done() and time.monotonic() - ticked >= TICK_S:
            raised += ticking.exception() is not None
            ticking, ticked = asyncio.ensure_future(agent.tick()), time.monotonic()
        began = time.thread_time()
        key = f"key {rng.randrange(5000)}"
        assignment = agent.assign(key)
        bad = rng.random() < (0.5 if word == "fault" and assignment.arm == "live" else 0.005)
        agent.ended(
            assignment, strategy="recovery", dialect="hermes", key=key, bad=bad, request_id=f"{name}-{requests}"
        )
        took.append(time.thread_time() - began)
        requests += 1
        now = agent.snapshot()
        if (now.state, now.epoch, now.store_up) != shown:
            shown = now.state, now.epoch, now.store_up
            say(state=now.state, epoch=now.epoch, up=now.store_up)
        await asyncio.sleep(0.005)
    reading.cancel()
    await ticking
    await store.close()
    say(requests=requests, raised=raised, p99_ms=1000 * sorted(took)[len(took) * 99 // 100])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
