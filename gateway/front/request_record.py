"""The record of a request of the main job: put together when it has ended, and handed to the store."""

import re
from collections.abc import Callable, Sequence

from gateway.answer.candidates import Audit, call_records
from gateway.core.records import CallRecord, RequestRecord
from gateway.core.version import __version__
from gateway.front.summary import MAX_ID_CHARS, Summary
from gateway.request.shared import Configuration, Shared
from gateway.rollout.assignment import Assignment
from gateway.wire.chat_request import ChatRequest

__all__ = ["keep"]

MAX_NAME_CHARS = 256
_TOOL = re.compile(r"[\w.:/-]+")
"""What a model server names otherwise is no name of a tool."""
MAX_NOTES = 16
MAX_NAMES = 1024
"""Of models, whose shown form is remembered."""
MAX_KEPT_CHARS = 1 << 18
"""Of a whole request or answer, where records keep them."""
MARGIN_CHARS = 1 << 12
"""Behind it, where a credential may begin that must not be cut in two before it is seen; the rest is not looked at."""
MIN_KEY_CHARS = 16
"""Of a client's own key, to be taken for one in a text: many a client has to send some word, and sends any."""

Mask = Callable[[str], str]


def keep(summary: Summary, shared: Shared) -> None:
    """Hand the record over, and tell the rollout how the request ended."""
    request, assignment, facts = summary.request, summary.assignment, summary.facts
    if request is None or assignment is None:
        return
    shared.rollout.ended(
        assignment,
        strategy=summary.strategy or "none",
        dialect=summary.dialect,
        key=summary.key,
        bad=not summary.is_healthy,
        request_id=summary.id,
        transformed=None if facts.read and summary.is_plain else _transformed(summary),
        overhead_s=summary.overhead_s,
        who=summary.who,
    )
    shared.keeps.put(_record(summary, request, assignment, shared))


def _record(summary: Summary, request: ChatRequest, assignment: Assignment, shared: Shared) -> RequestRecord:
    facts, configuration, name, first = summary.facts, summary.configuration, request.model, summary.upstream_first_s
    choice, answer_id, sent = request.body.get("tool_choice"), summary.answer_id, summary.first_sent_s
    record = RequestRecord(
        id=summary.id,
        at=shared.wall() - summary.duration_s,
        key=summary.key,
        model=configuration.shown_models.get(name) or _shown(name, configuration, shared),
        upstream=summary.upstream,
        route=summary.route,
        surface=summary.surface,
        who=summary.who,
        stream=summary.stream,
        dialect=summary.dialect,
        arm=assignment.arm,
        epoch=assignment.epoch,
        status=summary.status,
        end=summary.end,
        version=__version__,
    )
    # One by one: a call with more names makes a dictionary of them first.
    record.config = configuration.digest
    record.strategy = summary.strategy or "none"
    record.selected = summary.selected or ""
    if summary.notes:
        record.notes = _notes(summary.notes, shared)
    record.rewritten = summary.is_rewritten
    record.prompted_tools = summary.prompted_tools
    record.retries = summary.retries
    record.upstream_status = summary.upstream_status
    record.asked_again = summary.asked_again
    record.follows = summary.follows
    record.tools = len(request.tools.names)
    record.forced = choice == "required" or isinstance(choice, dict)
    record.healthy = summary.is_healthy
    record.error = summary.failure if summary.error is None else summary.error
    record.cause = summary.cause
    record.finish_reason = next(iter(facts.finish_reasons.values()), None)
    if answer_id:
        record.completion_id = answer_id[:MAX_ID_CHARS]
    record.bytes_in = summary.bytes_in
    record.bytes_out = summary.bytes_out
    record.usage = facts.usage
    # Whole microseconds; `round` would take ten times as long.
    record.duration_s = (summary.duration_s * 1e6 + 0.5) // 1 / 1e6
    record.upstream_first_s = first and (first * 1e6 + 0.5) // 1 / 1e6
    record.first_sent_s = sent and (sent * 1e6 + 0.5) // 1 / 1e6
    record.overhead_s = (summary.overhead_s * 1e6 + 0.5) // 1 / 1e6
    record.held_bytes = facts.held_bytes_max
    record.noise = summary.noise
    audit = configuration.keeps
    if not summary.is_plain:
        audit = _add_found(record, summary, request, shared)
    if audit == "full":
        mask, transcripts = _mask(summary, shared), facts.transcripts
        record.request_body = _masked(mask, _beginning(request.raw))
        record.answer_text = _masked(mask, transcripts[min(transcripts)].text) if transcripts else None
    return record


