"""Events of the Responses API carried through chat and back: for reading an answer whose own bytes are to go on.

The beginning of a message waits for its first text, as one that is all call must not be left behind empty. Where text
was made a call of, the events that close its message say what is left, what comes behind has other places and numbers,
and the last event's `output` says what was told. Calls that were found are items behind all others.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.surfaces.carrier import Carried, EventCarrier, dict_of, named_event
from gateway.surfaces.heard import string_of
from gateway.surfaces.responses.calls import CALLS, history_call
from gateway.surfaces.responses.errors import told_fault
from gateway.surfaces.responses.telling import ResponsesTelling
from gateway.surfaces.toolnames import ToolNames
from gateway.surfaces.words import number_of
from gateway.wire.chat_chunks import any_in
from gateway.wire.sse import DONE, encode

__all__ = ["ResponsesCarrier"]

_CREATED = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_THOUGHTS = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_THOUGHT = frozenset({"response.reasoning_text.done", "response.reasoning_summary_text.done"})
_TEXT = "response.output_text.delta"
_CLOSING = frozenset({"response.output_text.done", "response.content_part.done", "response.output_item.done"})
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_NO_NAMES = ToolNames()
Key = tuple[int, int]
"""Where a text stands: the places of its item and of its part."""


class _Delta(msgspec.Struct):
    delta: msgspec.Raw
    output_index: int
    content_index: int = 0
    sequence_number: int | None = None


_DELTA = msgspec.json.Decoder(_Delta)


class ResponsesCarrier(EventCarrier):
    """One answer; `tell` makes what tells the items that are added to it."""

    __slots__ = (
        "_given",
        "_is_moved",
        "_items",
        "_kept",
        "_left",
        "_moved",
        "_next",
        "_open",
        "_open_key",
        "_own_calls",
        "_response",
        "_tail",
        "_tell",
        "_thought",
        "_told",
    )

    words = b"event: response.output_text.delta\ndata: "
    notes_words = True

    def __init__(self, tell: Callable[[], ResponsesTelling]) -> None:
        super().__init__()
        self._tell = tell
        self._tail: ResponsesTelling | None = None
        """Tells what is added."""
        self._response: dict[str, Any] = {}
        """The response as the server has told it first."""
        self._own_calls = 0
        self._given: set[Key] = set()
        """Texts of which pieces came."""
        self._thought: set[Key] = set()
        """The same of reasoning."""
        self._told: dict[Key, list[bytes]] = {}
        """What the client was told of each: bodies of JSON strings."""
        self._open: Carried | None = None
        """The last word that was read of the message that is open."""
        self._open_key: Key = (-1, -1)
        """Where the text of the last word stands that was read."""
        self._kept: list[Carried] = []
        """The beginning of a message that has no text yet, and what came behind it."""
        self._items: list[bytes] = []
        """The items that are done for the client."""
        self._left: dict[int, bytes | None] = {}
        """What is left of messages that were changed, by their places; None: nothing."""
        self._moved = 0
        """How many places items have moved up."""
        self._next: int | None = None
        """The number of the next event."""
        self._is_moved = False
        """Numbers are no more the server's own."""

    # --- to chat

    def _word(self, data: bytes) -> tuple[bytes, Any] | None:
        told = _DELTA.decode(data)
        self._open_key = told.output_index, told.content_index
        # Noted though it goes through unread: the end of the text repeats it all, and must not be read as new.
        self._given.add(self._open_key)
        return bytes(told.delta), told

    @property
    def is_still(self) -> bool:
        # Once numbers or places differ from the server's, every event has to be written anew.
        return super().is_still and self._open is not None and not (self._kept or self._is_moved or self._moved)

    def wrap(self, data: bytes) -> bytes:
        self._catch_up()
        return super().wrap(data)

    def wrap_rest(self) -> bytes:
        self._catch_up()
        return super().wrap_rest()

    def unwrap(self, chat: bytes) -> bytes:
        self._catch_up()
        return super().unwrap(chat)

    def _catch_up(self) -> None:
        """Take down what has gone on unread."""
        if not self._last:
            return
        self._told.setdefault(self._open_key, []).append(b"".join(self._pieces))
        self._pieces.clear()
        # Of the last one alone: those before it counted up to it.
        number, self._last = number_of(self._last), b""
        if number is not None:
            self._next = number + 1

    def _word_passed(self, carried: Carried) -> bytes:
        self._catch_up()
        word: _Delta = carried.word
        self._open = carried
        self._told.setdefault((word.output_index, word.content_index), []).append(bytes(word.delta)[1:-1])
        if self._kept or self._is_moved or self._moved:
            return self._begun() + self._own(carried)
        if word.sequence_number is not None:
            self._next = word.sequence_number + 1
        return carried.raw

    def _sent(self, carried: Carried) -> bytes:
        chat = super()._sent(carried)
        # This wire ends with an event of its own; what reads chat waits for `[DONE]`.
        return chat + encode(DONE) if carried.kind in _ENDS else chat

    def _chunk(self, event: dict[str, Any]) -> dict[str, Any]:
        kind = event.get("type")
        # Two forms: the stream's own fault, and an answer that failed with its response around it.
        if kind in ("error", "response.failed"):
            error = dict_of(event.get("response")).get("error") or event.get("error") or event
            return {"error": error if isinstance(error, dict) else {"message": str(error)}}
        delta: dict[str, Any] = {}
        told: dict[str, Any] = {}
        reason = None
        if kind == _TEXT:
            self._given.add(_key(event))
            delta = {"content": event.get("delta")}
        elif kind in _CLOSING:
            delta = self._closed(event)
        elif kind in _THOUGHTS:
            self._thought.add(_key_of_thought(event))
            delta = {"reasoning_content": event.get("delta")}
        elif kind in _THOUGHT:
            delta = self._thinks(_key_of_thought(event), event.get("text"))
        elif kind == "response.refusal.delta":
            delta = {"refusal": event.get("delta")}
        elif kind in _CREATED:
            # Told twice, as created and as in progress: the answer has one beginning.
            delta = {} if self._response else {"role": "assistant"}
            self._response = self._response or dict_of(event.get("response"))
            self.answer_id = str(self._response["id"]) if "id" in self._response else None
        elif kind in _ENDS:
            response = dict_of(event.get("response"))
            # For a reason that is not known `length` is the careful word: a call that it cuts is none.
            why = _REASONS.get(str(dict_of(response.get("incomplete_details")).get("reason")), "length")
            whole = "tool_calls" if self._own_calls else "stop"
            reason = whole if kind == "response.completed" else why
            told = _chat_usage(dict_of(response.get("usage")))
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **told}

    def _closed(self, event: dict[str, Any]) -> dict[str, Any]:
        """What the end of a text, a part or an item says that was not said before."""
        item = dict_of(event.get("item"))
        # A call is told where its item is done: its pieces would have to be taken back if it is mended.
        if str(item.get("type")) in CALLS:
            self._own_calls += 1
            name, arguments = history_call(_NO_NAMES, item)
            return self._own_call(item.get("call_id") or item.get("id"), name, arguments)
        if item.get("type") == "reasoning":
            place = _place(event.get("output_index"))
            # By its place alone, as one item may tell its thoughts in several summaries.
            is_told = any(place == known for known, _ in self._thought)
            return {} if is_told else self._thinks((place, 0), _thought_in(item))
        said = _only_text(event)
        key = _key(event)
        if said is None or key in self._given:
            return {}
        self._given.add(key)
        return {"content": said} if said else {}

    def _thinks(self, key: Key, text: object) -> dict[str, Any]:
        """Reasoning of which no pieces came: some servers tell it once it is whole."""
        if key in self._thought or not text or not isinstance(text, str):
            return {}
        self._thought.add(key)
        return {"reasoning_content": text}

    # --- and back

    def _passed(self, carried: Carried) -> bytes:
        kind = carried.kind
        if kind == _TEXT:
            self._say(carried, str(carried.event.get("delta") or ""))
        elif kind in _CLOSING:
            said = _only_text(carried.event)
            # Some servers tell a text at its end alone.
            if said is not None and _key(carried.event) not in self._told and _says(carried):
                self._say(carried, said)
            return self._close(carried)
        elif kind == "response.output_item.added" and _is_message(carried):
            out = self._begun()
            # Held back until there is a word in it: a message whose text becomes a call must not be left empty.
            self._kept = [carried]
            return out
        elif self._kept and (kind == "response.content_part.added" or kind in _CREATED):
            self._kept.append(carried)
            return b""
        elif kind in _ENDS:
            return self._end(carried)
        return self._begun() + self._own(carried)

    def _changed(self, carried: Carried, text: str, *, ends: bool) -> bytes:
        # Numbers have no holes at the servers, and parsers of clients are known to mind one:
        # https://github.com/ENTERPILOT/GoModel/pull/953
        if carried.is_told:
            # Numbers go up by one, and clients may hold a stream to that.
            self._is_moved = True  # it takes the place of one event more
        if ends:
            return (self._said(text) if text else b"") + self._end(carried)
        if carried.kind in _CLOSING and carried.is_told:
            return self._said(text) if text else b""
        if carried.kind in _CLOSING:
            if text:
                self._say(carried, text)
            return self._close(carried)
        if carried.kind != _TEXT:
            return self._said(text) if text else b""
        if not text:
            return b"" if carried.is_told else self._left_out()
        return self._say_as(carried, text)

    def _said(self, text: str) -> bytes:
        # No message is open to say it in, so it gets one of its own at the end.
        if self._open is None:
            return self._added(text)
        # An event more than the server counted.
        self._is_moved = True
        return self._say_as(self._open, text)

    def _say_as(self, carried: Carried, text: str) -> bytes:
        self._open = carried
        self._say(carried, text)
        return self._begun() + self._own(carried, delta=text, logprobs=[])

    def _lost(self, carried: Carried) -> bytes:
        return self._left_out() if carried.kind == _TEXT else self._passed(carried)

    def _ended(self) -> bytes:
        return self._left_behind(len(self._on_way)) + self._begun()

    def _broken(self, error: dict[str, Any]) -> bytes:
        fault = told_fault(error)
        response = {**self._response, "status": "failed", "error": fault}
        # Never left out: a client in Rust gave up the whole turn for want of it,
        # https://github.com/Wei-Shaw/sub2api/pull/7129
        number = 0 if self._next is None else self._next
        told = {"sequence_number": number, "response": response}
        return self._begun() + named_event("response.failed", told)

    def _say(self, carried: Carried, text: str) -> None:
        self._told.setdefault(_key(carried.event), []).append(msgspec.json.encode(text)[1:-1])

    def _told_of(self, key: Key) -> str:
        """The text that the client was told."""
        return string_of(b"".join(self._told.get(key, ())))

    def _begun(self) -> bytes:
        """The beginning that was kept."""
        if not self._kept:
            return b""
        kept, self._kept = self._kept, []
        return b"".join([self._own(each) for each in kept])

    def _own(self, carried: Carried, **changes: Any) -> bytes:
        """An event as it came, but for what is changed, its place and its number."""
        event = carried.event
        number, place = event.get("sequence_number"), event.get("output_index")
        if isinstance(number, int):
            # Counted on from what the client has seen, not corrected by a difference: the server's may have holes.
            if self._is_moved and self._next is not None:
                changes["sequence_number"] = number = self._next
            self._next = number + 1
        if self._moved and isinstance(place, int):
            changes["output_index"] = place - self._moved
        return named_event(str(carried.kind), {**event, **changes}) if changes else carried.raw

    def _left_out(self) -> bytes:
        """An event is not told: what comes behind it has another number."""
        self._is_moved = True
        return b""

    def _close(self, carried: Carried) -> bytes:
        """The end of a text, of its part or of an item."""
        event = carried.event
        if carried.kind == "response.output_item.done":
            return self._close_item(carried)
        self._open = None
        key = _key(event)
        told = self._told_of(key)
        is_part = carried.kind == "response.content_part.done"
        given = _only_text(event)
        # The usual case, and then the event goes on byte for byte.
        if given is None or given == told:
            return self._begun() + self._own(carried)
        # Neither its beginning nor its end is told, so nobody misses it.
        if not told and self._kept:
            return self._left_out()
        changes: dict[str, Any] = {"part": _cut(event["part"], told)} if is_part else {"text": told, "logprobs": []}
        return self._begun() + self._own(carried, **changes)

    def _close_item(self, carried: Carried) -> bytes:
        self._open = None
        place = _place(carried.event.get("output_index"))
        item = dict_of(carried.event.get("item"))
        parts = item.get("content") if _is_message(carried) else None
        content = parts if isinstance(parts, list) else []
        left = [
            _cut(part, self._told_of((place, number))) if _is_text(part) else part
            for number, part in enumerate(content)
        ]
        if left == content:
            out = self._begun() + self._own(carried)
            # Kept as bytes: the end of the answer only repeats it.
            self._items.append(msgspec.json.encode(item))
            return out
        # All its text became a call: what is left says nothing, and clients would show an empty message.
        if self._kept and not any(not _is_text(part) or part["text"] for part in left):
            self._left_out()
            self._kept = []
            self._left[place] = None
            self._moved += 1
            return b""
        told = msgspec.json.encode({**item, "content": left})
        self._left[place] = told
        out = self._begun() + self._own(carried, item=msgspec.Raw(told))
        self._items.append(told)
        return out

    def _behind(self) -> ResponsesTelling:
        if self._tail is None:
            self._tail = self._tell()
        self._tail.go_on(self._next or 0, self._items)
        return self._tail

    def _added(self, text: str) -> bytes:
        """A message of our own, behind all others."""
        tail = self._behind()
        tail.text(msgspec.json.encode(text)[1:-1])
        return self._added_by(tail)

    def _added_by(self, tail: ResponsesTelling) -> bytes:
        self._is_moved = True
        out, self._next = tail.close_items()
        return self._begun() + out

    def _end(self, carried: Carried) -> bytes:
        """The end of the answer: its output is what was told."""
        out = self._begun()
        count = len(self._items)
        calls = self._found()
        if calls:
            tail = self._behind()
            for call in calls:
                tail.call(call["id"], call["name"], call["json"] or "{}")
            out += self._added_by(tail)
        if not (calls or self._left or self._tail is not None):
            return out + self._own(carried)
        # Its other fields are the server's own: usage, ids and times stay what they were.
        response = dict_of(carried.event.get("response"))
        given = response.get("output")
        output = self._output(given if isinstance(given, list) else [])
        output += [msgspec.Raw(item) for item in self._items[count:]]
        return out + self._own(carried, response={**response, "output": output})

    def _output(self, given: list[Any]) -> list[Any]:
        told: list[Any] = []
        for place, item in enumerate(given):
            left = self._left.get(place, b"")
            if left is not None:
                told.append(msgspec.Raw(left) if left else item)
        return told

    def whole(self, raw: bytes, chat: bytes) -> bytes:
        """A whole answer with what was made of it in chat."""
        response, read = any_in(msgspec.Raw(raw)), any_in(msgspec.Raw(chat))
        choice: dict[str, Any] = dict_of(next(iter(dict_of(read).get("choices") or ()), None))
        message = dict_of(choice.get("message"))
        output = dict_of(response).get("output")
        if not isinstance(response, dict) or not isinstance(output, list):
            return raw
        # Calls that the server told itself keep their items, with all that chat has no word for.
        own = {str(dict_of(item).get("call_id") or dict_of(item).get("id")) for item in output}
        made = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        calls = [call for call in made if call.get("id") not in own]
        if not calls:
            return raw
        told = _filled(output, str(message.get("content") or ""))
        tail = self._behind()
        for call in calls:
            function = dict_of(call.get("function"))
            tail.call(str(call.get("id")), str(function.get("name")), str(function.get("arguments") or "{}"))
        tail.close_items()
        return msgspec.json.encode({**response, "output": [*told, *map(msgspec.Raw, self._items)]})


