"""Which arm a request is in, and what it tells of the answer before it."""

import structlog

from gateway.core.records import Follows, OutcomeRecord
from gateway.request.state import RequestState
from gateway.rollout.assignment import Assignment, Forced
from gateway.rollout.call_ids import CallMark
from gateway.rollout.conversation import conversation_key
from gateway.rollout.outcomes import LastAnswer, last_answer, outcome_records
from gateway.surfaces.port import Asked
from gateway.wire.chat_request import ChatRequest

__all__ = ["enrol", "hear"]

_FORCED: dict[str, Forced] = {"live": "live", "control": "control", "off": "off"}

log = structlog.get_logger("toolgate")


def enrol(state: RequestState, asked: Asked) -> tuple[Assignment, str]:
    """The request's arm and its conversation, for as long as it lasts; a fault in it leaves the answer alone."""
    key = ""
    try:
        key = _conversation(state, asked)
        return state.shared.rollout.assign(key, _forced(state)), key
    except Exception:
        log.exception("enrolment_failed")
        return Assignment(arm="off", epoch=0, forced=True), key


def _conversation(state: RequestState, asked: Asked) -> str:
    """By what an operator's header says, else by what the client itself names it, else by how it began."""
    header = state.configuration.settings.canary_sticky_header
    sticky = state.http.headers.get(header) if header else None
    secret, who = state.shared.secret, state.credential
    return conversation_key(secret, sticky=sticky, named=asked.conversation, credential=who, request=asked.request)


def hear(state: RequestState, request: ChatRequest, assignment: Assignment) -> Follows:
    """Take down how the conversation's last answer fared, and say what follows it; the strategy has been chosen."""
    follows: Follows = "nothing"
    try:
        told = last_answer(request.messages)
        follows = told.follows
        if told.outcomes:
            _take_all(state, told, assignment)
    except Exception:
        log.exception("outcome_unread")
    return follows


def _take_all(state: RequestState, told: LastAnswer, assignment: Assignment) -> None:
    found, shared = state.found, state.shared
    # A call whose id is not ours was the model server's own, in the arm that this conversation is in.
    fallback = CallMark(arm=assignment.arm, strategy=found.strategy or "none", dialect="native", epoch=assignment.epoch)
    records = outcome_records(
        told, shared.call_ids, at=shared.wall(), key=found.key, fallback=fallback, reported_by=state.id
    )
    for record in records:
        _take(state, record, counts=not assignment.forced)


def _take(state: RequestState, record: OutcomeRecord, *, counts: bool) -> None:
    labels = {"arm": record.arm, "strategy": record.strategy, "dialect": record.dialect, "outcome": record.outcome}
    state.shared.telemetry.count("toolgate_outcomes_total", labels)
    state.shared.keeps.put(record)
    mark = CallMark(arm=record.arm, strategy=record.strategy, dialect=record.dialect, epoch=record.epoch)
    bad = record.outcome != "accepted"
    if counts:  # where somebody chose the arm, nothing is said about the arms
        state.shared.rollout.outcome(mark, key=record.key, bad=bad, request_id=record.reported_by)
    if bad:
        log.info("answer_rejected", tool=record.tool, reason=record.reason, **labels)


def _forced(state: RequestState) -> Forced | None:
    header = state.configuration.settings.canary_force_header
    wanted = state.http.headers.get(header) if header else None
    if wanted is None or not state.configuration.is_trusted(state.http.remote):
        return None
    return _FORCED.get(wanted.strip().lower())
