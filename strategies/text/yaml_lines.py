"""The part of YAML that models write between tags: a mapping of scalars, block scalars, lists and nested mappings.

    mapping = { indent key ":" ( scalar | block | NL deeper mapping | NL list ) NL }
    list    = { indent "- " ( scalar | block | mapping ) NL }
    block   = ( "|" | ">" ) [ "1".."9" ] [ "+" | "-" ] NL { deeper line }

Scalars stay text: the schema of the tool says what they mean. What YAML reads in another way than it looks (comments
behind a value, anchors, several documents) is refused, as there would be two readings. Lines are read once, from top to
bottom; nesting is bounded.

It is our own and not PyYAML's event parser, which reads seven of the cases here otherwise: `*.py` is an alias to it, a
value ends at ` #`, flow values need not be JSON, half a character passes. It also takes some fifteen times as long, and
all of it in one go: 60 ms for a mapping of 68 KB.
"""

import re
from typing import Any

from strategies.text.strict_json import JsonFault, loading_strict
from strategies.text.turns import TURN, Turns, replaced, whole

__all__ = ["NoMapping", "read_mapping", "reading_mapping"]

_MAX_NESTING = 16
_KEY = re.compile(r"""( *)(?:([A-Za-z_][A-Za-z0-9_.$-]*)|"([^"\\\n]{1,100})"|'([^'\n]{1,100})') *:(?: +|\Z)""")
_DASH = re.compile(r"( *)-(?: +|\Z)")
_BLOCK = re.compile(r"([|>])(?:([1-9])([+-]?)|([+-])([1-9]?))? *\Z")
_QUOTED = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MANY = 10 * TURN
"""Of so small a thing as a line that is cut or joined."""
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "N": "\x85",
    "_": "\xa0",
}


class NoMapping(Exception):
    """The text is no mapping of this kind."""


def read_mapping(text: str) -> dict[str, Any]:
    """The mapping that is the whole text; scalars are text, `None` stands for no value."""
    return whole(reading_mapping(text))


def reading_mapping(text: str) -> Turns[dict[str, Any]]:
    """The same in turns."""
    lines = text.replace("\r\n", "\n").split("\n")
    reader = _Lines(lines)
    found = yield from reader.mapping((yield from reader.indent()), 0)
    if (yield from reader.indent()) >= 0:
        raise NoMapping
    return found


def _named(match: re.Match[str]) -> str:
    return match[2] or match[3] or match[4]


