"""Panels as SVG, on a page with the dashboard's own grid."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from attrs import evolve, frozen

__all__ = ["Drawn", "Line", "page"]

_ROW = 33
_GAP = 6
_HEAD = 28
_AXIS = 52
_COLOURS = (
    "#73bf69",
    "#f2cc0c",
    "#5794f2",
    "#ff780a",
    "#f2495c",
    "#b877d9",
    "#8ab8ff",
    "#ffb357",
    "#96d98d",
    "#c4162a",
)
_NAMED = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2", "purple": "#b877d9"}
_HOURS = 24
_MOST_NAMES = 8
_GAP_IN_DATA = 0.012
"""Part of the day without a point after which a line is broken."""
_STYLE = """
body{margin:0;background:#111217;color:#ccccdc;font:12px/1.3 Inter,Helvetica,Arial,sans-serif}
h1{font-size:17px;font-weight:500;margin:0;padding:11px 12px}h1 small{color:#8e8e9a;font-size:12px;padding-left:14px}
.p{position:absolute;box-sizing:border-box;background:#181b1f;border:1px solid #25272d;border-radius:2px}
.p b{font-weight:500;display:block;padding:7px 9px 0;white-space:nowrap;overflow:hidden}
.r{position:absolute;font-weight:500;font-size:14px;padding:8px 9px 0}
svg{position:absolute;left:0;top:0}path,rect{shape-rendering:crispEdges}text{fill:#9a9aa8;font-size:10.5px}
.none{position:absolute;top:50%;width:100%;text-align:center;color:#8e8e9a;font-size:14px}
table{border-collapse:collapse;margin:5px 9px;width:calc(100% - 18px)}
td,th{padding:3px 7px;border-bottom:1px solid #25272d;text-align:left;font-weight:400;white-space:nowrap}
th{color:#8e8e9a}
"""


@frozen(kw_only=True)
class Line:
    """One series: its labels, and its points as (part of the day, value)."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    name: str = ""

    def named(self, legend: str) -> "Line":
        """The line with its legend."""
        return evolve(self, name=re.sub(r"\{\{(\w+)\}\}", lambda found: self.labels.get(found[1], ""), legend))

    @property
    def finite(self) -> list[tuple[float, float]]:
        return [(at, value) for at, value in self.points if math.isfinite(value)]


@frozen(kw_only=True)
class Drawn:
    """A panel and what its queries had."""

    panel: Mapping[str, Any]
    lines: tuple[Line, ...]

    @property
    def defaults(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.panel["fieldConfig"]["defaults"]
        return found

    def colour(self, line: Line, index: int) -> str:
        """As the dashboard has it for this name, or the next of the palette."""
        for override in self.panel["fieldConfig"].get("overrides", ()):
            if override["matcher"]["options"] == line.name:
                return _hex(override["properties"][0]["value"]["fixedColor"])
        return _COLOURS[index % len(_COLOURS)]

    def limit_colour(self, value: float) -> str:
        """The colour of the threshold that a value has reached."""
        steps = self.defaults["thresholds"]["steps"]
        reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
        return _hex(reached[-1])

    def shown(self, value: float) -> str:
        return _shown(value, self.defaults["unit"])


Marks = Sequence[tuple[str, Sequence[float]]]


def page(title: str, panels: Sequence[Drawn], marks: Marks, *, width: int) -> tuple[str, int]:
    """The page, and how high it is."""
    top = 42
    rows = max(drawn.panel["gridPos"]["y"] + drawn.panel["gridPos"]["h"] for drawn in panels)
    body = [f"<h1>{escape(title)}<small>preview with invented data, not a picture of Grafana</small></h1>"]
    for drawn in panels:
        at, unit = drawn.panel["gridPos"], (width - _GAP) / 24
        x, y = at["x"] * unit + _GAP, at["y"] * _ROW + top
        box = f"left:{x:.0f}px;top:{y}px;width:{at['w'] * unit - _GAP:.0f}px;height:{at['h'] * _ROW - _GAP}px"
        name = escape(drawn.panel["title"])
        if drawn.panel["type"] == "row":
            body.append(f'<div class="r" style="{box}">{name}</div>')
            continue
        inside = _inside(drawn, at["w"] * unit - _GAP, at["h"] * _ROW - _GAP, marks)
        body.append(f'<div class="p" style="{box}"><b>{name}</b>{inside}</div>')
    style = f"<style>{_STYLE}</style>"
    return f"<!doctype html><meta charset=utf-8>{style}{''.join(body)}", top + rows * _ROW + _GAP


def _inside(drawn: Drawn, width: float, height: float, marks: Marks) -> str:
    if not any(line.finite for line in drawn.lines):
        return f'<div class="none">{escape(drawn.defaults["noValue"])}</div>'
    draw = _KINDS[drawn.panel["type"]]
    inside = draw(drawn, width, height, marks)
    return inside if inside.startswith("<table") else f'<svg width="{width:.0f}" height="{height:.0f}">{inside}</svg>'


def _series(drawn: Drawn, width: float, height: float, marks: Marks) -> str:
    lines = [line for line in drawn.lines if line.finite]
    stacked = drawn.defaults["custom"].get("stacking", {}).get("mode") == "normal"
    drawings = _stacked(lines) if stacked else [(line.finite, []) for line in lines]
    values = [value for upper, _ in drawings for _, value in upper]
    most = (max([*values, drawn.defaults["custom"].get("axisSoftMax", 0)]) or 1.0) * 1.05
    least = min([*values, 0.0])
    x0, x1, y0, y1 = _AXIS, width - 10, height - 40, _HEAD + 6

    def px(at: float) -> float:
        return x0 + at * (x1 - x0)

    def py(value: float) -> float:
        return y0 - (value - least) / (most - least) * (y0 - y1)

    out = [_grid(drawn, least, most, px, py, x1), _marks(marks, px, y0, y1)]
    for index, (upper, lower) in enumerate(drawings):
        colour = drawn.colour(lines[index], index)
        path = _path([(at, px(at), py(value)) for at, value in upper])
        if stacked:
            back = "".join(f"L{px(at):.1f} {py(v):.1f}" for at, v in reversed(lower))
            out.append(f'<path d="{path}{back}Z" fill="{colour}" fill-opacity=".4"/>')
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
    names = [(drawn.colour(line, index), line.name) for index, line in enumerate(lines)]
    return "".join(out) + _legend(names, width, height)


def _path(points: Sequence[tuple[float, float, float]]) -> str:
    """A line through (time, x, y) that is broken where there were no values."""
    steps, before = [], -1.0
    for at, x, y in points:
        steps.append(f"{'M' if at - before > _GAP_IN_DATA else 'L'}{x:.1f} {y:.1f}")
        before = at
    return "".join(steps)


def _stacked(lines: Sequence[Line]) -> list[tuple[list[tuple[float, float]], list[tuple[float, float]]]]:
    times = sorted({at for line in lines for at, _ in line.finite})
    below = dict.fromkeys(times, 0.0)
    found = []
    for line in lines:
        own = dict(line.finite)
        upper = {at: below[at] + own.get(at, 0.0) for at in times}
        found.append((list(upper.items()), list(below.items())))
        below = upper
    return found


def _grid(
    drawn: Drawn, least: float, most: float, px: Callable[[float], float], py: Callable[[float], float], x1: float
) -> str:
    out = []
    step = _nice((most - least) / 4)
    value = math.ceil(least / step) * step
    while value <= most:
        y = py(value)
        out.append(f'<path d="M{_AXIS} {y:.1f}H{x1:.0f}" stroke="#25272d"/>')
        out.append(f'<text x="{_AXIS - 5}" y="{y + 4:.1f}" text-anchor="end">{drawn.shown(value)}</text>')
        value += step
    for hour in range(0, _HOURS + 1, 4):
        x, anchor = px(hour / _HOURS), "end" if hour == _HOURS else "middle"
        out.append(f'<path d="M{x:.1f} {py(least):.1f}V{py(most):.1f}" stroke="#25272d"/>')
        out.append(f'<text x="{x:.1f}" y="{py(least) + 13:.1f}" text-anchor="{anchor}">{hour % 24:02}:00</text>')
    if drawn.defaults["custom"].get("thresholdsStyle", {}).get("mode") == "dashed":
        for limit in drawn.defaults["thresholds"]["steps"][1:]:
            if least <= limit["value"] <= most:
                y = py(limit["value"])
                out.append(
                    f'<path d="M{_AXIS} {y:.1f}H{x1:.0f}" stroke="{_hex(limit["color"])}" stroke-dasharray="6 4"/>'
                )
    return "".join(out)


def _marks(marks: Marks, px: Callable[[float], float], y0: float, y1: float) -> str:
    out = []
    for colour, moments in reversed(marks):
        before = -1.0
        for at in moments:
            if at - before > _GAP_IN_DATA:
                line = f'stroke="{_hex(colour)}" stroke-dasharray="3 3"'
                out.append(f'<path d="M{px(at):.1f} {y1:.0f}V{y0:.0f}" {line}/>')
                out.append(f'<path d="M{px(at) - 4:.1f} {y0 + 5:.0f}h8l-4 -6z" fill="{_hex(colour)}"/>')
            before = at
    return "".join(out)


def _legend(names: Sequence[tuple[str, str]], width: float, height: float) -> str:
    out, x = [], 12.0
    for colour, name in names[:_MOST_NAMES]:
        need = 22 + 5.9 * len(name)
        if x + need > width:
            out.append(f'<text x="{x:.0f}" y="{height - 8:.0f}">…</text>')
            break
        out.append(f'<path d="M{x:.0f} {height - 12:.0f}h10" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{x + 14:.0f}" y="{height - 8:.0f}">{escape(name)}</text>')
        x += need
    return "".join(out)


def _stat(drawn: Drawn, width: float, height: float, marks: Marks) -> str:
    line = next(line for line in drawn.lines if line.finite and line.finite[-1][0] == max(_ends(drawn)))
    value = line.finite[-1][1]
    colour, text = drawn.limit_colour(value), line.name or drawn.shown(value)
    middle = f'x="{width / 2:.0f}" y="{height / 2 + 20:.0f}" text-anchor="middle"'
    big = f'<text {middle} style="font-size:32px;fill:{colour}">{escape(text)}</text>'
    if line.name:
        return big
    most = max(value for _, value in line.finite) or 1
    curve = "".join(f"L{at * width:.1f} {height - value / most * 34:.1f}" for at, value in line.finite)
    return f'<path d="M0 {height:.0f}{curve}V{height:.0f}Z" fill="{colour}" fill-opacity=".25"/>{big}'


def _ends(drawn: Drawn) -> list[float]:
    return [line.finite[-1][0] for line in drawn.lines if line.finite]


def _timeline(drawn: Drawn, width: float, height: float, marks: Marks) -> str:
    x0, x1, y0, y1 = 140, width - 10, height - 22, _HEAD + 6
    texts = {text: entry for mapping in drawn.defaults["mappings"] for text, entry in mapping["options"].items()}
    row = (y0 - y1) / len(drawn.lines)
    out = []
    for index, line in enumerate(drawn.lines):
        y = y1 + index * row
        out.append(f'<text x="{x0 - 8}" y="{y + row / 2 + 4:.1f}" text-anchor="end">{escape(line.name)}</text>')
        for (at, value), (after, _) in zip(line.points, [*line.points[1:], (1.0, 0.0)], strict=True):
            colour = _hex(texts.get(f"{value:g}", {"color": "blue"})["color"])
            wide = min(after - at, _GAP_IN_DATA) * (x1 - x0) + 1
            box = f'x="{x0 + at * (x1 - x0):.1f}" y="{y + 2:.1f}" width="{wide:.1f}" height="{row - 4:.1f}"'
            out.append(f'<rect {box} fill="{colour}"/>')
    for hour in range(0, _HOURS + 1, 4):
        x = x0 + hour / _HOURS * (x1 - x0)
        anchor = "end" if hour == _HOURS else "middle"
        out.append(f'<text x="{x:.1f}" y="{y0 + 14:.1f}" text-anchor="{anchor}">{hour % 24:02}:00</text>')
    return "".join(out) + _marks(marks, lambda at: x0 + at * (x1 - x0), y0, y1)


def _heat(drawn: Drawn, width: float, height: float, marks: Marks) -> str:
    lines = sorted(drawn.lines, key=lambda line: float(line.labels["le"]))
    cells: list[list[tuple[float, float]]] = []
    below: dict[float, float] = {}
    for line in lines:
        cells.append([(at, max(0.0, value - below.get(at, 0.0))) for at, value in line.finite])
        below = dict(line.finite)
    most = max(value for row in cells for _, value in row) or 1
    x0, x1, y0, y1 = _AXIS, width - 10, height - 24, _HEAD + 6
    row_height, column = (y0 - y1) / len(lines), (x1 - x0) / max(len(row) for row in cells)
    out = []
    for index, row in enumerate(cells):
        y = y0 - (index + 1) * row_height
        edge = float(lines[index].labels["le"])
        if index % 2 == 0 and math.isfinite(edge):
            out.append(f'<text x="{x0 - 5}" y="{y + 4:.1f}" text-anchor="end">{drawn.shown(edge)}</text>')
        for at, value in row:
            if value > 0:
                size = (
                    f'width="{column + 0.3:.1f}" height="{row_height - 1:.1f}" fill="{_turbo((value / most) ** 0.5)}"'
                )
                out.append(f'<rect x="{x0 + at * (x1 - x0):.1f}" y="{y:.1f}" {size}/>')
    for hour in range(0, _HOURS, 4):
        out.append(f'<text x="{x0 + hour / _HOURS * (x1 - x0):.1f}" y="{y0 + 15:.1f}">{hour:02}:00</text>')
    return "".join(out)


def _bars(drawn: Drawn, width: float, height: float, marks: Marks) -> str:
    lines = sorted((line for line in drawn.lines if line.finite), key=lambda line: -line.finite[0][1])
    most = max(line.finite[0][1] for line in lines) or 1
    row = min(34.0, (height - _HEAD - 10) / len(lines))
    out = []
    for index, line in enumerate(lines):
        value, y = line.finite[0][1], _HEAD + 6 + index * row
        colour = drawn.limit_colour(value)
        out.append(f'<text x="118" y="{y + row / 2 + 3:.1f}" text-anchor="end">{escape(line.name)}</text>')
        box = f'x="126" y="{y + 3:.1f}" width="{value / most * (width - 200):.1f}" height="{row - 6:.1f}"'
        out.append(f'<rect {box} fill="{colour}" fill-opacity=".6"/>')
        text = f'x="{width - 8:.0f}" y="{y + row / 2 + 3:.1f}" text-anchor="end" style="fill:{colour}"'
        out.append(f"<text {text}>{drawn.shown(value)}</text>")
    return "".join(out)


def _table(drawn: Drawn, width: float, height: float, marks: Marks) -> str:
    steps = {step["id"]: step["options"] for step in drawn.panel.get("transformations", ())}
    if "groupingToMatrix" not in steps:
        names = sorted({name for line in drawn.lines for name in line.labels})
        rows = ["".join(f"<td>{escape(line.labels.get(name, ''))}</td>" for name in names) for line in drawn.lines]
        return _html_table(names, rows)
    row, column = steps["groupingToMatrix"]["rowField"], steps["groupingToMatrix"]["columnField"]
    values = {(line.labels[row], line.labels[column]): line.finite[0][1] for line in drawn.lines if line.finite}
    columns = sorted({key[1] for key in values})
    rows = []
    for name in sorted({key[0] for key in values}):
        cells = [_cell(drawn, values.get((name, each))) for each in columns]
        rows.append(f"<td>{escape(name)}</td>{''.join(cells)}")
    return _html_table([row, *columns], rows)


def _html_table(names: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _cell(drawn: Drawn, value: float | None) -> str:
    if value is None:
        return "<td>-</td>"
    return f'<td style="background:{drawn.limit_colour(value)};color:#111">{drawn.shown(value)}</td>'


_KINDS: Mapping[str, Callable[[Drawn, float, float, Marks], str]] = {
    "timeseries": _series,
    "stat": _stat,
    "state-timeline": _timeline,
    "heatmap": _heat,
    "bargauge": _bars,
    "table": _table,
}


def _hex(colour: str) -> str:
    return _NAMED.get(colour, colour)


def _turbo(part: float) -> str:
    """A colour from blue over green and yellow to red."""
    return f"hsl({240 - 240 * part:.0f} 75% {30 + 25 * part:.0f}%)"


def _nice(step: float) -> float:
    power = float(10 ** math.floor(math.log10(step)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)


def _shown(value: float, unit: str) -> str:
    scales: tuple[tuple[float, str], ...]
    match unit:
        case "percentunit":
            return f"{value * 100:.3g} %"
        case "percent":
            return f"{value:.3g} %"
        case "s":
            scales = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
        case "bytes":
            scales = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
        case _:
            end = {"reqps": "/s", "ops": "/s"}.get(unit, "")
            scales = ((1e6, f"M {end}"), (1e3, f"k {end}"), (1, f" {end}")) if abs(value) >= 1 else ((1, f" {end}"),)
    if value == 0:
        return "0"
    size, name = next((scale for scale in scales if abs(value) >= scale[0]), scales[-1])
    return f"{value / size:.3g} {name}".replace("  ", " ").strip()
