"""The body of an answer as it comes: kept until somebody reads it or, while its reader sleeps, given to a sink at once.

A body of known length, in chunks, or that ends with its connection is undone here, beside the library: it costs two
calls a read. One that is compressed is the library's, as is everything that comes over TLS.
"""

import asyncio
import re

import aiohttp
from msgspec import Struct, field

from gateway.core.errors import UpstreamBadReply, UpstreamDisconnected, UpstreamError
from gateway.core.ports import Sink, Taken

__all__ = ["PASSED", "PLAIN_LINE", "SIZES", "Body", "Framed", "Lent", "of_body", "size_of"]

# The client's pace is the server's: without it a slow reader would have a fast model's answer pile up here.
FULL_BYTES = 128 << 10
"""So much that nobody has read yet, and the connection is read no further."""
PASSED = Taken.PASSED  # to look it up for each event costs more than a call
LINE_BYTES = 8 << 10
"""Of a chunk's size with its extensions, and of all trailers: whatever is longer is no HTTP."""

PLAIN_LINE = 16
"""Of a chunk's size in up to fourteen digits, with its end."""

# Nobody else reads these answers: blanks behind a size, or a line without its carriage return, mean nothing else.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*+(?:;[^\r\n]*+)?\r?\n")
_PLAIN_SIZE = re.compile(rb"[1-9A-Fa-f][0-9A-Fa-f]{0,2}")
_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,15}[ \t]*+(?:;[^\r\n]*+)?\r?")
SIZES: dict[bytes, int] = {}
"""What sizes of chunks mean that have come in the plainest form: as many as that form has."""
# "Connection lost" are the words by which pi and OpenCode know that they may ask again:
# https://github.com/badlogic/pi-mono/blob/main/packages/coding-agent/src/core/agent-session.ts
_CLOSED = "connection lost: the model server closed it within its answer"


class Body(Struct, kw_only=True):
    """What has come of a body, and who is waiting for it."""

    limit: int | None = None
    """How many bytes it may have."""
    may_flow: bool = True
    """A sink is told at once; else its reader alone learns that more has come."""
    count: int = 0
    """How many somebody has got."""
    is_over: bool = False
    """No more of it will come."""
    fault: UpstreamError | None = None
    """Why that is, behind all that has come, where it was not its end."""
    sink: Sink | None = None
    woken: "asyncio.Future[bytes | None] | None" = None
    """While there is a sink: what it leaves, `None` for anything else that ends its work."""
    waiter: "asyncio.Future[None] | None" = None
    pieces: list[bytes] = field(default_factory=list)

    def give(self, data: bytes) -> None:
        """More has come, or the end of it."""
        sink, woken = self.sink, self.woken
        if sink is None or woken is None or woken.done():  # and whoever waited has not been woken yet
            self.keep(data)
            return
        self.count += len(data)
        if self.limit is not None and self.count > self.limit:
            woken.set_exception(_too_large())
            return
        try:
            taken = sink.take(data) if data else PASSED
        # A protocol's callback that raises would have the loop close the connection and log it, and the request hang.
        except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
            woken.set_exception(error)
            return
        if taken is not PASSED or self.is_over:
            woken.set_result(data if taken is Taken.LEFT else None)

    def keep(self, data: bytes) -> None:
        """More has come, for whoever reads next."""
        if data:
            self.pieces.append(data)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def put_back(self, data: bytes) -> None:
        """What somebody got and could not use comes first again."""
        self.pieces.insert(0, data)
        self.count -= len(data)

    def take(self) -> bytes:
        """What is there and not yet read; raises `UpstreamBadReply` where it is more than there may be."""
        pieces = self.pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.pieces = []
        self.count += len(data)
        if self.limit is not None and self.count > self.limit:
            raise _too_large()
        return data

    def fail(self, fault: UpstreamError) -> None:
        """Nothing more will come, and that is not its end."""
        if not self.is_over:
            self.is_over, self.fault = True, fault
            self.give(b"")

    async def next(self) -> bytes:
        """What comes next, `b""` at the clean end."""
        while not (data := self.take()):
            if self.is_over:
                if self.fault is not None:
                    raise self.fault
                return b""
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        return data


