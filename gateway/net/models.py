"""The upstream's models, each with what the gateway would do with it."""

import math
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import web

from gateway.core.errors import UnknownModel, UpstreamBadReply
from gateway.net.attempts import open_reply, upstream_headers
from gateway.net.middleware import json_response
from gateway.net.turn import Turn

__all__ = ["list_models", "one_model"]

PREFIX = "/v1/models/"


async def list_models(turn: Turn) -> web.StreamResponse:
    """`GET /v1/models`."""
    listing = await _listing(turn)
    listing["data"] = [_described(turn, entry) for entry in _entries(listing)]
    return await turn.send(json_response(msgspec.json.encode(listing)))


async def one_model(turn: Turn) -> web.StreamResponse:
    """`GET /v1/models/{id}`, looked up in the list, as many servers have no such route."""
    wanted = unquote(turn.http.rel_url.raw_path.removeprefix(PREFIX))
    for entry in _entries(await _listing(turn)):
        if entry.get("id") == wanted:
            return await turn.send(json_response(msgspec.json.encode(_described(turn, entry))))
    raise UnknownModel("the model does not exist", param="model")


async def _listing(turn: Turn) -> dict[str, Any]:
    settings = turn.configuration.settings
    headers = upstream_headers(turn)
    headers["Accept"] = "application/json"
    headers["Accept-Encoding"] = "identity"
    reply = await open_reply(turn, "GET", turn.configuration.models_url, headers=headers)
    with reply:
        body = await reply.read_all(
            first_due=turn.upstream_started + settings.first_byte_timeout_s,
            idle_s=settings.idle_timeout_s,
            total_due=turn.upstream_started + settings.total_timeout_s,
        )
    try:
        listing = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UpstreamBadReply("the model server's list of models is not JSON") from error
    if not isinstance(listing, dict) or not isinstance(listing.get("data"), list):
        raise UpstreamBadReply("the model server's list of models has no data")
    return listing


def _entries(listing: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in listing["data"] if isinstance(entry, dict)]


def _described(turn: Turn, entry: dict[str, Any]) -> dict[str, Any]:
    given = entry.get("id")
    model = given if isinstance(given, str) else ""
    told: dict[str, Any] = {
        "strategy": turn.configuration.strategy_of(model, turn.capability(model)),
        "upstream": turn.configuration.upstream,
    }
    lesson = turn.lesson(model)
    if lesson is not None:
        seconds_left = math.ceil(lesson.until - turn.patience.now())
        told["learned"] = {"native_tools": False, "reason": lesson.reason, "seconds_left": seconds_left}
    return {**entry, "toolgate": told}
