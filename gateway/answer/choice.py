"""One choice of an answer: it knows all of it, in whichever shape the answer comes.

What is read goes through one list of stages (`stages`). A stage that has nothing to do is not in the list. The two
shells around it, `stream` and `body`, only say how an answer comes in and how what was read goes out again.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from gateway.answer.facts import NO_CALLS, Facts, delivered
from gateway.answer.queue import Pending
from gateway.answer.quiet import Deaf
from gateway.answer.stages import GuardedReader, Hold, Repeats, Shaper, Stage
from gateway.answer.stages.thoughts import ENDS, Thoughts
from gateway.answer.stages.transcript import Transcript
from gateway.answer.structured.holding import HeldCall
from gateway.answer.structured.review import CallFacts, Review, Reviewed
from gateway.core.errors import GatewayError, UpstreamBadReply
from gateway.core.events import Broken, Drop, End, Event, Note, Said, Start, Text
from gateway.wire.chat_chunks import NOT_GIVEN, Delta, any_in, args_template, call_start_chunk, has_reasoning, is_given
from gateway.wire.structured_calls import CallKey, NativeCalls, key_of
from strategies.base import BrokenCall, FinishReason, Listener, Prepared, part_id
from strategies.base.tries import Tries
from strategies.mapping.answers import Translation, translation_of
from strategies.reading.factory import Readers
from strategies.text.turns import LONG, Turns

__all__ = ["Choice", "MakeId", "broken_off", "check_index"]

MakeId = Callable[[str], str]
_END = object()
_SEEN = ("tool_calls", "function_call", "refusal", "audio")
"""What of a whole message can be seen or acted on, besides its text."""


def check_index(index: int, most: int) -> None:
    """Raise the server's fault where a choice is none of the `most` that were asked for: each is read by itself."""
    if not 0 <= index < most:
        raise UpstreamBadReply("the model server sent a choice that nobody asked for")


