"""20,000 hostile event streams: whatever the cuts, the same events, no byte of them lost, no foreign exception."""

import random

from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent

INPUTS = 20_000
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
    for _ in range(INPUTS):
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
