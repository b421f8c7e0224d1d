"""What the rollout does by itself: it falls back, pauses, goes on after a pause, and is promoted."""

from collections.abc import Iterator

from attrs import frozen

from gateway.rollout.evidence import Evidence, SliceState
from gateway.rollout.gates import gates, numbers
from gateway.rollout.judge import Finding, finding
from gateway.rollout.stages import (
    CAUSES,
    Change,
    RolloutRules,
    RolloutState,
    held,
    paused,
    promoted,
    resumed,
    rolled_back,
    slice_switched_off,
    still_caused,
)

__all__ = ["CLEAR_S", "advanced", "fallen_back", "refreshed"]

CLEAR_S = 600.0
"""How long the cause of a pause has to be gone."""
AGAIN_S = 60.0
MAX_SLICES_OFF = 3
"""From this many on it is not the slices."""
WHOLE_SHARE = 0.8
"""A slice with this share of the live requests leaves no rest that would be worth going on with."""
WINDOWS = 3
DISAGREE_S = 120

_REASONS = {"arms": "evidence", "transform": "transform_errors"}


def advanced(state: RolloutState, rules: RolloutRules, evidence: Evidence, *, now: float, by: str) -> Change | None:
    """The decision that is due, where there is one."""
    if state.killed or rules.rollout_auto == "none" or evidence.epoch != state.epoch:
        return None
    # What takes back comes before what goes on: one block may show reasons for both.
    return (
        fallen_back(state, rules, evidence, now=now, by=by)
        or _paused(state, evidence, now=now, by=by)
        or _gone_on(state, rules, now=now, by=by)
        or _promoted(state, rules, evidence, now=now, by=by)
    )


def fallen_back(state: RolloutState, rules: RolloutRules, evidence: Evidence, *, now: float, by: str) -> Change | None:
    """The rollback, or the slice that is switched off, that the judge asks for."""
    if (
        state.killed
        or rules.rollout_auto == "none"
        or evidence.epoch != state.epoch
        or state.state not in ("canary", "full", "paused")
    ):
        return None
    overall = finding(evidence.overall, rules.judge())
    worst = max(_found(evidence, rules), key=lambda one: one.finding.statistic, default=None)
    if worst is not None and _can_go_on_without(worst, state, rules, evidence):
        return slice_switched_off(
            state,
            worst.name,
            now=now,
            by=by,
            reason=_REASONS[worst.finding.test],
            numbers=worst.finding.numbers,
            examples=tuple(id for name, id in evidence.examples if name == worst.name),
        )
    found = overall or (worst.finding if worst else None)
    if found is None:
        return None
    return rolled_back(
        state,
        rules,
        now=now,
        by=by,
        reason=_REASONS[found.test],
        numbers=found.numbers,
        examples=tuple(id for _, id in evidence.examples),
    )


def _seen_causes(evidence: Evidence) -> Iterator[str]:
    """What speaks for a pause at this time."""
    if evidence.overhead.over_in_row >= WINDOWS:
        yield "overhead"
    if evidence.differ_since is not None and evidence.block - evidence.differ_since >= DISAGREE_S:
        yield "workers_disagree"


@frozen(kw_only=True)
class _Found:
    name: str
    state: SliceState
    finding: Finding


def _found(evidence: Evidence, rules: RolloutRules) -> Iterator[_Found]:
    for name, state in sorted(evidence.slices.items()):
        found = finding(state.judge, rules.judge())
        if found is not None:
            yield _Found(name=name, state=state, finding=found)


def _can_go_on_without(worst: _Found, state: RolloutState, rules: RolloutRules, evidence: Evidence) -> bool:
    return (
        rules.rollback_scope == "slice"
        and worst.name not in state.slices_off
        and len(state.slices_off) + 1 < MAX_SLICES_OFF
        and worst.state.live < WHOLE_SHARE * evidence.arm("live").seen
    )


def _paused(state: RolloutState, evidence: Evidence, *, now: float, by: str) -> Change | None:
    cause = next(_seen_causes(evidence), None)
    if cause is None or state.state not in ("canary", "full"):
        return None
    return paused(state, now=now, by=by, reason=cause, cause=cause)


def refreshed(state: RolloutState, evidence: Evidence, now: float) -> RolloutState | None:
    """The paused state with its cause seen again, where that was not noted lately."""
    if state.state != "paused" or state.pause_cause not in _seen_causes(evidence) or now - state.cause_at < AGAIN_S:
        return None
    return still_caused(state, now)


def _gone_on(state: RolloutState, rules: RolloutRules, *, now: float, by: str) -> Change | None:
    # A pause that somebody made by hand is ended by hand.
    if state.state != "paused" or state.pause_cause not in CAUSES or now - state.cause_at < CLEAR_S:
        return None
    return resumed(state, rules, now=now, by=by, reason="cause_gone")


def _promoted(state: RolloutState, rules: RolloutRules, evidence: Evidence, *, now: float, by: str) -> Change | None:
    if rules.rollout_auto != "promote" or state.state not in ("dry_run", "canary"):
        return None
    found = gates(state, rules, evidence, now)
    unmet = tuple(gate.name for gate in found if not gate.is_met)
    if not unmet:
        return promoted(state, rules, now=now, by=by, reason="gates_met", numbers=numbers(found))
    # Before its time is over a step always waits; and the same ones again would fill the record with one decision.
    if "seconds" in unmet or unmet == state.held:
        return None
    return held(state, unmet, now=now, by=by, numbers=numbers(found))
