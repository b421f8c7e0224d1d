"""Where the rollout stands, and what was decided, as plain values: `status --json` prints them, pages show them."""

from collections.abc import Mapping
from typing import Any

from gateway.core.records import DecisionRecord
from gateway.report.words import moment
from gateway.rollout.gates import Gate, gates
from gateway.rollout.operating import Stored
from gateway.rollout.snapshot import snapshot
from gateway.rollout.stages import RolloutRules, RolloutState

__all__ = ["decision_document", "rollout_document"]

SCHEMA_VERSION = 1
_LAST_DAY = 253402300799.0


def rollout_document(
    stored: Stored, *, killed_here: str, now: float, why: Mapping[str, DecisionRecord] | None = None
) -> dict[str, Any]:
    """Where the rollout stands; `killed_here` names the switch of the settings, `why` says what switched slices off."""
    state, rules, evidence = stored.state, stored.rules, stored.evidence
    seen = snapshot(state, rules, evidence, killed_here=killed_here)
    is_next = state.state in ("dry_run", "canary") and not state.killed
    return {
        "schema_version": SCHEMA_VERSION,
        "state": seen.state,
        "percent": seen.percent_effective / 100,
        "percent_target": seen.percent_target / 100,
        "step": seen.step,
        "epoch": seen.epoch,
        "statistic": seen.statistics["arms"],
        "statistics": dict(seen.statistics),
        "limit": seen.limit,
        "since": moment(seen.since),
        "reason": seen.reason,
        "by": seen.by,
        "killed": seen.killed,
        "slices_off": list(seen.slices_off),
        "slices": dict(seen.slices),
        "counts": dict(seen.counts),
        "held": list(seen.held),
        "cooldown_until": moment(seen.cooldown_until) if seen.cooldown_until else None,
        "next_step_from": moment(_next_from(state, rules)) if is_next else None,
        "promotes_itself": rules.rollout_auto == "promote",
        "gates": [_gate(gate) for gate in (gates(state, rules, evidence, now) if is_next else ())],
        "switched_off": [decision_document(why[name]) for name in state.slices_off if why and name in why],
    }


def _next_from(state: RolloutState, rules: RolloutRules) -> float:
    """When the next step can be taken at the earliest; whoever waits for ever is told the last day that has a name."""
    return min(max(state.step_at + rules.canary_step_min_s, state.cooldown_until), _LAST_DAY)


def _gate(gate: Gate) -> dict[str, Any]:
    return {
        "name": gate.name,
        "met": gate.is_met,
        "known": gate.is_known,
        "have": gate.have if gate.is_known else None,
        "bound": gate.bound,
        "need": gate.need,
    }


def decision_document(record: DecisionRecord) -> dict[str, Any]:
    """One decision, with the numbers that it rests on and requests to look at."""
    return {
        "at": moment(record.at),
        "decision": record.decision,
        "slice": record.slice,
        "by": record.by,
        "reason": record.reason,
        "before": record.state_before,
        "after": record.state_after,
        "epoch": record.epoch,
        "numbers": dict(record.numbers),
        "examples": list(record.examples),
    }
