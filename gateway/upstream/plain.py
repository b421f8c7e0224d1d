"""Connections without TLS to model servers: one write a request, kept open for the next one.

Heads are parsed by aiohttp, and whatever is unusual is read by it; what is spared is everything that its client does
for a request beyond that, which costs more than the request. Only a body of known length goes this way: it is handed to
the transport whole, and a server which answers before it has read all of it is heard at once.
"""

import asyncio
import errno
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import signature
from socket import SOCK_STREAM, gaierror
from time import monotonic
from typing import cast

from aiohttp import ServerDisconnectedError, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpResponseParser, RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from attrs import define, field
from msgspec import Struct

from gateway.core.errors import Cause, NoCapacity, UpstreamDisconnected, UpstreamRefused, UpstreamTimeout
from gateway.core.ports import Taken
from gateway.request.servers import Address
from gateway.upstream.body import PASSED, PLAIN_LINE, SIZES, Body, Framed, Lent, size_of

__all__ = ["KEEPALIVE_S", "Answer", "Connection", "Connections"]

# uvicorn's, under vLLM and many others: https://github.com/encode/uvicorn/blob/master/uvicorn/config.py
KEEPALIVE_S = 4.0
"""Python model servers close an idle connection after 5 s; a POST that meets the close is lost."""
NEXT_ADDRESS_S = 1.0
"""How long an address of a name is tried while there is another one."""

# As long as a container's name may go on leading to where it was; asking for each new connection costs a thread.
NAME_KEPT_S = 10.0
_USED = ("connection_made", "connection_lost", "data_received", "feed_data", "set_exception")
_OPTIONS = frozenset({"read_until_eof", "auto_decompress"})

_BEGINNING = b"HTTP/"
_HEAD_END = b"\r\n\r\n"
_JOINED_BYTES = 32 << 10
"""To copy a body of so many bytes costs less than to write it by itself."""
_HEAD_BYTES = 16 << 10
"""A head that is larger is the library's to read, or to refuse."""
_BARE = frozenset({204, 304})
"""Statuses of answers without a body."""
_DIGITS = re.compile(r"[0-9]{1,15}")


class Answer(Struct, frozen=True):
    """An answer's head, and its body as it comes."""

    message: RawResponseMessage
    body: Body


