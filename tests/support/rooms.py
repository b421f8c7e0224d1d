"""The rooms of the house: who may import whom, and what each may touch; `python -m tests.support.rooms` tells CI."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROOMS", "imported", "is_pure", "modules", "rights", "room_of", "visible"]

ROOT = Path(__file__).parents[2]

ROOMS: dict[str, tuple[str, ...]] = {
    "gateway.core": (),
    "gateway.telemetry": ("gateway.core",),
    "gateway.wire": ("gateway.core",),
    "gateway.kinds": ("gateway.wire",),
    "gateway.surfaces": ("gateway.wire",),
    "gateway.traffic": ("gateway.core",),
    "gateway.rollout": ("gateway.core",),
    "gateway.state": ("gateway.core",),
    "strategies.base": ("gateway.wire",),
    "strategies.text": ("gateway.wire",),
    "strategies.schema": ("strategies.text",),
    "strategies.structured": ("strategies.schema",),
    "strategies.grammar": ("strategies.base", "strategies.schema"),
    "strategies.writing": ("strategies.grammar",),
    "strategies.dialects": ("strategies.writing",),
    "strategies.reading": ("strategies.dialects",),
    "strategies.asking": ("strategies.reading",),
    "strategies.clients": ("strategies.writing",),
    "strategies.mapping": ("strategies.asking", "strategies.clients"),
    "strategies": ("gateway.kinds", "strategies.asking", "strategies.clients"),
    "gateway.answer": ("gateway.kinds", "strategies.mapping", "strategies.structured"),
    "gateway.report": ("gateway.wire", "gateway.rollout"),
    "gateway.config": ("gateway.kinds", "gateway.rollout", "strategies.mapping"),
    "gateway.request": (
        "gateway.traffic",
        "gateway.rollout",
        "gateway.config",
        "gateway.answer",
        "gateway.surfaces",
        "strategies",
    ),
    "gateway.upstream": ("gateway.request",),
    "gateway.chat": ("gateway.upstream",),
    "gateway.pages": ("gateway.upstream",),
    "gateway.front": ("gateway.chat", "gateway.pages"),
    "gateway.background": ("gateway.state", "gateway.request", "gateway.telemetry"),
    "gateway.demo": ("strategies.writing",),
    "gateway": ("gateway.front", "gateway.background", "gateway.demo", "gateway.telemetry"),
    "gateway.process": ("gateway",),
    "gateway.rereading": ("gateway.answer", "gateway.config", "gateway.report", "gateway.telemetry", "strategies"),
    "gateway.inspector": ("gateway.rereading", "gateway.state", "gateway.rollout"),
    "gateway.cli": ("gateway.process", "gateway.inspector"),
}
"""Each room and the rooms right below it; what those see, it sees. A room inside a room has the rights of the outer."""

LONGEST_ROOM = 14
"""More modules than this nobody holds in the head."""


@cache
def visible(room: str) -> frozenset[str]:
    """The rooms that a room may import from."""
    below = ROOMS[room]
    return frozenset(below).union(*(visible(each) for each in below))


@cache
def modules() -> dict[str, Path]:
    """Every module that is shipped, by its dotted name."""
    paths = [path for package in ("gateway", "strategies") for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def room_of(name: str) -> str:
    """The room in which a module, or what is imported from it, stands."""
    parts = name.split(".")
    outer = ".".join(parts[:2])
    return outer if outer in ROOMS else parts[0]


@cache
def rights(package: str) -> str:
    """What the folder says that it may touch."""
    tree = ast.parse(modules()[package].read_bytes())
    for line in (ast.get_docstring(tree) or "").splitlines():
        if line.startswith("Rights: "):
            return line.removeprefix("Rights: ").rstrip(".")
    return ""


def is_pure(room: str) -> bool:
    """Whether it touches no clock, socket, file, task or chance."""
    return rights(room) == "pure"


@cache
def imported(path: Path) -> tuple[str, ...]:
    """The full name of everything that a source imports, wherever in the source it does so."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _patterns(*, pure: bool) -> Iterator[str]:
    """The files of these rooms as coverage names them: a star stands for no slash."""
    for room in ROOMS:
        if is_pure(room) is pure:
            place = room.replace(".", "/")
            yield f"{place}/*.py"
            if "." in room:
                yield f"{place}/*/*.py"


if __name__ == "__main__":
    sys.stdout.write(",".join(_patterns(pure=sys.argv[1] == "pure")) + "\n")
