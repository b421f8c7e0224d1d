"""The inspector beside a gateway that is busy: what it costs the gateway, and that a page misses nothing."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path

import aiohttp
import pytest

from gateway.core.records import RequestRecord
from gateway.state.sqlite import SqliteStore
from tests.support.inspecting import WEATHER, environ, holds, inspector, printed, running_process
from tests.support.processes import free_ports

PER_SECOND = 200
SECONDS = 6
ROWS_A_VISIT = 250
TICK = os.sysconf("SC_CLK_TCK")


async def _load(url: str) -> None:
    """So many requests, each at its time; one that meets a worker that leaves may fail."""
    body = {"model": "demo-xml", "messages": [{"role": "user", "content": "Weather in Paris?"}], "tools": [WEATHER]}
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0)) as session:

        async def one() -> None:
            with suppress(aiohttp.ClientError):
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    await answer.read()

        async with asyncio.TaskGroup() as tasks:
            for number in range(PER_SECOND * SECONDS):
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - loop.time()))
                tasks.create_task(one())


def _spent(pid: int) -> float:
    """CPU seconds of a process and of those that it has started, the ended ones too."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK + sum(_spent(each) for each in _children(pid))


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(each) for each in listed.split()]


async def _rows(session: aiohttp.ClientSession, home: str, cursor: str) -> AsyncGenerator[tuple[str, str], None]:
    """Cursor and id of each row of one visit."""
    async with session.get(f"{home}/api/live", headers={"Last-Event-ID": cursor}) as answer:
        answer.raise_for_status()
        place = event = ""
        async for line in answer.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                place = value
            elif name == "event":
                event = value
            elif name == "data" and event in ("row", "outcome"):
                yield place, json.loads(value)["id"] if event == "row" else ""


async def _watch(session: aiohttp.ClientSession, home: str, seen: list[str]) -> None:
    """Read on for ever, and come anew again and again."""
    async with session.get(f"{home}/api/state") as answer:
        cursor = (await answer.json())["cursor"]
    while True:
        count = 0
        async with aclosing(_rows(session, home, cursor)) as rows:
            async for place, request_id in rows:
                cursor = place
                seen += [request_id] * bool(request_id)
                count += 1
                if count == ROWS_A_VISIT:
                    break


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_page_beside_two_busy_workers_misses_no_row_and_costs_them_nothing(tmp_path):
    (port,) = free_ports(1)
    settings = environ(tmp_path, GATEWAY_PORT=str(port), GATEWAY_WORKERS="2", LOG_FORMAT="json", LOG_LEVEL="error")
    url, seen = f"http://127.0.0.1:{port}", list[str]()
    async with running_process("serve", environ=settings) as process:
        await printed(process, rb"listens on (\S+)")
        await _load(url)  # both have begun
        costs = []
        before = _spent(process.pid)
        await _load(url)
        costs.append(_spent(process.pid) - before)
        async with (
            inspector(tmp_path) as address,
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        ):
            home = address.partition("/?")[0]
            async with session.get(address) as answer:
                assert answer.status == 200
            store = SqliteStore(tmp_path / "toolgate.db", timeout_s=5)

            async def kept() -> list[str]:
                return [each.id async for each in store.scan(RequestRecord)]

            async def is_quiet() -> bool:
                count = len(await kept())
                await asyncio.sleep(1)
                return len(await kept()) == count

            await holds(is_quiet, 30)
            earlier = set(await kept())
            watching = asyncio.create_task(_watch(session, home, seen))
            await asyncio.sleep(1)
            before = _spent(process.pid)
            await _load(url)
            costs.append(_spent(process.pid) - before)
            process.send_signal(signal.SIGUSR2)  # both are replaced, one after the other
            await _load(url)
            await holds(is_quiet, 30)

            async def has_all() -> bool:
                return len(seen) >= len(set(await kept()) - earlier)

            with suppress(TimeoutError):
                await holds(has_all, 20)
            assert not watching.done(), watching
            watching.cancel()
            await asyncio.wait([watching])
            new = set(await kept()) - earlier
            await store.close()
    assert len(seen) == len(set(seen))
    assert (len(set(seen) - new), len(new - set(seen))) == (0, 0), "rows of nobody, rows that were missed"
    assert len(new) > PER_SECOND * SECONDS
    print(
        f"CPU seconds of the gateway for {PER_SECOND * SECONDS} requests: without {costs[0]:.2f}, with {costs[1]:.2f}"
    )
    assert costs[1] < costs[0] * 1.25, costs
