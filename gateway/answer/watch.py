"""An answer that is relayed, and what a strategy would have made of it.

The client's bytes are the upstream's, whatever happens here: the watch reads a copy, within a budget of
time, and an exception in it ends nothing but the watch. How the answer ended, what it cost and which structured
calls it held is told in any case, by the same rules as in an answer that is read, so that the arms can be compared.
"""

from collections.abc import Callable, Generator, Iterator
from datetime import date
from functools import partial
from hashlib import blake2b
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.endings import error_event
from gateway.answer.facts import Delivered, Facts
from gateway.answer.second_answer import SecondRequest
from gateway.answer.stages import GuardedReader
from gateway.answer.stages.transcript import MAX_TEXT, Transcript
from gateway.answer.stream import StreamExchange
from gateway.core.errors import GatewayError
from gateway.core.limits import Limits
from gateway.core.reasons import Reason
from gateway.core.records import DryVerdict
from gateway.core.rules import IgnoreRule
from gateway.core.tools import ToolSet
from gateway.wire.calm import Calm
from gateway.wire.sse import Boundary
from strategies.base import CallTerms, Prepared
from strategies.reading.factory import Readers

__all__ = ["WatchTerms", "WatchedBody", "WatchedStream"]

_MAX_CUT = 61
_END = object()
_NO_TOOLS = ToolSet(())


class WatchTerms(Struct, frozen=True, kw_only=True):
    """On what terms a relayed answer is watched; without a strategy's preparation only its facts are told."""

    prepared: Prepared | None = None
    tools: ToolSet = _NO_TOOLS
    """What the structured calls of the answer are held to."""
    clock: Callable[[], float]
    budget_s: float
    """How long the reading may work, on that clock, all in all."""
    today: date
    ignore: tuple[IgnoreRule, ...] = ()
    limits: Limits = field(default_factory=Limits)


