"""How a conversation's last answer fared, as its next request tells.

Only what is new counts: the messages behind the last one of the assistant. A result that reports a fault in the call
itself (no such tool, an argument that is missing or of the wrong kind) rejects the call; a tool that ran and failed
has accepted it. Reports are known by how they begin, under the headings that clients put before them, so that a file
that quotes one is a file; only the first two KiB of a result are looked at, with patterns of bounded length.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen
from msgspec import Struct

from gateway.core.records import Follows, Outcome, OutcomeRecord
from gateway.rollout.call_ids import CallIds, CallMark

__all__ = ["Fared", "LastAnswer", "Reason", "fault_in_call", "last_answer", "outcome_records"]

Reason = Literal["", "unknown_tool", "missing_argument", "invalid_argument"]

_HEAD = 1 << 11
_HEADINGS = 6
"""How many headings may stand before a report."""
_MAX_OUTCOMES = 128
_MAX_MESSAGES = 2 * _MAX_OUTCOMES
"""How many of the new messages are looked at: a client may send a million."""
_MAX_PARTS = 64
_MAX_ID = 128
_COMPLAINT = 300
"""A longer text of a user says more than that a tool was not used."""

_NAME = r"[\"'`]?[\w./:-]{1,128}[\"'`]?"
# Each client's way to say it, under its name, is a case of the tests. Most are from the agents' own sources: Cline and
# Roo Code (https://github.com/RooCodeInc/Roo-Code/blob/main/src/core/prompts/responses.ts), opencode
# (https://github.com/sst/opencode/blob/dev/packages/opencode/src/tool/tool.ts), the AI SDK
# (https://github.com/vercel/ai/blob/main/packages/ai/src/error/no-such-tool-error.ts), LangGraph
# (https://github.com/langchain-ai/langgraph/blob/main/libs/prebuilt/langgraph/prebuilt/tool_node.py).
_HEADING = re.compile(
    rf"""
      <tool_use_error> | <error> | \[(?:tool[ ])?error\] | (?:tool[ ])?error: | ❌
    | the[ ]tool[ ]execution[ ]failed[ ]with[ ]the[ ]following[ ]error:
    | an[ ]error[ ]occurred[ ]while[ ]running[ ]the[ ]tool\.[ ]please[ ]try[ ]again\.
    | error[ ](?:executing|calling|running)[ ](?:tool|function)[ ]{_NAME}: | tool[ ]execution[ ](?:failed|error):
    | mcp[ ]error[ ]-?[0-9]{{1,6}}:
    | \{{\s{{0,16}}(?:"(?:status|message|success|ok|type|is_?error|name|id|tool)"\s{{0,4}}:\s{{0,4}}
        (?:"[^"\\]{{0,200}}"|true|false)\s{{0,4}},\s{{0,16}}){{0,4}}
      "(?:error|message|output)"\s{{0,4}}:\s{{0,4}}"
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UNKNOWN = re.compile(
    rf"""
      model[ ]tried[ ]to[ ]call[ ](?:an[ ])?unavailable[ ]tool | no[ ]such[ ]tool | unknown[ ](?:tool|function)\b
    | unsupported[ ]call: | invalid[ ]tool_call: | invalid[ ]tool[ ]name | tool[ ]not[ ]found
    | tool[ ]{_NAME}[ ](?:was[ ])?not[ ]found
    | tool[ ]{_NAME}[ ](?:does[ ]not|doesn't)[ ]exist
    | tool[ ]{_NAME}[ ]is[ ]not[ ](?:available|registered|supported|recognized|known|enabled)
    | {_NAME}[ ]is[ ]not[ ]a[ ](?:valid|known)[ ]tool
    | no[ ]tool[ ](?:named|called)[ ]{_NAME}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MISSING = re.compile(
    rf"""
      missing[ ]value[ ]for[ ]required[ ]parameter
    | missing[ ]required[ ](?:argument|parameter|field|property|input)
    | params(?:/[\w/.-]{{1,128}})?[ ]must[ ]have[ ]required[ ]property
    | (?:the[ ])?(?:required[ ])?(?:parameter|argument)[ ]{_NAME}[ ](?:is[ ])?(?:missing|required|not[ ]provided)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_INVALID = re.compile(
    rf"""
      the[ ]arguments[ ]provided[ ]to[ ]the[ ]tool[ ]are[ ]invalid
    | the[ ]{_NAME}[ ]tool[ ]was[ ]called[ ]with[ ]invalid[ ]arguments
    | invalid[ ](?:input|arguments?|args|parameters)[ ](?:provided[ ])?(?:for|to)[ ](?:the[ ])?(?:tool|function)\b
    | invalid[ ]json[ ](?:input|arguments?)[ ](?:for|used[ ]with)[ ] | invalid[ ]input[ ]for[ ]{_NAME}:
    | (?:schema|argument|parameter)[ ]validation[ ]failed
    | invalid[ ](?:arguments|parameters)[ ]provided
    | inputvalidationerror | input[ ]validation[ ]error | your[ ]input[ ]to[ ]the[ ]tool[ ]was[ ]invalid
    | validation[ ]failed[ ]for[ ]tool | validation[ ]error[ ]found:
    | [0-9]{{1,4}}[ ]validation[ ]errors?:\s{{0,4}}```json
    | failed[ ]to[ ]parse[ ](?:the[ ])?(?:function|tool|tool[ ]call|call)[ ]arguments
    | error[ ]parsing[ ](?:the[ ])?(?:function|tool|tool[ ]call|call)[ ]?(?:arguments|parameters)
    | error[ ]invoking[ ]tool[ ]{_NAME}[ ]with[ ]kwargs
    | params(?:/[\w/.-]{{1,128}})?[ ]must[ ](?:be|match|not|have|pass)\b
    | (?:type[ ]validation[ ]failed:[ ]value|json[ ]parsing[ ]failed:[ ]text):
    | the[ ](?:tool[ ])?(?:input|arguments?)[ ](?:is|are|were|was)[ ]not[ ]valid[ ]json
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IS_ABSENT = re.compile(
    r"required property|missing (?:key|field|required|value|argument)|\bis missing\b|received undefined|field required"
    r"|\bis required\b|\"message\\?\":\s{0,4}\\?\"required",
    re.IGNORECASE,
)
_SPACE = re.compile(r"(?:\s|\\[nrt])*+")
"""White space before a report, and line breaks as JSON escapes them."""
_NO_TOOL = re.compile(
    r"you did not (?:use|call) a tool in your (?:previous|last) response"
    r"|error while parsing tool call from model output",
    re.IGNORECASE,
)
_WANTS_TOOL = re.compile(
    r"\b(?:use|call|invoke) (?:the|a|your|an actual|real) (?:[\w-]{1,32} ){0,2}(?:tool|function)s?\b"
    r"|\b(?:did ?n.t|did not|never|not) (?:actually )?(?:use|call|called|using|calling|invoke|run) (?:the|a|any|your) "
    r"(?:[\w-]{1,32} )?(?:tool|function)",
    re.IGNORECASE,
)
_RESULT_HEADING = re.compile(r"\[([A-Za-z_][\w.-]{0,63})(?: for |\])")
_RESULT_ENDING = "] Result:"


@frozen(kw_only=True)
class Fared:
    """How one call of the last answer, or all of the answer, fared."""

    outcome: Outcome
    reason: Reason = ""
    tool: str = ""
    call_id: str = ""


class LastAnswer(Struct, frozen=True):
    """What a request tells of the answer before it."""

    follows: Follows = "nothing"
    outcomes: tuple[Fared, ...] = ()


_NO_ANSWER = LastAnswer()


def last_answer(messages: Sequence[Mapping[str, Any]]) -> LastAnswer:
    """What the messages behind the assistant's last one tell of it."""
    # From the end: a conversation of a thousand turns has told of the others before.
    last = len(messages) - 1
    while last >= 0 and messages[last].get("role") != "assistant":
        last -= 1
    if last < 0 or last + 1 == len(messages):
        return _NO_ANSWER
    names = _called(messages[last])
    outcomes: dict[object, Fared] = {}
    follows: Follows = "nothing"
    for message in messages[last + 1 : last + 1 + _MAX_MESSAGES]:
        found, fared = _told(message, names)
        follows = found if _WEIGHT[found] > _WEIGHT[follows] else follows
        for one in fared:
            if len(outcomes) < _MAX_OUTCOMES:
                # A call that is answered twice is told of by its first result.
                outcomes.setdefault(one.call_id or len(outcomes), one)
    return LastAnswer(follows, tuple(outcomes.values()))


def outcome_records(
    told: LastAnswer, ids: CallIds, *, at: float, key: str, fallback: CallMark, reported_by: str
) -> tuple[OutcomeRecord, ...]:
    """The records of what was told; a call whose id is not ours counts for `fallback`."""
    return tuple(
        _record(fared, ids.read(fared.call_id) or fallback, at=at, key=key, reported_by=reported_by)
        for fared in told.outcomes
    )


def fault_in_call(result: str) -> Reason:
    """The fault of the call itself that a tool's result reports; empty where it reports none."""
    text = _unspaced(result[:_HEAD])
    for _ in range(_HEADINGS):
        if reason := _reported(text):
            return reason
        heading = _HEADING.match(text)
        if heading is None:
            return ""
        text = _unspaced(text[heading.end() :])
    return _reported(text)


_WEIGHT: dict[Follows, int] = {"nothing": 0, "text": 1, "complaint": 2, "tool_result": 3}


def _record(fared: Fared, mark: CallMark, *, at: float, key: str, reported_by: str) -> OutcomeRecord:
    return OutcomeRecord(
        at=at,
        key=key,
        arm=mark.arm,
        strategy=mark.strategy or "none",
        dialect=mark.dialect or "none",
        epoch=mark.epoch,
        outcome=fared.outcome,
        reason=fared.reason,
        tool=fared.tool,
        call_id=fared.call_id,
        reported_by=reported_by,
    )


def _called(message: Mapping[str, Any]) -> dict[str, str]:
    """The names of the message's calls by their ids."""
    calls = message.get("tool_calls")
    names: dict[str, str] = {}
    for call in calls[:_MAX_OUTCOMES] if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(call.get("id"), str) and isinstance(function.get("name"), str):
            names[call["id"]] = function["name"]
    return names


def _told(message: Mapping[str, Any], names: Mapping[str, str]) -> tuple[Follows, list[Fared]]:
    role = message.get("role")
    if role in ("tool", "function"):
        return "tool_result", [_result(message, names)]
    if role != "user":
        return "nothing", []
    texts = list(_texts(message.get("content")))
    results = list(_results_in(texts))
    if results:
        return "tool_result", results
    if any(_begins_with_complaint(text) for text in texts):
        return "complaint", [Fared(outcome="no_tool_used")]
    # A user who says "use the tool" behind an answer with calls speaks of the next one.
    asked = not names and any(len(text) <= _COMPLAINT and _WANTS_TOOL.search(text) for text in texts)
    return "complaint" if asked else "text", []


def _result(message: Mapping[str, Any], names: Mapping[str, str]) -> Fared:
    """What a message of role `tool` tells of its call."""
    given = message.get("tool_call_id")
    call_id = given[:_MAX_ID] if isinstance(given, str) else ""
    name = names.get(call_id) or message.get("name")
    return _fared("".join(_texts(message.get("content"))), name if isinstance(name, str) else "", call_id)


def _fared(result: str, tool: str, call_id: str = "") -> Fared:
    reason = fault_in_call(result)
    return Fared(outcome="rejected" if reason else "accepted", reason=reason, tool=tool[:_MAX_ID], call_id=call_id)


def _results_in(texts: Sequence[str]) -> Iterator[Fared]:
    """The results in a user message of a client whose calls are text: a heading, and behind it or next the result."""
    for at, text in enumerate(texts):
        heading = _RESULT_HEADING.match(text)
        end = text.find(_RESULT_ENDING) if heading else -1
        if heading is None or end < 0:
            continue
        result = text[end + len(_RESULT_ENDING) :]
        if not result.strip() and at + 1 < len(texts):
            result = texts[at + 1]
        yield _fared(result, heading.group(1))


def _begins_with_complaint(text: str) -> bool:
    text = _unspaced(text)
    heading = _HEADING.match(text)
    return _NO_TOOL.match(_unspaced(text[heading.end() :]) if heading else text) is not None


def _unspaced(text: str) -> str:
    space = _SPACE.match(text)
    return text[space.end() :] if space else text


def _reported(text: str) -> Reason:
    """The fault that is reported at the beginning of a text without heading."""
    if _UNKNOWN.match(text):
        return "unknown_tool"
    if _MISSING.match(text):
        return "missing_argument"
    invalid = _INVALID.match(text)
    if invalid is None:
        return ""
    # The AI SDK wraps one report into the other.
    if _UNKNOWN.match(text[invalid.end() :].lstrip(": \n")):
        return "unknown_tool"
    return "missing_argument" if _IS_ABSENT.search(text) else "invalid_argument"


def _texts(content: object) -> Iterator[str]:
    """How each text of a content begins."""
    if isinstance(content, str):
        yield content[:_HEAD]
    elif isinstance(content, list):
        for part in content[:_MAX_PARTS]:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"][:_HEAD]
