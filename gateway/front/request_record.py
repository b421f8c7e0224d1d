"""The record of a request of the main job: put together when it has ended, and handed to the store."""

from collections.abc import Callable

from gateway.answer.candidates import Audit, call_records, dialect_of
from gateway.answer.facts import Facts
from gateway.core.reasons import Reason
from gateway.core.records import CallRecord, RequestRecord
from gateway.core.version import __version__
from gateway.request.headers import credential
from gateway.request.state import RequestState
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


def keep(state: RequestState, ended: float, *, healthy: bool) -> None:
    """Hand the record over, and tell the rollout how the request ended."""
    request, assignment = state.request, state.assignment
    if request is None or assignment is None:
        return
    facts = state.facts or Facts()
    strategy, dialect = state.strategy or "none", dialect_of(facts)
    state.shared.rollout.ended(
        assignment,
        strategy=strategy,
        dialect=dialect,
        key=state.key,
        bad=not healthy,
        request_id=state.id,
        transformed=_transformed(state, facts),
        overhead_s=state.prepare_s + state.read_s,
    )
    calls, audit = _calls(state, request, facts)
    keeps_all = audit == "full"
    state.shared.keeps.put(
        RequestRecord(
            id=state.id,
            at=state.shared.wall() - (ended - state.started),
            key=state.key,
            model=state.shared.mask(request.model[:MAX_NAME_CHARS]),
            upstream=state.upstream.name,
            stream=state.stream,
            strategy=strategy,
            dialect=dialect,
            arm=assignment.arm,
            epoch=assignment.epoch,
            selected=state.reason or "",
            follows=state.follows,
            tools=len(request.tools),
            forced=_is_forced(request),
            status=state.status or 499,
            end=state.end_reason,
            healthy=healthy,
            error=_fault(state, facts),
            finish_reason=next(iter(facts.finish_reasons.values()), None),
            completion_id=facts.completion_id[:MAX_ID_CHARS] if facts.completion_id else None,
            bytes_in=state.bytes_in,
            bytes_out=state.bytes_out,
            usage=facts.usage,
            duration_s=round(ended - state.started, 6),
            upstream_first_s=_since(state, state.upstream_first),
            first_sent_s=_since(state, state.first_sent),
            overhead_s=round(state.prepare_s + state.read_s, 6),
            held_bytes=facts.held_bytes_max,
            native_calls=facts.native_calls,
            verdict=state.verdict,
            noise=state.noise,
            calls=calls,
            version=__version__,
            config=state.configuration.digest,
            request_body=_masked(state, _beginning(request.raw)) if keeps_all else None,
            answer_text=_masked(state, facts.heard[min(facts.heard)].text) if keeps_all and facts.heard else None,
        )
    )


def _calls(state: RequestState, request: ChatRequest, facts: Facts) -> tuple[tuple[CallRecord, ...], Audit]:
    """The records of the candidates, with as much text as the settings and the room for samples allow."""
    settings = state.configuration.settings
    audit = settings.audit_bodies
    if not (facts.calls or facts.refused or facts.overheard):
        return (), audit
    if audit == "redacted":
        first = facts.calls[0].verdict if facts.calls else (facts.refused or facts.overheard)[0]
        kind = (first.name[:MAX_NAME_CHARS], first.dialect, state.verdict or "live")
        if not state.shared.samples.wants(kind, state.shared.wall(), most=settings.dry_run_samples_per_slice):
            audit = "none"
    declared = frozenset(request.tools.names)
    records = call_records(
        facts, declared=declared, audit=audit, mask=_mask(state), is_beside=state.arm in ("control", "dry_run")
    )
    return records, audit


def _transformed(state: RequestState, facts: Facts) -> bool | None:
    """Whether reading the answer worked; `None` where there was nothing to be made of it."""
    if not facts.read:
        return False if _is_unprepared(state) else None
    if facts.broken or any(verdict.refusal is Reason.INTERNAL for verdict in facts.refused):
        return False
    return True if facts.calls else None


def _is_unprepared(state: RequestState) -> bool:
    """The strategy failed before there was an answer to read, in earnest or beside."""
    return state.verdict == "would_fail" or (state.reason or "").endswith("_failed")


def _fault(state: RequestState, facts: Facts) -> str | None:
    """The code of the error that ended the answer; a client that left is none."""
    if state.error is not None:
        return state.error.code
    return None if state.client_gone else facts.failure


def _is_forced(request: ChatRequest) -> bool:
    choice = request.body.get("tool_choice")
    return choice == "required" or isinstance(choice, dict)


def _masked(state: RequestState, text: str) -> str:
    return _mask(state)(text[: MAX_KEPT_CHARS + MARGIN_CHARS])[:MAX_KEPT_CHARS]


def _beginning(raw: bytes) -> str:
    """As much of a body as can be kept, and no less."""
    return raw[: 4 * (MAX_KEPT_CHARS + MARGIN_CHARS)].decode("utf-8", "replace")


def _mask(state: RequestState) -> Callable[[str], str]:
    """Takes credentials out of a text, and the one that the request came with, whatever it looks like."""
    mask, own = state.shared.mask, credential(state.http.headers) or ""
    if len(own) < MIN_KEY_CHARS:
        return mask
    return lambda text: mask(text.replace(own, "[redacted]"))


def _since(state: RequestState, moment: float | None) -> float | None:
    return None if moment is None else round(moment - state.started, 6)
