"""What is given in the place of a swallowed turn: the call that its text holds, or the answer to one more question."""

from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import frozen
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.choice import MakeId
from gateway.answer.facts import Facts
from gateway.answer.rescue.faces import Swallowed, is_visible, of_body
from gateway.core.errors import GatewayError
from gateway.core.limits import Limits
from gateway.wire.chat_chunks import BadChunk, decode_object
from gateway.wire.chat_reshape import body_to_stream
from gateway.wire.usage import summed_usage
from strategies.base import Prepared

__all__ = ["SIMPLER", "Remedy", "from_answer", "from_text", "is_in_reasoning", "paid", "streamed", "with_usage"]

# What servers that make a grammar of a schema fail at: patterns and long bounds, references, conditions.
# https://github.com/ggml-org/llama.cpp/issues/26596 https://github.com/ggml-org/llama.cpp/issues/25746
SIMPLER = (
    *("pattern", "format", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"),
    *("not", "if", "then", "else", "allOf", "contains", "minContains", "maxContains", "propertyNames"),
    *("patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "prefixItems"),
    *("unevaluatedProperties", "unevaluatedItems", "$ref", "$defs", "definitions"),
)
"""Keywords that a schema can be told without, where the whole of it could not be compiled."""
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@frozen(kw_only=True)
class Remedy:
    """An answer for the client, whole, and what was found in it."""

    body: bytes
    facts: Facts
    has_call: bool


def from_text(
    swallowed: Swallowed, reading: Prepared, *, model: str, answer_id: str, now: int, make_id: MakeId, limits: Limits
) -> Remedy | None:
    """The right call that the text of an error holds, by all the rules that text is read by."""
    if not swallowed.text.strip() or reading.make_reader is None:
        return None
    choice = {"index": 0, "message": {"role": "assistant", "content": swallowed.text}, "finish_reason": "stop"}
    head = {"id": answer_id, "object": "chat.completion", "created": now, "model": model}
    remedy = _read(msgspec.json.encode({**head, "choices": [choice]}), reading, make_id, limits)
    if remedy is None or not remedy.has_call:
        return None
    # Of a text without its beginning only what follows at once is known to be whole: what stands further behind may
    # be the second of two calls.
    return None if swallowed.is_rest and _words(remedy.body) else remedy


def from_answer(body: bytes, prepared: Prepared, *, make_id: MakeId, limits: Limits) -> Remedy | None:
    """What the answer to one more question gives; nothing where it was swallowed, too, or says nothing."""
    if of_body(body) is not None:
        return None
    return _read(body, prepared, make_id, limits)


def is_in_reasoning(body: bytes, prepared: Prepared, *, make_id: MakeId, limits: Limits) -> bool:
    """Whether the reasoning of an answer ends in the call that its server has not made of it."""
    if not prepared.reads_reasoning:
        return False
    remedy = _read(body, prepared, make_id, limits)
    return remedy is not None and remedy.has_call


def paid(remedy: Remedy, swallowed: bytes) -> bytes:
    """The answer, its usage with that of the turn that was swallowed."""
    answer, used = decode_object(remedy.body), decode_object(swallowed).get("usage")
    if not isinstance(used, dict) or not isinstance(answer.get("usage"), dict):
        return remedy.body
    remedy.facts.add_usage(used)
    answer["usage"] = summed_usage(used, answer["usage"])
    return msgspec.json.encode(answer)


def streamed(body: bytes, *, answer_id: str | None, used: Any, has_role: bool, wants_usage: bool) -> bytes:
    """The same as the rest of a stream of which nothing could be seen so far; `used` is what that one cost."""
    answer = decode_object(body)
    if answer_id is not None:
        answer["id"] = answer_id
    usage = answer.pop("usage", None)
    if wants_usage and (usage is not None or used is not None):
        answer["usage"] = summed_usage(used, usage) if used is not None else usage
    if has_role:
        for choice in answer.get("choices") or []:
            choice.get("message", {}).pop("role", None)
    return body_to_stream(msgspec.json.encode(answer))


def with_usage(body: bytes) -> bytes | None:
    """The request to stream with the wish to be told its usage; None where that is asked for, or cannot be."""
    try:
        fields = _FIELDS.decode(body)
        options = msgspec.json.decode(fields.get("stream_options", b"null"))
    except (ValueError, RecursionError):
        return None
    if options is not None and (not isinstance(options, dict) or options.get("include_usage")):
        return None
    return msgspec.json.encode({**fields, "stream_options": {**(options or {}), "include_usage": True}})


def _read(body: bytes, prepared: Prepared, make_id: MakeId, limits: Limits) -> Remedy | None:
    exchange = BodyExchange(replace(prepared, ask_again=None), make_id=make_id, limits=limits)
    try:
        told = exchange.transform(body)
        message = _message(decode_object(told))
    except (GatewayError, BadChunk):
        return None
    if message is None or not is_visible(message):
        return None
    return Remedy(body=told, facts=exchange.facts, has_call=bool(message.get("tool_calls")))


def _words(body: bytes) -> bool:
    message = _message(decode_object(body)) or {}
    content = message.get("content")
    return isinstance(content, str) and bool(content.strip())


def _message(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    return message if isinstance(message, dict) else None
