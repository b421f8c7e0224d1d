"""Tries and their ends in the untouched arms or in the live one, and how sure the readings were."""

from collections import Counter
from itertools import pairwise

from attrs import define, field

from gateway.core.events import IN_REASONING
from gateway.core.records import RequestRecord
from gateway.report.facts.candidates import MAX_NAME, ON_PURPOSE, STAGES, Pair, is_meant, is_sent, tool_name
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Chosen, Counts
from gateway.report.facts.tree import (
    Bin,
    Calibration,
    Confidence,
    Example,
    Failure,
    Funnel,
    Side,
    Sliced,
    Threshold,
)

__all__ = ["ConfidenceTally", "SideTally"]

THRESHOLDS = (50, 60, 70, 75, 80, 85, 90, 92, 95, 97, 99, 100)
BINS = (0, 50, 60, 70, 75, 80, 85, 90, 95, 98, 101)
"""Edges of the bins, in hundredths."""

_STAGE = {stage: place for place, stage in enumerate(STAGES)}
_EXAMPLES = 3


def _examples() -> "Chosen[Example]":
    return Chosen(_EXAMPLES)


@define
class _Tries:
    calls: int = 0
    tries: int = 0


def _by_name() -> "Counts[_Tries]":
    return Counts(_Tries)


@define
class _Failing:
    count: int = 0
    examples: "Chosen[Example]" = field(factory=_examples)


@define
class SideTally:
    """Tries and their ends, in the untouched arms or in the live one."""

    requests: int = 0
    requests_with_calls: int = 0
    overheard: int = 0
    repaired: int = 0
    calls: int = 0
    refused: int = 0
    left_alone: int = 0
    in_reasoning: int = 0
    by_dialect: "Counts[_Tries]" = field(factory=_by_name)
    by_tool: "Counts[_Tries]" = field(factory=_by_name)
    by_strategy: "Counts[_Tries]" = field(factory=_by_name)
    by_model: "Counts[_Tries]" = field(factory=_by_name)
    stages: list[int] = field(factory=lambda: [0] * len(STAGES))
    failures: "Counts[_Failing]" = field(factory=lambda: Counts(_Failing, limit=40))
    verdicts: Counter[str] = field(factory=Counter)

    def add(self, record: RequestRecord) -> None:
        self.requests += 1
        if record.verdict is not None:
            self.verdicts[record.verdict] += 1
        if any(is_sent(call) or call.decision == "repaired" for call in record.calls):
            self.requests_with_calls += 1

    def add_call(self, candidate: Pair) -> None:
        call = candidate.call
        if call.decision == "overheard":
            self.overheard += 1
            return
        self.stages[_STAGE[call.stage]] += 1
        if call.decision == "repaired":
            self.repaired += 1
        elif is_sent(call):
            self.calls += 1
            self.in_reasoning += IN_REASONING in call.reasons
            self._try(candidate, 1)
        elif is_meant(call):
            self._refuse(candidate)

    def _refuse(self, candidate: Pair) -> None:
        reason = candidate.call.reason or "unknown"
        if reason in ON_PURPOSE:
            self.left_alone += 1
        else:
            self.refused += 1
            self._try(candidate, 0)
        failing = self.failures.at(reason[:MAX_NAME])
        failing.count += 1
        failing.examples.offer(candidate.lot, candidate.example)

    def _try(self, candidate: Pair, calls: int) -> None:
        record, call = candidate.record, candidate.call
        for names, name in (
            (self.by_dialect, call.dialect),
            (self.by_tool, tool_name(call)),
            (self.by_strategy, record.strategy),
            (self.by_model, record.model),
        ):
            tries = names.at(name[:MAX_NAME])
            tries.tries += 1
            tries.calls += calls

    def figures(self) -> Side:
        reached = [sum(self.stages[place:]) for place in range(len(STAGES))]
        return Side(
            requests=self.requests,
            requests_with_calls=self.requests_with_calls,
            calls=self.calls,
            refused=self.refused,
            left_alone=self.left_alone,
            in_reasoning=self.in_reasoning,
            overheard=self.overheard,
            repaired=self.repaired,
            success=rate(self.calls, self.calls + self.refused),
            by_dialect=_sliced(self.by_dialect),
            by_tool=_sliced(self.by_tool),
            by_strategy=_sliced(self.by_strategy),
            by_model=_sliced(self.by_model),
            funnel=tuple(Funnel(stage=stage, candidates=reached[place]) for stage, place in _STAGE.items()),
            failures=tuple(
                Failure(
                    reason=reason,
                    count=failing.count,
                    on_purpose=reason in ON_PURPOSE,
                    examples=tuple(failing.examples.items()),
                )
                for reason, failing in sorted(self.failures.items(), key=lambda item: (-item[1].count, item[0]))
            ),
            verdicts=dict(sorted(self.verdicts.items())),
        )


def _sliced(names: "Counts[_Tries]") -> tuple[Sliced, ...]:
    ordered = sorted(names.items(), key=lambda item: (-item[1].tries, item[0]))
    return tuple(Sliced(name=name, success=rate(tries.calls, tries.tries)) for name, tries in ordered)


def _scores() -> list[int]:
    return [0] * 101


@define
class ConfidenceTally:
    """Candidates by score, in whole hundredths."""

    sent: list[int] = field(factory=_scores)
    refused: list[int] = field(factory=_scores)
    applicable: list[int] = field(factory=_scores)
    """Those that only the threshold decides on."""
    suspected: list[int] = field(factory=_scores)
    labelled: list[int] = field(factory=_scores)
    wrong: list[int] = field(factory=_scores)

    def add_call(self, candidate: Pair) -> None:
        call = candidate.call
        score = min(max(call.score, 0), 100)
        sent = is_sent(call)
        (self.sent if sent else self.refused)[score] += 1
        if not sent and call.reason != "low_confidence":
            return
        self.applicable[score] += 1
        self.suspected[score] += candidate.is_suspect
        if candidate.label is not None:
            self.labelled[score] += 1
            self.wrong[score] += candidate.label.is_right is not sent

    def figures(self) -> Confidence:
        bins = list(pairwise(BINS))
        return Confidence(
            histogram=tuple(
                Bin(low=low / 100, high=high / 100, sent=sum(self.sent[low:high]), refused=sum(self.refused[low:high]))
                for low, high in bins
            ),
            calibration=tuple(
                Calibration(
                    low=low / 100,
                    high=high / 100,
                    right=rate(sum(self.labelled[low:high]) - sum(self.wrong[low:high]), sum(self.labelled[low:high])),
                )
                for low, high in bins
            ),
            thresholds=tuple(self._at(threshold) for threshold in THRESHOLDS),
        )

    def _at(self, threshold: int) -> Threshold:
        applied, suspected, labelled, wrong = (
            sum(counts[threshold:]) for counts in (self.applicable, self.suspected, self.labelled, self.wrong)
        )
        by_labels = not rate(0, labelled).too_few
        return Threshold(
            threshold=threshold / 100,
            applied=applied,
            suspected=suspected,
            labelled=labelled,
            labelled_wrong=wrong,
            estimated_wrong=round(applied * wrong / labelled, 1) if by_labels else float(suspected),
            basis="labels" if by_labels else "signs",
        )
