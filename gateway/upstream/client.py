"""The client of the model server: deadlines, no redirects, byte caps, and every library fault translated once."""

import asyncio
import errno
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Self

import aiohttp
import msgspec
from attrs import field, frozen
from msgspec import Struct
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gateway.core.errors import (
    GatewayError,
    NoCapacity,
    UpstreamBadReply,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamRefused,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.core.ports import Sink
from gateway.kinds.shared.faults import waiting_time
from gateway.request.deadline import Deadline
from gateway.request.headers import headers_of
from gateway.request.servers import Target, target_of
from gateway.upstream.body import Body, Lent
from gateway.upstream.plain import KEEPALIVE_S, Connection, Connections

__all__ = ["UpstreamCall", "UpstreamClient", "UpstreamReply", "error_body", "gathered", "rejection"]

# A page of a proxy is some kilobytes; whatever is larger is no message for anybody.
MAX_ERROR_BYTES = 1 << 20
ERROR_BODY_TIMEOUT_S = 10.0
# aiohttp writes a body of bytes in one go, and looks for an answer only behind it.
PIECE_BYTES = 256 << 10
WHOLE_BYTES = 4 << 20
"""So large a body, of a long conversation, goes by a connection of our own: its answer comes by the short way."""


class UpstreamCall(Struct, frozen=True, kw_only=True):
    """One request to the model server and the time it is given."""

    method: str
    url: URL
    lines: bytes
    """Of its head, each with its end."""
    body: Any = None
    """Bytes, an asynchronous iterable of them, or nothing."""
    connect_timeout_s: float
    first_byte_timeout_s: float
    max_reply_bytes: int | None
    decode: bool = True
    """Undo a content encoding; a relay leaves it as it is."""
    target: Target | None = None
    """Of an address that is known."""


class UpstreamReply(Struct, kw_only=True):
    """An answer whose headers are there: read it to its end, or close it."""

    status: int
    headers: CIMultiDictProxy[str]
    body: Body
    deadline: Deadline
    let_go: Callable[[], object] | None
    """Lets go of the connection: it is kept for the next call only when the body was read to its end."""
    connection: Connection | None = None
    """Where the body comes from, of one whose chunks are undone here."""
    sink_fault: BaseException | None = None
    """What the sink has raised, and nobody has been told."""

    @property
    def content_type(self) -> str:
        """The media type in lower case; empty when none is given."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def bytes_read(self) -> int:
        """Decoded bytes so far."""
        return self.body.count

    @property
    def is_ready(self) -> bool:
        """More of it, or its end, is told without a wait."""
        return bool(self.body.pieces) or self.body.is_over

    @property
    def is_over(self) -> bool:
        """All of it has come and been read."""
        return self.body.is_over and not self.body.pieces

    async def read(self, due: float) -> bytes:
        """What has come, `b""` at the clean end of the body; `TimeoutError` when nothing came until `due`."""
        self._raise_fault()
        return self.body.take() or await self.deadline.within(due, self.body.next())

    async def flow(self, due: float, sink: Sink) -> bytes | None:
        """Like `read`, but that the sink is given what comes while this waits.

        `None` says that there is something to do, or that the body has come to its end.
        """
        self._raise_fault()
        body = self.body
        if data := body.take():
            return data
        if body.is_over or not body.may_flow:
            return await self.deadline.within(due, body.next())
        return await self.deadline.within(due, self._flowing(body, sink))

    async def _flowing(self, body: Body, sink: Sink) -> bytes | None:
        """Sleep while the sink takes all that comes; what it leaves, `None` for anything else that ends this."""
        woken: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        body.sink, body.woken = sink, woken
        try:
            return await woken
        except asyncio.CancelledError:
            self._keep(body, woken)
            raise
        finally:
            body.sink = body.woken = None
            if self.connection is not None:
                self.connection.close_lane()

    def _keep(self, body: Body, woken: "asyncio.Future[bytes | None]") -> None:
        """The wait ended at the very moment at which something had come: that is for the next one."""
        if not woken.done() or woken.cancelled():
            return
        self.sink_fault = woken.exception()
        if self.sink_fault is None and (data := woken.result()):
            body.put_back(data)

    def open_lane(self, lane: Callable[[bytes], object], most: int) -> None:
        """Give this each chunk that comes from now on, until it leaves one that is to be read.

        For a sink that has just been given a chunk; by a lane go at most so many bytes.
        """
        body, connection = self.body, self.connection
        is_within = body.limit is None or body.count + most <= body.limit
        if connection is not None and connection.body is body and is_within:
            connection.open_lane(lane)

    def leave_lane(self, data: bytes) -> None:
        """What the lane leaves, which is to be read."""
        if self.connection is not None:
            self.connection.leave_lane(data)

    def fail_lane(self, error: Exception) -> None:
        """The lane's own fault."""
        if self.connection is not None:
            self.connection.fail_lane(error)

    def note_gone(self, size: int) -> None:
        """So many bytes have gone by a lane."""
        self.body.count += size

    def _raise_fault(self) -> None:
        fault, self.sink_fault = self.sink_fault, None
        if fault is not None:
            raise fault

    def here(self) -> bytes | None:
        """The whole body, where all of it is there and nobody has read any of it."""
        body = self.body
        if not body.is_over or body.fault is not None or body.count or len(body.pieces) != 1:
            return None
        data = body.pieces[0]
        if body.limit is not None and len(data) > body.limit:
            return None  # which is said where it is read
        body.pieces, body.count = [], len(data)
        return data

    async def read_all(self, *, first_due: float, idle_s: float, total_due: float) -> bytes:
        """The whole body; raises `UpstreamTimeout` when it stops coming."""
        body = self.body
        if body.is_over and body.fault is None and self.sink_fault is None:
            return body.take()  # all of it is here
        return await gathered(self.read, self.deadline, first_due=first_due, idle_s=idle_s, total_due=total_due)

    def close(self) -> None:
        """Let go of the connection, as often as one likes: it may serve another request by now."""
        let_go, self.let_go = self.let_go, None
        if let_go is not None:
            let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


async def gathered(
    read: Callable[[float], Awaitable[bytes]], deadline: Deadline, *, first_due: float, idle_s: float, total_due: float
) -> bytes:
    """Everything that `read` gives until its end; raises `UpstreamTimeout` when it stops coming."""
    pieces: list[bytes] = []
    due = min(first_due, total_due)
    while True:
        try:
            data = await read(due)
        except TimeoutError:
            raise UpstreamTimeout("the model server took too long to answer") from None
        if not data:
            return b"".join(pieces)
        pieces.append(data)
        due = min(deadline.now() + idle_s, total_due)


@frozen
class UpstreamClient:
    """One connection pool for the plain calls, and another for those that need more."""

    session: aiohttp.ClientSession = field(repr=False)
    plain: Connections | None = field(factory=lambda: Connections.where_possible(), repr=False)
    """None where this version of the library has not what it takes."""

    @classmethod
    def create(cls) -> "UpstreamClient":
        """A client on the running loop; `close` it."""
        # https://docs.aiohttp.org/en/stable/client_advanced.html#limiting-connection-pool-size
        # aiohttp's own limit of 100 connections would hold the 101st stream back without a word.
        # Ten seconds of a name's address, as containers come back under another one.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=10)
        return cls(
            aiohttp.ClientSession(
                connector=connector,
                # A load balancer's cookie would tie all clients to the server of the first one.
                cookie_jar=aiohttp.DummyCookieJar(),
                # Its total of 300 s by default would end long streams; the deadlines of a request are
                # `request.deadline`'s.
                # https://docs.aiohttp.org/en/stable/client_quickstart.html#timeouts
                timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_read=None),
                # Without `Accept-Encoding` nothing is compressed, so that an event goes on as soon as it is written.
                skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
            )
        )

    async def send(self, call: UpstreamCall, deadline: Deadline) -> UpstreamReply:
        """The answer's head, whatever its status; raises `UpstreamError`, or `NoCapacity` when descriptors ran out."""
        due, plain = deadline.now() + call.first_byte_timeout_s, self.plain
        try:
            body, target = call.body, call.target or target_of(call.url)
            is_whole = call.method == "POST" and isinstance(body, bytes) and len(body) <= WHOLE_BYTES
            if plain is None or target is None or not is_whole:
                return await deadline.within(due, _full(self.session, call, deadline))
            address = target.address
            connection = plain.kept(address)
            if connection is None:
                connection = await deadline.within(due, plain.connected(address, call.connect_timeout_s))
            request = b"%b%bContent-Length: %d\r\n\r\n" % (target.beginning, call.lines, len(body))
            try:
                asked = connection.ask(request, body, decode=call.decode, limit=call.max_reply_bytes)
                answer = await deadline.on(due, asked)
            # A cancelled request leaves half an answer on the wire: nobody may read on from there.
            except BaseException:
                connection.close()
                raise
            message = answer.message
            return UpstreamReply(
                status=message.code,
                headers=message.headers,
                body=answer.body,
                deadline=deadline,
                let_go=partial(plain.give_back, connection),
                connection=connection,
            )
        except aiohttp.ConnectionTimeoutError as error:
            raise UpstreamTimeout("connecting to the model server took too long") from error
        except TimeoutError as error:
            raise UpstreamTimeout("the model server did not begin to answer in time") from error
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, OSError) as error:
            raise _of_head(error) from error

    async def close(self) -> None:
        """Close every connection."""
        if self.plain is not None:
            self.plain.close()
        await self.session.close()


