"""The agent: what one process makes of the rollout that it shares, with the store there or away."""

import random
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest
from attrs import define, evolve, field

from gateway.background.rollout_agent import LOST_S, RolloutAgent
from gateway.core.ports import Block, StoreError
from gateway.core.records import DecisionRecord
from gateway.rollout.assignment import WHOLE, Assignment
from gateway.rollout.call_ids import CallMark
from gateway.rollout.codec import EVIDENCE_KEY, STATE_KEY, encoded, state_of
from gateway.rollout.stages import RolloutRules, RolloutState, begun, killed, promoted, rolled_back, unkilled
from gateway.state.memory import MemoryStore

CANARY = RolloutRules(transform_mode="canary")
ALL = evolve(CANARY, rollback_scope="all")
BY = "a test"


class Store(MemoryStore):
    """In memory, and away on demand."""

    is_away = False

    async def get(self, *keys: str) -> dict[str, bytes]:
        self._check()
        return await super().get(*keys)

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        self._check()
        return await super().swap(key, old, new)

    async def tally(self, counts: Mapping[str, int], marks: Collection[str]) -> None:
        self._check()
        await super().tally(counts, marks)

    async def blocks(self, after: int) -> list[Block]:
        self._check()
        return await super().blocks(after)

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("away")


@define
class World:
    """A clock, a store, and the processes that share them."""

    now: float = 1_000_000.0
    store: Store = field(init=False)
    decisions: list[DecisionRecord] = field(factory=list)
    rng: random.Random = field(factory=lambda: random.Random(5))
    requests: int = 0

    def __attrs_post_init__(self) -> None:
        self.store = Store(wall=lambda: self.now)

    def clock(self) -> float:
        return self.now

    def agent(self, rules: RolloutRules = ALL, *, store: Store | None = None, name: str = "one") -> RolloutAgent:
        return RolloutAgent(
            store=store or self.store,
            rules=rules,
            clock=self.clock,
            salt=b"salt",
            on_decision=self.decisions.append,
            name=name,
        )

    async def second(
        self,
        *agents: RolloutAgent,
        live: float = 0.0,
        control: float = 0.0,
        requests: int = 50,
        dialect: Callable[[], str] = lambda: "hermes",
        bad_dialect: str = "",
    ) -> None:
        """One second of traffic on all of them, with these shares of bad requests."""
        for _ in range(4):
            for agent in agents:
                for _ in range(requests // 4):
                    self.requests += 1
                    key = f"key {self.rng.randrange(2000)}"
                    assignment = agent.assign(key)
                    where = dialect()
                    risk = live if assignment.arm == "live" and bad_dialect in ("", where) else control
                    agent.ended(
                        assignment,
                        strategy="recovery",
                        dialect=where,
                        key=key,
                        bad=self.rng.random() < risk,
                        request_id=f"request {self.requests}",
                        transformed=True if assignment.arm != "control" else None,
                    )
                await agent.tick()
            self.now += 0.25

    async def stored(self) -> RolloutState:
        state = state_of((await self.store.get(STATE_KEY)).get(STATE_KEY))
        assert state is not None
        return state

    async def put(self, state: RolloutState) -> None:
        await self.store.put(STATE_KEY, encoded(state))

    def took(self, decision: str) -> list[DecisionRecord]:
        return [one for one in self.decisions if one.decision == decision]


@pytest.fixture
def world() -> World:
    return World()


async def test_nothing_happens_without_a_fault(world: World) -> None:
    one, two = world.agent(), world.agent(name="two")
    for _ in range(60):
        await world.second(one, two, live=0.01, control=0.01)
    assert world.decisions == []
    assert one.snapshot().state == "canary"
    assert one.snapshot().percent_effective == 1000
    assert one.snapshot().counts == two.snapshot().counts
    assert one.snapshot().counts["live_requests"] > 300


async def test_both_obey_the_one_rollback(world: World) -> None:
    one, two = world.agent(), world.agent(name="two")
    for _ in range(20):
        await world.second(one, two, live=0.5, control=0.01)
    assert len(world.took("rollback")) == 1
    for agent in (one, two):
        assert agent.snapshot().state == "rolled_back"
        assert agent.snapshot().percent_effective == 0
        assert agent.snapshot().epoch == 2
        assert {agent.assign(f"k{n}").arm for n in range(100)} == {"dry_run"}
    decision = world.took("rollback")[0]
    assert decision.numbers["statistic"] >= decision.numbers["limit"]
    assert decision.examples
    assert all(example.startswith("request ") for example in decision.examples)


async def test_outage_of_both_arms_changes_nothing(world: World) -> None:
    one, two = world.agent(), world.agent(name="two")
    for _ in range(60):
        await world.second(one, two, live=0.5, control=0.5)
    assert world.decisions == []


async def test_one_failing_conversation_changes_nothing(world: World) -> None:
    one = world.agent()
    tenant = next(key for key in (f"tenant {n}" for n in range(1000)) if one.assign(key).arm == "live")
    for _ in range(200):
        for number in range(15):
            one.ended(one.assign(tenant), strategy="recovery", dialect="hermes", key=tenant, bad=True)
            if number % 5 == 0:
                await world.second(one, live=0.01, control=0.01, requests=40)
                world.now -= 0.9
    assert world.decisions == []


async def test_a_clock_that_was_ahead_does_not_blind_the_judge(world: World) -> None:
    one, two = world.agent(), world.agent(name="two")
    for _ in range(10):
        await world.second(one, two, live=0.01, control=0.01)
    world.now -= 7200
    for _ in range(20):
        await world.second(one, two, live=0.5, control=0.01)
    assert len(world.took("rollback")) == 1
    assert one.snapshot().state == two.snapshot().state == "rolled_back"


async def test_slice_that_is_worse_is_switched_off_alone(world: World) -> None:
    one, two = world.agent(CANARY), world.agent(CANARY, name="two")
    for _ in range(40):
        await world.second(
            one, two, live=0.5, control=0.01, bad_dialect="glm", dialect=lambda: world.rng.choice(["hermes", "glm"])
        )
    assert [(one.decision, one.slice) for one in world.decisions] == [("slice_off", "recovery/glm")]
    for agent in (one, two):
        assert agent.slices_off == {"recovery/glm"}
        assert agent.snapshot().state == "canary"


async def test_restart_does_not_resume(world: World) -> None:
    one = world.agent()
    for _ in range(10):
        await world.second(one, live=0.5, requests=100)
    assert one.snapshot().state == "rolled_back"
    world.now += 1e6
    again = world.agent(name="two")
    await again.tick()
    assert again.snapshot().state == "rolled_back"
    assert len(world.decisions) == 1


async def test_restart_keeps_a_promoted_share(world: World) -> None:
    await world.agent().tick()
    state = await world.stored()
    await world.put(promoted(state, ALL, now=world.now, by=BY, reason="r", numbers={}).state)
    again = world.agent()
    await again.tick()
    assert again.snapshot().percent_effective == 2500


async def test_new_settings_are_a_new_epoch_for_all(world: World) -> None:
    one, two = world.agent(), world.agent(name="two")
    await world.second(one, two)
    one.rules = evolve(ALL, canary_percent=3000)
    await world.second(one, two)
    for agent in (one, two):
        assert (agent.snapshot().percent_effective, agent.snapshot().epoch) == (3000, 2)
    assert [one.reason for one in world.decisions] == ["new_configuration"]
    await world.second(one, two)
    assert len(world.decisions) == 1, "the other keeps its settings to itself"


async def test_new_limits_of_the_judge_are_no_new_epoch(world: World) -> None:
    one = world.agent()
    await world.second(one)
    one.rules = evolve(ALL, rollback_evidence=100.0)
    await world.second(one)
    assert one.snapshot().epoch == 1
    assert world.decisions == []
    assert (await world.stored()).rules == one.rules


async def test_new_settings_wait_until_a_rollback_is_cool(world: World) -> None:
    one = world.agent()
    await one.tick()
    await world.put(rolled_back(await world.stored(), ALL, now=world.now, by=BY, reason="r", numbers={}).state)
    one.rules = evolve(ALL, canary_percent=500)
    await world.second(one)
    assert one.snapshot().state == "rolled_back"
    world.now += 1800
    await world.second(one)
    assert (one.snapshot().state, one.snapshot().percent_effective) == ("canary", 500)


class TestStoreAway:
    async def test_last_state_stays_in_force(self, world: World) -> None:
        one = world.agent()
        await world.put(evolve(begun(ALL, world.now, BY), percent=5000, revision=3))
        await one.tick()
        world.store.is_away = True
        for _ in range(5):
            await world.second(one)
        assert one.snapshot().percent_effective == 5000
        assert not one.store_up
        world.store.is_away = False
        await one.tick()
        assert one.store_up

    async def test_fault_is_found_alone_and_shared_later(self, world: World) -> None:
        one, two = world.agent(), world.agent(name="two")
        await world.second(one, two)
        world.store.is_away = True
        for _ in range(20):
            await world.second(one, live=0.5, control=0.01)
        assert one.snapshot().state == "rolled_back"
        assert two.snapshot().state == "canary"
        world.store.is_away = False
        await world.second(one, two)
        assert two.snapshot().state == "rolled_back"
        assert (await world.stored()).state == "rolled_back"
        assert len(world.took("rollback")) == 1

    async def test_two_that_fall_back_alone_come_to_one_state(self, world: World) -> None:
        one, two = world.agent(), world.agent(name="two")
        await world.second(one, two)
        world.store.is_away = True
        for _ in range(20):
            await world.second(one, two, live=0.5, control=0.01)
        world.store.is_away = False
        for _ in range(3):
            await world.second(one, two)
        stored = await world.stored()
        assert stored.state == "rolled_back"
        assert len(stored.rollbacks) == 1, "one fault, one cool-down"
        assert one.snapshot().epoch == two.snapshot().epoch == stored.epoch

    async def test_more_careful_state_wins(self, world: World) -> None:
        one = world.agent()
        await world.second(one)
        world.store.is_away = True
        for _ in range(20):
            await world.second(one, live=0.5, control=0.01)
        bold = evolve(await self._hidden(world), percent=5000, revision=90, epoch=9)
        await self._hide(world, bold)
        world.store.is_away = False
        await one.tick()
        stored = await world.stored()
        assert (stored.state, stored.epoch, stored.revision) == ("rolled_back", 10, 91)

    async def test_change_made_meanwhile_is_adopted(self, world: World) -> None:
        one = world.agent()
        await world.second(one)
        world.store.is_away = True
        await world.second(one)
        hidden = await self._hidden(world)
        await self._hide(world, promoted(hidden, ALL, now=world.now, by=BY, reason="r", numbers={}).state)
        world.store.is_away = False
        await one.tick()
        assert one.snapshot().percent_effective == 2500

    async def test_nothing_is_promoted(self, world: World) -> None:
        rules = evolve(ALL, rollout_auto="promote", canary_step_min_s=10.0, canary_step_min_requests=1)
        one = world.agent(rules)
        for _ in range(5):
            await world.second(one, requests=400)
        world.store.is_away = True
        for _ in range(30):
            await world.second(one, requests=400)
        assert one.snapshot().percent_effective == 100
        assert world.took("promote") == []

    async def test_long_loss_is_a_pause_until_it_has_been_over_for_long(self, world: World) -> None:
        one = world.agent()
        await world.second(one)
        world.store.is_away = True
        for _ in range(int(LOST_S) + 1):
            await world.second(one)
        assert (one.snapshot().state, one.snapshot().reason) == ("paused", "store_lost")
        assert one.snapshot().percent_effective == 1000
        world.store.is_away = False
        await world.second(one)
        assert (await world.stored()).state == "paused"
        assert [decision.reason for decision in world.decisions] == ["store_lost"]
        world.now += 598
        await world.second(one)
        assert one.snapshot().state == "paused"
        world.now += 1
        await world.second(one)
        await world.second(one)
        assert one.snapshot().state == "canary"
        assert [decision.reason for decision in world.decisions] == ["store_lost", "cause_gone"]

    async def test_short_loss_is_nothing(self, world: World) -> None:
        one = world.agent()
        await world.second(one)
        world.store.is_away = True
        await world.second(one)
        world.store.is_away = False
        await world.second(one)
        assert world.decisions == []

    async def test_counts_are_shared_when_it_is_back(self, world: World) -> None:
        one, two = world.agent(), world.agent(name="two")
        await world.second(one, two, requests=40)
        world.store.is_away = True
        await world.second(one, two, requests=40)
        world.store.is_away = False
        for _ in range(2):
            await world.second(one, two, requests=0)
        counts = two.snapshot().counts
        assert sum(counts[f"{arm}_requests"] for arm in ("live", "control")) == 160

    async def test_careful_settings_do_not_wait(self, world: World) -> None:
        one = world.agent()
        await world.second(one)
        world.store.is_away = True
        one.rules = evolve(ALL, canary_percent=5000)
        await world.second(one)
        assert one.snapshot().percent_effective == 1000
        one.rules = RolloutRules(transform_mode="off")
        await world.second(one)
        assert one.assign("k").arm == "off"
        world.store.is_away = False
        await world.second(one)
        assert (await world.stored()).state == "off"

    async def test_begins_under_its_settings(self, world: World) -> None:
        world.store.is_away = True
        one = world.agent()
        await one.tick()
        assert one.snapshot().percent_effective == 1000
        assert not one.snapshot().store_up

    async def _hidden(self, world: World) -> RolloutState:
        found = state_of((await MemoryStore.get(world.store, STATE_KEY))[STATE_KEY])
        assert found is not None
        return found

    async def _hide(self, world: World, state: RolloutState) -> None:
        await MemoryStore.put(world.store, STATE_KEY, encoded(state))


class TestStoreThatForgot:
    async def test_rollback_survives(self, world: World) -> None:
        one, two = world.agent(), world.agent(name="two")
        for _ in range(20):
            await world.second(one, two, live=0.5, control=0.01)
        world.store = one.store = two.store = Store(wall=world.clock)
        fresh = world.agent(name="three")
        for _ in range(3):
            await world.second(fresh, one, two)
        assert {agent.snapshot().state for agent in (one, two, fresh)} == {"rolled_back"}
        assert len(world.took("rollback")) == 1

    async def test_older_state_does_not_come_back(self, world: World) -> None:
        one = world.agent()
        await one.tick()
        old = await world.stored()
        await world.put(rolled_back(old, ALL, now=world.now, by=BY, reason="r", numbers={}).state)
        await one.tick()
        await world.put(old)
        await one.tick()
        assert (await world.stored()).state == one.snapshot().state == "rolled_back"

    @pytest.mark.parametrize("rubbish", [b"", b"\xff\x00", b"[]", b'{"state": 5}', b"[" * 100_000])
    async def test_rubbish_is_replaced(self, world: World, rubbish: bytes) -> None:
        one = world.agent()
        await one.tick()
        for key in (STATE_KEY, EVIDENCE_KEY):
            await world.store.put(key, rubbish)
        for _ in range(20):
            await world.second(one, live=0.5, requests=100)
        assert (await world.stored()).state == "rolled_back"


class TestKillSwitch:
    async def test_setting_counts_at_once(self, world: World) -> None:
        one = world.agent(evolve(ALL, kill_switch=True))
        assert one.killed
        assert one.assign("k", "live").arm == "off"
        one.rules = ALL
        assert not one.killed
        one.rules = evolve(ALL, kill_switch=True)
        assert one.assign("k").arm == "off"
        assert [(record.decision, record.reason) for record in world.decisions] == [
            ("unkill", "kill_setting"),
            ("kill", "kill_setting"),
        ]

    async def test_file_counts_while_it_is_there(self, world: World, tmp_path: Path) -> None:
        file = tmp_path / "kill"
        one = world.agent(evolve(ALL, kill_switch_file=str(file)))
        await world.second(one)
        assert not one.killed
        file.touch()
        await world.second(one)
        assert one.snapshot().state == "off"
        assert (one.snapshot().reason, one.snapshot().percent_effective) == ("kill_file", 0)
        file.unlink()
        await world.second(one)
        assert one.snapshot().state == "canary"
        assert [record.decision for record in world.decisions] == ["kill", "unkill"]

    async def test_file_counts_while_the_store_is_away(self, world: World, tmp_path: Path) -> None:
        one = world.agent(evolve(ALL, kill_switch_file=str(tmp_path)))
        world.store.is_away = True
        await one.tick()
        assert one.assign("k").arm == "off"

    async def test_file_that_cannot_be_looked_at_changes_nothing(self, world: World) -> None:
        one = world.agent(evolve(ALL, kill_switch_file="x" * 5000))
        await one.tick()
        assert not one.killed

    async def test_record_counts_for_all(self, world: World) -> None:
        one, two = world.agent(), world.agent(name="two")
        await world.second(one, two)
        await world.put(killed(await world.stored(), now=world.now, by=BY, reason="r").state)
        await one.tick()
        await two.tick()
        assert one.killed
        assert two.assign("k").arm == "off"
        await world.put(unkilled(await world.stored(), now=world.now, by=BY, reason="r").state)
        await one.tick()
        assert one.snapshot().state == "canary"


class TestWhatCounts:
    def live(self, agent: RolloutAgent, count: int = 8) -> list[str]:
        keys = (f"k{number}" for number in range(100_000))
        return [key for key in keys if agent.assign(key).arm == "live"][:count]

    async def judged(self, world: World, agent: RolloutAgent) -> Mapping[str, int]:
        for _ in range(3):
            await agent.tick()
            world.now += 1
        return agent.snapshot().counts

    def end(self, agent: RolloutAgent, key: str, *, bad: bool = False, assignment: Assignment | None = None) -> None:
        agent.ended(
            assignment or agent.assign(key), strategy="recovery", dialect="hermes", key=key, bad=bad, request_id=key
        )

    def mark(self, *, epoch: int = 1) -> CallMark:
        return CallMark(arm="live", strategy="recovery", dialect="hermes", epoch=epoch)

    async def test_forced_requests_do_not(self, world: World) -> None:
        one = world.agent()
        self.end(one, "k", bad=True, assignment=one.assign("k", "live"))
        assert (await self.judged(world, one))["live_requests"] == 0

    async def test_requests_of_an_older_epoch_do_not(self, world: World) -> None:
        one = world.agent()
        await one.tick()
        assignment = one.assign("k")
        one.rules = evolve(ALL, canary_percent=WHOLE)
        await self.judged(world, one)
        self.end(one, "k", bad=True, assignment=assignment)
        counts = await self.judged(world, one)
        assert counts["live_requests"] == counts["control_requests"] == 0

    async def test_conversation_is_bad_once_a_second(self, world: World) -> None:
        one = world.agent()
        key = self.live(one)[0]
        for _ in range(10):
            self.end(one, key, bad=True)
        counts = await self.judged(world, one)
        assert (counts["live_requests"], counts["live_seen"], counts["live_bad"]) == (10, 1, 1)
        assert counts["conversations"] == 1

    async def test_bad_outcome_counts(self, world: World) -> None:
        one = world.agent()
        key = self.live(one)[0]
        self.end(one, key)
        world.now += 899
        one.outcome(self.mark(), key=key, bad=True)
        one.outcome(self.mark(), key=self.live(one)[1], bad=False)
        assert (await self.judged(world, one))["live_bad"] == 1

    async def test_late_outcome_does_not(self, world: World) -> None:
        one = world.agent()
        key, other = self.live(one)[:2]
        self.end(one, key)
        world.now += 901
        one.outcome(self.mark(), key=key, bad=True)
        one.outcome(self.mark(), key=other, bad=True, age_s=901)
        assert (await self.judged(world, one))["live_bad"] == 0

    async def test_outcome_that_another_process_knows_the_time_of_counts(self, world: World) -> None:
        one = world.agent()
        one.outcome(self.mark(), key=self.live(one)[0], bad=True)
        assert (await self.judged(world, one))["live_bad"] == 1

    async def test_outcome_of_another_epoch_does_not(self, world: World) -> None:
        one = world.agent()
        one.outcome(self.mark(epoch=2), key="k", bad=True)
        one.outcome(self.mark(epoch=1 + 1024), key="l", bad=True)
        assert (await self.judged(world, one))["live_bad"] == 1, "ids carry the remainder alone"

    async def test_arm_off_does_not(self, world: World) -> None:
        one = world.agent(RolloutRules(transform_mode="off"))
        self.end(one, "k", bad=True)
        one.outcome(CallMark(arm="off", strategy=None, dialect=None, epoch=1), key="k", bad=True)
        assert set((await self.judged(world, one)).values()) == {0}

    async def test_hostile_names_and_keys_harm_nothing(self, world: World) -> None:
        one = world.agent(evolve(ALL, canary_percent=WHOLE))
        for key in ("\ud800", "a|b|c|d|e|f", "x" * 100_000, ""):
            one.ended(one.assign(key), strategy="a|b", dialect="\udfff", key=key, bad=True, request_id="|\ud800")
        counts = await self.judged(world, one)
        assert counts["live_requests"] == 4
        assert counts["live_bad"] == 4


async def test_full_falls_back_when_too_many_transformations_fail(world: World) -> None:
    one = world.agent(RolloutRules(rollback_scope="all"))
    for number in range(200):
        key = f"k{number}"
        one.ended(one.assign(key), strategy="recovery", dialect="glm", key=key, bad=False, transformed=number % 5 > 0)
        if number % 20 == 19:
            await one.tick()
            world.now += 1
    assert [record.reason for record in world.decisions] == ["transform_errors"]
    assert one.snapshot().state == "rolled_back"
    assert one.assign("k").arm == "dry_run"


async def test_slow_transformations_pause(world: World) -> None:
    one = world.agent(RolloutRules(transform_budget_ms=50))
    for number in range(400):
        for part in range(5):
            key = f"k{number} {part}"
            assignment = one.assign(key)
            assert assignment.arm == "live"
            one.ended(
                assignment,
                strategy="recovery",
                dialect="glm",
                key=key,
                bad=False,
                transformed=True,
                overhead_s=0.06 if part == 0 else 0.04,
            )
        await one.tick()
        world.now += 1
    assert [(record.decision, record.reason) for record in world.decisions] == [("pause", "overhead")]
    assert one.snapshot().state == "paused"
    assert one.snapshot().percent_effective == WHOLE
    for _ in range(700):
        one.ended(one.assign("k"), strategy="recovery", dialect="glm", key="k", bad=False, transformed=True)
        await one.tick()
        world.now += 1
    assert [(record.decision, record.reason) for record in world.decisions][1:] == [("resume", "cause_gone")]


async def test_who_comes_too_late_follows(world: World) -> None:
    class Late(Store):
        async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
            if key == STATE_KEY and state_of(new) == evolve(begun(ALL, world.now, "one"), at=world.now):
                await self.put(key, encoded(evolve(begun(ALL, world.now, "other"), percent=500)))
            return await super().swap(key, old, new)

    store = Late(wall=world.clock)
    one = world.agent(store=store)
    await one.tick()
    await one.tick()
    assert one.snapshot().percent_effective == 500
    assert one.snapshot().by == "other"


async def test_nothing_is_promoted_while_this_process_is_switched_off(world: World) -> None:
    rules = evolve(
        ALL,
        rollout_auto="promote",
        canary_steps=(5000, 9000),
        canary_step_min_s=10.0,
        canary_step_min_requests=10,
        canary_step_min_keys=1,
    )
    one = world.agent(rules)
    for _ in range(8):
        await world.second(one, requests=400)
    one.rules = evolve(rules, kill_switch=True)
    for _ in range(10):
        await world.second(one)
    assert world.took("promote") == []
    one.rules = rules
    await world.second(one)
    assert len(world.took("promote")) == 1


async def test_steps_follow_each_other_by_themselves(world: World) -> None:
    rules = evolve(
        ALL,
        rollout_auto="promote",
        canary_steps=(1000, 5000),
        canary_step_min_s=10.0,
        canary_step_min_requests=500,
        canary_step_min_keys=20,
    )
    one, two = world.agent(rules), world.agent(rules, name="two")
    seen = []
    for _ in range(60):
        await world.second(one, two, requests=400)
        seen.append(two.snapshot().percent_effective)
    assert [record.reason for record in world.took("promote")] == ["gates_met", "gates_met"]
    assert seen == sorted(seen)
    assert {1000, 5000, WHOLE} <= set(seen)
    assert one.snapshot().state == "full"


async def test_tick_never_raises(world: World) -> None:
    def fail(_: DecisionRecord) -> None:
        raise RuntimeError("no")

    one = world.agent()
    one.on_decision = fail
    for _ in range(20):
        await world.second(one, live=0.5, requests=100)
    assert one.snapshot().state == "rolled_back"


async def test_what_waits_is_bounded(world: World) -> None:
    world.store.is_away = True
    one = world.agent(evolve(ALL, canary_percent=WHOLE))
    for number in range(30_000):
        one.ended(one.assign("k"), strategy="s", dialect=f"d{number}", key=f"k{number}", bad=True, request_id="r")
    await one.tick()
    assert len(one._unsent._marks) <= 20_000
    assert len(one._unsent._counts) <= 4096


async def test_an_outcome_that_was_told_to_one_process_is_no_news_for_the_others(world: World) -> None:
    """Those that judged nothing themselves know it, too."""
    one, other, third = (world.agent(name=name) for name in ("one", "other", "third"))
    for each in (one, other, third):
        await each.tick()
    assert one.is_news("call", bad=True)
    for _ in range(3):
        world.now += 1
        for each in (one, other, third):
            await each.tick()
    assert not any(each.is_news("call", bad=True) for each in (one, other, third))
