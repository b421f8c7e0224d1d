"""No step of reading an answer grows with its arguments, whatever dialect, state and shape they are of: counted."""

import json
from collections.abc import Callable

import pytest

from gateway.answer.body import BodyExchange
from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from strategies.dialects.rows import BY_ID
from tests.bench.turns import SHAPES, STATES, made, prepared, steps_of
from tests.support.chat import answer_body, answer_events, event, numbered_ids
from tests.support.cost import steps
from tests.support.lateness import ways

pytestmark = pytest.mark.cost

MOST = 60_000
"""Calls of functions in a step: some five milliseconds of such small ones."""
SIZE = 100_000
FEW = [
    ("hermes", "enum", "closed"),
    ("hermes", "anyOf of objects", "whole"),
    ("generic_xml", "objects of texts", "native"),
]


def assert_even(dialect: str, shape: str, state: str, size: int) -> None:
    answer = made(BY_ID[dialect], shape, size)
    assert answer is not None
    for work in steps_of(answer, dialect, state, piece=256):
        steps(work, most=MOST)


@pytest.mark.parametrize(("dialect", "shape", "state"), FEW)
def test_no_step_grows_with_the_arguments(dialect: str, shape: str, state: str) -> None:
    assert_even(dialect, shape, state, SIZE)


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dialect", [name for name, row in BY_ID.items() if made(row, "text", 100)])
def test_no_step_of_any_dialect_grows_with_the_arguments(dialect: str, state: str) -> None:
    for shape in SHAPES:
        assert_even(dialect, shape, state, SIZE)


def asked_again(exchange: StreamExchange | BodyExchange, body: bytes) -> bytes:
    """What comes of a second answer; no step of reading it costs too much."""
    assert exchange.ask_again is not None
    work = exchange.second_steps(body)
    while True:
        try:
            steps(lambda: next(work), most=MOST)
        except StopIteration as end:
            return bytes(end.value)


BROKEN = "<read>\n<filePath>/a.py</filePath>\n<limit>many</limit>\n</read>"


@pytest.mark.parametrize("shape", ["stream", "body"])
def test_no_step_grows_with_a_second_answer(shape: str) -> None:
    words = json.dumps([f"word {number}" for number in range(8_000)])
    second = answer_body(f"<write>\n<filePath>/a</filePath>\n<content>{words}</content>\n</write>")
    how = ways()["xml_prompt generic_xml"]
    exchange: StreamExchange | BodyExchange
    if shape == "stream":
        exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1)
        exchange.feed(b"".join(answer_events([BROKEN])))
    else:
        exchange = BodyExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1)
        exchange.transform(answer_body(BROKEN))
    assert words[-20:-2].encode() in asked_again(exchange, second).replace(b'\\\\\\"', b'"').replace(b'\\"', b'"')


@pytest.mark.parametrize("behind", ["a structured call", "no end", "an error"])
def test_no_step_grows_with_what_is_given_back(behind: str) -> None:
    """A long call of the text waits; what comes then makes text of it, or reads it at once."""
    answer = made(BY_ID["generic_xml"], "objects", SIZE)
    assert answer is not None
    exchange = StreamExchange(
        prepared(answer, "generic_xml", waits=True), make_id=numbered_ids(), limits=Limits(), asks=1
    )
    text = answer.head + answer.value + answer.tail
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    events = answer_events([text[at : at + 256] for at in range(0, len(text), 256)])
    told = b"".join(events[:-2])
    out: list[bytes] = []

    def work_off(work: Callable[[], object]) -> None:
        steps(work, most=MOST)
        while exchange.busy:
            steps(lambda: out.append(exchange.step()), most=MOST)

    for at in range(0, len(told), 1 << 14):
        work_off(lambda at=at: out.append(exchange.step(told[at : at + (1 << 14)])))  # type: ignore[misc]
    if behind == "a structured call":
        structured = event({"tool_calls": [call]})
        work_off(lambda: out.append(exchange.step(structured)))
    elif behind == "an error":
        work_off(lambda: out.append(exchange.step(b'data: {"error": {"message": "gone"}}\n\n')))
    else:
        work_off(lambda: out.append(exchange.step(events[-2])))
        work_off(exchange.end_choices)
    work_off(lambda: out.append(exchange.close()))
    assert b'"name": "write"' not in b"".join(out) or behind == "no end"
