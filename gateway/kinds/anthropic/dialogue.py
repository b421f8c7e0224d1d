"""The kind of Anthropic's Messages API and of the servers that speak it.

A stream is message_start, then blocks (content_block_start, _delta, _stop) by index, then message_delta with the stop
reason and the final usage, message_stop; ping and error anywhere. Thoughts become `reasoning_content`; with their
signatures they are also remembered for the turns to come. Blocks of tools that the server runs itself are passed over.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from attrs import define, field, frozen

from gateway.kinds.anthropic.ask import AnthropicOptions, messages_request
from gateway.kinds.anthropic.thoughts import KIND, Layout
from gateway.kinds.lowering.rooted import is_rooted
from gateway.kinds.shared.answer import Plain, Usage
from gateway.kinds.shared.ask_parts import bounded_nesting
from gateway.kinds.shared.decoding import (
    bad_reply,
    compact,
    count_of,
    decoded,
    dict_of,
    is_plain,
    read_plain,
    string_of,
)
from gateway.kinds.shared.dialogue import PlacedDialogue
from gateway.kinds.shared.faults import Fault, fault_of_status, is_too_long
from gateway.kinds.shared.listing import listing
from gateway.kinds.shared.memory import Place, keys_of_history
from gateway.kinds.shared.port import Headers, HttpAsk, Situation, json_ask

__all__ = ["AnthropicKind"]

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
# https://docs.anthropic.com/en/api/errors
_FAULTS = {
    "invalid_request_error": (400, "invalid_request_error", "invalid_request"),
    "authentication_error": (401, "authentication_error", "invalid_api_key"),
    "billing_error": (402, "insufficient_quota", "insufficient_quota"),
    "permission_error": (403, "permission_error", "permission_denied"),
    "not_found_error": (404, "invalid_request_error", "model_not_found"),
    "request_too_large": (413, "invalid_request_error", "request_too_large"),
    "rate_limit_error": (429, "rate_limit_error", "rate_limit_exceeded"),
    "api_error": (500, "server_error", "server_error"),
    "timeout_error": (504, "server_error", "upstream_timeout"),
    "overloaded_error": (529, "server_error", "overloaded"),
}


class _Block(msgspec.Struct):
    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    data: Any = None
    id: Any = None
    name: Any = None
    input: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    id: Any = None
    type: Any = None
    model: Any = None
    content: list[_Block] | None = None
    stop_reason: Any = None
    usage: Any = None


class _Delta(msgspec.Struct):
    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    stop_reason: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    index: Any = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Any = None
    error: Any = None


_MESSAGE = msgspec.json.Decoder(_Message)
_EVENT = msgspec.json.Decoder(_Event)


class _PlainBlock(msgspec.Struct):
    type: str
    text: msgspec.Raw


class _PlainMessage(msgspec.Struct):
    content: list[_PlainBlock]
    id: Any = None
    model: Any = None
    stop_reason: Any = None
    usage: Any = None


_PLAIN = msgspec.json.Decoder(_PlainMessage)
_NOTHING_ASKED = HttpAsk(path="")


@frozen
class AnthropicKind:
    """Anthropic Messages."""

    options: AnthropicOptions = field(factory=AnthropicOptions)
    name: str = KIND

    def credentials(self, key: str | None, cookies: str | None = None) -> Headers:
        version = ("anthropic-version", self.options.version)
        if not key:
            return (version,)
        proof = ("Authorization", f"Bearer {key}") if self.options.auth == "bearer" else ("x-api-key", key)
        return (proof, version)

    def keys(self, body: Mapping[str, Any], *, scope: str = "") -> tuple[str, ...]:
        return keys_of_history(KIND, body, scope=scope)

    def begin(
        self,
        body: Mapping[str, Any],
        raw: bytes,
        *,
        situation: Situation,
        known: Mapping[str, bytes],
        original: Mapping[str, Any] | None = None,
    ) -> "_Dialogue":
        with bounded_nesting():
            request = messages_request(body, known=known, scope=situation.scope, options=self.options)
            data = msgspec.json.encode(request)
        ask = json_ask("/messages", data, streams=body.get("stream") is True)
        place = Place.after((original or body).get("messages"))
        return _Dialogue(ask, body, place, situation, ttl_s=self.options.memory_ttl_s)

    def hear(self, body: Mapping[str, Any], situation: Situation) -> "_Dialogue":
        """A dialogue that only hears the answer: whoever asks does so by himself."""
        return _Dialogue(_NOTHING_ASKED, body, Place(), situation, ttl_s=self.options.memory_ttl_s)

    def can_say(self, parameters: Mapping[str, Any]) -> bool:
        return is_rooted(parameters)

    def models_ask(self) -> HttpAsk:
        # Twenty by default: https://docs.anthropic.com/en/api/models-list
        return HttpAsk(method="GET", path="/models", query=(("limit", "1000"),))

    def models(self, body: bytes) -> bytes:
        return listing(body, "data", lambda entry: (string_of(entry.get("id")), "anthropic"))


def hear_plain(body: bytes, model: str, situation: Situation) -> Plain | None:
    """What a whole answer is in chat that says one text and nothing else; None for any other."""
    told = read_plain(body, _PLAIN)
    if told is None or len(told.content) != 1:
        return None
    [block], reason = told.content, told.stop_reason
    text = bytes(block.text)
    if block.type != "text" or not is_plain(text):
        return None
    named = told.model if isinstance(told.model, str) and told.model else model
    usage = told.usage if isinstance(told.usage, dict) else {}
    if None in usage.values():
        usage = {key: value for key, value in usage.items() if value is not None}
    reason = _REASONS.get(reason, "stop") if isinstance(reason, str) else "stop"
    answer_id = told.id if isinstance(told.id, str) and told.id else situation.answer_id
    return Plain(answer_id, named, int(situation.now), text, reason, _usage(usage))


@define
class _Open:
    """A block that has begun."""

    kind: Literal["text", "thought", "call", "other"]
    thought: dict[str, Any] = field(factory=dict)
    pieces: list[str] = field(factory=list)
    """Of a thought or its signature, joined at the end."""
    signature: list[str] = field(factory=list)
    number: int = 0
    given: str = ""
    """Arguments that came with the block's beginning."""
    has_arguments: bool = False


