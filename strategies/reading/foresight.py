"""What a marker that has only begun may still come to: where none of those it could become counts, it is text now.

Asked only in an answer that has made no call yet: results and left-over tokens mean something behind a call alone.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence

from attrs import frozen

from gateway.wire.calm import Blanks, Loud
from strategies.grammar.dialect import Context, Dialect, Opening
from strategies.grammar.lexicon import REASONING, REASONING_ENDS, TURNS, Lexicon, line_of
from strategies.grammar.literal import (
    indents_code,
    is_announced_example,
    is_quoted,
    may_open_behind,
    may_open_fence,
)
from strategies.reading.active import Begun, Grammar

__all__ = [
    "EVERY_LEVEL",
    "GLUED",
    "PARAGRAPH",
    "Foresight",
    "Overhearing",
    "inline_behind",
    "may_become",
    "may_open_carrier",
]

EVERY_LEVEL = "ABCDE"
GLUED = re.compile(r"[ \t]*+(json|tool_call|tool_code|)[ \t]*+(?=[{\[])", re.IGNORECASE)
"""Data on the line that opens its fence."""


@frozen
class Foresight:
    """The markers of one kind, and what each of them opens."""

    context: Context
    lexicon: Lexicon
    rows: Mapping[str, tuple[Dialect, ...]]
    known: Begun
    """By what has begun: what it may come to; shared by all who look for the same markers."""

    def may_open(self, text: str, at: int, before: str, levels: Container[str]) -> bool:
        """Whether a marker that stands or begins at `at` may open a call of one of these levels, behind `before`."""
        standing = self.lexicon.at(text, at)
        quoted: dict[tuple[str, bool], bool] = {}
        opening: Opening | None = None
        last = ""
        # What stands there whole may also be the beginning of a longer marker, so both are asked about.
        for marker, row in (*self._opened(standing), *self._begun(text, at)):
            kind = (row.level, row.inline)
            # Whether it is quoted is dear to tell, and told once for all of a kind.
            # In the order of their price, as this is asked for every `<` of an answer.
            if row.level not in levels or quoted.get(kind):
                continue
            if opening is None or marker != last:
                opening, last = Opening(marker=marker, before=before), marker
            if not row.may_open(self.context, opening):
                continue
            if kind not in quoted:
                quoted[kind] = is_quoted(opening, row.level, inline=row.inline)
            if not quoted[kind]:
                return True
        return False

    def _opened(self, marker: str | None) -> list[tuple[str, Dialect]]:
        return [(marker, row) for row in self.rows.get(marker, ())] if marker is not None else []

    def _begun(self, text: str, at: int) -> Sequence[tuple[str, Dialect]]:
        """The markers that have begun there, with what they open: most are there for what they mean behind a call."""
        begun = self.lexicon.begun(text, at)
        if not begun:
            return ()
        rest = text[at:]
        if (found := self.known.get(rest)) is None:
            found = self.known[rest] = tuple(each for marker in begun for each in self._opened(marker))
        return found


def may_become(info: str, carriers: Iterable[str]) -> bool:
    """Whether the line of a fence that has come as far as `info` may still name one of the carriers."""
    if not info.strip() or GLUED.match(info):
        return True
    word = info.split(None, 1)[0].lower()
    # A word that may still grow is compared by its beginning: `js` may become `json`, `js ` may not.
    is_whole = info[-1].isspace() or len(info.split(None, 1)) > 1
    return any(word == carrier if is_whole else carrier.startswith(word) for carrier in carriers)


def may_open_carrier(before: str, *, inline: int) -> bool:
    """Whether a fence that may carry calls could open behind this text, which does not announce an example."""
    line = line_of(before)
    # Up to three blanks, as an indent of four is code: https://spec.commonmark.org/0.31.2/#fenced-code-blocks
    may_carry = (may_open_fence(line) and len(line) <= 3) or (not inline and may_open_behind(line))
    return may_carry and not is_announced_example(before)


PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
"""Where a paragraph ends, and inline code with it: https://spec.commonmark.org/0.31.2/#code-spans"""
_RUN = re.compile("`+")
_FENCE = 3
"""So many backticks are no inline code."""


