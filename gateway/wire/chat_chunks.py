"""OpenAI chat chunks and bodies: what matters of them is decoded by type, what must change is rebuilt from its own.

A chunk that is not changed is never decoded further than its content, finish reason and calls, and goes on as bytes.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.wire.sse import encode

__all__ = [
    "NOT_GIVEN",
    "REASONING_FIELDS",
    "BadChunk",
    "Chunk",
    "ChunkChoice",
    "Delta",
    "any_in",
    "args_chunk",
    "args_template",
    "call_start_chunk",
    "decode_chunk",
    "decode_object",
    "encode_object",
    "finish_chunk",
    "has_more_than_content",
    "has_reasoning",
    "holds_half_a_character",
    "is_given",
    "rebuilt_chunk",
    "string_in",
    "text_chunk",
    "token_counts",
    "usage_chunk",
]

# DeepSeek's field, OpenRouter's and Ollama's: https://api-docs.deepseek.com/guides/reasoning_model
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""The fields of a message that reasoning comes in, split from what is said."""


NOT_GIVEN = msgspec.Raw()
"""Of a field that is not there; told by identity, as most are not."""
_NO_THOUGHTS = (NOT_GIVEN, NOT_GIVEN, NOT_GIVEN)


class Delta(msgspec.Struct):
    """The part of a choice's delta that is read."""

    content: str | None = None
    role: str | None = None
    tool_calls: msgspec.Raw = NOT_GIVEN
    # The form before `tool_calls`, deprecated and still sent: https://platform.openai.com/docs/guides/function-calling
    function_call: msgspec.Raw = NOT_GIVEN
    reasoning_content: msgspec.Raw = NOT_GIVEN
    reasoning: msgspec.Raw = NOT_GIVEN
    thinking: msgspec.Raw = NOT_GIVEN
    refusal: msgspec.Raw = NOT_GIVEN
    audio: msgspec.Raw = NOT_GIVEN

    @property
    def thoughts(self) -> list[tuple[str, bytes]]:
        """The fields with reasoning, and the JSON string of each."""
        fields = zip(REASONING_FIELDS, map(bytes, (self.reasoning_content, self.reasoning, self.thinking)), strict=True)
        return [(name, raw) for name, raw in fields if raw[:1] == b'"' and raw != b'""']

    @property
    def reasons(self) -> bool:
        """Whether it holds reasoning in a field of its own."""
        fields = (self.reasoning_content, self.reasoning, self.thinking)
        if fields == _NO_THOUGHTS:
            return False
        return any(raw[:1] == b'"' and raw != b'""' for raw in map(bytes, fields))

    @property
    def is_silent(self) -> bool:
        """Whether none of the fields is there in which something is said besides text and calls."""
        return (
            self.reasoning_content is NOT_GIVEN
            and self.reasoning is NOT_GIVEN
            and self.thinking is NOT_GIVEN
            and self.refusal is NOT_GIVEN
            and self.audio is NOT_GIVEN
        )

    @property
    def says_otherwise(self) -> bool:
        """Whether it says what a client can see in no text and no call: a refusal, or sound."""
        return any(is_given(raw) and bytes(raw) != b'""' for raw in (self.refusal, self.audio))


class ChunkChoice(msgspec.Struct):
    """One choice of a chunk."""

    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    """One chunk."""

    id: msgspec.Raw = NOT_GIVEN
    choices: list[ChunkChoice] | None = None
    # In every chunk by some servers, at the end by OpenAI: https://github.com/sgl-project/sglang/issues/12241
    usage: msgspec.Raw = NOT_GIVEN
    error: msgspec.Raw = NOT_GIVEN


class BadChunk(ValueError):
    """An event's data is no JSON object, or no valid text."""


_CHUNK = msgspec.json.Decoder(Chunk)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_DEPTH = 8
"""How deep what can be decoded is looked for around what cannot: as deep as a call's arguments stand in an answer."""
_MOST_TOKENS = 1 << 53
_COUNTS = (("input", "prompt_tokens"), ("output", "completion_tokens"))
_NOTHING = (b"", b"null", b"[]", b"{}")


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a field is there and says something."""
    return raw is not NOT_GIVEN and bytes(raw) not in _NOTHING


def string_in(raw: msgspec.Raw) -> str | None:
    """The string that a field holds."""
    return msgspec.json.decode(raw, type=str) if bytes(raw).startswith(b'"') else None


def any_in(raw: msgspec.Raw) -> Any:
    """What a field holds; None for what cannot be told."""
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None


def decode_chunk(data: bytes) -> Chunk | None:
    """The chunk that an event's data holds; None for an object of another shape, which is passed on unread."""
    try:
        # The decoder looks at the text of those fields alone that are read; a fault in any other is the client's to
        # meet.
        if not data.isascii():
            data.decode()
        return _CHUNK.decode(data)
    except msgspec.ValidationError:
        decode_object(data)
        return None
    except (ValueError, RecursionError) as error:
        # Servers that detokenize piece by piece cut an emoji in two, and escape each half:
        # https://www.rfc-editor.org/rfc/rfc8259#section-8.2
        if holds_half_a_character(data):
            return None
        raise BadChunk("not a JSON event") from error


