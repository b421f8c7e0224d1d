"""Short runs of the fuzzers, always over the same inputs; and that each sees what it is there to see."""

import random

import pytest

from gateway.core.events import End, Event
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent
from strategies.base import FinishReason
from strategies.reading.reader import Reader
from tests.fuzz.__main__ import FUZZERS, run
from tests.fuzz.fuzz_cost import Answer, fragments, growth, search
from tests.fuzz.fuzz_once import check
from tests.fuzz.parsers import PARSERS, Parser, drawn
from tests.support.fragments import check as read_every_way
from tests.support.fragments import inputs

INPUTS = 300


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_fails_by_its_own_faults_alone(name: str) -> None:
    assert run(name, INPUTS, 1)[0] == 0


@pytest.mark.long
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_fails_by_its_own_faults_alone_however_often(name: str) -> None:
    assert run(name, 20_000, 2)[0] == 0


def test_a_parser_that_fails_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(data: bytes) -> None:
        assert b"<<EOF" not in data

    parser = Parser(breaks, PARSERS["shell"].words)
    monkeypatch.setitem(FUZZERS, "shell", lambda seed: parser(drawn(random.Random(seed), parser)))
    assert 0 < run("shell", INPUTS, 1)[0] < INPUTS


# --- 20,000 hostile event streams: whatever the cuts, the same events, no byte of them lost, no foreign exception


STREAMS = 20_000

MAX_EVENT = 400

PARTS = (
    b"data: ",
    b"data:",
    b"data",
    b"event: x",
    b": comment",
    b"id: 1",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\r\n\r\n",
    b"\xef\xbb\xbf",
    DONE,
    b'{"choices": []}',
    "ü\u2028\U0001f600".encode(),
    b"\xff\xfe",
    b"\x00",
    b"x" * 150,
)


def events_of(pieces: list[bytes]) -> list[SseEvent] | None:
    """The events, the last one completed; None where one is too long."""
    decoder = SseDecoder(MAX_EVENT)
    found: list[SseEvent] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        return found + decoder.finish()
    except EventTooLong:
        return None


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    pieces = []
    while data:
        size = rng.choice((1, 1, 2, 3, 7, 40))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def test_events_do_not_depend_on_the_cuts_and_lose_nothing() -> None:
    rng = random.Random(20)
    for _ in range(STREAMS):
        data = b"".join(rng.choice(PARTS) for _ in range(rng.randint(0, 14)))
        whole = events_of([data])
        found = events_of(cut(data, rng))
        if whole is None or found is None:
            assert len(data) > MAX_EVENT
            continue
        said = [event for _, event in whole if event is not None]
        assert said == [event for _, event in found if event is not None]
        for lines in (whole, found):
            kept = b"".join(raw for raw, _ in lines)
            came = data.removeprefix(b"\xef\xbb\xbf")
            assert kept.startswith(came)
            assert kept.removeprefix(came) in (b"", b"\n", b"\n\n")


# --- A short run of the fuzzer that looks for a call that is given twice, always over the same orders


ORDERS = 1_000


def test_no_order_gives_a_call_twice() -> None:
    assert sum(map(check, range(ORDERS))) > 10, "second answers must be asked for, or nothing of them is tested"


@pytest.mark.long
def test_no_order_of_very_many_gives_a_call_twice() -> None:
    for seed in range(50_000):
        check(seed)


# --- The search for answers that cost more than their length: that it sees one, and that it finds none in a few
# rounds.


def test_every_opener_is_among_what_is_tried() -> None:
    assert {"<tool_call>", "[TOOL_CALLS]", "{", "<read", "```\n", "</think>"} <= set(fragments())


@pytest.mark.cost
def test_no_unit_that_is_drawn_costs_more_than_its_length() -> None:
    assert search(12, 5) == []


@pytest.mark.cost
def test_work_that_grows_with_what_came_before_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Reader.step

    def slow(self: Reader, text: str = "", reason: FinishReason | None = None) -> list[Event]:
        for _ in range(self._window.offset // 2):
            len(text)
        return step(self, text, reason)

    assert growth(Answer("abc <d> "), 4_000, 64) < 1.3
    monkeypatch.setattr(Reader, "step", slow)
    assert growth(Answer("abc <d> "), 4_000, 64) > 1.3


ANSWERS = 10_000
SHARES = 4
LATER = [pytest.param(share, marks=pytest.mark.long) for share in range(1, SHARES)]


@pytest.mark.parametrize("share", [0, *LATER])
def test_random_answers_keep_every_promise(share: int) -> None:
    calls = 0
    for _, text, way, cuts in inputs(seed=share, count=ANSWERS // SHARES):
        calls += sum(isinstance(event, End) for event in read_every_way(text, way, cuts))
    assert calls > 100, "the answers must hold real calls, or nothing is tested"