def inline_behind(text: str, inline: int, *, is_line_start: bool) -> int:
    """How many backticks open the inline code that this text ends in; so many had opened what it begins in.

    No run of three stands in it, and none goes on behind it.
    """
    at = 0
    for run in _RUN.finditer(text):
        inline = _inline_at(text, at, run.start(), inline, is_line_start=is_line_start and not at)
        size, at = len(run.group()), run.end()
        inline = size - inline if inline in (0, size) else inline
    return _inline_at(text, at, len(text), inline, is_line_start=is_line_start and not at)


def _inline_at(text: str, tick: int, at: int, inline: int, *, is_line_start: bool = False) -> int:
    """What is left at a place of the inline code that was open behind the last backtick before it."""
    if not inline:
        return 0
    if is_line_start:
        return 0 if PARAGRAPH.search("\n" + text[tick:at]) else inline
    return 0 if PARAGRAPH.search(text, tick, at) else inline


_LOUD, _SILENT, _BEGUN, _WAITS = range(-1, 3)
"""What stands at a place: what may open something; nothing; the beginning of a marker that would open nothing there;
the beginning of one that would."""
# Bounded, so that what a marker costs does not grow with the answer in front of it.
_BEFORE = 400
"""How much of the text before a marker its dialect may look at."""
_LONG = 1200
_MOST_BEGUN = 256
"""How long what has begun may be, as it is looked at again with each piece of text."""
_BLANK = " \t\r"
_SPACE = " \t\r\n"
_IN_REASONING = "AB"
_IN_FENCE = ("", "A")
_CHANGES = frozenset((*REASONING, *REASONING_ENDS, *TURNS))


