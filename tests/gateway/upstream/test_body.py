"""An answer that flows into a sink while its reader sleeps: nothing is lost, doubled or late, however it is cut."""

import asyncio
import gzip
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from yarl import URL

from gateway.core.errors import UpstreamBadReply, UpstreamDisconnected
from gateway.core.ports import Taken
from gateway.request.deadline import Deadline
from gateway.upstream.body import Framed
from gateway.upstream.client import UpstreamCall, UpstreamClient, UpstreamReply
from gateway.upstream.plain import Connection

PIECES = [b"data: %d\n\n" % number for number in range(300)]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Sink:
    """Takes what it is given, as it is told to."""

    def __init__(self, answer: Callable[[bytes], Taken] = lambda data: Taken.PASSED) -> None:
        self.taken: list[bytes] = []
        self.chunks: list[bytes] = []
        self._answer = answer

    def take(self, data: bytes, chunk: bytes = b"") -> Taken:
        if chunk:  # which may go on in its place
            assert chunk.lower() == b"%x\r\n%b\r\n" % (len(data), data)
            self.chunks.append(chunk)
        answer = self._answer(data)
        if answer is not Taken.LEFT:
            self.taken.append(data)
        return answer


class Server:
    """Answers with a head and pieces, each its own write."""

    def __init__(self, head: bytes, pieces: Sequence[bytes], *, pause: float = 0.0) -> None:
        self.head, self.pieces, self.pause = head, pieces, pause
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.head)
        with suppress(ConnectionError):
            for piece in self.pieces:
                await asyncio.sleep(self.pause)
                writer.write(piece)
                await writer.drain()
        writer.close()


async def opened(server: Server, *, limit: int | None = None) -> AsyncIterator[UpstreamReply]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client, deadline = UpstreamClient.create(), Deadline()
    call = UpstreamCall(
        method="POST",
        url=URL(f"http://127.0.0.1:{port}/v1/chat/completions"),
        lines=b"",
        body=b"{}",
        connect_timeout_s=5,
        first_byte_timeout_s=5,
        max_reply_bytes=limit,
    )
    try:
        with await client.send(call, deadline) as reply:
            yield reply
    finally:
        deadline.close()
        await client.close()
        listening.close()
        for writer in server.writers:
            writer.transport.abort()
        await listening.wait_closed()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def flowed(reply: UpstreamReply, sink: Sink, wait: Callable[[], float]) -> tuple[bytes, int]:
    """All that came, in the order in which it was taken or left, and how often the reader woke."""
    woken = 0
    while True:
        try:
            data = await reply.flow(reply.deadline.now() + wait(), sink)
        except TimeoutError:
            continue
        woken += 1
        if data == b"":
            return b"".join(sink.taken), woken
        sink.taken.append(data or b"")


