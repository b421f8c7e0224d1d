"""The lanes of a worker, as its supervisor orders them."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gateway.app import build
from gateway.config.load import Settings, load
from gateway.process.lanes import open_lanes
from gateway.process.worker import LaneServer, WorkerShare
from gateway.request.shared import Shared
from tests.support.client import get

LANES = 4


@pytest.fixture
async def worker(no_leaks: None) -> AsyncIterator[tuple[LaneServer, str]]:
    """The worker of lane 0, and the address of all lanes; the other ones are nobody's."""
    lanes = open_lanes("127.0.0.1", 0, LANES)
    inherited = [[os.dup(number) for number in lane] for lane in lanes.filenos()]
    servers: list[LaneServer] = []

    def server(shared: Shared) -> LaneServer:
        servers.append(LaneServer(shared, WorkerShare(lane=0, slot=0, workers=LANES, channel=0, lanes=inherited)))
        return servers[0]

    settings = load({"GATEWAY_DRAIN_S": "0", "METRICS_PORT": "0", "STORE_URL": "memory://", "LOG_LEVEL": "error"})
    gateway = await build(settings, server=server)
    assert gateway.url == f"http://127.0.0.1:{lanes.port}"
    yield servers[0], gateway.url
    await gateway.drain()
    await gateway.close()
    lanes.close()


async def answers(url: str) -> bool:
    """Whatever lane the kernel chooses for a new connection, it is accepted."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as client, asyncio.timeout(5):
        return {(await get(client, f"{url}/healthz")).status for _ in range(50)} == {200}


async def test_orders_that_come_at_once_are_obeyed_one_after_the_other(
    worker: tuple[LaneServer, str],
) -> None:
    server, url = worker
    await asyncio.gather(server.listen(1), server.leave(1))
    await asyncio.gather(*(server.listen(lane) for lane in range(LANES)))
    assert await answers(url)


async def test_without_descriptors_a_lane_waits_and_the_worker_goes_on(
    worker: tuple[LaneServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = worker

    def none_left(number: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", none_left)
        for lane in range(LANES):
            await server.listen(lane)
    for lane in range(LANES):
        await server.listen(lane)
    assert await answers(url)


def test_all_workers_have_the_digest_of_the_operators_settings() -> None:
    settings = Settings(workers=2, metrics_port=9464, max_concurrency=7)
    own = [WorkerShare(lane=slot, slot=slot, workers=2, channel=0, lanes=[]).own(settings) for slot in (0, 1)]
    assert [each.metrics_port for each in own] == [9464, 9465]
    assert {each.digest() for each in own} == {settings.digest()}
    assert Settings(workers=2, log_level="debug").digest() != settings.digest()
