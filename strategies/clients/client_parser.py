"""What a client of tags sees in a text: its own rules of reading, for proving that a call arrives as it was meant.

A tool's opening tag begins a call wherever it stands; inside, a parameter's opening tag begins a value that the first
closing tag ends. Where the client has the crude rule, a closing `content` tag behind that makes the content everything
from the first opening to this closing tag. Linear: every search goes on from where the last one ended.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from attrs import frozen

__all__ = ["SCRIPT_SPACE", "Rules", "Seen", "is_numbered", "keep_entities", "see", "undo_entities"]

# https://github.com/RooCodeInc/Roo-Code/blob/7d198778e742c243986bf9991983fca388a46103/src/utils/text-normalization.ts
_ENTITIES = (
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", '"'),
    ("&#39;", "'"),
    ("&apos;", "'"),
    ("&#91;", "["),
    ("&#93;", "]"),
    ("&lsqb;", "["),
    ("&rsqb;", "]"),
    ("&amp;", "&"),
)
"""What the clients undo, in their order: the ampersand last, so that one round is undone and no more."""
_AMPERSAND = re.compile(f"&(?={'|'.join(entity[1:] for entity, _ in _ENTITIES)})")
# https://tc39.es/ecma262/#sec-string.prototype.trim
SCRIPT_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""White space as JavaScript trims it."""
_CONTENT = "content"
_OPENED = f"<{_CONTENT}>"
_FENCE = "```"
_NUMBERED = re.compile(r"\s*[0-9]+\s+\|(?!\|)")


@frozen(kw_only=True)
class Rules:
    """How one client treats the values it reads."""

    keeps: frozenset[str] = frozenset({_CONTENT})
    """Parameters that lose one line break on each side instead of all white space around them."""
    decodes: frozenset[tuple[str, str]] = frozenset()
    """Tool and parameter whose entities are undone once."""
    crude: frozenset[str] = frozenset()
    """Tools whose content runs from the first opening to the last closing tag."""
    files: frozenset[str] = frozenset()
    """Tools whose content loses a code fence's line at its start or end, and line numbers on all lines."""
    max_value: int | None = None
    """The longest value, closing tag included, in UTF-16 units; a longer one is lost."""


@frozen
class Seen:
    """The first call of a text."""

    name: str
    values: Mapping[str, str]
    end: int
    """Where its closing tag ends."""


def see(text: str, rules: Rules, tools: Iterable[str], parameters: Iterable[str]) -> Seen | None:
    """The first complete call in the text; None where the client sees none."""
    opening = _openings(tuple(tools)).search(text)
    if opening is None:
        return None
    name, start = opening.group(1), opening.end()
    closer = f"</{name}>"
    marks = _marks(name, tuple(parameters), name in rules.crude)
    values: dict[str, str] = {}
    crude_end = -1
    at = start
    while (mark := marks.search(text, at)) is not None:
        at = mark.end()
        if mark.group() == closer:
            # Where the opening tag is missing the clients count as if it stood one character before the call's inside.
            first = text.find(_OPENED, start, crude_end) if crude_end >= 0 else -1
            # `indexOf` gives -1, to which they add the tag's length.
            first = (first if first >= 0 else start - 1) + len(_OPENED)
            if crude_end > first:
                values[_CONTENT] = _cut(_CONTENT, text[first:crude_end], rules)
            return Seen(name, {key: _used(name, key, value, rules) for key, value in values.items()}, at)
        key = mark.group(1)
        if key is None:
            crude_end = mark.start()
            continue
        if key == _CONTENT:
            crude_end = -1
        end = text.find(f"</{key}>", at)
        if end < 0:
            return None
        value = text[at:end]
        # The client counts as JavaScript does, in which a character beyond U+FFFF is two.
        if rules.max_value is None or _units(value) + len(key) + 3 <= rules.max_value:
            values[key] = _cut(key, value, rules)
        at = end + len(key) + 3
    return None


@lru_cache(maxsize=128)
def _openings(tools: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"<({'|'.join(map(re.escape, tools))})>")


@lru_cache(maxsize=512)
def _marks(name: str, parameters: tuple[str, ...], crude: bool) -> re.Pattern[str]:
    closers = [f"</{re.escape(name)}>", *([f"</{_CONTENT}>"] if crude else ())]
    return re.compile(f"<({'|'.join(map(re.escape, parameters)) or '(?!)'})>|{'|'.join(closers)}")


def _cut(key: str, value: str, rules: Rules) -> str:
    if key in rules.keeps:
        # One line break on each side is the tags' own; a file keeps all others.
        return value.removeprefix("\n").removesuffix("\n")
    return value.strip(SCRIPT_SPACE)


def _used(name: str, key: str, value: str, rules: Rules) -> str:
    """The value as the tool works with it."""
    if key == _CONTENT and name in rules.files:
        # Models put a file into a fence, and the clients take the fence's lines away, meant or not.
        if value.startswith(_FENCE):
            value = value.partition("\n")[2]
        if value.endswith(_FENCE):
            value = value.rpartition("\n")[0]
    # So a file cannot be given entities that are meant: https://github.com/RooCodeInc/Roo-Code/issues/10804
    # https://github.com/cline/cline/issues/7698
    if (name, key) in rules.decodes:
        value = undo_entities(value)
    if key == _CONTENT and name in rules.files and is_numbered(value.split("\n")):
        return "\n".join(line.partition("|")[2].removeprefix(" ") for line in value.split("\n"))
    return value


def is_numbered(lines: Sequence[str]) -> bool:
    """Whether every line looks as if it began with its number."""
    return bool(lines) and all(map(_NUMBERED.match, lines))


def undo_entities(text: str) -> str:
    """The text with one round of entities undone."""
    for entity, char in _ENTITIES:
        text = text.replace(entity, char)
    return text


def keep_entities(text: str) -> str:
    """What is this text again once its entities are undone; for versions that know fewer of them, too."""
    return _AMPERSAND.sub("&amp;", text)


def _units(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text) if not text.isascii() else len(text)
