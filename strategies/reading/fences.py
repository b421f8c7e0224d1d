"""The modes in a code fence: its text is literal, unless it holds calls and nothing else, or special tokens call.

Models that were asked for JSON wrap it in a fence (the `carriers` of a dialect), and the same fence with words behind
it is an example for the reader of the answer; so a fence of calls waits until it is seen what follows it.
"""

import re

from attrs import Factory, define

from gateway.core.events import Drop, Event, Note, Text
from strategies.grammar.dialect import Fence as FenceOf
from strategies.grammar.dialect import Opening
from strategies.grammar.lexicon import LEFTOVERS
from strategies.grammar.literal import FenceMark, closes_fence, opens_fence
from strategies.reading.moves import WAIT, Call, Mode, Move
from strategies.reading.openings import Rows
from strategies.reading.outlet import Held, as_text
from strategies.reading.window import FENCE_LINE, Window

__all__ = ["BEHIND_WORDS", "Carrier", "Fence", "TokensInFence"]

BEHIND_WORDS = -1
"""In the place of a fence's column: it opens behind words on its line."""
_OWN_FENCES = frozenset({"tool_code"})
"""Info strings that no language has: prose behind such a fence does not make it an example. Gemma is asked to write its
calls in this one, and goes on talking (https://ai.google.dev/gemma/docs/meme-generator)."""
_LABELS = tuple(
    f"{stars}{what}{ends}"
    for what in ("Tool Call", "Tool call", "tool_call", "Function Call", "Function call", "function_call")
    for stars, ends in (("", ":"), ("**", ":**"), ("**", "**:"))
)
"""What stands alone on the line before each call's fence: RWKV is asked to write so
(https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_rwkv_tool_parser.py)."""
_INNER_CLOSER = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[ \t\r]*$", re.MULTILINE)
"""A fence inside a longer one: https://spec.commonmark.org/0.31.2/#example-124."""


@define(eq=False)
class Fence:
    """In a literal fence everything is text, up to the line that closes it or a family's own token."""

    mark: FenceMark
    is_example: bool
    """It was announced as an example."""
    after: Mode

    in_fence = True

    @property
    def levels(self) -> str:
        return "" if self.is_example else "A"

    def step(self, window: Window) -> Move:
        found = self.read(window)
        if isinstance(found, bool):
            return self.after if found else WAIT
        return Call.begin(window, *found, TokensInFence(self, window.out.hold()))

    def read(self, window: Window) -> tuple[Rows, Opening] | bool:
        """Let text out up to what opens a call; where nothing does, whether the fence has been closed."""
        end, closes = self._end(window)
        limit, rows, opening = self._token(window, end)
        # Whoever reads on may take off white space before a call, but not the indentation of code: it goes out first.
        indented = window.indented(limit)
        # Three steps, as what is firm and what is not have to be events of their own.
        if window.told < indented < limit:
            window.text(indented, firm=True)
            limit, indented, end = limit - indented, 0, end - indented
        window.text(limit, firm=indented == limit)
        if opening is not None:
            return rows, opening
        if closes and limit == end:
            return True
        window.foretell(self.levels, in_fence=True)
        return False

    def _end(self, window: Window) -> tuple[int, bool]:
        """Where the line ends that closes the fence; else where the text ends that cannot belong to such a line."""
        buf = window.buf
        start = 0
        at_line = window.tail.endswith("\n")
        while (newline := buf.find("\n", start)) >= 0:
            if at_line and closes_fence(buf[start:newline], self.mark):
                return newline + 1, True
            start, at_line = newline + 1, True
        rest = buf[start:]
        # A closing line holds the fence and blanks; whatever is longer than any of those is no such line.
        if not at_line or len(rest) >= FENCE_LINE:
            return len(buf), False
        if window.eof:
            return len(buf), closes_fence(rest, self.mark)
        return (start if closes_fence(rest, self.mark, partial=True) else len(buf)), False

    def _token(self, window: Window, end: int) -> tuple[int, Rows, Opening | None]:
        """Where a special token opens a call in front of `end`, or where one may begin; else `end`."""
        buf, lexicon = window.buf, window.grammar.lexicon
        at = -1
        while not self.is_example:
            match = lexicon.trigger.search(buf, at + 1, end)
            if match is None:
                break
            at = match.start()
            if not window.eof and buf[at] not in "`~\n" and lexicon.may_begin(buf, at):
                return at, (), None
            marker = lexicon.at(buf, at)
            if marker is None or window.offset + at < window.blind:
                continue
            # Any weaker evidence is what code is made of: only special tokens are never written to be looked at.
            rows, opening = window.openings_at(marker, at, "A")
            if rows:
                return at, rows, opening
        return end, (), None

    def finish(self, window: Window) -> None:
        """Nothing waits here."""


