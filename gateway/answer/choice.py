"""One choice of an answer: read, shaped, accounted for, and its calls numbered."""

from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.answer.facts import Facts, delivered
from gateway.answer.queue import Pending
from gateway.answer.stages import GuardedReader, Hold, Shaper
from gateway.answer.transcript import Transcript
from gateway.core.errors import GatewayError, UpstreamBadReply
from gateway.core.events import Broken, Drop, End, Event, Note, Said, Start, Text
from gateway.wire.chat_chunks import args_template, call_start_chunk
from gateway.wire.structured_calls import CallKey, NativeCalls, key_of
from strategies.base import BrokenCall, FinishReason, Prepared, part_id

__all__ = ["Choice", "MakeId", "broken_off", "hold_of"]

MakeId = Callable[[str], str]


class Choice:
    """One choice of an answer: its reader, its shape, and how its calls are numbered."""

    __slots__ = (
        "_base_id",
        "_call",
        "_early",
        "_facts",
        "_held_events",
        "_is_mapped",
        "_make_id",
        "_read_calls",
        "_reader",
        "_reads",
        "_texts",
        "args_template",
        "broken_call",
        "call_id",
        "finished",
        "held",
        "held_calls",
        "hold",
        "index",
        "native",
        "number",
        "shaper",
        "spoken",
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
        transcript = Transcript() if keep_text and prepared.make_reader else None
        if transcript is not None:
            facts.transcripts[index] = transcript
        self._reader = GuardedReader(prepared.make_reader, transcript) if prepared.make_reader else None
        self._early: list[Event] | None = None
        """What the end of the text came to so far, once it has been begun to be read."""
        self.hold = hold
        self.broken_call: BrokenCall | None = None
        """What is to be asked again, once the choice has finished."""
        self.shaper = Shaper(prepared.shape)
        self.native = NativeCalls(make_id, prepared.rename)
        self.held: deque[Pending] = deque()
        """The events of which not every character is decided."""
        self.number = -1
        """The number of the call under way."""
        self.call_id = ""
        self._base_id = ""
        self.args_template = (b"", b"")
        self.spoken = False
        """A chunk of this choice with a role has gone out."""
        self.finished = False
        self.held_calls: list[Pending] = []
        """Events with structured calls that may be those of the text again."""
        self._make_id = make_id
        self._facts = facts
        self._reads = self._reader is not None
        self._is_mapped = prepared.mapping is not None
        self._texts = 0
        """How many calls have begun that are not the model server's own."""
        self._read_calls: list[tuple[str, str]] = []
        """Name and arguments of those that were read from text."""
        self._call: list[Event] = []
        """The call of the text under way, where it may be a structured one again."""
        self._held_events: list[Event] = []
        """Everything from the first call on of which that cannot be told before the answer's end."""

    @property
    def listens(self) -> bool:
        return self._reader is not None

    @property
    def may_call(self) -> bool:
        """A call may stand in what is held: there is none in white space."""
        return bool(self.held) and (self.shaper.holds_calls or not (self._reader is None or self._reader.idle))

    @property
    def given(self) -> set[CallKey]:
        """The calls that were read from text."""
        return {key_of(name, arguments) for name, arguments in self._read_calls}

    @property
    def holds_events(self) -> bool:
        """Calls of the text are held for the end of structured ones."""
        return bool(self._held_events)

    @property
    def may_repeat(self) -> bool:
        """A structured call that begins now may be one that was written as text, before it or about to be."""
        return not self._is_mapped and (self.number >= 0 or bool(self.held) or bool(self.held_calls))

    def reasoned(self) -> list[Event]:
        """The choice's reasoning is over or has a field of its own: what was held for that."""
        return self._shaped("", self._reader.reasoned()) if self._reader is not None else []

    def feed(self, text: str) -> list[Event]:
        if self._reader is None:
            return self._distinct([Text(text)])
        return self._shaped(text, self._reader.step(text))

    @property
    def busy(self) -> bool:
        """More can be done with the text that was given: `go_on` does a piece of it."""
        return self._reader is not None and self._reader.busy

    def go_on(self) -> list[Event]:
        """What another piece of the work comes to; what comes of the end is kept for `finish` or `give_back`."""
        if self._reader is None:
            return []
        if self._early is None:
            return self._shaped("", self._reader.step())
        self._early += self._reader.step()
        return []

    def read_end(self, reason: FinishReason) -> None:
        """Begin to read the end of the text: no more follows, and once it is not `busy` all has been read."""
        if self._reader is not None and self._early is None:
            self._early = self._reader.step(reason=reason)

    def _last(self, reader: GuardedReader, reason: FinishReason) -> list[Event]:
        """What the end of the text comes to."""
        self.read_end(reason)
        while reader.busy:
            self.go_on()
        self._reader = None
        return self.shaper.feed(self._early or [])

    def _shaped(self, text: str, events: list[Event]) -> list[Event]:
        events = self.shaper.feed(events)
        return self._distinct(events if self.hold is None else self.hold.take(text, events))

    def finish(self, reason: FinishReason) -> list[Event]:
        """The last events; none of those that are held while there is a `broken_call`."""
        if self._reader is None:
            return []
        events = [*self._last(self._reader, reason), *self.shaper.finish()]
        if self.hold is None:
            return self._distinct(events)
        events = self.hold.take("", events)
        self.broken_call = self.hold.broken_call(reason)
        return self._distinct(events if self.broken_call is not None else [*events, *self.hold.release()])

    def finish_calls(self) -> list[Event]:
        """The end of what is held for structured calls: a call that is one of them is dropped."""
        known = self.native.keys
        out: list[Event] = []
        call: list[Event] = []
        held, self._held_events, self._call = [*self._held_events, *self._call], [], []
        for event in held:
            if call or isinstance(event, Start | Said):
                call.append(event)
            else:
                out.append(event)
            if isinstance(event, End | Said | Broken):
                out += self._dropped(call) if _key_of(event) in known else call
                call = []
        return [*out, *call]

    def _dropped(self, call: list[Event]) -> list[Event]:
        """A call that the client has."""
        return [Drop("".join(event.raw for event in call), "repeated")]

    def _distinct(self, events: list[Event]) -> list[Event]:
        """The events that are not held for the end of structured calls which they may repeat."""
        if self._is_mapped or (not self.native.count and not self._held_events):
            return events
        out: list[Event] = []
        for event in events:
            if self._held_events:
                self._held_events += [*self._call, event]
                self._call = []
            elif self._call or isinstance(event, Start | Said):
                self._call.append(event)
                if not isinstance(event, End | Said | Broken):
                    continue
                if isinstance(event, Broken) or not self.native.may_name(_name_of(event)):
                    out += self._call
                else:
                    self._held_events += self._call
                self._call = []
            else:
                out.append(event)
        return out

    def release_hold(self) -> list[Event]:
        """There is a call that can be used: nothing of this choice will be asked again."""
        return self._distinct(self.hold.release() if self.hold is not None else [])

    def replace_broken_call(self) -> list[Event]:
        """A call is told in the place of the broken one."""
        self.broken_call = None
        return self.hold.replaced() if self.hold is not None else []

    def give_back(self) -> list[Event]:
        """No call of this choice's text is wanted any more: what is held is text."""
        self.broken_call = None
        events = self.hold.release() if self.hold is not None else []
        if self._reader is not None:
            events = [*events, *self._last(self._reader, "cut"), *self.shaper.give_back()]
        return self._distinct(events)

    def begin_call(self, start: Start, call_id: str | None = None) -> None:
        """The next call, under an id of its own unless it comes with one."""
        self._texts += 1
        self.number = self._texts - 1 + (0 if self._is_mapped else self.native.numbered)
        self.native.first = self._texts
        number, count = start.part
        if call_id is None and number == 1:
            self._base_id = self._make_id(start.dialect)
        self.call_id = call_id or part_id(self._base_id, number, count)

    def begin(self, start: Start, event: dict[str, Any], call_id: str | None = None) -> bytes:
        """The first chunk of a call."""
        self.begin_call(start, call_id)
        role, self.spoken = not self.spoken, True
        self.args_template = args_template(event, self.index, self.number)
        return call_start_chunk(event, self.index, self.number, self.call_id, start.name, role=role)

    def account(self, event: Event) -> None:
        """Say of an event's raw text, event by event, whether it stays text."""
        at = 0
        while at < len(event.raw) and self.held:
            pending = self.held[0]
            taken = min(len(event.raw) - at, pending.held)
            if isinstance(event, Text):
                pending.text(event.raw[at : at + taken])
            else:
                pending.changed = True
            at += taken
            pending.held -= taken
            if pending.held == 0:
                self.held.popleft()

    def note(self, event: Event) -> None:
        """Keep what is to be recorded of an event."""
        match event:
            case End() | Said():
                self._read_calls.append((event.verdict.name, event.arguments))
                self._facts.calls.append(delivered(event.verdict, event.arguments))
            case Note():
                kept = self._facts.intents if event.verdict.accepted else self._facts.refused
                kept.append(event.verdict)
            case Broken():
                self._facts.broken.append(event.reason)
            case Drop():
                self._facts.dropped[event.reason] += 1
            case _:
                pass

    def final_reason(self, reason: FinishReason) -> FinishReason:
        """The finish reason to give; a call that was read makes a stop a call."""
        is_call = self.number >= 0 or (self._reads and reason == "function_call" and self.native.numbered > 0)
        return "tool_calls" if is_call and reason in ("stop", "tool_calls", "function_call") else reason


def _name_of(event: End | Said) -> str:
    return event.verdict.name


def _key_of(event: Event) -> CallKey | None:
    return key_of(_name_of(event), event.arguments) if isinstance(event, End | Said) else None


def hold_of(prepared: Prepared) -> Hold | None:
    """What holds a broken call of the only choice, where it can be asked again."""
    if prepared.ask_again is None or prepared.make_reader is None:
        return None
    return Hold(prepared.ask_again)


def broken_off(reason: str) -> GatewayError:
    return UpstreamBadReply(f"the model's tool call broke off: {reason}")
