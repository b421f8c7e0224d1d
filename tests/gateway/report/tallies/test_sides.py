"""Tries by side, scores, arms and slices: as the records are counted, once more in the most naive way."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest

from gateway.cli.look.report import document
from tests.gateway.report.test_figures import COUNTED, Candidate, Naive, figures_of, ids, rate
from tests.support.week import STAGES, Week, evolve, week

PURPOSE = {"low_confidence", "provenance", "unsayable", "slice_off", "over_budget", "disabled", "not_listed"}
BINS = (0, 50, 60, 70, 75, 80, 85, 90, 95, 98, 101)


@pytest.fixture(scope="module")
def made() -> Week:
    return week(3000)


@pytest.fixture(scope="module")
def told(made: Week) -> dict[str, Any]:
    return dict(json.loads(document(figures_of(made))))


@pytest.fixture(scope="module")
def naive(made: Week) -> "Naive":
    return Naive(made)


@pytest.mark.parametrize("name", ["would", "live"])
def test_tries_successes_and_refusals_of_a_side(told, naive, name):
    side, requests = told[name], getattr(naive, name)
    counted = naive.of([r for r in requests if r.verdict != "ignored"])
    sent = [(r, c) for r, c in counted if c.decision in ("delivered", "would_deliver")]
    named = [(r, c) for r, c in counted if c.decision == "refused" and c.tool]
    failed = [(r, c) for r, c in named if c.reason not in PURPOSE]
    assert side["requests"] == len(requests)
    assert side["requests_with_calls"] == sum(
        any(c.decision in ("delivered", "would_deliver", "repaired") for c in r.calls) for r in requests
    )
    assert (side["calls"], side["refused"], side["left_alone"]) == (len(sent), len(failed), len(named) - len(failed))
    assert side["overheard"] == sum(c.decision == "overheard" for _, c in counted)
    assert side["repaired"] == sum(c.decision == "repaired" for _, c in counted)
    assert side["success"] == rate(len(sent), len(sent) + len(failed))
    assert side["verdicts"] == Counter(r.verdict for r in requests if r.verdict)
    keys = {
        "by_dialect": lambda r, c: c.dialect,
        "by_tool": lambda r, c: c.tool,
        "by_strategy": lambda r, c: r.strategy,
        "by_model": lambda r, c: r.model,
    }
    for by, key in keys.items():
        good = Counter(key(*each) for each in sent)
        tries = good + Counter(key(*each) for each in failed)
        assert {row["name"]: row["success"] for row in side[by]} == {n: rate(good[n], tries[n]) for n in tries}
        counts = [row["success"]["of"] for row in side[by]]
        assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("name", ["would", "live"])
def test_the_funnel_never_widens_and_every_stage_is_counted(told, naive, name):
    requests = [r for r in getattr(naive, name) if r.verdict != "ignored"]
    stages = [STAGES.index(c.stage) for _, c in naive.of(requests) if c.decision != "overheard"]
    got = told[name]["funnel"]
    assert [each["stage"] for each in got] == list(STAGES)
    assert [each["candidates"] for each in got] == [sum(s >= place for s in stages) for place in range(len(STAGES))]


@pytest.mark.parametrize("name", ["would", "live"])
def test_failures_have_a_count_and_three_examples(told, naive, name):
    requests = [r for r in getattr(naive, name) if r.verdict != "ignored"]
    by_reason: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in naive.of(requests):
        if candidate[1].decision == "refused" and candidate[1].tool:
            by_reason[candidate[1].reason].append(candidate)
    got = {each["reason"]: each for each in told[name]["failures"]}
    assert {reason: each["count"] for reason, each in got.items()} == {r: len(c) for r, c in by_reason.items()}
    for reason, candidates in by_reason.items():
        assert ids(got[reason]["examples"]) == naive.chosen(candidates, 3)
        assert got[reason]["on_purpose"] is (reason in PURPOSE)


def test_scores_by_bins_labels_and_thresholds(told, naive):
    counted = [each for each in naive.candidates if each[1].decision not in ("overheard", "repaired")]
    open_ = [each for each in counted if each[1].decision != "refused" or each[1].reason == "low_confidence"]

    def was_right(candidate: Candidate) -> bool:
        """Whether sending it would have been right."""
        label = naive.label(candidate)
        return bool(label) if candidate[1].decision != "refused" else not label

    for low, high, histogram, calibration in zip(
        BINS, BINS[1:], told["confidence"]["histogram"], told["confidence"]["calibration"], strict=False
    ):
        within = [each for each in counted if low <= each[1].score < high]
        refused = sum(each[1].decision == "refused" for each in within)
        assert histogram == {"low": low / 100, "high": high / 100, "sent": len(within) - refused, "refused": refused}
        said = [each for each in open_ if low <= each[1].score < high and naive.label(each) is not None]
        assert calibration == {
            "low": low / 100,
            "high": high / 100,
            "right": rate(sum(map(was_right, said)), len(said)),
        }
    for at in told["confidence"]["thresholds"]:
        applied = [each for each in open_ if each[1].score >= round(at["threshold"] * 100)]
        said = [each for each in applied if naive.label(each) is not None]
        wrong = sum(not was_right(each) for each in said)
        suspected = sum(bool(COUNTED & set(each[1].signs)) for each in applied)
        assert (at["applied"], at["suspected"]) == (len(applied), suspected)
        assert (at["labelled"], at["labelled_wrong"]) == (len(said), wrong)
        by_labels = len(said) >= 30
        assert at["basis"] == ("labels" if by_labels else "signs")
        assert at["estimated_wrong"] == pytest.approx(
            len(applied) * wrong / len(said) if by_labels else suspected, abs=0.06
        )


def test_arms_and_slices(told, made):
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for each in made.outcomes:
        outcomes[each.arm][each.outcome] += 1
    assert [arm["arm"] for arm in told["arms"]] == ["live", "control", "dry_run", "off"]
    for arm in told["arms"]:
        name = arm["arm"]
        requests = [r for r in made.requests if r.arm == name]
        unhealthy = sum(not r.healthy for r in requests)
        got = outcomes[name]
        assert arm["requests"] == len(requests)
        assert arm["unhealthy"] == rate(unhealthy, len(requests))
        assert (arm["accepted"], arm["rejected"], arm["no_tool_used"]) == (
            got["accepted"],
            got["rejected"],
            got["no_tool_used"],
        )
        assert arm["bad"] == rate(unhealthy + got["rejected"] + got["no_tool_used"], len(requests))
        rejected = [o.reason for o in made.outcomes if o.arm == name and o.outcome == "rejected"]
        assert arm["rejected_reasons"] == Counter(rejected)
        assert arm["ratings"] == Counter(f.rating for f in made.feedback if f.arm == name)
    wanted = Counter((o.arm, o.strategy, o.dialect, o.outcome) for o in made.outcomes)
    got_slices = {
        (each["arm"], each["strategy"], each["dialect"], outcome): each[outcome]
        for each in told["slices"]
        for outcome in ("accepted", "rejected", "no_tool_used")
        if each[outcome]
    }
    assert got_slices == wanted


def test_the_last_twenty_decisions(told, made):
    assert [each["reason"] for each in told["decisions"]] == [each.reason for each in made.decisions[::-1][:20]]


def test_names_of_tools_are_names():
    made = week(300)
    calls = lambda r: tuple(evolve(c, tool="read_file>\n<path>x") for c in r.calls)  # noqa: E731
    odd = evolve(made, requests=tuple(evolve(each, calls=calls(each)) for each in made.requests))
    assert {row.name for row in figures_of(odd).would.by_tool} == {"(no name)"}
