"""What each wire costs beside a bare relay: `python -m tests.bench.surfaces`, CPU time as a ratio to it.

Gateway, relay, model server and client share one process, the last two as bare protocols; what those cost by
themselves is taken off. Each event is a read of its own. Ratios hold within a round, of which the median is told. The
relay is the smallest honest one that aiohttp makes: bytes in, bytes out, nothing looked at. What a route costs is
compared with a relay of the same bytes where both sides speak one wire, else with a relay of the server's. Python's
collector is set as in service, for the relay as well.

`--paced` tells the same of what comes as models and agents send it, a pause before each: gateway and relay are
processes of their own, between pauses other things have the processor's caches, and the CPU is what the system counts
(Linux alone).
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import structlog
import uvloop
from aiohttp import web

from gateway.app import GC_THRESHOLDS
from gateway.telemetry.logs import configure_logging
from tests.bench.cold import Used, started
from tests.bench.counts import (
    EVENT_HEAD,
    EVENTS,
    ROUTES,
    WARM,
    Route,
    _Reader,
    _Server,
    claude_code_request,
    post,
)
from tests.bench.requests import LAST_CHUNK, _Peer, begun, repeat

__all__ = ["ratios"]

REQUESTS = 60
WAYS = ("native", "recovery")
STREAMS, PER_S = 24, 30
"""Side by side, and events of each in a second."""
WARM_PACED, PACED = 15, 90
"""Events of each: before it counts, and that do."""
_SKIPPED = frozenset({"host", "content-length", "transfer-encoding", "connection", "keep-alive"})


@asynccontextmanager
async def bare_relay(upstream: str) -> AsyncIterator[int]:
    """The port of a relay to this address."""
    timeout = aiohttp.ClientTimeout(total=None)
    session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)

    async def relay(request: web.BaseRequest) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _SKIPPED}
        body = await request.read()
        async with session.request(request.method, upstream + request.path_qs, data=body, headers=headers) as reply:
            kept = {name: value for name, value in reply.headers.items() if name.lower() not in _SKIPPED}
            response = web.StreamResponse(status=reply.status, headers=kept)
            response.content_length = reply.content_length
            await response.prepare(request)
            async for data in reply.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    runner = web.ServerRunner(web.Server(relay))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
        await session.close()


async def _events(port: int, route: Route, server: _Server, mark: bytes) -> float:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    before = 0.0

    def read() -> None:
        nonlocal before
        if server.left == EVENTS:
            before = time.process_time()
        server.go_on()

    transport, _ = await loop.create_connection(lambda: _Reader(mark, read, done), "127.0.0.1", port)
    transport.write(post(port, route.path, route.ask(True)))
    await done
    spent = time.process_time() - before
    transport.close()
    return spent


class _Paced(_Server):
    """A model server that writes a word to each of its streams in turn."""

    def __init__(self, route: Route) -> None:
        super().__init__(route)
        self.streams: list[_Peer] = []
        self.all_here = asyncio.Event()

    def asked(self, peer: _Peer, message: bytes) -> None:
        if not message.startswith(b"POST"):  # the look that a gateway takes at its models
            peer.transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        elif b'"stream": true' not in message and b'"stream":true' not in message:
            super().asked(peer, message)
        else:
            peer.transport.write(EVENT_HEAD)
            if self.route.begin:
                peer.transport.write(_chunk(self.route.begin))
            self.streams.append(peer)
            if len(self.streams) == STREAMS:
                self.all_here.set()

    async def write(self, first: int, last: int) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for number in range(first, last):
            for peer in self.streams:
                due += 1 / (PER_S * STREAMS)
                await asyncio.sleep(due - loop.time())
                peer.transport.write(_chunk(self.route.word(number, f" {self.words[number % len(self.words)]}")))

    def end(self, words: int) -> None:
        for peer in self.streams:
            peer.transport.write(_chunk(self.route.end(words)) + LAST_CHUNK)
        self.streams.clear()
        self.all_here.clear()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _paced(port: int, pid: int, route: Route, server: _Paced, mark: bytes) -> float:
    """CPU seconds of this process for one event of many streams, once they have begun."""
    loop = asyncio.get_running_loop()
    came = 0

    def read() -> None:
        nonlocal came
        came += 1

    readers = []
    for _ in range(STREAMS):
        done: asyncio.Future[None] = loop.create_future()
        transport, _ = await loop.create_connection(lambda: _Reader(mark, read, done), "127.0.0.1", port)  # noqa: B023
        transport.write(post(port, route.path, route.ask(True)))
        readers.append((transport, done))
    await server.all_here.wait()
    await server.write(0, WARM_PACED)
    before = Used.by(pid).cpu_s
    await server.write(WARM_PACED, WARM_PACED + PACED)
    spent = Used.by(pid).cpu_s - before
    server.end(WARM_PACED + PACED)
    for transport, done in readers:
        await done
        transport.close()
    assert came > 0.9 * STREAMS * (WARM_PACED + PACED), "events have not come by themselves"
    return spent / (STREAMS * PACED)


async def _paced_requests(port: int, pid: int, message: bytes) -> float:
    """CPU seconds of this process for a request that comes alone."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Queue[bytes] = asyncio.Queue()
    transport, _ = await loop.create_connection(
        lambda: _Peer(lambda _, reply: answered.put_nowait(reply)), "127.0.0.1", port
    )
    before = 0.0
    for number in range(WARM_PACED + PACED):
        if number == WARM_PACED:
            before = Used.by(pid).cpu_s
        transport.write(message)
        reply = await answered.get()
        assert reply.startswith(b"HTTP/1.1 200"), reply[:500]
        await asyncio.sleep(1 / PER_S)
    transport.close()
    return (Used.by(pid).cpu_s - before) / PACED


