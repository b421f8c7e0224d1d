"""The verdict: which gate decides it, and what is recommended."""

from typing import Any

import pytest

from gateway.cli.look.report import exit_code
from gateway.core.records import LabelRecord
from gateway.report.facts.tree import Figures, ReportRules
from gateway.report.readiness import hours_until_seen
from tests.gateway.report.test_figures import figures_of
from tests.support.week import Week, evolve, week

RULES = ReportRules(mode="dry_run", min_requests=500)


def dry_week(**changes: Any) -> Week:
    made = week(1500, arms=("dry_run",), clean=True)
    return evolve(made, requests=tuple(evolve(request, **changes) for request in made.requests))


def told(made: Week, rules: ReportRules = RULES) -> Figures:
    return figures_of(made, rules)


def test_a_clean_week_is_ready_and_names_the_next_command():
    figures = told(dry_week())
    assert (figures.readiness.verdict, figures.readiness.gate) == ("ready", "")
    assert all(gate.met for gate in figures.readiness.gates)
    assert "1 %" in figures.recommendation.words
    assert figures.recommendation.command.startswith("toolgate rollout promote --reason ")
    assert exit_code(figures, ["not-ready"]) == 0


def test_one_answer_that_reads_differently_is_enough():
    made = dry_week()
    first, *rest = made.requests
    figures = told(evolve(made, requests=(evolve(first, noise=True), *rest)))
    assert (figures.readiness.verdict, figures.readiness.gate) == ("not ready", "noise")
    assert "toolgate replay --store" in figures.recommendation.command
    assert exit_code(figures) == 0
    assert exit_code(figures, ["not-ready"]) == exit_code(figures, ["noise"]) == 3
    assert exit_code(figures, ["time"]) == 0


@pytest.mark.parametrize(
    ("changes", "gate"),
    [({"overhead_s": 0.2}, "overhead"), ({"verdict": "dropped"}, "time")],
    ids=["slow", "dropped"],
)
def test_readings_that_take_too_long_are_not_ready(changes, gate):
    figures = told(dry_week(**changes))
    assert (figures.readiness.verdict, figures.readiness.gate) == ("not ready", gate)


def test_signs_decide_until_people_have_looked():
    made = evolve(dry_week(), labels=())
    signed = tuple(
        evolve(request, calls=tuple(evolve(call, signs=("in_fence",)) for call in request.calls))
        if number % 10 == 0
        else request
        for number, request in enumerate(made.requests)
    )
    suspicious = evolve(made, requests=signed)
    figures = told(suspicious)
    assert (figures.readiness.verdict, figures.readiness.gate) == ("not ready", "wrong_calls")
    assert figures.recommendation.command == "toolgate report label --sample 50"
    sample = [each.id.rpartition(":") for each in figures.review.sample]

    def labelled(right: int) -> Week:
        labels = [
            LabelRecord(at=1.0, request_id=request, number=int(number), is_right=place < right)
            for place, (request, _, number) in enumerate(sample)
        ]
        return evolve(suspicious, labels=tuple(labels))

    assert told(labelled(50)).readiness.verdict == "ready"
    assert told(labelled(46)).readiness.gate == "wrong_calls"


def test_weak_signs_are_shown_and_decide_nothing():
    figures = told(dry_week(follows="text"))
    assert figures.suspects.signs[-1].calls > 100
    assert figures.readiness.verdict == "ready"


