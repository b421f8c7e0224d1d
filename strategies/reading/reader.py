"""The streaming reader: text that arrives in pieces becomes text and calls.

Grammar: the answer is text in which candidates stand. A candidate begins at a marker of an active dialect that is not
in a literal context (code fence, inline code, quotation, reasoning) and is read by that dialect's generator over a
cursor. What the generator refuses becomes text again and is searched behind the marker.

The reader is the loop: it gives text to the window, lets the mode under way (`modes`) make one move after the other,
and takes what has been decided. It works in turns, as others of the process wait while it does.

Invariants: the raw text of all events, joined, is the input; the events do not depend on how the input was cut; the
work is linear, as text given back by refused candidates is read again only within a budget; only what may still become
a call is held.
"""

import re

from gateway.core.events import END_REASONS, Drop, End, Event, Text
from strategies.base import FinishReason
from strategies.grammar.dialect import Context
from strategies.grammar.lexicon import end_tokens_from
from strategies.reading.active import Grammar
from strategies.reading.candidate import Gathering
from strategies.reading.fences import Fence
from strategies.reading.foresight import Overhearing
from strategies.reading.modes import BehindDrafts, Prose
from strategies.reading.moves import WAIT, Call, Mode
from strategies.reading.outlet import joined
from strategies.reading.window import Window
from strategies.text.tape import Tape
from strategies.text.turns import let_go

__all__ = ["Reader"]

_TURN = 1 << 12
"""How many characters are worked off before the others of the process have their turn."""
_AT_ONCE = 1 << 15
"""How many characters are heard in one go; a longer text is read in turns, unless there is nothing in it to be read."""
_MOVE = 40
"""What a move costs, in characters."""
_LONGEST_WORD, _MOST_WORDS = 24, 512
"""Of those that answers begin with: how long they may be to be remembered, and how many."""
_WORDS = re.compile(r"[\w ,.:!?'’-]+")
"""What of them may be remembered: no sign in it marks anything by itself."""