class Connection(asyncio.Protocol):
    """One connection, for one request after the other.

    The library's parser reads a head. What is unusual in any way, it gets all of: the connection is its own from then
    on, and takes no other request.
    """

    __slots__ = (
        "_asked",
        "_has_lane",
        "_held",
        "_limit",
        "_loop",
        "_undoes",
        "address",
        "body",
        "is_fit",
        "since",
        "transport",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, address: Address) -> None:
        self._loop = loop
        self.address = address
        self.transport: asyncio.Transport | None = None
        self.is_fit = True
        """It can take another request, once the answer under way has come whole."""
        self.since = 0.0
        """When it was last let go."""
        self._asked: asyncio.Future[Answer] | None = None
        self.body: Framed | None = None
        self._has_lane = False
        """A sink of the body has opened one: what comes goes to it, and does not come here."""
        self._held = b""
        """The beginning of a head."""
        self._undoes = True
        self._limit: int | None = None

    def ask(self, head: bytes, body: bytes = b"", *, decode: bool, limit: int | None) -> "asyncio.Future[Answer]":
        """Send a request; `close` when its answer is no longer wanted."""
        if self.transport is None or self.transport.is_closing():
            raise ServerDisconnectedError()
        if self._has_lane:
            self.close_lane()
        self._held, self.body, self._undoes, self._limit = b"", None, decode, limit
        self._asked = self._loop.create_future()
        if len(body) <= _JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        return self._asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        body = self.body
        if body is None:
            self._read_head(data)
            return
        if body.is_over:
            self.is_fit = False  # nobody has asked for it
        elif body.is_between and (sink := body.sink) is not None and (woken := body.woken) is not None:
            # One chunk, as nearly every event of a stream comes, and somebody is there for it: told without another
            # call on the way.
            end = data.find(b"\r\n", 0, PLAIN_LINE)
            size, line, limit = len(data) - end - 4, data[:end], body.limit
            is_one = size > 0 and (SIZES.get(line) or size_of(line)) == size and data[-2:] == b"\r\n"
            if not is_one or woken.done() or (limit is not None and body.count + size > limit):
                body.came(data)
                return
            inner = data[end + 2 : -2]
            body.count += size
            try:
                taken = sink.take(inner, data)
            except Exception as error:  # noqa: BLE001 - as wherever a sink is told
                woken.set_exception(error)
                return
            if taken is not PASSED:
                woken.set_result(inner if taken is Taken.LEFT else None)
        else:
            body.came(data)

    def open_lane(self, lane: Callable[[bytes], object]) -> None:
        """Let this have what comes, in place of the connection, until `close_lane`: a call less for each event."""
        if self.transport is not None:
            self._has_lane = True
            self.transport.set_protocol(_Diverted(self, lane))

    def close_lane(self) -> None:
        """What comes is the connection's again."""
        if self._has_lane:
            self._has_lane = False
            if self.transport is not None:
                self.transport.set_protocol(self)

    def leave_lane(self, data: bytes) -> None:
        """What the lane has left is to be read; whatever that is, it may change what is calm behind it."""
        self.close_lane()
        self.data_received(data)

    def fail_lane(self, error: Exception) -> None:
        """A fault of the lane, told as one of a sink is."""
        self.close_lane()
        if self.body is not None and self.body.woken is not None and not self.body.woken.done():
            self.body.woken.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_fit, self.transport, self._has_lane = False, None, False
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(ServerDisconnectedError())
        if self.body is not None:
            self.body.lost()

    @property
    def is_done(self) -> bool:
        """The answer has come whole, and nothing speaks against another request."""
        body, transport = self.body, self.transport
        return (
            self.is_fit
            and body is not None
            and body.is_over
            and not body.is_odd
            and transport is not None
            and not transport.is_closing()
            # A request that is not written whole was answered early, and what follows would be read as part of it.
            and not transport.get_write_buffer_size()
        )

    def close(self) -> None:
        """Nothing more is wanted of it."""
        self.is_fit = False
        if (transport := self.transport) is not None:
            # A server that does not read on would keep the rest of the request here for as long as it likes.
            (transport.abort if transport.get_write_buffer_size() else transport.close)()
        if self.body is not None:
            self.body.fail(UpstreamDisconnected("the answer was left"))

    def _read_head(self, data: bytes) -> None:
        asked = self._asked
        if asked is None or asked.done():
            self.is_fit = False
            return
        held = self._held + data if self._held else data
        while True:
            end = held.find(_HEAD_END) + len(_HEAD_END)
            is_begun = end < len(_HEAD_END)
            head = held if is_begun else held[:end]
            # A line that ends in another way may end the head elsewhere.
            is_clean = head.startswith(_BEGINNING[: len(head)]) and head.count(b"\n") == head.count(b"\r\n")
            if is_begun and is_clean and len(held) <= _HEAD_BYTES:
                self._held = held
                return
            if is_begun or not is_clean:  # garbage is refused at once
                self.lend(asked, held)
                return
            # The body is none of the parser's business, so that each answer has its own.
            parser = HttpResponseParser(self, self._loop, 1 << 16, response_with_body=False)  # type: ignore[arg-type]
            try:
                [(message, _)], is_upgraded, _ = parser.feed_data(head)
            except (HttpProcessingError, ValueError):
                self.lend(asked, held)
                return
            # A 101 changes what the connection speaks, and nobody has asked for that.
            if is_upgraded or not 100 <= message.code < 200:
                break
            # https://www.rfc-editor.org/rfc/rfc9110#section-15.2
            held = held[end:]
        body = None if is_upgraded else self._framed(message, held[end:])
        if body is None:
            self.lend(asked, held)
            return
        self.body, self._held = body, b""
        self.is_fit = not message.should_close
        asked.set_result(Answer(message, body))

    def _framed(self, message: RawResponseMessage, rest: bytes) -> Framed | None:
        """The body that is announced, `rest` its beginning; None where the library has to undo it, or to say what is
        meant."""
        headers, transport, limit = message.headers, self.transport, self._limit
        if transport is None or (self._undoes and message.compression):
            return None
        lengths = headers.getall("Content-Length", ())
        left = 1 << 62
        # Whatever length they announce: https://www.rfc-editor.org/rfc/rfc9112#section-6.3
        if message.code in _BARE:
            left = 0
        elif message.chunked:
            # Both at once is how requests are smuggled; the library refuses or closes:
            # https://www.rfc-editor.org/rfc/rfc9112#section-6.1
            if lengths:
                return None
            body = Framed(is_chunked=True, is_between=True, left=0, transport=transport, limit=limit)
            if rest:
                body.came(rest)
            return body
        # Any other coding than `chunked` alone.
        elif "Transfer-Encoding" in headers:
            return None
        elif lengths:
            # Two lengths, or `+5`, are read differently by those on the way:
            # https://www.rfc-editor.org/rfc/rfc9112#section-6.3
            if len(lengths) > 1 or _DIGITS.fullmatch(lengths[0]) is None:
                return None
            left = int(lengths[0])
        came = rest[:left]
        return Framed(
            is_chunked=False,
            is_unframed=left == 1 << 62,
            is_over=len(came) == left,
            left=left - len(came),
            is_odd=len(rest) > left,
            pieces=[came] if came else [],
            transport=transport,
            limit=limit,
        )

    def lend(self, asked: "asyncio.Future[Answer]", held: bytes) -> None:
        """Let the library have all that has come and will come."""
        self.is_fit = False
        transport = self.transport
        if transport is None:
            return
        library = _Library(self._loop, asked, self._limit)
        library.connection_made(transport)
        library.set_response_params(read_until_eof=True, auto_decompress=self._undoes)
        transport.set_protocol(library)
        library.data_received(held)


