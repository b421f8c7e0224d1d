"""One upstream event, or a run of alike ones, on its way to the client: undecided, then itself or what replaces it."""

import re
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gateway.answer.facts import Facts
from gateway.answer.template import Template, count_of
from gateway.core.events import Args, Broken, Event, Said, Start
from gateway.wire.chat_chunks import (
    BadChunk,
    args_chunk,
    decode_object,
    encode_object,
    finish_chunk,
    has_more_than_content,
    rebuilt_chunk,
    text_chunk,
)
from gateway.wire.usage import summed_usage

if TYPE_CHECKING:
    from gateway.answer.choice import Choice

__all__ = ["LINE", "MAX_HELD", "Pending", "PendingRun", "Queue"]


MAX_HELD = 4 << 20
"""Upstream bytes held for undecided text; beyond it an event's own bytes are let go, its text is not."""
_ROOM = 1 << 16
_AT_ONCE = 1_000
"""Events that are let out in one step, as they came; one that is told anew counts as some of them."""
# Such a one is decoded and encoded, which costs as much as letting so many go as they came.
_ANEW = 8
LINE = 24
"""Bytes of content from which on an event is no token but a line: its letters are worth more than its own bytes. So are
those of a shorter one that is a whole line, with words in it."""
_BLANKS = (rb"\n", rb"\r", rb"\t")
"""How white space but the blank is written in JSON."""
_SAID = re.compile(rb"(?<!\\)[0-9A-Za-z\x80-\xff]|([`~*=_-])\1\1")
"""A letter or a digit, or the number of one, in JSON; or a mark of Markdown that has its line to itself."""
_MOST_BLANKS = 64
"""Characters of white space that are looked for at an event's end."""


