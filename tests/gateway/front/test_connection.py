"""A client's connection: its one task, and the library's own way where that is not possible."""

import asyncio
import re

import pytest
from aiohttp import web

from gateway.front.connection import _USED, OneTask
from gateway.request import head
from tests.support.client import chat, post_bytes
from tests.support.faulty_upstream import answer_json, completion

NOT_ALIKE = re.compile(rb"(Date: |X-Request-Id: |request id )[^\r\"]*")
POST = post_bytes(chat(stream=False))
SENT = {
    "two requests at once": POST + POST,
    "a page, then a request": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + POST,
    "no request behind one": POST + b"nonsense\r\n\r\n",
    "a body in chunks": re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", POST).replace(
        b"\r\n\r\n", b"\r\n\r\n%x\r\n" % len(POST.partition(b"\r\n\r\n")[2])
    )
    + b"\r\n0\r\n\r\n",
    "an offer of another protocol": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\n\r\n" + POST,
    "an old one": b"GET /healthz HTTP/1.0\r\n\r\n",
    "a whole address": b"GET http://127.0.0.1/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a body that nobody reads": b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n\r\nabc" + POST,
}


async def told(port: int, sent: bytes) -> bytes:
    """All that comes back until the connection ends, but for what differs each time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return NOT_ALIKE.sub(rb"\1", answer)


def test_this_version_of_the_library_has_what_is_used_of_it():
    assert OneTask.is_possible(), [name for name in _USED if not hasattr(web.RequestHandler, name)]
    assert head.BODIES_ARE_KNOWN


async def test_one_task_answers_as_the_library_does(gateway, upstream, monkeypatch):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    port = int(running.url.rpartition(":")[2].strip("/"))
    ours = {name: await told(port, sent) for name, sent in SENT.items()}
    monkeypatch.setattr(OneTask, "is_possible", staticmethod(lambda: False))
    monkeypatch.setattr(head, "BODIES_ARE_KNOWN", False)
    for name, sent in SENT.items():
        assert ours[name] == await told(port, sent), name
    assert ours["two requests at once"].count(b"HTTP/1.1 200 OK") == 3
    assert ours["no request behind one"].count(b" 400 Bad Request") == 1


@pytest.mark.parametrize("fault", [OSError("of ours"), ConnectionResetError("the same")])
async def test_a_fault_of_ours_is_told_once_and_ends_the_connection(gateway, upstream, monkeypatch, fault):
    def broken(*args: object) -> None:
        raise fault

    running = await gateway(upstream.url)
    port = int(running.url.rpartition(":")[2].strip("/"))
    monkeypatch.setattr("gateway.front.server.Server._handle", broken)
    running._server._runner.server.request_handler = broken
    answer = await told(port, POST + POST)
    assert answer.startswith(b"HTTP/1.1 500")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in answer


async def test_a_client_that_leaves_takes_its_request_with_it(gateway, upstream):
    asked = asyncio.Event()

    async def never(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    upstream.script = never
    running = await gateway(upstream.url)
    port = int(running.url.rpartition(":")[2].strip("/"))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(POST)
    await asyncio.wait_for(asked.wait(), 30)
    writer.transport.abort()
    assert await running.shared.under_way.ended(30)