class Reader:
    """Reads one choice of one answer."""

    def __init__(self, context: Context, grammar: Grammar) -> None:
        self._window = Window(context, grammar)
        self._mode: Mode = Prose()
        self._is_fresh = True
        """Nothing has come."""
        self.busy = False
        """More can be done with the text at hand: `step` goes on with it."""
        self._tail = ""
        """What came last, if it may be what ends the turn for the engine: a call that is open there ends before it."""
        self._reason: FinishReason | None = None
        """The answer has ended, and what came before its tail is still worked off."""

    @property
    def idle(self) -> bool:
        window = self._window
        return window.is_told and not self._tail and window.out.idle and not isinstance(self._mode, Call)

    @property
    def held(self) -> int:
        """How many characters wait for a decision."""
        window, mode = self._window, self._mode
        held = len(window.buf) - window.told + window.out.size + len(self._tail)
        return held + mode.candidate.held if isinstance(mode, Call) else held

    def listen(self, *, keeps_space: bool) -> Overhearing | Gathering | None:
        """What listens in its place from here on; None while something is open but the value of a call."""
        window, mode = self._window, self._mode
        if self._tail:
            return None
        if isinstance(mode, Call):
            return mode.candidate.gathering() if window.is_empty and not self.busy else None
        if mode.levels is None or not window.is_plain:
            return None
        mark = mode.mark[0] if isinstance(mode, Fence) else ""
        return window.overhear(mode.levels, keeps_space=keeps_space, mark=mark)

    def pass_by(self, text: str) -> int:
        """Its listener has taken this text, in which nothing has begun; how much of it is taken down."""
        if text[-1] == "`":  # the run may go on
            text = text.rstrip("`").rstrip()
        if text:
            self._pass_by(text)
        return len(text)

    def _pass_by(self, text: str) -> None:
        self._is_fresh = False
        tape = self._window.tape
        tape.base = tape.end = tape.end + len(text)  # where nothing is kept, nothing need be put on it
        self._window.pass_by(text, self._mode.levels or "")

    @property
    def tape(self) -> Tape:
        """What has come and is in no event that has gone out: whoever must not lose it need not keep it, too.

        Of a text with which a step has failed it holds all or nothing.
        """
        return self._window.tape

    def reasoned(self) -> list[Event]:
        """The answer has reasoning in a field of its own, so nothing in the text is a draft of it."""
        out, self._is_fresh = self._window.out, False
        out.is_thought_over = out.remains.reasoned = True
        out.stand(in_fence=self._mode.in_fence)
        if isinstance(self._mode, BehindDrafts):
            self._mode = self._mode.after
        return self._account(out.taken())

    def feed(self, text: str) -> list[Event]:
        return self._all(self.step(text)) if text else []

    def finish(self, reason: FinishReason) -> list[Event]:
        return self._all(self.step(reason=reason))

    def step(self, text: str = "", reason: FinishReason | None = None) -> list[Event]:
        """A bounded piece of the work: with more text, with the end, or with neither while `busy`."""
        window = self._window
        if reason is not None:
            if self._tail:
                self._reason = reason
                return self._run()
            # What was cut keeps its reason and completes no call: https://github.com/raullenchai/Rapid-MLX/issues/1574
            window.end(cut=reason not in END_REASONS)
            return [] if self._is_over else self._run()
        if not text:
            return self._run()
        is_first, self._is_fresh = self._is_fresh, False
        if self._flows(text, is_first=is_first):
            self._pass_by(text)
            return [Text(text)]
        window.tape.add(text)
        if self._tail or "<" in text or "[" in text:
            text = self._without_tail(text)
        window.push(text)
        events = self._run()
        if is_first and len(text) <= _LONGEST_WORD:
            self._note_first(text, events)
        return events

    def _without_tail(self, text: str) -> str:
        """What can be read of it and of the tail before it."""
        whole = self._tail + text
        end = end_tokens_from(whole)
        self._tail = whole[end:]
        return whole[:end]

    def _note_first(self, text: str, events: list[Event]) -> None:
        """An answer began with this: most begin with one of a few words, and to read one costs as much as all that
        follows."""
        words = self._window.grammar.first_words
        is_text = len(events) == 1 and isinstance(events[0], Text) and events[0].raw == text and not events[0].firm
        if is_text and _WORDS.fullmatch(text) and self._leaves_nothing and len(words) < _MOST_WORDS:
            words.add(text)

    def _all(self, events: list[Event]) -> list[Event]:
        """The events, and those of all steps that are left."""
        if not self.busy:
            return events
        events = [*events]
        while self.busy:
            events += self.step()
        return joined(events)

    @property
    def _leaves_nothing(self) -> bool:
        """What has been read is over, as if it had gone by unread."""
        window = self._window
        is_over = not (self.busy or window.blind or window.out.is_thought_over)
        return is_over and not self._tail and window.is_plain and isinstance(self._mode, Prose)

    @property
    def _is_over(self) -> bool:
        """The answer ends here, and nothing of it waits for that."""
        window, out = self._window, self._window.out
        is_read = window.eof and window.is_empty and not (window.spent or self._tail) and out.is_told
        return is_read and not (self.busy or isinstance(self._mode, Call))

    @property
    def _is_clear(self) -> bool:
        """Nothing is open, and what comes next says by itself whether it opens anything."""
        window = self._window
        return (
            self._mode.levels is not None
            and window.is_empty
            and not self._tail
            and window.out.idle
            and not window.inline
            and not (window.is_line_start and window.grammar.line_rows)
        )

    def _flows(self, text: str, *, is_first: bool) -> bool:
        """Nothing is open and nothing in the text could open anything."""
        if is_first:
            return text in self._window.grammar.first_words
        if len(text) <= _AT_ONCE and isinstance(listener := self.listen(keeps_space=False), Overhearing):
            return listener.flows(text)
        if not self._is_clear or (self._mode.in_fence and text[-1].isspace()):
            return False
        last = self._window.tail[-1:]  # a letter in front of it decides whether its first word may be a marker
        return not self._window.grammar.lexicon.trigger.search(last + text, len(last))

    def _run(self) -> list[Event]:
        window = self._window
        self.busy = self._works()
        if self._tail and not self.busy and not self._ends_call():
            window.push(self._tail)
            self._tail = ""
            self.busy = self._works()
        if self._reason is not None and not self.busy:
            window.end(cut=self._reason not in END_REASONS)
            self._reason = None
            self.busy = self._works()
        if window.eof and not self.busy:
            if window.out.held is not None:
                self._mode.finish(window)
            window.out.stand(in_fence=self._mode.in_fence)
            events = window.out.finish(cut=window.cut)
            if self._tail:
                is_call = bool(events) and isinstance(events[-1], End)
                events = [*events, Drop(self._tail, "leftover") if is_call else Text(self._tail)]
                self._tail = ""
            return self._account(events)
        events = window.out.taken()
        return self._account(events) if events else events

    def _ends_call(self) -> bool:
        """Whether the tail may end a call that is open."""
        return isinstance(self._mode, Call) and (self._reason is None or self._reason in END_REASONS)

    def _account(self, events: list[Event]) -> list[Event]:
        """The events, which go out: what they tell is no longer kept."""
        tape = self._window.tape
        for event in events:
            tape.base += len(event.raw)
        return events

    def _works(self) -> bool:
        """Do as much as one turn allows; whether something is left."""
        window = self._window
        room = _TURN
        while room > 0:
            before = window.offset
            # A candidate may read all that is at hand in one move.
            room -= _MOVE + len(window.buf) if isinstance(self._mode, Call) else _MOVE
            moved = self._step()
            if isinstance(self._mode, Call) and self._mode.candidate.paused:
                return True
            if not moved and not window.refill():
                return let_go(window.spent)
            room -= max(0, window.offset - before)
        return True

    def _step(self) -> bool:
        """One move; False when nothing more can be done with the text at hand."""
        window, mode = self._window, self._mode
        if not window.buf and not isinstance(mode, Call):
            return False
        move = mode.step(window)
        if move is WAIT:
            return False
        drafts = window.out.drafts
        is_behind_drafts = drafts is not None and drafts.closed and move.levels is not None
        self._mode = BehindDrafts(move) if is_behind_drafts else move
        return True
