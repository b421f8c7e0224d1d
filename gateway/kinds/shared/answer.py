"""What a server said, told as OpenAI chat: chunk by chunk, or as one body. Both are told by the same calls.

An `Answer` is one choice. In a stream every call adds chunks, which `take` hands over; the end is told in one go:
finish reason, usage if the request asked for it, `[DONE]`. `Feed` carries a server's stream to whoever reads its
events: after a fault it gives one error event and nothing more, as it may no longer say `[DONE]`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import define, field

from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamRejected, UpstreamTruncated
from gateway.kinds.shared.decoding import dict_of, string_of
from gateway.kinds.shared.port import Reply, Situation
from gateway.wire.chat_chunks import encode_object
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, encode

__all__ = ["Answer", "Feed", "Plain", "Usage", "gathered", "is_stream"]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer took, in tokens."""

    prompt: int = 0
    """All input, cached or not."""
    completion: int = 0
    cached: int | None = None
    reasoning: int | None = None
    """How much of the completion was reasoning."""

    def fields(self) -> dict[str, Any]:
        """The usage object."""
        told: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }
        if self.cached is not None:
            told["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if self.reasoning is not None:
            told["completion_tokens_details"] = {"reasoning_tokens": self.reasoning}
        return told


@define
class _Call:
    id: str
    name: str
    pieces: list[str] = field(factory=list)


@define(kw_only=True)
class Answer:
    """One choice of an answer, as it becomes known."""

    model: str
    created: int
    streams: bool
    tells_usage: bool = True
    """Whether the end of a stream tells the usage; a body always does."""
    id: str
    usage: Usage | None = None
    finish_reason: str | None = None
    _texts: list[str] = field(factory=list, init=False)
    _thoughts: list[str] = field(factory=list, init=False)
    _calls: list[_Call] = field(factory=list, init=False)
    _pending: list[bytes] = field(factory=list, init=False)
    is_open: bool = field(default=False, init=False)
    is_ended: bool = field(default=False, init=False)

    @classmethod
    def to(cls, body: Mapping[str, Any], situation: Situation) -> "Answer":
        """The answer to a request, of which nothing is known yet."""
        return cls(
            id=situation.answer_id,
            model=string_of(body.get("model")),
            created=int(situation.now),
            streams=body.get("stream") is True,
            tells_usage=dict_of(body.get("stream_options")).get("include_usage") is True,
        )

    @property
    def content(self) -> str:
        """All text so far."""
        return "".join(self._texts)

    def identify(self, answer_id: object, model: object) -> None:
        """What the server calls the answer and the model; it counts until the answer has begun."""
        if self.is_open:
            return
        self.id = answer_id if isinstance(answer_id, str) and answer_id else self.id
        self.model = model if isinstance(model, str) and model else self.model

    def open(self) -> None:
        """The answer has begun."""
        if not self.is_open:
            self.is_open = True
            # SDKs take the role from the first chunk alone, and a chunk with an empty text would begin an answer's
            # text.
            self._add({"role": "assistant", "content": None})

    def text(self, text: str) -> None:
        """More content."""
        if text:
            self._texts.append(text)
            self._say({"content": text})

    def reasoning(self, text: str) -> None:
        """More reasoning."""
        if text:
            self._thoughts.append(text)
            self._say({"reasoning_content": text})

    def call(self, call_id: str, name: str) -> int:
        """A call begins; the number it has."""
        number = len(self._calls)
        self._calls.append(_Call(call_id, name))
        function = {"name": name, "arguments": ""}
        self._say({"tool_calls": [{"index": number, "id": call_id, "type": "function", "function": function}]})
        return number

    def arguments(self, number: int, piece: str) -> None:
        """More of a call's arguments."""
        if piece:
            self._calls[number].pieces.append(piece)
            self._say({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})

    def end(self) -> None:
        """The answer is complete."""
        self.open()
        # Clients that add pieces up would end with null where an answer says nothing.
        self._add({} if self._texts or self._calls else {"content": ""}, self._reason())
        if self.tells_usage and self.usage is not None:
            self._emit({"choices": [], "usage": self.usage.fields()})
        if self.streams:
            self._pending.append(encode(DONE))
        self.is_ended = True

    def take(self) -> bytes:
        """The chunks since the last time."""
        taken = b"".join(self._pending)
        self._pending.clear()
        return taken

    def message(self) -> dict[str, Any]:
        """The whole message."""
        content = self.content
        # As OpenAI's own has it: null beside calls, a text, be it an empty one, without any.
        told: dict[str, Any] = {"role": "assistant", "content": content if content or not self._calls else None}
        if self._thoughts:
            told["reasoning_content"] = "".join(self._thoughts)
        if self._calls:
            told["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "".join(call.pieces)},
                }
                for call in self._calls
            ]
        return told

    def body(self) -> bytes:
        """The whole answer."""
        choice = {"index": 0, "message": self.message(), "finish_reason": self._reason()}
        told = {**self._head("chat.completion"), "choices": [choice]}
        if self.usage is not None:
            told["usage"] = self.usage.fields()
        return msgspec.json.encode(told)

    def _reason(self) -> str:
        reason = self.finish_reason or "stop"
        # Agents look at the reason before they look for calls: https://github.com/sgl-project/sglang/issues/2877
        return "tool_calls" if self._calls and reason == "stop" else reason

    def _say(self, delta: dict[str, Any]) -> None:
        self.open()
        self._add(delta)

    def _add(self, delta: dict[str, Any], reason: str | None = None) -> None:
        self._emit({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def _emit(self, fields: dict[str, Any]) -> None:
        if self.streams:
            self._pending.append(encode_object({**self._head("chat.completion.chunk"), **fields}))

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


class Plain(msgspec.Struct, frozen=True):
    """A whole answer that says one text and nothing else."""

    id: str
    model: str
    created: int
    text: bytes
    """A JSON string as it stands, with no half of a character."""
    finish_reason: str
    usage: Usage | None

    def said(self, content: object = None) -> dict[str, Any]:
        """The chat answer, decoded; perhaps with something else in the place of its text."""
        message = {"role": "assistant", "content": msgspec.json.decode(self.text) if content is None else content}
        told: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}],
        }
        if self.usage is not None:
            told["usage"] = self.usage.fields()
        return told

    def body(self) -> bytes:
        """The chat answer."""
        return msgspec.json.encode(self.said(msgspec.Raw(self.text)))


