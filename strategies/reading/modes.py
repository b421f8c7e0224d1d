"""The modes of the reader: in which state an answer can be, what each does with the text, and which may follow which.

An answer is read by one machine. Its state is one mode, an object with fields of its own; its tape is the window, the
text at hand. A mode makes one move at a time (`step`): it lets some text go, and says which mode goes on, or that it
waits for more text. That is the whole of the control flow; the reader only repeats it.

**Ground modes** hold nothing: `Prose`, `Fence` and `Reasoning` let their text out as it comes, but for what may still
become a marker. There is one `Prose` for an answer; a fence and reasoning lead back to it, as neither nests in the
other.

**`Call`** reads a candidate behind a marker: a dialect's generator takes all text, until it has made its calls or
refuses. Then the mode that began it goes on, at the first character that the candidate has not used.

**Modes that hold** decide by what follows whether what they hold is a call. Nothing that is read while one of them is
under way goes out; all of it stands, or all of it is the text it was:

- `Carrier`, a fence whose sole content are calls. It holds the fence's own lines, too; behind it prose makes it an
  example. Qwen2.5-Coder writes its calls so (https://github.com/ardanlabs/kronk/pull/950), and whoever takes each such
  block for a call runs what was only shown (https://github.com/ahwurm/localharness/issues/105).
- `TokensInFence`, a call by special tokens inside any other fence.
- `Draft`, a call inside reasoning that has not ended: models do call from there and stop
  (https://github.com/vllm-project/vllm/issues/39056), but a call that thinking goes on behind was only thought.
- `BehindCall`, a call behind words that announce an example.

**Modes in which the answer is elsewhere**: `Discarding`, behind a result that the model has invented itself, as those
do whose server does not stop them there (https://github.com/huggingface/agents-course/issues/412); and `BehindDrafts`,
behind a closer of reasoning that nothing opened, as the template had opened it in the prompt
(https://github.com/deepseek-ai/DeepSeek-R1/issues/352): if an answer follows, the calls before it were drafts.

Drafts of that last kind are no mode of their own: the answer is read on as ever while they wait in the outlet, since
nothing tells until the closer comes that it was reasoning (`drafts`).

Invariants, which hold between any two moves:

- what has gone out, what is held, what the candidate keeps and what is in the window, joined, is the text that came;
- something is held if and only if the mode is one that holds, or a call that began in one;
- a mode waits only where more text could lead to another move: so no move depends on where the text was cut, as long
  as a mode looks at no more of the window than it must (`Lexicon.may_begin` says when a marker may still grow);
- a move that does not wait takes text, begins a candidate or leaves a mode; each candidate leaves a mark behind which
  nothing begins again (`Window.blind`), or is paid from a budget (`Openings`): the work is linear;
- at the end of the answer nothing waits: each move is then made as if what is missing never comes.

`FOLLOWS` is the graph of all this. A mode may also follow itself.
"""

import re
from collections.abc import Mapping
from sys import maxsize

from attrs import define

from gateway.core.events import Text
from strategies.grammar.dialect import Opening
from strategies.grammar.inline import shows_example
from strategies.grammar.lexicon import END_TOKENS, LEFTOVERS, REASONING, REASONING_ENDS, TURNS, ends_turn, line_of
from strategies.grammar.literal import is_announced_example, may_open_behind, may_open_fence, opens_fence
from strategies.reading.drafts import CLOSERS
from strategies.reading.fences import BEHIND_WORDS, Carrier, Fence
from strategies.reading.foresight import EVERY_LEVEL, GLUED
from strategies.reading.left_out import THOUGHT, TURN
from strategies.reading.moves import WAIT, Call, Mode, Move
from strategies.reading.openings import NOBODY, Rows
from strategies.reading.outlet import Held
from strategies.reading.window import FENCE_LINE, Window

__all__ = ["FOLLOWS", "BehindCall", "BehindDrafts", "Discarding", "Draft", "Prose", "Reasoning"]

