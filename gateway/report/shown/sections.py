"""The report as sections of words, tables, charts and examples: what every rendering for people is made from.

The order is the reader's: the verdict, then what could go wrong, then what was found, then the background.
"""

from collections.abc import Iterator, Sequence

from gateway.report.readiness import NOT_READY
from gateway.report.shown.blocks import (
    Block,
    Chart,
    Command,
    Examples,
    Heading,
    Mark,
    Point,
    Section,
    Table,
    Tile,
    Words,
)
from gateway.report.tree import Figures, GateFigure, Side, Sliced
from gateway.report.words import (
    bytes_words,
    failure_words,
    hours_words,
    interval,
    milliseconds,
    miss_words,
    moment,
    number,
    percent,
    share,
    sign_words,
    spread,
)

__all__ = ["heading", "sections"]

_ROWS = 25
_SCALES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Right ends of a chart of shares."""


def heading(figures: Figures) -> Heading:
    """What is read first, and perhaps alone."""
    period, volume, suspects = figures.period, figures.volume, figures.suspects
    covered = f"{period.hours_covered:,} of {period.hours:,} hours have records"
    side = figures.would if figures.would.requests else figures.live
    return Heading(
        verdict=figures.readiness.verdict,
        words=figures.readiness.words,
        period=(
            f"{moment(period.since)} to {moment(period.until)}; {covered}; mode {figures.mode}; "
            f"toolgate {figures.version}"
        ),
        tiles=(
            Tile(
                label="requests", value=number(volume.requests), detail=f"{number(volume.conversations)} conversations"
            ),
            Tile(
                label="calls found in text",
                value=number(volume.text_calls),
                detail=f"{share(side.success)} of {number(side.success.of)} tries could be used",
            ),
            Tile(
                label="may be wrong",
                value=share(suspects.suspected),
                detail=f"{number(suspects.suspected.hits)} of {number(suspects.calls)} calls with a sign against them",
            ),
            Tile(
                label="reading costs, p95",
                value=milliseconds(figures.cost.overhead_ms.p95),
                detail=f"{number(figures.cost.dropped.hits)} answers ran out of time",
            ),
        ),
        advice=figures.recommendation.words,
        command=figures.recommendation.command,
        notes=figures.notes,
    )


def sections(figures: Figures) -> tuple[Section, ...]:
    """Everything else, in the reader's order."""
    made = (
        Section(ident="gates", title="Gates", blocks=tuple(_gates(figures))),
        Section(ident="wrong", title="Calls that may be wrong", blocks=tuple(_wrong(figures))),
        Section(ident="missed", title="Calls that may have been missed", blocks=tuple(_missed(figures))),
        Section(ident="noise", title="Noise and known differences", blocks=tuple(_noise(figures))),
        Section(ident="structured", title="Structured calls", blocks=tuple(_structured(figures))),
        Section(ident="asking", title="Live asks differently", blocks=tuple(_asking(figures))),
        Section(ident="failures", title="Candidates that stayed text", blocks=tuple(_failures(figures))),
        Section(ident="arms", title="Arms side by side", blocks=tuple(_arms(figures))),
        Section(ident="success", title="Success", blocks=tuple(_success(figures))),
        Section(ident="funnel", title="How far candidates came", blocks=tuple(_funnel(figures))),
        Section(ident="confidence", title="Confidence", blocks=tuple(_confidence(figures))),
        Section(ident="cost", title="What reading costs", blocks=tuple(_cost(figures))),
        Section(ident="projection", title="What a canary would mean", blocks=tuple(_projection(figures))),
        Section(ident="diffs", title="Before and after", blocks=tuple(_diffs(figures))),
        Section(ident="review", title="To be looked at", blocks=tuple(_review(figures))),
        Section(ident="volume", title="Volume", blocks=tuple(_volume(figures))),
        Section(ident="period", title="PeriodFigure", blocks=tuple(_period(figures))),
    )
    return tuple(section for section in made if section.blocks)


def _gates(figures: Figures) -> Iterator[Block]:
    yield Table(
        title="What the verdict rests on",
        head=("gate", "met", "measured", "wanted"),
        rows=tuple(
            (gate.name.replace("_", " "), "yes" if gate.met else f"no: {gate.decides}", gate.measured, gate.wanted)
            for gate in figures.readiness.gates
        ),
        marks=tuple(_mark(gate) for gate in figures.readiness.gates),
    )


