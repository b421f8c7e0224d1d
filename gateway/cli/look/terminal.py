"""The report on a terminal, in the width that it has; the whole is in the other renderings."""

from typing import TYPE_CHECKING, assert_never

from gateway.report.facts.tree import Example, Figures
from gateway.report.readiness import NOT_READY, READY
from gateway.report.shown.blocks import Block, Chart, Command, Examples, Heading, Table, Words
from gateway.report.shown.sections import heading, sections
from gateway.report.words import visible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show"]

_COLOURS = {READY: "green", NOT_READY: "red"}
_SHORT_TEXT = 300
_LEFT_OUT = frozenset({"review"})
"""Sections that are for looking at one by one: `toolgate report label` shows them."""


def show(figures: Figures, *, colour: bool | None = None, width: int | None = None) -> None:
    """Print the report."""
    from rich.console import Console  # here: rich is slow to import, and the other renderings do without it

    # No markup: rich would take a `[red]` that a model wrote for a colour.
    console = Console(no_color=colour is False or None, width=width, highlight=False, markup=False, emoji=False)
    _heading(console, heading(figures))
    for section in sections(figures):
        if section.ident not in _LEFT_OUT:
            console.print()
            console.rule(section.title, align="left", style="dim")
            for block in section.blocks:
                _block(console, block)


def _heading(console: "Console", head: Heading) -> None:
    from rich.text import Text

    style = f"bold {_COLOURS.get(head.verdict, 'yellow')}"
    console.print(Text.assemble((head.verdict.upper(), style), "  ", visible(head.words)))
    console.print(visible(head.period), style="dim")
    console.print()
    for tile in head.tiles:
        console.print(f"{tile.label:>22}  {tile.value:<10} {visible(tile.detail)}")
    console.print()
    console.print(f"Next: {visible(head.advice)}")
    console.print(f"  {visible(head.command)}", style="bold", soft_wrap=True)
    for note in head.notes:
        console.print(visible(note), style="dim")


def _block(console: "Console", block: Block) -> None:
    match block:
        case Words():
            console.print(visible(block.text))
        case Command():
            console.print(f"  {visible(block.text)}", style="bold", soft_wrap=True)
        case Table():
            _table(console, block)
        case Examples():
            _examples(console, block)
        case Chart():
            return
        case _:
            assert_never(block)


def _table(console: "Console", table: Table) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold", title_justify="left", title_style="italic")
    grid.title = Text(visible(table.title))
    for place, name in enumerate(table.head):
        grid.add_column(name, justify="right" if place in table.numeric else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(visible(cell)) for cell in row))
    console.print(grid)


def _examples(console: "Console", block: Examples) -> None:
    console.print(visible(block.title), style="italic")
    for item in block.items[:3]:
        console.print(f"  {visible(summary(item))}", soft_wrap=True)
        if item.before:
            console.print(_short(item.before), style="dim", soft_wrap=True)


def summary(item: Example) -> str:
    """One line about a candidate."""
    label = f", labelled {item.label}" if item.label else ""
    return (
        f"{item.id}  {item.tool or 'no tool'}  {item.dialect}  {item.model}  {item.score:.2f}  {item.decision}{label}"
    )


def _short(text: str) -> str:
    shown = visible(text[:_SHORT_TEXT]) + (" ..." if len(text) > _SHORT_TEXT else "")
    return "\n".join(f"    {line}" for line in shown.split("\n"))
