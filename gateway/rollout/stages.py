"""The stages of a rollout, from `off` to `full`, and every way from one to another.

    off, dry_run, canary, full   as the settings begin it; promotion goes dry_run -> canary (step by step) -> full
    paused                       the share is frozen and nothing is promoted; the judge goes on
    rolled_back                  latched: only `resume` or new settings lead out of it, after a cool-down

A kill switch lies over all of it. Every function takes a state and gives the next one with the record of the decision;
nothing here knows a clock or a store.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Literal

from attrs import evolve, frozen

from gateway.core.records import Decision, DecisionRecord
from gateway.rollout.assignment import WHOLE, InForce
from gateway.rollout.judge import JudgeRules

__all__ = [
    "CAUSES",
    "REASONS",
    "Change",
    "Cooling",
    "Refused",
    "RolloutRules",
    "RolloutState",
    "State",
    "begun",
    "configured",
    "held",
    "in_force",
    "informed",
    "killed",
    "more_careful",
    "paused",
    "promoted",
    "reason_word",
    "resumed",
    "rolled_back",
    "shown_state",
    "slice_switched_off",
    "slice_switched_on",
    "still_caused",
    "unkilled",
]

State = Literal["off", "dry_run", "canary", "full", "paused", "rolled_back"]

CAUSES = ("overhead", "store_lost", "workers_disagree")
"""Why a rollout is paused by itself; such a pause ends when its cause has been gone for a while."""
REASONS = frozenset(
    {
        *CAUSES,
        "evidence",
        "transform_errors",
        "gates_met",
        "gates_unmet",
        "cause_gone",
        "new_configuration",
        "kill_setting",
        "kill_file",
    }
)
"""The reasons of decisions that nobody took by hand."""

_DAY_S = 86_400.0
_LIVE: tuple[State, ...] = ("canary", "full", "paused")


@frozen(kw_only=True)
class RolloutRules:
    """The settings of the rollout, each under its name in `Settings`; shares in hundredths of a percent."""

    transform_mode: Literal["off", "dry_run", "canary", "full"] = "full"
    canary_percent: int = 1000
    canary_steps: tuple[int, ...] = (100, 500, 2500, 5000, 9500)
    canary_step_min_s: float = 3600.0
    canary_step_min_requests: int = 2000
    canary_step_min_keys: int = 20
    canary_holdback_percent: int = 0
    rollout_auto: Literal["none", "rollback", "promote"] = "rollback"
    rollback_risk_ratio: float = 1.25
    rollback_min_diff: float = 0.005
    rollback_evidence: float = 10_000.0
    rollback_min_keys: int = 3
    rollback_transform_budget: float = 0.02
    rollback_cooldown_s: float = 1800.0
    rollback_mode: Literal["dry_run", "off"] = "dry_run"
    rollback_scope: Literal["slice", "all"] = "slice"
    kill_switch: bool = False
    kill_switch_file: str | None = None
    transform_budget_ms: int = 50

    def judge(self) -> JudgeRules:
        """What the judge takes for a fault."""
        return JudgeRules(
            risk_ratio=self.rollback_risk_ratio,
            min_diff=self.rollback_min_diff,
            evidence=self.rollback_evidence,
            min_keys=self.rollback_min_keys,
            transform_budget=self.rollback_transform_budget,
        )

    def shared(self) -> "RolloutRules":
        """Without what is about one process: its kill switches."""
        return evolve(self, kill_switch=False, kill_switch_file=None)

    def digest(self) -> str:
        """Names the settings that say who is live; where they change, the configuration is a new one."""
        # The same in every process and version that knows these names, unlike `hash`.
        shown = "|".join(f"{name}={getattr(self, name)!r}" for name in _CONFIGURATION)
        return blake2b(shown.encode(), digest_size=8).hexdigest()


_CONFIGURATION = ("transform_mode", "canary_percent", "canary_steps", "canary_holdback_percent")
"""Not the judge's limits: who makes it stricter must not lift a rollback by it."""


@frozen(kw_only=True)
class RolloutState:
    """Where the rollout stands, as all processes share it; changed by compare-and-set only."""

    state: State
    percent: int = 0
    """The share that is live in canary and full, in hundredths of a percent; frozen while paused."""
    step: int | None = None
    """Which of the steps the share came from; `None` where the settings gave it."""
    epoch: int = 1
    """One more with every change of who is live."""
    revision: int = 0
    """One more with every change."""
    reason: str = ""
    by: str = ""
    at: float = 0.0
    """When it came to this state."""
    step_at: float = 0.0
    """When the share came into force."""
    digest: str = ""
    """Of the settings that it began with."""
    rules: RolloutRules | None = None
    """These settings, for who changes the state from outside."""
    paused_from: State | None = None
    pause_cause: str = ""
    cause_at: float = 0.0
    """When the cause of the pause was last seen."""
    rollbacks: tuple[float, ...] = ()
    """When it was rolled back, within a day."""
    cooldown_until: float = 0.0
    slices_off: tuple[str, ...] = ()
    killed: bool = False
    held: tuple[str, ...] = ()
    """The gates that keep it from going on by itself."""