def _add_found(record: RequestRecord, summary: Summary, request: ChatRequest, shared: Shared) -> Audit:
    """Tell what the answer had beside its text; how much of the texts may be told."""
    facts, audit = summary.facts, summary.configuration.keeps
    structured = facts.structured
    if facts.calls or facts.refused or facts.intents:
        record.calls, audit, record.left_out = _calls(summary, request, shared, audit)
    record.native_calls = facts.native_calls
    if structured.names:
        record.native_tools = _names(structured.names, _mask(summary, shared))
    record.structured = {each.value: number for each, number in structured.classes.items()}
    record.structured_outcomes = dict(structured.outcomes)
    record.verdict = summary.verdict
    return audit


def _names(names: Sequence[str], mask: Mask) -> tuple[str, ...]:
    return tuple(mask(name) if _TOOL.fullmatch(name) else "" for name in names)


def _notes(notes: Sequence[str], shared: Shared) -> tuple[str, ...]:
    return tuple(shared.mask(note[:MAX_NAME_CHARS]) for note in notes[:MAX_NOTES])


def _shown(model: str, configuration: Configuration, shared: Shared) -> str:
    """A model's name as records say it; it may be anything."""
    shown = shared.mask(model[:MAX_NAME_CHARS])
    if len(model) <= MAX_NAME_CHARS and len(configuration.shown_models) < MAX_NAMES:
        configuration.shown_models[model] = shown
    return shown


def _calls(
    summary: Summary, request: ChatRequest, shared: Shared, audit: Audit
) -> tuple[tuple[CallRecord, ...], Audit, str]:
    """The records of the candidates, with as much text as the settings and the room for samples allow, and why less."""
    left_out = "AUDIT_BODIES=none" if audit == "none" else ""
    settings, facts, mask = summary.configuration.settings, summary.facts, _mask(summary, shared)
    if audit == "redacted":
        first = facts.calls[0].verdict if facts.calls else (facts.refused or facts.intents)[0]
        kind = (first.name[:MAX_NAME_CHARS], first.dialect, summary.verdict or "live")
        if not shared.samples.wants(kind, shared.wall(), most=settings.dry_run_samples_per_slice):
            audit, left_out = "none", "samples"
    declared = frozenset(request.tools.names)
    is_beside = summary.arm in ("control", "dry_run")
    records = call_records(facts, declared=declared, audit=audit, mask=mask, is_beside=is_beside)
    return records, audit, left_out if records else ""


def _transformed(summary: Summary) -> bool | None:
    """Whether reading the answer worked; `None` where there was nothing to be made of it."""
    facts = summary.facts
    if not facts.read:
        return False if _is_unprepared(summary) else None
    if facts.broken or summary.is_reader_broken:
        return False
    return True if facts.calls else None


def _is_unprepared(summary: Summary) -> bool:
    """The strategy failed before there was an answer to read, in earnest or beside."""
    return summary.verdict == "would_fail" or (summary.selected or "").endswith("_failed")


def _masked(mask: Mask, text: str) -> str:
    return mask(text[: MAX_KEPT_CHARS + MARGIN_CHARS])[:MAX_KEPT_CHARS]


def _beginning(raw: bytes) -> str:
    """As much of a body as can be kept, and no less."""
    return raw[: 4 * (MAX_KEPT_CHARS + MARGIN_CHARS)].decode("utf-8", "replace")


def _mask(summary: Summary, shared: Shared) -> Mask:
    """Takes credentials out of a text, and the one that the request came with, whatever it looks like."""
    mask, own = shared.mask, summary.credential or ""
    if len(own) < MIN_KEY_CHARS:
        return mask
    # Patterns know the keys of known vendors; a gateway's own may look like anything:
    # https://cwe.mitre.org/data/definitions/532.html
    return lambda text: mask(text.replace(own, "[redacted]"))
