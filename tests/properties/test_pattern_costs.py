"""No pattern of ours costs more than the length of the text it reads, whatever the text.

Every compiled pattern of the project is found, given the texts that are worst for it (its own literals and classes,
alone and in pairs, its beginnings without their ends), and timed on a text and on one twice as long. Where a pattern
is only ever asked at one place, it is asked there; any other goes through the whole text.
"""

import ast
import importlib
import itertools
import pathlib
import pkgutil
import re
import time
import warnings
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import pytest
from attrs import frozen

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as sre_parse  # type: ignore[attr-defined]

import gateway
import strategies
import strategies.text.cursor

ROOT = pathlib.Path(__file__).parents[2]
SIZE = 1 << 14
SIZES = (1 << 10, 1 << 13)
DOUBTFUL_NS = 150
"""Nanoseconds a character: what costs less can hide no square of the size."""
PROBES = (1 << 10, 1 << 12)
"""Smaller sizes: what costs little there would cost little at the larger ones, too, were it a square."""
MOST = 3.0
"""Twice the text may cost so many times as much; a square costs four times as much."""

AT_ONE_PLACE = frozenset({"match", "fullmatch"})
_PROMPTS = ("PROMPT", "ROOT_PROMPT", "BARE_ROOT", "WINDOWS_PROMPT")
IN_A_LIST = frozenset(f"strategies.dialects.lines.shell._{name}" for name in _PROMPTS)
"""Those that are asked at the beginning of a line, one after the other."""
BOUNDED = {
    "strategies.dialects.lines.react._CYCLE": 400,
    "strategies.dialects.tags.glm._GLUED_NAME": 128,
    "strategies.asking.intent._ASKED": 4000,
}
"""Those whose text is never longer: what stands before an opener, either end of a user's message."""
MOST_S = 0.02
"""CPU seconds that one of these may cost at its longest."""


