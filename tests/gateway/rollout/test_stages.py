"""The stages of a rollout: every way from one to another, and those that there must not be."""

from itertools import count

import msgspec
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.core.ports import Block
from gateway.core.records import DecisionRecord
from gateway.rollout.assignment import WHOLE
from gateway.rollout.codec import encoded, evidence_of, state_of
from gateway.rollout.counters import named
from gateway.rollout.evidence import ArmTotals, Evidence, Overhead, after, conversations
from gateway.rollout.gates import gates
from gateway.rollout.intervals import wilson
from gateway.rollout.judge import JudgeState
from gateway.rollout.stages import (
    Change,
    Cooling,
    Refused,
    RolloutRules,
    RolloutState,
    begun,
    configured,
    in_force,
    killed,
    more_careful,
    paused,
    promoted,
    reason_word,
    resumed,
    rolled_back,
    shown_state,
    slice_switched_off,
    unkilled,
)
from gateway.rollout.transitions import CLEAR_S, advanced, refreshed

CANARY = RolloutRules(transform_mode="canary")
STEPS = RolloutRules(transform_mode="canary", rollout_auto="promote")
NOW = 1_000_000.0
BY = "a test"


def begin(rules: RolloutRules = CANARY) -> RolloutState:
    return begun(rules, NOW, BY)


def fallen(state: RolloutState, rules: RolloutRules = CANARY, now: float = NOW) -> RolloutState:
    return rolled_back(state, rules, now=now, by=BY, reason="evidence", numbers={}).state


def promote(state: RolloutState, rules: RolloutRules = CANARY, now: float = NOW) -> RolloutState:
    return promoted(state, rules, now=now, by=BY, reason="by hand", numbers={}).state


def seconds(epoch: int, blocks: int = 20, *, first: int = 1, **bad: dict[str, int]) -> Evidence:
    """Evidence of so many seconds; `live={"recovery/hermes": 5}` are bad conversations a second."""
    evidence = Evidence(epoch=epoch)
    given = []
    for number in range(first, first + blocks):
        counts: dict[str, int] = {}
        marks: set[str] = set()
        for arm, size in (("live", 10), ("control", 90)):
            for where in ("recovery/hermes", "xml_prompt/tag_xml"):
                counts[named("requests", epoch, arm, where)] = size
                counts[named("seen", epoch, arm, where)] = size
                for one in range(bad.get(arm, {}).get(where, 0)):
                    marks.add(named("bad", epoch, arm, where, f"{arm} {where} {number} {one}"))
                    marks.add(named("example", epoch, arm, where, f"{where} {number}"))
        given.append(Block(number=number, counts=counts, marks=frozenset(marks)))
    return after(evidence, given, CANARY.judge())


def proven(state: RolloutState, *, live_bad: int = 0) -> Evidence:
    """Evidence that meets every gate, unless too much was bad."""
    arms = {
        "live": ArmTotals(requests=3000, seen=3000, bad=live_bad, attempts=3000),
        "control": ArmTotals(requests=9000, seen=9000, bad=0),
        "dry_run": ArmTotals(requests=3000, seen=3000, attempts=3000),
    }
    return Evidence(epoch=state.epoch, totals=arms, sketch=tuple(range(30)))


