""""""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import (
    BreakerOpen,
    ClientError,
    NoCapacity,
    RateLimited,
    UnknownModel,
    UpstreamBadReply,
    UpstreamDisconnected,
    UpstreamRefused,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.core.rules import LEASE_S, ModelRule, Quota, told
from gateway.traffic.admission import Admission
from gateway.traffic.breaker import Breaker, BreakerPolicy
from gateway.traffic.quotas import MAX_KEYS, Quotas
from gateway.traffic.retry import RetryBudget, RetryPolicy, capped_retry_after
from gateway.traffic.routing import DEFAULT_UPSTREAM, Router


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


# ---


def test_one_too_many_is_told_when_to_come_back():
    admission = Admission(limit=2)
    admission.enter()
    admission.enter()
    with pytest.raises(NoCapacity) as raised:
        admission.enter()
    assert raised.value.status == 503
    assert raised.value.retry_after_s == 1.0
    admission.leave()
    admission.enter()
    assert admission.active == 2


# ---


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


# ---


@pytest.mark.parametrize(
    "model",
    ["gpt-4o", "qwen/qwen3-coder:free", "/models/llama.gguf", "hf.co/org/model:Q4_K_M", "ft:gpt-4o:a::b", "模型"],
)
def test_the_names_that_real_servers_use_are_routed(model):
    assert Router().route(model).upstreams == (DEFAULT_UPSTREAM,)


@pytest.mark.parametrize(
    "model", ["http://169.254.169.254/latest", "ftp://evil.example/x", "../admin", "a/../b", "a\\b", "m" * 257]
)
def test_a_name_that_would_be_a_path_or_an_address_is_unknown(model):
    with pytest.raises(UnknownModel) as raised:
        Router().route(model)
    assert raised.value.status == 404
    assert raised.value.param == "model"
    assert len(raised.value.message) < 120


def test_the_first_rule_that_matches_counts():
    rules = [
        ModelRule(match="Qwen*coder*", upstream="a", fallback="b", send_as="q"),
        ModelRule(match="qwen*", upstream="b"),
    ]
    router = Router(rules=rules)
    for model in ("qwen3-coder-plus", "org/QWEN-Coder"):
        assert router.route(model).upstreams == ("a", "b")
        assert router.route(model).send_as == "q"
    assert router.route("qwen3").upstreams == ("b",)
    assert router.route("qwen3").send_as is None
    assert router.route("llama").rule is None


def test_an_upstream_serves_the_models_that_it_names():
    router = Router(default="x", served=[("llama*", "a"), ("*", "b")], rules=[ModelRule(match="llama-4*")])
    assert router.route("llama-3").upstreams == ("a",)
    assert router.route("llama-4").upstreams == ("a",), "a rule without an upstream leaves that to who serves it"
    assert router.route("other").upstreams == ("b",)


def test_an_upstream_is_no_fallback_of_its_own():
    assert Router(rules=[ModelRule(match="*", upstream="a", fallback="a")]).route("m").upstreams == ("a",)


# --- What keys may use: never more within any minute, never less than is left, whatever the times


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
