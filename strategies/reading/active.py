"""What the dialects of one request look for: made once for the same tools and settings, shared by all its readers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import compress, filterfalse, repeat
from operator import contains

from attrs import field, frozen

from gateway.core.tools import Tool, ToolSet
from gateway.wire.calm import Loud
from strategies.base import Options
from strategies.dialects.rows import TABLE
from strategies.grammar.dialect import Context, Dialect, Opening
from strategies.grammar.lexicon import LEFTOVERS, TURNS, Lexicon, Triggers, is_wordy, lexicon, reasoning_beside

__all__ = ["Anchored", "Begun", "Grammar", "family_of", "grammar_for"]

_SHORT = 3
"""Characters of a start that is looked for in each marker."""
_FEW = 4
"""Texts that are looked for by themselves, where what is rare in them stands."""
_WORD = 4
"""Letters by which a text is looked for that has no sign at either end."""
Rows = Mapping[str, tuple[Dialect, ...]]
Begun = dict[str, tuple[tuple[str, Dialect], ...]]
_MARKS = ("`", "~~~")
"""What code begins with."""
_FENCE_MARKS = frozenset("`~")
"""What a line begins with that may close a code fence."""


_OF_ANYBODY = frozenset({"<tool_response>", "<tool_result>", "<function_results>"})
"""What results stand in whatever the call before them was: behind a call they are nothing else."""


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
    _anywhere: tuple[str, ...]
    """All markers but those of lines."""
    _stirring: Triggers

    begun: Begun = field(factory=dict)
    begun_line: Begun = field(factory=dict)
    """By what has begun of a marker: what it may come to, once asked; no more than the markers have beginnings."""
    first_words: set[str] = field(factory=set)
    """What answers have begun with that was text and left nothing open; a few hundred at the most."""

    @classmethod
    def of(cls, context: Context, dialects: Sequence[Dialect]) -> "Grammar":
        rows = _by_marker((row, row.openers(context)) for row in dialects)
        line_rows = _by_marker((row, row.line_openers(context)) for row in dialects)
        bodies = _by_marker((row, row.bodies(context)) for row in dialects)
        results: dict[str, frozenset[str]] = {}
        for row in dialects:
            for marker in row.results:
                results[marker] = results.get(marker, frozenset()) | {row.family}
        # A model that writes its calls in one family's form makes up their results in another's.
        families = frozenset(row.family for row in dialects)
        results |= dict.fromkeys(_OF_ANYBODY & results.keys(), families)
        # One that these tools give no marker opens nothing, in a fence neither.
        # By identity: a row's hash is that of all its fields, and a hundred tools have four thousand markers.
        found = {id(each): each for kind in (rows, line_rows, bodies) for each in kind.values()}
        opening = {id(row): row for each in found.values() for row in each}.values()
        reasoning = reasoning_beside(rows)
        anywhere = (*rows, *reasoning, *results, *LEFTOVERS, *TURNS)
        wordy = list(filter(is_wordy, rows))
        glued = tuple(marker for marker in wordy if _opens_in_word(context, marker, rows[marker]))
        # A result means something behind a call alone, and nobody listens there.
        apart = [marker for marker in wordy if not _opens_behind_words(context, marker, rows[marker])]
        return cls(
            rows=rows,
            line_rows=line_rows,
            bodies=bodies,
            carriers=frozenset(info for row in opening for info in row.carriers) | bodies.keys(),
            results=results,
            families={row.id: row.family for row in dialects},
            tokens=frozenset(row.id for row in dialects if row.level == "A"),
            lexicon=lexicon(anywhere, (*_MARKS, "\n") if line_rows else _MARKS, glued),
            line_lexicon=lexicon(tuple(line_rows)),
            anywhere=anywhere,
            stirring=Triggers((*rows, *reasoning, *LEFTOVERS, *TURNS), _MARKS, glued, apart),
        )

    # Each is made when it is first asked for: an answer without a fence needs two of them, a whole one the last alone.

    @cached_property
    def stirs(self) -> re.Pattern[str]:
        """What finds where something may begin in prose, but for line breaks before what begins no call."""
        return self._stirring.of_lines(self.line_lexicon.starts)

    @cached_property
    def stirs_in_fence(self) -> re.Pattern[str]:
        """The same of a code fence, which a line of its marks may close."""
        return self._stirring.of_lines(_FENCE_MARKS, without=_MARKS)

    @cached_property
    def calm(self) -> Loud:
        """What finds in the JSON of a text that it is not plain: letters and signs of which none stirs."""
        return self._stirring.in_json(self.line_lexicon.starts)

    @cached_property
    def calm_in_fence(self) -> Loud:
        """The same of a code fence."""
        return self._stirring.in_json(_FENCE_MARKS, without=_MARKS)

    @cached_property
    def starts(self) -> "Anchored":
        """One of these stands in every text in which anything but text can be found."""
        return Anchored.of(_starts((*self._anywhere, *self.line_rows, "```", "~~~")))


def _opens_in_word(context: Context, marker: str, rows: Iterable[Dialect]) -> bool:
    """Whether a marker that begins with a letter may open something behind another letter."""
    return any(row.may_open(context, Opening(marker=marker, before="word")) for row in rows)


_WORDS = ("a word ", "A word. ", "A word: ", "- word ")


def _opens_behind_words(context: Context, marker: str, rows: Iterable[Dialect]) -> bool:
    """Whether a marker that begins with a letter may open something behind words and a blank, on their line."""
    return any(row.may_open(context, Opening(marker=marker, before=words)) for row in rows for words in _WORDS)


def _starts(markers: Iterable[str]) -> list[str]:
    """A few texts one of which stands in each marker; nearly all of them begin with a bracket of some kind."""
    texts = {"<" if marker[0] == "<" else marker for marker in markers}
    found = dict.fromkeys(sorted(text for text in texts if len(text) == 1))
    # Of a hundred tools there are thousands: nearly all hold one of the signs.
    holds_sign = re.compile(f"[{re.escape(''.join(found))}]" if found else r"(?!)").search
    left = sorted(filterfalse(holds_sign, texts), key=len)
    short: list[str] = []
    for marker in left:
        if len(marker) > _SHORT:
            break
        if not any(start in marker for start in short):
            short.append(marker)
    holds_short = re.compile("|".join(map(re.escape, short)) or r"(?!)").search
    # Read from its end, one that others end in stands right before all of them.
    end = "\0"
    for backwards in sorted(marker[::-1] for marker in left if marker in short or not holds_short(marker)):
        if not backwards.startswith(end):
            found[backwards[::-1]] = None
            end = backwards
    return list(found)


@frozen
class Anchored:
    """Texts that are looked for by what is rare in them: one search serves all that begin or end in it."""

    rare: tuple[str, ...]
    """How they begin, or the sign that they end in."""
    behind: tuple[tuple[str, tuple[str, ...], bool], ...]
    """Each of those, the texts that hold it, and whether they end in it."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Anchored":
        first: dict[str, tuple[str, ...]] = {}
        last: dict[str, tuple[str, ...]] = {}
        for text in texts:
            if not (text[-1].isalnum() or text[-1] in " _"):
                last[text[-1]] = (*last.get(text[-1], ()), text)
            else:
                begun = text[:_WORD] if text[0].isalnum() else text[0]
                first[begun] = (*first.get(begun, ()), text)
        behind = (*((rare, held, False) for rare, held in first.items()), *((*each, True) for each in last.items()))
        return cls((*first, *last), behind)

    def stand_in(self, whole: str) -> bool:
        """Whether one of them does, wherever."""
        # What does not stand in it costs no step of Python's.
        for rare, texts, is_end in compress(self.behind, map(contains, repeat(whole), self.rare)):
            if len(texts) <= _FEW:
                if True in map(contains, repeat(whole), texts):
                    return True
                continue
            place = whole.find(rare)
            while place >= 0:
                if whole.endswith(texts, 0, place + 1) if is_end else whole.startswith(texts, place):
                    return True
                place = whole.find(rare, place + 1)
        return False