class _Dialogue(PlacedDialogue):
    """One Messages request."""

    kind = KIND

    def __init__(
        self, ask: HttpAsk, body: Mapping[str, Any], place: Place, situation: Situation, *, ttl_s: float
    ) -> None:
        super().__init__(ask, body, place, situation, ttl_s=ttl_s)
        self._layout = Layout()
        self._blocks: dict[int, _Open] = {}
        self._usage: dict[str, Any] = {}

    def _kept(self) -> bytes | None:
        return self._layout.packed(self._model)

    def _whole(self, body: bytes) -> None:
        message = decoded(body, _MESSAGE)
        if message.content is None:
            raise bad_reply()
        self._begin(message)
        for number, block in enumerate(message.content):
            self._start(number, block)
            self._end_block(number)
        self._learn_usage(message.usage)
        self._reason(message.stop_reason)

    def _event(self, data: bytes) -> None:
        event = decoded(data, _EVENT)
        match event.type:
            case "message_start" if event.message is not None:
                self._begin(event.message)
                self._answer.open()
            case "content_block_start" if event.content_block is not None:
                self._start(_number(event.index), event.content_block)
            case "content_block_delta" if event.delta is not None:
                self._delta(_number(event.index), event.delta)
            case "content_block_stop":
                self._end_block(_number(event.index))
            case "message_delta":
                self._learn_usage(event.usage)
                self._reason(event.delta.stop_reason if event.delta is not None else None)
            case "message_stop":
                self._answer.finish_reason = self._answer.finish_reason or "stop"
                self._stop()
            case "error":
                self._refuse(event.error)

    def _begin(self, message: _Message) -> None:
        self._answer.identify(message.id, message.model)
        self._learn_usage(message.usage)

    def _start(self, number: int, block: _Block) -> None:
        match block.type:
            case "text":
                self._blocks[number] = _Open("text")
                self._text(string_of(block.text))
            case "thinking":
                self._blocks[number] = opened = _Open("thought", {"type": "thinking"})
                self._layout.thought(opened.thought)
                self._think(opened, string_of(block.thinking))
                opened.signature.append(string_of(block.signature))
            # It is not shown, but must go back as it came:
            # https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking
            case "redacted_thinking":
                self._blocks[number] = _Open("other")
                self._layout.thought({"type": "redacted_thinking", "data": string_of(block.data)})
            case "tool_use":
                self._blocks[number] = self._call(block)
            case _:
                self._blocks[number] = _Open("other")

    def _call(self, block: _Block) -> _Open:
        call_id = string_of(block.id) or self._situation.make_id("native")
        # A call without parameters has no delta; its whole input stands in its start, where others have `{}`.
        given = compact(block.input) if bytes(block.input).strip() not in (b"", b"null") else "{}"
        self._layout.call(call_id)
        return _Open("call", number=self._answer.call(call_id, string_of(block.name)), given=given)

    def _delta(self, number: int, delta: _Delta) -> None:
        block = self._blocks.get(number)
        # A delta without its block is a stream that has lost events; no call may be made of the rest.
        if block is None:
            raise bad_reply()
        match delta.type:
            case "text_delta" if block.kind == "text":
                self._text(string_of(delta.text))
            case "thinking_delta" if block.kind == "thought":
                self._think(block, string_of(delta.thinking))
            # A thought without its signature is refused in the next turn, so both are kept to the last character.
            case "signature_delta" if block.kind == "thought":
                block.signature.append(string_of(delta.signature))
            case "input_json_delta" if block.kind == "call":
                piece = string_of(delta.partial_json)
                block.has_arguments = block.has_arguments or bool(piece)
                self._answer.arguments(block.number, piece)

    def _end_block(self, number: int) -> None:
        block = self._blocks.pop(number, None)
        if block is None:
            return
        if block.kind == "call" and not block.has_arguments:
            self._answer.arguments(block.number, block.given)
        elif block.kind == "thought":
            block.thought["thinking"] = "".join(block.pieces)
            block.thought["signature"] = "".join(block.signature)

    def _text(self, text: str) -> None:
        self._layout.text(len(text))
        self._answer.text(text)

    def _think(self, block: _Open, text: str) -> None:
        block.pieces.append(text)
        self._answer.reasoning(text)

    def _learn_usage(self, usage: object) -> None:
        # The counts of `message_delta` go beyond those of `message_start`, and servers of others leave some null.
        self._usage.update({key: value for key, value in dict_of(usage).items() if value is not None})

    def _reason(self, reason: object) -> None:
        if isinstance(reason, str):
            self._answer.finish_reason = _REASONS.get(reason, "stop")

    def _complete(self) -> None:
        super()._complete()
        for number in list(self._blocks):
            self._end_block(number)
        self._answer.usage = _usage(self._usage)

    def _fault(self, value: Mapping[str, Any], status: int) -> Fault | None:
        return _fault(dict_of(value.get("error")), status)


