"""A real browser without a window, driven over its own protocol: what a page asks for, says and measures."""

import asyncio
import base64
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import define, field

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
