"""A call that is written twice in one message is given once, unless its tool can be repeated without harm.

Models stammer: the same call stands there again, with the same arguments and nothing but white space and markup
between. A file appended twice or a command run twice is not what was meant; reading a file twice does no harm.
"""

from gateway.core.events import Args, Broken, Drop, End, Event, Start, Text
from strategies.grammar.dialect import Context
from strategies.schema.known_tools import only_reads

__all__ = ["Copies"]


class Copies:
    """Passes on the events of one choice but for copies, which are dropped."""

    __slots__ = ("_call", "_context", "_last", "_size")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._last: tuple[str, str] | None = None
        """The call that a copy would be of: nothing has been said behind it."""
        self._call: list[Event] = []
        """The call under way, while it may be a copy."""
        self._size = 0
        """How much of its arguments has come."""

    def say(self, text: str) -> None:
        """Text goes out that is no part of a call."""
        if not text.isspace():
            self._last = None

    def told(self, events: list[Event]) -> list[Event]:
        """The same events without copies; those of a call that may be one wait for its end."""
        if self._context.options.duplicate_calls == "keep":
            return events
        if len(events) == 1 and isinstance(events[0], Text):
            self.say(events[0].raw)
            return events
        out: list[Event] = []
        for event in events:
            self._take(event, out)
        return out

    def _take(self, event: Event, out: list[Event]) -> None:
        match event:
            case Text():
                self.say(event.raw)
                out.append(event)
            case Start() if self._last is not None and self._last[0] == event.name:
                self._call, self._size = [event], 0
            case Args() if self._last is not None and self._call:
                self._call.append(event)
                if not self._last[1].startswith(event.json, self._size):
                    self._pass(out)
                self._size += len(event.json)
            case End():
                self._end(event, out)
            case Broken():
                self._pass(out)
                self._last = None
                out.append(event)
            case _:
                (self._call or out).append(event)

    def _end(self, end: End, out: list[Event]) -> None:
        call = (end.name, end.arguments)
        if self._call and call == self._last:
            out.append(Drop("".join(event.raw for event in (*self._call, end)), "duplicate"))
            self._call = []
            return
        self._pass(out)
        out.append(end)
        tool = self._context.find(end.name)
        may_repeat = only_reads(end.name) or (tool is not None and tool.only_reads)
        self._last = None if may_repeat else call

    def _pass(self, out: list[Event]) -> None:
        """The call under way is no copy."""
        out += self._call
        self._call = []
