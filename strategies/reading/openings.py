"""What may open a call at a place, and what an answer may cost that is full of markers which open nothing."""

import re
from collections.abc import Set

from attrs import evolve

from strategies.grammar.dialect import Context, Dialect, Fence, Opening
from strategies.grammar.literal import is_quoted
from strategies.reading.active import Grammar
from strategies.reading.candidate import Candidate

__all__ = ["NOBODY", "Openings", "Rows"]

Rows = tuple[Dialect, ...]
NOBODY: frozenset[str] = frozenset()
_BUDGET = 16
_BUDGET_FLOOR = 1 << 16
"""How many characters may be read in vain: so many for each of the answer, and so many in any."""
_VAIN_FLOOR = 100
_VAIN_RATE = 128
"""How many candidates may come to nothing: so many in all, and one more for each of these characters."""
_NEXT_EXAMPLE = re.compile(r"\W*+(?:\w{1,4}\W*+)?")
"""What stands between one example and the next."""


class Openings:
    """What the dialects of one request may open in one answer."""

    __slots__ = ("_bodies", "_callers", "_context", "_earlier", "_example_end", "_has_shown", "_vain", "_work")

    def __init__(self, context: Context, grammar: Grammar, callers: Set[str]) -> None:
        self._context = context
        self._bodies = grammar.bodies
        self._callers = callers
        self._earlier = NOBODY
        """The info words of the fences so far whose whole body is a dialect's."""
        self._work = 0
        """Characters read in vain."""
        self._vain = 0
        """Candidates that came to nothing."""
        self._example_end = -1
        """Where the last candidate ended that showed a call as an example."""
        self._has_shown = False
        """A call in bare data was text, because words went on behind it."""

    def among(self, rows: Rows, opening: Opening, offset: int, callers: Set[str] = NOBODY) -> Rows:
        """Those of the dialects that may open a call at `offset`: weak evidence counts only in one family of a message,
        to which those belong whose calls still wait (`callers`).

        An answer that is full of markers which open nothing is looked at less closely.
        """
        if self._vain > _VAIN_FLOOR + offset // _VAIN_RATE:
            return ()
        quoted: dict[tuple[str, bool], bool] = {}
        found: list[Dialect] = []
        callers = self._callers | callers if callers else self._callers
        for row in rows:
            if row.level not in "AB" and callers and row.family not in callers:
                continue
            if not row.may_open(self._context, opening):
                continue
            kind = (row.level, row.inline)
            if kind not in quoted:
                quoted[kind] = is_quoted(opening, row.level, inline=row.inline)
            if not quoted[kind]:
                found.append(row)
        return tuple(found)

    def in_fence(self, rows: Rows, fence: Fence) -> Rows:
        """Those that may stand in such a fence, and those that read its whole body."""
        rows = tuple(row for row in rows if fence.info in row.carriers)
        return (*rows, *(row for row in self._bodies.get(fence.info, ()) if row not in rows))

    def enter_fence(self, info: str) -> None:
        """A fence has been opened or read."""
        if info in self._bodies:
            self._earlier |= {info}

    def opening(self, marker: str, before: str, fence: Fence | None) -> Opening:
        return Opening(marker=marker, before=before, fence=fence, earlier=self._earlier)

    def begun(self, opening: Opening, offset: int, tail: str) -> Opening:
        """The same for a candidate that begins at `offset`, behind `tail`: it may go on with an example, where no more
        than a little word stands behind the last call that was announced as one."""
        if self._has_shown:
            opening = evolve(opening, behind_shown=True)
        between = offset - self._example_end
        if self._example_end < 0 or between > len(tail):
            return opening
        goes_on = _NEXT_EXAMPLE.fullmatch(tail, len(tail) - between) is not None
        return evolve(opening, behind_example=True) if goes_on else opening

    def show(self) -> None:
        """Words go on behind calls in bare data: they are text."""
        self._has_shown = True

    def forget(self) -> None:
        """An answer begins, before which nothing was shown."""
        self._has_shown = False

    def ended(self, candidate: Candidate, offset: int) -> int:
        """A candidate is over whose events end at `offset`; how much of the text behind them may open nothing."""
        self._work += candidate.work
        self._vain += not candidate.accounted
        if candidate.in_words:
            self.show()
        if candidate.showed:
            self._example_end = offset
        # The budget is spent: nothing in what was just read in vain may be read once more.
        if candidate.blind and self._work > _BUDGET * offset + _BUDGET_FLOOR:
            return max(candidate.blind, candidate.consumed)
        return candidate.blind
