"""The surface of OpenAI's Responses: `POST /v1/responses` and `POST /v1/responses/compact`."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from attrs import frozen
from msgspec.structs import replace

from gateway.core.errors import GatewayError, InvalidRequest
from gateway.core.ports import Memory
from gateway.surfaces.checks import MAX_ITEMS
from gateway.surfaces.past import tell_all
from gateway.surfaces.port import Asked, Situation, Telling
from gateway.surfaces.responses.ask import (
    chat_fields,
    decoded_request,
    input_items,
    refuse_vendors_own,
    session_of,
    shared_members,
    unsent,
)
from gateway.surfaces.responses.carrier import ResponsesCarrier
from gateway.surfaces.responses.compaction import INSTRUCTION, CompactionTelling
from gateway.surfaces.responses.errors import error_of
from gateway.surfaces.responses.items import History
from gateway.surfaces.responses.stored import Keeping, Shelf, has_references
from gateway.surfaces.responses.telling import ResponsesTelling, Terms
from gateway.surfaces.responses.tools import Declared, declared_tools, readable_tools
from gateway.surfaces.seals import Seals
from gateway.surfaces.turns import Turns, text_part
from gateway.wire.chat_request import ChatRequest, request_of

__all__ = ["COMPACT", "RESPONSES", "ResponsesSurface", "is_input_alone"]

_TRIGGER = "compaction_trigger"
_SEALED = "reasoning.encrypted_content"


@frozen
class ResponsesSurface:
    """`POST /v1/responses`."""

    name: str = "responses"
    path: str = "responses"
    is_identity: bool = False
    compacts: bool = False
    """It is asked for a summary alone."""

    def accept(self, raw: bytes, situation: Situation, known: Mapping[str, bytes]) -> Asked:
        body = decoded_request(raw)
        try:
            return self._asked(body, situation, known)
        except GatewayError as error:
            return self._refused(body, situation, error)

    def _asked(self, body: dict[str, Any], situation: Situation, known: Mapping[str, bytes]) -> Asked:
        refuse_vendors_own(body)
        own = input_items(body)
        shelf = Shelf(scope=situation.scope, known=known, keeping=Keeping.by(situation.options))
        previous = body.get("previous_response_id")
        before: list[Any] = []
        chain: list[str] = []
        resolved = own
        # Most requests bring all of their conversation themselves.
        if previous is not None or has_references(own):
            wanted = shelf.wanted(previous, own)
            if wanted:
                return Asked(request=_NOTHING, tell=_no_telling, recall=wanted)
            before, chain = shelf.chain(previous)
            resolved = shelf.resolved(own)
        items = [*before, *resolved] if before else resolved
        if len(items) > MAX_ITEMS:
            raise InvalidRequest(f"input holds more than {MAX_ITEMS} items", param="input")
        asked = self._accepted(body, resolved, items, chain, shelf, situation)
        return replace(asked, is_bound=True) if chain or resolved != own else asked

    def _refused(self, body: dict[str, Any], situation: Situation, error: GatewayError) -> Asked:
        """A request that has no form in chat: a server that speaks its wire may take it all the same.

        What of it can be read stands in its place, so that its answer can be.
        """
        given = body.get("input")
        items = given if isinstance(given, list) else [{"role": "user", "content": given}]
        declared = readable_tools(body, items)
        turns = Turns(late_system="user", keeps="turn")
        history = History(turns=turns, names=declared.names, seals=Seals(situation.secret, situation.scope))
        for item in items[:MAX_ITEMS]:
            with suppress(GatewayError):
                history.add(item, "input")
        fields: dict[str, Any] = {"messages": turns.finished().messages or [{"role": "user", "content": ""}]}
        if declared.functions:
            fields["tools"] = declared.functions
        terms = Terms(
            unique=situation.unique,
            created=int(situation.now),
            shared=shared_members(body),
            names=declared.names,
        )
        return Asked(
            request=request_of({"model": body["model"], **fields, "stream": body.get("stream") is True}),
            tell=partial(ResponsesTelling, terms),
            refusal=error,
            conversation=session_of(body, situation.headers),
            carry=partial(ResponsesCarrier, partial(ResponsesTelling, terms)),
        )

    def _accepted(
        self,
        body: dict[str, Any],
        own: list[Any],
        items: list[Any],
        chain: list[str],
        shelf: Shelf,
        situation: Situation,
    ) -> Asked:
        compacts = self.compacts or _has_trigger(items)
        declared = declared_tools(body, items, offered=not compacts)
        seals = Seals(situation.secret, situation.scope)
        dropped = unsent(body) + declared.dropped
        request, mended = _chat_request(body, items, declared, situation, seals, dropped, compacts=compacts)
        stores = shelf.keeping.ttl_s > 0 and body.get("store") is not False and not compacts
        include = body.get("include")
        seals_thoughts = isinstance(include, list) and _SEALED in include
        keep: Callable[[ResponsesTelling], tuple[Memory, ...]] | None = None
        if stores:
            keep = partial(shelf.keep, unique=situation.unique, items=own, chain=chain)
        terms = Terms(
            unique=situation.unique,
            created=int(situation.now),
            shared=shared_members(body),
            names=declared.names,
            seals=seals if seals_thoughts else None,
            keep=keep,
        )
        return Asked(
            request=request,
            tell=(
                partial(CompactionTelling, terms, seals, is_asked_alone=self.compacts)
                if compacts
                else partial(ResponsesTelling, terms)
            ),
            conversation=session_of(body, situation.headers),
            dropped=tuple(dropped),
            mended=mended,
            left_out=tuple(declared.left_out),
            is_bound=seals.has_met_one,
            carry=partial(ResponsesCarrier, partial(ResponsesTelling, terms)),
        )

    def error(self, error: GatewayError, *, status: int, request_id: str) -> tuple[int, bytes]:
        del request_id
        return error_of(error, status=status)

    def head(self, request_id: str) -> Mapping[str, str]:
        del request_id
        return _NO_HEADERS


def _chat_request(
    body: dict[str, Any],
    items: list[Any],
    declared: Declared,
    situation: Situation,
    seals: Seals,
    dropped: list[str],
    *,
    compacts: bool,
) -> tuple[ChatRequest, tuple[str, ...]]:
    """The chat request, and what was mended in it."""
    server = situation.server(body["model"])
    turns = Turns(late_system=server.late_system, keeps=server.history_reasoning)
    instructions = body.get("instructions")
    if isinstance(instructions, str):
        turns.lead(instructions)
    elif isinstance(instructions, list):  # as the API gives them back where a prompt was used
        items = [*instructions, *items]
    history = History(turns=turns, names=declared.names, seals=seals, dropped=dropped)
    tell_all(history, items, "input", server)
    if compacts:
        turns.user([text_part(INSTRUCTION)])
    told = turns.finished()
    if not told.messages:
        raise InvalidRequest("the input holds nothing to answer", param="input")
    fields = chat_fields(body, declared, server)
    if compacts:
        # A summary in the form of the client's schema would be none.
        fields.pop("response_format", None)
    request = request_of({"model": body["model"], "messages": told.messages, **fields}, told.written)
    return request, tuple(turns.mended)


def _has_trigger(items: list[Any]) -> bool:
    last = items[-1] if items else None
    return isinstance(last, dict) and last.get("type") == _TRIGGER


def is_input_alone(raw: bytes) -> bool:
    """Whether what came for chat is in truth a request in this wire."""
    try:
        body = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and "messages" not in body and isinstance(body.get("input"), str | list)


def _no_telling() -> Telling:
    raise NotImplementedError


_NOTHING = request_of({"model": "-", "messages": [{"role": "user", "content": ""}]})
"""Stands for a request that cannot be read before the store was asked."""
_NO_HEADERS: Mapping[str, str] = {}
RESPONSES = ResponsesSurface()
COMPACT = ResponsesSurface(path="responses/compact", compacts=True)
