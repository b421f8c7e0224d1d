"""A model server that does exactly what a test tells it, on a real socket: every byte, every pause, every cut."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from attrs import define, field, frozen

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"  # the end of the body is the cut
)
DONE = b"data: [DONE]\n\n"


@frozen(kw_only=True)
class Received:
    """One request as it came in."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@define
class Connection:
    """The server's end of one connection, in a script's hands."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(factory=asyncio.Event)
    """The other side has closed, or reset, the connection."""

    async def send(self, *pieces: bytes) -> None:
        """Write the pieces, each in a packet of its own as far as that can be had."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def send_chunked(self, *pieces: bytes, last: bool = True) -> None:
        """Write the pieces in chunked framing."""
        await self.send(*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), *([b"0\r\n\r\n"] if last else []))

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_gone(self) -> None:
        """Wait, without end, until the other side leaves."""
        await self.gone.wait()


Script = Callable[[Connection, Received], Awaitable[None]]


class FaultyUpstream:
    """The server: `script` says what happens to each request; afterwards the connection is closed."""

    shows_looks = False
    """The look that a gateway, or `doctor`, takes at its models is a request like any other; else it has none."""

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or answer_json({})
        self.requests: list[Received] = []
        self.connections: list[Connection] = []
        self.asked = asyncio.Event()
        """A first request has come."""
        self.watches = True
        """Read on while the script runs, to see the other side leave; a script that reads for itself says no."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults: list[Exception] = []
        """What scripts themselves have done wrong."""

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def last(self) -> Received:
        return self.requests[-1]

    async def until_all_gone(self, seconds: float = 1.0) -> None:
        """Every connection was left by its other side, within the time."""
        async with asyncio.timeout(seconds):
            for connection in self.connections:
                await connection.gone.wait()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self.connections:
            connection.writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
        if self._faults:
            raise ExceptionGroup("a script is wrong", self._faults)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = Connection(reader, writer)
        self.connections.append(connection)
        watch = None
        try:
            received = await _receive(reader)
            if received.headers.get("user-agent", "").startswith("toolgate/") and not self.shows_looks:
                self.connections.remove(connection)
                await answer_json({"object": "list", "data": []})(connection, received)
                return
            self.requests.append(received)
            self.asked.set()
            watch = asyncio.ensure_future(_watch(connection)) if self.watches else None
            await self.script(connection, received)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side left, or the test is over
        except Exception as fault:  # noqa: BLE001 - told where the server is closed
            self._faults.append(fault)
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            connection.gone.set()


async def _receive(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = b""
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\n")).strip(), 16):  # IncompleteReadError where it breaks off
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    return Received(method=method, target=target, headers=headers, body=body)


async def _watch(connection: Connection) -> None:
    with suppress(ConnectionError):
        while await connection.reader.read(65536):
            pass
    connection.gone.set()


def event(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a streamed answer as an event."""
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **more,
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def text(content: str) -> bytes:
    """A piece of content as an event."""
    return event({"content": content})


def completion(content: str | None = "hello", **more: Any) -> dict[str, Any]:
    """A whole answer that was not streamed."""
    message = {"role": "assistant", "content": content, **more}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    }


def answer(body: bytes, *, status: str = "200 OK", headers: dict[str, str] | None = None) -> Script:
    """A whole answer with its length."""
    fields = {
        "Content-Type": "application/json",
        **(headers or {}),
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"

    async def script(connection: Connection, received: Received) -> None:
        await connection.send(head.encode("latin-1") + body)

    return script


def answer_json(value: Any, *, status: str = "200 OK", headers: dict[str, str] | None = None) -> Script:
    """A JSON answer."""
    return answer(json.dumps(value).encode(), status=status, headers=headers)


def stream(*pieces: bytes, head: bytes = STREAM_HEAD) -> Script:
    """A streamed answer in these pieces, then a clean close."""

    async def script(connection: Connection, received: Received) -> None:
        await connection.send(head, *pieces)

    return script


def whole_or_streamed(content: str, *pieces: bytes) -> Script:
    """This text, whole or as a stream of these pieces, whichever is asked for."""
    whole, streamed = answer_json(completion(content)), stream(*pieces)

    async def script(connection: Connection, received: Received) -> None:
        asks = received.json if received.body else {}
        await (streamed if asks.get("stream") else whole)(connection, received)

    return script


def paused(until: asyncio.Event, first: bytes, *rest: bytes) -> Script:
    """A streamed answer whose rest waits for the event."""

    async def script(connection: Connection, received: Received) -> None:
        await connection.send(STREAM_HEAD, first)
        await until.wait()
        await connection.send(*rest)

    return script


def raw(*pieces: bytes) -> Script:
    """These bytes, then a clean close."""
    return stream(*pieces, head=b"")


async def hang(connection: Connection, received: Received) -> None:
    """Never an answer."""
    await connection.until_gone()


async def close_at_once(connection: Connection, received: Received) -> None:
    """Closed before a status line."""


def in_turn(*scripts: Script) -> Script:
    """One script per request; the last one for all that follow."""
    rest = list(scripts)

    async def script(connection: Connection, received: Received) -> None:
        await (rest.pop(0) if len(rest) > 1 else rest[0])(connection, received)

    return script


@asynccontextmanager
async def without_tls() -> AsyncIterator[int]:
    """The port of a server that speaks plain HTTP, whatever it hears."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield int(server.sockets[0].getsockname()[1])
