"""The stage that shapes: which calls go out, and what of the text around them."""

from collections.abc import Iterable

from gateway.core.events import Args, Broken, Drop, End, Event, Note, Said, Start, Text
from strategies.base import FinishReason, Shape
from strategies.reading.outlet import joined

__all__ = ["Shaper"]

_MANY = 256
"""Pieces of white space that are kept by themselves: an answer of nothing else may come in a million of them."""


class Shaper:
    """What becomes of the calls of one choice and of the text around them, once they are read.

    Events come out in the order they came in, with all their raw text. White space before a call is dropped; behind a
    call only what the settings keep stays; where calls are held for the upstream's finish they may still turn back
    into text.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._held_calls: list[Event] = []
        """Everything from the first call on, while calls are held for the finish."""
        self._held_text: list[Event] = []
        """White space and text that the next event decides about."""
        self._joined = 0
        """How many of those have been joined to few."""
        self._skipping = False
        self._left_out = False
        """A call that is left out is left out with all its parts."""
        self.calls = 0
        """Calls that have begun for the client."""
        self.undelivered = 0

    @property
    def held(self) -> bool:
        """White space, text or calls wait for what the next event decides."""
        return bool(self._held_calls or self._held_text)

    @property
    def passes(self) -> bool:
        """No call has come, and nothing waits."""
        return not (self.calls or self._held_calls or self._held_text)

    @property
    def holds_calls(self) -> bool:
        """There is a call, and it is held for the finish."""
        return bool(self._held_calls)

    def feed(self, events: list[Event]) -> list[Event]:
        if len(events) == 1 and not self.calls and not self.held:
            event = events[0]
            # The way of nearly every event: one text that does not end in white space.
            if isinstance(event, Text) and (self._shape.keep_space or event.firm or not event.raw[-1].isspace()):
                return events
        out: list[Event] = []
        for event in events:
            if self._shape.wait_for_finish and (self._held_calls or not isinstance(event, Text | Note)):
                self._held_calls.append(event)
            else:
                self._take(event, out)
        return out

    def finish(self, reason: FinishReason) -> list[Event]:
        """The answer has ended as it should."""
        del reason
        out: list[Event] = []
        held_calls, self._held_calls = self._held_calls, []
        for event in held_calls:
            self._take(event, out)
        held_text = self._taken()
        keep = self.calls == 0 or self._shape.keep_trailing
        out += held_text if keep else _dropped(held_text, "trailing")
        return out

    def release(self) -> list[Event]:
        """Nothing that is held is a call after all: all of it is its own text."""
        held = [*self._taken(), *self._held_calls]
        self._held_calls = []
        return [event if isinstance(event, Text | Note) else Text(event.raw) for event in held]

    def _take(self, event: Event, out: list[Event]) -> None:
        match event:
            case Text():
                self._text(event, out)
            case Drop():
                if event.reason == "leftover" and not any(_says(part) for part in self._held_text):
                    self._held_text = _dropped(self._taken(), "space")
                (self._held_text if self._held_text else out).append(event)
            case Start():
                self._start(event, out)
            case Args():
                out.append(Drop(event.raw, "undelivered") if self._skipping else event)
            case End() | Broken():
                out.append(Drop(event.raw, "undelivered") if self._skipping else event)
                self._skipping = False
            case Said():
                self._said(event, out)
            case Note():
                out.append(event)

    def _text(self, event: Text, out: list[Event]) -> None:
        if self.calls and self._shape.first_only and not self._shape.keep_trailing:
            out.append(Drop(event.raw, "trailing"))
        elif self.calls and not self._shape.keep_trailing:
            self._keep(event)
        else:
            told = event.raw if self._shape.keep_space or event.firm else event.raw.rstrip()
            if told:
                out += self._taken()
                out.append(event if len(told) == len(event.raw) else Text(told))
            if len(told) < len(event.raw):
                self._keep(Text(event.raw[len(told) :]))

    def _keep(self, text: Text) -> None:
        """Wait with a text for what the next event decides."""
        self._held_text.append(text)
        if len(self._held_text) - self._joined >= _MANY:
            self._held_text[self._joined :] = joined(self._held_text[self._joined :])
            self._joined = len(self._held_text)

    def _taken(self) -> list[Event]:
        """What has waited, in few pieces."""
        held, self._held_text, self._joined = self._held_text, [], 0
        return joined(held)

    def _start(self, event: Start, out: list[Event]) -> None:
        if self.calls and self._shape.first_only and (event.part[0] == 1 or self._left_out):
            self._left_out = self._skipping = True
            self.undelivered += 1
            out.append(Drop(event.raw, "undelivered"))
            return
        out += _before_call(self._taken())
        self.calls += 1
        out.append(event)

    def _said(self, event: Said, out: list[Event]) -> None:
        """A call in the client's own words stands in the text: what is before it stays as it is."""
        if self.calls and self._shape.first_only:
            self.undelivered += 1
            out.append(Drop(event.raw, "undelivered"))
            return
        out += self._taken()
        self.calls += 1
        out.append(event)


def _says(event: Event) -> bool:
    """Whether it is text that is more than white space."""
    return isinstance(event, Text) and not event.raw.isspace()


def _dropped(events: Iterable[Event], reason: str) -> list[Event]:
    return [Drop(event.raw, reason) if isinstance(event, Text) else event for event in events]


def _before_call(events: list[Event]) -> list[Event]:
    """Text between two calls stays, without the white space at its end."""
    last = max((at for at, event in enumerate(events) if isinstance(event, Text) and event.raw.strip()), default=-1)
    out: list[Event] = []
    for at, event in enumerate(events):
        if at < last or not isinstance(event, Text):
            out.append(event)
        elif at == last:
            told = event.raw.rstrip()
            out.append(Text(told))
            if len(told) < len(event.raw):
                out.append(Drop(event.raw[len(told) :], "space"))
        else:
            out.append(Drop(event.raw, "space"))
    return out
