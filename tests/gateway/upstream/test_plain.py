"""Plain connections: one write a request, used again only when nothing speaks against it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import cast

import aiohttp
import pytest
from yarl import URL

from gateway.core.errors import Draining, UpstreamBadReply, UpstreamDisconnected, UpstreamRefused, UpstreamTimeout
from gateway.request.deadline import Deadline
from gateway.request.headers import lines_of
from gateway.upstream import plain as connections
from gateway.upstream.body import Framed
from gateway.upstream.client import WHOLE_BYTES, UpstreamCall, UpstreamClient, UpstreamReply
from gateway.upstream.plain import Connection, Connections

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Upstream:
    """Answers each request with the next of the replies; `None` closes."""

    def __init__(self) -> None:
        self.replies: list[bytes | None] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.gone = asyncio.Event()
        self.is_cut = False
        """Each byte is a write of its own."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(size))
                reply = self.replies.pop(0) if self.replies else OK
                if reply is None:
                    break
                for piece in [reply[at : at + 1] for at in range(len(reply))] if self.is_cut else [reply]:
                    writer.write(piece)
                    await asyncio.sleep(0)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.gone.set()
            writer.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    for writer in made.writers:
        writer.transport.abort()
    await server.wait_closed()


@pytest.fixture
async def pool() -> AsyncIterator[Connections]:
    made = Connections()
    yield made
    made.close()


async def post(
    pool: Connections,
    upstream: Upstream,
    *headers: tuple[str, str],
    body: bytes = b"{}",
    name: str = "127.0.0.1",
    wait_s: float = 5.0,
    limit: int | None = None,
    deadline: Deadline | None = None,
) -> UpstreamReply:
    call = UpstreamCall(
        method="POST",
        url=URL(f"http://{name}:{upstream.port}/v1/chat?a=b%20c"),
        lines=lines_of(headers),
        body=body,
        connect_timeout_s=5,
        first_byte_timeout_s=wait_s,
        max_reply_bytes=limit,
    )
    deadline = deadline or Deadline()
    try:
        return await UpstreamClient(session=cast(aiohttp.ClientSession, None), plain=pool).send(call, deadline)
    finally:
        deadline.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the library tells nobody
            await asyncio.sleep(0)


async def whole(reply: UpstreamReply) -> bytes:
    pieces: list[bytes] = []
    with reply:
        while piece := await reply.read(Deadline.now() + 5):
            pieces.append(piece)
    return b"".join(pieces)


async def test_a_request_is_written_as_it_should_be(pool, upstream):
    assert await whole(await post(pool, upstream, ("X-A", "b"), ("Accept", "c"), body=b"hello")) == b"ok"
    host = f"127.0.0.1:{upstream.port}".encode()
    lines = [b"POST /v1/chat?a=b%20c HTTP/1.1", b"Host: " + host, b"X-A: b", b"Accept: c", b"Content-Length: 5"]
    assert upstream.heads == [b"\r\n".join([*lines, b"", b""])]
    assert upstream.bodies == [b"hello"]


async def test_a_connection_is_used_again(pool, upstream):
    for _ in range(3):
        assert await whole(await post(pool, upstream)) == b"ok"
    assert len(upstream.writers) == 1