FOLLOWS: Mapping[str, frozenset[str]] = {
    mode: frozenset(following.split())
    for mode, following in {
        "Prose": "Call Fence Carrier Reasoning Discarding BehindDrafts",
        "Call": "Prose Carrier TokensInFence Draft BehindCall BehindDrafts",
        "Fence": "Prose Call",
        "Carrier": "Prose Call Fence TokensInFence BehindDrafts",
        "TokensInFence": "Prose Call Fence",
        "Reasoning": "Prose Call",
        "Draft": "Prose Call Reasoning",
        "BehindCall": "Prose Call BehindDrafts",
        "BehindDrafts": "Prose Fence",
        "Discarding": "Prose BehindDrafts",
    }.items()
}
"""Which mode may follow which."""

_CALL_FENCES = frozenset({"json", "tool_call", "tool_calls", "tool_code"})
"""Info words of the fences that may open behind words on their line."""
_MAX_RUN = 256
"""A longer run of backticks counts as several."""
_INLINE_BOUND = 1 << 12
"""How far behind a marker the end of inline code is looked for."""
_MOST_LOOKS = 1 << 11
"""How many places are looked at in one move of prose."""
_INLINE_END = re.compile(r"`+|\n[ \t\r]*\n")
_QUOTES = "\"'“”‘’«»„「」『』"
_BLANK = " \t\r"


