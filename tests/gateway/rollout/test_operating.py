"""What operators do, on a store that others change too: each verb is decided on what is there at that moment."""

from typing import Any

import pytest
from attrs import evolve

from gateway.core.ports import StoreError
from gateway.core.records import DecisionRecord
from gateway.rollout.codec import EVIDENCE_KEY, STATE_KEY, encoded, state_of
from gateway.rollout.evidence import Evidence
from gateway.rollout.operating import VERBS, Busy, GatesUnmet, change, decided, last_of_slices, newest_decisions, read
from gateway.rollout.stages import Refused, RolloutRules, begun
from gateway.state.memory import MemoryStore

RULES = RolloutRules(transform_mode="canary", canary_step_min_s=0.0)
NAME = "recovery/hermes"
OFF = {"strategy": "recovery", "dialect": "hermes", "off": True}
ON = {**OFF, "off": False}


class Crowded(MemoryStore):
    """Somebody else changes the state right before every swap, so many times."""

    others: int = 0

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        if key == STATE_KEY and self.others:
            self.others -= 1
            state = state_of((await self.get(STATE_KEY)).get(STATE_KEY)) or begun(RULES, 0.0, "other")
            await self.put(STATE_KEY, encoded(evolve(state, revision=state.revision + 1)))
        return await super().swap(key, old, new)


class Unwritten(MemoryStore):
    async def append(self, records: Any) -> None:
        raise StoreError("full")


async def done(store: MemoryStore, verb: str, **given: Any) -> Any:
    return await change(store, RULES, VERBS[verb]("alice", "because", given), lambda: 100.0)


async def test_a_slice_is_switched_off_with_its_examples_and_on_again() -> None:
    store = MemoryStore()
    evidence = Evidence(epoch=1, examples=((NAME, "req-1"), ("recovery/glm", "req-2"), (NAME, "req-3")))
    await store.put(EVIDENCE_KEY, encoded(evidence))
    off = await done(store, "slice", **OFF)
    assert off.after.state.slices_off == (NAME,)
    assert off.after.state.state == "canary", "all else goes on"
    assert (off.decision.decision, off.decision.slice, off.decision.by) == ("slice_off", NAME, "alice")
    assert off.decision.examples == ("req-1", "req-3")
    with pytest.raises(Refused, match="off already"):
        await done(store, "slice", **OFF)
    assert (await last_of_slices(store, (NAME,)))[NAME].examples == ("req-1", "req-3")
    on = await done(store, "slice", **ON)
    assert on.after.state.slices_off == ()
    assert on.after.state.epoch == off.after.state.epoch + 1, "what was seen says nothing of what is live now"
    assert on.decision.decision == "slice_on"
    with pytest.raises(Refused, match="not switched off; off are: none"):
        await done(store, "slice", **ON)


async def test_one_slice_comes_back_and_the_others_stay_off() -> None:
    store = MemoryStore()
    await store.put(STATE_KEY, encoded(evolve(begun(RULES, 0.0, "x"), slices_off=("recovery/glm", NAME))))
    assert (await done(store, "slice", **ON)).after.state.slices_off == ("recovery/glm",)


async def test_whoever_is_overtaken_decides_anew() -> None:
    store = Crowded()
    store.others = 3
    found = await done(store, "pause")
    assert found.after.state.state == "paused"
    assert found.after.state.revision > 3
    assert [record.decision async for record in store.scan(DecisionRecord)] == ["pause"]


async def test_nobody_tries_for_ever() -> None:
    store = Crowded()
    store.others = 1000
    with pytest.raises(Busy):
        await done(store, "pause")


async def test_a_change_that_cannot_be_written_down_is_in_force_and_says_so() -> None:
    found = await done(Unwritten(), "kill")
    assert found.after.state.killed
    assert found.unrecorded == "full"


async def test_gates_stop_a_promotion_that_is_not_forced() -> None:
    store = MemoryStore()
    with pytest.raises(GatesUnmet) as raised:
        await done(store, "promote")
    assert "bad_share" in {gate.name for gate in raised.value.unmet if not gate.is_known}
    assert (await done(store, "promote", force=True)).after.state.percent > RULES.canary_percent


async def test_what_would_be_decided_changes_nothing() -> None:
    store = MemoryStore()
    stored = await read(store, RULES, 100.0)
    assert not stored.is_known
    after, record = decided(VERBS["rollback"]("alice", "because", {}), stored, 100.0)
    assert (after.state.state, record.decision) == ("rolled_back", "rollback")
    assert await store.get(STATE_KEY) == {}


async def test_the_newest_decisions_come_first_and_no_more_than_asked_for() -> None:
    store = MemoryStore()
    for number in range(30):
        record = DecisionRecord(
            at=float(number), decision="hold", reason="x", by="y", epoch=1, state_before="canary", state_after="canary"
        )
        await store.append([record])
    assert [record.at for record in await newest_decisions(store, most=3)] == [29.0, 28.0, 27.0]
    assert len(await newest_decisions(store, most=100)) == 30


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"slice", "promote", "unkill", "resume"}))
async def test_each_verb_keeps_who_and_why(verb: str) -> None:
    store = MemoryStore()
    found = await done(store, verb)
    assert (found.decision.by, found.decision.reason) == ("alice", "because")
    assert [each.decision async for each in store.scan(DecisionRecord)] == [found.decision.decision]