def _mark(gate: GateFigure) -> Mark:
    if gate.met:
        return "good"
    return "bad" if gate.decides == NOT_READY else "waiting"


def _wrong(figures: Figures) -> Iterator[Block]:
    suspects, review = figures.suspects, figures.review
    yield Words(
        f"Where nobody has looked, signs stand in: {number(suspects.suspected.hits)} of "
        f"{number(suspects.calls)} calls ({share(suspects.suspected)}, {interval(suspects.suspected)}) have at least "
        "one that counts."
    )
    if suspects.calls:
        yield Chart(
            title="Calls with a sign against them",
            kind="bars",
            points=tuple(
                Point(label=sign.sign.replace("_", " "), value=sign.calls, words=number(sign.calls))
                for sign in suspects.signs
            ),
        )
    yield Table(
        title="Signs",
        head=("sign", "calls", "counts", "the call ..."),
        rows=tuple(
            (sign.sign.replace("_", " "), number(sign.calls), "yes" if sign.counts else "weak", sign_words(sign.sign))
            for sign in suspects.signs
        ),
        numeric=frozenset({1}),
    )
    if review.labelled:
        yield Words(
            f"People looked at {number(review.labelled)} candidates. Of {number(review.precision.of)} calls "
            f"{number(review.precision.hits)} were right ({share(review.precision)}, {interval(review.precision)}); "
            f"{number(review.refusals.hits)} of {number(review.refusals.of)} stayed text rightly."
        )
    if review.wrong:
        yield Examples(title="Labelled wrong", items=review.wrong)
    for sign in suspects.signs:
        if sign.examples:
            yield Examples(title=f"Examples: {sign_words(sign.sign)}", items=sign.examples)


def _missed(figures: Figures) -> Iterator[Block]:
    misses = figures.misses
    yield Table(
        title="Signs of a call that was wanted",
        head=("sign", "requests", "what happened", "for example"),
        rows=tuple(
            (miss.kind, number(miss.requests), miss_words(miss.kind), ", ".join(miss.examples)) for miss in misses.kinds
        ),
        numeric=frozenset({1}),
    )
    if misses.complaints_met:
        yield Words(
            f"{number(misses.complaints_met)} further complaints were about answers in which a call had been found: "
            "delivering it answers them."
        )


def _noise(figures: Figures) -> Iterator[Block]:
    noise, ignored = figures.noise, figures.ignored
    words = (
        f"{number(noise.checked)} answers were read again with other cuts; {number(noise.differences)} read differently"
    )
    yield Words(f"{words}{': ' + ', '.join(noise.examples) if noise.examples else ''}.")
    if ignored.requests or ignored.rules:
        yield Words(
            f"{number(ignored.requests)} answers were known differences and are left out of every count of calls."
        )
    if ignored.rules:
        yield Table(
            title="Known differences",
            head=("dialect", "tool", "until", "days left"),
            rows=tuple((rule.dialect, rule.tool, rule.until, number(rule.days_left)) for rule in ignored.rules),
            numeric=frozenset({3}),
        )


def _asking(figures: Figures) -> Iterator[Block]:
    """Where a live answer is asked for in another way than those that were watched; where prompts are cut."""
    if rows := figures.asked_differently[:_ROWS]:
        yield Words(
            "These models are told of their tools in the prompt where an answer is live; their untouched answers were "
            "given native tools. Twenty native calls and none bad, and a model is left its native tools, too."
        )
        yield Table(
            title="Untouched answers of models that would be prompted",
            head=("model", "answers", "native calls today", "95 %", "calls as text"),
            rows=tuple(
                (row.model, number(row.native.of), share(row.native), interval(row.native), share(row.as_text))
                for row in rows
            ),
            marks=tuple("thin" if row.native.too_few else "plain" for row in rows),
            numeric=frozenset({1, 2, 4}),
        )
    if cuts := figures.context_cuts[:_ROWS]:
        yield Table(
            title="Prompts that their model server read only in part",
            head=("model", "answers", "the last of them"),
            rows=tuple((cut.model, number(cut.answers), cut.last) for cut in cuts),
            numeric=frozenset({1}),
        )


