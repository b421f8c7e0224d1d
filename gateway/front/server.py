"""The HTTP server: which path is answered by whom, and how the listening starts and ends."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import structlog
from aiohttp import HttpVersion10, web

from gateway.core.errors import Draining, InvalidRequest, NotFound
from gateway.core.origins import is_loopback, parse_authority
from gateway.core.version import __version__
from gateway.front.connection import KEEPALIVE_TIMEOUT_S, LINGER_S, Listener, refusal
from gateway.front.middleware import enter, preflight, run
from gateway.front.routes import ROWS, row_of
from gateway.request.head import HttpRequest
from gateway.request.headers import add_told
from gateway.request.responses import json_response
from gateway.request.shared import Shared, Telemetry
from gateway.traffic.door import Verdict

__all__ = ["MetricsServer", "Server", "is_local"]

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
        # The kernel drops what goes beyond, and a dropped handshake is tried again after a whole second.
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

    def _handle(self, http: HttpRequest) -> Awaitable[web.StreamResponse]:
        """Who answers; not a step of its own on the way of each request."""
        if http.version < HttpVersion10:
            return _no_request(http)
        entry = enter(http, self._shared, is_local=self._is_local)
        path = http.raw_path
        row = ROWS.get((http.method, path))
        if row is None:
            path = http.path
            if entry.is_preflight or not path.startswith("/v1/"):
                return self._outside(http, path, entry)
            row = row_of(http.method, path)
        return run(row.handler, http, self._shared, route=row.name, entry=entry, surface=row.surface)

    async def _outside(self, http: HttpRequest, path: str, entry: Verdict) -> web.StreamResponse:
        """What is no request of the API, and in no record."""
        if entry.is_preflight:
            return preflight(entry)
        return _told(refusal(entry.refusal, http) if entry.refusal else await self._plain(http, path), entry)

    async def _plain(self, http: HttpRequest, path: str) -> web.StreamResponse:
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
        return refusal(NotFound("there is nothing at this path; the API is under /v1"), http)

    def _readiness(self) -> web.StreamResponse:
        if self._shared.draining:
            response = json_response(b'{"status":"draining"}', status=503)
            response.force_close()
            return response
        if not self._shared.keeps.healthy:
            # Requests are answered all the same: only what is kept of them is at risk.
            return json_response(b'{"status":"ready","store":"degraded"}')
        return json_response(b'{"status":"ready"}')


async def _no_request(http: HttpRequest) -> web.StreamResponse:
    """A line without a version, which the library answers as if it had one: no browser or agent sends it."""
    response = refusal(InvalidRequest("the request is not valid HTTP"), http)
    # What a client without a version means by what it sends next nobody knows.
    response.force_close()
    return response


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

    async def _handle(self, http: HttpRequest) -> web.StreamResponse:
        entry = enter(http, self._shared, is_local=self._is_local)
        if entry.is_preflight:
            return preflight(entry)
        return _told(refusal(entry.refusal, http) if entry.refusal else await self._plain(http), entry)

    async def _plain(self, http: HttpRequest) -> web.StreamResponse:
        if http.path == "/metrics" and http.method in ("GET", "HEAD"):
            return await self._exposition.answer(http)
        return refusal(NotFound("there is nothing at this path"), http)


def _runner(handler: Any, **options: Any) -> web.ServerRunner:
    server = Listener(
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


def _front_page(http: HttpRequest) -> web.Response:
    """For somebody who opens the gateway's address in a browser."""
    authority = parse_authority(http.headers.get("Host", ""))
    base_url = "/v1" if authority is None else f"http://{authority}/v1"
    text = f"Toolgate {__version__}: a gateway between coding agents and model servers.\nBase URL: {base_url}\n"
    # `Host` is the asker's word, and a browser that guesses might take it for markup.
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
                self._telemetry.settle()
                # In a thread: it reads files of the kernel, and many series take their time.
                body, content_type = await asyncio.to_thread(self._telemetry.render, accept)
                self._last[is_open] = number, body, content_type
        return web.Response(body=body, headers={"Content-Type": content_type})