class TestSettings:
    def test_they_begin_the_rollout(self) -> None:
        assert begin(RolloutRules()).state == "full"
        assert begin(RolloutRules()).percent == WHOLE
        assert begin(RolloutRules(canary_holdback_percent=500)).percent == 9500
        assert begin(RolloutRules(transform_mode="off")).percent == 0
        assert begin(CANARY).percent == 1000
        assert begin(STEPS).percent == 100, "the steps apply where promotion goes by itself"

    def test_who_is_live_makes_a_configuration(self) -> None:
        digest = CANARY.digest()
        for other in (
            evolve(CANARY, canary_percent=2000),
            evolve(CANARY, transform_mode="full"),
            evolve(CANARY, canary_steps=(100,)),
            evolve(CANARY, canary_holdback_percent=100),
        ):
            assert other.digest() != digest
        for same in (evolve(CANARY, rollback_evidence=10.0), evolve(CANARY, kill_switch=True), evolve(CANARY)):
            assert same.digest() == digest

    def test_a_stored_step_stays_until_they_change(self) -> None:
        state = promote(begin())
        assert state.percent == 2500
        assert configured(state, CANARY, now=NOW, by=BY) is None
        change = configured(state, evolve(CANARY, canary_percent=300), now=NOW, by=BY)
        assert change is not None
        assert change.state.percent == 300
        assert change.state.epoch == state.epoch + 1
        assert change.decision.reason == "new_configuration"

    def test_new_ones_lift_a_rollback_only_when_it_is_cool(self) -> None:
        state = fallen(begin())
        other = evolve(CANARY, canary_percent=500)
        assert configured(state, other, now=NOW + 1799, by=BY) is None
        change = configured(state, other, now=NOW + 1800, by=BY)
        assert change is not None
        assert (change.state.state, change.state.percent) == ("canary", 500)

    def test_more_careful_ones_count_at_once(self) -> None:
        change = configured(fallen(begin()), RolloutRules(transform_mode="off"), now=NOW + 1, by=BY)
        assert change is not None
        assert change.state.state == "off"
        again = configured(change.state, CANARY, now=NOW + 2, by=BY)
        assert again is None, "a rollback is not lifted by way of another mode"

    def test_full_after_a_rollback_begins_with_the_first_step(self) -> None:
        change = configured(fallen(begin()), RolloutRules(), now=NOW + 9000, by=BY)
        assert change is not None
        assert (change.state.state, change.state.percent, change.state.step) == ("canary", 100, 0)

    def test_they_leave_a_kill_switch_on(self) -> None:
        state = killed(begin(), now=NOW, by=BY, reason="r").state
        change = configured(state, RolloutRules(), now=NOW, by=BY)
        assert change is not None
        assert change.state.killed


class TestPromotion:
    def test_goes_through_the_steps_to_full(self) -> None:
        state, seen = begin(STEPS), []
        while state.state != "full":
            state = promote(state, STEPS)
            seen.append((state.state, state.percent))
        assert seen == [("canary", 500), ("canary", 2500), ("canary", 5000), ("canary", 9500), ("full", WHOLE)]
        assert state.epoch == 6

    def test_of_a_dry_run_begins_the_canary(self) -> None:
        state = promote(begin(RolloutRules(transform_mode="dry_run")))
        assert (state.state, state.percent, state.step) == ("canary", 100, 0)

    @pytest.mark.parametrize("mode", ["off", "full"])
    def test_has_nowhere_to_go(self, mode: str) -> None:
        with pytest.raises(Refused):
            promote(begin(RolloutRules(transform_mode=mode)))  # type: ignore[arg-type]

    def test_is_refused_where_something_forbids_it(self) -> None:
        for state in (
            fallen(begin()),
            paused(begin(), now=NOW, by=BY, reason="r").state,
            killed(begin(), now=NOW, by=BY, reason="r").state,
        ):
            with pytest.raises(Refused):
                promote(state, now=NOW + 1e6)

    def test_waits_for_a_rollback_to_cool_down(self) -> None:
        state = fallen(begin())
        dry = configured(state, RolloutRules(transform_mode="dry_run"), now=NOW, by=BY)
        assert dry is not None
        with pytest.raises(Cooling):
            promote(dry.state)

    def test_comes_by_itself_when_all_gates_are_met(self) -> None:
        state = begin(STEPS)
        evidence = proven(state)
        assert advanced(state, STEPS, evidence, now=NOW + 3599, by=BY) is None
        change = advanced(state, STEPS, evidence, now=NOW + 3600, by=BY)
        assert change is not None
        assert (change.decision.decision, change.state.percent) == ("promote", 500)
        assert change.decision.numbers["requests"] == 3000
        assert advanced(state, CANARY, evidence, now=NOW + 3600, by=BY) is None, "only with ROLLOUT_AUTO=promote"

    def test_is_held_by_what_is_not_shown(self) -> None:
        state = begin(STEPS)
        change = advanced(state, STEPS, proven(state, live_bad=30), now=NOW + 3600, by=BY)
        assert change is not None
        assert change.decision.decision == "hold"
        assert change.state.held == ("bad_share",)
        assert change.state.percent == state.percent
        assert advanced(change.state, STEPS, proven(state, live_bad=30), now=NOW + 3700, by=BY) is None, "said once"

    def test_is_held_by_one_window_above_the_time_budget(self) -> None:
        state = begin(STEPS)
        slow = evolve(proven(state), overhead=Overhead(over_in_row=1))
        change = advanced(state, STEPS, slow, now=NOW + 3600, by=BY)
        assert change is not None
        assert change.state.held == ("overhead_windows",)

    def test_asks_for_evidence_of_this_epoch(self) -> None:
        state = begin(STEPS)
        old = evolve(proven(state), epoch=state.epoch - 1)
        assert advanced(state, STEPS, old, now=NOW + 9999, by=BY) is None
        unmet = {gate.name for gate in gates(state, STEPS, old, NOW + 9999) if not gate.is_met}
        assert unmet == {"requests", "conversations", "bad_share"}

    def test_of_a_dry_run_asks_for_readings_that_work(self) -> None:
        rules = evolve(STEPS, transform_mode="dry_run")
        state = begin(rules)
        failing = evolve(proven(state), totals={"dry_run": ArmTotals(requests=3000, attempts=3000, failed=100)})
        held = advanced(state, rules, failing, now=NOW + 3600, by=BY)
        assert held is not None
        assert held.state.held == ("failed_share",)
        change = advanced(state, rules, proven(state), now=NOW + 3600, by=BY)
        assert change is not None
        assert change.state.state == "canary"

    def test_bound_is_that_of_wilson(self) -> None:
        assert wilson(0, 300)[1] == pytest.approx(0.01264, abs=1e-4)
        assert wilson(0, 3000)[1] == pytest.approx(0.00128, abs=1e-5)
        assert wilson(0, 0)[1] == 1
        assert wilson(9, 5)[1] == 1


