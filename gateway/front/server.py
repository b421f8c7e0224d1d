"""The HTTP server: which path is answered by whom, and how the listening starts and ends."""

import asyncio
from typing import Any

import msgspec
import structlog
from aiohttp import HttpVersion10, http_exceptions, web

from gateway.core.errors import Draining, GatewayError, InternalError, InvalidRequest, NotFound, UnknownEncoding
from gateway.core.origins import is_loopback, parse_authority
from gateway.core.version import __version__
from gateway.front.middleware import enter, preflight, run
from gateway.front.routes import row_of
from gateway.request.headers import add_told, request_id
from gateway.request.responses import Whole, json_response
from gateway.request.shared import Shared, Telemetry
from gateway.request.state import SERVER_NAME
from gateway.traffic.door import Verdict

__all__ = ["MetricsServer", "Server", "is_local"]

KEEPALIVE_TIMEOUT_S = 75.0
"""Longer than the 60 s for which nginx is told to keep its connections."""
HEAD_TIMEOUT_S = 15.0
LINGER_S = 2.0
"""How long the rest of a refused body is read away, so that its sender gets to see the refusal."""
CLOSE_S = 2.0
"""How long the last words of an interrupted answer may take to be sent."""
CUT_S = 0.2

log = structlog.get_logger("toolgate")


class Server:
    """The gateway's own port."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._exposition = _Exposition(shared.telemetry)
        # Else nobody hears of a client that leaves while its model server thinks:
        # https://docs.aiohttp.org/en/stable/web_advanced.html#web-handler-cancellation
        self._runner = _runner(self._handle, handler_cancellation=True)
        self._site: web.BaseSite | None = None
        self._is_local = True
        """Until it is known where it listens, nobody else is let in."""

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which matters when 0 was asked for."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        self._site = site
        self._is_local = is_local(self._runner)
        return site.port

    async def drain(self, seconds: float) -> None:
        """Stop listening, let what runs end within `seconds`, then end it with an error that says why.

        A connection that is there is kept for one more request: closing it could cut one that is on its way.
        """
        self._shared.draining = True
        if self._site is not None:
            await self._site.stop()
            self._site = None
        under_way = self._shared.under_way
        log.info("gateway_draining", requests=len(under_way))
        if await under_way.ended(seconds):
            return
        log.warning("drain_expired", requests=len(under_way))
        under_way.interrupt(lambda: Draining("the gateway is restarting", retry_after_s=1.0))
        await under_way.ended(CLOSE_S)

    async def close(self) -> None:
        """Close every connection."""
        await self._runner.cleanup()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.version < HttpVersion10:
            # A line without a version, which the library answers as if it had one: no browser or agent sends it.
            response = _refusal(InvalidRequest("the request is not valid HTTP"), http)
            # What a client without a version means by what it sends next nobody knows.
            response.force_close()
            return response
        entry = enter(http, self._shared, is_local=self._is_local)
        if entry.is_preflight:
            return preflight(entry)
        path = http.path
        if not path.startswith("/v1/"):
            return _told(_refusal(entry.refusal, http) if entry.refusal else await self._plain(http, path), entry)
        row = row_of(http.method, path)
        return await run(row.handler, http, self._shared, route=row.name, entry=entry, surface=row.surface)

    async def _plain(self, http: web.BaseRequest, path: str) -> web.StreamResponse:
        if http.method in ("GET", "HEAD"):
            match path:
                case "/":
                    # Claude Code asks for the head alone before its first request.
                    return _front_page(http)
                case "/healthz":
                    return json_response(b'{"status":"ok"}')
                case "/readyz":
                    return self._readiness()
                case "/metrics":
                    return await self._exposition.answer(http)
        return _refusal(NotFound("there is nothing at this path; the API is under /v1"), http)

    def _readiness(self) -> web.StreamResponse:
        if self._shared.draining:
            response = json_response(b'{"status":"draining"}', status=503)
            response.force_close()
            return response
        if not self._shared.keeps.healthy:
            # Requests are answered all the same: only what is kept of them is at risk.
            return json_response(b'{"status":"ready","store":"degraded"}')
        return json_response(b'{"status":"ready"}')


class MetricsServer:
    """A port that serves `/metrics` and nothing else."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._exposition = _Exposition(shared.telemetry)
        self._runner = _runner(self._handle)
        self._is_local = True

    async def start(self, host: str, port: int) -> int:
        """Listen; raises `OSError` when the port is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self._is_local = is_local(self._runner)
        return site.port

    async def close(self) -> None:
        """Close every connection."""
        await self._runner.cleanup()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        entry = enter(http, self._shared, is_local=self._is_local)
        if entry.is_preflight:
            return preflight(entry)
        return _told(_refusal(entry.refusal, http) if entry.refusal else await self._plain(http), entry)

    async def _plain(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.path == "/metrics" and http.method in ("GET", "HEAD"):
            return await self._exposition.answer(http)
        return _refusal(NotFound("there is nothing at this path"), http)


class _Connection(web.RequestHandler):
    """One client connection; what is not HTTP is answered in the shape of every other error."""

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
            self._head_came()
        # Empty lines before a request are allowed, and no beginning: https://www.rfc-editor.org/rfc/rfc9112#section-2.2
        elif is_early and self._head_timer is None and data.strip(b"\r\n"):
            self._head_timer = self._loop.call_later(HEAD_TIMEOUT_S, self._end_head)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or to one that a fault of ours left without an answer."""
        # An error in the middle of an answer would be read as a part of it: cut is the honest end.
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        if isinstance(exc, http_exceptions.ContentEncodingError):
            response = _refusal(UnknownEncoding("the body's Content-Encoding is not read here: gzip is"), request)
        elif status == 400:
            log.info("request_refused", fault=type(exc).__name__)
            response = _refusal(InvalidRequest("the request is not valid HTTP"), request)
        else:
            log.error("request_failed", exc_info=exc)
            response = _refusal(InternalError("internal error"), request)
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


