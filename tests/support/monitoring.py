"""A real Prometheus and a real Alertmanager as they are shipped, only faster and with other addresses."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway.process.status import write_targets
from tests.support.processes import free_port

ROOT = Path(__file__).parents[2] / "grafana"
PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("prometheus-alertmanager")
CONFIGURATION = (ROOT / "prometheus" / "prometheus.yml").read_text("utf-8")
ALERTING = (ROOT / "prometheus" / "alertmanager.yml").read_text("utf-8")

needs_prometheus = pytest.mark.skipif(
    (PROMETHEUS is None or ALERTMANAGER is None) and "TOOLGATE_CI" not in os.environ,
    reason="needs prometheus and prometheus-alertmanager",
)


@asynccontextmanager
async def program(*command: str, folder: Path) -> AsyncIterator[None]:
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out)
    try:
        yield
        assert process.returncode is None, log.read_text()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Prometheus:
    """What a running Prometheus is asked."""

    def __init__(self, client: aiohttp.ClientSession, port: int) -> None:
        self._client = client
        self.url = f"http://127.0.0.1:{port}"

    async def _get(self, path: str, **parameters: str) -> Any:
        for _ in range(40):
            async with self._client.get(f"{self.url}/api/v1/{path}", params=parameters) as response:
                if response.status != 503:  # that one says that it has only begun, or has no time now
                    document = await response.json()
                    assert document["status"] == "success", document
                    return document["data"]
            await asyncio.sleep(0.25)
        raise aiohttp.ClientConnectionError("Prometheus has no time")

    async def value(self, query: str) -> float:
        """The one number that a query has, or 0."""
        result = (await self._get("query", query=query))["result"]
        return float(result[0]["value"][1]) if result else 0.0

    async def over_time(self, query: str, *, seconds: int) -> list[list[float]]:
        """The values of every series over the last seconds."""
        now = await self.value("vector(time())")
        data = await self._get("query_range", query=query, start=str(now - seconds), end=str(now), step="1")
        return [[float(value) for _, value in series["values"]] for series in data["result"]]

    async def until(self, query: str, seconds: float = 60.0) -> None:
        """Wait, bounded, until a query has a value other than 0."""
        async with asyncio.timeout(seconds):
            while True:
                with suppress(aiohttp.ClientConnectionError, aiohttp.ContentTypeError):  # it has only begun
                    if await self.value(query):
                        return
                await asyncio.sleep(0.1)


@asynccontextmanager
async def prometheus(
    folder: Path, client: aiohttp.ClientSession, metrics_url: str = "", *, alertmanager: int = 9, targets: str = ""
) -> AsyncIterator[Prometheus]:
    """Prometheus with the shipped configuration; `targets` is the file that a gateway keeps, if it does."""
    assert PROMETHEUS is not None
    port = free_port()
    shutil.copytree(ROOT / "prometheus" / "rules", folder / "rules")
    if not targets:
        targets = str(folder / "metrics.json")
        write_targets(targets, [(0, metrics_url.removeprefix("http://").removesuffix("/metrics"))])
    text = CONFIGURATION.replace("_interval: 15s", "_interval: 1s").replace("/run/toolgate/metrics.json", targets)
    text = text.replace("127.0.0.1:9093", f"127.0.0.1:{alertmanager}").replace("127.0.0.1:9090", f"127.0.0.1:{port}")
    (folder / "prometheus.yml").write_text(text)
    options = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    async with program(PROMETHEUS, *options, folder=folder):
        yield Prometheus(client, port)


async def until_received(received: asyncio.Queue[tuple[str, Any]]) -> tuple[str, Any]:
    async with asyncio.timeout(60):
        return await received.get()


@asynccontextmanager
async def alertmanager(folder: Path, port: int, receiver_url: str) -> AsyncIterator[None]:
    """Alertmanager with the shipped configuration, only faster and with another receiver."""
    assert ALERTMANAGER is not None
    text = re.sub(r"group_wait: \d+s", "group_wait: 1s", ALERTING).replace("http://127.0.0.1:9095", receiver_url)
    (folder / "alertmanager.yml").write_text(text)
    options = (
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    async with program(ALERTMANAGER, *options, folder=folder):
        yield


@asynccontextmanager
async def receiver() -> AsyncIterator[tuple[asyncio.Queue[tuple[str, Any]], str]]:
    """A web server that takes Alertmanager's messages."""
    received: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        received.put_nowait((request.path, json.loads(await request.read())))
        return web.Response()

    app = web.Application()
    app.router.add_post("/{name}", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield received, f"http://{host}:{port}"
    finally:
        await runner.cleanup()
