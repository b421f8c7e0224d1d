"""A conversation whose past holds broken calls, mended on its way up, the same in every turn.

What is mended is certain: arguments that are no JSON object, ids that are missing, come twice or have a form that the
model's family refuses, results that stand away from their calls or in another order. An assistant's turn in which a
call was left as text shows it as a call that was not carried out, for models repeat what they see themselves do.
A conversation without any of this is left as it is.

Every id depends on what stands before it alone, so a longer conversation begins with the same bytes. Linear in the
conversation; leaked calls are looked for only in texts that hold a marker of calls, up to a bound.
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from json import dumps
from operator import is_
from typing import Any

from attrs import define, field
from msgspec import Struct

from gateway.core.events import Drop, End, Text
from gateway.core.tools import ToolSet
from gateway.wire.chat_request import ChatRequest
from strategies.asking.beginnings import Beginnings, Same
from strategies.asking.family_ids import family_id, short_id
from strategies.base import Options
from strategies.reading.factory import reader_factory
from strategies.schema.structured import arguments_of
from strategies.text.strict_json import loads_strict
from strategies.text.tolerant_json import JsonFault, parse

__all__ = ["NOT_CARRIED_OUT", "Mended", "mend"]

NOT_CARRIED_OUT = "This call was written as text and was not carried out. Make it as a tool call if it is still needed."
"""The result of a call that was only text."""
_CERTAIN = 97
"""A score below which text in an earlier turn is not taken for a call."""
_MAX_READ = 1 << 18
"""Characters of one message that are read for calls, and twice as many of a conversation, from its beginning on."""
_MAX_NOTES = 8
_OF_OTHERS = frozenset({"system", "developer", "user"})
"""Roles in whose messages no call stands."""
_MARKERS = re.compile(
    r"<(?:tool_call|function=|function_calls|invoke |minimax:tool_call|seed:tool_call|\|tool_call|\|python_tag\||｜)"
    r"|\[TOOL_CALLS\]"
)

Message = dict[str, Any]
MakeId = Callable[[str, str, int], str]
"""The id to send, from the one given, the tool's name and how many calls came before."""


class Mended(Struct, frozen=True):
    """The messages to send, and in words what was mended; the very same messages where nothing was."""

    messages: list[Message]
    notes: tuple[str, ...] = ()

    def body(self, request: ChatRequest) -> bytes:
        """The request with these messages; byte for byte the client's where nothing was mended."""
        if not self.notes:
            return request.raw
        try:
            return request.replace(messages=self.messages)
        except RecursionError:
            # Nested deeper than the encoder goes: as it came, it is the server's to refuse.
            return request.raw


def mend(request: ChatRequest, options: Options) -> Mended:
    """The conversation as it should have been said."""
    for message in request.messages:
        # A first look, with which most conversations are done: they have nothing to mend.
        if message["role"] not in _OF_OTHERS and _concerns(message):
            break
    else:
        return Mended(request.messages)
    messages = request.messages
    about = Same(request.tools), request.model, options.limits
    known = _beginnings.find(about, messages)
    mending = _Mending(tools=request.tools, options=options, model=request.model)
    begin = 0
    if known is not None:
        begin = len(known.messages)
        # The very messages of the last time: whoever has made something of them knows them at once.
        messages = [*known.messages, *messages[begin:]]
        mending.go_on(known.state, messages[:begin])
    for index, message in enumerate(messages[begin:], begin):
        mending.take(index, message)
    mended = mending.finish(messages)
    if not mended.notes and not mending.is_open:
        _beginnings.keep(about, messages, mending.without_messages(), known)
    return mended


def _concerns(message: Mapping[str, Any]) -> bool:
    role = message["role"]
    return role == "tool" or (role == "assistant" and (bool(message.get("tool_calls")) or _may_leak(message)))


def _may_leak(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, str) and len(content) <= _MAX_READ and _MARKERS.search(content) is not None


@define
class _Call:
    """A call of the past; its result, once it has come, follows its message."""

    id: str
    result: Message | None = None


@define
class _Turn:
    """An assistant's message and the calls in it."""

    message: Message
    calls: list[_Call] = field(factory=list)


_NO_CALL: deque[_Call] = deque(maxlen=0)
"""All calls of an id have their results; a new one of that id has a list of its own."""


