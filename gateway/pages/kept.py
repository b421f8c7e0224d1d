"""Answers that are kept for clients of the Responses API: asked for by their ids, and forgotten on demand.

Ids of another form are a model server's own: whoever keeps answers there finds them there.
"""

from typing import Any

import msgspec
from aiohttp import web

from gateway.core.errors import InvalidRequest, NotFound, NoWebSocket
from gateway.pages.relay import ask_speakers
from gateway.request.responses import json_response
from gateway.request.state import RequestState
from gateway.surfaces.responses.stored import entry_of, is_own_id, listed_items, not_found, stored_key
from gateway.upstream.translated import client_scope

__all__ = ["PREFIX", "kept", "no_socket"]

PREFIX = "/v1/responses/"


async def kept(state: RequestState) -> web.StreamResponse:
    """`GET` and `DELETE /v1/responses/{id}`, `GET` its `input_items`, and `POST` to its `cancel`."""
    response_id, _, part = state.http.path.removeprefix(PREFIX).partition("/")
    try:
        return await _kept_here(state, response_id, part)
    except (NotFound, InvalidRequest):
        elsewhere = None if is_own_id(response_id) else await ask_speakers(state)
        if elsewhere is None:
            raise
        return elsewhere


async def _kept_here(state: RequestState, response_id: str, part: str) -> web.StreamResponse:
    match state.http.method, part:
        case "GET" | "HEAD", "":
            told = (await _entry(state, response_id))["response"]
        case "GET" | "HEAD", "input_items":
            told = listed_items((await _entry(state, response_id))["input"], state.http.query)
        case "DELETE", "":
            await _entry(state, response_id)
            await _forget(state, response_id)
            told = {"id": response_id, "object": "response", "deleted": True}
        case "POST", "cancel":
            raise InvalidRequest("no answer is made in the background here, so none can be cancelled")
        case _:
            raise not_found(response_id)
    return await state.send(json_response(msgspec.json.encode(told)))


async def no_socket(state: RequestState) -> web.StreamResponse:
    """`GET /v1/responses`: Codex asks for a web socket first, and goes on without one when it is told so at once.

    https://github.com/openai/codex/blob/main/codex-rs/codex-api/src/endpoint/responses_websocket.rs
    """
    if state.http.headers.get("Upgrade", "").lower() == "websocket":
        raise NoWebSocket("answers are streamed over HTTP: POST /v1/responses")
    raise not_found("")


async def _entry(state: RequestState, response_id: str) -> dict[str, Any]:
    key = stored_key(client_scope(state), response_id)
    entry = entry_of((await state.shared.sessions.recall(key)).get(key))
    if entry is None:
        raise not_found(response_id)
    return entry


async def _forget(state: RequestState, response_id: str) -> None:
    key = stored_key(client_scope(state), response_id)
    await state.shared.sessions.remember({key: b""}, max(state.configuration.settings.responses_ttl_s, 1.0))
