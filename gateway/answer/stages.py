"""The stages that one choice of an answer goes through: its reader, the shape of its calls, what is held to ask again.

Each takes what the one before it gave, and every event's raw text leaves the last one in some event.
"""

from collections.abc import Callable, Iterable
from io import StringIO

from gateway.answer.transcript import Transcript
from gateway.core.events import Args, Broken, Drop, End, Event, Note, Said, Start, Text, Verdict, refused
from gateway.core.reasons import Reason
from strategies.base import (
    AnswerReader,
    AsksAgain,
    BrokenCall,
    FinishReason,
    HearsReasoning,
    InTurns,
    Shape,
)
from strategies.reading.reader import CUT_REASONS
from strategies.text.pieces import Pieces

__all__ = ["GuardedReader", "Hold", "Shaper"]

_ROOM = 4096
"""How much text may be kept that is no longer needed."""
_LIMIT = 1 << 18
"""Characters of an answer that can be asked for again: a longer one costs too much to be written twice."""
_BEHIND = 500
"""How much text may follow a broken call: an answer that goes on was not waiting for its call."""


class GuardedReader:
    """Passes text to a reader until it raises; from then on all text is text.

    A reader may fail without harm: what it has not accounted for comes back as the text it was. Where a transcript is
    kept, it is told of every event and where it stands.
    """

    __slots__ = ("_in_call", "_kept", "_pieces", "_reader", "_size", "_transcript", "_turns", "_untold", "fault")

    def __init__(self, make_reader: Callable[[], AnswerReader], transcript: Transcript | None = None) -> None:
        self._transcript = transcript
        self._reader: AnswerReader | None = None
        self._turns: InTurns | None = None
        """The same reader, where it can do its work in pieces."""
        self.fault: str | None = None
        """The exception that ended the reading."""
        self._untold: list[Event] = []
        """That there is no reader at all."""
        try:
            self._reader = reader = make_reader()
            self._turns = reader if isinstance(reader, InTurns) else None
        except Exception as error:  # noqa: BLE001 - as below
            self._untold = [self._note(error)]
        self._pieces = Pieces()
        self._kept = 0
        """Characters that the pieces hold."""
        self._size = 0
        """Characters fed that no event accounts for yet; they are the last ones of the pieces."""
        self._in_call = False

    @property
    def idle(self) -> bool:
        return self._reader is None or self._reader.idle

    def reasoned(self) -> list[Event]:
        """The answer has reasoning in a field of its own."""
        if self._transcript is not None:
            self._transcript.has_reasoned = True
        if not isinstance(self._reader, HearsReasoning):
            return []
        try:
            return self._passed(self._reader.reasoned())
        except Exception as error:  # noqa: BLE001 - as below
            return self._failed(error)

    @property
    def busy(self) -> bool:
        """More can be done with the text at hand: `step` goes on with it."""
        return self._turns is not None and self._turns.busy

    def feed(self, text: str) -> list[Event]:
        return self._all(self.step(text))

    def finish(self, reason: FinishReason) -> list[Event]:
        return self._all(self.step(reason=reason))

    def step(self, text: str = "", reason: FinishReason | None = None) -> list[Event]:
        """A bounded piece of the work, where the reader can do it in pieces, else all of it."""
        if self._transcript is not None:
            self._transcript.add(text, reason)
        reader = self._reader
        if reader is None:
            told = self._noted(self._told())
            return [*told, Text(text)] if text else told
        self._pieces.add(text)
        self._size += len(text)
        self._kept += len(text)
        try:
            if self._turns is not None:
                return self._passed(self._turns.step(text, reason))
            return self._passed(reader.feed(text) if reason is None else reader.finish(reason))
        except Exception as error:  # noqa: BLE001 - a plug-in's reader may fail in any way, and costs only the reading
            return self._failed(error)

    def _all(self, events: list[Event]) -> list[Event]:
        while self.busy:
            events = [*events, *self.step()]
        return events

    def _passed(self, events: list[Event]) -> list[Event]:
        transcript = self._transcript
        for event in events:
            if transcript is not None:
                transcript.take(event, transcript.size - self._size)
            self._size -= len(event.raw)
            if isinstance(event, Start):
                self._in_call = True
            elif isinstance(event, End | Broken):
                self._in_call = False
        if self._kept > _ROOM and self._kept > 2 * self._size:
            self._pieces, self._kept = Pieces(self._rest()), self._size
        return events

    def _rest(self) -> str:
        whole = self._pieces.text()
        return whole[len(whole) - self._size :] if self._size > 0 else ""

    def _failed(self, error: Exception) -> list[Event]:
        self._reader = self._turns = None
        rest = self._rest()
        told: list[Event] = [Broken(rest, "internal")] if self._in_call else [Text(rest)] if rest else []
        told = self._noted([self._note(error), *told])
        self._pieces, self._size = Pieces(), 0
        return told

    def _noted(self, events: list[Event]) -> list[Event]:
        """The same, once they stand in the transcript."""
        transcript = self._transcript
        if transcript is not None:
            for event in events:
                transcript.take(event, transcript.size - self._size)
        return events

    def _told(self) -> list[Event]:
        untold, self._untold = self._untold, []
        return untold

    def _note(self, error: Exception) -> Note:
        self.fault = type(error).__name__
        reasons = (f"the reader failed: {self.fault}", Reason.INTERNAL.value)
        return Note(
            Verdict(dialect="none", name="(reader)", score=0, accepted=False, reasons=reasons, refusal=Reason.INTERNAL)
        )


