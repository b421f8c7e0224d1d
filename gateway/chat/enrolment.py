"""Which arm a request is in, and what it tells of the answer before it."""

import structlog

from gateway.core.records import OutcomeRecord
from gateway.request.headers import credential
from gateway.request.state import Turn
from gateway.rollout.assignment import Assignment, Forced
from gateway.rollout.call_ids import CallMark
from gateway.rollout.conversation import conversation_key
from gateway.rollout.outcomes import last_answer, outcome_records
from gateway.wire.chat_request import ChatRequest

__all__ = ["enrol", "hear"]

_FORCED: dict[str, Forced] = {"live": "live", "control": "control", "off": "off"}

log = structlog.get_logger("toolgate")


def enrol(turn: Turn, request: ChatRequest) -> Assignment:
    """Give the request its conversation and its arm, for as long as it lasts; a fault in it leaves both alone."""
    try:
        turn.assignment = _enrolled(turn, request)
    except Exception:
        log.exception("enrolment_failed")
        turn.assignment = Assignment(arm="off", epoch=0, forced=True)
    turn.arm = turn.assignment.arm
    return turn.assignment


def _enrolled(turn: Turn, request: ChatRequest) -> Assignment:
    settings = turn.configuration.settings
    sticky = turn.http.headers.get(settings.canary_sticky_header) if settings.canary_sticky_header else None
    turn.key = conversation_key(
        turn.shared.secret, sticky=sticky, credential=credential(turn.http.headers), request=request
    )
    return turn.shared.rollout.assign(turn.key, _forced(turn))


def hear(turn: Turn, request: ChatRequest, assignment: Assignment) -> None:
    """Take down how the conversation's last answer fared; `turn.strategy` has been chosen."""
    if turn.is_heard:
        return  # the request is asked of another upstream, and tells what it told before
    turn.is_heard = True
    try:
        _hear(turn, request, assignment)
    except Exception:
        log.exception("outcome_unread")


def _hear(turn: Turn, request: ChatRequest, assignment: Assignment) -> None:
    told = last_answer(request.messages)
    turn.follows = told.follows
    if not told.outcomes:
        return
    # A call whose id is not ours was the model server's own, in the arm that this conversation is in.
    fallback = CallMark(arm=assignment.arm, strategy=turn.strategy or "none", dialect="native", epoch=assignment.epoch)
    shared = turn.shared
    records = outcome_records(
        told, shared.call_ids, at=shared.wall(), key=turn.key, fallback=fallback, reported_by=turn.id
    )
    for record in records:
        _take(turn, record, counts=not assignment.forced)


def _take(turn: Turn, record: OutcomeRecord, *, counts: bool) -> None:
    labels = {"arm": record.arm, "strategy": record.strategy, "dialect": record.dialect, "outcome": record.outcome}
    turn.shared.telemetry.count("toolgate_outcomes_total", labels)
    turn.shared.keeps.put(record)
    mark = CallMark(arm=record.arm, strategy=record.strategy, dialect=record.dialect, epoch=record.epoch)
    bad = record.outcome != "accepted"
    if counts:  # where somebody chose the arm, nothing is said about the arms
        turn.shared.rollout.outcome(mark, key=record.key, bad=bad, request_id=record.reported_by)
    if bad:
        log.info("answer_rejected", tool=record.tool, reason=record.reason, **labels)


def _forced(turn: Turn) -> Forced | None:
    header = turn.configuration.settings.canary_force_header
    wanted = turn.http.headers.get(header) if header else None
    if wanted is None or not turn.configuration.is_trusted(turn.http.remote):
        return None
    return _FORCED.get(wanted.strip().lower())
