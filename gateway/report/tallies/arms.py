"""How each arm and each slice fared, as ends, outcomes and ratings tell, and what was decided over them."""

from collections import Counter

from attrs import define, field

from gateway.core.records import DecisionRecord, FeedbackRecord, OutcomeRecord, RequestRecord
from gateway.report.facts.candidates import MAX_NAME
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Counts
from gateway.report.facts.tree import ArmFigures, DecisionShown, Slice

__all__ = ["ArmTally"]

ARMS = ("live", "control", "dry_run", "off")
_DECISIONS_SHOWN = 20


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
