"""One answer in full: a sentence, before and after, why, what was done with the request, and its conversation."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.core.records import CallRecord, RequestRecord
from gateway.core.sentences import REASON_WORDS, step_of
from gateway.inspector.rows import Next, Row
from gateway.report.words import result_words, sign_words

__all__ = ["detail_of", "sentence_of"]

_MAX_PANE = 1 << 18
_NOT_KEPT = "No text of this answer was kept: where nothing looks like a call, AUDIT_BODIES=full alone keeps it."
_LEFT_OUT = {
    "AUDIT_BODIES=none": "Texts are not kept: AUDIT_BODIES=none. AUDIT_BODIES=redacted keeps the candidate and what "
    "stands around it.",
    "samples": "Enough samples of this kind were kept today (DRY_RUN_SAMPLES_PER_SLICE); AUDIT_BODIES=full keeps every "
    "text.",
}


def sentence_of(record: RequestRecord, call: CallRecord | None) -> str:
    """For a person: what became of the answer, and why."""
    if call is None:
        return _without_candidate(record)
    name = f"`{call.tool}`" if call.tool else "a call"
    score = f" ({call.dialect}, {call.score / 100:.2f})" if call.score else f" ({call.dialect})"
    match call.decision:
        case "delivered":
            return f"{name} was written as text and arrived as a call{score}"
        case "would_deliver":
            return f"{name} was written as text and left so; it would be a call{score}"
        case "repaired":
            return f"the model was asked again, and then called {name} rightly{score}"
        case "overheard":
            return f"{name} stands in an answer to a request without tools, so it was only noted{score}"
        case _:
            return call.sentence or REASON_WORDS.get(call.reason, "it stayed text")


def _code(record: RequestRecord, call: CallRecord | None) -> str:
    """The word that log, metrics and filter have for the sentence."""
    return call.reason if call is not None else record.error or ""


def _without_candidate(record: RequestRecord) -> str:
    if record.error:
        words = result_words("error", record.error)
        return f"there is no answer to read: {words or record.error}"
    if record.native_calls:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(record.native_tools) if name)
        count = "one call" if record.native_calls == 1 else f"{record.native_calls} calls"
        went = "it went out as it came" if record.native_calls == 1 else "they went out as they came"
        return f"the model server itself gave {count}{names and ' of '}{names}; {went}"
    if record.finish_reason == "length":
        return "the answer was cut by its length limit, and holds no call"
    if not record.tools:
        return "the request offered no tools"
    return "the answer holds nothing that looks like a call"


def detail_of(
    record: RequestRecord,
    row: Row,
    turns: Sequence[Mapping[str, Any]],
    others_under: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Everything that the page shows of one answer."""
    by_number = {call.number: call for call in record.calls}
    number = row.document()["number"]
    call = by_number.get(number) if number is not None else None
    return {
        "row": row.document(),
        "sentence": sentence_of(record, call),
        "code": _code(record, call),
        "candidates": [_candidate(each) for each in record.calls],
        "shown": number,
        "panes": _panes(record, call),
        "why": None if call is None else _why(call),
        "request": _request(record, row.next),
        "conversation": list(turns),
        "setting": call.setting if call is not None else "",
        "others_under": others_under,
        "strategy": record.strategy,
        "dialect": call.dialect if call is not None else "",
        "finish": record.finish_reason or "stop",
        "can_be_fixture": record.answer_text is not None and record.request_body is not None,
    }


def _candidate(call: CallRecord) -> dict[str, Any]:
    return {
        "number": call.number,
        "tool": call.tool,
        "dialect": call.dialect,
        "score": call.score / 100,
        "decision": call.decision,
        "reason": call.reason,
        "sentence": call.sentence,
        "meant": call.meant,
    }