@define(eq=False)
class Prose:
    """Text in which a candidate, a fence, reasoning or an invented result may begin."""

    _looked: tuple[int, int] = (0, 0)
    """How many backticks the end of inline code has been looked for with, and up to which offset: where another run
    opens other code in that text, its end has not been looked for."""

    levels = EVERY_LEVEL
    in_fence = False

    def step(self, window: Window) -> Move:
        grammar, buf = window.grammar, window.buf
        lexicon = grammar.lexicon
        # Behind words a fence that carries no calls is inline code, however it closes.
        if window.inline < 0:
            window.inline = -window.inline
            literal = self._inline_code(window, 0)
            if literal is WAIT:
                window.inline = -window.inline
            if literal is not None:
                return literal
        if grammar.line_rows and window.is_line_start and (move := self._line_start(window, 0)) is not None:
            return move
        at = looks = 0
        # Prose holds few of the characters that markers begin with, so most of it costs one scan in C.
        while (match := lexicon.trigger.search(buf, at)) is not None:
            at = match.start()
            looks += 1
            # Data that is nothing but brackets holds many. Never within a word: what begins there is no marker.
            if looks > _MOST_LOOKS and not buf[at - 1].isalnum():
                window.text(at)
                return self
            if buf[at] == "\n":
                move = self._line_start(window, at + 1)
            # A tilde may begin a marker of some dialect as well as a fence; a backtick never does.
            elif buf[at] == "`" or (buf[at] == "~" and lexicon.at(buf, at) is None):
                return self._run(window, at)
            elif not window.eof and lexicon.may_begin(buf, at):
                window.text(at)
                window.foretell()
                return WAIT
            else:
                move = self._find(window, at)
            if move is not None:
                return move
            at += 1
        window.text(len(buf))
        return WAIT

    def finish(self, window: Window) -> None:
        """Nothing waits here."""

    # Markers: each of these gives the move that what stands at `at` leads to, or None where it is just text

    def _find(self, window: Window, at: int) -> Move | None:
        """Of a marker anywhere; where nothing may open a call, what ends drafts still counts."""
        marker = window.grammar.lexicon.at(window.buf, at)
        if marker is None:
            return None
        if window.inline and "\n" in window.buf[:at]:
            window.text(at)  # a paragraph may end in front of it, and with it inline code
            return self
        if window.offset + at >= window.blind:
            return self._marker(window, marker, at)
        drafts = window.out.drafts
        if drafts is not None and marker in REASONING:
            drafts.opens(marker)
        if drafts is not None and marker in REASONING_ENDS:
            return self._closer(window, marker, at)
        return None

    def _line_start(self, window: Window, at: int) -> Move | None:
        """Of a marker that counts at the start of a line."""
        grammar, buf = window.grammar, window.buf
        begun = at
        while at < len(buf) and buf[at] in _BLANK:
            at += 1
        # Whoever removes a call removes the white space before it: not where that is the indentation of code.
        if at > begun and window.indents(begun, at):
            window.text(at, firm=True)
            return self
        if at == len(buf) or window.offset + at < window.blind:
            return None
        marker = grammar.line_lexicon.at(buf, at)
        longer = grammar.lexicon if marker else grammar.line_lexicon
        if not window.eof and (longer.may_begin(buf, at) or grammar.line_lexicon.may_begin(buf, at)):
            window.text(at)
            window.foretell_line()
            return WAIT
        # One marker may begin another: the longer one that stands here says what it is.
        if marker is None or len(grammar.lexicon.at(buf, at) or "") > len(marker):
            return None
        opening = Opening(marker=marker, before=window.before(at))
        rows = window.openings.among(grammar.line_rows[marker], opening, window.offset + at)
        return self._open(window, rows, opening, at)

    def _marker(self, window: Window, marker: str, at: int) -> Move | None:
        """Of one of these markers."""
        out = window.out
        opening = Opening(marker=marker, before=window.before(at))
        # Markers behind a call need no line of their own: models write on right behind its closer.
        follows = out.fresh and not window.buf[:at].strip()
        # Without a call of the same family it is no result, but markup that the answer is about.
        if window.grammar.results.get(marker, NOBODY) & out.callers and (opening.starts_line or follows):
            window.text(at)
            return Discarding(self)
        # What the model has others say is none of its own, nor is what it would do then.
        if marker in TURNS and not window.inline and (follows or ends_turn(opening.before)):
            window.text(at)
            window.blind = maxsize
            return self
        if self._is_left_over(window, marker, at, follows=follows):
            return self
        if marker in REASONING and not window.inline:
            # A tag in a line of words is talked about; a special token is not.
            if opening.starts_line or marker.startswith("<|"):
                return self._thought(window, marker, at)
            if out.drafts is not None:
                out.drafts.opens(marker)
        if marker in REASONING_ENDS:
            return self._closer(window, marker, at)
        rows = window.openings.among(window.grammar.rows.get(marker, ()), opening, window.offset + at)
        return self._open(window, rows, opening, at)

    def _is_left_over(self, window: Window, marker: str, at: int, *, follows: bool) -> bool:
        """Whether it is what a turn or a call ends with, which is left out."""
        out = window.out
        is_silent = out.is_silent and not window.buf[:at].strip()
        # A server that shows special tokens shows the end of the turn too; in any other answer it is text about tokens.
        if marker in END_TOKENS and (out.is_speaking or (is_silent and out.callers)):
            window.text(at)
            window.remain(len(marker), TURN)
            return True
        if marker in LEFTOVERS and follows:
            window.text(at)
            window.drop(len(marker), "leftover")
            return True
        return False

    def _thought(self, window: Window, marker: str, at: int) -> Move:
        """Of what opens reasoning."""
        window.text(at)
        if window.out.is_silent:
            window.remain(len(marker), THOUGHT)
        else:
            window.text(len(marker))
        window.out.is_thought_over = True
        return Reasoning(REASONING[marker], self)

    def _open(self, window: Window, rows: Rows, opening: Opening, at: int) -> Move | None:
        """Of a marker that opens a call of one of these dialects, unless it stands in inline code."""
        if not rows:
            return None
        window.text(at)
        if window.inline and (literal := self._inline_code(window, 0)) is not None:
            return literal
        is_doubtful = rows[0].level in "BC" and shows_example(opening.before)
        # "For example:" leaves no doubt in front of special tokens (level A), which nobody writes to show them; in
        # front of tags that anybody can type it is what people write before they show some.
        after = BehindCall(self, window.out.hold()) if is_doubtful else self
        return Call.begin(window, rows, opening, after)

    def _closer(self, window: Window, marker: str, at: int) -> Move:
        """Of the end of reasoning, unless it is only mentioned: one that nothing opened makes drafts of all before."""
        window.text(at)
        if window.inline and (move := self._inline_code(window, 0)) is not None:
            return move
        buf, drafts = window.buf, window.out.drafts
        is_behind_quote = window.tail[-1:] in _QUOTES  # "the `</think>` token" is named, not used
        # The quote that would close may come with the next event: the decision must not depend on that cut.
        if len(buf) == len(marker) and not window.eof and is_behind_quote:
            return WAIT
        is_mentioned = is_behind_quote and buf[len(marker) : len(marker) + 1] in _QUOTES
        if not is_mentioned and (drafts is None or drafts.closes(marker)):
            window.end_thought(marker)
        if window.out.is_silent:
            window.remain(len(marker), THOUGHT)
        elif is_mentioned:
            window.text(len(marker))
        else:
            window.close_thought(len(marker))
        return self

    # Backticks

    def _inline_code(self, window: Window, at: int) -> Move | None:
        """Of a marker in inline code; None where the code span never closes."""
        buf = window.buf
        size, looked = self._looked
        search = max(at, looked - window.offset) if size == window.inline else at
        bound = at + _INLINE_BOUND
        for match in _INLINE_END.finditer(buf, search, bound):
            if match.end() == bound or (match.end() == len(buf) and not window.eof):
                break
            if match.group()[0] == "\n":
                window.inline = 0
                return None
            if match.end() - match.start() == window.inline:
                window.inline = 0
                window.text(match.end())
                return self
        if window.eof or len(buf) >= bound:
            window.inline = 0
            return None
        # Without this each event would search the same text again: quadratic in the length of a span that never closes.
        # The run at the very end is looked at anew, as it may grow.
        self._looked = (window.inline, window.offset + max(search, len(buf.rstrip("` \t\r\n"))))
        window.text(at)
        return WAIT

    def _run(self, window: Window, at: int) -> Move:
        """A run of backticks or tildes: a code fence, the edge of inline code, or plain text."""
        buf = window.buf
        if window.inline and "\n" in buf[:at]:
            window.text(at)  # a paragraph may end in front of it, and with it inline code
            return self
        mark = buf[at]
        end = at
        while end < len(buf) and buf[end] == mark and end - at < _MAX_RUN:
            end += 1
        size = end - at
        if end == len(buf) and size < _MAX_RUN and not window.eof:
            window.text(at)
            window.foretell_fence(size)
            return WAIT
        # Three make a fence, two or fewer inline code: https://spec.commonmark.org/0.31.2/#fenced-code-blocks
        if size >= 3 and (move := self._fence_line(window, at, end)) is not None:
            return move
        if "\n" in buf[:at]:  # a paragraph may end in front of it, and with it inline code
            window.text(at)
            at = 0
        if mark == "`" and window.inline in (0, size):
            window.inline = size - window.inline
        window.text(at + size)
        return self

    def _fence_line(self, window: Window, at: int, end: int) -> Move | None:
        """Of a run from `at` to `end` that may open a fence."""
        line = line_of(window.before(at))
        is_behind_words = not may_open_fence(line)
        # Models do put a fence behind "Here is the call:" on one line; Markdown knows none there, so only those few
        # count.
        if is_behind_words and (window.inline or window.buf[at] == "~" or not may_open_behind(line)):
            return None
        buf, mark = window.buf, window.buf[at]
        # Bounded: an opening line without end would otherwise be searched again with every event.
        newline = buf.find("\n", end, end + FENCE_LINE)
        is_short = newline >= 0 or len(buf) - end < FENCE_LINE
        if newline < 0 and is_short and not window.eof:
            window.text(at)
            window.foretell_fence(end - at)
            return WAIT
        ends = newline + 1 if newline >= 0 else len(buf)
        info = opens_fence(buf[end : newline if newline >= 0 else len(buf)], mark) if is_short else None
        if info is None or (is_behind_words and not self._may_be_behind(window, at, info, has_ended=newline >= 0)):
            return None
        if window.grammar.results.get(mark * 3 + info, NOBODY) & window.out.callers:
            window.text(at)
            return Discarding(self)
        fence = (mark, end - at, BEHIND_WORDS if is_behind_words else len(line))
        # Some models write the call on the line that opens the fence: that line is then no info string.
        glued = GLUED.match(buf, end, ends)
        if glued is not None:
            return self._open_fence(window, at, glued.end(), fence, glued.group(1).lower())
        return self._open_fence(window, at, ends, fence, info)

    def _may_be_behind(self, window: Window, at: int, info: str, *, has_ended: bool) -> bool:
        """Whether a fence behind words may carry calls; any other one is inline code."""
        is_free = window.offset + at >= window.blind and not is_announced_example(window.before(at))
        return has_ended and is_free and info in _CALL_FENCES

    def _open_fence(self, window: Window, at: int, end: int, fence: tuple[str, int, int], info: str) -> Move:
        before = window.before(at)
        window.text(at)
        window.inline = 0
        is_blind = window.offset < window.blind
        if window.out.drafts is not None:
            window.out.drafts.enter_fence()
        # Part of the line may have gone out ahead, while it could not become a fence that carries calls.
        told = min(window.told, end - at)
        line = window.take(end - at)
        is_example = is_announced_example(before)
        # Four columns make a block of code of it, or a part of a list: https://spec.commonmark.org/0.31.2/#fenced-code-blocks
        if not is_blind and not is_example and info in window.grammar.carriers and fence[2] <= 3:
            window.passed(line)
            return Carrier.begin(window, line, fence, info, self)
        if told < len(line):
            window.tell(Text(line[told:]))
        window.openings.enter_fence(info)
        window.passed(line)
        return Fence(fence, is_example, self)


