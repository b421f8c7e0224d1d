"""An answer in the wire that the client speaks too: its own bytes, and what they come to in chat heard beside.

What is heard gives the facts, and what a strategy would have made of the answer, by the same rules as everywhere.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from gateway.answer.choice import MakeId
from gateway.answer.facts import Facts
from gateway.answer.second_answer import SecondRequest
from gateway.answer.stream import StreamExchange
from gateway.answer.watch import WatchedStream, WatchTerms
from gateway.core.errors import GatewayError
from gateway.core.limits import Limits
from gateway.kinds.rows import KINDS
from gateway.kinds.shared.answer import Plain
from gateway.kinds.shared.port import Dialogue, Reply, Situation
from gateway.wire.calm import Calm, Loud
from gateway.wire.chat_chunks import token_counts
from gateway.wire.sse import Boundary
from strategies.base import Prepared
from strategies.text.turns import Turns

__all__ = [
    "HEARD_WIRES",
    "Carrier",
    "SameWireReading",
    "SameWireStream",
    "facts_of",
    "heard_plain",
    "heard_whole",
    "hearing",
]

_HEARD = {row.wire: row.hears for row in KINDS.values() if row.hears is not None}
_HEARD_PLAIN = {row.wire: row.hears_plain for row in KINDS.values() if row.hears_plain is not None}
HEARD_WIRES = frozenset(_HEARD)
"""Wires whose answers can be heard as chat: some kind of servers speaks them."""
TellError = Callable[[GatewayError, bytes], bytes]
"""How a fault is told behind these bytes, the last of what went on unread."""
Passes = Callable[[bytes], bytes | None]
_WORDS = {
    "messages": (b"event: content_block_delta\ndata: ", b'"text_delta"'),
    "responses": (b"event: response.output_text.delta\ndata: ", b'"response.output_text.delta"'),
}
"""By wire: how an event of text begins, and what stands in it once."""
_NO_WORDS = (b"\0", b"\0")
_NUMBERLESS = b'"text_delta"'
"""Of events that differ in their text alone: in all others it says enough by itself."""
_TEXT = b'"text":'
_LINE_END = ord("\n")
_EVENT_END = b"\n\n"
_LINE = Loud(re.compile(b"\n"))


def hearing(wire: str, model: str, situation: Situation, *, stream: bool) -> Dialogue:
    """What hears answers in a wire as chat: the kind of servers that speak it."""
    body = {"model": model, "stream": stream, "stream_options": {"include_usage": True}}
    return _HEARD[wire](body, situation)


def heard_plain(wire: str, model: str, situation: Situation, body: bytes) -> Plain | None:
    """A whole answer that is one text, as most are: found without building the dialogue that reads any."""
    return _HEARD_PLAIN[wire](body, model, situation)


def facts_of(plain: Plain) -> Facts:
    """What an answer leaves behind that is one text, and that nobody reads."""
    usage = plain.usage.fields() if plain.usage is not None else None
    return Facts(usage=token_counts(usage), completion_id=plain.id, finish_reasons={0: plain.finish_reason})


def heard_whole(wire: str, model: str, situation: Situation, headers: Mapping[str, str], body: bytes) -> bytes:
    """What a whole answer is in chat; an object that says nothing where it is none."""
    if (plain := heard_plain(wire, model, situation, body)) is not None:
        return plain.body()
    outcome = hearing(wire, model, situation, stream=False).answered(200, headers, body)
    return outcome.body if isinstance(outcome, Reply) and outcome.status == 200 else b"{}"


class SameWireStream(WatchedStream):
    """A streamed answer whose bytes are not changed."""

    def __init__(
        self,
        terms: WatchTerms,
        dialogue: Dialogue,
        tell_error: TellError,
        *,
        wire: str = "",
    ) -> None:
        super().__init__(terms)
        self._last = b""
        """Of what went on unread."""
        self._words = _WORDS.get(wire) if terms.prepared is None else None
        """How events of text begin, of which nothing has to be known but that there are any."""
        self._has_words = False
        self._head = b""
        """How they do up to the text, where nothing else comes before that."""
        self._calm: Calm | None = None
        self._dialogue = dialogue
        self._tell_error = tell_error
        self._relayed = Boundary()

    @property
    def at_boundary(self) -> bool:
        return self._relayed.is_here

    def listens(self) -> Passes | None:
        """What says of the events to come what goes on unread; None while something is under way."""
        return self._passes if self._has_words and self._relayed.is_here else None

    def calm(self) -> Calm | None:
        if not self._head or not self._has_words or not self._relayed.is_here:
            return None
        if self._calm is None or self._calm.head != self._head:
            self._calm = Calm(self._head, _EVENT_END, _LINE, blanks="pass")
        return self._calm

    def overlook(self, texts: list[bytes], last: bytes) -> None:
        del texts
        self._last = last

    def unheard(self) -> bytes:
        """The last of what went on unread, once."""
        last, self._last = self._last, b""
        return last

    def _passes(self, data: bytes) -> bytes | None:
        """These bytes where they may go on unread."""
        # Only while nothing has to be known of the text but that there is some: readers go another way.
        # One event that begins as the last did, all up to its text, as nearly always.
        head = self._head
        if head and data.startswith(head) and data.find(b"\n", len(head)) == len(data) - 2 and data[-1] == _LINE_END:
            self._last = data
            return data
        begin, mark = self._words or _NO_WORDS
        # Or several; no text holds the end of a line, or a quote by itself.
        if data.startswith(begin) and data.endswith(b"\n\n") and mark in data:
            if data.count(b"\n") == 3 or _are_words(data, (begin, mark)):
                self._last = data
                self._head = _head_of(data, (begin, mark))
                return data
        return None

    def step(self, data: bytes = b"") -> bytes:
        # The first is read all the same: that text has come is told once, to metrics and to the record.
        if self._words is not None and self._relayed.is_here and _are_words(data, self._words):
            if self._has_words:
                return data
            self._has_words = True
        super().step(self._dialogue.feed(data) if data else b"")
        # Behind the dialogue: what is thrown there must leave the boundary where the client's bytes end.
        self._relayed.feed(data)
        return data

    def close(self, error: GatewayError | None = None) -> bytes:
        if error is None:
            super().step(self._dialogue.finish())
        is_told = super().close(error) != b""
        if error is None or not is_told:
            return b""
        # Within an event that is not complete the error would be read as a part of it.
        return (b"" if self.at_boundary else b"\n\n") + self._tell_error(error, self._last)


def _head_of(data: bytes, how: tuple[bytes, bytes]) -> bytes:
    """How the last of some events of text begins, up to that; nothing where its kind is not told before it."""
    begin, mark = how
    start = data.rfind(begin)
    last = _TEXT if mark == _NUMBERLESS else mark
    head = data[start : data.find(last, start) + len(last)]
    # A line's end behind the head is the event's own, as no text holds one.
    return head if mark in head and head.endswith(last) else b""


def _are_words(data: bytes, how: tuple[bytes, bytes]) -> bool:
    """Whether it is whole events of text and nothing else; no text holds the end of a line, or a quote by itself."""
    begin, mark = how
    if not data.startswith(begin) or not data.endswith(b"\n\n"):
        return False
    count = data.count(begin)
    return data.count(b"\n") == 3 * count and data.count(mark) == count


class Carrier(Protocol):
    """Brings the events of a wire through chat and back: each becomes a chunk, and stays itself where that does."""

    @property
    def answer_id(self) -> str | None: ...

    @property
    def is_still(self) -> bool:
        """Nothing is under way: events of text may go on unread, as `passes` says."""
        ...

    def unheard(self) -> bytes:
        """The last event that went on unread, once."""
        ...

    @property
    def head(self) -> bytes:
        """What stands in the chunks of text before that, its quote included."""
        ...

    def passes(
        self, data: bytes, hear: Callable[[bytes], bytes | None], word: Callable[[bytes], bool] | None
    ) -> bytes | None:
        """What goes on of an event, where `hear` says of its chunk that it need not be read; None where it must be.

        `word` says it of texts alone, if they go on at once: where it does not, `hear` is to be asked.
        """
        ...

    def calm(self, chat: Calm | None) -> Calm | None:
        """How events of text look whose chunks look so."""
        ...

    def overlook(self, texts: list[bytes], last: bytes) -> None:
        """Events with these texts have gone on unread, up to this one."""
        ...

    def wrap(self, data: bytes) -> bytes:
        """Chunks for what came of the answer."""
        ...

    def wrap_rest(self) -> bytes:
        """Chunks for what is left at its end."""
        ...

    def unwrap(self, chat: bytes) -> bytes:
        """The client's events for chunks that came back."""
        ...


