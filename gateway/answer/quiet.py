"""Events that go out as they came, and of which the reader is told later, all at once.

Most events of a stream are quiet: cast in the one template of their answer, and of a content that neither begins
anything nor ends in what has to wait. While nothing is open or held, such an event is known by two searches in its
bytes (`_UNSAFE`, and what the reader says is loud), and out it goes. Its content is kept, and told in its place and
order: before anything louder, after `_MOST` bytes, and at the end. So whatever is found later is found as if every
event had been read when it came; that this is so is held by a test of its own.
"""

import re

from attrs import frozen

from gateway.answer.template import Template, text_of
from gateway.core.events import Event, Text

__all__ = ["Loud", "Quiet", "is_text"]

_MOST = 32 << 10
"""Bytes of content that are told in one go; they cost less than a millisecond."""
_UNSAFE = re.compile(rb'["\\\x00-\x1f]').search
_ESCAPED = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\["\\/nt][^"\\\x00-\x1f]*+)*+').fullmatch
"""The body of a JSON string whose escapes are harmless: those of code and of paragraphs."""
_SPACES = (b" ", b"\\n", b"\\t")
"""How white space at the end of such a body is written, while it is ASCII."""


@frozen
class Loud:
    """What an event's content must not be to go out unread."""

    search: "re.Pattern[bytes]"
    """Finds what may begin something, in the body of a JSON string."""
    is_space_loud: bool = True
    """White space at its end has to wait for what follows."""


class Quiet:
    """The quiet events of one answer."""

    __slots__ = ("_bodies", "_gap", "_head", "_size", "_stamped", "_tail", "events", "last", "loud")

    def __init__(self) -> None:
        self.loud: Loud | None = None
        """None while every event is to be read."""
        self.events = 0
        """How many have gone out and were not told."""
        self.last = b""
        """The last of them, where they differ in what their server stamps them with."""
        self._head = self._tail = self._gap = b""
        self._stamped: re.Pattern[bytes] | None = None
        self._bodies: list[bytes] = []
        self._size = 0

    def begin(self, template: Template, loud: Loud | None, stamped: re.Pattern[bytes] | None = None) -> None:
        """From here on events of this template are quiet unless they are loud, and those that are `stamped` alike."""
        self.loud = loud
        self._stamped = stamped
        self._head, self._tail, self._gap = template.head, template.tail, template.gap

    def passes(self, data: bytes) -> bool:
        """Whether this is one event or several that go out as they are; if so, they are kept to be told."""
        loud = self.loud
        if loud is None or self._size > _MOST:
            return False
        if not data.startswith(self._head) or not data.endswith(self._tail):
            return self._stamped is not None and self._passes_stamped(self._stamped, data, loud)
        body = data[len(self._head) : -len(self._tail)]
        if self._gap in body:
            return self._passes_all(body.split(self._gap), loud)
        if not body or loud.search.search(body) or (_UNSAFE(body) and not _ESCAPED(body)):
            return False
        if body.isascii():
            if loud.is_space_loud and body.endswith(_SPACES):
                return False
        elif not _is_calm(body, body, loud):
            return False
        self._bodies.append(body)
        self._size += len(body)
        self.events += 1
        return True

    def _passes_stamped(self, stamped: re.Pattern[bytes], data: bytes, loud: Loud) -> bool:
        bodies, last, at = [], 0, 0
        while at < len(data):
            match = stamped.match(data, at)
            if match is None:
                return False
            # Read, they would be read one after the other, and each would have to be decided by itself.
            if not _is_calm(match[1], match[1], loud):
                return False
            bodies.append(match[1])
            last, at = at, match.end()
        if not self._passes_all(bodies, loud):
            return False
        self.last = data[last:]
        return True

    def _passes_all(self, bodies: list[bytes], loud: Loud) -> bool:
        joined = b"".join(bodies)
        if _UNSAFE(joined) and not all(map(_ESCAPED, bodies)):
            return False
        if not joined.isascii() and not all(map(_is_utf8, bodies)):
            return False
        if not _is_calm(joined, bodies[-1], loud):
            return False
        self._bodies += bodies
        self._size += len(joined)
        self.events += len(bodies)
        return True

    def take(self) -> str:
        """What was kept, as text; there is none any more."""
        bodies, self._bodies = self._bodies, []
        self._size = self.events = 0
        self.last = b""
        return text_of(bodies) or "" if bodies else ""


def _is_calm(body: bytes, last: bytes, loud: Loud) -> bool:
    """Whether nothing in it is loud; `last` is the body that it ends in."""
    if not last or loud.search.search(body):
        return False
    if body.isascii():
        return not (loud.is_space_loud and last.endswith(_SPACES))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    return not (loud.is_space_loud and (text[-1].isspace() or last.endswith(_SPACES)))


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_text(events: list[Event], text: str) -> bool:
    """Whether all of the text, and nothing else, is text."""
    if not text:
        return True
    return len(events) == 1 and isinstance(events[0], Text) and len(events[0].raw) == len(text)