@define(eq=False)
class BehindCall:
    """Behind announced calls in the text: prose makes them examples, an answer behind reasoning makes drafts."""

    after: Mode
    _held: Held
    _is_closed: bool = False
    """Reasoning has ended behind them that began before the answer."""

    levels = None
    in_fence = False

    def step(self, window: Window) -> Move:
        held = self._held
        if window.blanks():
            return self
        # What followed the words was no call after all: there is nothing to doubt.
        if not held.calls:
            return self._decide(window, accept=False)
        if window.may_begin():
            return WAIT
        marker = window.marker()
        if marker in LEFTOVERS:
            window.drop(len(marker), "leftover")
            return self
        # All of it was thought, as nothing in this answer has opened the reasoning that ends here.
        if marker in REASONING_ENDS and not window.out.is_thought_over:
            window.end_thought(marker)
            window.text(len(marker))
            self._is_closed = True
            return self
        if marker in TURNS or window.grammar.results.get(marker or "", NOBODY) & held.families:
            return self._decide(window, accept=not self._is_closed)
        rows, opening = window.openings_now(callers=held.families)
        if rows and not self._is_closed and (opening.marker == marker or opening.starts_line):
            return Call.begin(window, rows, opening, self)
        return self._decide(window, accept=False)

    def _decide(self, window: Window, *, accept: bool) -> Mode:
        window.let_go(self._held.decided(accept=accept))
        return self.after

    def finish(self, window: Window) -> None:
        self._decide(window, accept=True)