def _panes(record: RequestRecord, call: CallRecord | None) -> dict[str, Any]:
    is_beside = record.arm in ("control", "dry_run")
    titles = (
        ("As the client got it", "As it would have been")
        if is_beside
        else ("As the model wrote it", "As the client got it")
    )
    before = call.before if call is not None else ""
    span = list(call.span) if call is not None and call.span is not None else None
    whole = record.answer_text or ""
    # What was kept of it stands somewhere in the answer, and is shown there with all that is around it.
    if whole and before and (at := whole.find(before)) >= 0 and span is not None:
        span = [span[0] + at, span[1] + at]
        before = whole
    elif not before:
        before = whole
    said = _LEFT_OUT.get(record.left_out, "") if not before else ""
    return {
        "titles": titles,
        "before": before[:_MAX_PANE],
        "span": span,
        "after": _calls(record),
        "text": _text_beside(record, call),
        "note": said or ("" if before else _NOT_KEPT),
    }


def _calls(record: RequestRecord) -> list[dict[str, Any]]:
    """The calls of the answer, their arguments as JSON with lines of their own."""
    found = []
    for call in record.calls:
        if call.decision == "refused" or not call.after:
            continue
        try:
            value = msgspec.json.decode(call.after)
        except (ValueError, RecursionError):
            continue
        arguments = msgspec.json.format(msgspec.json.encode(value.get("arguments")), indent=2).decode()
        found.append({"name": str(value.get("name", "")), "arguments": arguments, "number": call.number})
    return found


def _text_beside(record: RequestRecord, call: CallRecord | None) -> str:
    if any(each.decision != "refused" for each in record.calls):
        return ""
    return record.answer_text or (call.before if call is not None else "")


def _why(call: CallRecord) -> dict[str, Any]:
    steps = [step_of(reason) for reason in call.reasons]
    return {
        "steps": [
            {"words": step.words, "code": step.code, "points": None if step.points is None else step.points / 100}
            for step in steps
        ],
        "score": call.score / 100,
        "threshold": call.threshold / 100,
        "others": [
            {
                "dialect": each.dialect,
                "score": each.score / 100,
                "reason": REASON_WORDS.get(each.reason, each.reason),
                "code": each.reason,
            }
            for each in call.others
        ],
        "signs": [{"words": sign_words(sign), "code": sign} for sign in call.signs],
    }


def _request(record: RequestRecord, next_: Next) -> list[list[str]]:
    """What was done with the request: a name, what it came to, and the code of it where there is one."""
    usage = ", ".join(f"{count:,} {kind}" for kind, count in record.usage.items())
    told = " ".join(filter(None, (next_.word, next_.reason and f"({result_words('next turn', next_.reason)})")))
    rows = {
        "strategy": _told("strategy", record.selected, f"{record.strategy}: "),
        "request": ("rewritten" if record.rewritten else "as it came",),
        "tools": (
            f"{record.tools} offered" + (f", {record.prompted_tools} in the prompt" if record.prompted_tools else ""),
        ),
        "arm": (record.arm.replace("_", " "),),
        "server": (record.upstream + (f", status {record.upstream_status}" if record.upstream_status else ""),),
        "retries": (str(record.retries) if record.retries else "",),
        "asked again": _told("asked again", record.asked_again),
        "finish reason": _told("finish reason", record.finish_reason or ""),
        "error": _told("error", record.error or ""),
        "end": ("completed",) if record.end == "completed" else _told("end", record.end),
        "next turn": (told or "not seen yet", next_.reason),
        "tokens": (usage,),
        "first byte": (
            _ms(record.upstream_first_s) + (f", sent {_ms(record.first_sent_s)}" if record.first_sent_s else ""),
        ),
        "held": (f"{record.held_bytes:,} bytes at most" if record.held_bytes else "",),
        "added": (_ms(record.overhead_s),),
        "in all": (_ms(record.duration_s),),
        "notes": ("; ".join(record.notes),),
        "settings": (record.config,),
        "version": (record.version,),
        "request id": (record.id,),
    }
    return [[name, *filter(None, value)] for name, value in rows.items() if value[0]]


def _told(of: str, code: str, before: str = "") -> tuple[str, ...]:
    words = result_words(of, code)
    return (f"{before}{words}", code) if words else (f"{before}{code}".removesuffix(": "),)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.1f} ms"
