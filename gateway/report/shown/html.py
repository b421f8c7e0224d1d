"""The report as one HTML file that asks for nothing else: no script, no font, no picture from elsewhere.

It is well-formed XML as well. All that comes from records is escaped at one place, and a policy in the file forbids
whatever might get past that.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from gateway.report.facts.tree import Example, Figures
from gateway.report.readiness import NOT_READY, READY
from gateway.report.shown.blocks import Block, Chart, Command, Examples, Heading, Section, Table, Words
from gateway.report.shown.charts import draw
from gateway.report.shown.markup import attribute, escaped
from gateway.report.shown.sections import heading, sections
from gateway.report.words import moment

__all__ = ["render"]

_VERDICTS = {READY: "good", NOT_READY: "bad"}
_SIGNS = {"good": "✓", "bad": "✗", "waiting": "…"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #566273; --line: #dde2e9; --track: #e8ecf1;
  --part0: #2f6fb3; --part1: #c2813a; --reach: #a9c8e8; --code: #f1f3f6;
  --good: #17663a; --good-bg: #e4f3ea; --bad: #a3221b; --bad-bg: #fbe9e7; --wait: #7a5200; --wait-bg: #fbf1dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2029; --ink: #e4e9f0; --soft: #a3afbf; --line: #2d3642; --track: #29313c;
    --part0: #6aa9ec; --part1: #e0a45f; --reach: #35587d; --code: #12161c;
    --good: #7fd6a2; --good-bg: #14301f; --bad: #ff9d94; --bad-bg: #3b1917; --wait: #f0c46c; --wait-bg: #35290f;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
main, header, footer { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
h1 { font-size: 1rem; font-weight: 600; color: var(--soft); margin: 0 0 .75rem; letter-spacing: .02em; }
h2 { font-size: 1.2rem; margin: 0 0 .75rem; }
p { margin: .5rem 0; overflow-wrap: anywhere; }
a { color: inherit; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--part0); outline-offset: 2px; }
section, .verdict { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.25rem; }
section { margin: 1rem 0; scroll-margin-top: 1rem; }
.verdict { border-left-width: 8px; }
.verdict strong { display: block; font-size: 1.9rem; line-height: 1.2; }
.verdict p { font-size: 1.05rem; margin: .35rem 0 0; }
.verdict.good { background: var(--good-bg); border-color: var(--good); } .verdict.good strong { color: var(--good); }
.verdict.bad { background: var(--bad-bg); border-color: var(--bad); } .verdict.bad strong { color: var(--bad); }
.verdict.waiting { background: var(--wait-bg); border-color: var(--wait); }
.verdict.waiting strong { color: var(--wait); }
.period, .note, .legend, footer { color: var(--soft); font-size: .87rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); gap: .75rem;
  margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem 1.25rem; }
.tile dt { color: var(--soft); font-size: .87rem; }
.tile dd { margin: 0; } .tile dd.value { font-size: 1.6rem; font-weight: 600; line-height: 1.3; }
.tile dd.detail { color: var(--soft); font-size: .87rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: 1rem 0 0; padding: 0;
  font-size: .9rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 0 2rem; }
.pair > * { min-width: 0; }
figure { margin: .75rem 0 1.25rem; max-width: 46rem; }
figcaption, caption { font-weight: 600; text-align: left; font-size: .92rem; padding-bottom: .4rem; }
.legend { margin: 0 0 .4rem; } .key { margin-right: 1rem; white-space: nowrap; }
.swatch { display: inline-block; width: .7rem; height: .7rem; border-radius: 3px; margin-right: .4rem; }
.swatch.part0 { background: var(--part0); } .swatch.part1 { background: var(--part1); }
svg { display: block; overflow: visible; }
svg text { fill: var(--ink); font-size: 13px; }
svg .value, svg .tick { fill: var(--soft); } svg .tick { font-size: 11px; }
.part0 { fill: var(--part0); } .part1 { fill: var(--part1); } .reach { fill: var(--reach); }
.track { fill: var(--track); }
.axis { stroke: var(--line); }
.scroll { overflow-x: auto; margin: .75rem 0 1.25rem; }
table { border-collapse: collapse; min-width: min(100%, 34rem); font-size: .9rem; }
.pair table { width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
td { overflow-wrap: break-word; max-width: 26rem; }
td:nth-child(n+2):not(.number) { min-width: 5.5rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
tr.good td:nth-child(2) { color: var(--good); font-weight: 600; }
tr.bad td { background: var(--bad-bg); } tr.bad td:nth-child(2) { color: var(--bad); font-weight: 600; }
tr.waiting td:nth-child(2) { color: var(--wait); font-weight: 600; } tr.thin td { color: var(--soft); }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .8rem;
  margin: .25rem 0; white-space: pre-wrap; overflow-wrap: anywhere; font: .82rem/1.5 ui-monospace, monospace;
  max-height: 22rem; overflow-y: auto; }
details { border-top: 1px solid var(--line); padding: .5rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
article { margin: .9rem 0 1.4rem; } article h4 { font-size: .9rem; margin: 0; overflow-wrap: anywhere; }
article p { font-size: .87rem; color: var(--soft); margin: .1rem 0 .4rem; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: .5rem 1rem; }
.sides > div { min-width: 0; } .sides h5 { margin: 0; font-size: .8rem; font-weight: 500; color: var(--soft); }
footer { padding: 1rem 1rem 2.5rem; }
@media (max-width: 30rem) { section, .verdict { padding: 1rem; } .verdict strong { font-size: 1.6rem; }
  th, td { padding-right: .6rem; font-size: .84rem; } }
@media print { body { background: none; } section { break-inside: avoid; } }
"""
"""One sheet, light and dark, from a phone's width up."""


