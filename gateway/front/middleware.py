"""What holds for every request of the API: the door, a key, a place, an answer whatever happens, and a record of it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import HttpVersion11, web

from gateway.core.errors import (
    BreakerOpen,
    Draining,
    GatewayError,
    InternalError,
    NoWebSocket,
    RateLimited,
    UpstreamError,
    UpstreamRejected,
)
from gateway.core.rules import Quota
from gateway.front.log_line import write_line
from gateway.front.measures import measure
from gateway.front.request_record import keep
from gateway.front.spans import end_span
from gateway.front.summary import ABANDONED_STATUS, Summary
from gateway.request.head import HttpRequest
from gateway.request.headers import add_told
from gateway.request.responses import Whole, json_response
from gateway.request.shared import Shared
from gateway.request.state import ID_TOLD, SERVER_NAME, TRACE_TOLD, UNTOLD, ClientGone, RequestState
from gateway.surfaces.chat import CHAT
from gateway.surfaces.port import Surface
from gateway.traffic.door import Knock, Verdict
from gateway.traffic.retry import capped_retry_after
from gateway.upstream.look import with_hint

__all__ = ["Handler", "enter", "error_response", "json_response", "preflight", "run"]

Handler = Callable[[RequestState], Awaitable[web.StreamResponse]]

# SDKs raise one exception a status, and agents tell their user by it what to do; all else is a 502 of ours.
KEPT_STATUSES = frozenset({400, 402, 404, 408, 413, 422, 429})
CREDENTIAL_STATUSES = frozenset({401, 403})
MAX_SHOWN = 128
"""Of a header that is refused: enough to know it by."""

MAX_KNOWN = 256
"""Hosts that the door is known to let in."""

_NONE: list[str] = []

log = structlog.get_logger("toolgate")


def enter(http: HttpRequest, shared: Shared, *, is_local: bool) -> Verdict:
    """Whether a request is let in at all; `is_local` says that its port listens on loopback alone."""
    headers, door = http.headers, shared.configuration.door
    hosts = headers.getall("Host", _NONE)
    # Of a request that no browser has sent for a page, and that names its target by its path, the host alone decides.
    is_plain = len(hosts) == 1 and http.raw_path[:1] == "/" and not ("Origin" in headers or "Sec-Fetch-Site" in headers)
    if is_plain and (known := door.known.get((hosts[0], is_local))) is not None:
        return known
    knock = Knock(
        method=http.method,
        target=http.raw_path,
        headers=headers,
        has_body=http.body_exists,
        is_old=http.version < HttpVersion11,
    )
    verdict = door.judge(knock, is_local=is_local)
    if verdict.refusal is not None:
        shown = {name: [value[:MAX_SHOWN] for value in knock.values(name)[:2]] for name in ("Host", "Origin")}
        log.warning("request_not_let_in", error=verdict.refusal.code, host=shown["Host"], origin=shown["Origin"])
    elif is_plain and len(hosts[0]) <= MAX_SHOWN and len(door.known) < MAX_KNOWN:
        door.known[hosts[0], is_local] = verdict
    return verdict


def preflight(verdict: Verdict) -> web.Response:
    """The answer to a browser that asks whether a page may ask."""
    response = web.Response(status=204)
    add_told(response.headers, verdict.headers)
    response.headers["Server"] = SERVER_NAME
    return response


async def run(
    handler: Handler, http: HttpRequest, shared: Shared, *, route: str, entry: Verdict, surface: Surface = CHAT
) -> web.StreamResponse:
    """Answer one request of the API and write it down."""
    state, admission = RequestState.begin(http, shared, route, entry, surface), shared.admission
    try:
        try:
            quota = _let_in(state) if entry.refusal is not None or state.configuration.has_keys else None
            admission.enter()
            try:
                if quota is not None:
                    await state.count_key(state.key_name, quota)
                return await handler(state)
            finally:
                admission.leave()
        except (asyncio.CancelledError, ClientGone):
            raise
        except Exception as error:  # noqa: BLE001 - it is said, and told to the client
            return await _fail(state, error)
    except (asyncio.CancelledError, ClientGone) as error:
        state.client_gone = not state.is_told
        if isinstance(error, ClientGone):
            return _nothing_more(state)
        raise
    finally:
        account(state)
        state.close()
        if state.error is not None:
            _forget_frames(state.error)
        # Its task goes on with the next one.
        ID_TOLD.set(UNTOLD)
        TRACE_TOLD.set(UNTOLD)


def _let_in(state: RequestState) -> Quota | None:
    """Raise what keeps the request out; the limits of the key that it shows."""
    if state.entry.refusal is not None:
        raise state.entry.refusal
    key = state.configuration.authenticate(state.credential)
    state.key_name = key.name if key is not None else ""
    return key.quota if key is not None else None


async def _fail(state: RequestState, error: Exception) -> web.StreamResponse:
    """Tell the client of an error, as far as that is still possible."""
    if not isinstance(error, GatewayError):
        log.error("request_failed", route=state.route, exc_info=error)
        error = InternalError(f"internal error; request id {state.id}")
    elif isinstance(error, RateLimited):
        state.shared.telemetry.count("toolgate_rate_limited_total", {})
    state.error = error
    return _nothing_more(state) if state.status else await state.send(error_response(error, state))


def account(state: RequestState) -> None:
    """Have the request written down, with all that end in the same turn of the loop; called once, when it has ended.

    Each of the four things that are done for it is code enough to push the others out of the processor's cache.
    """
    state.ended = time.monotonic()
    ended = state.shared.ended
    ended.append(state)
    if len(ended) == 1:
        asyncio.get_running_loop().call_soon(_write_down, state.shared)


def _write_down(shared: Shared) -> None:
    ended = shared.ended.copy()
    shared.ended.clear()
    lines, telemetry = shared.lines(), shared.telemetry
    summaries: list[Summary | None] = [None] * len(ended)
    for step in ("sum up", "measure", "write", "keep"):
        for at, state in enumerate(ended):
            summary = summaries[at]
            try:
                if summary is None:
                    if step == "sum up":
                        summaries[at] = Summary.of(state, state.found)
                elif step == "measure":
                    if state.key is not None:
                        usage = summary.facts.usage
                        shared.quotas.spend(state.key, usage.get("input", 0) + usage.get("output", 0))
                    measure(summary, telemetry)
                    if state.span is not None:
                        end_span(state.span, summary, shared.mask)
                elif step == "write":
                    if lines is None or summary.noise or summary.is_reader_broken:  # else the line says it itself
                        _tell_whose(state)
                    write_line(summary, lines)
                else:
                    keep(summary, shared)
            except Exception:  # it costs the record, never the answer, and nothing of another's
                _tell_whose(state)
                log.exception("accounting_failed", route=state.route)


def _tell_whose(state: RequestState) -> None:
    """What is written from here on is about this request."""
    ID_TOLD.set(state.id)
    TRACE_TOLD.set(UNTOLD if state.trace is None else state.trace)


def _forget_frames(error: BaseException | None) -> None:
    """An error that the request keeps leads to it again by the frames that it has passed, and from there to all it
    held: so it would live on until the collector comes, which is hours."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def error_response(error: GatewayError, state: RequestState) -> Whole:
    """The error as a client sees it, in the words of its own wire."""
    status = _status(error, client_key=state.upstream.forwards_credentials)
    if isinstance(error, UpstreamError | BreakerOpen) and state.configuration.is_own:
        error.message = with_hint(error, state.upstream)
    status, body = state.surface.error(error, status=status, request_id=state.id)
    response = json_response(body, status=status)
    retry_after_s = capped_retry_after(error.retry_after_s)
    if retry_after_s is not None:
        # Whole seconds are all that it may hold, and never too few:
        # https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
        response.headers["Retry-After"] = str(math.ceil(retry_after_s))
    if response.status == 401:
        # https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1
        response.headers["WWW-Authenticate"] = "Bearer"
    if state.retries:
        # SDKs would try twice more what was tried again here already:
        # https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py
        response.headers["x-should-retry"] = "false"
    # The rest of a body that nobody reads would be taken for the next request.
    if not state.http.content.at_eof() or isinstance(error, Draining | NoWebSocket):
        response.force_close()
    return response


def _status(error: GatewayError, *, client_key: bool) -> int:
    if isinstance(error, UpstreamRejected):
        status = error.upstream_status
        if status in KEPT_STATUSES or (client_key and status in CREDENTIAL_STATUSES):
            return status
    return error.status


def _nothing_more(state: RequestState) -> web.StreamResponse:
    """A cut is the only way left to say that the answer is not whole."""
    state.cut()
    return web.Response(status=ABANDONED_STATUS)