@frozen(kw_only=True)
class Change:
    """The next state, and the record of the decision that led to it."""

    state: RolloutState
    decision: DecisionRecord


class Refused(Exception):
    """The state does not allow the change; the message says why and what to do."""


class Cooling(Refused):
    """A rollback was too short a while ago."""

    def __init__(self, left_s: float) -> None:
        super().__init__(f"the rollback cools down for another {left_s:.0f} s (ROLLBACK_COOLDOWN_SECONDS)")


def begun(rules: RolloutRules, now: float, by: str) -> RolloutState:
    """The state that the settings begin with."""
    state = RolloutState(
        state=rules.transform_mode,
        reason="settings",
        by=by,
        at=now,
        step_at=now,
        digest=rules.digest(),
        rules=rules.shared(),
    )
    if rules.transform_mode == "full":
        return evolve(state, percent=WHOLE - rules.canary_holdback_percent)
    if rules.transform_mode == "canary":
        step, percent = _first_step(rules)
        return evolve(state, step=step, percent=percent)
    return state


def in_force(state: RolloutState, rules: RolloutRules, *, killed: bool = False) -> InForce:
    """What the next requests get in a state; `killed` by a switch of the process itself."""
    slices_off = frozenset(state.slices_off)
    # The switch before all else: it holds whatever anybody decides under it.
    if killed or state.killed or state.state == "off":
        return InForce(mode="off", epoch=state.epoch, slices_off=slices_off)
    if state.state == "rolled_back":
        return InForce(mode=rules.rollback_mode, epoch=state.epoch, slices_off=slices_off)
    if state.state == "dry_run":
        return InForce(mode="dry_run", epoch=state.epoch, slices_off=slices_off)
    # Paused is what it was, frozen: whose arm is assigned in another way would change it with the pause.
    mode: Literal["canary", "full"] = "full" if "full" in (state.state, state.paused_from) else "canary"
    return InForce(mode=mode, percent=state.percent, epoch=state.epoch, slices_off=slices_off)


def _first_step(rules: RolloutRules) -> tuple[int | None, int]:
    """The steps count where promotion goes by itself; else the share is the one that the settings name."""
    if rules.transform_mode == "canary" and rules.rollout_auto != "promote":
        return None, rules.canary_percent
    return 0, rules.canary_steps[0]


def shown_state(state: RolloutState) -> State:
    """The state as operators know it: killed is off."""
    return "off" if state.killed else state.state


def reason_word(decision: DecisionRecord) -> str:
    """The reason as one of few words; what an operator wrote is `operator`."""
    return decision.reason if decision.reason in REASONS else "operator"


def configured(state: RolloutState, rules: RolloutRules, *, now: float, by: str) -> Change | None:
    """New settings take over; `None` where they are not new, or have to wait until a rollback has cooled down."""
    if rules.digest() == state.digest:
        return None
    target = begun(rules, now, by)
    # Else an operator who corrects a typing error would undo what the judge has just found.
    if target.state in _LIVE and now < state.cooldown_until:
        return None
    # New settings lead out of a rollback, but not at once to everybody.
    if state.state == "rolled_back" and target.state == "full":
        target = evolve(target, state="canary", step=0, percent=rules.canary_steps[0])
    after = _next(
        state,
        "new_configuration",
        now,
        by,
        state=target.state,
        percent=target.percent,
        step=target.step,
        digest=target.digest,
        rules=target.rules,
        slices_off=(),
    )
    return _changed(state, _anew(after, now), "resume")


def informed(state: RolloutState, rules: RolloutRules) -> RolloutState:
    """The same state under settings that changed nothing of who is live."""
    return evolve(state, revision=state.revision + 1, rules=rules.shared())


def promoted(
    state: RolloutState, rules: RolloutRules, *, now: float, by: str, reason: str, numbers: Mapping[str, float]
) -> Change:
    """To the next larger share; whether the gates are met is for the caller to see."""
    if state.killed:
        raise Refused("a kill switch is on; `toolgate rollout unkill` turns it off")
    if state.state not in ("dry_run", "canary"):
        raise Refused(_NO_PROMOTION[state.state])
    if now < state.cooldown_until:
        raise Cooling(state.cooldown_until - now)
    # By the share and not by the step's number: the settings may have other steps by now.
    larger = [step for step, percent in enumerate(rules.canary_steps) if percent > state.percent]
    if state.state == "dry_run":
        larger = [0]
    after = _next(state, reason, now, by, state="full", step=None, percent=WHOLE - rules.canary_holdback_percent)
    if larger:
        after = evolve(after, state="canary", step=larger[0], percent=rules.canary_steps[larger[0]])
    return _changed(state, _anew(after, now), "promote", numbers=numbers)