def _by_marker(found: Iterable[tuple[Dialect, tuple[str, ...]]]) -> dict[str, tuple[Dialect, ...]]:
    rows: dict[str, tuple[Dialect, ...]] = {}
    for row, markers in found:
        alone = (row,)  # one for all its markers: a hundred tools have four thousand
        for marker in markers:
            known = rows.setdefault(marker, alone)
            if known is not alone:
                rows[marker] = (*known, row)
    return rows


def grammar_for(context: Context, only: frozenset[str] | None = None) -> Grammar:
    """The grammar of a request; the prompted dialect is tried first, then those of the model's family.

    Where `only` some dialects are to be read, there are no others.
    """
    return _grammar(context.tools.names, context.prompted, context.options, context.restricted, context.model, only)


@lru_cache(maxsize=512)
def family_of(model: str) -> frozenset[str]:
    """The dialects that a model of this name writes by training: evidence, never a condition."""
    # Hosts of many put the maker's name in front.
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
    # Of the tools by name alone: requests that differ in schemas look for the same markers, and share them.
    tools = ToolSet(Tool(name=name) for name in names)
    context = Context(tools=tools, options=options, model=model, prompted=prompted, restricted=restricted)
    family = family_of(model)
    rows = [row for row in TABLE if only is None or row.id in only]
    return Grammar.of(context, sorted(rows, key=lambda row: (row.id != prompted, row.id not in family)))
