"""A mixed load with faults over real workers, for as long as it is told to: what they hold has to stay flat.

    python -m tests.soak --seconds 7200 [--workers 2] [--clients 8] [--rate 25] [--every 30]

Clients ask on all three surfaces, streamed and whole, leave in the middle, send what is no request; the model server
answers, calls, breaks off, floods, lies and is slow. What the workers hold is told as it is read. At the end the second
quarter and the last are held against each other, the log is searched for faults of ours, and whoever meant it well has
to have been served.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from attrs import asdict, define, field, frozen

from tests.attacks.conftest import CALL, TOOLS, calls_of
from tests.attacks.test_hostile_clients import NO_HTTP, NO_REQUEST
from tests.support.client import ask, chat, exchange, open_connection, post_bytes
from tests.support.faulty_upstream import (
    DONE,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    event,
    text,
    whole_or_streamed,
)
from tests.support.processes import Program

FINISH = event(finish="stop")
MODELS: dict[str, list[bytes]] = {
    "honest": [text("I look.\n"), text(CALL), FINISH, DONE],
    "qwen3-honest": [text("I look.\n"), text(CALL), FINISH, DONE],
    "prose": [*(text(f"word {number} ") for number in range(300)), FINISH, DONE],
    "cut": [text("I look.\n"), text(CALL[:30])],
    "flood": [event(choices=[{"index": number, "delta": {"content": "x"}} for number in range(2000)]), DONE],
    "endless": [text('{"name": "' + '\\"' * 20_000), text("<tool>" * 4_000), FINISH, DONE],
    "no json": [text("a"), b"data: {\n\n", DONE],
    "error": [text("a"), b'data: {"error": {"message": "no", "code": "overloaded"}}\n\n'],
}
MOST_GROWTH = 1.10
MOST_MORE_MIB = 12.0
"""By how much memory may grow in any case: allocators and caches with a bound need some time to be full."""


@define
class Soak:
    """The load, and what came of it."""

    url: str
    rng: random.Random
    pause_s: float = 0.0
    """How long a client waits between two requests, about."""
    asked: int = 0
    served: int = 0
    ends: dict[str, int] = field(factory=dict)
    faults: list[str] = field(factory=list)

    async def client(self, until: float) -> None:
        """One client after the other does something, until the time is over."""
        ways = (
            self._honest,
            self._honest,
            self._honest,
            self._hostile_model,
            self._leaves,
            self._no_request,
            self._surface,
        )
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            while time.monotonic() < until:
                if self.pause_s:
                    await asyncio.sleep(self.rng.expovariate(1 / self.pause_s))
                self.asked += 1
                way = self.rng.choice(ways)
                try:
                    await way(session)
                except (aiohttp.ClientError, OSError, TimeoutError, AssertionError, ValueError) as error:
                    self.faults.append(f"{way.__name__}: {type(error).__name__}: {str(error)[:200]}")

    async def _honest(self, session: aiohttp.ClientSession) -> None:
        model, streamed = self.rng.choice(("honest", "qwen3-honest")), self.rng.random() < 0.7
        got = await ask(session, self.url, chat(model=model, stream=streamed, tools=TOOLS))
        assert calls_of(got) == [("read_file", {"path": "a.py"})], got.body[-300:]
        self.served += 1

    async def _hostile_model(self, session: aiohttp.ClientSession) -> None:
        model = self.rng.choice(list(MODELS))
        got = await ask(session, self.url, chat(model=model, tools=TOOLS))
        end = got.error or "whole"
        self.ends[f"{model}: {end}"] = self.ends.get(f"{model}: {end}", 0) + 1
        assert end != "internal_error"

    async def _leaves(self, session: aiohttp.ClientSession) -> None:
        _, writer = await open_connection(self.url)
        writer.write(post_bytes(chat(model=self.rng.choice(list(MODELS)), tools=TOOLS)))
        await writer.drain()
        await asyncio.sleep(self.rng.random() / 50)
        writer.transport.abort()

    async def _no_request(self, session: aiohttp.ClientSession) -> None:
        data = self.rng.choice(
            (*NO_HTTP.values(), *(post_bytes(each, "Connection: close") for each in NO_REQUEST.values()))
        )
        got = await exchange(self.url, data, seconds=60)
        assert b" 400 " in got[:20], got[:100]

    async def _surface(self, session: aiohttp.ClientSession) -> None:
        bodies: dict[str, dict[str, Any]] = {
            "/v1/responses": {"model": "honest", "input": "hi", "stream": True},
            "/v1/messages": {"model": "honest", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]},
            "/v1/feedback": {"completion_id": "chatcmpl-1", "rating": "good"},
        }
        path = self.rng.choice(list(bodies))
        async with session.post(self.url + path, json=bodies[path]) as response:
            await response.read()
            assert response.status in (200, 404), response.status


async def serves(connection: Connection, received: Received) -> None:
    """What the model's name asks for; whole where no stream is wanted."""
    if received.method != "POST" or not received.body:
        await answer_json({"object": "list", "data": []})(connection, received)
        return
    pieces = MODELS.get(received.json["model"], MODELS["honest"])
    await whole_or_streamed(f"I look.\n{CALL}", *pieces)(connection, received)


