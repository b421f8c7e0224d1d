import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import (
    ClientError,
    UpstreamBadReply,
    UpstreamDisconnected,
    UpstreamRefused,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.traffic.retry import RetryBudget, RetryPolicy, capped_retry_after

POLICY = RetryPolicy()


def rejected(status: int, retry_after_s: float | None = None) -> UpstreamRejected:
    return UpstreamRejected("no", status=status, retry_after_s=retry_after_s)


@pytest.mark.parametrize("error", [UpstreamRefused("x"), rejected(429), rejected(503), rejected(503, 2.0)])
def test_what_cannot_have_cost_a_generation_is_repeated_once(error):
    assert POLICY.wait_s(error, attempt=1, jitter=0.5) is not None
    assert POLICY.wait_s(error, attempt=2, jitter=0.5) is None


@pytest.mark.parametrize(
    "error",
    [
        UpstreamDisconnected("x"),
        UpstreamTimeout("x"),
        UpstreamBadReply("x"),
        ClientError("x"),
        rejected(500),
        rejected(400),
    ],
)
def test_what_may_have_reached_the_model_is_never_repeated(error):
    assert POLICY.wait_s(error, attempt=1, jitter=0.0) is None


def test_a_long_wait_is_the_clients_to_make():
    assert POLICY.wait_s(rejected(429, 3600.0), attempt=1, jitter=0.0) is None
    assert POLICY.wait_s(rejected(429, 10.0), attempt=1, jitter=0.0) == 10.0
    assert POLICY.wait_s(rejected(429, 10.0), attempt=1, jitter=0.5) is None


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 20))
def test_no_wait_is_shorter_than_asked_for_or_longer_than_ten_seconds(jitter, asked):
    wait_s = POLICY.wait_s(rejected(503, asked), attempt=1, jitter=jitter)
    assert wait_s is None or asked <= wait_s <= 10.0


def test_the_jitter_spreads_over_the_whole_first_step():
    waits = [POLICY.wait_s(UpstreamRefused("x"), attempt=1, jitter=step / 10) for step in range(10)]
    assert waits == pytest.approx([step / 100 for step in range(10)])


def test_retries_under_way_stay_a_fifth_of_the_requests_but_three_are_free():
    budget = RetryBudget()
    assert [budget.take(1) for _ in range(4)] == [True, True, True, False]
    budget.give_back()
    assert budget.take(1)
    assert not budget.take(15)
    assert budget.take(20)


def test_a_client_is_told_to_wait_a_minute_at_most():
    assert capped_retry_after(None) is None
    assert capped_retry_after(7.0) == 7.0
    assert capped_retry_after(3600.0) == 60.0
