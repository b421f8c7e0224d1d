"""The rows C1 to C9 of deploy/FAULTS.md: whatever a client does, nobody else pays for it."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.client import ask, chat, exchange, get, post_bytes
from tests.support.cost import Pulse
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    answer_json,
    completion,
    event,
    hang,
    stream,
    text,
)

FINISH = event(finish="stop")
WHOLE = (text("hello"), FINISH, DONE)


async def quiet_stream(connection, received):
    await connection.send(STREAM_HEAD, text("hello"))
    await connection.until_gone()


async def busy_stream(connection, received):
    await connection.send(STREAM_HEAD)
    while not connection.gone.is_set():
        await connection.send(text("x"))
        await asyncio.sleep(0.01)


async def small_socket(url: str) -> socket.socket:
    """A client for which little is kept while it does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", int(url.rsplit(":", 1)[1])))
    return sock


async def until_idle(running) -> None:
    """Every request of the gateway has ended and was written down."""
    assert await running.shared.under_way.ended(1.0)


@pytest.mark.parametrize("script", [hang, quiet_stream, busy_stream], ids=["before headers", "quiet", "busy"])
@pytest.mark.parametrize("end", ["close", "reset", "half-close"])
async def test_c1_c6_a_client_that_leaves_takes_the_upstream_call_with_it(
    connect, gateway, upstream, client, script, end
):
    upstream.script = script
    running = await gateway(upstream.url)
    reader, writer = await connect(running.url)
    writer.write(post_bytes(chat()))
    await writer.drain()
    if script is hang:
        await upstream.asked.wait()
    else:
        await reader.readuntil(b"}]}")
    if end == "half-close":
        writer.write_eof()
    elif end == "reset":
        writer.transport.abort()
    else:
        writer.close()
    await upstream.until_all_gone(1.0)
    await until_idle(running)
    writer.close()
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_requests_in_flight{route="chat"} 0.0' in exposition
    assert "toolgate_active_streams 0.0" in exposition
    if script is not hang:
        assert 'toolgate_stream_ends_total{arm="live",reason="client_abort"} 1.0' in exposition


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/models"])
async def test_c1_holds_for_every_route(connect, gateway, upstream, path):
    upstream.script = hang
    running = await gateway(upstream.url)
    _, writer = await connect(running.url)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await upstream.asked.wait()
    writer.close()
    await upstream.until_all_gone(1.0)
    await until_idle(running)


async def test_c2_a_client_that_does_not_read_stops_the_upstream_and_is_dropped(gateway, upstream, client):
    sent = 0

    async def flood(connection, received):
        nonlocal sent
        await connection.send(STREAM_HEAD)
        piece = text("x" * 60_000)
        while not connection.gone.is_set():
            await connection.send(piece)
            sent += len(piece)

    upstream.script = flood
    running = await gateway(upstream.url, CLIENT_WRITE_TIMEOUT_S="0.5", UPSTREAM_MAX_REPLY_BYTES="1GiB")
    reader, writer = await asyncio.open_connection(sock=await small_socket(running.url))
    writer.write(post_bytes(chat()))
    await reader.readuntil(b"}]}")
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a reader that asyncio does not drain behind the test's back
    await upstream.until_all_gone(5.0)
    assert sent < 24 << 20
    await until_idle(running)
    writer.transport.abort()
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_stream_ends_total{arm="live",reason="client_abort"} 1.0' in exposition


async def test_c2_a_client_that_does_not_read_a_whole_answer_is_dropped(connect, gateway, upstream):
    upstream.script = answer_json(completion("x" * 20_000_000))
    running = await gateway(upstream.url, CLIENT_WRITE_TIMEOUT_S="0.3")
    _, writer = await connect(running.url)
    writer.transport.pause_reading()
    writer.write(post_bytes(chat(stream=False)))
    await upstream.asked.wait()
    assert await running.shared.under_way.ended(8.0)
    writer.transport.abort()


async def test_c3_a_body_that_drips_is_refused(connect, gateway, upstream, monkeypatch):
    monkeypatch.setattr("gateway.request.state.BODY_WINDOW_S", 0.2)
    running = await gateway(upstream.url)
    reader, writer = await connect(running.url)
    request = post_bytes(chat())
    writer.write(request[:-60])

    async def drip():
        for byte in request[-60:]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)

    dripping = asyncio.ensure_future(drip())
    async with Pulse() as pulse:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert head.startswith(b"HTTP/1.1 400")
    assert pulse.seconds < 1.0
    dripping.cancel()
    writer.close()
    assert upstream.requests == []


