"""OpenAI chat requests as Gemini's generateContent.

Schemas are lowered to what `parameters` takes (`schema_field="parametersJsonSchema"` sends them whole, where the server
reads that field). Results of tools stand in a content of their own, in the order of their calls. Signatures of thoughts
go back to the very parts they came with; a model that demands one and gets a call from elsewhere is told to skip the
check, in the word that its documentation gives.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

from gateway.kinds.lowering.openapi import openapi_subset
from gateway.kinds.lowering.rooted import rooted_object
from gateway.kinds.shared.ask_parts import (
    BUDGETS,
    OPENING,
    Function,
    Names,
    Part,
    arguments_of,
    call_ids,
    choice_of,
    effort_of,
    functions_of,
    messages_of,
    nothing_to_answer,
    number_of,
    parts_of,
    refuse_more_choices,
    stops_of,
    token_limit,
    tool_calls_of,
)
from gateway.kinds.shared.checks import above_zero
from gateway.kinds.shared.decoding import dict_of, string_of
from gateway.kinds.shared.memory import Place, key_of_answer, value_in
from gateway.wire.chat_request import is_system

__all__ = ["KIND", "GeminiOptions", "content_request", "function_name"]

KIND = "gemini"
# What the documentation offers for calls that another model has made:
# https://ai.google.dev/gemini-api/docs/thought-signatures
# Without it Gemini 3 answers 400: https://github.com/musistudio/claude-code-router/issues/1431
SKIP_CHECK = "skip_thought_signature_validator"
_VERSION = re.compile(r"gemini-(\d{1,2})(?:\.(\d{1,2}))?(?!\d)")
# More are a 400: https://ai.google.dev/api/generate-content#generationconfig
_MAX_STOPS = 5
# Aliases such as `gemini-pro-latest` name no version, and move on to newer models without a word.
_NEWEST = (99, 0)
_MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "mp3": "audio/mp3",
    "wav": "audio/wav",
    "mp4": "video/mp4",
    "txt": "text/plain",
}


@frozen(kw_only=True)
class GeminiOptions:
    """What may differ between servers of this kind."""

    schema_field: Literal["parameters", "parametersJsonSchema"] = "parameters"
    memory_ttl_s: float = field(default=86_400.0, validator=above_zero)


def function_name(name: str) -> str:
    """A function's name in the letters that the server takes."""
    # https://ai.google.dev/gemini-api/docs/function-calling
    # MCP tools are named with slashes and spaces, and one such name is a 400 for the whole request:
    # https://github.com/kaitranntt/ccs/issues/25
    plain = re.sub(r"[^A-Za-z0-9_.:-]", "_", name)[:120]
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"


def content_request(
    body: Mapping[str, Any], *, known: Mapping[str, bytes], scope: str, names: Names, options: GeminiOptions
) -> dict[str, Any]:
    """The body of the request."""
    refuse_more_choices(body)
    model = string_of(body.get("model"))
    version = _version(model)
    functions = functions_of(body)
    for function in functions:
        names.told(function.name)
    conversation = _Conversation(model, version, known, scope, names)
    for index, message in enumerate(messages_of(body)):
        conversation.add(message, f"messages[{index}]")
    system, contents = conversation.finished()
    request: dict[str, Any] = {"contents": contents}
    if system:
        # There is no role for it among the contents, which know `user` and `model` alone.
        request["systemInstruction"] = {"parts": system}
    request.update(_tools(body, functions, names, options))
    if generation := _generation(body, model, version):
        request["generationConfig"] = generation
    return request


def _version(model: str) -> tuple[int, int]:
    """The model's version; names without one mean the newest, and what is no Gemini at all has none."""
    match = _VERSION.search(model.lower())
    if match:
        return int(match[1]), int(match[2] or 0)
    # Other models of the same API, such as Gemma, take no thinking at all.
    return _NEWEST if "gemini" in model.lower() else (0, 0)


def _tools(body: Mapping[str, Any], functions: list[Function], names: Names, options: GeminiOptions) -> dict[str, Any]:
    choice = choice_of(body)
    if choice.mode == "auto" and choice.names:
        functions = [function for function in functions if function.name in choice.names]
    if not functions:
        return {}
    declared = [_declaration(function, names, options) for function in functions]
    fields: dict[str, Any] = {"tools": [{"functionDeclarations": declared}]}
    if choice.is_given:
        mode = {"auto": "AUTO", "any": "ANY", "tool": "ANY", "none": "NONE"}[choice.mode]
        wanted: dict[str, Any] = {"mode": mode}
        # The field belongs to that mode alone.
        # https://ai.google.dev/api/caching#FunctionCallingConfig
        if mode == "ANY" and choice.names:
            wanted["allowedFunctionNames"] = [names.told(name) for name in choice.names]
        fields["toolConfig"] = {"functionCallingConfig": wanted}
    return fields


