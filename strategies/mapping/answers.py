"""Answers to a request whose tools were mapped: the model's calls become the client's, or are refused.

A call that cannot be translated exactly is none for the client: in text it stays text, with a note that asks for it
again; a structured one is asked for again with the refusal as its result.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen
from msgspec.structs import replace

from gateway.core.events import Args, Broken, End, Event, Note, Start, Text, refused
from gateway.core.reasons import Reason
from strategies.asking.ask_again import UNTRANSLATABLE, AskAgain
from strategies.base import (
    AnswerReader,
    BrokenCall,
    CallBack,
    FinishReason,
    HearsReasoning,
    Prepared,
    Refusal,
    Translates,
)
from strategies.mapping.mappings import Mapped

__all__ = ["ClientCall", "Translation", "mapped", "translation_of"]

_SHOWN = 4000
# `parallel_tool_calls: false`: the client takes the first call of a message, and would lose the rest of the change.
_ONE_AT_A_TIME = "Nothing was done. Only one change can be made at a time: make one call for each."


@frozen(kw_only=True)
class ClientCall:
    """A call of one of the client's tools."""

    id: str
    name: str
    arguments: str


@frozen(kw_only=True)
class Translation:
    """What the structured calls of one message become."""

    calls: tuple[ClientCall, ...]
    """Refused ones are among them as they came, for whoever gives up asking."""
    refusals: Mapping[str, str] = field(factory=dict)
    _given: tuple[tuple[str, str, str], ...] = ()

    def broken_call(self, content: str = "") -> BrokenCall | None:
        """What is to be asked again; `None` where everything could be translated."""
        if not self.refusals:
            return None
        calls: list[Mapping[str, Any]] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in self._given
        ]
        return BrokenCall(content=content, calls=tuple(calls), refusals=self.refusals)


def mapped(prepared: Prepared, mapping: Mapped, *, one_at_a_time: bool) -> Prepared:
    """The same preparation, its answer's calls translated back."""
    backing = _Back(mapping, one_at_a_time)
    make_inner = prepared.make_reader
    make_reader = None if make_inner is None else lambda: _MappedReader(make_inner(), backing)
    ask_again = prepared.ask_again
    # The name in a demand is that of the client's tool, and the model knows only its own.
    if isinstance(ask_again, AskAgain):
        ask_again = replace(ask_again, translated_name=mapping.demanded)
    return replace(prepared, mapping=backing, make_reader=make_reader, ask_again=ask_again)


def translation_of(mapping: Translates, calls: Iterable[tuple[str, str, str]]) -> Translation:
    """What calls with these ids, names and arguments become."""
    given = tuple(calls)
    told: list[ClientCall] = []
    refusals: dict[str, str] = {}
    for call_id, name, arguments in given:
        back = mapping.back(name, arguments)
        if isinstance(back, Refusal):
            refusals[call_id] = back.text
            told.append(ClientCall(id=call_id, name=name, arguments=arguments))
        else:
            told += (ClientCall(id=one.id(call_id), name=one.name, arguments=one.arguments) for one in back)
    return Translation(calls=tuple(told), refusals=refusals, given=given)


@frozen
class _Back:
    """A mapping, for a client that may take only one call of a message."""

    _mapping: Mapped
    _one_at_a_time: bool

    def back(self, name: str, arguments: str) -> tuple[CallBack, ...] | Refusal:
        """The client's calls for one call of the model."""
        calls = self._mapping.back(name, arguments)
        if self._one_at_a_time and not isinstance(calls, Refusal) and len(calls) > 1:
            return Refusal(_ONE_AT_A_TIME)
        return calls


class _MappedReader:
    """Passes text to a reader and translates the calls that it finds."""

    __slots__ = ("_call", "_inner", "_mapping")

    def __init__(self, inner: AnswerReader, mapping: Translates) -> None:
        self._inner = inner
        self._mapping = mapping
        self._call: list[Event] = []
        """The events of the call under way."""

    @property
    def idle(self) -> bool:
        return not self._call and self._inner.idle

    def reasoned(self) -> list[Event]:
        """The answer has reasoning in a field of its own."""
        return self._translated(self._inner.reasoned()) if isinstance(self._inner, HearsReasoning) else []

    def feed(self, text: str) -> list[Event]:
        return self._translated(self._inner.feed(text))

    def finish(self, reason: FinishReason) -> list[Event]:
        return self._translated(self._inner.finish(reason))

    def _translated(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            match event:
                case Start() | Args():
                    self._call.append(event)
                case End():
                    call, self._call = self._call, []
                    is_declared = all(part.is_declared for part in call if isinstance(part, Start))
                    out += self._told("".join(part.raw for part in (*call, event)), event, is_declared=is_declared)
                case Broken():
                    out += (*self._call, event)
                    self._call = []
                case _:
                    out.append(event)
        return out

    def _told(self, raw: str, end: End, *, is_declared: bool) -> Iterable[Event]:
        verdict = end.verdict
        calls = self._mapping.back(end.name, end.arguments)
        if isinstance(calls, Refusal):
            verdict = refused(verdict, Reason.SCHEMA_INVALID, UNTRANSLATABLE + calls.text)
            yield Note(verdict, seen=raw[:_SHOWN], size=len(raw))
            yield Text(raw)
            return
        # The raw text is told once, with the first call: joined, all events must give the text that came.
        for call in calls:
            part = (call.number, call.count)
            yield Start(raw if call.number == 1 else "", call.name, verdict.dialect, part, is_declared)
            yield Args("", call.arguments)
            yield End("", call.name, call.arguments, evolve(verdict, name=call.name))