class Feed:
    """Brings a server's events to `on_event`, which may raise `GatewayError`, and collects what `answer` says then."""

    __slots__ = ("_answer", "_decoder", "_is_over", "_on_event", "fault")

    def __init__(self, on_event: Callable[[bytes], None], answer: Answer, *, max_event_bytes: int) -> None:
        self._on_event = on_event
        self._answer = answer
        self._decoder = SseDecoder(max_event_bytes)
        self._is_over = False
        self.fault: GatewayError | None = None
        """What ended the stream early."""

    def feed(self, data: bytes) -> bytes:
        """What these bytes of the server's stream come to."""
        if self._is_over:
            return b""
        try:
            events = self._decoder.feed(data)
        except EventTooLong:
            return self._fail(UpstreamBadReply("an event of the model server's answer is too long"))
        return self._read([event for _, event in events])

    def finish(self, at_end: Callable[[], None]) -> bytes:
        """What the end of the server's stream comes to; `at_end` is asked unless a fault has ended it before."""
        out = b"" if self._is_over else self._read([event for _, event in self._decoder.finish()])
        if self._is_over:
            return out
        self._end()
        at_end()
        return out + self._answer.take()

    def _read(self, events: list[bytes | None]) -> bytes:
        for event in events:
            if event is None or not event.strip() or event == DONE:
                continue
            try:
                self._on_event(event)
            except GatewayError as error:
                return self._fail(error)
            if self._answer.is_ended:
                self._end()
                break
        return self._answer.take()

    def _end(self) -> None:
        """Whoever reads is let go of: together they would be kept until somebody looks for garbage."""
        self._is_over, self._on_event = True, _unheard

    def _fail(self, error: GatewayError) -> bytes:
        self._end()
        self.fault = error
        return self._answer.take() + encode_object(error.body())


def _unheard(_: bytes) -> None:
    """Nothing is read any more."""


def is_stream(body: bytes) -> bool:
    """Whether a body that was read whole is a stream of events."""
    # By its bytes, as servers send streams under `application/json` and the other way round.
    return body[:64].lstrip(b"\xef\xbb\xbf\r\n ").startswith((b"data:", b"event:", b"id:", b":"))


def gathered(feed: Feed, answer: Answer, body: bytes, at_end: Callable[[], None]) -> Reply:
    """What a stream comes to that was read whole, from a server that streams whatever it is asked."""
    feed.feed(body)
    feed.finish(at_end)
    if answer.is_ended:
        return Reply(status=200, body=answer.body())
    fault = feed.fault or UpstreamTruncated("connection lost: the model server's answer ended too early")
    status = fault.upstream_status if isinstance(fault, UpstreamRejected) else fault.status
    return Reply(status=status, body=msgspec.json.encode(fault.body()), retry_after_s=fault.retry_after_s)
