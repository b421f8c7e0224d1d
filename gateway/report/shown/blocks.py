"""What a report for people consists of: words, tables, charts and examples, without a look of their own."""

from typing import Literal

from attrs import frozen

from gateway.report.facts.tree import Example

__all__ = ["Block", "Chart", "Command", "Examples", "Heading", "Mark", "Point", "Section", "Table", "Tile", "Words"]


Mark = Literal["plain", "good", "bad", "waiting", "thin"]


@frozen
class Words:
    """A paragraph."""

    text: str


@frozen
class Command:
    """A command line to copy."""

    text: str


@frozen(kw_only=True)
class Table:
    """Rows of plain texts; columns named in `numeric` are aligned to the right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    empty: str = "Nothing."
    marks: tuple[Mark, ...] = ()
    """How each row is to be taken, where that is said."""


@frozen(kw_only=True)
class Point:
    """One value of a chart; with `low` and `high` an interval, with `second` a stacked part."""

    label: str
    value: float
    words: str
    low: float | None = None
    high: float | None = None
    second: float = 0.0


@frozen(kw_only=True)
class Chart:
    """A picture of what a table beside it says."""

    title: str
    kind: Literal["bars", "columns", "intervals"]
    points: tuple[Point, ...]
    legend: tuple[str, ...] = ()
    most: float = 1.0
    """Of intervals: the share at the right end."""


@frozen(kw_only=True)
class Examples:
    """Candidates, as they were written and as they were read."""

    title: str
    items: tuple[Example, ...]


Block = Words | Command | Table | Chart | Examples


@frozen(kw_only=True)
class Section:
    """A part of the report with a title that links can name."""

    ident: str
    title: str
    blocks: tuple[Block, ...]


@frozen(kw_only=True)
class Tile:
    """One number that is seen first."""

    label: str
    value: str
    detail: str


@frozen(kw_only=True)
class Heading:
    """The verdict and what belongs to it."""

    verdict: str
    words: str
    period: str
    tiles: tuple[Tile, ...]
    advice: str
    command: str
    notes: tuple[str, ...]