def render(figures: Figures) -> str:
    """The whole document."""
    return "".join(_document(figures))


def _document(figures: Figures) -> Iterator[str]:
    head, parts = heading(figures), sections(figures)
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
    yield f'<meta http-equiv="Content-Security-Policy" {attribute("content", _POLICY)}/>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
    yield f"<title>{escaped(f'Toolgate report: {head.verdict}')}</title><style>{_STYLE}</style></head>\n<body>"
    yield from _heading(head, parts)
    yield "\n<main>"
    for section in parts:
        yield f'\n<section id="{section.ident}"><h2>{escaped(section.title)}</h2>'
        yield from _blocks(section.blocks)
        yield "</section>"
    yield f"\n</main>\n<footer>Made {escaped(moment(figures.made_at))} by toolgate {escaped(figures.version)}.</footer>"
    yield "</body></html>\n"


def _heading(head: Heading, parts: Sequence[Section]) -> Iterator[str]:
    look = _VERDICTS.get(head.verdict, "waiting")
    yield "\n<header><h1>Toolgate report</h1>"
    yield f'<div class="verdict {look}"><strong><span aria-hidden="true">{_SIGNS[look]} </span>'
    yield f"{escaped(head.verdict[:1].upper() + head.verdict[1:])}</strong>"
    yield f"<p>{escaped(head.words)}</p><p>{escaped(head.advice)}</p><pre>{escaped(head.command)}</pre></div>"
    yield '<dl class="tiles">'
    for tile in head.tiles:
        yield (
            f'<div class="tile"><dt>{escaped(tile.label)}</dt><dd class="value">{escaped(tile.value)}</dd>'
            f'<dd class="detail">{escaped(tile.detail)}</dd></div>'
        )
    yield f'</dl><p class="period">{escaped(head.period)}</p>'
    for note in head.notes:
        yield f'<p class="note">{escaped(note)}</p>'
    links = "".join(f'<li><a href="#{part.ident}">{escaped(part.title)}</a></li>' for part in parts)
    yield f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    """A chart and the table that follows it stand side by side where there is room."""
    place = 0
    while place < len(blocks):
        block, after = blocks[place], blocks[place + 1] if place + 1 < len(blocks) else None
        if isinstance(block, Chart) and isinstance(after, Table) and len(after.head) <= _NARROW:
            yield f'<div class="pair">{draw(block)}{_table(after)}</div>'
            place += 2
        else:
            yield _block(block)
            place += 1


_NARROW = 5
"""Columns of a table that fit into half the width."""


def _block(block: Block) -> str:
    match block:
        case Words():
            return f"<p>{escaped(block.text)}</p>"
        case Command():
            return f"<pre>{escaped(block.text)}</pre>"
        case Table():
            return _table(block)
        case Chart():
            return draw(block)
        case Examples():
            return _examples(block)
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_number(table, place)}>{escaped(name)}</th>' for place, name in enumerate(table.head)
    )
    rows = "".join(_row(table, place) for place in range(len(table.rows)))
    body = rows or f'<tr><td colspan="{len(table.head)}">{escaped(table.empty)}</td></tr>'
    return (
        f'<div class="scroll" tabindex="0" role="region" {attribute("aria-label", table.title)}>'
        f"<table><caption>{escaped(table.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(table: Table, number: int) -> str:
    look = f' class="{table.marks[number]}"' if number < len(table.marks) else ""
    cells = "".join(f"<td{_number(table, place)}>{escaped(cell)}</td>" for place, cell in enumerate(table.rows[number]))
    return f"<tr{look}>{cells}</tr>"


def _number(table: Table, place: int) -> str:
    return ' class="number"' if place in table.numeric else ""


def _examples(block: Examples) -> str:
    items = "".join(_example(item) for item in block.items)
    return f"<details><summary>{escaped(f'{block.title} ({len(block.items)})')}</summary>{items}</details>"


def _example(item: Example) -> str:
    facts = [
        f"score {item.score:.2f}",
        item.decision.replace("_", " "),
        item.dialect,
        item.strategy,
        item.model,
        item.arm,
    ]
    if item.reason:
        facts.append(item.reason.replace("_", " "))
    if item.signs:
        facts.append(f"signs: {', '.join(item.signs)}")
    if item.label:
        facts.append(f"labelled {item.label}")
    title = f"{item.tool or 'no tool'} · {item.id}"
    why = f"<p>{escaped('; '.join(item.reasons))}</p>" if item.reasons else ""
    return f"<article><h4>{escaped(title)}</h4><p>{escaped(' · '.join(facts))}</p>{why}{_sides(item)}</article>"


def _sides(item: Example) -> str:
    if not item.before and not item.after:
        return "<p>Its text was not kept.</p>"
    return (
        f'<div class="sides"><div><h5>as written</h5><pre>{escaped(item.before) or "(not kept)"}</pre></div>'
        f"<div><h5>as read</h5><pre>{escaped(item.after) or '(text)'}</pre></div></div>"
    )
