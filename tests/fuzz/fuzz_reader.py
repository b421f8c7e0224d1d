"""Reads random answers made of every dialect's markup until one breaks a promise.

    python tests/fuzz/fuzz_reader.py --inputs 1000000 --seed 7

An input that fails is printed with its number; the same seed finds it again.
"""

import argparse
import random
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gateway.core.events import End
from tests.support.fragments import Way, check, hostile_text, ways


def inputs(seed: int, count: int) -> Iterator[tuple[int, str, Way, list[int]]]:
    """`count` random answers, each with the way to read it and where to cut it."""
    every = ways()
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        text = hostile_text(rng)
        size = rng.choice((1, 2, 5, len(text)))
        cuts = sorted(rng.sample(range(len(text) + 1), min(size, len(text) + 1)))
        if rng.random() < 0.1:
            cuts = list(range(1, len(text)))
        yield number, text, rng.choice(every), cuts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=int, default=1, help="how many to find before giving up")
    given = parser.parse_args()
    failures = calls = 0
    for number, text, way, cuts in inputs(given.seed, given.inputs):
        try:
            calls += sum(isinstance(event, End) for event in check(text, way, cuts))
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            failures += 1
            sys.stderr.write(f"input {number}\n{text!r}\n{way!r}\ncuts {cuts}\n{traceback.format_exc(limit=-4)}\n")
            if failures >= given.failures:
                return 1
    sys.stdout.write(f"{given.inputs} inputs, {calls} calls, {failures} failures\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