WHOLE = b"".join(map(chunk, PIECES)) + b"0\r\n\r\n"
ZIPPED = gzip.compress(b"".join(PIECES))
WAYS = {
    "chunked": (CHUNKED, [*map(chunk, PIECES), b"0\r\n\r\n"]),
    "cut anywhere": (CHUNKED, [WHOLE[at : at + 7] for at in range(0, len(WHOLE), 7)]),
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(b"".join(PIECES)), PIECES),
    "to the end": (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", PIECES),
    "compressed": (
        CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),
        [*(chunk(ZIPPED[at : at + 20]) for at in range(0, len(ZIPPED), 20)), b"0\r\n\r\n"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_sink_takes_wakes_nobody(way: str) -> None:
    head, pieces = WAYS[way]
    async for reply in opened(Server(head, pieces)):
        out, woken = await flowed(reply, Sink(), lambda: 5.0)
        assert out == b"".join(PIECES)
        assert woken <= 4, "what came with the head, the end, and nothing between"


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_a_sink_says_and_whenever_the_wait_ends_nothing_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    head, pieces = WAYS[rng.choice(("chunked", "cut anywhere"))]
    answers = [Taken.PASSED] * 3 + [Taken.WAKE, Taken.LEFT]
    async for reply in opened(Server(head, pieces, pause=0.0)):
        sink = Sink(lambda data: rng.choice(answers))
        out, _ = await flowed(reply, sink, lambda: rng.choice((0.0, 0.0002, 0.001, 1.0)))
        assert out == b"".join(PIECES)


async def test_what_comes_between_the_end_of_a_wait_and_the_waking_is_kept() -> None:
    async for reply in opened(Server(CHUNKED, [chunk(b"one"), b"0\r\n\r\n"], pause=0.05)):
        for sink, early, late in (
            (Sink(), b"", b"late "),
            (Sink(lambda data: Taken.LEFT), b"left ", b""),
            (Sink(lambda data: Taken.LEFT), b"left ", b"late "),
        ):
            sleeping = asyncio.ensure_future(reply.flow(reply.deadline.now() + 5, sink))
            await asyncio.sleep(0)
            if early:
                reply.body.give(early)
            sleeping.cancel()
            if late:
                reply.body.give(late)  # the connection has read before the task has run
            with pytest.raises(asyncio.CancelledError):
                await sleeping
            assert await reply.flow(0.0, Sink()) == early + late
        assert (await flowed(reply, Sink(), lambda: 5.0))[0] == b"one"


async def test_what_a_sink_raises_is_raised_where_the_answer_is_waited_for() -> None:
    def raising(data: bytes) -> Taken:
        raise ValueError("no")

    async for reply in opened(Server(CHUNKED, [chunk(b"one"), chunk(b"two")], pause=0.02)):
        with pytest.raises(ValueError, match="no"):
            await flowed(reply, Sink(raising), lambda: 5.0)


async def test_an_answer_that_is_cut_is_a_fault_behind_all_that_came() -> None:
    async for reply in opened(Server(CHUNKED, [chunk(b"one"), chunk(b"two")], pause=0.02)):
        sink = Sink()
        with pytest.raises(UpstreamDisconnected):
            await flowed(reply, sink, lambda: 5.0)
        assert b"".join(sink.taken) == b"onetwo"


async def test_an_answer_over_the_cap_is_given_up() -> None:
    async for reply in opened(Server(CHUNKED, [chunk(b"x" * 600)] * 2, pause=0.02), limit=1000):
        with pytest.raises(UpstreamBadReply):
            await flowed(reply, Sink(), lambda: 5.0)


def test_a_chunk_goes_on_as_it_came_in_its_plainest_form_alone() -> None:
    loop = asyncio.new_event_loop()
    sink, connection = Sink(), Connection(loop, ("localhost", 80))
    connection.body = body = Framed(is_chunked=True, is_between=True, left=0, transport=asyncio.Transport())
    body.sink, body.woken = sink, loop.create_future()
    plain = [b"5\r\nhello\r\n", b"A\r\n0123456789\r\n", b"b\r\n\r\n\r\n0\r\n\r\n\r\n\r\n"]
    for each in (*plain, b"005\r\nhello\r\n", b"5 \r\nhello\r\n", b"1\r\na\r\n1\r\nb\r\n", b"5\r\nhel", b"lo\r\n"):
        connection.data_received(each)
    assert sink.chunks == plain
    told = b"hello0123456789\r\n\r\n0\r\n\r\n\r\nhellohelloabhello"
    assert (b"".join(sink.taken), body.count) == (told, len(told))
    connection.data_received(b"0\r\n\r\n")
    assert body.is_over
    assert body.woken.result() is None
    loop.close()


def test_a_lane_is_asked_first_until_it_leaves_a_chunk_and_never_within_one() -> None:
    loop = asyncio.new_event_loop()
    sink, connection = Sink(), Connection(loop, ("localhost", 80))
    transport = Transport()
    connection.connection_made(transport)
    connection.body = body = Framed(is_chunked=True, is_between=True, left=0, transport=transport)
    body.sink, body.woken, gone = sink, loop.create_future(), []

    def lane(data: bytes) -> None:
        gone.append(data)
        if b"loud" in data:
            connection.leave_lane(data)

    transport.set_protocol(connection)
    connection.open_lane(lane)
    for each in (b"calm", b"loud", b"calm"):
        transport.get_protocol().data_received(chunk(each))
    assert gone == [chunk(b"calm"), chunk(b"loud")]
    assert sink.taken == [b"loud", b"calm"]
    connection.open_lane(lane)
    for each in (b"9\r\nloud", b"\r\ncal", b"\r\n"):  # what looks like a chunk within another is none
        transport.get_protocol().data_received(each)
    assert len(gone) == 3
    assert b"".join(sink.taken) == b"loudcalmloud\r\ncal"
    connection.open_lane(lane)
    connection.fail_lane(KeyError("x"))
    assert isinstance(body.woken.exception(), KeyError), "raised where the answer is waited for"
    assert transport.get_protocol() is connection
    connection.open_lane(lane)
    connection.ask(b"GET / HTTP/1.1\r\n\r\n", decode=True, limit=None).cancel()
    assert transport.get_protocol() is connection, "no lane outlives its answer"
    connection.body = body
    connection.open_lane(lane)
    transport.get_protocol().connection_lost(None)
    assert body.is_over, "who has its bytes has all else of it"
    assert not connection.is_fit
    loop.close()


class Transport(asyncio.Transport):
    """Knows whom it tells."""

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol
