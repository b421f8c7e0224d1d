"""Events that go out as they came, and of which the reader is told later, all at once.

Most events of a stream are quiet: cast in the one template of their answer, and of a content in which nothing begins.
While nothing is open or held, a listener hears such a content in the reader's place, and out the event goes. One whose
content ends in what has to wait (white space, the beginning of a marker) waits here for the next, which decides it or
is read. What was heard is told the reader in its place and order: the events that have gone out, then the one that
waits, then what was louder than that; after `_MOST` bytes; and at the end. So whatever is found later is found as if
every event had been read when it came, and each event leaves when it then would have left; that this is so is held by
a test of its own.
"""

import re

import msgspec

from gateway.answer.template import Template
from gateway.core.events import Event, Text
from strategies.base import Listener

__all__ = ["Deaf", "Quiet", "is_text"]

_MOST = 16 << 10
"""Bytes of content that are told in one go; they cost less than a millisecond."""
_MANY = 32
"""Reads that are taken down of what is open before they are told."""
_MARK, _MARKED = b"\x7f", "\x7f"
"""Stands between the contents of several events that are decoded in one go."""
_decode = msgspec.json.Decoder(str).decode
"""Raises for all that is no JSON string, and for half of a character."""


class Deaf:
    """Listens to an answer that nobody reads."""

    holds = False
    begun = 0

    def __init__(self) -> None:
        self._heard: list[str] = []

    def hear(self, text: str, room: int) -> int:
        del room
        self._heard.append(text)
        return 0

    def told(self) -> str:
        return "".join(self._heard)