class TestRollback:
    def test_leaves_nobody_live(self) -> None:
        for mode in ("dry_run", "off"):
            rules = evolve(CANARY, rollback_mode=mode)
            state = fallen(begin(), rules)
            assert in_force(state, rules).mode == mode
            assert state.epoch == 2

    def test_cools_down_longer_each_time(self) -> None:
        state, now, waits = begin(), NOW, []
        for _ in range(4):
            state = fallen(state, now=now)
            waits.append(state.cooldown_until - now)
            with pytest.raises(Cooling):
                resumed(state, CANARY, now=state.cooldown_until - 1, by=BY, reason="r")
            now = state.cooldown_until
            state = resumed(state, CANARY, now=now, by=BY, reason="r").state
        assert waits == [1800, 3600, 7200, 14400]
        late = fallen(state, now=now + 90_000)
        assert late.cooldown_until - now - 90_000 == 1800, "what is older than a day is forgotten"

    def test_resumes_at_the_beginning(self) -> None:
        high = promote(promote(begin(STEPS), STEPS), STEPS)
        state = resumed(fallen(high, STEPS), STEPS, now=NOW + 1800, by=BY, reason="r").state
        assert (state.state, state.percent, state.step) == ("canary", 100, 0)
        full = fallen(begin(RolloutRules()), RolloutRules())
        assert resumed(full, RolloutRules(), now=NOW + 1800, by=BY, reason="r").state.percent == 100
        dry = RolloutRules(transform_mode="dry_run")
        assert resumed(fallen(begin()), dry, now=NOW + 1800, by=BY, reason="r").state.state == "dry_run"

    def test_needs_somebody_live(self) -> None:
        for mode in ("off", "dry_run"):
            with pytest.raises(Refused):
                fallen(begin(RolloutRules(transform_mode=mode)))
        with pytest.raises(Refused):
            fallen(fallen(begin()))

    def test_comes_with_numbers_and_examples(self) -> None:
        state = begin()
        evidence = seconds(state.epoch, live={"recovery/hermes": 3, "xml_prompt/tag_xml": 3})
        rules = evolve(CANARY, rollback_scope="all")
        change = advanced(state, rules, evidence, now=NOW, by=BY)
        assert change is not None
        assert change.decision.decision == "rollback"
        assert change.decision.slice == "all"
        assert change.decision.state_before == "canary"
        assert change.decision.state_after == "rolled_back"
        assert change.decision.numbers["statistic"] > change.decision.numbers["limit"]
        assert 0 < len(change.decision.examples) <= 10

    def test_is_for_nobody_where_nothing_happens_by_itself(self) -> None:
        evidence = seconds(1, live={"recovery/hermes": 5, "xml_prompt/tag_xml": 5})
        assert advanced(begin(), evolve(CANARY, rollout_auto="none"), evidence, now=NOW, by=BY) is None

    def test_ignores_evidence_of_another_epoch(self) -> None:
        evidence = seconds(1, live={"recovery/hermes": 5, "xml_prompt/tag_xml": 5})
        assert advanced(evolve(begin(), epoch=2), CANARY, evidence, now=NOW, by=BY) is None

    def test_comes_while_paused_too(self) -> None:
        state = paused(begin(), now=NOW, by=BY, reason="r").state
        rules = evolve(CANARY, rollback_scope="all")
        change = advanced(state, rules, seconds(1, live={"recovery/hermes": 5}), now=NOW, by=BY)
        assert change is not None
        assert change.state.state == "rolled_back"
        assert change.state.paused_from is None


