"""How much went through, when and at what cost: as the records are counted, once more in the most naive way."""

import json
import math
from collections import Counter, defaultdict
from datetime import UTC, date, datetime
from typing import Any

import pytest

from gateway.cli.look.report import document
from tests.gateway.report.test_figures import Naive, figures_of, lot, rate
from tests.support.week import BEGIN, GAPS, HOURS, Week, evolve, hostile, week


@pytest.fixture(scope="module")
def made() -> Week:
    return week(3000)


@pytest.fixture(scope="module")
def told(made: Week) -> dict[str, Any]:
    return dict(json.loads(document(figures_of(made))))


@pytest.fixture(scope="module")
def naive(made: Week) -> "Naive":
    return Naive(made)


def test_the_period_is_what_was_asked_for(told, made):
    period = told["period"]
    times = [request.at for request in made.requests]
    assert (period["since"], period["until"], period["hours"]) == (made.since, made.until, HOURS)
    assert (period["first"], period["last"]) == (min(times), max(times))
    covered = {int((at - BEGIN) // 3600) for at in times}
    assert period["hours_covered"] == len(covered)
    assert period["requests_per_day"] == pytest.approx(len(times) / ((max(times) - min(times)) / 86400), abs=0.01)
    found = [(int((gap["since"] - BEGIN) // 3600), int((gap["until"] - BEGIN) // 3600)) for gap in period["gaps"]]
    assert set(GAPS) <= set(found)
    empty = {hour for start, end in found for hour in range(start, end)}
    assert empty == set(range(HOURS)) - covered
    assert period["gap_count"] == len(found)
    assert [gap["hours"] for gap in period["gaps"]] == [end - start for start, end in found]


def test_the_timeline_holds_every_request_at_its_hour(told, made, naive):
    step = told["period"]["timeline_step_s"]
    wanted: dict[float, list[int]] = defaultdict(lambda: [0, 0, 0])
    sent = Counter(request.id for request, _ in naive.sent)
    for request in made.requests:
        piece = wanted[request.at // step * step]
        piece[0] += 1
        piece[1] += sent[request.id]
        piece[2] += not request.healthy
    got = {each["at"]: [each["requests"], each["calls"], each["unhealthy"]] for each in told["period"]["timeline"]}
    assert got == wanted


def test_versions_and_settings_are_told_apart(told, made):
    wanted = Counter((request.version, request.config) for request in made.requests)
    got = {(each["version"], each["config"]): each["requests"] for each in told["period"]["configurations"]}
    assert got == wanted
    for each in told["period"]["configurations"]:
        times = [r.at for r in made.requests if r.version == each["version"]]
        assert (each["first"], each["last"]) == (min(times), max(times))


def test_volume_is_counted(told, made):
    requests = made.requests
    calls = [call for request in requests for call in request.calls]
    tokens: Counter[str] = Counter()
    for request in requests:
        tokens.update(request.usage)
    assert told["volume"] == {
        "requests": len(requests),
        "streams": sum(r.stream for r in requests),
        "conversations": len({r.key for r in requests}),
        "with_tools": sum(r.tools > 0 for r in requests),
        "forced": sum(r.forced for r in requests),
        "native_calls": sum(r.native_calls for r in requests),
        "text_calls": sum(c.decision in ("delivered", "would_deliver", "repaired") for c in calls),
        "candidates": len(calls),
        "candidates_with_text": sum(bool(c.before or c.after) for c in calls),
        "bytes_in": sum(r.bytes_in for r in requests),
        "bytes_out": sum(r.bytes_out for r in requests),
        "tokens": tokens,
        "by_arm": Counter(r.arm for r in requests),
        "by_surface": Counter(r.surface for r in requests),
        "by_strategy": Counter(r.strategy for r in requests),
        "by_model": Counter(r.model for r in requests),
        "by_end": Counter(r.end for r in requests),
        "structured": told["volume"]["structured"],
    }


def test_structured_calls_are_counted_by_model(told, made):
    classes: dict[str, Counter[str]] = {}
    for request in made.requests:
        if request.structured:
            classes.setdefault(request.model, Counter()).update(request.structured)
    rows = told["volume"]["structured"]
    assert [row["model"] for row in rows] == sorted(classes, key=lambda name: (-classes[name].total(), name))
    for row in rows:
        counts = classes[row["model"]]
        assert row["valid"] == rate(counts["valid"], counts.total())
        assert row["schema_mismatch"] == counts["schema_mismatch"]
        assert row["invalid_json"] == row["unknown_name"] == 0


def test_costs_are_within_a_hundredth_of_the_exact_quantiles(told, naive):
    read = [*naive.would, *naive.live]

    def near(values: list[float]) -> dict[str, Any]:
        ordered = sorted(values)
        at = lambda share: pytest.approx(ordered[math.ceil(share * len(ordered)) - 1], rel=0.0101)  # noqa: E731
        return {"count": len(ordered), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "highest": ordered[-1]}

    cost = told["cost"]
    assert cost["overhead_ms"] == near([r.overhead_s * 1000 for r in read])
    assert cost["held_bytes"] == near([r.held_bytes for r in read])
    assert cost["dropped"] == rate(sum(r.verdict == "dropped" for r in read), len(read))
    by_arm: dict[str, list[float]] = defaultdict(list)
    for r in naive.requests:
        if r.stream and r.first_sent_s is not None and r.upstream_first_s is not None:
            by_arm[r.arm].append(max(0.0, r.first_sent_s - r.upstream_first_s) * 1000)
    assert cost["first_token_ms"] == {arm: near(values) for arm, values in by_arm.items()}
    assert cost["change_is_measured"] is True
    change = cost["first_token_ms"]["live"]["p50"] - cost["first_token_ms"]["control"]["p50"]
    assert cost["first_token_change_ms"] == pytest.approx(change)


def test_without_a_live_arm_the_first_token_is_projected():
    told_ = figures_of(week(200, arms=("dry_run",))).cost
    assert (told_.change_is_measured, told_.first_token_change_ms) == (False, told_.overhead_ms.p50)


def test_noise_and_known_differences(told, made):
    noisy = [r.id for r in made.requests if r.noise]
    assert told["noise"] == {
        "checked": sum(r.noise is not None for r in made.requests),
        "differences": len(noisy),
        "examples": sorted(noisy, key=lambda name: lot(name, 0))[:10],
    }
    today = datetime.fromtimestamp(made.until, UTC).date()
    assert told["ignored"] == {
        "requests": sum(r.verdict == "ignored" for r in made.requests),
        "rules": [
            {"dialect": "shell", "tool": "*", "until": "2026-10-01", "days_left": (date(2026, 10, 1) - today).days}
        ],
    }


def test_valid_calls_are_told_before_mending_and_after():
    made = week(60)
    sent = evolve(
        made.requests[0],
        model="m",
        structured={"valid": 6, "schema_mismatch": 3, "invalid_json": 1},
        structured_outcomes={"mended": 2, "supplied": 1, "untouched": 1},
    )
    (row,) = figures_of(evolve(made, requests=(sent,))).volume.structured
    assert (row.valid.hits, row.delivered_valid.hits, row.valid.of) == (6, 9, 10)


def test_hostile_names_take_bounded_room():
    made = week(2000)
    flood = evolve(
        made,
        requests=tuple(
            evolve(r, model=f"m{n}" * 50, end=f"e{n}", strategy="s" * n) for n, r in enumerate(made.requests)
        ),
    )
    told = figures_of(flood)
    assert len(told.volume.by_model) <= 101
    assert sum(told.volume.by_model.values()) == 2000
    assert max(map(len, told.volume.by_model)) == 64
    assert len(document(told)) < 1 << 20
    document(figures_of(hostile(made)))
