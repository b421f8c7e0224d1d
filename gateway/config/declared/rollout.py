"""Which answers are changed, and when that ends."""

from functools import partial
from typing import Any, Literal

from attrs import frozen

from gateway.config.declared.setting import setting
from gateway.config.declared.values import (
    boolean,
    choice,
    header_name,
    ignore_rules,
    networks,
    number,
    percent,
    percents,
    seconds,
    secret,
    text,
    whole,
)
from gateway.core.rules import IgnoreRule

__all__ = ["Rollout"]

_rollout = partial(setting, group="Rollout")


@frozen(kw_only=True, slots=False)
class Rollout:
    """Which answers are changed, and when that ends."""

    transform_mode: Literal["off", "dry_run", "canary", "full"] = _rollout(
        "TRANSFORM_MODE",
        choice("off", "dry_run", "canary", "full"),
        "full",
        "off: requests and answers are relayed untouched; dry_run: likewise, and what would have been done is "
        "recorded; canary: a share of the conversations is transformed; full: every request is.",
    )
    canary_percent: int = _rollout(
        "CANARY_PERCENT", percent, 1000, "Share of conversations, in percent, that canary transforms."
    )
    canary_rest: Literal["dry_run", "control"] = _rollout(
        "CANARY_REST",
        choice("dry_run", "control"),
        "dry_run",
        "dry_run: the untouched answers of canary are read beside, and what would have been done is recorded; "
        "control: they are not read.",
    )
    canary_salt: str | None = _rollout(
        "CANARY_SALT",
        secret,
        None,
        "Secret that decides who is in the canary and marks call ids; made once and kept in the store if unset; "
        "set the same one on every host.",
        is_secret=True,
        reach="restart",
    )
    canary_steps: tuple[int, ...] = _rollout(
        "CANARY_STEPS", percents, (100, 500, 2500, 5000, 9500), "Shares in percent that promotion goes through."
    )
    canary_step_min_s: float = _rollout(
        "CANARY_STEP_MIN_SECONDS", seconds(zero=True), 3600.0, "How long a step lasts at least."
    )
    canary_step_min_requests: int = _rollout(
        "CANARY_STEP_MIN_REQUESTS", whole(0, 10**9), 2000, "How many canary requests a step has at least."
    )
    canary_step_min_keys: int = _rollout(
        "CANARY_STEP_MIN_KEYS", whole(0, 10**6), 20, "How many canary conversations a step has at least."
    )
    canary_sticky_header: str | None = _rollout(
        "CANARY_STICKY_HEADER",
        header_name,
        None,
        "Request header whose value tells conversations apart; without it they are told apart by credential, model, "
        "first user message and system prompt.",
    )
    canary_force_header: str | None = _rollout(
        "CANARY_FORCE_HEADER",
        header_name,
        None,
        "Request header with which a trusted proxy puts a request into an arm: live, control or off.",
    )
    trusted_proxies: tuple[Any, ...] = _rollout(
        "TRUSTED_PROXIES",
        networks,
        (),
        "Addresses and networks, comma-separated, from which CANARY_FORCE_HEADER is believed.",
    )
    canary_holdback_percent: int = _rollout(
        "CANARY_HOLDBACK_PERCENT",
        percent,
        0,
        "Share of conversations, in percent, that full leaves untouched, so that the judge can compare; 5 is advised "
        "for the first days.",
    )
    rollout_auto: Literal["none", "rollback", "promote"] = _rollout(
        "ROLLOUT_AUTO",
        choice("none", "rollback", "promote"),
        "rollback",
        "none: nothing happens by itself; rollback: the judge rolls back; promote: it also goes on to the next step.",
    )
    rollback_risk_ratio: float = _rollout(
        "ROLLBACK_RISK_RATIO", number(1, 100), 1.25, "How many times the control's risk is still no fault."
    )
    rollback_min_diff: float = _rollout(
        "ROLLBACK_MIN_DIFF", number(0, 1), 0.005, "Least difference between the arms' bad shares for a rollback."
    )
    rollback_evidence: float = _rollout(
        "ROLLBACK_EVIDENCE", number(10, 1e12), 10000.0, "Likelihood ratio at which the judge rolls back."
    )
    rollback_min_keys: int = _rollout(
        "ROLLBACK_MIN_KEYS", whole(1, 1000), 3, "Least number of conversations with a bad request for a rollback."
    )
    rollback_transform_budget: float = _rollout(
        "ROLLBACK_TRANSFORM_BUDGET", number(0.0001, 1), 0.02, "Share of transformations that may fail."
    )
    rollback_cooldown_s: float = _rollout(
        "ROLLBACK_COOLDOWN_SECONDS",
        seconds(zero=True),
        1800.0,
        "How long after a rollback nothing can be resumed; doubles with each rollback within a day.",
    )
    rollback_mode: Literal["dry_run", "off"] = _rollout(
        "ROLLBACK_MODE", choice("dry_run", "off"), "dry_run", "What is in force after a rollback."
    )
    rollback_scope: Literal["slice", "all"] = _rollout(
        "ROLLBACK_SCOPE",
        choice("slice", "all"),
        "slice",
        "slice: a strategy and dialect that is worse is switched off alone; all: everything is rolled back.",
    )
    kill_switch: bool = _rollout(
        "KILL_SWITCH", boolean, False, "true: relay everything untouched from the next request on."
    )
    kill_switch_file: str | None = _rollout(
        "KILL_SWITCH_FILE", text, None, "While this file exists everything is relayed untouched."
    )
    transform_budget_ms: int = _rollout(
        "TRANSFORM_BUDGET_MS",
        whole(1, 60_000),
        50,
        "Processor time that reading beside an untouched answer may take; time above which the rollout is paused for "
        "overhead.",
    )
    dry_run_samples_per_slice: int = _rollout(
        "DRY_RUN_SAMPLES_PER_SLICE",
        whole(0, 10_000),
        20,
        "How many samples with text a day keeps of each tool, dialect and verdict, in each process.",
    )
    dry_run_retention_days: int = _rollout(
        "DRY_RUN_RETENTION_DAYS",
        whole(1, 3650),
        14,
        "How long records are kept while TRANSFORM_MODE is dry_run, where that is shorter than STORE_RETENTION_DAYS.",
    )
    dry_run_ignore: tuple[IgnoreRule, ...] = _rollout(
        "DRY_RUN_IGNORE",
        ignore_rules,
        (),
        "Known differences that a dry run does not count, as dialect:tool=YYYY-MM-DD, comma-separated; from that day "
        "on they count again.",
    )
