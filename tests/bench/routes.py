"""The ways that a request can take through the gateway: what the client speaks, and what its model server does.

Each says the same prose and declares the same two tools, in the words of its wire.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from tests.bench.requests import PROSE, _body, _event

__all__ = ["ROUTES", "Route", "claude_code_request"]

_PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_NAMES = ("write", "read")
_QUESTION = "Tell me of files."
_ID = "resp_68a1f0c2d4e6b8a0c2d4e6f80a1b2c3d4e5f60718293a4b5"
_ITEM = "msg_68a1f0c2d4e6b8a0c2d4e6f80a1b2c3d"


@frozen(kw_only=True)
class Route:
    """What a client asks, what its server answers, and how the gateway stands between them."""

    path: str
    ask: Callable[[bool], dict[str, Any]]
    """The request, streamed or not."""
    mark: bytes
    """What stands in every event of text that the client gets."""
    whole: bytes
    begin: bytes = b""
    """Events before the first word."""
    word: Callable[[int, str], bytes]
    """The event of a word, by its number."""
    end: Callable[[int], bytes]
    server_mark: bytes
    """What stands in every such event of the server's."""
    environ: Mapping[str, str] = field(factory=dict)


def _named(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


# --- requests


def _chat(stream: bool) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name, "parameters": _PARAMETERS}} for name in _NAMES]
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": _QUESTION}]
    return {"model": "bench", "messages": messages, "tools": tools, "stream": stream}


def _messages(stream: bool) -> dict[str, Any]:
    tools = [{"name": name, "input_schema": _PARAMETERS} for name in _NAMES]
    messages = [{"role": "user", "content": _QUESTION}]
    asked = {"model": "bench", "max_tokens": 4096, "system": "You are terse.", "messages": messages}
    return {**asked, "tools": tools, "stream": stream}


def _responses(stream: bool) -> dict[str, Any]:
    tools = [{"type": "function", "name": name, "parameters": _PARAMETERS} for name in _NAMES]
    asked = {"model": "bench", "instructions": "You are terse.", "input": _QUESTION, "store": False}
    return {**asked, "tools": tools, "stream": stream}


