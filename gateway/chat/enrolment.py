"""Which arm a request is in, and what it tells of the answer before it."""

import structlog

from gateway.core.records import OutcomeRecord
from gateway.request.state import RequestState
from gateway.rollout.assignment import Assignment, Forced
from gateway.rollout.call_ids import CallMark
from gateway.rollout.conversation import conversation_key
from gateway.rollout.outcomes import last_answer, outcome_records
from gateway.wire.chat_request import ChatRequest

__all__ = ["enrol", "hear"]

_FORCED: dict[str, Forced] = {"live": "live", "control": "control", "off": "off"}

log = structlog.get_logger("toolgate")


def enrol(state: RequestState, request: ChatRequest) -> Assignment:
    """Give the request its conversation and its arm, for as long as it lasts; a fault in it leaves both alone."""
    try:
        state.assignment = _enrolled(state, request)
    except Exception:
        log.exception("enrolment_failed")
        state.assignment = Assignment(arm="off", epoch=0, forced=True)
    state.arm = state.assignment.arm
    return state.assignment


def _enrolled(state: RequestState, request: ChatRequest) -> Assignment:
    settings = state.configuration.settings
    sticky = state.http.headers.get(settings.canary_sticky_header) if settings.canary_sticky_header else None
    state.key = conversation_key(state.shared.secret, sticky=sticky, credential=state.credential, request=request)
    return state.shared.rollout.assign(state.key, _forced(state))


def hear(state: RequestState, request: ChatRequest, assignment: Assignment) -> None:
    """Take down how the conversation's last answer fared; `state.strategy` has been chosen."""
    if state.is_heard:
        return  # the request is asked of another upstream, and tells what it told before
    state.is_heard = True
    try:
        _hear(state, request, assignment)
    except Exception:
        log.exception("outcome_unread")


def _hear(state: RequestState, request: ChatRequest, assignment: Assignment) -> None:
    told = last_answer(request.messages)
    state.follows = told.follows
    if not told.outcomes:
        return
    # A call whose id is not ours was the model server's own, in the arm that this conversation is in.
    fallback = CallMark(arm=assignment.arm, strategy=state.strategy or "none", dialect="native", epoch=assignment.epoch)
    shared = state.shared
    records = outcome_records(
        told, shared.call_ids, at=shared.wall(), key=state.key, fallback=fallback, reported_by=state.id
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
