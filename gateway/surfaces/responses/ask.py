"""A Responses request as a chat request.

What has no place in chat is left out and counted, never refused, as clients gain fields each month; refused is only
what would change what the client gets: answers in the background, conversations and prompts that the vendor keeps.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.core.errors import InvalidRequest, UnsupportedParameter
from gateway.surfaces.checks import MAX_ITEMS, effort_for, limit_field, token_limit
from gateway.surfaces.port import Server
from gateway.surfaces.responses.tools import Declared
from gateway.wire.chat_request import decoded_body

__all__ = [
    "chat_fields",
    "decoded_request",
    "input_items",
    "refuse_vendors_own",
    "session_of",
    "shared_members",
    "unsent",
]

_ONCE = frozenset({"model", "input", "stream", "instructions", "tools", "tool_choice", "previous_response_id", "store"})
_SAME = ("temperature", "top_p", "user", "parallel_tool_calls", "service_tier")
_REFUSED = ("conversation", "prompt")
_READ = frozenset({*_ONCE, *_SAME, *_REFUSED, "background", "max_output_tokens", "text", "reasoning", "include"})
_UNSENT = frozenset(
    {
        "stream_options",
        "metadata",
        "truncation",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "safety_identifier",
        "client_metadata",
        "max_tool_calls",
        "top_logprobs",
        "context_management",
    }
)
# Of Codex, once with an underscore, by which nginx drops them
# (https://nginx.org/en/docs/http/ngx_http_core_module.html#underscores_in_headers): so more is looked at.
_SESSION_HEADERS = ("session-id", "session_id")
_THREAD_HEADERS = ("thread-id", "conversation_id")
_MAX_SESSION = 256


def decoded_request(raw: bytes) -> dict[str, Any]:
    """The request's fields, its model checked, by which it is known who is asked."""
    body = decoded_body(raw, once=_ONCE)
    model = body.get("model")
    if not isinstance(model, str) or not model.strip():
        raise InvalidRequest("model must be a non-empty string", param="model")
    return body


def refuse_vendors_own(body: Mapping[str, Any]) -> None:
    """Raise for what only a server can do that has answers, conversations and prompts of its own."""
    if body.get("background"):
        raise UnsupportedParameter("answers in the background are not offered here", param="background")
    for name in _REFUSED:
        if body.get(name) is not None:
            raise UnsupportedParameter(
                f"{name} is kept by the vendor's own server, which is not asked here", param=name
            )
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise InvalidRequest("stream must be true or false", param="stream")


def input_items(body: Mapping[str, Any]) -> list[Any]:
    """The items of the request's own input."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    # Going on without a new word is allowed, after a result that was kept with it.
    if given is None and body.get("previous_response_id") is not None:
        return []
    if not isinstance(given, list):
        raise InvalidRequest("input must be a text or a list of items", param="input")
    if len(given) > MAX_ITEMS:
        raise InvalidRequest(f"input holds more than {MAX_ITEMS} items", param="input")
    return given


def unsent(body: Mapping[str, Any]) -> list[str]:
    """What of the request has no place in chat, a word each; what is unknown counts as other."""
    if _READ.issuperset(body):
        return []
    return [name if name in _UNSENT else "other" for name in body if name not in _READ]


def session_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """What the client itself names its conversation by: that of a sub-agent is its parent's, where it says so."""
    told = (*map(headers.get, _SESSION_HEADERS), body.get("prompt_cache_key"), *map(headers.get, _THREAD_HEADERS))
    for each in told:
        if isinstance(each, str) and each:
            return each[:_MAX_SESSION]
    return None


def chat_fields(body: Mapping[str, Any], declared: Declared, server: Server) -> dict[str, Any]:
    """The fields of the chat request beside its messages."""
    model = body["model"]
    chat: dict[str, Any] = {name: body[name] for name in _SAME if body.get(name) is not None}
    limit = token_limit(body.get("max_output_tokens"), server, "max_output_tokens")
    if limit is not None:
        chat[limit_field(model)] = limit
    if body.get("stream"):
        chat["stream"] = True
        chat["stream_options"] = {"include_usage": True}
    if declared.functions:
        chat["tools"] = declared.functions
        if declared.choice is not None:
            chat["tool_choice"] = declared.choice
    else:
        # OpenAI answers 400 to it where no tools are declared.
        chat.pop("parallel_tool_calls", None)
    chat.update(_text_fields(body, server))
    reasoning = body.get("reasoning")
    effort = effort_for(reasoning.get("effort") if isinstance(reasoning, dict) else None, model, server)
    if effort is not None:
        chat["reasoning_effort"] = effort
    return chat


def _text_fields(body: Mapping[str, Any], server: Server) -> dict[str, Any]:
    """The form of the answer."""
    text = body.get("text")
    if not isinstance(text, dict):
        return {}
    fields: dict[str, Any] = {}
    form = text.get("format")
    kind = form.get("type") if isinstance(form, dict) else None
    if isinstance(form, dict) and kind == "json_schema":
        named = ("name", "description", "schema", "strict")
        schema = {name: form[name] for name in named if form.get(name) is not None}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "json_object":
        fields["response_format"] = {"type": "json_object"}
    if server.takes_verbosity and isinstance(text.get("verbosity"), str):
        fields["verbosity"] = text["verbosity"]
    return fields


def shared_members(body: Mapping[str, Any]) -> bytes:
    """What all objects of the answer say of the request, as the end of a JSON object without its brace."""
    reasoning, text = body.get("reasoning"), body.get("text")
    told = {
        "background": False,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "parallel_tool_calls": body.get("parallel_tool_calls", True) is not False,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {
            "effort": reasoning.get("effort") if isinstance(reasoning, dict) else None,
            "summary": reasoning.get("summary") if isinstance(reasoning, dict) else None,
        },
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": body.get("service_tier"),
        "temperature": body.get("temperature"),
        "text": text if isinstance(text, dict) and text else {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        # SDKs check the object as a whole: what the request did not say has to be there as the API would fill it in.
        "tools": body.get("tools") or [],
        "top_logprobs": body.get("top_logprobs"),
        "top_p": body.get("top_p"),
        "truncation": body.get("truncation") or "disabled",
        "user": body.get("user"),
    }
    return b"," + msgspec.json.encode(told)[1:-1]
