"""What the report shows of arms, models, cost and volume: the figures of the tree, each in its place."""

import pytest
from attrs import evolve

from gateway.report.facts.intervals import rate
from gateway.report.facts.tree import Figures
from gateway.report.shown import background
from gateway.report.shown.blocks import Block, Chart, Table, Words
from gateway.report.shown.sections import sections
from tests.gateway.report.shown.test_found import figures_from, record
from tests.gateway.report.test_figures import figures_of
from tests.support.week import week


@pytest.fixture(scope="module")
def figures() -> Figures:
    return figures_of(week(1500))


def table(blocks: list[Block], title: str) -> Table:
    (found,) = (block for block in blocks if isinstance(block, Table) and block.title.startswith(title))
    return found


def test_models_that_would_be_prompted_are_told_with_their_native_calls() -> None:
    asked = [record(number) for number in range(30)]
    others = [record(40, native_calls=0), record(41, arm="live"), record(42, strategy="recovery"), record(43, tools=0)]
    (row,) = figures_from([*asked, *others]).asked_differently
    assert (row.model, row.native.hits, row.native.of) == ("qwen3", 30, 31)
    (section,) = (each for each in sections(figures_from(asked)) if each.ident == "asking")
    assert section.title == "Live asks differently"


def test_prompts_that_were_cut_are_told() -> None:
    cut = [record(number, arm="live", notes=("context_cut: 4096 tokens were read",)) for number in range(3)]
    (row,) = figures_from(cut).context_cuts
    assert (row.model, row.answers, row.last) == ("qwen3", 3, "4096 tokens were read")
    assert any(each.ident == "asking" for each in sections(figures_from(cut)))
    assert not any(each.ident == "asking" for each in sections(figures_from([record(1, strategy="recovery")])))


def test_each_arm_is_a_row_and_a_point_within_the_chart(figures: Figures) -> None:
    blocks = list(background.arms(figures))
    rows = table(blocks, "Ends and outcomes").rows
    assert [(row[0], row[1]) for row in rows] == [(arm.arm, f"{arm.requests:,}") for arm in figures.arms]
    (chart,) = (block for block in blocks if isinstance(block, Chart))
    assert [point.label for point in chart.points] == [arm.arm for arm in figures.arms if arm.requests]
    assert chart.most is not None
    assert all((point.high or 0.0) <= chart.most for point in chart.points)
    assert f"0 to {100 * chart.most:g} %" in chart.title
    rejected = [(row[0], row[1]) for row in table(blocks, "Rejected calls").rows]
    assert rejected == [(arm.arm, reason) for arm in figures.arms for reason in arm.rejected_reasons]
    decisions = table(blocks, "Decisions, last first").rows
    assert [row[-1] for row in decisions] == [each.reason for each in figures.decisions]


def test_without_arms_nothing_is_said_of_them(figures: Figures) -> None:
    assert list(background.arms(evolve(figures, arms=()))) == []


@pytest.mark.parametrize(("measured", "words"), [(True, "comes later by"), (False, "Projected for a first token")])
def test_a_first_token_that_was_not_measured_is_projected(figures: Figures, measured: bool, words: str) -> None:
    *_, said = background.cost(evolve(figures, cost=evolve(figures.cost, change_is_measured=measured)))
    assert isinstance(said, Words)
    assert words in said.text
    assert f"{figures.cost.dropped.hits:,} of {figures.cost.dropped.of:,} readings ran out of time" in said.text


def test_every_share_of_a_canary_is_a_row(figures: Figures) -> None:
    (told,) = background.projection(figures)
    assert isinstance(told, Table)
    assert [row[0] for row in told.rows] == ["1 %", "5 %", "25 %"]
    assert [row[1] for row in told.rows] != [row[2] for row in told.rows]


def test_the_volume_is_split_by_what_there_is(figures: Figures) -> None:
    titles = [block.title for block in background.volume(figures) if isinstance(block, Table)]
    assert titles == [
        "In all",
        *(f"Requests by {by}" for by in ("arm", "surface", "strategy", "model", "end")),
        "Verdicts on untouched answers",
    ]
    bare = evolve(figures, would=evolve(figures.would, verdicts={}), volume=evolve(figures.volume, by_end={}))
    left = [block.title for block in background.volume(bare) if isinstance(block, Table)]
    assert left == [title for title in titles if title not in ("Requests by end", "Verdicts on untouched answers")]


def test_the_period_names_its_gaps_and_how_many_more_there_were(figures: Figures) -> None:
    span = figures.period
    assert span.gap_count == len(span.gaps) > 1
    chart, *_ = background.period(figures)
    assert isinstance(chart, Chart)
    assert len(chart.points) == len(span.timeline) > 1
    rows = table(list(background.period(figures)), "Gaps").rows
    assert [row[2] for row in rows] == [str(gap.hours) for gap in span.gaps]
    cut = evolve(figures, period=evolve(span, gap_count=len(span.gaps) + 1))
    assert table(list(background.period(cut)), "Gaps").title == f"Gaps, the {len(span.gaps)} longest"
    one = evolve(figures, period=evolve(span, gap_count=1, timeline=span.timeline[:1]))
    first, *_ = background.period(one)
    assert isinstance(first, Words), "one moment is no chart"
    assert first.text.endswith("1 gap.")


def test_the_valid_rate_is_that_of_all_models_together(figures: Figures) -> None:
    rows = figures.volume.structured
    assert len(rows) > 1
    came, went, of = (
        sum(row.valid.hits for row in rows),
        sum(row.delivered_valid.hits for row in rows),
        sum(row.valid.of for row in rows),
    )
    tile = background.valid_tile(figures)
    assert tile.value == f"{100 * went / of:.1f} %"
    assert tile.detail.startswith(f"of {of:,} calls")
    assert f"{100 * came / of:.1f} % before mending" in tile.detail


def test_a_rate_of_few_answers_is_marked_thin(figures: Figures) -> None:
    first, *others = figures.leaks.models
    few = evolve(first, answers=3, leaked=rate(1, 3))
    shown = evolve(figures, leaks=evolve(figures.leaks, models=(few, *others)))
    told = table(list(background.models(shown)), "Leaks by model")
    assert told.marks[0] == "thin"
    assert table(list(background.models(figures)), "Leaks by model").marks[0] == "plain"


def test_what_was_at_work_is_named_or_said_to_be_unknown(figures: Figures) -> None:
    bare = tuple(evolve(each, version="", config="") for each in figures.period.configurations[:1])
    shown = evolve(figures, period=evolve(figures.period, configurations=bare))
    (row,) = table(list(background.period(shown)), "Versions and settings").rows
    assert row[:2] == ("unknown", "unknown")
    rows = table(list(background.period(figures)), "Versions and settings").rows
    assert [row[:2] for row in rows] == [(each.version, each.config) for each in figures.period.configurations]


def test_how_a_models_leaks_are_written_is_told_where_it_is_known(figures: Figures) -> None:
    first, *others = figures.leaks.models
    dialects: dict[str, int]
    for dialects, words in (({}, "–"), ({"hermes": 2, "invoke": 1}, "hermes, invoke")):
        shown = evolve(figures, leaks=evolve(figures.leaks, models=(evolve(first, dialects=dialects), *others)))
        assert table(list(background.models(shown)), "Leaks by model").rows[0][-1] == words