class _Lines:
    """Reads lines in order; `_at` is the line under way."""

    __slots__ = ("_at", "_due", "_lines")

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._due = TURN
        """The line at which others have their turn."""

    def _rest(self) -> Turns[None]:
        if self._at >= self._due:
            self._due = self._at + TURN
            yield

    def indent(self) -> Turns[int]:
        """The indentation of the next line that says something, -1 at the end; what says nothing is skipped."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            told = line.lstrip(" ")
            if told.strip() and told[0] != "#":
                # YAML has no tabs there: https://yaml.org/spec/1.2.2/#61-indentation-spaces
                if told[0] == "\t":
                    raise NoMapping
                return len(line) - len(told)
            self._at += 1
            yield from self._rest()
        return -1

    def mapping(self, indent: int, depth: int) -> Turns[dict[str, Any]]:
        if indent < 0 or depth > _MAX_NESTING:
            raise NoMapping
        found: dict[str, Any] = {}
        while (yield from self.indent()) == indent:
            match = _KEY.match(self._lines[self._at])
            # YAML wants each key once, and its readers differ on which of two counts.
            if match is None or _named(match) in found:
                raise NoMapping
            rest = self._lines[self._at][match.end() :]
            found[_named(match)] = yield from self._value(rest, indent, depth, in_list=False)
        if (yield from self.indent()) > indent or not found:
            raise NoMapping
        return found

    def _list(self, indent: int, depth: int) -> Turns[list[Any]]:
        if depth > _MAX_NESTING:
            raise NoMapping
        found: list[Any] = []
        while (yield from self.indent()) == indent:
            line = self._lines[self._at]
            match = _DASH.match(line)
            if match is None:
                break
            if _KEY.match(line, match.end()) and line[match.end()] not in "\"'":
                # What goes on below stands in the column of the first key, so the dash is taken for blanks.
                self._lines[self._at] = " " * match.end() + line[match.end() :]
                found.append((yield from self.mapping(match.end(), depth + 1)))
            else:
                found.append((yield from self._value(line[match.end() :], indent, depth, in_list=True)))
        return found

    def _value(self, rest: str, indent: int, depth: int, *, in_list: bool) -> Turns[Any]:
        """What stands behind a key or a dash, on its line and on those below."""
        self._at += 1
        yield from self._rest()
        told = rest.strip(" ")
        if not told or told[0] == "#":
            return (yield from self._below(indent, depth, in_list=in_list))
        block = _BLOCK.match(told)
        if block:
            return (yield from self._block(block, indent))
        if _DASH.match(told):
            raise NoMapping
        if told[0] in "\"'":
            return (yield from self._quoted(told, indent))
        if told[0] in "[{":
            return (yield from self._flow(told, indent))
        return (yield from self._plain([told], indent))

    def _below(self, indent: int, depth: int, *, in_list: bool) -> Turns[Any]:
        below = yield from self.indent()
        # A list may stand in the column of its key, but not in that of the list which it would be an item of.
        if below < indent or (below == indent and (in_list or not _DASH.match(self._lines[self._at]))):
            return None
        line = self._lines[self._at]
        if _DASH.match(line):
            return (yield from self._list(below, depth + 1))
        if _KEY.match(line):
            return (yield from self.mapping(below, depth + 1))
        return (yield from self._plain([], indent))

    def _deeper(self, indent: int) -> Turns[list[str]]:
        """The lines below that are empty or further in; the last of them is not empty."""
        found: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            found.append(line)
            self._at += 1
            yield from self._rest()
        while found and not found[-1].strip():
            found.pop()
            self._at -= 1
            if not len(found) % _MANY:
                yield
        self._due = min(self._due, self._at + TURN)
        return found

    def _plain(self, told: list[str], indent: int) -> Turns[str]:
        """A plain scalar, its lines joined by spaces."""
        lines = yield from self._deeper(indent)
        while lines and lines[-1].lstrip(" ")[:1] in ("", "#"):
            lines.pop()
            if not len(lines) % _MANY:
                yield
        for count, line in enumerate(lines, 1):
            if not count % TURN:
                yield
            if _KEY.match(line) or _DASH.match(line):
                raise NoMapping
            told.append(line.strip(" \t"))
        text = yield from _joined(told)
        # To YAML a comment begins there, to the model perhaps a word: there are two readings.
        if " #" in text or text.startswith(("#", "---")):
            raise NoMapping
        return text

    def _quoted(self, told: str, indent: int) -> Turns[str]:
        quote = told[0]
        lines = [told]
        if not _is_closed(told):
            lines += [line.strip(" \t") for line in (yield from self._deeper(indent))]
            yield
        text = yield from _joined(lines)
        if len(text) < 2 or text[-1] != quote or not _is_closed(text):
            raise NoMapping
        inner = text[1:-1]
        return inner.replace("''", "'") if quote == "'" else (yield from replaced(_ESCAPE, inner, _unescaped))

    def _flow(self, told: str, indent: int) -> Turns[Any]:
        try:
            return (yield from loading_strict("\n".join([told, *(yield from self._deeper(indent))])))
        except JsonFault:
            raise NoMapping from None

    def _block(self, header: re.Match[str], indent: int) -> Turns[str]:
        """A block scalar: its lines as they are, or folded."""
        style, chomp = header[1], header[3] or header[4] or ""
        start = self._at
        lines = yield from self._deeper(indent)
        while chomp == "+" and self._at < len(self._lines) - 1 and not self._lines[self._at].strip():
            lines.append("")
            self._at += 1
            yield from self._rest()
        digit = header[2] or header[5]
        first = next((line for line in lines if line.strip()), "")
        inset = indent + int(digit) if digit else len(first) - len(first.lstrip(" "))
        for at in range(0, len(lines), _MANY):
            part = lines[at : at + _MANY]
            if any(line[:inset].strip() for line in part):
                raise NoMapping
            lines[at : at + _MANY] = [line[inset:] for line in part]
            yield
        text = "\n".join(lines) if style == "|" else (yield from _folded(lines))
        is_open = chomp != "-" and lines and start < len(self._lines)
        return text + "\n" if is_open else text


def _joined(lines: list[str]) -> Turns[str]:
    """Lines of one flow scalar: a line break is a space, an empty line a line break."""
    pieces: list[str] = []
    empty = 0
    for count, line in enumerate(lines, 1):
        if not count % _MANY:
            yield
        if not line:
            empty += 1
            continue
        pieces += ["\n" * empty if empty else " ", line] if pieces else [line]
        empty = 0
    return "".join(pieces)


def _folded(lines: list[str]) -> Turns[str]:
    """The lines of a folded block: breaks between ordinary lines are spaces, those around indented ones stay."""
    pieces: list[str] = []
    empty = 0
    inset_before = False
    for count, line in enumerate(lines, 1):
        if not count % _MANY:
            yield
        if not line:
            empty += 1
            continue
        inset = line[0] in " \t"
        if pieces:
            keeps = inset or inset_before
            pieces.append("\n" * (empty + 1) if keeps else "\n" * empty or " ")
        else:
            pieces.append("\n" * empty)
        pieces.append(line)
        empty, inset_before = 0, inset
    return "".join(pieces) + "\n" * empty


def _is_closed(text: str) -> bool:
    """Whether a text that begins with a quotation mark ends with the one that closes it."""
    if text[0] == "'":
        single = text[1:].replace("''", "")
        return single.find("'") == len(single) - 1 >= 0
    return _QUOTED.fullmatch(text) is not None


def _unescaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits:
        code = int(digits, 16)
        # Half a character is no text, and nothing could be written with it.
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise NoMapping
        return chr(code)
    letter = _LETTERS.get(match[4])
    if letter is None:
        raise NoMapping
    return letter
