"""SEARCH/REPLACE blocks: the bodies of `apply_diff` (Roo, Kilo) and `replace_in_file` (Cline).

    diff = block { newline [ newline ] block }
    block = SEARCH newline { line newline } "=======" newline { line newline } REPLACE

Both tools go by whole lines, and both do more with a line than to compare it. What a block would not carry through
exactly is refused:

| tool | does | so |
| --- | --- | --- |
| `apply_diff` | skips white space behind a marker, and counts none where it compares | blank lines that both texts |
| | | begin or end with are left out; refused where only one has them |
| `apply_diff` | trims each new line's end and moves it by the first line's indentation | refused where that shows |
| `apply_diff` | strips line numbers (`12 | `) when all lines have them | refused |
| `apply_diff` | takes a marker at a line's start, or anywhere behind white space, for its own | escaped, or refused |
| `replace_in_file` | has no escape for its markers | refused |
| both | take another place when the lines stand twice | the model is told that they must not |

Reading is strict: a hint (`:start_line:`), text between blocks, or a line that the tool would change is no block.
Linear in the text.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from attrs import evolve, frozen

from strategies.base import Refusal
from strategies.clients.client_parser import SCRIPT_SPACE, is_numbered
from strategies.mapping.operations import Lines

__all__ = ["CLINE_BLOCKS", "ROO_BLOCKS", "Blocks", "parted"]

_DIVIDER = "======="
_ROO_ESCAPED = ("<<<<<<<", "=======", ">>>>>>>", "-------", ":start_line:", ":end_line:")
_ROO_MARKERS = ("<<<<<<<", ">>>>>>>")
# A line of the new text that looks like a hint is taken for one, wherever it stands.
_ROO_HINTS = (":start_line:", ":end_line:")
_CLINE_MARKER = re.compile(r"(?:-{3,}|<{3,}) SEARCH>?|={3,}|(?:\+{3,}|>{3,}) REPLACE>?")

Fault = Callable[[Lines], str | None]


def _as_it_is(change: Lines) -> Lines:
    return change


@frozen(kw_only=True, eq=False)
class Blocks:
    """One client's blocks."""

    search: str
    replace: str
    escape: Callable[[str], str]
    unescape: Callable[[str], str | None]
    """A line as it stands in the file; `None` for one that has to be escaped."""
    fault: Fault
    """Why a change would not come through exactly."""
    trim: Callable[[Lines], Lines] = _as_it_is
    """The same change without what the tool does not look at."""

    def write(self, changes: Sequence[Lines]) -> str | Refusal:
        """The changes as one text, or why they cannot be said."""
        written = []
        for given in changes:
            change = self.trim(given)
            fault = "The old text must hold a line that is not blank." if not change.old else self.fault(change)
            if fault is not None:
                return Refusal(fault)
            written.append("\n".join(self._lines(change)))
        return "\n\n".join(written)

    def _lines(self, change: Lines) -> Iterator[str]:
        yield self.search
        yield from map(self.escape, change.old)
        yield _DIVIDER
        yield from map(self.escape, change.new)
        yield self.replace

    def read(self, path: str, text: str) -> tuple[Lines, ...] | None:
        """The changes of a text that says them exactly, else `None`."""
        # Both tools compare by line feeds, and write back what they have found.
        if "\r" in text:
            return None
        changes: list[Lines] = []
        lines = iter(text.split("\n"))
        for line in lines:
            if line == self.search:
                change = self._block(path, lines)
                if change is None:
                    return None
                changes.append(change)
            elif line:
                return None
        return tuple(changes) or None

    def _block(self, path: str, lines: Iterator[str]) -> Lines | None:
        old = self._part(lines, _DIVIDER)
        new = self._part(lines, self.replace) if old else None
        if not old or new is None:
            return None
        change = Lines(path, tuple(old), tuple(new))
        return change if self.fault(change) is None else None

    def _part(self, lines: Iterator[str], end: str) -> list[str] | None:
        found: list[str] = []
        for line in lines:
            if line == end:
                return found
            meant = self.unescape(line)
            if meant is None:
                return None
            found.append(meant)
        return None


# --- Roo, Kilo -------------------------------------------------------------------------------------------------------


