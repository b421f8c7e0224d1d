"""The longest step that an answer takes, for every dialect, in every state, with arguments of every shape.

    python -m tests.bench.turns [--size 1048576] [--dialect NAME] [--shape NAME] [--state NAME] [--check]

An answer with one call whose argument is as long as said goes through the gateway's own reading of it, streamed, as
the model server's events, and whole. `closed`: a complete call; `open`: the answer ends inside it; `cut`: it was cut
there; `broken`: the connection was; `native`: a structured call follows, so that the text's own is none.
Prints the CPU milliseconds of the longest step, each at the best of several; `--check` exits with 1 where one is longer
than 10 ms for each MiB.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from attrs import evolve, frozen
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.stream import StreamExchange
from gateway.app import GC_THRESHOLDS
from gateway.core.limits import Limits
from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import parse_request
from strategies.base import Options, Prepared
from strategies.dialects.rows import BY_ID, TABLE
from strategies.grammar.dialect import Dialect
from strategies.reading.factory import reader_factory
from strategies.recovery import RecoveryStrategy
from strategies.text.turns import Turns
from strategies.xml_prompt import XmlPromptStrategy
from tests.bench.linear import FILLER, around, filled
from tests.support.chat import DONE, answer_body, event, numbered_ids
from tests.support.reading import AGENT_TOOLS

__all__ = ["SHAPES", "STATES", "Made", "made", "prepared", "steps_of"]

MOST_MS = 10.0
ROUNDS = 3
READ = 1 << 14
"""Bytes of the model server's stream that come at once."""
STRING = {"type": "string"}
ITEM = {
    "type": "object",
    "properties": {"id": STRING, "rank": {"type": "integer"}, "tags": {"type": "array", "items": STRING}},
    "required": ["id"],
}
WORDS = ["first", "second", "third", "fourth"]


