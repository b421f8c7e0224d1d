"""Where a rollout stands, in one flat value for metrics, logs and the command line."""

from collections.abc import Mapping

from attrs import frozen

from gateway.rollout.assignment import InForce
from gateway.rollout.evidence import Evidence, conversations
from gateway.rollout.stages import RolloutRules, RolloutState, State, in_force, shown_state

__all__ = ["Snapshot", "snapshot"]


@frozen(kw_only=True)
class Snapshot:
    """Where the rollout stands; shares in hundredths of a percent, times in seconds since the epoch."""

    state: State
    """`off` while a kill switch is on, `paused` while the store is lost."""
    percent_target: int
    percent_effective: int
    epoch: int
    step: int | None
    since: float
    reason: str
    by: str
    killed: bool
    slices_off: tuple[str, ...]
    statistics: Mapping[str, float]
    """The logarithm of the evidence by test (`arms`, `transform`), over all slices."""
    slices: Mapping[str, float]
    """The larger one of each slice's tests."""
    limit: float
    """Where they roll back."""
    counts: Mapping[str, int]
    """Of this epoch, by arm: `live_requests`, `live_bad`, ...; and `conversations`."""
    held: tuple[str, ...]
    cooldown_until: float
    store_up: bool


def snapshot(
    state: RolloutState,
    rules: RolloutRules,
    evidence: Evidence,
    *,
    killed_here: str = "",
    store_up: bool = True,
    lost: bool = False,
) -> Snapshot:
    """Where it stands; `killed_here` names the switch of the process itself, `lost` says the store has been gone."""
    effective = in_force(state, rules, killed=bool(killed_here))
    evidence = evidence.aligned(state.epoch, state.slices_off)
    shown, reason = shown_state(state), state.reason
    if lost and shown in ("canary", "full"):
        shown, reason = "paused", "store_lost"
    if killed_here:
        shown, reason = "off", killed_here
    return Snapshot(
        state=shown,
        percent_target=state.percent,
        percent_effective=_percent(effective),
        epoch=state.epoch,
        step=state.step,
        since=state.at,
        reason=reason,
        by=state.by,
        killed=bool(killed_here) or state.killed,
        slices_off=state.slices_off,
        statistics=evidence.overall.evidence,
        slices={name: max(one.judge.evidence.values()) for name, one in evidence.slices.items()},
        limit=rules.judge().limit,
        counts=_counts(evidence),
        held=state.held,
        cooldown_until=state.cooldown_until,
        store_up=store_up,
    )


def _percent(effective: InForce) -> int:
    return effective.percent if effective.mode in ("canary", "full") else 0


def _counts(evidence: Evidence) -> dict[str, int]:
    counts = {"conversations": conversations(evidence)}
    for arm in ("live", "control", "dry_run"):
        totals = evidence.arm(arm)
        counts |= {f"{arm}_requests": totals.requests, f"{arm}_seen": totals.seen, f"{arm}_bad": totals.bad}
        counts |= {f"{arm}_attempts": totals.attempts, f"{arm}_failed": totals.failed}
    return counts
