"""Whole answers and streamed ones, turned into each other, for servers that do not answer as they were asked."""

from typing import Any

import msgspec
from attrs import define, field

from gateway.core.errors import UpstreamBadReply, UpstreamTruncated
from gateway.wire.chat_chunks import BadChunk, decode_object, encode_object, usage_chunk
from gateway.wire.sse import DONE, SseDecoder, encode

__all__ = ["body_to_stream", "stream_to_body"]


def body_to_stream(body: bytes) -> bytes:
    """A whole answer as a stream: one chunk, its usage, `[DONE]`; for a server that did not stream though asked."""
    try:
        answer = decode_object(body)
    except BadChunk as error:
        raise UpstreamBadReply("the model server's answer is not a JSON object") from error
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        return encode_object(answer) + encode(DONE)
    usage = answer.pop("usage", None)
    answer["object"] = "chat.completion.chunk"
    answer["choices"] = [_as_delta(choice) for choice in choices if isinstance(choice, dict)]
    # Usage has a chunk without choices of its own: clients hold back, or lose, a chunk that has both.
    # https://github.com/continuedev/continue/pull/13162
    out = [encode_object(answer)]
    if usage is not None:
        out.append(usage_chunk(answer, usage))
    return b"".join((*out, encode(DONE)))


def _as_delta(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    delta = dict(message) if isinstance(message, dict) else {}
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [
            {"index": number, **call} for number, call in enumerate(delta["tool_calls"]) if isinstance(call, dict)
        ]
    return {**{key: value for key, value in choice.items() if key != "message"}, "delta": delta}


def stream_to_body(data: bytes) -> bytes:
    """A stream gathered into one whole answer; for a server that streamed though it was not asked to."""
    decoder = SseDecoder(len(data) + 1)
    answer: dict[str, Any] = {}
    choices: dict[int, _Gathered] = {}
    done = False
    try:
        for _, event in [*decoder.feed(data), *decoder.finish()]:
            if event is None or not event.strip():
                continue
            if event == DONE:
                done = True
                break
            chunk = decode_object(event)
            # vLLM and SGLang tell a fault that comes up within a stream as an event of its own.
            if chunk.get("error") and not chunk.get("choices"):
                return msgspec.json.encode(chunk)
            for choice in chunk.pop("choices", None) or []:
                choices.setdefault(choice.get("index") or 0, _Gathered()).add(choice)
            answer.update({key: value for key, value in chunk.items() if value is not None})
        whole = [choices[index].whole(index) for index in sorted(choices)]
    except (BadChunk, AttributeError, TypeError, ValueError) as error:
        raise UpstreamBadReply("the model server's answer is not a chat completion") from error
    # An answer that was cut would pass for a whole one, and its last call would be carried out as far as it came.
    if not done and not all(choice.is_finished for choice in choices.values()):
        raise UpstreamTruncated("connection lost: the model server's answer ended too early")
    answer["object"] = "chat.completion"
    answer["choices"] = whole
    return msgspec.json.encode(answer)


@define
class _Gathered:
    """One choice, gathered from its chunks."""

    fields: dict[str, Any] = field(factory=dict)
    message: dict[str, Any] = field(factory=dict)
    texts: dict[str, list[str]] = field(factory=dict)
    calls: list[dict[str, Any]] = field(factory=list)
    arguments: list[list[str]] = field(factory=list)

    @property
    def is_finished(self) -> bool:
        return self.fields.get("finish_reason") is not None

    def add(self, choice: dict[str, Any]) -> None:
        """One more chunk."""
        for key, value in (choice.get("delta") or {}).items():
            if key == "tool_calls" and value:
                for delta in value:
                    self._add_call(delta)
            elif isinstance(value, str) and key != "role":
                self.texts.setdefault(key, []).append(value)
            elif value is not None or key not in self.message:
                self.message[key] = value
        self.fields.update({k: v for k, v in choice.items() if k not in ("delta", "index") and v is not None})

    def _add_call(self, delta: dict[str, Any]) -> None:
        number = delta.get("index")
        if not isinstance(number, int) or not 0 <= number < len(self.calls):
            self.calls.append({"id": None, "type": "function", "function": {"name": ""}})
            self.arguments.append([])
            number = len(self.calls) - 1
        call, function = self.calls[number], delta.get("function") or {}
        # The first one counts: later pieces repeat it, or hold null
        # (https://github.com/ggml-org/llama.cpp/issues/13800).
        call["id"] = call["id"] or delta.get("id")
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        arguments = function.get("arguments")
        if arguments:
            self.arguments[number].append(
                # https://github.com/ggml-org/llama.cpp/issues/20198
                arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            )

    def whole(self, index: int) -> dict[str, Any]:
        """The choice as it stands in a whole answer."""
        message = {"role": "assistant", "content": None, **self.message}
        message.update({key: "".join(texts) for key, texts in self.texts.items()})
        if self.calls:
            for call, pieces in zip(self.calls, self.arguments, strict=True):
                call["function"]["arguments"] = "".join(pieces)
            message["tool_calls"] = self.calls
        return {"finish_reason": None, **self.fields, "index": index, "message": message}
