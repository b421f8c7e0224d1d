"""One request's answer, without sockets: upstream bytes in, client bytes and facts out.

Each upstream event is a slot in a queue. The reader says of every character of content whether it is text; a slot all
of whose characters are text goes out as the bytes it came in, so an answer in which nothing is recognised is the
upstream's, byte for byte. Only a slot that a call begins or ends in is rebuilt. Slots leave in order.

Where a call was plainly meant and cannot be used, the answer does not end: `repair` says what to send, and the second
answer is brought with `repaired`, or its absence with `unrepaired`.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator
from typing import Any

from attrs import define, field, frozen

from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamError, UpstreamTruncated
from gateway.core.events import Args, Broken, Drop, End, Event, Note, Said, Start, Text, Verdict
from gateway.core.limits import Limits
from gateway.guarded import GuardedReader
from gateway.holding import Hold
from gateway.repairing import Repair, SecondAnswer, SecondCall, read_again, unusable_attempt
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
    string_in,
    token_counts,
    usage_chunk,
)
from gateway.wire.native_calls import NativeCalls
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent, encode
from gateway.wire.usage import summed_usage
from strategies.base import AnswerReader, Attempt, FinishReason, Prepared
from strategies.reader import CUT_REASONS
from strategies.shaper import Shaper

__all__ = ["BodyExchange", "Delivered", "Facts", "StreamExchange"]

MakeId = Callable[[str], str]

_MAX_HELD = 4 << 20
"""Upstream bytes held for undecided text; beyond it an event's own bytes are let go, its text is not."""
_MAX_CASTS = 16
_STEP = 1 << 14
"""Characters of a whole answer that are read in one step."""
SHELL = "shell"


@frozen(kw_only=True)
class Delivered:
    """A call that was read from text and given to the client."""

    verdict: Verdict
    size: int
    command: str = ""
    """The arguments, of a command that was recovered from a shell block: each one is audited."""


def _delivered(verdict: Verdict, arguments: str) -> Delivered:
    command = arguments if verdict.dialect == SHELL else ""
    return Delivered(verdict=verdict, size=len(arguments), command=command)


@define
class Facts:
    """What one answer leaves behind for the log and the metrics."""

    calls: list[Delivered] = field(factory=list)
    undelivered: int = 0
    refused: list[Verdict] = field(factory=list)
    """Candidates that stayed text, with the reasons."""
    overheard: list[Verdict] = field(factory=list)
    """Calls that were read beside the answer and are not given to the client."""
    broken: list[str] = field(factory=list)
    dropped: Counter[str] = field(factory=Counter)
    mended: Counter[str] = field(factory=Counter)
    native_calls: int = 0
    unusable_calls: int = 0
    """Structured calls whose arguments are no JSON object."""
    attempts: int = 0
    """Calls that were plainly meant, stayed text, and were the answer's only ones."""
    repaired: bool = False
    """The calls of this answer are those of a second one."""
    completion_id: str | None = None
    held_bytes_max: int = 0
    finish_reasons: dict[int, str] = field(factory=dict)
    usage: dict[str, int] = field(factory=dict)
    read: bool = False
    """A reader looked at the answer."""
    failure: str | None = None
    """The code of the error that ended the answer."""

    def add_usage(self, usage: Any) -> None:
        """Count what a further answer cost."""
        self.usage = dict(Counter(self.usage) + Counter(token_counts(usage)))

    def take_over(self, call: SecondCall) -> None:
        """A call of a second answer was given to the client."""
        if call.verdict is None:
            self.native_calls += 1
        else:
            self.calls.append(_delivered(call.verdict, call.arguments))


