"""What a gateway keeps behind many streams, behind a long one, and whether many slow ones at a time come whole.

Run `python -m tests.bench.endurance`; it takes some minutes. Gateway, model server and clients share one process, the
last two as bare protocols. Memory is told by the blocks that Python has allocated once garbage is collected, so that
no other process moves it; the exit code is 1 where it grows with what has gone by, or where a stream is not whole.
"""

import argparse
import asyncio
import gc
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import cast

import structlog
import uvloop
from attrs import define, field

from gateway.app import build
from gateway.config import load as config
from gateway.telemetry.logs import configure_logging
from tests.bench.counts import EVENT_HEAD
from tests.bench.requests import HEAD_END, LAST_CHUNK, PROSE, _event, _Peer, _post

__all__ = ["main"]

EVENTS = 20
WAYS = 16
"""Streams at a time where their number is asked for, not their company."""
BLOCKS_A_STREAM = 0.5
"""Fewer than one: nothing is kept of a stream but its record, which is in a file by then."""
LONG_BYTES = 10 << 20
WORDS = PROSE.split()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@define
class _Server:
    """A model server whose streams are as long and as slow as wanted."""

    events: int = EVENTS
    pause_s: float = 0.0
    word: Callable[[int], str] = field(default=lambda at: f" {WORDS[at % len(WORDS)]}")
    _tasks: set["asyncio.Task[None]"] = field(factory=set)

    def asked(self, peer: _Peer, message: bytes) -> None:
        task = asyncio.ensure_future(self._stream(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stream(self, peer: _Peer) -> None:
        transport = peer.transport
        transport.write(EVENT_HEAD)
        for at in range(self.events):
            if transport.is_closing():
                return
            transport.write(_chunk(_event({"content": self.word(at)})))
            if self.pause_s or at % 64 == 0:
                await asyncio.sleep(self.pause_s)
            if transport.get_write_buffer_size() > 1 << 20:
                await asyncio.sleep(0.05)
        transport.write(_chunk(_event({}, "stop") + b"data: [DONE]\n\n") + LAST_CHUNK)

    def said(self) -> int:
        """How many bytes of events a client gets."""
        whole = sum(len(_event({"content": self.word(at)})) for at in range(self.events))
        return whole + len(_event({}, "stop")) + len(b"data: [DONE]\n\n")


class _Client(asyncio.Protocol):
    """Reads a stream and counts its bytes, without what frames them; a slow one stops reading now and then."""

    def __init__(self, done: "asyncio.Future[int]", *, is_slow: bool = False) -> None:
        self._done, self._is_slow = done, is_slow
        self._held = b""
        self._begun = False
        self._size = 0
        self._reads = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._begun:
            if HEAD_END not in self._held:
                return
            assert self._held.startswith(b"HTTP/1.1 200"), self._held[:300]
            self._begun, self._held = True, self._held.partition(HEAD_END)[2]
        self._take()
        self._reads += 1
        if self._is_slow and self._reads % 4 == 0 and not self._done.done():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.2, self._go_on)

    def connection_lost(self, error: BaseException | None) -> None:
        if not self._done.done():
            self._done.set_result(-1)

    def _take(self) -> None:
        at = 0
        while (end := self._held.find(b"\r\n", at)) >= 0:
            size = int(self._held[at:end], 16)
            if len(self._held) < end + 4 + size:
                break
            at = end + 4 + size
            self._size += size
            if size == 0 and not self._done.done():
                self._done.set_result(self._size)
        self._held = self._held[at:]

    def _go_on(self) -> None:
        with suppress(RuntimeError):
            self.transport.resume_reading()


async def _read(port: int, *, is_slow: bool = False) -> int:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[int] = loop.create_future()
    transport, _ = await loop.create_connection(lambda: _Client(done, is_slow=is_slow), "127.0.0.1", port)
    transport.write(_post(port, True))
    try:
        return await done
    finally:
        transport.close()


async def _streams(port: int, count: int, wanted: int) -> int:
    """How many of them came whole."""

    async def several(number: int) -> int:
        return sum([await _read(port) == wanted for _ in range(number)])

    return sum(await asyncio.gather(*(several(count // WAYS) for _ in range(WAYS))))


async def _blocks() -> int:
    await asyncio.sleep(3.0)  # until the records are written
    gc.collect()
    return sys.getallocatedblocks()


async def _measured(count: int, slow: int, folder: str) -> list[str]:
    loop = asyncio.get_running_loop()
    server, faults = _Server(), []
    upstream = await loop.create_server(lambda: _Peer(server.asked), "127.0.0.1", 0, backlog=4096)
    settings = config.load(
        {
            "UPSTREAM_URL": f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1",
            "GATEWAY_PORT": "0",
            "METRICS_PORT": "0",
            "STORE_URL": f"sqlite:///{folder}/store.db",
            "GATEWAY_MAX_CONCURRENCY": str(2 * slow),
            "STRATEGY_RULES": "bench=recovery",
        }
    )
    gateway = await build(settings)
    port = int(gateway.url.rpartition(":")[2].partition("/")[0])

    warm = max(WAYS, count // 5)
    await _streams(port, warm, server.said())
    before = await _blocks()
    whole = await _streams(port, count, server.said())
    grown = (await _blocks() - before) / count
    print(f"{count} streams: {whole} whole, {grown:+.3f} blocks a stream", flush=True)
    faults += ["streams were not whole"] * (whole < count // WAYS * WAYS)
    faults += ["memory grows with the streams that have gone by"] * (grown > BLOCKS_A_STREAM)

    server.word = lambda at: "All is well, and nothing in this line begins anything. " * 4
    sizes = []
    for size in (LONG_BYTES // 10, LONG_BYTES):
        server.events = size // len(server.word(0))
        reading = asyncio.ensure_future(_read(port))
        most = 0
        start = sys.getallocatedblocks()
        while not reading.done():
            await asyncio.sleep(0.05)
            most = max(most, sys.getallocatedblocks() - start)
        sizes.append(most)
        faults += ["a long stream was not whole"] * (await reading != server.said())
    print(f"a stream of {LONG_BYTES >> 20} MiB holds {sizes[1]} blocks more at the most, one of a tenth {sizes[0]}")
    faults += ["memory grows with the length of a stream"] * (sizes[1] > 2 * sizes[0] + 20_000)

    server.events, server.pause_s, server.word = EVENTS, 0.5, _Server().word
    told = await asyncio.gather(*(_read(port, is_slow=number % 2 == 0) for number in range(slow)))
    whole = sum(size == server.said() for size in told)
    print(f"{slow} slow streams at a time, every other client slow as well: {whole} whole")
    faults += ["slow streams were not whole"] * (whole < slow)
    await gateway.close()
    upstream.close()
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--slow", type=int, default=2000)
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with open(os.devnull, "wb") as nowhere:
        writer = configure_logging(fd=nowhere.fileno(), level="error")
        with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            faults = runner.run(_measured(asked.count, asked.slow, folder))
        writer.close()
    structlog.reset_defaults()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
