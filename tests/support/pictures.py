"""The pictures of the documents, each from a real run: `python -m tests.support.pictures [NAME ...]`.

`inspector` and `terminal` show a gateway with its demo's models, `report` a week of records, `previews` the dashboards
as `grafana/preview.py` draws them. Needs chromium, and prometheus for the previews.
"""

import asyncio
import base64
import html
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from gateway.demo.server import Pace, start_demo
from tests.bench import records
from tests.support.browser import Page, browser
from tests.support.inspecting import ask, becomes, environ, inspected, press, printed, running_process
from tests.support.png import shrunk
from tests.support.processes import free_ports

__all__ = ["MAKERS", "PICTURES", "made"]

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