def rolled_back(
    state: RolloutState,
    rules: RolloutRules,
    *,
    now: float,
    by: str,
    reason: str,
    numbers: Mapping[str, float],
    examples: tuple[str, ...] = (),
) -> Change:
    """Nobody is live any more, until somebody resumes or brings new settings."""
    if state.state not in _LIVE:
        raise Refused(f"nobody is live: the rollout is {state.state}")
    # Older ones are forgiven: by then most likely another version runs.
    rollbacks = _apart((*(at for at in state.rollbacks if now - at < _DAY_S), now))
    # Twice as long each time: a fault that comes again with every try is not tried all day.
    wait_s = min(rules.rollback_cooldown_s * 2.0 ** (len(rollbacks) - 1), max(_DAY_S, rules.rollback_cooldown_s))
    after = _next(
        state,
        reason,
        now,
        by,
        state="rolled_back",
        percent=0,
        step=None,
        rollbacks=rollbacks[-_MAX_ROLLBACKS:],
        cooldown_until=now + wait_s,
    )
    return _changed(state, _anew(after, now), "rollback", numbers=numbers, examples=examples)


def slice_switched_off(
    state: RolloutState,
    name: str,
    *,
    now: float,
    by: str,
    reason: str,
    numbers: Mapping[str, float],
    examples: tuple[str, ...] = (),
) -> Change:
    """Calls of one slice stay text; the rest goes on."""
    slices_off = tuple(sorted({*state.slices_off, name}))
    # The epoch stays: nobody's arm is another, and what was seen of the other slices goes on to count.
    after = evolve(state, revision=state.revision + 1, slices_off=slices_off, reason=reason, by=by)
    return _changed(state, after, "slice_off", slice=name, numbers=numbers, examples=examples, at=now)


def slice_switched_on(state: RolloutState, name: str, *, now: float, by: str, reason: str) -> Change:
    """Calls of a slice that was off are delivered again, and judged anew."""
    if state.killed:
        raise Refused("a kill switch is on; `toolgate rollout unkill` turns it off")
    if name not in state.slices_off:
        off = ", ".join(state.slices_off) or "none"
        raise Refused(f"{name} is not switched off; off are: {off}")
    slices_off = tuple(each for each in state.slices_off if each != name)
    after = evolve(state, revision=state.revision + 1, slices_off=slices_off, reason=reason, by=by)
    return _changed(state, _anew(after, now), "slice_on", slice=name, at=now)


def paused(state: RolloutState, *, now: float, by: str, reason: str, cause: str = "") -> Change:
    """The share is frozen; with a cause, until that is gone."""
    if state.killed or state.state not in _LIVE or (state.state == "paused" and not state.pause_cause):
        raise Refused(f"there is nothing to pause: the rollout is {shown_state(state)}")
    # A pause by hand may come on top of one with a cause, and takes its place.
    came_from = state.paused_from or state.state
    after = _next(state, reason, now, by, state="paused", paused_from=came_from, pause_cause=cause, cause_at=now)
    return _changed(state, after, "pause")


def still_caused(state: RolloutState, now: float) -> RolloutState:
    """The cause of the pause was seen again."""
    return evolve(state, revision=state.revision + 1, cause_at=now)


def resumed(state: RolloutState, rules: RolloutRules, *, now: float, by: str, reason: str) -> Change:
    """Out of a pause as it was before; out of a rollback to a dry run or the smallest step; slices on again."""
    if state.killed:
        raise Refused("a kill switch is on; `toolgate rollout unkill` turns it off")
    # A pause keeps the epoch: nobody's arm has changed, and the evidence goes on.
    if state.state == "paused":
        return _changed(state, _next(state, reason, now, by, state=state.paused_from or "canary"), "resume")
    if state.state == "rolled_back":
        if now < state.cooldown_until:
            raise Cooling(state.cooldown_until - now)
        return _changed(state, _anew(_restarted(state, rules, now, by, reason), now), "resume")
    if not state.slices_off:
        raise Refused(f"there is nothing to resume: the rollout is {state.state}")
    return _changed(state, _anew(_next(state, reason, now, by, slices_off=()), now), "resume")


def killed(state: RolloutState, *, now: float, by: str, reason: str) -> Change:
    """Everything is relayed untouched, whatever else holds."""
    if state.killed:
        raise Refused("the kill switch is on already")
    return _changed(state, _switched(state, reason, now, by, is_killed=True), "kill")


