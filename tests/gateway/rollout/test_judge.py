"""The judge: what it finds, what it leaves alone, and how it cannot be misled."""

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.rollout.judge import MAX_KEYS, MAX_SCORE, MAX_WHO, Counts, Finding, JudgeRules, JudgeState, finding, step
from tests.bench.judge import SCENARIOS, SHARES, Scenario, simulate, steady

RULES = JudgeRules()


def run(*blocks: Counts, rules: JudgeRules = RULES) -> tuple[JudgeState, Finding | None]:
    state = JudgeState()
    for block in blocks:
        state = step(state, block, rules)
    return state, finding(state, rules)


def keys(count: int, prefix: str = "k") -> frozenset[str]:
    return frozenset(f"{prefix}{number}" for number in range(count))


@pytest.mark.parametrize("risk", [0.0001, 0.01, 0.04])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.95])
def test_nothing_is_found_where_nothing_is_wrong(risk: float, share: float) -> None:
    scenario = Scenario(name="fine", risks=steady(risk, risk), share=share, live_requests=int(100_000 * share))
    assert simulate(scenario, trials=5).delays == ()


def test_nothing_is_found_in_a_long_good_history() -> None:
    for risk in (0.0001, 0.01, 0.04):
        scenario = Scenario(name="long", risks=steady(risk, risk), live_requests=100_000)
        assert simulate(scenario, trials=3).delays == ()


@pytest.mark.parametrize("name", ["outage in both arms", "outage among 60 conversations"])
def test_an_outage_of_both_arms_is_no_fault_of_the_live_one(name: str) -> None:
    assert simulate(SCENARIOS[name], trials=30).delays == ()


@pytest.mark.parametrize("name", ["one tenant, 30 % of live, always bad", "the same among 60 conversations"])
def test_one_failing_tenant_rolls_nothing_back(name: str) -> None:
    assert simulate(SCENARIOS[name], trials=30).delays == ()


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("1 % -> 5 %", 600),
        ("1 % -> 15 %", 150),
        ("0.5 % -> 2 %", 2000),
        ("0.01 % -> 2 %", 500),
        ("good for 10,000, then 5 %", 600),
        ("1 % -> 5 % among 60 conversations", 1500),
    ],
)
def test_a_fault_is_found_soon(name: str, within: int) -> None:
    result = simulate(SCENARIOS[name], trials=41)
    assert result.found_share == 1
    assert result.median is not None
    assert result.median <= within


@pytest.mark.parametrize("scenario", [one for one in SHARES if "1 % -> 20 %" in one.name], ids=lambda one: one.name)
def test_a_grave_fault_is_found_at_every_share(scenario: Scenario) -> None:
    assert simulate(scenario, trials=10).found_share == 1


def test_a_block_without_one_arm_waits_for_the_next() -> None:
    alone = Counts(live=10, live_bad=keys(10))
    state, found = run(alone)
    assert found is None
    assert state.evidence["arms"] == 0
    state = step(state, Counts(control=90), RULES)
    found = finding(state, RULES)
    together, also_found = run(Counts(live=10, live_bad=keys(10), control=90))
    assert state.arms.scores == together.arms.scores
    assert found == also_found
    assert found is not None


def test_an_arm_that_stays_empty_finds_nothing() -> None:
    state, found = run(*[Counts(live=50, live_bad=keys(50))] * 50)
    assert found is None
    assert state.arms.waiting.live == 2500
    assert finding(step(state, Counts(control=1), RULES), RULES) is None


def test_evidence_is_the_mean_of_the_likelihood_ratios() -> None:
    state, _ = run(Counts(live=10, control=90, live_bad=frozenset("a"), control_bad=frozenset("b")))
    odds = 1.25 * 10 / 90
    expected = []
    for ratio in (1.5, 2, 3, 5, 10, 30):
        fine, worse = odds / (1 + odds), ratio * odds / (1 + ratio * odds)
        expected.append(max(1.0, worse / fine * (1 - worse) / (1 - fine)))
    assert state.evidence["arms"] == pytest.approx(math.log(sum(expected) / 6))


def test_fewer_conversations_than_asked_for_are_no_fault() -> None:
    two = Counts(live=10, control=90, live_bad=keys(2))
    assert run(*[two] * 200)[1] is None
    three = Counts(live=10, control=90, live_bad=keys(3))
    assert run(*[three] * 10)[1] is not None
    assert run(*[three] * 200, rules=JudgeRules(min_keys=4))[1] is None


