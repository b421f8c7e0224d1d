"""Looks for answers whose reading costs more than their length: by counted steps, which no machine moves.

    python tests/fuzz/fuzz_cost.py --rounds 2000 --seed 7

Units of every dialect's openers, closers and values are repeated; those whose cost grows most from one size to twice of
it are changed and tried again. A character may cost 1.3 times as much in an answer of twice the length.
"""

import argparse
import random
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from strategies.base import Options
from strategies.dialects.rows import TABLE
from strategies.grammar.dialect import Context
from strategies.grammar.lexicon import LEFTOVERS, REASONING, REASONING_ENDS
from strategies.reading.factory import reader_factory
from tests.support.cost import steps
from tests.support.reading import AGENT_TOOLS

_SIZE = 4_000
_TIMES = 8
"""A growth is only believed at this many times the size: budgets are spent by then."""
_MOST = 1.3
_TOO_MANY = 200_000_000
_KEPT = 20
_GLUE = (
    "\n",
    " ",
    "a",
    "x = 1\n",
    "```\n",
    "`",
    '"',
    "\\",
    "{",
    "}",
    "[",
    "]",
    "</",
    "<",
    ">",
    "|",
    ",",
    ": ",
    "- ",
    "> ",
)


def fragments() -> list[str]:
    """What any reader may stumble over: openers, closers, and the pieces of every dialect's example."""
    context = Context(tools=AGENT_TOOLS, options=Options())
    found = {*_GLUE, *LEFTOVERS, *REASONING, *REASONING_ENDS}
    for row in TABLE:
        found.update(row.openers(context), row.line_openers(context))
        third = max(1, len(row.example) // 3)
        found.update(row.example[at : at + third] for at in range(0, len(row.example), third))
    return sorted(found)


def cost(unit: str, size: int, piece: int) -> float:
    """Calls of functions for each character."""
    text = (unit * (size // len(unit) + 1))[:size]
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=None)()

    def reading() -> None:
        for at in range(0, size, piece):
            reader.feed(text[at : at + piece])
        reader.finish("stop")

    return steps(reading, most=_TOO_MANY) / size


def growth(unit: str, size: int, piece: int) -> float:
    """How much more a character costs in an answer of twice the size."""
    return cost(unit, 2 * size, piece) / cost(unit, size, piece)


def changed(rng: random.Random, unit: str, known: list[str]) -> str:
    at = rng.randint(0, len(unit))
    roll = rng.random()
    if roll < 0.6:
        return unit[:at] + rng.choice(known) + unit[at:]
    if roll < 0.8 and len(unit) > 2:
        return unit[: at // 2] + unit[at // 2 + rng.randint(1, len(unit) // 2) :] or unit
    return unit * 2 if len(unit) < 100 else unit[: len(unit) // 2]


def search(rounds: int, seed: int) -> list[tuple[float, str, int]]:
    """The units that cost more than they may, worst first."""
    rng = random.Random(seed)
    known = fragments()
    kept: list[tuple[float, str]] = []
    found: list[tuple[float, str, int]] = []
    for _ in range(rounds):
        fresh = "".join(rng.choice(known) for _ in range(rng.randint(1, 4)))
        unit = changed(rng, rng.choice(kept)[1], known) if kept and rng.random() < 0.7 else fresh
        piece = rng.choice((5, 64, 1 << 20))
        seen = growth(unit, _SIZE, piece)
        kept = sorted({*kept, (seen, unit)}, reverse=True)[:_KEPT]
        if seen > _MOST and (sure := growth(unit, _TIMES * _SIZE, piece)) > _MOST:
            found.append((sure, unit, piece))
    return sorted(found, reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = search(given.rounds, given.seed)
    for seen, unit, piece in found[:10]:
        sys.stdout.write(f"{seen:.2f} times a character in pieces of {piece}: {unit!r}\n")
    sys.stdout.write(f"{given.rounds} rounds, {len(found)} found\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
