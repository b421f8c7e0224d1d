"""Who is live: shares, stability, and what can be forced."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.assignment import WHOLE, Forced, InForce, assign, bucket, is_live

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
