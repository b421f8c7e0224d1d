"""OpenAI chat requests as Anthropic Messages.

System text that leads goes into `system`; later system text joins it, as not every model takes it in between
(`late_system="inline"` leaves it in its place). Neighbours of one role are merged, results of tools stand first in
their message, text of white space alone is left out: the API refuses all else. Signed thoughts that were remembered
go back to where they stood. Which form of thinking and which sampling a model takes is told by its version.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from attrs import field, frozen

from gateway.core.errors import InvalidRequest
from gateway.kinds.anthropic.thoughts import recalled
from gateway.kinds.lowering.rooted import rooted_object
from gateway.kinds.shared.ask_parts import (
    BUDGETS,
    OPENING,
    Choice,
    Names,
    Part,
    arguments_of,
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
from gateway.kinds.shared.checks import above_zero, header_text
from gateway.kinds.shared.decoding import dict_of, string_of
from gateway.kinds.shared.memory import Place
from gateway.wire.chat_request import is_system

__all__ = ["AnthropicOptions", "messages_request"]

_VERSION = re.compile(r"claude-(?:[a-z]{1,32}-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
# https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking
_MIN_BUDGET = 1024
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
_THOUGHTS = ("thinking", "redacted_thinking")


@frozen(kw_only=True)
class AnthropicOptions:
    """What may differ between servers of this kind."""

    version: str = field(default="2023-06-01", validator=header_text)
    auth: Literal["x-api-key", "bearer"] = "x-api-key"
    """Where the key goes: servers of others often take it as a bearer only."""
    max_tokens: int | None = field(default=None, validator=above_zero)
    """For requests that set none; None: by model."""
    late_system: Literal["lead", "inline"] = "lead"
    thinking: Literal["auto", "adaptive", "budget", "off"] = "auto"
    prompt_caching: bool = False
    """Ask for the prompt cache where the client has set no marks of its own."""
    memory_ttl_s: float = field(default=86_400.0, validator=above_zero)


def messages_request(
    body: Mapping[str, Any], *, known: Mapping[str, bytes], scope: str, options: AnthropicOptions
) -> dict[str, Any]:
    """The body of the Messages request."""
    refuse_more_choices(body)
    model = string_of(body.get("model"))
    version = _version(model)
    # The API wants it said; OpenAI's clients mostly do not say it.
    max_tokens = token_limit(body) or options.max_tokens or _default_max_tokens(version)
    thinking, effort = _thinking(body, version, max_tokens, model, options)
    is_manual = dict_of(thinking).get("type") == "enabled"
    keeps = is_manual or dict_of(thinking).get("type") == "adaptive" or _is_adaptive(model, version)
    conversation = _Conversation(model, known, scope, keeps_thoughts=keeps, options=options)
    for index, message in enumerate(messages_of(body)):
        conversation.add(message, f"messages[{index}]")
    system, messages = conversation.finished()
    if is_manual and not _may_think(messages):
        thinking = None
    request: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
    if system:
        request["system"] = system
    request["messages"] = messages
    request.update(_tools(body, conversation.called))
    request.update(_sampling(body, version, thinks=thinking is not None))
    request.update(_more(body, thinking, effort, options))
    return request


def _version(model: str) -> tuple[int, int] | None:
    match = _VERSION.search(model.lower())
    return (int(match[1]), int(match[2] or 0)) if match else None


def _is_adaptive(model: str, version: tuple[int, int] | None) -> bool:
    """Whether the model decides itself how much it thinks."""
    return version >= (4, 6) if version else "claude" in model.lower()


def _default_max_tokens(version: tuple[int, int] | None) -> int:
    """What every model of that version can give."""
    if version is None:
        return 8192
    # More than a model can give is a 400; less cuts answers that it could have given.
    return 4096 if version < (3, 5) else 8192 if version < (3, 7) else 32_000


def _thinking(
    body: Mapping[str, Any], version: tuple[int, int] | None, max_tokens: int, model: str, options: AnthropicOptions
) -> tuple[dict[str, Any] | None, str | None]:
    """The thinking field and the effort."""
    if isinstance(given := body.get("thinking"), dict):
        return given, None
    effort = effort_of(body)
    # A forced tool and thinking exclude each other:
    # https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking
    if effort in (None, "none") or options.thinking == "off" or choice_of(body).mode in ("any", "tool"):
        return None, None
    if options.thinking == "adaptive" or (options.thinking == "auto" and _is_adaptive(model, version)):
        effort = "low" if effort == "minimal" else effort
        return {"type": "adaptive"}, effort if effort in _EFFORTS else None
    # The thoughts count as output: half is left for the answer.
    budget = min(BUDGETS.get(effort or "", BUDGETS["medium"]), max_tokens // 2)
    if budget < _MIN_BUDGET or (options.thinking == "auto" and version is not None and version < (3, 7)):
        return None, None
    return {"type": "enabled", "budget_tokens": budget}, None


def _may_think(messages: list[dict[str, Any]]) -> bool:
    """Whether manual thinking can go on: a call that is being answered must have begun with a thought."""
    # Else a 400, `Expected thinking or redacted_thinking, but found tool_use`:
    # https://github.com/Kilo-Org/kilocode/issues/5219
    if messages[-1]["content"][0]["type"] != "tool_result":
        return True
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    return last is None or last["content"][0]["type"] in _THOUGHTS


def _sampling(body: Mapping[str, Any], version: tuple[int, int] | None, *, thinks: bool) -> dict[str, Any]:
    """Temperature and its kin, as far as the model takes them."""
    # From 4.7 on any of them is a 400; before, thinking rules out temperature and `top_k`, and 4.1 and later take
    # temperature or `top_p`, not both. https://docs.anthropic.com/en/api/messages
    if version is not None and version >= (4, 7):
        return {}
    fields: dict[str, Any] = {}
    temperature, top_p, top_k = (number_of(body, name) for name in ("temperature", "top_p", "top_k"))
    if temperature is not None and not thinks:
        # OpenAI's goes to 2, and a higher one is a 400 here.
        fields["temperature"] = min(max(temperature, 0.0), 1.0)
    # One that sets both by default is refused: https://github.com/cloud-apim/otoroshi-llm-extension/issues/140
    both_refused = version is not None and version >= (4, 1) and "temperature" in fields
    # Beside thinking the API takes no `top_p` below 0.95.
    if top_p is not None and 0 <= top_p <= 1 and not both_refused and (not thinks or top_p >= 0.95):
        fields["top_p"] = top_p
    if top_k is not None and top_k >= 1 and not thinks:
        fields["top_k"] = int(top_k)
    return fields


def _more(
    body: Mapping[str, Any], thinking: dict[str, Any] | None, effort: str | None, options: AnthropicOptions
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if stops := stops_of(body):
        fields["stop_sequences"] = stops
    if body.get("stream") is True:
        fields["stream"] = True
    if thinking is not None:
        fields["thinking"] = thinking
    output: dict[str, Any] = {"effort": effort} if effort else {}
    wanted = dict_of(body.get("response_format"))
    if wanted.get("type") == "json_schema":
        schema = dict_of(dict_of(wanted.get("json_schema")).get("schema"))
        output["format"] = {"type": "json_schema", "schema": schema}
    if output:
        fields["output_config"] = output
    # Longer than the API takes: better no name than no answer.
    if 0 < len(user := string_of(body.get("user"))) <= 256:
        fields["metadata"] = {"user_id": user}
    if body.get("service_tier") in ("auto", "standard_only"):
        fields["service_tier"] = body["service_tier"]
    if options.prompt_caching and b'"cache_control"' not in msgspec.json.encode(
        [body.get("messages"), body.get("tools")]
    ):
        fields["cache_control"] = {"type": "ephemeral"}
    return fields


def _tools(body: Mapping[str, Any], called: dict[str, None]) -> dict[str, Any]:
    """The tools and the choice among them."""
    functions, choice = functions_of(body), choice_of(body)
    if choice.names and choice.mode != "tool":
        functions = [function for function in functions if function.name in choice.names]
    if not functions:
        # A history with calls needs tools beside it, though none may be called.
        if not called:
            return {}
        # A name and an object are the least that the API takes for a tool.
        # Agents leave the tools out when they ask for a summary: https://github.com/justlovemaki/AIClient2API/pull/199
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in called]
        return {"tools": tools, "tool_choice": {"type": "none"}}
    tools = []
    for function in functions:
        # A union at the root, as MCP servers write it for "one of these is needed", is a 400 for the whole request:
        # https://github.com/anomalyco/opencode/issues/35516
        tool: dict[str, Any] = {"name": function.name, "input_schema": rooted_object(function.parameters)}
        if function.description:
            tool["description"] = function.description
        if function.cache:
            tool["cache_control"] = function.cache
        tools.append(tool)
    wanted = _choice(choice, single=body.get("parallel_tool_calls") is False)
    return {"tools": tools, "tool_choice": wanted} if wanted else {"tools": tools}


def _choice(choice: Choice, *, single: bool) -> dict[str, Any] | None:
    wanted: dict[str, Any] = {"type": choice.mode}
    if choice.mode == "tool":
        wanted["name"] = choice.names[0]
    # OpenAI says it of the request, this API within the choice, so a choice is said where the client named none.
    if single and choice.mode != "none":
        wanted["disable_parallel_tool_use"] = True
    return wanted if choice.is_given or single else None


class _Conversation:
    """The messages, as they are turned one after the other."""

    def __init__(
        self, model: str, known: Mapping[str, bytes], scope: str, *, keeps_thoughts: bool, options: AnthropicOptions
    ) -> None:
        self.called: dict[str, None] = {}
        self._model = model
        self._known = known
        self._scope = scope
        self._keeps_thoughts = keeps_thoughts
        self._inline = options.late_system == "inline"
        self._system: list[dict[str, Any]] = []
        self._messages: list[dict[str, Any]] = []
        self._place = Place()
        self._ids = Names(_id)

    def add(self, message: dict[str, Any], where: str) -> None:
        """One more message."""
        self._add(message, where)
        self._place.pass_by(message)

    def _add(self, message: dict[str, Any], where: str) -> None:
        role = message["role"]
        if is_system(message):
            # Pictures in it are refused.
            blocks = _blocks(message.get("content"), where, only_text=True)
            if self._inline and self._messages:
                self._push("system", blocks)
            else:
                self._system += blocks
        elif role in ("tool", "function"):
            self._push("user", [self._result(message, where)])
        elif role == "user":
            self._push("user", _blocks(message.get("content"), where))
        else:
            self._push("assistant", self._assistant(message, where))

    def finished(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The system text and the messages."""
        messages = self._messages
        if not messages and self._system:
            messages.append({"role": "user", "content": [self._system.pop()]})
        if not messages:
            raise nothing_to_answer()
        # The API wants the user to begin: https://docs.anthropic.com/en/api/messages
        if messages[0]["role"] == "assistant":
            messages.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
        for message in messages:
            if message["role"] == "user":
                # A person's words before results are a 400, `must begin with a matching number of tool_result blocks`:
                # https://github.com/QwenLM/qwen-code/issues/8161
                # Stable: among results, and among words, the order stays.
                message["content"].sort(key=lambda block: block["type"] != "tool_result")
        _trim_end(messages)
        return self._system, messages

    def _push(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if not blocks:
            return
        # Results come as messages of their own from OpenAI's clients; here all of a turn's belong into one.
        if self._messages and self._messages[-1]["role"] == role:
            self._messages[-1]["content"] += blocks
        else:
            self._messages.append({"role": role, "content": blocks})

    def _assistant(self, message: dict[str, Any], where: str) -> list[dict[str, Any]]:
        texts = _blocks(message.get("content"), f"{where}.content", only_text=True)
        calls = [self._call(call) for call in tool_calls_of(message)]
        return recalled(
            self._known,
            message,
            self._place,
            texts,
            calls,
            model=self._model,
            scope=self._scope,
            keeps=self._keeps_thoughts,
        )

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        name = call["function"]["name"]
        self.called[name] = None
        return {
            "type": "tool_use",
            "id": self._ids.told(string_of(call.get("id"))),
            "name": name,
            "input": arguments_of(call),
        }

    def _result(self, message: dict[str, Any], where: str) -> dict[str, Any]:
        content = message.get("content")
        parts = list(parts_of(content, where=f"{where}.content"))
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": self._ids.told(string_of(message.get("tool_call_id")) or string_of(message.get("name"))),
        }
        if any(part.kind != "text" for part in parts):
            result["content"] = [_block(part, where) for part in parts if part.kind != "text" or part.text.strip()]
        else:
            # An empty result stays: without it the call would have none, which is a 400 as well.
            result["content"] = "".join(part.text for part in parts)
        for part in parts:
            if part.cache:
                result["cache_control"] = part.cache
                for block in result["content"] if isinstance(result["content"], list) else ():
                    # Four marks are all that a request may hold:
                    # https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
                    block.pop("cache_control", None)
        return result


