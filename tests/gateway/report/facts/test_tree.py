"""The tree that a report is, as its document says it, and what stands in it: sketches of sizes, and intervals."""

import json
import math
from functools import partial
from typing import Any

import pytest
from attrs import fields
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cli.look.report import document
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Chosen, Counts, Distinct, Quantiles, draw
from gateway.report.facts.tree import Figures, PeriodFigure, Readiness, Side, Volume
from gateway.rollout.intervals import wilson
from tests.gateway.report.test_figures import figures_of
from tests.support.week import Week, week

EMPTY = Week(requests=(), outcomes=(), feedback=(), labels=(), decisions=())

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


@pytest.fixture(scope="module")
def made() -> Week:
    return week(3000)


@pytest.fixture(scope="module")
def told(made: Week) -> dict[str, Any]:
    return dict(json.loads(document(figures_of(made))))


def test_the_document_holds_the_whole_tree_in_its_order(told: dict[str, Any]) -> None:
    assert list(told) == [each.name for each in fields(Figures)]
    for name, branch in (("volume", Volume), ("period", PeriodFigure), ("would", Side), ("readiness", Readiness)):
        assert list(told[name]) == [each.name for each in fields(branch)]


def test_nothing_in_the_tree_can_be_changed() -> None:
    figures = figures_of(EMPTY)
    with pytest.raises(FrozenInstanceError):
        setattr(figures, "made_at", 0.0)  # noqa: B010 - a type checker sees through the plain form
    with pytest.raises(FrozenInstanceError):
        setattr(figures.volume, "requests", 1)  # noqa: B010


def test_the_document_says_which_form_it_has(told):
    assert list(told)[:2] == ["schema_version", "made_at"]
    assert told["schema_version"] == 1
    for path in ("volume.requests", "volume.streams", "would.calls", "noise.differences"):
        head, tail = path.split(".")
        assert isinstance(told[head][tail], int)


def test_a_week_without_records_is_said_to_be_empty():
    empty = figures_of(EMPTY)
    assert empty.readiness.verdict == "not enough data"
    assert (empty.period.hours_covered, empty.period.gap_count, empty.volume.requests) == (0, 1, 0)
    assert json.loads(document(empty))["would"]["success"]["share"] is None