class Framed(Body, kw_only=True):
    """A body that is undone here."""

    is_chunked: bool
    left: int
    """Bytes to come: of the body, or of a chunk."""
    is_unframed: bool = False
    """It ends with the connection: https://www.rfc-editor.org/rfc/rfc9112#section-6.3"""
    transport: asyncio.Transport
    kept: int = 0
    """Bytes that nobody has read yet."""
    is_paused: bool = False
    is_odd: bool = False
    """No other answer is to come on its connection: something came behind its end that nobody has asked for, or there
    was a trailer or an extension, which parsers read in more than one way."""
    rest: bytes = b""
    """The beginning of a line that has not come whole."""
    is_in_chunk: bool = False
    """The line's end behind a chunk is still to come."""
    is_between: bool = False
    """What comes next begins a chunk."""
    trailers: int = -1
    """Once they have begun: how many bytes they have."""

    def came(self, data: bytes) -> None:
        """Bytes of the connection."""
        if self.is_chunked:
            data = self._unchunked(data)
            self.is_between = not (self.left or self.rest or self.is_in_chunk or self.trailers >= 0)
        else:
            left = self.left
            if len(data) >= left:
                self.is_over, self.is_odd = True, len(data) > left
                data = data[:left]
            self.left = left - len(data)
        if data or self.is_over:
            self.give(data)

    def lost(self) -> None:
        """The connection has gone."""
        # Its end cannot be told from a break, so a stream that ends so still has to say `[DONE]` or a finish reason.
        # Behind the last chunk nothing of the body is missing, as the library has it too.
        if (self.is_unframed or self.trailers >= 0) and not self.is_over:
            self.is_over = True
            self.give(b"")
        else:
            self.fail(UpstreamDisconnected(_CLOSED))

    def keep(self, data: bytes) -> None:
        Body.keep(self, data)
        self.kept += len(data)
        if self.kept > FULL_BYTES and not self.is_paused and not self.is_over:
            self.is_paused = True
            self.transport.pause_reading()

    def take(self) -> bytes:
        if self.is_paused:
            self.is_paused = False
            # Of one that is closing nothing more comes.
            if not self.transport.is_closing():
                self.transport.resume_reading()
        self.kept = 0
        return Body.take(self)

    def _unchunked(self, data: bytes) -> bytes:
        """The contents of the chunks: https://www.rfc-editor.org/rfc/rfc9112#section-7.1"""
        if self.rest:
            data, self.rest = self.rest + data, b""
        if self.left or self.is_in_chunk or self.trailers >= 0:
            return self._undone(data, 0, [])
        pieces: list[bytes] = []
        return self._undone(data, _whole_chunks(data, pieces), pieces)

    def _undone(self, data: bytes, at: int, pieces: list[bytes]) -> bytes:
        """The same from this place on, part by part."""
        end = len(data)
        while at < end and not self.is_over:
            if self.left:
                pieces.append(data[at : at + self.left])
                at += len(pieces[-1])
                self.left -= len(pieces[-1])
            elif self.is_in_chunk:
                behind = at + data.startswith(b"\r", at)
                if behind == end:
                    self.rest = b"\r"
                    break
                # A chunk that does not end where its size says is how answers of two requests are mixed up:
                # https://www.rfc-editor.org/rfc/rfc9112#section-7.1
                if data[behind] != 10:
                    return self._garbled(pieces)
                self.is_in_chunk, at = False, behind + 1
            elif self.trailers >= 0:
                behind = data.find(b"\n", at) + 1
                self.trailers += (behind or end) - at
                if self.trailers > LINE_BYTES:
                    return self._garbled(pieces)
                if not behind:
                    self.rest, self.trailers = data[at:], self.trailers - (end - at)
                    break
                self.is_over = data[at:behind] in (b"\r\n", b"\n")
                self.is_odd |= not self.is_over
                at = behind
            elif (line := _SIZE.match(data, at)) is not None:
                at, self.left = line.end(), int(line[1], 16)
                self.is_odd |= at > line.end(1) + 2
                self.is_in_chunk = self.left > 0
                self.trailers = -1 if self.left else 0
            else:
                self.rest = data[at:]
                if len(self.rest) > LINE_BYTES or _BEGUN.fullmatch(self.rest) is None:
                    return self._garbled(pieces)
                break
        self.is_odd |= at < end and self.is_over
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _garbled(self, pieces: list[bytes]) -> bytes:
        # `is_odd` keeps the connection from being used again: nobody knows where the next answer begins in it.
        self.is_over, self.is_odd = True, True
        self.fault = UpstreamBadReply("the model server's answer is not valid HTTP")
        return b"".join(pieces)


