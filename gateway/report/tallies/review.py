"""Calls that may be wrong ones: signs against them, what people said of them, and which ones to look at."""

from collections.abc import Callable

from attrs import define, field

from gateway.report.facts.candidates import COUNTED_SIGNS, MAX_NAME, PROSE_NEXT, REJECTED, Pair, is_sent
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Chosen, Counts
from gateway.report.facts.tree import Example, Review, Sign, Suspects

__all__ = ["DiffTally", "ReviewTally", "SuspectTally"]

_COUNTED = frozenset(COUNTED_SIGNS)
_EXAMPLES = 3
_SAMPLE = 50
_WRONG_SHOWN = 10
_STRATA_SHOWN = 24
_PER_STRATUM = 2


def _examples() -> "Chosen[Example]":
    return Chosen(_EXAMPLES)


@define
class _Weighed:
    calls: int = 0
    examples: "Chosen[Example]" = field(factory=_examples)


@define
class SuspectTally:
    """Calls with signs against them."""

    calls: int = 0
    suspected: int = 0
    signs: "Counts[_Weighed]" = field(factory=lambda: Counts(_Weighed, limit=20))

    def add_call(self, candidate: Pair) -> None:
        self.calls += 1
        if candidate.is_suspect:
            self.suspected += 1
        for sign in candidate.call.signs:
            self._weigh(sign[:MAX_NAME], candidate.lot, candidate.example)

    def add_rejected(self, lot: int, example: Example) -> None:
        """The client did not take it."""
        # Else it was counted when it was read: one call is suspected once.
        self.suspected += _COUNTED.isdisjoint(example.signs)
        self._weigh(REJECTED, lot, lambda: example)

    def add_prose(self, lot: int, example: Example) -> None:
        """The client went on as if this had not been a call."""
        self._weigh(PROSE_NEXT, lot, lambda: example)

    def _weigh(self, sign: str, lot: int, make: Callable[[], Example]) -> None:
        weighed = self.signs.at(sign)
        weighed.calls += 1
        weighed.examples.offer(lot, make)

    def figures(self) -> Suspects:
        # Those that never came are shown, too: that there were none is what a reader wants to see.
        for sign in (*COUNTED_SIGNS, PROSE_NEXT):
            self.signs.at(sign)
        ordered = sorted(self.signs.items(), key=lambda item: (item[0] == PROSE_NEXT, -item[1].calls, item[0]))
        return Suspects(
            calls=self.calls,
            suspected=rate(self.suspected, self.calls),
            signs=tuple(
                Sign(
                    sign=sign,
                    calls=weighed.calls,
                    counts=sign in COUNTED_SIGNS,
                    examples=tuple(weighed.examples.items()),
                )
                for sign, weighed in ordered
            ),
        )


@define
class ReviewTally:
    """The calls to look at, and the labels of those that were looked at."""

    sample: "Chosen[Example]" = field(factory=lambda: Chosen(_SAMPLE))
    wrong: "Chosen[Example]" = field(factory=lambda: Chosen(_WRONG_SHOWN))
    right_calls: int = 0
    labelled_calls: int = 0
    right_refusals: int = 0
    labelled_refusals: int = 0

    def add_call(self, candidate: Pair) -> None:
        sent = is_sent(candidate.call)
        if sent:
            self.sample.offer(candidate.lot, candidate.example)
        label = candidate.label
        if label is None:
            return
        if sent:
            self.labelled_calls += 1
            self.right_calls += label.is_right
        else:
            self.labelled_refusals += 1
            self.right_refusals += label.is_right
        if not label.is_right:
            self.wrong.offer(candidate.lot, candidate.example)

    def figures(self) -> Review:
        return Review(
            sample=tuple(self.sample.items()),
            labelled=self.labelled_calls + self.labelled_refusals,
            precision=rate(self.right_calls, self.labelled_calls),
            refusals=rate(self.right_refusals, self.labelled_refusals),
            wrong=tuple(self.wrong.items()),
        )


@define
class DiffTally:
    """A few candidates of every kind there is: tool, dialect and decision."""

    strata: "Counts[_Stratum]" = field(factory=lambda: Counts(_Stratum))

    def add_call(self, candidate: Pair) -> None:
        call = candidate.call
        stratum = self.strata.at(f"{call.tool[:MAX_NAME]}\0{call.dialect[:MAX_NAME]}\0{call.decision}")
        stratum.count += 1
        if call.before or call.after:
            stratum.chosen.offer(candidate.lot, candidate.example)

    def figures(self) -> tuple[Example, ...]:
        ordered = sorted(self.strata.items(), key=lambda item: (-item[1].count, item[0]))
        chosen = [stratum.chosen.items() for _, stratum in ordered]
        # One of each kind before the second of any: the page has room for few.
        by_turn = [items[turn] for turn in range(_PER_STRATUM) for items in chosen if turn < len(items)]
        return tuple(by_turn[:_STRATA_SHOWN])


@define
class _Stratum:
    count: int = 0
    chosen: "Chosen[Example]" = field(factory=lambda: Chosen(_PER_STRATUM))
