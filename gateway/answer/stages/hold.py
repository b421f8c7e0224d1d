"""The stage that holds what may be asked for again."""

from gateway.answer.stages.guard import GuardedReader
from gateway.answer.stages.shaper import Shaper
from gateway.core.events import END_REASONS, Drop, End, Event, Note, Start, Text, Verdict, refused
from gateway.core.reasons import Reason
from strategies.base import AsksAgain, BrokenCall, FinishReason, Shape
from strategies.grammar.confidence import UNFIT
from strategies.reading.factory import Readers
from strategies.text.tape import Tape
from strategies.text.turns import Turns

__all__ = ["Hold"]

_LIMIT = 1 << 18
"""Characters of an answer that can be asked for again: a longer one costs too much to be written twice."""
_LEAST_LIMIT = 1 << 16
"""Characters of calls that are read once more."""
_BEHIND = 500
"""How much text may follow a broken call: an answer that goes on was not waiting for its call."""


class Hold:
    """Holds the events of a choice while a broken call in it may still be asked for again; what it gives out is final.

    Text flows until a call is plainly meant and cannot be used: it is broken, or its tool does not exist. From there
    on everything is held for the answer's end, unless a call that can be used, or much other text, shows that there is
    nothing to ask for. Where a call is required everything is held from the beginning.
    """

    __slots__ = ("_ask", "_first", "_held", "_notes", "_room", "_said", "broken_call", "is_over")

    def __init__(self, ask: AsksAgain) -> None:
        self._ask = ask
        self._said = Tape(fresh=0)
        self._held: list[Event] = []
        self._first: int | None = None
        """Where among them the broken call stands, or another call in its place."""
        self._notes: tuple[Note, ...] = ()
        self._room = 0
        self.is_over = False
        """Nothing is held any more, and nothing will be asked again."""
        self.broken_call: BrokenCall | None = None
        """What is to be asked again, once the choice has ended."""

    @property
    def held(self) -> bool:
        """A call was plainly meant, or is required, and none that can be used has come."""
        return bool(self._held)

    @property
    def passes(self) -> bool:
        """There is nothing to ask for so far."""
        return self.is_over or not (self._notes or self._ask.required)

    def feed(self, events: list[Event]) -> list[Event]:
        """The events that may go out now."""
        if self.is_over:
            return events
        out: list[Event] = []
        for event in events:
            if not self.is_over:
                self._said.add(event.raw)
            out += self._passed(event)
        # Asking would send all of it back, and have it written a second time.
        if self._said.end > _LIMIT:
            out += self.release()
        return out

    def finish(self, reason: FinishReason) -> list[Event]:
        """Everything that is held, unless it is to be asked for again (`broken_call`)."""
        if self.is_over or reason not in END_REASONS or not (self._notes or self._ask.required):
            return self.release()
        self.broken_call = BrokenCall(content=self._said.text(), notes=self._notes)
        return []

    def release(self) -> list[Event]:
        """Everything that is held; nothing will be asked again."""
        if self.is_over:
            return []
        self.is_over, self.broken_call = True, None
        held, self._held = self._held, []
        self._said = Tape()
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

    def as_written(self, readers: Readers, shape: Shape) -> Turns[list[Event]]:
        """What is held, now that nothing better came of asking again, in turns.

        A server that reads its model's own tokens itself passes on what the model wrote, and the client answers that
        an argument is missing: better than tokens as an answer, which end its work. So it is here where such calls, as
        they were written, are all that is held.
        """
        said = self.broken_call
        lenient = readers.as_written() if said is not None and said.notes else None
        text = "".join(event.raw for event in self._held)
        events: list[Event] = []
        if lenient is not None and len(text) <= _LEAST_LIMIT:
            reader = GuardedReader(lenient)
            events += yield from reader.reading(text)
            events += yield from reader.reading(reason="stop")
        # Only now: who is interrupted in between still holds it.
        held = self.release()
        calls = [event for event in events if isinstance(event, End)]
        is_unfit = bool(calls) and UNFIT in calls[0].verdict.reasons
        if not is_unfit or any(map(_is_said, events)) or not all(self._ask.satisfies(call.name) for call in calls):
            return held
        shaper = Shaper(shape)
        return [*shaper.feed(events), *shaper.finish("stop")]

    def _passed(self, event: Event) -> list[Event]:
        if self.is_over:
            return [event]
        # A call that can be used is worth more than the one that could not: nothing is asked for then.
        if isinstance(event, Start) and event.is_declared and self._ask.satisfies(event.name):
            return [*self.release(), event]
        # The first broken call is the one that is asked for; others behind it are most often the same once more.
        note = None if self._notes else self._broken_call_of(event)
        if note is not None:
            self._notes = (note,)
            # The broken call's own text follows its note, and is no answer that goes on.
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