@frozen
class Shape:
    """What one argument is declared to be, and one item of it."""

    item: Callable[[int], Any]
    schema: Mapping[str, Any]

    def text(self, size: int) -> str:
        """A list of about this many characters."""
        one = len(json.dumps(self.item(10_000))) + 2
        return json.dumps([self.item(number) for number in range(max(2, size // one))])


def _list_of(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _nested(number: int) -> Any:
    value: Any = f"v{number}"
    for _ in range(40):
        value = [value]
    return value


SHAPES: dict[str, Shape | None] = {
    "text": None,
    "texts": Shape(lambda number: f"{FILLER}{number}", _list_of(STRING)),
    "numbers": Shape(lambda number: number, _list_of({"type": "integer"})),
    "numbers as texts": Shape(str, _list_of({"type": "integer"})),
    "objects": Shape(lambda number: {"id": f"i{number}", "rank": number, "tags": ["a"]}, _list_of(ITEM)),
    "objects of texts": Shape(lambda number: {"id": number, "rank": str(number), "tags": []}, _list_of(ITEM)),
    "deep": Shape(_nested, {"type": "array"}),
    "enum": Shape(lambda number: WORDS[number % 4], _list_of({"enum": WORDS})),
    "const": Shape(lambda _number: "only", _list_of({"const": "only"})),
    "anyOf": Shape(
        lambda number: number if number % 2 else f"i{number}", _list_of({"anyOf": [{"type": "integer"}, STRING]})
    ),
    "anyOf of objects": Shape(
        lambda number: {"kind": "b", "id": f"i{number}"},
        _list_of(
            {
                "anyOf": [
                    {"type": "object", "properties": {"kind": {"const": kind}, "id": STRING}, "required": ["kind"]}
                    for kind in "ab"
                ]
            }
        ),
    ),
    "anything": Shape(lambda number: {"id": f"i{number}"}, {}),
}
STATES = ("closed", "open", "cut", "broken", "native", "whole")


@frozen
class Made:
    """One answer: the call's beginning, the argument and the call's end, and the tools that it is a call of."""

    head: str
    value: str
    tail: str
    tools: ToolSet


def made(row: Dialect, shape: str, size: int) -> Made | None:
    """An answer in this dialect whose argument is of this shape and about this long."""
    parts = around(row.id)
    if parts is None:
        return None
    head, tail, _, name, key = parts
    how = SHAPES[shape]
    if how is None:
        return Made(head, filled(size), tail, AGENT_TOOLS)
    for quote in ('<|"|>', "<escape>", '"', "'"):
        if head.endswith(quote) and tail.startswith(quote):
            head, tail = head.removesuffix(quote), tail.removeprefix(quote)
            break
    tools = [_declared(tool, key, how.schema) if tool.name == name else tool for tool in AGENT_TOOLS]
    return Made(head, how.text(size), tail, ToolSet(tools))


def _declared(tool: Tool, key: str, schema: Mapping[str, Any]) -> Tool:
    properties = {**tool.parameters["properties"], key: schema}
    return evolve(tool, parameters={**tool.parameters, "properties": properties})


def prepared(answer: Made, dialect: str, *, waits: bool) -> Prepared:
    """How such an answer is read: where a call waits for the answer's end, or where it does not."""
    options = Options(limits=Limits(max_call_bytes=4 << 20))
    offered = [
        {"type": "function", "function": {"name": tool.name, "parameters": dict(tool.parameters)}}
        for tool in answer.tools
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": "Go on."}], "tools": offered, "stream": True}
    request = parse_request(json.dumps(body).encode())
    strategy = RecoveryStrategy() if waits else XmlPromptStrategy()
    how = strategy.prepare(request, options)
    return replace(how, make_reader=reader_factory(tools=answer.tools, options=options, model="m", prompted=dialect))


def _events(answer: Made, state: str, piece: int) -> list[bytes]:
    text = answer.head + answer.value + (answer.tail if state in ("closed", "native") else "")
    parts = (text[at : at + piece] for at in range(0, len(text), piece))
    told = [event({"role": "assistant", "content": ""}), *(event({"content": part}) for part in parts)]
    if state == "native":
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "list", "arguments": "{}"}}
        told.append(event({"tool_calls": [call]}))
    if state != "broken":
        told += [event({}, "length" if state == "cut" else "tool_calls" if state == "native" else "stop"), DONE]
    return told


def steps_of(
    answer: Made, dialect: str, state: str, *, piece: int = 64, at_once: int = 0
) -> Iterator[Callable[[], bytes]]:
    """Reading the answer, step by step; each is done before the next one is asked for.

    `at_once`: how many events a write brings, if not as many as one read of the network does.
    """
    waits = state != "closed"
    if state == "whole":
        yield from _steps_of_body(answer, dialect)
        return
    exchange = StreamExchange(prepared(answer, dialect, waits=waits), make_id=numbered_ids(), limits=Limits(), asks=1)
    events = _events(answer, state, piece)
    data = b"".join(events)
    writes = (data[at : at + READ] for at in range(0, len(data), READ))
    if at_once:
        writes = (b"".join(events[at : at + at_once]) for at in range(0, len(events), at_once))
    for written in writes:
        yield partial(exchange.step, written)
        while exchange.busy:
            yield exchange.step
    exchange.end_choices()
    while exchange.busy:
        yield exchange.step
    yield lambda: b"" if exchange.ask_again is None else b"asked"
    if exchange.ask_again is not None:
        yield from _in_steps(exchange.no_second_steps())
    yield exchange.close
    while exchange.busy:
        yield exchange.step


def _steps_of_body(answer: Made, dialect: str) -> Iterator[Callable[[], bytes]]:
    exchange = BodyExchange(prepared(answer, dialect, waits=True), make_id=numbered_ids(), limits=Limits(), asks=1)
    yield from _in_steps(exchange.steps(answer_body(answer.head + answer.value + answer.tail)))
    if exchange.ask_again is not None:
        yield from _in_steps(exchange.no_second_steps())


def _in_steps(work: Turns[bytes]) -> Iterator[Callable[[], bytes]]:
    ended: list[bytes] = []

    def step() -> bytes:
        try:
            next(work)
        except StopIteration as end:
            ended.append(end.value)
        return b"".join(ended)

    while not ended:
        yield step


def _longest(answer: Made, dialect: str, state: str, piece: int) -> tuple[float, int, int, bool]:
    """The longest step in milliseconds, which one it is, of how many, and whether a call came of it."""
    best: list[float] = []
    called = False
    for _ in range(ROUNDS):
        times = []
        out = []
        for work in steps_of(answer, dialect, state, piece=piece):
            started = time.process_time()
            out.append(work())
            times.append((time.process_time() - started) * 1e3)
        called = b'"tool_calls"' in b"".join(out)
        best = list(map(min, best, times)) if best else times
        if max(best) < MOST_MS / 2:
            break
    return max(best), best.index(max(best)), len(best), called


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--piece", type=int, default=64, help="characters in an event")
    parser.add_argument("--dialect", default="")
    parser.add_argument("--shape", default="")
    parser.add_argument("--state", default="")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    worst = 0.0
    states = [state for state in STATES if asked.state in ("", state)]
    print(f"{'dialect':20} {'shape':18} " + " ".join(f"{state:>16}" for state in states))
    for row in TABLE if not asked.dialect else [BY_ID[asked.dialect]]:
        for shape in SHAPES:
            answer = made(row, shape, asked.size) if asked.shape in ("", shape) else None
            if answer is None:
                continue
            told = []
            for state in states:
                longest, at, count, called = _longest(answer, row.id, state, asked.piece)
                worst = max(worst, longest)
                told.append(f"{longest:6.1f}{'*' if called else ' '}{at}/{count}")
            print(f"{row.id:20} {shape:18} " + " ".join(f"{each:>16}" for each in told), flush=True)
    print(f"longest step {worst:.1f} ms; * a call came of it")
    return 1 if asked.check and worst > MOST_MS * max(1.0, asked.size / (1 << 20)) else 0


if __name__ == "__main__":
    sys.exit(main())
