"""A gateway with its demo models and an inspector of its store, each a process of its own, and a page in a browser."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from attrs import frozen

from tests.support.browser import Page
from tests.support.processes import free_ports

START_S = 60.0
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@frozen
class Inspected:
    """Both, as they run."""

    folder: Path
    gateway: str
    address: str
    """The inspector's, with its key."""

    @property
    def home(self) -> str:
        return self.address.partition("/?")[0]

    def environ(self, **more: str) -> dict[str, str]:
        return environ(self.folder, **more)


def environ(folder: Path, **more: str) -> dict[str, str]:
    """What both processes are set up by."""
    store = more.pop("STORE_URL", f"sqlite:///{folder / 'toolgate.db'}")
    known = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or "COVERAGE" in name}
    return {**known, "STORE_URL": store, **more}


@asynccontextmanager
async def inspector(folder: Path, *options: str, **more: str) -> AsyncIterator[str]:
    """The address that an inspector of the folder's store prints."""
    async with running_process("inspect", "--no-open", *options, environ=environ(folder, **more)) as process:
        yield await printed(process, rb"Inspector: (\S+)")


@asynccontextmanager
async def inspected(folder: Path, *options: str, **more: str) -> AsyncIterator[Inspected]:
    """A gateway with the demo's models, and an inspector of its store."""
    gateway_port, port = free_ports(2)
    settings = environ(folder, GATEWAY_PORT=str(gateway_port), LOG_FORMAT="json", **more)
    async with running_process("serve", environ=settings) as process:
        await printed(process, rb"listens on (\S+)")
        reading = asyncio.ensure_future(_drained(process))
        try:
            async with inspector(folder, "--port", str(port), *options, **more) as address:
                yield Inspected(folder, f"http://127.0.0.1:{gateway_port}", address)
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def running_process(*arguments: str, environ: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command of ours until the block ends, which then ends by itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *arguments),
        env=environ,
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        limit=1 << 20,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(15):
                await _drained(process)
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _drained(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(1 << 16):
        pass


async def printed(process: asyncio.subprocess.Process, pattern: bytes, said: bytearray | None = None) -> str:
    """What the pattern finds in the lines that come; they are kept in `said`."""
    assert process.stderr is not None
    said = bytearray() if said is None else said
    async with asyncio.timeout(START_S):
        while line := await process.stderr.readline():
            said += line
            if found := re.search(pattern, line):
                return found[found.re.groups].decode()
    raise AssertionError(said.decode())


async def ask(url: str, model: str, text: str = "What is the weather in Paris?", **more: Any) -> dict[str, Any]:
    """One request with a tool."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "tools": [WEATHER], **more}
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/chat/completions", json=body) as answer:
        return dict(json.loads(await answer.read()))


async def press(page: Page, key: str) -> None:
    """A key that is pressed and let go."""
    text = {"text": key} if len(key) == 1 else {}
    await page.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
    await page.call("Input.dispatchKeyEvent", type="keyUp", key=key)


async def holds(condition: Callable[[], Awaitable[object]], seconds: float = 20.0) -> None:
    """Wait, bounded, until it holds."""
    async with asyncio.timeout(seconds):
        for _ in count():
            if await condition():
                return
            await asyncio.sleep(0.05)


async def becomes(page: Page, expression: str, wanted: Any = True, seconds: float = 20.0) -> None:
    """Wait, bounded, until a script expression comes to this in the page."""

    async def is_so() -> bool:
        return bool(await page.value(expression) == wanted)

    await holds(is_so, seconds)
