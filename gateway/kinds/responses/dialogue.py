"""The kind of OpenAI's Responses API.

A stream opens items (messages, thoughts, calls) by index, tells their pieces, and closes each with all that it came to;
the last event has the whole response. What was only told at the end of an item is told then. Thoughts that only the
server can read are remembered for the turns to come.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import define, field, frozen

from gateway.kinds.lowering.rooted import is_rooted
from gateway.kinds.responses.ask import KIND, ResponsesOptions, responses_request
from gateway.kinds.shared.answer import Plain, Usage
from gateway.kinds.shared.ask_parts import bounded_nesting
from gateway.kinds.shared.decoding import bad_reply, count_of, decoded, dict_of, is_plain, read_plain, string_of
from gateway.kinds.shared.dialogue import PlacedDialogue
from gateway.kinds.shared.faults import Fault, fault_of_status, is_too_long
from gateway.kinds.shared.memory import Place, keys_of_history
from gateway.kinds.shared.port import Headers, HttpAsk, Situation, json_ask

__all__ = ["ResponsesKind"]

_MAX_KEPT = 1 << 20
_REASONS = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
_THOUGHT_FIELDS = ("type", "id", "summary", "encrypted_content")
# The codes of https://platform.openai.com/docs/guides/error-codes and of `response.failed`.
_STATUSES = {
    "rate_limit_exceeded": (429, "rate_limit_error"),
    "insufficient_quota": (429, "insufficient_quota"),
    "context_length_exceeded": (400, "invalid_request_error"),
    "invalid_prompt": (400, "invalid_request_error"),
    "server_is_overloaded": (503, "server_error"),
    "slow_down": (503, "server_error"),
    "server_error": (500, "server_error"),
}


class _Event(msgspec.Struct):
    type: Any = None
    response: Any = None
    item: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    error: Any = None
    code: Any = None
    message: Any = None


_EVENT = msgspec.json.Decoder(_Event)


class _PlainPart(msgspec.Struct):
    type: str
    text: msgspec.Raw


class _PlainItem(msgspec.Struct):
    type: str
    content: list[_PlainPart]


class _PlainResponse(msgspec.Struct):
    output: list[_PlainItem]
    status: str
    id: Any = None
    model: Any = None
    usage: Any = None


_PLAIN = msgspec.json.Decoder(_PlainResponse)
_NOTHING_ASKED = HttpAsk(path="")
_BODY = msgspec.json.Decoder(dict[str, Any])


@frozen
class ResponsesKind:
    """OpenAI Responses."""

    options: ResponsesOptions = field(factory=ResponsesOptions)
    name: str = KIND

    def credentials(self, key: str | None, cookies: str | None = None) -> Headers:
        return (("Authorization", f"Bearer {key}"),) if key else ()

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
            request = responses_request(body, known=known, scope=situation.scope, options=self.options)
            data = msgspec.json.encode(request)
        ask = json_ask("/responses", data, streams=body.get("stream") is True)
        place = Place.after((original or body).get("messages"))
        return _Dialogue(ask, body, place, situation, ttl_s=self.options.memory_ttl_s)

    def hear(self, body: Mapping[str, Any], situation: Situation) -> "_Dialogue":
        """A dialogue that only hears the answer: whoever asks does so by himself."""
        return _Dialogue(_NOTHING_ASKED, body, Place(), situation, ttl_s=self.options.memory_ttl_s)

    def can_say(self, parameters: Mapping[str, Any]) -> bool:
        return is_rooted(parameters)

    def models_ask(self) -> HttpAsk:
        return HttpAsk(method="GET", path="/models")

    def models(self, body: bytes) -> bytes:
        return body


def hear_plain(body: bytes, model: str, situation: Situation) -> Plain | None:
    """What a whole answer is in chat that says one text and nothing else; None for any other."""
    told = read_plain(body, _PLAIN)
    # Anything more is read the long way: this one is for the answers that say a text and nothing besides.
    if told is None or told.status != "completed" or len(told.output) != 1 or len(told.output[0].content) != 1:
        return None
    [item] = told.output
    [part] = item.content
    text = bytes(part.text)
    if item.type != "message" or part.type != "output_text" or not is_plain(text):
        return None
    named = told.model if isinstance(told.model, str) and told.model else model
    answer_id = told.id if isinstance(told.id, str) and told.id else situation.answer_id
    return Plain(answer_id, named, int(situation.now), text, "stop", _usage(dict_of(told.usage)))


@define
class _Item:
    """An item that has begun."""

    kind: str = ""
    is_told: bool = False
    """Pieces of it came; what stands in it at its end is no news."""
    number: int = 0
    """Of a call."""
    paragraph: Any = None
    """Of a thought the one that is under way."""


class _Dialogue(PlacedDialogue):
    """One Responses request."""

    kind = KIND

    def __init__(
        self, ask: HttpAsk, body: Mapping[str, Any], place: Place, situation: Situation, *, ttl_s: float
    ) -> None:
        super().__init__(ask, body, place, situation, ttl_s=ttl_s)
        self._items: dict[int, _Item] = {}
        self._layout: list[Any] = []
        """Thoughts whole, the text as an empty word, calls by their ids, in their order."""

    def _kept(self) -> bytes | None:
        # Without a sealed thought the next request says all by itself.
        if not any(isinstance(each, dict) for each in self._layout):
            return None
        data = msgspec.json.encode({"model": self._model, "items": self._layout})
        return data if len(data) <= _MAX_KEPT else None

    def _whole(self, body: bytes) -> None:
        told = decoded(body, _BODY)
        output = told.get("output")
        # A failed one comes with status 200, too: what is in its output is no answer.
        if not isinstance(output, list) or told.get("status") == "failed":
            raise bad_reply()
        self._answer.identify(told.get("id"), told.get("model"))
        for number, item in enumerate(output):
            self._end_item(number, dict_of(item))
        self._ended(told)

    def _event(self, data: bytes) -> None:
        event = decoded(data, _EVENT)
        match event.type:
            case "response.created" | "response.in_progress":
                told = dict_of(event.response)
                self._answer.identify(told.get("id"), told.get("model"))
                self._answer.open()
            case "response.output_item.added":
                self._begin_item(_number(event.output_index), dict_of(event.item))
            case "response.output_text.delta" | "response.refusal.delta":
                self._text(self._item(event, "message"), string_of(event.delta))
            case "response.reasoning_text.delta":
                self._think(self._item(event, "reasoning"), ("text", event.content_index), string_of(event.delta))
            case "response.reasoning_summary_text.delta":
                self._think(self._item(event, "reasoning"), ("summary", event.summary_index), string_of(event.delta))
            case "response.function_call_arguments.delta":
                item = self._item(event, "function_call")
                item.is_told = True
                self._answer.arguments(item.number, string_of(event.delta))
            case "response.output_item.done":
                self._end_item(_number(event.output_index), dict_of(event.item))
            # `[DONE]` is not waited for: this wire does not have it.
            case "response.completed" | "response.incomplete":
                self._ended(dict_of(event.response))
                self._stop()
            case "response.failed":
                self._refuse(dict_of(event.response).get("error"))
            case "error":
                self._refuse(event.error or {"code": event.code, "message": event.message})
            # The form of a whole answer's fault, which may end a stream as well.
            case None if event.error is not None:  # as its body has it
                self._refuse(event.error)

    def _item(self, event: _Event, kind: str) -> _Item:
        item = self._items.get(_number(event.output_index))
        # Pieces of an item that has not begun, or of another: to guess which it is could put text into a call.
        if item is None or item.kind != kind:
            raise bad_reply()
        return item

    def _begin_item(self, number: int, told: dict[str, Any]) -> _Item:
        item = self._items[number] = _Item(kind=string_of(told.get("type")))
        if item.kind == "function_call":
            # The item's own `id` is not the one that a result is told with.
            call_id = string_of(told.get("call_id")) or self._situation.make_id("native")
            item.number = self._answer.call(call_id, string_of(told.get("name")))
            self._layout.append(call_id)
        # Chat has one text: several messages are one there, at the place of the first.
        elif item.kind == "message" and "" not in self._layout:
            self._layout.append("")
        return item

    def _end_item(self, number: int, told: dict[str, Any]) -> None:
        """The item whole: what was not told piece by piece is told now."""
        item = self._items.pop(number, None)
        if item is None:
            item = self._begin_item(number, told)
            # It has ended with its beginning: pieces that came for it now would be told twice.
            del self._items[number]
        # Some servers tell an item only at its end, others each piece and then the whole once more.
        match item.kind:
            case "message" if not item.is_told:
                for part in _objects(told.get("content")):
                    self._text(item, string_of(part.get("refusal" if part.get("type") == "refusal" else "text")))
            case "reasoning":
                if not item.is_told:
                    self._think_whole(item, told)
                if told.get("encrypted_content"):
                    self._layout.append({name: told[name] for name in _THOUGHT_FIELDS if name in told})
            case "function_call" if not item.is_told:
                self._answer.arguments(item.number, string_of(told.get("arguments")))

    def _text(self, item: _Item, text: str) -> None:
        item.is_told = True
        self._answer.text(text)

    def _think_whole(self, item: _Item, told: dict[str, Any]) -> None:
        content = _objects(told.get("content"))
        for number, part in enumerate(content or _objects(told.get("summary"))):
            self._think(item, number, string_of(part.get("text")))

    def _think(self, item: _Item, paragraph: object, text: str) -> None:
        """More of a thought; its paragraphs are parted as the text of one."""
        if item.is_told and paragraph != item.paragraph:
            # Summaries come as paragraphs without a break of their own.
            self._answer.reasoning("\n\n")
        item.is_told, item.paragraph = True, paragraph
        self._answer.reasoning(text)

    def _ended(self, told: dict[str, Any]) -> None:
        self._answer.usage = _usage(dict_of(told.get("usage")))
        reason = string_of(dict_of(told.get("incomplete_details")).get("reason"))
        is_whole = told.get("status") != "incomplete"
        self._answer.finish_reason = "stop" if is_whole else _REASONS.get(reason, "length")

    def _fault(self, value: Mapping[str, Any], status: int) -> Fault | None:
        return _fault(value.get("error") or value, status)


def _number(index: object) -> int:
    number = count_of(index)
    if number is None:
        raise bad_reply()
    return number


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _usage(told: dict[str, Any]) -> Usage | None:
    prompt, completion = count_of(told.get("input_tokens")), count_of(told.get("output_tokens"))
    if prompt is None or completion is None:
        return None
    return Usage(
        prompt=prompt,
        completion=completion,
        cached=count_of(dict_of(told.get("input_tokens_details")).get("cached_tokens")),
        reasoning=count_of(dict_of(told.get("output_tokens_details")).get("reasoning_tokens")),
    )


def _fault(error: object, status: int) -> Fault | None:
    if isinstance(error, str):
        error = {"message": error}
    told = dict_of(error)
    code, message = string_of(told.get("code")), string_of(told.get("message"))
    if not code and not message:
        return None
    plain = fault_of_status(status, message)
    known_status, kind = _STATUSES.get(code, (status, string_of(told.get("type")) or plain.type))
    if kind == "invalid_request_error" and is_too_long(message):
        code = "context_length_exceeded"
    return Fault(
        status=known_status if status == 500 else status, message=message or code, type=kind, code=code or plain.code
    )
