"""One request's answer, without sockets: upstream bytes in, client bytes and facts out.

Each upstream event is a slot in a queue. The reader says of every character of content whether it is text; a slot all
of whose characters are text goes out as the bytes it came in, so an answer in which nothing is recognised is the
upstream's, byte for byte. Only a slot that a call begins or ends in is rebuilt. Slots leave in order.

Where a call was plainly meant and cannot be used, the answer does not end: `repair` says what to send, and the second
answer is brought with `repaired`, or its absence with `unrepaired`.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.answer.choice import MakeId, Voice, broken_call, hold_of
from gateway.answer.facts import Facts
from gateway.answer.queue import Mould, Run, Slot, last_events, text_of
from gateway.answer.second_answer import Repair, SecondAnswer, read_again
from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamError, UpstreamTruncated
from gateway.core.events import Args, Broken, Event, Said, Start, Text
from gateway.core.limits import Limits
from gateway.wire.chat_chunks import (
    BadChunk,
    Chunk,
    ChunkChoice,
    Delta,
    any_in,
    args_chunk,
    decode_chunk,
    decode_object,
    encode_object,
    is_given,
    string_in,
    token_counts,
    usage_chunk,
)
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent, encode, says_nothing
from gateway.wire.structured_calls import key_of
from strategies.base import BrokenCall, Prepared
from strategies.mapping.answers import Translation, translation_of
from strategies.reading.reader import CUT_REASONS

__all__ = ["StreamExchange"]

_MAX_HELD = 4 << 20
"""Upstream bytes held for undecided text; beyond it an event's own bytes are let go, its text is not."""
_MAX_CASTS = 16
_FEW = 4
_CALL_FIELDS = ("tool_calls", "function_call")


class _Due:
    """A choice that waits for a second answer: its last slot, and what has been asked so far."""

    __slots__ = ("attempts", "reason", "slot", "voice")

    def __init__(self, voice: Voice, slot: Slot, reason: str, attempt: BrokenCall) -> None:
        self.voice = voice
        self.slot = slot
        self.reason = reason
        self.attempts = [attempt]


