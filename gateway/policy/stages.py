"""The stages of a rollout, from `off` to `full`, and every way from one to another.

    off, dry_run, canary, full   as the settings begin it; promotion goes dry_run -> canary (step by step) -> full
    paused                       the share is frozen and nothing is promoted; the judge goes on
    rolled_back                  latched: only `resume` or new settings lead out of it, after a cool-down

A kill switch lies over all of it. Every function takes a state and gives the next one with the record of the decision;
nothing here knows a clock or a store.
"""

from hashlib import blake2b
from typing import Literal

from attrs import evolve, frozen

from gateway.policy.rollout import WHOLE, InForce

__all__ = ["RolloutRules", "RolloutState", "State", "begun", "in_force"]

State = Literal["off", "dry_run", "canary", "full", "paused", "rolled_back"]


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

    def digest(self) -> str:
        """Names the settings that say who is live; where they change, the configuration is a new one."""
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


def begun(rules: RolloutRules, now: float, by: str) -> RolloutState:
    """The state that the settings begin with."""
    state = RolloutState(
        state=rules.transform_mode, reason="settings", by=by, at=now, step_at=now, digest=rules.digest()
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
    if killed or state.killed or state.state == "off":
        return InForce(mode="off", epoch=state.epoch, slices_off=slices_off)
    if state.state == "rolled_back":
        return InForce(mode=rules.rollback_mode, epoch=state.epoch, slices_off=slices_off)
    if state.state == "dry_run":
        return InForce(mode="dry_run", epoch=state.epoch, slices_off=slices_off)
    mode: Literal["canary", "full"] = "full" if "full" in (state.state, state.paused_from) else "canary"
    return InForce(mode=mode, percent=state.percent, epoch=state.epoch, slices_off=slices_off)


def _first_step(rules: RolloutRules) -> tuple[int | None, int]:
    """The steps count where promotion goes by itself; else the share is the one that the settings name."""
    if rules.transform_mode == "canary" and rules.rollout_auto != "promote":
        return None, rules.canary_percent
    return 0, rules.canary_steps[0]