class TestSlices:
    BAD = {"recovery/hermes": 4}  # noqa: RUF012 - a constant

    def test_the_one_that_is_worse_is_switched_off_alone(self) -> None:
        state = begin()
        evidence = seconds(state.epoch, live=self.BAD)
        evidence = evolve(evidence, examples=(*evidence.examples, ("xml_prompt/tag_xml", "another")))
        change = advanced(state, CANARY, evidence, now=NOW, by=BY)
        assert change is not None
        assert change.decision.decision == "slice_off"
        assert change.decision.slice == "recovery/hermes"
        assert change.state.slices_off == ("recovery/hermes",)
        assert (change.state.state, change.state.percent, change.state.epoch) == ("canary", 1000, state.epoch)
        assert len(change.decision.examples) > 1
        assert all("hermes" in example for example in change.decision.examples)
        left = evidence.aligned(state.epoch, change.state.slices_off)
        assert advanced(change.state, CANARY, left, now=NOW, by=BY) is None, "the rest goes on"

    def test_what_is_off_counts_for_nothing(self) -> None:
        state = slice_switched_off(begin(), "recovery/hermes", now=NOW, by=BY, reason="evidence", numbers={}).state
        evidence = Evidence(epoch=1).aligned(1, state.slices_off)
        bad = Block(
            number=1,
            counts={
                named("seen", 1, "live", "recovery/hermes"): 10,
                named("seen", 1, "control", "recovery/hermes"): 90,
            },
            marks=frozenset(named("bad", 1, "live", "recovery/hermes", f"k{n}") for n in range(10)),
        )
        assert after(evidence, [bad], CANARY.judge()).overall.evidence["arms"] == 0

    def test_with_scope_all_everything_falls_back(self) -> None:
        change = advanced(begin(), evolve(CANARY, rollback_scope="all"), seconds(1, live=self.BAD), now=NOW, by=BY)
        assert change is not None
        assert change.state.state == "rolled_back"

    def test_a_fault_counts_whether_all_or_one_alone_shows_it(self) -> None:
        found = seconds(1, live=self.BAD)
        for evidence in (evolve(found, slices={}), evolve(found, overall=JudgeState())):
            change = advanced(begin(), evolve(CANARY, rollback_scope="all"), evidence, now=NOW, by=BY)
            assert change is not None
            assert change.state.state == "rolled_back"

    def test_the_third_takes_the_rest_with_it(self) -> None:
        state = evolve(begin(), slices_off=("recovery/glm", "recovery/kimi"))
        evidence = evolve(seconds(1, live=self.BAD), slices_off=state.slices_off)
        change = advanced(state, CANARY, evidence, now=NOW, by=BY)
        assert change is not None
        assert change.state.state == "rolled_back"

    @pytest.mark.parametrize(("live", "decision"), [(319, "slice_off"), (320, "rollback")])
    def test_one_that_is_nearly_everything_is_everything(self, live: int, decision: str) -> None:
        evidence = seconds(1, live=self.BAD)
        assert evidence.arm("live").seen == 400
        slices = evidence.slices
        large = evolve(evidence, slices={**slices, "recovery/hermes": evolve(slices["recovery/hermes"], live=live)})
        change = advanced(begin(), CANARY, large, now=NOW, by=BY)
        assert change is not None
        assert change.decision.decision == decision

    def test_resume_switches_them_on_again(self) -> None:
        state = evolve(begin(), slices_off=("recovery/glm",))
        change = resumed(state, CANARY, now=NOW, by=BY, reason="r")
        assert change.state.slices_off == ()
        assert change.state.epoch == state.epoch + 1
        with pytest.raises(Refused):
            resumed(change.state, CANARY, now=NOW, by=BY, reason="r")


