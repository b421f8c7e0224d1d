"""How a streamed answer ends: each of its choices, what waits for a second answer, and the answer itself.

A choice that has said its finish reason may wait still: for structured calls behind it, or for a second answer. What
waits goes out at the answer's end as it is decided then, or as text where the answer ends in an error.
"""

from collections.abc import Callable, Mapping
from functools import partial

from gateway.answer.choice import Choice, broken_off
from gateway.answer.facts import Facts
from gateway.answer.held_calls import HeldCalls
from gateway.answer.queue import Pending, Queue
from gateway.answer.second_answer import SecondRound
from gateway.answer.works import Works
from gateway.core.errors import GatewayError, UpstreamTruncated
from gateway.core.events import END_REASONS, Event, Start
from gateway.wire.chat_chunks import args_chunk, decode_object, encode_object, usage_chunk
from gateway.wire.sse import DONE, encode
from strategies.base import BrokenCall, Prepared
from strategies.text.turns import Turns, whole

__all__ = ["Endings", "error_event"]


class Endings:
    """The ends of one streamed answer and of its choices."""

    __slots__ = (
        "_calls",
        "_choices",
        "_done",
        "_facts",
        "_held",
        "_mends_native",
        "_queue",
        "_round",
        "_waiting",
        "_waits_for_finish",
        "_works",
        "finished",
    )

    def __init__(
        self,
        prepared: Prepared,
        facts: Facts,
        choices: Mapping[int, Choice],
        queue: Queue,
        calls: HeldCalls,
        works: Works,
        second_round: SecondRound,
    ) -> None:
        self.finished = False
        """Nothing more is to come: `[DONE]` or an error has been seen."""
        self._mends_native = prepared.mend_native
        self._waits_for_finish = prepared.shape.wait_for_finish
        self._facts = facts
        self._choices = choices
        self._queue = queue
        self._calls = calls
        self._works = works
        self._round = second_round
        self._waiting: tuple[Pending, str] | None = None
        """The last event of the choice that waits for a second answer, and its finish reason."""
        self._held: list[tuple[Choice, Pending, str]] = []
        """Choices that have ended and hold calls, whose place a structured one could still take."""
        self._done: bytes | None = None
        """The upstream's `[DONE]`, while a second answer is waited for."""

    @property
    def waits(self) -> bool:
        """The end of a choice is held."""
        return bool(self._held) or self._waiting is not None

    @property
    def is_done_held(self) -> bool:
        """The answer has ended as it should, and its last words are held for a second one."""
        return self._done is not None

    def waits_for_second(self, choice: Choice) -> bool:
        """This choice waits for a second answer."""
        return self._waiting is not None and choice is self._round.choice

    def read_all(self, error: GatewayError | None, work: Callable[[], None]) -> None:
        """Do it once the text of all choices has been read, of which none follows."""
        if not self._held and all([choice.finished for choice in self._choices.values()]):
            work()
            return
        ended = {choice.index: reason for choice, _, reason in self._held}
        last = "stop" if error is None and self.finished else "cut"  # an end that nobody told is none
        open_ones = [choice for choice in self._choices.values() if not choice.finished or choice.index in ended]
        self._works.once_read([(choice, ended.get(choice.index, last)) for choice in open_ones], work)

    def read_held(self) -> None:
        """Tell the ends that are held, once the text of their choices has been read."""
        self._works.once_read([(choice, reason) for choice, _, reason in self._held], self.finish_all)

    def close(self, error: GatewayError | None) -> None:
        """Nothing more comes of the model server's answer, which has ended in this error or in none."""
        self.finish_all()
        if self._waiting is not None and (error is None or self.finished):
            whole(self.no_second_answer())
        if self.finished:
            return
        self.finished = True
        unfinished = not self._choices or any(not choice.finished for choice in self._choices.values())
        # SDKs take an end without a word for a success, so what was cut off has to end in an error:
        # https://github.com/openai/openai-python/blob/main/src/openai/_streaming.py
        if error is None and unfinished:
            error = UpstreamTruncated("connection lost: the model server's answer ended too early")
        if error is None:
            # Some servers never send it: https://github.com/oobabooga/textgen/issues/4778
            self._facts.mended["done_missing"] += 1
            self.end(encode(DONE))
        else:
            self.fail(error.code, error_event(error))

    def second_answer(self, body: bytes) -> Turns[None]:
        """Put the calls of a second answer in the place of the broken one; one without any is one broken call more."""
        second = (yield from self._round.reading(body)) if self._waiting is not None else None
        choice = self._round.choice
        if second is None or choice is None or self._waiting is None:
            return
        if not second.calls:
            yield from self.no_second_answer()
            return
        pending = self._waiting[0]
        if choice.broken_structured:
            self._calls.replace(choice, second.replaced, pending)
        else:
            self.apply(choice, choice.replace_broken_call(), pending)
            for call in second.calls:
                pending.chunk(choice.begin(Start("", call.name, call.dialect, call.part), pending.event))
                pending.chunk(args_chunk(choice.args_template, call.arguments))
                self._facts.take_over(call)
        self._queue.add_usage(pending, second.usage)
        self._resume()

    def no_second_answer(self) -> Turns[None]:
        """Nothing came of asking again: the rest of the first answer, unchanged."""
        choice = self._round.choice
        if choice is None or self._waiting is None:
            return
        pending = self._waiting[0]
        self.apply(choice, (yield from choice.as_written()), pending)
        self._calls.release(choice)
        self._calls.tell_mapped(choice, pending, choice.translation())
        self._resume()

    def _resume(self) -> None:
        """What waited for a second answer goes on."""
        choice, waiting = self._round.end(), self._waiting
        self._waiting = None
        if choice is not None and waiting is not None:
            self.finish_event(choice, *waiting, 0)
        self.flush()
        if self._done is not None:
            self.end(self._done)

    def told(self, choice: Choice, pending: Pending, reason: str) -> None:
        """A choice says that it has ended; where it is held with a call, a structured one may come all the same."""
        choice.ended = reason
        waits = choice.may_call and (self._waits_for_finish or choice.native.count)
        if not choice.finished and (waits or choice.held_calls or choice.holds_events or choice.may_call_in_reasoning):
            pending.waits = True
            self._held.append((choice, pending, reason))
        else:
            pending.waits = True
            self._works.once_read([(choice, reason)], partial(self._finish_one, choice, pending, reason))

    def _finish_one(self, choice: Choice, pending: Pending, reason: str) -> None:
        pending.waits = False
        self._finish_choice(choice, pending, reason)
        self.flush()

    def put_behind(self, choice: Choice) -> None:
        """A structured call came behind the end of its choice: that end goes out behind the call."""
        for known, pending, _ in self._held:
            if known is choice and not pending.held:
                self._queue.remove(pending)

    def finish_all(self) -> None:
        """The answer is over: what its choices hold is what there is."""
        endings, self._held = self._held, []
        for choice, pending, reason in endings:
            pending.waits = False
            self._queue.put_back(pending)
            self._finish_choice(choice, pending, reason)
        if endings:
            self.flush()

    def _finish_choice(self, choice: Choice, pending: Pending, reason: str) -> None:
        """The end of a choice that is read; it is held where it is to be asked again."""
        if choice.finished:  # some servers say it twice: what the choice held has been told
            if self._waiting is None:
                self.finish_event(choice, pending, reason, 0)
            return
        events = choice.finish(reason)
        if not choice.has_calls:
            self._finish_text(choice, pending, reason, events)
            return
        self.apply(choice, self._calls.review(choice, events, reason, pending), pending)
        translation = choice.translation()
        broken_call = choice.broken_call or self._round.refused(translation, reason)
        if broken_call is None and self._round.may_ask and reason in END_REASONS:
            broken_call = choice.broken_structured_call()
        if self._is_asked_again(choice, broken_call, pending, reason):
            return
        self.apply(choice, choice.give_back(), pending)
        self._calls.release(choice)
        self._calls.finish(choice, pending)
        self._calls.tell_mapped(choice, pending, translation)
        self.finish_event(choice, pending, reason, 0)

    def _finish_text(self, choice: Choice, pending: Pending, reason: str, events: list[Event]) -> None:
        """The same where no call has come: there is none to be reviewed, held or told."""
        choice.review.is_counted = True  # what comes behind the end is not
        if events:
            self._queue.place(choice, events, pending)
        if choice.holds:
            if self._is_asked_again(choice, choice.broken_call, pending, reason):
                return
            if events := choice.give_back():
                self._queue.place(choice, events, pending)
        choice.finished = True
        self._facts.finish_reasons[choice.index] = reason
        if pending.changed:
            pending.finish = reason

    def _is_asked_again(self, choice: Choice, broken_call: BrokenCall | None, pending: Pending, reason: str) -> bool:
        """Whether the end of the choice is held, as it is to be asked again."""
        # A second answer does not say which of several choices it stands for.
        if broken_call is None or self._waiting is not None or len(self._choices) > 1:
            return False
        choice.finished = True
        self._waiting = pending, reason
        self._round.wait(choice, broken_call)
        return True

    def finish_event(self, choice: Choice, pending: Pending, reason: str, at: int) -> None:
        """A choice has ended: the reason to give may be another one."""
        choice.finished = True
        self._facts.unusable_calls += choice.more_unusable()
        final = choice.final_reason(reason)
        if self._mends_native and final == reason:
            # Some servers end calls by a reason that denies them: https://github.com/sgl-project/sglang/issues/2877
            final = choice.native.finish_reason(reason) or reason
            if final != reason:
                self._facts.mended["finish_reason"] += 1
        if final != reason and not pending.changed:
            pending.event["choices"][at]["finish_reason"] = final
            pending.replace(encode_object(pending.event))
        self._facts.finish_reasons[choice.index] = final
        if pending.changed:
            pending.finish = final

    def apply(self, choice: Choice, events: list[Event], last: Pending | None = None) -> None:
        """Account for the raw text of events, and put what replaces it there."""
        self._queue.place(choice, events, last)
        self._facts.undelivered += choice.more_undelivered()

    def end(self, raw: bytes) -> None:
        """The end of a good answer: choices without a finish of their own are finished now."""
        if self._waiting is not None:
            # Nothing is read any more, so a line feed that was cut off is not waited for.
            self._done = raw + b"\n" if raw.endswith(b"\r\n\r") else raw
            return
        for choice in self._choices.values():
            if choice.finished:
                if choice.has_calls:
                    self._calls.release(choice)
                if choice.held_calls:
                    self._calls.finish(choice, self._queue.spare(choice))
            else:
                pending = self._queue.spare(choice)
                events = choice.finish("stop")
                self.apply(choice, self._calls.review(choice, events, "stop", pending), pending)
                self.apply(choice, choice.give_back(), pending)
                self._calls.release(choice)
                self._calls.finish(choice, pending)
                self._calls.tell_mapped(choice, pending, choice.translation())
                choice.finished = True
                pending.finish = choice.final_reason("stop") if choice.number >= 0 else None
        self.flush(everything=True)
        if self._facts.failure is None:
            if self._calls.withheld_usage is not None:
                self._queue.close(usage_chunk(decode_object(self._queue.seen), self._calls.withheld_usage))
            self._queue.close(raw)

    def fail(self, code: str, raw: bytes) -> None:
        """The answer ends in an error: what is held goes out as text, then the error, then nothing more."""
        self._facts.failure = code
        self._waiting = None
        self._round.end()
        for choice in self._choices.values():
            self.apply(choice, choice.give_back())
            self._calls.release(choice)
            self._calls.finish(choice, None)
        # One error is told, this one: a call that broke off besides must not bring another behind it.
        self._queue.broken = None
        self.flush(everything=True)
        self._queue.close(raw)

    def flush(self, *, everything: bool = False) -> None:
        """Let out what is decided, unless a second answer may take the place of some of it."""
        if not self._queue.pending and not self._queue.owes and self._queue.broken is None and not everything:
            return
        self._queue.measure()
        if self._queue.is_full:
            # Calls that go out unmended are better than an answer that takes memory without end.
            for choice in self._choices.values():
                self._calls.flow(choice)
                if choice.held_calls:
                    self._calls.finish(choice, None)
            self._queue.forget()
        if self._waiting is not None:
            return
        self._queue.flush(everything=everything)
        self._works.labors = self._works.labors or self._queue.owes
        if self._queue.broken is not None:
            fault = broken_off(self._queue.broken)
            # Put away first: reading the rest comes back here.
            self.finished, self._queue.broken = True, None
            self.read_all(fault, partial(self.fail, fault.code, error_event(fault)))


def error_event(error: GatewayError) -> bytes:
    """An error as a plain data event: the SDKs raise on it."""
    return encode_object(error.body())
