"""A client's request in whatever wire it speaks, as the chat request that everything else works with."""

from typing import Literal

import structlog
from msgspec.structs import replace

from gateway.core.errors import InvalidRequest
from gateway.core.rules import ModelRule
from gateway.request.servers import Upstream
from gateway.request.state import RequestState
from gateway.request.unguessed import Unguessed
from gateway.surfaces.chat import telling
from gateway.surfaces.port import Asked, Server, Situation, Surface
from gateway.surfaces.responses.surface import RESPONSES, is_input_alone
from gateway.traffic.routing import Route
from gateway.upstream.translated import client_scope

__all__ = ["accept", "begin_answer", "count_path", "count_unsaid", "keep_answer"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
# 62 does not divide 256: a few letters come a little more often, which among so many does no harm.
_LETTER_OF = bytes(ord(_LETTERS[each % len(_LETTERS)]) for each in range(256))
_IN_NAMES = frozenset(_LETTERS + "_-.")
_MOST_TOLD = 32
_LONGEST_TOLD = 64
_unique = Unguessed(24, lambda raw: raw.translate(_LETTER_OF).decode())
"""What the ids of an answer are made of."""
_MOST_LOOKUPS = 520
"""Of the session store for one request: a chain of answers may be this long."""

log = structlog.get_logger("toolgate")


async def accept(state: RequestState, raw: bytes, upstream: Upstream | None = None) -> Asked:
    """The request that `raw` is, for the server that its model is routed to or, where that failed, for another."""
    surface = state.surface
    if surface.is_identity:
        try:
            return surface.accept(raw, _NO_SITUATION, {})
        except InvalidRequest as error:
            if error.param != "messages" or not is_input_alone(raw):
                raise
        # Cursor sends chat's path such requests: https://github.com/BerriAI/litellm/issues/34029
        asked = await _recalled(RESPONSES, state, raw, upstream)
        if asked.refusal is not None:  # it is asked in chat and in nothing else
            raise asked.refusal
        return replace(asked, tell=telling)
    return await _recalled(surface, state, raw, upstream)


async def _recalled(surface: Surface, state: RequestState, raw: bytes, upstream: Upstream | None) -> Asked:
    """The request that `raw` is, with what the session store knows of its conversation."""
    situation = _situation(state, raw, upstream)
    known: dict[str, bytes] = {}
    asked = surface.accept(raw, situation, known)
    for _ in range(_MOST_LOOKUPS):
        if not asked.recall:
            return asked
        found = await state.shared.sessions.recall(*asked.recall)
        # An empty value says that it was looked for and is not there: it is not asked for again.
        known |= {key: b"" for key in asked.recall} | found
        asked = surface.accept(raw, situation, known)
    raise InvalidRequest("the conversation is too long a chain of answers")


def begin_answer(state: RequestState, asked: Asked) -> None:
    """How this answer will be told, from its beginning; what was left out of the request is said and counted."""
    if asked.refusal is not None:
        raise asked.refusal
    state.telling = asked.tell()
    state.found.answer_id = state.telling.answer_id
    telemetry, name = state.shared.telemetry, state.surface.name
    for what in asked.dropped:
        telemetry.count("toolgate_surface_dropped_total", {"surface": name, "what": what})
    for what in asked.mended:
        telemetry.count("toolgate_surface_mended_total", {"surface": name, "what": what})
    if asked.left_out:
        state.told["X-Toolgate-Dropped"] = ", ".join(_plain(name) for name in asked.left_out[:_MOST_TOLD])


def count_unsaid(state: RequestState) -> None:
    """Take down what of the answer the client was not told."""
    for metric, told in (("dropped", state.telling.dropped), ("mended", state.telling.mended)):
        for what, times in told.items():
            labels = {"surface": state.surface.name, "what": what}
            state.shared.telemetry.count(f"toolgate_surface_{metric}_total", labels, times)


async def keep_answer(state: RequestState) -> None:
    """Keep what later requests need of an answer that is complete, before its client can send them."""
    try:
        for memory in state.telling.remember():
            await state.shared.sessions.remember({memory.key: memory.value}, memory.ttl_s)
    except Exception:  # the answer is there: that a later one lacks its past is the smaller harm
        log.exception("answer_not_kept", surface=state.surface.name)


def _plain(name: str) -> str:
    """A client's word in the letters that a header can hold."""
    return "".join(each if each in _IN_NAMES else "_" for each in name[:_LONGEST_TOLD])


def count_path(state: RequestState, path: Literal["same_wire", "converted"]) -> None:
    """Take down how a client of another wire is answered."""
    labels = {"surface": state.surface.name, "kind": state.upstream.kind.name, "path": path}
    state.shared.telemetry.count("toolgate_surface_path_total", labels)


def _situation(state: RequestState, raw: bytes, upstream: Upstream | None) -> Situation:
    configuration = state.configuration
    settings = configuration.settings

    def server(model: str) -> Server:
        route = configuration.router.route(model)
        chosen = configuration.upstreams[route.upstreams[0]] if upstream is None else upstream
        return _server(state, chosen, route, model, size=len(raw))

    return Situation(
        now=state.shared.wall(),
        request_id=state.id,
        unique=_unique(),
        secret=state.shared.secret,
        scope=client_scope(state),
        server=server,
        headers=state.http.headers,
        options={
            "responses_ttl_s": settings.responses_ttl_s,
            "responses_max_bytes": settings.responses_max_bytes,
            "audit_bodies": settings.audit_bodies,
        },
    )


def _server(state: RequestState, upstream: Upstream, route: Route, model: str, *, size: int) -> Server:
    caps, learned = state.shared.output_caps, None
    if caps.any_known and (cap := caps.recall(upstream.name, model, state.deadline.now())) is not None:
        prompt, _ = state.shared.token_ratios.tokens(upstream.name, model, size)
        learned = cap.most(prompt)
    most = upstream.max_output_tokens or None
    # What refusals have taught may only shorten what an operator has set.
    if learned and (most is None or learned < most):
        most = learned
    rule = route.rule or _NO_RULE
    return Server(
        knows_messages=upstream.row.knows_messages,
        late_system=upstream.late_system,
        max_output_tokens=most,
        keeps_cache_control=upstream.cache_control == "keep" or upstream.row.knows_messages,
        history_reasoning=rule.history_reasoning,
        takes_effort=upstream.row.takes_effort or None if rule.reasoning_effort is None else rule.reasoning_effort,
        takes_verbosity=rule.verbosity,
        thinking=rule.thinking,
    )


_NO_RULE = ModelRule(match="*")
_NO_SITUATION = Situation(now=0.0, request_id="", unique="", secret=b"", scope="")
"""For the surface that looks at none."""
