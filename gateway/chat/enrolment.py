"""Which arm a request is in, and what it tells of the answers before it."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import structlog

from gateway.core.records import Follows, OutcomeRecord
from gateway.request.findings import Enrolled
from gateway.request.state import RequestState
from gateway.rollout.assignment import Assignment, Forced
from gateway.rollout.call_ids import CallMark
from gateway.rollout.conversation import conversation_key
from gateway.rollout.outcomes import LastAnswer, last_answer, outcome_records
from gateway.surfaces.port import Asked
from gateway.wire.chat_request import ChatRequest

__all__ = ["EQUAL", "enrol", "hear", "looping_tool", "note_loop", "steered"]

EQUAL = 4
"""So many equal calls with equal results are no polling that is about to succeed."""
STEER = "The last calls were all the same and so were their results: do something else, or say what is missing."
_MAX_LOOKED_AT = 64


_FORCED: dict[str, Forced] = {"live": "live", "control": "control", "off": "off"}

log = structlog.get_logger("toolgate")


def enrol(state: RequestState, asked: Asked) -> tuple[Enrolled, Assignment]:
    """The request's conversation and its arm, for as long as it lasts; a fault in it leaves the answer alone."""
    key = ""
    try:
        settings, shared, headers = state.configuration.settings, state.shared, state.http.headers
        # By what an operator's header says, else by what the client itself names it, else by how it began.
        sticky = headers.get(settings.canary_sticky_header) if settings.canary_sticky_header else None
        key = conversation_key(
            shared.secret,
            sticky=sticky,
            named=asked.conversation,
            credential=state.credential,
            request=asked.request,
        )
        may_force = settings.canary_force_header and settings.canary_force_header in headers
        assignment = shared.rollout.assign(key, _forced(state) if may_force else None)
    except Exception:
        log.exception("enrolment_failed")
        # As if it were forced: what was not assigned by chance must not be counted among the arms.
        assignment = Assignment(arm="off", epoch=0, forced=True)
    return Enrolled(request=asked.request, assignment=assignment, arm=assignment.arm, key=key), assignment


def hear(state: RequestState, request: ChatRequest, assignment: Assignment) -> Follows:
    """Take down how the conversation's last answer fared, and say what follows it; the strategy has been chosen."""
    follows: Follows = "nothing"
    try:
        told = last_answer(request.messages)
        follows = told.follows
        if told.outcomes:
            _take_all(state, told, assignment, len(request.messages))
    except Exception:
        log.exception("outcome_unread")
    return follows


def _take_all(state: RequestState, told: LastAnswer, assignment: Assignment, turn: int) -> None:
    found, shared = state.found, state.shared
    strategy = found.way.strategy or "none"
    # A call whose id is not ours was the model server's own, in the arm that this conversation is in.
    fallback = CallMark(arm=assignment.arm, strategy=strategy, dialect="native", epoch=assignment.epoch)
    records = outcome_records(
        told, shared.call_ids, at=shared.wall(), key=found.enrolled.key, fallback=fallback, reported_by=state.id
    )
    for number, record in enumerate(records):
        # Ids of model servers come again in other conversations and turns; ours never do.
        is_ours = shared.call_ids.read(record.call_id) is not None
        call = record.call_id if is_ours else f"{record.key} {turn} {number} {record.call_id}"
        digest = blake2b(call.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        if assignment.forced or shared.rollout.is_news(digest, bad=record.outcome != "accepted"):
            _take(state, record, counts=not assignment.forced)


def _take(state: RequestState, record: OutcomeRecord, *, counts: bool) -> None:
    labels = {"arm": record.arm, "strategy": record.strategy, "dialect": record.dialect, "outcome": record.outcome}
    state.shared.telemetry.count("toolgate_outcomes_total", labels)
    state.shared.keeps.put(record)
    mark = CallMark(arm=record.arm, strategy=record.strategy, dialect=record.dialect, epoch=record.epoch)
    bad = record.outcome != "accepted"
    if counts:  # where somebody chose the arm, nothing is said about the arms
        state.shared.rollout.outcome(mark, key=record.key, bad=bad, request_id=record.reported_by, who=state.who)
    if bad:
        log.info("answer_rejected", tool=record.tool, reason=record.reason, **labels)


def _forced(state: RequestState) -> Forced | None:
    header = state.configuration.settings.canary_force_header
    wanted = state.http.headers.get(header) if header else None
    # Anybody could choose the arm else, and with it who is counted.
    if wanted is None or not state.configuration.is_trusted(state.http.remote):
        return None
    return _FORCED.get(wanted.strip().lower())


# --- a conversation that goes round in a circle ---------------------------------------------------------------------


def note_loop(state: RequestState, request: ChatRequest) -> None:
    """Count it; a fault in looking costs nothing but the signal."""
    # A loop goes on from result to result: behind a user's words another task begins.
    if request.messages[-1].get("role") not in ("tool", "assistant"):
        state.found.looping_tool = None
        return
    try:
        tool = looping_tool(request.messages)
    except Exception:
        log.exception("loop_unread")
        return
    state.found.looping_tool = tool
    if tool is None:
        return
    labels = {"model": state.model or "", "tool": tool}
    state.shared.telemetry.count("toolgate_conversation_loops_total", labels)
    state.found.notes.append(f"four equal calls of {tool} with equal results")
    log.warning("conversation_loops", upstream=state.upstream.name, **labels)


def steered(state: RequestState, request: ChatRequest) -> ChatRequest:
    """The request with a sentence behind the last result of a loop, where that was asked for."""
    wants = state.configuration.settings.loop_steer and state.found.enrolled.arm == "live"
    if not wants or state.found.looping_tool is None:
        return request
    last = request.messages[-1]
    content = last.get("content")
    if last.get("role") != "tool" or not isinstance(content, str):
        return request
    messages = [*request.messages[:-1], {**last, "content": f"{content}\n\n{STEER}"}]
    state.found.notes.append("the model was told of the loop")
    return request.with_messages(messages)


def looping_tool(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The tool that the history ends in calls of, four times alike; looked at from the end, and no further."""
    results: dict[str, str] = {}
    last: tuple[str, str, str] | None = None
    equal = 0
    for message in list(messages)[-_MAX_LOOKED_AT:][::-1]:
        role = message.get("role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if isinstance(call_id, str):
                # A content may come in parts: as text any two can be compared.
                results.setdefault(call_id, repr(message.get("content")))
            continue
        if role != "assistant":
            return None
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) != 1:
            return None
        made = _made(calls[0], results)
        if made is None or (last is not None and made != last):
            return None
        last, equal = made, equal + 1
        if equal == EQUAL:
            return made[0]
    return None


def _made(call: Any, results: Mapping[str, str]) -> tuple[str, str, str] | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        return None
    name, call_id = function.get("name"), call.get("id")
    result = results.get(call_id) if isinstance(call_id, str) else None
    if not isinstance(name, str) or result is None:
        return None
    return name, repr(function.get("arguments")), result