class Shaper:
    """What becomes of the calls of one choice and of the text around them, once they are read.

    Events come out in the order they came in, with all their raw text. White space before a call is dropped; behind a
    call only what the settings keep stays; where calls are held for the upstream's finish they may still turn back
    into text.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._held_calls: list[Event] = []
        """Everything from the first call on, while calls are held for the finish."""
        self._held_text: list[Event] = []
        """White space and text that the next event decides about."""
        self._skipping = False
        self._left_out = False
        """A call that is left out is left out with all its parts."""
        self.calls = 0
        """Calls that have begun for the client."""
        self.undelivered = 0

    @property
    def idle(self) -> bool:
        return not self._held_calls and not self._held_text

    @property
    def holds_calls(self) -> bool:
        """There is a call, and it is held for the finish."""
        return bool(self._held_calls)

    def feed(self, events: list[Event]) -> list[Event]:
        if len(events) == 1 and not self.calls and self.idle:
            event = events[0]
            if isinstance(event, Text) and (self._shape.keep_space or event.firm or not event.raw[-1].isspace()):
                return events
        out: list[Event] = []
        for event in events:
            if self._shape.wait_for_finish and (self._held_calls or not isinstance(event, Text | Note)):
                self._held_calls.append(event)
            else:
                self._take(event, out)
        return out

    def finish(self) -> list[Event]:
        """The answer has ended as it should."""
        out: list[Event] = []
        held_calls, self._held_calls = self._held_calls, []
        for event in held_calls:
            self._take(event, out)
        held_text, self._held_text = self._held_text, []
        keep = self.calls == 0 or self._shape.keep_trailing
        out += held_text if keep else _dropped(held_text, "trailing")
        return out

    def give_back(self) -> list[Event]:
        """Nothing that is held is a call after all: all of it is its own text."""
        held = [*self._held_text, *self._held_calls]
        self._held_text, self._held_calls = [], []
        return [event if isinstance(event, Text | Note) else Text(event.raw) for event in held]

    def _take(self, event: Event, out: list[Event]) -> None:
        match event:
            case Text():
                self._text(event, out)
            case Drop():
                if event.reason == "leftover" and not any(_says(part) for part in self._held_text):
                    self._held_text = _dropped(self._held_text, "space")
                (self._held_text if self._held_text else out).append(event)
            case Start():
                self._start(event, out)
            case Args():
                out.append(Drop(event.raw, "undelivered") if self._skipping else event)
            case End() | Broken():
                out.append(Drop(event.raw, "undelivered") if self._skipping else event)
                self._skipping = False
            case Said():
                self._said(event, out)
            case Note():
                out.append(event)

    def _text(self, event: Text, out: list[Event]) -> None:
        if self.calls and self._shape.first_only and not self._shape.keep_trailing:
            out.append(Drop(event.raw, "trailing"))
        elif self.calls and not self._shape.keep_trailing:
            self._held_text.append(event)
        else:
            told = event.raw if self._shape.keep_space or event.firm else event.raw.rstrip()
            if told:
                out += self._held_text
                self._held_text = []
                out.append(event if len(told) == len(event.raw) else Text(told))
            if len(told) < len(event.raw):
                self._held_text.append(Text(event.raw[len(told) :]))

    def _start(self, event: Start, out: list[Event]) -> None:
        if self.calls and self._shape.first_only and (event.part[0] == 1 or self._left_out):
            self._left_out = self._skipping = True
            self.undelivered += 1
            out.append(Drop(event.raw, "undelivered"))
            return
        held_text, self._held_text = self._held_text, []
        out += _before_call(held_text)
        self.calls += 1
        out.append(event)

    def _said(self, event: Said, out: list[Event]) -> None:
        """A call in the client's own words stands in the text: what is before it stays as it is."""
        if self.calls and self._shape.first_only:
            self.undelivered += 1
            out.append(Drop(event.raw, "undelivered"))
            return
        held_text, self._held_text = self._held_text, []
        out += held_text
        self.calls += 1
        out.append(event)


