"""What one process counts: bounded, by slice, and with examples of now."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.assignment import WHOLE, Forced, InForce, assign, bucket, is_live
from gateway.rollout.counters import MAX_EXAMPLES, MAX_SLICES, MAX_TOLD, MAX_WHO, WHO_S, Counting, read

NOW = 1_000_000.0


def fail(counting: Counting, number: int, *, dialect: str = "hermes", now: float = NOW, epoch: int = 1) -> None:
    counting.ended(
        "live",
        epoch,
        strategy="recovery",
        dialect=dialect,
        key=f"conversation-{number}",
        bad=True,
        request_id=f"req-{number}",
        transformed=True,
        slow=False,
        now=now,
    )


def examples(counting: Counting) -> list[tuple[str, str]]:
    """Slices and ids that were named since the last look."""
    names = [read(mark) for mark in sorted(counting.take()[1])]
    return [(name.slice, name.subject) for name in names if name is not None and name.kind == "example"]


def test_a_slice_that_fails_late_is_named_though_another_has_failed_all_the_time() -> None:
    counting = Counting()
    for number in range(1000):
        fail(counting, number, dialect="glm")
    assert len(examples(counting)) == MAX_EXAMPLES
    fail(counting, 2000)
    assert examples(counting) == [("recovery/hermes", "req-2000")]


def test_requests_of_now_are_named_and_not_those_of_last_week_alone() -> None:
    counting = Counting()
    for number in range(10):
        fail(counting, number)
    assert len(examples(counting)) == MAX_EXAMPLES
    fail(counting, 11, now=NOW + 61)
    assert examples(counting) == [("recovery/hermes", "req-11")]


def test_a_new_epoch_is_named_anew() -> None:
    counting = Counting()
    for number in range(10):
        fail(counting, number)
    counting.take()
    fail(counting, 11, epoch=2)
    assert examples(counting) == [("recovery/hermes", "req-11")]


def test_no_number_of_slices_makes_it_remember_more() -> None:
    counting = Counting()
    for number in range(10 * MAX_SLICES):
        fail(counting, number, dialect=f"made-up-{number}")
    assert len(examples(counting)) == MAX_SLICES


def test_a_call_counts_once_and_as_many_calls_as_are_remembered_are_bounded() -> None:
    counting = Counting()
    assert counting.is_news("a", 1, bad=True)
    assert not any(counting.is_news("a", 1, bad=bad) for bad in (True, False))
    _, marks = counting.take()
    elsewhere = Counting()
    elsewhere.learn(marks)
    assert not elsewhere.is_news("a", 1, bad=True)
    for number in range(MAX_TOLD):
        counting.is_news(f"{number}", 1, bad=False)
    assert counting.is_news("a", 1, bad=True), "the oldest are forgotten"


def test_it_is_said_of_a_credential_now_and_then_that_it_asks() -> None:
    counting = Counting()

    def asked(who: str, now: float) -> list[str]:
        given = {"key": "k", "bad": False, "request_id": "", "transformed": None, "slow": False, "now": now}
        counting.ended("live", 1, strategy="recovery", dialect="none", who=who, **given)  # type: ignore[arg-type]
        return [name.subject for mark in counting.take()[1] if (name := read(mark)) and name.kind == "who"]

    assert (asked("ada", NOW), asked("ada", NOW + 1), asked("", NOW)) == (["ada"], [], ["-"])
    assert asked("ada", NOW + WHO_S) == ["ada"]
    assert len([who for number in range(1000) for who in asked(f"w{number}", NOW + 700)]) <= MAX_WHO


# --- Who is live: shares, stability, and what can be forced


ROOT = Path(__file__).parents[3]

SALT = b"canary of the tests"

KEYS = [f"conversation {number}" for number in range(100_000)]


@pytest.fixture(scope="module")
def buckets() -> list[float]:
    return [bucket(SALT, key) for key in KEYS]


@pytest.mark.parametrize("percent", [0, 50, 100, 1000, 5000, 9950, 10_000])
def test_share_is_as_set(buckets: list[float], percent: int) -> None:
    live = sum(is_live(one, percent) for one in buckets)
    assert abs(100 * live / len(KEYS) - percent / 100) <= (0.3 if 0 < percent < WHOLE else 0)


def test_a_growing_share_keeps_whom_it_has(buckets: list[float]) -> None:
    before: set[int] = set()
    for percent in (0, 50, 100, 500, 1000, 5000, 9950, 10_000):
        live = {number for number, one in enumerate(buckets) if is_live(one, percent)}
        assert before <= live
        before = live


def test_another_process_gives_the_same_answer() -> None:
    script = (
        "from gateway.rollout.assignment import bucket\n"
        "for number in range(50): print(repr(bucket(b'canary of the tests', f'conversation {number}')))"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [float(line) for line in run.stdout.split()] == [bucket(SALT, key) for key in KEYS[:50]]


def test_another_salt_draws_another_group(buckets: list[float]) -> None:
    ours = {key for key, one in zip(KEYS, buckets, strict=True) if is_live(one, 1000)}
    both = sum(is_live(bucket(b"another", key), 1000) for key in ours)
    assert 0.08 < both / len(ours) < 0.12


@given(st.binary(max_size=200), st.text())
def test_every_key_has_a_place_below_one(salt: bytes, key: str) -> None:
    place = bucket(salt, key)
    assert 0 <= place < 1
    assert is_live(place, WHOLE)
    assert not is_live(place, 0)


def test_the_last_place_is_still_below_one() -> None:
    assert (((1 << 64) - 1) >> 11) / (1 << 53) < 1


def test_half_a_surrogate_pair_is_a_key() -> None:
    assert 0 <= bucket(SALT, "\ud800") < 1


def test_arms_by_mode() -> None:
    assert assign(InForce(mode="off"), SALT, "k").arm == "off"
    assert assign(InForce(mode="dry_run", percent=WHOLE), SALT, "k").arm == "dry_run"
    assert assign(InForce(mode="canary", percent=0), SALT, "k").arm == "control"
    assert assign(InForce(mode="canary", percent=WHOLE, epoch=7), SALT, "k").arm == "live"
    assert assign(InForce(mode="full", percent=WHOLE, epoch=7), SALT, "k").epoch == 7


def test_full_keeps_its_holdback(buckets: list[float]) -> None:
    in_force = InForce(mode="full", percent=9500)
    control = sum(assign(in_force, SALT, key).arm == "control" for key in KEYS[:20_000])
    assert abs(control / 20_000 - 0.05) < 0.01


def test_a_forced_arm_is_marked() -> None:
    in_force = InForce(mode="canary", percent=0)
    arms: tuple[Forced, ...] = ("live", "control", "off")
    for arm in arms:
        assignment = assign(in_force, SALT, "k", arm)
        assert (assignment.arm, assignment.forced) == (arm, True)
    assert not assign(in_force, SALT, "k").forced


@pytest.mark.parametrize("mode", ["off", "dry_run"])
def test_nothing_can_be_forced_beyond_what_is_in_force(mode: Literal["off", "dry_run"]) -> None:
    in_force = InForce(mode=mode)
    assert assign(in_force, SALT, "k", "live").arm == mode
    assert assign(in_force, SALT, "k", "off").arm == "off"