class _Listener(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


def _runner(handler: Any, **options: Any) -> web.ServerRunner:
    server = _Listener(
        handler,
        access_log=None,
        keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        lingering_time=LINGER_S,
        **options,
    )
    return web.ServerRunner(server, shutdown_timeout=CUT_S)


def is_local(runner: web.ServerRunner) -> bool:
    """Only this machine can reach what listens there."""
    return all(is_loopback(str(address[0])) for address in runner.addresses)


def _told(response: web.StreamResponse, entry: Verdict) -> web.StreamResponse:
    add_told(response.headers, entry.headers)
    return response


def _front_page(http: web.BaseRequest) -> web.Response:
    """For somebody who opens the gateway's address in a browser."""
    authority = parse_authority(http.headers.get("Host", ""))
    base_url = "/v1" if authority is None else f"http://{authority}/v1"
    text = f"Toolgate {__version__}: a gateway between coding agents and model servers.\nBase URL: {base_url}\n"
    return web.Response(text=text, headers={"X-Content-Type-Options": "nosniff"})


class _Exposition:
    """The metrics, written once for all who ask while they are written: no key is needed to ask for them."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._writing = asyncio.Lock()
        self._begun = 0
        """How many writings have begun."""
        self._last: dict[bool, tuple[int, bytes, str]] = {}
        """Of each format, the last one."""

    async def answer(self, http: web.BaseRequest) -> web.Response:
        """The numbers as they are now, or were at some time since they were asked for."""
        accept, known = http.headers.get("Accept", ""), self._begun
        is_open = "application/openmetrics-text" in accept
        async with self._writing:
            number, body, content_type = self._last.get(is_open, (0, b"", ""))
            if number <= known:
                number = self._begun = self._begun + 1
                self._telemetry.set("toolgate_event_loop_tasks", {}, len(asyncio.all_tasks()))
                # In a thread: it reads files of the kernel, and many series take their time.
                body, content_type = await asyncio.to_thread(self._telemetry.render, accept)
                self._last[is_open] = number, body, content_type
        return web.Response(body=body, headers={"Content-Type": content_type})


def _refusal(error: GatewayError, http: web.BaseRequest) -> Whole:
    response = json_response(msgspec.json.encode(error.body()), status=error.status)
    response.headers["X-Request-Id"] = request_id(http.headers)
    response.headers["Server"] = SERVER_NAME
    return response
