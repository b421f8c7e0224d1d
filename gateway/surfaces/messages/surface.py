"""The surface of Anthropic's Messages: `POST /v1/messages`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import frozen

from gateway.core.errors import GatewayError, InvalidRequest, ThreadUnsupported
from gateway.surfaces.checks import MAX_ITEMS, bounded, effort_for, limit_field, token_limit
from gateway.surfaces.messages.carrier import MessagesCarrier
from gateway.surfaces.messages.faults import error_of
from gateway.surfaces.messages.history import History, loaded_tools, system_of
from gateway.surfaces.messages.telling import MessagesTelling, Terms, Thinking
from gateway.surfaces.messages.tools import Tools, tools_of
from gateway.surfaces.past import tell_all
from gateway.surfaces.port import Asked, Server, Situation
from gateway.surfaces.seals import Seals
from gateway.surfaces.toolnames import ToolNames
from gateway.surfaces.turns import Finished, Turns
from gateway.wire.chat_request import ChatRequest, decoded_body, request_of

__all__ = ["MESSAGES", "MessagesSurface"]

# The API demands the field; without it a server's own default may be very short.
DEFAULT_MAX_TOKENS = 4096
_ONCE = frozenset({"model", "messages", "stream", "system", "tools", "tool_choice", "max_tokens"})
_UNSENT = (
    "metadata",
    "context_management",
    "service_tier",
    "mcp_servers",
    "container",
    "speed",
    "inference_geo",
    "betas",
)
_KNOWN = frozenset(
    {
        *_ONCE,
        *_UNSENT,
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "thinking",
        "output_config",
        "output_format",
        "cache_control",
    }
)
_PLAIN = _KNOWN.difference(_UNSENT)
_SHAPING = frozenset({"output_config", "output_format"})
_SESSION = "X-Claude-Code-Session-Id"


@frozen
class MessagesSurface:
    """`POST /v1/messages`."""

    name: str = "messages"
    path: str = "messages"
    is_identity: bool = False

    def accept(self, raw: bytes, situation: Situation, known: Mapping[str, bytes]) -> Asked:
        del known
        body = decoded_body(raw, once=_ONCE)
        model = body.get("model")
        if not isinstance(model, str) or not model.strip():
            raise InvalidRequest("model must be a non-empty string", param="model")
        try:
            return _accepted(body, model, situation)
        except GatewayError as error:
            return _refused(body, model, situation, error)

    def error(self, error: GatewayError, *, status: int, request_id: str) -> tuple[int, bytes]:
        return error_of(error, status=status, request_id=request_id)

    def head(self, request_id: str) -> Mapping[str, str]:
        # Anthropic's SDKs read it under this name: https://docs.anthropic.com/en/api/errors#request-id
        return {"request-id": request_id}


MESSAGES = MessagesSurface()


def _accepted(body: dict[str, Any], model: str, situation: Situation) -> Asked:
    server = situation.server(model)
    messages = bounded(body.get("messages"), MAX_ITEMS, "messages")
    if not messages:
        raise InvalidRequest("messages must not be empty", param="messages")
    if body.get("thread") is not None:
        raise ThreadUnsupported("no thread is kept here: send all messages with each request", param="thread")
    dropped = [] if _PLAIN.issuperset(body) else _unsent(body)
    tools = tools_of(body, partial(loaded_tools, messages), keeps_cache_control=server.keeps_cache_control)
    dropped += ["server_tool"] * len(tools.left_out)
    own_name = tools.names.of_client
    seals = Seals(situation.secret, situation.scope)
    turns = Turns(late_system=server.late_system, keeps=server.history_reasoning)
    turns.lead(system_of(body, server, dropped))
    history = History(turns=turns, names=tools.names, server=server, seals=seals, dropped=dropped)
    tell_all(history, messages, "messages", server)
    chat = turns.finished()
    told = chat.messages
    if not told or (told[-1]["role"] == "system" and not any(message["role"] != "system" for message in told)):
        raise InvalidRequest("messages must not be empty", param="messages")
    request = _chat(body, model, chat, tools, server)
    return Asked(
        request=request,
        tell=_telling(body, request, situation, seals, own_name),
        conversation=situation.headers.get(_SESSION),
        dropped=tuple(dropped),
        mended=tuple(turns.mended),
        left_out=tuple(tools.left_out),
        carry=partial(MessagesCarrier, own_name),
        is_bound=seals.has_met_one,
    )


def _refused(body: dict[str, Any], model: str, situation: Situation, error: GatewayError) -> Asked:
    """A request that has no form in chat: a server that speaks its wire may take it all the same."""
    question = {"role": "user", "content": ""}
    request = request_of({"model": model, "messages": [question], "stream": body.get("stream") is True})
    seals = Seals(situation.secret, situation.scope)
    named = situation.headers.get(_SESSION)
    return Asked(
        request=request,
        tell=_telling(body, request, situation, seals, ToolNames().of_client),
        refusal=error,
        conversation=named,
    )


def _telling(
    body: Mapping[str, Any], request: ChatRequest, situation: Situation, seals: Seals, own_name: Callable[[str], str]
) -> Callable[[], MessagesTelling]:
    stops = body.get("stop_sequences")
    terms = Terms(
        message_id=f"msg_{situation.unique}",
        model=request.model,
        thinking=_thinking(body) if "thinking" in body else "hidden",
        seals=seals,
        own_name=own_name,
        stops=tuple([each for each in stops if isinstance(each, str)]) if isinstance(stops, list) else (),
    )
    return partial(MessagesTelling, terms)


def _thinking(body: Mapping[str, Any]) -> Thinking:
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") not in ("enabled", "adaptive"):
        return "hidden"
    return "omitted" if thinking.get("display") == "omitted" else "shown"


def _unsent(body: Mapping[str, Any]) -> list[str]:
    """What of the request has no place in chat, a word each; what is unknown counts as other."""
    return [name if name in _UNSENT else "other" for name in body if name in _UNSENT or name not in _KNOWN]


def _chat(body: Mapping[str, Any], model: str, told: Finished, tools: Tools, server: Server) -> ChatRequest:
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise InvalidRequest("stream must be true or false", param="stream")
    chat: dict[str, Any] = {"model": model, "messages": told.messages}
    wanted = body.get("max_tokens")
    chat[limit_field(model)] = token_limit(DEFAULT_MAX_TOKENS if wanted is None else wanted, server, "max_tokens")
    for name in ("temperature", "top_p", "top_k"):
        if body.get(name) is not None:
            chat[name] = body[name]
    stops = body.get("stop_sequences")
    if isinstance(stops, list) and stops:
        chat["stop"] = stops
    if stream:
        chat["stream"] = True
        # Claude Code counts its context by the usage of each answer.
        chat["stream_options"] = {"include_usage": True}
    chat.update(tools.fields)
    if not _SHAPING.isdisjoint(body):
        chat.update(_output(body, model, server))
    if "thinking" in body:
        chat.update(_thinking_fields(body, server))
    return request_of(chat, told.written)


def _output(body: Mapping[str, Any], model: str, server: Server) -> dict[str, Any]:
    """The form of the answer, and how hard it is thought about."""
    config = body.get("output_config")
    config = config if isinstance(config, dict) else {}
    fields: dict[str, Any] = {}
    form = config.get("format") or body.get("output_format")
    if isinstance(form, dict) and form.get("type") == "json_schema" and isinstance(form.get("schema"), dict):
        schema = {"name": "answer", "schema": form["schema"], "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    effort = effort_for(config.get("effort"), model, server)
    if effort is not None:
        fields["reasoning_effort"] = effort
    return fields


def _thinking_fields(body: Mapping[str, Any], server: Server) -> dict[str, Any]:
    """Whether the model is to think, for servers that can be told."""
    thinking = body.get("thinking")
    if not isinstance(thinking, dict):
        return {}
    # A server of that wire behind a translation: it takes the very words.
    if server.knows_messages:
        return {"thinking": thinking}
    if server.thinking != "chat_template_kwargs":
        return {}
    # As vLLM and SGLang pass it to Qwen's and GLM's templates: https://huggingface.co/Qwen/Qwen3-32B
    return {"chat_template_kwargs": {"enable_thinking": thinking.get("type") != "disabled"}}
