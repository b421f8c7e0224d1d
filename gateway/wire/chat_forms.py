"""Whole answers and streamed ones, turned into each other, for servers that do not answer as they were asked."""

from typing import Any

from gateway.core.errors import UpstreamBadReply
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
    choices: dict[int, dict[str, Any]] = {}
    try:
        for _, event in [*decoder.feed(data), *decoder.finish()]:
            if event is None or event == DONE or not event.strip():
                continue
            chunk = decode_object(event)
            if chunk.get("error") and not chunk.get("choices"):
                return encode_object(chunk)[len(b"data: ") : -2]
            for choice in chunk.pop("choices", None) or []:
                index = choice.get("index") or 0
                _gather(choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None}), choice)
            answer.update({key: value for key, value in chunk.items() if value is not None})
    except (BadChunk, AttributeError, TypeError) as error:
        raise UpstreamBadReply("the model server's answer is not a chat completion") from error
    answer["object"] = "chat.completion"
    answer["choices"] = [choices[index] for index in sorted(choices)]
    return encode_object(answer)[len(b"data: ") : -2]


def _gather(whole: dict[str, Any], choice: dict[str, Any]) -> None:
    """Add one chunk of a choice to what is there of it."""
    message = whole["message"]
    for key, value in (choice.get("delta") or {}).items():
        if key == "tool_calls" and value:
            _gather_calls(message.setdefault("tool_calls", []), value)
        elif isinstance(value, str) and key != "role":
            message[key] = (message.get(key) or "") + value
        elif value is not None or key not in message:
            message[key] = value
    whole.update({key: value for key, value in choice.items() if key not in ("delta", "index") and value is not None})


def _gather_calls(calls: list[dict[str, Any]], deltas: list[dict[str, Any]]) -> None:
    for delta in deltas:
        number = delta.get("index")
        if not isinstance(number, int) or number < 0 or number >= len(calls):
            calls.append({"id": delta.get("id"), "type": "function", "function": {"name": "", "arguments": ""}})
            number = len(calls) - 1
        function = delta.get("function") or {}
        known = calls[number]["function"]
        known["name"] = known["name"] or function.get("name") or ""
        arguments = function.get("arguments")
        known["arguments"] = (
            known["arguments"] + arguments if isinstance(arguments, str) else arguments or known["arguments"]
        )
