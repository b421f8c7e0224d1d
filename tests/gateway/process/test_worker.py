"""The lanes of a worker, as its supervisor orders them."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.app import build
from gateway.config.load import Settings, load
from gateway.process.first_look import look_around
from gateway.process.lanes import open_lanes
from gateway.process.notify import Notifier
from gateway.process.worker import LaneServer, WorkerShare
from gateway.request.shared import Shared
from tests.support.client import get
from tests.support.faulty_upstream import FaultyUpstream, answer, answer_json, without_tls
from tests.support.processes import free_port

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


# --- What systemd is told, and that nothing happens where there is none


def test_without_systemd_nothing_is_told() -> None:
    notifier = Notifier.from_environ({})
    notifier.ready("fine")
    assert (notifier.address, notifier.watchdog_s) == (None, None)


@pytest.mark.parametrize("abstract", [True, False])
def test_every_message_is_one_datagram(abstract: bool, tmp_path: Path) -> None:
    name = f"@toolgate-test-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name[1:]}" if abstract else name)
        notifier = Notifier.from_environ({"NOTIFY_SOCKET": name})
        notifier.ready("listens")
        notifier.reloading()
        notifier.alive()
        notifier.stopping()
        assert listening.recv(4096) == b"READY=1\nSTATUS=listens"
        first, second = listening.recv(4096).decode().split("\n")
        assert first == "RELOADING=1"
        assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
        assert listening.recv(4096) == b"WATCHDOG=1"
        assert listening.recv(4096) == b"STOPPING=1\nSTATUS=draining"


def test_who_does_not_listen_any_more_harms_nothing(tmp_path: Path) -> None:
    Notifier(address=str(tmp_path / "gone")).alive()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_ours_or_none(environ: dict[str, str], expected: float | None) -> None:
    assert Notifier.from_environ({"NOTIFY_SOCKET": "/run/notify", **environ}).watchdog_s == expected


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_an_address_of_another_kind_is_left_alone(address: str) -> None:
    assert Notifier.from_environ({"NOTIFY_SOCKET": address}).address is None


LISTING = {"object": "list", "data": [{"id": f"model-{number}"} for number in range(6)]}


@pytest.fixture(autouse=True)
def looks_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyUpstream, "shows_looks", True)


async def test_the_models_are_counted(gateway, upstream, log):
    upstream.script = answer_json(LISTING)
    await look_around(await gateway(upstream.url))
    line = await log.record("model_server_seen")
    assert (line["level"], line["upstream"], line["models"]) == ("info", "default", 6)
    assert line["message"] == f"{upstream.url} has model-0, model-1, model-2 and 3 more"
    assert len(upstream.requests) == 1


async def test_an_address_without_its_path_is_named_with_its_setting(gateway, upstream, log):
    upstream.script = answer_json({"detail": "Not Found"}, status="404 Not Found")
    await look_around(await gateway(upstream.url.removesuffix("/v1")))
    line = await log.record("model_server_seen")
    assert "does UPSTREAM_URL include it" in line["advice"]
    assert line["level"] == "warning"


async def test_tls_where_there_is_none_is_named(gateway, log):
    async with without_tls() as port:
        await look_around(await gateway(f"https://127.0.0.1:{port}/v1"))
    line = await log.record("model_server_seen")
    assert line["advice"] == "is it http:// in UPSTREAM_URL, not https://?"
    assert line["level"] == "error"


async def test_plain_http_on_a_port_of_tls_is_named(gateway, upstream, log):
    body = b"<center>The plain HTTP request was sent to HTTPS port</center>"
    upstream.script = answer(body, status="400 Bad Request")
    await look_around(await gateway(upstream.url))
    line = await log.record("model_server_seen")
    assert line["advice"] == "is it https:// in UPSTREAM_URL?"


async def test_a_port_where_nobody_listens(gateway, log):
    await look_around(await gateway(f"http://127.0.0.1:{free_port()}/v1"))
    line = await log.record("model_server_seen")
    assert "cannot be reached: Connection refused" in line["message"]
    assert "does UPSTREAM_URL name its host and port?" in line["advice"]


async def test_the_demo_is_not_looked_at(gateway, log):
    await look_around(await gateway(None))
    assert "model_server_seen" not in log.path.read_text()
