"""Every figure of a report, computed a second time from the raw records in the most naive way."""

import json
import math
from collections import Counter, defaultdict
from datetime import UTC, date, datetime
from hashlib import blake2b
from statistics import NormalDist
from typing import Any

import pytest

from gateway.cli.look.report import document
from gateway.core.records import CallRecord, LabelRecord, OutcomeRecord, RequestRecord
from gateway.core.rules import IgnoreRule
from gateway.report.facts.candidates import last_labels, rejections
from gateway.report.facts.tree import Figures, ReportRules
from gateway.report.figures import Tally, gather
from gateway.report.readiness import hours_until_seen
from gateway.state.memory import MemoryStore
from tests.support.week import BEGIN, GAPS, HOURS, STAGES, Week, evolve, hostile, week

RULES = ReportRules(
    mode="canary",
    percent=5.0,
    ignore=(IgnoreRule(dialect="shell", tool="*", until=date(2026, 10, 1)),),
    min_requests=500,
)
PURPOSE = {"low_confidence", "provenance", "unsayable", "slice_off", "over_budget", "disabled", "not_listed"}
COUNTED = {"in_fence", "undeclared", "schema", "echo", "native_beside", "rejected"}
BINS = (0, 50, 60, 70, 75, 80, 85, 90, 95, 98, 101)


def figures_of(made: Week, rules: ReportRules = RULES) -> Figures:
    tally = Tally(labels=last_labels(made.labels), rejections=rejections(made.outcomes))
    for request in made.requests:
        tally.add_request(request)
    for outcome in made.outcomes:
        tally.add_outcome(outcome)
    for rating in made.feedback:
        tally.add_feedback(rating)
    for decision in made.decisions:
        tally.add_decision(decision)
    return tally.figures(rules=rules, since=made.since, until=made.until, made_at=made.until, version="9")


@pytest.fixture(scope="module")
def made() -> Week:
    return week(3000)


@pytest.fixture(scope="module")
def told(made: Week) -> dict[str, Any]:
    return dict(json.loads(document(figures_of(made))))


@pytest.fixture(scope="module")
def naive(made: Week) -> "Naive":
    return Naive(made)


def rate(hits: int, of: int) -> dict[str, Any]:
    z = NormalDist().inv_cdf(0.975)
    if not of:
        return {"hits": 0, "of": 0, "share": None, "low": 0.0, "high": 1.0, "too_few": True}
    p = hits / of
    root = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = ((p + z * z / (2 * of) + sign * root) / (1 + z * z / of) for sign in (-1, 1))
    near = lambda value: pytest.approx(value, abs=2e-6)  # noqa: E731
    return {"hits": hits, "of": of, "share": near(p), "low": near(max(0, low)), "high": near(high), "too_few": of < 30}


def lot(request: str, number: int) -> int:
    return int.from_bytes(blake2b(f"{request}:{number}".encode(), digest_size=8).digest())


Candidate = tuple[RequestRecord, CallRecord]


class Naive:
    """The records, and what they say when they are simply counted."""

    def __init__(self, made: Week) -> None:
        self.made = made
        self.requests = made.requests
        self.labels: dict[tuple[str, int], LabelRecord] = {}
        for label in sorted(made.labels, key=lambda each: each.at):
            self.labels[label.request_id, label.number] = label
        self.would = [r for r in self.requests if r.arm in ("dry_run", "control") and r.verdict]
        self.live = [r for r in self.requests if r.arm == "live" and (r.tools or r.calls)]
        self.candidates = self.of([r for r in [*self.would, *self.live] if r.verdict != "ignored"])
        self.sent = [(r, c) for r, c in self.candidates if c.decision in ("delivered", "would_deliver")]

    def of(self, requests: list[RequestRecord]) -> list[Candidate]:
        return [(r, c) for r in requests for c in r.calls]

    def label(self, candidate: Candidate) -> bool | None:
        found = self.labels.get((candidate[0].id, candidate[1].number))
        return None if found is None else found.is_right

    def chosen(self, candidates: list[Candidate], count: int) -> list[str]:
        ordered = sorted(
            candidates, key=lambda each: (not (each[1].before or each[1].after), lot(each[0].id, each[1].number))
        )
        return [f"{r.id}:{c.number}" for r, c in ordered[:count]]

    def before_of(self) -> dict[str, RequestRecord]:
        last: dict[str, RequestRecord] = {}
        found = {}
        for request in self.requests:
            if request.key in last:
                found[request.id] = last[request.key]
            last[request.key] = request
        return found


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


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


