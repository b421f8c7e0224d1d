"""The first stage: text becomes events, as the reader says; a reader may fail, and costs the reading alone."""

from collections.abc import Callable
from typing import Any

from gateway.answer.stages.transcript import Transcript
from gateway.core.events import Broken, End, Event, Note, Start, Text, Verdict
from gateway.core.reasons import Reason
from strategies.base import AnswerReader, FinishReason, HearsReasoning, InTurns, KeepsText, Kept, Listener, PassesText
from strategies.text.tape import Tape
from strategies.text.turns import Turns

__all__ = ["GuardedReader"]

_known: dict[type, tuple[bool, bool, bool]] = {}
"""What readers of a class can do: to ask each one would cost more than most of them do."""
_MOST_KNOWN = 64


def _abilities(reader: AnswerReader) -> tuple[InTurns | None, PassesText | None, Kept | None]:
    """The reader as one that works in turns, as one that says what it only passes on, and what it keeps."""
    known = _known.get(type(reader))
    if known is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = isinstance(reader, InTurns), isinstance(reader, PassesText), isinstance(reader, KeepsText)
        _known[type(reader)] = known
    turns, passes, keeps = known
    made: Any = reader
    return made if turns else None, made if passes else None, made.tape if keeps else None


class GuardedReader:
    """Passes text to a reader until it raises; from then on all text is text.

    A reader may fail without harm: what it has not accounted for comes back as the text it was. Where a transcript is
    kept, it is told of every event and where it stands.
    """

    __slots__ = (
        "_in_call",
        "_own",
        "_passing",
        "_reader",
        "_size",
        "_tape",
        "_transcript",
        "_turns",
        "_untold",
        "fault",
    )

    def __init__(self, make_reader: Callable[[], AnswerReader], transcript: Transcript | None = None) -> None:
        self._transcript = transcript
        self._reader: AnswerReader | None = None
        self._turns: InTurns | None = None
        """The same reader, where it can do its work in pieces."""
        self._passing: PassesText | None = None
        """The same, where it says what it would only pass on."""
        self._tape: Kept | None = None
        """What it keeps itself of the text that it has not accounted for."""
        self.fault: str | None = None
        """The exception that ended the reading."""
        self._own: Tape | None = None
        """The same, where it keeps nothing."""
        self._untold: list[Event] = []
        """That there is no reader at all."""
        try:
            self._reader = reader = make_reader()
            self._turns, self._passing, self._tape = _abilities(reader)
            self._own = Tape() if self._tape is None else None
        except Exception as error:  # noqa: BLE001 - as below
            # Told with the first text: there is nowhere to tell it yet.
            self._untold = [self._note(error)]
        self._size = 0
        """Characters fed that no event accounts for yet."""
        self._in_call = False

    @property
    def idle(self) -> bool:
        return self._reader is None or self._reader.idle

    def listen(self, *, keeps_space: bool) -> Listener | None:
        """What listens in the reader's place; None while something is open, or where it knows of nothing like that."""
        if self._reader is None or self._passing is None:
            return None
        return self._passing.listen(keeps_space=keeps_space)

    def pass_by(self, text: str) -> tuple[list[Event], int]:
        """Text that the listener has taken, and in which nothing has begun: what of it is text, and its size."""
        told: list[Event] = []
        size = 0
        if self._passing is not None:
            try:
                size = self._passing.pass_by(text)
            except Exception as error:  # noqa: BLE001 - as below
                told = self._failed(error)
        if size:
            text = text[:size]
            if self._transcript is not None:
                self._transcript.add(text)
            told = [Text(text)]
        return told, size

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
            # Without a reader all text is text, as it is behind a fault.
            told = self._noted(self._told())
            return [*told, Text(text)] if text else told
        # Before the step: one that fails has taken the text all the same, and owes it.
        self._size += len(text)
        if self._own is not None:
            self._own.add(text)
        try:
            if self._turns is not None:
                return self._passed(self._turns.step(text, reason))
            return self._passed(reader.feed(text) if reason is None else reader.finish(reason))
        except Exception as error:  # noqa: BLE001 - a plug-in's reader may fail in any way, and costs only the reading
            return self._failed(error, text)

    def reading(self, text: str = "", reason: FinishReason | None = None) -> Turns[list[Event]]:
        """`feed`, or `finish`, in turns."""
        events = [*self.step(text, reason)]
        while self.busy:
            yield
            events += self.step()
        yield
        return events

    def _all(self, events: list[Event]) -> list[Event]:
        events = [*events]
        while self.busy:
            events += self.step()
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
        if self._own is not None:
            # A reader that accounts for more than it was given must not make the tape forget what is to come.
            self._own.base = self._own.end - max(0, self._size)
        return events

    def _rest(self, last: str = "") -> str:
        """What no event accounts for; `last` came with the step that failed."""
        if self._tape is not None:
            kept = len(self._tape)
            # The step that failed may have put its text on the tape or not: the sum of lengths tells which.
            return self._tape.rest(kept) + (last if kept < self._size else "")
        return self._own.text() if self._own is not None else ""

    def _failed(self, error: Exception, last: str = "") -> list[Event]:
        rest = self._rest(last)
        # For good: a reader that has failed once is in no state that anybody knows.
        self._reader = self._turns = self._tape = self._own = None
        # A call that has begun is with the client already: it can only break, where all else is text again.
        told: list[Event] = [Broken(rest, "internal")] if self._in_call else [Text(rest)] if rest else []
        told = self._noted([self._note(error), *told])
        self._size = 0
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
            Verdict(
                dialect="none",
                name="",
                score=0,
                accepted=False,
                reasons=reasons,
                refusal=Reason.INTERNAL,
                meant=True,
            )
        )
