"""One request's answer, without sockets: upstream bytes in, client bytes and facts out.

Each upstream event is pending in a queue. The reader says of every character of content whether it is text; an event
all of whose characters are text goes out as the bytes it came in, so an answer in which nothing is recognised is the
upstream's, byte for byte. Only an event that a call begins or ends in is rebuilt. They leave in order.

Where a call was plainly meant and cannot be used, the answer does not end: `ask_again` says what to send, and the
second answer is brought with `second_answer`, or its absence with `no_second_answer`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from gateway.answer.choice import Choice, MakeId, check_index
from gateway.answer.endings import Endings
from gateway.answer.facts import Facts
from gateway.answer.held_calls import HeldCalls
from gateway.answer.queue import Pending, Queue
from gateway.answer.quiet import Quiet, is_text
from gateway.answer.second_answer import SecondRequest, SecondRound
from gateway.answer.template import Casts, last_events, text_of
from gateway.answer.works import Works
from gateway.core.errors import GatewayError, UpstreamBadReply, UpstreamError
from gateway.core.events import Event, Text
from gateway.core.limits import Limits
from gateway.wire.chat_chunks import (
    NOT_GIVEN,
    BadChunk,
    Chunk,
    ChunkChoice,
    Delta,
    any_in,
    decode_chunk,
    decode_object,
    encode_object,
    is_given,
    string_in,
    token_counts,
)
from gateway.wire.sse import DONE, EventTooLong, SseDecoder, SseEvent, first_event, last_event, says_nothing
from strategies.base import Prepared
from strategies.text.turns import LONG, Turns, whole

__all__ = ["StreamExchange"]

_FEW = 4
_CALL_FIELDS = ("tool_calls", "function_call")


class StreamExchange:
    """A streamed answer."""

    def __init__(
        self, prepared: Prepared, *, make_id: MakeId, limits: Limits, asks: int = 0, keep_text: bool = False
    ) -> None:
        self.facts = Facts(read=prepared.make_reader is not None)
        self._prepared = prepared
        self._make_id = make_id
        self._keep_text = keep_text
        self._round = SecondRound(prepared, self.facts, asks)
        self._decoder = SseDecoder(limits.max_event_bytes)
        self._choices: dict[int, Choice] = {}
        self._max_choices = limits.max_choices
        self._queue = Queue(self.facts)
        self._calls = HeldCalls(prepared, self.facts, self._queue, self._choices)
        self._works = Works(self._choices)
        self._endings = Endings(prepared, self.facts, self._choices, self._queue, self._calls, self._works, self._round)
        self._quiet = Quiet(self.facts)
        self.passes = self._quiet.passes
        """What goes out of events that are not read; they are then taken down, and may not be given to `step`."""
        self.word, self.is_cast_in, self.calm = self._quiet.word, self._quiet.is_cast_in, self._quiet.calm
        """The same of one whose content is at hand; and whether all events are cast alike."""
        self._casts = Casts()
        self._run_choice: Choice | None = None
        """Whose content is told by the template."""
        self._closed = False

    def hear_ahead(self, last: Delta) -> None:
        """Take down the reasoning in the event that ends the answer, which is held."""
        self._choice(0).hear_ahead(last)

    def read_reasoning(self) -> bool:
        """Read the reasoning of choices of which nothing else has come: once not `busy`, whether it ends in a call."""
        for choice in self._choices.values():
            choice.read_reasoning()
        self._works.look()
        return any(choice.has_called_in_reasoning for choice in self._choices.values())

    @property
    def finished(self) -> bool:
        """Nothing more is to come: `[DONE]` or an error has been seen."""
        return self._endings.finished

    @property
    def is_over(self) -> bool:
        """It has ended as it should, and nothing is left to do, to ask or to tell."""
        endings, queue = self._endings, self._queue
        # What waits for a second answer is held, with its end, in the queue.
        if not endings.finished or self.facts.failure is not None or self._quiet.has_heard:
            return False
        return not (queue.pending or queue.out or self._works.busy)

    @property
    def held(self) -> bool:
        """Text is held while it is undecided."""
        return bool(self._quiet.waits or self._queue.pending)

    @property
    def has_spoken(self) -> bool:
        """The client has text or a call, or gets them in any case; a role, comments and reasoning are neither."""
        return self._quiet.events > 0 or any(choice.has_spoken for choice in self._choices.values())

    def overlook(self, texts: list[bytes], last: bytes) -> None:
        """Events with these texts have gone out, as `calm` has it, up to this one."""
        del last
        self._quiet.overlook(texts)

    def feed(self, data: bytes) -> bytes:
        """The client's bytes for these upstream bytes; raises `UpstreamError` for what cannot be passed on."""
        out = self.passes(data)
        return out if out is not None else self._all(self._step(data))

    def finish(self, error: GatewayError | None = None) -> bytes:
        """The closing bytes: the end of the answer, or what is left of it and the error."""
        return self._all(self.close(error))

    @property
    def busy(self) -> bool:
        """More can be done with the bytes at hand: `step` goes on with it."""
        works = self._works
        return works.labors or bool(works.later)

    def _all(self, out: bytes) -> bytes:
        while self.busy:
            out += self.step()
        return out

    def step(self, data: bytes = b"") -> bytes:
        """A bounded piece of the work: with more bytes, or while `busy` without."""
        out = self.passes(data) if data else None
        return out if out is not None else self._step(data)

    def _step(self, data: bytes) -> bytes:
        """The same of what has to be read."""
        works, queue = self._works, self._queue
        self._catch_up()
        if works.labors or works.later:
            self._go_on()
        if data and (works.labors or works.later):
            works.put_off(partial(self._take_in, data))
        elif data:
            self._take_in_all(data)
        if not (works.labors or works.later):
            if queue.pending:
                queue.count_late()
            if not self._quiet.listens:
                self._listen()
        return queue.take()

    def _take_in_all(self, data: bytes) -> None:
        """The last of several events are heard where they can be: one that has to wait holds up none that follows."""
        template = self._casts.template
        most = last_event(data, len(data)) if template is not None else 0
        for _ in range(_FEW):
            if most and template is not None and data.endswith(template.blanks, 0, most):
                most = last_event(data, most)
        if not most:
            self._take_in(data)
            return
        works, queue = self._works, self._queue
        queue.goes_on = True
        self._take_in(data[:most])
        queue.goes_on = False
        out = None
        if not (works.labors or works.later or queue.pending):
            self._listen()
            out = self.passes(data[most:])
        if out is not None:
            queue.out.append(out)
            return
        self._quiet.stop()
        if works.labors or works.later:
            works.put_off(partial(self._take_in, data[most:]))
        else:
            self._take_in(data[most:])

    def _listen(self) -> None:
        """Say what listens from here on, as nothing is under way."""
        template, choice = self._casts.template, self._run_choice
        if template is None or choice is None or choice.finished or self._closed:
            return
        # Behind half an event, or while an end is held, what comes does not stand by itself.
        if self._endings.waits or self._endings.finished or not self._decoder.is_between:
            return
        listener = choice.listen()
        if listener is not None and (self._queue.has_room if listener.holds else not self._queue.pending):
            self._quiet.begin(template, listener, self._casts.stamped)

    def _catch_up(self) -> None:
        """Tell the choice of what has gone out unread, which can only be text, and read what waits behind it."""
        choice, quiet = self._run_choice, self._quiet
        if choice is None or not quiet.has_heard:
            quiet.stop()
            return
        self._queue.read += quiet.events
        if quiet.late:
            self._queue.knows_late(quiet.late)
        if quiet.last:
            self._queue.seen = self._casts.data_of(quiet.last)
        self.facts.held_bytes_max = max(self.facts.held_bytes_max, quiet.held_most)
        gone, begun, waiting = quiet.take()
        # White space at the end belongs to what comes next: in front of a call it goes, in front of words it stays.
        passed = (gone[:-begun] if begun else gone).rstrip()
        # In one go: what was heard may be thousands of events, and none of them means anything by itself.
        size = choice.pass_by(passed) if passed else 0
        undecided = len(gone) - size
        if undecided:
            events = choice.feed(gone[size:])
            # At once and not in turns: it is white space and what has begun, and no more.
            while choice.busy:
                events += choice.go_on()
            for event in events:
                choice.note(event)
                undecided -= len(event.raw)
        if undecided and choice.listens:
            # What waits has decided it, and is told in a moment: it stands for the bytes that have gone out.
            ghost = Pending(b"", b"", choice, undecided)
            self._queue.add(ghost)
            choice.pending.append(ghost)
        if waiting:
            self._take_in(waiting)
            if self._queue.pending and not self._works.busy:
                self._queue.count_late()

    def close(self, error: GatewayError | None = None) -> bytes:
        """The closing bytes, or the first of them: `step` brings the others while `busy`."""
        if not self._closed:
            self._catch_up()
            self._closed = True
            # Behind what is under way: bytes that were given before the end are read before it.
            self._works.then(partial(self._close, error))
        return self._queue.take()

    def _go_on(self) -> None:
        """A piece of the choices' work; where none of them has any left, what was put off until then."""
        for choice in self._choices.values():
            if choice.busy:
                self._endings.apply(choice, choice.go_on())
        self._works.look()
        # Bytes go out as they become free, in the middle of the work: a client waits for the first, not for the last.
        if self._works.labors or self._queue.owes:
            self._endings.flush()
        else:
            self._works.take_up()

    def _take_in(self, data: bytes) -> None:
        works = self._works
        while data and not self._endings.finished and not (works.labors or works.later):
            size = self._feed_run(data) or self._feed_events(data)
            data = data[size:]
        if (data or self._endings.finished) and works.busy:
            works.put_off(partial(self._take_in, data))
        # The other half of the line end behind `[DONE]` may come with the next packet.
        elif self._endings.finished and not self._endings.is_done_held and self.facts.failure is None:
            self._queue.out.append(self._decoder.owed(data))

    def _close(self, error: GatewayError | None) -> None:
        # Half an event at the end of an answer that was cut by a fault is none: nobody knows what it was to be.
        if not self._endings.finished and error is None:
            try:
                self._read(self._decoder.finish())
            except UpstreamError as fault:
                error = fault
        self._works.then(partial(self._endings.read_all, error, partial(self._endings.close, error)))

    def end_choices(self) -> None:
        """Nothing more comes of its choices: once it is not `busy`, `ask_again` says what they lack."""
        self._catch_up()
        self._works.then(self._endings.read_held)

    @property
    def ask_again(self) -> SecondRequest | None:
        """What is to be asked again now, as soon as the upstream's answer has ended."""
        self._catch_up()
        self._endings.finish_all()
        # Once the answer is closed for the client, nothing that is asked could be told.
        return None if self._closed else self._round.wanted

    def second_answer(self, body: bytes) -> bytes:
        """Put the calls of a second answer in the place of the broken one; one without any is one broken call more."""
        return whole(self.second_steps(body))

    def second_steps(self, body: bytes) -> Turns[bytes]:
        """The same in steps of bounded work."""
        yield from self._endings.second_answer(body)
        out = [self._queue.take()]
        while self.busy:
            yield
            out.append(self.step())
        return b"".join(out)

    def no_second_answer(self) -> bytes:
        """Nothing came of asking again: the rest of the first answer, unchanged, or the first of it while `busy`."""
        return whole(self.no_second_steps())

    def no_second_steps(self) -> Turns[bytes]:
        """The same in steps of bounded work."""
        yield from self._endings.no_second_answer()
        return self._queue.take()

    def _feed_events(self, data: bytes) -> int:
        """Each event by itself: all that have come or, while there is no template, the first. Returns their size."""
        # One alone while there is no template: it may be the first of a run, which is then read as such.
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
        # Behind half an event the data begins in the middle of one.
        if self._casts.template is None or choice is None or self._decoder.pending:
            return 0
        data = self._casts.template.run(data)
        contents = self._casts.template.contents(data)
        text = text_of(contents) if contents is not None else None
        if contents is None or text is None:
            return 0
        # Asked before the text is fed, which moves it.
        before = choice.last
        events = choice.feed(text) if text else []
        size = len(data)
        if self._queue.pending:
            events = self._freed(choice, events)
        # The way of nearly every answer without a call: the bytes go on as they came, and nothing was taken apart.
        if not self._queue.pending and is_text(events, text):
            self._queue.read += len(contents)
            self._queue.out.append(data)
            return size
        told = events[0].raw if len(events) == 1 and isinstance(events[0], Text) else ""
        # The first events of the run are decided and leave as bytes; only the last few are held.
        if not self._queue.pending and 0 < len(told) < len(text):
            kept, chars = last_events(contents, len(text) - len(told))
            at = len(text) - chars
            self._queue.read += len(contents) - kept
            self._queue.out.append(data[: size - self._casts.template.size(contents[-kept:])])
            before = text[at - 1] if at else before
            contents, text, events = contents[-kept:], text[at:], [Text(told[at:])] if at < len(told) else []
        begins_line = before in ("", "\n")
        last = self._queue.add_run(self._casts.template, choice, contents, len(text), begins_line=begins_line)
        self._endings.apply(choice, events, last)
        self._works.labors = choice.busy
        self._endings.flush()
        return size

    def _freed(self, choice: Choice, events: list[Event]) -> list[Event]:
        """Let what is held go where a text decides all of it; what is left of that text stands in front of nothing."""
        # More of them, or anything but text, goes the long way round, where each event is looked at.
        if len(events) != 1 or not isinstance(events[0], Text) or len(choice.pending) > _FEW:
            return events
        told = events[0].raw
        held = sum(pending.held for pending in choice.pending)
        if held > len(told):
            return events
        self._endings.apply(choice, [Text(told[:held])])
        self._endings.flush()
        return [Text(told[held:])] if held < len(told) else []

    def _read(self, events: list[SseEvent]) -> None:
        works = self._works
        for number, (raw, data) in enumerate(events):
            # Events are read in their order: while one has work left, those behind it wait.
            if works.labors or works.later:
                self._works.put_off(partial(self._read, events[number:]))
                return
            if data is None:
                # Comments keep connections alive, and servers tell of the queue in them: they go on in their place.
                if says_nothing(raw):
                    self._queue.push(Pending(raw, b""))
            elif data == DONE:
                self._endings.finished = True
                self._endings.read_all(None, partial(self._ends, raw))
            elif data.strip():
                self._event(raw, data)
            if self._endings.finished:
                return

    def _event(self, raw: bytes, data: bytes) -> None:
        self._queue.read += 1
        try:
            chunk = decode_chunk(data)
        except BadChunk as error:
            raise UpstreamBadReply(f"the model server sent an event that is {error}") from error
        if chunk is None:
            self._queue.push(Pending(raw, data))
        # Beside choices it is a field like any other, and the choices are read.
        elif chunk.error is not NOT_GIVEN and is_given(chunk.error) and not chunk.choices:
            self._endings.finished = True
            self._endings.read_all(UpstreamError("told in the answer"), partial(self._fails, raw))
        else:
            # Only of a chunk that could be read: what is made anew looks like the server's own.
            self._queue.seen = data
            self._chunk(raw, data, chunk)

    def _ends(self, raw: bytes) -> None:
        self._endings.finish_all()
        self._endings.end(raw)

    def _fails(self, raw: bytes) -> None:
        self._endings.finish_all()
        self._endings.fail("upstream_error", raw)

    def _chunk(self, raw: bytes, data: bytes, chunk: Chunk) -> None:
        if chunk.usage is not NOT_GIVEN and is_given(chunk.usage):
            self.facts.usage = token_counts(any_in(chunk.usage))
            # A chunk tells the cost by itself: what was withheld need not be told.
            self._calls.withheld_usage = None
        # The first one stands: records and feedback know an answer by one id.
        if self.facts.completion_id is None:
            self.facts.completion_id = string_in(chunk.id)
        choices = chunk.choices or []
        if len(choices) == 1:
            self._read_choice(raw, data, choices[0])
        elif not choices:
            self._queue.pass_on(raw, data)
        elif self._prepared.make_reader is None and self._prepared.mapping is None:
            self._several(raw, data, choices)
        else:
            # Before anything is made for them: a chunk may name as many as fit into its bytes.
            check_index(len(choices) - 1, self._max_choices)
            event = decode_object(data)
            # Each in an event of its own, as each is read, and may have to wait, by itself.
            for chunk_choice, single in zip(choices, event["choices"], strict=True):
                alone = encode_object({**event, "choices": [single]})
                self._works.then(partial(self._read_choice, alone, alone[len(b"data: ") : -2], chunk_choice))

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
                self._endings.finish_event(choice, pending, chunk_choice.finish_reason, at)
        self._queue.push(pending)

    def _read_choice(self, raw: bytes, data: bytes, chunk_choice: ChunkChoice) -> None:
        choice = self._choice(chunk_choice.index)
        delta = chunk_choice.delta
        text = (delta.content if delta is not None else None) or ""
        called = choice.is_called(delta)
        ends = bool(chunk_choice.finish_reason)  # some servers put an empty one into every chunk
        # Where all waits for the end anyway, it does not matter in how many events it came.
        reads_on = choice.listens and not self._prepared.shape.wait_for_finish
        if reads_on and (called or choice.held_calls) and bool(text) + called + ends > 1:
            self._apart(data)
            return
        if called or (delta is not None and not delta.is_silent):
            self._before(choice, delta, called=called and reads_on)
        # Servers that repeat the role in each event would otherwise have each of them told anew.
        opens = delta is not None and delta.role is not None and not choice.spoken
        events = choice.feed(text) if text else []
        # A template is taken of an event that says nothing but text, as those behind it are not looked into.
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
            self._endings.apply(choice, choice.reasoned())
        if called:
            self._endings.apply(choice, choice.release_hold())

    def _hold(self, choice: Choice, pending: Pending, events: list[Event]) -> None:
        """Hold an event, and what its text has led to."""
        self._queue.add(pending)
        if pending.held:
            choice.pending.append(pending)
            self._endings.apply(choice, events, pending)

    def _once_told(self, choice: Choice, pending: Pending, work: Callable[[], None]) -> None:
        """Do it once the text of the event has been read."""
        if choice.busy:
            self._works.labors = pending.waits = True
            self._works.put_off(work)
        else:
            work()

    def _tell(self, choice: Choice, pending: Pending, reason: str | None, called: bool) -> None:
        """What an event says besides its text, which has been read."""
        # A structured call behind a broken one in the text takes its place: nothing has to be asked.
        if called and self._endings.waits_for_second(choice):
            pending.waits = True
            whole(self._endings.no_second_answer())  # what was to be asked for came behind the end
        if called and choice.may_supply:
            self._endings.apply(choice, choice.release_hold(), pending)
        # The text could only have become a call at its end, and the structured one has come instead.
        elif called and choice.awaits_end and choice.listens:
            pending.waits = True
            self._works.once_read([(choice, "cut")], partial(self._tell_called, choice, pending, reason))
            return
        self._tell_rest(choice, pending, reason, called)

    def _tell_called(self, choice: Choice, pending: Pending, reason: str | None) -> None:
        """The text of a choice, which has been read, is no call: a structured one has come."""
        self._tell_parts(choice, pending, reason, deque(_in_parts(choice.give_back())))

    def _tell_parts(self, choice: Choice, pending: Pending, reason: str | None, parts: deque[list[Event]]) -> None:
        """The events of that text, so many in a turn, then the rest: thousands of others may wait for one."""
        self._endings.apply(choice, parts.popleft() if parts else [], pending)
        if parts:
            self._works.put_off(partial(self._tell_parts, choice, pending, reason, parts))
        else:
            self._tell_rest(choice, pending, reason, called=True)

    def _tell_rest(self, choice: Choice, pending: Pending, reason: str | None, called: bool) -> None:
        pending.waits = False
        if called:
            self._endings.put_behind(choice)
            self._calls.take(choice, pending, 0)
        if reason:
            self._endings.told(choice, pending, reason)
        self._endings.flush()

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
        # Told once, with the last part: a client that adds up what chunks say would count it again.
        shared = {key: value for key, value in event.items() if key != "usage"}
        for part in parts:
            raw = encode_object({**(event if part is parts[-1] else shared), "choices": [part]})
            told = raw[len(b"data: ") : -2]
            chunk = decode_chunk(told)
            if chunk is not None and chunk.choices:
                self._works.then(partial(self._read_choice, raw, told, chunk.choices[0]))

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


def _in_parts(events: list[Event]) -> Iterator[list[Event]]:
    """The events, a long text in several: no more than one turn allows at once."""
    part: list[Event] = []
    room = LONG
    for event in events:
        size = len(event.raw)
        if size > room and part:
            yield part
            part, room = [], LONG
        if isinstance(event, Text) and size > LONG:
            # Raw text has no parts of its own, so it may be cut anywhere.
            for at in range(0, size, LONG):
                yield [Text(event.raw[at : at + LONG])]
        else:
            part.append(event)
            room -= size
    if part:
        yield part
