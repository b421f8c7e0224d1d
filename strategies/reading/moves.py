"""What a mode of the reader is, and the mode in which a candidate is read."""

from enum import Enum
from typing import Final, Protocol

from attrs import define

from gateway.core.events import Event, Text
from strategies.grammar.dialect import Opening
from strategies.reading.candidate import Candidate
from strategies.reading.openings import Rows
from strategies.reading.window import Window

__all__ = ["WAIT", "Call", "Mode", "Move", "Wait"]

_TAG = 100
"""How long a tag may be that is remembered as the end of a call."""


class Wait(Enum):
    TEXT = "text"


WAIT: Final = Wait.TEXT
"""Nothing more can be done with the text at hand."""


class Mode(Protocol):
    """One way in which the text at hand is looked at."""

    @property
    def in_fence(self) -> bool:
        """A code fence is open."""
        ...

    @property
    def levels(self) -> str | None:
        """The levels of evidence that open a call in it; None unless it is a ground mode: where nothing waits, and text
        in which nothing could open anything goes out as it comes."""
        ...

    def step(self, window: Window) -> "Move":
        """One move: what it does to the window, and which mode goes on."""
        ...

    def finish(self, window: Window) -> None:
        """The answer ends here: what is held is decided."""
        ...


Move = Mode | Wait
"""The mode that goes on, which is often the same one, or `WAIT`."""


@define(eq=False)
class Call:
    """A candidate is being read; what it turns out to be goes where `after` wants it, and `after` goes on behind it."""

    candidate: Candidate
    after: Mode
    _started: int
    _before: tuple[str, bool]
    """What stood before it, and whether its line began there."""

    levels = None

    @classmethod
    def begin(cls, window: Window, rows: Rows, opening: Opening, after: Mode) -> "Call":
        context, out = window.context, window.out
        is_decided = (out.is_thought_over or context.retells) and out.idle
        # Arguments that have gone out cannot be taken back: nothing may be left to decide.
        live = is_decided and context.options.stream_arguments == "incremental"
        opening = window.openings.begun(opening, window.offset, window.tail)
        candidate = Candidate(rows, opening, context, window.tape, window.offset, live=live)
        return cls(candidate, after, window.offset, (window.tail, window.is_line_start))

    @property
    def in_fence(self) -> bool:
        return self.after.in_fence

    def step(self, window: Window) -> Move:
        """Let the candidate read what has come."""
        candidate = self.candidate
        # All of it: what the candidate does not use it gives back.
        text, window.buf = window.buf, ""
        over = candidate.feed(text, eof=window.eof, cut=window.cut)
        for event in candidate.events:
            if event.raw:
                self._pass(event, window)
            window.add(event)
        candidate.events.clear()
        if not over:
            return WAIT
        window.tape.held = None
        if window.out.held is not None:
            window.out.held.cut |= candidate.cut
        window.spent += candidate.made
        # What it still held would be freed with it, in one go.
        candidate.made.clear()
        window.offset = self._started + candidate.accounted
        blind = window.openings.ended(candidate, window.offset)
        window.give(candidate.rest)
        candidate.close()
        # It never moves back: what has been refused would begin again at each of its characters.
        window.blind = max(window.blind, window.offset + blind)
        return self.after

    def _pass(self, event: Event, window: Window) -> None:
        """Remember a part of it; of a call no more than its end, as its values are not what stands before."""
        raw = event.raw
        if not isinstance(event, Text) and (body := raw.rstrip()):
            tag = body.rfind("<", -_TAG) if body[-1] == ">" else -1
            window.tail, window.is_line_start = self._before
            raw = raw[tag if tag >= 0 else len(body) - 1 :]
        window.passed(raw)

    def finish(self, window: Window) -> None:
        self.after.finish(window)
