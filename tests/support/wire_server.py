"""What the servers of foreign wires share: answers without a socket, and a socket to give them through."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from attrs import define, frozen

from tests.support.faulty_upstream import Connection, FaultyUpstream, Received

__all__ = ["HEADER", "ManyServers"]


REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@frozen(kw_only=True)
class Answered:
    """One HTTP answer."""

    status: int = 200
    content_type: str
    body: bytes

    @classmethod
    def json(cls, value: Any, status: int = 200) -> "Answered":
        return cls(status=status, content_type="application/json", body=json.dumps(value, ensure_ascii=False).encode())

    @classmethod
    def stream(cls, body: bytes) -> "Answered":
        return cls(content_type="text/event-stream; charset=utf-8", body=body)


class WireServer(Protocol):
    """A server that needs no socket."""

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered: ...


def wire_error(status: int, value: Any) -> Answered:
    """An error in the server's own form."""
    return Answered.json(value, status)


def sse(value: Any, *, name: str | None = None, end: str = "\n") -> bytes:
    """One event."""
    head = f"event: {name}{end}" if name else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}{end}{end}".encode()


@asynccontextmanager
async def listening(server: WireServer) -> AsyncIterator[str]:
    """The server on a real socket; gives its address."""

    async def script(connection: Connection, received: Received) -> None:
        answered = server.respond(received.method, received.target, received.headers, received.body)
        head = (
            f"HTTP/1.1 {answered.status} {REASONS.get(answered.status, 'Error')}\r\n"
            f"Content-Type: {answered.content_type}\r\nConnection: close\r\n"
        )
        if answered.content_type.startswith("text/event-stream"):
            await connection.send(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            pieces = [answered.body[start : start + 61] for start in range(0, len(answered.body), 61)]
            await connection.send_chunked(*pieces)
        else:
            await connection.send(f"{head}Content-Length: {len(answered.body)}\r\n\r\n".encode() + answered.body)

    upstream = await FaultyUpstream(script).start()
    try:
        yield f"http://127.0.0.1:{upstream.port}"
    finally:
        await upstream.close()


# --- Many servers behind one address: each conversation has one of its own, told by a header that goes all the way.


HEADER = "X-Conversation"


@define
class ManyServers:
    """Hands each request to the server of its conversation."""

    servers: Mapping[str, WireServer]

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        server = self.servers.get(headers.get(HEADER.lower(), ""))
        if server is None:
            return wire_error(404, {"error": {"message": "no such conversation"}})
        return server.respond(method, target, headers, body)