def _id(call_id: str) -> str:
    """The id in letters that the API takes."""
    # Ids of other servers hold dots and colons, which are a 400: https://docs.anthropic.com/en/api/messages
    # Kimi's `functions.read:0` in a conversation that goes on with Claude:
    # https://github.com/farion1231/cc-switch/issues/1181
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id) or "call"


def _blocks(content: object, where: str, *, only_text: bool = False) -> list[dict[str, Any]]:
    parts = parts_of(content, where=where)
    return [
        _block(part, where)
        for part in parts
        # https://github.com/anthropics/claude-code/issues/23440
        # A block of white space alone is a 400; agents send `""` beside calls.
        if (part.kind == "text" and part.text.strip()) or (part.kind != "text" and not only_text)
    ]


def _block(part: Part, where: str) -> dict[str, Any]:
    block: dict[str, Any]
    if part.kind == "text":
        block = {"type": "text", "text": part.text}
    elif part.kind == "image":
        block = {"type": "image", "source": _source(part)}
    elif part.kind == "file":
        block = _document(part)
    else:
        raise InvalidRequest("this model server takes no sound", param=where)
    if part.cache:
        block["cache_control"] = part.cache
    return block


def _source(part: Part) -> dict[str, Any]:
    if part.file_id:
        return {"type": "file", "file_id": part.file_id}
    if part.blob.url:
        return {"type": "url", "url": part.blob.url}
    # https://docs.anthropic.com/en/docs/build-with-claude/vision
    # Many write `image/jpg`, which is registered nowhere and refused here.
    media_type = "image/jpeg" if part.blob.media_type == "image/jpg" else part.blob.media_type
    return {"type": "base64", "media_type": media_type, "data": part.blob.data}


def _document(part: Part) -> dict[str, Any]:
    if part.blob.media_type.startswith("image/"):
        return {"type": "image", "source": _source(part)}
    source = _source(part)
    if part.blob.media_type.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": _decoded_text(part.blob.data)}
    block = {"type": "document", "source": source}
    return {**block, "title": part.blob.name} if part.blob.name else block


def _decoded_text(data: str) -> str:
    try:
        return b64decode(data).decode("utf-8", "replace")
    except ValueError:
        return data


def _trim_end(messages: list[dict[str, Any]]) -> None:
    """An answer to be gone on with may not end in white space."""
    last = messages[-1]
    block = last["content"][-1]
    # A 400 else: https://github.com/tailcallhq/forgecode/issues/1872
    if last["role"] == "assistant" and block["type"] == "text":
        block["text"] = block["text"].rstrip()