class Pending:
    """One upstream event: how much of its content is undecided, and what is to go out in its place."""

    __slots__ = (
        "_data",
        "_event",
        "_parts",
        "_raw",
        "calls",
        "changed",
        "choice",
        "finish",
        "held",
        "moves",
        "number",
        "opens",
        "waits",
    )

    def __init__(self, raw: bytes, data: bytes, choice: "Choice | None" = None, held: int = 0) -> None:
        self.choice = choice
        self.held = held
        self.changed = False
        self.finish: str | None = None
        """The finish reason to give, where it is not the event's own."""
        self.opens = False
        """The event is the choice's first with a role, and nothing else tells it."""
        self.calls = 0
        """How many pieces of structured calls in it are held."""
        self.waits = False
        """It is not known yet how the event goes out, though its text is decided."""
        self.number = 0
        """Which of the answer's events it is; of a run, the first that has not left."""
        self.moves = False
        """It is held with calls that go out behind those of the text."""
        self._raw = raw
        self._data = data
        self._event: dict[str, Any] | None = None
        self._parts: list[str | bytes] = []

    @property
    def event(self) -> dict[str, Any]:
        # Only where it is asked for: most events go out as they came.
        if self._event is None:
            self._event = decode_object(self._data)
        return self._event

    @property
    def size(self) -> int:
        return len(self._raw)

    @property
    def is_undecided(self) -> bool:
        """It cannot go out yet."""
        return bool(self.held or self.waits or self.calls)

    def replace(self, raw: bytes) -> None:
        """The event has been mended."""
        self._raw = raw

    @staticmethod
    def forget(events: Iterable["Pending"], data: bytes) -> tuple[list["Pending"], int]:
        """Let go of the events' own bytes where their text is undecided: it will be told in chunks made after `data`.

        Returns those that are left, and how many bytes were let go, as many as one step may: what had no more than
        text goes to the event of its choice before it, so that few are held however many have come.
        """
        left: list[Pending] = []
        freed, room = 0, _AT_ONCE
        last: Pending | None = None
        rest = iter(events)
        for pending in rest:
            # What opens a choice tells its role, and a run has no bytes but its contents.
            if not pending.held or pending.opens or type(pending) is not Pending:
                left.append(pending)
                last = None
                continue
            # What it said is told from the reader's events; what else stood in it is lost, as the price of the bound.
            freed += len(pending._raw)
            room -= bool(pending._raw)
            pending._raw, pending._data, pending.changed = b"", data, True
            is_bare = not (pending._parts or pending.waits or pending.calls or pending.finish)
            if is_bare and last is not None and last.choice is pending.choice:
                last.held += pending.held
                pending.held = 0
            else:
                left.append(pending)
                last = pending if is_bare else None
            if not room:
                break
        left += rest
        return left, freed

    def add_usage(self, more: object) -> None:
        """Another answer is part of this one: where the event says what it cost, both are told."""
        # In the bytes first: most events say nothing of it, and need not be decoded for that.
        if b'"usage"' not in self._data:
            return
        try:
            usage = self.event.get("usage")
        except BadChunk:
            return
        if isinstance(usage, dict) and isinstance(more, dict):
            self.event["usage"] = summed_usage(usage, more)
            self._raw = encode_object(self.event)

    def withhold_calls(self) -> None:
        """Take the structured calls out of the event, which may be all that is in it."""
        del self.event["choices"][0]["delta"]["tool_calls"]
        self._emptied()

    def change_call(self, entry: dict[str, Any], *, name: str | None, arguments: str) -> None:
        """Give an entry of the structured calls other arguments, and another name if it is to have one.

        The name stands where the call begins, whatever the server did.
        """
        function = entry["function"]
        function["arguments"] = arguments
        # Only once, with the id: a client adds the names of all pieces together.
        if name is not None:
            function.pop("name", None)
            if "id" in entry:
                function["name"] = name
        self._raw = encode_object(self.event)

    def drop_call(self, entry: dict[str, Any], at: int) -> None:
        """Leave out an entry of the structured calls, which may be all that is in the event."""
        # By the place and not by the index: several choices may stand in one event, and none need be in order.
        delta = self.event["choices"][at]["delta"]
        left = [each for each in delta.get("tool_calls") or () if each is not entry]
        if left:
            delta["tool_calls"] = left
            self._raw = encode_object(self.event)
        else:
            delta.pop("tool_calls", None)
            self._emptied(at)

    def drop(self) -> None:
        """Leave out all of the event."""
        self._raw = b""

    def forget_event(self) -> None:
        """Keep the event as it came alone."""
        self._event = None

    def finish_calls(self, moved: Mapping[int, int | None], *, keeps_legacy: bool) -> int:
        """Leave out the calls that are dropped, and number the others anew; how many of those there are."""
        delta = self.event["choices"][0]["delta"]
        calls = delta.get("tool_calls")
        calls = calls if isinstance(calls, list) else []
        is_changed, renumbered = False, 0
        left = []
        for call in calls:
            index = call.get("index") if isinstance(call, dict) else None
            # A call without an index is left as it is: nobody can say which one it would be.
            becomes = moved.get(index, index) if isinstance(index, int) else index
            if becomes != index:
                call["index"] = becomes
            if becomes is not None or index is None:
                left.append(call)
                renumbered += becomes != index
            is_changed = is_changed or becomes != index
        if not keeps_legacy and delta.pop("function_call", None) is not None:
            is_changed = True
        if is_changed:
            if left:
                delta["tool_calls"] = left
            else:
                delta.pop("tool_calls", None)
            self._emptied()
        return renumbered

    def _emptied(self, at: int = 0) -> None:
        """Something was taken out of the event: nothing of it is left where that was all."""
        choice = self.event["choices"][at]
        # An end, the usage or another choice in the same event still has to be told.
        is_empty = not any(value is not None and value != "" for value in choice["delta"].values())
        is_alone = choice.get("finish_reason") is None and not self.event.get("usage")
        is_alone = is_alone and len(self.event["choices"]) == 1
        self._raw = b"" if is_empty and is_alone else encode_object(self.event)

    def text(self, text: str) -> None:
        self._parts.append(text)

    def say(self, text: str) -> None:
        """Tell a text of ours in the place of the event's own."""
        self.changed = True
        self._parts.append(text)

    def chunk(self, chunk: bytes) -> None:
        self.changed = True
        self._parts.append(chunk)

    def render(self) -> bytes:
        """The event's own bytes, or what replaces them."""
        if not self.changed or self.choice is None:
            return self._bytes()
        out: list[bytes] = []
        # Of an event whose bytes were let go, or never were, only the text is left to be told.
        rebuilt = not self.size
        # Text and chunks of ours in their order, each run of text in one event.
        for is_text, parts in groupby(self._parts, key=lambda part: isinstance(part, str)):
            if not is_text:
                out += parts  # type: ignore[arg-type]
            elif text := "".join(parts):  # type: ignore[arg-type]
                out.append(
                    text_chunk(self.event, self.choice.index, text) if rebuilt else rebuilt_chunk(self.event, text)
                )
                rebuilt = True
        # A role, or a field of the server's own, goes out even where the content beside it became a call.
        if not rebuilt and (self.opens or has_more_than_content(self.event)):
            out.insert(0, rebuilt_chunk(self.event, ""))
        if self.finish:
            out.append(finish_chunk(self.event, self.choice.index, self.finish))
        return b"".join(out)

    def _bytes(self) -> bytes:
        return self._raw


