"""The report as sections of words, tables, charts and examples: what every rendering for people is made from.

The order is the reader's: the verdict, what was taken back, how often each model leaks, then what could go wrong, what
was found, and the background.
"""

from collections.abc import Iterator

from gateway.report.facts.tree import DecisionShown, Figures, GateFigure
from gateway.report.readiness import NOT_READY
from gateway.report.shown.background import (
    arms,
    asking,
    cost,
    leak_tile,
    models,
    period,
    projection,
    valid_tile,
    volume,
)
from gateway.report.shown.blocks import Block, Command, Heading, Mark, Section, Table, Tile, Words
from gateway.report.shown.found import confidence, diffs, failures, funnel, missed, noise, review, success, wrong
from gateway.report.words import (
    milliseconds,
    moment,
    number,
    share,
)

__all__ = ["heading", "sections"]


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
            leak_tile(figures),
            valid_tile(figures),
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
        Section(ident="rollout", title="Taken back", blocks=tuple(_rollout(figures))),
        Section(ident="models", title="Models", blocks=tuple(models(figures))),
        Section(ident="gates", title="Gates", blocks=tuple(_gates(figures))),
        Section(ident="wrong", title="Calls that may be wrong", blocks=tuple(wrong(figures))),
        Section(ident="missed", title="Calls that may have been missed", blocks=tuple(missed(figures))),
        Section(ident="noise", title="Noise and known differences", blocks=tuple(noise(figures))),
        Section(ident="asking", title="Live asks differently", blocks=tuple(asking(figures))),
        Section(ident="failures", title="Candidates that stayed text", blocks=tuple(failures(figures))),
        Section(ident="arms", title="Arms side by side", blocks=tuple(arms(figures))),
        Section(ident="success", title="Success", blocks=tuple(success(figures))),
        Section(ident="funnel", title="How far candidates came", blocks=tuple(funnel(figures))),
        Section(ident="confidence", title="Confidence", blocks=tuple(confidence(figures))),
        Section(ident="cost", title="What reading costs", blocks=tuple(cost(figures))),
        Section(ident="projection", title="What a canary would mean", blocks=tuple(projection(figures))),
        Section(ident="diffs", title="Before and after", blocks=tuple(diffs(figures))),
        Section(ident="review", title="To be looked at", blocks=tuple(review(figures))),
        Section(ident="volume", title="Volume", blocks=tuple(volume(figures))),
        Section(ident="period", title="Period", blocks=tuple(period(figures))),
    )
    return tuple(section for section in made if section.blocks)


def _rollout(figures: Figures) -> Iterator[Block]:
    """What was taken back: why, by which numbers, with which requests to look at, and how it comes back."""
    if figures.mode == "rolled_back":
        why = next((each for each in figures.decisions if each.decision == "rollback"), None)
        yield from _taken_back("The rollout was rolled back", "Answers go through untouched.", why)
        yield Command('toolgate rollout resume --reason "the cause is mended"')
    for name in figures.slices_off:
        why = next((each for each in figures.decisions if each.slice == name and each.decision == "slice_off"), None)
        yield from _taken_back(f"{name} is switched off", "Its calls stay text; all else goes on.", why)
        yield Command(f'toolgate rollout slice {name} on --reason "the cause is mended"')


def _taken_back(what: str, meaning: str, why: DecisionShown | None) -> Iterator[Block]:
    yield Words(f"{what}{'' if why is None else f' since {moment(why.at)} by {why.by}: {why.reason}'}. {meaning}")
    if why is not None and why.numbers:
        yield Words("Numbers: " + ", ".join(f"{name} {value:g}" for name, value in why.numbers.items()) + ".")
    if why is not None and why.examples:
        yield Words("Requests to look at: " + " ".join(why.examples))


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
