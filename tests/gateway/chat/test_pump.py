"""How a stream's reads are cut before they are read: at the ends of events, wherever there are any."""

import asyncio
import json
import re
from random import Random
from typing import Any

import pytest
from attrs import evolve

from gateway.chat.enrolment import EQUAL, looping_tool
from gateway.chat.pump import PIECE_BYTES
from gateway.surfaces.words import WordTemplate
from gateway.wire.calm import LONGEST, MOST, Calm, Ends, Gone, Lane, lane_of
from gateway.wire.sse import block_of
from tests.bench.counts import EVENT_HEAD, ROUTES
from tests.bench.requests import LAST_CHUNK, PROSE
from tests.support.chat import Taking, framed
from tests.support.faulty_upstream import Connection, FaultyUpstream, Received

EVENT = b"data: " + b"x" * 100 + b"\n\n"


def test_a_long_read_is_cut_behind_an_event():
    data = EVENT * 400
    piece = block_of(data, PIECE_BYTES)
    assert PIECE_BYTES - len(EVENT) < len(piece) <= PIECE_BYTES
    assert len(piece) % len(EVENT) == 0


def test_an_event_longer_than_a_piece_is_cut_all_the_same():
    assert len(block_of(b"data: " + b"x" * PIECE_BYTES * 2 + b"\n\n", PIECE_BYTES)) == PIECE_BYTES


# --- When a conversation goes round in a circle


def pair(at: int, *, name: str = "f", arguments: str = "{}", result: Any = "r") -> list[dict[str, Any]]:
    call = {"id": f"c{at}", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{at}", "content": result},
    ]


def test_four_equal_calls_with_equal_results() -> None:
    messages = [{"role": "user", "content": "hi"}, *(each for at in range(EQUAL) for each in pair(at))]
    assert looping_tool(messages) == "f"
    assert looping_tool(messages[:-1]) is None, "the last has no result yet"
    assert looping_tool([*messages, {"role": "user", "content": "go on"}]) is None, "somebody said something"


@pytest.mark.parametrize("more", [{"name": "g"}, {"arguments": '{"a":1}'}, {"result": "other"}])
@pytest.mark.parametrize("place", range(EQUAL))
def test_any_difference_ends_it(more: dict[str, Any], place: int) -> None:
    messages = [each for at in range(EQUAL) for each in pair(at, **(more if at == place else {}))]
    assert looping_tool(messages) is None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "tool"},
        {"role": "assistant", "tool_calls": {}},
    ],
)
def test_odd_histories_are_none(message: dict[str, Any]) -> None:
    assert looping_tool([message] * 9) is None
    assert looping_tool([]) is None


# --- Calm events by their lane


LOUD = re.compile(rb'["\\\x00-\x1f\x80-\xff<]')
PLAIN = Calm(b'data: {"text": "', b'"}\n\n', LOUD)
RESPONSES_ITEM = b'"item_id": "msg_1"'
WORD = b'event: w\ndata: {"sequence_number": %d, ' + RESPONSES_ITEM + b', "delta": "%b", "obfuscation": "%b"}\n\n'


def stamped() -> Calm:
    event = WORD % (7, b"word", b"aB3")
    template = WordTemplate.of(event, b'"word"')
    assert template is not None
    calm = template.calm(PLAIN)
    assert calm is not None
    return calm


def plain(text: bytes) -> bytes:
    return PLAIN.head + text + PLAIN.tail


GOES = framed(plain(b"words!"))  # of 1a bytes
NO_PLAIN = [
    *(framed(plain(text)) for text in (b"", b"a<b", b'a", "x": "b', b"\\n", "é".encode(), b"a\nb", b"x" * LONGEST)),
    *(GOES[1:], GOES[:-1], GOES[:-2], GOES + GOES, b"0" + GOES, GOES.replace(b"1a", b"1A"), b"1b" + GOES[2:]),
    *(b"1a;x\r\n" + GOES[4:], b"1a \r\n" + GOES[4:], b"1a\n" + GOES[4:], b"", b"\r\n", b"0\r\n\r\n"),
    *(framed(plain(b"word") * 2), framed(b" " + plain(b"word")), framed(plain(b"word")[:-1]), framed(b"\n\n")),
    framed(PLAIN.head + PLAIN.tail[1:]),
]
NO_STAMPED = [
    framed(event)
    for event in (
        WORD % (8, b"", b"a"),
        WORD % (8, b"a<b", b"a"),
        WORD % (8, b'", "type": "', b"a"),
        WORD % (8, b"word", b""),
        WORD % (8, b"word", b'a", "b": "c'),
        (WORD % (8, b"word", b"a")).replace(b"msg_1", b"msg_2"),
        (WORD % (8, b"word", b"a")).replace(b"8", b"-8"),
        (WORD % (8, b"word", b"a")).replace(b"event: w", b"event: v"),
        (WORD % (8, b"word", b"a")) * 2,
        WORD % (8, b"x" * LONGEST, b"a"),
    )
]


