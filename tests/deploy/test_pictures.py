"""The pictures of the documents are there, small, and made by a command from real runs."""

import struct
import zlib

import pytest

from tests.support.browser import needs_chromium
from tests.support.pictures import MAKERS, PICTURES, PREVIEWS, ROOT, made
from tests.support.png import MADE_BY, chunks, shrunk

MOST_BYTES = 150_000
PAGES = ("README.md", "deploy/README.md")


def _size(picture: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", dict(chunks(picture))[b"IHDR"])
    return width, height


@pytest.mark.parametrize("name", MAKERS)
def test_a_picture_is_made_by_the_command_and_shown_in_a_page(name):
    picture = (PICTURES / f"{name}.png").read_bytes()
    parts = dict(chunks(picture))
    assert parts[b"tEXt"] == MADE_BY
    assert len(picture) < MOST_BYTES
    assert min(_size(picture)) > 400
    assert any(f"pictures/{name}.png)" in (ROOT / page).read_text(encoding="utf-8") for page in PAGES)


def test_no_picture_is_left_that_nobody_makes():
    assert {path.stem for path in PICTURES.iterdir()} == set(MAKERS)


@pytest.mark.parametrize("path", sorted(PREVIEWS.glob("*.png")), ids=lambda path: path.stem)
def test_a_preview_is_made_by_the_same_command(path):
    picture = path.read_bytes()
    assert dict(chunks(picture))[b"tEXt"] == MADE_BY
    assert len(picture) < MOST_BYTES


def test_the_picture_of_the_inspector_stands_on_the_first_screen():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert any("pictures/inspector.png" in line for line in lines[:24])


@needs_chromium
@pytest.mark.long
@pytest.mark.parametrize("name", MAKERS)
async def test_each_picture_can_be_made_anew(name):
    picture = await made(name)
    assert _size(picture) == _size((PICTURES / f"{name}.png").read_bytes())
    assert len(picture) < MOST_BYTES


def _picture(width: int, lines: list[bytes]) -> bytes:
    """Truecolour, each line behind the number of its filter."""
    body = zlib.compress(b"".join(lines))
    head = struct.pack(">IIBBBBB", width, len(lines), 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


def test_a_picture_keeps_its_colours_when_it_is_made_small():
    red, blue, dark = (200, 0, 0), (0, 0, 200), (9, 9, 9)
    plain = b"\0" + bytes(red + blue + dark)
    filtered = [
        plain,
        b"\1"
        + bytes(
            (
                *red,
                *((b - a) % 256 for a, b in zip(red, blue, strict=True)),
                *((b - a) % 256 for a, b in zip(blue, dark, strict=True)),
            )
        ),
        b"\2" + bytes(9),
        b"\4" + bytes(9),
    ]
    parts = dict(chunks(shrunk(_picture(3, filtered))))
    palette = [tuple(parts[b"PLTE"][at : at + 3]) for at in range(0, len(parts[b"PLTE"]), 3)]
    data = zlib.decompress(parts[b"IDAT"])
    lines = [[palette[place] for place in data[at + 1 : at + 4]] for at in range(0, len(data), 4)]
    assert lines[:3] == [[red, blue, dark]] * 3
    assert set(palette) >= {red, blue, dark}