def modules() -> Iterator[ModuleType]:
    for package in (gateway, strategies):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def held(value: Any, seen: set[int], depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value: in tables, records, classes, and what functions close over."""
    if isinstance(value, re.Pattern):
        yield value
        return
    if id(value) in seen or depth > 6:
        return
    seen.add(id(value))
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif isinstance(value, FunctionType):
        inner = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        inner += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    elif isinstance(value, type) and value.__module__.startswith(("gateway", "strategies")):
        inner = list(vars(value).values())
    elif type(value).__module__.startswith(("gateway", "strategies")):
        inner = list(getattr(value, "__dict__", {}).values())
        inner += [getattr(value, name, None) for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    for part in inner:
        yield from held(part, seen, depth + 1)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@cache
def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(pathlib.Path(module.__file__ or "").read_text("utf-8"))


def asked_in(scope: ast.AST) -> dict[str, set[str]]:
    """By a name in a scope, the methods that are asked of it; `to F 1` where it is the second argument of `F`."""
    found: dict[str, set[str]] = {}
    told: set[int] = set()

    def add(node: ast.AST, use: str) -> None:
        if isinstance(node, ast.Name):
            found.setdefault(node.id, set()).add(use)
            told.add(id(node))
        elif isinstance(node, ast.IfExp):
            add(node.body, use)
            add(node.orelse, use)

    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute):
            add(node.value, node.attr)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for number, argument in enumerate(node.args):
                add(argument, f"to {called} {number}")
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in told:
            found.setdefault(node.id, set()).add("other")
    return found


@cache
def uses(module: ModuleType) -> dict[str, set[str]]:
    return asked_in(tree_of(module))


@cache
def asked_of_parameters(module: ModuleType) -> dict[str, set[str]]:
    """What a module's functions ask of their parameters, by `to F 1`."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree_of(module)):
        if not isinstance(node, ast.FunctionDef):
            continue
        names = [each.arg for each in node.args.args]
        names = names[1:] if names[:1] == ["self"] else names
        asked = asked_in(node)
        for number, name in enumerate(names):
            found.setdefault(f"to {node.name} {number}", set()).update(asked.get(name, ()))
    return found


def asked_at_last(module: ModuleType, use: str) -> set[str]:
    """The methods that are asked where a pattern is handed on: to a function of the module, or to the cursor."""
    for other in (module, strategies.text.cursor):
        if (asked := asked_of_parameters(other).get(use)) is not None:
            return asked
    return {use}


@cache
def patterns() -> dict[str, tuple[re.Pattern[Any], bool]]:
    """Every pattern, by where it was found, and whether it is only ever asked at one place."""
    seen: set[int] = set()
    known: set[tuple[Any, int]] = set()
    found: dict[str, tuple[re.Pattern[Any], bool]] = {}
    everything = list(modules())
    known_as: dict[int, list[tuple[ModuleType, str]]] = {}
    for module in everything:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                known_as.setdefault(id(value), []).append((module, name))
    for module in everything:
        for name, value in vars(module).items():
            for number, pattern in enumerate(held(value, seen)):
                if (pattern.pattern, pattern.flags) in known:
                    continue
                known.add((pattern.pattern, pattern.flags))
                asked = {
                    method
                    for other, its_name in known_as.get(id(pattern), ())
                    for use in uses(other).get(its_name, ())
                    for method in asked_at_last(other, use)
                }
                where = f"{module.__name__}.{name}" + (f"[{number}]" if number else "")
                found[where] = (
                    pattern,
                    (where in IN_A_LIST or (value is pattern and bool(asked) and asked <= AT_ONE_PLACE)),
                )
    return found


def _class(items: Any) -> str:
    """A character that a class takes."""
    negated = items and items[0][0] is sre.NEGATE
    taken = ""
    for kind, value in items:
        if kind is sre.LITERAL:
            taken += chr(value)
        elif kind is sre.RANGE:
            taken += chr(value[0])
        elif kind is sre.CATEGORY:
            taken += {sre.CATEGORY_SPACE: " ", sre.CATEGORY_DIGIT: "1", sre.CATEGORY_WORD: "a"}.get(value, "-")
    if not negated:
        return taken[:4]
    return "".join(char for char in 'a <\n"' if char not in taken)[:2]


def _walk(tree: Any, prefix: str, atoms: dict[str, None], starts: dict[str, None]) -> str:
    """A text that the tree takes; on the way its atoms and the beginnings of what it takes."""
    for kind, value in tree:
        piece = ""
        if kind is sre.LITERAL:
            piece = chr(value)
        elif kind is sre.NOT_LITERAL:
            piece = "b" if value == ord("a") else "a"
        elif kind is sre.ANY:
            piece = "a"
        elif kind is sre.IN:
            chars = _class(value)
            atoms.update(dict.fromkeys(chars))
            piece = chars[:1]
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            piece = _walk(value[2], prefix, atoms, starts) * max(1, min(value[0], 3))
        elif kind is sre.SUBPATTERN:
            piece = _walk(value[3], prefix, atoms, starts)
        elif kind is sre.ATOMIC_GROUP:
            piece = _walk(value, prefix, atoms, starts)
        elif kind is sre.BRANCH:
            pieces = [_walk(branch, prefix, atoms, starts) for branch in value[1][:12]]
            piece = max(pieces, key=len)
            atoms.update(dict.fromkeys(piece for piece in pieces[:4] if piece))
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            _walk(value[1], prefix, atoms, starts)
        if piece:
            atoms.setdefault(piece[:20])
            prefix += piece
            starts.setdefault(prefix[-40:])
    return prefix


@frozen
class Made:
    """A text that is one unit again and again."""

    unit: str
    start: str = ""
    end: str = ""

    def text(self, pattern: re.Pattern[Any], size: int) -> Any:
        """So many characters of it, of the kind that the pattern reads, and how it ends."""
        made = (self.start + self.unit * (size // len(self.unit) + 1))[: size - 1] + (self.end or self.unit[-1])
        return made if isinstance(pattern.pattern, str) else made.encode("latin-1", "replace")


def worst(pattern: re.Pattern[Any]) -> Iterator[Made]:
    """Texts that may be bad for a pattern: what is repeated, with what stands before and behind it."""
    source = pattern.pattern
    text = source if isinstance(source, str) else source.decode("latin-1")
    atoms: dict[str, None] = {}
    starts: dict[str, None] = {}
    whole = _walk(sre_parse.parse(text, pattern.flags & ~re.UNICODE), "", atoms, starts)
    chosen = [*dict.fromkeys((" ", '"', '\\"', "\n", "a", *atoms))][:14]
    opens = [*starts][:6] + [*starts][-4:]
    units = [*chosen, *opens, *(one + other for one, other in itertools.permutations(chosen[:7], 2))]
    yield from map(Made, dict.fromkeys(units))
    for start in dict.fromkeys((*opens, whole)):
        for unit in chosen[:8]:
            yield Made(unit, start)
            yield Made(unit, start, "\x00")


def cost(pattern: re.Pattern[Any], text: Any, *, at_one_place: bool) -> float:
    started = time.process_time()
    if at_one_place:
        pattern.match(text)
    else:
        for _ in pattern.finditer(text):
            pass
    return time.process_time() - started


def least(pattern: re.Pattern[Any], text: Any, *, at_one_place: bool) -> float:
    return min(cost(pattern, text, at_one_place=at_one_place) for _ in range(3))


def double(pattern: re.Pattern[Any], made: Made, size: int, *, at_one_place: bool) -> float:
    """What twice the size costs where that is too much more than once; else nothing."""
    part = made.text(pattern, size)
    once = cost(pattern, part, at_one_place=at_one_place)
    if once < DOUBTFUL_NS * size * 1e-9:
        return 0.0
    longer = made.text(pattern, 2 * size)
    twice = cost(pattern, longer, at_one_place=at_one_place)
    for _ in range(3):
        once = min(once, cost(pattern, part, at_one_place=at_one_place))
        if twice < MOST * once:
            return 0.0
        once = min(once, least(pattern, part, at_one_place=at_one_place))
        twice = min(twice, least(pattern, longer, at_one_place=at_one_place))
    return twice if twice >= MOST * once else 0.0


def grows(pattern: re.Pattern[Any], made: Made, *, at_one_place: bool) -> bool:
    """Whether twice the text costs too much more, at two sizes: a bounded look ahead only does where it is longer."""
    told: dict[int, float] = {}

    def would_cost(size: int, of: int) -> float:
        """What a text of that size costs, were it a square of what one of this size does."""
        if of not in told:
            told[of] = cost(pattern, made.text(pattern, of), at_one_place=at_one_place)
        return told[of] * (size / of) ** 2

    if any(would_cost(SIZES[-1], of) < DOUBTFUL_NS * SIZES[-1] * 1e-9 for of in PROBES):
        return False
    found = 0
    for size in SIZES:
        if size == SIZES[-1] and not found and any(would_cost(SIZE, of) <= MOST_S for of in (*PROBES, size, SIZE)):
            return False  # as it shows at one size alone, it had to cost more
        twice = double(pattern, made, size, at_one_place=at_one_place)
        found = found + 1 if twice else 0
        if found and (found > 1 or twice > MOST_S):
            return True
    return False


def room(where: str) -> str:
    """The folder of the module in which a pattern was found, or the module that is in none."""
    return ".".join(where.split(".")[:2])


ROOMS = sorted(
    {
        room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for package in ("gateway", "strategies")
        for path in (ROOT / package).rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    }
)
"""Their names tell tests apart; what is in them is looked up by the test itself, as that takes a second."""


def test_there_are_patterns_in_many_rooms() -> None:
    assert len(patterns()) > 300
    assert len({room(where) for where in patterns()} & {*ROOMS}) > 12
    assert {room(where) for where in patterns()} <= {*ROOMS}


@pytest.mark.cost
@pytest.mark.parametrize("name", ROOMS)
def test_a_pattern_is_linear_in_its_text(name: str) -> None:
    for where, (pattern, at_one_place) in patterns().items():
        for made in worst(pattern) if room(where) == name else ():
            if (bound := BOUNDED.get(where)) is not None:
                is_bad = least(pattern, made.text(pattern, bound), at_one_place=at_one_place) > MOST_S
            else:
                is_bad = grows(pattern, made, at_one_place=at_one_place)
            assert not is_bad, f"{where}, {pattern.pattern[:80]!r}: {made}"
