"""Events of a wire carried through chat and back: for reading an answer whose own bytes are to go on.

Each event becomes one chunk that names it by its number. A chunk that comes back as it went stands for the event's own
bytes; only where something was made of its text does another event take its place. Calls that were found are told
behind all else, and the answer then ends for their sake. What a wire says in its events is for those who build on this.
"""

from typing import Any

import msgspec
from attrs import define

from gateway.wire.chat_chunks import any_in
from gateway.wire.sse import SseDecoder, encode

__all__ = ["MAX_EVENT_BYTES", "Carried", "EventCarrier", "dict_of", "named_event"]

MAX_EVENT_BYTES = 1 << 30
"""What is carried here was bounded where it came in."""


@define(kw_only=True)
class Carried:
    """An event on its way."""

    raw: bytes
    chat: bytes = b""
    """The chunk that stands for it."""
    event: dict[str, Any]
    is_told: bool = False
    """It, or what took its place, was given back."""

    @property
    def kind(self) -> object:
        return self.event.get("type")


class EventCarrier:
    """One streamed answer."""

    __slots__ = ("_back", "_calls", "_decoder", "_first", "_native_ids", "_number", "_on_way", "answer_id")

    def __init__(self) -> None:
        self.answer_id: str | None = None
        self._decoder = SseDecoder(MAX_EVENT_BYTES)
        self._back = SseDecoder(MAX_EVENT_BYTES)
        self._number = 0
        self._first = 1
        """Of those that are on their way the first."""
        self._on_way: dict[int, Carried] = {}
        self._calls: dict[int, dict[str, str]] = {}
        """Calls that were found."""
        self._native_ids: set[str] = set()
        """Of the server's own calls: those are told already."""

    def wrap(self, data: bytes) -> bytes:
        """Chunks for what came of the answer."""
        return b"".join(self._wrapped(raw, event) for raw, event in self._decoder.feed(data))

    def wrap_rest(self) -> bytes:
        """Chunks for what is left at its end."""
        return b"".join(self._wrapped(raw, event) for raw, event in self._decoder.finish())

    def unwrap(self, chat: bytes) -> bytes:
        """The client's events for chunks that came back."""
        return b"".join(self._unwrapped(raw, data) for raw, data in self._back.feed(chat))

    def _wrapped(self, raw: bytes, data: bytes | None) -> bytes:
        event = dict_of(any_in(msgspec.Raw(data))) if data is not None and data.strip() else {}
        return self._sent(Carried(raw=raw, event=event))

    def _sent(self, carried: Carried) -> bytes:
        self._number += 1
        chunk = {"id": str(self._number), **self._chunk(carried.event)}
        carried.chat = encode(msgspec.json.encode(chunk))
        self._on_way[self._number] = carried
        return carried.chat

    def _unwrapped(self, raw: bytes, data: bytes | None) -> bytes:
        chunk = any_in(msgspec.Raw(data)) if data is not None else None
        if not isinstance(chunk, dict):
            return b"" if data is None else self._ended()
        number = chunk.get("id")
        number = int(number) if isinstance(number, str) and number.isdigit() else 0
        carried = self._on_way.get(number)
        if carried is None:
            return self._broken(dict_of(chunk.get("error"))) if "error" in chunk else b""
        out = self._left_behind(number)
        if raw == carried.chat:
            carried.is_told = True
            return out + self._passed(carried)
        choice = dict_of(next(iter(chunk.get("choices") or ()), None))
        delta = dict_of(choice.get("delta"))
        for call in delta.get("tool_calls") or ():
            self._collect(call)
        text = delta.get("content")
        text = text if isinstance(text, str) else ""
        out += self._changed(carried, text, ends=bool(choice.get("finish_reason")))
        carried.is_told = True
        return out

    def _left_behind(self, number: int) -> bytes:
        """What is to be told of events before this one that have not come back."""
        out = b""
        while self._first < number:
            carried = self._on_way.pop(self._first, None)
            self._first += 1
            if carried is not None and not carried.is_told:
                out += self._lost(carried)
        return out

    def _collect(self, call: dict[str, Any]) -> None:
        number, function = call.get("index"), dict_of(call.get("function"))
        found = self._calls.setdefault(number if isinstance(number, int) else 0, {"id": "", "name": "", "json": ""})
        found["id"] = found["id"] or str(call.get("id") or "")
        found["name"] = found["name"] or str(function.get("name") or "")
        found["json"] += str(function.get("arguments") or "")

    def _found(self) -> list[dict[str, str]]:
        """The calls that were found, once."""
        calls, self._calls = self._calls, {}
        return [call for _, call in sorted(calls.items()) if call["id"] not in self._native_ids]

    def _own_call(self, call_id: object, name: object, arguments: str) -> dict[str, Any]:
        """The delta of a call of the server's own."""
        index = len(self._native_ids)
        self._native_ids.add(str(call_id))
        function = {"name": name, "arguments": arguments}
        return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}

    def _chunk(self, event: dict[str, Any]) -> dict[str, Any]:
        """What an event is in chat, without its number."""
        raise NotImplementedError

    def _passed(self, carried: Carried) -> bytes:
        """What is told for an event of which nothing was made."""
        raise NotImplementedError

    def _changed(self, carried: Carried, text: str, *, ends: bool) -> bytes:
        """What takes the place of an event of which this text is left; it may come back several times."""
        raise NotImplementedError

    def _lost(self, carried: Carried) -> bytes:
        """What is told for an event that does not come back."""
        raise NotImplementedError

    def _ended(self) -> bytes:
        """What is told when the chat answer has ended."""
        raise NotImplementedError

    def _broken(self, error: dict[str, Any]) -> bytes:
        """How a fault is told."""
        raise NotImplementedError


def named_event(kind: str, fields: dict[str, Any]) -> bytes:
    """One event, its type said twice."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def dict_of(value: object) -> dict[str, Any]:
    """It, if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}
