"""What holds at the limits of one real process: clients that leave, servers that always fail, three times the load.

    python -m tests.soak.limits [--leaving 1000] [--failing 300] [--seconds 5]

A line for each promise with what was seen; the exit code is 1 where one is not kept. Times are those of the machine, so
that a busy one tells of itself, too: how long a timer of this process is late is told beside them.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import aiohttp
from attrs import define, field

from tests.soak.__main__ import Sample, Soak
from tests.support.client import ask, chat, get, open_connection, post_bytes
from tests.support.faulty_upstream import (
    STREAM_HEAD,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    completion,
    text,
)
from tests.support.processes import Program

FAILURES = {
    "closes": b"",
    "503": b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "503, soon": b"HTTP/1.1 503 No\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "429, soon": b"HTTP/1.1 429 No\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "500": b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "no JSON": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
}
PLACES = 20
ANSWER_S = 0.2
ROUNDS = 4


@define
class Limits:
    """One process under load, and what was not kept."""

    program: Program
    upstream: FaultyUpstream
    broken: list[str] = field(factory=list)
    arrived: dict[int, asyncio.Future[Connection]] = field(factory=dict)

    def says(self, name: str, *, kept: bool, words: str) -> None:
        sys.stdout.write(f"{name}: {words}{'' if kept else ' NOT KEPT'}\n")
        sys.stdout.flush()
        if not kept:
            self.broken.append(name)

    async def leaving(self, count: int) -> None:
        """The model server's work ends within a second of its client, and nothing is left."""
        self.upstream.script = self._quiet
        before = await self._held()
        took: list[float] = []
        for _ in range(count // 20):
            took += await asyncio.gather(*(self._leave(number) for number in range(20)))
            del self.upstream.connections[:]
        await asyncio.sleep(1.0)
        after = await self._held()
        in_time = sum(each <= 1.0 for each in took) / len(took)
        left = (after.tasks - before.tasks, after.descriptors - before.descriptors, after.threads - before.threads)
        words = f"{in_time:.2%} of {len(took)} within 1 s, longest {max(took):.2f} s; left {left} tasks, files, threads"
        self.says("clients that leave", kept=in_time >= 0.999 and left[0] <= 1 and left[1] <= 2, words=words)

    async def _held(self) -> Sample:
        return await Sample.of(self.program, [self.program.pid], Soak(self.program.url, None), time.monotonic())  # type: ignore[arg-type]

    async def _quiet(self, connection: Connection, received: Received) -> None:
        self.arrived[int(received.json["user"])].set_result(connection)
        if received.json["stream"]:
            await connection.send(STREAM_HEAD, text("a"))
        await connection.until_gone()

    async def _leave(self, number: int) -> float:
        reader, writer = await open_connection(self.program.url)
        arrived = self.arrived[number] = asyncio.get_running_loop().create_future()
        writer.write(post_bytes(chat(user=str(number), stream=number % 4 != 0)))
        connection = await arrived
        if number % 4:
            await reader.readuntil(b"}]}")
        began = time.monotonic()
        if number % 2:
            writer.transport.abort()
        else:
            writer.close()
        await connection.gone.wait()
        return time.monotonic() - began

    async def failing(self, count: int, name: str) -> None:
        """Where every request fails, a server is asked hardly more often than it would be without the gateway."""
        self.upstream.script = _fails(FAILURES[name])
        del self.upstream.requests[:]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            statuses = set()
            for _ in range(count // 50):
                answers = (ask(client, self.program.url, chat(stream=False)) for _ in range(50))
                statuses |= {got.status for got in await asyncio.gather(*answers)}
        share = len(self.upstream.requests) / count
        words = f"asked {share:.3f} times a request, answers {', '.join(map(str, sorted(statuses)))}"
        self.says(f"a server that fails, {name}", kept=share <= 1.2 and 200 not in statuses, words=words)

    async def overload(self, seconds: float) -> None:
        """Three times the load serves as many as its own share, refuses quickly, and answers whoever looks after it."""
        self.upstream.script = _slow
        alone, served, refused, slowest, seen = 0, 0, 0, [0.0], [0.0]
        for _ in range(ROUNDS):  # in turns, as other programs of the machine have their ups and downs
            alone += (await self._load(PLACES, seconds / ROUNDS))[0]
            looks = asyncio.ensure_future(self._look(seconds / ROUNDS))
            count, refusals = await self._load(3 * PLACES, seconds / ROUNDS)
            served, refused = served + count, refused + len(refusals)
            slowest += refusals
            seen += await looks
        goodput, refusal, look = served / alone, _most(slowest), _most(seen)
        self.says(
            "three times the load",
            kept=goodput >= 0.9 and refusal < 0.05 and look < 0.2,
            words=f"{goodput:.0%} of what is served at its capacity ({alone / seconds:.0f}/s), {refused} refused in at "
            f"most {refusal * 1000:.0f} ms (99 %), health and metrics in {look * 1000:.0f} ms",
        )

    async def _load(self, clients: int, seconds: float) -> tuple[int, list[float]]:
        served, refusals = 0, list[float]()
        end = time.monotonic() + seconds
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

            async def one() -> None:
                nonlocal served
                while time.monotonic() < end:
                    began = time.monotonic()
                    got = await ask(client, self.program.url, chat(stream=False))
                    if got.status == 200:
                        served += 1
                    else:
                        refusals.append(time.monotonic() - began)
                        await asyncio.sleep(ANSWER_S)

            await asyncio.gather(*(one() for _ in range(clients)))
        return served, refusals

    async def _look(self, seconds: float) -> list[float]:
        """How long health and metrics took."""
        took, end = list[float](), time.monotonic() + seconds
        metrics = f"http://127.0.0.1:{next(iter(self.program.targets.values())).rpartition(':')[2]}/metrics"
        async with aiohttp.ClientSession() as client:
            while time.monotonic() < end:
                for url in (f"{self.program.url}/healthz", metrics):
                    began = time.monotonic()
                    assert (await get(client, url)).status == 200
                    took.append(time.monotonic() - began)
                await asyncio.sleep(0.05)
        return took


def _fails(answer: bytes) -> Callable[[Connection, Received], Awaitable[None]]:
    async def script(connection: Connection, received: Received) -> None:
        if answer:
            await connection.send(answer)

    return script


async def _slow(connection: Connection, received: Received) -> None:
    await asyncio.sleep(ANSWER_S)
    await answer_json(completion("hello"))(connection, received)


async def _late() -> float:
    """How late the timers of this process are, 99 % of the time."""
    late = []
    for _ in range(100):
        began = time.monotonic()
        await asyncio.sleep(0.005)
        late.append(time.monotonic() - began - 0.005)
    return _most(late)


def _most(values: list[float]) -> float:
    """What 99 % of them do not exceed."""
    return sorted(values)[int(0.99 * (len(values) - 1))]


async def limits(leaving: int, failing: int, seconds: float) -> int:
    broken = []
    sys.stdout.write(f"timers of this process are {await _late() * 1000:.1f} ms late (99 %)\n")
    work: dict[str, Callable[[Limits], Awaitable[None]]] = {
        "leaving": lambda under: under.leaving(leaving),
        **{name: partial(Limits.failing, count=failing, name=name) for name in FAILURES},
        "overload": lambda under: under.overload(seconds),
    }
    for name, one in work.items():
        upstream = await FaultyUpstream(answer_json(completion("hello"))).start()
        places = str(PLACES if name == "overload" else 2000)
        with tempfile.TemporaryDirectory(prefix="limits-") as folder:
            started = Program(Path(folder), UPSTREAM_URL=upstream.url, GATEWAY_MAX_CONCURRENCY=places)
            async with started, aiohttp.ClientSession() as client:
                under = Limits(await started.serving(), upstream)
                await ask(client, started.url, chat(stream=False))  # what the first request makes is there for all
                await one(under)
                broken += under.broken
        await upstream.close()
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaving", type=int, default=1000)
    parser.add_argument("--failing", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    return asyncio.run(limits(given.leaving, given.failing, given.seconds))


if __name__ == "__main__":
    sys.exit(main())
