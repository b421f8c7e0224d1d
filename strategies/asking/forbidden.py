"""Requests that offer tools and forbid calls (`tool_choice: none`): a call's markup in the answer is counted.

Some models write it all the same (https://github.com/sgl-project/sglang/issues/30925). It stays where it is, as what a
client asked for is the text and all of it (https://github.com/vllm-project/vllm/issues/55080), unless an operator
wants it left out. Bare data and commands are no markup: they may be what was asked for.
"""

from collections.abc import Callable

from attrs import evolve

from gateway.core.events import NONE_MARKUP, Args, Drop, End, Event, Note, Start, Text, Verdict
from gateway.core.tools import ToolSet
from gateway.wire.calm import Blanks, Loud
from gateway.wire.chat_request import ChatRequest
from strategies.base import AnswerReader, FinishReason, Listener, Options, Prepared, Shape
from strategies.dialects.rows import BY_ID
from strategies.reading.factory import reader_factory
from strategies.reading.left_out import REMAINS
from strategies.reading.reader import Reader

__all__ = ["CallsForbidden", "forbidding_reader", "forbids_calls"]

CARRIER = "carrier"
"""Why the lines of a fence around a call are left out."""


def forbids_calls(request: ChatRequest) -> bool:
    """Whether the request offers tools and wants no call."""
    return len(request.tools) > 0 and request.tool_choice == "none"


def forbidding_reader(
    request: ChatRequest, options: Options, prompted: str | None = None
) -> Callable[[], AnswerReader] | None:
    """What looks for a call's markup in the answer to such a request; several choices are not read."""
    # Nothing is owed here: the answer is right as it is, and reading only counts.
    if request.body.get("n") not in (None, 1) or len(request.tools) > options.limits.max_read_tools:
        return None
    make_inner = reader_factory(
        tools=request.tools,
        # No call goes out, so none may begin to.
        options=evolve(options, stream_arguments="buffered"),
        model=request.model,
        prompted=prompted,
        messages=request.messages,
    )
    made = _Dropping if options.none_markup == "drop" else _Keeping
    return lambda: made(make_inner(), request.tools)


class CallsForbidden:
    """The request as it came, the answer as it comes, but for a call's markup where that is to be left out."""

    name = "passthrough"

    def prepare(self, request: ChatRequest, options: Options) -> Prepared:
        """Nothing is changed of the request."""
        return Prepared(
            strategy=self.name,
            body=request.raw,
            make_reader=forbidding_reader(request, options),
            shape=Shape(keep_trailing=True, keep_space=True),
            mend_native=False,
        )


_ANY_ROOM = 1 << 30


class _LetsAll:
    """Listens as another one does, but that nothing has to wait for what becomes of it."""

    holds = False
    blanks: Blanks = "hear"

    def __init__(self, inner: Listener) -> None:
        self._inner = inner
        self.told = inner.told
        self.overlook = inner.overlook

    @property
    def calm(self) -> Loud | None:
        return self._inner.calm

    @property
    def begun(self) -> int:
        return self._inner.begun

    def hear(self, text: str, room: int) -> int:
        del room
        # The refusal is passed on, the wait is not.
        return min(0, self._inner.hear(text, _ANY_ROOM))


class _Keeping:
    """Lets all text through at once, and notes the calls that are written in it."""

    def __init__(self, inner: Reader, tools: ToolSet) -> None:
        self._inner = inner
        self._tools = tools
        self._in_fence = False
        """What comes now is shown in a code fence."""

    @property
    def idle(self) -> bool:
        return True

    @property
    def busy(self) -> bool:
        return self._inner.busy

    def listen(self, *, keeps_space: bool) -> Listener | None:
        listener = self._inner.listen(keeps_space=keeps_space)
        return _LetsAll(listener) if listener is not None else None

    def pass_by(self, text: str) -> int:
        return self._inner.pass_by(text)

    def reasoned(self) -> list[Event]:
        return self._told("", self._inner.reasoned())

    def feed(self, text: str) -> list[Event]:
        return self._told(text, self._inner.feed(text))

    def finish(self, reason: FinishReason) -> list[Event]:
        return self._told("", self._inner.finish(reason))

    def step(self, text: str = "", reason: FinishReason | None = None) -> list[Event]:
        return self._told(text, self._inner.step(text, reason))

    def _told(self, text: str, events: list[Event]) -> list[Event]:
        out: list[Event] = [Text(text)] if text else []
        for event in events:
            # In a fence a call is shown: whoever forbids calls may have asked how one is written.
            self._in_fence ^= isinstance(event, Drop) and event.reason == CARRIER
            if isinstance(event, End) and self._is_markup(event):
                out.append(Note(_marked(event)))
        return out

    def _is_markup(self, end: End) -> bool:
        """Whether a call was written in markup; of tags only those of declared tools, as any word may be one."""
        row = None if self._in_fence else BY_ID.get(end.verdict.dialect)
        return row is not None and (row.level in "AB" or (row.level == "C" and end.name in self._tools))


class _Dropping(_Keeping):
    """Leaves the calls out, and what else of a family's own markup says nothing; what stands in a fence is shown."""

    def listen(self, *, keeps_space: bool) -> Listener | None:
        return self._inner.listen(keeps_space=keeps_space)

    def __init__(self, inner: Reader, tools: ToolSet) -> None:
        super().__init__(inner, tools)
        self._call: list[str] = []
        """The raw text of the call under way."""
        self._has_left_out = False
        """The last call was left out, and with it what belongs to it."""

    @property
    def idle(self) -> bool:
        return self._inner.idle

    def _told(self, text: str, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Start | Args):
                self._call.append(event.raw)
            elif isinstance(event, End):
                out += self._end(event)
            elif isinstance(event, Drop):
                # Both lines of a fence are dropped markup of the same kind: the first opens, the second closes.
                self._in_fence ^= event.reason == CARRIER
                # The lines of a fence are shown in any case: left out, they would take its end from another block.
                is_left_out = event.reason == REMAINS or (self._has_left_out and event.reason != CARRIER)
                out.append(event if is_left_out else Text(event.raw))
            elif not isinstance(event, Note):
                self._has_left_out = self._has_left_out and event.raw.isspace()
                out.append(event)
        return out

    def _end(self, end: End) -> list[Event]:
        raw, self._call = "".join((*self._call, end.raw)), []
        self._has_left_out = self._is_markup(end)
        if not self._has_left_out:
            return [Text(raw)]
        return [Note(_marked(end), size=len(raw)), Drop(raw, NONE_MARKUP, end.verdict.dialect)]


def _marked(end: End) -> Verdict:
    return evolve(end.verdict, reasons=(*end.verdict.reasons, NONE_MARKUP))
