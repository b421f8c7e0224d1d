"""Charts as SVG elements: drawn in percent of the width that there is, so that letters keep their size.

Nothing is scaled and nothing runs: a chart is as wide as its place and as high as its rows.
"""

from collections.abc import Iterator, Sequence

from gateway.report.shown.blocks import Chart, Point
from gateway.report.shown.markup import attribute, escaped

__all__ = ["draw"]

_ROW = 44
_HEIGHT = 150
_AXIS = 22
_MAX_LABEL = 24
_COLUMN_LABELS = 6


def draw(chart: Chart) -> str:
    """One `figure`; the table beside it says the same in numbers."""
    if not chart.points:
        return ""
    height, body = _columns(chart) if chart.kind == "columns" else _rows(chart)
    label = f"{chart.title}. The table says the same in numbers."
    keys = "".join(
        f'<span class="key"><i class="swatch part{place}"></i>{escaped(name)}</span>'
        for place, name in enumerate(chart.legend)
    )
    legend = f'<p class="legend">{keys}</p>' if len(chart.legend) > 1 else ""
    described = attribute("aria-label", label)
    return (
        f"<figure><figcaption>{escaped(chart.title)}</figcaption>{legend}"
        f'<svg role="img" width="100%" height="{height}" {described}>{"".join(body)}</svg></figure>'
    )


def _rows(chart: Chart) -> tuple[int, Iterator[str]]:
    """Each row has its words above its bar, so that neither takes room from the other."""
    draw_row = _interval if chart.kind == "intervals" else _bar
    largest = max((point.value for point in chart.points), default=0.0)
    most = chart.most if chart.kind == "intervals" else largest or 1.0
    return _ROW * len(chart.points), (
        _row_words(point, place * _ROW) + draw_row(point, place * _ROW + 22, most)
        for place, point in enumerate(chart.points)
    )


def _row_words(point: Point, top: int) -> str:
    return (
        f'<text class="label" x="0" y="{top + 15}">{escaped(_short(point.label))}</text>'
        f'<text class="value" x="100%" y="{top + 15}" text-anchor="end">{escaped(point.words)}</text>'
    )


def _bar(point: Point, top: int, most: float) -> str:
    return (
        f'<rect class="track" x="0" y="{top}" width="100%" height="10" rx="5"></rect>'
        f'<rect class="part0" x="0" y="{top}" width="{_percent(point.value / most)}" height="10" rx="5">'
        f"<title>{escaped(f'{point.label}: {point.words}')}</title></rect>"
    )


def _interval(point: Point, top: int, most: float) -> str:
    low, high = (point.low or 0.0) / most, (point.high if point.high is not None else 1.0) / most
    mark = _percent(max(0.0, point.value / most - 0.003))
    return (
        f'<rect class="track" x="0" y="{top + 3}" width="100%" height="4" rx="2"></rect>'
        f'<rect class="reach" x="{_percent(low)}" y="{top}" width="{_percent(high - low)}" height="10" rx="3"></rect>'
        f'<rect class="part0" x="{mark}" y="{top - 2}" width="4" height="14" rx="2">'
        f"<title>{escaped(f'{point.label}: {point.words}')}</title></rect>"
    )


def _columns(chart: Chart) -> tuple[int, Iterator[str]]:
    return _HEIGHT + _AXIS, _stacked(chart.points)


def _stacked(points: Sequence[Point]) -> Iterator[str]:
    # All of them may be nothing, and nothing has no shares.
    most = max(point.value + point.second for point in points) or 1.0
    width = 1 / len(points)
    gap = 0.15 if len(points) < 60 else 0.0
    every = max(1, -(-len(points) // _COLUMN_LABELS))
    yield f'<line class="axis" x1="0" y1="{_HEIGHT}" x2="100%" y2="{_HEIGHT}"></line>'
    for place, point in enumerate(points):
        left, wide = _percent((place + gap / 2) * width), _percent(width * (1 - gap))
        first = point.value / most * (_HEIGHT - 8)
        second = point.second / most * (_HEIGHT - 8)
        title = f"<title>{escaped(f'{point.label}: {point.words}')}</title>"
        yield _column("part0", left, _HEIGHT - first, wide, first, title)
        if second:
            yield _column("part1", left, _HEIGHT - first - second, wide, second, title)
        if place % every == 0:
            yield f'<text class="tick" x="{left}" y="{_HEIGHT + 16}">{escaped(point.label)}</text>'


def _column(part: str, left: str, top: float, wide: str, high: float, title: str) -> str:
    return f'<rect class="{part}" x="{left}" y="{top:.1f}" width="{wide}" height="{high:.1f}">{title}</rect>'


def _percent(share: float) -> str:
    return f"{100 * max(0.0, min(1.0, share)):.3f}%"


def _short(label: str) -> str:
    return label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"
