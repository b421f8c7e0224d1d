"""What the gateway costs: `python -m tests.bench` in this process, on any machine.

Calls of Python functions are exact and the same everywhere; `--check` holds them against their bounds and says with
its exit code whether they keep them, for CI. CPU times are the best of several rounds, memory is what Python has
allocated, lateness and growth are told without a clock and with one. `--harness DIR` puts the gateway under load beside
a bare relay, with LiteLLM where `LITELLM_BIN` names it.
"""

import argparse
import json
import os
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from gateway.telemetry.logs import configure_logging
from strategies.base import Options, Prepared
from tests.bench import cold
from tests.bench.counts import ROUTES, counts
from tests.bench.lateness import prompted, share_late, tokens, waits, ways
from tests.bench.requests import SCENARIOS, network
from tests.support.chat import event, numbered_ids
from tests.support.golden import SAMPLES

BOUNDS = {
    **{"calls, request": 148.0, "calls, event": 2.5, "calls, quiet event": 2.5},
    **{"calls, messages, request": 216.0, "calls, messages, event": 5.5, "calls, messages, quiet event": 5.5},
    **{"calls, responses, request": 233.0, "calls, responses, event": 6.5, "calls, responses, quiet event": 6.5},
    **{"calls, messages, same wire, request": 174.0, "calls, messages, same wire, event": 2.5},
    **{"calls, responses, same wire, request": 225.0, "calls, responses, same wire, event": 2.5},
    **{"calls, chat, watched, request": 201.0, "calls, chat, watched, event": 2.5},
    **{"calls, chat, watched, quiet event": 2.5},
    **{"calls, short stream": 421.0, "calls, messages, short stream": 540.0, "calls, responses, short stream": 608.0},
    **{"calls, messages, same wire, short stream": 528.0, "calls, responses, same wire, short stream": 1000.0},
    **{"calls, chat, watched, short stream": 610.0},
    **{"calls, 128 tools never seen": 27_000.0, "calls, a turn behind 2,000 messages": 300.0},
    "most objects for the collector, request": 1.0,
}
"""What CI holds; but for the last three the figures are exact, and the same on a busy machine."""
WAY = "recovery deepseek-chat"
ROUNDS = 7
ROOM = Limits(max_call_bytes=4 << 20)
"""A call of 1 MB is more than the default bound takes, and what stands behind that is read as text."""
PROSE = " ".join(text for texts in SAMPLES.values() for text in texts if "```" not in text)[:20_000]
CODE = "```python\n" + "\n".join(text for texts in SAMPLES.values() for text in texts if "def " in text)[:20_000]
CALL = "<write>\n<filePath>/a.py</filePath>\n<content>"
LINE = "x = compute(value) or other; y = [1]\n"


def _events(parts: Sequence[str], *, stamped: bool = False) -> Iterator[bytes]:
    yield event({"role": "assistant", "content": ""})
    for number, part in enumerate(parts):
        yield event({"content": part}, None, number=number if stamped else 0)


def _cost(parts: Sequence[str], way: str | Prepared = WAY, *, stamped: bool = False, rounds: int = ROUNDS) -> float:
    """CPU microseconds for one event, each a read of its own."""
    data = list(_events(parts, stamped=stamped))
    prepared = ways()[way] if isinstance(way, str) else way
    best = float("inf")
    for _ in range(rounds):
        exchange = StreamExchange(prepared, make_id=numbered_ids(), limits=ROOM)
        started = time.process_time()
        for each in data:
            exchange.feed(each)
        best = min(best, (time.process_time() - started) / len(data))
    return best * 1e6