class TestPause:
    def slow(self, windows: int) -> Evidence:
        return Evidence(epoch=1, overhead=Overhead(over_in_row=windows))

    def test_comes_with_the_third_slow_window(self) -> None:
        assert advanced(begin(), CANARY, self.slow(2), now=NOW, by=BY) is None
        change = advanced(begin(), CANARY, self.slow(3), now=NOW, by=BY)
        assert change is not None
        assert (change.state.state, change.state.percent, change.state.epoch) == ("paused", 1000, 1)
        assert change.decision.reason == "overhead"
        assert in_force(change.state, CANARY) == in_force(begin(), CANARY), "the share is frozen"

    def test_windows_are_counted_in_a_row(self) -> None:
        def windows(*slow: int) -> int:
            evidence, number = Evidence(epoch=1), count(1)
            for share in slow:
                for _ in range(61):
                    counts = {
                        named("attempts", 1, "live", "s/d"): 100,
                        named("slow", 1, "live", "s/d"): share,
                    }
                    block = Block(number=next(number), counts=counts, marks=frozenset())
                    evidence = after(evidence, [block], CANARY.judge())
            return evidence.overhead.over_in_row

        assert windows(10, 10, 10) == 3
        assert windows(10, 10, 0) == 0
        assert windows(5, 5, 5) == 0, "the 95th percentile is within the budget"

    def test_comes_when_workers_disagree_for_long(self) -> None:
        evidence = Evidence(epoch=1)
        for number in range(1, 200):
            marks = frozenset(named("settings", 0, "", subject=digest) for digest in ("one", "other"))
            evidence = after(evidence, [Block(number=number, counts={}, marks=marks)], CANARY.judge())
            change = advanced(begin(), CANARY, evidence, now=NOW, by=BY)
            assert (change is not None) == (number >= 121)
        assert change is not None
        assert change.decision.reason == "workers_disagree"
        alone = Block(number=300, counts={}, marks=frozenset({named("settings", 0, "", subject="one")}))
        assert after(evidence, [alone], CANARY.judge()).differ_since is None

    def test_ends_when_the_cause_has_been_gone_for_long(self) -> None:
        change = advanced(begin(), CANARY, self.slow(3), now=NOW, by=BY)
        assert change is not None
        again = refreshed(change.state, self.slow(3), NOW + 100)
        assert again is not None
        assert refreshed(again, self.slow(3), NOW + 110) is None, "not noted more often than it has to be"
        assert advanced(again, CANARY, self.slow(0), now=NOW + 100 + CLEAR_S - 1, by=BY) is None
        over = advanced(again, CANARY, self.slow(0), now=NOW + 100 + CLEAR_S, by=BY)
        assert over is not None
        assert (over.state.state, over.state.percent, over.state.epoch) == ("canary", 1000, 1)
        assert over.decision.reason == "cause_gone"

    def test_by_hand_ends_by_hand(self) -> None:
        state = paused(begin(RolloutRules()), now=NOW, by=BY, reason="looking").state
        assert advanced(state, CANARY, Evidence(epoch=1), now=NOW + 1e6, by=BY) is None
        assert resumed(state, CANARY, now=NOW, by=BY, reason="r").state.state == "full"

    def test_by_hand_takes_over_one_that_came_by_itself(self) -> None:
        change = advanced(begin(), CANARY, self.slow(3), now=NOW, by=BY)
        assert change is not None
        mine = paused(change.state, now=NOW, by=BY, reason="looking").state
        assert (mine.pause_cause, mine.paused_from) == ("", "canary")
        with pytest.raises(Refused):
            paused(mine, now=NOW, by=BY, reason="again")

    def test_has_nothing_to_freeze(self) -> None:
        for state in (begin(RolloutRules(transform_mode="off")), fallen(begin())):
            with pytest.raises(Refused):
                paused(state, now=NOW, by=BY, reason="r")


