"""Every figure of a report, computed a second time from the raw records in the most naive way.

Those of sides and of traffic stand beside their tallies.
"""

import json
import math
from collections import defaultdict
from datetime import date
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
from tests.support.week import BEGIN, Week, evolve, week

RULES = ReportRules(
    mode="canary",
    percent=5.0,
    ignore=(IgnoreRule(dialect="shell", tool="*", until=date(2026, 10, 1)),),
    min_requests=500,
)
COUNTED = {"in_fence", "undeclared", "schema", "echo", "native_beside", "rejected"}


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
