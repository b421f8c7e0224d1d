"""Which module may import which, what it may touch, and that what is declared is used: held against the sources."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
import pytest

from gateway.config.declarations import Settings
from gateway.rollout.stages import RolloutRules
from gateway.telemetry.metrics import CATALOGUE
from strategies.base import Options
from tests.attacks.mutants import FAULTS, Fault
from tests.support.rooms import LONGEST_ROOM, ROOMS, ROOT, imported, is_pure, modules, rights, room_of, visible

PURE_LIBRARIES = frozenset({"attr", "attrs", "msgspec"})
IMPURE = frozenset(
    {"asyncio", "time", "random", "os", "secrets", "socket", "threading", "subprocess", "sqlite3", "tempfile"}
)
STANDARD = sys.stdlib_module_names - IMPURE
OPEN_TO_THIRD_PARTIES = ("strategies.base", "strategies.reading", "gateway.core", "gateway.wire")

TABLES = {
    "strategies.dialects.rows": "dialects",
    "strategies.clients.recognition": "clients that read tags",
    "strategies.factory": "strategies",
    "gateway.answer.stages": "stages that a choice goes through",
    "strategies.mapping.mappings": "mappings of tools",
    "gateway.config.declarations": "groups of settings",
    "gateway.kinds.rows": "kinds of model servers",
    "gateway.state.opening": "stores",
    "gateway.front.routes": "routes",
    "gateway.inspector.server": "routes of the inspector",
}
"""Modules whose rows stand in modules of their own, each imported by its table alone."""
LONGEST_MODULE = 650
TESTED_BY_NAME = 200
"""A module of more lines has a file of tests that bears its name: whoever changes it knows where to look."""
MOST_BRANCHES = 20
"""A function that decides more often than this is taken apart by what it decides."""
MOST_LENT_TO_ONE = 75
"""More modules than this are not split off for a single other one, rows of a table aside."""

BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.While, ast.BoolOp, ast.ExceptHandler),
    *(ast.comprehension, ast.match_case),
)

TASKS_HELD_BY = {"gateway/app.py": "the one who holds it cancels and awaits it"}
TASK_MAKERS = {"create_task", "ensure_future"}


def is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("gateway", "strategies", "tests")


def folder(name: str) -> str:
    return name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]


def inside(room: str) -> list[str]:
    return [name for name in modules() if room_of(name) == room]


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_imports_one_that_it_does_not_see(room: str) -> None:
    allowed = visible(room) | {room}
    high = [
        f"{name} imports {what}"
        for name in inside(room)
        for what in imported(modules()[name])
        if is_ours(what)
        and room_of(what) not in allowed
        # the face of a package and its command line are what runs it from outside
        and (name, room_of(what)) not in {("gateway.__main__", "gateway.cli")}
    ]
    assert high == []


@pytest.mark.parametrize("room", [room for room in ROOMS if is_pure(room)])
def test_a_pure_room_knows_no_world(room: str) -> None:
    foreign = [
        f"{name} imports {what}"
        for name in inside(room)
        for what in imported(modules()[name])
        if not is_ours(what) and what.partition(".")[0] not in STANDARD | PURE_LIBRARIES
    ]
    assert foreign == []


def test_no_two_folders_import_each_other() -> None:
    across = {
        (folder(name), folder(what if what in modules() else what.rpartition(".")[0]))
        for name, path in modules().items()
        for what in imported(path)
        if is_ours(what)
    }
    assert [pair for pair in sorted(across) if pair[0] < pair[1] and pair[::-1] in across] == []


def test_every_folder_is_in_the_table_and_says_what_it_may_touch() -> None:
    folders = {name for name, path in modules().items() if path.name == "__init__.py"}
    assert {room_of(name) for name in folders} == set(ROOMS)
    assert {name for name in folders if not rights(name)} == {"gateway"}, "the wiring may touch everything"
    for name in folders - {"gateway"}:
        assert rights(name) == "pure" or rights(name).startswith("edge: ")
        assert is_pure(room_of(name)) <= (rights(name) == "pure"), f"{name} has other rights than its room"
        assert len((ast.get_docstring(ast.parse(modules()[name].read_bytes())) or "").splitlines()) <= 20


def test_what_a_folder_names_is_there() -> None:
    for name in (name for name, path in modules().items() if path.name == "__init__.py"):
        said = ast.get_docstring(ast.parse(modules()[name].read_bytes())) or ""
        named = re.findall(r"`([a-z_.]+)`", said)
        roots = (f"{name}.", "gateway.", "strategies.", "")
        assert [each for each in named if not any(f"{root}{each}" in modules() for root in roots)] == [], name


def test_a_folder_can_be_held_in_the_head() -> None:
    full = Counter(folder(name) for name, path in modules().items() if path.name != "__init__.py")
    assert {name: count for name, count in full.items() if count > LONGEST_ROOM} == {}


def test_no_module_or_function_outgrows_its_reader() -> None:
    sources = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    assert [name for name, source in sources.items() if source.count("\n") > LONGEST_MODULE] == []
    wide = [
        f"{name}.{node.name}"
        for name, source in sources.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and sum(isinstance(inner, BRANCHES) for inner in ast.walk(node)) >= MOST_BRANCHES
    ]
    assert wide == []


def test_a_large_module_has_tests_of_its_own_name() -> None:
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py") if "node_modules" not in path.parts}
    large = {
        name: path
        for name, path in modules().items()
        if path.name != "__init__.py" and path.read_text(encoding="utf-8").count("\n") > TESTED_BY_NAME
    }
    assert len(large) > 100
    # A keyword for a name has an underscore behind it, which the name of its tests does not need.
    assert [name for name, path in large.items() if f"test_{path.stem.rstrip('_')}" not in tests] == []


def test_few_modules_serve_a_single_other_one() -> None:
    importers: dict[str, set[str]] = {name: set() for name in modules()}
    for name, path in modules().items():
        for what in imported(path):
            target = what if what in modules() else what.rpartition(".")[0]
            if target in modules() and target != name:
                importers[target].add(name)
    assert importers.keys() >= TABLES.keys()
    lent = sorted(name for name, by in importers.items() if len(by) == 1 and not by & TABLES.keys())
    assert len(lent) < MOST_LENT_TO_ONE, lent


def test_a_third_party_needs_little_of_the_house() -> None:
    seen = frozenset().union(*(visible(room) for room in OPEN_TO_THIRD_PARTIES))
    assert not {room for room in seen if not is_pure(room)}


def test_nothing_that_is_shipped_imports_the_tests() -> None:
    assert [name for name, path in modules().items() for what in imported(path) if what.startswith("tests.")] == []


def test_no_background_work_without_a_holder() -> None:
    loose = []
    for path in modules().values():
        where, source = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        for node in ast.walk(ast.parse(source)) if any(name in source for name in TASK_MAKERS) else ():
            if isinstance(node, ast.Call) and where not in TASKS_HELD_BY and _is_task_maker(node.func):
                loose.append(f"{where}:{node.lineno}")
    assert loose == []


def _is_task_maker(function: ast.expr) -> bool:
    """A task that belongs to nobody: those of a task group end with it."""
    if isinstance(function, ast.Name):
        return function.id in TASK_MAKERS
    if not isinstance(function, ast.Attribute) or function.attr not in TASK_MAKERS:
        return False
    return not (isinstance(function.value, ast.Name) and function.value.id in {"group", "tasks"})


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    names = {path.stem for package in ("gateway", "strategies", "tests") for path in (ROOT / package).rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common"}


def test_the_top_level_holds_what_the_layout_says() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {"gateway", "strategies"}


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
