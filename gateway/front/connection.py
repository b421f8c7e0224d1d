"""One client connection: aiohttp's parser and flow control, and one task that answers its requests.

The library makes a task, a writer and a timer for each request; here a connection has one of each, made when it is
needed. Where a version of the library lacks what that takes without being promised, its own way is gone.
"""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from aiohttp import StreamReader, http_exceptions, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion10, RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gateway.core.errors import GatewayError, InternalError, InvalidRequest, UnknownEncoding
from gateway.request.deadline import Deadline
from gateway.request.head import HttpRequest
from gateway.request.headers import request_id
from gateway.request.responses import Streamed, Whole, json_response
from gateway.request.state import SERVER_NAME

__all__ = ["KEEPALIVE_TIMEOUT_S", "LINGER_S", "Connection", "Listener", "OneTask", "refusal"]

KEEPALIVE_TIMEOUT_S = 75.0
"""Longer than the 60 s for which nginx is told to keep its connections."""
# aiohttp has none for a head that drips: https://cwe.mitre.org/data/definitions/400.html
HEAD_TIMEOUT_S = 15.0
LINGER_S = 2.0
"""How long the rest of a refused body is read away, so that its sender gets to see the refusal."""
_USED = (
    *("_buffer_paused", "_close", "_current_request", "_force_close", "_handler_waiter", "_keepalive"),
    *("_keepalive_handle", "_keepalive_timeout", "_manager", "_message_tail", "_messages", "_msg_queue_resume_size"),
    *("_next_keepalive_close_time", "_parser", "_process_keepalive", "_reading_paused", "_request_in_progress"),
    *("_resume_reading_if_drained", "_task_handler", "_upgraded", "_waiter", "data_received", "finish_response"),
)

log = structlog.get_logger("toolgate")


