"""Which tests are near a change: those of the modules that it touches, and of the modules that import them.

The imports are read from the sources. Within a package (`gateway`, `strategies`) whoever imports a changed module is
touched by it, however many steps away; from one package to the other one step counts. A module of tests stands for what
it imports itself, what the supporting modules that it imports do, and what the fixtures that it asks for do.
"""

import ast
import os
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

__all__ = ["ROOT", "changed_files", "far_tests", "is_test", "near", "near_tests"]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".pytest_cache" / "near.json"
ALWAYS = ("tests/test_architecture.py",)
"""Seconds that every change is worth."""
MANY = 130
"""Modules of tests near a change of something that nearly all else stands on."""
BY_FOLDER = {
    "deploy": ("tests/deploy",),
    "grafana": ("tests/grafana",),
    "tests/golden": ("tests/strategies/test_golden.py", "tests/strategies/test_strategies_readme.py"),
    "tests/data": ("tests/strategies",),
    "tests/fixtures": ("tests/strategies/test_strategies_readme.py", "tests/strategies/dialects/test_rows.py"),
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


def _named(tree: ast.AST) -> list[str]:
    """What is imported anywhere in this piece of a source, each name with its module's."""
    found: list[str] = []
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [argument.arg for argument in node.args.args]


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Source(msgspec.Struct):
    """What is asked of one source, and which version of it was read."""

    version: tuple[int, int]
    named: list[str]
    """What it imports."""
    asked: list[str]
    """The names of the arguments of all its functions: fixtures are among them."""
    fixtures: dict[str, tuple[list[str], list[str]]]
    """What each of its decorated functions imports when it is called, and the names of its arguments."""


def _version(path: Path) -> tuple[int, int]:
    told = path.stat()
    return told.st_mtime_ns, told.st_size


def _read(path: Path, version: tuple[int, int]) -> _Source:
    tree = ast.parse(path.read_bytes())
    functions = [node for node in _statements(tree) if isinstance(node, _FUNCTIONS)]
    fixtures = {node.name: node for node in tree.body if isinstance(node, _FUNCTIONS) and node.decorator_list}
    return _Source(
        version=version,
        named=_named(tree),
        asked=sorted({name for node in functions for name in _arguments(node)}) if is_test(_path(path)) else [],
        fixtures={name: (_named(node), _arguments(node)) for name, node in fixtures.items()}
        if path.name == "conftest.py"
        else {},
    )


def _path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _read_sources() -> dict[str, _Source]:
    """What the sources say, by their paths. To read them all takes seconds, so what was read of one is kept beside what
    pytest keeps, for as long as that source stays as it is.
    """
    known: dict[str, _Source] = {}
    with suppress(OSError, msgspec.MsgspecError):
        known = msgspec.json.decode(KEPT.read_bytes(), type=dict[str, _Source])
    found: dict[str, _Source] = {}
    for path in _sources().values():
        source, version = known.get(name := _path(path)), _version(path)
        found[name] = source if source is not None and source.version == version else _read(path, version)
    if found != known:
        with suppress(OSError):
            KEPT.parent.mkdir(exist_ok=True)
            written = KEPT.with_suffix(f".{os.getpid()}")
            written.write_bytes(msgspec.json.encode(found))
            written.replace(KEPT)
    return found


def _modules(names: Collection[str]) -> frozenset[str]:
    """The modules of the project that these names are, or are in."""
    known = _sources()
    owners = {name if name in known else name.rpartition(".")[0] for name in names}
    return frozenset(owners & known.keys())


def _of_fixtures(path: Path) -> frozenset[str]:
    """What the shared fixtures import that this module of tests asks for."""
    fixtures: dict[str, tuple[list[str], list[str]]] = {}
    found: set[str] = set()
    for folder in reversed(path.relative_to(ROOT).parents):
        conftest = _read_sources().get((folder / "conftest.py").as_posix())
        if conftest is not None:
            fixtures |= conftest.fixtures
            found |= {name for name in _modules(conftest.named) if name.startswith("tests.")}
    waiting, seen = set(_read_sources()[_path(path)].asked), set[str]()
    while waiting:
        name = waiting.pop()
        if name in fixtures and name not in seen:
            seen.add(name)
            imports, more = fixtures[name]
            found |= _modules(imports)
            waiting |= set(more)
    return frozenset(found)


@cache
def graph() -> dict[str, frozenset[str]]:
    """What each module imports."""
    return {name: _modules(_read_sources()[_path(path)].named) for name, path in _sources().items()}


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
    names = {_path(path): name for name, path in _sources().items()}
    imports = {
        name: graph()[name] | (_of_fixtures(path) if is_test(_path(path)) else frozenset[str]())
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


def far_tests(files: Collection[str], tests: Collection[str]) -> frozenset[str]:
    """Of very many modules of tests near a change those of other packages: some of what each asks will do."""
    packages = {file.partition("/")[0] for file in files} & {"gateway", "strategies"}
    if len(tests) < MANY or not packages:
        return frozenset()
    own = tuple(f"tests/{package}/" for package in packages)
    return frozenset(tests) - {*ALWAYS, *DOCUMENTED, *files} - {test for test in tests if test.startswith(own)}
