"""One request's answer, without sockets: upstream bytes in, client bytes and facts out.

Each upstream event is a slot in a queue. The reader says of every character of content whether it is text; a slot all
of whose characters are text goes out as the bytes it came in, so an answer in which nothing is recognised is the
upstream's, byte for byte. Only a slot that a call begins or ends in is rebuilt. Slots leave in order.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen

from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamError, UpstreamTruncated
from gateway.core.events import Args, Broken, Drop, End, Event, Note, Start, Text, Verdict
from gateway.core.limits import Limits
from gateway.slots import Mould, Run, Slot, text_of
from gateway.wire.chat_chunks import (
    BadChunk,
    Choice,
    Chunk,
    args_chunk,
    args_mould,
    call_start_chunk,
    decode_chunk,
    decode_object,
    encode_object,
    is_given,
    token_counts,
    usage_chunk,
)
from gateway.wire.native_calls import NativeCalls
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent, encode
from strategies.base import AnswerReader, FinishReason, Prepared
from strategies.shaper import Shaper

__all__ = ["BodyExchange", "Delivered", "Facts", "StreamExchange"]

MakeId = Callable[[str], str]

_MAX_HELD = 4 << 20
"""Upstream bytes held for undecided text; beyond it an event's own bytes are let go, its text is not."""
_MAX_CASTS = 16


@frozen(kw_only=True)
class Delivered:
    """A call that was read from text and given to the client."""

    verdict: Verdict
    size: int


@define
class Facts:
    """What one answer leaves behind for the log and the metrics."""

    calls: list[Delivered] = field(factory=list)
    undelivered: int = 0
    refused: list[Verdict] = field(factory=list)
    """Candidates that stayed text, with the reasons."""
    broken: list[str] = field(factory=list)
    dropped: Counter[str] = field(factory=Counter)
    mended: Counter[str] = field(factory=Counter)
    native_calls: int = 0
    held_bytes_max: int = 0
    finish_reasons: dict[int, str] = field(factory=dict)
    usage: dict[str, int] = field(factory=dict)
    read: bool = False
    """A reader looked at the answer."""
    failure: str | None = None
    """The code of the error that ended the answer."""


class Voice:
    """One choice of an answer: its reader, its shape, and how its calls are numbered."""

    __slots__ = (
        "_facts",
        "_make_id",
        "_reader",
        "args_mould",
        "call_id",
        "finished",
        "index",
        "native",
        "number",
        "shaper",
        "spoken",
        "waiting",
    )

    def __init__(self, index: int, prepared: Prepared, make_id: MakeId, facts: Facts) -> None:
        self.index = index
        self._reader: AnswerReader | None = prepared.make_reader() if prepared.make_reader else None
        self.shaper = Shaper(prepared.shape)
        self.native = NativeCalls(make_id)
        self.waiting: deque[Slot] = deque()
        """The slots of which not every character is decided."""
        self.number = -1
        """The number of the call under way."""
        self.call_id = ""
        self.args_mould = (b"", b"")
        self.spoken = False
        """A chunk of this choice with a role has gone out."""
        self.finished = False
        self._make_id = make_id
        self._facts = facts

    @property
    def listens(self) -> bool:
        return self._reader is not None

    def feed(self, text: str) -> list[Event]:
        return self.shaper.feed(self._reader.feed(text)) if self._reader else [Text(text)]

    def finish(self, reason: FinishReason) -> list[Event]:
        if self._reader is None:
            return []
        reader, self._reader = self._reader, None
        return [*self.shaper.feed(reader.finish(reason)), *self.shaper.finish()]

    def give_back(self) -> list[Event]:
        """No call of this choice's text is wanted any more: what waits is text."""
        if self._reader is None:
            return []
        reader, self._reader = self._reader, None
        return [*self.shaper.feed(reader.finish("cut")), *self.shaper.give_back()]

    def begin_call(self) -> None:
        self.number += 1
        self.call_id = self._make_id("text")

    def begin(self, start: Start, event: dict[str, Any]) -> bytes:
        """The first chunk of a call."""
        self.begin_call()
        role, self.spoken = not self.spoken, True
        self.args_mould = args_mould(event, self.index, self.number)
        return call_start_chunk(event, self.index, self.number, self.call_id, start.name, role=role)

    def account(self, event: Event) -> None:
        """Say of an event's raw text, slot by slot, whether it stays text."""
        at = 0
        while at < len(event.raw) and self.waiting:
            slot = self.waiting[0]
            taken = min(len(event.raw) - at, slot.left)
            if isinstance(event, Text):
                slot.text(event.raw[at : at + taken])
            else:
                slot.changed = True
            at += taken
            slot.left -= taken
            if slot.left == 0:
                self.waiting.popleft()

    def note(self, event: Event) -> None:
        """Keep what is to be recorded of an event."""
        match event:
            case End():
                self._facts.calls.append(Delivered(verdict=event.verdict, size=len(event.arguments)))
            case Note():
                self._facts.refused.append(event.verdict)
            case Broken():
                self._facts.broken.append(event.reason)
            case Drop():
                self._facts.dropped[event.reason] += 1
            case _:
                pass

    def final_reason(self, reason: FinishReason) -> FinishReason:
        """The finish reason to give; a call that was read makes a stop a call."""
        return "tool_calls" if self.number >= 0 and reason in ("stop", "tool_calls", "function_call") else reason


