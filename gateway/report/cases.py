"""Stored answers as cases: what was asked, what the model wrote, and which calls that was read as."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from attrs import field, frozen

from gateway.core.events import IN_REASONING
from gateway.core.records import CallRecord, RequestRecord
from gateway.report.facts.candidates import COUNTED_SIGNS, Labels, is_sent
from gateway.wire.chat_request import TOOL_FIELDS

__all__ = ["Call", "Case", "case_of", "fixture", "is_confirmed", "is_doubted", "masked", "parse_fixture", "request_of"]

Mask = Callable[[str], str]

SCHEMA_VERSION = 1
_ASKED = ("messages", *TOOL_FIELDS)
# Masking recurses over what clients and models have sent: beyond this depth it is cut, not ended by Python's own limit.
_MAX_DEPTH = 64
_MASKED = "[nested too deeply]"


@frozen
class Call:
    """A tool's name and the arguments that it is called with."""

    name: str
    arguments: Any


@frozen(kw_only=True)
class Case:
    """One answer; `expected` is `None` where nobody knows what it should be read as."""

    id: str
    answer: str
    model: str = "unknown"
    strategy: str = ""
    arm: str = "live"
    surface: str = "chat"
    """The wire that its client spoke; the request stands here in chat's."""
    finish: str = "stop"
    request: Mapping[str, Any] = field(factory=dict)
    """Of the request: its messages, tools and the wishes that go with them."""
    expected: tuple[Call, ...] | None = None


def case_of(record: RequestRecord) -> Case | str:
    """The case that a record makes, or in a word why it makes none."""
    if record.answer_text is None:
        return "no_text"
    # A second answer, or a field of reasoning, gave these calls: the stored text, read again, could not give them.
    if record.native_calls or any(call.decision == "repaired" or IN_REASONING in call.reasons for call in record.calls):
        return "other_calls"
    request = request_of(record)
    if request is None:
        return "no_request"
    expected = [_call(call) for call in record.calls if is_sent(call)]
    calls = [call for call in expected if call is not None]
    # Without its kept arguments a call that went out cannot be told, and an expectation that lacks it would be wrong.
    if len(calls) != len(expected):
        return "no_text"
    return Case(
        id=record.id,
        answer=record.answer_text,
        model=record.model,
        strategy=record.strategy,
        arm=record.arm,
        surface=record.surface,
        # An answer without a finish reason broke off: read again as `stop`, what it was cut in could become a call.
        finish=record.finish_reason or "cut",
        request={name: request[name] for name in _ASKED if name in request},
        expected=tuple(calls),
    )


def request_of(record: RequestRecord) -> dict[str, Any] | None:
    """The request's body, if it was kept whole."""
    if record.request_body is None:
        return None
    body = _decoded(record.request_body)
    return body if isinstance(body, dict) and isinstance(body.get("messages"), list) else None


def is_doubted(record: RequestRecord, labels: Labels) -> bool:
    """Somebody said that one of its candidates was read wrongly."""
    found = (labels.get((record.id, call.number)) for call in record.calls)
    return any(label is not None and not label.is_right for label in found)


def is_confirmed(record: RequestRecord, labels: Labels) -> bool:
    """Nothing speaks against its calls, or somebody said that they are right all the same."""
    suspects = [call for call in record.calls if is_sent(call) and not set(call.signs).isdisjoint(COUNTED_SIGNS)]
    return all((record.id, call.number) in labels for call in suspects) and not is_doubted(record, labels)


def fixture(case: Case, mask: Mask) -> dict[str, Any]:
    """The case as one line of a file, without secrets."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in case.expected or ()]
    document = {
        "schema_version": SCHEMA_VERSION,
        "id": case.id,
        "model": case.model,
        "strategy": case.strategy,
        "arm": case.arm,
        "surface": case.surface,
        "finish": case.finish,
        **case.request,
        "answer": case.answer,
        "expected": calls if case.expected is not None else None,
    }
    masked_: dict[str, Any] = masked(document, mask)
    return masked_


def parse_fixture(line: str | bytes) -> Case | None:
    """The case that a line holds, if it holds one."""
    found = _decoded(line)
    if not isinstance(found, dict) or not isinstance(found.get("answer"), str):
        return None
    expected = found.get("expected")
    named = ("id", "model", "strategy", "arm", "surface", "finish")
    words = {name: found[name] for name in named if isinstance(found.get(name), str)}
    return Case(
        **{"id": "unnamed", **words},
        answer=found["answer"],
        request={name: found[name] for name in _ASKED if name in found},
        expected=_calls(expected) if isinstance(expected, list) else None,
    )


def masked(value: Any, mask: Mask, depth: int = 0) -> Any:
    """The value with every text in it masked, keys too."""
    if depth > _MAX_DEPTH:
        return _MASKED
    match value:
        case str():
            return mask(value)
        case dict():
            return {mask(str(key)): _under(str(key), item, mask, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [masked(item, mask, depth + 1) for item in value]
        case _:
            return value


def _under(key: str, value: Any, mask: Mask, depth: int) -> Any:
    """A value, masked together with the key that may say what it is."""
    if not isinstance(value, str):
        return masked(value, mask, depth)
    # With its key in front, as a secret often looks like any other word but for what it is called.
    label = f"{key}="
    told = mask(label + value)
    # Where masking took the label too, it cannot be taken off again; then the value is masked by itself.
    return told.removeprefix(label) if told.startswith(label) else mask(value)


def _call(call: CallRecord) -> Call | None:
    found = _decoded(call.after)
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    return Call(found["name"], found.get("arguments"))


def _calls(found: Sequence[Any]) -> tuple[Call, ...]:
    return tuple(Call(str(each.get("name")), each.get("arguments")) for each in found if isinstance(each, dict))


def _decoded(text: str | bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    # msgspec tells of nesting without end by a RecursionError, of all else by a ValueError.
    except (ValueError, RecursionError):
        return None
