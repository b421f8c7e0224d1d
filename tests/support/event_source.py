"""How the standard says that a stream of events is read, as plainly as it can be written down.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import itertools
from collections.abc import Iterable, Iterator

__all__ = ["ENDS", "cuts", "dispatched", "joined", "joined_by"]

ENDS = (b"\n", b"\r\n", b"\r")


def dispatched(data: bytes) -> list[bytes]:
    """The data of each event that is dispatched; one that no blank line ends is not."""
    found, lines = [], list[bytes]()
    for line in _lines(data.removeprefix(b"\xef\xbb\xbf")):
        if not line:
            found += [b"\n".join(lines)] if lines else []
            lines = []
        elif line == b"data" or line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
    return found


def _lines(data: bytes) -> Iterator[bytes]:
    """The lines that have an end: CR LF, LF or CR."""
    line = bytearray()
    at = 0
    while at < len(data):
        if data[at : at + 1] in (b"\r", b"\n"):
            yield bytes(line)
            line.clear()
            at += 2 if data[at : at + 2] == b"\r\n" else 1
        else:
            line += data[at : at + 1]
            at += 1


def joined(lines: list[bytes], ends: Iterable[bytes]) -> bytes | None:
    """The lines with these ends behind them; None where a carriage return and a line feed would be one end of two."""
    out = b""
    for line, end in zip(lines, ends, strict=True):
        if not line and out.endswith(b"\r") and end == b"\n":
            return None
        out += line + end
    return out


def joined_by(lines: list[bytes]) -> list[bytes]:
    """The lines with every mixture of line ends behind them."""
    found = (joined(lines, ends) for ends in itertools.product(ENDS, repeat=len(lines)))
    return [data for data in found if data is not None]


def cuts(data: bytes, *, places: list[int] | None = None) -> Iterator[list[bytes]]:
    """The data whole, per byte, and with one cut and with two at all of these places."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    at = places if places is not None else list(range(1, len(data)))
    for one in at:
        yield [data[:one], data[one:]]
    for one, two in itertools.combinations(at, 2):
        yield [data[:one], data[one:two], data[two:]]
