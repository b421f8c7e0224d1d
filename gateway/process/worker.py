"""One of several workers: the gateway on the lanes that its supervisor opened, under its supervisor's orders.

Started as `python -m gateway.process.worker PART` with the settings on its standard input. It says when it is ready,
that its loop turns (every second), that it leaves, and how a reload went; `supervisor` tells the rest.
"""

from gateway.process.lean import load_quietly

if __name__ == "__main__":
    load_quietly()

import gateway.upstream.certificates  # noqa: F401 - before anything loads the library of its connections

# isort: split

import asyncio
import json
import os
import pickle
import select
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import attrs
import structlog
from aiohttp import web
from attrs import define, frozen

from gateway.app import Gateway, Orders, run
from gateway.config.load import Settings
from gateway.core.errors import ConfigError, Draining
from gateway.front.server import Server, is_local
from gateway.process.channel import Channel
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS
from gateway.process.first_look import look_around
from gateway.process.status import target_of
from gateway.request.head import HttpRequest
from gateway.request.shared import Shared

__all__ = ["LaneServer", "WorkerPost", "WorkerShare", "main", "work"]

ORPHAN_DRAIN_S = 3.0
"""A worker without a supervisor makes room for a new one: its port must not be held for the whole drain time."""
ORPHAN_END_S = 4.5
IDLE_LOOK_S = 0.05
# The system cuts it to its own bound (`net.core.somaxconn`); aiohttp's 128 is short for a burst of agents.
BACKLOG = 1024

log = structlog.get_logger("toolgate")


@frozen(kw_only=True)
class WorkerShare:
    """What of the whole this process is."""

    lane: int
    slot: int
    workers: int
    channel: int
    lanes: list[list[int]]

    def own(self, settings: Settings) -> Settings:
        """The settings of all as they are for this one: its metrics port, its share of the places."""
        port = settings.metrics_port and settings.metrics_port + self.slot
        # A port that was not asked for is a mere warning when it is taken; here it is the only way to the metrics.
        sources = {**settings.sources, "METRICS_PORT": settings.sources.get("METRICS_PORT", "default")}
        # Rounded up: nobody who sets 10 for 4 workers wants 8.
        share = -(-settings.max_concurrency // self.workers)
        return attrs.evolve(
            settings, metrics_port=port, max_concurrency=share, sources=sources, shared_digest=settings.digest()
        )


class LaneServer(Server):
    """The gateway's port, as the lanes that this worker accepts from."""

    def __init__(self, shared: Shared, part: WorkerShare) -> None:
        super().__init__(shared)
        self._part = part
        self._sites: dict[int, list[web.BaseSite]] = {}
        self._changing = asyncio.Lock()
        """One order after the other: each takes more than one turn of the loop."""
        self._stopped = False
        self.is_patient = False
        """Others serve meanwhile: idle connections are given the time to be used once more, or to be closed."""

    async def start(self, host: str, port: int) -> int:
        """Accept on the lane of its own; its address was bound by the supervisor."""
        await self._runner.setup()
        await self._listen(self._part.lane)
        self._is_local = is_local(self._runner)
        return int(self._runner.addresses[0][1])

    async def listen(self, lane: int) -> None:
        """Accept on this lane too; without a descriptor for it what waits there goes on waiting."""
        async with self._changing:
            if self._stopped or lane in self._sites:
                return
            try:
                await self._listen(lane)
            except OSError as error:
                log.error("lane_not_taken", lane=lane, fault=error.strerror)
                await self._leave(lane)

    async def leave(self, lane: int) -> None:
        """Accept on this lane no more; what waits there is for others."""
        async with self._changing:
            if lane != self._part.lane:
                await self._leave(lane)

    async def drain(self, seconds: float) -> None:
        """As the lone process does; patiently, it waits for the connections and not only for the requests."""
        self._stopped = True
        async with self._changing:
            for lane in list(self._sites):
                await self._leave(lane)
        # The supervisor keeps its own: what waits in a lane is not lost with these.
        for numbers in self._part.lanes:
            for number in numbers:
                os.close(number)
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        self._shared.draining = True
        # aiohttp tells nobody that a connection was closed.
        while self.is_patient and self._is_connected and loop.time() < due:  # noqa: ASYNC110
            await asyncio.sleep(IDLE_LOOK_S)
        await super().drain(max(0.0, due - loop.time()))

    def hurry(self, seconds: float) -> None:
        """Whatever the drain time says, end what is under way after so long."""
        self.is_patient = False
        under_way = self._shared.under_way
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, under_way.interrupt, lambda: Draining("the gateway is restarting", retry_after_s=1.0))

    @property
    def _is_connected(self) -> bool:
        return self._runner.server is not None and bool(self._runner.server.connections)

    async def _listen(self, lane: int) -> None:
        self._sites[lane] = []
        for number in self._part.lanes[lane]:
            site = web.SockSite(self._runner, _duplicate(number), backlog=BACKLOG)
            await site.start()
            self._sites[lane].append(site)

    async def _leave(self, lane: int) -> None:
        for site in self._sites.pop(lane, []):
            await site.stop()

    async def _plain(self, http: HttpRequest, path: str) -> web.StreamResponse:
        # This port meets any worker: the numbers of one of them would mislead.
        return await super()._plain(http, "" if path == "/metrics" else path)


