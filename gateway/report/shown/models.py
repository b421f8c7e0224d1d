"""How often each model writes a call as text, and how many of its own calls are valid, before mending and after."""

from collections.abc import Iterator

from gateway.report.facts.intervals import rate
from gateway.report.facts.tree import Figures
from gateway.report.shown.blocks import Block, Chart, Point, Table, Tile, Words
from gateway.report.words import interval, number, share

__all__ = ["leak_tile", "models", "valid_tile"]

_ROWS = 25


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
                for each in leaks[:_ROWS]
            ),
            marks=tuple("thin" if each.leaked.too_few else "plain" for each in leaks[:_ROWS]),
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
                for row in rows[:_ROWS]
            ),
            marks=tuple("thin" if row.valid.too_few else "plain" for row in rows[:_ROWS]),
            numeric=frozenset({1, 2, 3, 5, 6, 7}),
        )


def _more(count: int) -> str:
    return f"; the {_ROWS} with most of {count}" if count > _ROWS else ""
