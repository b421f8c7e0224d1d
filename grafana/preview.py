"""Draws previews of the dashboards: `python grafana/preview.py`; needs promtool, prometheus and chromium.

An invented day goes into a Prometheus of its own, which answers the dashboards' queries; a page of our own draws the
answers where the dashboard has its panels. What comes out resembles Grafana, and is not Grafana.
"""

import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from previewing.day import HOURS, STEP_S, exposition
from previewing.drawing import Drawn, Line, page

HERE = Path(__file__).parent
START = 1_767_225_600.0  # the first of January 2026
SECONDS = HOURS * 3600
DRAWN_S = 5 * STEP_S
WINDOW = f"{DRAWN_S}s"  # shorter than a step, and what falls between two steps would not be seen
WIDTH = 1080


class Answers:
    """The Prometheus that holds the day."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def is_ready(self) -> bool:
        """Whether the day can be asked for."""
        try:
            return bool(self.lines("up", instant=True))
        except (urllib.error.URLError, ConnectionError):
            return False

    def lines(self, query: str, *, instant: bool = False, step: int = DRAWN_S) -> list[Line]:
        """What a query has over the day, or at its end."""
        query = (
            query.replace("$__rate_interval", WINDOW).replace("$__range", f"{SECONDS}s").replace("[1m]", f"[{WINDOW}]")
        )
        for name in ("job", "instance", "arm", "nginx_job"):
            query = query.replace(f"${name}", ".+")
        if instant:
            found = self._ask("query", query=query, time=START + SECONDS)
            return [Line(labels=each["metric"], points=(_point(each["value"]),)) for each in found]
        found = self._ask("query_range", query=query, start=START, end=START + SECONDS, step=step)
        return [Line(labels=each["metric"], points=tuple(map(_point, each["values"]))) for each in found]

    def _ask(self, path: str, **parameters: object) -> list[Any]:
        with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(parameters)}") as response:  # noqa: S310
            result: list[Any] = json.load(response)["data"]["result"]
        return result


def _point(pair: tuple[float, str]) -> tuple[float, float]:
    return (float(pair[0]) - START) / SECONDS, float(pair[1])


@contextmanager
def prometheus(folder: Path) -> Iterator[Answers]:
    """A Prometheus with the day in it."""
    text = folder / "day.txt"
    with text.open("w", encoding="utf-8") as out:
        out.writelines(exposition(START))
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "tsdb")]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - fixed words
    (folder / "prometheus.yml").write_text("{}\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
        f"--query.lookback-delta={STEP_S // 2}s",  # what was backfilled has no marks for series that ended
    ]
    with subprocess.Popen(started) as process:  # noqa: S603 - fixed words
        try:
            answers = Answers(port)
            deadline = time.monotonic() + 30
            while not answers.is_ready():
                if time.monotonic() > deadline or process.poll() is not None:
                    raise click.ClickException("Prometheus does not answer")
                time.sleep(0.1)
            yield answers
        finally:
            process.terminate()


def drawn(answers: Answers, panel: Mapping[str, Any]) -> Drawn:
    """A panel with the answers to its queries."""
    found = []
    for target in panel.get("targets", ()):
        for line in answers.lines(target["expr"], instant=bool(target.get("instant"))):
            found.append(line.named(target.get("legendFormat", "")))
    return Drawn(panel=panel, lines=tuple(found))


def picture(html: str, height: int, path: Path, folder: Path) -> None:
    """Let a browser without a window draw the page."""
    source = folder / "page.html"
    source.write_text(html, encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
    options += [f"--user-data-dir={folder / 'browser'}", f"--window-size={WIDTH},{height}", f"--screenshot={path}"]
    command = ["chromium", *options, source.as_uri()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - fixed words


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Draw previews of the dashboards NAMES, by default of all."""
    (HERE / "previews").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, prometheus(Path(name)) as answers:
        for path in sorted((HERE / "dashboards").glob("*.json")):
            if names and path.stem not in names:
                continue
            dashboard = json.loads(path.read_text("utf-8"))
            marks = [
                (
                    mark["iconColor"],
                    [at for line in answers.lines(mark["expr"], step=STEP_S) for at, _ in line.points],
                )
                for mark in dashboard["annotations"]["list"]
            ]
            panels = [drawn(answers, panel) for panel in dashboard["panels"]]
            html, height = page(dashboard["title"], panels, marks, width=WIDTH)
            target = HERE / "previews" / f"{path.stem}.png"
            picture(html, height, target, Path(name))
            click.echo(f"{target} {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