def test_only_a_whole_calm_event_in_a_plain_chunk_goes_by_a_lane() -> None:
    for calm, goes, others in (
        (PLAIN, [GOES, framed(plain(b" "))], NO_PLAIN),
        (stamped(), [framed(WORD % (number, b" a b", b"x" * number)) for number in (1, 99, 100)], NO_STAMPED),
    ):
        client = Taking()
        lane = client.lane(calm)
        for each in others:
            assert not lane.takes(each), each
        assert client.taken == []
        assert lane.gone() is None
        assert all(map(lane.takes, goes))
        assert client.taken == goes
        gone = lane.gone()
        assert gone is not None
        events = [each[each.find(b"\n") + 1 : -2] for each in goes]
        assert (gone.last, gone.size, len(gone.texts)) == (events[-1], sum(map(len, events)), len(goes))
        assert gone.times == sorted(gone.times)
        assert [lane.takes(goes[0]) for _ in range(MOST + 2)].count(False) == 2, "what has gone is told now and then"


@pytest.mark.parametrize("text_at", range(3))
def test_wherever_a_server_writes_its_stamps(text_at: int) -> None:
    fields = ['"sequence_number":%d', '"obfuscation":"%s"']
    fields.insert(text_at, '"delta":"%s"')
    known = dict(zip(fields, fields, strict=True))

    def event(number: int, text: str, letters: str) -> bytes:
        values = {fields[text_at]: text, '"sequence_number":%d': number, '"obfuscation":"%s"': letters}
        told = ',"item_id":"x",'.join(known[each] % values[each] for each in fields)
        return b"event: w\ndata: {" + told.encode() + b',"type":"w"}\n\n'

    template = WordTemplate.of(event(1, "a", "b"), b'"a"')
    assert template is not None
    calm = template.calm(PLAIN)
    assert calm is not None
    lane = Taking().lane(calm)
    assert lane.takes(framed(event(23, "some words", "xyz")))
    assert not lane.takes(framed(event(23, "a < b", "xyz")))
    assert not lane.takes(framed(event(23, "some words", "xyz").replace(b'"x"', b'"y"', 1)))
    gone = lane.gone()
    assert gone is not None
    assert gone.texts == [b"some words"]


STRATEGIES = [
    *(("chat", "recovery"), ("chat", "native"), ("chat, watched", "recovery")),
    *((f"{wire}, same wire", strategy) for wire in ("messages", "responses") for strategy in ("native", "recovery")),
]


def test_an_event_that_ends_in_a_blank_waits_for_the_word_behind_it() -> None:
    client, times = Taking(), iter(range(100))
    calm = evolve(PLAIN, blanks="wait")
    ends = Ends(client.taken.append, client.left.append, client.faults.append, lambda: float(next(times)))
    lane = lane_of(calm, ends, may_hold=True)
    one, two, three, four = (framed(plain(text)) for text in (b"One ", b"two ", b"three", b" four"))
    assert lane.takes(one)
    assert client.taken == [], "a call behind it would drop the blank"
    assert lane.takes(two)
    assert client.taken == [one]
    assert lane.takes(three)
    assert client.taken == [one, two + three]
    gone = lane.gone()
    assert gone is not None
    assert (gone.texts, gone.times) == ([b"One ", b"two ", b"three"], [1.0, 2.0])
    assert (gone.waiting, gone.held_s, gone.held_bytes) == (b"", 1.0, len(plain(b"two ")))
    assert lane.takes(one)
    assert not lane.takes(four), "two blanks behind each other may still be the end of the text"
    for text in (b"five  ", b" ", b"a < ", b"six"):
        other = client.lane(calm, may_hold=text == b"six")
        assert other.takes(framed(plain(text))) is (text == b"six")
    gone = lane.gone()
    assert gone is not None
    assert (gone.texts, gone.waiting, gone.since, gone.size) == ([], plain(b"One "), 3.0, 0)
    assert lane.gone() is None


