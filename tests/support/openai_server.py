"""Servers that speak OpenAI's two wires as the real ones do: chat, which the others are held to, and Responses with its
order of events, its checks and its errors.
"""

import base64
import json
import random
from typing import Any

from attrs import define, field
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter, ValidationError

from tests.support.kinds import Answered, Turn, split, sse, wire_error


@define
class OpenAiServer:
    """Answers each request with the next of `turns`."""

    turns: list[Turn] = field(factory=list)
    requests: list[dict[str, Any]] = field(factory=list)
    key: str = "sk-open"
    refused: frozenset[str] = frozenset()
    """Keywords of JSON schema that it does not take in tools."""

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        """The answer to one HTTP request."""
        if headers.get("authorization") != f"Bearer {self.key}":
            return wire_error(401, {"error": {"message": "wrong key", "code": "invalid_api_key"}})
        if not target.partition("?")[0].endswith("/chat/completions"):
            return wire_error(404, {"error": {"message": "Not Found", "code": "not_found"}})
        request = json.loads(body)
        self.requests.append(request)
        schemas = [tool["function"].get("parameters", {}) for tool in request.get("tools", [])]
        found = self.refused & {keyword for schema in schemas for keyword in keywords_of(schema)}
        if found:
            message = f"schema keyword {sorted(found)[0]!r} is not supported"
            return wire_error(400, {"error": {"message": message, "type": "invalid_request_error"}})
        turn = self.turns.pop(0)
        if request.get("stream"):
            return Answered.stream(self.stream(turn, request))
        return Answered.json(self.whole(turn, request["model"]))

    def whole(self, turn: Turn, model: str) -> dict[str, Any]:
        """The turn as one body."""
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or (None if turn.calls else "")}
        if turn.thought:
            message["reasoning_content"] = turn.thought
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for call in turn.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": turn.finish_reason}
        head = {"id": "chatcmpl-9", "object": "chat.completion", "created": 1, "model": model}
        return {**head, "choices": [choice], "usage": _usage(turn)}

    def stream(self, turn: Turn, request: dict[str, Any]) -> bytes:
        """The turn as chunks."""
        rng = random.Random(turn.text)
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
        deltas += [{"reasoning_content": piece} for piece in split(turn.thought, rng)]
        deltas += [{"content": piece} for piece in split(turn.text, rng)]
        for index, call in enumerate(turn.calls):
            first = {
                "index": index,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": ""},
            }
            deltas.append({"tool_calls": [first]})
            for piece in split(json.dumps(call.arguments, ensure_ascii=False), rng):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        head = {"id": "chatcmpl-9", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
        chunks: list[dict[str, Any]] = [
            *({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas),
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": turn.finish_reason}]},
        ]
        if request.get("stream_options", {}).get("include_usage"):
            chunks.append({**head, "choices": [], "usage": _usage(turn)})
        return b"".join([*map(sse, chunks), b"data: [DONE]\n\n"])


def keywords_of(schema: Any) -> set[str]:
    """The keywords of a schema at all its places; names of properties are none."""
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
            children = list(value.values())
        else:
            children = value if isinstance(value, list) else [value]
        if key not in ("enum", "const", "default", "examples", "required"):
            found = found.union(*map(keywords_of, children))
    return found


def _usage(turn: Turn) -> dict[str, Any]:
    prompt = turn.fresh + turn.cached
    return {"prompt_tokens": prompt, "completion_tokens": turn.output, "total_tokens": prompt + turn.output}


FIELDS = {
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "max_output_tokens",
    "stream",
    "store",
    "include",
    "reasoning",
    "text",
    "user",
    "service_tier",
    "prompt_cache_key",
    "safety_identifier",
    "metadata",
    "client_metadata",
}
REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_WHOLE: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)
_STREAMED: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def error_body(message: str, *, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    """An error as the server tells it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@define
class ResponsesServer:
    """Answers each request with the next of `turns`."""

    turns: list[Turn] = field(factory=list)
    requests: list[dict[str, Any]] = field(factory=list)
    key: str = "sk-resp"
    tells_pieces: bool = True
    """Texts and arguments come in pieces; else only at the end of their items, as some servers have it."""
    _sealed: set[str] = field(factory=set)

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        """The answer to one HTTP request."""
        if headers.get("authorization") != f"Bearer {self.key}":
            return wire_error(401, error_body("Incorrect API key provided.", code="invalid_api_key"))
        path = target.partition("?")[0]
        if method == "GET" and path.endswith("/models"):
            return Answered.json({"object": "list", "data": [{"id": "gpt-x", "object": "model", "owned_by": "x"}]})
        if method != "POST" or not path.endswith("/responses"):
            return wire_error(404, error_body(f"Invalid URL ({method} {path})"))
        request = json.loads(body)
        self.requests.append(request)
        if fault := self._fault(request):
            return wire_error(400, error_body(fault))
        turn = self.turns.pop(0)
        response = self.response(turn, request)
        if request.get("stream"):
            return Answered.stream(self.stream(turn, response))
        Response.model_validate(response)
        return Answered.json(response)

    def _fault(self, request: dict[str, Any]) -> str:
        """What the server would refuse."""
        if unknown := request.keys() - FIELDS:
            return f"Unknown parameter: '{min(unknown)}'."
        try:
            (_STREAMED if request.get("stream") else _WHOLE).validate_python(request)
        except ValidationError as error:
            return str(error)[:500]
        called: set[str] = set()
        answered: set[str] = set()
        for item in request["input"]:
            if item["type"] == "function_call":
                json.loads(item["arguments"])
                called.add(item["call_id"])
            elif item["type"] == "function_call_output":
                if item["call_id"] not in called:
                    return f"No tool call found for function call output with call_id {item['call_id']}."
                answered.add(item["call_id"])
            elif item["type"] == "reasoning" and item.get("encrypted_content") not in self._sealed:
                return "The encrypted content could not be verified."
        if called - answered:
            return f"No tool output found for function call {min(called - answered)}."
        for tool in request.get("tools", []):
            if tool["type"] == "function" and tool["parameters"].get("type") != "object":
                return (
                    f"Invalid schema for function '{tool['name']}': schema must be a JSON Schema of 'type: \"object\"'."
                )
        if request["store"]:
            return "Nothing is to be kept here."
        return ""

    def items(self, turn: Turn, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The items of an answer."""
        output: list[dict[str, Any]] = []
        if turn.thought:
            thought: dict[str, Any] = {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": turn.thought}],
            }
            if "reasoning.encrypted_content" in request.get("include", []):
                thought["encrypted_content"] = base64.b64encode(turn.thought.encode()).decode()
                self._sealed.add(thought["encrypted_content"])
            output.append(thought)
        if turn.text or not turn.calls:
            part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
            status = "completed" if turn.end == "stop" else "incomplete"
            output.append({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": [part]})
        for number, call in enumerate(turn.calls):
            output.append(
                {
                    "id": f"fc_{number}",
                    "type": "function_call",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    "status": "completed",
                }
            )
        return output

    def response(self, turn: Turn, request: dict[str, Any]) -> dict[str, Any]:
        """The turn as one object."""
        reason = REASONS.get(turn.end)
        prompt = turn.fresh + turn.cached
        return {
            "id": "resp_9",
            "object": "response",
            "created_at": 1,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": request["model"],
            "output": self.items(turn, request),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": request.get("tools", []),
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": turn.cached, "cache_write_tokens": 0},
                "output_tokens": turn.output,
                "output_tokens_details": {"reasoning_tokens": turn.thinking},
                "total_tokens": prompt + turn.output,
            },
        }

    def stream(self, turn: Turn, response: dict[str, Any]) -> bytes:
        """The turn as events."""
        rng = random.Random(turn.text)
        begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        events = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
        for index, item in enumerate(response["output"]):
            events += _item_events(index, item, rng, tells_pieces=self.tells_pieces)
        events.append({"type": f"response.{response['status']}", "response": response})
        told = []
        for number, event in enumerate(events):
            _EVENT.validate_python({**event, "sequence_number": number})
            told.append(sse({**event, "sequence_number": number}, name=str(event["type"])))
        return b"".join(told)


def _item_events(index: int, item: dict[str, Any], rng: random.Random, *, tells_pieces: bool) -> list[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": index}
    ends = [{"type": "response.output_item.done", "output_index": index, "item": item}]
    inner: list[dict[str, Any]] = []
    if item["type"] == "message":
        opened = {**item, "status": "in_progress", "content": []}
        part, place = item["content"][0], {**at, "content_index": 0}
        inner = [
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
                for piece in split(part["text"], rng)
            ),
            {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    elif item["type"] == "reasoning":
        opened = {**item, "summary": []}
        opened.pop("encrypted_content", None)
        part, place = item["summary"][0], {**at, "summary_index": 0}
        inner = [
            {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}},
            *(
                {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
                for piece in split(part["text"], rng)
            ),
            {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]},
            {"type": "response.reasoning_summary_part.done", **place, "part": part},
        ]
    else:
        opened = {**item, "status": "in_progress", "arguments": ""}
        told = item["arguments"]
        inner = [
            *({"type": "response.function_call_arguments.delta", **at, "delta": piece} for piece in split(told, rng)),
            {"type": "response.function_call_arguments.done", **at, "arguments": told, "name": item["name"]},
        ]
    if not tells_pieces:
        inner = [event for event in inner if not event["type"].endswith(".delta")]
    return [{"type": "response.output_item.added", "output_index": index, "item": opened}, *inner, *ends]