def test_conversations_that_failed_before_the_evidence_was_nil_are_forgotten() -> None:
    state, _ = run(Counts(live=10, control=90, live_bad=keys(3)))
    assert len(state.arms.live_keys) == 3
    state = step(state, Counts(live=10, control=90, control_bad=keys(80)), RULES)
    assert state.evidence["arms"] == 0
    assert state.arms.live_keys == {}
    for _ in range(200):
        state = step(state, Counts(live=10, control=90, live_bad=keys(2, "tenant")), RULES)
        assert finding(state, RULES) is None


def test_a_conversation_counts_again_once_enough_others_have_caught_up() -> None:
    def bad(*names: str) -> Counts:
        return Counts(live=10, control=90, live_bad=frozenset(names))

    state, _ = run(*[bad("k")] * 5)
    assert state.arms.live_keys == {"k": 1}
    for block in (bad("a", "b"), bad("k"), bad("k")):
        state = step(state, block, RULES)
    assert state.arms.live_keys == {"k": 2, "a": 1, "b": 1}


def test_a_small_difference_in_points_is_no_fault() -> None:
    """Ten times the risk, but of next to nothing."""
    blocks = [
        Counts(
            live=1000,
            control=1000,
            live_bad=frozenset({f"l{n}"}),
            control_bad=frozenset({f"c{n}"} if n % 10 == 0 else ()),
        )
        for n in range(300)
    ]
    state, found = run(*blocks)
    assert state.evidence["arms"] > RULES.limit
    assert found is None
    assert finding(state, JudgeRules(min_diff=0.0)) is not None


def test_a_fault_that_is_over_is_not_found_by_what_it_left() -> None:
    """The difference is taken over the last requests alone."""
    rules = JudgeRules(evidence=1e12)
    bad = [Counts(live=10, control=90, live_bad=frozenset({f"l{n}"})) for n in range(14)]
    state, found = run(*bad, rules=rules)
    assert found is None
    good = Counts(live=50, control=450)
    for _ in range(10):
        state = step(state, good, rules)
    assert [span.live for span in state.arms.recent] == [50] * 4, "as few as hold 200 requests of each arm"
    assert finding(state, JudgeRules(evidence=10)) is None


def test_the_numbers_say_why() -> None:
    _, found = run(Counts(live=20, control=180, live_bad=keys(12), control_bad=frozenset({"c"})))
    assert found is not None
    assert found.test == "arms"
    assert found.numbers["live"] == 20
    assert found.numbers["live_bad"] == 12
    assert found.numbers["control_bad"] == 1
    assert found.numbers["statistic"] >= found.numbers["limit"] == pytest.approx(math.log(10_000))
    assert found.numbers["difference"] == pytest.approx(12 / 20 - 1 / 180)


def test_transformations_have_a_budget_of_their_own() -> None:
    within = [Counts(live=50, attempts=50, failed=frozenset({f"k{n}"})) for n in range(400)]
    assert run(*within)[1] is None
    above = [Counts(live=50, attempts=50, failed=frozenset({f"k{n}-{m}" for m in range(5)})) for n in range(20)]
    state, found = run(*above)
    assert found is not None
    assert found.test == "transform"
    assert state.evidence["arms"] == 0


def test_what_works_speaks_for_the_transformation() -> None:
    state, _ = run(*[Counts(attempts=50, failed=frozenset({f"k{n}-{m}" for m in range(5)})) for n in range(3)])
    before = state.evidence["transform"]
    state = step(state, Counts(attempts=50), RULES)
    assert 0 < state.evidence["transform"] < before
    for _ in range(20):
        state = step(state, Counts(attempts=50), RULES)
    assert state.evidence["transform"] == 0


def test_one_conversation_does_not_spend_the_budget() -> None:
    assert run(*[Counts(attempts=5, failed=frozenset({"k"}))] * 500)[1] is None


@pytest.mark.parametrize("budget", [0.0001, 0.5, 0.95, 0.99, 1.0])
def test_every_budget_can_be_judged(budget: float) -> None:
    rules = JudgeRules(transform_budget=budget)
    _, found = run(*[Counts(attempts=20, failed=keys(20))] * 20, rules=rules)
    assert (found is None) == (budget >= 0.95)


def blocks() -> st.SearchStrategy[Counts]:
    some = st.frozensets(st.sampled_from([f"k{number}" for number in range(100)]), max_size=80)
    size = st.integers(0, 10**6)
    return st.builds(Counts, live=size, control=size, live_bad=some, control_bad=some, attempts=size, failed=some)