def _number(index: object) -> int:
    number = count_of(index)
    if number is None:
        raise bad_reply()
    return number


def _usage(told: dict[str, Any]) -> Usage | None:
    if not told:
        return None
    fresh, output = count_of(told.get("input_tokens")), count_of(told.get("output_tokens"))
    written, read = told.get("cache_creation_input_tokens"), told.get("cache_read_input_tokens")
    written, read = count_of(written) if written else 0, None if read is None else count_of(read)
    details = told.get("output_tokens_details")
    return Usage(
        # Here `input_tokens` counts only what stands behind the cached part; OpenAI counts all of it:
        # https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
        prompt=(fresh or 0) + (written or 0) + (read or 0),
        completion=output or 0,
        cached=read,
        reasoning=count_of(details.get("thinking_tokens")) if isinstance(details, dict) else None,
    )


def _fault(error: dict[str, Any], status: int) -> Fault | None:
    told, message = string_of(error.get("type")), string_of(error.get("message"))
    if not told and not message:
        return None
    own, kind, code = _FAULTS.get(told, (status, "", ""))
    if not kind:
        plain = fault_of_status(status, message)
        kind, code = plain.type, plain.code
    # The one code by which agents shorten their conversation in place of giving up.
    if kind == "invalid_request_error" and is_too_long(message):
        code = "context_length_exceeded"
    # Within a stream no status comes with the error; its type then says which it would have been.
    status = status if status != 500 or told == "api_error" else own
    return Fault(status=status, message=message or told, type=kind, code=code)
