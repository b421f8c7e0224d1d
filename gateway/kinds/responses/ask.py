"""OpenAI chat requests as Responses requests.

System text that leads becomes `instructions`, later system text a developer's message in its place. Every request
carries the whole conversation and asks the server to keep nothing; thoughts, which only the server can read, are
remembered from its answers and go back to where they stood.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from attrs import field, frozen

from gateway.core.errors import InvalidRequest
from gateway.kinds.lowering.rooted import rooted_object
from gateway.kinds.shared.ask_parts import (
    Part,
    choice_of,
    effort_of,
    functions_of,
    messages_of,
    nothing_to_answer,
    number_of,
    parts_of,
    refuse_more_choices,
    text_of,
    token_limit,
    tool_calls_of,
)
from gateway.kinds.shared.checks import above_zero
from gateway.kinds.shared.decoding import dict_of, string_of
from gateway.kinds.shared.memory import Place, key_of_answer, value_in
from gateway.wire.chat_request import is_system

__all__ = ["KIND", "SEALED", "ResponsesOptions", "responses_request"]

KIND = "responses"
SEALED = "reasoning.encrypted_content"
_SAME = ("user", "service_tier", "prompt_cache_key", "safety_identifier", "metadata")
# Others answer 400 when they are asked for sealed thoughts: https://platform.openai.com/docs/guides/reasoning
# `Encrypted content is not supported with this model`: https://github.com/pydantic/pydantic-ai/issues/2865
_THINKING = re.compile(r"(?:^|/)(?:o[1-9]|gpt-[5-9]|codex)", re.IGNORECASE)


@frozen(kw_only=True)
class ResponsesOptions:
    """What may differ between servers of this kind."""

    thoughts: Literal["auto", "on", "off"] = "auto"
    """Whether sealed thoughts are asked for, so that they can go back in later turns; auto: by model."""
    memory_ttl_s: float = field(default=86_400.0, validator=above_zero)


def responses_request(
    body: Mapping[str, Any], *, known: Mapping[str, bytes], scope: str, options: ResponsesOptions
) -> dict[str, Any]:
    """The body of the Responses request."""
    refuse_more_choices(body)
    conversation = _Conversation(string_of(body.get("model")), known, scope)
    for index, message in enumerate(messages_of(body)):
        conversation.add(message, f"messages[{index}]")
    request: dict[str, Any] = {"model": string_of(body.get("model"))}
    if conversation.lead:
        request["instructions"] = "\n\n".join(conversation.lead)
    # Behind the loop, as it may take the last of the lead: a request without an item is refused.
    request["input"] = conversation.finished()
    # Kept at the server by default, for thirty days: https://platform.openai.com/docs/guides/your-data
    request["store"] = False
    request.update(_tools(body))
    request.update(_more(body, options))
    return request


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """The tools and the choice among them."""
    choice = choice_of(body)
    given = body.get("tools")
    declared = [dict_of(dict_of(tool).get("function")) for tool in (given if isinstance(given, list) else ())]
    strict = {string_of(each.get("name")): each.get("strict") is True for each in declared}
    tools = []
    for function in functions_of(body):
        # Left out where only some are allowed: that holds at every server, whatever it makes of a choice.
        if choice.names and choice.mode != "tool" and function.name not in choice.names:
            continue
        tool = {"type": "function", "name": function.name, "parameters": rooted_object(function.parameters)}
        if function.description:
            tool["description"] = function.description
        # https://github.com/0xPlaygrounds/rig/issues/2477
        # Where nothing is said, strictness is tried: then optional parameters would have to be there.
        tools.append({**tool, "strict": strict.get(function.name, False)})
    if not tools:
        return {}
    fields: dict[str, Any] = {"tools": tools}
    if choice.is_given:
        named = {"type": "function", "name": choice.names[0]} if choice.mode == "tool" else None
        fields["tool_choice"] = named or {"any": "required"}.get(choice.mode, choice.mode)
    if isinstance(body.get("parallel_tool_calls"), bool):
        fields["parallel_tool_calls"] = body["parallel_tool_calls"]
    return fields


def _more(body: Mapping[str, Any], options: ResponsesOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {name: body[name] for name in _SAME if body.get(name) is not None}
    for name in ("temperature", "top_p"):
        if (number := number_of(body, name)) is not None:
            fields[name] = number
    if (limit := token_limit(body)) is not None:
        fields["max_output_tokens"] = limit
    if body.get("stream") is True:
        fields["stream"] = True
    effort = effort_of(body)
    if effort is not None:
        # With its summary, or nothing of the thought would be shown to anybody.
        fields["reasoning"] = {"effort": effort, "summary": "auto"}
    is_thinking = effort not in (None, "none") or _THINKING.search(string_of(body.get("model"))) is not None
    if options.thoughts == "on" or (options.thoughts == "auto" and is_thinking):
        fields["include"] = [SEALED]
    if text := _text(body):
        fields["text"] = text
    return fields


def _text(body: Mapping[str, Any]) -> dict[str, Any]:
    """The form of the answer."""
    wanted = dict_of(body.get("response_format"))
    told: dict[str, Any] = {}
    if wanted.get("type") == "json_schema":
        told["format"] = {"type": "json_schema", "name": "answer", **dict_of(wanted.get("json_schema"))}
    elif wanted.get("type") == "json_object":
        told["format"] = {"type": "json_object"}
    if isinstance(body.get("verbosity"), str):
        told["verbosity"] = body["verbosity"]
    return told


class _Conversation:
    """The items, as the messages are turned into them one after the other."""

    def __init__(self, model: str, known: Mapping[str, bytes], scope: str) -> None:
        self.lead: list[str] = []
        self._model = model
        self._known = known
        self._scope = scope
        self._items: list[dict[str, Any]] = []
        self._place = Place()

    def add(self, message: dict[str, Any], where: str) -> None:
        """One more message."""
        role = message["role"]
        if is_system(message):
            self._system(text_of(message.get("content")))
        elif role in ("tool", "function"):
            call_id = string_of(message.get("tool_call_id")) or string_of(message.get("name"))
            output = _output(message.get("content"), f"{where}.content")
            self._items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        elif role == "user":
            content = [_part(part, where) for part in parts_of(message.get("content"), where=f"{where}.content")]
            self._say("user", content)
        else:
            self._items += self._assistant(message)
        self._place.pass_by(message)

    def finished(self) -> list[dict[str, Any]]:
        """The items."""
        # Nothing but a system prompt: its last part is what there is to answer.
        if not self._items and self.lead:
            self._say("user", [{"type": "input_text", "text": self.lead.pop()}])
        if not self._items:
            raise nothing_to_answer()
        return self._items

    def _system(self, text: str) -> None:
        if not text:
            return
        if self._items:
            # Reasoning models know the system's words under this role: https://platform.openai.com/docs/guides/text
            self._say("developer", [{"type": "input_text", "text": text}])
        else:
            self.lead.append(text)

    def _say(self, role: str, content: list[dict[str, Any]]) -> None:
        if content:
            self._items.append({"type": "message", "role": role, "content": content})

    def _assistant(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """What the model said and called, with the thoughts that are remembered of it."""
        said = {}
        if text := text_of(message.get("content")):
            said[""] = {"type": "message", "role": "assistant", "content": text}
        for call in tool_calls_of(message):
            call_id, function = string_of(call.get("id")), call["function"]
            arguments = function.get("arguments")
            told = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            said[call_id] = {
                "type": "function_call",
                "call_id": call_id,
                "name": function["name"],
                "arguments": told or "{}",
            }
        kept = value_in(self._known, key_of_answer(KIND, message, self._place, scope=self._scope))
        # A thought is sealed for the model that had it.
        layout = kept.get("items") if kept.get("model") == self._model else None
        items: list[dict[str, Any]] = []
        for each in layout if isinstance(layout, list) else ():
            if isinstance(each, dict):
                items.append(each)
            elif isinstance(each, str) and each in said:
                items.append(said.pop(each))
        # What the client has added or changed since comes behind what is known of the turn, and nothing is lost.
        return [*items, *said.values()]


def _part(part: Part, where: str) -> dict[str, Any]:
    if part.kind == "text":
        return {"type": "input_text", "text": part.text}
    source = part.blob.url or f"data:{part.blob.media_type};base64,{part.blob.data}"
    if part.kind == "image":
        return {"type": "input_image", "detail": "auto", "image_url": source}
    if part.kind == "audio":
        raise InvalidRequest("this model server takes no sound", param=where)
    if part.file_id:
        return {"type": "input_file", "file_id": part.file_id}
    if part.blob.url:
        return {"type": "input_file", "file_url": part.blob.url}
    return {"type": "input_file", "filename": part.blob.name or "file", "file_data": source}


def _output(content: object, where: str) -> str | list[dict[str, Any]]:
    """What a call came to; a list only where it is more than text."""
    parts = list(parts_of(content, where=where))
    # Text alone as text, which every server of this wire takes.
    if any(part.kind != "text" for part in parts):
        return [_part(part, where) for part in parts]
    return "".join(part.text for part in parts)
