"""What has to be shown before the next share of conversations is live."""

import math

from attrs import frozen

from gateway.policy.evidence import Evidence, conversations
from gateway.policy.stages import RolloutRules, RolloutState

__all__ = ["Gate", "gates", "numbers", "wilson_upper"]

MARGIN = 0.005
"""How much larger than the control's share of bad requests the live one may be, with certainty."""
_Z = 1.959964


@frozen(kw_only=True)
class Gate:
    """One condition: what there is and what is asked for."""

    name: str
    is_met: bool
    have: float
    need: float


def gates(state: RolloutState, rules: RolloutRules, evidence: Evidence, now: float) -> tuple[Gate, ...]:
    """The gates before the next step of a dry run or a canary."""
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


def wilson_upper(bad: int, total: int) -> float:
    """The upper end of the 95 % interval of a share."""
    if total <= 0:
        return 1.0
    share, z2 = min(bad / total, 1.0), _Z * _Z
    middle = share + z2 / (2 * total)
    spread = _Z * math.sqrt(share * (1 - share) / total + z2 / (4 * total * total))
    return min(1.0, (middle + spread) / (1 + z2 / total))


def _share_gate(state: RolloutState, rules: RolloutRules, evidence: Evidence) -> Gate:
    if state.state == "dry_run":
        read = evidence.arm("dry_run")
        return _at_most("failed_share", read.failed / max(1, read.attempts), rules.rollback_transform_budget)
    live, control = evidence.arm("live"), evidence.arm("control")
    return _at_most("bad_share", wilson_upper(live.bad, live.seen), control.bad / max(1, control.seen) + MARGIN)


def _at_least(name: str, have: float, need: float) -> Gate:
    return Gate(name=name, is_met=have >= need, have=have, need=need)


def _at_most(name: str, have: float, need: float) -> Gate:
    return Gate(name=name, is_met=have <= need, have=have, need=need)