class Overhearing:
    """Text heard in the reader's place while it is in prose, in reasoning or in a fence, and nothing is open.

    What it takes for text is what the reader would make text of, and when: the same lexicon, the same foresight. It
    leaves to the reader whatever may open something, so that it never has to know what becomes of that.
    """

    holds = False

    __slots__ = (
        "_calm",
        "_decided",
        "_foresight",
        "_from",
        "_grammar",
        "_inline",
        "_is_clear",
        "_keeps_space",
        "_last",
        "_levels",
        "_loose",
        "_mark",
        "_pieces",
        "_search",
        "_skip",
        "_text",
        "_tick",
    )

    def __init__(
        self,
        grammar: Grammar,
        foresight: tuple[Foresight, Foresight],
        before: str,
        levels: str,
        *,
        inline: int,
        keeps_space: bool,
        mark: str = "",
    ) -> None:
        is_in_fence = levels in _IN_FENCE
        self._grammar = grammar
        self._foresight = foresight
        self._levels = levels
        self._mark = mark
        """What the fence is closed with that this stands in."""
        self._keeps_space = keeps_space
        self._search = (grammar.stirs_in_fence if is_in_fence else grammar.stirs).search
        self._calm = grammar.calm_in_fence if is_in_fence else grammar.calm
        self._text = before
        """The last that was heard but for what is loose, and enough of what stands before it."""
        self._from = len(before.rstrip(_SPACE))
        """From where on in it something may have begun."""
        self._decided = len(before)
        """Up to where in it all is decided."""
        self._is_clear = self._from == self._decided
        """Nothing has begun at its end."""
        self._loose: list[str] = []
        """What was heard behind it, and begins nothing."""
        self._last = before[-1:] or "\0"
        """The last character, which decides whether a letter may begin a marker."""
        self._pieces: list[str] = []
        """What was heard before it."""
        self._skip = len(before)
        """How much of it had been read before."""
        self._tick = len(before.rstrip(_SPACE))
        """Where inline code was last looked at, and how many backticks had opened it there."""
        self._inline = inline

    def hear(self, text: str, room: int) -> int:
        # Nearly every event of an answer ends here: one search, and nothing is joined or copied.
        if self._is_clear and self._search(self._last + text, 1) is None and not text[-1].isspace():
            # Joined only when something begins: an answer of many short events would else be copied with each of them.
            self._loose.append(text)
            self._last = text[-1]
            return 0
        return self._look(text, room)

    @property
    def blanks(self) -> Blanks:
        return "hear" if self._keeps_space else "wait"

    @property
    def calm(self) -> Loud | None:
        # What is calm takes a word at its beginning for one that stands behind words, on their line.
        return self._calm if self._is_clear and not (self._last.isspace() or self._last == "\0") else None

    def overlook(self, text: str) -> None:
        self._loose.append(text)
        self._last = text[-1]

    @property
    def begun(self) -> int:
        return 0 if self._is_clear else len(self._text) - max(self._from, self._skip)

    def told(self) -> str:
        return "".join((*self._pieces, self._text[self._skip :], *self._loose))

    def flows(self, text: str) -> bool:
        """Whether it is text by itself, but for white space at its end, and nothing has begun in it."""
        undecided = self.hear(text, len(text))
        # White space that is decided at once stands before code: the reader has to see it where it stood.
        is_indent = not undecided and text[-1].isspace()  # which is to be told as such
        return undecided >= 0 and not is_indent and self._is_clear

    def _look(self, text: str, room: int) -> int:
        """The same where something may have begun, or white space stands at the end."""
        if self._loose:
            self._text += "".join(self._loose)
            self._loose.clear()
            self._from = self._decided = len(self._text)
        whole = self._text + text
        size = begun = decided = len(whole)
        tick, inline = self._tick, self._inline
        # From the first place that is not decided: what lies before was looked at with an earlier event.
        match = self._search(whole, self._from)
        while match is not None:
            at = end = match.start()
            if whole[at] == "`" and self._levels == EVERY_LEVEL:
                found, end = self._of_run(whole, at, _inline_at(whole, tick, at, inline))
                # Kept only where the run is whole: one at the end may go on, and then opens or closes something else.
                if found == _SILENT and end > tick:
                    inline = _inline_at(whole, tick, at, inline)
                    inline = end - at - inline if inline in (0, end - at) else inline
                    tick = end
                # The search goes on behind the run, whose backticks are not each the edge of something.
                end -= 1
            else:
                found = self._found(whole, at)
            if found == _LOUD:
                return -1
            if found != _SILENT:
                begun = min(begun, at)
            if found == _WAITS and at < decided:
                decided = len(whole) - len(whole[at:].lstrip(_SPACE)) if whole[at] == "\n" else at
            match = self._search(whole, end + 1)
        if not self._keeps_space and whole[decided - 1].isspace():
            decided = self._decided_of_space(whole if decided == size else whole[:decided])
            if decided < 0:
                return -1
        decided = max(decided, self._decided)
        # What stands before the events that wait has gone out: only characters of theirs can still do so.
        # The second bound keeps an opener that is never decided from being looked at again with every event.
        if size - decided > room or size - begun > _MOST_BEGUN:
            return -1
        self._text, self._from, self._decided = whole, begun, decided
        self._is_clear, self._last = begun == size, whole[-1]
        self._tick, self._inline = tick, inline
        if size > _LONG:
            self._shorten()
        return size - decided

    def _found(self, whole: str, at: int) -> int:
        """What stands at a place where something may begin."""
        if whole[at] == "\n":
            return self._of_line(whole, at)
        # Tildes are left to the reader: they are rare, and mean a fence and nothing else.
        if whole[at] in "`~":
            return _LOUD if whole[at] == "~" or self._levels != _IN_REASONING else _SILENT
        lexicon = self._grammar.lexicon
        standing, begins = lexicon.at(whole, at), lexicon.begun(whole, at)
        if standing is None and not begins:
            return _SILENT
        # What opens or closes reasoning, or the turn of another, changes how all that follows is read.
        if standing in _CHANGES:
            return _LOUD
        if not self._foresight[0].may_open(whole, at, _before(whole, at), self._levels):
            return _BEGUN if begins else _SILENT
        return _WAITS if standing is None else _LOUD

    def _of_run(self, whole: str, at: int, inline: int) -> tuple[int, int]:
        """What a run of backticks is, and where it ends: the edge of inline code, unless it may open a fence."""
        end = at + 1
        while end < len(whole) and whole[end] == "`":
            end += 1
        # Three or more are a fence or the end of one, which is for the reader to know.
        if end - at >= _FENCE:
            return _LOUD, end
        if end < len(whole):
            return _SILENT, end
        return _WAITS if may_open_carrier(_before(whole, at), inline=inline) else _BEGUN, end

    def _of_line(self, whole: str, at: int) -> int:
        """What a line begins with."""
        is_prose = self._levels == EVERY_LEVEL
        blanks, at = _SPACE if is_prose else _BLANK, at + 1
        while at < len(whole) and whole[at] in blanks:
            at += 1
        if at == len(whole):
            return _BEGUN
        if not is_prose:  # marks that may close a code fence; nothing counts at the start of a line of reasoning
            if whole[at] not in "`~":
                return _SILENT
            # Fewer marks than close any fence may become more; they are text, whatever comes.
            marks = len(whole) - at
            is_short = marks < _FENCE and whole[at - 1] == "\n" and whole.endswith(self._mark * marks)
            return _BEGUN if self._mark and is_short else _LOUD
        lexicon = self._grammar.line_lexicon
        standing, begins = lexicon.at(whole, at), lexicon.may_begin(whole, at)
        if standing is None and not begins:
            return _SILENT
        # Whether the shorter or the longer one was meant is decided by text that has not come.
        if standing is not None and begins:
            return _LOUD
        may_open = self._foresight[1].may_open(whole, at, _before(whole, at), self._levels)
        if standing is None:
            return _WAITS if may_open else _BEGUN
        return _LOUD if may_open else _SILENT

    def _decided_of_space(self, whole: str) -> int:
        """Where the white space at the end begins, unless it indents a line of code: that stays, whatever comes.

        Below zero where it is of a kind that hardly any code is indented by.
        """
        start = len(whole.rstrip())
        line = whole.rfind("\n", start) + 1
        if self._levels in _IN_FENCE and not line and not line_of(_before(whole, start)):
            return -1  # the end of reasoning begins a line, too
        if not line or self._levels == _IN_REASONING:
            return start
        if line == len(whole):  # a line of blanks before it may be indented as well
            return -1 if "\n" in whole[start:].rstrip("\r\n") else start
        # A form feed or a wide blank: what it indents is told apart by the reader, not here.
        if whole[line:].strip(_BLANK):
            return -1
        if self._levels != EVERY_LEVEL:
            # The half of a line end may become a whole one with the next event.
            return start if whole[-1] == "\r" else len(whole)
        is_indent = self._grammar.line_rows and indents_code(_before(whole, line))
        return len(whole) if is_indent else start

    def _shorten(self) -> None:
        """Keep the end of what was heard at hand."""
        # Never behind what is undecided, and never so far that a dialect could not see what stands before its opener.
        cut = min(self._from, self._decided, len(self._text) - _BEFORE)
        if self._inline and PARAGRAPH.search(self._text, self._tick):
            self._inline = 0
        # Inline code that is open ends where its paragraph does, so the text since its backticks is still needed.
        cut = min(cut, self._tick) if self._inline else cut
        if cut > self._skip:
            self._pieces.append(self._text[self._skip : cut])
            self._text, self._skip = self._text[cut:], 0
            self._from -= cut
            self._decided -= cut
            self._tick = max(0, self._tick - cut)


def _before(text: str, at: int) -> str:
    return text[max(0, at - _BEFORE) : at]
