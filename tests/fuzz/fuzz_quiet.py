"""Quiet reading is loud reading, byte for byte: the same answers with and without events that go out unread.

`python -m tests.fuzz.fuzz_quiet [--count N] [--seed S]` goes over as many hostile answers as wanted. Each is read
twice, in the same reads of whole events, and has to give the same bytes at each, the same end and the same facts; some
a third time, move by move, as if no text were ever passed on by the reader itself.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from attrs import frozen
from msgspec.structs import asdict, replace

from gateway.answer.quiet import Quiet
from gateway.answer.stream import StreamExchange
from gateway.core.errors import GatewayError, UpstreamDisconnected
from gateway.core.limits import Limits
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.asking.forbidden import CallsForbidden
from strategies.base import Options, Prepared, Shape
from strategies.dialects.rows import TABLE
from strategies.native import NativeStrategy
from strategies.reading.reader import Reader
from tests.bench.lateness import ways
from tests.bench.wire import hostile_stream
from tests.support.chat import Paced, answer_events, event, numbered_ids
from tests.support.golden import SAMPLES, cases
from tests.support.reading import AGENT_TOOLS

__all__ = ["HOWS", "differs", "hostile_text"]

_NOISE = (
    *(
        " a < b",
        "<read>",
        "</read>",
        "<think>",
        "</think>",
        "`x`",
        "``",
        "```\n",
        "\n```json\n",
        "{",
        '{"name": "read"',
        "an",
    ),
    *(
        "\n",
        "\n\n",
        " ",
        "\t",
        "other",
        " f",
        "ound",
        " func",
        "tion",
        "functions.",
        "~~~\n",
        "<|im_end|>",
        "[TOOL_CALLS]",
    ),
    *(
        "\nThought: ",
        "\nAction: read\n",
        "\u3000",
        "Größe",
        "\U0001f600",
        "\\",
        '"',
        "\\n",
        "\x00",
        "\x85",
        "\n> ",
        "for example:\n",
    ),
    *(
        "你好，世界。",
        "\n好",
        "✿",
        "✿FUNCTION✿: ",
        "｜",
        "<｜",
        "\u200b",
        "“so”",
        "Привет ",
        "é",
        " \u00a0",
        "，func",
        "查\n\n",
        "👍🏽 ✓",
    ),
    *("aa", "bb", ". ", ", ", "  \n", "\r\n", "/", "\\u003c", "ction:", "A", "T", "hought:", "[", "tool", "c", "all"),
    *("xassistantcommentary to=functions.read json{}", "xfunctools[{}]", "\tf", "x\nanalysis to=functions."),
)


def _hows() -> tuple[Prepared, ...]:
    made = [replace(each, reads_reasoning=True) for each in ways().values() if each.make_reader is not None]
    shapes = [
        Shape(first_only=first, keep_trailing=True, keep_space=keep, wait_for_finish=wait)
        for first in (True, False)
        for keep in (True, False)
        for wait in (True, False)
    ]
    made += [NativeStrategy().prepare(_request("auto"), Options())]
    made += [CallsForbidden().prepare(_request("none"), Options(none_markup=mode)) for mode in ("keep", "drop")]
    return (*made, *(replace(made[at % len(made)], shape=shape) for at, shape in enumerate(shapes)))


def _request(choice: str) -> ChatRequest:
    tools = [
        {"type": "function", "function": {"name": each.name, "parameters": each.parameters}} for each in AGENT_TOOLS
    ]
    body = {"model": "claude-x", "messages": [{"role": "user", "content": "hi"}], "tools": tools, "tool_choice": choice}
    return parse_request(json.dumps(body).encode())


HOWS = _hows()


@cache
def _prose() -> tuple[str, ...]:
    return tuple(text for texts in SAMPLES.values() for text in texts)


def hostile_text(rng: random.Random) -> str:
    """Prose and code with what may begin or end something strewn in."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        text = rng.choice(_prose())
        at = rng.randrange(len(text))
        parts.append(text[at : at + rng.choice((3, 20, 80, 300))])
        parts += rng.choices(_NOISE, k=rng.randint(0, 3))
        if rng.random() < 0.1:
            parts.append(rng.choice([row.example for row in TABLE if row.example]))
        elif rng.random() < 0.05:
            parts.append(rng.choice(cases()).text)
    return "".join(parts)


