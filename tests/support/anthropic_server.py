"""A server that speaks Anthropic's Messages as the real one does: its order of events, its checks, its errors."""

import json
import random
import re
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from attrs import define, field
from pydantic import TypeAdapter, ValidationError

from tests.support.kinds import Answered, Turn, split, sse, wire_error

FIELDS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "thinking",
    "output_config",
    "metadata",
    "service_tier",
    "cache_control",
}
STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_WHOLE = TypeAdapter(MessageCreateParamsNonStreaming)
_STREAMED = TypeAdapter(MessageCreateParamsStreaming)


def error_body(kind: str, message: str) -> dict[str, Any]:
    """An error as the server tells it."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011"}


@define
class AnthropicServer:
    """Answers each request with the next of `turns`."""

    turns: list[Turn] = field(factory=list)
    requests: list[dict[str, Any]] = field(factory=list)
    key: str = "sk-ant"
    _signed: dict[str, str] = field(factory=dict)

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        """The answer to one HTTP request."""
        if headers.get("x-api-key") != self.key and headers.get("authorization") != f"Bearer {self.key}":
            return wire_error(401, error_body("authentication_error", "invalid x-api-key"))
        if "anthropic-version" not in headers:
            return self._invalid("anthropic-version: header is required")
        if method == "GET" and target.partition("?")[0].endswith("/models"):
            model = {"type": "model", "id": "claude-x", "display_name": "X", "created_at": "2026-01-01T00:00:00Z"}
            return Answered.json({"data": [model], "has_more": False, "first_id": "claude-x", "last_id": "claude-x"})
        path, _, query = target.partition("?")
        if method == "POST" and path.endswith("/messages/count_tokens"):
            return Answered.json({"input_tokens": len(body) // 4})
        if method != "POST" or not path.endswith("/messages"):
            return wire_error(404, error_body("not_found_error", "Not found"))
        request = json.loads(body)
        self.requests.append(request)
        # What betas add to requests is the agents' and the vendor's own business.
        fault = None if "beta=true" in query else self._fault(request)
        if fault:
            return self._invalid(fault)
        turn = self.turns.pop(0)
        if turn.thought:
            self._signed[turn.signature] = turn.thought
        model = request["model"]
        if request.get("stream"):
            return Answered.stream(self.stream(turn, model))
        return Answered.json(self.message(turn, model))

    def _invalid(self, message: str) -> Answered:
        return wire_error(400, error_body("invalid_request_error", message))

    def message(self, turn: Turn, model: str) -> dict[str, Any]:
        """The turn as a whole message."""
        content: list[dict[str, Any]] = []
        if turn.thought:
            content.append({"type": "thinking", "thinking": turn.thought, "signature": turn.signature})
        if turn.text:
            content.append({"type": "text", "text": turn.text, "citations": None})
        for call in turn.calls:
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments})
        return {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": "tool_use" if turn.calls and turn.end == "stop" else STOPS[turn.end],
            "stop_sequence": None,
            "usage": _usage(turn, turn.output),
        }

    def stream(self, turn: Turn, model: str) -> bytes:
        """The turn as events."""
        rng = random.Random(turn.text)
        whole = self.message(turn, model)
        events: list[dict[str, Any]] = [
            {
                "type": "message_start",
                "message": {**whole, "content": [], "stop_reason": None, "usage": _usage(turn, 1)},
            }
        ]
        for index, block in enumerate(whole["content"]):
            events += _block_events(index, block, rng)
            if index == 0:
                events.append({"type": "ping"})
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": _final_usage(turn)})
        events.append({"type": "message_stop"})
        return b"".join(sse(event, name=event["type"]) for event in events)

    def _fault(self, request: dict[str, Any]) -> str:
        extra = set(request) - FIELDS
        if extra:
            return f"{sorted(extra)[0]}: Extra inputs are not permitted"
        try:
            (_STREAMED if request.get("stream") else _WHOLE).validate_python(request)
        except ValidationError as error:
            return str(error)
        return (
            _fault_of_messages(request)
            or _fault_of_tools(request)
            or _fault_of_sampling(request)
            or self._fault_of_thoughts(request)
        )

    def _fault_of_thoughts(self, request: dict[str, Any]) -> str:
        for message in request["messages"]:
            for block in message["content"]:
                if block["type"] == "thinking" and self._signed.get(block["signature"]) != block["thinking"]:
                    return "messages: Invalid `signature` in `thinking` block"
        if request.get("thinking", {}).get("type") != "enabled":
            return ""
        budget = request["thinking"]["budget_tokens"]
        if not 1024 <= budget < request["max_tokens"]:
            return "`max_tokens` must be greater than `thinking.budget_tokens`"
        if request.get("temperature", 1) != 1 or request.get("tool_choice", {}).get("type") in ("any", "tool"):
            return "`temperature` may only be set to 1 when thinking is enabled"
        messages = request["messages"]
        if messages[-1]["content"][0]["type"] == "tool_result":
            first = messages[-2]["content"][0]["type"]
            if first not in ("thinking", "redacted_thinking"):
                return f"messages.{len(messages) - 2}.content.0.type: Expected `thinking`, but found `{first}`"
        return ""


def _usage(turn: Turn, output: int) -> dict[str, Any]:
    usage = {
        "input_tokens": turn.fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": turn.cached,
        "output_tokens": output,
        "service_tier": "standard",
    }
    return {**usage, "output_tokens_details": {"thinking_tokens": turn.thinking}} if output > 1 else usage


def _final_usage(turn: Turn) -> dict[str, Any]:
    usage: dict[str, Any] = {"output_tokens": turn.output}
    usage["output_tokens_details"] = {"thinking_tokens": turn.thinking}
    return usage


def _block_events(index: int, block: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]]
    start: dict[str, Any]
    if block["type"] == "thinking":
        start = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in split(block["thinking"], rng)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "text":
        start = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in split(block["text"], rng)]
    else:
        start = {**block, "input": {}}
        pieces = ["", *split(json.dumps(block["input"], ensure_ascii=False), rng)] if block["input"] else [""]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _fault_of_messages(request: dict[str, Any]) -> str:
    messages = request["messages"]
    if not messages or messages[0]["role"] != "user":
        return "messages: first message must use the user role"
    seen: set[str] = set()
    open_ids: set[str] = set()
    for place, message in enumerate(messages):
        content = message["content"]
        if not content:
            return f"messages.{place}: all messages must have non-empty content"
        for block in content:
            if block["type"] == "text" and not block["text"].strip():
                return "messages: text content blocks must contain non-whitespace text"
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if {block["type"] for block in content[: len(results)]} - {"tool_result"}:
            return "messages: tool_result blocks must come first"
        if set(results) != open_ids or len(set(results)) != len(results):
            return "messages: `tool_use` ids were found without `tool_result` blocks immediately after"
        calls = [block for block in content if block["type"] == "tool_use"]
        if any(not re.fullmatch(r"[a-zA-Z0-9_-]+", call["id"]) or call["id"] in seen for call in calls):
            return "messages: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if any(not isinstance(call["input"], dict) for call in calls):
            return "messages: tool_use.input: Input should be a valid dictionary"
        open_ids = {call["id"] for call in calls}
        seen |= open_ids
    last = messages[-1]["content"][-1]
    if messages[-1]["role"] == "assistant" and last["type"] == "text" and last["text"] != last["text"].rstrip():
        return "messages: final assistant content cannot end with trailing whitespace"
    return ""


def _fault_of_tools(request: dict[str, Any]) -> str:
    tools = request.get("tools", [])
    uses = any(block["type"] == "tool_use" for message in request["messages"] for block in message["content"])
    if uses and not tools:
        return "Requests which include `tool_use` or `tool_result` blocks must define tools"
    if "tool_choice" in request and not tools:
        return "tool_choice may only be specified while providing tools"
    for place, tool in enumerate(tools):
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]):
            return f"tools.{place}.name: String should match pattern"
        if tool["input_schema"].get("type") != "object":
            return f"tools.{place}.input_schema.type: Field required"
        if {"anyOf", "oneOf", "allOf"} & set(tool["input_schema"]):
            return f"tools.{place}.input_schema: does not support oneOf, allOf, or anyOf at the top level"
    return ""


def _fault_of_sampling(request: dict[str, Any]) -> str:
    if not 0 <= request.get("temperature", 1) <= 1:
        return "temperature: Input should be less than or equal to 1"
    if "temperature" in request and "top_p" in request and "4-5" in request["model"]:
        return "`temperature` and `top_p` cannot both be specified for this model"
    if any(not stop.strip() for stop in request.get("stop_sequences", [])):
        return "stop_sequences: each stop sequence must contain non-whitespace"
    return ""
