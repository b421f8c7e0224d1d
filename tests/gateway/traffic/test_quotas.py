"""What keys may use: never more within any minute, never less than is left, whatever the times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import RateLimited
from gateway.core.rules import LEASE_S, Quota, told
from gateway.traffic.quotas import MAX_KEYS, Quotas

TIMES = st.lists(st.integers(0, 20_000), min_size=1, max_size=200).map(lambda steps: [step / 1000 for step in steps])


def admitted(quotas: Quotas, quota: Quota, now: float, key: str = "k") -> bool:
    try:
        quotas.enter(key, quota, now)
    except RateLimited:
        return False
    return True


def wait_of(quotas: Quotas, quota: Quota, now: float) -> float | None:
    """How long a request that is refused is told to wait."""
    try:
        quotas.enter("k", quota, now)
    except RateLimited as error:
        return error.retry_after_s
    return None


@given(TIMES, st.integers(1, 12))
def test_no_minute_holds_more_and_none_is_refused_that_fits(steps: list[float], most: int) -> None:
    quotas, now = Quotas(), 0.0
    times: list[float] = []
    for step in steps:
        now += step
        within = sum(now - 60 < at for at in times)
        assert admitted(quotas, Quota(requests=most), now) == (within < most)
        if within < most:
            times.append(now)


@given(TIMES, st.lists(st.integers(0, 50), min_size=1), st.integers(1, 100))
def test_tokens_count_for_a_minute_and_a_request_is_admitted_below_the_limit(
    steps: list[float], costs: list[int], most: int
) -> None:
    quotas, now = Quotas(), 0.0
    spent: list[tuple[float, int]] = []
    for number, step in enumerate(steps):
        now += step
        within = sum(cost for at, cost in spent if now - 60 < at)
        assert admitted(quotas, Quota(tokens=most), now) == (within < most)
        cost = costs[number % len(costs)]
        quotas.spend("k", cost, now)
        spent.append((now, cost))


@given(TIMES, st.integers(1, 12))
def test_whoever_waits_as_long_as_is_said_is_admitted_and_no_sooner(steps: list[float], most: int) -> None:
    quotas, quota, now = Quotas(), Quota(requests=most), 0.0
    for step in steps:
        now += step
        wait_s = wait_of(quotas, quota, now)
        if wait_s is not None:
            assert wait_s == 1.0 or not admitted(quotas, quota, now + wait_s - 0.001)
            assert admitted(quotas, quota, now + wait_s + 0.001)
            return


def test_how_a_key_stands_is_told_in_the_words_of_sdks() -> None:
    quotas, quota = Quotas(), Quota(requests=3, tokens=100)
    quotas.enter("k", quota, 0.0)
    quotas.spend("k", 40, 10.0)
    assert told(quotas.enter("k", quota, 20.0)) == {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "60.000s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "60",
        "x-ratelimit-reset-tokens": "50.000s",
    }


def test_what_is_refused_is_told_too_and_does_not_count() -> None:
    quotas, quota = Quotas(), Quota(requests=1, tokens=10)
    quotas.enter("k", quota, 0.0)
    with pytest.raises(RateLimited) as raised:
        quotas.enter("k", quota, 30.0)
    assert raised.value.headers["x-ratelimit-remaining-requests"] == "0"
    assert raised.value.retry_after_s == 30.0
    assert "1 requests a minute" in raised.value.message
    assert admitted(quotas, quota, 60.0), "the refused one has used nothing"


def test_keys_do_not_share() -> None:
    quotas, quota = Quotas(), Quota(requests=1)
    assert admitted(quotas, quota, 0.0, "one")
    assert admitted(quotas, quota, 0.0, "other")
    assert not admitted(quotas, quota, 0.0, "one")


def test_a_stream_holds_its_place_until_it_ends_or_is_forgotten() -> None:
    quotas, quota = Quotas(), Quota(streams=2)
    quotas.lease("k", quota, "a", 0.0)
    quotas.lease("k", quota, "b", 0.0)
    with pytest.raises(RateLimited, match="2 streams at a time"):
        quotas.lease("k", quota, "c", 1.0)
    quotas.release("k", "a")
    quotas.lease("k", quota, "c", 1.0)
    quotas.renew("k", "c", LEASE_S / 2)
    quotas.lease("k", quota, "d", LEASE_S + 0.5)  # b has not been heard of
    with pytest.raises(RateLimited):
        quotas.lease("k", quota, "e", LEASE_S + 0.5)


def test_a_clock_that_is_set_back_refuses_nobody_for_long() -> None:
    quotas, quota = Quotas(), Quota(requests=1)
    assert admitted(quotas, quota, 1_000_000.0)
    assert admitted(quotas, quota, 10.0)
    assert not admitted(quotas, quota, 11.0)


def test_keys_that_use_nothing_any_more_are_forgotten() -> None:
    quotas, quota = Quotas(), Quota(requests=1)
    for number in range(2 * MAX_KEYS):
        quotas.enter(str(number), quota, float(number))
    assert len(quotas._uses) <= MAX_KEYS + 1
