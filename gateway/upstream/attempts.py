"""Asking the model server: the breaker before each attempt, at most one repetition, an error for all but 2xx."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog
from multidict import CIMultiDict
from yarl import URL

from gateway.core.errors import (
    GatewayError,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamRefused,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.request.headers import request_headers
from gateway.request.state import RequestState
from gateway.upstream.client import UpstreamCall, UpstreamReply, rejection

__all__ = ["open_reply", "upstream_headers"]

# 529 is Anthropic's word for 503: https://docs.anthropic.com/en/api/errors
GATEWAY_STATUSES = frozenset({502, 503, 504, 529})
"""These speak of the server, not of the request: one bad prompt answered with 500 must not shut others out."""

Refused = Callable[[UpstreamReply], Awaitable[UpstreamError]]

log = structlog.get_logger("toolgate")


def upstream_headers(state: RequestState) -> CIMultiDict[str]:
    """The headers of a request that goes upstream for this client."""
    upstream = state.upstream
    # Another kind of server wants the client's own key under another name.
    translates = upstream.forwards_credentials and upstream.row.is_translated
    key = state.bearer if translates else upstream.api_key
    return request_headers(
        state.http.headers,
        id=state.id,
        credentials=upstream.kind.credentials(key, upstream.cookies),
        forward_credentials=upstream.forwards_credentials and not translates,
    )


async def open_reply(
    state: RequestState,
    method: str,
    url: URL,
    *,
    headers: CIMultiDict[str],
    body: Any = None,
    relayed: bool = False,
    repeatable: bool = True,
    refused: Refused | None = None,
) -> UpstreamReply:
    """An answer of status 2xx, its body unread; raises what the last attempt came to.

    `relayed`: the body is left as it is encoded, and an error status is the client's to see. `refused` says of an
    error status what it means, where that is not told in OpenAI's words.
    """
    settings = state.configuration.settings
    call = UpstreamCall(
        method=method,
        url=url,
        headers=headers,
        body=body,
        connect_timeout_s=state.upstream.connect_timeout_s,
        first_byte_timeout_s=state.upstream.first_byte_timeout_s,
        max_reply_bytes=None if relayed else settings.max_reply_bytes,
        decode=not relayed,
    )
    try:
        return await _attempt(state, call, keep_errors=relayed, refused=refused)
    except GatewayError as error:
        # A POST that may have been read is never sent again, as nobody pays twice for an answer.
        # https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
        wait_s = state.shared.retry.wait_s(error, attempt=1, jitter=state.shared.jitter()) if repeatable else None
        if wait_s is None or not state.shared.budget.take(state.shared.admission.active):
            raise
        reason = error.code
    try:
        await _pause(state, wait_s)
        state.retries += 1
        log.info("request_retried", reason=reason, wait_s=round(wait_s, 3))
        state.shared.telemetry.count(
            "toolgate_upstream_retries_total", {"upstream": state.upstream.name, "reason": reason}
        )
        return await _attempt(state, call, keep_errors=relayed, refused=refused)
    finally:
        state.shared.budget.give_back()


async def _attempt(
    state: RequestState, call: UpstreamCall, *, keep_errors: bool, refused: Refused | None
) -> UpstreamReply:
    breaker = state.shared.breaker(state.upstream.name)
    deadline = state.deadline
    probe = breaker.admit(deadline.now())
    healthy: bool | None = None
    state.upstream_started = deadline.now()
    try:
        reply = await _sent(state, call, keep_errors=keep_errors, refused=refused)
        healthy = reply.status not in GATEWAY_STATUSES
        return reply
    except UpstreamError as error:
        healthy = not _speaks_of_server(error)
        raise
    finally:
        breaker.report(deadline.now(), probe=probe, healthy=healthy)
        _measure(state)


def _measure(state: RequestState) -> None:
    telemetry = state.shared.telemetry
    upstream = state.upstream.name
    is_open = state.shared.breaker(upstream).state != "closed"
    telemetry.count("toolgate_upstream_requests_total", {"upstream": upstream, "code": state.upstream_code})
    telemetry.set("toolgate_upstream_breaker_open", {"upstream": upstream}, float(is_open))


async def _sent(
    state: RequestState, call: UpstreamCall, *, keep_errors: bool, refused: Refused | None
) -> UpstreamReply:
    key_is_ours = not state.upstream.forwards_credentials
    state.upstream_status = None
    reply: UpstreamReply = await state.shared.client.send(call, state.deadline)
    state.upstream_status = reply.status
    if 200 <= reply.status < 300:
        return reply
    if keep_errors and reply.status >= 400 and not (key_is_ours and reply.status in (401, 403)):
        return reply
    with reply:
        if refused is not None and reply.status >= 400:
            raise await refused(reply)
        raise await rejection(reply, deadline=state.deadline, mask=state.upstream.masked, key_is_ours=key_is_ours)


def _speaks_of_server(error: UpstreamError) -> bool:
    if isinstance(error, UpstreamRejected):
        return error.upstream_status in GATEWAY_STATUSES
    return isinstance(error, UpstreamRefused | UpstreamDisconnected | UpstreamTimeout)


async def _pause(state: RequestState, seconds: float) -> None:
    with suppress(TimeoutError):
        await state.deadline.within(state.deadline.now() + seconds, asyncio.get_running_loop().create_future())