@define(eq=False)
class TokensInFence:
    """Behind a call by special tokens inside a fence: it counts unless the fence closes and prose follows.

    Special tokens are one token each for a model that was trained on them: it does not write them to show them.
    """

    _fence: Fence
    _held: Held
    _is_closed: bool = False

    levels = None

    @property
    def in_fence(self) -> bool:
        return not self._is_closed

    @property
    def after(self) -> Mode:
        return self._fence.after if self._is_closed else self._fence

    def step(self, window: Window) -> Move:
        if not self._held.calls:
            return self._decide(window, accept=False)
        if not self._is_closed:
            return self._in_fence(window)
        if window.blanks():
            return self
        if window.may_begin():
            return WAIT
        marker = window.marker()
        if marker in LEFTOVERS:
            window.text(len(marker))
            return self
        return self._decide(window, accept=False)

    def _in_fence(self, window: Window) -> Move:
        found = self._fence.read(window)
        if not isinstance(found, bool):
            return Call.begin(window, *found, self)
        if not found:
            return WAIT
        self._is_closed = True
        return self._decide(window, accept=False) if self._is_quotation() else self

    def _is_quotation(self) -> bool:
        """Whether a fence closes behind the last call within the fence that has just been left, and words follow."""
        # The last line is the closer of the fence that has just been left.
        rest = self._held.said().rstrip().rpartition("\n")[0]
        inner = _INNER_CLOSER.search(rest)
        return inner is not None and bool(rest[inner.end() :].strip())

    def _decide(self, window: Window, *, accept: bool) -> Mode:
        window.let_go(self._held.decided(accept=accept))
        return self.after

    def finish(self, window: Window) -> None:
        self._decide(window, accept=True)