def _failures(figures: Figures) -> Iterator[Block]:
    for side, name in _sides(figures):
        if not side.failures:
            continue
        yield Table(
            title=f"Why candidates stayed text, {name}",
            head=("reason", "candidates", "on purpose", "the candidate stayed text because"),
            rows=tuple(
                (
                    failure.reason,
                    number(failure.count),
                    "yes" if failure.on_purpose else "no",
                    failure_words(failure.reason),
                )
                for failure in side.failures
            ),
            numeric=frozenset({1}),
        )
        for failure in side.failures:
            if failure.examples:
                yield Examples(title=f"Examples, {name}: {failure.reason}", items=failure.examples)


def _arms(figures: Figures) -> Iterator[Block]:
    if not figures.arms:
        return
    rows = [Sliced(name=arm.arm, success=arm.bad) for arm in figures.arms if arm.requests]
    most = min((step for step in _SCALES if all(row.success.high <= step for row in rows)), default=1.0)
    yield Chart(
        title=f"Share of bad requests by arm, with 95 % intervals, from 0 to {100 * most:g} %",
        kind="intervals",
        points=tuple(map(_interval_point, rows)),
        most=most,
    )
    yield Table(
        title="Ends and outcomes",
        head=("arm", "requests", "bad ends", "accepted", "rejected", "no tool used", "bad in all", "95 %", "ratings"),
        rows=tuple(
            (
                arm.arm,
                number(arm.requests),
                number(arm.unhealthy.hits),
                number(arm.accepted),
                number(arm.rejected),
                number(arm.no_tool_used),
                share(arm.bad),
                interval(arm.bad),
                ", ".join(f"{count} {rating}" for rating, count in arm.ratings.items()) or "none",
            )
            for arm in figures.arms
        ),
        numeric=frozenset(range(1, 7)),
    )
    reasons = [
        (arm.arm, reason, number(count)) for arm in figures.arms for reason, count in arm.rejected_reasons.items()
    ]
    if reasons:
        yield Table(
            title="Rejected calls", head=("arm", "reason", "calls"), rows=tuple(reasons), numeric=frozenset({2})
        )
    if figures.slices:
        yield Table(
            title="Outcomes by strategy and dialect",
            head=("arm", "strategy", "dialect", "accepted", "rejected", "no tool used"),
            rows=tuple(
                (each.arm, each.strategy, each.dialect, *map(number, (each.accepted, each.rejected, each.no_tool_used)))
                for each in figures.slices[:_ROWS]
            ),
            numeric=frozenset({3, 4, 5}),
        )
    if figures.decisions:
        yield Table(
            title="Decisions, last first",
            head=("at", "decision", "slice", "from", "to", "by", "reason"),
            rows=tuple(
                (moment(each.at), each.decision, each.slice, each.state_before, each.state_after, each.by, each.reason)
                for each in figures.decisions
            ),
        )


def _success(figures: Figures) -> Iterator[Block]:
    for side, name in _sides(figures):
        yield Words(
            f"{name.capitalize()}: {number(side.requests)} answers were read, {number(side.requests_with_calls)} "
            f"of them hold calls. Of {number(side.success.of)} tries {number(side.calls)} succeeded "
            f"({share(side.success)}, {interval(side.success)}); "
            f"{number(side.left_alone)} more were left alone on purpose."
        )
        if side.by_dialect:
            yield Chart(
                title=f"Success by dialect, {name}, with 95 % intervals",
                kind="intervals",
                points=tuple(_interval_point(row) for row in side.by_dialect[:12]),
            )
        for rows, by in (
            (side.by_dialect, "dialect"),
            (side.by_tool, "tool"),
            (side.by_strategy, "strategy"),
            (side.by_model, "model"),
        ):
            if rows:
                yield _sliced(rows, by, name)


def _sliced(rows: Sequence[Sliced], by: str, name: str) -> Table:
    more = f"; the {_ROWS} with most of {len(rows)}" if len(rows) > _ROWS else ""
    return Table(
        title=f"By {by}, {name}{more}",
        head=(by, "tries", "calls", "share", "95 %"),
        rows=tuple(
            (row.name, number(row.success.of), number(row.success.hits), share(row.success), interval(row.success))
            for row in rows[:_ROWS]
        ),
        marks=tuple("thin" if row.success.too_few else "plain" for row in rows[:_ROWS]),
        numeric=frozenset({1, 2, 3}),
    )