class TestKillSwitch:
    @pytest.mark.parametrize("mode", ["off", "dry_run", "canary", "full"])
    def test_turns_everything_off_and_gives_it_back(self, mode: str) -> None:
        rules = RolloutRules(transform_mode=mode)  # type: ignore[arg-type]
        state = begin(rules)
        off = killed(state, now=NOW, by=BY, reason="r")
        assert in_force(off.state, rules).mode == "off"
        assert shown_state(off.state) == off.decision.state_after == "off"
        on = unkilled(off.state, now=NOW, by=BY, reason="r")
        assert (on.state.state, on.state.percent) == (state.state, state.percent)
        assert on.state.epoch == state.epoch + 2

    def test_keeps_a_pause_and_a_rollback(self) -> None:
        for state in (paused(begin(), now=NOW, by=BY, reason="r").state, fallen(begin())):
            off = killed(state, now=NOW, by=BY, reason="r").state
            on = unkilled(off, now=NOW, by=BY, reason="r").state
            assert (on.state, on.paused_from, on.cooldown_until) == (
                state.state,
                state.paused_from,
                state.cooldown_until,
            )

    def test_is_on_or_off(self) -> None:
        off = killed(begin(), now=NOW, by=BY, reason="r").state
        with pytest.raises(Refused):
            killed(off, now=NOW, by=BY, reason="r")
        with pytest.raises(Refused):
            unkilled(begin(), now=NOW, by=BY, reason="r")
        with pytest.raises(Refused):
            resumed(off, CANARY, now=NOW, by=BY, reason="r")
        assert advanced(off, CANARY, seconds(off.epoch, live={"recovery/hermes": 9}), now=NOW, by=BY) is None

    def test_of_a_process_counts_too(self) -> None:
        assert in_force(begin(), CANARY, killed=True).mode == "off"


def states() -> st.SearchStrategy[RolloutState]:
    return st.builds(
        RolloutState,
        state=st.sampled_from(["off", "dry_run", "canary", "full", "paused", "rolled_back"]),
        percent=st.integers(0, WHOLE),
        epoch=st.integers(1, 1000),
        revision=st.integers(0, 1000),
        reason=st.text(max_size=5),
        slices_off=st.lists(st.sampled_from(["a/b", "c/d"]), unique=True).map(tuple),
        killed=st.booleans(),
        cooldown_until=st.floats(0, 1e10),
        rollbacks=st.lists(st.floats(0, 1e10), max_size=3).map(lambda times: tuple(sorted(times))),
        rules=st.none() | st.just(CANARY),
    )


