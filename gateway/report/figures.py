"""From records to figures in one pass, in bounded memory.

Four layers: `facts` is what one record says by itself; `tallies` add records up; this module holds the sums against
the rules and makes of them the document that `--json` prints; `shown` says it to people. Each knows those before it
and none behind it.

Counts are exact, those by name for the first 500 names. Quantiles come from buckets that grow by 2 % and are within
1 % of the exact ones. Distinct conversations are exact up to 131,072. Examples and samples are the candidates whose
keyed lot is lowest: the same records always give the same ones. What a request says of the answer before it is tied to
that answer for the 100,000 conversations that were heard last.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime

from attrs import define, field

from gateway.core.ports import Store
from gateway.core.records import DecisionRecord, FeedbackRecord, LabelRecord, OutcomeRecord, RequestRecord
from gateway.report.facts.candidates import UNTOUCHED, Labels, Pair, Rejections, is_sent, last_labels, pair, rejections
from gateway.report.facts.intervals import rate
from gateway.report.facts.tree import (
    ArmFigures,
    Figures,
    IgnoredRule,
    Ignores,
    PeriodFigure,
    Projection,
    ReportRules,
    Volume,
)
from gateway.report.readiness import hours_until_seen, judge, recommend
from gateway.report.tallies.leaks import AskingTally, LeakTally
from gateway.report.tallies.review import DiffTally, ReviewTally, SuspectTally
from gateway.report.tallies.sides import ArmTally, ConfidenceTally, SideTally
from gateway.report.tallies.traffic import CostTally, HourTally, NoiseTally, VolumeTally
from gateway.report.tallies.turns import MissTally, TurnTally
from gateway.report.words import moment

__all__ = ["Tally", "gather"]

_TOLD_EVERY = 500
"""After how many requests it is said how far the reading has come."""
_PERCENTS = (1.0, 5.0, 25.0)


async def gather(
    store: Store,
    *,
    rules: ReportRules,
    since: float,
    until: float,
    made_at: float,
    version: str,
    on_progress: Callable[[int, float], None] = lambda count, at: None,
) -> Figures:
    """The figures of `since <= at < until`; labels count whenever they were given."""
    # Before the requests: a turn is judged in one pass, by what a later request of its conversation told of it.
    scanned = store.scan(OutcomeRecord, since=since, until=until)
    rejected = [outcome async for outcome in scanned if outcome.outcome == "rejected"]
    tally = Tally(
        labels=last_labels([label async for label in store.scan(LabelRecord)]), rejections=rejections(rejected)
    )
    count = 0
    async for request in store.scan(RequestRecord, since=since, until=until):
        tally.add_request(request)
        count += 1
        if count % _TOLD_EVERY == 0:
            on_progress(count, request.at)
    async for outcome in store.scan(OutcomeRecord, since=since, until=until):
        tally.add_outcome(outcome)
    async for rating in store.scan(FeedbackRecord, since=since, until=until):
        tally.add_feedback(rating)
    async for decision in store.scan(DecisionRecord, since=since, until=until):
        tally.add_decision(decision)
    return tally.figures(rules=rules, since=since, until=until, made_at=made_at, version=version)


@define
class Tally:
    """Takes records one by one, requests of a conversation in their order."""

    labels: Labels = field(factory=dict)
    rejections: Rejections = field(factory=dict)
    hours: HourTally = field(factory=HourTally)
    volume: VolumeTally = field(factory=VolumeTally)
    would: SideTally = field(factory=SideTally)
    live: SideTally = field(factory=SideTally)
    leaks: LeakTally = field(factory=LeakTally)
    asking: AskingTally = field(factory=AskingTally)
    suspects: SuspectTally = field(factory=SuspectTally)
    misses: MissTally = field(factory=MissTally)
    review: ReviewTally = field(factory=ReviewTally)
    diffs: DiffTally = field(factory=DiffTally)
    confidence: ConfidenceTally = field(factory=ConfidenceTally)
    cost: CostTally = field(factory=CostTally)
    noise: NoiseTally = field(factory=NoiseTally)
    arms: ArmTally = field(factory=ArmTally)
    ignored: int = 0
    turns: TurnTally = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.turns = TurnTally(self.suspects, self.misses, self.rejections)

    def add_request(self, record: RequestRecord) -> None:
        self.arms.add(record)
        self.volume.add(record)
        self.leaks.add(record)
        self.asking.add(record)
        self.noise.add(record)
        is_ignored = record.verdict == "ignored"
        self.ignored += is_ignored
        side = self._side(record)
        self.cost.add(record, read=side is not None)
        candidates = tuple(pair(record, call, self.labels) for call in record.calls) if record.calls else ()
        for candidate in candidates:
            self.volume.add_call(candidate)
        sent: tuple[Pair, ...] = ()
        if side is not None:
            side.add(record)
            # A known difference is counted by itself: among the figures of calls it would hide those that nobody knows
            # yet.
            if candidates and not is_ignored:
                sent = self._add_candidates(side, candidates)
        self.hours.add(record, len(sent))
        self.turns.add(record, sent)

    def _side(self, record: RequestRecord) -> SideTally | None:
        """Where the reading of an answer counts; nowhere if nobody read it."""
        if record.arm in UNTOUCHED:
            return self.would if record.verdict is not None else None
        return self.live if record.arm == "live" and (record.tools or record.calls) else None

    def _add_candidates(self, side: SideTally, candidates: tuple[Pair, ...]) -> tuple[Pair, ...]:
        sent = []
        for candidate in candidates:
            side.add_call(candidate)
            # These were not delivered as they were read here: a review of them says nothing of the calls that are.
            if candidate.call.decision in ("overheard", "repaired"):
                continue
            self.review.add_call(candidate)
            self.diffs.add_call(candidate)
            self.confidence.add_call(candidate)
            if is_sent(candidate.call):
                self.suspects.add_call(candidate)
                sent.append(candidate)
        return tuple(sent)

    def add_outcome(self, record: OutcomeRecord) -> None:
        self.arms.add_outcome(record)
        self.leaks.add_outcome(record)

    def add_feedback(self, record: FeedbackRecord) -> None:
        self.arms.add_feedback(record)

    def add_decision(self, record: DecisionRecord) -> None:
        self.arms.add_decision(record)

    def figures(self, *, rules: ReportRules, since: float, until: float, made_at: float, version: str) -> Figures:
        """Everything that was taken in, held against the rules."""
        period = self.hours.figures(since, until, self.volume.requests)
        volume, would, live = self.volume.figures(), self.would.figures(), self.live.figures()
        suspects, review = self.suspects.figures(), self.review.figures()
        cost, noise, arms = self.cost.figures(), self.noise.figures(), self.arms.figures()
        readiness = judge(
            rules=rules,
            period=period,
            volume=volume,
            would=would,
            live=live,
            suspects=suspects,
            review=review,
            cost=cost,
            noise=noise,
            arms=arms,
        )
        return Figures(
            made_at=made_at,
            version=version,
            mode=rules.mode,
            slices_off=rules.slices_off,
            readiness=readiness,
            recommendation=recommend(readiness, rules, moment(since)),
            period=period,
            volume=volume,
            would=would,
            live=live,
            leaks=self.leaks.figures(),
            asked_differently=self.asking.differently(),
            context_cuts=self.asking.context_cuts(),
            suspects=suspects,
            review=review,
            misses=self.misses.figures(),
            diffs=self.diffs.figures(),
            confidence=self.confidence.figures(),
            cost=cost,
            noise=noise,
            ignored=self._ignores(rules, made_at),
            arms=arms,
            slices=self.arms.slices(),
            decisions=self.arms.decisions(),
            projection=self._projection(rules, period, arms),
            notes=tuple(_notes(volume, period)),
        )

    def _ignores(self, rules: ReportRules, now: float) -> Ignores:
        today = datetime.fromtimestamp(now, UTC).date()
        return Ignores(
            requests=self.ignored,
            rules=tuple(
                IgnoredRule(
                    dialect=rule.dialect,
                    tool=rule.tool,
                    until=rule.until.isoformat(),
                    days_left=_days_left(rule.until, today),
                )
                for rule in rules.ignore
            ),
        )

    def _projection(
        self, rules: ReportRules, period: PeriodFigure, arms: tuple[ArmFigures, ...]
    ) -> tuple[Projection, ...]:
        # A canary comes on top of what is untouched; where everything was live, its own figures are all there are.
        untouched = [arm for arm in arms if arm.arm != "live"] or list(arms)
        requests, bad = sum(arm.requests for arm in untouched), sum(arm.bad.hits for arm in untouched)
        # Half a case more: no fault in so many requests does not mean that there never is one.
        base = (bad + 0.5) / (requests + 1) if requests else 0.0
        wrong = self._wrong_per_request()
        own = wrong + self._slow_per_request()
        if (measured := _measured_risk(arms)) is not None:
            # What was measured can only raise the risk: few faults so far do not prove that there are fewer.
            own = max(own, measured)
        return tuple(
            Projection(
                percent=percent,
                requests_per_day=round(period.requests_per_day * percent / 100, 1),
                bad_per_day=round(period.requests_per_day * percent / 100 * own, 2),
                anyway_per_day=round(period.requests_per_day * percent / 100 * base, 2),
                wrong_calls_per_day=round(period.requests_per_day * percent / 100 * wrong, 2),
                hours_until_seen=hours_until_seen(
                    percent / 100,
                    base=base,
                    requests_per_hour=period.requests_per_day / 24,
                    risk_ratio=rules.risk_ratio,
                    evidence=rules.evidence,
                ),
            )
            for percent in _PERCENTS
        )

    def _wrong_per_request(self) -> float:
        """By what people said if enough of it, else by the signs."""
        calls, requests = self.suspects.calls, self.volume.requests
        labelled = rate(self.review.labelled_calls - self.review.right_calls, self.review.labelled_calls)
        share = labelled.share if not labelled.too_few else rate(self.suspects.suspected, calls).share
        return (share or 0.0) * calls / requests if requests else 0.0

    def _slow_per_request(self) -> float:
        """Readings that ran out of time: their calls stay text."""
        return self.cost.dropped / self.volume.requests if self.volume.requests else 0.0


def _measured_risk(arms: tuple[ArmFigures, ...]) -> float | None:
    """By how much live answers were bad more often than untouched ones, once there is enough of both."""
    shares = {arm.arm: arm.bad for arm in arms}
    live, control = shares.get("live"), shares.get("control")
    if live is None or control is None or live.too_few or control.too_few:
        return None
    return max(0.0, (live.share or 0.0) - (control.share or 0.0))


def _days_left(until: date, today: date) -> int:
    return max(0, (until - today).days)


def _notes(volume: Volume, period: PeriodFigure) -> list[str]:
    notes = []
    if volume.candidates_with_text < volume.candidates:
        notes.append(
            f"The text of {volume.candidates_with_text:,} of {volume.candidates:,} candidates was kept; "
            "examples and samples are taken from those."
        )
    if len(period.configurations) > 1:
        notes.append(f"{len(period.configurations)} versions or settings were at work: the figures mix them.")
    return notes