def _funnel(figures: Figures) -> Iterator[Block]:
    for side, name in _sides(figures):
        stages = [(stage.stage.replace("_", " "), stage.candidates) for stage in side.funnel]
        stages[-1] = ("sent" if side is figures.live else "would be sent", stages[-1][1])
        first = stages[0][1]
        yield Chart(
            title=f"Candidates that came at least this far, {name}",
            kind="bars",
            points=tuple(Point(label=stage, value=count, words=number(count)) for stage, count in stages),
        )
        yield Table(
            title=f"Funnel, {name}",
            head=("stage", "candidates", "of all"),
            rows=tuple((stage, number(count), percent(count / first) if first else "–") for stage, count in stages),
            numeric=frozenset({1, 2}),
        )


def _confidence(figures: Figures) -> Iterator[Block]:
    confidence = figures.confidence
    bins = confidence.histogram
    if not any(each.sent or each.refused for each in bins):
        return
    yield Chart(
        title="Candidates by score",
        kind="columns",
        legend=("sent", "stayed text"),
        points=tuple(
            Point(
                label=f"{each.low:.2f}",
                value=each.sent,
                second=each.refused,
                words=f"{number(each.sent)} sent, {number(each.refused)} stayed text",
            )
            for each in bins
        ),
    )
    yield Table(
        title="Scores, and what people said of them",
        head=("score from", "below", "sent", "stayed text", "labelled", "right", "95 %"),
        rows=tuple(
            (
                f"{each.low:.2f}",
                "1.00 and it" if each.high > 1 else f"{each.high:.2f}",
                number(each.sent),
                number(each.refused),
                number(said.right.of),
                share(said.right),
                interval(said.right),
            )
            for each, said in zip(bins, confidence.calibration, strict=True)
        ),
        numeric=frozenset({0, 1, 2, 3, 4, 5}),
    )
    yield Table(
        title="At another threshold",
        head=(
            "threshold",
            "calls applied",
            "with a sign",
            "labelled",
            "labelled wrong",
            "estimated wrong",
            "judged by",
        ),
        rows=tuple(
            (
                f"{each.threshold:.2f}",
                number(each.applied),
                number(each.suspected),
                number(each.labelled),
                number(each.labelled_wrong),
                number(each.estimated_wrong),
                each.basis,
            )
            for each in confidence.thresholds
        ),
        numeric=frozenset(range(6)),
    )


def _cost(figures: Figures) -> Iterator[Block]:
    cost = figures.cost
    rows = [
        ("reading, in all", number(cost.overhead_ms.count), *spread(cost.overhead_ms, milliseconds)),
        ("most bytes held back", number(cost.held_bytes.count), *spread(cost.held_bytes, bytes_words)),
    ]
    for arm, first in cost.first_token_ms.items():
        rows.append((f"first token after the upstream's, {arm}", number(first.count), *spread(first, milliseconds)))
    yield Table(
        title="Time and room",
        head=("what", "measured", "p50", "p95", "p99", "highest"),
        rows=tuple(rows),
        numeric=frozenset(range(1, 6)),
    )
    change = milliseconds(cost.first_token_change_ms)
    how = (
        "The live arm's median first token comes later by"
        if cost.change_is_measured
        else "Projected for a first token: at most"
    )
    yield Words(
        f"{how} {change}. {number(cost.dropped.hits)} of {number(cost.dropped.of)} readings ran out of time "
        f"({share(cost.dropped)})."
    )


def _projection(figures: Figures) -> Iterator[Block]:
    yield Table(
        title="Expected per day, and how soon the judge sees that the bad share has doubled",
        head=("canary", "requests a day", "bad requests a day", "wrong calls a day", "a doubling is seen after"),
        rows=tuple(
            (
                f"{each.percent:g} %",
                number(each.requests_per_day),
                number(each.bad_per_day),
                number(each.wrong_calls_per_day),
                hours_words(each.hours_until_seen),
            )
            for each in figures.projection
        ),
        numeric=frozenset(range(4)),
    )


def _diffs(figures: Figures) -> Iterator[Block]:
    if figures.diffs:
        yield Words("A few of every kind of tool, dialect and decision, most frequent kinds first.")
        yield Examples(title="Candidates", items=figures.diffs)


def _review(figures: Figures) -> Iterator[Block]:
    review = figures.review
    if review.sample:
        yield Words(f"A random choice of {number(len(review.sample))} calls. Say which are right:")
        yield Command("toolgate report label --sample 50")
        yield Examples(title="The sample", items=review.sample)


