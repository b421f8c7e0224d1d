"""What has to be shown before the next share of conversations is live."""

from typing import Literal

from attrs import evolve, frozen

from gateway.rollout.evidence import Evidence, conversations
from gateway.rollout.intervals import wilson
from gateway.rollout.stages import RolloutRules, RolloutState

__all__ = ["Gate", "gates", "numbers"]

MARGIN = 0.005
"""How much larger than the control's share of bad requests the live one may be, with certainty."""


@frozen(kw_only=True)
class Gate:
    """One condition: what there is and what is asked for."""

    name: str
    is_met: bool
    have: float
    need: float
    bound: Literal["at_least", "at_most"]
    """What `need` is of `have`."""
    is_known: bool = True
    """There were requests to judge by; without any a share is neither good nor bad, and the gate is not met."""


def gates(state: RolloutState, rules: RolloutRules, evidence: Evidence, now: float) -> tuple[Gate, ...]:
    """The gates before the next step of a dry run or a canary."""
    # What was seen in another epoch is about others who were live.
    if evidence.epoch != state.epoch:
        evidence = Evidence(epoch=state.epoch)
    arm = evidence.arm("dry_run" if state.state == "dry_run" else "live")
    keys = conversations(evidence)
    return (
        _at_least("seconds", now - state.step_at, rules.canary_step_min_s),
        _at_least("requests", arm.requests, rules.canary_step_min_requests),
        _at_least("conversations", keys, rules.canary_step_min_keys),
        _share_gate(state, rules, evidence),
        _at_most("overhead_windows", evidence.overhead.over_in_row, 0),
        _at_most("cooldown_seconds", max(0.0, state.cooldown_until - now), 0),
    )


def numbers(found: tuple[Gate, ...]) -> dict[str, float]:
    """The gates as a decision record keeps them."""
    return {gate.name: gate.have for gate in found} | {f"{gate.name}_needed": gate.need for gate in found}


def _share_gate(state: RolloutState, rules: RolloutRules, evidence: Evidence) -> Gate:
    if state.state == "dry_run":
        read = evidence.arm("dry_run")
        share = read.failed / max(1, read.attempts)
        return _of(read.attempts, _at_most("failed_share", share, rules.rollback_transform_budget))
    live, control = evidence.arm("live"), evidence.arm("control")
    # The upper end of the interval: few requests must not look like few faults.
    _, upper = wilson(live.bad, live.seen)
    return _of(live.seen, _at_most("bad_share", upper, control.bad / max(1, control.seen) + MARGIN))


def _of(seen: int, gate: Gate) -> Gate:
    """A share of none says nothing."""
    return gate if seen else evolve(gate, is_met=False, is_known=False)


def _at_least(name: str, have: float, need: float) -> Gate:
    return Gate(name=name, is_met=have >= need, have=have, need=need, bound="at_least")


def _at_most(name: str, have: float, need: float) -> Gate:
    return Gate(name=name, is_met=have <= need, have=have, need=need, bound="at_most")
