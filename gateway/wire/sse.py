"""Server-sent events over bytes: cut anywhere, ended by LF, CR or CRLF, with or without a byte order mark.

The decoder keeps each event's own bytes, so that an event nobody has to change goes on as it came: all of them joined
are the input, but for a byte order mark in front and the blank line that the last event may lack. Bounds: an event
longer than `max_event_bytes` raises `EventTooLong`; work is linear, as no byte is searched twice.
"""

import re

__all__ = [
    "DONE",
    "Boundary",
    "EventTooLong",
    "Framer",
    "SseDecoder",
    "SseEvent",
    "block_of",
    "encode",
    "first_event",
    "last_event",
    "says_nothing",
]

SseEvent = tuple[bytes, bytes | None]
"""An event's own bytes, its blank line included, and its data; None where it has none (a comment, say)."""

DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"
_LF_END = b"\n\n"
"""How nearly all servers end an event."""
_ENDS = (_LF_END, b"\n\r\n", b"\r\r")
_LONGEST_END = 3
# Any pair of line ends is a blank line, also of two kinds: `\r\n` is one and not two, so the groups are atomic.
# https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_NO_FIELD = re.compile(rb"(?:[\r\n]++|:[^\r\n]*+)*+")


class EventTooLong(ValueError):
    """An event, or a line without end, is longer than allowed."""


class Framer:
    """Hands on blocks of whole events; behind them the beginning of another is held until more has come.

    A read without any end goes on as it is: whoever takes events apart knows how long one may be.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""
        """The beginning of an event whose end has not come."""

    @property
    def is_between(self) -> bool:
        """What comes next begins an event."""
        return not self._rest

    def feed(self, data: bytes) -> bytes:
        """What has come, up to the end of its last event."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        end = data.rfind(_LF_END) + len(_LF_END)
        # Looked for from the end: one search a block, however many events it holds.
        if end < len(_LF_END) or b"\r" in data[end:]:  # behind other line ends whole events may stand
            return data
        self._rest = data[end:]
        return data[:end]

    def finish(self) -> bytes:
        """What is left of an event that did not end."""
        rest, self._rest = self._rest, b""
        return rest


