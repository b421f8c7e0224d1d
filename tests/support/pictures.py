"""The pictures of the documents, each from a real run: `python -m tests.support.pictures [NAME ...]`.

`inspector` and `terminal` show a gateway with its demo's models, `report` a week of records, `previews` the dashboards
as `grafana/preview.py` draws them. Needs chromium, and prometheus for the previews.
"""

import asyncio
import base64
import html
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from gateway.demo.server import Pace, start_demo
from tests.bench import records
from tests.support.browser import Page, ask, becomes, browser, environ, inspected, press, printed, running_process
from tests.support.processes import free_ports

__all__ = ["MADE_BY", "MAKERS", "PICTURES", "chunks", "made", "shrunk"]


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


# --- Pictures


ROOT = Path(__file__).parents[2]

PICTURES = ROOT / "deploy" / "pictures"

PREVIEWS = ROOT / "grafana" / "previews"

MODELS = ("demo-native", "demo-prose", "demo-xml", "demo-json", "demo-broken", "demo-hermes")

TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #14181d; color: #d7dde4; }
pre { margin: 0; padding: 22px 26px; font: 14px/1.5 "DejaVu Sans Mono", monospace; white-space: pre-wrap; }
b { color: #84b6ff; font-weight: 600; } .good { color: #6cd58c; } .bad { color: #ff8f86; }
</style><pre>"""


async def _shot(page: Page) -> bytes:
    answer = await page.call("Page.captureScreenshot", format="png")
    return base64.b64decode(answer["data"])


async def inspector(folder: Path) -> bytes:
    """The page after an hour's work of the demo's models."""
    async with inspected(folder) as running, browser(folder / "profile") as page:
        for number in range(60):
            await ask(running.gateway, MODELS[number % 6], f"What is the weather in Paris? ({number})")
        await page.open(running.address, width=1180, height=640)
        await becomes(page, "document.querySelectorAll('#rows li').length", 60)
        await press(page, "j")
        await becomes(page, "document.querySelector('#detail').textContent.includes('get_weather')")
        await becomes(page, "document.querySelector('#figures b')?.textContent", "60")
        return await _shot(page)


async def terminal(folder: Path) -> bytes:
    """What is said on the terminal where the gateway runs."""
    (port,) = free_ports(1)
    demo = await start_demo(Pace(tokens_per_s=0, pause_s=0))
    settings = environ(folder, GATEWAY_PORT=str(port), LOG_FORMAT="console", UPSTREAM_URL=demo.url)
    said = bytearray()
    async with running_process("serve", environ=settings) as process:
        await printed(process, rb"listens on (\S+)", said)
        for model in MODELS:
            await ask(f"http://127.0.0.1:{port}", model)
            await printed(process, rf"{model} .* m?s".encode(), said)
    await demo.close()
    told = f"$ toolgate serve --upstream {demo.url}\n{said.decode()}".replace(str(port), "8080")
    told = told.replace(demo.url, "http://127.0.0.1:11434/v1").replace(f"{folder}/", "")
    (folder / "terminal.html").write_text(TERMINAL + "".join(map(_painted, told.splitlines())), encoding="utf-8")
    return await _page(folder, "terminal.html", height=540)


def _painted(line: str) -> str:
    text = html.escape(line)
    for sign, paint in (("✓", "good"), ("✗", "bad")):
        text = text.replace(sign, f'<span class="{paint}">{sign}</span>')
    return f"<b>{text}</b>\n" if line.startswith("$ ") else f"{text}\n"


async def report(folder: Path) -> bytes:
    """The beginning of the report over a week, as one file."""
    await records.make(folder / "toolgate.db", 3000)
    command = [sys.executable, "-m", "gateway", "report", "--days", "7", "--html", str(folder / "report.html")]
    await asyncio.to_thread(
        subprocess.run, command, env=environ(folder), check=True, stdout=subprocess.DEVNULL, timeout=120
    )
    return await _page(folder, "report.html", height=900)


async def _page(folder: Path, name: str, *, height: int) -> bytes:
    async with browser(folder / "profile") as page:
        await page.open((folder / name).as_uri(), width=1080, height=height)
        return await _shot(page)


MAKERS: Mapping[str, Callable[[Path], Awaitable[bytes]]] = {
    "inspector": inspector,
    "terminal": terminal,
    "report": report,
}

"""Those under `deploy/pictures`."""


async def made(name: str) -> bytes:
    """The picture of this name, from a run of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return shrunk(await MAKERS[name](Path(folder)))


def main(names: list[str]) -> None:
    """Make them anew, all or those that are named."""
    for name in MAKERS:
        if name in names or not names:
            (PICTURES / f"{name}.png").write_bytes(asyncio.run(made(name)))
    if "previews" in names or not names:
        subprocess.run([sys.executable, str(ROOT / "grafana" / "preview.py")], check=True)
        for path in sorted(PREVIEWS.glob("*.png")):
            path.write_bytes(shrunk(path.read_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])
