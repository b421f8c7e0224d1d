"""Events of a wire carried through chat and back: for reading an answer whose own bytes are to go on.

Each event becomes one chunk that names it by its number. A chunk that comes back as it went stands for the event's own
bytes; only where something was made of its text does another event take its place. Calls that were found are told
behind all else, and the answer then ends for their sake. What a wire says in its events is for those who build on this.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from attrs import define, field

from gateway.surfaces.words import WordTemplate
from gateway.wire.calm import Calm
from gateway.wire.chat_chunks import any_in
from gateway.wire.sse import SseDecoder, encode

__all__ = ["MAX_EVENT_BYTES", "Carried", "EventCarrier", "dict_of", "named_event"]

MAX_EVENT_BYTES = 1 << 30
"""What is carried here was bounded where it came in."""
_END = b"\n\n"
_HEAD, _TAIL = b'data: {"choices":[{"index":0,"delta":{"content":', b'},"finish_reason":null}]}\n\n'
"""Around the text of a word: all are cast alike, so that nobody takes each apart."""
_CONTENT = b'"content":'
_MOST_TEMPLATES = 16
"""A server whose events of text are all of another shape is not looked at for one again and again."""


@define(kw_only=True)
class Carried:
    """An event on its way."""

    raw: bytes
    chat: bytes = b""
    """The chunk that stands for it."""
    number: int = 0
    """By which its chunk is known; a word has none: it is known by its text and its order."""
    word: Any = None
    """What of a word has to be known."""
    is_told: bool = False
    """It, or what took its place, was given back."""
    _event: dict[str, Any] | None = field(default=None)

    @property
    def event(self) -> dict[str, Any]:
        """What it says."""
        # Decoded only where something of it is asked for: of most events nothing is.
        if self._event is None:
            [*_, (_, data)] = SseDecoder(MAX_EVENT_BYTES).feed(self.raw) or [(b"", None)]
            self._event = dict_of(any_in(msgspec.Raw(data))) if data is not None and data.strip() else {}
        return self._event

    @property
    def kind(self) -> object:
        return self.event.get("type")

    @property
    def is_text(self) -> bool:
        """It stands for text, all of which a call may be made of; else it comes back in any case."""
        return self.word is not None or _CONTENT in self.chat


class EventCarrier:
    """One streamed answer."""

    __slots__ = (
        "_back",
        "_calls",
        "_calm",
        "_decoder",
        "_last",
        "_native_ids",
        "_number",
        "_on_way",
        "_pieces",
        "_template",
        "_templates",
        "_unheard",
        "answer_id",
    )
    words = b""
    """How an event of text begins."""
    notes_words = False
    """Of words that go on unread has to be known what they said, and the last of them."""

    def __init__(self) -> None:
        self.answer_id: str | None = None
        self._decoder = SseDecoder(MAX_EVENT_BYTES)
        self._back = SseDecoder(MAX_EVENT_BYTES)
        self._number = 0
        self._on_way: deque[Carried] = deque()
        """In their order."""
        self._calls: dict[int, dict[str, str]] = {}
        """Calls that were found."""
        self._native_ids: set[str] = set()
        """Of the server's own calls: those are told already."""
        self._template: WordTemplate | None = None
        """What events of text look like that follow the last."""
        self._templates = _MOST_TEMPLATES
        """How many may still be taken."""
        self._unheard = self._last = b""
        """The last event that went on unread, where nobody has asked for it, and where nothing was taken down of it."""
        self._pieces: list[bytes] = []
        """What those have said of which nothing was: bodies of JSON strings."""
        self._calm: tuple[WordTemplate, Calm, Calm | None] | None = None

    @property
    def is_still(self) -> bool:
        """Nothing is under way, and a word goes on as it came."""
        return self._template is not None and not (self._on_way or self._decoder.pending or self._back.pending)

    @property
    def head(self) -> bytes:
        """What stands in the chunks of words before their text."""
        return _HEAD + b'"'

    def passes(
        self, data: bytes, hear: Callable[[bytes], bytes | None], word: Callable[[bytes], bool] | None
    ) -> bytes | None:
        """What goes on of an event of text and of one that has waited, as they came; None where it is to be read.

        `hear` says it of chunks, `word` of texts that go on at once. This may be asked while this stands still, and
        from then on until it is to be read.
        """
        template = self._template
        if template is None:
            return None
        # Events that carry a number or a time of their own differ from each other, and are matched piece by piece.
        if template.stamps:
            text = template.read(data)
            if text is None:
                return None
        else:  # the same, as most wires have it
            start, end = len(template.head), len(data) - len(template.tail)
            if start >= end or not data.startswith(template.head) or not data.endswith(template.tail):
                return None
            text = data[start:end]
        if word is not None and word(text[1:-1]):
            if self.notes_words:
                self._pieces.append(text[1:-1])
                self._unheard = self._last = data
            return data
        chat = _HEAD + text + _TAIL
        out = hear(chat)
        if out is None:
            return None
        on_way = self._on_way
        # All of the chunk has come back, so all of the event goes on: `hear` gives bytes as they came, or keeps them.
        if not on_way and len(out) == len(chat):
            if self.notes_words:
                self._pieces.append(text[1:-1])
                self._unheard = self._last = data
            return data
        waited = sum(len(carried.chat) for carried in on_way)
        told = b"".join(map(self._word_passed, on_way)) if out else b""
        if out:
            on_way.clear()
        if len(out) == waited + len(chat):
            if self.notes_words:
                self._pieces.append(text[1:-1])
                self._unheard = self._last = data
            return told + data
        # Nothing may come behind it here: what follows is read, and finds it on its way.
        self._word_sent(data)  # it waits for the next, which decides it
        return told

    def calm(self, chat: Calm | None) -> Calm | None:
        """How events of text look whose chunks look so."""
        template = self._template
        if chat is None or template is None:
            return None
        if self._calm is None or self._calm[0] is not template or self._calm[1] is not chat:
            self._calm = template, chat, template.calm(chat)
        return self._calm[2]

    def overlook(self, texts: list[bytes], last: bytes) -> None:
        """Events with these texts have gone on unread, up to this one."""
        if self.notes_words:
            self._pieces += texts
            self._unheard = self._last = last

    def unheard(self) -> bytes:
        """The last event that went on unread, once."""
        last, self._unheard = self._unheard, b""
        return last

    def wrap(self, data: bytes) -> bytes:
        """Chunks for what came of the answer."""
        # One whole event of text, as most reads bring it: it is found without a decoder.
        if not self._decoder.pending and data.endswith(_END) and data.count(b"\n") == 3:
            chat = self._word_sent(data)
            if chat:
                return chat
        return b"".join(self._wrapped(raw, event) for raw, event in self._decoder.feed(data))

    def wrap_rest(self) -> bytes:
        """Chunks for what is left at its end."""
        return b"".join(self._wrapped(raw, event) for raw, event in self._decoder.finish())

    def unwrap(self, chat: bytes) -> bytes:
        """The client's events for chunks that came back."""
        # Most events come back just as they went, and need not be taken apart for that.
        if self._is_next(chat):
            return self._next_passed()
        return b"".join([self._unwrapped(raw, data) for raw, data in self._back.feed(chat)])

    def _is_next(self, chat: bytes) -> bool:
        """Whether this is the chunk of the first event on its way, as it went."""
        on_way = self._on_way
        return bool(on_way) and chat == on_way[0].chat and not on_way[0].is_told

    def _next_passed(self) -> bytes:
        """What is told for the first event on its way, which has come back as it went."""
        carried = self._on_way.popleft()
        return self._passed(carried) if carried.word is None else self._word_passed(carried)

    def _word_sent(self, raw: bytes) -> bytes:
        """The chunk of an event that is nothing but text; empty where it is another."""
        if not raw.startswith(self.words):
            return b""
        try:
            found = self._word(raw[len(self.words) : -len(_END)])
        except (msgspec.DecodeError, ValueError):
            return b""
        # A field that holds no text is for whoever takes events apart.
        if found is None or found[0][:1] != b'"':
            return b""
        text, word = found
        if self._template is None or self._template.read(raw) is None:
            self._template = WordTemplate.of(raw, text) if self._templates else None
            # Counted down for good: a server that changes its form all the time is read event by event.
            self._templates = max(0, self._templates - 1)
        chat = _HEAD + text + _TAIL
        self._on_way.append(Carried(raw=raw, chat=chat, word=word))
        return chat

    def _wrapped(self, raw: bytes, data: bytes | None) -> bytes:
        chat = self._word_sent(raw) if raw.endswith(_END) and raw.count(b"\n") == 3 else b""
        if chat:
            return chat
        event = dict_of(any_in(msgspec.Raw(data))) if data is not None and data.strip() else {}
        return self._sent(Carried(raw=raw, event=event))

    def _sent(self, carried: Carried) -> bytes:
        self._number += 1
        carried.number = self._number
        # The number takes the place of the id, so that what comes back says itself for which event it stands.
        chunk = {"id": str(self._number), **self._chunk(carried.event)}
        carried.chat = encode(msgspec.json.encode(chunk))
        self._on_way.append(carried)
        return carried.chat

    def _unwrapped(self, raw: bytes, data: bytes | None) -> bytes:
        if self._is_next(raw):
            return self._next_passed()
        chunk = any_in(msgspec.Raw(data)) if data is not None else None
        if not isinstance(chunk, dict):
            return b"" if data is None else self._ended()
        number = chunk.get("id")
        number = int(number) if isinstance(number, str) and number.isdigit() else 0
        # Text that a reader held back is told anew, and has lost its number.
        at = self._place_of(number) if number else self._place_of_text(raw)
        # A fault of ours has no event of the server's that it stands for.
        if at is None and "error" in chunk:
            return self._broken(dict_of(chunk["error"]))
        # What stands before it has not come back and never will: the answer keeps its order.
        out = self._left_behind(at or 0)
        carried = None if at is None else self._on_way[0]
        if carried is not None and self._is_next(raw):
            return out + self._next_passed()
        choice = dict_of(next(iter(chunk.get("choices") or ()), None))
        delta = dict_of(choice.get("delta"))
        for call in delta.get("tool_calls") or ():
            self._collect(call)
        text = delta.get("content")
        text = text if isinstance(text, str) else ""
        if carried is None:
            return out + self._said(text) if text else out
        out += self._changed(carried, text, ends=bool(choice.get("finish_reason")))
        carried.is_told = True
        return out

    def _place_of(self, number: int) -> int | None:
        """Where the event with this number stands among those on their way."""
        return next((at for at, each in enumerate(self._on_way) if each.number == number), None)

    def _place_of_text(self, chat: bytes) -> int | None:
        """Where the event stands that a chunk without a number is made of: the first that it can be."""
        changed = None
        for at, each in enumerate(self._on_way):
            if each.is_told:
                continue
            if not each.is_text:
                break
            if each.chat == chat:
                return at
            changed = at if changed is None else changed
        # What a reader holds back may come out in several pieces: all of them stand for the event that held it.
        if changed is None and self._on_way and self._on_way[0].is_told:
            return 0
        return changed

    def _left_behind(self, count: int) -> bytes:
        """What is to be told of the first events, which have not come back."""
        out = b""
        for _ in range(count):
            carried = self._on_way.popleft()
            if not carried.is_told:
                out += self._lost(carried)
        return out

    def _collect(self, call: dict[str, Any]) -> None:
        number, function = call.get("index"), dict_of(call.get("function"))
        found = self._calls.setdefault(number if isinstance(number, int) else 0, {"id": "", "name": "", "json": ""})
        # The first that is named holds: pieces repeat the id and the name, or leave them empty.
        found["id"] = found["id"] or str(call.get("id") or "")
        found["name"] = found["name"] or str(function.get("name") or "")
        found["json"] += str(function.get("arguments") or "")

    def _found(self) -> list[dict[str, str]]:
        """The calls that were found, once."""
        calls, self._calls = self._calls, {}
        # The server has told its own already; a client that gets one twice runs it twice.
        return [call for _, call in sorted(calls.items()) if call["id"] not in self._native_ids]

    def _own_call(self, call_id: object, name: object, arguments: str) -> dict[str, Any]:
        """The delta of a call of the server's own."""
        index = len(self._native_ids)
        self._native_ids.add(str(call_id))
        function = {"name": name, "arguments": arguments}
        return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}

    def _word(self, data: bytes) -> tuple[bytes, Any] | None:
        """Of an event that may be nothing but text: the JSON string of that, and what has to be known of it."""
        raise NotImplementedError

    def _word_passed(self, carried: Carried) -> bytes:
        """What is told for a word of which nothing was made."""
        raise NotImplementedError

    def _chunk(self, event: dict[str, Any]) -> dict[str, Any]:
        """What an event is in chat, without its number."""
        raise NotImplementedError

    def _passed(self, carried: Carried) -> bytes:
        """What is told for an event of which nothing was made."""
        raise NotImplementedError

    def _changed(self, carried: Carried, text: str, *, ends: bool) -> bytes:
        """What takes the place of an event of which this text is left; it may come back several times."""
        raise NotImplementedError

    def _said(self, text: str) -> bytes:
        """What is told for text that no event stands for."""
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