def unkilled(state: RolloutState, *, now: float, by: str, reason: str) -> Change:
    """What held before holds again."""
    if not state.killed:
        raise Refused("the kill switch is not on")
    return _changed(state, _switched(state, reason, now, by, is_killed=False), "unkill")


def held(state: RolloutState, gates: tuple[str, ...], *, now: float, by: str, numbers: Mapping[str, float]) -> Change:
    """It would go on by itself, but for these gates."""
    after = evolve(state, revision=state.revision + 1, held=gates)
    return _changed(state, after, "hold", numbers=numbers, at=now, reason="gates_unmet", by=by)


def more_careful(one: RolloutState, other: RolloutState) -> RolloutState:
    """What holds when two histories meet: the state that lets fewer be live, and what either of them forbids."""
    # By an order of their own, so that every process that meets both comes to the same one.
    careful, bold = sorted((one, other), key=_boldness)
    if careful == bold:
        return careful
    rollbacks = _apart(sorted((*careful.rollbacks, *bold.rollbacks)))[-_MAX_ROLLBACKS:]
    return evolve(
        careful,
        # Two histories that differ in who is live leave evidence that fits neither of them.
        epoch=max(careful.epoch, bold.epoch) + (_boldness(careful) != _boldness(bold)),
        revision=max(careful.revision, bold.revision) + 1,
        killed=careful.killed or bold.killed,
        slices_off=tuple(sorted({*careful.slices_off, *bold.slices_off})),
        rollbacks=rollbacks,
        cooldown_until=max(careful.cooldown_until, bold.cooldown_until),
    )


_MAX_ROLLBACKS = 50
_ONE_S = 60.0
"""Processes that cannot see each other roll back for the same fault one after the other: that counts once."""
_CAREFUL: tuple[State, ...] = ("rolled_back", "off", "dry_run", "paused", "canary", "full")
_NO_PROMOTION: dict[State, str] = {
    "off": "TRANSFORM_MODE is off; set it to dry_run or canary",
    "full": "the rollout is full: there is nothing to promote it to",
    "paused": "the rollout is paused; `toolgate rollout resume` ends that",
    "rolled_back": "the rollout is rolled back; `toolgate rollout resume` ends that",
}


def _apart(times: Iterable[float]) -> tuple[float, ...]:
    apart: list[float] = []
    for at in times:
        if not apart or at - apart[-1] >= _ONE_S:
            apart.append(at)
    return tuple(apart)


def _boldness(state: RolloutState) -> tuple[bool, int, int]:
    place = _CAREFUL.index(state.state)
    return not state.killed, state.percent if state.state in _LIVE else place - len(_CAREFUL), place


def _restarted(state: RolloutState, rules: RolloutRules, now: float, by: str, reason: str) -> RolloutState:
    begin = begun(rules, now, by)
    if begin.state in ("off", "dry_run"):
        return _next(state, reason, now, by, state=begin.state, slices_off=())
    step, percent = _first_step(rules)
    return _next(state, reason, now, by, state="canary", step=step, percent=percent, slices_off=())


def _next(before: RolloutState, reason: str, now: float, by: str, /, **changes: Any) -> RolloutState:
    """The state after a change; a pause and what held it are over unless the change says so."""
    # Here and not in each change: one that is forgotten would hold back a rollout for a gate of last week.
    fresh: dict[str, Any] = {"paused_from": None, "pause_cause": "", "held": ()}
    return evolve(before, revision=before.revision + 1, reason=reason, by=by, at=now, **{**fresh, **changes})


def _switched(state: RolloutState, reason: str, now: float, by: str, *, is_killed: bool) -> RolloutState:
    """What lies under the switch stays as it is."""
    after = evolve(state, revision=state.revision + 1, reason=reason, by=by, at=now, killed=is_killed)
    return _anew(after, now)


def _anew(state: RolloutState, now: float) -> RolloutState:
    """Others are live than before: what was seen until now says nothing about them."""
    return evolve(state, epoch=state.epoch + 1, step_at=now)


def _changed(
    before: RolloutState,
    after: RolloutState,
    decision: Decision,
    *,
    slice: str = "all",
    numbers: Mapping[str, float] | None = None,
    examples: tuple[str, ...] = (),
    at: float | None = None,
    reason: str | None = None,
    by: str | None = None,
) -> Change:
    record = DecisionRecord(
        at=after.at if at is None else at,
        decision=decision,
        reason=reason or after.reason,
        by=by or after.by,
        epoch=after.epoch,
        state_before=shown_state(before),
        state_after=shown_state(after),
        slice=slice,
        numbers=numbers or {},
        examples=examples,
    )
    return Change(state=after, decision=record)
