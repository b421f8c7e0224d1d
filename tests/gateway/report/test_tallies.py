"""What the report counts with: leaks, and sketches of sizes."""

import math
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import IN_REASONING
from gateway.core.records import CallRecord, RequestRecord
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Chosen, Counts, Distinct, Quantiles, draw
from gateway.report.facts.tree import Figures, ReportRules
from gateway.report.figures import Tally
from gateway.report.shown.sections import sections
from gateway.rollout.intervals import wilson


def record(number: int, **more: object) -> RequestRecord:
    told = {"arm": "dry_run", "strategy": "xml_prompt", "tools": 2, "native_calls": 1, **more}
    return RequestRecord(id=f"r{number}", at=float(number), key="k", model="qwen3", upstream="default", **told)  # type: ignore[arg-type]


def figures_of(records: list[RequestRecord]) -> Figures:
    tally = Tally()
    for each in records:
        tally.add_request(each)
    return tally.figures(rules=ReportRules(), since=0.0, until=100.0, made_at=100.0, version="9")


def test_models_that_would_be_prompted_are_told_with_their_native_calls() -> None:
    asked = [record(number) for number in range(30)]
    others = [record(40, native_calls=0), record(41, arm="live"), record(42, strategy="recovery"), record(43, tools=0)]
    (row,) = figures_of([*asked, *others]).asked_differently
    assert (row.model, row.native.hits, row.native.of) == ("qwen3", 30, 31)
    (section,) = (each for each in sections(figures_of(asked)) if each.ident == "asking")
    assert section.title == "Live asks differently"


def test_prompts_that_were_cut_are_told() -> None:
    cut = [record(number, arm="live", notes=("context_cut: 4096 tokens were read",)) for number in range(3)]
    (row,) = figures_of(cut).context_cuts
    assert (row.model, row.answers, row.last) == ("qwen3", 3, "4096 tokens were read")
    assert any(each.ident == "asking" for each in sections(figures_of(cut)))
    assert not any(each.ident == "asking" for each in sections(figures_of([record(1, strategy="recovery")])))


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
    figures = figures_of([record(1, strategy="recovery", calls=(call, thought), verdict="would_change")])
    assert (figures.would.calls, figures.would.in_reasoning) == (2, 1)
    (section,) = (each for each in sections(figures) if each.ident == "success")
    assert any("1 of these calls stood in a field of reasoning" in str(block) for block in section.blocks)


# --- Summaries of bounded size: what they promise, against the exact answer


@given(st.lists(st.floats(min_value=0, max_value=1e12), min_size=1, max_size=200))
@settings(max_examples=60)
def test_quantiles_are_within_a_hundredth(values):
    quantiles = Quantiles()
    for value in values:
        quantiles.add(value)
    got = quantiles.spread()
    ordered = sorted(values)
    assert got.count == len(values)
    assert got.highest == ordered[-1]
    for share, found in ((0.5, got.p50), (0.95, got.p95), (0.99, got.p99)):
        exact = ordered[math.ceil(share * len(ordered)) - 1]
        assert found is not None
        assert abs(found - exact) <= 0.0101 * exact + 1e-9


def test_quantiles_of_nothing_are_nothing():
    assert Quantiles().spread().p95 is None


def test_distinct_names_are_exact_and_then_close():
    few = Distinct()
    for number in range(5000):
        few.add(f"{number % 700}")
    assert few.count() == 700
    many = Distinct()
    for number in range(400_000):
        many.add(f"{number:016x}")
    assert abs(many.count() - 400_000) < 400_000 * 0.02


@given(st.lists(st.tuples(st.text(max_size=4), st.integers(0, 3)), max_size=60, unique=True), st.integers(1, 5))
@settings(max_examples=60)
def test_the_chosen_do_not_depend_on_the_order(names, size):
    def chosen(given_):
        found: Chosen[Any] = Chosen(size)
        for name in given_:
            found.offer(draw(*name, has_text=bool(name[1])), partial(_same, name))
        return found.items()

    assert chosen(names) == chosen(names[::-1])
    assert len(chosen(names)) == min(size, len(names))
    assert all(number for _, number in chosen(names)) or sum(1 for _, number in names if number) < size


def test_every_item_is_as_likely_as_any_other():
    hits = [0] * 10
    for trial in range(3000):
        found: Chosen[int] = Chosen(1)
        for place in range(10):
            found.offer(draw(f"{trial}", place, has_text=True), partial(_same, place))
        hits[found.items()[0]] += 1
    assert all(220 < count < 380 for count in hits)


def test_names_beyond_the_bound_share_one_place():
    counts: Counts[list[int]] = Counts(list, limit=3)
    for number in range(10):
        counts.at(f"n{number}").append(number)
    assert dict(counts.items()) == {"n0": [0], "n1": [1], "n2": [2], "other": [3, 4, 5, 6, 7, 8, 9]}


def test_intervals_as_published():
    low, high = wilson(29, 30)
    assert (round(low, 2), round(high, 2)) == (0.83, 0.99)
    assert round(wilson(0, 300)[1], 3) == 0.013
    assert round(wilson(0, 3000)[1], 4) == 0.0013
    assert wilson(0, 0) == (0.0, 1.0)
    assert rate(0, 0).share is None
    assert rate(29, 29).too_few
    assert not rate(30, 30).too_few


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_an_interval_holds_its_share(hits, more):
    told = rate(hits, hits + more)
    assert 0 <= told.low <= told.high <= 1
    assert told.share is None or told.low - 1e-6 <= told.share <= told.high + 1e-6


def _same(item: Any) -> Any:
    return item
