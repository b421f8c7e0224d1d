"""The inspector's port: the page, its files, and its interface; nothing of it is open to anybody's page."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from itertools import zip_longest
from typing import Any

import msgspec
import structlog
from aiohttp import web
from attrs import define, field

from gateway.config.load import Settings
from gateway.core.ports import Store, StoreError
from gateway.core.version import __version__
from gateway.inspector.actions import Actions, Impossible
from gateway.inspector.door import HEADERS, Door, Refusal
from gateway.inspector.figures import PERIODS, Figures
from gateway.inspector.filters import BadFilter, Filter, parsed
from gateway.inspector.live import Event, Hub, events_behind, faulty, told
from gateway.inspector.reader import Reader

__all__ = ["Inspector", "running", "sockets"]

SCHEMA_VERSION = 1
_MAX_BODY = 8 << 20
_MAX_ROWS = 500
_SHUTDOWN_S = 1.0
# Proxies between a browser and this port close what is silent, most of them after 30 s or a minute.
_BEAT_S = 15.0
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_TRIES = 20

log = structlog.get_logger("toolgate")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@define
class Inspector:
    """Answers one browser, or a few."""

    store: Store
    settings: Settings
    door: Door
    who: str
    writer: Store | None = None
    """The same store, to be written to; nothing is written without it."""
    period: str = "1h"
    on_first_visit: Callable[[], None] = lambda: None
    reader: Reader = field(init=False)
    actions: Actions = field(init=False)
    figures: Figures = field(init=False)
    hub: Hub = field(init=False)
    _files: dict[str, tuple[bytes, str]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.reader = Reader(self.store)
        self.actions = Actions(self.store, self.writer or self.store, self.settings, self.reader, self.who)
        self.figures = Figures(self.store)
        self.hub = Hub(self.store, self.reader, self.actions.state)
        for each in (files("gateway.inspector") / "app").iterdir():
            kind = _TYPES.get(each.name.rpartition(".")[2])
            if kind is not None:
                self._files[each.name] = (each.read_bytes(), kind)

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=_MAX_BODY)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/app/{name}", self._file),
                web.get("/api/rows", self._rows),
                web.get("/api/rows/{id:(?s:.+)}/fixture", self._fixture),
                web.get("/api/rows/{id:(?s:.+)}/request", self._request),
                web.get("/api/rows/{id:(?s:.+)}", self._row),
                web.get("/api/figures", self._figures),
                web.get("/api/state", self._state),
                web.get("/api/live", self._live),
                web.post("/api/label", self._label),
                web.post("/api/try", self._try),
                web.post("/api/rollout/{verb}", self._rollout),
            ]
        )
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """Nothing is answered before the door has looked; whatever is answered carries the policy."""
        refusal = self.door.stops(request.method, request.headers)
        # The door first, the key behind it: a page of another site must not find out whether a key is right.
        if refusal is None and not self.door.knows(request.cookies):
            refusal = await self._traded(request)
            if refusal is None:
                return _with_headers(self._welcome())
        if refusal is not None:
            return _with_headers(_refused(refusal))
        try:
            response = await handler(request)
        except web.HTTPException as error:
            return _with_headers(_error(error.status, "not_found", "there is nothing at this path"))
        except (Impossible, BadFilter, StoreError) as error:
            return _with_headers(_said(error))
        except Exception:
            log.exception("inspector_failed", path=request.path)
            return _with_headers(_error(500, "internal_error", "internal error"))
        # The headers of a stream have gone out with its first bytes.
        return response if response.prepared else _with_headers(response)

    async def _traded(self, request: web.Request) -> Refusal | None:
        """A first visit trades the key of its address for a cookie."""
        # Once: an address stays in histories and logs, so what it holds must be worth nothing afterwards.
        key = request.query.get("key", "")
        if request.path == "/" and request.method == "GET" and key and self.door.trades(key):
            return None
        return Refusal(401, "no_key", "open the address that `toolgate inspect` printed; it is good once")

    def _welcome(self) -> web.Response:
        self.on_first_visit()
        # Sent elsewhere at once, so that the key does not stay in the browser's address bar.
        response = web.Response(status=303, headers={"Location": "/"})
        # Kept from scripts and from other sites' requests: https://owasp.org/www-community/SameSite
        response.set_cookie(self.door.cookie_name, self.door.cookie, httponly=True, samesite="Strict", path="/")
        return response

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return self._served("index.html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return self._served(request.match_info["name"])

    def _served(self, name: str) -> web.Response:
        if name not in self._files:
            raise web.HTTPNotFound
        body, kind = self._files[name]
        return web.Response(body=body, content_type=kind, charset="utf-8")

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        wanted = parsed(request.query.get("filter", ""))
        limit = _number(request.query.get("limit", "100"), most=_MAX_ROWS)
        page = await self.reader.page(wanted, before=request.query.get("before", ""), limit=limit)
        return _json({"rows": [row.document() for row in page.rows], "next": page.next or None})

    async def _row(self, request: web.Request) -> web.StreamResponse:
        period = PERIODS.get(request.query.get("since", ""), PERIODS[self.period])
        found = await self.reader.detail(request.match_info["id"], period)
        if found is None:
            return _error(404, "not_found", "there is no such request, or it has been trimmed")
        return _json(found)

    async def _fixture(self, request: web.Request) -> web.StreamResponse:
        line = msgspec.json.encode(await self.actions.fixture(request.match_info["id"])) + b"\n"
        named = {"Content-Disposition": 'attachment; filename="toolgate-fixture.jsonl"'}
        return web.Response(body=line, content_type="application/json", headers=named)

    async def _request(self, request: web.Request) -> web.StreamResponse:
        return _json(await self.actions.request(request.match_info["id"]))

    async def _figures(self, request: web.Request) -> web.StreamResponse:
        period = request.query.get("since", self.period)
        if period not in PERIODS:
            raise Impossible(f"since is one of {', '.join(PERIODS)}")
        return _json(await self.figures.of(period))

    async def _state(self, _: web.Request) -> web.StreamResponse:
        about = {"read_only": self.writer is None, "version": __version__, "period": self.period, "who": self.who}
        gateway = {"host": self.settings.host, "port": self.settings.port, "audit": self.settings.audit_bodies}
        threshold = self.settings.min_confidence / 100
        document = {**about, "gateway": gateway, "threshold": threshold, "cursor": await self.store.end()}
        return _json({**document, "rollout": await self.actions.state()})

    async def _label(self, request: web.Request) -> web.StreamResponse:
        self._may_write()
        return _json(await self.actions.label(await _body(request)))

    async def _try(self, request: web.Request) -> web.StreamResponse:
        given = await _body(request)
        # In a thread: a page that tries megabytes must not hold up those that listen.
        return _json(await asyncio.to_thread(self.actions.try_, given))

    async def _rollout(self, request: web.Request) -> web.StreamResponse:
        self._may_write()
        return _json(await self.actions.rollout(request.match_info["verb"], await _body(request)))

    def _may_write(self) -> None:
        if self.writer is None:
            raise Impossible("this page was opened with --read-only", status=403, code="read_only")

    async def _live(self, request: web.Request) -> web.StreamResponse:
        """What is new, from the cursor on that the page has read up to."""
        cursor = request.headers.get("Last-Event-ID") or request.query.get("cursor", "")
        wanted = parsed(request.query.get("filter", ""))
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        with suppress(ConnectionError), self.hub.listening() as queue:  # a page that has gone is no fault
            reached = self.hub.cursor
            start = _places(reached)
            await response.prepare(request)
            await response.write(b"retry: 500\n\n" + told(faulty(self.hub.fault)))
            try:
                if cursor and cursor != reached:
                    async for event in events_behind(self.store, self.reader, cursor):
                        reached = event.cursor
                        if event.row is None or wanted.matches(event.row.seen):
                            await response.write(told(event))
            except StoreError as error:
                await response.write(told(faulty(str(error))))
                return response  # it comes back with the cursor of the last one that it has read
            await _relay(queue, response, wanted, start=start, reached=_places(reached))
        return response


async def _relay(
    queue: "asyncio.Queue[Event | None]",
    response: web.StreamResponse,
    wanted: Filter,
    *,
    start: tuple[int, ...],
    reached: tuple[int, ...],
) -> None:
    """What the hub tells, without what has been caught up with."""
    told_last: tuple[int, ...] = start
    while True:
        try:
            async with asyncio.timeout(_BEAT_S):
                event = await queue.get()
        except TimeoutError:
            await response.write(b": \n\n")
            continue
        if event is None:
            return  # it did not read: it comes back with its cursor
        if event.row is not None and not wanted.matches(event.row.seen):
            continue
        if event.name in ("state", "store"):
            await response.write(told(event))
            continue
        places = _places(event.cursor)
        if any(now < then for now, then in zip_longest(places, told_last, fillvalue=0)):
            reached = ()  # the store was begun anew
        told_last = places
        if _is_behind(places, reached):
            await response.write(told(event))


def _is_behind(places: tuple[int, ...], reached: tuple[int, ...]) -> bool:
    """Whether any of the places lies beyond what was reached."""
    return any(place > known for place, known in zip_longest(places, reached, fillvalue=0))


def _places(cursor: str) -> tuple[int, ...]:
    return tuple(_place(part) for part in cursor.split("."))


def _place(part: str) -> int:
    at, _, sequence = part.partition("-")
    # Ids of Redis count within a millisecond; a million in one of them is out of reach.
    return (int(at or 0) << 20) + int(sequence or 0)


def _number(text: str, *, most: int) -> int:
    # Of very many digits Python reads none, and says so by an error.
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= most:
        raise Impossible(f"limit is a number from 1 to {most}")
    return int(text)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(await request.read())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Impossible("the body is no JSON object")
    return found


def _json(document: dict[str, Any]) -> web.Response:
    body = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **document})
    return web.Response(body=body, content_type="application/json", charset="utf-8")


def _error(status: int, code: str, message: str) -> web.Response:
    """In the shape of the gateway's own errors."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    body = msgspec.json.encode({"schema_version": SCHEMA_VERSION, "error": error})
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8")


