"""How the cost of reading grows with the length of one argument, for every dialect, in three states of the call.

    python tests/bench/linear.py [--sizes 12000,100000,1000000,4000000] [--chunk 4] [--dialect NAME] [--check]

`closed`: a complete call; `open`: the answer stops inside the argument as it should not; `cut`: it was cut there.
Prints CPU microseconds per chunk; `--check` exits with 1 where the last size costs over twice the first per chunk.
"""

import argparse
import json
import pathlib
import sys
import time
from functools import cache

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from gateway.core.limits import Limits
from strategies.base import Options
from strategies.dialects.rows import BY_ID, TABLE
from strategies.grammar.dialect import Dialect
from strategies.reading.factory import reader_factory
from tests.support.reading import AGENT_TOOLS, read

FILLER = "x = compute(value) or other; "


@cache
def around(dialect: str) -> tuple[str, str, str, str, str] | None:
    """The row's example around one of its arguments: both parts, the argument's text, and whose it is."""
    example = BY_ID[dialect].example
    for name, arguments in read(example, prompted=dialect).calls:
        for key, value in json.loads(arguments).items():
            if isinstance(value, str) and value and example.count(value) >= 1:
                head, _, tail = example.partition(value)
                return head, tail, value, name, key
    return None


def filled(size: int) -> str:
    """So much of what a long text consists of."""
    return (FILLER * (size // len(FILLER) + 1))[:size].rstrip()


def grown(row: Dialect, size: int) -> tuple[str, str] | None:
    """The row's example with one of its arguments grown, whole and up to the end of the grown argument."""
    if (parts := around(row.id)) is None:
        return None
    head, tail, *_ = parts
    return head + filled(size) + tail, head + filled(size)


def cost(text: str, row: Dialect, chunk: int, reason: str) -> float:
    """CPU microseconds per chunk."""
    limits = Limits(max_call_bytes=64 << 20)
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(limits=limits), model="", prompted=row.id)()
    chunks = [text[at : at + chunk] for at in range(0, len(text), chunk)]
    started = time.process_time()
    for part in chunks:
        reader.feed(part)
    reader.finish(reason)
    return (time.process_time() - started) / len(chunks) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="12000,100000,1000000")
    parser.add_argument("--chunk", type=int, default=4)
    parser.add_argument("--dialect", default="")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    worst = 0.0
    print(f"{'dialect':20} {'state':7} " + " ".join(f"{size:>12}" for size in sizes) + "   last/first")
    for row in TABLE:
        if asked.dialect not in row.id or grown(row, 100) is None:
            continue
        for state in ("closed", "open", "cut"):
            costs = []
            for size in sizes:
                closed, opened = grown(row, size) or ("", "")
                text, reason = (
                    (closed, "stop") if state == "closed" else (opened, "stop" if state == "open" else "length")
                )
                costs.append(min(cost(text, row, asked.chunk, reason) for _ in range(3 if size < 500_000 else 1)))
            ratio = costs[-1] / costs[0]
            worst = max(worst, ratio)
            print(
                f"{row.id:20} {state:7} " + " ".join(f"{found:12.2f}" for found in costs) + f"   {ratio:.2f}",
                flush=True,
            )
    print(f"worst growth {worst:.2f}")
    return 1 if asked.check and worst > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