def _structured(figures: Figures) -> Iterator[Block]:
    rows = figures.volume.structured
    if not rows:
        return
    yield Words(
        "The calls that model servers made themselves, as they came and whatever became of them. Valid is what the "
        "tool's schema takes; STRUCTURED_CALLS says what becomes of the others."
    )
    more = f"; the {_ROWS} with most of {len(rows)}" if len(rows) > _ROWS else ""
    yield Table(
        title=f"By model{more}",
        head=("model", "calls", "valid-call rate", "95 %", "no JSON", "unknown name", "schema mismatch"),
        rows=tuple(
            (
                row.model,
                number(row.valid.of),
                share(row.valid),
                interval(row.valid),
                number(row.invalid_json),
                number(row.unknown_name),
                number(row.schema_mismatch),
            )
            for row in rows[:_ROWS]
        ),
        marks=tuple("thin" if row.valid.too_few else "plain" for row in rows[:_ROWS]),
        numeric=frozenset({1, 2, 4, 5, 6}),
    )


def _volume(figures: Figures) -> Iterator[Block]:
    volume = figures.volume
    rows = (
        ("requests", number(volume.requests)),
        ("of them streams", number(volume.streams)),
        ("with tools", number(volume.with_tools)),
        ("that demanded a call", number(volume.forced)),
        ("conversations", number(volume.conversations)),
        ("native calls", number(volume.native_calls)),
        ("calls in text", number(volume.text_calls)),
        ("candidates", number(volume.candidates)),
        ("bytes in", bytes_words(volume.bytes_in)),
        ("bytes out", bytes_words(volume.bytes_out)),
        *((kind.replace("_", " "), number(count)) for kind, count in volume.tokens.items()),
    )
    yield Table(title="In all", head=("what", "how many"), rows=rows, numeric=frozenset({1}))
    for names, by in (
        (volume.by_arm, "arm"),
        (volume.by_surface, "surface"),
        (volume.by_strategy, "strategy"),
        (volume.by_model, "model"),
        (volume.by_end, "end"),
    ):
        if names:
            yield Table(
                title=f"Requests by {by}",
                head=(by, "requests", "share"),
                rows=tuple(
                    (name, number(count), percent(count / volume.requests))
                    for name, count in list(names.items())[:_ROWS]
                ),
                numeric=frozenset({1, 2}),
            )
    if figures.would.verdicts:
        yield Table(
            title="Verdicts on untouched answers",
            head=("verdict", "answers"),
            rows=tuple((verdict.replace("_", " "), number(count)) for verdict, count in figures.would.verdicts.items()),
            numeric=frozenset({1}),
        )


def _period(figures: Figures) -> Iterator[Block]:
    period = figures.period
    if len(period.timeline) > 1:
        yield Chart(
            title="Requests over time",
            kind="columns",
            legend=("requests",),
            points=tuple(
                Point(label=moment(each.at)[5:16].replace("T", " "), value=each.requests, words=number(each.requests))
                for each in period.timeline
            ),
        )
    yield Words(
        f"First record {moment(period.first)}, last {moment(period.last)}; {number(period.requests_per_day)} requests "
        f"a day. {number(period.hours_covered)} of {number(period.hours)} hours have records; "
        f"{number(period.gap_count)} {'gap' if period.gap_count == 1 else 'gaps'}."
    )
    if period.gaps:
        yield Table(
            title="Gaps" + (f", the {len(period.gaps)} longest" if period.gap_count > len(period.gaps) else ""),
            head=("from", "to", "hours"),
            rows=tuple((moment(gap.since), moment(gap.until), number(gap.hours)) for gap in period.gaps),
            numeric=frozenset({2}),
        )
    if period.configurations:
        yield Table(
            title="Versions and settings",
            head=("version", "settings", "requests", "from", "to"),
            rows=tuple(
                (
                    each.version or "unknown",
                    each.config or "unknown",
                    number(each.requests),
                    moment(each.first),
                    moment(each.last),
                )
                for each in period.configurations
            ),
            numeric=frozenset({2}),
        )


def _sides(figures: Figures) -> Iterator[tuple[Side, str]]:
    if figures.would.requests or not figures.live.requests:
        yield figures.would, "untouched"
    if figures.live.requests:
        yield figures.live, "live"


def _interval_point(row: Sliced) -> Point:
    rate = row.success
    return Point(
        label=row.name,
        value=rate.share or 0.0,
        low=rate.low,
        high=rate.high,
        words=f"{share(rate)} of {number(rate.of)}",
    )
