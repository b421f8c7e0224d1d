"""The real programs as processes of their own, the gateway and those that watch it; a load of clients that notices
every answer that is not whole; and the end of whatever a test has left running.
"""

import asyncio
import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

import aiohttp
import pytest
from aiohttp import web
from attrs import define, field

from tests.support.client import ask, chat
from tests.support.cost import Pulse
from tests.support.faulty_upstream import DONE, STREAM_HEAD, Connection, Received, completion, event, text

SERVE = (sys.executable, "-m", "gateway", "serve")

_PORTS = range(12_000, 32_000)
"""Below those that systems give to whoever asks for any, which every connection of another test does."""
_tried = itertools.count(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) * len(_PORTS) // 8 + os.getpid() % 1000)


def free_ports(number: int) -> list[int]:
    """Ports that were free a moment ago, each another one."""
    found: list[int] = []
    while len(found) < number:
        port = _PORTS[next(_tried) % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def free_port() -> int:
    return free_ports(1)[0]


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait, bounded, for something that tells nobody; time without a processor does not count."""
    async with Pulse() as pulse:
        while not condition():
            if pulse.seconds > seconds:
                raise TimeoutError
            await asyncio.sleep(0.01)


class Program:
    """A program that logs JSON lines to a file; it is killed at the end, and its log is kept for the assertion."""

    def __init__(self, folder: Path, *, command: Sequence[str] = SERVE, **environ: str) -> None:
        self.folder = folder
        self.pid_file = folder / "pid"
        self.targets_file = folder / "targets.json"
        self._command = command
        self._environ = {
            "PATH": os.environ["PATH"],
            **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")},
            "GATEWAY_PORT": "0",
            "METRICS_PORT": "0",
            "GATEWAY_PID_FILE": str(self.pid_file),
            "METRICS_SD_FILE": str(self.targets_file),
            "STORE_URL": f"sqlite:///{folder}/store.db",
            **environ,
        }
        self._log = folder / "log.jsonl"
        self._lines: list[str] = []
        """What of the log was read, so far as its lines have ended."""
        self._read_to = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as out:
            await self.start(out)
        return self

    async def start(self, out: IO[bytes] | int) -> None:
        """Start it, its log going there."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environ, stderr=out, stdout=out, stdin=asyncio.subprocess.DEVNULL
        )

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def serving(self) -> Self:
        """Wait until it answers."""
        name = "supervisor_started" if self._environ.get("GATEWAY_WORKERS", "1") != "1" else "gateway_started"
        self.url = (await self.logged(name))["url"]
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lines(self) -> list[str]:
        """All of the log; what was read is not read again, as who waits for a line asks very often."""
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            ended, _, last = log.read().rpartition(b"\n")
        if ended:
            self._lines += ended.decode().split("\n")
            self._read_to += len(ended) + 1
        return [*self._lines, last.decode()] if last else self._lines

    def events(self, name: str) -> list[dict[str, Any]]:
        """Every such event so far."""
        found = []
        for line in self.lines:
            if line.startswith("{") and f'"event":"{name}"' in line:
                found.append(json.loads(line))
        return found

    async def logged(self, name: str, *, count: int = 1, seconds: float = 20.0) -> dict[str, Any]:
        """The event, once it was logged so many times."""

        def ended_or_there() -> bool:
            return self._process.returncode is not None or len(self.events(name)) >= count

        with suppress(TimeoutError):
            await until(ended_or_there, seconds)
        found = self.events(name)
        assert len(found) >= count, "\n".join([f"no {name} in:", *self.lines])
        return found[count - 1]

    @property
    def workers(self) -> dict[int, int]:
        """The process of the last worker that became ready, by its lane."""
        return {event["lane"]: event["pid"] for event in self.events("worker_ready")}

    @property
    def status(self) -> dict[str, Any]:
        """What the second line of the pid file says."""
        document: dict[str, Any] = json.loads(self.pid_file.read_text().splitlines()[1])
        return document

    @property
    def targets(self) -> dict[str, str]:
        """Where Prometheus is told to look, by slot."""
        groups = json.loads(self.targets_file.read_text())
        return {group["labels"]["slot"]: target for group in groups for target in group["targets"]}

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def restarted(self, count: int, seconds: float = 60.0) -> None:
        """All workers were replaced, for that time."""
        self.signal(signal.SIGUSR2)
        await until(lambda: self.status["restarts"] >= count, seconds)
        assert self.status["faults"] == [], self.lines
        # The log is written by a thread, after the pid file.
        await until(lambda: len(self.events("restarted")) + len(self.events("restart_failed")) >= count)

    async def exit_code(self, seconds: float = 20.0) -> int:
        async with asyncio.timeout(seconds):
            return await self._process.wait()