class Quiet:
    """The quiet events of one answer."""

    __slots__ = (
        "_end",
        "_gap",
        "_gathered",
        "_head",
        "_listener",
        "_size",
        "_stamped",
        "_start",
        "_tail",
        "_undecided",
        "events",
        "held_most",
        "last",
        "waiting",
    )

    def __init__(self) -> None:
        self._listener: Listener | None = None
        """None while every event is to be read."""
        self.events = 0
        """How many have gone out and were not told."""
        self.last = b""
        """The last of them, where they differ in what their server stamps them with."""
        self.waiting = b""
        """The event behind them that has to wait."""
        self._gathered: list[bytes] | None = None
        """Events that wait, however many, as they go on with what is open; None while nothing is."""
        self._undecided = 0
        """How many characters that one has."""
        self.held_most = 0
        """How many bytes have waited at most."""
        self._head = self._tail = self._gap = b""
        self._start = self._end = 0
        self._stamped: re.Pattern[bytes] | None = None
        self._size = 0

    @property
    def listens(self) -> bool:
        """Events are heard."""
        return self._listener is not None

    @property
    def has_heard(self) -> bool:
        """There is something to be told."""
        return self.events > 0 or self.waiting != b"" or bool(self._gathered)

    def begin(self, template: Template, listener: Listener | None, stamped: re.Pattern[bytes] | None = None) -> None:
        """From here on events of this template are heard, and those that are `stamped` alike."""
        self._listener = listener
        self._gathered = [] if listener is not None and listener.holds else None
        self._stamped = stamped
        self._head, self._tail, self._gap = template.head, template.tail, template.gap
        # A content is decoded with the quotes around it.
        self._start, self._end = len(template.head) - 1, 1 - len(template.tail)

    def passes(self, data: bytes) -> bytes | None:
        """What goes out now that this event has come, or several; None where they are to be read."""
        listener = self._listener
        if listener is None:
            return None
        if data.startswith(self._head) and data.endswith(self._tail):
            last = data if self._stamped is not None else b""
            quoted = data[self._start : self._end]
            if len(quoted) > len(self._gap) and self._gap in quoted:
                return self._passes_several(data, quoted)
        elif self._stamped is None or (match := self._stamped.match(data)) is None:
            return None
        elif match.end() < len(data):
            return self._passes_stamped(data)
        else:
            last, quoted = data, match[1]
        try:
            text = _decode(quoted)
        except ValueError:
            return None
        # `hear` is asked last, as it takes the text down: nothing behind it may refuse the event.
        if self._size + len(quoted) > _MOST or not text or (undecided := listener.hear(text, len(text))) < 0:
            return None
        self._size += len(quoted)
        if self._gathered is not None:
            return self._gather(data)
        if undecided:
            if last:
                self.last = self.waiting or self.last
            return self._hold(data, b"", len(text), len(data) if last else len(quoted) - 2)
        self.last = last
        if self.waiting:
            data, self.waiting = self.waiting + data, b""
            self.events += 1
        self.events += 1
        return data

    def _passes_several(self, data: bytes, quoted: bytes) -> bytes | None:
        # All are decoded at once, with a mark between them: whatever it cuts in two is no JSON.
        count, last = quoted.count(self._gap), len(quoted) - 1 - quoted.rfind(self._gap) - len(self._gap)
        try:
            marked = _decode(quoted.replace(self._gap, _MARK))
        except ValueError:
            return None
        if marked.count(_MARKED) != count:
            return None
        chars = len(marked) - 1 - marked.rfind(_MARKED)
        at = len(data) - len(self._head) - last - len(self._tail)
        return self._passes_all(data, marked.replace(_MARKED, ""), count + 1, (at, chars, last))

    def _passes_stamped(self, data: bytes) -> bytes | None:
        stamped, bodies, begins, at = self._stamped, [], [], 0
        while at < len(data) and stamped is not None:
            match = stamped.match(data, at)
            if match is None:
                return None
            bodies.append(match[1])
            begins.append(at)
            at = match.end()
        try:
            texts = list(map(_decode, bodies))
        except ValueError:
            return None
        waited, last = self.waiting, (begins[-1], len(texts[-1]), len(data) - begins[-1])
        out = self._passes_all(data, "".join(texts), len(texts), last)
        if out is None or self._gathered is not None:
            return out
        if not self.waiting:
            self.last = data[begins[-1] :]
        elif len(begins) > 1:
            self.last = data[begins[-2] : begins[-1]]
        elif waited:
            self.last = waited
        return out

    def _passes_all(self, data: bytes, text: str, count: int, last: tuple[int, int, int]) -> bytes | None:
        """The same of so many events with this text: where the last begins, its characters, and what it holds."""
        listener, (begins, chars, size) = self._listener, last
        if listener is None or self._size + len(text) > _MOST or not chars:
            return None
        undecided = listener.hear(text, chars)
        if undecided < 0:
            return None
        self._size += len(text)
        if self._gathered is not None:
            return self._gather(data)
        self.events += count - 1
        if undecided:
            return self._hold(data[begins:], data[:begins], chars, size)
        before, self.waiting = self.waiting, b""
        self.events += 2 if before else 1
        return before + data

    def _gather(self, data: bytes) -> bytes:
        """Events wait which go on with what is open; after `_MANY` of them they are read."""
        if self._gathered is not None:
            self._gathered.append(data)
            if len(self._gathered) >= _MANY:
                self._size = _MOST  # the next one is too much, and is read with all of them
        return b""

    def _hold(self, data: bytes, out: bytes, chars: int, size: int) -> bytes:
        """An event waits, which decides the one before it."""
        before, self.waiting, self._undecided = self.waiting, data, chars
        self.events += before != b""
        self.held_most = max(self.held_most, size)
        return before + out

    def stop(self) -> None:
        """From here on every event is to be read."""
        self._listener = self._gathered = None

    def take(self) -> tuple[str, int, bytes]:
        """The text that has gone out and was not told, in how much at its end something may have begun, and the event
        that waits; from here on every event is read."""
        listener, self._listener = self._listener, None
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._size = 0
            return "", 0, b"".join(gathered)
        text, begun = (listener.told(), listener.begun) if listener is not None else ("", 0)
        waiting, self.waiting = self.waiting, b""
        self.events = self._size = 0
        self.last = b""
        if waiting:
            return text[: len(text) - self._undecided], max(0, begun - self._undecided), waiting
        return text, begun, waiting


def is_text(events: list[Event], text: str) -> bool:
    """Whether all of the text, and nothing else, is text."""
    if not text:
        return True
    return len(events) == 1 and isinstance(events[0], Text) and len(events[0].raw) == len(text)
