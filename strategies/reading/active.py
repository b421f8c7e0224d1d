"""What the dialects of one request look for: made once for the same tools and settings, shared by all its readers."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from attrs import frozen

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.dialects.rows import TABLE
from strategies.grammar.dialect import Context, Dialect, Opening
from strategies.grammar.lexicon import LEFTOVERS, REASONING, REASONING_ENDS, Lexicon, lexicon

__all__ = ["Grammar", "family_of", "grammar_for"]

Rows = Mapping[str, tuple[Dialect, ...]]


@frozen(kw_only=True)
class Grammar:
    """The markers of all dialects that are active, and which dialects each may open."""

    rows: Rows
    line_rows: Rows
    """By markers that count only as the first text of a line."""
    bodies: Rows
    """By the info words of fences whose whole body is theirs."""
    carriers: frozenset[str]
    results: Mapping[str, frozenset[str]]
    """The families that each result marker belongs to."""
    families: Mapping[str, str]
    tokens: frozenset[str]
    """The dialects whose markers are special tokens."""
    lexicon: Lexicon
    line_lexicon: Lexicon
    starts: tuple[str, ...]
    """One of these stands in every text in which anything but text can be found."""

    @classmethod
    def of(cls, context: Context, dialects: Sequence[Dialect]) -> "Grammar":
        rows = _by_marker((row, row.openers(context)) for row in dialects)
        line_rows = _by_marker((row, row.line_openers(context)) for row in dialects)
        bodies = _by_marker((row, row.bodies(context)) for row in dialects)
        results: dict[str, frozenset[str]] = {}
        for row in dialects:
            for marker in row.results:
                results[marker] = results.get(marker, frozenset()) | {row.family}
        anywhere = (*rows, *REASONING, *REASONING_ENDS, *results, *LEFTOVERS)
        glued = tuple(marker for marker, found in rows.items() if _opens_in_word(context, marker, found))
        return cls(
            rows=rows,
            line_rows=line_rows,
            bodies=bodies,
            carriers=frozenset(info for row in dialects for info in row.carriers) | bodies.keys(),
            results=results,
            families={row.id: row.family for row in dialects},
            tokens=frozenset(row.id for row in dialects if row.level == "A"),
            lexicon=lexicon(anywhere, ("`", "~~~", "\n") if line_rows else ("`", "~~~"), glued),
            line_lexicon=lexicon(tuple(line_rows)),
            starts=_starts((*anywhere, *line_rows, "```", "~~~")),
        )


def _opens_in_word(context: Context, marker: str, rows: Iterable[Dialect]) -> bool:
    """Whether a marker that begins with a letter may open something behind another letter."""
    if not marker[0].isalpha():
        return False
    return any(row.may_open(context, Opening(marker=marker, before="word")) for row in rows)


def _starts(markers: Iterable[str]) -> tuple[str, ...]:
    """The fewest texts one of which stands in each marker; nearly all of them begin with a bracket of some kind."""
    found: list[str] = []
    for marker in sorted({"<" if marker[0] == "<" else marker for marker in markers}, key=len):
        if not any(start in marker for start in found):
            found.append(marker)
    return tuple(found)


def _by_marker(found: Iterable[tuple[Dialect, tuple[str, ...]]]) -> dict[str, tuple[Dialect, ...]]:
    rows: dict[str, tuple[Dialect, ...]] = {}
    for row, markers in found:
        for marker in markers:
            rows[marker] = (*rows.get(marker, ()), row)
    return rows


def grammar_for(context: Context, only: frozenset[str] | None = None) -> Grammar:
    """The grammar of a request; the prompted dialect is tried first, then those of the model's family.

    Where `only` some dialects are to be read, there are no others.
    """
    return _grammar(context.tools.names, context.prompted, context.options, context.restricted, context.model, only)


@lru_cache(maxsize=512)
def family_of(model: str) -> frozenset[str]:
    """The dialects that a model of this name writes by training: evidence, never a condition."""
    name = model.lower().rsplit("/", 1)[-1]
    return frozenset(row.id for row in TABLE if any(fnmatchcase(name, glob) for glob in row.models))


@lru_cache(maxsize=128)
def _grammar(
    names: tuple[str, ...],
    prompted: str | None,
    options: Options,
    restricted: bool,
    model: str,
    only: frozenset[str] | None,
) -> Grammar:
    tools = ToolSet(Tool(name=name) for name in names)
    context = Context(tools=tools, options=options, model=model, prompted=prompted, restricted=restricted)
    family = family_of(model)
    rows = [row for row in TABLE if only is None or row.id in only]
    return Grammar.of(context, sorted(rows, key=lambda row: (row.id != prompted, row.id not in family)))
