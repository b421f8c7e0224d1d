"""A real browser without a window, driven over its own protocol; and a gateway with its demo models and an inspector of
its store, each a process of its own, for pages to be looked at in it.
"""

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import define, field, frozen

from tests.support.processes import free_ports

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None and "TOOLGATE_CI" not in os.environ, reason="needs chromium")
START_S = 30.0
LOAD_S = 30.0
END_S = 5.0
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
)
"""No window, and nothing asked of anybody that the page does not ask."""


_ON_ITS_WAY = ("Inspected target navigated or closed", "Cannot find context with specified id")


class OnItsWay(Exception):
    """The page that was asked is being left for another one."""


@define
class Page:
    """One tab."""

    _socket: aiohttp.ClientWebSocketResponse
    session: str = ""
    requests: list[str] = field(factory=list)
    complaints: list[str] = field(factory=list)
    _number: int = 0
    _loaded: bool = False

    async def open(self, url: str, *, width: int = 800, dark: bool = False, height: int = 900) -> None:
        """Load a page in a window of that width."""
        self._loaded = False
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(LOAD_S):
            while not self._loaded:
                await self._receive()

    async def text(self) -> str:
        """What it shows; nothing while it is on its way to another page."""
        try:
            return str(await self.value("document.body ? document.body.innerText : ''"))
        except OnItsWay:
            return ""

    async def value(self, expression: str) -> Any:
        """What a script expression comes to in the page; a promise is waited for."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def picture(self) -> bytes:
        """The whole page as PNG, however long it is."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": self.session} if self.session else {}))
        while True:
            answer = await self._receive()
            if answer.get("id") == self._number:
                if answer.get("error", {}).get("message") in _ON_ITS_WAY:
                    raise OnItsWay
                assert "error" not in answer, answer
                return dict(answer["result"])

    async def _receive(self) -> dict[str, Any]:
        async with asyncio.timeout(LOAD_S):
            message = dict(await self._socket.receive_json())
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(str(message["params"]))
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {message['params']['message']}")
            case "Page.loadEventFired":
                self._loaded = True
        return message


@asynccontextmanager
async def browser(folder: Path, *flags: str) -> AsyncIterator[Page]:
    """Chromium with one empty tab; `folder` is its profile."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *QUIET,
        *flags,
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        address = await _address(process)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=1 << 28) as socket,
        ):
            page = Page(socket)
            target = await page.call("Target.createTarget", url="about:blank")
            attached = await page.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            page.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                await page.call(f"{domain}.enable")
            yield page
    finally:
        with suppress(ProcessLookupError, TimeoutError):
            process.terminate()
            async with asyncio.timeout(END_S):
                await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # those that it started, and itself where it hangs
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where it listens, which is the first thing it says."""
    assert process.stderr is not None
    async with asyncio.timeout(START_S):
        async for line in process.stderr:
            if b"ws://" in line:
                return line[line.index(b"ws://") :].decode().strip()
    raise AssertionError("chromium ended before it listened")


PRINTED_S = 60.0
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
    async with asyncio.timeout(PRINTED_S):
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
