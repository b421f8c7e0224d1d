"""Tries and their ends by side, how sure the readings were, and how each arm and slice fared as the next turns tell."""

from collections import Counter
from itertools import pairwise

from attrs import define, field

from gateway.core.events import IN_REASONING
from gateway.core.records import DecisionRecord, FeedbackRecord, OutcomeRecord, RequestRecord
from gateway.report.facts.candidates import MAX_NAME, ON_PURPOSE, STAGES, Pair, is_meant, is_sent, tool_name
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Chosen, Counts
from gateway.report.facts.tree import (
    ArmFigures,
    Bin,
    Calibration,
    Confidence,
    DecisionShown,
    Example,
    Failure,
    Funnel,
    Side,
    Slice,
    Sliced,
    Threshold,
)

__all__ = ["ArmTally", "ConfidenceTally", "SideTally"]

THRESHOLDS = (50, 60, 70, 75, 80, 85, 90, 92, 95, 97, 99, 100)
BINS = (0, 50, 60, 70, 75, 80, 85, 90, 95, 98, 101)
"""Edges of the bins, in hundredths."""

_STAGE = {stage: place for place, stage in enumerate(STAGES)}
_EXAMPLES = 3
ARMS = ("live", "control", "dry_run", "off")
_DECISIONS_SHOWN = 20


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
        # Settings have left it as text, so reading has not failed.
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
            # A refused one that was refused rightly would be a wrong call under a lower threshold.
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


@define
class _Arm:
    requests: int = 0
    unhealthy: int = 0
    outcomes: Counter[str] = field(factory=Counter)
    reasons: "Counts[list[int]]" = field(factory=lambda: Counts(lambda: [0], limit=20))
    ratings: Counter[str] = field(factory=Counter)


@define
class ArmTally:
    """Requests, outcomes, ratings and decisions."""

    arms: dict[str, _Arm] = field(factory=lambda: {arm: _Arm() for arm in ARMS})
    by_slice: "Counts[Counter[str]]" = field(factory=lambda: Counts(Counter[str]))
    kept: list[DecisionRecord] = field(factory=list)

    def add(self, record: RequestRecord) -> None:
        arm = self.arms[record.arm]
        arm.requests += 1
        arm.unhealthy += not record.healthy

    def add_outcome(self, record: OutcomeRecord) -> None:
        arm = self.arms[record.arm]
        arm.outcomes[record.outcome] += 1
        if record.outcome == "rejected":
            arm.reasons.at(record.reason[:MAX_NAME] or "unknown")[0] += 1
        where = f"{record.arm}\0{record.strategy[:MAX_NAME]}\0{record.dialect[:MAX_NAME]}"
        self.by_slice.at(where)[record.outcome] += 1

    def add_feedback(self, record: FeedbackRecord) -> None:
        # The arm of a rating is a plain word, which another version may have written.
        self.arms[record.arm if record.arm in ARMS else "off"].ratings[record.rating] += 1

    def add_decision(self, record: DecisionRecord) -> None:
        self.kept.append(record)
        del self.kept[:-_DECISIONS_SHOWN]

    def figures(self) -> tuple[ArmFigures, ...]:
        return tuple(_arm(name, arm) for name, arm in self.arms.items() if arm.requests or arm.outcomes or arm.ratings)

    def decisions(self) -> tuple[DecisionShown, ...]:
        """The last ones, the newest first."""
        return tuple(map(_shown, reversed(self.kept)))

    def slices(self) -> tuple[Slice, ...]:
        ordered = sorted(self.by_slice.items(), key=lambda item: (-item[1].total(), item[0]))
        found = []
        for name, outcomes in ordered:
            arm, strategy, dialect = name.split("\0", 2) if "\0" in name else (name, name, name)
            found.append(
                Slice(
                    arm=arm,
                    strategy=strategy,
                    dialect=dialect,
                    accepted=outcomes["accepted"],
                    rejected=outcomes["rejected"],
                    no_tool_used=outcomes["no_tool_used"],
                )
            )
        return tuple(found)


def _arm(name: str, arm: _Arm) -> ArmFigures:
    bad = arm.unhealthy + arm.outcomes["rejected"] + arm.outcomes["no_tool_used"]
    reasons = sorted(arm.reasons.items(), key=lambda item: (-item[1][0], item[0]))
    return ArmFigures(
        arm=name,
        requests=arm.requests,
        unhealthy=rate(arm.unhealthy, arm.requests),
        accepted=arm.outcomes["accepted"],
        rejected=arm.outcomes["rejected"],
        no_tool_used=arm.outcomes["no_tool_used"],
        bad=rate(bad, arm.requests),
        rejected_reasons={reason: count[0] for reason, count in reasons},
        ratings=dict(sorted(arm.ratings.items())),
    )


def _shown(record: DecisionRecord) -> DecisionShown:
    return DecisionShown(
        at=record.at,
        decision=record.decision,
        slice=record.slice,
        state_before=record.state_before,
        state_after=record.state_after,
        by=record.by,
        reason=record.reason,
        numbers=dict(record.numbers),
        examples=record.examples,
    )