@pytest.mark.parametrize(
    ("rules", "gate"),
    [
        ({"min_requests": 100_000}, "requests"),
        ({"min_hours": 10_000}, "hours"),
        ({"min_conversations": 100_000}, "conversations"),
        ({"min_calls": 100_000}, "calls"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_too_little_is_said_to_be_too_little(rules, gate):
    figures = told(dry_week(), evolve(RULES, **rules))
    assert (figures.readiness.verdict, figures.readiness.gate) == ("not enough data", gate)
    assert exit_code(figures) == 4
    assert exit_code(figures, [gate]) == 3


def test_faults_among_very_few_cases_are_too_little_data_not_a_fault():
    made = dry_week()
    bad = next(request for request in made.requests if any(call.tool for call in request.calls))
    few = evolve(made, requests=(evolve(bad, overhead_s=9.0, verdict="dropped"),), labels=(), outcomes=())
    assert told(few).readiness.verdict == "not enough data"


def test_a_fault_decides_before_missing_data():
    made = dry_week(noise=True)
    assert told(made, evolve(RULES, min_requests=100_000)).readiness.verdict == "not ready"


def test_a_live_arm_that_is_worse_is_taken_back():
    made = week(4000, arms=("live", "control"), clean=True)
    requests = tuple(
        evolve(request, healthy=request.arm != "live" or n % 10 > 0) for n, request in enumerate(made.requests)
    )
    figures = told(evolve(made, requests=requests), evolve(RULES, mode="canary", percent=5.0))
    assert (figures.readiness.verdict, figures.readiness.gate) == ("not ready", "arms")
    assert figures.recommendation.command.startswith("toolgate rollout rollback --reason ")


def test_equal_arms_go_on_to_the_next_step():
    made = week(8000, arms=("live", "control"), clean=True)
    requests = tuple(evolve(request, healthy=n % 400 > 0) for n, request in enumerate(made.requests))
    figures = told(evolve(made, requests=requests), evolve(RULES, mode="canary", percent=5.0))
    assert figures.readiness.verdict == "ready", figures.readiness.words
    assert "from 5 % to 25 %" in figures.recommendation.words


def test_arms_that_cannot_be_told_apart_yet_need_more_data():
    made = week(600, arms=("live", "control"), clean=True)
    figures = told(made, evolve(RULES, mode="canary", min_requests=10))
    assert (figures.readiness.verdict, figures.readiness.gate) == ("not enough data", "arms")


def test_with_everything_live_there_is_nothing_left_to_do():
    made = week(4000, arms=("live",), clean=True)
    figures = told(made, evolve(RULES, mode="full"))
    assert figures.readiness.verdict == "ready"
    assert figures.recommendation.command == "toolgate rollout status"


def test_while_nothing_is_read_the_dry_run_is_recommended():
    figures = told(week(500, arms=("off",)), evolve(RULES, mode="off"))
    assert figures.readiness.verdict == "not enough data"
    assert "TRANSFORM_MODE=dry_run" in figures.recommendation.command


def seen_after(share: float, base: float, **changes: float) -> float | None:
    rules = {"requests_per_hour": 1000.0, "risk_ratio": 1.25, "evidence": 10_000.0, **changes}
    return hours_until_seen(share, base=base, **rules)


def test_a_doubling_is_seen_sooner_with_more_traffic_more_faults_and_even_arms():
    rare, common = seen_after(0.1, 0.001), seen_after(0.1, 0.01)
    assert rare is not None
    assert common is not None
    assert rare > common
    busy = seen_after(0.1, 0.01, requests_per_hour=10_000)
    even = seen_after(0.5, 0.01)
    cautious = seen_after(0.1, 0.01, evidence=1e6)
    assert busy is not None
    assert even is not None
    assert cautious is not None
    assert busy < common
    assert even < common < cautious


@pytest.mark.parametrize(("share", "base"), [(0.0, 0.01), (1.0, 0.01), (0.1, 0.0)])
def test_what_cannot_be_seen_is_never_seen(share, base):
    assert seen_after(share, base) is None


def test_a_tolerated_doubling_is_never_seen():
    assert seen_after(0.1, 0.01, risk_ratio=4.0) is None


def test_what_stands_still_is_resumed_by_hand():
    figures = told(dry_week(), evolve(RULES, mode="paused"))
    assert figures.readiness.verdict == "ready"
    assert figures.recommendation.command.startswith("toolgate rollout resume --reason ")


def test_after_a_rollback_nothing_is_left_to_take_back():
    made = week(4000, arms=("live", "control"), clean=True)
    requests = tuple(evolve(each, healthy=each.arm != "live" or n % 10 > 0) for n, each in enumerate(made.requests))
    figures = told(evolve(made, requests=requests), evolve(RULES, mode="rolled_back"))
    assert (figures.readiness.verdict, figures.readiness.gate) == ("not ready", "rollback")
    assert figures.recommendation.command.startswith("toolgate rollout resume --reason ")


def test_the_headline_follows_a_rollback_whatever_the_figures_say():
    since = "since 2026-09-21T14:00:00Z by judge: live answers were worse"
    figures = told(dry_week(), evolve(RULES, mode="rolled_back", standing=since))
    assert figures.readiness.words == f"The rollout was rolled back {since}."
    sliced = told(dry_week(), evolve(RULES, mode="canary", slices_off=("recovery/hermes",)))
    assert (sliced.readiness.verdict, sliced.readiness.gate) == ("not ready", "rollback")
    assert sliced.readiness.words == "recovery/hermes is switched off."
    assert sliced.recommendation.command.startswith("toolgate rollout slice recovery/hermes on --reason ")


def test_the_mode_comes_before_the_volume():
    figures = told(week(20, arms=("off",)), evolve(RULES, mode="off", min_requests=100_000))
    assert figures.readiness.gate == "mode"
    assert "off" in figures.readiness.words