class SameWireReading:
    """A streamed answer in whose text calls are looked for; one that holds none goes on as it came."""

    def __init__(
        self, prepared: Prepared, carrier: Carrier, *, make_id: MakeId, limits: Limits, asks: int, keep_text: bool
    ) -> None:
        self._inner = StreamExchange(prepared, make_id=make_id, limits=limits, asks=asks, keep_text=keep_text)
        self._carrier = carrier
        self._passes = partial(carrier.passes, hear=self._inner.passes, word=None)
        self._passes_words = partial(carrier.passes, hear=self._inner.passes, word=self._inner.word)

    @property
    def facts(self) -> Facts:
        return self._inner.facts

    @property
    def finished(self) -> bool:
        return self._inner.finished

    is_over = False
    """What the carrier holds back is told at the end alone."""

    @property
    def held(self) -> bool:
        return self._inner.held

    @property
    def busy(self) -> bool:
        return self._inner.busy

    @property
    def ask_again(self) -> SecondRequest | None:
        return self._inner.ask_again

    def step(self, data: bytes = b"") -> bytes:
        return self._told(self._inner.step(self._carrier.wrap(data) if data else b""))

    def close(self, error: GatewayError | None = None) -> bytes:
        # Half an event behind a fault is not completed: the client has not seen the other half either.
        rest = self._carrier.wrap_rest() if error is None else b""
        out = self._inner.feed(rest) if rest else b""
        return self._told(out + self._inner.close(error))

    def listens(self) -> Passes | None:
        """What says of the events to come what goes on unread; None while something is under way."""
        if not self._carrier.is_still:
            return None
        return self._passes_words if self._inner.is_cast_in(self._carrier.head) else self._passes

    def calm(self) -> Calm | None:
        """How the events look that may go on unread, without anybody being asked; None while each is to be."""
        if not self._carrier.is_still:
            return None
        return self._carrier.calm(self._inner.calm(self._carrier.head))

    def overlook(self, texts: list[bytes], last: bytes) -> None:
        """Events with these texts have gone on so, up to this one."""
        self._carrier.overlook(texts, last)
        self._inner.overlook(texts, last)

    def unheard(self) -> bytes:
        """The last event that went on unread, once."""
        return self._carrier.unheard()

    def end_choices(self) -> None:
        self._inner.end_choices()

    def second_steps(self, body: bytes) -> Turns[bytes]:
        return self._told((yield from self._inner.second_steps(body)))

    def no_second_steps(self) -> Turns[bytes]:
        return self._told((yield from self._inner.no_second_steps()))

    def _told(self, chat: bytes) -> bytes:
        self.facts.completion_id = self._carrier.answer_id  # the chunks are named by their numbers
        return self._carrier.unwrap(chat)