def test_signs_stand_in_for_labels(told, naive):
    suspects = told["suspects"]
    with_sign = [(r, c) for r, c in naive.sent if COUNTED & set(c.signs)]
    assert suspects["calls"] == len(naive.sent)
    assert suspects["suspected"] == rate(len(with_sign), len(naive.sent))
    by_sign: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in naive.sent:
        for sign in candidate[1].signs:
            by_sign[sign].append(candidate)
    by_request: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in naive.sent:
        by_request[candidate[0].id].append(candidate)
    before = naive.before_of()
    for request in naive.requests:
        if request.follows == "text" and request.id in before:
            by_sign["prose_next"] += by_request[before[request.id].id]
    by_sign["rejected"] = []
    assert {each["sign"]: each["calls"] for each in suspects["signs"]} == {s: len(c) for s, c in by_sign.items()}
    for each in suspects["signs"]:
        assert each["counts"] is (each["sign"] != "prose_next")
        assert ids(each["examples"]) == naive.chosen(by_sign[each["sign"]], 3)
    assert suspects["signs"][-1]["sign"] == "prose_next"


def test_the_last_label_counts_whenever_it_was_given(told, naive):
    review = told["review"]
    labelled = [each for each in naive.candidates if each[1].decision not in ("overheard", "repaired")]
    calls = [naive.label(each) for each in labelled if each[1].decision != "refused"]
    refusals = [naive.label(each) for each in labelled if each[1].decision == "refused"]
    said, said_refused = ([label for label in found if label is not None] for found in (calls, refusals))
    assert len(said) > 30
    assert review["labelled"] == len(said) + len(said_refused)
    assert review["precision"] == rate(sum(said), len(said))
    assert review["refusals"] == rate(sum(said_refused), len(said_refused))
    assert ids(review["wrong"]) == naive.chosen([each for each in labelled if naive.label(each) is False], 10)


def test_the_sample_is_fifty_random_calls_and_always_the_same(told, naive, made):
    assert ids(told["review"]["sample"]) == naive.chosen(naive.sent, 50)
    assert len(told["review"]["sample"]) == 50
    # Sorted by time or not, the same calls are drawn.
    shuffled = evolve(made, requests=tuple(sorted(made.requests, key=lambda r: r.id)))
    assert ids([{"id": each.id} for each in figures_of(shuffled).review.sample]) == ids(told["review"]["sample"])


def test_misses_are_counted_by_what_shows_them(told, naive):
    kinds: dict[str, list[str]] = {"complained": [], "forced": [], "retried": []}
    met = 0
    sent = {request.id for request, _ in naive.sent}
    before = naive.before_of()
    found_call = {r.id: r.native_calls > 0 or any(c.decision != "refused" for c in r.calls) for r in naive.requests}
    for request in naive.requests:
        last = before.get(request.id)
        if last is not None:
            if request.follows == "complaint" and last.id in sent:
                met += 1
            elif request.follows == "complaint" and not found_call[last.id]:
                kinds["complained"].append(last.id)
            elif (
                request.follows == "nothing"
                and request.tools
                and not found_call[last.id]
                and request.at - last.at <= 600
            ):
                kinds["retried"].append(last.id)
        if request.forced and not found_call[request.id] and request.healthy and request.end == "completed":
            kinds["forced"].append(request.id)
    misses = told["misses"]
    assert {each["kind"]: each["requests"] for each in misses["kinds"]} == {k: len(v) for k, v in kinds.items()}
    assert misses["requests"] == sum(map(len, kinds.values()))
    assert misses["complaints_met"] == met > 0
    for each in misses["kinds"]:
        assert each["examples"] == sorted(kinds[each["kind"]], key=lambda name: lot(name, 0))[:3]


def test_differences_are_shown_of_every_kind(told, naive):
    strata: dict[tuple[str, ...], list[Candidate]] = defaultdict(list)
    for request, call in naive.candidates:
        if call.decision not in ("overheard", "repaired"):
            strata[call.tool, call.dialect, call.decision].append((request, call))
    ordered = sorted(strata.items(), key=lambda item: (-len(item[1]), "\0".join(item[0])))
    chosen = [naive.chosen([c for c in found if c[1].before or c[1].after], 2) for _, found in ordered]
    wanted = [each[turn] for turn in (0, 1) for each in chosen if turn < len(each)]
    assert ids(told["diffs"]) == wanted[:24]


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


