import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import BreakerOpen
from gateway.traffic.breaker import Breaker, BreakerPolicy


def fail(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.report(now, probe=breaker.admit(now), healthy=False)


def succeed(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.report(now, probe=breaker.admit(now), healthy=True)


def test_five_failures_in_a_row_open_it():
    breaker = Breaker()
    fail(breaker, 0.0, 4)
    assert breaker.state == "closed"
    fail(breaker, 0.0)
    with pytest.raises(BreakerOpen) as raised:
        breaker.admit(0.5)
    assert raised.value.status == 503
    assert (raised.value.retry_after_s or 0) >= 0.5


def test_a_success_in_between_starts_the_row_anew():
    breaker = Breaker()
    fail(breaker, 0.0, 4)
    succeed(breaker, 0.0)
    fail(breaker, 0.0, 4)
    assert breaker.state == "closed"


@pytest.mark.parametrize(("apart_s", "state"), [(1.0, "open"), (1.2, "closed")])
def test_flapping_opens_it_by_the_share_of_failures_in_ten_seconds(apart_s, state):
    breaker = Breaker()
    for number in range(10):
        assert not breaker.admit(1000.0 + number * apart_s)
        succeed(breaker, 1000.0 + number * apart_s)
        fail(breaker, 1000.0 + number * apart_s)
    assert breaker.state == state


def test_old_failures_do_not_count_in_the_share():
    breaker = Breaker(BreakerPolicy(window_minimum=4))
    for now in (0.0, 20.0, 40.0, 60.0):
        succeed(breaker, now)
        fail(breaker, now)
    assert breaker.state == "closed"


def test_one_probe_decides_and_others_wait():
    breaker = Breaker()
    fail(breaker, 0.0, 5)
    assert breaker.admit(1.0) is True
    with pytest.raises(BreakerOpen):
        breaker.admit(1.0)
    breaker.report(1.0, probe=True, healthy=True)
    assert breaker.state == "closed"
    assert breaker.admit(1.0) is False


def test_a_failed_probe_doubles_the_wait_up_to_its_bound():
    breaker = Breaker()
    fail(breaker, 0.0, 5)
    now, waits = 0.0, []
    for _ in range(5):
        start = now
        while True:
            now += 0.25
            try:
                probe = breaker.admit(now)
            except BreakerOpen:
                continue
            waits.append(now - start)
            breaker.report(now, probe=probe, healthy=False)
            break
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_probe_whose_client_left_leaves_room_for_the_next():
    breaker = Breaker()
    fail(breaker, 0.0, 5)
    breaker.report(1.0, probe=breaker.admit(1.0), healthy=None)
    assert breaker.admit(1.0) is True


def test_an_attempt_from_before_the_opening_changes_nothing():
    breaker = Breaker()
    early = breaker.admit(0.0)
    fail(breaker, 0.0, 5)
    probe = breaker.admit(1.0)
    breaker.report(1.0, probe=early, healthy=False)
    breaker.report(1.0, probe=early, healthy=None)
    with pytest.raises(BreakerOpen):
        breaker.admit(1.0)
    breaker.report(1.0, probe=probe, healthy=True)
    assert breaker.state == "closed"


@given(st.lists(st.sampled_from([True, False, None]), max_size=200))
def test_it_always_lets_somebody_try_again_within_its_longest_wait(outcomes):
    breaker, now = Breaker(), 0.0
    for healthy in outcomes:
        try:
            probe = breaker.admit(now)
        except BreakerOpen:
            now += 5.0
            probe = breaker.admit(now)
        breaker.report(now, probe=probe, healthy=healthy)
