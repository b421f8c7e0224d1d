"""The models of all upstreams, each with what the gateway would do with it."""

import asyncio
import math
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec
import structlog
from aiohttp import web
from msgspec.structs import replace

from gateway.core.call_class import CallClass
from gateway.core.errors import GatewayError, UnknownModel, UpstreamBadReply
from gateway.request.deadline import Deadline
from gateway.request.headers import lines_of
from gateway.request.responses import json_response
from gateway.request.servers import Upstream
from gateway.request.state import RequestState
from gateway.traffic.routing import Route
from gateway.upstream.attempts import open_reply, upstream_headers

__all__ = ["list_models", "one_model"]

PREFIX = "/v1/models/"
ANTHROPIC = "anthropic-version"
"""With this header a client asks for Anthropic's form of a list (Claude Code, where it looks for models)."""
GLOB = frozenset("*?[")

log = structlog.get_logger("toolgate")

Listing = dict[str, Any]
_LAST_YEAR = 1 << 36
_MOST = 10_000
"""Entries beyond these stand in a list as they came: no real one is nearly as long."""
_TURN = 50
"""After so many entries others have their turn."""
_UNKNOWN = datetime.fromtimestamp(0, UTC)


async def list_models(state: RequestState) -> web.StreamResponse:
    """`GET /v1/models`."""
    listing = await _all(state)
    data = listing["data"]
    for at in range(min(_MOST, len(data))):
        data[at] = _described(state, data[at])
        if at % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    if ANTHROPIC in state.http.headers:
        listing = _as_anthropic(listing)
    return await state.send(json_response(msgspec.json.encode(listing)))


async def one_model(state: RequestState) -> web.StreamResponse:
    """`GET /v1/models/{id}`, looked up in the lists, as many servers have no such route."""
    wanted = unquote(state.http.rel_url.raw_path.removeprefix(PREFIX))
    for entry in (await _all(state))["data"]:
        if entry.get("id") == wanted:
            entry = _described(state, entry)
            entry = _anthropic_model(entry) if ANTHROPIC in state.http.headers else entry
            return await state.send(json_response(msgspec.json.encode(entry)))
    raise UnknownModel("the model does not exist", param="model")


def _as_anthropic(listing: Listing) -> Listing:
    """The list in the form of https://docs.anthropic.com/en/api/models-list, in one page."""
    data = [_anthropic_model(entry) for entry in listing["data"] if isinstance(entry.get("id"), str)]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return {"data": data, "has_more": False, **ends}


def _anthropic_model(entry: Listing) -> Listing:
    created, shown = entry.get("created"), entry.get("display_name")
    made = datetime.fromtimestamp(created, UTC) if type(created) is int and 0 <= created < _LAST_YEAR else _UNKNOWN
    return {
        "type": "model",
        "id": entry["id"],
        "display_name": shown if isinstance(shown, str) else entry["id"],
        "created_at": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "toolgate": entry.get("toolgate"),
    }


async def _all(state: RequestState) -> Listing:
    """The lists of all upstreams as one; an upstream that does not answer is left out while another one does."""
    upstreams = list(state.configuration.upstreams.values())
    lists = await _asked(state, upstreams)
    found = [listing for listing in lists if not isinstance(listing, GatewayError)]
    if not found:
        raise next(fault for fault in lists if isinstance(fault, GatewayError))
    merged: dict[object, Listing] = {}
    for listing in found:
        for entry in listing["data"]:
            model = entry.get("id")
            # A name that several upstreams have is listed once: routing says which of them answers to it.
            merged.setdefault(model if isinstance(model, str) else id(entry), entry)
    for name in _aliases(state):
        merged.setdefault(name, {"id": name, "object": "model", "owned_by": "toolgate"})
    return {**found[0], "data": list(merged.values())}


async def _asked(state: RequestState, upstreams: list[Upstream]) -> list[Listing | GatewayError]:
    if len(upstreams) == 1:
        return [await _listing(state, upstreams[0])]
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(_answer(state, upstream)) for upstream in upstreams]
    return [each.result() for each in asking]


async def _answer(state: RequestState, upstream: Upstream) -> Listing | GatewayError:
    """The list or what kept it from coming: one upstream's fault must not end the asking of the others."""
    deadline = Deadline()
    try:
        return await _listing(replace(state, deadline=deadline), upstream)
    except GatewayError as error:
        log.info("models_unavailable", upstream=upstream.name, error=error.code)
        return error
    finally:
        deadline.close()


async def _listing(state: RequestState, upstream: Upstream) -> Listing:
    state.upstream = upstream
    ask = upstream.kind.models_ask()
    headers = upstream_headers(state)
    headers.update(ask.headers)
    headers["Accept"] = "application/json"
    # The list is read here, and small: nothing is gained by packing it.
    headers["Accept-Encoding"] = "identity"
    reply = await open_reply(
        state, ask.method, upstream.url(ask), lines=lines_of(headers.items()), body=ask.body or None
    )
    with reply:
        body = await reply.read_all(**state.deadlines)
    try:
        listing = msgspec.json.decode(upstream.kind.models(body))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UpstreamBadReply("the model server's list of models is not JSON") from error
    if not isinstance(listing, dict) or not isinstance(listing.get("data"), list):
        raise UpstreamBadReply("the model server's list of models has no data")
    return {**listing, "data": [entry for entry in listing["data"] if isinstance(entry, dict)]}


def _aliases(state: RequestState) -> list[str]:
    """Names that exist by a rule alone."""
    rules = state.configuration.settings.routes.models
    return [rule.match for rule in rules if rule.send_as is not None and GLOB.isdisjoint(rule.match)]


def _described(state: RequestState, entry: Listing) -> Listing:
    given = entry.get("id")
    model = given if isinstance(given, str) else ""
    try:
        route = state.configuration.router.route(model)
    except UnknownModel:
        route = Route(upstreams=(state.configuration.default.name,))
    name, sent = route.upstreams[0], route.send_as or model
    upstream = state.upstream = state.configuration.upstreams[name]
    told: dict[str, Any] = {
        "strategy": state.configuration.strategy_of(sent, state.capability(model), upstream.kind.name, asked=model),
        "upstream": name,
    }
    if len(state.configuration.upstreams) > 1 or upstream.row.is_translated:
        told["kind"] = upstream.kind.name
    if state.shared.breaker(name).state != "closed":
        told["healthy"] = False
    calls = state.shared.valid_calls.of(name, model)
    if calls:
        rate = calls.get(CallClass.VALID, 0) / sum(calls.values())
        by_class = {each.value: calls.get(each, 0) for each in CallClass}
        told["structured_calls"] = {**by_class, "valid_rate": round(rate, 4)}
    lesson = state.lesson(model)
    if lesson is not None:
        now = state.deadline.now()
        since = datetime.fromtimestamp(state.shared.wall() - (now - lesson.since), UTC)
        seconds_left = math.ceil(lesson.until - now)
        told["learned"] = {
            "since": since.isoformat(timespec="seconds"),
            "native_tools": lesson.is_native,
            "reason": lesson.reason,
            "rule": lesson.rule,
            "seconds_left": seconds_left,
        }
    cut = state.shared.context_cuts.of(name, model)
    if cut is not None:
        told["context_cut"] = {"tokens_read": cut.at} | ({"tokens_sent": cut.sent} if cut.sent else {})
    return {**entry, "toolgate": told}
