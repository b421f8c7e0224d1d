"""A client's request as the server has it: the library's, of which what is asked for each time stands there at once."""

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion, RawRequestMessage, StreamWriter
from multidict import CIMultiDictProxy
from yarl import URL

if TYPE_CHECKING:
    from gateway.request.deadline import Deadline

__all__ = ["BODIES_ARE_KNOWN", "HttpRequest"]

BODIES_ARE_KNOWN = all(hasattr(StreamReader, name) for name in ("_buffer", "_eof", "_exception"))
"""This version of aiohttp has what is used of its bodies here without being promised."""


class HttpRequest(web.BaseRequest):
    """One request; the library finds out for each what is hardly ever asked, and asks itself for the rest."""

    __slots__ = (
        "_made",
        "content",
        "deadline",
        "headers",
        "is_begun",
        "is_read",
        "method",
        "protocol",
        "raw_headers",
        "raw_path",
        "version",
    )

    method: str
    raw_path: str
    """Its target, as it was sent."""
    headers: CIMultiDictProxy[str]
    raw_headers: tuple[tuple[bytes, bytes], ...]
    version: HttpVersion
    content: StreamReader
    protocol: web.RequestHandler

    def __init__(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        task: "asyncio.Task[None]",
        loop: asyncio.AbstractEventLoop,
        deadline: "Deadline | None" = None,
    ) -> None:
        self._message, self._task, self._loop = message, task, loop
        self.method = self._method = message.method
        self.version = self._version = message.version
        self.headers = self._headers = message.headers
        self.content = self._payload = payload
        self.protocol = self._protocol = protocol
        self.raw_path, self.raw_headers, url = message.path, message.raw_headers, message.url
        self._rel_url: URL = url.relative() if self.raw_path[:1] != "/" and url.absolute else url
        self._cache, self._state = {}, {}
        self._made: AbstractStreamWriter | None = None
        self.deadline = deadline
        """Of all requests of its connection, where one task answers them."""
        self.is_begun = False
        """Some of its answer was written without the library's writer."""
        self.is_read = False
        """All of its body was there, and has been taken."""

    @property
    def _payload_writer(self) -> AbstractStreamWriter:  # type: ignore[override]
        if self._made is None:
            self._made = StreamWriter(self.protocol, self._loop)
        return self._made

    @property
    def _transport_peername(self) -> Any:  # type: ignore[override]
        return self.protocol.peername

    @property
    def has_answer(self) -> bool:
        """Some of its answer has been sent."""
        return self.is_begun or (self._made is not None and self._made.output_size > 0)
