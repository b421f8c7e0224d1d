"""How a stream's reads are cut before they are read: at the ends of events, wherever there are any."""

import asyncio
import re
from typing import Any

import pytest
from attrs import evolve

from gateway.chat.enrolment import EQUAL, looping_tool
from gateway.chat.pump import PIECE_BYTES
from gateway.surfaces.words import WordTemplate
from gateway.wire.calm import LONGEST, MOST, Calm, Lane, lane_of
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
    calm = template.calm(LOUD)
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
    calm = template.calm(LOUD)
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

    def counted(*how: Any) -> Lane:
        lane = lane_of(*how)

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
