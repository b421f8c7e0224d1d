"""A real nginx with the documented configuration in front of the gateway."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.app import Gateway
from tests.deploy.proxy import DEPLOY, HAS_NGINX, running, temporary_paths
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
from tests.support.processes import free_port

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
