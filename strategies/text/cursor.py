"""The cursor a dialect reads through: text that may still be arriving, seen as if it were all there.

A dialect is a generator that calls the primitives below with `yield from`. Each primitive suspends while its answer
could still change with more text, and only then; so no dialect ever sees where the text was cut, and reading whole or
character by character gives the same result by construction. `until` and `json` hand finished text on and keep only
what could begin the end marker; the window forgets what was consumed, unless an `anchor` holds it for a look-ahead.
"""

import re
from collections.abc import Callable, Generator
from typing import Any

from gateway.core.reasons import Reason
from gateway.wire.json_scan import JsonScanner, JsonTooDeep
from strategies.text.tape import Source, Tape
from strategies.text.turns import SCANNED, Turns, half_read

__all__ = ["CUT", "Cursor", "Reject", "Sink", "Steps", "overlap", "pass_over"]

Steps = Generator[Any, None, Any]
Sink = Callable[[str], object]

CUT = "cut"
"""The reason of a call that was complete but for its end, in an answer that was cut: nothing inside it is one."""
_WS = re.compile(r"[ \t\r\n]*")
_LITERAL_WS = re.compile(r"(?:[ \t\r\n]|\\[nrt])*")
# Longer ones are no tags of a call, but pages: the bound keeps a lone `<` from holding all text behind it.
_TAG_BOUND = 200
_STUB_BOUND = 140
_TURN = 1000
"""How many primitives run before the others of the process have their turn."""


_REASONS = {
    CUT: Reason.CUT,
    "too_large": Reason.TOO_LARGE,
    "unknown tool": Reason.UNKNOWN_TOOL,
    "unknown_tool": Reason.UNKNOWN_TOOL,
    "value not closed": Reason.NOT_CLOSED,
    "value not closed for certain": Reason.NOT_CLOSED,
    "JSON is not closed": Reason.NOT_CLOSED,
    "brackets are not closed": Reason.NOT_CLOSED,
    "calls are not closed": Reason.NOT_CLOSED,
    "code is not closed": Reason.NOT_CLOSED,
    "attribute not closed": Reason.NOT_CLOSED,
    "comment never ends": Reason.NOT_CLOSED,
    "patch never ends": Reason.NOT_CLOSED,
    "heredoc never ends": Reason.NOT_CLOSED,
}
"""The words of a grammar that have a reason of their own; all others say that it could not be read."""


