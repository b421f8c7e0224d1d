"""Connections without TLS to model servers: one write a request, kept open for the next one.

Reading is aiohttp's own, parser and flow control; what is spared is everything that its client does for a request
beyond that, which costs more than the request. Only a short body of known length goes this way: it is handed to the
transport whole, so that a server which answers before it has read is heard at once.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from inspect import signature
from socket import SOCK_STREAM, gaierror

from aiohttp import ClientConnectionError, ServerDisconnectedError, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from attrs import define, field
from msgspec import Struct
from yarl import URL

from gateway.core.errors import Cause, NoCapacity, UpstreamRefused, UpstreamTimeout

__all__ = ["KEEPALIVE_S", "Connections", "Opened", "Tell"]

KEEPALIVE_S = 4.0
"""Python model servers close an idle connection after 5 s; a POST that meets the close is lost."""
NEXT_ADDRESS_S = 1.0
"""How long an address of a name is tried while there is another one."""

# As long as a container's name may go on leading to where it was; asking for each new connection costs a thread.
NAME_KEPT_S = 10.0
_USED = ("_reading_paused", "close", "is_connected", "read", "should_close")
_OPTIONS = frozenset({"read_until_eof", "auto_decompress"})

_USED_OF_BODIES = ("_buffer", "_eof", "_exception", "_read_nowait_chunk")

Address = tuple[str, int]
Tell = Callable[[bytes, bool], None]


class _Connection(ResponseHandler):
    """One connection; whoever reads asks it to go on with each chunk, mostly without its having paused."""

    tell: Tell | None = None
    """Is given what comes of the body, while it is tapped."""
    body: StreamReader

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.tell is None:
            return
        body = self.body
        # The reader's own ways to say this cost two calls more for each event.
        if len(body._buffer) == 1 and body._exception is None:  # as nearly always: one piece
            self.tell(body._read_nowait_chunk(-1), body._eof)
        else:
            self._hand_on(self.tell)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self.tell is not None:
            self._hand_on(self.tell)

    def _hand_on(self, tell: Tell) -> None:
        body = self.body
        is_sound = body.exception() is None
        tell(body.read_nowait(-1) if is_sound else b"", body.is_eof() or not is_sound)

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp asks for it after each read; without a look first every one of them would go through the parser.
        if self._reading_paused:
            super().resume_reading(resume_parser)


class _Idle(Struct, frozen=True):
    connection: _Connection
    since: float


@define(eq=False)
class Opened:
    """An answer's head, and its body as it comes; `close` in any case, and as often as one likes."""

    message: RawResponseMessage
    body: StreamReader
    _connections: "Connections"
    _address: Address
    _connection: _Connection | None

    def tap(self, tell: Tell | None) -> None:
        """Have this called with whatever has come, and whether that is all; no more once it is `None`."""
        if self._connection is not None:
            self._connection.body, self._connection.tell = self.body, tell

    def close(self) -> None:
        """Let go of the connection: it is kept for the next request only when the body was read to its end."""
        connection, self._connection = self._connection, None
        if connection is None:
            return  # it may serve another request by now
        connection.tell = None
        if not self.body.is_eof():
            self.body.set_exception(ClientConnectionError("the answer was left"))
        self._connections.give_back(self._address, connection)


