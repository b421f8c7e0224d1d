"""The report as one HTML file that asks for nothing else: no script, no font, no picture from elsewhere.

It is well-formed XML as well. All that comes from records is escaped at one place, and a policy in the file forbids
whatever might get past that.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from gateway.report.readiness import NOT_READY, READY
from gateway.report.shown.blocks import Block, Chart, Command, Examples, Heading, Section, Table, Words
from gateway.report.shown.charts import draw
from gateway.report.shown.markup import attribute, escaped
from gateway.report.shown.sections import heading, sections
from gateway.report.shown.style import STYLE
from gateway.report.tree import Example, Figures
from gateway.report.words import moment

__all__ = ["render"]

_VERDICTS = {READY: "good", NOT_READY: "bad"}
_SIGNS = {"good": "✓", "bad": "✗", "waiting": "…"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(figures: Figures) -> str:
    """The whole document."""
    return "".join(_document(figures))


def _document(figures: Figures) -> Iterator[str]:
    head, parts = heading(figures), sections(figures)
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
    yield f'<meta http-equiv="Content-Security-Policy" {attribute("content", _POLICY)}/>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
    yield f"<title>{escaped(f'Toolgate report: {head.verdict}')}</title><style>{STYLE}</style></head>\n<body>"
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
