"""From records to figures in one pass, in bounded memory.

Counts are exact, those by name for the first 500 names. Quantiles come from buckets that grow by 2 % and are within
1 % of the exact ones. Distinct conversations are exact up to 131,072. Examples and samples are the candidates whose
keyed lot is lowest: the same records always give the same ones. What a request says of the answer before it is tied to
that answer for the 100,000 conversations that were heard last.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from itertools import pairwise

from attrs import define, field

from gateway.core.ports import Store
from gateway.core.records import (
    DecisionRecord,
    FeedbackRecord,
    LabelRecord,
    OutcomeRecord,
    RequestRecord,
)
from gateway.report.intervals import rate
from gateway.report.leaks import AskingTally, LeakTally
from gateway.report.readiness import hours_until_seen, judge, recommend
from gateway.report.sketches import Counts
from gateway.report.tallies import (
    ConfidenceTally,
    CostTally,
    DiffTally,
    HourTally,
    Labels,
    NoiseTally,
    Pair,
    ReviewTally,
    SideTally,
    SuspectTally,
    VolumeTally,
    is_sent,
    last_labels,
    pair,
)
from gateway.report.tree import (
    ArmFigures,
    DecisionShown,
    Figures,
    Gap,
    IgnoredRule,
    Ignores,
    MomentFigure,
    PeriodFigure,
    Projection,
    ReportRules,
    Slice,
    Volume,
)
from gateway.report.turns import MissTally, TurnTally
from gateway.report.words import moment

__all__ = ["Tally", "gather"]

ARMS = ("live", "control", "dry_run", "off")
_HOUR = 3600
_DAY = 86_400
_TOLD_EVERY = 500
"""After how many requests it is said how far the reading has come."""
_GAPS_SHOWN = 20
_MOMENTS = 240
_DECISIONS_SHOWN = 20
_PERCENTS = (1.0, 5.0, 25.0)
_UNTOUCHED = frozenset({"control", "dry_run"})


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
    tally = Tally(labels=last_labels([label async for label in store.scan(LabelRecord)]))
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
class _Arm:
    requests: int = 0
    unhealthy: int = 0
    outcomes: Counter[str] = field(factory=Counter)
    reasons: "Counts[list[int]]" = field(factory=lambda: Counts(lambda: [0], limit=20))
    ratings: Counter[str] = field(factory=Counter)


@define
class Tally:
    """Takes records one by one, requests of a conversation in their order."""

    labels: Labels = field(factory=dict)
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
    arms: dict[str, _Arm] = field(factory=lambda: {arm: _Arm() for arm in ARMS})
    slices: "Counts[Counter[str]]" = field(factory=lambda: Counts(Counter[str]))
    decisions: list[DecisionRecord] = field(factory=list)
    ignored: int = 0
    turns: TurnTally = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.turns = TurnTally(self.suspects, self.misses)

    def add_request(self, record: RequestRecord) -> None:
        arm = self.arms[record.arm]
        arm.requests += 1
        arm.unhealthy += not record.healthy
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
            if candidates and not is_ignored:
                sent = self._add_candidates(side, candidates)
        self.hours.add(record, len(sent))
        self.turns.add(record, sent)

    def _side(self, record: RequestRecord) -> SideTally | None:
        """Where the reading of an answer counts; nowhere if nobody read it."""
        if record.arm in _UNTOUCHED:
            return self.would if record.verdict is not None else None
        return self.live if record.arm == "live" and (record.tools or record.calls) else None

    def _add_candidates(self, side: SideTally, candidates: tuple[Pair, ...]) -> tuple[Pair, ...]:
        sent = []
        for candidate in candidates:
            side.add_call(candidate)
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
        arm = self.arms[record.arm]
        arm.outcomes[record.outcome] += 1
        self.leaks.add_outcome(record)
        if record.outcome == "rejected":
            arm.reasons.at(record.reason[:64] or "unknown")[0] += 1
        self.slices.at(f"{record.arm}\0{record.strategy[:64]}\0{record.dialect[:64]}")[record.outcome] += 1

    def add_feedback(self, record: FeedbackRecord) -> None:
        self.arms[record.arm if record.arm in ARMS else "off"].ratings[record.rating] += 1

    def add_decision(self, record: DecisionRecord) -> None:
        self.decisions.append(record)
        del self.decisions[:-_DECISIONS_SHOWN]

    def figures(self, *, rules: ReportRules, since: float, until: float, made_at: float, version: str) -> Figures:
        """Everything that was taken in, held against the rules."""
        period = self._period(since, until)
        volume, would, live = self.volume.figures(), self.would.figures(), self.live.figures()
        suspects, review = self.suspects.figures(), self.review.figures()
        cost, noise, arms = self.cost.figures(), self.noise.figures(), self._arms()
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
            slices=self._slices(),
            decisions=tuple(_shown(record) for record in reversed(self.decisions)),
            projection=self._projection(rules, period, arms),
            notes=tuple(_notes(volume, period)),
        )

    def _period(self, since: float, until: float) -> PeriodFigure:
        first, end = int(since // _HOUR), max(int(-(-until // _HOUR)), int(since // _HOUR) + 1)
        covered = sorted(hour for hour in self.hours.hours if first <= hour < end)
        gaps = _gaps(covered, first, end)
        longest = sorted(gaps, key=lambda gap: -gap.hours)[:_GAPS_SHOWN]
        step = _HOUR
        while (end - first) * _HOUR / step > _MOMENTS:
            step = _DAY if step == _HOUR else 2 * step
        days = max(self._span(), _HOUR) / _DAY
        return PeriodFigure(
            since=since,
            until=until,
            first=self.hours.first,
            last=self.hours.last,
            hours=end - first,
            hours_covered=len(covered),
            gaps=tuple(sorted(longest, key=lambda gap: gap.since)),
            gap_count=len(gaps),
            configurations=self.hours.configured(),
            timeline=self._timeline(step),
            timeline_step_s=step,
            requests_per_day=round(self.volume.requests / days, 2),
        )

    def _span(self) -> float:
        first, last = self.hours.first, self.hours.last
        return last - first if first is not None and last is not None else 0.0

    def _timeline(self, step: int) -> tuple[MomentFigure, ...]:
        pieces: dict[int, list[int]] = {}
        for number, hour in self.hours.hours.items():
            piece = pieces.setdefault(number * _HOUR // step * step, [0, 0, 0])
            piece[0] += hour.requests
            piece[1] += hour.calls
            piece[2] += hour.unhealthy
        return tuple(
            MomentFigure(at=float(at), requests=counts[0], calls=counts[1], unhealthy=counts[2])
            for at, counts in sorted(pieces.items())
        )

    def _arms(self) -> tuple[ArmFigures, ...]:
        return tuple(_arm(name, arm) for name, arm in self.arms.items() if arm.requests or arm.outcomes or arm.ratings)

    def _slices(self) -> tuple[Slice, ...]:
        ordered = sorted(self.slices.items(), key=lambda item: (-item[1].total(), item[0]))
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
        untouched = [arm for arm in arms if arm.arm != "live"] or list(arms)
        requests, bad = sum(arm.requests for arm in untouched), sum(arm.bad.hits for arm in untouched)
        # Half a case more: no fault in so many requests does not mean that there never is one.
        base = (bad + 0.5) / (requests + 1) if requests else 0.0
        wrong = self._wrong_per_request()
        return tuple(
            Projection(
                percent=percent,
                requests_per_day=round(period.requests_per_day * percent / 100, 1),
                bad_per_day=round(period.requests_per_day * percent / 100 * base, 2),
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


def _gaps(covered: list[int], first: int, end: int) -> list[Gap]:
    edges = [first - 1, *covered, end]
    return [
        Gap(since=float((left + 1) * _HOUR), until=float(right * _HOUR), hours=right - left - 1)
        for left, right in pairwise(edges)
        if right - left > 1
    ]


def _days_left(until: date, today: date) -> int:
    return max(0, (until - today).days)


def _shown(record: DecisionRecord) -> DecisionShown:
    return DecisionShown(
        at=record.at,
        decision=record.decision,
        slice=record.slice,
        state_before=record.state_before,
        state_after=record.state_after,
        by=record.by,
        reason=record.reason,
    )


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
