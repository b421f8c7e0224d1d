"""SQLite under load: `python -m tests.bench.store_load [--seconds 60] [--rate 300] [--workers 2]`.

A gateway of several workers answers so many new conversations a second, every one with a call that was written as text,
and keeps a record of each in one file. Afterwards every answer's id is looked for in the store. Asked is: no record
lost, no `store_failed` in the log. The load does not wait for answers that are late, so a machine with other work is
told as such (the rate that was reached), not hidden.

`--limits`: how far one Redis carries the limits of keys. What a decision costs the server is its own processor time,
which others on the machine do not move.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
from attrs import define, field

from gateway.core.errors import RateLimited
from gateway.core.records import RequestRecord
from gateway.core.rules import Quota
from gateway.state.opening import open_quotas, open_store
from tests.support.client import TOOLS, chat
from tests.support.processes import Program
from tests.support.stores import RedisServer

CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "src/a.py"}}\n</tool_call>'
LOST = re.compile(r'^toolgate_store_records_lost_total\{reason="(\w+)"\} (\S+)$', re.MULTILINE)
ERRORS = re.compile(r'^toolgate_shared_state_errors_total\{op="(\w+)"\} (\S+)$', re.MULTILINE)
LAG = re.compile(r"^toolgate_store_lag_seconds (\S+)$", re.MULTILINE)
WAITING = re.compile(r"^toolgate_store_records_waiting (\S+)$", re.MULTILINE)
SETTLE_S = 30.0
DECISIONS = 20_000
AT_ONCE = 64
KEYS = 50


@define(kw_only=True)
class Load:
    """What was asked and what came of it."""

    seconds: float = 60.0
    rate: int = 300
    workers: int = 2
    ids: set[str] = field(factory=set)
    refused: int = 0
    took: float = 0.0
    lag: float = 0.0
    lost: dict[str, float] = field(factory=dict)
    errors: dict[str, float] = field(factory=dict)
    failures: list[str] = field(factory=list)
    missing: int = 0

    @property
    def is_whole(self) -> bool:
        """Every answer has its record, and nobody had a reason to complain."""
        return not (self.missing or self.failures or self.refused or any(self.lost.values()))

    async def run(self, folder: Path) -> None:
        """Start the gateway, put the load on it, and look for every record."""
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        settings = {
            "UPSTREAM_URL": upstream,
            "GATEWAY_WORKERS": str(self.workers),
            "TRANSFORM_MODE": "full",
            "LOG_FORMAT": "json",
            "LOG_LEVEL": "info",
            "STRATEGY_RULES": "*=recovery",
        }
        async with Program(folder, **settings) as program:
            await program.serving()
            await self._ask(program)
            await self._settled(program)
            self.failures = [line for line in program.lines if '"event":"store_failed"' in line]
        server.close()
        store = open_store(f"sqlite:///{folder}/store.db", prefix="toolgate:", timeout_ms=5000, read_only=True)
        await store.open()
        self.missing = len(self.ids - {record.id async for record in store.scan(RequestRecord)})
        await store.close()

    async def _ask(self, program: Program) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as client:
            watching = asyncio.ensure_future(self._watch(program, client))
            began, running = time.monotonic(), set[asyncio.Task[None]]()
            for number in range(round(self.seconds * self.rate)):
                due = began + number / self.rate
                if (early := due - time.monotonic()) > 0.002:
                    await asyncio.sleep(early)
                task = asyncio.create_task(self._one(client, program.url, number))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.gather(*running)
            self.took = time.monotonic() - began
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _one(self, client: aiohttp.ClientSession, url: str, number: int) -> None:
        body = chat(stream=False, tools=TOOLS, messages=[{"role": "user", "content": f"Read a file, {number}"}])
        try:
            async with client.post(f"{url}/v1/chat/completions", json=body) as response:
                await response.read()
                if response.status == 200:
                    self.ids.add(response.headers["X-Request-Id"])
                    return
        except (aiohttp.ClientError, TimeoutError):
            pass
        self.refused += 1

    async def _watch(self, program: Program, client: aiohttp.ClientSession) -> None:
        while True:
            await self._scrape(program, client)
            await asyncio.sleep(1)

    async def _scrape(self, program: Program, client: aiohttp.ClientSession) -> float:
        """What the workers say of the store; how many records wait in all of them."""
        waiting = 0.0
        for slot, target in program.targets.items():
            with suppress(aiohttp.ClientError):
                async with client.get(f"http://{target}/metrics") as response:
                    told = await response.text()
                self.lost |= {f"{slot} {reason}": float(count) for reason, count in LOST.findall(told)}
                self.errors |= {f"{slot} {op}": float(count) for op, count in ERRORS.findall(told)}
                self.lag = max([self.lag, *map(float, LAG.findall(told))])
                waiting += sum(map(float, WAITING.findall(told)))
        return waiting

    async def _settled(self, program: Program) -> None:
        """Until nothing waits any more."""
        due = time.monotonic() + SETTLE_S
        async with aiohttp.ClientSession() as client:
            await asyncio.sleep(0.5)  # a batch that has just begun to gather
            while time.monotonic() < due:
                if not await self._scrape(program, client):
                    return
                await asyncio.sleep(0.2)

    def told(self) -> str:
        """The figures."""
        lines = [
            f"{len(self.ids):,} answers in {self.took:.1f} s: {len(self.ids) / max(self.took, 0.001):.0f} a second of "
            f"{self.rate} asked for, {self.workers} workers, one SQLite file",
            f"records lost: {self.missing} (workers say {sum(self.lost.values()):g})",
            f"store_failed: {len(self.failures)}; failed operations {sum(self.errors.values()):g} "
            f"{ {name: count for name, count in self.errors.items() if count} or '' }",
            f"refused or failed requests: {self.refused}; oldest record waited {self.lag:.2f} s",
        ]
        return "\n".join([*lines, *self.failures[:5]])


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A model server that says the same at once, over kept connections."""
    message = {"role": "assistant", "content": f"I will look.\n{CALL}"}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m"}
    usage = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = json.dumps(answer | {"choices": choices, "usage": usage}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            asked = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(asked.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
            writer.write(head + body)
    writer.close()


async def cpu_s(server: RedisServer) -> float:
    """The processor time that the server has used."""
    reader, writer = await asyncio.open_unix_connection(str(server.path))
    writer.write(b"*2\r\n$4\r\nINFO\r\n$3\r\ncpu\r\n")
    size = int((await reader.readline())[1:])
    shown = (await reader.readexactly(size + 2)).decode()
    writer.close()
    await writer.wait_closed()
    values = dict(line.split(":") for line in shown.splitlines() if ":" in line)
    return float(values["used_cpu_user"]) + float(values["used_cpu_sys"])


async def limits(folder: Path) -> None:
    """What decisions on limits cost one Redis, admitted and refused."""
    server = await RedisServer(folder).start()
    quotas = open_quotas(server.url, prefix="toolgate:", timeout_ms=5000)
    assert quotas is not None
    for name, quota in (("admitted", Quota(requests=10**6, tokens=10**9)), ("refused", Quota(requests=1))):
        left = iter(range(DECISIONS))

        async def ask(left=left, quota=quota, name=name) -> None:
            for number in left:
                try:
                    await quotas.enter(f"{name}-{number % KEYS}", quota)
                except RateLimited:
                    continue

        before, began = await cpu_s(server), time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
        seconds, used = time.perf_counter() - began, await cpu_s(server) - before
        print(
            f"{name}: {used / DECISIONS * 1e6:.0f} us of the server's processor a decision, "
            f"at most {DECISIONS / used:,.0f} a second; from one process here {DECISIONS / seconds:,.0f} a second"
        )
    await quotas.close()
    await server.close()


async def main(arguments: list[str]) -> int:
    """0 if every answer has its record."""
    parser = argparse.ArgumentParser(description="Stores under load.")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    if given.limits:
        with tempfile.TemporaryDirectory() as folder:
            await limits(Path(folder))
        return 0
    load = Load(seconds=given.seconds, rate=given.rate, workers=given.workers)
    with tempfile.TemporaryDirectory() as folder:
        await load.run(Path(folder))
    print(load.told())
    return 0 if load.is_whole else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