class Reject(Exception):
    """This text is no call of this dialect.

    `again` asks for another pass over the text, which finds `hint` in its opening; `attempted` says that the text
    plainly tried to call a tool that exists; `inside` that the answer ends within a value, so that all of it is data;
    `blind` that nothing which has been read up to here begins a call;
    `refusal` is the word for it where it was read and is refused all the same, `name` the tool that it names, where
    the dialect has read that; `remains` the offset up to which it is markup of the dialect that stands without a call.
    """

    def __init__(
        self,
        reason: str,
        *,
        again: bool = False,
        hint: object = None,
        attempted: bool = False,
        inside: bool = False,
        blind: bool = False,
        refusal: Reason | None = None,
        name: str = "",
        remains: int = 0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.hint = hint
        self.attempted = attempted
        self.inside = inside
        self.blind = blind
        self.refusal = refusal or _REASONS.get(reason, Reason.PARSE)
        self.name = name
        self.remains = remains


def pass_over(name: str, reading: Steps) -> Steps:
    """Refuse a call of no declared tool, once it is read: what its values hold is shown, whatever it looks like."""
    try:
        for found in reading:
            if found is None:
                yield
    except Reject as refusal:
        # Whatever that says of where it ends holds here as well.
        is_inside, again = refusal.inside or refusal.reason == CUT, refusal.again
        raise Reject(
            "unknown_tool", name=name, again=again, hint=refusal.hint, inside=is_inside, blind=refusal.blind
        ) from None
    raise Reject("unknown_tool", name=name, blind=True)


def overlap(text: str, start: int, marker: str) -> int:
    """How many characters at the end of `text` (from `start` on) are a proper prefix of `marker`."""
    longest = min(len(marker) - 1, len(text) - start)
    # Markers are short: this is cheaper than anything cleverer.
    for size in range(longest, 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0


Awaited = tuple[str | re.Pattern[str], int]
"""A text or a pattern, and how many characters in front of what comes next may belong to it."""


class Cursor:
    """A window onto arriving text; `pos` counts in the window, `offset` from the candidate's first character."""

    __slots__ = (
        "_base",
        "_behind",
        "_behind_base",
        "_left",
        "anchor",
        "awaits",
        "cut",
        "eof",
        "floor",
        "is_last",
        "literal_breaks",
        "made",
        "paused",
        "pos",
        "source",
        "text",
    )

    def __init__(
        self,
        text: str = "",
        *,
        eof: bool = False,
        cut: bool = False,
        source: Source | None = None,
        made: list[Any] | None = None,
    ) -> None:
        self.text = text
        self.source = source
        """Who keeps the text in front of the window; without, the window keeps what an anchor asks for."""
        self.made: list[Any] = [] if made is None else made
        """What was made in turns, for whoever lets it go in turns."""
        self.pos = 0
        self.eof = eof
        self.cut = cut
        """The answer ended in its middle: an open call is never completed."""
        self.anchor: int | None = None
        """Text from here on is kept, so that the dialect may go back."""
        self.floor: int | None = None
        """The call ends here; what is read beyond is given back by the reader."""
        self.is_last = False
        """Nothing but white space was found behind the call's end."""
        self.literal_breaks = False
        r"""Line breaks between the tags came as the two characters `\n`: some server escaped the answer twice."""
        self.paused = False
        """It has suspended only so that a long text is worked off in turns: it can go on without more text."""
        self.awaits: Awaited | None = None
        """What has to come before anything is done but to hand on, and how much of it may have come."""
        self._left = _TURN
        self._base = 0
        self._behind: Tape | None = None
        """What an anchor keeps of the text in front of the window: joined when it is gone back to, not before."""
        self._behind_base = 0

    @property
    def offset(self) -> int:
        return self._base + self.pos

    def push(self, text: str) -> None:
        """More text has come."""
        if self.pos:
            self._leave(self.pos)
        self.text = self.text + text if self.text else text

    def _leave(self, size: int) -> None:
        """Let the window begin behind its first `size` characters; an anchored look-ahead can still return to them."""
        start = None if self.anchor is None or self.source is not None else self.anchor - self._base
        # Nobody goes back to it.
        if start is None or start >= size:
            self._behind = None
        # What the window still holds of the look-ahead is kept as one piece; later pieces are only added to it.
        elif start >= 0 or self._behind is None:
            start = max(start, 0)
            self._behind = Tape(self.text[start:size])
            self._behind_base = self._base + start
        else:
            self._behind.add(self.text[:size])
        self.text = self.text[size:]
        self.pos -= size
        self._base += size

    def _rest(self) -> Steps:
        """Suspend for a turn."""
        self._left = _TURN
        self.paused = True
        yield
        self.paused = False

    def work(self, turns: Turns[Any]) -> Steps:
        """What work on the text that has been read finds, in its turns."""
        is_long = False
        while True:
            try:
                next(turns)
            except StopIteration as end:
                if is_long:
                    self.made.append(end.value)
                return end.value
            except ValueError as fault:
                if is_long:
                    self.made += half_read(fault)
                raise
            is_long = True
            yield from self._rest()

    @property
    def final(self) -> int:
        """The offset behind which nothing will be read again."""
        # What an anchor may go back to, or a call gives back, has not been used yet.
        bounds = [bound for bound in (self.anchor, self.floor) if bound is not None]
        return min(self.offset, *bounds) if bounds else self.offset

    @property
    def pending(self) -> int:
        """How many characters at hand are not final."""
        return len(self.text) + self._base - self.final

    def back(self, offset: int) -> None:
        """Return to an anchored offset."""
        if offset < self._base and self.source is not None:
            self.text = self.source(offset, self._base) + self.text
            self._base = offset
        elif offset < self._base and self._behind is not None:
            self.text = self._behind.text() + self.text
            self._base = self._behind_base
            self._behind = None
        self.pos = offset - self._base

    def peek(self, size: int) -> Steps:
        """The next `size` characters, fewer only at the end."""
        self._left -= 1
        if not self._left:
            yield from self._rest()
        while len(self.text) - self.pos < size and not self.eof:
            yield
        return self.text[self.pos : self.pos + size]

    def at_end(self) -> Steps:
        """Whether the answer ends here."""
        while self.pos == len(self.text) and not self.eof:
            yield
        return self.pos == len(self.text)

    def at_stub(self, markers: tuple[str, ...]) -> Steps:
        """Whether the answer ends here, or within the first characters of one of `markers`."""
        while True:
            rest = self.text[self.pos : self.pos + _STUB_BOUND]
            # An empty rest is the end itself; a whole marker is no stub.
            if rest and not any(len(rest) < len(marker) and marker.startswith(rest) for marker in markers):
                return False
            if self.eof:
                return True
            yield

    def ws(self) -> Steps:
        """Skip white space; returns how much."""
        self._left -= 1
        if not self._left:
            yield from self._rest()
        start = self.offset
        while True:
            match = (_LITERAL_WS if self.literal_breaks else _WS).match(self.text, self.pos)
            self.pos = match.end() if match else self.pos
            # The backslash may turn out to be half of a line break.
            is_begun = self.literal_breaks and self.text[self.pos :] == "\\"
            if (self.pos < len(self.text) and not is_begun) or self.eof:
                return self.offset - start
            yield

    def starts(self, marker: str) -> Steps:
        """Whether the text goes on with `marker`; suspends only while it still could."""
        self._left -= 1
        if not self._left:
            yield from self._rest()
        while True:
            if self.text.startswith(marker, self.pos):
                return True
            have = len(self.text) - self.pos
            if have >= len(marker) or self.eof or not marker.startswith(self.text[self.pos :]):
                return False
            yield

    def lit(self, marker: str) -> Steps:
        """Consume `marker` if the text goes on with it."""
        if (yield from self.starts(marker)):
            self.pos += len(marker)
            return True
        return False

    def lits(self, markers: tuple[str, ...]) -> Steps:
        """Consume the first of `markers` that the text goes on with, or return None."""
        for marker in markers:
            if (yield from self.lit(marker)):
                return marker
        return None

    def match(self, pattern: re.Pattern[str], bound: int = 256) -> Steps:
        """Consume what `pattern` (a run of one character class) matches, at most `bound` characters."""
        self._left -= 1
        if not self._left:
            yield from self._rest()
        while True:
            match = pattern.match(self.text, self.pos, self.pos + bound)
            end = match.end() if match else self.pos
            if end < len(self.text) or self.eof or end - self.pos >= bound:
                found = self.text[self.pos : end]
                self.pos = end
                return found
            yield

    def until(self, marker: str, sink: Sink) -> Steps:
        """Hand text to `sink` up to `marker`, which stays; False when the answer ends first."""
        self._left -= 1
        if not self._left:
            yield from self._rest()
        while True:
            end = self.text.find(marker, self.pos)
            found = end >= 0
            if not found:
                end = len(self.text) if self.eof else len(self.text) - overlap(self.text, self.pos, marker)
            if end > self.pos:
                sink(self.text[self.pos : end])
                self.pos = end
            if found or self.eof:
                return found
            self.awaits = marker, len(marker) - 1
            yield
            self.awaits = None

    def until_match(self, pattern: re.Pattern[str], tail: int, sink: Sink) -> Steps:
        """Hand text to `sink` up to a match of `pattern`, whose matches are at most `tail` + 1 characters long."""
        self._left -= 1
        if not self._left:
            yield from self._rest()
        while True:
            match = pattern.search(self.text, self.pos)
            if match:
                end = match.start()
            else:
                end = len(self.text) if self.eof else max(self.pos, len(self.text) - tail)
            if end > self.pos:
                sink(self.text[self.pos : end])
                self.pos = end
            if match or self.eof:
                return match is not None
            self.awaits = pattern, tail
            yield
            self.awaits = None

    def tag(self) -> Steps:
        """The tag `<...>` that begins here, not consumed; None where none does (a bare `<`, a line end, too long)."""
        self._left -= 1
        if not self._left:
            yield from self._rest()
        yield from self.peek(1)
        # A tag that comes in many small pieces is searched once, not from its beginning with each.
        seen = self.pos + 1
        while True:
            base = self._base
            match = _TAG_STOP.search(self.text, seen)
            if match:
                if match.group() == ">" and match.end() - self.pos <= _TAG_BOUND:
                    return self.text[self.pos : match.end()]
                return None
            if self.eof or len(self.text) - self.pos > _TAG_BOUND:
                return None
            seen = len(self.text)
            yield
            # The window may have moved while others had their turn.
            seen -= self._base - base

    def json(self, sink: Sink, max_depth: int = 64) -> Steps:
        """Hand one JSON value to `sink`, brace to brace; False when the answer ends inside it."""
        scanner = JsonScanner(max_depth)
        while True:
            part = self.text[self.pos : self.pos + SCANNED]
            try:
                end = scanner.feed(part)
            except JsonTooDeep:
                # The scanner is bounded, so that whoever decodes what it has passed need not fear the recursion.
                raise Reject("nested_too_deep", blind=True) from None
            if end >= 0:
                sink(part[:end])
                self.pos += end
                return True
            sink(part)
            self.pos += len(part)
            if self.pos < len(self.text):
                yield from self._rest()
            elif self.eof:
                return False
            else:
                if scanner.is_container:
                    self.awaits = _BRACKETS, 0
                yield
                self.awaits = None


_BRACKETS = re.compile(r"[\[\]{}]")
"""Without one of these no object or list ends, or goes deeper."""
_TAG_STOP = re.compile(r"[<>\n]")