@define(kw_only=True)
class _Mending:
    tools: ToolSet
    options: Options
    model: str
    _before: list[Message] = field(factory=list)
    """Messages that are in order."""
    _out: list[Message | _Turn] = field(factory=list)
    """What came behind them."""
    _waiting: dict[str, deque[_Call]] = field(factory=dict)
    """By the id that the client knows them by: the calls without a result, in their order."""
    _used: set[str] = field(factory=set)
    _count: int = 0
    _has_new_ids: bool = False
    _left: int = 2 * _MAX_READ
    """How much may still be read."""
    _notes: list[str] = field(factory=list)

    def go_on(self, before: "_Mending", messages: list[Message]) -> None:
        """Begin behind these, which were found to be in order."""
        self._before = messages
        self._waiting = dict.fromkeys(before._waiting, _NO_CALL)
        self._used, self._count, self._left = {*before._used}, before._count, before._left

    def without_messages(self) -> "_Mending":
        """What `go_on` needs."""
        self._before, self._out = [], []
        return self

    @property
    def is_open(self) -> bool:
        """A call has no result yet."""
        return any(self._waiting.values())

    def take(self, index: int, message: Message) -> None:
        if message["role"] == "tool":
            self._result(index, message)
        elif message["role"] == "assistant" and isinstance(message.get("tool_calls"), list) and message["tool_calls"]:
            self._turn(index, self._without_copies(index, message))
        elif message["role"] == "assistant" and not message.get("tool_calls") and _may_leak(message):
            self._leaked(index, message)
        else:
            self._out.append(message)

    def finish(self, original: list[Message]) -> Mended:
        messages = [*self._before]
        for entry in self._out:
            if isinstance(entry, _Turn):
                messages.append(entry.message)
                messages += [call.result for call in entry.calls if call.result is not None]
            else:
                messages.append(entry)
        if self._has_new_ids:
            self._notes.append("the ids took the form of the model's family")
        if not self._notes and (len(messages) != len(original) or not all(map(is_, messages, original))):
            self._notes.append("results were put behind their calls, in their order")
        return Mended(messages, _shown(self._notes)) if self._notes else Mended(original)

    # Calls

    def _turn(self, index: int, message: Message) -> None:
        turn = _Turn(message)
        for given in message["tool_calls"]:
            # A result behind this turn is meant for this turn's call of an id, not for an older one without a result.
            self._waiting[_given_id(given)] = deque()
        calls: list[Any] = []
        for order, given in enumerate(message["tool_calls"]):
            if not isinstance(given, dict):
                calls.append(given)
                continue
            mended, call = self._call(f"messages[{index}].tool_calls[{order}]", given)
            calls.append(mended)
            turn.calls.append(call)
        if any(one is not other for one, other in zip(calls, message["tool_calls"], strict=True)):
            turn.message = {**message, "tool_calls": calls}
        self._out.append(turn)

    def _call(self, place: str, given: dict[str, Any]) -> tuple[dict[str, Any], _Call]:
        function = given.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        known = _given_id(given)
        new = self._id(known, name if isinstance(name, str) else "", place)
        call = _Call(new)
        waiting = self._waiting.get(known)
        if waiting is None or waiting is _NO_CALL:
            waiting = self._waiting[known] = deque()
        waiting.append(call)
        mended = given
        if new != given.get("id"):
            mended = {**mended, "id": new}
            if not known:
                self._notes.append(f"{place}.id was missing")
        if isinstance(function, dict):
            arguments = _as_object(function.get("arguments"))
            if arguments is not None:
                mended = {**mended, "function": {**function, "arguments": arguments}}
                self._notes.append(f"{place}.function.arguments were no JSON object")
        return mended, call

    def _id(self, given: str, name: str, place: str) -> str:
        """The call's own id if it can be used, else one that follows from what stands before."""
        formed = family_id(self.model, given or place, name, self._count)
        self._count += 1
        self._has_new_ids = self._has_new_ids or (formed is not None and bool(given) and formed != given)
        new = formed or given or _hashed(place, name)
        # Gateways and parallel calls repeat ids, and servers refuse them then:
        # https://github.com/HKUDS/nanobot/issues/4059
        while new in self._used:
            self._notes.append(f"{place}.id came twice")
            new = _hashed(new, place) if formed is None else short_id(new + place)
        self._used.add(new)
        return new

    # Results

    def _result(self, index: int, message: Message) -> None:
        """Put a result behind its call; one whose call is not certain stays where it is, as it is."""
        given = message.get("tool_call_id")
        known = given if isinstance(given, str) else ""
        waiting = self._waiting.get(known)
        if not waiting and known not in self._waiting:
            waiting = self._only_waiting(nameless=bool(known))
        if not waiting:
            self._out.append(message)
            return
        call = waiting.popleft()
        if call.id != given:
            message = {**message, "tool_call_id": call.id}
            if not self._has_new_ids:
                self._notes.append(f"messages[{index}].tool_call_id was put right")
        call.result = message

    def _only_waiting(self, *, nameless: bool) -> deque[_Call] | None:
        """The call without a result, if only one is; `nameless`: and if it had no id of its own."""
        found = [waiting for waiting in self._waiting.values() if waiting]
        if nameless and not self._waiting.get(""):
            return None
        return found[0] if len(found) == 1 and len(found[0]) == 1 else None

    # Calls that were left as text

    def _leaked(self, index: int, message: Message) -> None:
        told, ends = self._read(message["content"])
        if not ends:
            self._out.append(message)
            return
        calls = [
            {"id": "", "type": "function", "function": {"name": end.name, "arguments": end.arguments}} for end in ends
        ]
        self._notes.append(f"messages[{index}] held a call as text")
        self._turn(index, {**message, "content": told or None, "tool_calls": calls})
        turn = self._out[-1]
        for call in turn.calls if isinstance(turn, _Turn) else ():
            call.result = {"role": "tool", "tool_call_id": call.id, "content": NOT_CARRIED_OUT}
        self._waiting.pop("", None)

    def _without_copies(self, index: int, message: Message) -> Message:
        """The message without text that says its own structured calls a second time."""
        if not _may_leak(message):
            return message
        told, ends = self._read(message["content"])
        structured = [_meaning(call) for call in message["tool_calls"]]
        if not ends or any((end.name, end.arguments) not in structured for end in ends):
            return message
        self._notes.append(f"messages[{index}] held its calls as text, too")
        return {**message, "content": told or None}

    def _read(self, content: str) -> tuple[str, list[End]]:
        """The text without its calls, and the calls, if nothing but certain ones are in it."""
        if not 0 < len(self.tools) <= self.options.limits.max_read_tools or len(content) > self._left:
            return content, []
        self._left -= len(content)
        # Without the operator's own options: what is mended in a history must not change with them from turn to turn.
        options = Options(limits=self.options.limits, min_confidence=_CERTAIN)
        reader = reader_factory(tools=self.tools, options=options, model=self.model)()
        events = [*reader.feed(content), *reader.finish("stop")]
        ends = [event for event in events if isinstance(event, End)]
        told = "".join(event.raw for event in events if isinstance(event, Text))
        behind = "".join(event.raw for event in events[_last(events) + 1 :] if not isinstance(event, Drop))
        return (told.rstrip(), ends) if ends and not behind.strip() else (content, [])


