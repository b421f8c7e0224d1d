"""Events as bytes: their bounds, whatever ends their lines."""

import pytest

from gateway.wire.sse import Boundary, EventTooLong, Framer, SseDecoder, block_of, first_event
from tests.support.client import cuts, dispatched, joined_by

LONG = b"data: " + b"x" * 40


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("before", [b"", b"data: a\n\n", b": comment\n\n"])
def test_a_whole_event_beyond_the_bound_is_refused(newline: bytes, before: bytes) -> None:
    """Also where its end came with it, so that it never waited."""
    data = before.replace(b"\n", newline) + LONG + newline * 2
    with pytest.raises(EventTooLong):
        SseDecoder(40).feed(data)
    assert SseDecoder(46).feed(data)[-1][1] == b"x" * 40


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_an_event_without_end_is_refused_as_soon_as_it_is_too_long(newline: bytes) -> None:
    decoder = SseDecoder(40)
    decoder.feed(b"data: a" + newline)
    with pytest.raises(EventTooLong):
        decoder.feed(LONG)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_several_data_lines_are_one_text(newline: bytes) -> None:
    data = newline.join([b"event: x", b"data: a", b"data:b", b"data", b"id: 3", b"", b""])
    assert SseDecoder(100).feed(data) == [(data, b"a\nb\n")]


def test_an_event_without_data_has_none() -> None:
    assert SseDecoder(100).feed(b"event: ping\n\n: hello\n\n") == [(b"event: ping\n\n", None), (b": hello\n\n", None)]


LINES = [b"data:a", b"", b":c", b"", b"data:b", b""]


def decoded(pieces: list[bytes]) -> list[tuple[bytes, bytes | None]]:
    decoder = SseDecoder(100)
    return [*(event for piece in pieces for event in decoder.feed(piece)), *decoder.finish()]


def test_no_byte_is_lost_or_added_whatever_the_line_ends_and_the_cuts() -> None:
    for data in joined_by(LINES):
        for pieces in cuts(data):
            events = decoded(pieces)
            assert b"".join(raw for raw, _ in events) == data, pieces
            assert [said for _, said in events if said is not None] == [b"a", b"b"], pieces


def test_an_event_is_given_out_as_soon_as_a_blank_line_has_ended_it() -> None:
    """A carriage return may be all of a line's end, so nothing is waited for behind it."""
    for data in joined_by(LINES):
        decoder = SseDecoder(100)
        said = [event for at in range(len(data)) for event in decoder.feed(data[at : at + 1])]
        assert [text for _, text in said if text is not None] == dispatched(data) == [b"a", b"b"]


def test_a_stream_that_ends_anywhere_is_read_to_its_end() -> None:
    """What is given out is what came, and no more than a blank line behind it."""
    for data in joined_by(LINES):
        for end in range(len(data)):
            for pieces in ([data[:end]], [data[at : at + 1] for at in range(end)]):
                out = b"".join(raw for raw, _ in decoded(pieces))
                added = out.removeprefix(data[:end])
                assert out.startswith(data[:end])
                assert added in (b"", b"\n", b"\n\n")
                assert dispatched(out) == dispatched(data[:end] + b"\n\n")
                assert dispatched(out + b"data:z\n\n")[-1] == b"z"


# Where an event ends


def test_blocks_hold_whole_events_and_no_byte_is_lost_whatever_the_line_ends_and_the_cuts() -> None:
    for data in joined_by(LINES):
        for pieces in cuts(data):
            framer = Framer()
            blocks = [framer.feed(piece) for piece in pieces]
            rest = framer.finish()
            assert b"".join(blocks) + rest == data, pieces
            assert b"\r" in data or all(block.endswith(b"\n\n") for block in blocks if b"\n\n" in block), pieces
            assert not dispatched(rest)
            assert framer.finish() == b""


def test_between_two_events_the_decoder_holds_nothing() -> None:
    for data in joined_by(LINES):
        for pieces in cuts(data):
            boundary, decoder = Boundary(), SseDecoder(100)
            assert boundary.is_here
            for piece in pieces:
                boundary.feed(piece)
                decoder.feed(piece)
                assert not (boundary.is_here and decoder.pending), pieces


def test_a_long_read_is_cut_behind_an_event() -> None:
    event = b"data: {}\n\n"
    assert block_of(event * 3, 100) == event * 3
    assert block_of(event * 3, 25) == event * 2
    assert block_of(b"data: " + b"x" * 100 + b"\n\n", 25) == b"data: " + b"x" * 19


def test_the_first_event_ends_with_its_blank_line() -> None:
    assert (first_event(b"data: a\n\ndata: b\n\n"), first_event(b"data: a\n"), first_event(b"")) == (9, 0, 0)
