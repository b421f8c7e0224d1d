"""No byte of a stream is dropped or added on its way, whatever ends its lines and wherever it is cut."""

import itertools

import pytest

from gateway.answer.watch import WatchedStream
from tests.gateway.answer.test_watch import beside
from tests.support.chat import DONE, hear_stream, prepared, stream
from tests.support.event_source import ENDS, cuts, dispatched, joined, joined_by

DATA = b'data:{"choices":[{"index":0,"delta":{"content":"%b"}}]}'
FINISH = b'data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
LINES = [DATA % b"a", b"", b":c", b"", FINISH, b"", b"data:[DONE]", b""]
HELD = [DATA % b"<read", b"", b":c", b"", DATA % b"y", b"", FINISH, b"", b"data:[DONE]", b""]
READ = pytest.mark.parametrize("how", [prepared(), prepared(tools=None)], ids=["read", "watched"])


def mixtures(lines: list[bytes]) -> list[bytes]:
    """The lines with every two pairs of line ends behind them, in turn."""
    found = []
    for pairs in itertools.product(itertools.product(ENDS, repeat=2), repeat=2):
        ends = itertools.cycle(itertools.chain.from_iterable(pairs))
        found.append(joined(lines, itertools.islice(ends, len(lines))))
    return [data for data in found if data is not None]


def at_line_ends(data: bytes) -> list[int]:
    """The places before, within and behind each line end."""
    near = {at + by for at in range(len(data)) if data[at] in b"\r\n" for by in (0, 1)}
    return sorted(near - {0, len(data)})


@READ
@pytest.mark.parametrize("lines", [LINES, HELD], ids=["flowing", "held"])
def test_an_answer_goes_through_as_it_came(how, lines):
    for data in mixtures(lines)[:: 3 if lines is HELD else 1]:
        for pieces in cuts(data, places=at_line_ends(data)):
            out, exchange = stream(pieces, how)
            assert out == data, pieces
            assert exchange.facts.failure is None


@READ
def test_every_other_mixture_of_line_ends_goes_through(how):
    for data in joined_by(LINES)[::2]:
        for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
            assert stream(pieces, how)[0] == data


@READ
@pytest.mark.parametrize("end", ENDS)
def test_an_answer_that_is_cut_one_place_everywhere_goes_through(how, end):
    data = b"".join(line + end for line in HELD)
    for at in range(1, len(data)):
        assert stream([data[:at], data[at:]], how)[0] == data


@READ
def test_a_stream_that_ends_without_its_last_line_ends_is_completed(how):
    """A strict reader gets every event, and `[DONE]` behind them where the model server left that out."""
    for data in mixtures(LINES):
        for end in at_line_ends(data):
            if data[:end].count(b"stop") and data[:end].rstrip(b"\r\n").endswith((b"}", b"]")):
                for pieces in ([data[:end]], [data[at : at + 1] for at in range(end)]):
                    out = stream(pieces, how)[0]
                    assert dispatched(out) == dispatched(data)


def test_a_call_between_odd_line_ends_is_read():
    call = DATA % b"<read>\\n<filePath>/a.py</filePath>\\n</read>"
    for data in mixtures([call, b"", *LINES]):
        heard = hear_stream(stream([data[at : at + 1] for at in range(len(data))], prepared())[0])
        assert [each["name"] for each in heard.calls] == ["read"]
        assert heard.done


def test_an_untouched_answer_goes_through_and_comments_fit_between_its_events():
    for data in mixtures(LINES):
        for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
            untouched, out, told = WatchedStream(beside(prepared())), b"", b""
            for piece in pieces:
                out += untouched.feed(piece)
                told += piece + (b": keep-alive\n\n" if untouched.at_boundary else b"")
            assert out + untouched.finish() == data
            assert dispatched(told) == dispatched(data)
            assert untouched.finished


def test_blank_lines_go_through_and_events_without_data_do_not():
    """The SDK reads an event that has a field and no data as broken JSON."""
    kept = [b"\n", b": a\n\n", b"\n\n", DATA % b"x" + b"\n\n", b"\n: b\n: c\n\n", FINISH + b"\n\n", DONE]
    sent = [*kept[:3], b"event: ping\n\n", *kept[3:5], b"\n: d\nid: 4\n\n", *kept[5:]]
    assert stream(sent, prepared())[0] == b"".join(kept)