class TestEvidence:
    def test_is_that_of_its_epoch(self) -> None:
        bad = Block(
            number=1,
            counts={named("seen", 1, "live", "a/b"): 5, named("requests", 1, "live", "a/b"): 5},
            marks=frozenset({named("bad", 1, "live", "a/b", "k"), named("key", 1, "live", subject="k")}),
        )
        ours, theirs = (after(Evidence(epoch=epoch), [bad], CANARY.judge()) for epoch in (1, 2))
        assert (ours.arm("live").bad, ours.arm("live").seen, conversations(ours)) == (1, 5, 1)
        assert theirs == Evidence(epoch=2, block=1, overhead=Overhead(began=1))

    def test_takes_every_block_once(self) -> None:
        block = Block(number=4, counts={named("requests", 1, "live", "a/b"): 5}, marks=frozenset())
        once = after(Evidence(epoch=1), [block], CANARY.judge())
        assert after(once, [block, evolve(block, number=3)], CANARY.judge()) == once

    def test_outlives_its_writing_down(self) -> None:
        evidence = seconds(1, live={"recovery/hermes": 3}, control={"xml_prompt/tag_xml": 2})
        assert evidence_of(encoded(evidence)) == evidence
        assert len(encoded(evidence)) < 20_000

    @pytest.mark.parametrize("many", [100, 1000, 50_000])
    def test_counts_conversations(self, many: int) -> None:
        marks = frozenset(named("key", 1, "live", subject=f"key {number}") for number in range(many))
        evidence = Evidence(epoch=1)
        for number in (1, 2):
            evidence = after(evidence, [Block(number=number, counts={}, marks=marks)], CANARY.judge())
        assert conversations(evidence) == pytest.approx(many, rel=0 if many == 100 else 0.3)

    def test_is_bounded(self) -> None:
        evidence = Evidence(epoch=1)
        for number in range(1, 30):
            names = [f"s{n}/d{number}" for n in range(20)]
            counts = {named("seen", 1, arm, name): 10 for arm in ("live", "control") for name in names}
            marks = {named("bad", 1, "live", name, f"{number} {n}" * 20) for name in names for n in range(50)}
            block = Block(number=number, counts=counts, marks=frozenset(marks))
            evidence = after(evidence, [block], CANARY.judge())
        assert len(evidence.slices) == 32
        assert len(encoded(evidence)) < 1_000_000

    def test_without_a_dialect_is_no_slice(self) -> None:
        counts = {named("seen", 1, "live", name): 5 for name in ("recovery/none", "recovery/glm", "")}
        evidence = after(Evidence(epoch=1), [Block(number=1, counts=counts, marks=frozenset())], CANARY.judge())
        assert set(evidence.slices) == {"recovery/glm"}

    def test_names_of_other_versions_say_nothing(self) -> None:
        names = ["", "|", "n", "z|1|live|a/b|", "n|one|live|a/b|", "n|-1|live|a/b|", "n|\u0661|live|a/b|", "|" * 1000]
        block = Block(number=1, counts=dict.fromkeys(names, 1), marks=frozenset(names))
        assert after(Evidence(epoch=1), [block], CANARY.judge()) == Evidence(
            epoch=1, block=1, overhead=Overhead(began=1)
        )


class TestMeeting:
    @settings(max_examples=200)
    @given(states(), states())
    def test_the_more_careful_wins(self, one: RolloutState, other: RolloutState) -> None:
        both = more_careful(one, other)
        for state in (one, other):
            assert in_force(both, CANARY).percent <= in_force(state, CANARY).percent
            assert both.epoch >= state.epoch
            assert both.cooldown_until >= state.cooldown_until
            assert both.killed or not state.killed
            assert set(both.slices_off) >= set(state.slices_off)
        assert both.state == more_careful(other, one).state
        if one != other:
            assert both.revision > max(one.revision, other.revision)

    def test_a_rollback_outlives_an_older_state(self) -> None:
        assert more_careful(begin(RolloutRules(transform_mode="off")), fallen(begin())).state == "rolled_back"

    @settings(max_examples=100)
    @given(states())
    def test_a_state_outlives_its_writing_down(self, state: RolloutState) -> None:
        assert state_of(encoded(state)) == state

    def test_what_cannot_be_read_is_no_state(self) -> None:
        for raw in (None, b"", b"[]", b"{", b'{"state": "unheard of"}', b"[" * 10_000, b"\xff"):
            assert state_of(raw) is None
        newer = msgspec.json.encode({"state": "canary", "percent": 5, "unknown": [1]})
        assert state_of(newer) == RolloutState(state="canary", percent=5)


def test_what_an_operator_wrote_is_one_word_for_metrics() -> None:
    change = paused(begin(), now=NOW, by=BY, reason="I was told to")
    assert reason_word(change.decision) == "operator"
    assert reason_word(evolve(change.decision, reason="overhead")) == "overhead"