def size_of(line: bytes) -> int:
    """The size of a chunk by its line, 0 where that is not in its plainest form."""
    if _PLAIN_SIZE.fullmatch(line) is None:
        return 0
    size = SIZES[line] = int(line, 16)
    return size


def _whole_chunks(data: bytes, pieces: list[bytes]) -> int:
    """Take the chunks that stand at the beginning, whole and in the plainest form, and say how far that came.

    Many servers give each event a chunk of its own, and one read brings hundreds of them.
    """
    at = 0
    while True:
        behind = data.find(b"\r\n", at, at + PLAIN_LINE)
        size = data[at : max(at, behind)]
        # Signs, blanks and underlines, which `int` would take too, are left to who knows what they mean.
        if not size.isalnum():
            return at
        try:
            left = int(size, 16)
        except ValueError:
            return at
        begin = behind + 2
        if not left or not data.startswith(b"\r\n", begin + left):
            return at
        pieces.append(data[begin : begin + left])
        at = begin + left + 2


class Lent(Body, kw_only=True):
    """A body that the library undoes."""

    content: aiohttp.StreamReader
    is_giving: bool = False

    def go_on(self) -> None:
        """More has come: it is the sink's, while there is one."""
        # To read may set the connection going, which ends here again, with what is to come behind.
        if self.is_giving or self.sink is None or self.woken is None:
            return
        self.is_giving = True
        try:
            # Several reads may wait in the library's buffer, and it tells of them once.
            while not self.woken.done():
                data = self._came()
                self._look()
                if data or self.is_over:
                    self.give(data)
                if not data:
                    break
        finally:
            self.is_giving = False

    def take(self) -> bytes:
        if not self.pieces and (data := self._came()):
            self.pieces.append(data)
        self._look()
        return Body.take(self)

    async def next(self) -> bytes:
        if data := self.take():
            return data
        try:
            data = await self.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise of_body(error) from error
        if data:
            self.put_back(data)
            self.count += len(data)
        return self.take()

    def _came(self) -> bytes:
        content = self.content
        return content.read_nowait(-1) if content.exception() is None else b""

    def _look(self) -> None:
        fault = self.content.exception()
        if fault is not None:
            self.is_over, self.fault = True, of_body(fault)
        elif self.content.at_eof():
            self.is_over = True


def _too_large() -> UpstreamBadReply:
    return UpstreamBadReply("the model server's answer is too large")


def of_body(error: BaseException) -> UpstreamError:
    """A fault within the answer's body."""
    cause: BaseException | None = error
    # aiohttp wraps its faults two or three deep, by version differently.
    # Exceptions may be chained in a circle.
    for _ in range(8):
        if isinstance(cause, aiohttp.http_exceptions.ContentEncodingError):
            return UpstreamBadReply("the model server's answer cannot be decoded")
        cause = cause.__cause__ or cause.__context__ if cause is not None else None
    return UpstreamDisconnected(_CLOSED)
