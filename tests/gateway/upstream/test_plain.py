"""Plain connections: one write a request, used again only when nothing speaks against it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from yarl import URL

from gateway.core.errors import UpstreamRefused
from gateway.upstream import plain as connections
from gateway.upstream.plain import Connections, Opened

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
                writer.write(reply)
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


async def post(pool: Connections, upstream: Upstream, *headers: tuple[str, str], body: bytes = b"{}") -> Opened:
    url = URL(f"http://127.0.0.1:{upstream.port}/v1/chat?a=b%20c")
    return await pool.post(url, headers, body, connect_timeout_s=5, decode=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the library tells nobody
            await asyncio.sleep(0)


async def whole(opened: Opened) -> bytes:
    try:
        return await opened.body.read()
    finally:
        opened.close()


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
    with pytest.raises(aiohttp.ClientConnectionError):
        await opened.body.readany()


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_reading_that_paused_goes_on(pool, upstream, is_chunked):
    body = b"x" * (1 << 20)
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    told = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    upstream.replies = [b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (told, framed)]
    opened = await post(pool, upstream)
    connection = opened._connection
    assert connection is not None
    await until(lambda: connection._reading_paused)
    assert await whole(opened) == body
    assert await whole(await post(pool, upstream)) == b"ok"
    assert len(upstream.writers) == 1


async def test_what_comes_unasked_while_a_connection_waits_ends_it(pool, upstream):
    await whole(await post(pool, upstream))
    upstream.writers[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    [idle] = pool._idle["127.0.0.1", upstream.port]
    await until(lambda: idle.connection.should_close)
    assert await whole(await post(pool, upstream)) == b"ok"
    assert len(upstream.writers) == 2


async def test_a_connection_that_its_server_has_closed_is_not_used_again(pool, upstream):
    await whole(await post(pool, upstream))
    [idle] = pool._idle["127.0.0.1", upstream.port]
    upstream.writers[0].close()
    await until(lambda: not idle.connection.is_connected())
    assert await whole(await post(pool, upstream)) == b"ok"


async def test_an_answer_that_is_left_in_the_middle_ends_its_connection(pool, upstream):
    upstream.replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok"]
    (await post(pool, upstream)).close()
    async with asyncio.timeout(5):
        await upstream.gone.wait()
    assert not pool._idle


async def test_a_connection_waits_no_longer_than_a_server_lets_it(pool, upstream, monkeypatch):
    monkeypatch.setattr(connections, "KEEPALIVE_S", 0.01)
    await whole(await post(pool, upstream))
    async with asyncio.timeout(5):
        await upstream.gone.wait()
    assert not pool._idle
    assert pool._sweep is None


async def test_a_request_that_is_given_up_ends_its_connection(pool, upstream):
    upstream.replies = [b"HTTP/1.1 200 OK\r\n"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await post(pool, upstream)
    async with asyncio.timeout(5):
        await upstream.gone.wait()


async def test_a_close_instead_of_an_answer_is_told(pool, upstream):
    upstream.replies = [None]
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await post(pool, upstream)


async def test_an_early_informational_answer_is_passed_over(pool, upstream):
    upstream.replies = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK]
    opened = await post(pool, upstream)
    assert opened.message.code == 200
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


async def test_a_name_that_does_not_exist_is_refused(pool):
    with pytest.raises(UpstreamRefused):
        await pool.post(URL("http://nobody.invalid/"), (), b"", connect_timeout_s=5, decode=True)


def test_this_version_of_the_library_has_what_is_used():
    assert Connections.where_possible() is not None


@pytest.mark.parametrize("name", ["read", "should_close", "set_response_params", "_reading_paused"])
def test_another_version_of_the_library_is_left_alone(name, monkeypatch):
    class Other:
        def set_response_params(self, *, read_until_eof, auto_decompress): ...

        _reading_paused = close = is_connected = read = should_close = None

    if name == "set_response_params":
        monkeypatch.setattr(Other, name, lambda self: None)
    else:
        monkeypatch.delattr(Other, name)
    monkeypatch.setattr(connections, "ResponseHandler", Other)
    assert Connections.where_possible() is None