def claude_code_request(size: int = 76_000, tools: int = 24) -> dict[str, Any]:
    """A request as large as Claude Code's, with as many tools."""
    about = "Says at length what the tool does, when it is to be used and when it is not. "
    each = size * 5 // 6 // tools
    declared = [
        {
            "name": f"Tool{number}",
            "description": about * (each // len(about)),
            "input_schema": {
                "type": "object",
                "properties": {name: {"type": "string", "description": about} for name in ("path", "text", "how")},
                "required": ["path"],
            },
        }
        for number in range(tools)
    ]
    system = [{"type": "text", "text": about * (size // 6 // len(about)), "cache_control": {"type": "ephemeral"}}]
    return {**_messages(False), "system": system, "tools": declared}


# --- what servers answer


def _message_event(_: int, word: str) -> bytes:
    return _named("content_block_delta", index=0, delta={"type": "text_delta", "text": word})


_MESSAGE = {
    **{"id": "msg_01", "type": "message", "role": "assistant", "model": "bench", "content": []},
    **{"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}},
}
_MESSAGE_BEGIN = _named("message_start", message=_MESSAGE) + _named(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)
_MESSAGE_END = (
    _named("content_block_stop", index=0)
    + _named("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 100})
    + _named("message_stop")
)
_MESSAGE_WHOLE = json.dumps(
    {**_MESSAGE, "content": [{"type": "text", "text": PROSE}], "stop_reason": "end_turn"}
).encode()
_PLACE = {"item_id": _ITEM, "output_index": 0, "content_index": 0}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item(text: str | None) -> dict[str, Any]:
    content = [] if text is None else [_part(text)]
    status = "in_progress" if text is None else "completed"
    return {"id": _ITEM, "type": "message", "role": "assistant", "status": status, "content": content}


def _response(text: str | None) -> dict[str, Any]:
    return {
        **{"id": _ID, "object": "response", "created_at": 1, "model": "bench", "parallel_tool_calls": True},
        **{"status": "in_progress" if text is None else "completed", "tools": [], "tool_choice": "auto"},
        "output": [] if text is None else [_item(text)],
        "usage": None if text is None else {"input_tokens": 10, "output_tokens": 100, "total_tokens": 110},
    }


def _responses_event(number: int, word: str) -> bytes:
    told = {"delta": word, "logprobs": [], "obfuscation": "x" * 8}
    return _named("response.output_text.delta", sequence_number=4 + number, **_PLACE, **told)


def _responses_end(words: int) -> bytes:
    text = PROSE  # what it holds is not what was said: nobody reads it here
    number = 4 + words
    return (
        _named("response.output_text.done", sequence_number=number, **_PLACE, text=text, logprobs=[])
        + _named("response.content_part.done", sequence_number=number + 1, **_PLACE, part=_part(text))
        + _named("response.output_item.done", sequence_number=number + 2, output_index=0, item=_item(text))
        + _named("response.completed", sequence_number=number + 3, response=_response(text))
    )


_RESPONSES_BEGIN = (
    _named("response.created", sequence_number=0, response=_response(None))
    + _named("response.in_progress", sequence_number=1, response=_response(None))
    + _named("response.output_item.added", sequence_number=2, output_index=0, item=_item(None))
    + _named("response.content_part.added", sequence_number=3, **_PLACE, part=_part(""))
)


def _chat_event(_: int, word: str) -> bytes:
    return _event({"content": word})


def _chat_end(_: int) -> bytes:
    return _event({}, "stop") + b"data: [DONE]\n\n"


def _message_end(_: int) -> bytes:
    return _MESSAGE_END


_CHAT_SERVER: dict[str, Any] = {
    "whole": _body(False),
    "word": _chat_event,
    "end": _chat_end,
    "server_mark": b'"content": "',
}
_MESSAGES_SERVER: dict[str, Any] = {
    **{"whole": _MESSAGE_WHOLE, "begin": _MESSAGE_BEGIN, "word": _message_event, "end": _message_end},
    "server_mark": b"text_delta",
    "environ": {"UPSTREAM_KIND": "anthropic", "UPSTREAM_API_KEY": "sk-bench"},
}
_RESPONSES_SERVER: dict[str, Any] = {
    **{"whole": json.dumps(_response(PROSE)).encode(), "begin": _RESPONSES_BEGIN},
    **{"word": _responses_event, "end": _responses_end},
    "server_mark": b"output_text.delta",
    "environ": {"UPSTREAM_KIND": "responses", "UPSTREAM_API_KEY": "sk-bench"},
}
_CHAT_CLIENT: dict[str, Any] = {"path": "/v1/chat/completions", "ask": _chat, "mark": b'"content": "'}
_MESSAGES_CLIENT: dict[str, Any] = {"path": "/v1/messages", "ask": _messages, "mark": b"text_delta"}
_RESPONSES_CLIENT: dict[str, Any] = {"path": "/v1/responses", "ask": _responses, "mark": b"output_text.delta"}

ROUTES: Mapping[str, Route] = {
    "chat": Route(**_CHAT_CLIENT, **_CHAT_SERVER),
    "chat, watched": Route(**_CHAT_CLIENT, **_CHAT_SERVER, environ={"TRANSFORM_MODE": "dry_run"}),
    "messages": Route(**_MESSAGES_CLIENT, **_CHAT_SERVER),
    "responses": Route(**_RESPONSES_CLIENT, **_CHAT_SERVER),
    "messages, same wire": Route(**_MESSAGES_CLIENT, **_MESSAGES_SERVER),
    "responses, same wire": Route(**_RESPONSES_CLIENT, **_RESPONSES_SERVER),
}