@frozen
class Sample:
    """What the workers hold, all together."""

    seconds: float
    asked: int
    rss_mib: float
    pss_mib: float
    descriptors: float
    threads: float
    tasks: float

    @classmethod
    async def of(cls, program: Program, pids: list[int], load: Soak, began: float) -> "Sample":
        rss, pss = (sum(_kib(pid, name) for pid in pids) / 1024 for name in ("Rss", "Pss"))
        descriptors = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
        threads = sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids)
        tasks = 0.0
        async with aiohttp.ClientSession() as session:
            for target in program.targets.values():
                async with session.get(f"http://127.0.0.1:{target.rpartition(':')[2]}/metrics") as response:
                    tasks += _value(await response.text(), "toolgate_event_loop_tasks")
        return cls(time.monotonic() - began, load.asked, rss, pss, descriptors, threads, tasks)

    def told(self) -> str:
        numbers = (f"{name} {value:.1f}" for name, value in asdict(self).items() if name not in ("seconds", "asked"))
        return f"{self.seconds:.0f} s, {self.asked} requests: {', '.join(numbers)}\n"


def _kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _value(exposition: str, name: str) -> float:
    return next(float(line.split()[1]) for line in exposition.splitlines() if line.startswith(f"{name} "))


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


async def soak(seconds: float, workers: int, clients: int, seed: int, rate: float, every: float) -> int:
    """Run it; 1 where something grew or was a fault of ours."""
    upstream = await FaultyUpstream(serves).start()
    samples: list[Sample] = []
    told = sys.stdout.write
    # Workers whose supervisor was killed close their store by themselves, a moment later.
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        settings = {"GATEWAY_WORKERS": str(workers), "REPAIR_ATTEMPTS": "0", "LOG_LEVEL": "info"}
        async with Program(Path(folder), UPSTREAM_URL=upstream.url, **settings) as started:
            program = await started.serving()
            pids = list(program.workers.values()) if workers > 1 else [program.pid]
            load = Soak(program.url, random.Random(seed), pause_s=clients / rate if rate else 0.0)
            began = time.monotonic()
            running = [asyncio.ensure_future(load.client(began + seconds)) for _ in range(clients)]
            while time.monotonic() < began + seconds:
                await asyncio.sleep(min(every, seconds / 20))
                samples.append(await Sample.of(program, pids, load, began))
                told(samples[-1].told())
                sys.stdout.flush()
                del upstream.requests[:], upstream.connections[:-200]
            await asyncio.gather(*running)
            await asyncio.sleep(2)
            idle = await Sample.of(program, pids, load, began)
            lines = program.lines
            alive = list(program.workers.values()) if workers > 1 else pids
    await upstream.close()
    ours = [line for line in lines if "Traceback" in line or '"level":"error"' in line or "internal_error" in line]
    quarter = max(1, len(samples) // 4)
    first, last = samples[quarter : 2 * quarter] or samples, samples[-quarter:]  # the first one fills what is bounded
    told(f"{load.asked} requests, {load.served} honest ones, {time.monotonic() - began:.0f} s, {workers} workers\n")
    is_flat = True
    mores = {"rss_mib": MOST_MORE_MIB, "pss_mib": MOST_MORE_MIB, "descriptors": 4.0 * clients, "threads": 2.0}
    for name, more in {**mores, "tasks": 4.0 * clients}.items():
        before, after = (_median([getattr(each, name) for each in part]) for part in (first, last))
        flat = after <= max(MOST_GROWTH * before, before + more)
        is_flat = is_flat and flat
        told(f"{name}: {before:.1f} -> {after:.1f}, idle {getattr(idle, name):.1f}{'' if flat else ' GREW'}\n")
    for name, count in sorted(load.ends.items()):
        told(f"  {name}: {count}\n")
    for fault in (*load.faults[:5], *ours[:5]):
        told(f"FAULT {fault[:500]}\n")
    told(f"{len(load.faults)} faults seen by clients, {len(ours)} in the log\n")
    return 0 if is_flat and not load.faults and not ours and alive == pids else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; as many as can be, without")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks at what is held")
    given = parser.parse_args()
    return asyncio.run(soak(given.seconds, given.workers, given.clients, given.seed, given.rate, given.every))


if __name__ == "__main__":
    sys.exit(main())