def test_projections(told, made, naive):
    untouched = [r for r in made.requests if r.arm != "live"]
    bad = sum(not r.healthy for r in untouched) + sum(
        o.arm != "live" and o.outcome != "accepted" for o in made.outcomes
    )
    base = (bad + 0.5) / (len(untouched) + 1)
    said = [naive.label(each) for each in naive.sent]
    wrong = said.count(False) / (len(said) - said.count(None)) * len(naive.sent) / len(made.requests)
    share = {arm["arm"]: arm["bad"]["share"] for arm in told["arms"]}
    worse = max(0.0, share["live"] - share["control"])
    slow = sum(r.verdict == "dropped" for r in [*naive.would, *naive.live]) / len(made.requests)
    per_day = told["period"]["requests_per_day"]
    for each, percent in zip(told["projection"], (1, 5, 25), strict=True):
        assert each["percent"] == percent
        assert each["requests_per_day"] == pytest.approx(per_day * percent / 100, abs=0.1)
        assert each["anyway_per_day"] == pytest.approx(per_day * percent / 100 * base, abs=0.01)
        assert each["bad_per_day"] == pytest.approx(per_day * percent / 100 * max(worse, wrong + slow), abs=0.01)
        assert each["wrong_calls_per_day"] == pytest.approx(per_day * percent / 100 * wrong, abs=0.01)
        assert each["hours_until_seen"] == hours_until_seen(
            percent / 100, base=base, requests_per_hour=per_day / 24, risk_ratio=1.25, evidence=10_000
        )


def test_what_a_canary_would_mean_counts_its_own_risk_not_the_faults_of_today():
    made = week(1500, arms=("dry_run",), clean=True)
    failing = evolve(made, requests=tuple(evolve(each, healthy=False) for each in made.requests), labels=())
    for well, bad in zip(figures_of(evolve(made, labels=())).projection, figures_of(failing).projection, strict=True):
        assert bad.bad_per_day == well.bad_per_day == 0
        assert bad.anyway_per_day > 10 * well.anyway_per_day


def test_a_call_that_the_client_did_not_take_has_a_sign_against_it():
    made = week(1500, arms=("live",), clean=True)
    calling = [each for each in made.requests if any(call.decision == "delivered" for call in each.calls)][:40]
    turns, told_of = [], []
    for number, each in enumerate(calling):
        asked = evolve(each, key=f"k{number}", at=BEGIN + 10 * number, follows="nothing")
        told = evolve(each, id=f"next-{number}", key=f"k{number}", at=asked.at + 1, follows="tool_result", calls=())
        turns += [asked, told]
        tool = next(call.tool for call in each.calls if call.decision == "delivered")
        if number < 10:
            told_of.append(rejected(told.id, tool if number % 2 else ""))
            told_of.append(rejected(f"elsewhere-{number}", tool))
    found = figures_of(evolve(made, requests=tuple(turns), outcomes=tuple(told_of), labels=()))
    sign = next(each for each in found.suspects.signs if each.sign == "rejected")
    assert sign.counts
    assert sign.calls >= 10
    assert found.suspects.suspected.hits >= 10
    assert found.readiness.gate == "wrong_calls"


def rejected(request: str, tool: str) -> OutcomeRecord:
    return OutcomeRecord(
        at=BEGIN,
        key="k",
        arm="live",
        strategy="recovery",
        dialect="hermes",
        epoch=1,
        outcome="rejected",
        reason="missing_argument",
        tool=tool,
        reported_by=request,
    )


def test_names_of_tools_are_names():
    made = week(300)
    calls = lambda r: tuple(evolve(c, tool="read_file>\n<path>x") for c in r.calls)  # noqa: E731
    odd = evolve(made, requests=tuple(evolve(each, calls=calls(each)) for each in made.requests))
    assert {row.name for row in figures_of(odd).would.by_tool} == {"(no name)"}


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


def test_the_document_says_which_form_it_has(told):
    assert list(told)[:2] == ["schema_version", "made_at"]
    assert told["schema_version"] == 1
    for path in ("volume.requests", "volume.streams", "would.calls", "noise.differences"):
        head, tail = path.split(".")
        assert isinstance(told[head][tail], int)


def test_a_week_without_records_is_said_to_be_empty():
    empty = figures_of(Week(requests=(), outcomes=(), feedback=(), labels=(), decisions=()))
    assert empty.readiness.verdict == "not enough data"
    assert (empty.period.hours_covered, empty.period.gap_count, empty.volume.requests) == (0, 1, 0)
    assert json.loads(document(empty))["would"]["success"]["share"] is None


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


async def test_a_store_gives_the_same_figures_as_the_records(made):
    store = MemoryStore()
    await store.open()
    records = list(made.records())
    for start in range(0, len(records), 500):
        await store.append(records[start : start + 500])
    seen = []
    got = await gather(
        store,
        rules=RULES,
        since=made.since,
        until=made.until,
        made_at=made.until,
        version="9",
        on_progress=lambda count, at: seen.append((count, at)),
    )
    await store.close()
    assert got == figures_of(made)
    assert [count for count, _ in seen] == list(range(500, 3001, 500))


async def test_what_lies_outside_the_period_is_left_out(made):
    store = MemoryStore()
    await store.open()
    await store.append(list(made.requests))
    middle = made.since + 3 * 86400
    got = await gather(store, rules=RULES, since=made.since, until=middle, made_at=made.until, version="9")
    assert got.volume.requests == sum(r.at < middle for r in made.requests)
    await store.close()
