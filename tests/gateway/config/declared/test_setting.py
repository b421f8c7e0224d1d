"""How far a changed setting reaches: what its row says is what a reload does, and what the operator reads."""

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from gateway.config.declared.setting import Reach
from gateway.config.load import DECLARED, Settings, within_reach

DEPLOY = (Path(__file__).parents[4] / "deploy" / "README.md").read_text()
BY_NEW_PROCESSES = {
    *("CANARY_SALT", "GATEWAY_TRACES", "LOG_FORMAT"),
    *("METRICS_HOST", "METRICS_LABEL_CAP", "METRICS_MODELS", "METRICS_PORT", "METRICS_TOOLS"),
    *("STORE_PREFIX", "STORE_TIMEOUT_MS", "STORE_URL"),
}
BY_A_START = {"GATEWAY_HOST", "GATEWAY_PID_FILE", "GATEWAY_PORT", "GATEWAY_WORKERS", "METRICS_SD_FILE"}
NAMES = {entry.name for entry in DECLARED}


@pytest.mark.parametrize(
    ("step", "waiting"), [("reload", BY_NEW_PROCESSES | BY_A_START), ("restart", BY_A_START), ("start", set())]
)
def test_a_step_changes_the_settings_that_it_reaches_and_names_the_others(step: Reach, waiting: set[str]) -> None:
    before = Settings()
    others: dict[str, Any] = {entry.attribute: object() for entry in DECLARED}
    changed = attrs.evolve(before, **others)
    after, named = within_reach(changed, before, step)
    kept = {
        entry.name for entry in DECLARED if getattr(after, entry.attribute) is not getattr(changed, entry.attribute)
    }
    assert kept == set(named) == waiting
    assert all(
        getattr(after, each.attribute) is getattr(before, each.attribute) for each in DECLARED if each.name in kept
    )


def test_what_is_as_it_was_waits_for_nothing() -> None:
    assert within_reach(Settings(), Settings(), "reload") == (Settings(), [])


def test_the_operator_is_told_which_settings_need_more_than_a_reload() -> None:
    _, _, told = DEPLOY.partition("**Settings that need new processes**")
    restart, _, start = told.partition("\n\n")[0].partition("A restart is needed for")
    assert (named(restart), named(start)) == (BY_NEW_PROCESSES, BY_A_START)


def named(text: str) -> set[str]:
    return set(re.findall(r"`([A-Z_]+)`", text)) & NAMES
