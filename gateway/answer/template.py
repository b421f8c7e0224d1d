"""What all content events of an answer have in common, so that a run of them is read without taking each apart."""

import re
from typing import Any

import msgspec
from attrs import frozen

__all__ = ["Casts", "Template", "count_of", "last_events", "text_of"]

_PLAIN = rb'[^"\\\x00-\x1f]*+'
_BODY = rb'%b(?:\\(?:["\\/bfnrt]|u%b)%b)*+'
"""A JSON string's body; told by runs of plain characters, as one character at a time costs ten times as much."""
_CONTENT = re.compile(rb'"content":\s*"(%b)"' % (_BODY % (_PLAIN, rb"[0-9a-fA-F]{4}", _PLAIN)))
_CHARACTER = rb"(?:(?![dD][89a-fA-F])[0-9a-fA-F]{4}|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
_WHOLE = _BODY % (_PLAIN, _CHARACTER, _PLAIN)
_BODIES = re.compile(rb"%b(?:\x00%b)*+" % (_WHOLE, _WHOLE))
"""Bodies with a zero between them, which none can hold; no half of a character stands for itself."""
_UNSAFE = re.compile(rb'["\x00-\x1f]')
_BODY_OF_ANY = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_NUMBER = rb"-?[0-9]{1,20}+"
_LETTERS = rb'"[0-9A-Za-z_.:+/=-]{0,128}+"'
_BLANKS = (b" ", b"\\n", b"\\t")
# A server whose events are never alike would have a template made of each for nothing.
_MAX_CASTS = 16
_MOST_STAMPS = 3
_SAYING = frozenset({"choices", "usage", "error", "object"})
"""Fields of an event that mean something here."""


@frozen
class Template:
    """What all content events of an answer have in common: everything before and behind the content."""

    head: bytes
    tail: bytes
    data: bytes
    gap: bytes
    """The tail of one event and the head of the next."""
    blanks: tuple[bytes, ...] = ()
    """How an event ends whose content ends in white space."""

    @classmethod
    def of(cls, raw: bytes, data: bytes, text: str) -> "Template | None":
        """The template of the event with this content; None where it cannot be told for certain."""
        match = _CONTENT.search(raw)
        if match is None or raw.count(b'"content"') != 1 or not raw.endswith(b"}\n\n") or raw.count(b"\n") != 2:
            return None
        if text_of([match.group(1)]) != text:
            return None
        head, tail = raw[: match.start(1)], raw[match.end(1) :]
        return cls(head, tail, data, tail + head, tuple(blank + tail for blank in _BLANKS))

    def run(self, data: bytes) -> bytes:
        """What may be a run of events made after this template, at the beginning of the data."""
        end = data.rfind(self.tail) if data.startswith(self.head) else -1
        return data[: end + len(self.tail)] if end >= 0 else b""

    def size(self, contents: list[bytes]) -> int:
        """How long the events with these contents are."""
        return sum(map(len, contents)) + len(contents) * len(self.gap)

    def contents(self, data: bytes) -> list[bytes] | None:
        """The JSON string bodies of events that are all made after this template."""
        if not data.startswith(self.head) or not data.endswith(self.tail):
            return None
        if len(data) < len(self.head) + len(self.tail):
            return None
        return data[len(self.head) : len(data) - len(self.tail)].split(self.gap)


class Casts:
    """The template that the events of one answer are cast in, as long as they are."""

    __slots__ = ("_left", "_skip", "stamped", "template")

    def __init__(self) -> None:
        self.template: Template | None = None
        self.stamped: re.Pattern[bytes] | None = None
        """What finds events that differ from it in what their server stamps them with alone."""
        self._left = _MAX_CASTS
        """How often a new one may still be taken."""
        self._skip = 0
        """Where an event's data begins."""

    def take(self, raw: bytes, data: bytes, text: str) -> bool:
        """Take an event with this content for the template of those that follow, unless it is known for one of them."""
        if not self._left or (self.stamped is not None and self.stamped.fullmatch(raw)):
            return False
        self._left -= 1
        before, made = self.template, Template.of(raw, data, text)
        self.stamped = _stamped_alike(before, made) if before is not None and made is not None else None
        self.template = made
        self._skip = len(raw) - 2 - len(data)
        return True

    def data_of(self, event: bytes) -> bytes:
        """The data of an event that is cast in it, or stamped alike."""
        return event[self._skip : -2]


def _stamped_alike(one: Template, other: Template) -> re.Pattern[bytes] | None:
    """What finds an event made after two templates which differ in nothing but what a server stamps its events with.

    Some give each the time of its own, an id, or letters at random (`obfuscation`, against who counts bytes:
    https://platform.openai.com/docs/api-reference/chat/create). Group 1 is its content, in its quotes. None where they
    differ in anything that says something.
    """
    try:
        first, second = msgspec.json.decode(one.data), msgspec.json.decode(other.data)
    except msgspec.MsgspecError:  # a number that nobody can hold: events of such a server are read one by one
        return None
    if first.keys() != second.keys() or _without_content(first) != _without_content(second):
        return None
    names = [name for name in first if name != "choices" and first[name] != second[name]]
    if not 0 < len(names) <= _MOST_STAMPS or not _SAYING.isdisjoint(names):
        return None
    if not all(name.isidentifier() and {type(first[name]), type(second[name])} <= {int, str} for name in names):
        return None
    stamp = re.compile(rb'("(?:%b)":[ ]?)(%b|%b)' % ("|".join(names).encode(), _NUMBER, _LETTERS))
    head, tail = stamp.split(other.head), stamp.split(other.tail)
    if len(head) + len(tail) != 2 + 3 * len(names):  # each of them once: behind a split there are two groups and a rest
        return None
    # The quotes around the content belong to the group: it is decoded as it stands there.
    return re.compile(_opened(head)[:-1] + b'("%b")' % _BODY_OF_ANY + _opened(tail)[1:])


def _opened(split: list[bytes]) -> bytes:
    """A text of which the stamps may be others."""
    pattern = re.escape(split[0])
    for name, value, rest in zip(split[1::3], split[2::3], split[3::3], strict=True):
        pattern += re.escape(name) + (_LETTERS if value.startswith(b'"') else _NUMBER) + re.escape(rest)
    return pattern


def _without_content(event: dict[str, Any]) -> Any:
    choice, *others = event["choices"]
    return [{**choice, "delta": {**choice["delta"], "content": None}}, *others]


def text_of(contents: list[bytes]) -> str | None:
    """The text of JSON string bodies; None where one of them is not plainly valid."""
    joined = b"".join(contents)
    if b"\\" in joined:
        if not _BODIES.fullmatch(b"\0".join(contents)):
            return None
    elif _UNSAFE.search(joined):
        return None
    try:
        # One by one: a character that is cut between two events is whole again once they are joined, and yet neither is
        # UTF-8.
        if not joined.isascii():
            for content in contents:
                content.decode()
        return msgspec.json.decode(b'"' + joined + b'"', type=str) if b"\\" in joined else joined.decode()
    except ValueError:
        return None


def count_of(content: bytes) -> int:
    """The characters of a JSON string's body that `text_of` has taken."""
    if b"\\" in content:
        return len(msgspec.json.decode(b'"' + content + b'"', type=str))
    return len(content) if content.isascii() else len(content.decode())


def last_events(contents: list[bytes], chars: int) -> tuple[int, int]:
    """How many events at the end hold the last characters of a run, and how many characters those events have."""
    count = size = 0
    while size < chars:
        count += 1
        size += count_of(contents[-count])
    return count, size
