"""What a reader was told of one choice and what it made of it: kept only where records or a second reading need it."""

from attrs import frozen
from msgspec import Struct, field

from gateway.core.events import Broken, End, Event, Note, Said, Start, Text, Verdict, refused
from gateway.core.reasons import Reason
from strategies.base import FinishReason

__all__ = ["MAX_TEXT", "Candidate", "Transcript"]

MAX_TEXT = 1 << 18
"""Characters of a choice that are kept."""
_MAX_SHOWN = 1 << 16
"""Characters of one candidate that are kept."""
_MAX_CANDIDATES = 1024


@frozen(kw_only=True)
class Candidate:
    """A candidate and where it stands in its choice's text."""

    verdict: Verdict
    at: int
    size: int
    text: str = ""
    """Its beginning, where a reader shows it."""
    arguments: str = ""
    """Those of a call."""


class Transcript(Struct):
    """One choice as it was read, from the first character on."""

    candidates: list[Candidate] = field(default_factory=list)
    finish: FinishReason | None = None
    """Why it ended, once it has."""
    has_reasoned: bool = False
    """It has reasoning in a field of its own."""
    size: int = 0
    """Characters that have come."""
    _pieces: list[str] = field(default_factory=list)
    _begun: int = 0
    """Where the call under way begins."""
    _raws: list[str] = field(default_factory=list)
    _start: Start | None = None

    @property
    def text(self) -> str:
        """The choice's text, as far as it is kept."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Dialect, tool and arguments of every call that was read."""
        accepted = (candidate for candidate in self.candidates if candidate.verdict.accepted)
        return [(each.verdict.dialect, each.verdict.name, each.arguments) for each in accepted]

    def add(self, text: str, finish: FinishReason | None = None) -> None:
        """More of the choice's text, or why there is no more."""
        self.finish = finish or self.finish
        room = MAX_TEXT - self.size
        if room > 0:
            self._pieces.append(text[:room])
        self.size += len(text)

    def take(self, event: Event, at: int) -> None:
        """What the reader made of the text from there on."""
        match event:
            case Text():
                pass
            case Start():
                self._begun, self._raws, self._start = at, [event.raw], event
            case End():
                self._keep(event.verdict, self._begun, "".join((*self._raws, event.raw)), event.arguments)
                self._raws = []
            case Broken() if self._start is not None:
                self._keep(_broken(self._start, event), self._begun, "".join((*self._raws, event.raw)), "")
                self._raws = []
            case Said():
                self._keep(event.verdict, at, event.raw, event.arguments)
            case Note():
                # How far its dialect had read: what the note shows may go on into text that is none of it.
                size = event.reach or event.size or len(event.seen)
                self._add(Candidate(verdict=event.verdict, at=at, size=size, text=event.seen))
            case _ if self._raws:
                self._raws.append(event.raw)
            case _:
                pass

    def _keep(self, verdict: Verdict, at: int, raw: str, arguments: str) -> None:
        self._add(Candidate(verdict=verdict, at=at, size=len(raw), text=raw[:_MAX_SHOWN], arguments=arguments))

    def _add(self, candidate: Candidate) -> None:
        if len(self.candidates) < _MAX_CANDIDATES:
            self.candidates.append(candidate)


def _broken(start: Start, event: Broken) -> Verdict:
    """What is said of a call that began to flow and did not end."""
    verdict = Verdict(dialect=start.dialect, name=start.name, score=0, accepted=False)
    return refused(verdict, Reason.of(event.reason), event.reason)