@pytest.mark.parametrize(
    "reply",
    [
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["an answer nobody asked for", "told to close", "an old server"],
)
async def test_a_connection_with_something_against_it_is_not_used_again(pool, upstream, reply):
    upstream.replies = [reply]
    for _ in range(2):
        assert await whole(await post(pool, upstream)) == b"ok"
    assert len(upstream.writers) == 2


async def test_a_connection_that_is_let_go_twice_serves_one_request_at_a_time(pool, upstream):
    opened = await post(pool, upstream)
    assert await whole(opened) == b"ok"
    opened.close()
    upstream.replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst", OK]
    first = await post(pool, upstream)
    opened.close()
    second = await post(pool, upstream)
    assert len(upstream.writers) == 2
    assert (await whole(first), await whole(second)) == (b"first", b"ok")


async def test_reading_on_after_letting_go_is_a_lost_connection(pool, upstream):
    upstream.replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"]
    opened = await post(pool, upstream)
    opened.close()
    with pytest.raises(UpstreamDisconnected):
        await opened.read(Deadline.now() + 5)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_reading_that_paused_goes_on(pool, upstream, is_chunked):
    body = b"x" * (1 << 20)
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    told = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    upstream.replies = [b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (told, framed)]
    opened = await post(pool, upstream)
    held = opened.body
    assert isinstance(held, Framed)
    await until(lambda: held.is_paused)
    assert await whole(opened) == body
    assert await whole(await post(pool, upstream)) == b"ok"
    assert len(upstream.writers) == 1


async def test_what_comes_unasked_while_a_connection_waits_ends_it(pool, upstream):
    await whole(await post(pool, upstream))
    upstream.writers[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    [idle] = pool._idle["127.0.0.1", upstream.port]
    await until(lambda: not idle.is_fit)
    assert await whole(await post(pool, upstream)) == b"ok"
    assert len(upstream.writers) == 2


async def test_a_connection_that_its_server_has_closed_is_not_used_again(pool, upstream):
    await whole(await post(pool, upstream))
    [idle] = pool._idle["127.0.0.1", upstream.port]
    upstream.writers[0].close()
    await until(lambda: not idle.is_fit)
    assert await whole(await post(pool, upstream)) == b"ok"


async def test_an_answer_that_is_left_in_the_middle_ends_its_connection(pool, upstream):
    upstream.replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok"]
    (await post(pool, upstream)).close()
    async with asyncio.timeout(5):
        await upstream.gone.wait()
    assert not pool._idle


async def test_a_large_request_is_written_whole(pool, upstream):
    body = b"x" * (WHOLE_BYTES - 1)
    for sent in (body, b"{}", body):
        assert await whole(await post(pool, upstream, body=sent)) == b"ok"
    assert upstream.bodies == [body, b"{}", body]
    assert len(upstream.writers) == 1


async def test_what_a_server_has_not_read_ends_with_the_connection(pool):
    """It would wait here for as long as that server likes."""

    async def serve(reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        for body in (b"{}", b""):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(body))
            if not body:
                writer.transport.pause_reading()
            writer.write(OK)
        await is_over.wait()
        writer.transport.abort()

    is_over = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 12)
    asked = Upstream()
    asked.port = server.sockets[0].getsockname()[1]
    try:
        first = await post(pool, asked)
        connection = cast(Connection, first.connection)
        assert await whole(first) == b"ok"
        transport = cast(asyncio.Transport, connection.transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        reply = await post(pool, asked, body=b"x" * (WHOLE_BYTES - 1))
        assert reply.connection is connection
        assert transport.get_write_buffer_size()
        assert await whole(reply) == b"ok"
        await until(lambda: connection.transport is None)
        assert not any(pool._idle.values())
    finally:
        is_over.set()
        server.close()
        await server.wait_closed()


async def test_a_connection_waits_no_longer_than_a_server_lets_it(pool, upstream, monkeypatch):
    monkeypatch.setattr(connections, "KEEPALIVE_S", 0.01)
    await whole(await post(pool, upstream))
    async with asyncio.timeout(5):
        await upstream.gone.wait()
    assert not pool._idle
    assert pool._sweep is None


async def test_a_request_that_is_given_up_ends_its_connection(pool, upstream):
    upstream.replies = [b"HTTP/1.1 200 OK\r\n"]
    with pytest.raises(UpstreamTimeout):
        await post(pool, upstream, wait_s=0.05)
    async with asyncio.timeout(5):
        await upstream.gone.wait()


async def test_a_close_instead_of_an_answer_is_told(pool, upstream):
    upstream.replies = [None]
    with pytest.raises(UpstreamDisconnected):
        await post(pool, upstream)


async def test_an_early_informational_answer_is_passed_over(pool, upstream):
    upstream.replies = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK]
    opened = await post(pool, upstream)
    assert opened.status == 200
    assert await whole(opened) == b"ok"


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b"])
async def test_a_header_cannot_split_the_request(pool, upstream, value):
    with pytest.raises(ValueError, match="split"):
        await post(pool, upstream, ("X-A", value))
    assert not upstream.writers


async def test_the_next_address_of_a_name_is_tried(pool, upstream, monkeypatch):
    async def two(host, port, **options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two)
    assert await whole(await post(pool, upstream)) == b"ok"


async def test_a_name_is_not_asked_for_again_at_once(pool, upstream, monkeypatch):
    asked: list[str] = []

    async def one(host, port, **options):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", one)
    upstream.replies = [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"] * 2
    assert [await whole(await post(pool, upstream)) for _ in range(2)] == [b"ok", b"ok"]
    assert (len(asked), len(upstream.writers)) == (1, 2)
    monkeypatch.setattr(connections, "NAME_KEPT_S", -1.0)
    upstream.replies = [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"] * 2
    [await whole(await post(pool, upstream)) for _ in range(2)]
    assert len(asked) == 3


async def test_a_name_that_does_not_exist_is_refused(pool, upstream):
    with pytest.raises(UpstreamRefused):
        await post(pool, upstream, name="nobody.invalid")


async def test_this_version_of_the_library_has_what_is_used():
    assert Connections.where_possible() is not None


@pytest.mark.parametrize("name", ["feed_data", "set_response_params", "parser"])
async def test_another_version_of_the_library_is_left_alone(name, monkeypatch):
    class Other:
        def set_response_params(self, *, read_until_eof, auto_decompress): ...

        connection_made = connection_lost = data_received = feed_data = set_exception = None

    if name == "parser":
        monkeypatch.setattr(connections, "HttpResponseParser", lambda *args, **options: None)
    elif name == "set_response_params":
        monkeypatch.setattr(Other, name, lambda self: None)
        monkeypatch.setattr(connections, "ResponseHandler", Other)
    else:
        monkeypatch.delattr(Other, name)
        monkeypatch.setattr(connections, "ResponseHandler", Other)
    assert Connections.where_possible() is None


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FRAMED = {
    "a length": (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello", True),
    "chunks": (CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello", True),
    "an extension": (CHUNKED + b"3\r\nhel\r\n2 ; a=b\r\nlo\r\n0\r\n\r\n", b"hello", False),
    "trailers": (CHUNKED + b"005\r\nhello\r\n0\r\nX-A: b\r\nX-B: c\r\n\r\n", b"hello", False),
    "lines that end as they should not": (
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        b"hello",
        False,
    ),
    "chunks whose lines end so": (CHUNKED + b"5\nhello\n0\n\n", b"hello", True),
    "blank lines in front": (b"\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nok", b"ok", False),
    "two codings": (HEAD + b"Transfer-Encoding: x, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok", True),
    "nothing": (HEAD + b"Content-Length: 0\r\n\r\n", b"", True),
    "no body at all": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "more behind the last chunk": (CHUNKED + b"2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", b"ok", False),
}


@pytest.mark.parametrize(
    ("sent", "is_whole"), [(b"0\r\n", True), (b"0\r\nX-A: b\r\n", True), (b"", False), (b"0", False)]
)
async def test_a_body_is_whole_behind_its_last_chunk_alone(pool, upstream, sent, is_whole):
    upstream.replies = [CHUNKED + b"2\r\nok\r\n" + sent]
    reply = await post(pool, upstream)
    upstream.writers[0].close()
    if is_whole:
        assert await whole(reply) == b"ok"
    else:
        with pytest.raises(UpstreamDisconnected):
            await whole(reply)


@pytest.mark.parametrize("is_cut", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("name", FRAMED)
async def test_a_body_is_the_same_however_it_is_cut(pool, upstream, name, is_cut):
    sent, body, is_kept = FRAMED[name]
    upstream.replies, upstream.is_cut = [sent], is_cut
    reply = await post(pool, upstream)
    assert await whole(reply) == body
    await asyncio.sleep(0)
    upstream.is_cut = False
    assert await whole(await post(pool, upstream)) == b"ok"
    assert len(upstream.writers) == (1 if is_kept else 2)


@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED + b"xyz\r\nhello",
        CHUNKED + b"-5\r\nhello",
        CHUNKED + b"5\r\nhello!\r\n",
        CHUNKED + b"5\rhello",
        CHUNKED + b"5;" + b"x" * 10_000,
        CHUNKED + b"0\r\nX-A: " + b"x" * 10_000,
        CHUNKED + b"f" * 20 + b"\r\n",
    ],
)
@pytest.mark.parametrize("is_cut", [False, True], ids=["at once", "byte by byte"])
async def test_what_is_no_chunk_is_a_fault(pool, upstream, sent, is_cut):
    upstream.replies, upstream.is_cut = [sent], is_cut
    with pytest.raises(UpstreamBadReply):
        await whole(await post(pool, upstream))
    assert not pool._idle


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000,
    ],
    ids=["another protocol", "two lengths", "a negative one", "a length and chunks", "no status", "a head without end"],
)
async def test_what_is_no_head_is_refused_at_once(pool, upstream, head):
    upstream.replies = [head]
    with pytest.raises(UpstreamBadReply):
        await post(pool, upstream)


@pytest.mark.parametrize("limit", [2, 1])
async def test_a_whole_answer_is_there_at_once_and_no_larger_than_it_may_be(pool, upstream, limit):
    reply = await post(pool, upstream, limit=limit)
    due = Deadline.now() + 5
    if limit == 2:
        assert (reply.here(), reply.here(), reply.bytes_read) == (b"ok", None, 2)
        assert await reply.read_all(first_due=due, idle_s=5, total_due=due) == b""
    else:
        assert reply.here() is None
        with pytest.raises(UpstreamBadReply, match="too large"):
            await reply.read_all(first_due=due, idle_s=5, total_due=due)
    reply.close()
    assert len(pool._idle["127.0.0.1", upstream.port]) == 1


async def test_an_interruption_ends_the_wait_for_an_answer_and_its_connection(pool, upstream):
    upstream.replies = [b"HTTP/1.1 200 OK\r\n"]
    waits: list[Deadline] = []

    async def asked() -> None:
        waits.append(Deadline())
        await post(pool, upstream, deadline=waits[0])

    asking = asyncio.ensure_future(asked())
    await until(lambda: bool(upstream.bodies))
    waits[0].interrupt(Draining("the gateway is restarting"))
    with pytest.raises(Draining):
        await asking
    async with asyncio.timeout(5):
        await upstream.gone.wait()
