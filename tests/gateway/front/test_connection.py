"""A client's connection: its one task, and the library's own way where that is not possible."""

import asyncio
import json
import re

import pytest
from aiohttp import web

from gateway.front.connection import _USED, OneTask
from gateway.front.measures import measure
from gateway.request import head
from tests.support.client import chat, post_bytes
from tests.support.faulty_upstream import Connection, Received, answer_json, completion

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


async def test_lines_say_the_request_that_they_are_about_and_no_other(gateway, upstream, log, monkeypatch):
    def broken(*args: object) -> None:
        raise OSError("of ours")

    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    port = int(running.url.rpartition(":")[2].strip("/"))
    monkeypatch.setattr("gateway.front.middleware.measure", broken)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    first = post_bytes(chat(stream=False), "X-Request-Id: mine", f"traceparent: {trace}")
    elsewhere = b"GET /healthz HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n"
    await told(port, first + elsewhere + post_bytes(chat(stream=False), "X-Request-Id: yours"))
    written = [json.loads(line) for line in (await log.until('"yours"')).splitlines()]
    ids = [(line["request_id"], line.get("trace_id")) for line in written if line["event"] == "accounting_failed"]
    assert ids == [("mine", trace[3:35]), ("yours", None)]
    assert not {"request_id", "trace_id"} & (await log.record("request_not_let_in")).keys()


async def test_of_requests_that_end_together_a_fault_costs_the_record_of_one(gateway, upstream, log, monkeypatch):
    names = [f"req-{number}" for number in range(12)]
    all_here = asyncio.Event()

    async def together(connection: Connection, received: Received) -> None:
        if len(upstream.requests) == len(names):
            all_here.set()
        await all_here.wait()
        await answer_json(completion("hello"))(connection, received)

    def faulty(summary, telemetry):
        if summary.id == names[3]:
            raise OSError("of ours")
        measure(summary, telemetry)

    upstream.script = together
    running = await gateway(upstream.url)
    monkeypatch.setattr("gateway.front.middleware.measure", faulty)
    port = int(running.url.rpartition(":")[2].strip("/"))
    asked = [post_bytes(chat(stream=False), f"X-Request-Id: {name}") for name in names]
    await asyncio.gather(*(told(port, each) for each in asked))
    await told(port, post_bytes(chat(stream=False), "X-Request-Id: last"))
    written = await log.until('"last"')
    lines = [json.loads(line) for line in written.splitlines()]
    assert sorted(
        line["request_id"] for line in lines if line.get("route") == "chat" and line["event"] == "request_ended"
    ) == sorted([*names, "last"])
    assert [line["request_id"] for line in lines if line["event"] == "accounting_failed"] == [names[3]]
    scraped = running.shared.telemetry.render()[0].decode()
    served = [
        line for line in scraped.splitlines() if line.startswith("toolgate_requests_total{") and 'route="chat"' in line
    ]
    assert sum(float(line.rpartition(" ")[2]) for line in served) == len(names)