async def test_c3_a_body_that_comes_too_slowly_all_in_all_is_refused(connect, gateway, upstream):
    """Each window of it brings enough, and it would hold its place for hours."""
    running = await gateway(upstream.url, GATEWAY_BODY_TIMEOUT_S="0.5")
    reader, writer = await connect(running.url)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n")

    async def pour():
        while True:
            writer.write(b" " * (20 << 10))
            await asyncio.sleep(0.01)

    pouring = asyncio.ensure_future(pour())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    pouring.cancel()
    assert head.startswith(b"HTTP/1.1 400")
    writer.transport.abort()
    assert upstream.requests == []


HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHo"


@pytest.mark.parametrize("early", [False, True], ids=["behind the answer", "beside the answer"])
async def test_c3_every_head_on_a_kept_connection_has_the_time_of_the_first(
    connect, gateway, upstream, monkeypatch, early
):
    monkeypatch.setattr("gateway.front.connection.HEAD_TIMEOUT_S", 0.2)
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    reader, writer = await connect(running.url)
    writer.write(post_bytes(chat(stream=False)) + (HALF if early else b""))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    await reader.readexactly(length)
    if not early:
        writer.write(HALF)
    if early:
        writer.write(b"s")
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()


async def test_c3_a_kept_connection_without_a_head_under_way_is_kept(connect, gateway, upstream, monkeypatch):
    monkeypatch.setattr("gateway.front.connection.HEAD_TIMEOUT_S", 0.05)
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    reader, writer = await connect(running.url)
    for _ in range(2):
        writer.write(post_bytes(chat(stream=False)) + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        await asyncio.sleep(0.15)
    writer.close()


async def test_c3_a_head_that_never_ends_is_closed(gateway, upstream, monkeypatch):
    monkeypatch.setattr("gateway.front.connection.HEAD_TIMEOUT_S", 0.2)
    running = await gateway(upstream.url)
    async with Pulse() as pulse:
        assert await exchange(running.url, b"POST /v1/chat/completions HTTP/1.1\r\nHo") == b""
    assert pulse.seconds < 2.0


async def test_c4_a_body_that_says_it_is_too_large_is_refused_unread(connect, gateway, upstream):
    running = await gateway(upstream.url, GATEWAY_MAX_BODY_BYTES="64KiB")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 52428800\r\n\r\n"
    reader, writer = await connect(running.url)
    writer.write(head + b"x" * 1000)
    got = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2)
    assert got.startswith(b"HTTP/1.1 413")
    assert b"Connection: close" in got
    assert b"body_too_large" in await reader.readuntil(b"}}")
    writer.close()
    assert upstream.requests == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_c4_a_body_without_a_length_is_refused_at_the_cap(connect, gateway, upstream, path):
    running = await gateway(upstream.url, GATEWAY_MAX_BODY_BYTES="64KiB")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    reader, writer = await connect(running.url)
    writer.write(head)
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"

    async def flood():
        for _ in range(3200):
            writer.write(chunk)
            await writer.drain()

    flooding = asyncio.ensure_future(flood())
    got = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert got.startswith(b"HTTP/1.1 413")
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)
    writer.transport.abort()
    assert running.shared.breaker("default").state == "closed"


async def test_c4_bodies_that_are_too_large_never_open_the_breaker(gateway, upstream, client):
    running = await gateway(upstream.url, GATEWAY_MAX_BODY_BYTES="1KiB")

    async def pieces():
        for _ in range(20):
            yield b"x" * 1000
            await asyncio.sleep(0.001)

    for _ in range(8):
        async with client.post(f"{running.url}/v1/files", data=pieces()) as response:
            assert response.status == 413
    assert running.shared.breaker("default").state == "closed"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"null", None),
        (b'"text"', None),
        (b"[" * 10_000, None),
        (b'{"a":' * 10_000, None),
        (b'{"model":"m","messages":[]}', "messages"),
        (b'{"model":"m","messages":{}}', "messages"),
        (b'{"model":"m","messages":[1]}', "messages[0]"),
        (b'{"model":1,"messages":[{"role":"user"}]}', "model"),
        (b'{"messages":[{"role":"user"}]}', "model"),
        (b'{"model":"m","messages":[{"role":"user"}],"stream":"yes"}', "stream"),
        (b'{"model":"m","messages":[{"role":"user"}],"tools":{}}', "tools"),
        (b'{"model":"m","messages":[{"role":"user"}],"tools":[1]}', "tools[0]"),
        (b'{"model":"m","messages":[{"role":"user"}],"tool_choice":5}', "tool_choice"),
        (b'{"model":"\xff","messages":[{"role":"user"}]}', None),
    ],
)
async def test_c5_what_is_no_request_is_a_400(gateway, upstream, client, body, param):
    running = await gateway(upstream.url)
    async with client.post(f"{running.url}/v1/chat/completions", data=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["code"] == "invalid_request"
    assert error["param"] == param
    assert upstream.requests == []


async def test_c5_a_hundred_thousand_messages_are_a_request(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    body = chat(stream=False, messages=[{"role": "user", "content": ""}] * 20_000)
    assert (await ask(client, running.url, body)).status == 200


async def test_c5_empty_tools_are_no_tools(gateway, upstream, client):
    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="qwen3", tools=[]))
    assert got.headers["X-Toolgate-Strategy"] == "passthrough"


