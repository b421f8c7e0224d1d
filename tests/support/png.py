"""PNG made small: the colours that matter most, as a palette, and a word on who made it."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

__all__ = ["MADE_BY", "chunks", "shrunk"]

Colour = tuple[int, ...]

MADE_BY = b"Software\0python -m tests.support.pictures"
_HEAD = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
_KEPT = 48
_APART = (60**2, 30**2, 15**2, 7**2, 0)
_CHANNELS = {2: 3, 6: 4}


def chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The parts of a PNG, by name."""
    assert picture.startswith(_HEAD)
    at = len(_HEAD)
    while at < len(picture):
        (size,) = struct.unpack_from(">I", picture, at)
        yield picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        at += size + 12


def shrunk(picture: bytes) -> bytes:
    """The same picture in 256 colours, for each other one the nearest of them."""
    parts = list(chunks(picture))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert depth == 8
    assert not interlaced
    data = zlib.decompress(b"".join(body for name, body in parts if name == b"IDAT"))
    pixels = _pixels(data, width, height, _CHANNELS[kind])
    counts = Counter(pixel for line in pixels for pixel in line)
    palette = _palette([colour for colour, _ in counts.most_common()])
    index = {colour: place for place, colour in enumerate(palette)}
    for colour in counts:
        if colour not in index:
            index[colour] = min(range(len(palette)), key=lambda place: _distance(palette[place], colour))
    lines = b"".join(b"\0" + bytes(index[pixel] for pixel in line) for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = b"".join(bytes(colour) for colour in palette)
    made = ((b"IHDR", head), (b"tEXt", MADE_BY), (b"PLTE", colours), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _HEAD + b"".join(_chunk(name, body) for name, body in made)


def _pixels(data: bytes, width: int, height: int, channels: int) -> list[list[Colour]]:
    """The lines of the picture, https://www.w3.org/TR/png/#9Filters undone; what shines through is left out."""
    size = width * channels
    before, lines = bytearray(size), []
    for at in range(height):
        start = at * (size + 1)
        line = bytearray(data[start + 1 : start + 1 + size])
        _unfilter(data[start], line, before, channels)
        lines.append(list(zip(*(line[channel::channels] for channel in range(3)), strict=True)))
        before = line
    return lines


def _unfilter(way: int, line: bytearray, above: bytearray, step: int) -> None:
    for at in range(len(line)):
        left, corner = (line[at - step], above[at - step]) if at >= step else (0, 0)
        match way:
            case 1:
                line[at] = line[at] + left & 255
            case 2:
                line[at] = line[at] + above[at] & 255
            case 3:
                line[at] = line[at] + (left + above[at] >> 1) & 255
            case 4:
                line[at] = line[at] + _paeth(left, above[at], corner) & 255
            case _:
                return


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))


def _distance(one: Colour, other: Colour) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _palette(colours: list[Colour]) -> list[Colour]:
    """The most common ones, then those that differ most from what is there: a red sign counts though it is small."""
    found = colours[:_KEPT]
    for apart in _APART:
        for colour in colours:
            if len(found) == _COLOURS:
                return found
            if all(_distance(colour, each) > apart for each in found):
                found.append(colour)
    return found


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
