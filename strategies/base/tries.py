"""Which candidates are one try: readings of the same characters, by one dialect after the other."""

from attrs import define, field

from gateway.core.events import Event, Note

__all__ = ["Span", "Tries"]


@define
class Span:
    """Where the last try stands, and which tool it names."""

    begin: int = -1
    end: int = -1
    name: str = ""

    def holds(self, at: int, name: str) -> bool:
        """Whether a reading from there on is one of the same try."""
        is_inside = at == self.begin or self.begin < at < self.end
        return is_inside and not (name and self.name and name != self.name)

    def take(self, at: int, size: int, name: str) -> bool:
        """Go on with this reading; whether it belongs to the try before it."""
        is_same = self.holds(at, name)
        if not is_same:
            self.begin, self.end, self.name = at, at, ""
        self.end, self.name = max(self.end, at + size), self.name or name
        return is_same


@define
class Tries:
    """Counts along the events of one choice."""

    _at: int = 0
    _span: Span = field(factory=Span)

    def is_same(self, event: Event) -> bool:
        """Whether a note tells of a try that one before it has told of; asked of every event, in order."""
        if not isinstance(event, Note):
            self._at += len(event.raw)
            return False
        if event.verdict.accepted:
            return False
        return self._span.take(self._at, event.reach or event.size or len(event.seen), event.verdict.name)
