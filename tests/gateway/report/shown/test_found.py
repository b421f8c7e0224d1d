"""What the report shows of calls that may be wrong or missed, of refusals and scores: whose they are, and how many."""

import pytest
from attrs import evolve

from gateway.core.events import IN_REASONING
from gateway.core.records import CallRecord, RequestRecord
from gateway.report.facts.tree import Figures, ReportRules
from gateway.report.figures import Tally
from gateway.report.shown import found
from gateway.report.shown.blocks import Chart, Command, Examples, Table, Words
from gateway.report.shown.sections import sections
from tests.gateway.report.test_figures import figures_of
from tests.support.week import week


@pytest.fixture(scope="module")
def figures() -> Figures:
    return figures_of(week(1500))


def record(number: int, **more: object) -> RequestRecord:
    told = {"arm": "dry_run", "strategy": "xml_prompt", "tools": 2, "native_calls": 1, **more}
    return RequestRecord(id=f"r{number}", at=float(number), key="k", model="qwen3", upstream="default", **told)  # type: ignore[arg-type]


def figures_from(records: list[RequestRecord]) -> Figures:
    tally = Tally()
    for each in records:
        tally.add_request(each)
    return tally.figures(rules=ReportRules(), since=0.0, until=100.0, made_at=100.0, version="9")


def test_calls_that_stood_in_reasoning_are_told() -> None:
    call = CallRecord(number=0, dialect="hermes", tool="read", score=97, decision="would_deliver", stage="sent")
    thought = CallRecord(
        number=1,
        dialect="hermes",
        tool="read",
        score=97,
        decision="would_deliver",
        stage="sent",
        reasons=(IN_REASONING,),
    )
    figures = figures_from([record(1, strategy="recovery", calls=(call, thought), verdict="would_change")])
    assert (figures.would.calls, figures.would.in_reasoning) == (2, 1)
    (section,) = (each for each in sections(figures) if each.ident == "success")
    assert any("1 of these calls stood in a field of reasoning" in str(block) for block in section.blocks)


def test_every_sign_is_told_with_its_calls_and_its_examples(figures: Figures) -> None:
    blocks = list(found.wrong(figures))
    (signs,) = (block for block in blocks if isinstance(block, Table))
    assert [(row[0], row[1]) for row in signs.rows] == [
        (sign.sign.replace("_", " "), f"{sign.calls:,}") for sign in figures.suspects.signs
    ]
    assert {row[2] for row in signs.rows} == {"yes", "weak"}
    shown = [block.items for block in blocks if isinstance(block, Examples) and block.title.startswith("Examples: ")]
    assert shown == [sign.examples for sign in figures.suspects.signs if sign.examples]


def test_what_people_said_is_told_only_where_somebody_looked(figures: Figures) -> None:
    said = [block.text for block in found.wrong(figures) if isinstance(block, Words)]
    assert any(f"People looked at {figures.review.labelled:,} candidates" in text for text in said)
    nobody = evolve(figures, review=evolve(figures.review, labelled=0))
    assert not any("People looked" in str(block) for block in found.wrong(nobody))


def test_complaints_that_a_call_would_have_met_are_told_beside_the_misses(figures: Figures) -> None:
    met = evolve(figures, misses=evolve(figures.misses, complaints_met=7))
    table, words = found.missed(met)
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == [miss.kind for miss in figures.misses.kinds]
    assert isinstance(words, Words)
    assert words.text.startswith("7 further complaints")
    assert len(list(found.missed(evolve(met, misses=evolve(met.misses, complaints_met=0))))) == 1


def test_refusals_on_purpose_are_told_from_those_that_are_none(figures: Figures) -> None:
    tables = [block for block in found.failures(figures) if isinstance(block, Table)]
    sides = [side for side in (figures.would, figures.live) if side.failures]
    assert len(tables) == len(sides) == 2
    for table, side in zip(tables, sides, strict=True):
        assert [(row[0], row[2]) for row in table.rows] == [
            (each.reason, "yes" if each.on_purpose else "no") for each in side.failures
        ]
    shown = [block.items for block in found.failures(figures) if isinstance(block, Examples)]
    assert shown == [each.examples for side in sides for each in side.failures if each.examples]


