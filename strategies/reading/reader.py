"""The streaming reader: text that arrives in pieces becomes text and calls.

Grammar: the answer is text in which candidates stand. A candidate begins at a marker of an active dialect that is not
in a literal context (code fence, inline code, quotation, reasoning) and is read by that dialect's generator over a
cursor. What the generator refuses becomes text again and is searched behind the marker.

Invariants: the raw text of all events, joined, is the input; the events do not depend on how the input was cut; the
work is linear, as text given back by refused candidates is read again only within a budget; only what may still become
a call is held.
"""

import re

from attrs import define, evolve, field

from gateway.core.events import Args, Drop, End, Event, Note, Start, Text
from strategies.base import FinishReason
from strategies.grammar.dialect import Context, Dialect, Fence, Opening
from strategies.grammar.inline import shows_example
from strategies.grammar.lexicon import LEFTOVERS, REASONING, REASONING_ENDS, line_of
from strategies.grammar.literal import (
    FenceMark,
    closes_fence,
    is_announced_example,
    is_quoted,
    may_open_fence,
    opens_fence,
)
from strategies.reading.active import Grammar
from strategies.reading.candidate import Candidate
from strategies.reading.copies import Copies
from strategies.reading.drafts import CLOSERS, Drafts, meets_closer
from strategies.reading.foresight import GLUED, Foresight, may_become

__all__ = ["BEFORE", "CUT_REASONS", "Reader"]

BEFORE = 400
"""How much of the text before a marker its dialect may look at."""
CUT_REASONS = frozenset({"length", "cut", "content_filter"})
_BUDGET = 16
_BUDGET_FLOOR = 1 << 16
_VAIN_FLOOR = 100
_VAIN_RATE = 64
"""How many candidates may come to nothing: so many in all, and one more for each of these characters."""
_BLOCK = 1 << 12
_TURN = 1 << 12
"""How many characters are worked off before the others of the process have their turn."""
_MOVE = 40
"""What a move costs, in characters."""
_FENCE_LINE = 256
_TAG = 100
"""How long a tag may be that is remembered as the end of a call."""
_MAX_RUN = 256
"""A longer run of backticks counts as several."""
_INLINE_BOUND = 1 << 12
"""How far behind a marker the end of inline code is looked for."""
_OWN_FENCES = frozenset({"tool_code"})
"""Info strings that no language has: prose behind such a fence does not make it an example."""
_NOBODY: frozenset[str] = frozenset()
_QUOTES = "\"'“”‘’«»„「」『』"
_LEVELS = "ABCDE"
_BLANK = " \t\r"
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
_BACKTICKS = re.compile(r"`+")
_NEXT_EXAMPLE = re.compile(r"\W*+(?:\w{1,4}\W*+)?")
"""What stands between one example and the next."""
_INNER_CLOSER = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[ \t\r]*$", re.MULTILINE)
_INLINE_END = re.compile(r"`+|\n[ \t\r]*\n")


@define
class _Pending:
    """Events that stand only if what follows them allows it."""

    kind: str
    """`carrier`: a code fence whose sole content are calls; `reasoning`: a call inside open reasoning; `tokens`: a
    call by special tokens inside any other fence; `open`: a call in the text itself that may be an example."""
    events: list[Event]
    fence: FenceMark = ("", 0, 0)
    info: str = ""
    closed: bool = False
    calls: int = 0
    begun: bool = False
    """A candidate has been tried in this fence."""
    refused: bool = False
    """A call inside was refused, so there is more than calls."""
    families: set[str] = field(factory=set)
    """Those that have made a call in it, where it is `open`."""
    whole: int = 0
    """How many of the events come before an end of a fence."""
    cut: bool = False
    """The answer was cut inside a call."""

    def ends_in_cut_call(self) -> bool:
        """Whether nothing but a call that was cut stands behind the fences that have been closed."""
        return (
            self.cut and self.whole > 0 and all(isinstance(event, Text | Note) for event in self.events[self.whole :])
        )

    def is_quotation(self) -> bool:
        """Whether a fence closes behind the last call within the fence that has just been left, and words follow."""
        pieces: list[str] = []
        for event in reversed(self.events):
            if not isinstance(event, Text):
                break
            pieces.append(event.raw)
        rest = "".join(reversed(pieces)).rstrip().rpartition("\n")[0]
        inner = _INNER_CLOSER.search(rest)
        return inner is not None and bool(rest[inner.end() :].strip())


def _strong(rows: tuple[Dialect, ...]) -> tuple[Dialect, ...]:
    return tuple(row for row in rows if row.level in "AB")


