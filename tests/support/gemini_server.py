"""A server that speaks Gemini's generateContent as the real one does: its checks of parts, schemas and signatures."""

import json
import random
import re
from typing import Any
from urllib.parse import unquote

from attrs import define, field
from google.genai import types
from pydantic import ValidationError

from tests.support.kinds import Answered, Turn, split, sse, wire_error

FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"}
GENERATION = {
    "temperature",
    "topP",
    "topK",
    "maxOutputTokens",
    "stopSequences",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseMimeType",
    "responseJsonSchema",
    "thinkingConfig",
}
SCHEMA = {
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "minimum",
    "maximum",
}
ENDS = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
SKIP = "skip_thought_signature_validator"


def error_body(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    """An error as the server tells it."""
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": {**error, "details": list(details)} if details else error}


@define
class GeminiServer:
    """Answers each request with the next of `turns`."""

    turns: list[Turn] = field(factory=list)
    requests: list[dict[str, Any]] = field(factory=list)
    key: str = "AIza"
    _signed: set[str] = field(factory=set)

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        """The answer to one HTTP request."""
        if headers.get("x-goog-api-key") != self.key:
            return wire_error(
                400, error_body(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
            )
        path, _, query = target.partition("?")
        if method == "GET" and path.endswith("/models"):
            methods = ["generateContent", "countTokens"]
            chat = {"name": "models/gemini-3-flash", "version": "3", "supportedGenerationMethods": methods}
            other = {"name": "models/embed", "version": "1", "supportedGenerationMethods": ["embedContent"]}
            return Answered.json({"models": [chat, other]})
        match = re.fullmatch(r"/\w+/models/([^/:]+):(generateContent|streamGenerateContent)", path)
        if method != "POST" or not match:
            return wire_error(404, error_body(404, "NOT_FOUND", "Requested entity was not found."))
        model, streams = unquote(match[1]), match[2].startswith("stream")
        request = json.loads(body)
        self.requests.append(request)
        fault = self._fault(request, model)
        if fault:
            return wire_error(400, error_body(400, "INVALID_ARGUMENT", fault))
        turn = self.turns.pop(0)
        self._signed.add(turn.signature)
        if streams:
            assert query == "alt=sse"
            return Answered.stream(b"".join(sse(chunk, end="\r\n") for chunk in self.chunks(turn, model)))
        return Answered.json(self.whole(turn, model))

    def whole(self, turn: Turn, model: str) -> dict[str, Any]:
        """The turn as one response."""
        parts: list[dict[str, Any]] = []
        if turn.thought:
            parts.append({"text": turn.thought, "thought": True})
        if turn.text:
            parts.append({"text": turn.text})
        for call in turn.calls:
            told = {"name": call.name, "args": call.arguments, "id": call.id}
            parts.append({"functionCall": told})
        if turn.signature:
            first = next((part for part in parts if "functionCall" in part), parts[-1])
            first["thoughtSignature"] = turn.signature
        candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": ENDS[turn.end], "index": 0}
        return {"candidates": [candidate], **_tail(turn, model)}

    def chunks(self, turn: Turn, model: str) -> list[dict[str, Any]]:
        """The turn as the responses of a stream."""
        rng = random.Random(turn.text)
        pieces: list[dict[str, Any]] = []
        for part in self.whole(turn, model)["candidates"][0]["content"]["parts"]:
            if "text" not in part:
                pieces.append(part)
                continue
            thought = {"thought": True} if part.get("thought") else {}
            pieces += [{"text": piece, **thought} for piece in split(part["text"], rng)]
            if "thoughtSignature" in part:
                pieces.append({"text": "", "thoughtSignature": part["thoughtSignature"]})
        contents = [{"content": {"parts": [piece], "role": "model"}, "index": 0} for piece in pieces]
        last: dict[str, Any] = {"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0}
        contents.append({**last, "finishReason": ENDS[turn.end]})
        return [{"candidates": [content], **_tail(turn, model)} for content in contents]

    def _fault(self, request: dict[str, Any], model: str) -> str:
        extra = (set(request) - FIELDS) | (set(request.get("generationConfig", {})) - GENERATION)
        if extra:
            return f'Invalid JSON payload received. Unknown name "{sorted(extra)[0]}": Cannot find field.'
        try:
            for content in request["contents"]:
                types.Content.model_validate(content)
            for tool in request.get("tools", []):
                types.Tool.model_validate(tool)
            types.ToolConfig.model_validate(request.get("toolConfig", {}))
            types.Content.model_validate(request.get("systemInstruction", {}))
        except ValidationError as error:
            return str(error)
        for tool in request.get("tools", []):
            for declaration in tool["functionDeclarations"]:
                fault = _fault_of_declaration(declaration)
                if fault:
                    return fault
        return _fault_of_contents(request["contents"]) or self._fault_of_signatures(request["contents"], model)

    def _fault_of_signatures(self, contents: list[dict[str, Any]], model: str) -> str:
        if "gemini-3" not in model:
            return ""
        for place in range(len(contents) - 1, -1, -1):
            content = contents[place]
            if content["role"] == "user" and not any("functionResponse" in part for part in content["parts"]):
                return ""
            calls = [part for part in content["parts"] if "functionCall" in part]
            signature = calls[0].get("thoughtSignature", "") if calls else SKIP
            if not signature:
                return f"Function call is missing a thought_signature in the {place}. content block"
            if signature != SKIP and signature not in self._signed:
                return "Thought signature is not valid"
        return ""


def _tail(turn: Turn, model: str) -> dict[str, Any]:
    usage = {
        "promptTokenCount": turn.fresh + turn.cached,
        "candidatesTokenCount": turn.output - turn.thinking,
        "totalTokenCount": turn.fresh + turn.cached + turn.output,
        "cachedContentTokenCount": turn.cached,
        "thoughtsTokenCount": turn.thinking,
    }
    return {"usageMetadata": usage, "modelVersion": model, "responseId": "resp-1"}


def _fault_of_contents(contents: list[dict[str, Any]]) -> str:
    if not contents or contents[0]["role"] != "user":
        return "Please ensure that the first content has role user"
    open_calls: list[tuple[str, str]] = []
    for content in contents:
        if not content["parts"]:
            return "contents.parts must not be empty"
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        told = [(response.get("id", ""), response["name"]) for response in responses]
        if told != open_calls:
            return "Please ensure that the number of function response parts is equal to the number of function calls"
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        open_calls = [(call.get("id", ""), call["name"]) for call in calls]
        if any(not isinstance(call["args"], dict) for call in calls):
            return "function_call.args must be a struct"
    return ""


def _fault_of_declaration(declaration: dict[str, Any]) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", declaration["name"]):
        return "Invalid function name. Must start with a letter or an underscore."
    if "parametersJsonSchema" in declaration or "parameters" not in declaration:
        return ""
    if declaration["parameters"].get("type") != "object":
        return "functionDeclaration parameters schema should be of type OBJECT"
    return fault_of_schema(declaration["parameters"], "parameters")


def fault_of_schema(schema: dict[str, Any], where: str) -> str:
    """What the server would not take of a schema."""
    extra = set(schema) - SCHEMA
    if extra:
        return f"Invalid JSON payload received. Unknown name \"{sorted(extra)[0]}\" at '{where}': Cannot find field."
    if "anyOf" in schema:
        if set(schema) != {"anyOf"} or not schema["anyOf"]:
            return f"{where}: when using any_of, it must be the only field set"
        faults = [fault_of_schema(branch, f"{where}.anyOf") for branch in schema["anyOf"]]
        return next((fault for fault in faults if fault), "")
    kind = schema.get("type")
    if kind not in ("string", "number", "integer", "boolean", "array", "object"):
        return f"{where}: type {kind!r}: Proto field is not repeating, cannot start list."
    if "enum" in schema and (kind != "string" or not schema["enum"] or not all(schema["enum"])):
        return f"{where}.enum: only allowed for STRING type"
    if "format" in schema and schema["format"] not in ("date-time", "enum", "float", "double", "int32", "int64"):
        return f"{where}.format: only 'enum' and 'date-time' are supported for STRING type"
    if kind == "array" and "items" not in schema:
        return f"{where}.items: missing field."
    if not set(schema.get("required", [])) <= set(schema.get("properties", {})):
        return f"{where}.required: property is not defined"
    children = {**schema.get("properties", {}), **({"items": schema["items"]} if "items" in schema else {})}
    faults = [fault_of_schema(child, f"{where}.{name}") for name, child in children.items()]
    return next((fault for fault in faults if fault), "")
