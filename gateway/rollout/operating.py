"""What operators do to the rollout, for whoever asks for it: read what the store holds, decide, and swap it.

The command line and the inspector's page call these; neither decides anything itself.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from attrs import evolve, frozen

from gateway.core.ports import Store, StoreError
from gateway.core.records import DecisionRecord
from gateway.rollout.codec import EVIDENCE_KEY, STATE_KEY, encoded, evidence_of, state_of
from gateway.rollout.evidence import Evidence
from gateway.rollout.gates import Gate, gates, numbers
from gateway.rollout.stages import (
    Change,
    Refused,
    RolloutRules,
    RolloutState,
    begun,
    killed,
    paused,
    promoted,
    resumed,
    rolled_back,
    slice_switched_off,
    slice_switched_on,
    unkilled,
)

__all__ = [
    "OPERATOR",
    "VERBS",
    "Busy",
    "Decide",
    "Done",
    "GatesUnmet",
    "Stored",
    "change",
    "decided",
    "last_of_slices",
    "newest_decisions",
    "read",
]

OPERATOR = "operator"
_ATTEMPTS = 50


@frozen(kw_only=True)
class Stored:
    """What the store holds of the rollout; `raw` is what a change has to replace."""

    raw: bytes | None
    state: RolloutState
    rules: RolloutRules
    """Those that the gateways run under; one's own where none has begun."""
    evidence: Evidence
    is_known: bool
    """A gateway, or an operator, has written it."""


Decide = Callable[[Stored, float], Change]
"""Says what becomes of what is stored at a time; raises `Refused` where the state does not allow it."""


class GatesUnmet(Refused):
    """The gates before the next step; nothing was promoted."""

    def __init__(self, unmet: tuple[Gate, ...]) -> None:
        super().__init__("not promoted; --force goes on all the same")
        self.unmet = unmet


class Busy(Exception):
    """Others keep changing the rollout."""


@frozen(kw_only=True)
class Done:
    """A change that is in force."""

    before: RolloutState
    after: Stored
    decision: DecisionRecord
    unrecorded: str = ""
    """Why it could not be written down, where it could not."""


def _pause(by: str, reason: str, _: Mapping[str, Any]) -> Decide:
    return lambda stored, now: paused(stored.state, now=now, by=by, reason=reason)


def _resume(by: str, reason: str, _: Mapping[str, Any]) -> Decide:
    return lambda stored, now: resumed(stored.state, stored.rules, now=now, by=by, reason=reason)


def _rollback(by: str, reason: str, _: Mapping[str, Any]) -> Decide:
    return lambda stored, now: rolled_back(stored.state, stored.rules, now=now, by=by, reason=reason, numbers={})


def _kill(by: str, reason: str, _: Mapping[str, Any]) -> Decide:
    return lambda stored, now: killed(stored.state, now=now, by=by, reason=reason)


def _unkill(by: str, reason: str, _: Mapping[str, Any]) -> Decide:
    return lambda stored, now: unkilled(stored.state, now=now, by=by, reason=reason)


def _promote(by: str, reason: str, given: Mapping[str, Any]) -> Decide:
    def decide(stored: Stored, now: float) -> Change:
        found = gates(stored.state, stored.rules, stored.evidence, now)
        # First, so that what the state itself forbids is said before the gates are.
        made = promoted(stored.state, stored.rules, now=now, by=by, reason=reason, numbers=numbers(found))
        unmet = tuple(gate for gate in found if not gate.is_met)
        if unmet and not given.get("force"):
            raise GatesUnmet(unmet)
        return made

    return decide


def _slice(by: str, reason: str, given: Mapping[str, Any]) -> Decide:
    def decide(stored: Stored, now: float) -> Change:
        name = f"{given['strategy']}/{given['dialect']}"
        if not given["off"]:
            return slice_switched_on(stored.state, name, now=now, by=by, reason=reason)
        if name in stored.state.slices_off:
            raise Refused(f"{name} is switched off already")
        examples = tuple(id for each, id in stored.evidence.examples if each == name)
        return slice_switched_off(stored.state, name, now=now, by=by, reason=reason, numbers={}, examples=examples)

    return decide


VERBS: Mapping[str, Callable[[str, str, Mapping[str, Any]], Decide]] = {
    "pause": _pause,
    "resume": _resume,
    "promote": _promote,
    "rollback": _rollback,
    "kill": _kill,
    "unkill": _unkill,
    "slice": _slice,
}
"""By its name what an operator can do: from who does it, why, and what else was given, to how it is decided."""


async def read(store: Store, own: RolloutRules, now: float) -> Stored:
    """What the store holds; where nothing was begun, what would begin under one's own settings."""
    values = await store.get(STATE_KEY, EVIDENCE_KEY)
    raw = values.get(STATE_KEY)
    found = state_of(raw)
    state = found or begun(own, now, OPERATOR)
    return Stored(
        raw=raw,
        state=state,
        rules=state.rules or own,
        evidence=evidence_of(values.get(EVIDENCE_KEY)) or Evidence(epoch=state.epoch),
        is_known=found is not None,
    )


def decided(decide: Decide, stored: Stored, now: float) -> tuple[Stored, DecisionRecord]:
    """What would be stored after the change, and its record; nothing is changed."""
    made = decide(stored, now)
    return evolve(stored, raw=None, state=made.state, is_known=True), made.decision


async def change(store: Store, own: RolloutRules, decide: Decide, clock: Callable[[], float]) -> Done:
    """Decide on what the store holds and swap it; others may change it meanwhile, so decide anew each time."""
    for _ in range(_ATTEMPTS):
        now = clock()
        stored = await read(store, own, now)
        made = decide(stored, now)
        if await store.swap(STATE_KEY, stored.raw, encoded(made.state)):
            after = evolve(stored, raw=None, state=made.state, is_known=True)
            unrecorded = await _write_down(store, made.decision)
            return Done(before=stored.state, after=after, decision=made.decision, unrecorded=unrecorded)
    raise Busy("others keep changing the rollout; try again")


async def _write_down(store: Store, decision: DecisionRecord) -> str:
    # The change is in force already: that it cannot be written down does not undo it.
    try:
        await store.append([decision])
    except StoreError as error:
        return str(error)
    return ""


async def newest_decisions(store: Store, *, most: int, since: float = 0.0) -> tuple[DecisionRecord, ...]:
    """The last decisions, the newest first."""
    kept: list[DecisionRecord] = []
    async for record in _scanned(store, since):
        kept.append(record)
        # Cut back now and then, so that a long history is read in little memory.
        if len(kept) > 2 * most:
            del kept[:most]
    return tuple(reversed(kept[-most:]))


async def last_of_slices(store: Store, slices_off: tuple[str, ...]) -> dict[str, DecisionRecord]:
    """By the name of each slice that is off the decision that switched it off, as far as it is still kept."""
    found: dict[str, DecisionRecord] = {}
    if slices_off:
        async for record in _scanned(store, 0.0):
            if record.decision == "slice_off" and record.slice in slices_off:
                found[record.slice] = record
    return found


def _scanned(store: Store, since: float) -> AsyncIterator[DecisionRecord]:
    return store.scan(DecisionRecord, since=since)
