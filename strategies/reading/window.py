"""The window of a reader: the text at hand, what stands before it, and the ways in which a mode lets it go.

Characters enter at the end (`push`) and leave at the front, each exactly once: as text (`text`), as what is taken out
of the answer (`drop`), or in the events of a candidate. Whatever leaves is remembered up to `BEFORE` characters
(`tail`), as most rules ask what stands before a marker.

A marker that has only begun stays in the buffer until it is whole. Where nothing that it could become would count, it
is shown ahead of that (`foretell`): it stays to be recognised, but has gone out.
"""

from typing import Any

from gateway.core.events import Drop, Event, Text
from strategies.grammar.dialect import Context, Fence, Opening
from strategies.grammar.lexicon import REASONING, REASONING_ENDS, line_of
from strategies.grammar.literal import indents_code
from strategies.reading.active import Grammar
from strategies.reading.foresight import (
    EVERY_LEVEL,
    PARAGRAPH,
    Foresight,
    Overhearing,
    inline_behind,
    may_become,
    may_open_carrier,
)
from strategies.reading.left_out import REMAINS
from strategies.reading.openings import NOBODY, Openings, Rows
from strategies.reading.outlet import Outlet
from strategies.text.tape import Tape

__all__ = ["FENCE_LINE", "Window"]

# Enough for the sentence that announces an example; each marker copies it, so it must not be much longer.
BEFORE = 400
"""How much of the text before a marker its dialect may look at."""
# An info string is a word or two; whatever is longer holds text, and waiting for its end would hold that.
FENCE_LINE = 256
"""How long a line may be that opens or closes a code fence."""
# Moves cut the buffer at its front, which copies the rest: in short blocks the copies stay short.
_BLOCK = 1 << 12
_BLANK = " \t\r"
_THOUGHT = frozenset((*REASONING, *REASONING_ENDS))