class WatchedStream:
    """A streamed answer whose bytes are not changed."""

    def __init__(self, terms: WatchTerms) -> None:
        relayed = _relay_of(terms)
        self._relay: StreamExchange | None = StreamExchange(relayed, make_id=_no_id, limits=terms.limits)
        self.facts = self._relay.facts
        self.finished = False
        """Nothing more is to come: `[DONE]` or an error has been seen."""
        self._reading = _Reading(terms)
        watched = _watch_of(terms)
        self._watch = StreamExchange(watched, make_id=_no_id, limits=terms.limits, keep_text=True) if watched else None
        self._boundary = Boundary()
        self._closed = False
        self._is_finished = False
        self._is_between = False
        """What was read ends an event."""
        self._is_watching = False

    is_over = False
    """What it came to is found out at the end alone."""

    def passes(self, data: bytes) -> bytes | None:
        """The same bytes, where both the watch and what takes down the facts hear of them later; None where they are
        to be read. A quiet event is not worth looking at the clock for."""
        # What is quiet is of whole events, so that the boundary stays where it is.
        if not self._is_between or self._relay is None:
            return None
        try:
            if self._is_watching and self._watch is not None and self._watch.passes(data) is None:
                return None
        except Exception:  # noqa: BLE001 - what it comes to is said where it is read
            return None
        try:
            is_heard = self._relay.passes(data) is not None
        except Exception:  # noqa: BLE001 - whatever fails here, the bytes go on
            is_heard = False
        if not is_heard:
            self._see(lambda relay: relay.feed(data))
        return data

    def calm(self) -> Calm | None:
        """How events look that may go on unread, without anybody being asked; None while each is to be."""
        if not self._is_between or self._relay is None:
            return None
        heard = self._relay.calm()
        if not self._is_watching or self._watch is None:
            return heard
        # What begins nothing for the watch is calm for who only takes it down.
        watched = self._watch.calm(heard.head) if heard is not None else None
        return watched if heard is not None and watched is not None and watched.tail == heard.tail else None

    def overlook(self, texts: list[bytes], last: bytes) -> None:
        """Events with these texts have gone on so, up to this one."""
        for each in (self._relay, self._watch if self._is_watching else None):
            if each is not None:
                each.overlook(texts, last)

    @property
    def held(self) -> bool:
        """Nothing is ever held."""
        return False

    @property
    def ask_again(self) -> SecondRequest | None:
        """Nothing is ever asked again."""
        return None

    def second_answer(self, body: bytes) -> bytes:
        """There is no broken call whose place a second answer could take."""
        del body
        return b""

    def no_second_answer(self) -> bytes:
        """Nothing is held for a second answer."""
        return b""

    @property
    def at_boundary(self) -> bool:
        """The bytes so far end an event, or there are none: a comment may be sent."""
        return self._boundary.is_here

    @property
    def verdict(self) -> DryVerdict | None:
        """What the watch came to, once the answer has ended."""
        return self._reading.verdict

    def noise(self) -> bool | None:
        """Whether the same text, cut in another way, gives other calls; `None` where that was not tried."""
        return self._reading.noise(self.facts.transcripts)

    @property
    def busy(self) -> bool:
        """The watch has more to do with what came: `step` goes on with it."""
        return self._watch is not None and not self._is_finished and self._reading.goes_on and self._watch.busy

    def feed(self, data: bytes) -> bytes:
        """The same bytes."""
        return self._all(self.step(data))

    def finish(self, error: GatewayError | None = None) -> bytes:
        """What is to be sent behind the upstream's bytes: nothing, or the error that ended them."""
        return self._all(self.close(error))

    def _all(self, out: bytes) -> bytes:
        while self.busy:
            self.step()
        return out

    def step(self, data: bytes = b"") -> bytes:
        """The same bytes, and a bounded piece of the watch: `busy` says whether more of it is left."""
        if data and not self._closed:
            self._boundary.feed(data)
            self._see(lambda relay: relay.feed(data))
        if self._watch is not None and not self._is_finished:
            self._reading.run(partial(self._watch.step, b"" if self._closed else data))
            self._finish_watch()
        self._is_between = self._boundary.is_here and not self._closed
        self._is_watching = self._watch is not None and self._reading.goes_on
        return data

    def _finish_watch(self) -> None:
        """Say what the reading came to, once it has come to its end or may not go on."""
        if self._closed and not self.busy and self._watch is not None and not self._is_finished:
            self._is_finished = True
            self._reading.finish(self._watch.facts, self.facts)

    def close(self, error: GatewayError | None = None) -> bytes:
        """The closing bytes; the watch goes on with `step` while `busy`."""
        if self._closed:
            return b""
        self._closed, self._is_between = True, False
        is_told = error is not None and not self.finished
        self._see(lambda relay: relay.finish(error))
        # Nothing was mended, as the client has the server's own bytes; what it had been is no fact of this answer.
        self.facts.mended.clear()
        if self._watch is not None:
            self._reading.run(partial(self._watch.close, error))
            self._finish_watch()
        if error is None or not is_told:
            return b""
        # Within an event that is not complete the error would be read as a part of it.
        return (b"" if self.at_boundary else b"\n\n") + error_event(error)

    def _see(self, look: Callable[[StreamExchange], object]) -> None:
        """Watch the answer; one that cannot be read is told by its fault, and watched no more."""
        if self._relay is None:
            return
        try:
            look(self._relay)
            self.finished = self._relay.finished
        except GatewayError as error:
            self.facts.failure = error.code
            self._relay = None
        except Exception:  # noqa: BLE001 - whatever fails here, the bytes go on
            self._relay = None


class WatchedBody:
    """An answer that comes whole and is not changed."""

    def __init__(self, terms: WatchTerms) -> None:
        self._terms = terms
        self._relay = BodyExchange(_relay_of(terms), make_id=_no_id, limits=terms.limits)
        self.facts = self._relay.facts
        self._reading = _Reading(terms)

    @property
    def verdict(self) -> DryVerdict | None:
        """What the watch came to, once it has ended."""
        return self._reading.verdict

    def noise(self) -> bool | None:
        """Whether the same text, cut in another way, gives other calls; `None` where that was not tried."""
        return self._reading.noise(self.facts.transcripts)

    def transform(self, body: bytes) -> bytes:
        """The same bytes."""
        for _ in self.steps(body):
            pass
        return body

    def steps(self, body: bytes) -> Generator[None, None, bytes]:
        """The same in steps of bounded work."""
        try:
            self._relay.transform(body)
        except GatewayError as error:
            self.facts.failure = error.code
        except Exception:  # noqa: BLE001 - whatever fails here, the bytes go on
            self.facts.native_calls = 0
        self.facts.mended.clear()
        watched = _watch_of(self._terms)
        if watched is not None:
            watch = BodyExchange(watched, make_id=_no_id, limits=self._terms.limits, keep_text=True)
            work = watch.steps(body)
            # An end that is a value: `run` takes every exception for a fault of the watch.
            while self._reading.run(partial(next, work, _END)) is None and self._reading.goes_on:
                yield
            self._reading.finish(watch.facts, self.facts)
        return body


