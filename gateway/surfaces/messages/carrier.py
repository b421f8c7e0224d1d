"""Messages events carried through chat and back: for reading an answer whose own bytes are to go on.

Each event becomes one chunk that names it by its number. A chunk that comes back as it went stands for the event's own
bytes; only where something was made of its text does another event take its place. Calls that were found are told in
blocks of their own behind all others, and the answer then ends for their sake.
"""

from typing import Any

import msgspec

from gateway.surfaces.messages.faults import told_error
from gateway.wire.chat_chunks import any_in
from gateway.wire.sse import DONE, SseDecoder, encode

__all__ = ["MessagesCarrier"]

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_MAX_EVENT_BYTES = 1 << 30


class MessagesCarrier:
    """One streamed answer."""

    __slots__ = (
        "_back",
        "_block",
        "_calls",
        "_decoder",
        "_end",
        "_events",
        "_last_index",
        "_native",
        "_natives",
        "_number",
        "_open",
        "_usage",
        "answer_id",
    )

    def __init__(self) -> None:
        self.answer_id: str | None = None
        self._decoder = SseDecoder(_MAX_EVENT_BYTES)
        self._back = SseDecoder(_MAX_EVENT_BYTES)
        self._events: dict[int, tuple[bytes, bytes, int]] = {}
        """By its number: an event, the chunk that stands for it, and the block that it belongs to."""
        self._number = 0
        self._block = 0
        self._last_index = -1
        self._native: dict[str, Any] | None = None
        """The call of the server's own that is open."""
        self._natives = 0
        self._usage: dict[str, Any] = {}
        self._open: int | None = None
        """The block that is open for the client."""
        self._calls: dict[int, dict[str, str]] = {}
        """Calls that were found."""
        self._end = b""

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
        event = any_in(msgspec.Raw(data)) if data is not None and data.strip() else None
        event = event if isinstance(event, dict) else {}
        if event.get("type") == "message_stop":
            self._end = raw
            return encode(DONE)
        self._number += 1
        chunk: dict[str, Any] = {"id": str(self._number), **self._chunk(event)}
        chat = encode(msgspec.json.encode(chunk))
        self._events[self._number] = (raw, chat, self._block)
        return chat

    def _chunk(self, event: dict[str, Any]) -> dict[str, Any]:
        kind, index = event.get("type"), event.get("index")
        if isinstance(index, int):
            self._block = index
            self._last_index = max(self._last_index, index)
        if kind == "error":
            return {"error": event.get("error") or {"message": "error"}}
        delta: dict[str, Any] = {}
        reason = None
        if kind == "message_start":
            message = _dict(event.get("message"))
            self.answer_id = message["id"] if isinstance(message.get("id"), str) else None
            self._learn(message.get("usage"))
            delta = {"role": "assistant"}
        elif kind == "content_block_start":
            block = _dict(event.get("content_block"))
            self._native = {**block, "json": ""} if block.get("type") == "tool_use" else None
            if isinstance(block.get("text"), str) and block["text"]:
                delta = {"content": block["text"]}
        elif kind == "content_block_delta":
            delta = self._delta(_dict(event.get("delta")))
        elif kind == "content_block_stop" and self._native is not None:
            delta, self._native = {"tool_calls": [_native_call(self._native, self._natives)]}, None
            self._natives += 1
        elif kind == "message_delta":
            told = _dict(event.get("delta")).get("stop_reason")
            reason = _REASONS.get(told, "stop") if isinstance(told, str) else None
            self._learn(event.get("usage"))
        chunk: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        if reason is not None and self._usage:
            chunk["usage"] = _chat_usage(self._usage)
        return chunk

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        match delta.get("type"):
            case "text_delta":
                return {"content": delta.get("text")}
            case "thinking_delta":
                return {"reasoning_content": delta.get("thinking")}
            case "input_json_delta" if self._native is not None:
                self._native["json"] += str(delta.get("partial_json") or "")
        return {}

    def _learn(self, usage: object) -> None:
        self._usage.update({key: value for key, value in _dict(usage).items() if value is not None})

    def _unwrapped(self, raw: bytes, data: bytes | None) -> bytes:
        if data == DONE:
            return self._end
        chunk = any_in(msgspec.Raw(data)) if data is not None else None
        if not isinstance(chunk, dict):
            return b""
        number = chunk.get("id")
        known = self._events.get(int(number)) if isinstance(number, str) and number.isdigit() else None
        if known is None:
            return _event("error", {"error": told_error(_dict(chunk.get("error")))}) if "error" in chunk else b""
        own, sent, block = known
        if raw == sent:
            self._pass(own)
            return own
        choice: dict[str, Any] = next(iter(chunk.get("choices") or ()), {})
        return self._changed(choice, own, block)

    def _pass(self, own: bytes) -> None:
        """An event goes on as it came: which block is open then."""
        if b"content_block_start" in own[:64]:
            self._open = self._index_of(own)
        elif b"content_block_stop" in own[:64]:
            self._open = None

    def _index_of(self, own: bytes) -> int | None:
        [*_, (_, data)] = SseDecoder(_MAX_EVENT_BYTES).feed(own) or [(b"", None)]
        index = _dict(any_in(msgspec.Raw(data or b""))).get("index")
        return index if isinstance(index, int) else None

    def _changed(self, choice: dict[str, Any], own: bytes, block: int) -> bytes:
        """What takes the place of an event."""
        delta = _dict(choice.get("delta"))
        out = b""
        if b"content_block_stop" in own[:64]:  # a call of the server's own, whose beginning is told already
            self._open = None
            return own
        if isinstance(delta.get("content"), str) and delta["content"]:
            out += self._text(delta["content"], block)
        for call in delta.get("tool_calls") or ():
            self._collect(call)
        if choice.get("finish_reason"):
            out += self._finish(own)
        return out

    def _text(self, text: str, block: int) -> bytes:
        told = {"type": "text_delta", "text": text}
        if block == self._open:
            return _event("content_block_delta", {"index": block, "delta": told})
        return self._block_of({"type": "text", "text": ""}, told)

    def _block_of(self, block: dict[str, Any], delta: dict[str, Any]) -> bytes:
        """A block of our own, behind all others."""
        self._last_index += 1
        index = {"index": self._last_index}
        return (
            _event("content_block_start", {**index, "content_block": block})
            + _event("content_block_delta", {**index, "delta": delta})
            + _event("content_block_stop", index)
        )

    def _collect(self, call: dict[str, Any]) -> None:
        number, function = call.get("index"), _dict(call.get("function"))
        found = self._calls.setdefault(number if isinstance(number, int) else 0, {"id": "", "name": "", "json": ""})
        found["id"] = found["id"] or str(call.get("id") or "")
        found["name"] = found["name"] or str(function.get("name") or "")
        found["json"] += str(function.get("arguments") or "")

    def _finish(self, own: bytes) -> bytes:
        """The end of the answer, for the sake of the calls that were found."""
        calls, self._calls = self._calls, {}
        out = b"".join(
            self._block_of(
                {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}},
                {"type": "input_json_delta", "partial_json": call["json"] or "{}"},
            )
            for _, call in sorted(calls.items())
        )
        if not calls:
            return own
        [*_, (_, data)] = SseDecoder(_MAX_EVENT_BYTES).feed(own) or [(b"", None)]
        event = _dict(any_in(msgspec.Raw(data or b"")))
        fields = {key: value for key, value in event.items() if key != "type"}
        fields["delta"] = {**_dict(event.get("delta")), "stop_reason": "tool_use", "stop_sequence": None}
        return out + _event("message_delta", fields)

    def whole(self, raw: bytes, chat: bytes) -> bytes:
        """A whole answer with what was made of it in chat."""
        message, read = any_in(msgspec.Raw(raw)), any_in(msgspec.Raw(chat))
        choice: dict[str, Any] = next(iter(_dict(read).get("choices") or ()), {})
        told = _dict(choice.get("message"))
        calls = [call for call in told.get("tool_calls") or () if isinstance(call, dict)]
        if not isinstance(message, dict) or not calls:
            return raw
        given = message.get("content")
        content = given if isinstance(given, list) else []
        own = {block.get("id") for block in content if block.get("type") == "tool_use"}
        text = told["content"] if isinstance(told.get("content"), str) else ""
        blocks = []
        for block in content:
            if block.get("type") != "text":
                blocks.append(block)
                continue
            piece, text = text[: len(block["text"])], text[len(block["text"]) :]
            if piece:
                blocks.append({**block, "text": piece})
        for call in calls:
            function = _dict(call.get("function"))
            if call.get("id") not in own:
                given = msgspec.Raw(str(function.get("arguments") or "{}").encode())
                blocks.append({"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": given})
        return msgspec.json.encode({**message, "content": blocks, "stop_reason": "tool_use", "stop_sequence": None})


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def _native_call(block: dict[str, Any], index: int) -> dict[str, Any]:
    arguments = block["json"] or msgspec.json.encode(block.get("input") or {}).decode()
    return {
        "index": index,
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }


def _chat_usage(usage: dict[str, Any]) -> dict[str, Any]:
    read, written, fresh = (
        _count(usage.get(name)) for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
    )
    return {
        "prompt_tokens": fresh + read + written,
        "completion_tokens": _count(usage.get("output_tokens")),
        "prompt_tokens_details": {"cached_tokens": read},
    }


def _count(value: object) -> int:
    return value if type(value) is int else 0


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
