"""A server that speaks OpenAI chat: the wire that the others are held to."""

import json
import random
from typing import Any

from attrs import define, field

from tests.support.turns import Turn, split
from tests.support.wire_server import Answered, sse, wire_error


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