async def rejection(
    reply: UpstreamReply, *, deadline: Deadline, mask: Callable[[bytes], bytes], key_is_ours: bool
) -> UpstreamError:
    """The error that an answer other than 2xx stands for; its JSON body is kept, the gateway's own secrets masked."""
    status = reply.status
    # A redirect is not followed, and a 1xx is none of an answer's.
    if status < 400:
        return UpstreamBadReply(f"the model server answered with status {status}")
    # The client's own key is right: told of a 401 it would ask its user for another one.
    # Its words often quote a part of the key.
    if status in (401, 403) and key_is_ours:
        return UpstreamRejected("the model server refused the gateway's own key", status=status)
    # Pages of proxies are left out: an SDK shows the body to its user, and takes HTML for the model's own words.
    payload = _json_object(await error_body(reply, deadline))
    return UpstreamRejected(
        f"the model server answered with status {status}",
        status=status,
        payload=mask(payload) if payload is not None else None,
        retry_after_s=waiting_time(reply.headers, time.time()),
    )


async def _full(session: aiohttp.ClientSession, call: UpstreamCall, deadline: Deadline) -> UpstreamReply:
    headers, data = _framed(call)
    response = await session.request(
        call.method,
        call.url,
        headers=headers,
        data=data,
        # A key must not follow to another host: https://github.com/aio-libs/aiohttp/pull/12275
        allow_redirects=False,
        auto_decompress=call.decode,
        # Longer ones than 5 s are rounded up to whole seconds otherwise, by up to one.
        timeout=aiohttp.ClientTimeout(total=None, connect=call.connect_timeout_s, ceil_threshold=3600.0),
    )
    return UpstreamReply(
        status=response.status,
        headers=response.headers,
        body=Lent(content=response.content, limit=call.max_reply_bytes, may_flow=False),
        deadline=deadline,
        let_go=response.close,
    )


