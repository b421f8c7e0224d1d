"""How a stream's reads are cut before they are read: at the ends of events, wherever there are any."""

from gateway.chat.pump import PIECE_BYTES
from gateway.wire.sse import block_of

EVENT = b"data: " + b"x" * 100 + b"\n\n"


def test_a_long_read_is_cut_behind_an_event():
    data = EVENT * 400
    piece = block_of(data, PIECE_BYTES)
    assert PIECE_BYTES - len(EVENT) < len(piece) <= PIECE_BYTES
    assert len(piece) % len(EVENT) == 0


def test_an_event_longer_than_a_piece_is_cut_all_the_same():
    assert len(block_of(b"data: " + b"x" * PIECE_BYTES * 2 + b"\n\n", PIECE_BYTES)) == PIECE_BYTES