@pytest.mark.parametrize(("route", "strategy"), STRATEGIES)
async def test_events_that_come_one_by_one_are_the_servers_own_and_are_counted(
    upstream: FaultyUpstream, gateway: Any, client: Any, log: Any, monkeypatch: pytest.MonkeyPatch,
    route: str, strategy: str,
) -> None:  # fmt: skip
    way, words = ROUTES[route], ["Well", *PROSE.split()[:90], "{", "<", "calm", *PROSE.split()[:40], "end"]
    sent = [way.begin, *(way.word(at, f" {word}") for at, word in enumerate(words)), way.end(len(words))]
    data, by_lane = b"".join(sent[:-1]), 0  # the end tells another text than was said, which would be a change

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(EVENT_HEAD)
        for each in filter(None, sent):
            await connection.send_chunked(each, last=False)
            for _ in range(6):  # so that each is a read of its own
                await asyncio.sleep(0)
        await connection.send(LAST_CHUNK)

    def counted(*how: Any, **rest: Any) -> Lane:
        lane = lane_of(*how, **rest)

        def takes(chunk: bytes) -> bool:
            nonlocal by_lane
            goes = lane.takes(chunk)
            by_lane += goes
            return goes

        return evolve(lane, takes=takes)

    monkeypatch.setattr("gateway.chat.pump.lane_of", counted)
    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES=f"bench={strategy}", **way.environ)
    async with client.post(running.url + way.path, json=way.ask(True)) as response:
        told = await response.read()
    assert told.startswith(data)
    record = await log.record("request_ended")
    assert (record["status"], record["bytes_out"]) == (200, len(told))
    assert by_lane > len(words) / 4, "too few to show anything"


WORDS = [
    "Well",
    ", I",
    " will look ",
    "into it ",
    "and",
    " then ",
    ". ",
    ".\n",
    "\n\n",
    " ",
    "  ",
    "line.\nNext ",
    "e.g.\n- a ",
]
MARKS = [
    "<",
    "x < y ",
    "<read>",
    "`ls` ",
    "[1] ",
    "\nAction",
    ": read",
    "\nto=",
    "func",
    "tion ",
    "assi",
    "st ",
    '{"a"',
    "~~",
]
CALL_TOLD = "<write><path>/a.py</path></write>"


async def ended(log: Any, request: str) -> dict[str, Any]:
    """What the log says of this request, once it has ended."""
    async with asyncio.timeout(5):
        while True:
            for fields in map(json.loads, (await log.until(request)).splitlines()):
                if (fields["event"], fields.get("request_id")) == ("request_ended", request):
                    return dict(fields)
            await asyncio.sleep(0.01)


async def test_a_lane_changes_nothing_but_what_an_event_costs(
    upstream: FaultyUpstream, gateway: Any, client: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, answers, way = Random(7), [], ROUTES["chat"]
    for number in range(40):
        drawn = random.choices(WORDS, k=random.randint(4, 40))
        for _ in range(number % 4):
            drawn.insert(random.randrange(len(drawn)), random.choice(MARKS))
        answers.append([*drawn, CALL_TOLD] if number % 2 else drawn)
    asked: list[str] = []

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(EVENT_HEAD)
        for each in (*(way.word(at, text) for at, text in enumerate(asked)), way.end(len(asked))):
            await connection.send_chunked(each, last=False)
            for _ in range(6):  # so that each is a read of its own
                await asyncio.sleep(0)
        await connection.send(LAST_CHUNK)

    held = 0

    def counted(*how: Any, **rest: Any) -> Lane:
        lane = lane_of(*how, **rest)

        def gone() -> Gone | None:
            nonlocal held
            told = lane.gone()
            held += told is not None and told.held_bytes > 0
            return told

        return evolve(lane, gone=gone)

    monkeypatch.setattr("gateway.chat.pump.lane_of", counted)
    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="bench=recovery")
    fields = ("status", "bytes_out", "calls", "refused", "held_bytes", "end")
    found = []
    for has_lane in (True, False):
        if not has_lane:
            monkeypatch.setattr("gateway.upstream.client.UpstreamReply.open_lane", lambda *how: None)
        told = []
        for asked[:] in answers:
            async with client.post(running.url + way.path, json=way.ask(True)) as response:
                body = re.sub(rb"call_\w+", b"call", await response.read())
            record = await ended(log, response.headers["X-Request-Id"])
            told.append((body, {name: record.get(name) for name in fields}))
        found.append(told)
    for texts, with_lane, without in zip(answers, *found, strict=True):
        assert with_lane == without, texts
    assert held > len(answers) / 2, "too few to show anything"