class StreamExchange:
    """A streamed answer."""

    def __init__(
        self, prepared: Prepared, *, make_id: MakeId, limits: Limits, repairs: int = 0, keep_text: bool = False
    ) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        self.finished = False
        """Nothing more is to come: `[DONE]` or an error has been seen."""
        self._prepared = prepared
        self._make_id = make_id
        self._keep_text = keep_text
        self._repairs = repairs if prepared.repair is not None else 0
        """How often it may still be asked again."""
        self._due: _Due | None = None
        self._endings: list[tuple[Voice, Slot, str]] = []
        """Choices that have ended and hold calls, whose place a structured one could still take."""
        self._done: bytes | None = None
        """The upstream's `[DONE]`, while a second answer is waited for."""
        self._decoder = SseDecoder(limits.max_event_bytes)
        self._voices: dict[int, Voice] = {}
        self._slots: deque[Slot] = deque()
        self._held = 0
        self._events = 0
        """How many have been read."""
        self._late_to = 0
        """Up to which of them lateness has been told."""
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
        self._labors = False
        """A choice has more to do with the text that it was given."""
        self._works: deque[Callable[[], None]] = deque()
        """What is to be done once no choice has, in order."""

    @property
    def holding(self) -> bool:
        """Text is held while it is undecided."""
        return bool(self._slots)

    def feed(self, data: bytes) -> bytes:
        """The client's bytes for these upstream bytes; raises `UpstreamError` for what cannot be passed on."""
        return self._all(self.step(data))

    def _count_late(self) -> None:
        """Count what is held although a later event has been read: another one is read before it leaves."""
        behind = max(self._late_to, self._slots[0].number - 1)
        self._late_to = max(behind, self._events - 1)
        self.facts.late_events += self._late_to - behind

    def finish(self, error: GatewayError | None = None) -> bytes:
        """The closing bytes: the end of the answer, or what is left of it and the error."""
        return self._all(self.close(error))

    @property
    def busy(self) -> bool:
        """More can be done with the bytes at hand: `step` goes on with it."""
        return self._labors or bool(self._works)

    def _all(self, out: bytes) -> bytes:
        while self.busy:
            out += self.step()
        return out

    def step(self, data: bytes = b"") -> bytes:
        """A bounded piece of the work: with more bytes, or while `busy` without."""
        if self._labors or self._works:
            self._go_on()
        if data and (self._labors or self._works):
            self._works.append(partial(self._take_in, data))
        elif data:
            self._take_in(data)
        if self._slots and not self.busy:
            self._count_late()
        return self._take()

    def close(self, error: GatewayError | None = None) -> bytes:
        """The closing bytes, or the first of them: `step` brings the others while `busy`."""
        if not self._closed:
            self._closed = True
            self._then(partial(self._close, error))
        return self._take()

    def _then(self, work: Callable[[], None]) -> None:
        """Do it, or once all has been done that was begun."""
        if self.busy:
            self._works.append(work)
        else:
            work()

    def _once_read(self, endings: list[tuple[Voice, str]], work: Callable[[], None]) -> None:
        """Do it once the text of these choices has been read to its end, before anything that was put off."""
        for voice, reason in endings:
            voice.read_end(reason)
        if any(voice.busy for voice, _ in endings):
            self._labors = True
            self._works.appendleft(work)
        else:
            work()

    def _go_on(self) -> None:
        """A piece of the choices' work; where none of them has any left, what was put off until then."""
        for voice in self._voices.values():
            if voice.busy:
                self._apply(voice, voice.go_on())
        self._labors = any(voice.busy for voice in self._voices.values())
        if self._labors:
            self._flush()
        elif self._works:
            work = self._works.popleft()
            behind, self._works = self._works, deque()
            work()
            self._works += behind

    def _take_in(self, data: bytes) -> None:
        while data and not self.finished and not self.busy:
            size = self._feed_run(data) or self._feed_events(data)
            data = data[size:]
        if self.busy and (data or self.finished):
            self._works.append(partial(self._take_in, data))
        elif self.finished and self._done is None and self.facts.failure is None:
            self._out.append(self._decoder.owed(data))

    def _close(self, error: GatewayError | None) -> None:
        if not self.finished and error is None:
            try:
                self._read(self._decoder.finish())
            except UpstreamError as fault:
                error = fault
        self._then(partial(self._read_all, error, partial(self._closing, error)))

    def _read_all(self, error: GatewayError | None, work: Callable[[], None]) -> None:
        """Do it once the text of all choices has been read, of which none follows."""
        ended = {voice.index: reason for voice, _, reason in self._endings}
        last = "stop" if error is None else "cut"
        open_ones = [voice for voice in self._voices.values() if not voice.finished or voice.index in ended]
        self._once_read([(voice, ended.get(voice.index, last)) for voice in open_ones], work)

    def _closing(self, error: GatewayError | None) -> None:
        self._conclude_all()
        if self._due is not None and (error is None or self.finished):
            rest = self.unrepaired()
            self._out.append(rest)
        if self.finished:
            return
        self.finished = True
        unfinished = not self._voices or any(not voice.finished for voice in self._voices.values())
        if error is None and unfinished:
            error = UpstreamTruncated("the model server's answer ended too early")
        if error is None:
            self.facts.mended["done_missing"] += 1
            self._end(encode(DONE))
        else:
            self._fail(error.code, error_event(error))

    @property
    def repair(self) -> Repair | None:
        """What is to be asked again now, as soon as the upstream's answer has ended."""
        self._conclude_all()
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
            start = Start("", call.name, call.dialect, call.part)
            due.slot.chunk(due.voice.begin(start, due.slot.event))
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
        self._tell_mapped(due.voice, due.slot, self._translation(due.voice))
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

    def _feed_events(self, data: bytes) -> int:
        """Each event by itself: all that have come or, while there is no mould, the first. Returns their size."""
        size = data.find(b"\n\n") + 2 if self._mould is None else 0
        try:
            self._read(self._decoder.feed(data[:size] if size > 1 else data))
        except EventTooLong as error:
            raise UpstreamBadReply(f"the model server sent {error}") from error
        return size if size > 1 else len(data)

    def _feed_run(self, data: bytes) -> int:
        """Events of nothing but content, all alike but for it: read in one go, without taking each apart.

        Returns the size of the run that the data begins with, 0 where it begins with none.
        """
        voice = self._run_voice
        if self._mould is None or voice is None or self._decoder.pending:
            return 0
        data = self._mould.run(data)
        contents = self._mould.contents(data)
        text = text_of(contents) if contents is not None else None
        if contents is None or text is None:
            return 0
        events = voice.feed(text) if text else []
        size = len(data)
        if self._slots:
            events = self._freed(voice, events)
        if not self._slots and _is_text(events, text):
            self._events += len(contents)
            self._out.append(data)
            return size
        told = events[0].raw if len(events) == 1 and isinstance(events[0], Text) else ""
        if not self._slots and 0 < len(told) < len(text):
            kept, chars = last_events(contents, len(text) - len(told))
            at = len(text) - chars
            self._events += len(contents) - kept
            self._out.append(data[: size - self._mould.size(contents[-kept:])])
            contents, text, events = contents[-kept:], text[at:], [Text(told[at:])] if at < len(told) else []
        last = self._slots[-1] if self._slots else None
        if not isinstance(last, Run) or last.mould is not self._mould:
            last = Run(self._mould, voice)
            last.number = self._events + 1
            self._slots.append(last)
        if not last.left and text:
            voice.waiting.append(last)
        before = last.size
        last.extend(contents, len(text))
        self._events += len(contents)
        self._held += last.size - before
        self._apply(voice, events, last)
        self._flush()
        self._labors = voice.busy
        return size

    def _freed(self, voice: Voice, events: list[Event]) -> list[Event]:
        """Let what waits go where a text decides all of it; what is left of that text stands in front of nothing."""
        if len(events) != 1 or not isinstance(events[0], Text) or len(voice.waiting) > _FEW:
            return events
        told = events[0].raw
        left = sum(slot.left for slot in voice.waiting)
        if left > len(told):
            return events
        self._apply(voice, [Text(told[:left])])
        self._flush()
        return [Text(told[left:])] if left < len(told) else []

    def _read(self, events: list[SseEvent]) -> None:
        for number, (raw, data) in enumerate(events):
            if self.busy:
                self._works.append(partial(self._read, events[number:]))
                return
            if data is None:
                if says_nothing(raw):
                    self._push(Slot(raw, b""))
            elif data == DONE:
                self.finished = True
                self._read_all(None, partial(self._ends, raw))
            elif data.strip():
                self._event(raw, data)
            if self.finished:
                return

    def _event(self, raw: bytes, data: bytes) -> None:
        self._events += 1
        try:
            chunk = decode_chunk(data)
        except BadChunk as error:
            raise UpstreamBadReply(f"the model server sent an event that is {error}") from error
        if chunk is None:
            self._push(Slot(raw, data))
        elif is_given(chunk.error) and not chunk.choices:
            self.finished = True
            self._read_all(UpstreamError("told in the answer"), partial(self._fails, raw))
        else:
            self._seen = data
            self._chunk(raw, data, chunk)

    def _ends(self, raw: bytes) -> None:
        self._conclude_all()
        self._end(raw)

    def _fails(self, raw: bytes) -> None:
        self._conclude_all()
        self._fail("upstream_error", raw)

    def _chunk(self, raw: bytes, data: bytes, chunk: Chunk) -> None:
        if is_given(chunk.usage):
            self.facts.usage = token_counts(any_in(chunk.usage))
            self._withheld_usage = None
        if self.facts.completion_id is None:
            self.facts.completion_id = string_in(chunk.id)
        choices = chunk.choices or []
        if len(choices) == 1:
            self._choice(raw, data, choices[0])
        elif not choices:
            self._push(Slot(raw, data))
        elif self._prepared.make_reader is None and self._prepared.mapping is None:
            self._several(raw, data, choices)
        else:
            event = decode_object(data)
            for choice, single in zip(choices, event["choices"], strict=True):
                alone = encode_object({**event, "choices": [single]})
                self._then(partial(self._choice, alone, alone[len(b"data: ") : -2], choice))

    def _several(self, raw: bytes, data: bytes, choices: list[ChunkChoice]) -> None:
        """Several choices in one chunk of an answer that is not read: mended in place, if at all."""
        slot = Slot(raw, data)
        for at, choice in enumerate(choices):
            voice = self._voice(choice.index)
            if _has_calls(voice, choice.delta):
                self._native(voice, slot, at)
            if choice.finish_reason:
                self._finish(voice, slot, choice.finish_reason, at)
        self._push(slot)

    def _choice(self, raw: bytes, data: bytes, choice: ChunkChoice) -> None:
        voice = self._voice(choice.index)
        delta = choice.delta
        text = (delta.content if delta else None) or ""
        called = _has_calls(voice, delta)
        reads_on = voice.listens and not self._prepared.shape.wait_for_finish
        if reads_on and (called or voice.held) and bool(text) + called + bool(choice.finish_reason) > 1:
            self._apart(data)
            return
        if (delta is not None and delta.reasons) or (reads_on and called):
            self._apply(voice, voice.reasoned())
        if reads_on and called:
            self._apply(voice, voice.release_hold())
        opens = delta is not None and delta.role is not None and not voice.spoken
        ends = bool(choice.finish_reason)  # some servers put an empty one into every chunk
        events = voice.feed(text) if text else []
        if text and not called and not ends and self._casts:
            self._casts -= 1
            self._mould, self._run_voice = Mould.of(raw, data, text), voice
        if not self._slots and not called and not ends and _is_text(events, text):
            voice.spoken = voice.spoken or opens
            self._out.append(raw)
            return
        slot = Slot(raw, data, voice, len(text) if voice.listens else 0)
        slot.opens = opens
        voice.spoken = voice.spoken or opens
        slot.number = self._events
        self._slots.append(slot)
        self._held += len(raw)
        if slot.left:
            voice.waiting.append(slot)
            self._apply(voice, events, slot)
        if voice.busy:
            self._labors = slot.waits = True
            self._works.append(partial(self._tell, voice, slot, choice.finish_reason, called=called))
        else:
            self._tell(voice, slot, choice.finish_reason, called=called)

    def _tell(self, voice: Voice, slot: Slot, reason: str | None, *, called: bool) -> None:
        """What an event says besides its text, which has been read."""
        slot.waits = False
        if called:
            if self._prepared.shape.wait_for_finish:
                self._apply(voice, voice.give_back(), slot)
            self._put_endings_behind(voice)
            self._native(voice, slot, 0)
        if reason:
            self._ended(voice, slot, reason)
        self._flush()

    def _apart(self, data: bytes) -> None:
        """Text, structured calls and the end in one event, each as an event of its own: each may become another."""
        event = decode_object(data)
        choice = event["choices"][0]
        delta = choice["delta"]
        said = {key: value for key, value in delta.items() if key not in _CALL_FIELDS}
        calls = {key: value for key, value in delta.items() if key in _CALL_FIELDS}
        parts = [{**choice, "delta": each, "finish_reason": None} for each in (said, calls) if each]
        if choice.get("finish_reason"):
            parts.append({**choice, "delta": {}})
        shared = {key: value for key, value in event.items() if key != "usage"}
        for part in parts:
            raw = encode_object({**(event if part is parts[-1] else shared), "choices": [part]})
            told = raw[len(b"data: ") : -2]
            chunk = decode_chunk(told)
            if chunk is not None and chunk.choices:
                self._then(partial(self._choice, raw, told, chunk.choices[0]))

    def _native(self, voice: Voice, slot: Slot, at: int) -> None:
        """Structured calls of one choice: mend what is certain, and hold what may be a call that was given."""
        if not self._prepared.mend_native:
            return
        event = slot.event
        native = voice.native
        before = len(native.mended)
        delta = event["choices"][at]["delta"]
        deltas = delta.get("tool_calls")
        native.is_holding = self._prepared.make_reader is not None and voice.may_repeat
        native.mend_deltas(deltas)
        native.take_legacy(delta.get("function_call"))
        if event.get("usage"):
            self._withheld_usage = event.pop("usage")
            native.mended.append("usage_in_call_chunk")
        self.facts.native_calls = sum(known.native.count for known in self._voices.values())
        if len(native.mended) > before:
            self.facts.mended.update(native.mended[before:])
            slot.replace(encode_object(event))
        if self._prepared.mapping is not None and deltas:
            slot.withhold_calls()  # they are the client's calls only when they are complete and translated
        elif self._prepared.make_reader is not None:
            self._hold_calls(voice, slot)

    def _hold_calls(self, voice: Voice, slot: Slot) -> None:
        """Keep an event back whose calls may be some that were given; those in `tool_calls` by themselves."""
        event = slot.event
        delta = event["choices"][0]["delta"]
        deltas = delta.get("tool_calls")
        held = [each for each in deltas if voice.native.holds(each)] if isinstance(deltas, list) else []
        is_legacy = voice.native.is_legacy(delta.get("function_call"))
        if is_legacy:
            slot.waits = True
            voice.held.append(slot)
        if held and (is_legacy or len(held) < len(deltas)):
            choice = {**event["choices"][0], "delta": {"tool_calls": held}, "finish_reason": None}
            raw = encode_object({**event, "choices": [choice]})
            delta["tool_calls"] = [each for each in deltas if not voice.native.holds(each)]
            slot.replace(encode_object(event))
            slot = Slot(raw, raw[len(b"data: ") : -2], voice)
            self._slots.append(slot)
            self._held += len(raw)
        if held:
            slot.waits = slot.moves = True
            voice.held.append(slot)

    def _settle(self, voice: Voice, last: Slot | None) -> None:
        """Of each call that came as text and structured, one stays."""
        native = voice.native
        before = len(native.mended)
        self._apply(voice, voice.settle(), last)
        given = voice.given if voice.held else set()
        moved = native.settle(given)
        keeps_legacy = native.settle_legacy(given) if voice.held else True
        held, voice.held = voice.held, []
        for slot in held:
            native.mended += ["index_repeated"] * slot.settle_calls(moved, keeps_legacy=keeps_legacy)
            slot.waits = False
        if moved:  # calls go out in the order of their numbers
            behind = {id(slot) for slot in held if slot.moves and slot is not last}
            stay = [slot for slot in self._slots if id(slot) not in behind]
            at = next((at for at, slot in enumerate(stay) if slot is last), len(stay))
            self._slots = deque([*stay[:at], *(slot for slot in held if id(slot) in behind), *stay[at:]])
        self.facts.mended.update(native.mended[before:])

    def _ended(self, voice: Voice, slot: Slot, reason: str) -> None:
        """A choice says that it has ended; where it waits with a call, a structured one may come all the same."""
        waits = voice.may_call and (self._prepared.shape.wait_for_finish or voice.native.count)
        if (waits or voice.held or voice.is_pending) and not voice.finished:
            slot.waits = True
            self._endings.append((voice, slot, reason))
        else:
            slot.waits = True
            self._once_read([(voice, reason)], partial(self._conclude_one, voice, slot, reason))

    def _conclude_one(self, voice: Voice, slot: Slot, reason: str) -> None:
        slot.waits = False
        self._conclude(voice, slot, reason)
        self._flush()

    def _put_endings_behind(self, voice: Voice) -> None:
        """A structured call came behind the end of its choice: that end goes out behind the call."""
        for known, slot, _ in self._endings:
            if known is voice and not slot.left and slot in self._slots:
                self._slots.remove(slot)

    def _conclude_all(self) -> None:
        """The answer is over: what its choices hold is what there is."""
        endings, self._endings = self._endings, []
        for voice, slot, reason in endings:
            slot.waits = False
            if slot not in self._slots:
                self._slots.append(slot)
            self._conclude(voice, slot, reason)
        if endings:
            self._flush()

    def _conclude(self, voice: Voice, slot: Slot, reason: str) -> None:
        """The end of a choice that is read; it waits where it is to be asked again."""
        if voice.finished:  # some servers say it twice: what the choice held has been told
            if self._due is None:
                self._finish(voice, slot, reason, 0)
            return
        self._apply(voice, voice.finish(reason), slot)
        translation = self._translation(voice)
        attempt = voice.attempt or self._refused(translation, reason)
        if attempt is not None and self._due is None and len(self._voices) == 1:
            self.facts.attempts += not attempt.calls
            voice.finished = True
            self._due = _Due(voice, slot, reason, attempt)
            return
        self._apply(voice, voice.give_back(), slot)
        self._settle(voice, slot)
        self._tell_mapped(voice, slot, translation)
        self._finish(voice, slot, reason, 0)

    def _translation(self, voice: Voice) -> Translation | None:
        """What the structured calls of a choice become, where the model was shown other tools than the client's."""
        if self._prepared.mapping is None or not voice.native.calls:
            return None
        return translation_of(self._prepared.mapping, voice.native.calls)

    def _refused(self, translation: Translation | None, reason: str) -> BrokenCall | None:
        """The attempt that structured calls are which cannot be translated, where it may be asked for again."""
        if translation is None or not self._repairs or reason in CUT_REASONS:
            return None
        return translation.attempt()

    def _tell_mapped(self, voice: Voice, slot: Slot, translation: Translation | None) -> None:
        """Give the client its calls; one that could not be translated is left for the client to refuse."""
        if translation is None:
            return
        self.facts.note_mapped(translation)
        given = voice.given
        for call in translation.calls:
            if key_of(call.name, call.arguments) in given:
                self.facts.mended["call_repeated"] += 1
                continue
            slot.chunk(voice.begin(Start("", call.name, "native"), slot.event, call.id))
            slot.chunk(args_chunk(voice.args_mould, call.arguments))

    def _finish(self, voice: Voice, slot: Slot, reason: str, at: int) -> None:
        """A choice has ended: the reason to give may be another one."""
        voice.finished = True
        self.facts.unusable_calls = sum(known.native.unusable for known in self._voices.values())
        final = voice.final_reason(reason)
        if self._prepared.mend_native and final == reason:
            final = voice.native.finish_reason(reason) or reason
            if final != reason:
                self.facts.mended["finish_reason"] += 1
        if final != reason and not slot.changed:
            slot.event["choices"][at]["finish_reason"] = final
            slot.replace(encode_object(slot.event))
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
        slot.number = self._events
        self._slots.append(slot)
        return slot

    def _end(self, raw: bytes) -> None:
        """The end of a good answer: choices without a finish of their own are finished now."""
        if self._due is not None:
            # Nothing is read any more, so a line feed that was cut off is not waited for.
            self._done = raw + b"\n" if raw.endswith(b"\r\n\r") else raw
            return
        for voice in self._voices.values():
            if voice.finished and voice.held:
                self._settle(voice, self._spare(voice))
            elif not voice.finished:
                slot = self._spare(voice)
                self._apply(voice, voice.finish("stop"), slot)
                self._apply(voice, voice.give_back(), slot)
                self._settle(voice, slot)
                self._tell_mapped(voice, slot, self._translation(voice))
                voice.finished = True
                slot.finish = voice.final_reason("stop") if voice.number >= 0 else None
        self._flush(everything=True)
        if self.facts.failure is None:
            if self._withheld_usage is not None:
                self._out.append(usage_chunk(decode_object(self._seen), self._withheld_usage))
            self._out.append(raw)

    def _fail(self, code: str, raw: bytes) -> None:
        """The answer ends in an error: what is held goes out as text, then the error, then nothing more."""
        self.facts.failure = code
        self._due = None
        for voice in self._voices.values():
            self._apply(voice, voice.give_back())
            self._settle(voice, None)
        self._broken = None
        self._flush(everything=True)
        self._out.append(raw)

    def _voice(self, index: int) -> Voice:
        voice = self._voices.get(index)
        if voice is None:
            hold = hold_of(self._prepared) if self._repairs and not self._voices else None
            voice = self._voices[index] = Voice(
                index, self._prepared, self._make_id, self.facts, hold, keep_text=self._keep_text
            )
        return voice

    def _push(self, slot: Slot) -> None:
        if self._slots:
            slot.number = self._events
            self._slots.append(slot)
            self._held += slot.size
        else:
            self._out.append(slot.render())

    def _flush(self, *, everything: bool = False) -> None:
        """Let out the slots that are decided, in order."""
        if self._held > self.facts.held_bytes_max:
            self.facts.held_bytes_max = self._held
        if self._held > _MAX_HELD:
            for voice in self._voices.values():
                if voice.held:
                    self._settle(voice, None)
            for slot in self._slots:
                may_go = slot.left and not slot.opens and not isinstance(slot, Run)
                self._held -= slot.forget(self._seen) if may_go else 0
        if self._due is not None:
            return
        while self._slots and (everything or not (self._slots[0].left or self._slots[0].waits)):
            slot = self._slots.popleft()
            self._held -= slot.size
            self._out.append(slot.render())
        if not self._slots:
            self._held = 0
        elif isinstance(self._slots[0], Run):
            before = self._slots[0].size
            self._out.append(self._slots[0].release())
            self._held -= before - self._slots[0].size
        if self._broken is not None:
            fault = broken_call(self._broken)
            self.finished = True
            self._fail(fault.code, error_event(fault))


def _has_calls(voice: Voice, delta: Delta | None) -> bool:
    """Whether there is a structured call in it, or a piece of one."""
    if delta is None:
        return False
    if is_given(delta.tool_calls):
        return True
    return is_given(delta.function_call) and voice.native.is_legacy(any_in(delta.function_call))


def _is_text(events: list[Event], text: str) -> bool:
    """Whether all of the text, and nothing else, is text."""
    if not text:
        return True
    return len(events) == 1 and isinstance(events[0], Text) and len(events[0].raw) == len(text)


def error_event(error: GatewayError) -> bytes:
    """An error as a plain data event: the SDKs raise on it."""
    return encode_object(error.body())