_BYTE = 255


class PendingRun(Pending):
    """A run of content events made after one template, kept as their contents and lengths alone.

    Its first events leave as soon as they are decided; where they end in the contents is told by an offset, which is
    taken off when half of what is kept is gone, so that a run costs the same for each of its events however long it is.
    """

    __slots__ = ("_begins_line", "_contents", "_decided", "_first", "_head", "_lengths", "_start", "template")

    def __init__(self, template: Template, choice: "Choice", *, begins_line: bool = False) -> None:
        super().__init__(b"", template.data, choice)
        self.template = template
        self._begins_line = begins_line
        """What stands in front of the contents that are kept ends in a line break."""
        self._contents = bytearray()
        # Bytes of the wire, not characters: to count those each content would have to be decoded.
        self._lengths = array("B")  # an open call has one for each of its events: nearly all are of a few bytes
        self._start = 0
        """Where the contents of the first event begin that has not left."""
        self._first = 0
        """Which event that is."""
        self._head = -1
        """How many characters it has; below zero while nobody has asked."""
        self._decided = 0
        """Characters that are decided, from that event on."""

    @property
    def size(self) -> int:
        return len(self._contents) - self._start

    def extend(self, contents: list[bytes], held: int) -> None:
        """More events of the run, with this many characters."""
        self.held += held
        self._contents += b"".join(contents)
        # Widened once and for all: one long event is rare.
        if self._lengths.typecode == "B" and len(max(contents, key=len)) > _BYTE:
            self._lengths = array("L", self._lengths)
        self._lengths.extend(map(len, contents))

    def text(self, text: str) -> None:
        super().text(text)
        self._decided += len(text)

    @property
    def events(self) -> int:
        """How many of them have not left."""
        return len(self._lengths) - self._first

    def release(self, most: int, *, everything: bool, parts: bool = True) -> bytes:
        """The first events, as far as every character of theirs is decided to be text, or any; at most so many.

        Where it `parts` them, the letters of one leave in front of white space that is undecided.
        """
        begun, first, last = self._start, self._first, min(len(self._lengths), self._first + most)
        if everything:
            self._start, self._head = begun + sum(self._lengths[first:last]), -1
            first = last
        while first < last:
            end = self._start + self._lengths[first]
            # Asked once for each event, and kept where it stays undecided: it is asked about again with every piece.
            if self._head < 0:
                self._head = count_of(bytes(self._contents[self._start : end]))
            if self._head > self._decided:
                break
            self._decided -= self._head
            self._start, self._head = end, -1
            first += 1
        first = self._parted(first) if parts and not everything else first
        if first == self._first:
            return b""
        if not everything:
            told = "".join(self._parts)  # type: ignore[arg-type]
            self._parts = [told[len(told) - self._decided :]] if self._decided else []
        out = self._events(begun, self._first, first)
        self.number += first - self._first
        self._first = first
        # At half, so that each byte is moved once at the most, however long the run lives.
        if self._start > len(self._contents) // 2:
            self._begins_line = self._begins_a_line
            del self._contents[: self._start]
            del self._lengths[:first]
            self._start = self._first = 0
        return out

    def _parted(self, first: int) -> int:
        """Part a line from the white space at its end, where that alone is undecided and the next event has not told.

        The white space goes over to the next event: there are as many events as before, and what they say is the same.
        A server that sends line by line would otherwise show each paragraph only when the next one is there.
        """
        # What is undecided has to be white space alone, and the next event has to be there to take it over.
        rest = self._head - self._decided
        if not (self._decided and 0 < rest <= _MOST_BLANKS and first + 1 < len(self._lengths)):
            return first
        length = self._lengths[first]
        is_long = length >= LINE
        if not (is_long or self._begins_a_line):
            return first
        end = self._start + length
        # Twice, as a line break is two bytes in JSON; two more for a backslash that may stand in front of them.
        blanks = _blanks_at_end(bytes(self._contents[max(self._start, end - 2 * _MOST_BLANKS - 2) : end]), rest)
        if not blanks or not (is_long or self._is_line(self._start, end - blanks, end)):
            return first
        # The next one grows by what it takes over, and may be too long for a byte only now.
        if self._lengths.typecode == "B" and self._lengths[first + 1] + blanks > _BYTE:
            self._lengths = array("L", self._lengths)
        self._lengths[first] = length - blanks
        self._lengths[first + 1] += blanks
        self._start, self._head, self._decided = end - blanks, -1, 0
        return first + 1

    def _is_line(self, start: int, said: int, end: int) -> bool:
        """Whether words, or a mark, and the break behind them stand there: no token holds words and a break."""
        contents = self._contents
        return _SAID.search(contents, start, said) is not None and contents.find(rb"\n", said, end) >= 0

    @property
    def _begins_a_line(self) -> bool:
        """Whether the first event that has not left begins a line, or with the break in front of one."""
        at, contents = self._start, self._contents
        if contents.startswith(rb"\n", at):
            return True
        if not at:
            return self._begins_line
        # A line break only if the backslashes in front of the `n` are odd in number: else the last of them is text.
        before = bytes(contents[max(0, at - _MOST_BLANKS) : at])
        return before.endswith(rb"\n") and not (len(before) - len(before[:-1].rstrip(b"\\"))) % 2

    def _bytes(self) -> bytes:
        return self._events(self._start, self._first, len(self._lengths))

    def _events(self, at: int, first: int, last: int) -> bytes:
        """The events from one number up to another, the contents of the first of which begin at `at`."""
        lengths = self._lengths[first:last]
        contents = bytes(self._contents[at : at + sum(lengths)])
        pieces = []
        at = 0
        for length in lengths:
            pieces.append(contents[at : at + length])
            at += length
        return self.template.head + self.template.gap.join(pieces) + self.template.tail


