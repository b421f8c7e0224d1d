"""Which tests are near a change, and which of them there is time for: `pytest --near` asks.

The imports are read from the sources. What a module of tests is about has its name (`tests/gateway/wire/test_sse.py`),
or is imported by it, by the supporting modules that it imports, or by the fixtures that it asks for. How far it stands
from a change is how many imports lie between. From the nearest outward a budget is spent: first whole tests, then a
case of each, then more of the near ones' cases. What that leaves out is told where the tests end.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

__all__ = [
    *("ALWAYS", "BUDGET_S", "BY_FOLDER", "DOCUMENTED", "NO_GIT", "ROOM", "ROOT", "THROUGH_ALL", "Item", "Near"),
    *("changed_files", "distances", "ranks", "spend", "summary", "words_of"),
]

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".pytest_cache" / "sources.json"
COSTS = Path(__file__).with_name("costs.json")
"""Processor seconds of one case of the dearer tests, written by `python -m tests.support.near`. What is not among them
counts as cheap, so an old table makes the answer come later, never wrong.
"""

BUDGET_S = 40.0
"""For the tests themselves, on two cores; to start and to collect them takes a third of that besides."""
DEAR_S, CHEAP_S = 0.04, 0.008
"""From here on a test is in the table; what another one costs."""
LISTED = 8
OWN_SHARE, SHARE = 0.25, 0.05
"""Of what is left of the budget one test of a changed module's own may take so much, any other one so much."""
FILES = 72
"""Modules of tests at most: to import one costs as much as a few of its tests."""
ROOM, NEAREST, NEAREST_FILES = 2, 4, 32
"""How far the tests of a changed module's room are; up to where, and in how many modules, all cases are collected."""
ONE_IN = 10
"""Of so many cases of a test one goes first, however far away it is; farther than that no others are collected."""
EVERY = range(sys.maxsize)

ALWAYS = ("tests/test_architecture.py",)
"""Seconds that every change is worth."""
THROUGH_ALL = {
    "strategies": ("tests/strategies/test_golden.py", "tests/strategies/test_negatives.py"),
    "gateway": ("tests/integration/test_answers.py", "tests/integration/test_calls.py"),
}
"""Tests that go through a whole package: what a neighbour does not see shows in these."""
BY_FOLDER = {
    "deploy": ("tests/deploy",),
    "grafana": ("tests/grafana",),
    "tests/golden": ("tests/strategies/test_golden.py", "tests/strategies/test_strategies_readme.py"),
    "tests/data": ("tests/strategies",),
    "tests/fixtures": (
        *("tests/strategies/test_strategies_readme.py", "tests/strategies/base/test_strategy.py"),
        "tests/strategies/grammar/test_dialect.py",
    ),
    "tests/sdk/node": ("tests/sdk/test_sdks.py",),
}
"""Files that nobody imports, and whose tests they are. Documents belong to `DOCUMENTED`."""
DOCUMENTED = ("tests/test_docs.py", "tests/deploy/test_readme.py", "tests/strategies/test_strategies_readme.py")
NO_GIT = "what git does not tell"
OF_ALL = ("tests/conftest.py", "pyproject.toml", NO_GIT)
"""What no test is far from."""


def _git(*arguments: str) -> list[str]:
    try:
        told = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return told.stdout.splitlines() if told.returncode == 0 else []


def changed_files() -> frozenset[str]:
    """What differs from where this branch left `main` (on `main`: from the last commit), and what git does not know."""
    if not _git("rev-parse", "HEAD"):
        return frozenset({NO_GIT})
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