class Boundary:
    """Tells of a stream that is not taken apart whether it stands between two events."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """More of the stream."""
        # A read may be of one byte: then the end lies across several of them.
        self._tail = (self._tail + data)[-_LONGEST_END:] if len(data) < _LONGEST_END else data[-_LONGEST_END:]

    @property
    def is_here(self) -> bool:
        """The bytes so far end an event, or there are none."""
        return not self._tail or self._tail.endswith(_ENDS)


def first_event(data: bytes) -> int:
    """The size of the first event, where a line feed alone ends its lines; 0 where its end has not come."""
    end = data.find(_LF_END)
    return end + len(_LF_END) if end >= 0 else 0


def last_event(data: bytes, size: int) -> int:
    """Where the last of so many bytes of whole events begins, if line feeds alone end their lines; 0 if none does."""
    end = data.rfind(_LF_END, 0, size - len(_LF_END)) if data.endswith(_LF_END, 0, size) else -1
    return end + len(_LF_END) if end >= 0 else 0


def block_of(data: bytes, size: int) -> bytes:
    """So much of what has come, up to the end of an event where there is one: whole ones are read faster."""
    if len(data) <= size:
        return data
    end = data.rfind(_LF_END, 0, size)
    return data[: end + len(_LF_END) if end >= 0 else size]


class SseDecoder:
    """Turns bytes into events."""

    __slots__ = ("_buffer", "_has_cr", "_max", "_may_owe_lf", "_scanned", "_started")

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._started = False
        self._has_cr = False
        """A carriage return is among what is waiting: any line end may come."""
        self._may_owe_lf = False
        """The last event ended in a carriage return, of which a line feed may be the other half."""

    @property
    def pending(self) -> bool:
        """An event has begun and not ended."""
        return bool(self._buffer)

    @property
    def is_between(self) -> bool:
        """What comes next begins an event, whatever it is."""
        return not self._buffer and not self._may_owe_lf

    def feed(self, data: bytes) -> list[SseEvent]:
        # One event with one line of data, as most reads bring it: nothing is kept of it.
        is_clear = not (self._buffer or self._may_owe_lf) and len(data) - 2 <= self._max
        if is_clear and data.endswith(_LF_END) and b"\r" not in data:
            lines = data.count(b"\n") - 1
            if lines == 1 and data.startswith(b"data: "):
                self._started = True
                return [(data, data[6:-2])]
            # The same with its name, as other wires have it.
            if lines == 2 and data.startswith(b"event: ") and (at := data.find(b"\ndata: ")) > 0:
                self._started = True
                return [(data, data[at + 7 : -2])]
        events: list[SseEvent] = []
        # Handed on as an event of its own without data: all bytes that came go out.
        if lf := self.owed(data):
            events.append((lf, None))
            data = data[1:]
        self._buffer += data
        if not self._started and not self._start():
            return events
        # Nearly no server sends one; the way for any line end is several times as slow.
        self._has_cr = self._has_cr or b"\r" in data
        return (self._split_any if self._has_cr else self._split_lf)(events)

    def owed(self, data: bytes) -> bytes:
        """The line feed, at the beginning of what comes next, that ends the last line of an event given out before.

        The event did not wait for it, as a carriage return may be all of a line's end.
        """
        if not self._may_owe_lf or not data:
            return b""
        self._may_owe_lf = False
        return b"\n" if data.startswith(b"\n") else b""

    def finish(self) -> list[SseEvent]:
        """The last event, completed with the blank line it lacks."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        # A client drops an event that the stream ends within, as the standard wants it: the last one is often the
        # finish.
        if not rest.strip(b"\r\n"):
            return [(rest, None)] if rest else []
        # Behind a carriage return one line feed would be its other half, not a line of its own.
        ended = rest + (b"\n" if rest.endswith(b"\n") else b"\n\n")
        return [(ended, _data(rest))]

    def _start(self) -> bool:
        """Drop a byte order mark once it can be told."""
        if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
            return False
        # The standard drops one mark at the start; openai-python does not, and loses the first event to it.
        # https://github.com/openai/openai-python/blob/main/src/openai/_streaming.py
        if self._buffer.startswith(_BOM):
            del self._buffer[: len(_BOM)]
        self._started = True
        return True

    def _split_lf(self, events: list[SseEvent]) -> list[SseEvent]:
        buffer = self._buffer
        end = buffer.rfind(_LF_END, self._scanned)
        if end < 0:
            return self._wait(events)
        whole = bytes(buffer[: end + 2])
        del buffer[: end + 2]
        for event in whole[:-2].split(_LF_END):
            if len(event) > self._max:
                raise EventTooLong(f"an event of {len(event)} bytes")
            # One line of data, as nearly all events are: nothing has to be taken apart.
            if b"\n" not in event and event.startswith(b"data: "):
                events.append((event + _LF_END, event[6:]))
            else:
                events.append((event + _LF_END, _data(event)))
        return self._wait(events)

    def _split_any(self, events: list[SseEvent]) -> list[SseEvent]:
        buffer = self._buffer
        start = 0
        while match := _END.search(buffer, max(start, self._scanned)):
            if match.start() - start > self._max:
                raise EventTooLong(f"an event of {match.start() - start} bytes")
            events.append((bytes(buffer[start : match.end()]), _data(bytes(buffer[start : match.start()]))))
            start = match.end()
            self._scanned = 0
            if start == len(buffer) and buffer[-1:] == b"\r":
                self._may_owe_lf = True
        del buffer[:start]
        self._has_cr = bool(buffer)
        return self._wait(events)

    def _wait(self, events: list[SseEvent]) -> list[SseEvent]:
        # The end may have begun in the last three bytes, of which the longest (`\r\n\r\n`) has four.
        self._scanned = max(0, len(self._buffer) - 3)
        if len(self._buffer) > self._max:
            raise EventTooLong(f"more than {self._max} bytes without an end")
        return events


def _data(event: bytes) -> bytes | None:
    """The joined `data` lines of an event."""
    if event.startswith(b"event: ") and event.count(b"\n") == 1 and b"\r" not in event:
        _, is_line, data = event.partition(b"\ndata: ")
        if is_line:
            return data
    lines = [
        # One blank behind the colon belongs to the field, as the standard has it.
        line[6:] if line.startswith(b"data: ") else line[5:]
        for line in _LINE.split(event)
        # A line without a colon is a field with nothing in it, as the standard has it.
        if line.startswith(b"data:") or line == b"data"
    ]
    return b"\n".join(lines) if lines else None


def says_nothing(raw: bytes) -> bool:
    """Whether an event has no field at all: comments and blank lines, which no client makes anything of."""
    return _NO_FIELD.fullmatch(raw) is not None


def encode(data: bytes) -> bytes:
    """One event with this data, which holds no line break."""
    return b"data: " + data + b"\n\n"
