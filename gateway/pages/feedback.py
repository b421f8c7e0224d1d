"""`POST /v1/feedback`: how a client, or who sits before it, found an answer."""

from typing import Any, cast, get_args

import msgspec
import structlog
from aiohttp import web

from gateway.core.errors import BodyTooLarge, InvalidRequest, NotFound
from gateway.core.ports import StoreError
from gateway.core.records import FeedbackRecord, Rating
from gateway.request.responses import json_response
from gateway.request.state import RequestState
from gateway.traffic.recent_answers import Answered, is_completion_id

__all__ = ["feedback"]

MAX_BYTES = 64 << 10
MAX_COMMENT_CHARS = 4000
RATINGS = get_args(Rating)

log = structlog.get_logger("toolgate")


async def feedback(state: RequestState) -> web.StreamResponse:
    """`{completion_id, rating, comment?}`: counted, logged, and kept with what is known of the answer."""
    raw = bytearray()
    async for piece in state.body():
        raw += piece
        if len(raw) > MAX_BYTES:  # the rest is not waited for
            raise BodyTooLarge(f"feedback is at most {MAX_BYTES} bytes")
    completion_id, rating, comment = _checked(_decoded(bytes(raw)))
    record = await _record(state, completion_id, rating, comment)
    state.shared.keeps.put(record)
    state.shared.telemetry.count("toolgate_feedback_total", {"rating": rating})
    log.info(
        "feedback_given",
        completion_id=completion_id,
        rating=rating,
        rated_request=record.request_id,
        strategy=record.strategy,
        arm=record.arm,
        has_comment=comment is not None,
    )
    log.debug("feedback_comment", completion_id=completion_id, comment=comment)
    kept = {"object": "feedback", "completion_id": completion_id, "rating": rating}
    return await state.send(json_response(msgspec.json.encode(kept)))


async def _record(state: RequestState, completion_id: str, rating: Rating, comment: str | None) -> FeedbackRecord:
    """The rating with what is known of its answer: in this process, or in the store."""
    known = state.shared.answers.find(completion_id) or await _stored(state, completion_id)
    # Ids are the model server's, which many clients know or guess: the answers of others are none that there are. This
    # request goes to no model server, so it is not known here whether the one that answered looked at the credential.
    if known is None or known.who not in ("", state.shown):
        raise NotFound("no answer with this id is remembered", param="completion_id")
    return FeedbackRecord(
        at=state.shared.wall(),
        completion_id=completion_id,
        rating=rating,
        comment=state.shared.mask(comment) if comment is not None else None,
        request_id=known.request_id,
        strategy=known.strategy or "none",
        arm=known.arm or "off",
    )


async def _stored(state: RequestState, completion_id: str) -> Answered | None:
    try:
        found = await state.shared.answered.find_answer(completion_id)
    except StoreError:
        return None
    return (
        None if found is None else Answered(request_id=found.id, strategy=found.strategy, arm=found.arm, who=found.who)
    )


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not valid JSON") from error
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    return body


def _checked(body: dict[str, Any]) -> tuple[str, Rating, str | None]:
    completion_id, rating, comment = body.get("completion_id"), body.get("rating"), body.get("comment")
    if not isinstance(completion_id, str) or not is_completion_id(completion_id):
        raise InvalidRequest("completion_id must be the id of an answer", param="completion_id")
    if rating not in RATINGS:
        raise InvalidRequest(f"rating must be {' or '.join(RATINGS)}", param="rating")
    if comment is not None and (not isinstance(comment, str) or len(comment) > MAX_COMMENT_CHARS):
        raise InvalidRequest(f"comment must be text of at most {MAX_COMMENT_CHARS} characters", param="comment")
    return completion_id, cast("Rating", rating), comment
