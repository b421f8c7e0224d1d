"""The window: each character comes in once and leaves once, and what stood before it is remembered."""

import random

import pytest

from gateway.core.events import Drop, End, Event, Text, Verdict
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.reading.active import grammar_for
from strategies.reading.window import BEFORE, Window
from tests.support.reading import AGENT_TOOLS, pieces

LONG = "".join(f"line {number}\n" for number in range(2000))
CONTEXT = Context(tools=AGENT_TOOLS, options=Options())


def window(text: str = "") -> Window:
    made = Window(CONTEXT, grammar_for(CONTEXT))
    made.push(text)
    return made


def said(events: list[Event]) -> str:
    return "".join(event.raw for event in events)


@pytest.mark.parametrize("seed", range(20))
def test_all_text_leaves_in_order_and_what_stands_before_it_is_known(seed: int) -> None:
    rng = random.Random(seed)
    at = window()
    events: list[Event] = []
    parts = list(pieces(LONG, sorted(rng.sample(range(len(LONG)), 30))))
    while parts or at.buf or at.refill():
        if parts and rng.random() < 0.3:
            at.push(parts.pop(0))
        size = rng.randint(0, len(at.buf))
        assert at.before(size) == LONG[: at.offset + size][-BEFORE:]
        at.text(size)
        events += at.out.taken()
        assert said(events) == LONG[: at.offset]
        assert at.tail == LONG[: at.offset][-BEFORE:]
    assert at.offset == len(LONG)


def test_the_end_is_seen_behind_the_last_block_only() -> None:
    at = window(LONG)
    at.end(cut=False)
    while not at.eof:
        assert not at.is_told
        at.text(len(at.buf))
        assert at.refill()
    at.text(len(at.buf))
    assert at.is_told
    assert not at.refill()
    assert said(at.out.taken()) == LONG


def test_text_that_a_candidate_gives_back_comes_before_what_waits() -> None:
    at = window(LONG)
    while len(at.buf) < len(LONG) // 2:
        assert at.refill()
    taken, at.buf = at.buf, ""
    at.give(taken)
    while at.buf or at.refill():
        at.text(len(at.buf))
    assert said(at.out.taken()) == LONG


def test_what_is_shown_ahead_goes_out_once() -> None:
    at = window("a < b")
    at.text(2)
    at.foretell()
    assert said(at.out.taken()) == "a < b"
    assert at.buf == "< b"
    assert at.is_told
    at.text(3)
    assert at.out.taken() == []


def test_nothing_is_shown_ahead_of_what_may_open_a_call() -> None:
    at = window("<rea")
    at.foretell()
    assert at.out.taken() == []
    assert at.buf == "<rea"


@pytest.mark.parametrize("blank", ["\n\n", "\n \t\r\n"])
def test_inline_code_ends_with_its_paragraph(blank: str) -> None:
    at = window(f"so{blank}and")
    at.inline = 1
    at.text(2)
    assert at.inline == 1
    at.text(len(blank))
    assert at.inline == 0


def test_what_is_held_goes_out_when_it_is_let_go() -> None:
    at = window("one two three")
    held = at.out.hold()
    at.text(3)
    at.drop(4, "leftover")
    assert at.out.taken() == []
    assert held.events == [Text("one"), Drop(" two", "leftover")]
    assert at.out.size == len("one two")
    at.let_go(held.decided(accept=False))
    assert at.out.taken() == [Text("one two")]
    assert at.out.idle


def test_reasoning_that_ends_opens_what_was_refused_before() -> None:
    at = window("x" * 10)
    at.text(4)
    verdict = Verdict(dialect="hermes", name="read", score=90, accepted=True, reasons=())
    at.tell(Drop("```\n", "carrier"))
    at.tell(End("raw", "read", "{}", verdict))
    at.blind = 100
    at.end_thought("</think>")
    assert at.blind == at.offset == 4
