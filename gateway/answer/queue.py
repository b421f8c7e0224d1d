"""One upstream event, or a run of alike ones, on its way to the client: undecided, then itself or what replaces it."""

import re
from array import array
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import frozen

from gateway.wire.chat_chunks import (
    BadChunk,
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

__all__ = ["Pending", "PendingRun", "Template", "last_events", "text_of"]

_PLAIN = rb'[^"\\\x00-\x1f]*+'
_BODY = rb'%b(?:\\(?:["\\/bfnrt]|u%b[0-9a-fA-F]{4})%b)*+'
"""A JSON string's body; told by runs of plain characters, as one character at a time costs ten times as much."""
_CONTENT = re.compile(rb'"content":\s*"(%b)"' % (_BODY % (_PLAIN, b"", _PLAIN)))
_WHOLE = _BODY % (_PLAIN, rb"(?![dD][89a-fA-F])", _PLAIN)
_BODIES = re.compile(rb"%b(?:\x00%b)*+" % (_WHOLE, _WHOLE))
"""Bodies with a zero between them, which none can hold; no half of a character stands for itself."""
_UNSAFE = re.compile(rb'["\x00-\x1f]')


class Pending:
    """One upstream event: how much of its content is undecided, and what is to go out in its place."""

    __slots__ = (
        "_data",
        "_event",
        "_parts",
        "_raw",
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
        if self._event is None:
            self._event = decode_object(self._data)
        return self._event

    @property
    def size(self) -> int:
        return len(self._raw)

    def replace(self, raw: bytes) -> None:
        """The event has been mended."""
        self._raw = raw

    def forget(self, data: bytes) -> int:
        """Let go of the event's own bytes: its text will be told in a chunk made after `data`. Returns what it held."""
        size = self.size
        self._raw, self._data, self.changed = b"", data, True
        return size

    def add_usage(self, more: object) -> None:
        """Another answer is part of this one: where the event says what it cost, both are told."""
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

    def finish_calls(self, moved: Mapping[int, int | None], *, keeps_legacy: bool) -> int:
        """Leave out the calls that are dropped, and number the others anew; how many of those there are."""
        delta = self.event["choices"][0]["delta"]
        calls = delta.get("tool_calls")
        calls = calls if isinstance(calls, list) else []
        is_changed, renumbered = False, 0
        left = []
        for call in calls:
            index = call.get("index") if isinstance(call, dict) else None
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

    def _emptied(self) -> None:
        """Something was taken out of the event: nothing of it is left where that was all."""
        choice = self.event["choices"][0]
        is_empty = not any(value is not None and value != "" for value in choice["delta"].values())
        is_alone = choice.get("finish_reason") is None and not self.event.get("usage")
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
        rebuilt = not self.size
        for is_text, parts in groupby(self._parts, key=lambda part: isinstance(part, str)):
            if not is_text:
                out += parts  # type: ignore[arg-type]
            elif text := "".join(parts):  # type: ignore[arg-type]
                out.append(
                    text_chunk(self.event, self.choice.index, text) if rebuilt else rebuilt_chunk(self.event, text)
                )
                rebuilt = True
        if not rebuilt and (self.opens or has_more_than_content(self.event)):
            out.insert(0, rebuilt_chunk(self.event, ""))
        if self.finish:
            out.append(finish_chunk(self.event, self.choice.index, self.finish))
        return b"".join(out)

    def _bytes(self) -> bytes:
        return self._raw


@frozen
class Template:
    """What all content events of an answer have in common: everything before and behind the content."""

    head: bytes
    tail: bytes
    data: bytes
    gap: bytes
    """The tail of one event and the head of the next."""

    @classmethod
    def of(cls, raw: bytes, data: bytes, text: str) -> "Template | None":
        """The template of the event with this content; None where it cannot be told for certain."""
        match = _CONTENT.search(raw)
        if match is None or raw.count(b'"content"') != 1 or not raw.endswith(b"}\n\n") or raw.count(b"\n") != 2:
            return None
        if text_of([match.group(1)]) != text:
            return None
        head, tail = raw[: match.start(1)], raw[match.end(1) :]
        return cls(head, tail, data, tail + head)

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


def text_of(contents: list[bytes]) -> str | None:
    """The text of JSON string bodies; None where one of them is not plainly valid."""
    joined = b"".join(contents)
    if b"\\" in joined:
        if not _BODIES.fullmatch(b"\0".join(contents)):
            return None
    elif _UNSAFE.search(joined):
        return None
    try:
        if not joined.isascii():
            for content in contents:
                content.decode()
        return msgspec.json.decode(b'"' + joined + b'"', type=str) if b"\\" in joined else joined.decode()
    except ValueError:
        return None


def _count(content: bytes) -> int:
    """The characters of a JSON string's body that `text_of` has taken."""
    if b"\\" in content:
        return len(msgspec.json.decode(b'"' + content + b'"', type=str))
    return len(content) if content.isascii() else len(content.decode())


def last_events(contents: list[bytes], chars: int) -> tuple[int, int]:
    """How many events at the end hold the last characters of a run, and how many characters those events have."""
    count = size = 0
    while size < chars:
        count += 1
        size += _count(contents[-count])
    return count, size


class PendingRun(Pending):
    """A run of content events made after one template, kept as their contents and lengths alone.

    Its first events leave as soon as they are decided; where they end in the contents is told by an offset, which is
    taken off when half of what is kept is gone, so that a run costs the same for each of its events however long it is.
    """

    __slots__ = ("_contents", "_decided", "_first", "_head", "_lengths", "_start", "template")

    def __init__(self, template: Template, choice: "Choice") -> None:
        super().__init__(b"", template.data, choice)
        self.template = template
        self._contents = bytearray()
        self._lengths = array("L")
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
        self._lengths.extend(map(len, contents))

    def text(self, text: str) -> None:
        super().text(text)
        self._decided += len(text)

    def release(self) -> bytes:
        """The first events, as far as every character of theirs is decided to be text."""
        if self.changed:
            return b""
        begun, first, last = self._start, self._first, len(self._lengths)
        while first < last:
            end = self._start + self._lengths[first]
            if self._head < 0:
                self._head = _count(bytes(self._contents[self._start : end]))
            if self._head > self._decided:
                break
            self._decided -= self._head
            self._start, self._head = end, -1
            first += 1
        if first == self._first:
            return b""
        told = "".join(self._parts)  # type: ignore[arg-type]
        self._parts = [told[len(told) - self._decided :]] if self._decided else []
        out = self._events(begun, self._first, first)
        self.number += first - self._first
        self._first = first
        if self._start > len(self._contents) // 2:
            del self._contents[: self._start]
            del self._lengths[:first]
            self._start = self._first = 0
        return out

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
