"""What each wire costs beside a bare relay: `python -m tests.bench.surfaces`, CPU time as a ratio to it.

Gateway, relay, model server and client share one process, the last two as bare protocols; what those cost by
themselves is taken off. Each event is a read of its own. Ratios hold within a round, of which the median is told. The
relay is the smallest honest one that aiohttp makes: bytes in, bytes out, nothing looked at. What a route costs is
compared with a relay of the same bytes where both sides speak one wire, else with a relay of the server's. Python's
collector is set as in service, for the relay as well.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import structlog
import uvloop
from aiohttp import web

from gateway.app import GC_THRESHOLDS
from gateway.telemetry.logs import configure_logging
from tests.bench.counts import EVENTS, ROUTES, WARM, Route, _Reader, _Server, claude_code_request, post
from tests.bench.requests import _Peer, begun, repeat

__all__ = ["ratios"]

REQUESTS = 60
WAYS = ("native", "recovery")
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
    asks = {"request": route.ask(False)}
    if route.path == "/v1/messages":
        asks["request of 76 KB"] = claude_code_request()
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


def ratios(rounds: int, routes: tuple[str, ...] = tuple(ROUTES)) -> dict[str, float]:
    """The medians."""
    told: dict[str, float] = {}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name in routes:
            for strategy in WAYS if "same wire" in name or name == "chat" else WAYS[1:]:
                found = runner.run(_of_route(ROUTES[name], strategy, rounds))
                told |= {f"{name}, {strategy}: {what}": statistics.median(each) for what, each in found.items()}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--route", action="append", choices=ROUTES)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with open(os.devnull, "wb") as nowhere:
        writer = configure_logging(fd=nowhere.fileno())
        told = ratios(asked.rounds, tuple(asked.route or ROUTES))
        writer.close()
    structlog.reset_defaults()
    if asked.json:
        print(json.dumps(told, indent=1))
        return
    for name, number in told.items():
        print(f"{name:52} {number:8.2f}")


if __name__ == "__main__":
    main()