@define(eq=False)
class Reasoning:
    """Inside reasoning: text, but for its closer, special tokens, and other strong openers at a line start."""

    _closer: str
    after: Mode

    levels = "AB"
    in_fence = False

    @property
    def closer(self) -> str:
        return self._closer

    def step(self, window: Window) -> Move:
        buf, lexicon, closer = window.buf, window.grammar.lexicon, self._closer
        at = -1
        while (match := lexicon.trigger.search(buf, at + 1)) is not None:
            at = match.start()
            if buf.startswith(closer, at):
                window.text(at)
                if window.out.is_silent:
                    window.remain(len(closer), THOUGHT)
                else:
                    window.close_thought(len(closer))
                return self.after
            # The closer is one that the opener chose and need not be a marker of the lexicon.
            if not window.eof and (closer.startswith(buf[at:]) or lexicon.may_begin(buf, at)):
                window.text(at)
                window.foretell(self.levels)
                return WAIT
            marker = lexicon.at(buf, at)
            if marker is None or window.offset + at < window.blind:
                continue
            rows, opening = window.openings_at(marker, at, self.levels)
            # A tag in the middle of a thought is talked about; no model writes its own special token to talk about it.
            rows = tuple(row for row in rows if row.level in ("AB" if opening.starts_line else "A"))
            if rows:
                window.text(at)
                # Thinking may go on behind it, and then it was only thought:
                # https://github.com/PrimeIntellect-ai/renderers/issues/80
                return Call.begin(window, rows, opening, Draft(self, window.out.hold()))
        window.text(len(buf))
        return WAIT

    def finish(self, window: Window) -> None:
        """Nothing waits here."""


