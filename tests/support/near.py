"""Which tests are near a change: those of the modules that it touches, and of the modules that import them.

The imports are read from the sources. Within a package (`gateway`, `strategies`) whoever imports a changed module is
touched by it, however many steps away; from one package to the other one step counts. A module of tests stands for what
it imports itself, what the supporting modules that it imports do, and what the fixtures that it asks for do.
"""

import ast
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "changed_files", "is_test", "near", "near_tests"]

ROOT = Path(__file__).parents[2]
ALWAYS = ("tests/test_architecture.py",)
"""Seconds that every change is worth."""
BY_FOLDER = {
    "deploy": ("tests/deploy",),
    "grafana": ("tests/grafana",),
    "tests/golden": ("tests/strategies/test_golden.py", "tests/strategies/test_rules.py"),
    "tests/data": ("tests/strategies",),
    "tests/fixtures": ("tests/strategies/test_plugins.py", "tests/strategies/test_dialect_table.py"),
    "tests/sdk/node": ("tests/sdk/test_node.py",),
}
"""Files that nobody imports, and whose tests they are. Documents belong to `DOCUMENTED`."""
DOCUMENTED = ("tests/test_docs.py", "tests/deploy/test_readme.py", "tests/strategies/test_strategies_readme.py")


def _git(*arguments: str) -> list[str]:
    told = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.splitlines() if told.returncode == 0 else []


def changed_files() -> frozenset[str]:
    """What differs from where this branch left `main` (on `main`: from the last commit), and what git does not know."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    return frozenset(
        _git("diff", "--name-only", "--no-renames", base[0]) + _git("ls-files", "--others", "--exclude-standard")
    )


@cache
def _sources() -> dict[str, Path]:
    """Every module of the project, by its name."""
    found = {}
    for package in ("gateway", "strategies", "tests"):
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if "node_modules" not in name:
                found[name.removesuffix(".__init__")] = path
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements in a piece of a source; its expressions, most of it, hold neither imports nor functions."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, ())
            if isinstance(inner, list):
                waiting += inner


def _imports(tree: ast.AST) -> Iterator[str]:
    """The modules of the project that are imported anywhere in this piece of a source."""
    known = _sources()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in named:
            owner = name if name in known else name.rpartition(".")[0]
            if owner in known:
                yield owner


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def _fixtures(conftest: Path) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """What each fixture imports when it is asked for, and which others it asks for."""
    found = {}
    for node in _tree(conftest).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            asked = frozenset(argument.arg for argument in node.args.args)
            found[node.name] = (frozenset(_imports(node)), asked)
    return found


def _asked(tree: ast.AST) -> set[str]:
    """The names of the arguments of all functions: fixtures are among them."""
    return {
        argument.arg
        for node in _statements(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument in node.args.args
    }


@cache
def _of_fixtures(path: Path) -> frozenset[str]:
    """What the shared fixtures import that this module of tests asks for."""
    fixtures: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    found: set[str] = set()
    for folder in reversed(path.relative_to(ROOT).parents):
        conftest = ROOT / folder / "conftest.py"
        if conftest.exists() and conftest != path:
            fixtures |= _fixtures(conftest)
            found |= {name for name in _imports(_tree(conftest)) if name.startswith("tests.")}
    waiting, seen = _asked(_tree(path)), set[str]()
    while waiting:
        name = waiting.pop()
        if name in fixtures and name not in seen:
            seen.add(name)
            imports, more = fixtures[name]
            found |= imports
            waiting |= more
    return frozenset(found)


@cache
def graph() -> dict[str, frozenset[str]]:
    """What each module imports."""
    return {name: frozenset(_imports(_tree(path))) for name, path in _sources().items()}


def is_test(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


def touched(changed: Collection[str], imports: Mapping[str, frozenset[str]]) -> set[str]:
    """The changed modules and those that import them: without end within a package, one step beyond it."""
    importers = defaultdict(set)
    for name, imported in imports.items():
        for each in imported:
            importers[each].add(name)
    found, waiting = set(changed), list(changed)
    while waiting:
        name = waiting.pop()
        for importer in importers[name] - found:
            if importer.partition(".")[0] == name.partition(".")[0]:
                found.add(importer)
                waiting.append(importer)
    return found | {importer for name in found for importer in importers[name] if not importer.startswith("tests.")}


def near(changed: Collection[str], imports: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Of the modules of tests in this graph, those that import what these changed modules touch."""
    shipped = touched([name for name in changed if not name.startswith("tests.")], imports)
    found = shipped | touched([name for name in changed if name.startswith("tests.")], imports)
    helped = touched([name for name in imports if name.startswith("tests.") and imports[name] & shipped], imports)
    return frozenset(name for name in found | helped if name.rpartition(".")[2].startswith("test_"))


def near_tests(files: Collection[str]) -> frozenset[str] | None:
    """The paths of the modules of tests near these changed files; None where every test is."""
    if "tests/conftest.py" in files or "pyproject.toml" in files:
        return None
    names = {path.relative_to(ROOT).as_posix(): name for name, path in _sources().items()}
    imports = {
        name: graph()[name] | (_of_fixtures(path) if is_test(path.relative_to(ROOT).as_posix()) else frozenset[str]())
        for name, path in _sources().items()
    }
    found = {*ALWAYS}
    for file in files:
        for folder, tests in BY_FOLDER.items():
            if file.startswith(f"{folder}/"):
                found.update(path for path in names if path.startswith(tests) and is_test(path))
        if file.endswith(".md"):
            found.update(DOCUMENTED)
        if file.endswith("/conftest.py"):
            found.update(path for path in names if path.startswith(file.removesuffix("conftest.py")) and is_test(path))
    modules = near([names[file] for file in files if file in names], imports)
    return frozenset(found | {path for path, name in names.items() if name in modules})
