"""How arms and models fared, what it costs and would mean, and the background: volume and span."""

from collections.abc import Iterator

from gateway.report.facts.intervals import rate
from gateway.report.facts.tree import Figures, Sliced
from gateway.report.shown.blocks import Block, Chart, Point, Table, Tile, Words
from gateway.report.shown.found import ROWS, interval_point
from gateway.report.words import (
    bytes_words,
    hours_words,
    interval,
    milliseconds,
    moment,
    number,
    percent,
    share,
    spread,
)

__all__ = ["arms", "asking", "cost", "leak_tile", "models", "period", "projection", "valid_tile", "volume"]

_SCALES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Right ends of a chart of shares."""


def arms(figures: Figures) -> Iterator[Block]:
    if not figures.arms:
        return
    rows = [Sliced(name=arm.arm, success=arm.bad) for arm in figures.arms if arm.requests]
    most = min((step for step in _SCALES if all(row.success.high <= step for row in rows)), default=1.0)
    yield Chart(
        title=f"Share of bad requests by arm, with 95 % intervals, from 0 to {100 * most:g} %",
        kind="intervals",
        points=tuple(map(interval_point, rows)),
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
                for each in figures.slices[:ROWS]
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


def asking(figures: Figures) -> Iterator[Block]:
    """Where a live answer is asked for in another way than those that were watched; where prompts are cut."""
    if rows := figures.asked_differently[:ROWS]:
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
    if cuts := figures.context_cuts[:ROWS]:
        yield Table(
            title="Prompts that their model server read only in part",
            head=("model", "answers", "the last of them"),
            rows=tuple((cut.model, number(cut.answers), cut.last) for cut in cuts),
            numeric=frozenset({1}),
        )


def cost(figures: Figures) -> Iterator[Block]:
    spent = figures.cost
    rows = [
        ("reading, in all", number(spent.overhead_ms.count), *spread(spent.overhead_ms, milliseconds)),
        ("most bytes held back", number(spent.held_bytes.count), *spread(spent.held_bytes, bytes_words)),
    ]
    for arm, first in spent.first_token_ms.items():
        rows.append((f"first token after the upstream's, {arm}", number(first.count), *spread(first, milliseconds)))
    yield Table(
        title="Time and room",
        head=("what", "measured", "p50", "p95", "p99", "highest"),
        rows=tuple(rows),
        numeric=frozenset(range(1, 6)),
    )
    change = milliseconds(spent.first_token_change_ms)
    how = (
        "The live arm's median first token comes later by"
        if spent.change_is_measured
        else "Projected for a first token: at most"
    )
    yield Words(
        f"{how} {change}. {number(spent.dropped.hits)} of {number(spent.dropped.of)} readings ran out of time "
        f"({share(spent.dropped)})."
    )


def projection(figures: Figures) -> Iterator[Block]:
    yield Table(
        title="Expected per day, and how soon the judge sees that the bad share has doubled",
        head=(
            "canary",
            "requests",
            "bad by it",
            "of them wrong calls",
            "bad anyway",
            "a doubling is seen after",
        ),
        rows=tuple(
            (
                f"{each.percent:g} %",
                number(each.requests_per_day),
                number(each.bad_per_day),
                number(each.wrong_calls_per_day),
                number(each.anyway_per_day),
                hours_words(each.hours_until_seen),
            )
            for each in figures.projection
        ),
        numeric=frozenset(range(5)),
    )


def volume(figures: Figures) -> Iterator[Block]:
    sums = figures.volume
    rows = (
        ("requests", number(sums.requests)),
        ("of them streams", number(sums.streams)),
        ("with tools", number(sums.with_tools)),
        ("that demanded a call", number(sums.forced)),
        ("conversations", number(sums.conversations)),
        ("native calls", number(sums.native_calls)),
        ("calls in text", number(sums.text_calls)),
        ("candidates", number(sums.candidates)),
        ("bytes in", bytes_words(sums.bytes_in)),
        ("bytes out", bytes_words(sums.bytes_out)),
        *((kind.replace("_", " "), number(count)) for kind, count in sums.tokens.items()),
    )
    yield Table(title="In all", head=("what", "how many"), rows=rows, numeric=frozenset({1}))
    for names, by in (
        (sums.by_arm, "arm"),
        (sums.by_surface, "surface"),
        (sums.by_strategy, "strategy"),
        (sums.by_model, "model"),
        (sums.by_end, "end"),
    ):
        if names:
            yield Table(
                title=f"Requests by {by}",
                head=(by, "requests", "share"),
                rows=tuple(
                    (name, number(count), percent(count / sums.requests)) for name, count in list(names.items())[:ROWS]
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


def period(figures: Figures) -> Iterator[Block]:
    span = figures.period
    if len(span.timeline) > 1:
        yield Chart(
            title="Requests over time",
            kind="columns",
            legend=("requests",),
            points=tuple(
                Point(label=moment(each.at)[5:16].replace("T", " "), value=each.requests, words=number(each.requests))
                for each in span.timeline
            ),
        )
    yield Words(
        f"First record {moment(span.first)}, last {moment(span.last)}; {number(span.requests_per_day)} requests "
        f"a day. {number(span.hours_covered)} of {number(span.hours)} hours have records; "
        f"{number(span.gap_count)} {'gap' if span.gap_count == 1 else 'gaps'}."
    )
    if span.gaps:
        yield Table(
            title="Gaps" + (f", the {len(span.gaps)} longest" if span.gap_count > len(span.gaps) else ""),
            head=("from", "to", "hours"),
            rows=tuple((moment(gap.since), moment(gap.until), number(gap.hours)) for gap in span.gaps),
            numeric=frozenset({2}),
        )
    if span.configurations:
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
                for each in span.configurations
            ),
            numeric=frozenset({2}),
        )


def leak_tile(figures: Figures) -> Tile:
    """The first figure of all: why somebody has a gateway."""
    leaks = figures.leaks
    return Tile(
        label="leak rate",
        value=share(leaks.leaked),
        detail=(
            f"{number(leaks.leaked.hits)} of {number(leaks.answers)} answers wrote a call as text; "
            f"{number(leaks.became.hits)} became one, {number(leaks.stayed_text)} stayed text"
        ),
    )


def valid_tile(figures: Figures) -> Tile:
    """Of the calls that model servers made themselves."""
    came, went, of = _valid(figures)
    return Tile(
        label="valid-call rate",
        value=share(rate(went, of)),
        detail=f"of {number(of)} calls that model servers made; {share(rate(came, of))} before mending",
    )


def _valid(figures: Figures) -> tuple[int, int, int]:
    rows = figures.volume.structured
    return (
        sum(row.valid.hits for row in rows),
        sum(row.delivered_valid.hits for row in rows),
        sum(row.valid.of for row in rows),
    )


def models(figures: Figures) -> Iterator[Block]:
    """Leaks, then structured calls."""
    if leaks := figures.leaks.models:
        yield Chart(
            title="Answers that wrote a call as text, by model, with 95 % intervals",
            kind="intervals",
            points=tuple(
                Point(
                    label=each.model,
                    value=each.leaked.share or 0.0,
                    low=each.leaked.low,
                    high=each.leaked.high,
                    words=f"{share(each.leaked)} of {number(each.answers)}",
                )
                for each in leaks[:12]
            ),
        )
        yield Table(
            title=f"Leaks by model{_more(len(leaks))}",
            head=("model", "answers", "native", "leak rate", "95 %", "became calls", "rejected", "written as"),
            rows=tuple(
                (
                    each.model,
                    number(each.answers),
                    number(each.native),
                    share(each.leaked),
                    interval(each.leaked),
                    share(each.became),
                    number(each.rejected),
                    ", ".join(each.dialects) or "–",
                )
                for each in leaks[:ROWS]
            ),
            marks=tuple("thin" if each.leaked.too_few else "plain" for each in leaks[:ROWS]),
            numeric=frozenset({1, 2, 3, 5, 6}),
        )
    if rows := figures.volume.structured:
        yield Words(
            "The calls that model servers made themselves. Valid is what the tool's schema takes: as they came, and as "
            "they went out, mended or supplied by the text beside them (STRUCTURED_CALLS says whether)."
        )
        yield Table(
            title=f"Valid calls by model{_more(len(rows))}",
            head=(
                "model",
                "calls",
                "valid as they came",
                "as sent",
                "95 %",
                "no JSON",
                "unknown name",
                "misfit",
            ),
            rows=tuple(
                (
                    row.model,
                    number(row.valid.of),
                    share(row.valid),
                    share(row.delivered_valid),
                    interval(row.delivered_valid),
                    number(row.invalid_json),
                    number(row.unknown_name),
                    number(row.schema_mismatch),
                )
                for row in rows[:ROWS]
            ),
            marks=tuple("thin" if row.valid.too_few else "plain" for row in rows[:ROWS]),
            numeric=frozenset({1, 2, 3, 5, 6, 7}),
        )


def _more(count: int) -> str:
    return f"; the {ROWS} with most of {count}" if count > ROWS else ""
