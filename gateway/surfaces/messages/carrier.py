"""Messages events carried through chat and back: for reading an answer whose own bytes are to go on.

The beginning of a block of text waits for its first text, as one that is all call must not be left behind empty; blocks
behind such a one move up. Calls that were found are told in blocks of their own behind all others.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.surfaces.carrier import Carried, EventCarrier, dict_of, named_event
from gateway.surfaces.messages.faults import told_error
from gateway.wire.chat_chunks import any_in
from gateway.wire.sse import DONE, encode

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
_END = "message_stop"


class _Text(msgspec.Struct):
    type: str
    text: msgspec.Raw


class _Delta(msgspec.Struct):
    index: int
    delta: _Text


_DELTA = msgspec.json.Decoder(_Delta)


class MessagesCarrier(EventCarrier):
    """One streamed answer."""

    __slots__ = ("_eaten", "_end", "_kept", "_last_index", "_moved", "_native", "_open", "_own_name", "_usage")

    words = b"event: content_block_delta\ndata: "

    def __init__(self, own_name: Callable[[str], str] = str) -> None:
        super().__init__()
        self._own_name = own_name
        """The name that the client knows a tool by."""
        self._last_index = -1
        self._moved = 0
        """How many places blocks have moved up."""
        self._native: dict[str, Any] | None = None
        """The call of the server's own that is open."""
        self._usage: dict[str, Any] = {}
        self._open: int | None = None
        """The block that is open for the client."""
        self._kept: list[Carried] = []
        """The beginning of a block of text that has none yet, and what came behind it."""
        self._eaten = False
        """Text of that block was made a call of."""
        self._end = b""

    def _word(self, data: bytes) -> tuple[bytes, Any] | None:
        told = _DELTA.decode(data)
        if told.delta.type != "text_delta":
            return None
        # The highest, not the last: blocks of our own come behind all that the server has told.
        self._last_index = max(self._last_index, told.index)
        return bytes(told.delta.text), True

    @property
    def is_still(self) -> bool:
        return super().is_still and not (self._kept or self._moved)

    def _word_passed(self, carried: Carried) -> bytes:
        if self._kept or self._moved:
            return self._begun() + self._own(carried)
        return carried.raw

    def _wrapped(self, raw: bytes, data: bytes | None) -> bytes:
        if data is not None and dict_of(any_in(msgspec.Raw(data))).get("type") == _END:
            # Held until the chat answer has ended: calls that are found at the end go in front of it.
            self._end = raw
            return encode(DONE)
        return super()._wrapped(raw, data)

    def _chunk(self, event: dict[str, Any]) -> dict[str, Any]:
        kind, index = event.get("type"), event.get("index")
        if isinstance(index, int):
            self._last_index = max(self._last_index, index)
        if kind == "error":
            return {"error": event.get("error") or {"message": "error"}}
        delta: dict[str, Any] = {}
        reason = None
        if kind == "message_start":
            message = dict_of(event.get("message"))
            self.answer_id = message["id"] if isinstance(message.get("id"), str) else None
            self._learn(message.get("usage"))
            delta = {"role": "assistant"}
        elif kind == "content_block_start":
            block = dict_of(event.get("content_block"))
            # Tools that the vendor's server runs itself have blocks of their own, and are nobody's to call.
            self._native = {**block, "json": ""} if block.get("type") == "tool_use" else None
            if isinstance(block.get("text"), str) and block["text"]:
                delta = {"content": block["text"]}
        elif kind == "content_block_delta":
            delta = self._delta(dict_of(event.get("delta")))
        elif kind == "content_block_stop" and self._native is not None:
            native, self._native = self._native, None
            # A server that streams no pieces gives them with the beginning of the block.
            arguments = native["json"] or msgspec.json.encode(native.get("input") or {}).decode()
            delta = self._own_call(native.get("id"), native.get("name"), arguments)
        elif kind == "message_delta":
            told = dict_of(event.get("delta")).get("stop_reason")
            # It may come several times, with the usage alone: only the one that names a reason is the end.
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
        # Added up over the answer: the input is told at its beginning and the output at its end, else null.
        self._usage.update({key: value for key, value in dict_of(usage).items() if value is not None})

    def _passed(self, carried: Carried) -> bytes:
        match carried.kind:
            case "content_block_start" if dict_of(carried.event.get("content_block")).get("text") == "":
                out = self._begun()
                self._kept, self._eaten = [carried], False
                return out
            # A client that shows blocks would show an empty bubble, and the API refuses an empty text when it comes
            # back: https://github.com/anthropics/claude-code/issues/59812
            case "content_block_stop" if self._kept and self._eaten:
                return self._left_out()
            # Kept in its place: behind the beginning of the block that the client has not been told yet.
            case "ping" if self._kept:
                self._kept.append(carried)
                return b""
        return self._begun() + self._own(carried)

    def _begun(self) -> bytes:
        """The beginning that was kept."""
        kept, self._kept = self._kept, []
        return b"".join(self._own(each) for each in kept)

    def _left_out(self) -> bytes:
        """A block all of whose text was made a call of."""
        # The pings behind the beginning are told: they may be all that keeps the connection alive.
        others, self._kept = self._kept[1:], []
        self._moved += 1
        return b"".join(self._own(each) for each in others)

    def _own(self, carried: Carried) -> bytes:
        """An event as it came, but for its place."""
        index = carried.event.get("index")
        if carried.kind == "content_block_start" and isinstance(index, int):
            self._open = index
        elif carried.kind == "content_block_stop":
            self._open = None
        # Untouched while no block was left out: the client gets the server's own bytes.
        if not self._moved or not isinstance(index, int):
            return carried.raw
        return named_event(str(carried.kind), {**carried.event, "index": index - self._moved})

    def _lost(self, carried: Carried) -> bytes:
        if carried.kind == "content_block_delta":
            self._eaten = True
            return b""
        return self._passed(carried)

    def _changed(self, carried: Carried, text: str, *, ends: bool) -> bytes:
        out = b""
        if carried.kind == "content_block_stop":  # a call of the server's own, whose beginning is told already
            out = self._said(text) if text else b""
            return out if carried.is_told else out + self._passed(carried)
        if text:
            out = self._text(text, carried.event.get("index"))
        elif carried.kind == "content_block_delta":
            self._eaten = True
        return out + self._finish(carried) if ends else out

    def _said(self, text: str) -> bytes:
        return self._text(text, self._open)

    def _text(self, text: str, index: object) -> bytes:
        told = {"type": "text_delta", "text": text}
        out = self._begun()
        # Into the block that is open: text of its own behind it would stand in two bubbles.
        if isinstance(index, int) and index == self._open:
            return out + named_event("content_block_delta", {"index": index - self._moved, "delta": told})
        return out + self._block_of({"type": "text", "text": ""}, told)

    def _block_of(self, block: dict[str, Any], delta: dict[str, Any]) -> bytes:
        """A block of our own, behind all others."""
        self._last_index += 1
        index = {"index": self._last_index - self._moved}
        return (
            named_event("content_block_start", {**index, "content_block": block})
            + named_event("content_block_delta", {**index, "delta": delta})
            + named_event("content_block_stop", index)
        )

    def _finish(self, carried: Carried) -> bytes:
        """The end of the answer, for the sake of the calls that were found."""
        calls = self._found()
        out = self._begun() + b"".join(
            self._block_of(
                {"type": "tool_use", "id": call["id"], "name": self._own_name(call["name"]), "input": {}},
                {"type": "input_json_delta", "partial_json": call["json"] or "{}"},
            )
            for call in calls
        )
        if not calls:
            return out + carried.raw
        fields = {**carried.event}
        # Clients run calls by this word.
        fields["delta"] = {**dict_of(fields.get("delta")), "stop_reason": "tool_use", "stop_sequence": None}
        return out + named_event("message_delta", fields)

    def _ended(self) -> bytes:
        return self._left_behind(len(self._on_way)) + self._begun() + self._end

    def _broken(self, error: dict[str, Any]) -> bytes:
        return self._begun() + named_event("error", {"error": told_error(error)})

    def whole(self, raw: bytes, chat: bytes) -> bytes:
        """A whole answer with what was made of it in chat."""
        message, read = any_in(msgspec.Raw(raw)), any_in(msgspec.Raw(chat))
        choice: dict[str, Any] = next(iter(dict_of(read).get("choices") or ()), {})
        told = dict_of(choice.get("message"))
        if not isinstance(message, dict):
            return raw
        given = message.get("content")
        content = given if isinstance(given, list) else []
        own = {block.get("id") for block in content if block.get("type") == "tool_use"}
        made = [call for call in told.get("tool_calls") or () if isinstance(call, dict)]
        calls = [call for call in made if call.get("id") not in own]
        if not calls:
            return raw
        text = told["content"] if isinstance(told.get("content"), str) else ""
        blocks = []
        for block in content:
            if block.get("type") != "text":
                blocks.append(block)
                continue
            # Calls are only ever taken out of the text, so what is left is dealt out to the blocks in their order.
            piece, text = text[: len(block["text"])], text[len(block["text"]) :]
            if piece:
                blocks.append({**block, "text": piece})
        for call in calls:
            function = dict_of(call.get("function"))
            name = self._own_name(str(function.get("name")))
            given = msgspec.Raw(str(function.get("arguments") or "{}").encode())
            blocks.append({"type": "tool_use", "id": call.get("id"), "name": name, "input": given})
        return msgspec.json.encode({**message, "content": blocks, "stop_reason": "tool_use", "stop_sequence": None})


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
