"""Whose turn is it in which conversation: a hash of all that was said up to an answer, as the client tells it.

What clients change without meaning to - white space around an answer, the order of keys in arguments, text in parts or
in one piece, reasoning - does not count; anything else makes another conversation.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from gateway.kinds.shared.ask_parts import text_of, tool_calls_of
from gateway.kinds.shared.decoding import dict_of, string_of
from gateway.wire.json_scan import JsonScanner, JsonTooDeep

__all__ = ["conversation_key", "last_answer"]

_MAX_DEPTH = 500


def last_answer(messages: object) -> int:
    """The place of the last assistant's message; -1 where there is none."""
    entries = messages if isinstance(messages, list) else []
    for index in range(len(entries) - 1, -1, -1):
        if dict_of(entries[index]).get("role") == "assistant":
            return index
    return -1


def conversation_key(kind: str, model: str, messages: Sequence[Any], *, scope: str) -> str | None:
    """The key of a conversation that ends with the last of these messages; None for one that nests too deeply."""
    digest = sha256(msgspec.json.encode([scope, model]))
    try:
        for message in messages:
            digest.update(msgspec.json.encode(_said(dict_of(message))))
    except (JsonTooDeep, RecursionError):
        return None
    return f"kind:{kind}:{digest.hexdigest()[:40]}"


def _said(message: dict[str, Any]) -> list[Any]:
    role = message.get("role")
    calls = [
        [string_of(call.get("id")), call["function"]["name"], _arguments(call["function"].get("arguments"))]
        for call in tool_calls_of(message)
    ]
    content = message.get("content")
    text = text_of(content)
    others = [part for part in content if dict_of(part).get("type") != "text"] if isinstance(content, list) else []
    if others:  # how deep Python itself can go differs from version to version
        JsonScanner(_MAX_DEPTH).feed(msgspec.json.encode(others).decode())
    return [
        "system" if role == "developer" else role,
        text.strip() if role == "assistant" else text,
        others,
        calls,
        string_of(message.get("tool_call_id")),
    ]


def _arguments(arguments: object) -> str:
    text = string_of(arguments)
    try:
        return msgspec.json.encode(msgspec.json.decode(text or "{}"), order="deterministic").decode()
    except (ValueError, RecursionError):
        return text
