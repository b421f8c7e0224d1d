"""Stores that fail on demand, and metrics that can be read back."""

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from attrs import define, field

from gateway.core.ports import StoreError
from gateway.core.records import FeedbackRecord, Record
from gateway.state.memory import MemoryStore

__all__ = ["REDIS", "FailingStore", "Gauges", "RedisServer", "needs_redis", "rating"]


class FailingStore(MemoryStore):
    """In memory; away while `is_away`, and never able to take a record that `refuses` names."""

    is_away = False
    refuses: frozenset[float] = frozenset()
    batches: tuple[int, ...] = ()

    async def append(self, records: Sequence[Record]) -> None:
        self._check()
        if any(record.at in self.refuses for record in records):
            raise StoreError("no")
        await super().append(records)
        self.batches = (*self.batches, len(records))

    async def get(self, *keys: str) -> dict[str, bytes]:
        self._check()
        return await super().get(*keys)

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> None:
        self._check()
        await super().put(key, value, ttl_s=ttl_s)

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        self._check()
        return await super().swap(key, old, new)

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("away")


@define
class Gauges:
    """Metrics, as far as the state package tells any."""

    counts: Counter[tuple[str, ...]] = field(factory=Counter)
    gauges: dict[str, float] = field(factory=dict)

    def count(self, name: str, labels: Mapping[str, str], amount: float = 1) -> None:
        self.counts[name, *labels.values()] += int(amount)

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        raise AssertionError(name)

    def set(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self.gauges[name] = value

    @property
    def lost(self) -> dict[str, int]:
        """Records lost, by reason."""
        return {key[1]: count for key, count in self.counts.items() if key[0] == "toolgate_store_records_lost_total"}


def rating(at: float) -> FeedbackRecord:
    """A small record."""
    return FeedbackRecord(at=at, completion_id="c", rating="good")


# --- A real Redis server for tests, on a socket file of its own, which can be killed, frozen, and started again


REDIS = shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/bin")

needs_redis = pytest.mark.skipif(REDIS is None and "TOOLGATE_CI" not in os.environ, reason="needs redis-server")


class RedisServer:
    """Starts with nothing in it, and keeps nothing on disk."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.path = folder / "redis.sock"
        self._folder = folder
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    async def start(self) -> "RedisServer":
        assert REDIS is not None
        arguments = ("--port", "0", "--unixsocket", str(self.path), "--save", "", "--appendonly", "no")
        self._process = await asyncio.create_subprocess_exec(
            REDIS, *arguments, *self._settings, cwd=self._folder, stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(20):
            while not await self._answers():
                assert self._process.returncode is None
        return self

    async def command(self, *words: str) -> bytes:
        """Send one command, as an operator would; the first line of the answer."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
        writer.write("".join(parts).encode())
        try:
            async with asyncio.timeout(10):
                return (await reader.readline()).strip()
        finally:
            writer.close()
            await writer.wait_closed()

    def freeze(self) -> None:
        """It lives, and does nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self._process is not None
        await self._process.wait()

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def _answers(self) -> bool:
        try:
            return (await self.command("PING")).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            await asyncio.sleep(0.01)  # the process is starting: there is nothing else to wait for
            return False
