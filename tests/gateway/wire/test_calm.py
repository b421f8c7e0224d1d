"""Calm events by their lane: which chunks go by it, and what is told of those that have gone."""

import re

import pytest
from attrs import evolve

from gateway.surfaces.words import WordTemplate
from gateway.wire.calm import LONGEST, MOST, Calm, Ends, Loud, lane_of
from tests.support.chat import Taking, framed

LOUD = Loud(re.compile(rb'["\\\x00-\x1f\x80-\xff<]'))
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