@define(eq=False)
class Draft:
    """After a call inside open reasoning: it was one if nothing but its end or another call follows."""

    _reasoning: Reasoning
    _held: Held
    _is_closed: bool = False
    """The reasoning has ended behind it."""

    levels = None
    in_fence = False

    @property
    def after(self) -> Mode:
        return self._reasoning.after if self._is_closed else self._reasoning

    def step(self, window: Window) -> Move:
        if window.blanks():
            return self
        if not self._held.calls:
            return self._decide(window, accept=False)
        buf, closer = window.buf, self._reasoning.closer
        # Asked before the lexicon: what may still become the closer decides more than what may become a marker.
        if not window.eof and len(buf) < len(closer) and closer.startswith(buf):
            return WAIT
        if not self._is_closed and buf.startswith(closer):
            window.text(len(closer))
            self._is_closed = True
            return self
        if window.may_begin():
            return WAIT
        if (marker := window.marker()) in LEFTOVERS:
            window.drop(len(marker), "leftover")
            return self
        rows, opening = window.openings_now()
        rows = tuple(row for row in rows if row.level in "AB")
        if rows and not self._is_closed:
            return Call.begin(window, rows, opening, self)
        return self._decide(window, accept=False)

    def _decide(self, window: Window, *, accept: bool) -> Mode:
        window.let_go(self._held.decided(accept=accept))
        return self.after

    def finish(self, window: Window) -> None:
        self._decide(window, accept=True)


@define(eq=False)
class BehindDrafts:
    """Behind the end of reasoning that may have held drafts: an answer shows that it did."""

    after: Mode

    levels = None

    @property
    def in_fence(self) -> bool:
        return self.after.in_fence

    def step(self, window: Window) -> Move:
        if window.blanks():
            return self
        if window.may_begin():
            return WAIT
        marker = window.marker()
        # A closer that belongs to the call says nothing about whether it was meant.
        if marker in LEFTOVERS:
            window.drop(len(marker), "leftover")
        # Some models close their reasoning twice, the second time behind the call: it is no answer.
        elif marker in REASONING_ENDS:
            window.text(len(marker))
        else:
            window.out.fall()
            return self.after
        return self

    def finish(self, window: Window) -> None:
        """The drafts stand: no answer has come behind them."""


@define(eq=False)
class Discarding:
    """Behind an invented result all is invented, but for the answer behind the reasoning that it stands in."""

    after: Mode

    levels = None
    in_fence = False

    def step(self, window: Window) -> Move:
        buf, lexicon = window.buf, window.grammar.lexicon
        at = -1
        # Only where drafts wait can an answer follow the invented result; else nothing behind it is looked at any more.
        while (drafts := window.out.drafts) is not None:
            match = lexicon.trigger.search(buf, at + 1)
            if match is None:
                break
            at = match.start()
            if not window.eof and lexicon.may_begin(buf, at):
                window.drop(at, "invented_result")
                return WAIT
            marker = lexicon.at(buf, at) or ""
            if marker in REASONING:
                drafts.opens(marker)
            elif marker in CLOSERS and drafts.closes(marker):
                window.drop(at, "invented_result")
                window.end_thought(marker)
                window.text(len(marker))
                return self.after
        window.drop(len(buf), "invented_result")
        return WAIT

    def finish(self, window: Window) -> None:
        """Nothing waits here."""