class Voice:
    """One choice of an answer: its reader, its shape, and how its calls are numbered."""

    __slots__ = (
        "_facts",
        "_make_id",
        "_reader",
        "args_mould",
        "attempt",
        "call_id",
        "finished",
        "hold",
        "index",
        "native",
        "number",
        "shaper",
        "spoken",
        "waiting",
    )

    def __init__(self, index: int, prepared: Prepared, make_id: MakeId, facts: Facts, hold: Hold | None = None) -> None:
        self.index = index
        self._reader: AnswerReader | None = GuardedReader(prepared.make_reader()) if prepared.make_reader else None
        self.hold = hold
        self.attempt: Attempt | None = None
        """What is to be asked again, once the choice has finished."""
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
        if self._reader is None:
            return [Text(text)]
        events = self.shaper.feed(self._reader.feed(text))
        return events if self.hold is None else self.hold.take(text, events)

    def finish(self, reason: FinishReason) -> list[Event]:
        """The last events; none of those that are held back while there is an `attempt`."""
        if self._reader is None:
            return []
        reader, self._reader = self._reader, None
        events = [*self.shaper.feed(reader.finish(reason)), *self.shaper.finish()]
        if self.hold is None:
            return events
        events = self.hold.take("", events)
        self.attempt = self.hold.due(reason)
        return events if self.attempt is not None else [*events, *self.hold.release()]

    def replace_attempt(self) -> list[Event]:
        """A call is told in the place of the attempt."""
        self.attempt = None
        return self.hold.replaced() if self.hold is not None else []

    def give_back(self) -> list[Event]:
        """No call of this choice's text is wanted any more: what waits is text."""
        self.attempt = None
        events = self.hold.release() if self.hold is not None else []
        if self._reader is None:
            return events
        reader, self._reader = self._reader, None
        return [*events, *self.shaper.feed(reader.finish("cut")), *self.shaper.give_back()]

    def begin_call(self, dialect: str) -> None:
        self.number += 1
        self.call_id = self._make_id(dialect)

    def begin(self, start: Start, event: dict[str, Any]) -> bytes:
        """The first chunk of a call."""
        self.begin_call(start.dialect)
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
            case End() | Said():
                self._facts.calls.append(_delivered(event.verdict, event.arguments))
            case Note():
                kept = self._facts.overheard if event.verdict.accepted else self._facts.refused
                kept.append(event.verdict)
            case Broken():
                self._facts.broken.append(event.reason)
            case Drop():
                self._facts.dropped[event.reason] += 1
            case _:
                pass

    def final_reason(self, reason: FinishReason) -> FinishReason:
        """The finish reason to give; a call that was read makes a stop a call."""
        return "tool_calls" if self.number >= 0 and reason in ("stop", "tool_calls", "function_call") else reason


class _Due:
    """A choice that waits for a second answer: its last slot, and what has been asked so far."""

    __slots__ = ("attempts", "reason", "slot", "voice")

    def __init__(self, voice: Voice, slot: Slot, reason: str, attempt: Attempt) -> None:
        self.voice = voice
        self.slot = slot
        self.reason = reason
        self.attempts = [attempt]


class StreamExchange:
    """A streamed answer."""

    def __init__(self, prepared: Prepared, *, make_id: MakeId, limits: Limits, repairs: int = 0) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        self.finished = False
        """Nothing more is to come: `[DONE]` or an error has been seen."""
        self._prepared = prepared
        self._make_id = make_id
        self._repairs = repairs if prepared.repair is not None else 0
        """How often it may still be asked again."""
        self._due: _Due | None = None
        self._done: bytes | None = None
        """The upstream's `[DONE]`, while a second answer is waited for."""
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
        if self._due is not None and (error is None or self.finished):
            rest = self.unrepaired()
            self._out.append(rest)
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

    @property
    def repair(self) -> Repair | None:
        """What is to be asked again now, as soon as the upstream's answer has ended."""
        if self._due is None or self._closed or self._prepared.repair is None:
            return None
        return Repair.of(self._prepared.repair, self._due.attempts)

    def repaired(self, body: bytes) -> bytes:
        """Put the calls of a second answer in the place of the attempt; one without any is an attempt more."""
        due = self._due
        if due is None:
            return b""
        second = read_again(body, self._prepared, due.attempts)
        self._repairs -= 1
        self.facts.add_usage(second.usage)
        if not second.calls:
            if self._repairs and second.attempt is not None:
                due.attempts.append(second.attempt)
                return b""
            return self.unrepaired()
        self.facts.repaired = True
        self._apply(due.voice, due.voice.replace_attempt(), due.slot)
        for call in second.calls:
            due.slot.chunk(due.voice.begin(Start("", call.name, call.dialect), due.slot.event))
            due.slot.chunk(args_chunk(due.voice.args_mould, call.arguments))
            self.facts.take_over(call)
        self._add_usage(due.slot, second)
        return self._resume(due)

    def unrepaired(self) -> bytes:
        """Nothing came of asking again: the rest of the first answer, unchanged."""
        due = self._due
        if due is None:
            return b""
        self._apply(due.voice, due.voice.give_back(), due.slot)
        return self._resume(due)

    def _resume(self, due: _Due) -> bytes:
        self._due = None
        self._finish(due.voice, due.slot, due.reason, 0)
        self._flush()
        if self._done is not None:
            self._end(self._done)
        return self._take()

    def _add_usage(self, last: Slot, second: SecondAnswer) -> None:
        """Count what the second answer cost where the first one says what it cost."""
        for slot in reversed(self._slots):
            slot.add_usage(second.usage)
            if slot is last:
                break

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
        if self.facts.completion_id is None:
            self.facts.completion_id = string_in(chunk.id)
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
            self._conclude(voice, slot, choice.finish_reason)
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

    def _conclude(self, voice: Voice, slot: Slot, reason: str) -> None:
        """The end of a choice that is read; it waits where it is to be asked again."""
        self._apply(voice, voice.finish(reason), slot)
        if voice.attempt is not None and self._due is None and len(self._voices) == 1:
            self.facts.attempts += 1
            voice.finished = True
            self._due = _Due(voice, slot, reason, voice.attempt)
            return
        self._apply(voice, voice.give_back(), slot)
        self._finish(voice, slot, reason, 0)

    def _finish(self, voice: Voice, slot: Slot, reason: str, at: int) -> None:
        """A choice has ended: the reason to give may be another one."""
        voice.finished = True
        self.facts.unusable_calls += voice.native.unusable
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
            elif isinstance(event, Said):
                place = voice.waiting[0] if voice.waiting else last or self._spare(voice)
                place.say(event.text)
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
        if self._due is not None:
            self._done = raw
            return
        for voice in self._voices.values():
            if not voice.finished:
                slot = self._spare(voice)
                self._apply(voice, voice.finish("stop"), slot)
                self._apply(voice, voice.give_back(), slot)
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
        self._due = None
        for voice in self._voices.values():
            self._apply(voice, voice.give_back())
        self._broken = None
        self._flush(everything=True)
        self._out.append(raw)

    def _voice(self, index: int) -> Voice:
        voice = self._voices.get(index)
        if voice is None:
            hold = _hold(self._prepared) if self._repairs and not self._voices else None
            voice = self._voices[index] = Voice(index, self._prepared, self._make_id, self.facts, hold)
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
        if self._due is not None:
            return
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


