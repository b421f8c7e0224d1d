"""Everything else under `/v1`: relayed to the default upstream as it is, both ways, neither read nor held."""

import re
from collections.abc import AsyncIterator
from unicodedata import normalize
from urllib.parse import unquote

from aiohttp import web
from yarl import URL

from gateway.core.errors import NotFound, UpstreamTimeout
from gateway.request.headers import lines_of, response_headers
from gateway.request.responses import Streamed, Whole
from gateway.request.state import RequestState
from gateway.traffic.absent_paths import ABSENT_STATUSES
from gateway.upstream.attempts import open_reply, upstream_headers
from gateway.upstream.client import UpstreamReply, error_body

__all__ = ["ask_speakers", "relay", "relay_messages"]

PREFIX = "/v1"
MAX_DECODED = 4
"""A path that is encoded more often hides something."""
_ODD = re.compile(r"[\x00-\x1f\x7f]|%u[0-9a-fA-F]{4}")
"""Where one server ends a path, or decodes it in a way of its own, and another does not."""
_BLANK = "".join(map(chr, range(33)))


async def relay(state: RequestState) -> web.StreamResponse:
    """Any method, path and query under `/v1`; the upstream's status, headers and body."""
    http = state.http
    url = _url(state.upstream.base_url, http)
    headers = upstream_headers(state, same_wire=True)
    headers["Accept-Encoding"] = http.headers.get("Accept-Encoding", "identity")
    body = None
    if http.can_read_body:
        # The first piece is waited for here, where a refusal is still the client's to see.
        body = _chained(await anext(pieces := state.body(), b""), pieces)
        if http.content_length is not None and "Content-Encoding" not in http.headers:
            headers["Content-Length"] = str(http.content_length)
    reply = await open_reply(
        state, http.method, url, lines=lines_of(headers.items()), body=body, relayed=True, repeatable=body is None
    )
    return await _passed_on(state, reply)


async def ask_speakers(state: RequestState) -> web.StreamResponse | None:
    """The answer of the first server that speaks the client's wire and has what is asked for, if one does."""
    http, wire = state.http, state.surface.name
    body = await state.read_body() if http.can_read_body else None
    for upstream in state.configuration.upstreams.values():
        if not upstream.speaks(wire) or state.shared.absent_paths.has(upstream.name, wire, state.deadline.now()):
            continue
        state.upstream = upstream
        headers = upstream_headers(state, same_wire=True)
        headers["Accept-Encoding"] = http.headers.get("Accept-Encoding", "identity")
        url = _url(upstream.base_url, http)
        reply = await open_reply(
            state, http.method, url, lines=lines_of(headers.items()), body=body, relayed=True, repeatable=False
        )
        if reply.status not in ABSENT_STATUSES:
            return await _passed_on(state, reply)
        reply.close()
    return None


async def _passed_on(state: RequestState, reply: UpstreamReply) -> web.StreamResponse:
    with reply:
        return await (_fault(state, reply) if reply.status >= 400 else _download(state, reply))


async def relay_messages(state: RequestState) -> web.StreamResponse:
    """What is deeper under `/v1/messages`: for servers that speak that wire themselves."""
    if not state.upstream.speaks(state.surface.name):
        raise NotFound("the model server has no such path: it does not speak Messages")
    return await relay(state)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _url(base_url: URL, http: web.BaseRequest) -> URL:
    target = http.rel_url
    if _climbs(target.raw_path):
        raise NotFound("there is nothing at this path")
    path = base_url.raw_path.rstrip("/") + target.raw_path.removeprefix(PREFIX)
    query = f"?{target.raw_query_string}" if target.raw_query_string else ""
    return URL(f"{base_url.origin()}{path}{query}", encoded=True)


def _climbs(path: str) -> bool:
    """Somebody behind the gateway may read the path as one that leaves the API.

    Servers differ in what parts a path and what ends a part: a backslash (IIS), parameters behind a semicolon (Tomcat,
    https://tomcat.apache.org/security-9.html#Fixed_in_Apache_Tomcat_9.0.31), and how often they decode it.
    """
    for _ in range(MAX_DECODED):
        path = normalize("NFKC", path)  # IIS takes letters of another width for the plain ones
        parts = re.split(r"[/\\]", path)
        if _ODD.search(path) or any(part.partition(";")[0].strip(_BLANK) in (".", "..") for part in parts):
            return True
        try:
            decoded = unquote(path, errors="strict")
        except UnicodeDecodeError:  # too long a form of a dot or a slash, perhaps
            return True
        if decoded == path:
            return False
        path = decoded
    return True


async def _fault(state: RequestState, reply: UpstreamReply) -> web.StreamResponse:
    """The upstream's error as it is, the gateway's own secrets masked."""
    body = await error_body(reply, state.deadline)
    response = Whole(
        state.upstream.masked(body),
        status=reply.status,
        headers=response_headers(reply.headers, also_dropped=frozenset({"content-length"})),
    )
    return await state.send(response)


async def _download(state: RequestState, reply: UpstreamReply) -> web.StreamResponse:
    response = Streamed(status=reply.status, headers=response_headers(reply.headers))
    for kept in ("Cache-Control", "Content-Length"):
        if kept in reply.headers:
            response.headers[kept] = reply.headers[kept]
    if reply.content_type == "text/event-stream":
        # https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering
        response.headers["X-Accel-Buffering"] = "no"
    state.start(response)
    total_due = state.upstream_started + state.upstream.total_timeout_s
    due = state.upstream_started + state.upstream.first_byte_timeout_s
    while True:
        if not reply.is_ready:
            state.flush()
        try:
            data = await reply.read(min(due, total_due))
        except TimeoutError:
            raise UpstreamTimeout("the model server took too long for its whole answer") from None
        if not data:
            break
        now = state.deadline.now()
        if state.upstream_first is None:
            state.upstream_first = state.first_sent = now
        due = now + state.upstream.idle_timeout_s
        await state.write(response, data)
    await state.end(response)
    return response
