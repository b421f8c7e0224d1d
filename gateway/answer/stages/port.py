"""What a stage of an answer is."""

from typing import Protocol

from gateway.core.events import Event
from strategies.base import FinishReason

__all__ = ["Stage"]


class Stage(Protocol):
    """Events in, events out: it may hold some, change them, or add some that have no raw text of their own."""

    @property
    def held(self) -> bool:
        """Something has come in that has not gone out."""
        ...

    @property
    def passes(self) -> bool:
        """Text that does not end in white space goes through as it is, and is only counted, if that."""
        ...

    def feed(self, events: list[Event]) -> list[Event]:
        """What goes out now that these have come; mostly they themselves."""
        ...

    def finish(self, reason: FinishReason) -> list[Event]:
        """The choice has ended for this reason: what goes out of all that is held."""
        ...

    def release(self) -> list[Event]:
        """No call that is held is wanted any more: everything that is held, as the text it was."""
        ...
