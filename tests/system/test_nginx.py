"""A real nginx with the documented configuration in front of the gateway."""

import asyncio
import io
import json
import re
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.app import Gateway
from tests.deploy.proxy import DEPLOY, HAS_NGINX, nginx, running, temporary_paths
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    completion,
    event,
    paused,
    stream,
    text,
)
from tests.support.processes import Load, Program, SlowAnswers, free_port, until

pytestmark = pytest.mark.skipif(not HAS_NGINX, reason="needs nginx")


def configuration(folder: Path, gateway_url: str, port: int) -> Path:
    """The documented servers, between what nginx needs to run for a test."""
    found = re.search(r"```nginx\n(.*?)```", (DEPLOY / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    servers = found[1].replace("127.0.0.1:8080", gateway_url.removeprefix("http://"))
    servers = servers.replace("127.0.0.1:8443", f"127.0.0.1:{port}")
    path = folder / "nginx.conf"
    path.write_text(
        f"master_process off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary_paths(folder)}\n{servers}\n}}\n"
    )
    return path


@pytest.fixture
def start(gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream, tmp_path: Path) -> Callable[..., Any]:
    """Starts both: `async with start(GATEWAY_API_KEYS="k") as (url, running)`."""

    @asynccontextmanager
    async def both(**environ: str) -> AsyncIterator[tuple[str, Gateway]]:
        started = await gateway(upstream.url, **environ)
        port = free_port()
        async with running(tmp_path, configuration(tmp_path, started.url, port), port):
            yield f"http://127.0.0.1:{port}", started

    return both


async def test_a_call_comes_through(
    start: Callable[..., Any], upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    call = text("<read_file>\n<path>a.py</path>\n</read_file>")
    upstream.script = stream(text("Let me see.\n\n"), call, event(finish="stop"), DONE)
    async with start() as (url, _):
        answer = await ask(client, url, chat(model="m", tools=TOOLS))
    assert answer.content == "Let me see."
    assert answer.is_done
    assert answer.headers["X-Toolgate-Strategy"] == "recovery"
    assert any(choice["finish_reason"] == "tool_calls" for chunk in answer.chunks for choice in chunk["choices"])


async def test_a_stream_is_not_held_back(
    start: Callable[..., Any], upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    go_on = asyncio.Event()

    upstream.script = paused(go_on, text("first"), text("second"), event(finish="stop"), DONE)
    async with start() as (url, _), client.post(f"{url}/v1/chat/completions", json=chat()) as response:
        async with asyncio.timeout(10):
            assert b"first" in await response.content.readuntil(b"\n\n")
        go_on.set()
        assert b"second" in await response.content.read()


async def test_a_long_conversation_is_let_in(
    start: Callable[..., Any], upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(completion())
    body = chat(stream=False, messages=[{"role": "user", "content": "x" * (8 << 20)}])
    async with start() as (url, _):
        data = io.BytesIO(json.dumps(body).encode())
        async with client.post(f"{url}/v1/chat/completions", data=data) as response:
            assert response.status == 200
    assert len(upstream.last.body) > 8 << 20


async def test_errors_come_through_as_they_are(
    start: Callable[..., Any], upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    async with start(GATEWAY_API_KEYS="right") as (url, _):
        refused = await ask(client, url)
        assert (refused.status, refused.error) == (401, "unauthenticated")
        upstream.script = stream(text("half"))
        cut = await ask(client, url, headers={"Authorization": "Bearer right"})
        assert (cut.status, cut.error, cut.content) == (200, "upstream_truncated", "half")


async def test_only_the_api_can_be_reached(start: Callable[..., Any], client: aiohttp.ClientSession) -> None:
    async with start() as (url, running):
        assert (await get(client, f"{running.url}/metrics")).status == 200
        assert [(await get(client, f"{url}{path}")).status for path in ("/metrics", "/healthz", "/")] == [404] * 3


async def test_a_client_that_leaves_takes_the_upstream_call_with_it(
    start: Callable[..., Any], upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    async def endless(connection: Connection, received: Received) -> None:
        await connection.send(STREAM_HEAD, text("first"))
        await connection.until_gone()

    upstream.script = endless
    async with start() as (url, _):
        async with client.post(f"{url}/v1/chat/completions", json=chat()) as response:
            await response.content.readuntil(b"\n\n")
            response.close()
        await upstream.until_all_gone(5.0)


# --- Streams through a real nginx, as it is shipped, and several workers: in time, and whole whatever is restarted.


STREAMS = 200

EVENTS = 8

PAUSE_S = 0.5

UNLIMITED = {
    "rate=10r/s": "rate=10000r/s",
    "burst=40 nodelay": "burst=4000 nodelay",
    "limit_conn toolgate_streams 100": "limit_conn toolgate_streams 2000",
}

"""nginx as shipped, but for its limits per address: all clients of a test have the same one."""


@pytest.fixture
async def program(upstream: FaultyUpstream, tmp_path: Path) -> AsyncIterator[Program]:
    """Two workers that answer."""
    async with Program(tmp_path, UPSTREAM_URL=upstream.url, GATEWAY_WORKERS="2") as started:
        yield await started.serving()


async def stamped(connection: Connection, received: Received) -> None:
    """A stream whose events say when they were sent."""
    await connection.send(STREAM_HEAD)
    begun = time.perf_counter()
    for number in range(EVENTS):
        # Spread out: what is measured is the way, not a queue that the test itself makes.
        await asyncio.sleep(max(0.0, begun + number * PAUSE_S - time.perf_counter()))
        await connection.send(text(f"{time.perf_counter():.6f} "))
    await connection.send(event(finish="stop"), DONE)


async def delays(url: str, session: aiohttp.ClientSession, *, streams: int) -> list[float]:
    """How long after it was sent each event of so many streams at once arrived."""
    found: list[float] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number * PAUSE_S / streams)
        async with session.post(f"{url}/chat/completions", json=chat()) as response:
            assert response.status == 200
            seen = 0
            async for line in response.content:
                if b'"content"' in line:
                    arrived = time.perf_counter()
                    seen += 1
                    found.append(arrived - float(line.split(b'"content": "')[1].split()[0]))
            assert seen == EVENTS

    await asyncio.gather(*(one(number) for number in range(streams)))
    return found


async def test_two_hundred_streams_at_once_come_in_time(
    program: Program, upstream: FaultyUpstream, tmp_path: Path
) -> None:
    upstream.script = stamped
    folder = tmp_path / "nginx"
    folder.mkdir()
    async with nginx(folder, program.url, changes=UNLIMITED) as proxy:
        connector = aiohttp.TCPConnector(limit=0, ssl=proxy.trusted())
        async with aiohttp.ClientSession(connector=connector) as session:
            for _ in range(3):  # while others had the machine, what was measured was their work
                direct = await delays(upstream.url, session, streams=STREAMS)
                through = await delays(f"{proxy.url}/v1", session, streams=STREAMS)
                assert len(direct) == len(through) == STREAMS * EVENTS
                added = [quantile(through, share) - quantile(direct, share) for share in (50, 99)]
                print("added ms at p50 and p99:", [round(1000 * value, 2) for value in added])
                # On a quiet machine 5 ms; a stream that is held back is late by seconds.
                if added[0] < 0.025 and added[1] < 0.25:
                    break
            else:
                pytest.fail(f"three times too late: {added}")


def quantile(values: list[float], share: int) -> float:
    return statistics.quantiles(values, n=100)[share - 1]


async def test_neither_reloads_of_nginx_nor_a_restart_of_all_workers_cut_a_stream(
    program: Program, upstream: FaultyUpstream, tmp_path: Path
) -> None:
    answers = SlowAnswers(events=8, pause_s=0.4)
    upstream.script = answers.script
    folder = tmp_path / "nginx"
    folder.mkdir()
    async with nginx(folder, program.url, changes=UNLIMITED) as proxy:
        # New connections only: nginx closes idle ones of its clients at a reload, and a client must expect that.
        load = Load(url=proxy.url, answers=answers, streams=STREAMS, short=4, keeps=False, tls=proxy.trusted())
        async with load:
            await until(lambda: len(upstream.requests) >= STREAMS)
            for _ in range(3):
                await proxy.reload()
            await program.restarted(1)
            await load.stop()
    assert load.faults == []
    assert load.whole >= STREAMS
    assert load.answered > 20


async def test_restarts_of_all_workers_cost_no_request_over_connections_that_nginx_keeps(
    program: Program, upstream: FaultyUpstream, tmp_path: Path
) -> None:
    answers = SlowAnswers()
    upstream.script = answers.script
    folder = tmp_path / "nginx"
    folder.mkdir()
    async with nginx(folder, program.url, changes=UNLIMITED) as proxy:
        async with Load(url=proxy.url, answers=answers, short=12, tls=proxy.trusted()) as load:
            for count in range(1, 4):
                await program.restarted(count)
            await load.stop()
        connector = aiohttp.TCPConnector(ssl=proxy.trusted())
        async with aiohttp.ClientSession(connector=connector) as session:
            assert (await ask(session, proxy.url, chat(stream=False))).status == 200
    assert load.faults == []
    assert load.answered > 100
