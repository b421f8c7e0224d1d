"""One request's answer, without sockets: upstream bytes in, client bytes and facts out.

Each upstream event is pending in a queue. The reader says of every character of content whether it is text; an event
all of whose characters are text goes out as the bytes it came in, so an answer in which nothing is recognised is the
upstream's, byte for byte. Only an event that a call begins or ends in is rebuilt. They leave in order.

Where a call was plainly meant and cannot be used, the answer does not end: `ask_again` says what to send, and the
second answer is brought with `second_answer`, or its absence with `no_second_answer`.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from gateway.answer.choice import Choice, MakeId, broken_off, check_index
from gateway.answer.facts import Facts
from gateway.answer.held_calls import HeldCalls
from gateway.answer.queue import Pending, Queue
from gateway.answer.quiet import Quiet, is_text
from gateway.answer.second_answer import SecondRequest
from gateway.answer.second_round import SecondRound
from gateway.answer.template import Casts, last_events, text_of
from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamError, UpstreamTruncated
from gateway.core.events import Event, Start, Text
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
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent, encode, first_event, says_nothing
from strategies.base import Prepared
from strategies.reading.reader import CUT_REASONS

__all__ = ["StreamExchange"]

_FEW = 4
_CALL_FIELDS = ("tool_calls", "function_call")


class StreamExchange:
    """A streamed answer."""

    def __init__(
        self, prepared: Prepared, *, make_id: MakeId, limits: Limits, asks: int = 0, keep_text: bool = False
    ) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        self.finished = False
        """Nothing more is to come: `[DONE]` or an error has been seen."""
        self._prepared = prepared
        self._make_id = make_id
        self._keep_text = keep_text
        self._round = SecondRound(prepared, self.facts, asks)
        self._waiting: tuple[Pending, str] | None = None
        """The last event of the choice that waits for a second answer, and its finish reason."""
        self._endings: list[tuple[Choice, Pending, str]] = []
        """Choices that have ended and hold calls, whose place a structured one could still take."""
        self._done: bytes | None = None
        """The upstream's `[DONE]`, while a second answer is waited for."""
        self._decoder = SseDecoder(limits.max_event_bytes)
        self._choices: dict[int, Choice] = {}
        self._max_choices = limits.max_choices
        self._queue = Queue(self.facts)
        self._calls = HeldCalls(prepared, self.facts, self._queue, self._choices)
        self._quiet = Quiet()
        self.passes = self._quiet.passes
        """Whether events go out as they are, unread; they are then taken down, and may not be given to `step`."""
        self._casts = Casts()
        self._run_choice: Choice | None = None
        """Whose content is told by the template."""
        self._closed = False
        self._labors = False
        """A choice has more to do with the text that it was given, or more may go out than one step lets go."""
        self._works: deque[Callable[[], None]] = deque()
        """What is to be done once no choice has, in order."""

    def read_reasoning(self) -> bool:
        """Read the reasoning of choices of which nothing else has come: once not `busy`, whether it ends in a call."""
        for choice in self._choices.values():
            choice.read_reasoning()
        self._labors = any(choice.busy for choice in self._choices.values())
        return any(choice.has_called_in_reasoning for choice in self._choices.values())

    @property
    def held(self) -> bool:
        """Text is held while it is undecided."""
        return bool(self._queue.pending)

    @property
    def has_spoken(self) -> bool:
        """The client has text or a call, or gets them in any case; a role, comments and reasoning are neither."""
        return self._quiet.events > 0 or any(choice.has_spoken for choice in self._choices.values())

    def feed(self, data: bytes) -> bytes:
        """The client's bytes for these upstream bytes; raises `UpstreamError` for what cannot be passed on."""
        return self._all(self.step(data))

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
        if data and self.passes(data):
            return data
        if self._quiet.events:
            self._catch_up()
        if self._labors or self._works:
            self._go_on()
        if data and (self._labors or self._works):
            self._works.append(partial(self._take_in, data))
        elif data:
            self._take_in(data)
        if self._queue.pending and not self.busy:
            self._queue.count_late()
        self._listen()
        return self._queue.take()

    def _listen(self) -> None:
        """Say what events may go out unread from here on: none while anything is under way."""
        template, choice = self._casts.template, self._run_choice
        if template is None or choice is None:
            self._quiet.loud = None
            return
        is_still = not (self._queue.pending or self._labors or self._works or self._endings or self.finished)
        is_still = is_still and self._decoder.is_between and self._waiting is None and not self._closed
        self._quiet.begin(template, choice.loud if is_still else None, self._casts.stamped)

    def _catch_up(self) -> None:
        """Tell the choice of what has gone out unread; it can only be text."""
        choice, count = self._run_choice, self._quiet.events
        if choice is not None and count:
            self._queue.read += count
            if self._quiet.last:
                self._queue.seen = self._casts.data_of(self._quiet.last)
            for event in choice.feed(self._quiet.take()):
                choice.note(event)
        self._quiet.loud = None

    def close(self, error: GatewayError | None = None) -> bytes:
        """The closing bytes, or the first of them: `step` brings the others while `busy`."""
        if not self._closed:
            self._catch_up()
            self._closed = True
            self._then(partial(self._close, error))
        return self._queue.take()

    def _then(self, work: Callable[[], None]) -> None:
        """Do it, or once all has been done that was begun."""
        if self.busy:
            self._works.append(work)
        else:
            work()

    def _once_read(self, endings: list[tuple[Choice, str]], work: Callable[[], None]) -> None:
        """Do it once the text of these choices has been read to its end, before anything that was put off."""
        for choice, reason in endings:
            choice.read_end(reason)
        if any(choice.busy for choice, _ in endings):
            self._labors = True
            self._works.appendleft(work)
        else:
            work()

    def _go_on(self) -> None:
        """A piece of the choices' work; where none of them has any left, what was put off until then."""
        for choice in self._choices.values():
            if choice.busy:
                self._apply(choice, choice.go_on())
        self._labors = any(choice.busy for choice in self._choices.values())
        if self._labors or self._queue.owes:
            self._flush()
        elif self._works:
            work = self._works.popleft()
            later, self._works = self._works, deque()
            work()
            self._works += later

    def _take_in(self, data: bytes) -> None:
        while data and not self.finished and not self.busy:
            size = self._feed_run(data) or self._feed_events(data)
            data = data[size:]
        if (data or self.finished) and self.busy:
            self._works.append(partial(self._take_in, data))
        elif self.finished and self._done is None and self.facts.failure is None:
            self._queue.out.append(self._decoder.owed(data))

    def _close(self, error: GatewayError | None) -> None:
        if not self.finished and error is None:
            try:
                self._read(self._decoder.finish())
            except UpstreamError as fault:
                error = fault
        self._then(partial(self._read_all, error, partial(self._closing, error)))

    def _read_all(self, error: GatewayError | None, work: Callable[[], None]) -> None:
        """Do it once the text of all choices has been read, of which none follows."""
        ended = {choice.index: reason for choice, _, reason in self._endings}
        last = "stop" if error is None and self.finished else "cut"  # an end that nobody told is none
        open_ones = [choice for choice in self._choices.values() if not choice.finished or choice.index in ended]
        self._once_read([(choice, ended.get(choice.index, last)) for choice in open_ones], work)

    def _closing(self, error: GatewayError | None) -> None:
        self._finish_all()
        if self._waiting is not None and (error is None or self.finished):
            rest = self.no_second_answer()
            self._queue.out.append(rest)
        if self.finished:
            return
        self.finished = True
        unfinished = not self._choices or any(not choice.finished for choice in self._choices.values())
        if error is None and unfinished:
            error = UpstreamTruncated("the model server's answer ended too early")
        if error is None:
            self.facts.mended["done_missing"] += 1
            self._end(encode(DONE))
        else:
            self._fail(error.code, error_event(error))

    @property
    def ask_again(self) -> SecondRequest | None:
        """What is to be asked again now, as soon as the upstream's answer has ended."""
        self._catch_up()
        self._finish_all()
        return None if self._closed else self._round.wanted

    def second_answer(self, body: bytes) -> bytes:
        """Put the calls of a second answer in the place of the broken one; one without any is one broken call more."""
        second = self._round.read(body) if self._waiting is not None else None
        choice = self._round.choice
        if second is None or choice is None or self._waiting is None:
            return b""
        if not second.calls:
            return self.no_second_answer()
        pending = self._waiting[0]
        if choice.broken_structured:
            self._calls.replace(choice, second.replaced, pending)
        else:
            self._apply(choice, choice.replace_broken_call(), pending)
            for call in second.calls:
                pending.chunk(choice.begin(Start("", call.name, call.dialect, call.part), pending.event))
                pending.chunk(args_chunk(choice.args_template, call.arguments))
                self.facts.take_over(call)
        self._queue.add_usage(pending, second.usage)
        return self._resume()

    def no_second_answer(self) -> bytes:
        """Nothing came of asking again: the rest of the first answer, unchanged."""
        choice = self._round.choice
        if choice is None or self._waiting is None:
            return b""
        self._apply(choice, choice.give_back(), self._waiting[0])
        self._calls.release(choice)
        self._calls.tell_mapped(choice, self._waiting[0], choice.translation())
        return self._resume()

    def _resume(self) -> bytes:
        """What waited for a second answer goes on."""
        choice, waiting = self._round.end(), self._waiting
        self._waiting = None
        if choice is not None and waiting is not None:
            self._finish_event(choice, *waiting, 0)
        self._flush()
        if self._done is not None:
            self._end(self._done)
        return self._queue.take()

    def _feed_events(self, data: bytes) -> int:
        """Each event by itself: all that have come or, while there is no template, the first. Returns their size."""
        size = (self._casts.template is None and first_event(data)) or len(data)
        try:
            self._read(self._decoder.feed(data[:size]))
        except EventTooLong as error:
            raise UpstreamBadReply(f"the model server sent {error}") from error
        return size

    def _feed_run(self, data: bytes) -> int:
        """Events of nothing but content, all alike but for it: read in one go, without taking each apart.

        Returns the size of the run that the data begins with, 0 where it begins with none.
        """
        choice = self._run_choice
        if self._casts.template is None or choice is None or self._decoder.pending:
            return 0
        data = self._casts.template.run(data)
        contents = self._casts.template.contents(data)
        text = text_of(contents) if contents is not None else None
        if contents is None or text is None:
            return 0
        events = choice.feed(text) if text else []
        size = len(data)
        if self._queue.pending:
            events = self._freed(choice, events)
        if not self._queue.pending and is_text(events, text):
            self._queue.read += len(contents)
            self._queue.out.append(data)
            return size
        told = events[0].raw if len(events) == 1 and isinstance(events[0], Text) else ""
        if not self._queue.pending and 0 < len(told) < len(text):
            kept, chars = last_events(contents, len(text) - len(told))
            at = len(text) - chars
            self._queue.read += len(contents) - kept
            self._queue.out.append(data[: size - self._casts.template.size(contents[-kept:])])
            contents, text, events = contents[-kept:], text[at:], [Text(told[at:])] if at < len(told) else []
        last = self._queue.add_run(self._casts.template, choice, contents, len(text))
        self._apply(choice, events, last)
        self._labors = choice.busy
        self._flush()
        return size

    def _freed(self, choice: Choice, events: list[Event]) -> list[Event]:
        """Let what is held go where a text decides all of it; what is left of that text stands in front of nothing."""
        if len(events) != 1 or not isinstance(events[0], Text) or len(choice.pending) > _FEW:
            return events
        told = events[0].raw
        held = sum(pending.held for pending in choice.pending)
        if held > len(told):
            return events
        self._apply(choice, [Text(told[:held])])
        self._flush()
        return [Text(told[held:])] if held < len(told) else []

    def _read(self, events: list[SseEvent]) -> None:
        for number, (raw, data) in enumerate(events):
            if self.busy:
                self._works.append(partial(self._read, events[number:]))
                return
            if data is None:
                if says_nothing(raw):
                    self._queue.push(Pending(raw, b""))
            elif data == DONE:
                self.finished = True
                self._read_all(None, partial(self._ends, raw))
            elif data.strip():
                self._event(raw, data)
            if self.finished:
                return

    def _event(self, raw: bytes, data: bytes) -> None:
        self._queue.read += 1
        try:
            chunk = decode_chunk(data)
        except BadChunk as error:
            raise UpstreamBadReply(f"the model server sent an event that is {error}") from error
        if chunk is None:
            self._queue.push(Pending(raw, data))
        elif is_given(chunk.error) and not chunk.choices:
            self.finished = True
            self._read_all(UpstreamError("told in the answer"), partial(self._fails, raw))
        else:
            self._queue.seen = data
            self._chunk(raw, data, chunk)

    def _ends(self, raw: bytes) -> None:
        self._finish_all()
        self._end(raw)

    def _fails(self, raw: bytes) -> None:
        self._finish_all()
        self._fail("upstream_error", raw)

    def _chunk(self, raw: bytes, data: bytes, chunk: Chunk) -> None:
        if is_given(chunk.usage):
            self.facts.usage = token_counts(any_in(chunk.usage))
            self._calls.withheld_usage = None
        if self.facts.completion_id is None:
            self.facts.completion_id = string_in(chunk.id)
        choices = chunk.choices or []
        if len(choices) == 1:
            self._read_choice(raw, data, choices[0])
        elif not choices:
            self._queue.push(Pending(raw, data))
        elif self._prepared.make_reader is None and self._prepared.mapping is None:
            self._several(raw, data, choices)
        else:
            check_index(len(choices) - 1, self._max_choices)
            event = decode_object(data)
            for chunk_choice, single in zip(choices, event["choices"], strict=True):
                alone = encode_object({**event, "choices": [single]})
                self._then(partial(self._read_choice, alone, alone[len(b"data: ") : -2], chunk_choice))

    def _several(self, raw: bytes, data: bytes, choices: list[ChunkChoice]) -> None:
        """Several choices in one chunk of an answer that is not read: mended in place, if at all."""
        pending = Pending(raw, data)
        for at, chunk_choice in enumerate(choices):
            choice = self._choice(chunk_choice.index)
            if choice.is_called(chunk_choice.delta):
                self._calls.take(choice, pending, at)
            if chunk_choice.finish_reason:
                self._calls.review(choice, [], chunk_choice.finish_reason, pending)
                self._calls.release(choice)
                self._finish_event(choice, pending, chunk_choice.finish_reason, at)
        self._queue.push(pending)

    def _read_choice(self, raw: bytes, data: bytes, chunk_choice: ChunkChoice) -> None:
        choice = self._choice(chunk_choice.index)
        delta = chunk_choice.delta
        text = (delta.content if delta is not None else None) or ""
        called = choice.is_called(delta)
        ends = bool(chunk_choice.finish_reason)  # some servers put an empty one into every chunk
        reads_on = choice.listens and not self._prepared.shape.wait_for_finish
        if reads_on and (called or choice.held_calls) and bool(text) + called + ends > 1:
            self._apart(data)
            return
        self._before(choice, delta, called=called and reads_on)
        opens = delta is not None and delta.role is not None and not choice.spoken
        events = choice.feed(text) if text else []
        if text and not called and not ends and self._casts.take(raw, data, text):
            self._run_choice = choice
        choice.spoken = choice.spoken or opens
        if called or ends or self._queue.pending or not is_text(events, text):
            pending = Pending(raw, data, choice, len(text) if choice.listens else 0)
            pending.opens = opens
            self._hold(choice, pending, events)
            self._once_told(choice, pending, partial(self._tell, choice, pending, chunk_choice.finish_reason, called))
        else:
            self._queue.out.append(raw)

    def _before(self, choice: Choice, delta: Delta | None, *, called: bool) -> None:
        """Reasoning in a field of its own, or a structured call, decides about text that is held for it."""
        if choice.hears(delta) or called:
            self._apply(choice, choice.reasoned())
        if called:
            self._apply(choice, choice.release_hold())

    def _hold(self, choice: Choice, pending: Pending, events: list[Event]) -> None:
        """Hold an event, and what its text has led to."""
        self._queue.add(pending)
        if pending.held:
            choice.pending.append(pending)
            self._apply(choice, events, pending)

    def _once_told(self, choice: Choice, pending: Pending, work: Callable[[], None]) -> None:
        """Do it once the text of the event has been read."""
        if choice.busy:
            self._labors = pending.waits = True
            self._works.append(work)
        else:
            work()

    def _tell(self, choice: Choice, pending: Pending, reason: str | None, called: bool) -> None:
        """What an event says besides its text, which has been read."""
        if called and self._waiting is not None and choice is self._round.choice:
            pending.waits = True
            rest = self.no_second_answer()  # what was to be asked for came behind the end
            self._queue.out.append(rest)
        pending.waits = False
        if called:
            if choice.may_supply:
                self._apply(choice, choice.release_hold(), pending)
            elif choice.awaits_end:
                self._apply(choice, choice.give_back(), pending)
            self._put_endings_behind(choice)
            self._calls.take(choice, pending, 0)
        if reason:
            self._ended(choice, pending, reason)
        self._flush()

    def _apart(self, data: bytes) -> None:
        """Text, structured calls and the end in one event, each as an event of its own: each may become another."""
        event = decode_object(data)
        chunk_choice = event["choices"][0]
        delta = chunk_choice["delta"]
        said = {key: value for key, value in delta.items() if key not in _CALL_FIELDS}
        calls = {key: value for key, value in delta.items() if key in _CALL_FIELDS}
        parts = [{**chunk_choice, "delta": each, "finish_reason": None} for each in (said, calls) if each]
        if chunk_choice.get("finish_reason"):
            parts.append({**chunk_choice, "delta": {}})
        shared = {key: value for key, value in event.items() if key != "usage"}
        for part in parts:
            raw = encode_object({**(event if part is parts[-1] else shared), "choices": [part]})
            told = raw[len(b"data: ") : -2]
            chunk = decode_chunk(told)
            if chunk is not None and chunk.choices:
                self._then(partial(self._read_choice, raw, told, chunk.choices[0]))

    def _ended(self, choice: Choice, pending: Pending, reason: str) -> None:
        """A choice says that it has ended; where it is held with a call, a structured one may come all the same."""
        choice.ended = reason
        waits = choice.may_call and (self._prepared.shape.wait_for_finish or choice.native.count)
        if not choice.finished and (waits or choice.held_calls or choice.holds_events or choice.may_call_in_reasoning):
            pending.waits = True
            self._endings.append((choice, pending, reason))
        else:
            pending.waits = True
            self._once_read([(choice, reason)], partial(self._finish_one, choice, pending, reason))

    def _finish_one(self, choice: Choice, pending: Pending, reason: str) -> None:
        pending.waits = False
        self._finish_choice(choice, pending, reason)
        self._flush()

    def _put_endings_behind(self, choice: Choice) -> None:
        """A structured call came behind the end of its choice: that end goes out behind the call."""
        for known, pending, _ in self._endings:
            if known is choice and not pending.held:
                self._queue.remove(pending)

    def _finish_all(self) -> None:
        """The answer is over: what its choices hold is what there is."""
        endings, self._endings = self._endings, []
        for choice, pending, reason in endings:
            pending.waits = False
            self._queue.put_back(pending)
            self._finish_choice(choice, pending, reason)
        if endings:
            self._flush()

    def _finish_choice(self, choice: Choice, pending: Pending, reason: str) -> None:
        """The end of a choice that is read; it is held where it is to be asked again."""
        if choice.finished:  # some servers say it twice: what the choice held has been told
            if self._waiting is None:
                self._finish_event(choice, pending, reason, 0)
            return
        events = choice.finish(reason)
        self._apply(choice, self._calls.review(choice, events, reason, pending), pending)
        translation = choice.translation()
        broken_call = choice.broken_call or self._round.refused(translation, reason)
        if broken_call is None and self._round.may_ask and reason not in CUT_REASONS:
            broken_call = choice.broken_structured_call()
        if broken_call is not None and self._waiting is None and len(self._choices) == 1:
            choice.finished = True
            self._waiting = pending, reason
            self._round.wait(choice, broken_call)
            return
        self._apply(choice, choice.give_back(), pending)
        self._calls.release(choice)
        self._calls.finish(choice, pending)
        self._calls.tell_mapped(choice, pending, translation)
        self._finish_event(choice, pending, reason, 0)

    def _finish_event(self, choice: Choice, pending: Pending, reason: str, at: int) -> None:
        """A choice has ended: the reason to give may be another one."""
        choice.finished = True
        self.facts.unusable_calls += choice.more_unusable()
        final = choice.final_reason(reason)
        if self._prepared.mend_native and final == reason:
            final = choice.native.finish_reason(reason) or reason
            if final != reason:
                self.facts.mended["finish_reason"] += 1
        if final != reason and not pending.changed:
            pending.event["choices"][at]["finish_reason"] = final
            pending.replace(encode_object(pending.event))
        self.facts.finish_reasons[choice.index] = final
        if pending.changed:
            pending.finish = final

    def _apply(self, choice: Choice, events: list[Event], last: Pending | None = None) -> None:
        """Account for the raw text of events, and put what replaces it there."""
        self._queue.place(choice, events, last)
        self.facts.undelivered += choice.more_undelivered()

    def _end(self, raw: bytes) -> None:
        """The end of a good answer: choices without a finish of their own are finished now."""
        if self._waiting is not None:
            # Nothing is read any more, so a line feed that was cut off is not waited for.
            self._done = raw + b"\n" if raw.endswith(b"\r\n\r") else raw
            return
        for choice in self._choices.values():
            if choice.finished:
                self._calls.release(choice)
                if choice.held_calls:
                    self._calls.finish(choice, self._queue.spare(choice))
            else:
                pending = self._queue.spare(choice)
                events = choice.finish("stop")
                self._apply(choice, self._calls.review(choice, events, "stop", pending), pending)
                self._apply(choice, choice.give_back(), pending)
                self._calls.release(choice)
                self._calls.finish(choice, pending)
                self._calls.tell_mapped(choice, pending, choice.translation())
                choice.finished = True
                pending.finish = choice.final_reason("stop") if choice.number >= 0 else None
        self._flush(everything=True)
        if self.facts.failure is None:
            if self._calls.withheld_usage is not None:
                self._queue.close(usage_chunk(decode_object(self._queue.seen), self._calls.withheld_usage))
            self._queue.close(raw)

    def _fail(self, code: str, raw: bytes) -> None:
        """The answer ends in an error: what is held goes out as text, then the error, then nothing more."""
        self.facts.failure = code
        self._waiting = None
        self._round.end()
        for choice in self._choices.values():
            self._apply(choice, choice.give_back())
            self._calls.release(choice)
            self._calls.finish(choice, None)
        self._queue.broken = None
        self._flush(everything=True)
        self._queue.close(raw)

    def _choice(self, index: int) -> Choice:
        choice = self._choices.get(index)
        if choice is None:
            check_index(index, self._max_choices)
            choice = self._choices[index] = Choice(
                index,
                self._prepared,
                self._make_id,
                self.facts,
                may_ask=self._round.may_ask and not self._choices,
                keep_text=self._keep_text,
            )
        return choice

    def _flush(self, *, everything: bool = False) -> None:
        """Let out what is decided, unless a second answer may take the place of some of it."""
        self._queue.measure()
        if self._queue.is_full:
            for choice in self._choices.values():
                self._calls.flow(choice)
                if choice.held_calls:
                    self._calls.finish(choice, None)
            self._queue.forget()
        if self._waiting is not None:
            return
        self._queue.flush(everything=everything)
        self._labors = self._labors or self._queue.owes
        if self._queue.broken is not None:
            fault = broken_off(self._queue.broken)
            self.finished = True
            self._fail(fault.code, error_event(fault))


def error_event(error: GatewayError) -> bytes:
    """An error as a plain data event: the SDKs raise on it."""
    return encode_object(error.body())