def _roo_escape(line: str) -> str:
    return f"\\{line}" if line.startswith(_ROO_ESCAPED) else line


def _roo_unescape(line: str) -> str | None:
    if line.startswith("\\") and line[1:].startswith(_ROO_ESCAPED):
        return line[1:]
    return None if line.startswith(_ROO_ESCAPED) else line


def _roo_fault(change: Lines) -> str | None:
    if any("\r" in line for line in (*change.old, *change.new)):
        return "The text holds a carriage return that ends no line, which this edit tool cannot express."
    # The tool counts no white space where it compares: such a line would be found in another place, or nowhere.
    if _is_blank(change.old[0]) or _is_blank(change.old[-1]) or (change.new and _is_blank(change.new[0])):
        return (
            "A blank line that begins one text and not the other, or ends the old one alone, cannot be placed by this "
            "edit tool: include the line before or behind it in both."
        )
    marked = next(filter(_is_unsayable, (*change.old, *change.new)), None)
    if marked is None:
        marked = next(
            (line for line in change.new if line[:1] in "\t " and _trimmed(line).startswith(_ROO_HINTS)), None
        )
    if marked is not None:
        return f"The line {_shown(marked)} looks like a marker of this edit tool and cannot be part of an edit here."
    if is_numbered(change.old) and (is_numbered(change.new) or all(map(_is_blank, change.new))):
        return "Every line begins with a number and `|`, which this edit tool would strip as line numbers."
    return _indentation_fault(change)


def _roo_trimmed(change: Lines) -> Lines:
    """Without the blank lines that both texts begin and end with: they stay, and the tool would pass them over."""
    old, new = change.old, change.new
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at] or not _is_blank(old[at])), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if old[-1 - at] != new[-1 - at] or not _is_blank(old[-1 - at])), rest)
    return evolve(change, old=old[head : len(old) - tail], new=new[head : len(new) - tail])


def _is_unsayable(line: str) -> bool:
    """A marker behind white space, or one that is escaped in the file itself."""
    if line.startswith("\\"):
        return line[1:].startswith(_ROO_ESCAPED)
    if line.startswith(_ROO_ESCAPED):
        return False
    trimmed = _trimmed(line)
    return trimmed == _DIVIDER or trimmed.startswith(_ROO_MARKERS)


def _indentation_fault(change: Lines) -> str | None:
    base, _ = parted(change.old[0])
    for line in change.new:
        own, rest = parted(line)
        if rest != _trimmed(rest):
            return f"The new line {_shown(line)} ends with white space, which this edit tool would strip; leave it out."
        if not (base.startswith(own) if len(own) < len(base) else own.startswith(base)):
            return (
                f"The new line {_shown(line)} is indented with other characters than the first old line, which this "
                "edit tool would change: use the same mixture of tabs and spaces."
            )
    return None


def parted(line: str) -> tuple[str, str]:
    """A line's indentation and the rest."""
    rest = line.lstrip("\t ")
    return line[: len(line) - len(rest)], rest


def _trimmed(line: str) -> str:
    return line.strip(SCRIPT_SPACE)


def _is_blank(line: str) -> bool:
    return not _trimmed(line)


def _shown(line: str) -> str:
    return f"`{_trimmed(line)[:60]}`"


ROO_BLOCKS = Blocks(
    search="<<<<<<< SEARCH",
    replace=">>>>>>> REPLACE",
    escape=_roo_escape,
    unescape=_roo_unescape,
    fault=_roo_fault,
    trim=_roo_trimmed,
)


# --- Cline -----------------------------------------------------------------------------------------------------------


def _cline_unescape(line: str) -> str | None:
    return None if _CLINE_MARKER.fullmatch(line) else line


def _cline_fault(change: Lines) -> str | None:
    marked = next(filter(_CLINE_MARKER.fullmatch, (*change.old, *change.new)), None)
    if marked is not None:
        return f"The line {_shown(marked)} is a marker of this edit tool and cannot be part of an edit here."
    if all(map(_is_blank, change.old)):
        return "The old text must hold a line that is not blank."
    return None


CLINE_BLOCKS = Blocks(
    search="------- SEARCH",
    replace="+++++++ REPLACE",
    escape=str,
    unescape=_cline_unescape,
    fault=_cline_fault,
)