def _filled(output: list[Any], text: str) -> list[Any]:
    """The items with this text in their messages, in the place of what they said; one left without any is gone."""
    told: list[Any] = []
    for item in output:
        parts = item.get("content") if dict_of(item).get("type") == "message" else None
        if not isinstance(parts, list):
            told.append(item)
            continue
        left = []
        for part in parts:
            if _is_text(part):
                # What is left of the text is the beginning of what was: it is dealt out to the parts in their order.
                said, text = text[: len(part["text"])], text[len(part["text"]) :]
                part = _cut(part, said)
            left.append(part)
        if any(not _is_text(part) or part["text"] for part in left):
            told.append({**item, "content": left})
    return told


def _key(event: dict[str, Any]) -> Key:
    return _place(event.get("output_index")), _place(event.get("content_index", 0))


def _key_of_thought(event: dict[str, Any]) -> Key:
    return _place(event.get("output_index")), _place(event.get("summary_index", event.get("content_index", 0)))


def _thought_in(item: dict[str, Any]) -> str:
    """What an item of reasoning tells: its text, else its summary."""
    for parts in (item.get("content"), item.get("summary")):
        texts = [dict_of(part).get("text") for part in parts] if isinstance(parts, list) else []
        if told := "\n\n".join(text for text in texts if isinstance(text, str) and text):
            return told
    return ""