def _memory(parts: Sequence[str], way: str = WAY, *, recorded: bool = False, reasoned: bool = False) -> float:
    """KiB that a stream keeps behind these events, perhaps with those for its record."""
    data = [event({"reasoning_content": "So."}), *_events(parts)] if reasoned else list(_events(parts))

    def read() -> StreamExchange:
        prepared = ways()[way]
        exchange = StreamExchange(prepared, make_id=numbered_ids(), limits=Limits(), asks=recorded, keep_text=recorded)
        for each in data:
            exchange.feed(each)
        return exchange

    read()  # what all streams share is made for the first
    tracemalloc.start()
    kept = [read() for _ in range(4)]
    size = tracemalloc.get_traced_memory()[0] / len(kept) / 1024
    tracemalloc.stop()
    return size


def calls() -> dict[str, float]:
    """The calls of Python functions, with the log as it is in service, but for where it goes."""
    with open(os.devnull, "wb") as nowhere:
        writer = configure_logging(fd=nowhere.fileno())
        told: dict[str, float] = {}
        for route in ROUTES:
            found = counts("native" if "same wire" in route else "recovery", route)
            name = "calls" if route == "chat" else f"calls, {route}"
            told |= {f"{name}, request": found.request, f"{name}, event": found.event}
            told |= {f"{name}, quiet event": found.quiet, f"{name}, short stream": found.stream}
            told["most objects for the collector, request"] = max(
                found.garbage, told.get("most objects for the collector, request", 0.0)
            )
        writer.close()
    structlog.reset_defaults()
    told |= cold.calls()
    return {name: told[name] for name in BOUNDS}


def figures() -> dict[str, float]:
    """All that is told in this process."""
    tags = "xml_prompt generic_xml"
    call, open_call = [CALL, *tokens(LINE * 300)], [CALL, *tokens(LINE * 2800)]
    long = [(LINE * 30_000)[at : at + 4] for at in range(0, 1 << 20, 4)]
    short = long[: len(long) // 16]
    late = [each for texts in SAMPLES.values() for text in texts for each in waits(ways()[WAY], list(tokens(text)))]
    roomy = Options(dialect="generic_xml", limits=ROOM)
    growth = _cost([CALL, *long], prompted(roomy), rounds=1) / _cost([CALL, *short], prompted(roomy), rounds=1)
    return {
        **calls(),
        "us an event, prose": _cost(list(tokens(PROSE))),
        "us an event, code": _cost(list(tokens(CODE))),
        "us an event, inside a call": _cost(call, tags),
        "us an event, each stamped by its server": _cost(list(tokens(PROSE)), stamped=True),
        "KiB a stream, behind 10 KB of text": _memory(list(tokens(PROSE[:10_000]))),
        "KiB a stream, in an open call of 100 KB": _memory(open_call, tags),
        "the same, with its record": _memory(open_call, tags, recorded=True),
        "the same, incremental": _memory(open_call, "xml_prompt incremental", reasoned=True),
        "the same, incremental, with its record": _memory(
            open_call, "xml_prompt incremental", recorded=True, reasoned=True
        ),
        "% of events late by two or more": 100 * share_late(late),
        "cost of a piece in a call of 1 MB, to one of 64 KB": growth,
        **cold.figures(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="count calls alone; exit code 1 beyond their bounds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--idle", action="store_true", help="start a gateway and say what it uses for nothing, too")
    parser.add_argument("--harness", type=Path, metavar="DIR", help="put load on it with the harness in this folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenarios", default=SCENARIOS)
    asked = parser.parse_args()
    if asked.harness is not None:
        targets = "bare,gateway,litellm" if os.environ.get("LITELLM_BIN") else "bare,gateway"
        print(network(asked.harness.resolve(), rounds=asked.rounds, scenarios=asked.scenarios, targets=targets))
        return 0
    told = calls() if asked.check else figures()
    if asked.idle:
        told |= cold.idle()
    if asked.json:
        print(json.dumps(told, indent=1))
    else:
        for name, number in told.items():
            print(f"{name:52} {number:10.2f}")
    beyond = [name for name, bound in BOUNDS.items() if told[name] > bound]
    for name in beyond:
        print(f"{name}: more than {BOUNDS[name]:g}", file=sys.stderr)
    return 1 if asked.check and beyond else 0


if __name__ == "__main__":
    sys.exit(main())