def _path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_test(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_") and path.endswith(".py")


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Source(msgspec.Struct):
    """What is asked of one source, and which version of it was read."""

    version: tuple[int, int]
    named: dict[str, str]
    """What it imports, by the names that it uses for it."""
    asked: list[str]
    """The names of the arguments of all its functions: fixtures are among them."""
    fixtures: dict[str, tuple[list[str], list[str]]]
    """What each of its decorated functions uses of what is imported, and the names of its arguments."""


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


def _named(tree: ast.AST) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _fixtures(tree: ast.Module) -> dict[str, tuple[list[str], list[str]]]:
    named = _named(tree)
    defined = {node.name: node for node in tree.body if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}
    uses = {
        name: {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | _named(node).keys()
        for name, node in defined.items()
    }
    found = {}
    for name, node in defined.items():
        if isinstance(node, _FUNCTIONS) and node.decorator_list:
            seen, waiting = set[str](), [name]
            while waiting:
                if (at := waiting.pop()) not in seen:
                    seen.add(at)
                    waiting += uses.get(at, ())
            arguments = [argument.arg for argument in node.args.args]
            found[name] = (sorted({named[each] for each in seen if each in named}), arguments)
    return found


def _read(path: Path, version: tuple[int, int]) -> _Source:
    tree = ast.parse(path.read_bytes())
    functions = [node for node in _statements(tree) if isinstance(node, _FUNCTIONS)] if is_test(_path(path)) else []
    return _Source(
        version=version,
        named=_named(tree),
        asked=sorted({argument.arg for node in functions for argument in node.args.args}),
        fixtures=_fixtures(tree) if path.name == "conftest.py" else {},
    )


@cache
def _read_sources() -> dict[str, _Source]:
    """What the sources say, by their modules. To read them all takes seconds, so what was read of one is kept beside
    what pytest keeps, for as long as that source stays as it is.
    """
    known: dict[str, _Source] = {}
    with suppress(OSError, msgspec.MsgspecError):
        known = msgspec.json.decode(KEPT.read_bytes(), type=dict[str, _Source])
    found: dict[str, _Source] = {}
    for name, path in _sources().items():
        told = path.stat()
        source, version = known.get(name), (told.st_mtime_ns, told.st_size)
        found[name] = source if source is not None and source.version == version else _read(path, version)
    if found != known:
        with suppress(OSError):
            KEPT.parent.mkdir(exist_ok=True)
            written = KEPT.with_suffix(f".{os.getpid()}")
            written.write_bytes(msgspec.json.encode(found))
            written.replace(KEPT)
    return found


def _is_package(name: str) -> bool:
    return _sources()[name].name == "__init__.py"


def _owners(name: str) -> Iterator[str]:
    """The modules that this name is, or is in; of what a package only passes on, also the one that has it."""
    known = _sources()
    if name in known:
        yield name
        return
    owner, _, what = name.rpartition(".")
    if owner in known:
        yield owner
        passed_on = _read_sources()[owner].named.get(what, "") if _is_package(owner) else ""
        if passed_on.startswith(f"{owner}."):
            yield from _owners(passed_on)


def _owners_of(names: Collection[str]) -> set[str]:
    return {owner for name in names for owner in _owners(name)}


def _of_fixtures(name: str) -> set[str]:
    """What the shared fixtures use that this module of tests asks for."""
    fixtures: dict[str, tuple[list[str], list[str]]] = {}
    parts = name.split(".")
    for depth in range(1, len(parts)):
        if conftest := _read_sources().get(".".join((*parts[:depth], "conftest"))):
            fixtures |= conftest.fixtures
    found: set[str] = set()
    waiting, seen = list(_read_sources()[name].asked), set[str]()
    while waiting:
        if (asked := waiting.pop()) in fixtures and asked not in seen:
            seen.add(asked)
            uses, more = fixtures[asked]
            found |= _owners_of(uses)
            waiting += more
    return found


def _by_name(name: str) -> set[str]:
    """What a module imports by a name that it makes or looks up."""
    if name == "gateway.cli.root":
        return {each for each in _sources() if each.startswith("gateway.cli.")}
    if name == "strategies.factory":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        return {each.partition(":")[0] for each in project["entry-points"]["toolgate.strategies"].values()}
    return set()


@cache
def graph() -> dict[str, frozenset[str]]:
    """What each module uses of the others. What a package passes on, those who ask for it use, not the package."""
    found = {}
    for name, source in _read_sources().items():
        used = _owners_of(source.named.values()) | _by_name(name)
        if _is_package(name):
            used = {each for each in used if not each.startswith(f"{name}.")}
        if is_test(_path(_sources()[name])):
            used |= _of_fixtures(name)
        found[name] = frozenset(used - {name})
    return found


def _shared_by_fixtures() -> dict[str, frozenset[str]]:
    """The same without what stands beside the tests for all of them: each test has what it asks for by itself."""
    return {name: used for name, used in graph().items() if not name.endswith(".conftest")}


def distances(changed: Collection[str], imports: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """How many imports lie between each module and the nearest of these, for those that reach one of them at all."""
    importers = defaultdict(set)
    for name, imported in imports.items():
        for each in imported:
            importers[each].add(name)
    found = dict.fromkeys(changed, 0)
    waiting = list(changed)
    for name in waiting:
        for importer in importers[name] - found.keys():
            found[importer] = found[name] + 1
            waiting.append(importer)
    return found


def _own(name: str) -> str:
    """The module of tests that bears this module's name."""
    room, _, stem = name.rpartition(".")
    return f"tests.{room}.test_{stem.rstrip('_')}"


def ranks(files: Collection[str]) -> dict[str, int]:
    """How far from these changed files each module of tests is that knows anything of them, by its path.

    0: it is one of them, or has a changed module's name; 2: it uses one, or is of its room; 3: it has the name of a
    module that uses one; and so on, two for each import more.
    """
    paths = {_path(path): name for name, path in _sources().items()}
    tests = {name: path for path, name in paths.items() if is_test(path)}
    changed = {paths[file] for file in files if file in paths}
    found: dict[str, int] = {}

    def take(path: str, rank: int) -> None:
        found[path] = min(rank, found.get(path, rank))

    shipped = {name for name in changed if not name.startswith("tests.")}
    for name, steps in distances(shipped, _shared_by_fixtures()).items():
        if name in tests:
            take(tests[name], 2 * steps)
        elif _own(name) in tests:
            take(tests[_own(name)], 2 * steps + (steps > 0))
    for name, steps in distances(changed - shipped, graph()).items():
        if name in tests:
            take(tests[name], 2 * steps)
        elif name.endswith(".conftest"):
            folder = _path(_sources()[name].parent)
            for path in tests.values():
                if path.startswith(f"{folder}/"):
                    take(path, 2 * steps + ROOM)
    rooms = {f"tests.{name.rpartition('.')[0]}" for name in shipped}
    near_folders = {tests for file in files for folder, tests in BY_FOLDER.items() if file.startswith(f"{folder}/")}
    prefixes = tuple(prefix for prefixes in near_folders for prefix in prefixes)
    documented = DOCUMENTED if any(file.endswith(".md") for file in files) else ()
    through_all = {
        path for file in files for package, paths in THROUGH_ALL.items() if file.startswith(package) for path in paths
    }
    for name, path in tests.items():
        if name.rpartition(".")[0] in rooms or path.startswith(prefixes) or path in documented:
            take(path, ROOM)
        if path in found and path in through_all:
            take(path, ROOM + 1)
        if path in ALWAYS:
            take(path, ROOM)
        if any(file in files for file in OF_ALL):
            take(path, NEAREST + 1)
    return found


class Item(msgspec.Struct, frozen=True):
    """A test as its budget sees it."""

    id: str
    rank: int
    each_s: float

    @property
    def function(self) -> str:
        return self.id.partition("[")[0]

    def speaks_of(self, words: Collection[frozenset[str]]) -> bool:
        """Whether the case has the name of what changed: `test_x[hermes-3]` of `hermes`."""
        said = set(re.split(r"[^a-z0-9]+", self.id.partition("[")[2].lower()))
        return any(word <= said for word in words)


def words_of(files: Collection[str]) -> list[frozenset[str]]:
    return [frozenset(Path(file).stem.lower().split("_")) for file in sorted(files) if Path(file).stem != "__init__"]


def _some(cases: Sequence[Item], number: int, words: Collection[frozenset[str]]) -> list[Item]:
    """So many of the cases: first those that speak of what changed, the others spread over all."""
    if number >= len(cases):
        return list(cases)
    spoken = [case for case in cases if case.speaks_of(words)][:number]
    others = [case for case in cases if case not in spoken]
    rest = number - len(spoken)
    return spoken + [others[at * len(others) // rest] for at in range(rest)]


def spend(items: Sequence[Item], words: Collection[frozenset[str]] = ()) -> list[Item]:
    """The tests that there is time for, those that are near first.

    First whole tests of what changed by itself, for half of the time at most; then some cases of each test; then, from
    the nearest on, the others of their cases; and those that would take much of what is left at the very end.
    """
    functions: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        functions[item.function].append(item)
    ordered = sorted(functions.values(), key=lambda cases: (cases[0].rank, len(cases) * cases[0].each_s))
    numbers = dict.fromkeys(functions, 0)

    def pay(left_s: float, share: float, one_in: int, ranks: range = EVERY) -> float:
        """Take one in so many cases of each test that is so far; what is left."""
        for cases in ordered:
            first = cases[0]
            if first.rank in ranks:
                had = numbers[first.function]
                number = min(-(-len(cases) // one_in), had + int(share * left_s / first.each_s))
                if number > had:
                    numbers[first.function] = number
                    left_s -= (number - had) * first.each_s
        return left_s

    left_s = BUDGET_S / 2 + pay(BUDGET_S / 2, OWN_SHARE, 1, range(1))
    left_s = pay(left_s, SHARE, ONE_IN)
    left_s = pay(left_s, SHARE, 1)
    pay(left_s, OWN_SHARE, 1)
    return [item for cases in ordered for item in _some(cases, numbers[cases[0].function], words)]


class Near:
    """What `pytest --near` does, in the process that is asked and in those that run the tests."""

    def __init__(self, config: pytest.Config) -> None:
        told: dict[str, Any] | None = getattr(config, "workerinput", {}).get("near")
        files = sorted(changed_files()) if told is None else told["files"]
        found = ranks(files) if told is None else told["ranks"]
        if "not system" in config.option.markexpr:
            found = {path: rank for path, rank in found.items() if not path.startswith("tests/system/")}
        concerns_all = any(file in files for file in OF_ALL)
        files_at_most = len(found) if concerns_all else max(FILES, sum(rank == 0 for rank in found.values()))
        nearest = sorted(found, key=lambda path: (found[path], path))[:files_at_most]
        self.files: list[str] = files
        self.ranks: dict[str, int] = {path: found[path] for path in nearest}
        self.few = {path for path in nearest[NEAREST_FILES:] if found[path] > NEAREST}
        self.farther = len(found) - len(nearest)
        self.chosen: dict[str, Any] = {}
        """What there was time for; the processes that run the tests all come to the same."""

    def _rank(self, path: Path) -> int:
        return self.ranks.get(_path(path), sys.maxsize)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """The processes that run the tests are told what is near: one look at the sources is enough."""
        node.workerinput["near"] = {"files": self.files, "ranks": self.ranks}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        is_far = is_test(_path(collection_path)) and _path(collection_path) not in self.ranks
        return True if is_far else None

    @pytest.hookimpl(wrapper=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Generator[None]:
        """Make few of the cases of tests that are far away: of thousands that are made few would go."""
        yield
        if _path(metafunc.definition.path) in self.few:
            words = words_of(self.files)
            calls = [(Item(f"[{call.id}]", 0, 0.0), call) for call in metafunc._calls]
            metafunc._calls[:] = [
                call for at, (item, call) in enumerate(calls) if at % ONE_IN == 0 or item.speaks_of(words)
            ]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        costs = _costs()
        known = {item.nodeid: item for item in items}
        seen = [
            Item(nodeid, self._rank(item.path), costs.get(nodeid.partition("[")[0], CHEAP_S))
            for nodeid, item in known.items()
        ]
        kept = spend(seen, words_of(self.files))
        ids = {item.id for item in kept}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in ids])
        parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        items[:] = [known[item.id] for item in _in_parts(kept, parts)]
        self.chosen = _chosen(seen, kept, self.few)
        if (output := getattr(config, "workeroutput", None)) is not None:
            output["near"] = self.chosen

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.chosen = getattr(node, "workeroutput", {}).get("near") or self.chosen

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in summary(self.files, self.chosen, self.farther):
            terminalreporter.write_line(line)


def _chosen(seen: Collection[Item], kept: Collection[Item], few: Collection[str]) -> dict[str, Any]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for at, items in enumerate((seen, kept)):
        for item in items:
            counts[item.id.partition("::")[0]][at] += 1
    whole = {path for path, (all_, taken) in counts.items() if all_ == taken and path not in few}
    part = {path for path, (_, taken) in counts.items() if taken} - whole
    return {"tests": len(kept), "whole": sorted(whole), "part": sorted(part)}


def summary(files: Collection[str], chosen: Mapping[str, Any], farther: int) -> Iterator[str]:
    """What was chosen and why, in lines."""
    if not files:
        yield "near: nothing differs from main"
    elif concern_all := [file for file in OF_ALL if file in files]:
        yield f"near: {_listed(concern_all)} concerns every test, so a little of each"
    else:
        yield f"near: what knows of {_listed(sorted(files))}"
    if not chosen:
        return
    whole, part = chosen["whole"], chosen["part"]
    yield f"near: {chosen['tests']} tests; all of {_listed(_rooms(whole)) or 'no module'}"
    if part:
        yield f"near: and some of {len(part)} modules of tests that are farther, or dear"
    if farther:
        yield f"near: and none of {farther} modules of tests farther away, for want of time"


def _rooms(paths: Collection[str]) -> list[str]:
    """These modules of tests, a folder's name in place of all that are right in it."""
    folders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        folders[path.rpartition("/")[0]].append(path)
    found: list[str] = []
    for folder, held in sorted(folders.items()):
        is_whole = len(held) > 1 and len(held) == len(list((ROOT / folder).glob("test_*.py")))
        found += [folder] if is_whole else held
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def _in_parts(items: Sequence[Item], number: int) -> list[Item]:
    """The same tests, so that each process begins with near ones: it is given a part of the list, each as long."""
    parts: list[list[Item]] = [[] for _ in range(number)]
    for _, cases in groupby(items, key=lambda item: item.function):
        min(parts, key=len).extend(cases)
    return [item for part in parts for item in part]


def _costs() -> dict[str, float]:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(COSTS.read_bytes(), type=dict[str, float])
    return {}


class _Meter:
    """Notes what the tests cost of the processor's time, with that of the programs they start."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = os.times()
        done = yield
        after = os.times()
        self.spent[item.nodeid.partition("[")[0]].append(sum(after[:4]) - sum(before[:4]))
        return done


def main() -> int:
    """Measure what one case of each test costs, all of them near."""
    from tests.support import near  # as tests/conftest.py knows it

    meter = _Meter()
    for name, instead in {"changed_files": lambda: frozenset(OF_ALL), "BUDGET_S": 1e6}.items():
        setattr(near, name, instead)
    done = pytest.main(["-n", "0", "-m", "not cost and not system", "--near", *sys.argv[1:]], plugins=[meter])
    means = {name: sum(spent) / len(spent) for name, spent in meter.spent.items()}
    dear = {name: round(mean, 2) for name, mean in sorted(means.items()) if mean >= DEAR_S}
    rest = [mean for name, mean in means.items() if name not in dear]
    COSTS.write_bytes(msgspec.json.format(msgspec.json.encode(dear), indent=1) + b"\n")
    sys.stdout.write(f"{len(dear)} dear tests, {len(rest)} of {sum(rest) / len(rest):.3f} s\n")
    return int(done)


if __name__ == "__main__":
    sys.exit(main())