@define(kw_only=True, eq=False)
class WorkerPost:
    """The worker's end of the channel."""

    part: WorkerShare
    _channel: Channel
    _server: LaneServer | None = None
    _orders: Orders | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What every line of the log says."""
        return {"slot": self.part.slot}

    def own(self, settings: Settings) -> Settings:
        """The settings of all as they are for this process."""
        return self.part.own(settings)

    def server(self, shared: Shared) -> Server:
        """The server that accepts on lanes."""
        self._server = LaneServer(shared, self.part)
        return self._server

    def begin(self, gateway: Gateway, orders: Orders) -> None:
        """Say that requests are answered, and follow orders from now on."""
        self._orders = orders
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel.fileno(), self._read)
        self._channel.say(**{"is": "ready", "metrics": target_of(gateway.metrics_url)})
        if self.part.slot == 0:  # one of them is enough
            orders.look(look_around(gateway))
        gateway.pulse.hears.append(self._beat)
        self._beat()

    def leaving(self) -> None:
        """Say that nothing new is accepted any more."""
        self._channel.say(**{"is": "leaving"})

    def reloaded(self, faults: Sequence[str]) -> None:
        """Say how a reload went."""
        self._channel.say(**{"is": "reloaded", "faults": list(faults)})

    def end(self) -> None:
        """Orders are obeyed no more."""
        asyncio.get_running_loop().remove_reader(self._channel.fileno())

    def faulty(self, faults: Sequence[str]) -> None:
        """Say why there will be no worker."""
        self._channel.say(**{"is": "faulty", "faults": list(faults)})

    def _beat(self) -> None:
        self._channel.say(**{"is": "alive"})

    def _read(self) -> None:
        for order in self._channel.words():
            self._obey(order)
        if self._channel.is_closed:
            self._orphaned()

    def _obey(self, order: dict[str, Any]) -> None:
        if self._server is None or self._orders is None:
            return
        match order["do"]:
            case "stop":
                self._server.is_patient = False
                self._orders.stop()
            case "retire":
                self._server.is_patient = True
                self._orders.stop()
            case "reload":
                self._orders.reload()
            case "listen":
                self._orders.spawn(self._server.listen(order["lane"]))
            case "leave":
                self._orders.spawn(self._server.leave(order["lane"]))

    def _orphaned(self) -> None:
        self.end()
        log.error("supervisor_gone")
        if self._server is not None and self._orders is not None:
            self._server.hurry(ORPHAN_DRAIN_S)
            self._orders.stop()


def main(arguments: Sequence[str]) -> int:
    """Serve as the arguments say; the exit code says how it went."""
    part = WorkerShare(**json.loads(arguments[0]))
    # From our parent, through an anonymous file: nobody else can write it.
    settings: Settings = pickle.loads(sys.stdin.buffer.read())  # noqa: S301
    return work(part, settings)


def work(part: WorkerShare, settings: Settings) -> int:
    """Be this worker until told to leave."""
    channel = Channel(socket.socket(fileno=part.channel))
    _end_with_the_supervisor(part.channel)
    post = WorkerPost(part=part, channel=channel)
    try:
        return run(settings, os.environ, post)
    except ConfigError as error:
        post.faulty(error.faults)
        return EXIT_SETTINGS
    except OSError as error:
        post.faulty([f"a worker cannot start: {error.strerror or type(error).__name__}"])
        return EXIT_FAILED


def _end_with_the_supervisor(channel: int) -> None:
    """The last resort, for a loop that hangs: without a supervisor the process ends, whatever it is at."""

    def watch() -> None:
        poll = select.poll()
        poll.register(channel, 0)  # nothing but the hang-up
        poll.poll()
        time.sleep(ORPHAN_END_S)
        os._exit(EXIT_FAILED)

    # A thread and no task: the loop may be what hangs.
    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


def _duplicate(number: int) -> socket.socket:
    """The inherited socket stays open beside it, for the next time."""
    return socket.socket(fileno=os.dup(number))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