async def test_c7_pipelined_requests_are_answered_in_order(gateway, upstream):
    async def named(connection, received):
        await answer_json(completion(received.json["messages"][0]["content"]))(connection, received)

    upstream.script = named
    running = await gateway(upstream.url)
    requests = [chat(stream=False, messages=[{"role": "user", "content": f"number {n}"}]) for n in range(3)]
    pieces = [post_bytes(body) for body in requests[:-1]] + [post_bytes(requests[-1], "Connection: close")]
    got = await exchange(running.url, b"".join(pieces))
    places = [got.index(f"number {n}".encode()) for n in range(3)]
    assert places == sorted(places)
    assert got.count(b"HTTP/1.1 200 OK") == 3


async def test_c7_a_connection_is_good_for_more_after_an_error(gateway, upstream):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    pieces = post_bytes(b"{") + post_bytes(chat(stream=False), "Connection: close")
    got = await exchange(running.url, pieces)
    assert got.startswith(b"HTTP/1.1 400")
    assert got.count(b"HTTP/1.1 200 OK") == 1


async def test_c9_one_too_many_is_told_so_at_once(connect, gateway, upstream, client):
    upstream.script = quiet_stream
    running = await gateway(upstream.url, GATEWAY_MAX_CONCURRENCY="2")
    streams = [await connect(running.url) for _ in range(2)]
    for reader, writer in streams:
        writer.write(post_bytes(chat()))
        await reader.readuntil(b"}]}")
    async with Pulse() as pulse:
        got = await ask(client, running.url)
    assert pulse.seconds < 0.3
    assert (got.status, got.error) == (503, "no_capacity")
    assert got.headers["Retry-After"] == "1"
    assert (await get(client, f"{running.url}/healthz")).status == 200
    for _, writer in streams:
        writer.close()
    await until_idle(running)
    upstream.script = stream(*WHOLE)
    assert (await ask(client, running.url)).content == "hello"


async def test_two_hundred_streams_at_once_are_all_whole(gateway, upstream, client):
    async def paced(connection, received):
        await connection.send(STREAM_HEAD)
        for word in ("one ", "two ", "three"):
            await connection.send(text(word))
            await asyncio.sleep(0.05)
        await connection.send(FINISH, DONE)

    upstream.script = paced
    running = await gateway(upstream.url)
    client.connector._limit = 0
    answers = await asyncio.gather(*(ask(client, running.url) for _ in range(200)))
    assert {got.content for got in answers} == {"one two three"}
    assert all(got.is_done for got in answers)


async def test_a_request_body_in_gzip_is_understood_within_the_cap(gateway, upstream, client):
    import gzip

    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, GATEWAY_MAX_BODY_BYTES="64KiB")
    url = f"{running.url}/v1/chat/completions"
    for body, status in ((chat(stream=False), 200), (chat(padding="x" * 10_000_000), 413)):
        packed = gzip.compress(json.dumps(body).encode())
        async with client.post(url, data=packed, headers={"Content-Encoding": "gzip"}) as response:
            assert response.status == status


# The tap: an answer that goes from the model server's connection to the client's without waking the request's task.


