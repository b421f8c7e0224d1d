"""Which module may import which: the layers, read from the sources themselves."""

import ast
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PURE_LIBRARIES = frozenset({"attr", "attrs", "msgspec"})
IMPURE = frozenset({"asyncio", "time", "random", "os", "secrets", "socket", "threading", "subprocess", "sqlite3"})
STANDARD = sys.stdlib_module_names - IMPURE

CORE = ("gateway.core",)
WIRE = (*CORE, "gateway.wire")
POLICY = (*CORE, "gateway.policy")
STRATEGIES = (*WIRE, "strategies")
OUTER = ("__init__", "__main__", "app", "cli_*", "config*", "demo*", "keys", "notify", "supervisor*", "upkeep")
"""Modules directly in `gateway` that join and start the rest; every other one there is a part of the exchange."""
PARTS = tuple(
    f"gateway.{path.stem}"
    for path in sorted((ROOT / "gateway").glob("*.py"))
    if not any(fnmatch(path.stem, pattern) for pattern in OUTER)
)
EXCHANGE = (*STRATEGIES, "gateway.policy", *PARTS)
NET = (*EXCHANGE, "gateway.net", "gateway.config", "gateway.__version__")
TELEMETRY = (*CORE, "gateway.telemetry")
STATE = (*CORE, "gateway.policy", "gateway.state")
REPORTING = (*EXCHANGE, "gateway.reporting")

INSIDE = {
    "gateway.core": CORE,
    "gateway.wire": WIRE,
    "gateway.policy": POLICY,
    "strategies": STRATEGIES,
    **dict.fromkeys(PARTS, EXCHANGE),
}
"""Pure packages, and what each may import of the project."""
EDGE = {
    "gateway.net": NET,
    "gateway.telemetry": TELEMETRY,
    "gateway.state": STATE,
    "gateway.reporting": REPORTING,
}
"""Packages that touch the world; `app` joins them, they do not know each other."""

TASKS_HELD_BY = {"gateway/app.py": "the one who holds it cancels and awaits it"}
TASK_MAKERS = {"create_task", "ensure_future"}


def modules(package: str) -> dict[str, Path]:
    """Every module of a package, or the one module of that name."""
    base = ROOT.joinpath(*package.split("."))
    paths = sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths if path.exists()}


def imported(path: Path) -> Iterator[str]:
    """The full name of every module that a source imports, wherever in the source it does so."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_ours(name: str) -> bool:
    return is_within(name, ("gateway", "strategies", "tests"))


def too_high(package: str, allowed: tuple[str, ...]) -> list[str]:
    return [
        f"{module} imports {name}"
        for module, path in modules(package).items()
        for name in imported(path)
        if is_ours(name) and not is_within(name, allowed)
    ]


@pytest.mark.parametrize("package", [*INSIDE, *EDGE])
def test_no_package_imports_one_above_it(package: str) -> None:
    assert too_high(package, {**INSIDE, **EDGE}[package]) == []


@pytest.mark.parametrize("package", INSIDE)
def test_the_inside_knows_no_world(package: str) -> None:
    foreign = [
        f"{module} imports {name}"
        for module, path in modules(package).items()
        for name in imported(path)
        if not is_ours(name) and name.partition(".")[0] not in STANDARD | PURE_LIBRARIES
    ]
    assert foreign == []


def test_nothing_that_is_shipped_imports_the_tests() -> None:
    shipped = {**modules("gateway"), **modules("strategies")}
    assert [module for module, path in shipped.items() for name in imported(path) if is_within(name, ["tests"])] == []


def test_every_package_is_in_the_table() -> None:
    assert "gateway.exchange" in PARTS
    packages = {f"gateway.{path.parent.name}" for path in (ROOT / "gateway").glob("*/__init__.py")}
    assert packages <= {*INSIDE, *EDGE}
    assert {package for package in (*INSIDE, *EDGE) if not modules(package)} == set(), (
        "the table names what is not there"
    )


def test_no_background_work_without_a_holder() -> None:
    loose = []
    for path in (*modules("gateway").values(), *modules("strategies").values()):
        where = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_bytes())):
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
    names = {module.rpartition(".")[2] for package in ("gateway", "strategies", "tests") for module in modules(package)}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common"}


def test_the_top_level_holds_what_the_layout_says() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {"gateway", "strategies"}