class Window:
    """The text at hand of one choice of one answer."""

    __slots__ = (
        "_ahead",
        "_ended",
        "_foresight",
        "_line_foresight",
        "blind",
        "buf",
        "context",
        "cut",
        "eof",
        "grammar",
        "inline",
        "is_line_start",
        "offset",
        "openings",
        "out",
        "spent",
        "tail",
        "tape",
        "told",
    )

    def __init__(self, context: Context, grammar: Grammar) -> None:
        self.context = context
        self.grammar = grammar
        self.out = Outlet(context, grammar.families)
        self.openings = Openings(context, grammar, self.out.callers)
        self._foresight = Foresight(context, grammar.lexicon, grammar.rows, grammar.begun)
        self._line_foresight = Foresight(context, grammar.line_lexicon, grammar.line_rows, grammar.begun_line)
        self.tape = Tape()
        """All that has come and is in no event that has gone out."""
        self.buf = ""
        self.told = 0
        """How much of the buffer has gone out as text already: it stays to be recognised, but cannot become a call."""
        self._ahead: list[str] = []
        """Text behind the buffer, in blocks, the next one last: moves in a long buffer would copy all of it."""
        self.offset = 0
        """Where the buffer begins, in the whole answer."""
        self.tail = ""
        """The last characters in front of the buffer."""
        self.is_line_start = True
        """Nothing but white space has come since the last line break."""
        self.inline = 0
        """How many backticks have opened the inline code in which the buffer begins."""
        self.blind = 0
        """The offset up to which nothing may open a call: a candidate has been refused there."""
        self.spent: list[Any] = []
        """Large values of candidates that are over."""
        self._ended = False
        self.eof = False
        """The answer ends behind the buffer."""
        self.cut = False
        """It ends in its middle."""

    # Text comes in

    @property
    def is_empty(self) -> bool:
        return not self.buf and not self._ahead

    @property
    def is_told(self) -> bool:
        """All text has gone out."""
        return self.told == len(self.buf) and not self._ahead

    def push(self, text: str) -> None:
        """More text has come."""
        if self._ahead:
            # Blocks are kept last first, so that the next one is popped in constant time.
            self._ahead[:0] = _blocks(text)
        elif text:
            self.give(text)

    def give(self, text: str) -> None:
        """Text that comes next, in front of what waits already."""
        # What a candidate gives back may be megabytes: moves cut the buffer at its front, so it stays short.
        if len(self.buf) + len(text) <= _BLOCK:
            self.buf += text
            return
        self._ahead += _blocks(text)
        self.eof = False

    def refill(self) -> bool:
        """Take the next block into the buffer, if there is one."""
        if not self._ahead:
            return False
        self.buf += self._ahead.pop()
        self.eof = self._ended and not self._ahead
        return True

    def end(self, *, cut: bool) -> None:
        """No more text will come."""
        self._ended, self.eof = True, not self._ahead
        self.cut = cut

    # What stands where

    def before(self, at: int) -> str:
        """The last characters in front of a place in the buffer."""
        return self.buf[at - BEFORE : at] if at >= BEFORE else (self.tail + self.buf[:at])[-BEFORE:]

    def line(self) -> tuple[str, bool]:
        """The first line of the buffer, and whether it has ended."""
        end = self.buf.find("\n")
        return (self.buf, False) if end < 0 else (self.buf[:end], True)

    def may_begin(self) -> bool:
        """Whether the buffer may still become a marker."""
        buf, grammar = self.buf, self.grammar
        return not self.eof and (grammar.lexicon.may_begin(buf, 0) or grammar.line_lexicon.may_begin(buf, 0))

    def marker(self) -> str | None:
        """The marker that stands at the start of the buffer."""
        return self.grammar.lexicon.at(self.buf, 0)

    def openings_at(self, marker: str, at: int, levels: str = EVERY_LEVEL) -> tuple[Rows, Opening]:
        """The dialects of these levels that this marker at `at` may open, and how it stands there."""
        opening = Opening(marker=marker, before=self.before(at))
        rows = self.grammar.rows.get(marker, ())
        if levels != EVERY_LEVEL:
            rows = tuple(row for row in rows if row.level in levels)
        return (self.openings.among(rows, opening, self.offset + at) if rows else ()), opening

    def openings_now(
        self, fence: Fence | None = None, callers: frozenset[str] | set[str] = NOBODY
    ) -> tuple[Rows, Opening]:
        """The dialects that may open a call at the start of the buffer, inside a fence or behind a call."""
        grammar = self.grammar
        marker = grammar.lexicon.at(self.buf, 0) or ""
        line_marker = grammar.line_lexicon.at(self.buf, 0) or ""
        if len(marker) < len(line_marker):
            rows, marker = grammar.line_rows[line_marker], line_marker
        else:
            rows = grammar.rows.get(marker, ())
        if fence is not None:
            rows = self.openings.in_fence(rows, fence)
        opening = self.openings.opening(marker, self.tail, fence)
        # The opening is told all the same: who asks wants to know how the marker stands, even where it opens nothing.
        if self.offset < self.blind:
            return (), opening
        return self.openings.among(rows, opening, self.offset, callers), opening

    def indented(self, end: int) -> int:
        """Where the indentation ends that is a part of the white space in front of `end`; 0 for none."""
        text = self.buf[:end]
        space = text[len(text.rstrip()) :]
        kept = space.rstrip("\r\n")
        if kept and ("\n" in kept or (len(space) == end and self.is_line_start)):
            return end - len(space) + len(kept)
        return 0

    def indents(self, at: int, end: int) -> bool:
        """Whether the blanks from `at` to `end`, which begin a line, indent code: they stay, whatever comes."""
        # Behind a call the blanks belong to it, and what has gone out cannot be made firm any more.
        if self.out.fresh or self.told >= end:
            return False
        return indents_code(self.before(at))

    # Text goes out

    def take(self, size: int) -> str:
        """The first `size` characters, which leave the buffer."""
        text, self.buf = self.buf[:size], self.buf[size:]
        self.told = max(0, self.told - size)
        self.offset += size
        return text

    def text(self, size: int, *, firm: bool = False) -> None:
        """Let the first `size` characters of the buffer out as text."""
        if not size:
            return
        told = min(self.told, size)
        text = self.take(size)
        if self.inline and PARAGRAPH.search("\n" + text if self.is_line_start else text):
            self.inline = 0
        self.passed(text)
        if told < size:
            self.add(Text(text[told:], firm))

    def blanks(self) -> bool:
        """Let white space out, if the buffer begins with it."""
        size = len(self.buf) - len(self.buf.lstrip())
        self.text(size)
        return size > 0

    def drop(self, size: int, reason: str) -> None:
        """Take the first `size` characters out of the answer."""
        if size:
            self.add(Drop(self.take(size), reason))

    def remain(self, size: int, family: str) -> None:
        """Let the first `size` characters out as markup of a family that stands without a call."""
        if self.told:
            self.text(size)
            return
        text = self.take(size)
        self.passed(text)
        self.add(Drop(text, REMAINS, family))

    def close_thought(self, size: int) -> None:
        """Let the first `size` characters out as text, the last of which end reasoning: the answer begins behind."""
        self.text(size)
        self.out.is_silent = True

    def passed(self, text: str) -> None:
        """Remember what stands before the next text."""
        self.tail = (self.tail + text)[-BEFORE:]
        line = line_of(self.tail)
        # A line of a megabyte (a minified file, say) must not be looked at from its beginning with every event.
        if len(line) == BEFORE:  # so long that its beginning is not in sight
            is_new = "\n" in text
            self.is_line_start = (self.is_line_start or is_new) and not text[text.rfind("\n") + 1 :].strip(_BLANK)
        else:
            self.is_line_start = not line.strip(_BLANK)

    def add(self, event: Event) -> None:
        """An event has been read: it goes out, or waits where something waits."""
        if closer := self.out.add(event):
            self.end_thought(closer)

    def let_go(self, events: list[Event]) -> None:
        """What has been held is decided, and comes to this."""
        self.out.held = None
        for event in events:
            self.tell(event)

    def tell(self, event: Event) -> None:
        """An event is decided: whatever is held, it goes out."""
        if closer := self.out.tell(event):
            self.end_thought(closer)

    def end_thought(self, closer: str) -> None:
        """Reasoning ends here that has begun before the answer: a new answer begins, in which all may count again."""
        if self.out.drafts is not None:
            # What blinded was a refused candidate of the drafts; it says nothing about the answer that begins here.
            self.blind = min(self.blind, self.offset)
        self.openings.forget()
        self.out.end_thought(closer)

    # What is text whatever comes

    @property
    def is_plain(self) -> bool:
        """Nothing is at hand or waits, nothing but text has come, and a marker would count."""
        out = self.out
        is_free = self.is_empty and self.inline >= 0 and self.offset >= self.blind
        return is_free and out.is_plain and not out.is_silent

    def overhear(self, levels: str, *, keeps_space: bool, mark: str = "") -> Overhearing:
        """What listens from here on, in text in which calls of these levels may begin; with a `mark`, in its fence."""
        foresight = self._foresight, self._line_foresight
        inline = self.inline
        return Overhearing(
            self.grammar, foresight, self.tail, levels, inline=inline, keeps_space=keeps_space, mark=mark
        )

    def pass_by(self, text: str, levels: str) -> None:
        """Text goes out on another way, in which nothing has begun where calls of these levels may."""
        if levels == EVERY_LEVEL and (self.inline or "`" in text):
            self.inline = inline_behind(text, self.inline, is_line_start=self.is_line_start)
        self.offset += len(text)
        self.passed(text)
        self.out.pass_by(text)

    def foretell(self, levels: str = EVERY_LEVEL, *, in_fence: bool = False) -> None:
        """Let out what waits in the buffer up to where a call of these levels may begin: the rest of a word that may
        be a marker says nothing where that marker opens nothing."""
        if not self.out.is_plain:
            return
        buf = self.buf
        end = -1
        while (match := self.grammar.lexicon.trigger.search(buf, end + 1)) is not None:
            end = match.start()
            if buf[end] in "`~\n" and levels == EVERY_LEVEL:
                break
            # Where the answer begins, a tag of reasoning is taken out; shown ahead it would stay.
            if self.out.is_silent and any(marker in _THOUGHT for marker in self.grammar.lexicon.begun(buf, end)):
                break
            if self.offset + end >= self.blind and self._foresight.may_open(buf, end, self.before(end), levels):
                break
        size = end if match else len(buf)
        if in_fence and (indented := self.indented(size)) > self.told:
            self._tell_ahead(indented, firm=True)
        self._tell_ahead(size)

    def foretell_line(self) -> None:
        """The same of a word at the start of a line."""
        if not self._line_foresight.may_open(self.buf, 0, self.tail, EVERY_LEVEL):
            self.foretell()

    def foretell_fence(self, run: int) -> None:
        """The same of a line that begins with a run of backticks or tildes, unless such a fence may carry calls."""
        if not self.out.is_plain:
            return
        buf = self.buf
        before = self.before(0)
        may_carry = self.offset >= self.blind and may_become(buf[run:], self.grammar.carriers)
        if may_carry and may_open_carrier(before, inline=self.inline):
            return
        match = self.grammar.lexicon.trigger.search(buf, run)
        self._tell_ahead(match.start() if match else len(buf))

    def _tell_ahead(self, size: int, *, firm: bool = False) -> None:
        if size > self.told:
            self.out.show(Text(self.buf[self.told : size], firm))
            self.told = size


def _blocks(text: str) -> list[str]:
    """The text in blocks, the first one last."""
    return [text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK)][::-1]
