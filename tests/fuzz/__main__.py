"""Every fuzzer by one command; what fails is printed with the number that finds it again.

    python -m tests.fuzz                       all of them, a while each
    python -m tests.fuzz reader --inputs 1000000 --seed 7
    python -m tests.fuzz json --guided         by coverage, where atheris is installed (`pip install atheris`)

A parser may refuse what it is given by its own faults and by nothing else, it loses no character and says none twice,
and where it is fed in pieces the cuts do not matter.
"""

import argparse
import importlib
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from tests.fuzz import parsers
from tests.fuzz.fuzz_once import check as once
from tests.fuzz.fuzz_quiet import differs
from tests.support.fragments import check as read_every_way
from tests.support.fragments import inputs

Check = Callable[[int], object]
INPUTS = 2_000


def _reader(seed: int) -> None:
    for _, text, way, cuts in inputs(seed, 1):
        read_every_way(text, way, cuts)


def _quiet(seed: int) -> None:
    fault, _, _ = differs(str(seed))
    assert fault is None, fault


def _drawn(check: parsers.Parser) -> Check:
    """A parser fed what is drawn from its own pieces and from noise."""
    return lambda seed: check(parsers.drawn(random.Random(seed), check))


FUZZERS: dict[str, Check] = {
    "reader": _reader,
    "quiet": _quiet,
    "once": once,
    **{name: _drawn(check) for name, check in parsers.PARSERS.items()},
}


def run(name: str, count: int, seed: int) -> tuple[int, float]:
    """How many of the inputs failed, and how many a second were tried."""
    failures, began = 0, time.process_time()
    for number in range(seed * 100_000_000, seed * 100_000_000 + count):
        try:
            FUZZERS[name](number)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            failures += 1
            if failures <= 3:
                sys.stderr.write(f"{name} {number}\n{traceback.format_exc(limit=-3)}\n")
    return failures, count / max(1e-9, time.process_time() - began)


def guided(name: str, rest: Sequence[str]) -> int:
    """By coverage: inputs that reach new lines of ours are kept and changed."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # here: it is no part of the test extra

    # All of ours is imported anew: functions that others hold already would not be seen.
    for key in [key for key in sys.modules if key.partition(".")[0] in ("gateway", "strategies", "tests")]:
        del sys.modules[key]
    with atheris.instrument_imports(include=["gateway", "strategies"]):
        check = importlib.import_module("tests.fuzz.parsers").PARSERS[name]
    atheris.Setup([sys.argv[0], *rest], check)
    atheris.Fuzz()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FUZZERS)}; all without any")
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--guided", action="store_true", help="one parser, by coverage; further options go to libFuzzer"
    )
    given, rest = parser.parse_known_args()
    if unknown := set(given.names) - FUZZERS.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    if given.guided:
        if len(given.names) != 1 or given.names[0] not in parsers.PARSERS:
            parser.error(f"--guided takes one of {', '.join(parsers.PARSERS)}")
        return guided(given.names[0], rest)
    all_failures = 0
    for name in given.names or FUZZERS:
        failures, speed = run(name, given.inputs, given.seed)
        all_failures += failures
        sys.stdout.write(f"{name}: {given.inputs} inputs, {failures} failures, {speed:.0f} a second of CPU\n")
        sys.stdout.flush()
    return 1 if all_failures else 0


if __name__ == "__main__":
    sys.exit(main())
