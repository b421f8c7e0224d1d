"""Events as bytes: their bounds, whatever ends their lines."""

import pytest

from gateway.wire.sse import EventTooLong, SseDecoder

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