def _blocks(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Reads of whole events, some of them in company; none in a mould that ends lines in another way."""
    events = data.split(b"\n\n")
    most = rng.choice((1, 1, 2, 6))
    while events:
        count = rng.randint(1, most)
        block = b"\n\n".join(events[:count])
        del events[:count]
        if events:
            block += b"\n\n"
        if block:
            yield block


def _lines(text: str, rng: random.Random) -> list[str]:
    """The text by lines, some of them with an empty one behind."""
    lines = text.splitlines(keepends=True)
    return [part for line in lines for part in ((line, "\n") if rng.random() < 0.3 else (line,))]


def _stamped(data: bytes, rng: random.Random) -> bytes:
    """The same, each event with a number, with letters at random, or with both."""
    kinds, at = rng.choice(("n", "l", "nl")), 0
    events = []
    for each in data.split(b"}\n\n"):
        at += rng.choice((1, 1, 7, 100))
        number = b', "number": %d' % at if "n" in kinds else b""
        letters = b', "obfuscation": "%b"' % bytes(rng.choices(b"aB3-_", k=rng.randrange(9))) if "l" in kinds else b""
        events.append(each + number + letters if each.startswith(b"data: {") and each != b"data: {" else each)
    return b"}\n\n".join(events)


@frozen
class _Reading:
    """What was read of one answer."""

    out: list[bytes]
    """What went out at each read, and at the end."""
    text: str
    """What was read as text, and as calls."""
    facts: str
    """All others but for how many bytes were held: events of a server that stamps them are kept whole or as a run."""
    quiet: int
    """How many reads left something to be told."""


def _read(how: Prepared, blocks: Sequence[bytes], asks: int, error: GatewayError | None) -> _Reading:
    exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=asks, keep_text=True)
    out: list[bytes] = []
    quiet = 0
    paced = Paced(exchange)
    try:
        for block in blocks:
            if (told := paced.goes(block)) is not None:
                out.append(told)
                quiet += 1
                continue
            out.append(exchange.feed(block))
            quiet += exchange._quiet.has_heard
            if out[-1] == block and not exchange.held:
                paced.passed()
        paced.end()
        if error is None and exchange.ask_again is not None:
            out.append(exchange.no_second_answer())
    except GatewayError as fault:
        error = fault
    out.append(exchange.finish(error))
    facts: dict[str, Any] = asdict(exchange.facts)
    texts = {index: (each.text, each.candidates) for index, each in facts.pop("transcripts").items()}
    return _Reading(out, repr(texts), repr(facts | {"held_bytes_max": 0}), quiet)


def _differs(found: _Reading, wanted: _Reading, *, by_facts: bool) -> str | None:
    # Move by move a reader does not see the letter in front of a read, and may wait where nothing can begin.
    outs = (found.out, wanted.out) if by_facts else ([b"".join(found.out)], [b"".join(wanted.out)])
    for at, (one, other) in enumerate(zip(*outs, strict=False)):
        if one != other:
            return f"read {at}: {one!r} instead of {other!r}"
    if len(outs[0]) != len(outs[1]) or found.text != wanted.text:
        return f"text\n{found.text}\ninstead of\n{wanted.text}"
    if by_facts and found.facts != wanted.facts:
        return f"facts\n{found.facts}\ninstead of\n{wanted.facts}"
    return None


def _thoughts(rng: random.Random) -> list[bytes]:
    """Events with reasoning in a field of its own, which may end in a call."""
    row = rng.choice([row for row in TABLE if row.example])
    text = rng.choice(_prose())[:200] + "\n" + row.example + rng.choice(("", "", "\n", "</think>", " but no"))
    size = rng.choice((3, 40, 1000))
    field = rng.choice(("reasoning_content", "reasoning"))
    return [event({field: text[at : at + size]}) for at in range(0, len(text), size)]


def differs(seed: str) -> tuple[str | None, int, int]:
    """What differs for this answer, how many of its reads were quiet, and how many there were."""
    rng = random.Random(seed)
    how = rng.choice(HOWS)
    text, other = hostile_text(rng), random.Random(f"{seed} thoughts")
    thinks, is_all = other.random() < 0.3, other.random() < 0.5
    if thinks and is_all:
        text = other.choice(("", " ", "\n\n"))
    data = hostile_stream(text, rng, plain=rng.random() < 0.7, style=rng.randrange(4))
    if thinks:
        data = b"".join(_thoughts(other)) + data
    if other.random() < 0.2:
        data = _stamped(data, other)
    elif other.random() < 0.15:
        data = b"".join(answer_events(_lines(text, other)))
    blocks = list(_blocks(data, rng))
    asks = rng.choice((0, 1))
    error = UpstreamDisconnected("gone") if rng.random() < 0.1 else None
    found = _read(how, blocks, asks, error)
    passes, flows = Quiet.passes, Reader._flows
    try:
        Quiet.passes = lambda self, data: None  # type: ignore[method-assign]
        fault = _differs(found, _read(how, blocks, asks, error), by_facts=True)
        if fault is None and other.random() < 0.25:
            Reader._flows = lambda self, text, **how: False  # type: ignore[method-assign]
            fault = _differs(found, _read(how, blocks, asks, error), by_facts=False)
    finally:
        Quiet.passes = passes  # type: ignore[method-assign]
        Reader._flows = flows  # type: ignore[method-assign]
    return f"{seed}: {fault}" if fault is not None else None, found.quiet, len(blocks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", default="0")
    asked = parser.parse_args()
    begun, quiet, reads, faults = time.process_time(), 0, 0, 0
    for number in range(asked.count):
        fault, is_quiet, count = differs(f"{asked.seed} {number}")
        quiet, reads = quiet + is_quiet, reads + count
        if fault is not None:
            faults += 1
            print(fault[:2000], flush=True)
    print(
        f"{asked.count} answers, {faults} differ; {quiet} of {reads} reads quiet; {time.process_time() - begun:.0f} s"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