def _framed(call: UpstreamCall) -> tuple[CIMultiDict[str], Any]:
    """A large body goes in pieces of known length, so that it is written as the server takes it."""
    headers = headers_of(call.lines)
    if not isinstance(call.body, bytes) or len(call.body) <= PIECE_BYTES:
        return headers, call.body
    headers["Content-Length"] = str(len(call.body))
    return headers, _pieces(call.body)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


async def error_body(reply: UpstreamReply, deadline: Deadline) -> bytes:
    """The body of an error, empty when it is too large, too slow or cut."""
    due = deadline.now() + ERROR_BODY_TIMEOUT_S
    pieces: list[bytes] = []
    while reply.bytes_read <= MAX_ERROR_BYTES:
        try:
            data = await reply.read(due)
        except (UpstreamError, TimeoutError):
            return b""
        if not data:
            return b"".join(pieces)
        pieces.append(data)
    return b""


def _json_object(body: bytes) -> bytes | None:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return body if isinstance(value, dict) else None


def _of_head(error: Exception) -> GatewayError:
    """A fault before the answer's headers; one of the client's own, met while its body went up, stays what it is."""
    for cause in _causes(error):
        if isinstance(cause, GatewayError):
            return cause
    # No fault of the model server: its breaker must not open for it.
    # `EMFILE` is this process's bound, `ENFILE` the machine's.
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return NoCapacity("no free connection to the model server", retry_after_s=1.0)
    # A subclass of the connector's error, so it has to be asked for first; as do those of TLS.
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return UpstreamRefused("the model server cannot be reached", cause="no_such_host")
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return UpstreamRefused("no secure connection to the model server can be made", cause="tls")
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamRefused("the model server cannot be reached")
    if isinstance(
        error, aiohttp.ClientResponseError | aiohttp.InvalidURL | aiohttp.http_exceptions.HttpProcessingError
    ):
        return UpstreamBadReply("the model server's answer is not valid HTTP")
    return UpstreamDisconnected("connection lost: the model server closed it without an answer")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    # Exceptions may be chained in a circle.
    for _ in range(8):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__
