"""The record of a request of the main job: put together when it has ended, and handed to the store."""

from collections.abc import Callable

from gateway.answer.candidates import Audit, call_records, dialect_of
from gateway.answer.facts import Facts
from gateway.core.records import CallRecord, RequestRecord
from gateway.core.version import __version__
from gateway.request.headers import credential
from gateway.request.state import Turn
from gateway.wire.chat_request import ChatRequest

__all__ = ["keep"]

MAX_NAME_CHARS = 256
MAX_ID_CHARS = 128
MAX_KEPT_CHARS = 1 << 18
"""Of a whole request or answer, where records keep them."""
MARGIN_CHARS = 1 << 12
"""Behind it, where a credential may begin that must not be cut in two before it is seen; the rest is not looked at."""
MIN_KEY_CHARS = 16
"""Of a client's own key, to be taken for one in a text: many a client has to send some word, and sends any."""


def keep(turn: Turn, ended: float, *, healthy: bool) -> None:
    """Hand the record over, and tell the rollout how the request ended."""
    request, assignment = turn.request, turn.assignment
    if request is None or assignment is None:
        return
    facts = turn.facts or Facts()
    strategy, dialect = turn.strategy or "none", dialect_of(facts)
    turn.shared.rollout.ended(
        assignment,
        strategy=strategy,
        dialect=dialect,
        key=turn.key,
        bad=not healthy,
        request_id=turn.id,
        transformed=_transformed(turn, facts),
        overhead_s=turn.prepare_s + turn.read_s,
    )
    calls, audit = _calls(turn, request, facts)
    keeps_all = audit == "full"
    turn.shared.keeps.put(
        RequestRecord(
            id=turn.id,
            at=turn.shared.wall() - (ended - turn.started),
            key=turn.key,
            model=turn.shared.mask(request.model[:MAX_NAME_CHARS]),
            upstream=turn.upstream.name,
            stream=turn.stream,
            strategy=strategy,
            dialect=dialect,
            arm=assignment.arm,
            epoch=assignment.epoch,
            selected=turn.reason or "",
            follows=turn.follows,
            tools=len(request.tools),
            forced=_is_forced(request),
            status=turn.status or 499,
            end=turn.end_reason,
            healthy=healthy,
            error=_fault(turn, facts),
            finish_reason=next(iter(facts.finish_reasons.values()), None),
            completion_id=facts.completion_id[:MAX_ID_CHARS] if facts.completion_id else None,
            bytes_in=turn.bytes_in,
            bytes_out=turn.bytes_out,
            usage=facts.usage,
            duration_s=round(ended - turn.started, 6),
            upstream_first_s=_since(turn, turn.upstream_first),
            first_sent_s=_since(turn, turn.first_sent),
            overhead_s=round(turn.prepare_s + turn.read_s, 6),
            held_bytes=facts.held_bytes_max,
            native_calls=facts.native_calls,
            verdict=turn.verdict,
            noise=turn.noise,
            calls=calls,
            version=__version__,
            config=turn.configuration.digest,
            request_body=_masked(turn, _beginning(request.raw)) if keeps_all else None,
            answer_text=_masked(turn, facts.heard[min(facts.heard)].text) if keeps_all and facts.heard else None,
        )
    )


def _calls(turn: Turn, request: ChatRequest, facts: Facts) -> tuple[tuple[CallRecord, ...], Audit]:
    """The records of the candidates, with as much text as the settings and the room for samples allow."""
    settings = turn.configuration.settings
    audit = settings.audit_bodies
    if not (facts.calls or facts.refused or facts.overheard):
        return (), audit
    if audit == "redacted":
        first = facts.calls[0].verdict if facts.calls else (facts.refused or facts.overheard)[0]
        kind = (first.name[:MAX_NAME_CHARS], first.dialect, turn.verdict or "live")
        if not turn.shared.samples.wants(kind, turn.shared.wall(), most=settings.dry_run_samples_per_slice):
            audit = "none"
    declared = frozenset(request.tools.names)
    records = call_records(
        facts, declared=declared, audit=audit, mask=_mask(turn), is_beside=turn.arm in ("control", "dry_run")
    )
    return records, audit


def _transformed(turn: Turn, facts: Facts) -> bool | None:
    """Whether reading the answer worked; `None` where there was nothing to be made of it."""
    if not facts.read:
        return False if _is_unprepared(turn) else None
    if facts.broken or any(verdict.reasons[-1:] == ("internal",) for verdict in facts.refused):
        return False
    return True if facts.calls else None


def _is_unprepared(turn: Turn) -> bool:
    """The strategy failed before there was an answer to read, in earnest or beside."""
    return turn.verdict == "would_fail" or (turn.reason or "").endswith("_failed")


def _fault(turn: Turn, facts: Facts) -> str | None:
    """The code of the error that ended the answer; a client that left is none."""
    if turn.error is not None:
        return turn.error.code
    return None if turn.client_gone else facts.failure


def _is_forced(request: ChatRequest) -> bool:
    choice = request.body.get("tool_choice")
    return choice == "required" or isinstance(choice, dict)


def _masked(turn: Turn, text: str) -> str:
    return _mask(turn)(text[: MAX_KEPT_CHARS + MARGIN_CHARS])[:MAX_KEPT_CHARS]


def _beginning(raw: bytes) -> str:
    """As much of a body as can be kept, and no less."""
    return raw[: 4 * (MAX_KEPT_CHARS + MARGIN_CHARS)].decode("utf-8", "replace")


def _mask(turn: Turn) -> Callable[[str], str]:
    """Takes credentials out of a text, and the one that the request came with, whatever it looks like."""
    mask, own = turn.shared.mask, credential(turn.http.headers) or ""
    if len(own) < MIN_KEY_CHARS:
        return mask
    return lambda text: mask(text.replace(own, "[redacted]"))


def _since(turn: Turn, moment: float | None) -> float | None:
    return None if moment is None else round(moment - turn.started, 6)