def _blanks_at_end(body: bytes, count: int) -> int:
    """How many bytes the last characters of a JSON string's body take; 0 if not so many of them are white space."""
    at = len(body)
    for _ in range(count):
        if not (is_blank := body.endswith(b" ", 0, at)) and not body.endswith(_BLANKS, 0, at):
            return 0
        at -= 1 if is_blank else 2
    # Behind an odd number of backslashes stands no escape of white space: the last of them escapes its own.
    escapes = at - len(body[:at].rstrip(b"\\"))
    return 0 if escapes % 2 or escapes == at else len(body) - at


class Queue:
    """The events of one answer: those that are held, in order, and the bytes that may go out."""

    __slots__ = (
        "_bytes",
        "_facts",
        "_is_over",
        "_late_to",
        "broken",
        "goes_on",
        "out",
        "owes",
        "pending",
        "read",
        "seen",
    )

    def __init__(self, facts: Facts) -> None:
        self.out: list[bytes] = []
        self.owes = False
        """More may go out than one step lets go: `flush` goes on with it."""
        self.goes_on = False
        """More of what has come is taken in before anything goes out."""
        self._is_over = False
        """Nothing waits any more for what is decided of it."""
        self.read = 0
        """How many events have been read."""
        self.seen = b"{}"
        """The last chunk's data: what a chunk of our own is made after."""
        self.broken: str | None = None
        """Why a call that began to flow came to no end."""
        self._facts = facts
        self.pending: deque[Pending] = deque()
        """Those that are held."""
        self._bytes = 0
        self._late_to = 0
        """Up to which of the events lateness has been told."""

    @property
    def is_full(self) -> bool:
        """More bytes are held than an answer may keep."""
        return self._bytes > MAX_HELD

    @property
    def has_room(self) -> bool:
        """Many more bytes may be held."""
        return self._bytes + _ROOM < MAX_HELD

    def take(self) -> bytes:
        """What may go out."""
        out, self.out = self.out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def count_late(self) -> None:
        """Count what is held although a later event has been read: another one is read before it leaves."""
        # Each event counts once, however many later ones are read while it waits.
        told = max(self._late_to, self.pending[0].number - 1)
        self._late_to = max(told, self.read - 1)
        self._facts.late_events += self._late_to - told

    def knows_late(self, count: int) -> None:
        """So many of the events that come next have been counted already."""
        self._late_to = max(self._late_to, self.read + count)

    def push(self, pending: Pending) -> None:
        """An event of which nothing is undecided: it goes out behind those that are held."""
        # Events leave in their order: while one waits, all behind it do.
        if self.pending or pending.calls:
            self.add(pending)
        else:
            self.out.append(pending.render())

    def pass_on(self, raw: bytes, data: bytes) -> None:
        """The same of one that is not changed."""
        if self.pending:
            self.add(Pending(raw, data))
        else:
            self.out.append(raw)

    def add(self, pending: Pending) -> None:
        """Hold an event that has just been read."""
        pending.number = self.read
        self.pending.append(pending)
        self._bytes += pending.size

    def add_run(
        self, template: Template, choice: "Choice", contents: list[bytes], chars: int, *, begins_line: bool = False
    ) -> Pending:
        """Hold a run of events with so many characters, with the one before it where they are alike."""
        last = self.pending[-1] if self.pending else None
        # By identity: another template is another form, even where it looks alike.
        if not isinstance(last, PendingRun) or last.template is not template:
            last = PendingRun(template, choice, begins_line=begins_line)
            last.number = self.read + 1
            self.pending.append(last)
        # One that holds something already stands in the choice's list, and must not stand there twice.
        if not last.held and chars:
            choice.pending.append(last)
        before = last.size
        last.extend(contents, chars)
        self.read += len(contents)
        self._bytes += last.size - before
        return last

    def add_usage(self, last: Pending, usage: object) -> None:
        """Count what a second answer cost where the first one, up to this event, says what it cost."""
        for pending in reversed(self.pending):
            pending.add_usage(usage)
            if pending is last:
                break

    def put_back(self, pending: Pending) -> None:
        """An event that was taken out goes out behind all others."""
        if pending not in self.pending:
            self.pending.append(pending)

    def remove(self, pending: Pending) -> None:
        """Take an event out, which is put back later."""
        if pending in self.pending:
            self.pending.remove(pending)

    def move(self, moving: Sequence[Pending], last: Pending | None) -> None:
        """Put these events in front of the last one, in their order."""
        # To look for each of them in a list would cost the square of what is held.
        known = {id(pending) for pending in moving}
        stay = [pending for pending in self.pending if id(pending) not in known]
        at = next((at for at, pending in enumerate(stay) if pending is last), len(stay))
        self.pending = deque([*stay[:at], *moving, *stay[at:]])

    def spare(self, choice: "Choice") -> Pending:
        """An event of our own, for what has no upstream event any more."""
        pending = Pending(b"", self.seen, choice)
        pending.changed = True
        pending.number = self.read
        self.pending.append(pending)
        return pending

    def place(self, choice: "Choice", events: list[Event], last: Pending | None = None) -> None:
        """Account for the raw text of events, one by one, and put what replaces it there."""
        for event in events:
            choice.note(event)
            if isinstance(event, Start):
                place = self._place(choice, last)
                place.chunk(choice.begin(event, place.event))
            elif isinstance(event, Args) and event.json:
                self._place(choice, last).chunk(args_chunk(choice.args_template, event.json))
            elif isinstance(event, Said):
                self._place(choice, last).say(event.text)
            elif isinstance(event, Broken):
                self.broken = event.reason
            choice.account(event)

    def _place(self, choice: "Choice", last: Pending | None) -> Pending:
        """The first event of a choice whose text is undecided."""
        return choice.pending[0] if choice.pending else last or self.spare(choice)

    def measure(self) -> None:
        """Note how much is held."""
        if self._bytes > self._facts.held_bytes_max:
            self._facts.held_bytes_max = self._bytes

    def forget(self) -> None:
        """Let go of the bytes of events whose text is undecided, the first ones first, but for the last."""
        *events, last = self.pending
        left, freed = Pending.forget(events, self.seen)
        self._bytes -= freed
        self.pending = deque([*left, last])
        for choice in {id(each.choice): each.choice for each in self.pending}.values():
            if choice is not None:
                choice.pending = deque(each for each in choice.pending if each.held)

    def close(self, raw: bytes) -> None:
        """The last of the answer: it goes out behind all that is held, whatever is decided of that."""
        self._is_over = True
        self.pass_on(raw, b"")

    def flush(self, *, everything: bool = False) -> None:
        """Let out the events that are decided, in order, as many as one step may."""
        # As many have just left, in front of the answer's end: the others leave in the next steps.
        is_spent = self.owes and everything and not self._is_over
        self._is_over = everything = everything or self._is_over
        left = 0 if is_spent else _AT_ONCE
        while self.pending and left > 0:
            first = self.pending[0]
            before = first.size
            # A run leaves in part; one in which something was changed is told as a whole, its templates are of no use.
            if isinstance(first, PendingRun) and not first.changed:
                count = first.events
                self.out.append(first.release(left, everything=everything, parts=not self.goes_on))
                left -= count - first.events
                if first.events:
                    self._bytes -= before - first.size
                    break
            elif first.is_undecided and not everything:
                break
            else:
                self.out.append(first.render())
                left -= _ANEW if first.changed else 1
            self._bytes -= before
            self.pending.popleft()
        if not self.pending:
            # Sums of what was mended or let go drift; where nothing is held there is one certain number.
            self._bytes = 0
        self.owes = left <= 0 and bool(self.pending)