class Reader:
    """Reads one choice of one answer."""

    def __init__(self, context: Context, grammar: Grammar) -> None:
        self._context = context
        self._rows = grammar.rows
        self._line_rows = grammar.line_rows
        self._results = grammar.results
        self._lexicon = grammar.lexicon
        self._line_lexicon = grammar.line_lexicon
        self._foresight = Foresight(context, grammar.lexicon, grammar.rows)
        self._line_foresight = Foresight(context, grammar.line_lexicon, grammar.line_rows)
        self._bodies = grammar.bodies
        self._carriers = grammar.carriers
        self._families = grammar.families
        self._tokens = grammar.tokens
        self._earlier: frozenset[str] = frozenset()
        self._out: list[Event] = []
        self._copies = Copies(context)
        self._buf = ""
        self._told = 0
        """How much of the buffer has gone out as text already: it stays to be recognised, but cannot become a call."""
        self._ahead: list[str] = []
        """Text behind the buffer, in blocks, the next one last: moves in a long buffer would copy all of it."""
        self._offset = 0
        self._tail = ""
        self._is_line_start = True
        """Nothing but white space has come since the last line break."""
        self._blind = 0
        self._work = 0
        self._vain = 0
        """Candidates that came to nothing."""
        self._inline = 0
        self._looked = 0
        self._fence: FenceMark | None = None
        self._is_example = False
        """The fence was announced as an example."""
        self._reasoning: str | None = None
        self._is_thought_over = False
        """Reasoning has begun or ended: what is outside of it is no draft."""
        self._drafts: Drafts | None = None
        """All from the first call on, while it may turn out that the answer began inside its reasoning."""
        self._pending: _Pending | None = None
        self._candidate: Candidate | None = None
        self._started = 0
        self._ahead_of_call = ("", True)
        """What stood before the candidate, and whether its line began there."""
        self._example_end = -1
        """Where the last candidate ended that showed a call as an example."""
        self._callers: set[str] = set()
        """The families that have made a call."""
        self._fresh = False
        """Nothing but white space has come since the last call."""
        self._discarding = False
        self.busy = False
        """More can be done with the text at hand: `step` goes on with it."""
        self._ended = False
        self._eof = False
        """The answer ends behind the buffer."""
        self._cut = False

    @property
    def idle(self) -> bool:
        is_waiting = self._candidate is not None or self._pending is not None or self._drafts is not None
        return self._told == len(self._buf) and not self._ahead and not is_waiting

    @property
    def held(self) -> int:
        """How many characters wait for a decision."""
        waiting = len(self._buf) - self._told
        if self._candidate:
            waiting += self._candidate.held
        if self._pending:
            waiting += sum(len(event.raw) for event in self._pending.events)
        if self._drafts:
            waiting += self._drafts.held
        return waiting

    def reasoned(self) -> list[Event]:
        """The answer has reasoning in a field of its own, so nothing in the text is a draft of it."""
        self._is_thought_over = True
        self._release()
        return self._decided()

    def feed(self, text: str) -> list[Event]:
        return self._all(self.step(text)) if text else []

    def step(self, text: str = "", reason: FinishReason | None = None) -> list[Event]:
        """A bounded piece of the work: with more text, with the end, or with neither while `busy`."""
        if reason is not None:
            self._ended, self._eof = True, not self._ahead
            self._cut = reason in CUT_REASONS
        elif text and self._flows(text):
            self._offset += len(text)
            self._pass(text)
            self._fresh = self._fresh and text.isspace()
            self._copies.say(text)
            return [Text(text)]
        elif self._ahead:
            self._ahead[:0] = _blocks(text)
        elif text:
            self._give(text)
        return self._run()

    def _all(self, events: list[Event]) -> list[Event]:
        """The events, and those of all steps that are left."""
        if not self.busy:
            return events
        events = [*events]
        while self.busy:
            events += self.step()
        return _joined(events)

    def _flows(self, text: str) -> bool:
        """Nothing is open and nothing in the text could open anything."""
        return (
            self.idle
            and not self._buf
            and (self._fence is None or not text[-1].isspace())
            and not self._inline
            and not self._discarding
            and not (self._line_rows and self._is_line_start)
            and not self._lexicon.trigger.search(text)
        )

    def finish(self, reason: FinishReason) -> list[Event]:
        return self._all(self.step(reason=reason))

    def _run(self) -> list[Event]:
        self.busy = self._works()
        if self._eof and not self.busy:
            self._settle_pending(accept=True)
            self._release()
        return self._decided()

    def _decided(self) -> list[Event]:
        """What is decided since the last time."""
        out, self._out = self._out, []
        return self._copies.told(_joined(out))

    def _works(self) -> bool:
        """Do as much as one turn allows; whether something is left."""
        room = _TURN
        while room > 0:
            before = self._offset
            room -= _MOVE if self._candidate is None else _MOVE + len(self._buf)
            moved = self._step()
            if self._candidate is not None and self._candidate.paused:
                return True
            if not moved and not self._refill():
                return False
            room -= max(0, self._offset - before)
        return True

    def _give(self, text: str) -> None:
        """Text that comes next, in front of what waits already."""
        if len(self._buf) + len(text) <= _BLOCK:
            self._buf += text
            return
        self._ahead += _blocks(text)
        self._eof = False

    def _refill(self) -> bool:
        """Take the next block into the buffer, if there is one."""
        if not self._ahead:
            return False
        self._buf += self._ahead.pop()
        self._eof = self._ended and not self._ahead
        return True

    def _step(self) -> bool:
        """One move; False when nothing more can be done with the text at hand."""
        if self._candidate is not None:
            return self._advance(self._candidate)
        if not self._buf:
            return False
        if self._discarding:
            return self._step_discarding()
        if self._pending is not None:
            if self._pending.kind == "carrier":
                return self._step_carrier(self._pending)
            if self._pending.kind == "tokens":
                return self._step_tokens(self._pending)
            if self._pending.kind == "open":
                return self._step_behind_call(self._pending)
            return self._step_draft(self._pending, self._reasoning or "")
        if self._drafts is not None and self._drafts.closed:
            return self._step_behind_drafts()
        if self._fence is not None:
            return self._step_fence(self._fence)
        if self._reasoning is not None:
            return self._step_reasoning(self._reasoning)
        return self._step_text()

    # Text

    def _step_text(self) -> bool:
        buf = self._buf
        if self._line_rows and self._is_line_start:
            move = self._line_start(0)
            if move is not None:
                return move
        at = 0
        while True:
            match = self._lexicon.trigger.search(buf, at)
            if match is None:
                self._text(len(buf))
                return False
            at = match.start()
            if buf[at] == "\n":
                move = self._line_start(at + 1)
            elif buf[at] == "`" or (buf[at] == "~" and self._lexicon.at(buf, at) is None):
                return self._backticks(at)
            elif not self._eof and self._lexicon.may_begin(buf, at):
                self._text(at)
                self._foretell()
                return False
            else:
                move = self._find(at)
            if move is not None:
                return move
            at += 1

    def _find(self, at: int) -> bool | None:
        """What stands at `at`, where the text is looked at; what ends drafts counts in any."""
        marker = self._lexicon.at(self._buf, at)
        if marker is None:
            return None
        if self._offset + at >= self._blind:
            return self._marker(marker, at)
        if self._drafts is not None and marker in REASONING:
            self._drafts.opens(marker)
        if self._drafts is not None and marker in REASONING_ENDS:
            return self._closer(marker, at)
        return None

    def _line_start(self, at: int) -> bool | None:
        """What a marker at the start of a line leads to: a move made, or None where none stands there."""
        buf = self._buf
        while at < len(buf) and buf[at] in _BLANK:
            at += 1
        if at == len(buf) or self._offset + at < self._blind:
            return None
        marker = self._line_lexicon.at(buf, at)
        longer = self._lexicon if marker else self._line_lexicon
        if not self._eof and (longer.may_begin(buf, at) or self._line_lexicon.may_begin(buf, at)):
            self._text(at)
            if not self._line_foresight.may_open(self._buf, 0, self._tail, _LEVELS):
                self._foretell()
            return False
        if marker is None or len(self._lexicon.at(buf, at) or "") > len(marker):
            return None
        opening = Opening(marker=marker, before=self._before(at))
        return self._open(self._openable(self._line_rows[marker], opening, at), opening, at)

    def _marker(self, marker: str, at: int) -> bool | None:
        """What a marker at `at` leads to: a move made, or None where it is just text."""
        opening = Opening(marker=marker, before=self._before(at))
        follows = self._fresh and not self._buf[:at].strip()
        if self._results.get(marker, _NOBODY) & self._callers and (opening.starts_line or follows):
            self._text(at)
            self._discarding = True
            return True
        if marker in LEFTOVERS and follows:
            self._text(at)
            self._emit(Drop(self._take(len(marker)), "leftover"))
            return True
        if marker in REASONING and not self._inline:
            if opening.starts_line or marker.startswith("<|"):
                self._text(at + len(marker))
                self._reasoning = REASONING[marker]
                self._is_thought_over = True
                return True
            if self._drafts is not None:
                self._drafts.opens(marker)
        if marker in REASONING_ENDS:
            return self._closer(marker, at)
        return self._open(self._openable(self._rows.get(marker, ()), opening, at), opening, at)

    def _open(self, rows: tuple[Dialect, ...], opening: Opening, at: int) -> bool | None:
        """Begin a candidate, unless it stands in inline code."""
        if not rows:
            return None
        self._text(at)
        if self._inline:
            literal = self._inline_code(0)
            if literal is not None:
                return literal
        self._doubt(rows, opening)
        self._begin(rows, opening)
        return True

    def _doubt(self, rows: tuple[Dialect, ...], opening: Opening) -> None:
        """Hold a call until it is clear that it is no example."""
        if rows[0].level in "BC" and shows_example(opening.before):
            self._pending = _Pending(kind="open", events=[])

    def _passes_on(self, pending: _Pending) -> bool:
        """Take the white space behind what was held, or let go of it where it made no call; whether either was done."""
        blanks = len(self._buf) - len(self._buf.lstrip())
        if blanks:
            self._text(blanks)
        elif not pending.calls:
            self._settle_pending(accept=False)
        return blanks > 0 or not pending.calls

    def _step_behind_call(self, pending: _Pending) -> bool:
        """Behind announced calls in the text: prose makes them examples, an answer behind reasoning makes drafts."""
        if self._passes_on(pending):
            return True
        buf = self._buf
        if self._may_begin_now():
            return False
        marker = self._lexicon.at(buf, 0)
        if marker in LEFTOVERS:
            self._emit(Drop(self._take(len(marker)), "leftover"))
            return True
        if marker in REASONING_ENDS and not self._is_thought_over:
            self._end_thought(marker)
            self._text(len(marker))
            pending.closed = True
            return True
        if self._results.get(marker or "", _NOBODY) & pending.families:
            self._settle_pending(accept=not pending.closed)
            return True
        rows, opening = self._openable_now()
        if rows and not pending.closed and (opening.marker == marker or opening.starts_line):
            self._begin(rows, opening)
            return True
        self._settle_pending(accept=False)
        return True

    def _openable(self, rows: tuple[Dialect, ...], opening: Opening, at: int = 0) -> tuple[Dialect, ...]:
        """The dialects that may open a call at `at`: weak evidence counts only in one family of a message.

        An answer that is full of markers which open nothing is looked at less closely.
        """
        if self._vain > _VAIN_FLOOR + (self._offset + at) // _VAIN_RATE:
            return ()
        quoted: dict[tuple[str, bool], bool] = {}
        found: list[Dialect] = []
        callers = self._callers | self._pending.families if self._pending else self._callers
        for row in rows:
            if row.level not in "AB" and callers and row.family not in callers:
                continue
            kind = (row.level, row.inline)
            if kind not in quoted:
                quoted[kind] = is_quoted(opening, row.level, inline=row.inline)
            if not quoted[kind] and row.may_open(self._context, opening):
                found.append(row)
        return tuple(found)

    def _openable_now(self, fence: Fence | None = None) -> tuple[tuple[Dialect, ...], Opening]:
        """The dialects that may open a call at the start of the buffer, inside a fence or reasoning."""
        marker = self._lexicon.at(self._buf, 0) or ""
        line_marker = self._line_lexicon.at(self._buf, 0) or ""
        if len(marker) < len(line_marker):
            rows, marker = self._line_rows[line_marker], line_marker
        else:
            rows = self._rows.get(marker, ())
        if fence is not None:
            rows = tuple(row for row in rows if fence.info in row.carriers)
            rows = (*rows, *(row for row in self._bodies.get(fence.info, ()) if row not in rows))
        opening = Opening(marker=marker, before=self._tail, fence=fence, earlier=self._earlier)
        return (self._openable(rows, opening), opening) if self._offset >= self._blind else ((), opening)

    def _may_begin_now(self) -> bool:
        buf = self._buf
        return not self._eof and (self._lexicon.may_begin(buf, 0) or self._line_lexicon.may_begin(buf, 0))

    def _inline_code(self, at: int) -> bool | None:
        """Whether the marker at `at` is inside inline code: a move, or None when the code span never closes."""
        search = max(at, self._looked - self._offset)
        bound = at + _INLINE_BOUND
        for match in _INLINE_END.finditer(self._buf, search, bound):
            if match.end() == bound or (match.end() == len(self._buf) and not self._eof):
                break
            if match.group()[0] == "\n":
                self._inline = 0
                return None
            if match.end() - match.start() == self._inline:
                self._inline = 0
                self._text(match.end())
                return True
        if self._eof or len(self._buf) >= bound:
            self._inline = 0
            return None
        looked = self._offset + max(search, len(self._buf.rstrip("` \t\r\n")))
        self._text(at)
        self._looked = looked
        return False

    def _backticks(self, at: int) -> bool:
        """A run of backticks or tildes: a code fence, the edge of inline code, or plain text."""
        buf = self._buf
        mark = buf[at]
        end = at
        while end < len(buf) and buf[end] == mark and end - at < _MAX_RUN:
            end += 1
        if end == len(buf) and end - at < _MAX_RUN and not self._eof:
            self._text(at)
            self._foretell_fence(end - at)
            return False
        line = self._before(at).rsplit("\n", 1)[-1]
        if end - at >= 3 and may_open_fence(line):
            newline = buf.find("\n", end, end + _FENCE_LINE)
            if newline < 0 and not self._eof and len(buf) - end < _FENCE_LINE:
                self._text(at)
                self._foretell_fence(end - at)
                return False
            ends = newline + 1 if newline >= 0 else len(buf)
            is_short = newline >= 0 or len(buf) - end < _FENCE_LINE
            info = opens_fence(buf[end : newline if newline >= 0 else len(buf)], mark) if is_short else None
            if info is not None and self._results.get(mark * 3 + info, _NOBODY) & self._callers:
                self._text(at)
                self._discarding = True
                return True
            glued = GLUED.match(buf, end, ends) if info is not None else None
            if glued is not None:
                return self._open_fence(at, glued.end(), (mark, end - at, len(line)), glued.group(1).lower())
            if info is not None:
                return self._open_fence(at, ends, (mark, end - at, len(line)), info)
        self._text(at)
        if mark == "`":
            size = end - at
            if self._inline == 0:
                self._inline = size
            elif self._inline == size:
                self._inline = 0
        self._text(end - at)
        return True

    # Fences

    def _open_fence(self, at: int, end: int, fence: FenceMark, info: str) -> bool:
        before = self._before(at)
        self._text(at)
        self._inline = 0
        blind = self._offset < self._blind
        if self._drafts is not None:
            self._drafts.enter_fence()
        told = min(self._told, end - at)
        line = self._take(end - at)
        self._is_example = is_announced_example(before)
        may_carry = not blind and info in self._carriers and fence[2] <= 3
        if may_carry and not self._is_example:
            self._pending = _Pending(kind="carrier", events=[], fence=fence, info=info)
            self._pending.events.append(Text(line))
        else:
            self._fence = fence
            if told < len(line):
                self._tell(Text(line[told:]))
            self._remember(info)
        self._pass(line)
        return True

    def _remember(self, info: str) -> None:
        if info in self._bodies:
            self._earlier |= {info}

    def _step_fence(self, fence: FenceMark) -> bool:
        """Inside a literal fence: everything is text until the line that closes it, or a family's own token."""
        end, closes = self._end_of_fence(fence)
        limit, rows, opening = self._token_in_fence(end)
        indented = self._indented(limit)
        if self._told < indented < limit:
            self._text(indented, firm=True)
            limit, indented, end = limit - indented, 0, end - indented
        self._text(limit, firm=indented == limit)
        if opening is not None:
            if self._pending is None:
                self._pending = _Pending(kind="tokens", events=[], fence=fence)
            self._begin(rows, opening)
            return True
        if closes and limit == end:
            self._leave_fence()
            return bool(self._buf)
        self._foretell("" if self._is_example else "A")
        return False

    def _end_of_fence(self, fence: FenceMark) -> tuple[int, bool]:
        """Where the line ends that closes the fence; else where the text ends that cannot belong to such a line."""
        buf = self._buf
        start = 0
        at_line = self._tail.endswith("\n")
        while (newline := buf.find("\n", start)) >= 0:
            if at_line and closes_fence(buf[start:newline], fence):
                return newline + 1, True
            start, at_line = newline + 1, True
        rest = buf[start:]
        if not at_line or len(rest) >= _FENCE_LINE:
            return len(buf), False
        if self._eof:
            return len(buf), closes_fence(rest, fence)
        return (start if closes_fence(rest, fence, partial=True) else len(buf)), False

    def _indented(self, end: int) -> int:
        """Where the indentation ends that is a part of the white space in front of `end`; 0 for none."""
        text = self._buf[:end]
        space = text[len(text.rstrip()) :]
        kept = space.rstrip("\r\n")
        if kept and ("\n" in kept or (len(space) == end and self._is_line_start)):
            return end - len(space) + len(kept)
        return 0

    def _leave_fence(self) -> None:
        self._fence = None
        if self._pending is not None:
            self._pending.closed = True
            if self._pending.is_quotation():
                self._settle_pending(accept=False)

    def _token_in_fence(self, end: int) -> tuple[int, tuple[Dialect, ...], Opening | None]:
        """Where a special token opens a call in front of `end`, or where one may begin; else `end`."""
        buf = self._buf
        at = -1
        while not self._is_example:
            match = self._lexicon.trigger.search(buf, at + 1, end)
            if match is None:
                break
            at = match.start()
            if not self._eof and buf[at] not in "`~\n" and self._lexicon.may_begin(buf, at):
                return at, (), None
            marker = self._lexicon.at(buf, at)
            if marker is None or self._offset + at < self._blind:
                continue
            opening = Opening(marker=marker, before=self._before(at))
            rows = tuple(row for row in self._openable(self._rows.get(marker, ()), opening, at) if row.level == "A")
            if rows:
                return at, rows, opening
        return end, (), None

    def _step_tokens(self, pending: _Pending) -> bool:
        """Behind a call by special tokens inside a fence: it counts unless the fence closes and prose follows."""
        if not pending.calls:
            self._settle_pending(accept=False)
            return True
        if not pending.closed:
            return self._step_fence(pending.fence)
        buf = self._buf
        at = len(buf) - len(buf.lstrip())
        if at:
            self._text(at)
            return True
        if self._may_begin_now():
            return False
        marker = self._lexicon.at(buf, 0)
        if marker in LEFTOVERS:
            self._text(len(marker))
            return True
        self._settle_pending(accept=False)
        return True

    def _keep_tokens(self, pending: _Pending) -> bool:
        """A fence that holds more than calls is no carrier; calls by special tokens may still count."""
        kept: list[Event] = []
        call: list[Event] = []
        pending.calls = 0
        for event in pending.events:
            if isinstance(event, Start | Args):
                call.append(event)
            elif isinstance(event, End) and event.verdict.dialect in self._tokens:
                kept += (*call, event)
                pending.calls += 1
                call.clear()
            elif isinstance(event, End):
                kept += (Text(part.raw) for part in (*call, event))
                call.clear()
            else:
                kept.append(event)
        pending.events = kept
        pending.kind, pending.refused = "tokens", False
        return pending.calls > 0

    def _step_carrier(self, pending: _Pending) -> bool:
        """Inside a fence that may carry calls: only calls and white space, then only white space to the end."""
        buf = self._buf
        at = len(buf) - len(buf.lstrip())
        if at:
            self._text(at)
            return True
        if pending.closed:
            return self._step_behind_carrier(pending)
        line, ended = self._first_line()
        if pending.calls and not pending.refused:
            if closes_fence(line, pending.fence):
                if not ended and not self._eof:
                    return False
                self._text(len(line))
                pending.closed, pending.whole = True, len(pending.events)
                self._remember(pending.info)
                if pending.info in _OWN_FENCES:
                    self._settle_pending(accept=True)
                return True
            if not ended and not self._eof and closes_fence(line, pending.fence, partial=True):
                return False
        if self._may_begin_now():
            return False
        marker = self._lexicon.at(buf, 0)
        if pending.calls and marker in LEFTOVERS:
            self._text(len(marker))
            return True
        mark, size, _ = pending.fence
        rows, opening = self._openable_now(Fence(mark=mark, size=size, info=pending.info))
        if rows and not pending.refused and not (pending.begun and not opening.marker):
            pending.begun = True
            self._begin(rows, opening)
            return True
        self._fence = pending.fence
        self._remember(pending.info)
        if pending.ends_in_cut_call():
            pending.refused = False
            self._settle_pending(accept=True)
        elif not self._keep_tokens(pending):
            self._settle_pending(accept=False)
        return True

    def _step_behind_carrier(self, pending: _Pending) -> bool:
        """Behind a fence of calls: another one, tokens that mean nothing, or text that makes it an example."""
        buf = self._buf
        if self._may_begin_now():
            return False
        marker = self._lexicon.at(buf, 0)
        if marker in LEFTOVERS:
            self._text(len(marker))
            return True
        size = len(buf) - len(buf.lstrip(buf[0]))
        line, ended = self._first_line()
        if not ended and not self._eof and buf[0] in "`~" and len(line) < _FENCE_LINE:
            return False
        info = opens_fence(line[size:], buf[0]) if size >= 3 and buf[0] in "`~" else None
        if info is None or info not in self._carriers or self._offset < self._blind:
            self._settle_pending(accept=False)
            return True
        fence = (buf[0], size, 0)
        self._text(len(line) + ended)
        pending.fence, pending.info, pending.closed, pending.begun = fence, info, False, False
        return True

    def _first_line(self) -> tuple[str, bool]:
        end = self._buf.find("\n")
        return (self._buf, False) if end < 0 else (self._buf[:end], True)

    # Reasoning

    def _step_reasoning(self, closer: str) -> bool:
        """Inside reasoning: text, but for its closer, special tokens, and other strong openers at a line start."""
        buf = self._buf
        at = -1
        while True:
            match = self._lexicon.trigger.search(buf, at + 1)
            if match is None:
                self._text(len(buf))
                return False
            at = match.start()
            if buf.startswith(closer, at):
                self._text(at + len(closer))
                self._reasoning = None
                return True
            if not self._eof and (closer.startswith(buf[at:]) or self._lexicon.may_begin(buf, at)):
                self._text(at)
                self._foretell("AB")
                return False
            marker = self._lexicon.at(buf, at)
            if marker is None or self._offset + at < self._blind:
                continue
            opening = Opening(marker=marker, before=self._before(at))
            rows = _strong(self._openable(self._rows.get(marker, ()), opening, at))
            if not opening.starts_line:
                rows = tuple(row for row in rows if row.level == "A")
            if rows:
                self._text(at)
                self._pending = _Pending(kind="reasoning", events=[])
                self._begin(rows, opening)
                return True

    def _step_draft(self, pending: _Pending, closer: str) -> bool:
        """After a call inside open reasoning: it was one if nothing but its end or another call follows."""
        if self._passes_on(pending):
            return True
        buf = self._buf
        if not self._eof and len(buf) < len(closer) and closer.startswith(buf):
            return False
        if not pending.closed and buf.startswith(closer):
            self._text(len(closer))
            pending.closed = True
            return True
        if self._may_begin_now():
            return False
        if (marker := self._lexicon.at(buf, 0)) in LEFTOVERS:
            self._emit(Drop(self._take(len(marker)), "leftover"))
            return True
        rows, opening = self._openable_now()
        if not pending.closed and _strong(rows):
            self._begin(_strong(rows), opening)
            return True
        if pending.closed:
            self._reasoning = None
        self._settle_pending(accept=False)
        return True

    def _settle_pending(self, *, accept: bool) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        accept = accept and pending.calls > 0 and not pending.refused
        whole = len(pending.events)
        if self._cut and not pending.closed and pending.kind == "carrier":
            whole = pending.whole
        for number, event in enumerate(pending.events):
            accept = accept and number < whole
            if accept and pending.kind == "carrier" and isinstance(event, Text):
                self._tell(Drop(event.raw, "carrier"))
            elif accept or isinstance(event, Note | Text):
                self._tell(event)
            else:
                self._tell(Text(event.raw))

    # Drafts

    def _closer(self, marker: str, at: int) -> bool:
        """At the end of reasoning, unless it is only mentioned: one that nothing opened makes drafts of all before."""
        self._text(at)
        if self._inline and (move := self._inline_code(0)) is not None:
            return move
        buf = self._buf
        if len(buf) == len(marker) and not self._eof and self._tail[-1:] in _QUOTES:
            return False
        is_mentioned = self._tail[-1:] in _QUOTES and buf[len(marker) : len(marker) + 1] in _QUOTES
        if not is_mentioned and (self._drafts is None or self._drafts.closes(marker)):
            self._end_thought(marker)
        self._text(len(marker))
        return True

    def _end_thought(self, closer: str) -> None:
        """Reasoning ends here that has begun before the answer."""
        self._is_thought_over = True
        if self._drafts is not None:
            self._out += self._drafts.close(closer)
            self._blind = min(self._blind, self._offset)
            if not self._drafts.held:
                self._fall()

    def _step_behind_drafts(self) -> bool:
        """Behind the end of reasoning that may have held drafts: an answer shows that it did."""
        blanks = len(self._buf) - len(self._buf.lstrip())
        if blanks:
            self._text(blanks)
            return True
        if self._may_begin_now():
            return False
        marker = self._lexicon.at(self._buf, 0)
        if marker in LEFTOVERS:
            self._emit(Drop(self._take(len(marker)), "leftover"))
        elif marker in REASONING_ENDS:
            self._text(len(marker))
        else:
            self._fall()
        return True

    def _step_discarding(self) -> bool:
        """Behind an invented result all is invented, but for the answer behind the reasoning that it stands in."""
        buf = self._buf
        at = -1
        while self._drafts is not None and (match := self._lexicon.trigger.search(buf, at + 1)) is not None:
            at = match.start()
            if not self._eof and self._lexicon.may_begin(buf, at):
                self._discard(at)
                return False
            marker = self._lexicon.at(buf, at) or ""
            if marker in REASONING:
                self._drafts.opens(marker)
            elif marker in CLOSERS and self._drafts.closes(marker):
                self._discard(at)
                self._discarding = False
                self._end_thought(marker)
                self._text(len(marker))
                return True
        self._discard(len(buf))
        return False

    def _discard(self, size: int) -> None:
        if size:
            self._emit(Drop(self._take(size), "invented_result"))

    def _may_be_draft(self, event: Event) -> bool:
        """Whether a call begins here, or the fence around one; what the client reads in the text does not wait."""
        if isinstance(event, Drop):
            return event.reason == "carrier"
        return isinstance(event, Start) and not self._context.is_read_by_client(event.dialect, event.name)

    def _release(self) -> None:
        """No reasoning has ended behind the calls that wait, so they are none of its drafts."""
        drafts, self._drafts = self._drafts, None
        if drafts is not None:
            is_open = self._fence is not None and drafts.ends_in_fence()
            self._out += drafts.fall() if is_open else drafts.stand()

    def _fall(self) -> None:
        """The calls that wait were drafts: the answer begins behind them."""
        drafts, self._drafts = self._drafts, None
        if drafts is not None:
            self._out += drafts.fall()
            self._callers.clear()

    # Candidates

    def _begin(self, rows: tuple[Dialect, ...], opening: Opening) -> None:
        is_decided = self._is_thought_over or self._context.retells
        waits = self._pending is not None or self._drafts is not None
        live = self._context.options.stream_arguments == "incremental" and is_decided and not waits
        if self._example_end >= 0 and self._goes_on_with_example():
            opening = evolve(opening, behind_example=True)
        self._candidate = Candidate(rows, opening, self._context, live=live)
        self._started = self._offset
        self._ahead_of_call = (self._tail, self._is_line_start)

    def _goes_on_with_example(self) -> bool:
        """Whether no more than a little word stands behind the last call that was announced as an example."""
        between = self._offset - self._example_end
        size = len(self._tail)
        return between <= size and _NEXT_EXAMPLE.fullmatch(self._tail, size - between) is not None

    def _advance(self, candidate: Candidate) -> bool:
        """Let the candidate read what has come; False when it waits for more."""
        text, self._buf = self._buf, ""
        over = candidate.feed(text, eof=self._eof, cut=self._cut)
        for event in candidate.events:
            self._emit(event)
        candidate.events.clear()
        if not over:
            return False
        self._candidate = None
        if self._pending is not None:
            self._pending.cut |= candidate.cut
        self._work += candidate.work
        self._vain += not candidate.accounted
        self._offset = self._started + candidate.accounted
        if candidate.showed:
            self._example_end = self._offset
        self._give(candidate.rest)
        blind = candidate.blind
        if blind and self._work > _BUDGET * self._offset + _BUDGET_FLOOR:
            blind = max(blind, candidate.consumed)
        self._blind = max(self._blind, self._offset + blind)
        return True

    # What is text whatever comes

    def _foretell(self, levels: str = _LEVELS) -> None:
        """Let out what waits in the buffer up to where a call of these levels may begin: the rest of a word that may
        be a marker says nothing where that marker opens nothing."""
        if not self._is_plain():
            return
        buf = self._buf
        end = -1
        while (match := self._lexicon.trigger.search(buf, end + 1)) is not None:
            end = match.start()
            if buf[end] in "`~\n" and levels == _LEVELS:
                break
            if self._offset + end >= self._blind and self._foresight.may_open(buf, end, self._before(end), levels):
                break
        self._tell_ahead(end if match else len(buf))

    def _foretell_fence(self, run: int) -> None:
        """The same of a line that begins with a run of backticks or tildes, unless such a fence may carry calls."""
        if not self._is_plain():
            return
        buf = self._buf
        before = self._before(0)
        line = before.rsplit("\n", 1)[-1]
        may_carry = may_open_fence(line) and len(line) <= 3 and self._offset >= self._blind
        if may_carry and may_become(buf[run:], self._carriers) and not is_announced_example(before):
            return
        match = self._lexicon.trigger.search(buf, run)
        self._tell_ahead(match.start() if match else len(buf))

    def _is_plain(self) -> bool:
        """Nothing but text has come so far: behind a call results and left-over tokens count, too."""
        return self._pending is None and self._drafts is None and not self._callers and not self._fresh

    def _tell_ahead(self, size: int) -> None:
        indented = self._indented(size) if self._fence is not None else 0
        if indented > self._told:
            self._out.append(Text(self._buf[self._told : indented], firm=True))
            self._told = indented
        if size > self._told:
            self._out.append(Text(self._buf[self._told : size]))
            self._told = size

    # Output

    def _before(self, at: int) -> str:
        """The last characters in front of a place in the buffer."""
        return self._buf[at - BEFORE : at] if at >= BEFORE else (self._tail + self._buf[:at])[-BEFORE:]

    def _take(self, size: int) -> str:
        text, self._buf = self._buf[:size], self._buf[size:]
        self._told = max(0, self._told - size)
        self._offset += size
        return text

    def _text(self, size: int, *, firm: bool = False) -> None:
        """Let the first `size` characters of the buffer out as text."""
        if not size:
            return
        told = min(self._told, size)
        text = self._take(size)
        if self._inline and _PARAGRAPH.search("\n" + text if self._is_line_start else text):
            self._inline = 0
        self._pass(text)
        if told < size:
            self._emit(Text(text[told:], firm))

    def _pass(self, text: str) -> None:
        """Remember what stands before the next text."""
        self._tail = (self._tail + text)[-BEFORE:]
        line = line_of(self._tail)
        is_long = len(line) == BEFORE
        self._is_line_start = (self._is_line_start or not is_long) and not (text if is_long else line).strip(_BLANK)

    def _pass_part(self, event: Event) -> None:
        """Remember a part of a candidate; of a call no more than its end, as its values are not what stands before."""
        if not isinstance(event, Text) and (body := event.raw.rstrip()):
            tag = body.rfind("<", -_TAG) if body[-1] == ">" else -1
            self._tail, self._is_line_start = self._ahead_of_call
            self._pass(event.raw[tag if tag >= 0 else len(body) - 1 :])
        else:
            self._pass(event.raw)

    def _emit(self, event: Event) -> None:
        if event.raw:
            if self._candidate is not None:
                self._pass_part(event)
            if not isinstance(event, Text):
                self._fresh = True
            elif not event.raw.isspace():
                self._fresh = False
        if self._pending is not None:
            self._pending.events.append(event)
            if isinstance(event, End):
                self._pending.calls += 1
                if self._pending.kind == "open":
                    self._pending.families.add(self._families[event.verdict.dialect])
            self._pending.refused |= self._pending.kind == "carrier" and isinstance(event, Note)
            return
        self._tell(event)

    def _tell(self, event: Event) -> None:
        """Let an event out that is decided, but for what a closer of reasoning may still make of it."""
        if isinstance(event, End):
            self._callers.add(self._families[event.verdict.dialect])
        if self._drafts is None and not self._is_thought_over and self._may_be_draft(event):
            self._drafts = Drafts()
        if self._drafts is None:
            self._out.append(event)
            return
        self._drafts.add(event)
        if isinstance(event, End | Drop) and not self._is_thought_over and (closer := meets_closer(event.raw)):
            self._end_thought(closer)


def _blocks(text: str) -> list[str]:
    """The text in blocks, the first one last."""
    return [text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK)][::-1]


def _joined(events: list[Event]) -> list[Event]:
    """The same with each run of text in one piece, up to where it is firm: whoever takes them pays by the event."""
    if len(events) < 2:
        return events
    out: list[Event] = []
    run: list[str] = []
    for event in events:
        if isinstance(event, Text):
            run.append(event.raw)
            if not event.firm:
                continue
        if run:
            out.append(Text("".join(run), isinstance(event, Text)))
            run = []
        if not isinstance(event, Text):
            out.append(event)
    if run:
        out.append(Text("".join(run)))
    return out
