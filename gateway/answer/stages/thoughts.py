"""Reasoning that came in a field of its own: kept as it comes, and read where nothing else of the answer came.

Some models call from within their reasoning and stop, and a server that splits it off hands the call on in that field:
https://github.com/vllm-project/vllm/issues/39056. What stands at the very end was meant; a call that thinking goes on
behind was only thought.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from attrs import evolve

from gateway.answer.stages.guard import GuardedReader
from gateway.core.events import IN_REASONING, Args, Broken, Drop, End, Event, Start, Text
from gateway.wire.chat_chunks import REASONING_FIELDS, Delta
from strategies.base import AnswerReader
from strategies.dialects.rows import BY_ID
from strategies.grammar.lexicon import LEFTOVERS, REASONING_ENDS
from strategies.reading.factory import Readers
from strategies.text.turns import Turns

__all__ = ["ENDS", "Thoughts", "calling_in_reasoning"]

ENDS = frozenset({"stop", "tool_calls", "function_call"})
"""How an answer has to end for what stands in its reasoning to be one of its calls."""
_MOST = 4 << 20
"""Bytes of reasoning that are kept: nobody who thinks longer than that ends in a call."""
_LEVELS = "AB"
INVENTED = "invented_result"
"""Why a tool's result is left out that the model has made up: it goes on thinking there."""
_SILENT = re.compile("|".join(map(re.escape, sorted((*LEFTOVERS, *REASONING_ENDS), key=len, reverse=True))))


class Thoughts:
    """The reasoning of one choice of which nothing else has come."""

    __slots__ = ("_bodies", "_events", "_is_ended", "_reader", "_size", "calls")

    def __init__(self) -> None:
        self._bodies: dict[str, bytearray] = {}
        """Bodies of JSON strings, by the fields of the wire, as some servers tell the same in two of them."""
        self._size = 0
        self._reader: GuardedReader | None = None
        self._events: list[Event] = []
        """What has been read so far."""
        self._is_ended = False
        """The reader knows that no more comes."""
        self.calls: list[Event] | None = None
        """Those that it ends in, once it has been read; their raw text is none of the answer's."""

    @property
    def holds(self) -> bool:
        """There is any."""
        return self._size > 0

    @property
    def is_full(self) -> bool:
        """There is more than can be kept."""
        return self._size > _MOST

    def add(self, delta: Delta) -> None:
        """Keep what a part of a stream holds."""
        for name, raw in delta.thoughts:
            self._bodies.setdefault(name, bytearray()).extend(raw[1:-1])
            self._size += len(raw)
        self._reader, self.calls = None, None

    def take(self, message: Mapping[str, object]) -> None:
        """Keep what a whole message holds."""
        for name in REASONING_FIELDS:
            text = message.get(name)
            if isinstance(text, str) and text:
                self._bodies[name] = bytearray(msgspec.json.encode(text)[1:-1])
                self._size += len(text)

    @property
    def busy(self) -> bool:
        """It is being read."""
        return self._reader is not None and self.calls is None

    def begin(self, make_reader: Callable[[], AnswerReader]) -> None:
        """Begin to read it; `go_on` does a piece of the work."""
        if self._reader is not None or self.calls is not None:
            return
        text = self._text()
        if not text.strip() or (isinstance(make_reader, Readers) and make_reader.is_all_text(text)):
            self.calls = []
        else:
            self._reader = reader = GuardedReader(make_reader)
            self._events, self._is_ended = reader.step(text), False

    def go_on(self) -> None:
        """Read a piece of it."""
        reader = self._reader
        if reader is None or self.calls is not None:
            return
        if reader.busy:
            self._events += reader.step()
        elif self._is_ended:
            self.calls, self._events = _calls_at_end(self._events), []
        else:
            self._is_ended = True
            self._events += reader.step(reason="stop")

    def _text(self) -> str:
        # Some servers tell the same in two fields: read once, from the first of them.
        body = bytes(next((self._bodies[name] for name in REASONING_FIELDS if name in self._bodies), b""))
        try:
            return msgspec.json.decode(b'"%b"' % body, type=str)
        except ValueError:
            return ""


def calling_in_reasoning(message: Mapping[str, object], make_reader: Callable[[], AnswerReader]) -> Turns[list[Event]]:
    """The calls that the reasoning of a whole message ends in, looked for in turns."""
    thoughts = Thoughts()
    thoughts.take(message)
    thoughts.begin(make_reader)
    while thoughts.busy:
        yield
        thoughts.go_on()
    return thoughts.calls or []


def _calls_at_end(events: Sequence[Event]) -> list[Event]:
    """The calls in a family's own form that nothing but white space, closers and special tokens stands behind.

    One in a code fence is shown, and made by nobody.
    """
    found: list[Event] = []
    call: list[Event] = []
    said: list[str] = []
    is_fenced = False
    for event in events:
        if isinstance(event, Text) or (isinstance(event, Drop) and event.reason == INVENTED):
            said.append(event.raw)
        elif isinstance(event, Start | Broken) or (isinstance(event, Drop) and event.reason == "carrier"):
            if _says(said):
                found, is_fenced = [], False
            said, call = [], [event]
            if not isinstance(event, Start):
                found, call, is_fenced = [], [], True
        elif isinstance(event, Args):
            call.append(event)
        elif isinstance(event, End):
            row = BY_ID.get(event.verdict.dialect)
            is_meant = row is not None and row.level in _LEVELS and not is_fenced
            if is_meant:
                found += call
                found.append(_marked(event))
            else:
                found = []
            call = []
    return [] if _says(said) or call else [evolve(event, raw="") for event in found]


def _says(pieces: Sequence[str]) -> bool:
    """Whether a text is more than white space, closers and special tokens."""
    return bool(pieces) and bool(_SILENT.sub("", "".join(pieces)).strip())


def _marked(end: End) -> End:
    """The end of a call, which says where it stood."""
    return evolve(end, verdict=evolve(end.verdict, reasons=(*end.verdict.reasons, IN_REASONING)))