def _refused(refusal: Refusal) -> web.Response:
    return _error(refusal.status, refusal.code, refusal.message)


def _said(error: Exception) -> web.Response:
    if isinstance(error, Impossible):
        return _error(error.status, error.code, str(error))
    if isinstance(error, StoreError):
        return _error(503, "store_failed", str(error))
    return _error(400, "invalid_filter", str(error))


def _with_headers(response: web.StreamResponse) -> web.StreamResponse:
    response.headers.update(HEADERS)
    return response


def sockets(host: str, port: int, *, is_fixed: bool) -> list[socket.socket]:
    """Listening sockets at this port of loopback, or at the next free one; `OSError` where none is."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, port + (1 if is_fixed or not port else _TRIES)):
        listening = socket.socket(family, socket.SOCK_STREAM)
        # Else the port of a page that was closed a moment ago could not be had.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(64)
        except OSError:
            listening.close()
            if number == port + _TRIES - 1 or is_fixed or not port:
                raise
            continue
        return [listening]
    raise OSError("no port is free")


@asynccontextmanager
async def running(inspector: Inspector, listening: list[socket.socket]) -> AsyncIterator[None]:
    """The port open, and the store asked for what is new."""
    runner = web.AppRunner(inspector.application(), access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(inspector.hub.run())
            for each in listening:
                await web.SockSite(runner, each).start()
            try:
                yield
            finally:
                polling.cancel()
    finally:
        await runner.cleanup()