def _declaration(function: Function, names: Names, options: GeminiOptions) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": names.told(function.name)}
    if function.description:
        declared["description"] = function.description
    if options.schema_field == "parametersJsonSchema":
        schema: dict[str, Any] | None = rooted_object(function.parameters)
    else:
        # A subset of OpenAPI, in which foreign keywords are a 400:
        # https://ai.google.dev/gemini-api/docs/function-calling
        schema = openapi_subset(function.parameters)
    return {**declared, options.schema_field: schema} if schema else declared


def _generation(body: Mapping[str, Any], model: str, version: tuple[int, int]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, told in (
        ("temperature", "temperature"),
        ("top_p", "topP"),
        ("top_k", "topK"),
        ("presence_penalty", "presencePenalty"),
        ("frequency_penalty", "frequencyPenalty"),
        ("seed", "seed"),
    ):
        value = number_of(body, name)
        if value is not None:
            fields[told] = value
    if limit := token_limit(body):
        fields["maxOutputTokens"] = limit
    if stops := stops_of(body):
        fields["stopSequences"] = stops[:_MAX_STOPS]
    wanted = dict_of(body.get("response_format"))
    if wanted.get("type") in ("json_object", "json_schema"):
        fields["responseMimeType"] = "application/json"
    if schema := dict_of(dict_of(wanted.get("json_schema")).get("schema")):
        fields["responseJsonSchema"] = {key: value for key, value in schema.items() if key != "$schema"}
    if thinking := _thinking(effort_of(body), model.lower(), version):
        fields["thinkingConfig"] = thinking
    return fields


def _thinking(effort: str | None, model: str, version: tuple[int, int]) -> dict[str, Any]:
    """How much to think: by level from Gemini 3 on, by tokens for 2.5, not at all before."""
    # https://ai.google.dev/gemini-api/docs/thinking
    if effort is None or version < (2, 5):
        return {}
    is_pro = "pro" in model
    if version < (3, 0):
        least = 128 if is_pro else 0
        budget = least if effort == "none" else BUDGETS.get(effort, BUDGETS["medium"])
        # Flash takes no more than that: https://ai.google.dev/gemini-api/docs/thinking#set-budget
        return {"thinkingBudget": min(budget, 24_576), "includeThoughts": effort != "none"}
    level = {"none": "minimal", "minimal": "minimal", "low": "low", "medium": "medium"}.get(effort, "high")
    if is_pro:
        level = "low" if level == "minimal" else level
        level = "high" if level == "medium" and version == (3, 0) else level
    return {"thinkingLevel": level, "includeThoughts": effort != "none"}


class _Conversation:
    """The contents, as the messages are turned one after the other."""

    def __init__(
        self, model: str, version: tuple[int, int], known: Mapping[str, bytes], scope: str, names: Names
    ) -> None:
        self._model = model
        self._is_signed = version >= (3, 0)
        """Calls have ids and must be signed."""
        self._known = known
        self._scope = scope
        self._names = names
        self._system: list[dict[str, Any]] = []
        self._contents: list[dict[str, Any]] = []
        self._results: list[tuple[int, dict[str, Any]]] = []
        """Results that are not yet among the contents, with the place of their call."""
        self._pictures: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}
        self._place = Place()
        self._called: dict[str, str] = {}
        """The names of all calls so far, by id."""

    def add(self, message: dict[str, Any], where: str) -> None:
        """One more message."""
        self._add(message, where)
        self._place.pass_by(message)

    def _add(self, message: dict[str, Any], where: str) -> None:
        role = message["role"]
        if role in ("tool", "function"):
            self._result(message, where)
            return
        self._flush()
        if is_system(message):
            self._system += self._parts(message.get("content"), where, only_text=True)
        elif role == "user":
            self._push("user", self._parts(message.get("content"), f"{where}.content"))
        else:
            self._push("model", self._answer(message, where))

    def finished(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The system text and the contents."""
        self._flush()
        if not self._contents and self._system:
            self._push("user", [self._system.pop()])
        if not self._contents:
            raise nothing_to_answer()
        # A conversation that the model begins is refused.
        # Agents that shorten a conversation send such ones: https://github.com/google-gemini/gemini-cli/issues/11814
        if self._contents[0]["role"] == "model":
            self._contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
        return self._system, self._contents

    def _flush(self) -> None:
        """Results belong together, in the order of their calls."""
        # Apart from each other they are a 400, as many of them as calls have to stand in one content:
        # https://github.com/earendil-works/pi/issues/5528
        results = [part for _, part in sorted(self._results, key=lambda entry: entry[0])]
        if results:
            self._contents.append({"role": "user", "parts": results})
        if self._pictures:
            self._contents.append({"role": "user", "parts": self._pictures})
        self._results, self._pictures = [], []

    def _push(self, role: str, parts: list[dict[str, Any]]) -> None:
        if not parts:
            return
        last = self._contents[-1] if self._contents else None
        # Turns have to alternate. Words that a person adds to results stay out of their content all the same: beside a
        # `functionResponse` they are counted as one more: https://github.com/google-gemini/gemini-cli/issues/16135
        if last is not None and last["role"] == role and "functionResponse" not in last["parts"][0]:
            last["parts"] += parts
        else:
            self._contents.append({"role": role, "parts": parts})

    def _answer(self, message: dict[str, Any], where: str) -> list[dict[str, Any]]:
        kept = value_in(self._known, key_of_answer(KIND, message, self._place, scope=self._scope))
        kept = kept if kept.get("model") == self._model else {}
        parts = self._parts(message.get("content"), f"{where}.content", only_text=True)
        if signature := string_of(kept.get("text")):
            # A signature needs a part to stand on, though nothing was said.
            parts = parts or [{"text": ""}]
            parts[-1]["thoughtSignature"] = signature
        signatures = dict_of(kept.get("calls"))
        self._places = {call_id: place for place, call_id in enumerate(call_ids(message))}
        for place, call in enumerate(tool_calls_of(message)):
            parts.append(self._call(call, signatures, is_first=place == 0))
        return parts

    def _call(self, call: dict[str, Any], signatures: dict[str, Any], *, is_first: bool) -> dict[str, Any]:
        call_id, name = string_of(call.get("id")), self._names.told(call["function"]["name"])
        self._called[call_id] = name
        told: dict[str, Any] = {"name": name, "args": arguments_of(call)}
        if self._is_signed and call_id:
            told["id"] = call_id
        part: dict[str, Any] = {"functionCall": told}
        signature = string_of(signatures.get(call_id))
        if signature:
            part["thoughtSignature"] = signature
        # Of calls at once the first alone is signed by the server, and it alone is looked at.
        elif is_first and self._is_signed:
            part["thoughtSignature"] = SKIP_CHECK
        return part

    def _result(self, message: dict[str, Any], where: str) -> None:
        call_id = string_of(message.get("tool_call_id"))
        # Results are told apart by names here; OpenAI's carry an id and mostly no name.
        name = self._called.get(call_id) or self._names.told(string_of(message.get("name")) or "unknown")
        parts = list(parts_of(message.get("content"), where=f"{where}.content"))
        output = "".join(part.text for part in parts if part.kind == "text")
        told: dict[str, Any] = {"name": name, "response": {"output": output}}
        if self._is_signed and call_id:
            told["id"] = call_id
        pictures = [_part(part) for part in parts if part.kind != "text"]
        # Before Gemini 3 results hold text alone: the pictures follow in a message of their own.
        if pictures and self._is_signed:
            told["parts"] = pictures
        else:
            self._pictures += pictures
        self._results.append((self._places.get(call_id, len(self._places)), {"functionResponse": told}))

    def _parts(self, content: object, where: str, *, only_text: bool = False) -> list[dict[str, Any]]:
        return [_part(part) for part in parts_of(content, where=where) if part.kind == "text" or not only_text]


def _part(part: Part) -> dict[str, Any]:
    if part.kind == "text":
        return {"text": part.text}
    if part.file_id:
        return {"fileData": {"fileUri": part.file_id}}
    if part.blob.url:
        return {"fileData": _file_data(part.blob.url)}
    return {"inlineData": {"mimeType": part.blob.media_type, "data": part.blob.data}}


def _file_data(url: str) -> dict[str, Any]:
    ending = url.partition("?")[0].rpartition("/")[2].rpartition(".")[2].lower()
    media_type = _MEDIA_TYPES.get(ending)
    return {"fileUri": url, "mimeType": media_type} if media_type else {"fileUri": url}
