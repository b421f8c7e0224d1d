"""Chunks that are not as they should be: passed on unread where clients can read them, refused where not."""

import pytest

from gateway.wire.chat_chunks import BadChunk, decode_chunk


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices": 3}',
        b'{"choices": [{"index": "x"}]}',
        rb'{"choices": [{"index": 0, "delta": {"content": "\ud83d"}}]}',
        rb'{"note": "\udc00"}',
    ],
)
def test_an_object_of_another_shape_is_passed_on_unread(data: bytes) -> None:
    assert decode_chunk(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"3",
        b"[1]",
        b'"x"',
        rb'["\ud83d"]',
        b'{"choices": [{"index": 0, "delta": {"content": "\xff"}}]}',
        b'{"choices": [{"index": 0, "delta": {"content": "a\nb"}}]}',
        b'{"note": ' + b"[" * 100_000,
        b'{"note": NaN}',
    ],
    ids=["cut", "number", "list", "text", "half in a list", "no UTF-8", "line break", "depth", "no number"],
)
def test_what_clients_cannot_read_is_refused(data: bytes) -> None:
    with pytest.raises(BadChunk):
        decode_chunk(data)