@define
class Connections:
    """The connections of one event loop that wait for a request, by address."""

    _idle: dict[Address, deque[_Idle]] = field(factory=dict, init=False)
    _names: dict[Address, tuple[float, tuple[str, ...]]] = field(factory=dict, init=False)
    """When each name was asked for, and its addresses."""
    _sweep: asyncio.TimerHandle | None = field(default=None, init=False)

    @classmethod
    def where_possible(cls) -> "Connections | None":
        """None where this version of aiohttp has not all that is used here without being promised."""
        options = signature(ResponseHandler.set_response_params).parameters
        fits = _OPTIONS <= options.keys() and all(hasattr(ResponseHandler, name) for name in _USED)
        fits = fits and all(hasattr(StreamReader, name) for name in _USED_OF_BODIES)
        return cls() if fits else None

    async def post(
        self, url: URL, headers: Iterable[tuple[str, str]], body: bytes, *, connect_timeout_s: float, decode: bool
    ) -> Opened:
        """The answer to one request; raises what `aiohttp` does, and errors of ours for a connection not had."""
        address = url.raw_host or "", url.port or 80
        head = _head(url, headers, len(body))
        connection = self._kept(address)
        if connection is None:
            connection = await self._connected(address, connect_timeout_s)
        try:
            # A body without a length ends where the connection does: https://www.rfc-editor.org/rfc/rfc9112#section-6.3
            # Set anew for each answer: it makes the parser that reads the next head.
            connection.set_response_params(read_until_eof=True, auto_decompress=decode)
            if connection.transport is None:
                raise ServerDisconnectedError()
            connection.transport.write(head + body)
            message, payload = await connection.read()
            # https://www.rfc-editor.org/rfc/rfc9110#section-15.2
            while 100 <= message.code < 200 and message.code != 101:
                message, payload = await connection.read()
        # A cancelled request leaves half an answer on the wire: nobody may read on from there.
        except BaseException:
            connection.close()
            raise
        return Opened(message, payload, self, address, connection)

    def give_back(self, address: Address, connection: _Connection) -> None:
        """Keep a connection for the next request, if it can have one."""
        transport = connection.transport
        # A request that is not written whole was answered early, and what follows would be read as part of it.
        if transport is None or connection.should_close or transport.get_write_buffer_size():
            connection.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.setdefault(address, deque()).append(_Idle(connection, loop.time()))
        if self._sweep is None:
            # One timer for all connections, and none while none of them waits.
            self._sweep = loop.call_later(KEEPALIVE_S, self._sweep_idle)

    def close(self) -> None:
        """Close every connection that waits."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for waiting in self._idle.values():
            for idle in waiting:
                idle.connection.close()
        self._idle.clear()

    def _kept(self, address: Address) -> _Connection | None:
        """The connection used last, as the one that most likely still stands."""
        waiting = self._idle.get(address)
        oldest = asyncio.get_running_loop().time() - KEEPALIVE_S
        while waiting:
            idle = waiting.pop()
            if idle.since > oldest and idle.connection.is_connected() and not idle.connection.should_close:
                return idle.connection
            idle.connection.close()
        return None

    async def _connected(self, address: Address, timeout_s: float) -> _Connection:
        try:
            async with asyncio.timeout(timeout_s):
                return await _reached(await self._found(address), address[1])
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
            told = await loop.getaddrinfo(host, port, type=SOCK_STREAM)
            found = tuple(dict.fromkeys(str(info[4][0]) for info in told))
            self._names[address] = loop.time(), found
        return found

    def _sweep_idle(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEEPALIVE_S
        for address, waiting in list(self._idle.items()):
            while waiting and waiting[0].since <= oldest:
                waiting.popleft().connection.close()
            if not waiting:
                del self._idle[address]
        first = min((waiting[0].since for waiting in self._idle.values()), default=None)
        self._sweep = None if first is None else loop.call_at(first + KEEPALIVE_S, self._sweep_idle)


async def _reached(addresses: Sequence[str], port: int) -> _Connection:
    """A connection to the first of a name's addresses that takes one."""
    # `localhost` is often told as `::1` first, where nothing listens; only the last address may take all of the time.
    *others, last = addresses
    for other in others:
        with suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(NEXT_ADDRESS_S):
                return await _made(other, port)
    return await _made(last, port)


async def _made(address: str, port: int) -> _Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: _Connection(loop), address, port)
    return connection


def _head(url: URL, headers: Iterable[tuple[str, str]], length: int) -> bytes:
    lines = [f"POST {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += map("%s: %s".__mod__, headers)
    lines.append(f"Content-Length: {length}\r\n\r\n")
    head = "\r\n".join(lines)
    # Header values come from clients: https://cwe.mitre.org/data/definitions/93.html
    # Each line has one end but the last, which holds the blank line as well: counted, as any other would be a
    # stranger's.
    ends = len(lines) + 1
    if head.count("\r") != ends or head.count("\n") != ends or "\0" in head:
        raise ValueError("a header that would split the request")
    return head.encode()