class StreamExchange:
    """A streamed answer."""

    def __init__(self, prepared: Prepared, *, make_id: MakeId, limits: Limits) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        self.finished = False
        """Nothing more is to come: `[DONE]` or an error has been seen."""
        self._prepared = prepared
        self._make_id = make_id
        self._decoder = SseDecoder(limits.max_event_bytes)
        self._voices: dict[int, Voice] = {}
        self._slots: deque[Slot] = deque()
        self._held = 0
        self._mould: Mould | None = None
        self._run_voice: Voice | None = None
        """Whose content the mould casts."""
        self._casts = _MAX_CASTS
        """How often a new mould may still be taken."""
        self._out: list[bytes] = []
        self._seen = b"{}"
        """The last chunk's data: what a chunk of our own is made after."""
        self._withheld_usage: Any = None
        self._broken: str | None = None
        self._closed = False

    @property
    def holding(self) -> bool:
        """Text is held while it is undecided."""
        return bool(self._slots)

    def feed(self, data: bytes) -> bytes:
        """The client's bytes for these upstream bytes; raises `UpstreamError` for what cannot be passed on."""
        if not self.finished and not self._feed_run(data):
            try:
                self._read(self._decoder.feed(data))
            except EventTooLong as error:
                raise UpstreamBadReply(f"the model server sent {error}") from error
        return self._take()

    def finish(self, error: GatewayError | None = None) -> bytes:
        """The closing bytes: the end of the answer, or what is left of it and the error."""
        if self._closed:
            return b""
        self._closed = True
        if not self.finished and error is None:
            try:
                self._read(self._decoder.finish())
            except UpstreamError as fault:
                error = fault
        if self.finished:
            return self._take()
        self.finished = True
        unfinished = not self._voices or any(not voice.finished for voice in self._voices.values())
        if error is None and unfinished:
            error = UpstreamTruncated("the model server's answer ended too early")
        if error is None:
            self.facts.mended["done_missing"] += 1
            self._end(encode(DONE))
        else:
            self._fail(error.code, error_event(error))
        return self._take()

    def _take(self) -> bytes:
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def _feed_run(self, data: bytes) -> bool:
        """Events of nothing but content, all alike but for it: read in one go, without taking each apart."""
        voice = self._run_voice
        if self._mould is None or voice is None or self._decoder.pending:
            return False
        contents = self._mould.contents(data)
        text = text_of(contents) if contents is not None else None
        if contents is None or text is None:
            return False
        events = voice.feed(text) if text else []
        if not self._slots and _is_text(events, text):
            self._out.append(data)
            return True
        last = self._slots[-1] if self._slots else None
        if not isinstance(last, Run) or last.mould is not self._mould:
            last = Run(self._mould, voice)
            self._slots.append(last)
        if not last.left and text:
            voice.waiting.append(last)
        before = last.size
        last.extend(contents, len(text))
        self._held += last.size - before
        self._apply(voice, events, last)
        self._flush()
        return True

    def _read(self, events: list[SseEvent]) -> None:
        for raw, data in events:
            if data is None:
                if raw.startswith(b":"):
                    self._push(Slot(raw, b""))
            elif data == DONE:
                self.finished = True
                self._end(raw)
            elif data.strip():
                self._event(raw, data)
            if self.finished:
                return

    def _event(self, raw: bytes, data: bytes) -> None:
        try:
            chunk = decode_chunk(data)
        except BadChunk as error:
            raise UpstreamBadReply(f"the model server sent an event that is {error}") from error
        if chunk is None:
            self._push(Slot(raw, data))
        elif is_given(chunk.error) and not chunk.choices:
            self.finished = True
            self._fail("upstream_error", raw)
        else:
            self._seen = data
            self._chunk(raw, data, chunk)

    def _chunk(self, raw: bytes, data: bytes, chunk: Chunk) -> None:
        if is_given(chunk.usage):
            self.facts.usage = token_counts(decode_object(bytes(chunk.usage)))
            self._withheld_usage = None
        choices = chunk.choices or []
        if len(choices) == 1:
            self._choice(raw, data, choices[0])
        elif not choices:
            self._push(Slot(raw, data))
        elif self._prepared.make_reader is None:
            self._several(raw, data, choices)
        else:
            event = decode_object(data)
            for choice, single in zip(choices, event["choices"], strict=True):
                alone = encode_object({**event, "choices": [single]})
                self._choice(alone, alone[len(b"data: ") : -2], choice)

    def _several(self, raw: bytes, data: bytes, choices: list[Choice]) -> None:
        """Several choices in one chunk of an answer that is not read: mended in place, if at all."""
        slot = Slot(raw, data)
        for at, choice in enumerate(choices):
            voice = self._voice(choice.index)
            if choice.delta and is_given(choice.delta.tool_calls):
                self._native(voice, slot, at)
            if choice.finish_reason is not None:
                self._finish(voice, slot, choice.finish_reason, at)
        self._push(slot)

    def _choice(self, raw: bytes, data: bytes, choice: Choice) -> None:
        voice = self._voice(choice.index)
        delta = choice.delta
        text = (delta.content if delta else None) or ""
        called = delta is not None and is_given(delta.tool_calls)
        ends = choice.finish_reason is not None
        events = voice.feed(text) if text else []
        if text and not called and not ends and self._casts:
            self._casts -= 1
            self._mould, self._run_voice = Mould.of(raw, data, text), voice
        if not self._slots and not called and not ends and _is_text(events, text):
            voice.spoken = voice.spoken or (delta is not None and delta.role is not None)
            self._out.append(raw)
            return
        slot = Slot(raw, data, voice, len(text) if voice.listens else 0)
        self._slots.append(slot)
        self._held += len(raw)
        if slot.left:
            voice.waiting.append(slot)
            self._apply(voice, events, slot)
        if called:
            self._apply(voice, voice.give_back(), slot)
            self._native(voice, slot, 0)
        if choice.finish_reason is not None:
            self._apply(voice, voice.finish(choice.finish_reason), slot)
            self._finish(voice, slot, choice.finish_reason, 0)
        voice.spoken = voice.spoken or (delta is not None and delta.role is not None)
        self._flush()

    def _native(self, voice: Voice, slot: Slot, at: int) -> None:
        """Structured calls of one choice: mend what is certain."""
        if not self._prepared.mend_native:
            return
        event = slot.event
        native = voice.native
        before = len(native.mended)
        native.mend_deltas(event["choices"][at]["delta"]["tool_calls"])
        if event.get("usage"):
            self._withheld_usage = event.pop("usage")
            native.mended.append("usage_in_call_chunk")
        self.facts.native_calls = sum(known.native.count for known in self._voices.values())
        if len(native.mended) > before:
            self.facts.mended.update(native.mended[before:])
            slot.replace(encode_object(event))

    def _finish(self, voice: Voice, slot: Slot, reason: str, at: int) -> None:
        """A choice has ended: the reason to give may be another one."""
        voice.finished = True
        final = voice.final_reason(reason)
        if self._prepared.mend_native and final == reason:
            final = voice.native.finish_reason(reason) or reason
            if final != reason:
                self.facts.mended["finish_reason"] += 1
                slot.event["choices"][at]["finish_reason"] = final
                slot.replace(encode_object(slot.event))
        elif final != reason:
            slot.changed = True
        self.facts.finish_reasons[voice.index] = final
        if slot.changed:
            slot.finish = final

    def _apply(self, voice: Voice, events: list[Event], last: Slot | None = None) -> None:
        """Account for the raw text of events, slot by slot, and put what replaces it there."""
        for event in events:
            voice.note(event)
            if isinstance(event, Start):
                place = voice.waiting[0] if voice.waiting else last or self._spare(voice)
                place.chunk(voice.begin(event, place.event))
            elif isinstance(event, Args) and event.json:
                place = voice.waiting[0] if voice.waiting else last or self._spare(voice)
                place.chunk(args_chunk(voice.args_mould, event.json))
            elif isinstance(event, Broken):
                self._broken = event.reason
            voice.account(event)
        self.facts.undelivered = sum(known.shaper.undelivered for known in self._voices.values())

    def _spare(self, voice: Voice) -> Slot:
        """A slot of our own, for what has no upstream event any more."""
        slot = Slot(b"", self._seen, voice)
        slot.changed = True
        self._slots.append(slot)
        return slot

    def _end(self, raw: bytes) -> None:
        """The end of a good answer: choices without a finish of their own are finished now."""
        for voice in self._voices.values():
            if not voice.finished:
                slot = self._spare(voice)
                self._apply(voice, voice.finish("stop"), slot)
                voice.finished = True
                slot.finish = voice.final_reason("stop") if voice.number >= 0 else None
        self._flush(everything=True)
        if self._broken is None:
            if self._withheld_usage is not None:
                self._out.append(usage_chunk(decode_object(self._seen), self._withheld_usage))
            self._out.append(raw)

    def _fail(self, code: str, raw: bytes) -> None:
        """The answer ends in an error: what is held goes out as text, then the error, then nothing more."""
        self.facts.failure = code
        for voice in self._voices.values():
            self._apply(voice, voice.give_back())
        self._broken = None
        self._flush(everything=True)
        self._out.append(raw)

    def _voice(self, index: int) -> Voice:
        voice = self._voices.get(index)
        if voice is None:
            voice = self._voices[index] = Voice(index, self._prepared, self._make_id, self.facts)
        return voice

    def _push(self, slot: Slot) -> None:
        if self._slots:
            self._slots.append(slot)
            self._held += slot.size
        else:
            self._out.append(slot.render())

    def _flush(self, *, everything: bool = False) -> None:
        """Let out the slots that are decided, in order."""
        if self._held > self.facts.held_bytes_max:
            self.facts.held_bytes_max = self._held
        if self._held > _MAX_HELD:
            for slot in self._slots:
                self._held -= slot.forget(self._seen) if slot.left and not isinstance(slot, Run) else 0
        while self._slots and (everything or self._slots[0].left == 0):
            slot = self._slots.popleft()
            self._held -= slot.size
            self._out.append(slot.render())
        if not self._slots:
            self._held = 0
        if self._broken is not None:
            fault = _broken_call(self._broken)
            self.finished = True
            self._fail(fault.code, error_event(fault))