@contextmanager
def _relay_process(upstream: str) -> Iterator[tuple[int, int]]:
    """A bare relay of its own, and its port."""
    command = [sys.executable, "-m", "tests.bench.surfaces", "--relay", upstream]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


async def _relay_alone(upstream: str) -> None:
    async with bare_relay(upstream) as port:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        print(port, flush=True)
        await asyncio.Event().wait()


async def _of_route_paced(route: Route, strategy: str, rounds: int) -> dict[str, list[float]]:
    """By what was done, in each round: what the gateway cost, to what the relay did."""
    server = _Paced(route)
    upstream = await asyncio.get_running_loop().create_server(lambda: _Peer(server.asked), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}"
    settings = {"UPSTREAM_URL": f"{url}/v1", "STRATEGY_RULES": f"bench={strategy}", **route.environ}
    found: dict[str, list[float]] = {}
    with ExitStack() as kept:
        gateway, _, port = await asyncio.to_thread(kept.enter_context, started(**settings))
        relay, relay_port = await asyncio.to_thread(kept.enter_context, _relay_process(url))
        for _ in range(rounds):
            for name, asked in _requests(route).items():
                ours = await _paced_requests(port, gateway, post(port, route.path, asked))
                bare = await _paced_requests(relay_port, relay, post(relay_port, route.path, asked))
                found.setdefault(name, []).append(ours / bare)
            ours = await _paced(port, gateway, route, server, route.mark)
            bare = await _paced(relay_port, relay, route, server, route.server_mark)
            found.setdefault("event", []).append(ours / bare)
    upstream.close()
    return found


def _requests(route: Route) -> dict[str, dict[str, Any]]:
    asks = {"request": route.ask(False)}
    if route.path == "/v1/messages":
        asks["request of 76 KB"] = claude_code_request()
    return asks


async def _of_route(route: Route, strategy: str, rounds: int) -> dict[str, list[float]]:
    """By what was done, in each round: what the gateway cost, to what the relay did."""
    server = _Server(route)
    loop = asyncio.get_running_loop()
    upstream = await loop.create_server(lambda: _Peer(server.asked), "127.0.0.1", 0)
    upstream_port = upstream.sockets[0].getsockname()[1]
    gateway, port = await begun(upstream_port, strategy, route.environ)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    asks = _requests(route)
    found: dict[str, list[float]] = {}
    async with bare_relay(f"http://127.0.0.1:{upstream_port}") as relay_port:
        ports = (port, relay_port, upstream_port)
        for asked in asks.values():
            for each in ports:
                await repeat(each, post(each, route.path, asked), WARM)
        for _ in range(rounds):
            for name, asked in asks.items():
                ours, bare, alone = [await repeat(each, post(each, route.path, asked), REQUESTS) for each in ports]
                found.setdefault(name, []).append((ours - alone) / (bare - alone))
            marks = (route.mark, route.server_mark, route.server_mark)
            costs = zip(ports, marks, strict=True)
            ours, bare, alone = [await _events(each, route, server, mark) for each, mark in costs]
            found.setdefault("event", []).append((ours - alone) / (bare - alone))
    await gateway.close()
    upstream.close()
    return found


def _ways(name: str) -> tuple[str, ...]:
    return WAYS if "same wire" in name or name == "chat" else WAYS[1:]


def ratios(rounds: int, routes: tuple[str, ...] = tuple(ROUTES), *, paced: bool = False) -> dict[str, float]:
    """The medians; how far the rounds lie apart goes to stderr."""
    told: dict[str, float] = {}
    of_route = _of_route_paced if paced else _of_route
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name in routes:
            for strategy in _ways(name):
                found = runner.run(of_route(ROUTES[name], strategy, rounds))
                for what, each in found.items():
                    told[f"{name}, {strategy}: {what}"] = statistics.median(each)
                    least_most = f"{min(each):.2f} to {max(each):.2f}"
                    print(f"{name}, {strategy}: {what}: {least_most}", file=sys.stderr, flush=True)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--route", action="append", choices=ROUTES)
    parser.add_argument(
        "--paced", action="store_true", help="what comes with a pause before it, in processes of their own"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--relay", metavar="URL", help="be the bare relay to this address, and nothing else")
    asked = parser.parse_args()
    if asked.relay:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_relay_alone(asked.relay))
    routes = tuple(asked.route or ROUTES)
    with open(os.devnull, "wb") as nowhere:
        writer = configure_logging(fd=nowhere.fileno())
        told = ratios(asked.rounds, routes, paced=asked.paced)
        writer.close()
    structlog.reset_defaults()
    if asked.json:
        print(json.dumps(told, indent=1))
        return
    for name, number in told.items():
        print(f"{name:52} {number:8.2f}")


if __name__ == "__main__":
    main()
