"""Chat answers as a server streams them, and the same whole."""

import json
from typing import Any

__all__ = ["call", "chunk", "sse", "whole_chat"]


def sse(*events: object) -> bytes:
    """A stream of these events; bytes stand as they are."""
    told = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return b"".join(b"data: " + each + b"\n\n" for each in told)


def chunk(reason: str | None = None, **delta: object) -> dict[str, Any]:
    """A chunk with this delta."""
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def call(index: int, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A chunk with a whole call."""
    function = {"name": name, "arguments": arguments}
    return chunk(tool_calls=[{"index": index, "id": call_id, "type": "function", "function": function}])


def whole_chat(reason: str, *, usage: Any = None, **message: Any) -> bytes:
    """A whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(body if usage is None else {**body, "usage": usage}).encode()