@define(eq=False)
class Carrier:
    """In a fence that may carry calls: only calls and white space, then only white space to the end."""

    after: Mode
    _held: Held
    _fence: FenceMark
    _info: str
    _is_closed: bool = False
    _has_begun: bool = False
    """A candidate has been tried in this fence."""
    _whole: int = 0
    """How many of the events come before an end of a fence."""
    _broken: Fence | None = None
    """The fence it is in, where the call in it is none: those of the fences before it stand all the same."""
    _texts: list[range] = Factory(list)
    """Which of the events are such fences."""
    _is_labelled: bool = False
    """A label has been read behind a fence, and no other fence yet."""

    levels = None
    in_fence = False

    @classmethod
    def begin(cls, window: Window, line: str, fence: FenceMark, info: str, after: Mode) -> "Carrier":
        held = window.out.hold()
        # The opening line is the first thing held: it goes with the calls, or stays with the text.
        held.events.append(Text(line))
        return cls(after, held, fence, info)

    def step(self, window: Window) -> Move:
        if (self._is_closed or self._broken is None) and window.blanks():
            return self
        if self._is_closed:
            return self._step_behind(window)
        if self._broken is not None:
            return self._step_broken(window, self._broken)
        held = self._held
        # A closer counts before markers: a fence that holds nothing but calls ends at the first line that can close it.
        if held.calls and not held.refused and (move := self._close(window)) is not None:
            return move
        if window.may_begin():
            return WAIT
        marker = window.marker()
        if held.calls and marker in LEFTOVERS:
            window.text(len(marker))
            return self
        # A dialect that reads the whole body of a fence has no marker; where it has refused once, it would again.
        mark, size, _ = self._fence
        rows, opening = window.openings_now(FenceOf(mark=mark, size=size, info=self._info))
        if rows and not held.refused and (opening.marker or not self._has_begun):
            self._has_begun = True
            return Call.begin(window, rows, opening, self)
        return self._give_up(window)

    def _close(self, window: Window) -> Move | None:
        """What the line leads to where it closes the fence, or may still become one that does."""
        line, has_ended = window.line()
        has_ended = has_ended or window.eof
        if not closes_fence(line, self._fence):
            may_close = not has_ended and closes_fence(line, self._fence, partial=True)
            return WAIT if may_close else None
        if not has_ended:
            return WAIT
        window.text(len(line))
        self._is_closed, self._whole = True, len(self._held.events)
        window.openings.enter_fence(self._info)
        return self._decide(window, accept=True) if self._info in _OWN_FENCES else self

    def _give_up(self, window: Window) -> Move:
        """More than calls stands in it: it is a literal fence, in which calls by special tokens may still count."""
        held = self._held
        if self._fence[2] == BEHIND_WORDS:
            # Negative: `Prose` is to look whether this inline code closes, once, before it reads on in it.
            window.inline = -self._fence[1]
            return self._decide(window, accept=False)
        fence = Fence(self._fence, is_example=False, after=self.after)
        window.openings.enter_fence(self._info)
        if self._ends_in_cut_call():
            held.refused = False
            self._decide(window, accept=True)
            return fence
        if self._whole and held.refused and self._is_meant():
            # Half of a set would be worse than all of it: the calls before one that is broken are those before it.
            self._broken = Fence(self._fence, is_example=True, after=self.after)
            return self
        # The words around them make examples of calls by tags, not of those by special tokens.
        held.keep(window.grammar.tokens)
        if held.calls:
            return TokensInFence(fence, held)
        self._decide(window, accept=False)
        return fence

    def _step_behind(self, window: Window) -> Move:
        """Behind a fence of calls: another one, tokens that mean nothing, or text that makes it an example."""
        if window.may_begin():
            return WAIT
        marker = window.marker()
        if marker in LEFTOVERS:
            window.text(len(marker))
            return self
        buf = window.buf
        size = len(buf) - len(buf.lstrip(buf[0]))
        line, has_ended = window.line()
        is_label = line.rstrip(" \t\r") in _LABELS
        may_end = is_label or buf[0] in "`~" or any(label.startswith(line) for label in _LABELS)
        if not has_ended and not window.eof and may_end and len(line) < FENCE_LINE:
            return WAIT
        if is_label and not self._is_labelled:
            window.text(len(line) + has_ended)
            self._is_labelled = True
            return self
        info = opens_fence(line[size:], buf[0]) if size >= 3 and buf[0] in "`~" else None
        if info is None or info not in window.grammar.carriers or window.offset < window.blind:
            if self._held.calls and not self._held.refused:
                window.openings.show()
            return self._decide(window, accept=False)
        # Another fence of calls right behind: all of them stand or fall together.
        self._fence, self._info = (buf[0], size, 0), info
        window.text(len(line) + has_ended)
        self._is_closed = self._has_begun = self._is_labelled = False
        return self

    def _step_broken(self, window: Window, fence: Fence) -> Move:
        """In a fence whose call is broken: all of it is text, whatever it holds."""
        if not fence.read(window):
            return WAIT
        self._end_broken()
        return self

    def _end_broken(self) -> None:
        """The fence with a broken call is over; what follows it decides about the others."""
        held = self._held
        self._texts.append(range(self._whole, len(held.events)))
        self._is_closed, self._whole = True, len(held.events)
        self._broken, held.refused = None, False

    def _is_meant(self) -> bool:
        """Whether the fence that has just been read was meant as a call, as those before it were."""
        notes = [event.verdict for event in self._held.events[self._whole :] if isinstance(event, Note)]
        return any(verdict.meant and verdict.name for verdict in notes)

    def _ends_in_cut_call(self) -> bool:
        """Whether nothing but a call that was cut stands behind the fences that have been closed."""
        behind = self._held.events[self._whole :]
        return self._held.cut and self._whole > 0 and all(isinstance(event, Text | Note) for event in behind)

    def _decide(self, window: Window, *, accept: bool) -> Mode:
        """The calls are calls and the fence around them is none, or all is text."""
        held = self._held
        accept = accept and held.calls > 0 and not held.refused and not self._is_labelled
        if not accept:
            window.let_go(held.decided(accept=False))
            return self.after
        # In an answer that was cut the last fence has not closed: what would have followed it may be prose.
        whole = len(held.events) if self._is_closed or not window.cut else self._whole
        events = [*map(_carried, held.events[:whole]), *as_text(held.events[whole:])]
        for texts in self._texts:
            events[texts.start : texts.stop] = as_text(held.events[texts.start : texts.stop])
        window.let_go(events)
        return self.after

    def finish(self, window: Window) -> None:
        if self._broken is not None:
            self._end_broken()
        self._decide(window, accept=True)


def _carried(event: Event) -> Event:
    """An event in a fence that carries calls: what is not a call is the fence, which goes."""
    return Drop(event.raw, "carrier") if isinstance(event, Text) else event