def _says(event: Event) -> bool:
    """Whether it is text that is more than white space."""
    return isinstance(event, Text) and not event.raw.isspace()


def _dropped(events: Iterable[Event], reason: str) -> list[Event]:
    return [Drop(event.raw, reason) if isinstance(event, Text) else event for event in events]


def _before_call(events: list[Event]) -> list[Event]:
    """Text between two calls stays, without the white space at its end."""
    last = max((at for at, event in enumerate(events) if isinstance(event, Text) and event.raw.strip()), default=-1)
    out: list[Event] = []
    for at, event in enumerate(events):
        if at < last or not isinstance(event, Text):
            out.append(event)
        elif at == last:
            told = event.raw.rstrip()
            out.append(Text(told))
            if len(told) < len(event.raw):
                out.append(Drop(event.raw[len(told) :], "space"))
        else:
            out.append(Drop(event.raw, "space"))
    return out


class Hold:
    """Holds the events of a choice while a broken call in it may still be asked for again; what it gives out is final.

    Text flows until a call is plainly meant and cannot be used: it is broken, or its tool does not exist. From there
    on everything is held for the answer's end, unless a call that can be used, or much other text, shows that there is
    nothing to ask for. Where a call is required everything is held from the beginning.
    """

    __slots__ = ("_ask", "_first", "_held", "_notes", "_room", "_said", "_size", "is_over")

    def __init__(self, ask: AsksAgain) -> None:
        self._ask = ask
        self._said = StringIO()
        self._size = 0
        self._held: list[Event] = []
        self._first: int | None = None
        """Where among them the broken call stands, or another call in its place."""
        self._notes: tuple[Note, ...] = ()
        self._room = 0
        self.is_over = False
        """Nothing is held any more, and nothing will be asked again."""

    def take(self, text: str, events: list[Event]) -> list[Event]:
        """The events that may go out now, of those that this text led to."""
        if self.is_over:
            return events
        self._said.write(text)
        self._size += len(text)
        out: list[Event] = []
        for event in events:
            out += self._passed(event)
        if self._size > _LIMIT:
            out += self.release()
        return out

    def broken_call(self, reason: FinishReason) -> BrokenCall | None:
        """What is to be asked again now that the choice has ended."""
        if self.is_over or reason in CUT_REASONS or not (self._notes or self._ask.required):
            return None
        return BrokenCall(content=self._said.getvalue(), notes=self._notes)

    def release(self) -> list[Event]:
        """Everything that is held; nothing will be asked again."""
        self.is_over = True
        held, self._held = self._held, []
        self._said.close()
        return held

    def replaced(self) -> list[Event]:
        """What is held, now that a call stands in the broken one's place: only the text before it stays text."""
        held = self.release()
        first = len(held) if self._first is None else self._first
        said = max((at for at, event in enumerate(held[:first]) if _is_said(event)), default=-1)
        return [
            Drop(event.raw, "repaired") if at > said and not isinstance(event, Note) else event
            for at, event in enumerate(held)
        ]

    def _passed(self, event: Event) -> list[Event]:
        if self.is_over:
            return [event]
        if isinstance(event, Start) and event.is_declared and self._ask.satisfies(event.name):
            return [*self.release(), event]
        note = None if self._notes else self._broken_call_of(event)
        if note is not None:
            self._notes = (note,)
            self._room = note.size + _BEHIND
            self._mark()
        elif not self._notes and not self._ask.required:
            return [event]
        elif isinstance(event, Start):
            self._mark()
        self._held.append(event)
        if self._notes and not self._ask.required:
            self._room -= len(event.raw) if isinstance(event, Text | Drop) else 0
            if self._room < 0:
                return self.release()
        return []

    def _broken_call_of(self, event: Event) -> Note | None:
        """The broken call that an event tells of: a call that cannot be used, or one of a tool that does not exist."""
        if isinstance(event, Note):
            return event if self._ask.is_broken_call(event) else None
        if not isinstance(event, Start) or event.is_declared:
            return None
        verdict = Verdict(dialect=event.dialect, name=event.name, score=0, accepted=False)
        return Note(refused(verdict, Reason.UNKNOWN_TOOL))

    def _mark(self) -> None:
        if self._first is None:
            self._first = len(self._held)


def _is_said(event: Event) -> bool:
    return isinstance(event, Text) and (event.firm or not event.raw.isspace())
