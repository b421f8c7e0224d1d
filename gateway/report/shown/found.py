"""What was found: calls that may be wrong or missed, what stayed text and why, how sure the readings were."""

from collections.abc import Iterator, Sequence

from gateway.report.facts.tree import Figures, Side, Sliced
from gateway.report.shown.blocks import (
    Block,
    Chart,
    Command,
    Examples,
    Point,
    Table,
    Words,
)
from gateway.report.words import (
    failure_words,
    interval,
    miss_words,
    number,
    percent,
    share,
    sign_words,
)

__all__ = [
    "ROWS",
    "confidence",
    "diffs",
    "failures",
    "funnel",
    "interval_point",
    "missed",
    "noise",
    "review",
    "success",
    "wrong",
]

ROWS = 25


def wrong(figures: Figures) -> Iterator[Block]:
    suspects, labels = figures.suspects, figures.review
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
    if labels.labelled:
        yield Words(
            f"People looked at {number(labels.labelled)} candidates. Of {number(labels.precision.of)} calls "
            f"{number(labels.precision.hits)} were right ({share(labels.precision)}, {interval(labels.precision)}); "
            f"{number(labels.refusals.hits)} of {number(labels.refusals.of)} stayed text rightly."
        )
    if labels.wrong:
        yield Examples(title="Labelled wrong", items=labels.wrong)
    for sign in suspects.signs:
        if sign.examples:
            yield Examples(title=f"Examples: {sign_words(sign.sign)}", items=sign.examples)


def missed(figures: Figures) -> Iterator[Block]:
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


def noise(figures: Figures) -> Iterator[Block]:
    found, ignored = figures.noise, figures.ignored
    words = (
        f"{number(found.checked)} answers were read again with other cuts; {number(found.differences)} read differently"
    )
    yield Words(f"{words}{': ' + ', '.join(found.examples) if found.examples else ''}.")
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


def failures(figures: Figures) -> Iterator[Block]:
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


def success(figures: Figures) -> Iterator[Block]:
    for side, name in _sides(figures):
        yield Words(
            f"{name.capitalize()}: {number(side.requests)} answers were read, {number(side.requests_with_calls)} "
            f"of them hold calls. Of {number(side.success.of)} tries {number(side.calls)} succeeded "
            f"({share(side.success)}, {interval(side.success)}); "
            f"{number(side.left_alone)} more were left alone on purpose."
        )
        if side.in_reasoning:
            yield Words(
                f"{number(side.in_reasoning)} of these calls stood in a field of reasoning that was all of the answer."
            )
        if side.by_dialect:
            yield Chart(
                title=f"Success by dialect, {name}, with 95 % intervals",
                kind="intervals",
                points=tuple(interval_point(row) for row in side.by_dialect[:12]),
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
    more = f"; the {ROWS} with most of {len(rows)}" if len(rows) > ROWS else ""
    return Table(
        title=f"By {by}, {name}{more}",
        head=(by, "tries", "calls", "share", "95 %"),
        rows=tuple(
            (row.name, number(row.success.of), number(row.success.hits), share(row.success), interval(row.success))
            for row in rows[:ROWS]
        ),
        marks=tuple("thin" if row.success.too_few else "plain" for row in rows[:ROWS]),
        numeric=frozenset({1, 2, 3}),
    )


def funnel(figures: Figures) -> Iterator[Block]:
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


def confidence(figures: Figures) -> Iterator[Block]:
    scores = figures.confidence
    bins = scores.histogram
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
            for each, said in zip(bins, scores.calibration, strict=True)
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
            for each in scores.thresholds
        ),
        numeric=frozenset(range(6)),
    )


def diffs(figures: Figures) -> Iterator[Block]:
    if figures.diffs:
        yield Words("A few of every kind of tool, dialect and decision, most frequent kinds first.")
        yield Examples(title="Candidates", items=figures.diffs)


def review(figures: Figures) -> Iterator[Block]:
    sample = figures.review.sample
    if sample:
        yield Words(f"A random choice of {number(len(sample))} calls. Say which are right:")
        yield Command("toolgate report label --sample 50")
        yield Examples(title="The sample", items=sample)


def _sides(figures: Figures) -> Iterator[tuple[Side, str]]:
    if figures.would.requests or not figures.live.requests:
        yield figures.would, "untouched"
    if figures.live.requests:
        yield figures.live, "live"


def interval_point(row: Sliced) -> Point:
    rate = row.success
    return Point(
        label=row.name,
        value=rate.share or 0.0,
        low=rate.low,
        high=rate.high,
        words=f"{share(rate)} of {number(rate.of)}",
    )
