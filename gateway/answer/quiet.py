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

from gateway.answer.facts import Facts
from gateway.answer.queue import LINE
from gateway.answer.template import Template
from gateway.core.events import Event, Text
from gateway.wire.calm import CALM, Blanks, Calm, Kinds, Loud, kinds_of, letters_but
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
    blanks: Blanks = "pass"
    calm = Loud(re.compile(rb'["\\\x00-\x1f\x80-\xff]'), letters_but(frozenset()))

    def __init__(self) -> None:
        self._heard: list[str] = []

    def hear(self, text: str, room: int) -> int:
        del room
        self._heard.append(text)
        return 0

    def overlook(self, text: str) -> None:
        self._heard.append(text)

    def told(self) -> str:
        return "".join(self._heard)


class Quiet:
    """The quiet events of one answer."""

    __slots__ = (
        "_begin",
        "_calm",
        "_calm_look",
        "_chars",
        "_end",
        "_facts",
        "_gap",
        "_gathered",
        "_head",
        "_kinds",
        "_known",
        "_listener",
        "_may_part",
        "_size",
        "_stamped",
        "_tail",
        "_undecided",
        "_waiting",
        "events",
        "held_most",
        "last",
        "late",
    )

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._listener: Listener | None = None
        """None while every event is to be read."""
        self._kinds: Kinds | None = None
        """Which contents need not be heard; None while each is."""
        self._known: Kinds | None = None
        """The same when it was last asked for."""
        self._calm = bytearray()
        """Contents that were of that kind, and of which the listener does not know yet."""
        self.events = 0
        """How many have gone out and were not told."""
        self.last = b""
        """The last of them, where they differ in what their server stamps them with."""
        self._waiting: list[bytes] = []
        """The events behind them that have to wait."""
        self._chars: list[int] = []
        """How many characters each of those has."""
        self._undecided = 0
        """How many all of them have."""
        self._may_part = False
        """One of them may be a line, whose letters could leave in front of the white space at its end."""
        self.late = 0
        """How many of them are late, and were counted for that."""
        self._gathered: list[bytes] | None = None
        """Events that wait, however many, as they go on with what is open; None while nothing is."""
        self.held_most = 0
        """How many bytes have waited at most."""
        self._calm_look: Calm | None = None
        """How the events look in which it looks for that."""
        self._head = self._tail = self._gap = b""
        self._begin = self._end = 0
        self._stamped: re.Pattern[bytes] | None = None
        self._size = 0

    @property
    def listens(self) -> bool:
        """Events are heard."""
        return self._listener is not None

    @property
    def waits(self) -> bool:
        """An event has to wait."""
        return bool(self._waiting)

    @property
    def has_heard(self) -> bool:
        """There is something to be told."""
        return self.events > 0 or bool(self._waiting or self._gathered)

    def begin(self, template: Template, listener: Listener | None, stamped: re.Pattern[bytes] | None = None) -> None:
        """From here on events of this template are heard, and those that are `stamped` alike."""
        self._listener = listener
        self._gathered = [] if listener is not None and listener.holds else None
        self._stamped = stamped
        self._head, self._tail, self._gap = template.head, template.tail, template.gap
        self._begin, self._end = len(template.head), -len(template.tail)
        self._listen_on()

    def _listen_on(self) -> None:
        """What is calm need not be heard as long as nothing waits, and has begun or been stamped."""
        listener = self._listener
        calm = None if listener is None or self._waiting or self._gathered is not None else listener.calm
        if calm is None or listener is None:
            self._kinds = None
            return
        known = self._known
        if known is None or known.loud is not calm or known.blanks != listener.blanks:
            known = self._known = kinds_of(calm, listener.blanks)
        self._kinds = known

    def word(self, content: bytes) -> bool:
        """Whether an event with this content goes out at once and alone, as `passes` has it; it is then taken down.

        The event is to be cast in the template; one that does not go out so is for `passes`.
        """
        kinds = self._kinds
        if kinds is None or self._stamped is not None or not content or kinds[content] != CALM:
            return False
        if len(self._calm) + len(content) > _MOST:
            return False
        self._calm += content
        self.events += 1
        return True

    def calm(self, head: bytes | None = None) -> Calm | None:
        """How the events look that go out as `word` has it, while they do.

        With a `head` only where that stands before the contents of all, with the quote before them.
        """
        listener = self._listener
        if self._kinds is None or self._stamped is not None or listener is None or len(self._calm) > _MOST // 2:
            return None
        loud, look = listener.calm, self._calm_look
        if loud is None or (head is not None and head != self._head):
            return None
        if (
            look is None
            or look.loud is not loud
            or look.blanks != listener.blanks
            or look.head != self._head
            or look.tail != self._tail
        ):
            look = self._calm_look = Calm(self._head, self._tail, loud, blanks=listener.blanks)
        return look

    def overlook(self, texts: list[bytes]) -> None:
        """Events with these contents have gone out, each as that has it."""
        self._calm += b"".join(texts)
        self.events += len(texts)

    def is_cast_in(self, head: bytes) -> bool:
        """Whether this stands before the contents, with the quote before them, of all events that are heard."""
        return self._listener is not None and self._head == head

    def passes(self, data: bytes) -> bytes | None:
        """What goes out now that this event has come, or several; None where they are to be read."""
        kinds = self._kinds
        # The way of most events of most answers.
        if kinds is not None:
            stamped = self._stamped
            if stamped is not None:
                match = stamped.fullmatch(data)
                content = match[1][1:-1] if match is not None else b""
            elif data.startswith(self._head) and data.endswith(self._tail):
                content = data[self._begin : self._end]
            else:
                content = b""
            if content and kinds[content] == CALM and len(self._calm) + len(content) <= _MOST:
                self._calm += content
                self.events += 1
                if stamped is not None:
                    self.last = data
                return data
        return self._hears(data) if self._listener is not None else None

    def _hears(self, data: bytes) -> bytes | None:
        """The same of what is to be heard."""
        if data.startswith(self._head) and data.endswith(self._tail):
            # A content is decoded with the quotes around it.
            quoted = data[self._begin - 1 : self._end + 1]
            if len(quoted) > len(self._gap) and self._gap in quoted:
                return self._passes_several(data, quoted)
        elif self._stamped is None or (match := self._stamped.match(data)) is None:
            return None
        elif match.end() < len(data):
            return self._passes_stamped(data)
        else:
            quoted = match[1]
        try:
            text = _decode(quoted)
        except ValueError:
            return None
        return self._passes_all(data, text, 1, 0, len(text)) if text else None

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
        begins = len(data) - len(self._head) - last - len(self._tail)
        return self._passes_all(data, marked.replace(_MARKED, ""), count + 1, begins, chars)

    def _passes_stamped(self, data: bytes) -> bytes | None:
        stamped, bodies, begins, at = self._stamped, [], 0, 0
        while at < len(data) and stamped is not None:
            match = stamped.match(data, at)
            if match is None:
                return None
            bodies.append(match[1])
            begins, at = at, match.end()
        try:
            texts = list(map(_decode, bodies))
        except ValueError:
            return None
        return self._passes_all(data, "".join(texts), len(texts), begins, len(texts[-1]))

    def _passes_all(self, data: bytes, text: str, count: int, begins: int, chars: int) -> bytes | None:
        """The same of so many events with this text: where the last begins, and how many characters it has."""
        listener, waiting = self._listener, self._waiting
        if listener is None or not chars or self._size + len(self._calm) + len(text) > _MOST:
            return None
        if self._calm:
            self._overlook(listener)
        room = chars
        if waiting and count == 1:
            room = self._room(text, len(data))
        # `hear` is asked last, as it takes the text down: nothing behind it may refuse the event.
        undecided = listener.hear(text, room)
        if undecided < 0:
            return None
        self._size += len(text)
        if self._gathered is not None:
            return self._gather(data)
        if undecided:
            return self._hold(data, text, count, begins, chars, undecided)
        self.events += count + len(waiting)
        if self._stamped is not None:
            self.last = data
        if waiting:
            data = b"".join((*waiting, data))
            self._free(len(waiting))
        self._listen_on()
        return data

    def _overlook(self, listener: Listener) -> None:
        """Say what was calm so far."""
        listener.overlook(_decode(b"".join((b'"', self._calm, b'"'))))
        self._size += len(self._calm)
        self._calm = bytearray()

    def _room(self, text: str, size: int) -> int:
        """How many characters may be undecided at the end of an event that comes behind what waits."""
        if self._may_part or len(self._waiting) >= _MANY or _is_line(text, size - len(self._head) - len(self._tail)):
            return len(text)
        return self._undecided + len(text)

    def _gather(self, data: bytes) -> bytes:
        """Events wait which go on with what is open; after `_MANY` of them they are read."""
        if self._gathered is not None:
            self._gathered.append(data)
            if len(self._gathered) >= _MANY:
                self._size = _MOST  # the next one is too much, and is read with all of them
        return b""

    def _hold(self, data: bytes, text: str, count: int, begins: int, chars: int, undecided: int) -> bytes:
        """The last event waits with so much, and with it those that waited before as far as it does not free them."""
        waiting, sizes = self._waiting, self._chars
        out = []
        self._undecided += chars
        left, freed = self._undecided, 0
        for size in sizes:
            left -= size
            if left < undecided:
                break
            freed += 1
        if freed:
            out = waiting[:freed]
            self._free(freed)
        if begins:
            out.append(data[:begins])
        self.events += freed + count - 1
        if out and self._stamped is not None:
            self.last = out[-1]
        waiting.append(data[begins:] if begins else data)
        sizes.append(chars)
        self._may_part = self._may_part or _is_line(
            text[-chars:], len(data) - begins - len(self._head) - len(self._tail)
        )
        # A later event has been read, and another one will have been when they leave.
        late = len(waiting) - 1 - self.late
        if late > 0:
            self.late += late
            self._facts.late_events += late
        self.held_most = max(self.held_most, sum(map(len, waiting)))
        self._kinds = None
        return b"".join(out)

    def _free(self, count: int) -> None:
        """The first events that waited need not wait any more."""
        self._undecided -= sum(self._chars[:count])
        del self._waiting[:count], self._chars[:count]
        self.late = max(0, self.late - count)
        if not self._waiting:
            self._may_part = False

    def stop(self) -> None:
        """From here on every event is to be read."""
        self._listener = self._gathered = self._kinds = None

    def take(self) -> tuple[str, int, bytes]:
        """The text that has gone out and was not told, in how much at its end something may have begun, and the events
        that wait; from here on every event is read."""
        listener, gathered = self._listener, self._gathered
        text, begun = "", 0
        if gathered is not None:
            waiting = gathered
        else:
            waiting = self._waiting
            if listener is not None:
                if self._calm:
                    self._overlook(listener)
                text, begun = listener.told(), listener.begun
                text, begun = text[: len(text) - self._undecided], max(0, begun - self._undecided)
            self._waiting, self._chars = [], []
            self._undecided = self.late = self.events = 0
            self._may_part = False
            self.last = b""
        self._size = 0
        self.stop()
        return text, begun, b"".join(waiting)


def _is_line(text: str, size: int) -> bool:
    """Whether the letters of an event with this text could leave in front of the white space at its end."""
    return text[-1].isspace() and (size >= LINE or not text.isspace())


def is_text(events: list[Event], text: str) -> bool:
    """Whether all of the text, and nothing else, is text."""
    if not text:
        return True
    return len(events) == 1 and isinstance(events[0], Text) and len(events[0].raw) == len(text)