def _is_text(events: list[Event], text: str) -> bool:
    """Whether all of the text, and nothing else, is text."""
    if not text:
        return True
    return len(events) == 1 and isinstance(events[0], Text) and len(events[0].raw) == len(text)


def error_event(error: GatewayError) -> bytes:
    """An error as a plain data event: the SDKs raise on it."""
    return encode_object(error.body())


def _broken_call(reason: str) -> GatewayError:
    return UpstreamBadReply(f"the model's tool call broke off: {reason}")


class BodyExchange:
    """An answer that comes whole."""

    def __init__(self, prepared: Prepared, *, make_id: MakeId, limits: Limits) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        self._prepared = prepared
        self._make_id = make_id
        del limits

    def transform(self, body: bytes) -> bytes:
        """The client's body; the upstream's own bytes where nothing in it is recognised or mended."""
        try:
            answer = decode_object(body)
        except BadChunk as error:
            raise UpstreamBadReply("the model server's answer is not a JSON object") from error
        self.facts.usage = token_counts(answer.get("usage"))
        choices = answer.get("choices")
        changed = False
        for index, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
                changed = self._choice(index, choice, choice["message"]) or changed
        return encode_object(answer)[len(b"data: ") : -2] if changed else body

    def _choice(self, index: int, choice: dict[str, Any], message: dict[str, Any]) -> bool:
        voice = Voice(index, self._prepared, self._make_id, self.facts)
        reason = choice.get("finish_reason")
        finish = reason if isinstance(reason, str) else "stop"
        self.facts.finish_reasons[index] = finish
        if message.get("tool_calls"):
            return self._mend(voice, choice, message)
        content = message.get("content")
        if not voice.listens or not isinstance(content, str) or not content:
            return False
        calls: list[dict[str, Any]] = []
        texts: list[str] = []
        for event in [*voice.feed(content), *voice.finish(finish)]:
            voice.note(event)
            if isinstance(event, Text):
                texts.append(event.raw)
            elif isinstance(event, Start):
                voice.begin_call()
                calls.append({"id": voice.call_id, "type": "function", "function": {"name": event.name}})
            elif isinstance(event, End):
                calls[-1]["function"]["arguments"] = event.arguments
        self.facts.undelivered += voice.shaper.undelivered
        if not calls:
            return False
        if any("arguments" not in call["function"] for call in calls):
            raise _broken_call(self.facts.broken[-1])
        message["content"] = "".join(texts) or None
        message["tool_calls"] = calls
        choice["finish_reason"] = self.facts.finish_reasons[index] = voice.final_reason(finish)
        return True

    def _mend(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any]) -> bool:
        if not self._prepared.mend_native:
            return False
        changed = voice.native.mend_message(message["tool_calls"])
        self.facts.native_calls += voice.native.count
        reason = voice.native.finish_reason(choice.get("finish_reason"))
        if reason != choice.get("finish_reason"):
            choice["finish_reason"] = self.facts.finish_reasons[voice.index] = reason or "tool_calls"
            changed = True
        self.facts.mended.update(voice.native.mended)
        return changed
