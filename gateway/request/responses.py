"""Answers of the gateway's own, and those that are sent whole: head and body in one write."""

import time
from email.utils import formatdate
from http import HTTPStatus

from aiohttp import HttpVersion10, web
from aiohttp.typedefs import LooseHeaders

__all__ = ["Whole", "json_response"]

_JSON = {"Content-Type": "application/json"}
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
# https://www.rfc-editor.org/rfc/rfc9110#section-6.4.1
_BARE = frozenset({*range(100, 200), 204, 304})
"""Statuses whose answers have no body."""
_TOGETHER = 1 << 16
"""Bytes of a body up to which it is copied behind its head: one write is cheaper than two."""


class Whole(web.StreamResponse):
    """An answer whose body is there, written by itself: the library needs thirty calls to find out what is known here.

    It has gone out when `write_to` has returned; else the library has it written, as it does with any answer.
    """

    def __init__(self, body: bytes, *, status: int = 200, headers: LooseHeaders | None = None) -> None:
        super().__init__(status=status, headers=headers)
        self.body = body
        self._goes_on = True
        self._is_out = False

    @property
    def keep_alive(self) -> bool:
        """The connection takes another request."""
        return self._goes_on

    def force_close(self) -> None:
        """It takes none."""
        self._goes_on = False

    async def prepare(self, request: web.BaseRequest) -> None:
        if not self._is_out:
            self.write_to(request)

    async def write_eof(self, data: bytes = b"") -> None:
        """It has gone out with its head."""

    def write_to(self, http: web.BaseRequest) -> None:
        """Hand all of it to the connection; raises `ConnectionError` where that is gone."""
        self._is_out = True
        pieces = self._pieces(http)
        transport = http.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection is gone")
        for piece in pieces:
            transport.write(piece)
            http.writer.output_size += len(piece)  # aiohttp goes by it: an answer has begun

    def _pieces(self, http: web.BaseRequest) -> tuple[bytes, ...]:
        headers, body, status, version = self._headers, self.body, self._status, http.version
        has_body = http.method != "HEAD" and status not in _BARE
        if has_body or (body and status not in _BARE):
            headers["Content-Length"] = str(len(body))
        if body and has_body and "Content-Type" not in headers:
            headers["Content-Type"] = "application/octet-stream"
        headers["Date"] = _stamp.now()
        self._goes_on = self._goes_on and http.keep_alive
        if self._goes_on is (version == HttpVersion10):
            headers["Connection"] = "keep-alive" if self._goes_on else "close"
        lines = map("%s: %s".__mod__, headers.items())
        status_line = f"HTTP/{version.major}.{version.minor} {status} {_PHRASES.get(status, '')}"
        told = "\r\n".join((status_line, *lines, "\r\n"))
        # Values come from model servers: https://cwe.mitre.org/data/definitions/113.html
        ends = len(headers) + 2
        if told.count("\r") != ends or told.count("\n") != ends or "\0" in told:
            raise ValueError("a header that would split the answer")
        head = told.encode()
        if not has_body or not body:
            return (head,)
        return (head + body,) if len(body) <= _TOGETHER else (head, body)


class _Stamp:
    """The date of an answer; it is the same for a second."""

    __slots__ = ("_second", "_written")

    def __init__(self) -> None:
        self._second = -1
        self._written = ""

    def now(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._written = second, formatdate(second, usegmt=True)
        return self._written


_stamp = _Stamp()


def json_response(body: bytes, *, status: int = 200) -> Whole:
    """A JSON answer from its bytes."""
    return Whole(body, status=status, headers=_JSON)