@settings(max_examples=60, deadline=None)
@given(st.lists(blocks(), max_size=40), st.sampled_from([1.0, 1.25, 100.0]), st.sampled_from([1, 3, 1000]))
def test_whatever_comes_the_state_stays_small_and_sane(given: list[Counts], ratio: float, min_keys: int) -> None:
    rules = JudgeRules(risk_ratio=ratio, min_keys=min_keys)
    state, _ = run(*given, rules=rules)
    for score in (*state.arms.scores, *state.budget.scores):
        assert 0 <= score <= MAX_SCORE
    assert len(state.arms.live_keys) <= MAX_KEYS
    assert len(state.arms.control_keys) <= MAX_KEYS
    assert len(state.arms.recent) <= 12
    assert msgspec.json.decode(msgspec.json.encode(state), type=JudgeState) == state


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_bad_requests_of_the_control_alone_are_never_a_fault(sizes: list[int]) -> None:
    assert run(*[Counts(live=size, control=size, control_bad=keys(size)) for size in sizes])[1] is None


def of(who: str, *conversations: str) -> frozenset[str]:
    return frozenset(f"{who}.{conversation}" for conversation in conversations)


def sick(*whose: str, second: int = 0) -> Counts:
    """A second in which each of these has three bad live requests, in conversations that are always others."""
    bad = frozenset().union(*(of(who, *(f"{who}{second}{each}" for each in "abc")) for who in whose))
    return Counts(live=20, control=20, live_bad=bad, attempts=20, failed=bad)


@pytest.mark.parametrize("credentials", [2, 3, 20])
def test_one_credential_alone_is_no_fault_for_all(credentials: int) -> None:
    """Whatever it reports, in however many conversations."""
    rules = JudgeRules(credentials=credentials)
    state, found = run(*(sick("eve", second=second) for second in range(300)), rules=rules)
    assert found is None
    assert max(state.evidence.values()) <= rules.limit / min(credentials, 3) + 0.1


@pytest.mark.parametrize("whose", [("ada", "bob"), ("ada", "bob", "eve"), ("", "ada", "bob")])
def test_a_fault_that_all_see_is_found_as_before(whose: tuple[str, ...]) -> None:
    rules = JudgeRules(credentials=len(whose))
    assert run(*(sick(*whose, second=second) for second in range(30)), rules=rules)[1] is not None
    assert run(*(sick("", second=second) for second in range(30)), rules=JudgeRules(credentials=1))[1] is not None


def test_what_one_credential_reported_while_it_was_alone_counts_less_once_another_asks() -> None:
    state, found = run(*(sick("eve", second=second) for second in range(30)))
    assert found is not None
    rules = JudgeRules(credentials=2)
    state = step(state, Counts(live=20, control=20, attempts=20), rules)
    assert finding(state, rules) is None


def test_what_waits_for_the_other_arm_is_still_whose_it_was() -> None:
    rules = JudgeRules(credentials=3)
    alone = [Counts(live=20, live_bad=of("eve", f"{second}a", f"{second}b")) for second in range(100)]
    state, found = run(*alone, Counts(control=2000), rules=rules)
    assert found is None
    assert 0 < state.evidence["arms"] <= rules.limit / 3 + 0.1


def test_parts_are_bounded() -> None:
    rules = JudgeRules(credentials=64)
    state, _ = run(
        *(sick(*(f"w{second}x{each}" for each in range(9)), second=second) for second in range(20)), rules=rules
    )
    assert len(state.arms.parts) <= MAX_WHO
    assert len(msgspec.json.encode(state)) < 40_000


@pytest.mark.parametrize("credentials", [2, 3, 9])
def test_a_moderate_fault_that_all_see_is_found_beside_a_base_of_bad_requests(credentials: int) -> None:
    """5 % in place of 1 %, for whoever asks."""
    rng, state = random.Random(7), JudgeState()
    rules = JudgeRules(credentials=credentials)
    for second in range(2_000):
        bad = frozenset(f"w{rng.randrange(credentials)}.k{second}x{each}" for each in range(10) if rng.random() < 0.05)
        control = frozenset(f"w0.c{second}x{each}" for each in range(10) if rng.random() < 0.01)
        state = step(state, Counts(live=10, control=10, live_bad=bad, control_bad=control), rules)
        if finding(state, rules) is not None:
            return
    raise AssertionError("not found")
