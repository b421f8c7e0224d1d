"""Looks for answers whose reading costs more than their length: by counted steps, which no machine moves.

    python tests/fuzz/fuzz_cost.py --rounds 2000 --seed 7 [--clock]

Units of every dialect's openers, closers and values are repeated behind one of them and in front of another; those
whose cost grows most from one size to twice of it are changed and tried again. A character may cost 1.3 times as much
in an answer of twice the length. `--clock` goes by CPU time in long answers: what one call of the library does with a
text is one step, however long the text is.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from attrs import evolve, frozen

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
_LONGER = 4
"""How many times as long an answer is that is measured by the clock."""
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


Measure = Callable[["Answer", int, int], float]


def fragments() -> list[str]:
    """What any reader may stumble over: openers, closers, and the pieces of every dialect's example."""
    context = Context(tools=AGENT_TOOLS, options=Options())
    found = {*_GLUE, *LEFTOVERS, *REASONING, *REASONING_ENDS}
    for row in TABLE:
        found.update(row.openers(context), row.line_openers(context))
        third = max(1, len(row.example) // 3)
        found.update(row.example[at : at + third] for at in range(0, len(row.example), third))
    return sorted(found)


@frozen(order=True)
class Answer:
    """What one is made of: the unit is repeated, up to some length."""

    unit: str
    head: str = ""
    tail: str = ""

    def text(self, size: int) -> str:
        return self.head + (self.unit * (size // len(self.unit) + 1))[:size] + self.tail


def _reading(text: str, piece: int) -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=None)()
    for at in range(0, len(text), piece):
        reader.feed(text[at : at + piece])
    reader.finish("stop")


def cost(answer: Answer, size: int, piece: int) -> float:
    """Calls of functions for each character."""
    return steps(partial(_reading, answer.text(size), piece), most=_TOO_MANY) / size


def seconds(answer: Answer, size: int, piece: int) -> float:
    """CPU seconds for each character of a long answer, the least of several."""
    text = answer.text(_LONGER * size)
    least = float("inf")
    for _ in range(3):
        began = time.thread_time()
        _reading(text, piece)
        least = min(least, time.thread_time() - began)
    return least / size


def growth(answer: Answer, size: int, piece: int, measure: Measure = cost) -> float:
    """How much more a character costs in an answer of twice the size."""
    return measure(answer, 2 * size, piece) / measure(answer, size, piece)


def changed(rng: random.Random, answer: Answer, known: list[str]) -> Answer:
    roll = rng.random()
    if roll < 0.15:
        return evolve(answer, head=rng.choice(known))
    if roll < 0.3:
        return evolve(answer, tail=rng.choice(known))
    return evolve(answer, unit=_changed(rng, answer.unit, known))


def _changed(rng: random.Random, unit: str, known: list[str]) -> str:
    at = rng.randint(0, len(unit))
    roll = rng.random()
    if roll < 0.6:
        return unit[:at] + rng.choice(known) + unit[at:]
    if roll < 0.8 and len(unit) > 2:
        return unit[: at // 2] + unit[at // 2 + rng.randint(1, len(unit) // 2) :] or unit
    return unit * 2 if len(unit) < 100 else unit[: len(unit) // 2]


def search(rounds: int, seed: int, measure: Measure = cost) -> list[tuple[float, Answer, int]]:
    """The answers that cost more than they may, worst first."""
    rng = random.Random(seed)
    known = fragments()
    kept: list[tuple[float, Answer]] = []
    found: list[tuple[float, Answer, int]] = []
    for _ in range(rounds):
        unit = "".join(rng.choice(known) for _ in range(rng.randint(1, 4)))
        head, tail = (rng.choice(known) * (rng.random() < 0.5) for _ in range(2))
        fresh = Answer(unit, head, tail)
        answer = changed(rng, rng.choice(kept)[1], known) if kept and rng.random() < 0.7 else fresh
        piece = rng.choice((5, 64, 1 << 20))
        seen = growth(answer, _SIZE, piece, measure)
        kept = sorted({*kept, (seen, answer)}, reverse=True)[:_KEPT]
        if seen > _MOST and (sure := growth(answer, _TIMES * _SIZE, piece, measure)) > _MOST:
            found.append((sure, answer, piece))
            sys.stderr.write(f"{sure:.2f} times a character in pieces of {piece}: {answer}\n")
    return sorted(found, reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock", action="store_true")
    given = parser.parse_args()
    found = search(given.rounds, given.seed, seconds if given.clock else cost)
    sys.stdout.write(f"{given.rounds} rounds, {len(found)} found\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