class Choice:
    """One choice of an answer: its stages, and how its calls are numbered."""

    __slots__ = (
        "_ahead",
        "_base_id",
        "_early",
        "_facts",
        "_hold",
        "_make_id",
        "_make_reader",
        "_mapping",
        "_read_calls",
        "_reader",
        "_reads",
        "_repeats",
        "_review_work",
        "_shape",
        "_shaper",
        "_stages",
        "_texts",
        "_thoughts",
        "_told_undelivered",
        "_told_unusable",
        "_tries",
        "args_template",
        "awaits_end",
        "broken_structured",
        "call_id",
        "ended",
        "finished",
        "heard",
        "held_calls",
        "held_structured",
        "index",
        "last",
        "native",
        "number",
        "pending",
        "review",
        "spoken",
    )

    def __init__(
        self,
        index: int,
        prepared: Prepared,
        make_id: MakeId,
        facts: Facts,
        *,
        may_ask: bool = False,
        keep_text: bool = False,
    ) -> None:
        self.index = index
        transcript = Transcript() if keep_text and prepared.make_reader else None
        if transcript is not None:
            facts.transcripts[index] = transcript
        self._reader = GuardedReader(prepared.make_reader, transcript) if prepared.make_reader else None
        self._make_reader = prepared.make_reader
        self._thoughts = Thoughts() if prepared.make_reader and prepared.reads_reasoning else None
        """Its reasoning, as long as nothing else has come."""
        self._ahead: list[tuple[str, bytes]] | None = None
        """What of it is still to come though it has been heard."""
        self.ended: str | None = None
        """The finish reason that the model server gave."""
        self._early: list[Event] | None = None
        """What the end of the text came to so far, once it has been begun to be read."""
        self._shape = prepared.shape
        self._shaper = Shaper(prepared.shape)
        # Holding delays what a client sees, so only where something could be asked for.
        may_hold = may_ask and self._reader is not None and prepared.asks_for_text
        self._hold = Hold(prepared.ask_again) if may_hold and prepared.ask_again else None
        self._repeats: Repeats | None = None
        self._stages: list[Stage] = []
        """What comes behind the reader, in this order; what has nothing to do is not in it."""
        if self._reader is not None:
            self._stages.append(self._shaper)
        if self._hold is not None:
            self._stages.append(self._hold)
        terms = prepared.calls
        self.native = NativeCalls(
            make_id,
            prepared.rename,
            one_only=terms.one_only,
            drops_copies=terms.drops_copies,
            reads_copies=terms.mends,
            taken_ids=terms.taken_ids,
            next_id=terms.next_id,
        )
        if facts.structured is NO_CALLS:
            facts.structured = CallFacts()
        self.review = Review(terms, self.native, facts.structured)
        self.broken_structured: list[Reviewed] = []
        """Structured calls that may be asked for again."""
        self._review_work: Generator[None, None, None] | None = None
        """What is left to do before long structured calls are known."""
        self.held_structured: dict[int, HeldCall] = {}
        """By the identity of structured calls in a stream: what is held of each."""
        self.pending: deque[Pending] = deque()
        """The events of a stream of which not every character is decided."""
        self.number = -1
        """The number of the call under way."""
        self.call_id = ""
        self._base_id = ""
        self.args_template = (b"", b"")
        self.heard = 0
        """How many characters of text have come."""
        self.last = ""
        """The last of them."""
        self.spoken = False
        """A chunk of this choice with a role has gone out."""
        self.finished = False
        self.held_calls: list[Pending] = []
        """Events with structured calls that may be those of the text again."""
        self._make_id = make_id
        self._facts = facts
        self._tries = Tries()
        self._reads = self._reader is not None
        self._mapping = prepared.mapping
        self.awaits_end = prepared.shape.wait_for_finish
        """Calls of the text are given at the end alone, and only where no structured ones came."""
        self._told_undelivered = self._told_unusable = 0
        """How many of each were added to the answer's own sums: with many choices those are not made anew."""
        self._texts = 0
        """How many calls have begun that are not the model server's own."""
        self._read_calls: list[tuple[str, str]] = []
        """Name and arguments of those that were read from text."""

    # Text

    @property
    def listens(self) -> bool:
        return self._reader is not None

    @property
    def may_call(self) -> bool:
        """A call may stand in what is held: there is none in white space."""
        return bool(self.pending) and (self._shaper.holds_calls or not (self._reader is None or self._reader.idle))

    @property
    def may_supply(self) -> bool:
        """The text may hold what a structured call lacks."""
        return self.review.mends and self.awaits_end and self.may_call and self._mapping is None

    def listen(self) -> Listener | None:
        """What listens in its place from here on; None while every event is to be read."""
        passes = all(stage.passes for stage in self._stages)
        if self.native.count or (not passes and self._reader is not None and self._reader.idle):
            return None
        if not self._reads:
            return Deaf()
        if self._reader is None or self._early is not None:
            return None
        listener = self._reader.listen(keeps_space=self._shape.keep_space)
        return listener if listener is not None and (passes or listener.holds) else None

    @property
    def has_spoken(self) -> bool:
        """Text of it is decided, or a call has begun: the client has it, or gets it."""
        held = sum(pending.held for pending in self.pending)
        return self.heard > held or self.number >= 0 or self.native.count > 0

    @property
    def undelivered(self) -> int:
        """How many calls were read that the client is not given."""
        return self._shaper.undelivered

    def is_called(self, delta: Delta | None) -> bool:
        """Whether there is a structured call in it, or a piece of one."""
        if delta is None:
            return False
        if delta.tool_calls is not NOT_GIVEN and is_given(delta.tool_calls):
            return True
        if delta.function_call is NOT_GIVEN:
            return False
        return is_given(delta.function_call) and self.native.is_legacy(any_in(delta.function_call))

    @property
    def has_calls(self) -> bool:
        """A call has come, structured or in the text, whatever became of it."""
        return bool(self._texts or self._shaper.calls or self.native.count)

    def more_undelivered(self) -> int:
        """How many of all calls that the client is not given were found since this was asked last."""
        before, self._told_undelivered = self._told_undelivered, self.undelivered + self.native.undelivered
        return self._told_undelivered - before

    def more_unusable(self) -> int:
        """How many structured calls with arguments of no use were found since this was asked last."""
        before, self._told_unusable = self._told_unusable, self.native.unusable
        return self._told_unusable - before

    def reasoned(self) -> list[Event]:
        """The choice's reasoning is over or has a field of its own: what was held for that."""
        return self._through(self._reader.reasoned()) if self._reader is not None else []

    def hears(self, delta: Delta | None) -> bool:
        """Whether a part of a stream holds reasoning: it is taken down while there is nothing else to be seen."""
        if delta is None or delta.is_silent:
            return False
        reasons = delta.reasons
        # It was heard when it was held: taken down twice, the reasoning would end otherwise.
        if self._ahead is not None and delta.thoughts == self._ahead:
            self._ahead = None
            return reasons
        if self._thoughts is not None and (reasons or delta.says_otherwise):
            self._thoughts.add(delta)
            if delta.says_otherwise or delta.content or self._thoughts.is_full:
                self._thoughts = None
        return reasons

    def hear_ahead(self, delta: Delta) -> None:
        """The same of the last part of a stream, which comes once more when it is let go on."""
        if self._thoughts is not None and delta.reasons:
            self.hears(delta)
            self._ahead = delta.thoughts

    def hear_message(self, message: Mapping[str, Any]) -> None:
        """The same of a whole message."""
        if self._thoughts is None or any(message.get(name) for name in _SEEN):
            self._thoughts = None
        elif has_reasoning(message):
            self._thoughts.take(message)

    @property
    def may_call_in_reasoning(self) -> bool:
        """Nothing but reasoning has come, so that a call of it would be the answer."""
        return self._thoughts is not None and self._thoughts.holds and not self.native.count

    def read_reasoning(self) -> None:
        """Begin to read its reasoning, as far as it has come; once it is not `busy` it has been read."""
        thoughts = self._thoughts
        if thoughts is not None and self.may_call_in_reasoning and self._make_reader is not None:
            thoughts.begin(self._make_reader)

    @property
    def has_called_in_reasoning(self) -> bool:
        """The reasoning that has been read ends in a call."""
        return self._thoughts is not None and bool(self._thoughts.calls)

    def feed(self, text: str) -> list[Event]:
        """What more of the text comes to, or as much of that as one turn allows."""
        self.heard += len(text)
        self.last = text[-1:]
        # Words are an answer: what was thought before them was not meant for the client.
        if self._thoughts is not None and text and not text.isspace():
            self._thoughts = None
        return self._through([Text(text)] if self._reader is None else self._reader.step(text))

    def pass_by(self, text: str) -> int:
        """A listener has heard this text in the reader's place, and nothing has begun in it: it has gone out.

        How much of it need not be read.
        """
        events: list[Event] = [Text(text)]
        size = len(text)
        if self._reader is not None:
            events, size = self._reader.pass_by(text)
        self.heard += size
        self.last = text[:size][-1:] or self.last
        self._thoughts = None
        for event in self._through(events):
            self.note(event)
        return size

    @property
    def busy(self) -> bool:
        """More can be done with the text that was given: `go_on` does a piece of it."""
        if self._thoughts is not None and self._thoughts.busy:
            return True
        return self._review_work is not None or (self._reader is not None and self._reader.busy)

    def go_on(self) -> list[Event]:
        """What another piece of the work comes to; what comes of the end is kept for `finish` or `give_back`."""
        if self._thoughts is not None and self._thoughts.busy:
            self._thoughts.go_on()
            return []
        if self._review_work is not None and not (self._reader is not None and self._reader.busy):
            self._review_work = self._review_work if next(self._review_work, _END) is not _END else None
            return []
        if self._reader is None:
            return []
        if self._early is None:
            return self._through(self._reader.step())
        self._early += self._reader.step()
        return []

    def read_end(self, reason: FinishReason) -> None:
        """Begin to read the end of the text: no more follows, and once it is not `busy` all has been read."""
        if self._reader is not None and self._early is None:
            self._early = self._reader.step(reason=reason)
        # In an answer that was cut, the reasoning might have gone on and thrown the call away.
        if self.ended in ENDS:
            self.read_reasoning()
        if not self.review.has_begun and self.native.size > LONG:
            self._review_work = self.review.work()

    def finish(self, reason: FinishReason) -> list[Event]:
        """The last events; none of those that are held while there is a `broken_call`."""
        if self._reader is None:
            return []
        events = [*self._last(self._reader, reason), *self._calls_in_reasoning()]
        for stage in self._stages:
            events = [*stage.feed(events), *stage.finish(reason)]
        self._end_text()
        return events

    def _calls_in_reasoning(self) -> list[Event]:
        """What the reasoning comes to, where it is all that the answer holds."""
        thoughts, self._thoughts = self._thoughts, None
        if thoughts is None or self.ended not in ENDS or self.native.count:
            return []
        while thoughts.busy:
            thoughts.go_on()
        return thoughts.calls or []

    def give_back(self) -> list[Event]:
        """No call of this choice's text is wanted any more: what is held is text."""
        events = self._hold.release() if self._hold is not None else []
        if self._reader is not None:
            # Read as if it were cut here: nothing that is half there may become a call now.
            events = [*events, *self._shaper.feed(self._last(self._reader, "cut")), *self._shaper.release()]
            self._end_text()
        return events if self._repeats is None else self._repeats.feed(events)

    def as_written(self) -> Turns[list[Event]]:
        """Nothing came of asking again: what is held is text, or the calls that it holds beyond doubt."""
        hold, readers = self._hold, self._make_reader
        if hold is None or hold.broken_call is None or not isinstance(readers, Readers):
            return self.give_back()
        held = yield from hold.as_written(readers, self._shape)
        return [*held, *self.give_back()]

    def _last(self, reader: GuardedReader, reason: FinishReason) -> list[Event]:
        """What the end of the text comes to."""
        self.read_end(reason)
        while reader.busy:
            self._early = [*(self._early or []), *reader.step()]
        self._reader = None
        return self._early or []

    def _end_text(self) -> None:
        """All text has been read; some servers send more behind the end, and that is not."""
        self._stages = [] if self._repeats is None else [self._repeats]

    def _through(self, events: list[Event]) -> list[Event]:
        for stage in self._stages:
            events = stage.feed(events)
        return events

    # What is to be asked again

    @property
    def broken_call(self) -> BrokenCall | None:
        """What is to be asked again, once the choice has finished."""
        return self._hold.broken_call if self._hold is not None else None

    @property
    def holds(self) -> bool:
        """Something of its text may be asked for again, or might have been."""
        return self._hold is not None

    def release_hold(self) -> list[Event]:
        """There is a call that can be used: nothing of this choice will be asked again."""
        if self._hold is None:
            return []
        events = self._hold.release()
        self._stages = [stage for stage in self._stages if stage is not self._hold]
        self._hold = None
        return events if self._repeats is None else self._repeats.feed(events)

    def replace_broken_call(self) -> list[Event]:
        """A call is told in the place of the broken one."""
        return self._hold.replaced() if self._hold is not None else []

    # Structured calls

    @property
    def given(self) -> set[CallKey]:
        """The calls that were read from text."""
        return {key_of(name, arguments) for name, arguments in self._read_calls}

    @property
    def holds_events(self) -> bool:
        """Calls of the text are held for the end of structured ones."""
        return self._repeats is not None and self._repeats.held

    @property
    def may_repeat(self) -> bool:
        """A structured call that begins now may be one that was written as text, before it or about to be."""
        may_be_read = bool(self.pending) and not self.awaits_end
        return self._mapping is None and (self.number >= 0 or may_be_read or bool(self.held_calls))

    def called(self) -> None:
        """Structured calls have come in a stream: from now on one of the text may be one of them again."""
        if self._repeats is None and self._mapping is None and self.native.count and not self.awaits_end:
            self._repeats = Repeats(self.native)
            self._stages.append(self._repeats)

    def finish_calls(self) -> list[Event]:
        """The end of what is held for structured calls: a call that is one of them is dropped."""
        return self._repeats.finish_calls() if self._repeats is not None else []

    def supplied(self, broken: Sequence[Reviewed], events: list[Event]) -> tuple[list[Event], Mapping[str, str]]:
        """The text's events once structured calls were told by what stands in it, and their arguments by their ids.

        No other call of the text is wanted beside them where its calls wait for the end, to see whether any come.
        """
        if not self.awaits_end or not self.native.count or not events:
            return events, {}
        found = self.review.supplied(broken, events)
        return found.events, found.arguments

    def mend_mapped(self, *, is_cut: bool) -> None:
        """Bring the calls of tools that the model was shown to their schemas, before they are translated."""
        for each in self.review.finish(is_cut=is_cut):
            if each.arguments is not None:
                each.call.replace(each.arguments)
                self.review.tell(each, "mended")

    def broken_structured_call(self, content: str = "") -> BrokenCall | None:
        """What is to be asked again of its structured calls, a name that the client has with other arguments only."""
        told = frozenset(held.call.id for held in self.held_structured.values() if held.is_told)
        return self.review.broken_call(self.broken_structured, told, content)

    def translation(self) -> Translation | None:
        """What the structured calls become, where the model was shown other tools than the client's."""
        if self._mapping is None or not self.native.calls:
            return None
        return translation_of(self._mapping, self.native.calls)

    # What goes out

    def begin_call(self, start: Start, call_id: str | None = None) -> None:
        """The next call, under an id of its own unless it comes with one."""
        self._texts += 1
        # Behind the structured ones, as clients join what comes under one number; those that are translated never went
        # out.
        self.number = self._texts - 1 + (0 if self._mapping is not None else self.native.numbered)
        self.native.first = self._texts
        number, count = start.part
        if call_id is None and number == 1:
            self._base_id = self._make_id(start.dialect)
        self.call_id = call_id or part_id(self._base_id, number, count)

    def begin(self, start: Start, event: dict[str, Any], call_id: str | None = None) -> bytes:
        """The first chunk of a call."""
        self.begin_call(start, call_id)
        role, self.spoken = not self.spoken, True
        self.args_template = args_template(event, self.index, self.number)
        return call_start_chunk(event, self.index, self.number, self.call_id, start.name, role=role)

    def account(self, event: Event) -> None:
        """Say of an event's raw text, event by event, whether it stays text."""
        # Thousands of events may wait for the text of one: what is done for each of them is done here.
        raw, waiting, is_text = event.raw, self.pending, isinstance(event, Text)
        at, size = 0, len(raw)
        while at < size and waiting:
            pending = waiting[0]
            end = at + pending.held
            # An event goes out as soon as every character of it is decided, whatever waits behind it.
            if end <= size:
                pending.held = 0
                waiting.popleft()
            else:
                pending.held, end = end - size, size
            if is_text:
                pending.text(raw[at:end])
            else:
                pending.changed = True
            at = end

    def note(self, event: Event) -> None:
        """Keep what is to be recorded of an event."""
        is_same = self._tries.is_same(event)
        match event:
            case End() | Said():
                self._read_calls.append((event.verdict.name, event.arguments))
                self._facts.calls.append(delivered(event.verdict, event.arguments))
            case Note() if event.verdict.accepted:
                self._facts.intents.append(event.verdict)
            case Note():
                self._facts.refuse(event.verdict, again=is_same)
            case Broken():
                self._facts.broken.append(event.reason)
            case Drop():
                self._facts.dropped[event.reason] += 1
            case _:
                pass

    def final_reason(self, reason: FinishReason) -> FinishReason:
        """The finish reason to give; a call that was read makes a stop a call."""
        is_call = self.number >= 0 or (self._reads and reason == "function_call" and self.native.numbered > 0)
        # A cut answer stays one, and so does a filtered one: the agent must not run what may lack its end.
        return "tool_calls" if is_call and reason in ("stop", "tool_calls", "function_call") else reason


def broken_off(reason: str) -> GatewayError:
    return UpstreamBadReply(f"the model's tool call broke off: {reason}")