def is_alive(pid: int) -> bool:
    """There is such a process, and it is no zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def takes_connections(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


@define(kw_only=True)
class SlowAnswers:
    """An upstream script: streams of `events` pieces with a pause between them, and short answers at once."""

    events: int = 8
    pause_s: float = 0.2
    may_end: asyncio.Event = field(factory=asyncio.Event)
    """Streams end only when it is set, as it is at first."""

    def __attrs_post_init__(self) -> None:
        self.may_end.set()

    async def script(self, connection: Connection, received: Received) -> None:
        if not received.json["stream"]:
            body = json.dumps(completion()).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            await connection.send(f"{head}Connection: close\r\n\r\n".encode() + body)
            return
        await connection.send(STREAM_HEAD)
        for number in range(self.events):
            await connection.send(text(f"{number} "))
            await asyncio.sleep(self.pause_s)
        await self.may_end.wait()
        await connection.send(event(finish="stop"), DONE)

    @property
    def content(self) -> str:
        return "".join(f"{number} " for number in range(self.events))


@define(kw_only=True)
class Load:
    """Clients that ask without end: streams, and short requests over new and over kept connections."""

    url: str
    answers: SlowAnswers
    streams: int = 0
    short: int = 0
    keeps: bool = True
    """Every other client keeps its connections."""
    tls: ssl.SSLContext | bool = True
    whole: int = 0
    answered: int = 0
    faults: list[str] = field(factory=list)
    _stopping: bool = False
    _closing: AsyncExitStack = field(factory=AsyncExitStack)
    _tasks: list[asyncio.Task[None]] = field(factory=list)

    async def __aenter__(self) -> Self:
        for number in range(self.streams + self.short):
            is_stream = number < self.streams
            keeps = self.keeps and number % 2 == 0
            connector = aiohttp.TCPConnector(limit=0, force_close=not keeps, ssl=self.tls)
            session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60))
            await self._closing.enter_async_context(session)
            one = self._stream if is_stream else self._short
            self._tasks.append(asyncio.ensure_future(self._without_end(session, one, is_stream=is_stream)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Let every request that runs end, and ask no more."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        await self._closing.aclose()

    async def _without_end(
        self,
        session: aiohttp.ClientSession,
        one: Callable[[aiohttp.ClientSession], Awaitable[None]],
        *,
        is_stream: bool,
    ) -> None:
        while not self._stopping:
            try:
                await one(session)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                kind = "stream" if is_stream else "short request"
                self.faults.append(f"{kind}: {type(error).__name__}: {error}")
                await asyncio.sleep(0.05)

    async def _stream(self, session: aiohttp.ClientSession) -> None:
        answer = await ask(session, self.url)
        if answer.status == 200 and answer.content == self.answers.content and answer.is_done:
            self.whole += 1
        else:
            self.faults.append(f"stream: {answer.status} {answer.body[-200:]!r}")

    async def _short(self, session: aiohttp.ClientSession) -> None:
        answer = await ask(session, self.url, chat(stream=False))
        if answer.status == 200:
            self.answered += 1
        else:
            self.faults.append(f"short request: {answer.status} {answer.body[-200:]!r}")
        await asyncio.sleep(0.02)


_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own: the workers of a supervisor that was killed would be nobody's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> frozenset[int]:
    """The processes that this one is the parent of; to have none is told by one question."""
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return frozenset(_with_parent(os.getpid()))
    return frozenset()


def _with_parent(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                yield int(path.parent.name)


def end(processes: Collection[int]) -> None:
    """Kill them and all that come to us by their end."""
    before = children() - set(processes)
    waiting = set(processes)
    while waiting:
        for pid in waiting:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        waiting = set(children() - before)


GRAFANA = Path(__file__).parents[2] / "grafana"
PROMETHEUS = shutil.which("prometheus")
ALERTMANAGER = shutil.which("prometheus-alertmanager")

needs_prometheus = pytest.mark.skipif(
    (PROMETHEUS is None or ALERTMANAGER is None) and "TOOLGATE_CI" not in os.environ,
    reason="needs prometheus and prometheus-alertmanager",
)


@asynccontextmanager
async def program(*command: str, folder: Path) -> AsyncIterator[None]:
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out)
    try:
        yield
        assert process.returncode is None, log.read_text()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Prometheus:
    """What a running Prometheus is asked."""

    def __init__(self, client: aiohttp.ClientSession, port: int) -> None:
        self._client = client
        self.url = f"http://127.0.0.1:{port}"

    async def _get(self, path: str, **parameters: str) -> Any:
        for _ in range(40):
            async with self._client.get(f"{self.url}/api/v1/{path}", params=parameters) as response:
                if response.status != 503:  # that one says that it has only begun, or has no time now
                    document = await response.json()
                    assert document["status"] == "success", document
                    return document["data"]
            await asyncio.sleep(0.25)
        raise aiohttp.ClientConnectionError("Prometheus has no time")

    async def value(self, query: str) -> float:
        """The one number that a query has, or 0."""
        result = (await self._get("query", query=query))["result"]
        return float(result[0]["value"][1]) if result else 0.0

    async def over_time(self, query: str, *, seconds: int) -> list[list[float]]:
        """The values of every series over the last seconds."""
        now = await self.value("vector(time())")
        data = await self._get("query_range", query=query, start=str(now - seconds), end=str(now), step="1")
        return [[float(value) for _, value in series["values"]] for series in data["result"]]

    async def until(self, query: str, seconds: float = 60.0) -> None:
        """Wait, bounded, until a query has a value other than 0."""
        async with asyncio.timeout(seconds):
            while True:
                with suppress(aiohttp.ClientConnectionError, aiohttp.ContentTypeError):  # it has only begun
                    if await self.value(query):
                        return
                await asyncio.sleep(0.1)


@asynccontextmanager
async def prometheus(
    folder: Path, client: aiohttp.ClientSession, metrics_url: str = "", *, alertmanager: int = 9, targets: str = ""
) -> AsyncIterator[Prometheus]:
    """Prometheus with the shipped configuration; `targets` is the file that a gateway keeps, if it does."""
    assert PROMETHEUS is not None
    port = free_port()
    shutil.copytree(GRAFANA / "prometheus" / "rules", folder / "rules")
    if not targets:
        targets = str(folder / "metrics.json")
        from gateway.process.status import write_targets  # here: most tests need no server

        write_targets(targets, [(0, metrics_url.removeprefix("http://").removesuffix("/metrics"))])
    text = (
        (GRAFANA / "prometheus" / "prometheus.yml")
        .read_text("utf-8")
        .replace("_interval: 15s", "_interval: 1s")
        .replace("/run/toolgate/metrics.json", targets)
    )
    text = text.replace("127.0.0.1:9093", f"127.0.0.1:{alertmanager}").replace("127.0.0.1:9090", f"127.0.0.1:{port}")
    (folder / "prometheus.yml").write_text(text)
    options = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    async with program(PROMETHEUS, *options, folder=folder):
        yield Prometheus(client, port)


async def until_received(received: asyncio.Queue[tuple[str, Any]]) -> tuple[str, Any]:
    async with asyncio.timeout(60):
        return await received.get()


@asynccontextmanager
async def alertmanager(folder: Path, port: int, receiver_url: str) -> AsyncIterator[None]:
    """Alertmanager with the shipped configuration, only faster and with another receiver."""
    assert ALERTMANAGER is not None
    text = (GRAFANA / "prometheus" / "alertmanager.yml").read_text("utf-8")
    text = re.sub(r"group_wait: \d+s", "group_wait: 1s", text).replace("http://127.0.0.1:9095", receiver_url)
    (folder / "alertmanager.yml").write_text(text)
    options = (
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    async with program(ALERTMANAGER, *options, folder=folder):
        yield


@asynccontextmanager
async def receiver() -> AsyncIterator[tuple[asyncio.Queue[tuple[str, Any]], str]]:
    """A web server that takes Alertmanager's messages."""
    received: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        received.put_nowait((request.path, json.loads(await request.read())))
        return web.Response()

    app = web.Application()
    app.router.add_post("/{name}", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield received, f"http://{host}:{port}"
    finally:
        await runner.cleanup()