def _place(value: object) -> int:
    return value if type(value) is int else -1


def _is_message(carried: Carried) -> bool:
    return dict_of(carried.event.get("item")).get("type") == "message"


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "output_text" and isinstance(part.get("text"), str)


def _says(carried: Carried) -> bool:
    """Whether it stands for text in chat."""
    return b'"content":' in carried.chat


def _only_text(event: dict[str, Any]) -> str | None:
    """The one text that the end of something tells; None where it tells none, or several."""
    if isinstance(event.get("text"), str):
        return str(event["text"])
    part = event.get("part")
    if part is None:
        content = dict_of(event.get("item")).get("content")
        part = content[0] if isinstance(content, list) and len(content) == 1 else None
    return dict_of(part).get("text") if _is_text(part) else None


def _cut(part: dict[str, Any], told: str) -> dict[str, Any]:
    """A part of which this text is left, and what is said of that."""
    if part["text"] == told:
        return part
    given = part.get("annotations")
    notes = [each for each in given if _ends_within(each, len(told))] if isinstance(given, list) else []
    # They point at places of the text, which are no more where they were.
    return {**part, "text": told, "annotations": notes, "logprobs": []}


def _ends_within(note: object, size: int) -> bool:
    end = dict_of(note).get("end_index")
    return type(end) is not int or end <= size


def _chat_usage(usage: dict[str, Any]) -> dict[str, Any]:
    given, made = usage.get("input_tokens"), usage.get("output_tokens")
    if type(given) is not int or type(made) is not int:
        return {}
    cached = dict_of(usage.get("input_tokens_details")).get("cached_tokens")
    details = {"cached_tokens": cached if type(cached) is int else 0}
    return {"usage": {"prompt_tokens": given, "completion_tokens": made, "prompt_tokens_details": details}}
