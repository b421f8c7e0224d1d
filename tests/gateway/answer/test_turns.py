"""No step of reading an answer grows with its arguments, whatever dialect, state and shape they are of: counted."""

import gc
import json
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from gateway.answer.body import BodyExchange
from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from strategies.base import Prepared
from strategies.dialects.rows import BY_ID
from tests.bench.lateness import tokens, ways
from tests.bench.turns import SHAPES, STATES, made, prepared, steps_of
from tests.support.chat import answer_body, answer_events, event, hear_stream, numbered_ids
from tests.support.chat import prepared as chat_prepared
from tests.support.cost import steps

MOST = 60_000
"""Calls of functions in a step: some five milliseconds of such small ones."""
SIZE = 100_000
READ_ONCE_MORE = 10_000
"""Where nothing came of asking again, calls of such a size are read as they were written."""
FEW = [
    ("dsml", "deep", "closed"),
    ("json_bare", "enum", "native"),
    ("hermes", "anyOf of objects", "whole"),
    ("generic_xml", "objects of texts", "native"),
    ("command_r_action", "objects", "open"),
    ("glm_bare", "deep", "cut"),
]


def assert_even(dialect: str, shape: str, state: str, size: int) -> None:
    answer = made(BY_ID[dialect], shape, size)
    assert answer is not None
    for work in steps_of(answer, dialect, state, piece=256):
        steps(work, most=MOST)


@pytest.mark.cost
@pytest.mark.parametrize(("dialect", "shape", "state"), FEW)
def test_no_step_grows_with_the_arguments(dialect: str, shape: str, state: str) -> None:
    assert_even(dialect, shape, state, SIZE)


@pytest.mark.cost
def test_no_step_grows_with_a_call_that_is_read_once_more() -> None:
    assert_even("solar_open", "deep", "open", READ_ONCE_MORE)


@pytest.mark.cost
@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dialect", [name for name, row in BY_ID.items() if made(row, "text", 100)])
def test_no_step_of_any_dialect_grows_with_the_arguments(dialect: str, state: str) -> None:
    for shape in SHAPES:
        assert_even(dialect, shape, state, SIZE)
        assert_even(dialect, shape, state, READ_ONCE_MORE)


@pytest.mark.cost
@pytest.mark.long
@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("state", ["closed", "open", "cut", "broken"])
@pytest.mark.parametrize("dialect", [name for name, row in BY_ID.items() if made(row, "text", 100)])
def test_an_event_of_a_long_call_costs_what_it_costs_in_a_short_one(dialect: str, state: str, at_once: int) -> None:
    def told(size: int) -> float:
        answer = made(BY_ID[dialect], "text", size)
        assert answer is not None
        work = steps_of(answer, dialect, state, at_once=at_once)
        return steps(lambda: deque((step() for step in work), maxlen=0), most=1 << 40) / size

    assert told(1_600_000) <= 1.2 * told(50_000)


@pytest.mark.parametrize(("dialect", "state"), [("gemma4", "open"), ("glm_bare", "open"), ("hermes", "closed")])
def test_what_was_read_in_vain_is_let_go_in_turns(dialect: str, state: str) -> None:
    """Python frees all that one value holds in one go: no count of calls tells how long that takes."""
    answer = made(BY_ID[dialect], "deep", SIZE)
    assert answer is not None
    gc.collect()
    gc.disable()
    try:
        held = sys.getallocatedblocks()
        most = 0
        work: Iterable[Callable[[], object]] = chain(steps_of(answer, dialect, state, piece=256), [gc.collect])
        for step in work:
            step()
            most, held = max(most, held - sys.getallocatedblocks()), sys.getallocatedblocks()
    finally:
        gc.enable()
    assert most < 20_000, "blocks of memory that one step has freed, of some 90,000"


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


@pytest.mark.cost
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


@pytest.mark.cost
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


# --- No step of an answer grows with what is held: counted, not timed


CALL = "<read>\n<filePath>/a</filePath>\n</read>"

BLANKS = ["    "] * 12_000


def told(events: Sequence[bytes], at_once: int, way: str) -> list[bytes]:
    """What each step gives out, none of which costs too much."""
    exchange = StreamExchange(ways()[way], make_id=numbered_ids(), limits=Limits(), asks=1)
    out: list[bytes] = []

    def work_off() -> None:
        while exchange.busy:
            steps(lambda: out.append(exchange.step()), most=MOST)

    for at in range(0, len(events), at_once):
        data = b"".join(events[at : at + at_once])
        steps(lambda data=data: out.append(exchange.step(data)), most=MOST)  # type: ignore[misc]
        work_off()
    steps(lambda: out.append(exchange.close()), most=MOST)
    work_off()
    return out