def _hold(prepared: Prepared) -> Hold | None:
    """What holds back an attempt of the only choice, where it can be asked again."""
    if prepared.repair is None or prepared.make_reader is None:
        return None
    return Hold(prepared.repair)


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

    def __init__(self, prepared: Prepared, *, make_id: MakeId, limits: Limits, repairs: int = 0) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        del limits
        self._prepared = prepared
        self._make_id = make_id
        self._repairs = repairs if prepared.repair is not None else 0
        self._body = b""
        self._answer: dict[str, Any] = {}
        self._voice: Voice | None = None
        """The choice that waits for a second answer."""
        self._read: list[Event] = []
        """What came of it before the attempt."""
        self._attempts: list[Attempt] = []

    def transform(self, body: bytes) -> bytes:
        """The client's body; the upstream's own bytes where nothing in it is recognised or mended."""
        steps = self.steps(body)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return bytes(done.value)

    def steps(self, body: bytes) -> Generator[None, None, bytes]:
        """The same in steps of bounded work, so that a long answer does not keep others waiting."""
        try:
            answer = decode_object(body)
        except BadChunk as error:
            raise UpstreamBadReply("the model server's answer is not a JSON object") from error
        self._body, self._answer = body, answer
        self.facts.usage = token_counts(answer.get("usage"))
        self.facts.completion_id = answer["id"] if isinstance(answer.get("id"), str) else None
        choices = answer.get("choices")
        changed = False
        for index, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
                changed = (yield from self._choice(index, choice, choice["message"])) or changed
        return self._encoded(changed=changed)

    @property
    def repair(self) -> Repair | None:
        """What is to be asked again."""
        if self._voice is None or self._prepared.repair is None:
            return None
        return Repair.of(self._prepared.repair, self._attempts)

    def repaired(self, body: bytes) -> bytes:
        """The client's body with the calls of a second answer; one without any is an attempt more."""
        voice = self._voice
        if voice is None:
            return self._body
        second = read_again(body, self._prepared, self._attempts)
        self._repairs -= 1
        self.facts.add_usage(second.usage)
        if not second.calls:
            if self._repairs and second.attempt is not None:
                self._attempts.append(second.attempt)
                return self._body
            return self.unrepaired()
        self._voice = None
        self.facts.repaired = True
        self.facts.unusable_calls += len(self._attempts[0].calls)
        choice = self._answer["choices"][0]
        message = choice["message"]
        if voice.hold is not None:
            events = [*self._read, *voice.replace_attempt()]
            for event in events:
                voice.note(event)
            message["content"] = "".join(event.raw for event in events if isinstance(event, Text)) or None
        message["tool_calls"] = [self._second_call(voice, call) for call in second.calls]
        choice["finish_reason"] = self.facts.finish_reasons[0] = "tool_calls"
        if isinstance(self._answer.get("usage"), dict):
            self._answer["usage"] = summed_usage(self._answer["usage"], second.usage)
        return self._encoded(changed=True)

    def unrepaired(self) -> bytes:
        """Nothing came of asking again: the first answer."""
        voice, self._voice = self._voice, None
        if voice is None:
            return self._body
        choice = self._answer["choices"][0]
        message = choice["message"]
        if message.get("tool_calls"):
            return self._encoded(changed=self._mend(voice, choice, message))
        return self._encoded(changed=self._deliver(voice, choice, message, [*self._read, *voice.give_back()]))

    def _encoded(self, *, changed: bool) -> bytes:
        return encode_object(self._answer)[len(b"data: ") : -2] if changed else self._body

    def _second_call(self, voice: Voice, call: SecondCall) -> dict[str, Any]:
        voice.begin_call(call.dialect)
        self.facts.take_over(call)
        return {
            "id": voice.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }

    def _choice(self, index: int, choice: dict[str, Any], message: dict[str, Any]) -> Generator[None, None, bool]:
        asks = self._prepared.repair if self._repairs and len(self._answer["choices"]) == 1 else None
        hold = _hold(self._prepared) if asks is not None else None
        voice = Voice(index, self._prepared, self._make_id, self.facts, hold)
        reason = choice.get("finish_reason")
        finish = reason if isinstance(reason, str) else "stop"
        self.facts.finish_reasons[index] = finish
        content = message.get("content")
        if message.get("tool_calls"):
            attempt = unusable_attempt(message, asks) if asks is not None and finish not in CUT_REASONS else None
            if attempt is None:
                return self._mend(voice, choice, message)
            voice.hold = None
            return self._wait(voice, attempt, [])
        if not voice.listens or not isinstance(content, str | None):
            return False
        events: list[Event] = []
        for at in range(0, len(content or ""), _STEP):
            if at:
                yield
            events += voice.feed((content or "")[at : at + _STEP])
        events += voice.finish(finish)
        if voice.attempt is not None and isinstance(reason, str):
            return self._wait(voice, voice.attempt, events)
        return self._deliver(voice, choice, message, [*events, *voice.give_back()])

    def _wait(self, voice: Voice, attempt: Attempt, events: list[Event]) -> bool:
        self.facts.attempts += not attempt.calls
        self._voice, self._read, self._attempts = voice, events, [attempt]
        return False

    def _deliver(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any], events: list[Event]) -> bool:
        """Put what was read into the message; True if anything in it is another."""
        calls: list[dict[str, Any]] = []
        texts: list[str] = []
        is_said = False
        for event in events:
            voice.note(event)
            if isinstance(event, Text):
                texts.append(event.raw)
            elif isinstance(event, Said):
                texts.append(event.text)
                is_said = True
            elif isinstance(event, Start):
                voice.begin_call(event.dialect)
                calls.append({"id": voice.call_id, "type": "function", "function": {"name": event.name}})
            elif isinstance(event, End):
                calls[-1]["function"]["arguments"] = event.arguments
        self.facts.undelivered += voice.shaper.undelivered
        if is_said:
            message["content"] = "".join(texts)
        if not calls:
            return is_said
        if any("arguments" not in call["function"] for call in calls):
            raise _broken_call(self.facts.broken[-1])
        message["content"] = "".join(texts) or None
        message["tool_calls"] = calls
        choice["finish_reason"] = voice.final_reason(self.facts.finish_reasons[voice.index])
        self.facts.finish_reasons[voice.index] = choice["finish_reason"]
        return True

    def _mend(self, voice: Voice, choice: dict[str, Any], message: dict[str, Any]) -> bool:
        if not self._prepared.mend_native:
            return False
        changed = voice.native.mend_message(message["tool_calls"])
        self.facts.native_calls += voice.native.count
        self.facts.unusable_calls += voice.native.unusable
        reason = voice.native.finish_reason(choice.get("finish_reason"))
        if reason != choice.get("finish_reason"):
            choice["finish_reason"] = self.facts.finish_reasons[voice.index] = reason or "tool_calls"
            changed = True
        self.facts.mended.update(voice.native.mended)
        return changed
