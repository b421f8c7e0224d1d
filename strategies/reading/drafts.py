"""Calls that may have been drafts: those of an answer in which no reasoning has begun or ended before them.

Many chat templates put `<think>` into the prompt (Qwen's, GLM's and DeepSeek's among them:
https://huggingface.co/Qwen/QwQ-32B#usage-guidelines), so an answer may begin inside its reasoning and tell so only by
a closer without an opener. Until that closer or the end of the answer, a call and all that stands behind it wait here.
Behind the closer a new answer begins: what has waited was only thought, unless the call met the closer and nothing
stands behind it.
"""

from collections import Counter

from gateway.core.events import End, Event, Note, Text
from strategies.grammar.lexicon import LEFTOVERS, REASONING, REASONING_ENDS

__all__ = ["CLOSERS", "Drafts", "meets_closer"]

_OPENS = {closer: opener for opener, closer in REASONING.items()}
CLOSERS = frozenset(REASONING_ENDS).difference(LEFTOVERS)
"""Closers that say nothing else; the others end a turn, too, and only an answer behind them shows that they closed."""
_ENDS = (*sorted(CLOSERS), *LEFTOVERS)
_TAIL = 200
"""How much of the end of a call is looked at for a closer."""


class Drafts:
    """The events from the first such call on."""

    __slots__ = ("_events", "_fence", "_opened", "_said", "calls", "closed", "held")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._said = 0
        """How many of them there are up to the last that says something."""
        self._opened: Counter[str] = Counter()
        """The closers that are due, as reasoning was opened behind the first call."""
        self._fence = 0
        """Where the code fence begins that was opened last."""
        self.calls = 0
        """How many there are behind the last text that says something."""
        self.held = 0
        self.closed = False
        """The closer has come: what follows it decides."""

    def add(self, event: Event) -> None:
        self._events.append(event)
        self.held += len(event.raw)
        if isinstance(event, End):
            self.calls += 1
        elif isinstance(event, Text) and not self.closed and event.raw.strip():
            self._said, self.calls = len(self._events), 0

    def opens(self, opener: str) -> None:
        """Reasoning begins behind the first call, so its closer is none of that in which the answer began."""
        self._opened[REASONING[opener]] += 1

    def closes(self, closer: str) -> bool:
        """Whether a closer has no opener behind the first call."""
        if not self._opened[closer]:
            return True
        self._opened[closer] -= 1
        return False

    def close(self, closer: str) -> list[Event]:
        """The closer has come: what is thought for certain, as the text it is. The rest waits for what follows."""
        self.closed = True
        if closer not in CLOSERS:
            return []
        if not self.calls:
            self._said = len(self._events)
        thought, self._events = self._events[: self._said], self._events[self._said :]
        self._said = 0
        self.held = sum(len(event.raw) for event in self._events)
        return as_text(thought)

    def enter_fence(self) -> None:
        """A code fence has been opened."""
        self._fence = len(self._events)

    def ends_in_fence(self) -> bool:
        """Whether the fence that was opened last holds the closer: one that is never closed holds the answer, too."""
        text = "".join(event.raw for event in self._events[self._fence :])
        return any(text.count(closer) > text.count(_OPENS[closer]) for closer in CLOSERS)

    def stand(self) -> list[Event]:
        """They are no drafts."""
        return self._events

    def fall(self) -> list[Event]:
        """They are drafts: text, without anything taken from it."""
        return as_text(self._events)


def as_text(events: list[Event]) -> list[Event]:
    """The same words, without any call in them."""
    told = (event if isinstance(event, Text | Note) else Text(event.raw) for event in events)
    return [event for event in told if event.raw or isinstance(event, Note)]


def meets_closer(raw: str) -> str | None:
    """The closer of reasoning that a call has taken for its own, or has met inside its wrapper."""
    tail = raw[-_TAIL:].rstrip()
    while tail.endswith(_ENDS):
        found = next(token for token in _ENDS if tail.endswith(token))
        if found in CLOSERS:
            # A tool and a parameter may be named like it: what the call has opened, it closes.
            return found if raw.count(found) > raw.count(_OPENS[found]) else None
        tail = tail.removesuffix(found).rstrip()
    return None
