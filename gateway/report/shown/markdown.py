"""The report as Markdown."""

from collections.abc import Iterator
from typing import assert_never

from gateway.report.facts.tree import Example, Figures
from gateway.report.shown.blocks import Block, Chart, Command, Examples, Table, Words
from gateway.report.shown.sections import heading, sections
from gateway.report.words import visible

__all__ = ["render"]

_ESCAPED = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#~"} | {"\n": " ", "\t": " "})


def render(figures: Figures) -> str:
    """Headings, tables and fenced examples; what models wrote cannot leave its fence or cell."""
    return "\n".join(_lines(figures)) + "\n"


def _lines(figures: Figures) -> Iterator[str]:
    head = heading(figures)
    yield f"# Toolgate report: {head.verdict}"
    yield ""
    yield f"**{_cell(head.words)}**"
    yield ""
    yield _cell(head.period)
    yield ""
    for tile in head.tiles:
        yield f"- {tile.label}: **{_cell(tile.value)}** ({_cell(tile.detail)})"
    yield ""
    yield f"Next: {_cell(head.advice)}"
    yield ""
    yield from _fenced(head.command)
    for note in head.notes:
        yield f"> {_cell(note)}"
        yield ""
    for section in sections(figures):
        yield f"## {section.title}"
        yield ""
        for block in section.blocks:
            yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Words():
            yield _cell(block.text)
            yield ""
        case Command():
            yield from _fenced(block.text)
        case Table():
            yield from _table(block)
        case Examples():
            yield f"**{_cell(block.title)}**"
            yield ""
            for item in block.items:
                yield from _example(item)
        # The table beside it says the same, and Markdown has no pictures of its own.
        case Chart():
            return
        case _:
            assert_never(block)


def _table(table: Table) -> Iterator[str]:
    yield f"**{_cell(table.title)}**"
    yield ""
    if not table.rows:
        yield table.empty
    else:
        yield f"| {' | '.join(map(_cell, table.head))} |"
        yield f"| {' | '.join('---:' if place in table.numeric else '---' for place in range(len(table.head)))} |"
        for row in table.rows:
            yield f"| {' | '.join(map(_cell, row))} |"
    yield ""


def _example(item: Example) -> Iterator[str]:
    label = f"; labelled {item.label}" if item.label else ""
    words = (
        f"{item.id}: {item.tool or 'no tool'}, {item.dialect}, {item.model}, score {item.score:.2f}, {item.decision}"
    )
    yield f"- {_cell(words + label)}"
    for text in (item.before, item.after):
        if text:
            yield ""
            yield from (f"  {line}" if line else "" for line in _fenced(text))


def _fenced(text: str) -> Iterator[str]:
    shown = visible(text)
    # Longer than any run within, which could close it: https://spec.commonmark.org/0.31.2/#fenced-code-blocks
    fence = "`" * max(3, _longest_run(shown) + 1)
    yield f"{fence}text"
    yield from shown.split("\n")
    yield fence
    yield ""


def _longest_run(text: str) -> int:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return longest


def _cell(text: str) -> str:
    return visible(text).translate(_ESCAPED)
