"""Names under which a later turn finds what an answer left behind: by its first call, else by its text."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from gateway.wire.kinds.decoding import dict_of
from gateway.wire.kinds.requests import call_ids, text_of

__all__ = ["MAX_KEYS", "key_of_answer", "keys_of_history", "value_in"]

MAX_KEYS = 256
"""How many answers of a history are looked up, the newest ones."""


def key_of_answer(kind: str, message: Mapping[str, Any], *, scope: str) -> str | None:
    """The key of an assistant's message; None for an empty one."""
    first = next((name for name in call_ids(message) if name), "")
    text = "" if first else text_of(message.get("content")).strip()
    if not first and not text:
        return None
    mark = sha256(f"{scope}\0{'call' if first else 'text'}\0{first or text}".encode("utf-8", "replace")).hexdigest()
    return f"kind:{kind}:{mark[:40]}"


def keys_of_history(kind: str, body: Mapping[str, Any], *, scope: str) -> tuple[str, ...]:
    """The keys of all assistant's messages in a request."""
    messages = body.get("messages")
    keys: dict[str, None] = {}
    for message in reversed(messages if isinstance(messages, list) else []):
        if len(keys) == MAX_KEYS:
            break
        if isinstance(message, dict) and message.get("role") == "assistant":
            key = key_of_answer(kind, message, scope=scope)
            if key:
                keys[key] = None
    return tuple(keys)


def value_in(known: Mapping[str, bytes], key: str | None) -> dict[str, Any]:
    """What is remembered under a key; empty when that is nothing, or nothing readable."""
    try:
        return dict_of(msgspec.json.decode(known.get(key or "", b"{}")))
    except (ValueError, RecursionError):
        return {}
