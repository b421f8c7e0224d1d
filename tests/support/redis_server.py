"""A real Redis server for tests, on a socket file of its own, which can be killed, frozen, and started again."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

__all__ = ["REDIS", "RedisServer", "needs_redis"]

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
