"""Answers of the gateway's own, and those that are sent whole: head and body in one write."""

import time
from email.utils import formatdate
from http import HTTPStatus

from aiohttp import HttpVersion, HttpVersion10, web
from aiohttp.typedefs import LooseHeaders
from multidict import CIMultiDict

__all__ = ["Whole", "json_response"]

_JSON = {"Content-Type": "application/json"}
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
# https://www.rfc-editor.org/rfc/rfc9110#section-6.4.1
_BARE = frozenset({*range(100, 200), 204, 304})
"""Statuses whose answers have no body."""
_MOST_BEGUN = 256
"""Lines that answers begin with, which are remembered."""
_TOGETHER = 1 << 16
"""Bytes of a body up to which it is copied behind its head: one write is cheaper than two."""


class Whole(web.StreamResponse):
    """An answer whose body is there, written by itself: the library needs thirty calls to find out what is known here.

    It has gone out when `write_to` has returned; else the library has it written, as it does with any answer.
    """

    __slots__ = ("body", "headers", "is_out", "keep_alive", "status")

    headers: CIMultiDict[str]
    status: int
    keep_alive: bool
    """The connection takes another request."""

    def __init__(self, body: bytes, *, status: int = 200, headers: LooseHeaders | None = None) -> None:
        # Not the library's own beginning: nothing of what it makes is looked at here.
        self.body, self.status = body, status
        self.headers = CIMultiDict() if headers is None else CIMultiDict(headers)
        self.keep_alive, self.is_out = True, False

    def force_close(self) -> None:
        """The connection takes no other request."""
        self.keep_alive = False

    async def prepare(self, request: web.BaseRequest) -> None:
        if not self.is_out:
            self.write_to(request)

    async def write_eof(self, data: bytes = b"") -> None:
        """It has gone out with its head."""

    def write_to(self, http: web.BaseRequest) -> None:
        """Hand all of it to the connection; raises `ConnectionError` where that is gone."""
        self.is_out = True
        head = self._head(http)
        transport = http.protocol.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection is gone")
        http.is_begun = True  # type: ignore[attr-defined]
        if http.method == "HEAD" or self.status in _BARE or not self.body:
            transport.write(head)
        elif len(self.body) <= _TOGETHER:
            transport.write(head + self.body)
        else:
            transport.write(head)
            transport.write(self.body)

    def _head(self, http: web.BaseRequest) -> bytes:
        headers, body, status, version = self.headers, self.body, self.status, http.version
        if status not in _BARE and (body or http.method != "HEAD"):
            headers["Content-Length"] = str(len(body))
            if body and http.method != "HEAD" and "Content-Type" not in headers:
                headers["Content-Type"] = "application/octet-stream"
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