_beginnings: Beginnings[_Mending] = Beginnings()


def _given_id(call: object) -> str:
    given = call.get("id") if isinstance(call, dict) else None
    return given if isinstance(given, str) else ""


def _shown(notes: list[str]) -> tuple[str, ...]:
    rest = len(notes) - _MAX_NOTES
    return (*notes[:_MAX_NOTES], f"and {rest} mends more") if rest > 0 else tuple(notes)


def _last(events: Sequence[object]) -> int:
    return max((at for at, event in enumerate(events) if isinstance(event, End)), default=-1)


def _meaning(call: object) -> tuple[Any, str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return None, ""
    try:
        arguments = dumps(loads_strict(function["arguments"]), ensure_ascii=False, separators=(",", ":"))
    except (JsonFault, KeyError, TypeError, ValueError, RecursionError):
        return None, ""
    return function.get("name"), arguments


def _as_object(arguments: object) -> str | None:
    """The arguments as the JSON text of an object; None where that is what they are."""
    if arguments is None:
        return "{}"
    if isinstance(arguments, dict):
        return _encoded(arguments)
    if not isinstance(arguments, str):
        return _encoded({"arguments": arguments})
    if not arguments.strip():
        return "{}"
    if arguments_of(arguments) is not None:
        return None
    try:
        parsed = parse(arguments, closed=True)
    except JsonFault:
        return _encoded({"arguments": arguments})
    is_whole = isinstance(parsed.value, dict) and not arguments[parsed.end :].strip()
    return _encoded(parsed.value if is_whole else {"arguments": arguments})


def _encoded(value: object) -> str:
    try:
        return dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        return "{}"


def _hashed(*words: str) -> str:
    # A hash of what stands before: the same conversation gets the same ids in every turn, so prompt caches go on to
    # fit.
    return "call_" + hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:24]
