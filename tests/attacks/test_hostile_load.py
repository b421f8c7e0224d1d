"""Real workers under a mixed attack: none dies of it, and who means it well is served all the while."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp

from tests.attacks.arena import CALL, TOOLS, calls_of
from tests.attacks.test_hostile_clients import NO_HTTP, NO_REQUEST
from tests.support.client import ask, chat, exchange, open_connection, post_bytes
from tests.support.faulty_upstream import DONE, STREAM_HEAD, Connection, FaultyUpstream, Received, event, text
from tests.support.processes import Program, is_alive, until

FLOOD = [event(choices=[{"index": number, "delta": {"content": "x"}} for number in range(4000)]), DONE]
ENDLESS = text('{"name": "' + '\\"' * 50_000)


async def serves(connection: Connection, received: Received) -> None:
    """An honest answer, unless the model's name says what to do."""
    pieces = {
        "flood": FLOOD,
        "endless": [ENDLESS, ENDLESS],
        "cut": [text(CALL[:20])],
    }.get(received.json["model"], [text("I look.\n"), text(CALL), event(finish="stop"), DONE])
    await connection.send(STREAM_HEAD, *pieces)


async def test_workers_live_through_all_of_it(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = serves
    async with Program(tmp_path, UPSTREAM_URL=upstream.url, GATEWAY_WORKERS="2", REPAIR_ATTEMPTS="0") as started:
        program = await started.serving()
        workers = set(program.workers.values())
        over = asyncio.Event()
        served = 0

        async def means_well() -> None:
            nonlocal served
            while not over.is_set():
                got = await ask(client, program.url, chat(model="honest", tools=TOOLS))
                assert calls_of(got) == [("read_file", {"path": "a.py"})]
                served += 1

        async def model(name: str) -> None:
            await ask(client, program.url, chat(model=name, tools=TOOLS))

        async def leaves() -> None:
            _, writer = await open_connection(program.url)
            writer.write(post_bytes(chat(model="honest", tools=TOOLS)))
            await writer.drain()
            writer.transport.abort()

        honest = [asyncio.ensure_future(means_well()) for _ in range(3)]
        sends: list[Any] = [exchange(program.url, data, seconds=30) for data in NO_HTTP.values()]
        posts = [
            exchange(program.url, post_bytes(data, "Connection: close"), seconds=30) for data in NO_REQUEST.values()
        ]
        models = [model(name) for name in ("flood", "endless", "cut") * 3]
        async with asyncio.timeout(60):
            await asyncio.gather(*sends, *posts, *models, *(leaves() for _ in range(20)))
        over.set()
        await asyncio.gather(*honest)
        assert served >= 3
        assert set(program.workers.values()) == workers
        assert all(map(is_alive, workers))
        os.kill(min(workers), signal.SIGKILL)
        await until(lambda: len(set(program.workers.values()) - workers) == 1)
        await model("honest")
        assert not [line for line in program.lines if "Traceback" in line or "internal_error" in line]
