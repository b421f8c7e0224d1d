"""The client's side of a test: ask, and see what came."""

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import aiohttp
from attrs import frozen

__all__ = ["ENDS", "cuts", "dispatched", "joined", "joined_by"]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


def chat(*, model: str = "gpt-4o", stream: bool = True, **fields: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}], **fields}


@frozen(kw_only=True)
class Answer:
    """A whole answer, streamed or not."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The data of every event; comments are left out."""
        found = []
        for block in self.body.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
            lines = [
                line.removeprefix("data:").removeprefix(" ") for line in block.split("\n") if line.startswith("data:")
            ]
            if lines:
                found.append("\n".join(lines))
        return found

    @property
    def chunks(self) -> list[Any]:
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def content(self) -> str:
        return "".join(
            choice["delta"].get("content") or "" for chunk in self.chunks for choice in chunk.get("choices", [])
        )

    @property
    def error(self) -> str | None:
        """The code of the error event that ends a stream, or of an error body."""
        if self.headers.get("Content-Type", "").startswith("text/event-stream"):
            errors = [chunk["error"]["code"] for chunk in self.chunks if "error" in chunk]
            assert len(errors) <= 1
            if errors:
                assert "error" in self.chunks[-1], "nothing follows an error"
                assert "[DONE]" not in self.events
            return errors[0] if errors else None
        return self.json["error"]["code"] if self.status >= 400 else None

    @property
    def is_done(self) -> bool:
        return self.events[-1:] == ["[DONE]"]


async def ask(session: aiohttp.ClientSession, url: str, body: Any = None, **options: Any) -> Answer:
    """One chat request, its answer read to the end."""
    async with session.post(f"{url}/v1/chat/completions", json=chat() if body is None else body, **options) as response:
        return Answer(status=response.status, headers=response.headers, body=await response.read())


async def get(session: aiohttp.ClientSession, url: str, **options: Any) -> Answer:
    async with session.get(url, **options) as response:
        return Answer(status=response.status, headers=response.headers, body=await response.read())


def post_bytes(body: Any, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """A request as bytes, for a raw socket."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(payload)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + payload


async def open_connection(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A raw connection to a gateway; its user closes it."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def exchange(url: str, *pieces: bytes, seconds: float = 5.0) -> bytes:
    """Send the pieces and read until the gateway closes."""
    reader, writer = await open_connection(url)
    try:
        async with asyncio.timeout(seconds):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await reader.read(-1)
    finally:
        writer.close()
        await writer.wait_closed()


async def answer_to(url: str, path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    """The whole answer to a request with these headers and no others."""
    lines = [f"{method} {path} HTTP/{version}", *headers, "Connection: close"]
    return await exchange(url, "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


# --- How the standard says that a stream of events is read, as plainly as it can be written down.
# https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation


ENDS = (b"\n", b"\r\n", b"\r")


def dispatched(data: bytes) -> list[bytes]:
    """The data of each event that is dispatched; one that no blank line ends is not."""
    found, lines = [], list[bytes]()
    for line in _lines(data.removeprefix(b"\xef\xbb\xbf")):
        if not line:
            found += [b"\n".join(lines)] if lines else []
            lines = []
        elif line == b"data" or line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
    return found


def _lines(data: bytes) -> Iterator[bytes]:
    """The lines that have an end: CR LF, LF or CR."""
    line = bytearray()
    at = 0
    while at < len(data):
        if data[at : at + 1] in (b"\r", b"\n"):
            yield bytes(line)
            line.clear()
            at += 2 if data[at : at + 2] == b"\r\n" else 1
        else:
            line += data[at : at + 1]
            at += 1


def joined(lines: list[bytes], ends: Iterable[bytes]) -> bytes | None:
    """The lines with these ends behind them; None where a carriage return and a line feed would be one end of two."""
    out = b""
    for line, end in zip(lines, ends, strict=True):
        if not line and out.endswith(b"\r") and end == b"\n":
            return None
        out += line + end
    return out


def joined_by(lines: list[bytes]) -> list[bytes]:
    """The lines with every mixture of line ends behind them."""
    found = (joined(lines, ends) for ends in itertools.product(ENDS, repeat=len(lines)))
    return [data for data in found if data is not None]


def cuts(data: bytes, *, places: list[int] | None = None) -> Iterator[list[bytes]]:
    """The data whole, per byte, and with one cut and with two at all of these places."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    at = places if places is not None else list(range(1, len(data)))
    for one in at:
        yield [data[:one], data[one:]]
    for one, two in itertools.combinations(at, 2):
        yield [data[:one], data[one:two], data[two:]]