class _Diverted(asyncio.Protocol):
    """A connection in all but where its bytes go."""

    __slots__ = ("connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing")

    def __init__(self, connection: Connection, lane: Callable[[bytes], object]) -> None:
        for name in ("connection_lost", "eof_received", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(connection, name))
        self.data_received = lane  # type: ignore[method-assign, assignment]


class _Library(ResponseHandler):
    """A connection that the library reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, asked: "asyncio.Future[Answer]", limit: int | None) -> None:
        super().__init__(loop)
        self._asked = asked
        self._limit = limit
        self._body: Lent | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._body is not None:
            self._body.go_on()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._body is not None:
            self._body.go_on()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        message, content = data
        is_early = 100 <= message.code < 200 and message.code != 101
        if not is_early and not self._asked.done():
            self._body = Lent(content=content, limit=self._limit)
            self._asked.set_result(Answer(message, self._body))

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)
        if not self._asked.done():
            self._asked.set_exception(exc)


@define
class Connections:
    """The connections of one event loop that wait for a request, by address."""

    _idle: dict[Address, deque[Connection]] = field(factory=dict, init=False)
    _names: dict[Address, tuple[float, tuple[str, ...]]] = field(factory=dict, init=False)
    """When each name was asked for, and its addresses."""
    _sweep: asyncio.TimerHandle | None = field(default=None, init=False)

    @classmethod
    def where_possible(cls) -> "Connections | None":
        """None where this version of aiohttp has not all that is used here without being promised."""
        options = signature(ResponseHandler.set_response_params).parameters
        fits = _OPTIONS <= options.keys() and all(hasattr(ResponseHandler, name) for name in _USED)
        return cls() if fits and _parses() else None

    def kept(self, address: Address) -> Connection | None:
        """The connection used last, as the one that most likely still stands."""
        waiting = self._idle.get(address)
        oldest = monotonic() - KEEPALIVE_S
        while waiting:
            idle = waiting.pop()
            # What has come meanwhile (a 408 of a server that closes, say) has made it unfit.
            if idle.is_fit and idle.since > oldest and idle.transport is not None and not idle.transport.is_closing():
                return idle
            idle.close()
        return None

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, if its answer has come whole and nothing speaks against one."""
        if not connection.is_done:
            connection.close()
            return
        connection.since = monotonic()
        waiting = self._idle.get(connection.address)
        if waiting is None:
            waiting = self._idle[connection.address] = deque()
        waiting.append(connection)
        if self._sweep is None:
            # One timer for all connections, and none while none of them waits.
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S, self._sweep_idle)

    def close(self) -> None:
        """Close every connection that waits."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for waiting in self._idle.values():
            for connection in waiting:
                connection.close()
        self._idle.clear()

    async def connected(self, address: Address, timeout_s: float) -> Connection:
        """A new one; raises errors of ours where there is none to be had."""
        try:
            async with asyncio.timeout(timeout_s):
                return await _reached(await self._found(address), address)
        except TimeoutError as error:
            raise UpstreamTimeout("connecting to the model server took too long") from error
        except OSError as error:
            # Out of descriptors is our own trouble: the server's breaker must not open for it.
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise NoCapacity("no free connection to the model server", retry_after_s=1.0) from error
            cause: Cause = "no_such_host" if isinstance(error, gaierror) else "refused"
            raise UpstreamRefused("the model server cannot be reached", cause=cause) from error

    async def _found(self, address: Address) -> Sequence[str]:
        """Where the name is to be reached, as it was told not long ago."""
        loop = asyncio.get_running_loop()
        asked, found = self._names.get(address, (0.0, ()))
        if not found or loop.time() - asked > NAME_KEPT_S:
            host, port = address
            # In a thread of the pool, as the C library's look-up blocks.
            told = await loop.getaddrinfo(host, port, type=SOCK_STREAM)
            found = tuple(dict.fromkeys(str(info[4][0]) for info in told))
            self._names[address] = loop.time(), found
        return found

    def _sweep_idle(self) -> None:
        now = monotonic()
        for address, waiting in list(self._idle.items()):
            while waiting and waiting[0].since <= now - KEEPALIVE_S:
                waiting.popleft().close()
            if not waiting:
                del self._idle[address]
        first = min((waiting[0].since for waiting in self._idle.values()), default=None)
        wait_s = None if first is None else max(0.0, first + KEEPALIVE_S - now)
        self._sweep = None if wait_s is None else asyncio.get_running_loop().call_later(wait_s, self._sweep_idle)


async def _reached(found: Sequence[str], address: Address) -> Connection:
    """A connection to the first of a name's addresses that takes one."""
    # `localhost` is often told as `::1` first, where nothing listens; only the last address may take all of the time.
    *others, last = found
    for other in others:
        with suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(NEXT_ADDRESS_S):
                return await _made(other, address)
    return await _made(last, address)


async def _made(found: str, address: Address) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(loop, address), found, address[1])
    return connection


def _parses() -> bool:
    """Whether the library's parser reads a head by itself."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
    try:
        loop = asyncio.get_running_loop()
        parser = HttpResponseParser(ResponseHandler(loop), loop, 1, response_with_body=False)
        [(message, _)], is_upgraded, tail = parser.feed_data(head)
        found = message.code, message.headers["Content-Length"], message.should_close, message.chunked
    except (TypeError, ValueError, AttributeError, LookupError):
        return False
    return found == (200, "1", False, False) and not is_upgraded and not tail
