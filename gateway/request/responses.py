"""Answers that the gateway writes by itself: whole ones, head and body in one write, and those that come in pieces."""

import time
from email.utils import formatdate
from http import HTTPStatus

from aiohttp import HttpVersion, HttpVersion10, HttpVersion11, web
from aiohttp.typedefs import LooseHeaders
from multidict import CIMultiDict

__all__ = ["Streamed", "Whole", "Written", "json_response"]

_JSON = {"Content-Type": "application/json"}
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
# https://www.rfc-editor.org/rfc/rfc9110#section-6.4.1
_BARE = frozenset({*range(100, 200), 204, 304})
"""Statuses whose answers have no body."""
_LAST_CHUNK = b"0\r\n\r\n"
_MOST_BEGUN = 256
"""Lines that answers begin with, which are remembered."""
_TOGETHER = 1 << 16
"""Bytes of a body up to which it is copied behind its head: one write is cheaper than two."""


class Written(web.StreamResponse):
    """An answer whose head is written here: the library needs thirty calls to find out what is known.

    It has gone out once `is_out`; else the library has it written, as it does with any answer.
    """

    __slots__ = ("headers", "is_out", "keep_alive", "status")

    headers: CIMultiDict[str]
    status: int
    keep_alive: bool
    """The connection takes another request."""

    def __init__(self, *, status: int = 200, headers: LooseHeaders | None = None) -> None:
        # Not the library's own beginning: nothing of what it makes is looked at here.
        self.status = status
        self.headers = CIMultiDict() if headers is None else CIMultiDict(headers)
        self.keep_alive, self.is_out = True, False

    def force_close(self) -> None:
        """The connection takes no other request."""
        self.keep_alive = False

    async def write_eof(self, data: bytes = b"") -> None:
        """It has gone out before."""

    def _head(self, http: web.BaseRequest) -> bytes:
        headers, status, version = self.headers, self.status, http.version
        second = int(time.time())
        headers["Date"] = _date.written if second == _date.second else _date.at(second)
        self.keep_alive = self.keep_alive and not http._message.should_close
        # Said only where it is not what the version means by itself.
        if self.keep_alive is (version == HttpVersion10):
            headers["Connection"] = "keep-alive" if self.keep_alive else "close"
        lines = map(": ".join, headers.items())
        begun = _begun.get((status, version)) or _begin(status, version)
        told = "\r\n".join((begun, *lines, "\r\n"))
        # Values come from model servers: https://cwe.mitre.org/data/definitions/113.html
        ends = len(headers) + 2
        if told.count("\r") != ends or told.count("\n") != ends or "\0" in told:
            raise ValueError("a header that would split the answer")
        return told.encode()


class Whole(Written):
    """An answer whose body is there; it has gone out when `write_to` has returned."""

    __slots__ = ("body",)

    def __init__(self, body: bytes, *, status: int = 200, headers: LooseHeaders | None = None) -> None:
        # As every answer begins, without another call.
        self.body, self.status = body, status
        self.headers = CIMultiDict() if headers is None else CIMultiDict(headers)
        self.keep_alive, self.is_out = True, False

    async def prepare(self, request: web.BaseRequest) -> None:
        if not self.is_out:
            self.write_to(request)

    def write_to(self, http: web.BaseRequest) -> None:
        """Hand all of it to the connection; raises `ConnectionError` where that is gone."""
        self.is_out = True
        headers, body, status = self.headers, self.body, self.status
        has_body = http.method != "HEAD" and status not in _BARE
        if status not in _BARE and (body or has_body):
            headers["Content-Length"] = str(len(body))
            if body and has_body and "Content-Type" not in headers:
                headers["Content-Type"] = "application/octet-stream"
        head = self._head(http)
        transport = http.protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection is gone")
        http.is_begun = True  # type: ignore[attr-defined]
        if not has_body or not body:
            transport.write(head)
        elif len(body) <= _TOGETHER:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)


class Streamed(Written):
    """An answer that comes in pieces: its head goes out with the first of them, or alone where that is waited for."""

    __slots__ = ("has_body", "is_chunked")

    has_body: bool
    """It takes pieces at all."""
    is_chunked: bool
    """Each is framed; else they go as they are, up to the length that was said or to the connection's end."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Its head goes out before it is given back."""

    def begin(self, http: web.BaseRequest) -> bytes:
        """Its head."""
        headers = self.headers
        has_length = "Content-Length" in headers
        self.has_body = http.method != "HEAD" and self.status not in _BARE
        # https://www.rfc-editor.org/rfc/rfc9112#section-6.1
        self.is_chunked = self.has_body and not has_length and http.version >= HttpVersion11
        if self.is_chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif self.status in _BARE:
            # https://www.rfc-editor.org/rfc/rfc9110#section-8.6
            headers.popall("Content-Length", None)
        elif self.has_body and not has_length:
            self.keep_alive = False
        return self._head(http)

    def framed(self, piece: bytes) -> bytes:
        """A piece as it goes over the wire."""
        if self.is_chunked:
            # https://www.rfc-editor.org/rfc/rfc9112#section-7.1
            return b"%x\r\n%b\r\n" % (len(piece), piece)
        return piece if self.has_body else b""

    def end(self) -> bytes:
        """What goes out behind the last piece."""
        self.is_out = True
        return _LAST_CHUNK if self.is_chunked else b""


_begun: dict[tuple[int, HttpVersion], str] = {}


def _begin(status: int, version: HttpVersion) -> str:
    line = f"HTTP/{version.major}.{version.minor} {status} {_PHRASES.get(status, '')}"
    if len(_begun) < _MOST_BEGUN:
        _begun[status, version] = line
    return line


class _Date:
    """The date of an answer; it is the same for a second."""

    __slots__ = ("second", "written")

    def __init__(self) -> None:
        self.second = -1
        self.written = ""

    def at(self, second: int) -> str:
        self.second, self.written = second, formatdate(second, usegmt=True)
        return self.written


_date = _Date()


def json_response(body: bytes, *, status: int = 200) -> Whole:
    """A JSON answer from its bytes."""
    return Whole(body, status=status, headers=_JSON)