class Rollout(RuleBasedStateMachine):
    """Everything that may happen to a rollout, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.given = CANARY
        self.now = NOW
        self.state = begin()
        self.decisions: list[DecisionRecord] = []

    @initialize(
        mode=st.sampled_from(["off", "dry_run", "canary", "full"]), auto=st.sampled_from(["rollback", "promote"])
    )
    def start(self, mode: str, auto: str) -> None:
        self.given = RolloutRules(transform_mode=mode, rollout_auto=auto)  # type: ignore[arg-type]
        self.state = begun(self.given, self.now, BY)

    def take(self, change: Change | None) -> None:
        """Check what holds of every change, and take it."""
        if change is None:
            return
        before, after, decision = self.state, change.state, change.decision
        share = in_force(before, self.given).percent, in_force(after, self.given).percent
        assert after.revision == before.revision + 1
        assert after.epoch in (before.epoch, before.epoch + 1)
        assert (decision.state_before, decision.state_after) == (shown_state(before), shown_state(after))
        assert decision.epoch == after.epoch
        if share[0] != share[1]:
            assert after.epoch == before.epoch + 1, "others are live: a new epoch"
        if share[1] > share[0]:
            assert decision.decision in ("promote", "resume", "unkill")
            assert decision.decision != "resume" or before.state in ("rolled_back", "paused") or self.is_new
        if before.state == "rolled_back" and after.state != "rolled_back":
            assert decision.decision == "resume"
            assert self.now >= before.cooldown_until or after.state in ("off", "dry_run")
        if set(before.slices_off) - set(after.slices_off):
            assert decision.decision == "resume"
        self.state = after
        self.decisions.append(decision)

    is_new = False

    def attempt(self, make: object) -> None:
        try:
            self.take(make())  # type: ignore[operator]
        except Refused:
            pass

    @rule(seconds=st.sampled_from([1.0, 700.0, 3600.0, 100_000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def promote(self) -> None:
        self.attempt(lambda: promoted(self.state, self.given, now=self.now, by=BY, reason="r", numbers={}))

    @rule()
    def roll_back(self) -> None:
        self.attempt(lambda: rolled_back(self.state, self.given, now=self.now, by=BY, reason="r", numbers={}))

    @rule()
    def pause(self) -> None:
        self.attempt(lambda: paused(self.state, now=self.now, by=BY, reason="r"))

    @rule()
    def resume(self) -> None:
        self.attempt(lambda: resumed(self.state, self.given, now=self.now, by=BY, reason="r"))

    @rule()
    def kill(self) -> None:
        self.attempt(lambda: killed(self.state, now=self.now, by=BY, reason="r"))

    @rule()
    def unkill(self) -> None:
        self.attempt(lambda: unkilled(self.state, now=self.now, by=BY, reason="r"))

    @rule()
    def restart(self) -> None:
        """A process begins anew under the same settings and finds the stored state."""
        stored = state_of(encoded(self.state))
        assert stored == self.state
        if self.state.digest == self.given.digest():
            assert configured(stored, self.given, now=self.now, by=BY) is None

    @rule(percent=st.integers(0, WHOLE), mode=st.sampled_from(["off", "dry_run", "canary", "full"]))
    def configure(self, percent: int, mode: str) -> None:
        self.given = evolve(self.given, canary_percent=percent, transform_mode=mode)  # type: ignore[arg-type]
        self.is_new = True
        self.attempt(lambda: configured(self.state, self.given, now=self.now, by=BY))
        self.is_new = False

    @rule(bad=st.sampled_from([{}, {"recovery/hermes": 5}, {"recovery/hermes": 5, "xml_prompt/tag_xml": 5}]))
    def judge(self, bad: dict[str, int]) -> None:
        evidence = seconds(self.state.epoch, live=bad).aligned(self.state.epoch, self.state.slices_off)
        before = self.state
        self.attempt(lambda: advanced(self.state, self.given, evidence, now=self.now, by=BY))
        if before.killed or before.state in ("off", "rolled_back"):
            assert self.state == before, "nothing goes on by itself from here"

    @rule()
    def prove(self) -> None:
        self.attempt(lambda: advanced(self.state, self.given, proven(self.state), now=self.now, by=BY))

    @precondition(lambda self: self.state.state == "paused")
    @invariant()
    def a_pause_knows_where_it_came_from(self) -> None:
        assert self.state.paused_from in ("canary", "full")

    @invariant()
    def a_kill_switch_is_obeyed(self) -> None:
        if self.state.killed:
            assert in_force(self.state, self.given).mode == "off"

    @invariant()
    def nobody_is_live_after_a_rollback(self) -> None:
        if self.state.state == "rolled_back":
            assert in_force(self.state, self.given).mode in ("dry_run", "off")
            assert self.state.percent == 0


Rollout.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRollout = Rollout.TestCase