@pytest.mark.cost
@pytest.mark.parametrize("behind", [["Done."], [], [CALL], ["<rea", "l>"]], ids=["text", "end", "call", "marker"])
@pytest.mark.parametrize(("at_once", "way"), [(300, "recovery deepseek-chat"), (1, "xml_prompt generic_xml")])
def test_white_space_in_very_many_events_goes_in_steps(behind: list[str], at_once: int, way: str) -> None:
    events = answer_events(["Hi.", *BLANKS, *behind])
    out = told(events, at_once, way)
    if behind == [CALL]:
        assert hear_stream(b"".join(out)).meaning == ("Hi.", [("read", '{"filePath":"/a"}')], "tool_calls")
    else:
        assert b"".join(out) == b"".join(events)
    assert max(map(len, out)) < 1_000_000, "not all of it in one go"


@pytest.mark.cost
@pytest.mark.parametrize("behind", [["Done."], [CALL]], ids=["text", "call"])
def test_events_of_many_moulds_are_few_once_they_are_very_many(behind: list[str]) -> None:
    parts = ["Hi.", *["  "] * 12_000, *behind]
    filler = b'"system_fingerprint": "' + b"f" * 500
    made = answer_events(parts)
    events = [
        each.replace(b'"created": 1', b'"created": %d' % at).replace(b'"system_fingerprint": "fp', filler)
        for at, each in enumerate(made)
    ]
    heard = hear_stream(b"".join(told(events, 100, "recovery deepseek-chat")))
    if behind == [CALL]:
        assert heard.meaning == ("Hi.", [("read", '{"filePath":"/a"}')], "tool_calls")
    else:
        assert heard.meaning == ("".join(parts), [], "stop")


# --- What a stream keeps while a call is open in it: its events, and its text once, whichever dialect reads it


CODE = Path(__file__).read_text(encoding="utf-8").replace("</", "< /")

JSON_OPENER = '{"name": "write", "arguments": {"filePath": "/a", "content": "'

OPENERS = {
    "xml_prompt generic_xml": "<write>\n<filePath>/a</filePath>\n<content>",
    "xml_prompt qwen3_coder": "<function=write>\n<parameter=filePath>\n/a\n</parameter>\n<parameter=content>\n",
    "xml_prompt hermes": f"<tool_call>\n{JSON_OPENER}",
    "recovery deepseek-chat": f"```json\n{JSON_OPENER}",
    "xml_prompt pythonic": '[write(filePath="/a", content="',
}

MOST_HELD = 2.2
"""Bytes for each byte of a call whose text is code in pieces of tokens: what came, and how it was cut, are 1.5."""
MOST_RECORDED = 2.7
"""The same with what is kept for its record."""
MOST_FLOWED = 1.5
"""The same of a call that flows: its text packed, for those who judge it at its end and for its record."""


def kept_of(way: Prepared, opener: str, *, times: int = 6, **more: Any) -> tuple[float, StreamExchange]:
    """Bytes that a stream keeps for each character of its open call."""
    text = CODE * times
    if opener[-1] == '"':
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    data = [event({"content": part}, None) for part in (opener, *tokens(text))]
    exchange = StreamExchange(way, make_id=numbered_ids(), limits=Limits(), **more)
    exchange.feed(event({"reasoning_content": "So."}, None))
    for each in data[:100]:  # what all streams share is there by now
        exchange.feed(each)
    tracemalloc.start()
    try:
        for each in data[100:]:
            exchange.feed(each)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return (kept - 16_000) / len(text), exchange


@pytest.mark.no_cover  # what counts lines takes memory, too
@pytest.mark.parametrize("way", OPENERS)
def test_an_open_call_is_held_about_twice(way: str) -> None:
    share, exchange = kept_of(ways()[way], OPENERS[way])
    assert exchange.held
    assert share < MOST_HELD


@pytest.mark.no_cover
def test_an_open_call_is_packed_for_its_record_and_its_judges() -> None:
    way = "xml_prompt generic_xml"
    share, _ = kept_of(ways()[way], OPENERS[way], times=4, asks=1, keep_text=True)
    assert share < MOST_RECORDED
    flowing = chat_prepared(stream_arguments="incremental")
    share, exchange = kept_of(flowing, OPENERS[way], times=4, asks=1, keep_text=True)
    assert share < MOST_FLOWED
    # All of it can still be told.
    end = "\n</content>\n</write>"
    exchange.feed(event({"content": end}, None))
    exchange.finish()
    transcript = exchange.facts.transcripts[0]
    told = OPENERS[way] + CODE * 4 + end
    assert transcript.text == told
    assert transcript.candidates[0].text == told[: 1 << 16]
    assert json.loads(transcript.candidates[0].arguments) == {"filePath": "/a", "content": CODE * 4}
