"""Answers that may be shorter than a client asks for: what its model can give is learned from its server's refusals."""

import msgspec
import structlog

from gateway.core.errors import UpstreamRejected
from gateway.request.state import RequestState
from gateway.surfaces.too_long import words_of
from gateway.traffic.output_caps import cap_in
from gateway.upstream.translated import ChatReply, open_chat
from gateway.wire.chat_request import ChatRequest

__all__ = ["open_within"]

# The newer name is refused by older servers and the older one by newer models, so requests hold either.
_LIMITS = ("max_tokens", "max_completion_tokens")
_STATUSES = frozenset({400, 413, 422})

log = structlog.get_logger("toolgate")


async def open_within(state: RequestState, body: bytes, *, stream: bool, original: ChatRequest) -> ChatReply:
    """The answer's head; where the server refuses only its length, that of one that it can give, asked once more."""
    try:
        return await open_chat(state, body, stream=stream, original=original)
    except UpstreamRejected as error:
        # A client of chat names the length for this model; those of other wires ask for the same whatever the model is.
        shorter = None if state.surface.is_identity else _shorter(state, body, error)
        if shorter is None:
            raise
    return await open_chat(state, shorter, stream=stream, original=original)


def _shorter(state: RequestState, body: bytes, error: UpstreamRejected) -> bytes | None:
    """The request with the length that the refusal names, which is learned; None for another refusal."""
    if error.upstream_status not in _STATUSES:
        return None
    request = msgspec.json.decode(body)
    field = next((name for name in _LIMITS if type(request.get(name)) is int), None)
    found = cap_in(words_of(error.payload)[0], request[field]) if field is not None else None
    if field is None or found is None:
        return None
    cap, wanted = found
    upstream, model = state.upstream.name, state.model or ""
    state.shared.output_caps.learn(upstream, model, cap, state.deadline.now())
    log.info("answer_length_learned", upstream=upstream, model=model, asked=request[field], given=wanted)
    return msgspec.json.encode({**request, field: wanted})