def test_a_side_without_requests_is_not_shown(figures: Figures) -> None:
    live_alone = evolve(figures, would=evolve(figures.would, requests=0))
    for shown, sides in ((figures, ["untouched", "live"]), (live_alone, ["live"])):
        titles = [block.title for block in found.funnel(shown) if isinstance(block, Table)]
        assert titles == [f"Funnel, {side}" for side in sides]
    nothing = evolve(live_alone, live=evolve(figures.live, requests=0))
    assert [block.title for block in found.funnel(nothing) if isinstance(block, Table)] == ["Funnel, untouched"]


def test_the_end_of_the_funnel_says_whether_anything_was_sent(figures: Figures) -> None:
    untouched, live = (block for block in found.funnel(figures) if isinstance(block, Chart))
    assert (untouched.points[-1].label, live.points[-1].label) == ("would be sent", "sent")
    assert live.points[-1].value == figures.live.funnel[-1].candidates


def test_a_table_of_many_tools_says_how_many_there_are(figures: Figures) -> None:
    (row, *_) = figures.would.by_tool
    many = tuple(evolve(row, name=f"tool-{number}") for number in range(found.ROWS + 1))
    shown = evolve(figures, would=evolve(figures.would, by_tool=many))
    (table,) = (b for b in found.success(shown) if isinstance(b, Table) and b.title.startswith("By tool, untouched"))
    assert len(table.rows) == found.ROWS
    assert table.title.endswith(f"the {found.ROWS} with most of {found.ROWS + 1}")


def test_success_is_drawn_by_dialect_with_its_interval(figures: Figures) -> None:
    untouched, live = (block for block in found.success(figures) if isinstance(block, Chart))
    for chart, side in ((untouched, figures.would), (live, figures.live)):
        assert [(p.label, p.value, p.low, p.high) for p in chart.points] == [
            (row.name, row.success.share or 0.0, row.success.low, row.success.high) for row in side.by_dialect[:12]
        ]
    bare = evolve(figures, would=evolve(figures.would, by_dialect=()), live=evolve(figures.live, by_dialect=()))
    assert not [block for block in found.success(bare) if isinstance(block, Chart)]


def test_scores_are_shown_only_where_there_are_some(figures: Figures) -> None:
    chart, bins, thresholds = found.confidence(figures)
    assert isinstance(chart, Chart)
    assert isinstance(bins, Table)
    assert isinstance(thresholds, Table)
    told = figures.confidence
    assert [(p.value, p.second) for p in chart.points] == [(each.sent, each.refused) for each in told.histogram]
    assert bins.rows[-1][1] == "1.00 and it"
    assert [row[0] for row in thresholds.rows] == [f"{each.threshold:.2f}" for each in told.thresholds]
    empty = tuple(evolve(each, sent=0, refused=0) for each in told.histogram)
    assert list(found.confidence(evolve(figures, confidence=evolve(told, histogram=empty)))) == []


def test_the_sample_comes_with_the_command_that_labels_it(figures: Figures) -> None:
    words, command, examples = found.review(figures)
    assert isinstance(words, Words)
    assert f"A random choice of {len(figures.review.sample)} calls" in words.text
    assert command == Command("toolgate report label --sample 50")
    assert isinstance(examples, Examples)
    assert examples.items == figures.review.sample
    assert list(found.review(evolve(figures, review=evolve(figures.review, sample=())))) == []


def test_known_differences_are_told_until_they_end(figures: Figures) -> None:
    *_, rules = found.noise(figures)
    assert isinstance(rules, Table)
    assert [row[:2] for row in rules.rows] == [(rule.dialect, rule.tool) for rule in figures.ignored.rules]
    ended = [*found.noise(evolve(figures, ignored=evolve(figures.ignored, requests=3, rules=())))]
    assert len(ended) == 2
    assert "3 answers were known differences" in str(ended[1])
    bare = evolve(figures, ignored=evolve(figures.ignored, requests=0, rules=()))
    (alone,) = found.noise(bare)
    assert isinstance(alone, Words)
    assert alone.text.startswith(f"{figures.noise.checked:,} answers were read again")
