"""One choice of an answer: read, shaped, accounted for, and its calls numbered."""

from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.core.errors import GatewayError, UpstreamBadReply
from gateway.core.events import Broken, Drop, End, Event, Note, Said, Start, Text
from gateway.facts import Facts, delivered
from gateway.guarded import GuardedReader
from gateway.hearing import HearingReader
from gateway.holding import Hold
from gateway.slots import Slot
from gateway.wire.chat_chunks import args_mould, call_start_chunk
from gateway.wire.native_calls import NativeCalls
from strategies.base import AnswerReader, Attempt, FinishReason, Prepared
from strategies.mapping import part_id
from strategies.shaper import Shaper

__all__ = ["MakeId", "Voice", "broken_call", "hold_of"]

MakeId = Callable[[str], str]


class Voice:
    """One choice of an answer: its reader, its shape, and how its calls are numbered."""

    __slots__ = (
        "_base_id",
        "_facts",
        "_make_id",
        "_reader",
        "args_mould",
        "attempt",
        "call_id",
        "finished",
        "hold",
        "index",
        "native",
        "number",
        "shaper",
        "spoken",
        "waiting",
    )

    def __init__(
        self,
        index: int,
        prepared: Prepared,
        make_id: MakeId,
        facts: Facts,
        hold: Hold | None = None,
        *,
        keep_text: bool = False,
    ) -> None:
        self.index = index
        self._reader: AnswerReader | None = GuardedReader(prepared.make_reader) if prepared.make_reader else None
        if keep_text and self._reader is not None:
            self._reader = hearing = HearingReader(self._reader)
            facts.heard[index] = hearing.heard
        self.hold = hold
        self.attempt: Attempt | None = None
        """What is to be asked again, once the choice has finished."""
        self.shaper = Shaper(prepared.shape)
        self.native = NativeCalls(make_id, prepared.rename)
        self.waiting: deque[Slot] = deque()
        """The slots of which not every character is decided."""
        self.number = -1
        """The number of the call under way."""
        self.call_id = ""
        self._base_id = ""
        self.args_mould = (b"", b"")
        self.spoken = False
        """A chunk of this choice with a role has gone out."""
        self.finished = False
        self._make_id = make_id
        self._facts = facts

    @property
    def listens(self) -> bool:
        return self._reader is not None

    def feed(self, text: str) -> list[Event]:
        if self._reader is None:
            return [Text(text)]
        events = self.shaper.feed(self._reader.feed(text))
        return events if self.hold is None else self.hold.take(text, events)

    def finish(self, reason: FinishReason) -> list[Event]:
        """The last events; none of those that are held back while there is an `attempt`."""
        if self._reader is None:
            return []
        reader, self._reader = self._reader, None
        events = [*self.shaper.feed(reader.finish(reason)), *self.shaper.finish()]
        if self.hold is None:
            return events
        events = self.hold.take("", events)
        self.attempt = self.hold.due(reason)
        return events if self.attempt is not None else [*events, *self.hold.release()]

    def replace_attempt(self) -> list[Event]:
        """A call is told in the place of the attempt."""
        self.attempt = None
        return self.hold.replaced() if self.hold is not None else []

    def give_back(self) -> list[Event]:
        """No call of this choice's text is wanted any more: what waits is text."""
        self.attempt = None
        events = self.hold.release() if self.hold is not None else []
        if self._reader is None:
            return events
        reader, self._reader = self._reader, None
        return [*events, *self.shaper.feed(reader.finish("cut")), *self.shaper.give_back()]

    def begin_call(self, start: Start, call_id: str | None = None) -> None:
        """The next call, under an id of its own unless it comes with one."""
        self.number += 1
        self.native.first = self.number + 1
        number, count = start.part
        if call_id is None and number == 1:
            self._base_id = self._make_id(start.dialect)
        self.call_id = call_id or part_id(self._base_id, number, count)

    def begin(self, start: Start, event: dict[str, Any], call_id: str | None = None) -> bytes:
        """The first chunk of a call."""
        self.begin_call(start, call_id)
        role, self.spoken = not self.spoken, True
        self.args_mould = args_mould(event, self.index, self.number)
        return call_start_chunk(event, self.index, self.number, self.call_id, start.name, role=role)

    def account(self, event: Event) -> None:
        """Say of an event's raw text, slot by slot, whether it stays text."""
        at = 0
        while at < len(event.raw) and self.waiting:
            slot = self.waiting[0]
            taken = min(len(event.raw) - at, slot.left)
            if isinstance(event, Text):
                slot.text(event.raw[at : at + taken])
            else:
                slot.changed = True
            at += taken
            slot.left -= taken
            if slot.left == 0:
                self.waiting.popleft()

    def note(self, event: Event) -> None:
        """Keep what is to be recorded of an event."""
        match event:
            case End() | Said():
                self._facts.calls.append(delivered(event.verdict, event.arguments))
            case Note():
                kept = self._facts.overheard if event.verdict.accepted else self._facts.refused
                kept.append(event.verdict)
            case Broken():
                self._facts.broken.append(event.reason)
            case Drop():
                self._facts.dropped[event.reason] += 1
            case _:
                pass

    def final_reason(self, reason: FinishReason) -> FinishReason:
        """The finish reason to give; a call that was read makes a stop a call."""
        return "tool_calls" if self.number >= 0 and reason in ("stop", "tool_calls", "function_call") else reason


def hold_of(prepared: Prepared) -> Hold | None:
    """What holds back an attempt of the only choice, where it can be asked again."""
    if prepared.repair is None or prepared.make_reader is None:
        return None
    return Hold(prepared.repair)


def broken_call(reason: str) -> GatewayError:
    return UpstreamBadReply(f"the model's tool call broke off: {reason}")