class KeptServer(asyncio.Protocol):
    """One connection of a model server that keeps it: streams the name that was asked for, an event at a time."""

    words = 6

    def __init__(self, connections):
        connections.append(self)
        self.received, self.steps, self.is_lost = b"", [], False
        self.asked: list[str] = []

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exc):
        self.is_lost = True

    def data_received(self, data):
        self.received += data
        head, gap, body = self.received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if gap and len(body) >= length:
            self.received = b""
            name = json.loads(body)["messages"][0]["content"]
            self.asked.append(name)
            events = [*(text(f" {name} {number},") for number in range(self.words)), FINISH, DONE]
            chunks = [b"%x\r\n%b\r\n" % (len(each), each) for each in events]
            self.steps = [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"]
            self.steps += [*chunks, b"0\r\n\r\n"]

    def step(self):
        self.transport.write(self.steps.pop(0))


STEPS = 1 + KeptServer.words + 3


@asynccontextmanager
async def kept_server():
    """Its address, and its connections."""
    connections: list[KeptServer] = []
    server = await asyncio.get_running_loop().create_server(lambda: KeptServer(connections), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", connections
    server.close()
    for each in connections:
        each.transport.abort()


async def until(is_so):
    """Wait for a state that the other end of a connection comes to."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def streamed(connect, running, connections, name, steps):
    """A client that has got what so many steps of its answer say; the connection that serves it, and the client's."""
    before = sum(len(each.asked) for each in connections)
    reader, writer = await connect(running.url)
    writer.write(post_bytes({**chat(), "messages": [{"role": "user", "content": name}]}))
    await until(lambda: sum(len(each.asked) for each in connections) > before)
    (serving,) = [each for each in connections if each.asked[-1:] == [name]]
    for step in range(steps):
        serving.step()
        if 0 < step <= KeptServer.words:  # each event is a read of its own, and has come through before the next
            await asyncio.wait_for(reader.readuntil(f"{name} {step - 1},".encode()), 5)
    return serving, reader, writer


@pytest.mark.parametrize("steps", range(STEPS + 1))
async def test_a_client_that_leaves_behind_any_event_leaves_nothing_behind(connect, gateway, steps):
    """What had come of its answer reaches nobody else, and its connection serves whole answers or none any more."""
    async with kept_server() as (url, connections):
        running = await gateway(url)
        serving, _, writer = await streamed(connect, running, connections, "left", steps)
        writer.transport.abort()
        await until_idle(running)
        await until(lambda: serving.is_lost or not serving.steps)
        for name in ("next", "last"):
            serving, reader, writer = await streamed(connect, running, connections, name, STEPS)
            whole = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5)
            assert b"left" not in whole
            assert whole.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert not serving.is_lost
            assert serving.transport.is_reading()
            writer.close()
            await until_idle(running)
        assert len(serving.asked) >= 2, "the connection of a whole answer serves the next one"
        assert len(running.shared.under_way) == 0


async def test_a_drain_ends_streams_at_any_event_and_leaves_nothing_behind(connect, gateway):
    async with kept_server() as (url, connections):
        running = await gateway(url, GATEWAY_DRAIN_S="0.1")
        open_ones = [
            await streamed(connect, running, connections, f"name{steps}.", steps) for steps in range(1, STEPS - 2)
        ]
        await running.drain()
        for number, (serving, reader, _) in enumerate(open_ones):
            rest = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5)
            assert b'"gateway_draining"' in rest or b"restarting" in rest
            assert all(f"name{other + 1}." not in rest.decode() for other in range(len(open_ones)) if other != number)
            await until(lambda serving=serving: serving.is_lost)
        assert len(running.shared.under_way) == 0


async def test_a_client_that_pauses_pauses_the_model_server_and_gets_all_of_it(gateway, upstream):
    """Small events: they pass without waking anybody, until there is no room, and again once there is."""
    events, piece, sent = 7000, text("x" * 1000), 0

    async def flood(connection, received):
        nonlocal sent
        connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        await connection.send(STREAM_HEAD)
        for sent in range(1, events + 1):  # noqa: B007 - it is looked at from outside
            await connection.send(piece)
        await connection.send(FINISH, DONE)

    upstream.script = flood
    running = await gateway(upstream.url)
    reader, writer = await asyncio.open_connection(sock=await small_socket(running.url))
    writer.write(post_bytes(chat(), "Connection: close"))
    got = await reader.readuntil(b"}]}")
    client: Any = writer.transport
    for _ in range(2):
        client.pause_reading()
        seen, turns = -1, 0
        while turns < 300:  # so many turns of the loop that all of them share, and nothing moves
            turns = turns + 1 if seen == sent else 0
            seen = sent
            await asyncio.sleep(0)
        assert (sent - got.count(b"x" * 1000)) * len(piece) < 5 << 20, "more than the system keeps for two connections"
        client.resume_reading()
        got += await asyncio.wait_for(reader.readexactly(1 << 20), 10)
    got += await asyncio.wait_for(reader.read(-1), 20)
    assert got.count(b"x" * 1000) == sent == events
    assert b"data: [DONE]" in got
    writer.close()