class _Reading:
    """The watch of one answer: its time, its faults, and what it came to."""

    __slots__ = ("_fault", "_is_cut", "_is_over", "_spent", "_terms", "verdict")

    def __init__(self, terms: WatchTerms) -> None:
        self._terms = terms
        self._spent = 0.0
        self._is_over = False
        """The budget ran out."""
        self._fault: str | None = None
        """The exception that ended it."""
        self._is_cut = False
        """The answer itself cannot be read any further."""
        self.verdict: DryVerdict | None = None
        """What it came to, once it has finished."""

    @property
    def goes_on(self) -> bool:
        return not self._is_over and not self._is_cut and self._fault is None

    def run(self, work: Callable[[], Any]) -> Any:
        """Do a piece of the work, unless the reading has ended; its result, or `None` if there is none."""
        if not self.goes_on:
            return None
        clock = self._terms.clock
        started = clock()
        try:
            return work()
        except GatewayError:  # the upstream's fault, which is told where the answer is watched
            self._is_cut = True
            return None
        except Exception as error:  # noqa: BLE001 - a watch may fail in any way, and harms nothing
            self._fault = type(error).__name__
            return None
        finally:
            self._spent += clock() - started
            self._is_over = self._spent > self._terms.budget_s

    def finish(self, read: Facts, told: Facts) -> None:
        """Say what the reading came to, and put what would have been delivered among what is told."""
        told.read = True
        told.calls, told.undelivered = read.calls, read.undelivered
        told.refused, told.intents, told.broken = read.refused, read.intents, read.broken
        told.dropped, told.transcripts = read.dropped, read.transcripts
        told.held_bytes_max = read.held_bytes_max
        self.verdict = self._verdict(read)

    def _verdict(self, read: Facts) -> DryVerdict:
        if self._is_over:
            return "dropped"
        if self._fault is not None or read.broken or any(each.refusal is Reason.INTERNAL for each in read.refused):
            return "would_fail"
        if read.calls and all(map(self._is_ignored, read.calls)):
            return "ignored"
        if read.calls or read.dropped:
            return "would_change"
        return "would_fail" if any(each.meant for each in read.refused) else "identical"

    def _is_ignored(self, call: Delivered) -> bool:
        today, verdict = self._terms.today, call.verdict
        return any(rule.covers(verdict.dialect, verdict.name, today) for rule in self._terms.ignore)

    def noise(self, transcripts: dict[int, Transcript]) -> bool | None:
        prepared = self._terms.prepared
        make_reader = prepared.make_reader if prepared is not None else None
        whole = [each for each in transcripts.values() if each.finish is not None and each.size <= MAX_TEXT]
        if make_reader is None or not whole or not self.goes_on:
            return None
        differs = False
        for each in whole:
            # Nothing in it can open a call, however it is cut.
            if not each.calls and isinstance(make_reader, Readers) and make_reader.is_all_text(each.text):
                continue
            transcript = Transcript()
            second = self.run(partial(GuardedReader, make_reader, transcript))
            if second is None:
                return None
            if each.has_reasoned:
                self.run(second.reasoned)
            for piece in _pieces(each.text):
                self.run(partial(second.feed, piece))
                if not self.goes_on:
                    return None
            self.run(partial(second.finish, each.finish or "stop"))
            # Readers that go by packets find other calls where the cuts are others:
            # https://github.com/raullenchai/Rapid-MLX/issues/579
            differs = differs or transcript.calls != each.calls
        return differs if self.goes_on else None


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces whose lengths follow from it alone."""
    # Not random: a text that reads differently has to do so again when somebody looks at it.
    state = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")
    at = 0
    while at < len(text):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        size = 1 + (state >> 16) % _MAX_CUT
        yield text[at : at + size]
        at += size


def _relay_of(terms: WatchTerms) -> Prepared:
    """What only watches an answer: nothing in it is read."""
    strategy = terms.prepared.strategy if terms.prepared is not None else "none"
    return Prepared(strategy=strategy, body=b"", calls=CallTerms(tools=terms.tools))


def _watch_of(terms: WatchTerms) -> Prepared | None:
    """The strategy's reading as a watch: calls are held for the finish, where native ones take their place."""
    prepared = terms.prepared
    if prepared is None or prepared.make_reader is None:
        return None
    return replace(prepared, shape=replace(prepared.shape, wait_for_finish=True), ask_again=None)


def _no_id(dialect: str) -> str:
    """The id of a call that nobody gets."""
    del dialect
    return "call_000000000000000000000000"