def holds_half_a_character(data: bytes) -> bool:
    """Whether all that is wrong is an escaped surrogate without its other half, which clients can read."""
    try:
        # Only Python's own reader lets half a character through: it is asked where the fast one has refused.
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return isinstance(value, dict)
    return False


def decode_object(data: bytes) -> dict[str, Any]:
    """A JSON object, whole; a number in it that no number here can be stays `msgspec.Raw`, as it is written."""
    try:
        value = _decode(data, _DEPTH)
    except (ValueError, RecursionError) as error:
        raise BadChunk("not a JSON object") from error
    if not isinstance(value, dict):
        raise BadChunk("not a JSON object")
    return value


def _decode(data: bytes | msgspec.Raw, depth: int) -> Any:
    try:
        return msgspec.json.decode(data)
    # A number beyond 64 bits, which Python's integers could hold and msgspec's cannot.
    except msgspec.ValidationError:  # not of what is no JSON
        first = bytes(data).lstrip()[:1]
    if first == b"{" and depth:
        return {key: _decode(value, depth - 1) for key, value in _FIELDS.decode(data).items()}
    if first == b"[" and depth:
        return [_decode(value, depth - 1) for value in _ITEMS.decode(data)]
    return msgspec.Raw(bytes(data))


def encode_object(event: dict[str, Any]) -> bytes:
    """An event with this object as its data."""
    return encode(msgspec.json.encode(event))


def _chunk(event: dict[str, Any], index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
    """A chunk of the same answer as `event`, with what all chunks of one answer share."""
    shared = {key: value for key, value in event.items() if key not in ("choices", "usage")}
    shared["choices"] = [{"index": index, "delta": delta, "finish_reason": finish}]
    return encode_object(shared)


def text_chunk(event: dict[str, Any], index: int, text: str) -> bytes:
    """A chunk of content alone."""
    return _chunk(event, index, {"content": text})


def rebuilt_chunk(event: dict[str, Any], text: str) -> bytes:
    """The event with other content: all its fields but what belonged to the old content or comes at the end."""
    choice = event["choices"][0]
    # They speak of the tokens that the old content had.
    kept = {key: value for key, value in choice.items() if key != "logprobs"}
    delta = {key: value for key, value in (choice.get("delta") or {}).items() if key != "tool_calls"}
    # The finish that follows brings the usage: told twice, a client would count it twice.
    shared = {key: value for key, value in event.items() if key != "usage" or not choice.get("finish_reason")}
    return encode_object({**shared, "choices": [{**kept, "delta": {**delta, "content": text}, "finish_reason": None}]})


def has_more_than_content(event: dict[str, Any]) -> bool:
    """Whether the event says anything beside content, role and finish."""
    choice = event["choices"][0]
    delta = choice.get("delta") or {}
    said = any(value for key, value in delta.items() if key not in ("content", "role"))
    return said or (bool(event.get("usage")) and not choice.get("finish_reason"))


def has_reasoning(message: Mapping[str, Any]) -> bool:
    """Whether a whole message holds reasoning in a field of its own, as `Delta.reasons` says of a part of one."""
    for name in REASONING_FIELDS:
        text = message.get(name)
        if text and isinstance(text, str):
            return True
    return False


def call_start_chunk(event: dict[str, Any], index: int, number: int, call_id: str, name: str, *, role: bool) -> bytes:
    """The first chunk of a call; with the role when it is the choice's first chunk."""
    # Name whole and arguments empty in the first piece: clients that add up names as well double them otherwise
    # (https://github.com/BerriAI/litellm/issues/20480).
    call = {"index": number, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    delta: dict[str, Any] = {"role": "assistant", "content": None} if role else {}
    return _chunk(event, index, {**delta, "tool_calls": [call]})


def args_template(event: dict[str, Any], index: int, number: int) -> tuple[bytes, bytes]:
    """What stands before and behind the argument text in all chunks of one call's arguments."""
    chunk = _chunk(event, index, {"tool_calls": [{"index": number, "function": {"arguments": ""}}]})
    # From the right: a field of the server's own before it may hold the same words.
    head, name, tail = chunk.rpartition(b'"arguments":""')
    return head + name[:-2], tail


def args_chunk(template: tuple[bytes, bytes], arguments: str) -> bytes:
    """A chunk of a call's arguments."""
    return template[0] + msgspec.json.encode(arguments) + template[1]


def finish_chunk(event: dict[str, Any], index: int, reason: str) -> bytes:
    """The chunk that ends a choice, with the usage its event brought."""
    choices = event.get("choices") or [{}]
    kept = {key: value for key, value in choices[0].items() if key != "logprobs"}
    return encode_object({**event, "choices": [{**kept, "index": index, "delta": {}, "finish_reason": reason}]})


def usage_chunk(event: dict[str, Any], usage: Any) -> bytes:
    """A chunk that brings nothing but the usage."""
    return encode_object({**event, "choices": [], "usage": usage})


def token_counts(usage: object) -> dict[str, int]:
    """The token counts of a usage object, as far as they can be any."""
    if not isinstance(usage, dict):
        return {}
    counts: dict[str, int] = {}
    for name, field in _COUNTS:
        value = usage.get(field)
        # `True` is an int to Python, and a sum beyond 2^53 is none any more where JavaScript reads it.
        if type(value) is int and 0 <= value < _MOST_TOKENS:
            counts[name] = value
    return counts