class Connection(web.RequestHandler):
    """A connection as the library serves it; what is not HTTP is answered in the shape of every other error."""

    __slots__ = ("_head_timer",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = self._loop.call_later(HEAD_TIMEOUT_S, self._end_head)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; the head of each request has its time, on a kept connection from its first byte on."""
        request = self._current_request
        is_early = request is None or request.content.is_eof()
        came = self._request_count
        super().data_received(data)
        if self._request_count != came:
            if self._head_timer is not None:
                self._head_came()
        # Empty lines before a request are allowed, and no beginning: https://www.rfc-editor.org/rfc/rfc9112#section-2.2
        elif is_early and self._head_timer is None and data.strip(b"\r\n"):
            self._head_timer = self._loop.call_later(HEAD_TIMEOUT_S, self._end_head)

    def resume_reading(self, resume_parser: bool = True) -> None:
        # The library asks for it after each body, mostly without its having paused.
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or to one that a fault of ours left without an answer."""
        # An error in the middle of an answer would be read as a part of it: cut is the honest end.
        # A client that has got a 200 cannot be told of another status: https://www.rfc-editor.org/rfc/rfc9112#section-8
        if isinstance(request, HttpRequest) and request.has_answer:
            raise ConnectionError("the answer has begun")
        if isinstance(exc, http_exceptions.ContentEncodingError):
            # The library undoes gzip and deflate while the body is read, so this comes late.
            response = refusal(UnknownEncoding("the body's Content-Encoding is not read here: gzip is"), request)
        elif status == 400:
            log.info("request_refused", fault=type(exc).__name__)
            response = refusal(InvalidRequest("the request is not valid HTTP"), request)
        else:
            log.error("request_failed", exc_info=exc)
            response = refusal(InternalError("internal error"), request)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What the library could not deal with; a body that cannot be decoded is the client's fault, and no news."""
        fault = kw.get("exc_info")
        if isinstance(fault, web.RequestPayloadError | http_exceptions.HttpProcessingError):
            log.info("request_refused", fault=type(fault).__name__)
            return
        super().log_exception(*args, **kw)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_head(self) -> None:
        """The head that has begun did not come in time; while another request is answered, it has more."""
        self._head_timer = None
        # Behind an answer that goes on, a next request may wait: it has its time when that one has ended.
        if self._request_in_progress or self._messages:
            self._head_timer = self._loop.call_later(HEAD_TIMEOUT_S, self._end_head)
        else:
            self.force_close()


class OneTask(Connection):
    """A connection whose requests are answered in its own task, one after the other."""

    __slots__ = ()

    @staticmethod
    def is_possible() -> bool:
        """This version of aiohttp has all that is used here without being promised."""
        return all(hasattr(web.RequestHandler, name) for name in _USED)

    async def start(self) -> None:
        """Answer requests until the connection ends."""
        manager = self._manager
        if manager is None:
            return  # the client has left before its connection had a turn
        # One deadline for all requests of a connection: its timer is moved, not made anew.
        loop, deadline, answering = self._loop, Deadline(), manager.request_handler
        task = deadline.task
        try:
            while not self._force_close:
                if not self._messages:
                    self._waiter = loop.create_future()
                    await self._waiter
                    self._waiter = None
                message, payload = self._messages.popleft()
                if self._parser is not None:
                    self._parser.message_consumed()
                # Pipelined requests wait in the library, which stops reading behind some of them.
                if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                    self._resume_reading_if_drained()
                manager.requests_count += 1
                head = message if isinstance(message, RawRequestMessage) else _NONE
                request = HttpRequest(head, payload, self, task, loop, deadline)
                self._current_request, self._request_in_progress = request, True
                try:
                    response = await answering(request) if head is message else self._unread(request, message)
                except Exception as error:  # noqa: BLE001 - it is said, and answered
                    response = self.handle_error(request, 500, error)
                self._current_request = deadline.interruption = None
                # By type: to ask whether it is an instance of the library's class costs more than its answer.
                is_out = (type(response) is Whole or type(response) is Streamed) and response.is_out
                if self._upgraded or not is_out:
                    _, is_gone = await self.finish_response(request, response, None)
                    if is_gone:
                        break
                self._request_in_progress = False
                if not (request.is_read or payload.is_eof()):
                    # A connection that is closed with unread bytes is reset, and the reset may overtake the answer:
                    # https://www.rfc-editor.org/rfc/rfc9112#section-9.6
                    await self._linger(payload)
                if not self._goes_on(response):
                    break
                del message, payload, head, request, response  # may be large, and the next request far away
        except (ConnectionError, asyncio.CancelledError):
            # The client has left, or an answer has begun that cannot be gone on with. Nobody waits for this task's end:
            # one that ended as cancelled would keep the error, with all its frames, and these the task.
            pass
        except Exception as error:  # noqa: BLE001 - it is said
            self.log_exception("Unhandled exception", exc_info=error)
        finally:
            self._finish(deadline)

    def _finish(self, deadline: Deadline) -> None:
        """No further requests are answered here."""
        deadline.close()
        self._waiter = self._current_request = None
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)  # who shuts the server down waits for this
        self._task_handler = None
        if not self._force_close and self.transport is not None:
            self.transport.close()

    def _goes_on(self, response: web.StreamResponse) -> bool:
        """Whether another request may come; it has its time from now on."""
        self._keepalive = bool(response.keep_alive)
        if self._close or not self._keepalive:
            return False
        self._next_keepalive_close_time = due = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None and not self._force_close:
            self._keepalive_handle = self._loop.call_at(due, self._process_keepalive)
        return True

    def _unread(self, request: HttpRequest, fault: Any) -> web.StreamResponse:
        """The answer to what the parser could not read."""
        answer = self.handle_error(request, fault.status, fault.exc, fault.message)
        fault.exc.__traceback__ = None  # it leads to the frame that holds the fault
        return answer

    async def _linger(self, payload: StreamReader) -> None:
        """Read the rest of a body away, for a while; the connection ends where there is still more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not (payload.is_eof() or self._force_close):
                    await payload.readany()
        if not payload.is_eof():
            self.close()


_NONE = RawRequestMessage(
    *("UNKNOWN", "/", HttpVersion10, CIMultiDictProxy(CIMultiDict()), ()),
    *(True, None, False, False, URL("/")),
)
"""The head of what is no request."""


class Listener(web.Server):
    """Makes a connection for each client."""

    def _make_request(
        self, message: Any, payload: StreamReader, protocol: web.RequestHandler, writer: AbstractStreamWriter, task: Any
    ) -> HttpRequest:
        return HttpRequest(message, payload, protocol, task, self._loop)

    def __call__(self) -> web.RequestHandler:
        made = OneTask if OneTask.is_possible() else Connection
        return made(self, loop=self._loop, **self._kwargs)


def refusal(error: GatewayError, http: web.BaseRequest) -> Whole:
    """An answer to what is counted nowhere."""
    response = json_response(msgspec.json.encode(error.body()), status=error.status)
    response.headers["X-Request-Id"] = request_id(http.headers)
    response.headers["Server"] = SERVER_NAME
    return response
