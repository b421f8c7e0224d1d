"""What is declared is used: every setting is read somewhere, every metric is fed, every mutant has its place."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from gateway.config.declarations import Settings
from gateway.rollout.stages import RolloutRules
from gateway.telemetry.metrics import CATALOGUE
from strategies.base import Options
from tests.attacks.mutants import FAULTS, Fault

ROOT = Path(__file__).parents[1]
READ_BY_NAME = {"env_file": 'process.get("GATEWAY_ENV_FILE")'}
"""What is wanted before there are settings."""
FEEDS = {"count", "observe", "observe_traced", "set", "add", "inform", "gauge", "Fed"}


@cache
def trees() -> dict[str, ast.Module]:
    paths = [path for package in ("gateway", "strategies") for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_bytes()) for path in paths}


def name_of(expression: ast.expr) -> str:
    """The last name of what an attribute is read from."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def reads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each attribute that is read, and from what."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield name_of(node.value).lstrip("_"), node.attr


def own_reads(tree: ast.AST, owner: str) -> Iterator[str]:
    """What a class reads of itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            yield from (attribute for source, attribute in reads(node) if source == "self")


def names(cls: type[Any]) -> list[str]:
    return [each.name for each in attrs.fields(cls)]


@cache
def read_settings() -> set[str]:
    """What is read of settings, by others and by themselves; the rollout's rules are taken from them by their names."""
    found = {attribute for tree in trees().values() for source, attribute in reads(tree) if source.endswith("settings")}
    found.update(attribute for tree in trees().values() for attribute in own_reads(tree, "Settings"))
    return found.union(names(RolloutRules))


def test_every_setting_is_read() -> None:
    loading = (ROOT / "gateway" / "config" / "load.py").read_text()
    by_name = {name for name, read in READ_BY_NAME.items() if read in loading}
    settings = [each.name for each in attrs.fields(Settings) if "name" in each.metadata]
    assert len(settings) > 90
    assert [name for name in settings if name not in read_settings() | by_name] == []


@pytest.mark.parametrize("cls", [Options, RolloutRules])
def test_what_settings_become_is_read(cls: type[Any]) -> None:
    """They go on as options of the strategies and rules of the rollout, and could end there."""
    found = {
        attribute
        for path, tree in trees().items()
        if not path.startswith("gateway/config")
        for _, attribute in reads(tree)
    }
    assert set(names(cls)) <= found


@cache
def fed() -> set[Any]:
    """The names in the calls that feed metrics."""
    return {
        constant.value
        for tree in trees().values()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and name_of(call.func) in FEEDS
        for argument in call.args[:1]
        for constant in ast.walk(argument)
        if isinstance(constant, ast.Constant)
    }


def test_every_metric_is_fed() -> None:
    assert len(CATALOGUE) > 60
    assert [metric.name for metric in CATALOGUE if metric.name not in fed()] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_defence_that_attacks_are_tried_without_stands_where_it_is_taken_out(fault: Fault) -> None:
    assert (ROOT / fault.path).read_text("utf-8").count(fault.line) == 1
