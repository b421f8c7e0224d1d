"""What a reader was told of one choice and what it made of it: kept only where records or a second reading need it."""

from attrs import frozen
from msgspec import Struct, field

from gateway.core.events import Broken, End, Event, Note, Said, Start, Text, Verdict, refused
from gateway.core.reasons import Reason
from strategies.base import FinishReason
from strategies.text.tape import Tape

__all__ = ["MAX_TEXT", "Candidate", "Transcript"]

MAX_TEXT = 1 << 18
"""Characters of a choice that are kept."""
_MAX_SHOWN = 1 << 16
"""Characters of one candidate that are kept."""
_MAX_CANDIDATES = 1024
_MANY = 64
_SHORT = 1 << 13
"""Of so much nothing is packed: most answers are no longer, and few are looked at again."""
_LONG = 1 << 12
"""How many pieces are kept by themselves, and how much in them."""


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
    _packed: Tape | None = None
    """What stands in front of the pieces: an answer of any length has both this and a reader under way."""
    _packed_to: int = 0
    """Characters that had come when pieces were packed."""
    _begun: int = 0
    """Where the call under way begins."""
    _start: Start | None = None
    """That call, until it is over."""
    _told: int = 0
    """Characters of it that events have accounted for."""
    _shown: Tape | None = None
    """Their text, where it stands behind what is kept of the choice's."""

    @property
    def text(self) -> str:
        """The choice's text, as far as it is kept."""
        if self._packed is not None:
            self._pieces.insert(0, self._packed.text())
            self._packed = None
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
        if self.size - self._packed_to >= _LONG or len(self._pieces) >= _MANY:
            if self._packed is None and self.size < _SHORT:
                self._pieces = ["".join(self._pieces)]
                self._packed_to = self.size
            else:
                self._pack()

    def take(self, event: Event, at: int) -> None:
        """What the reader made of the text from there on."""
        match event:
            case Text():
                pass
            case Start():
                self._begun, self._told, self._start = at, 0, event
                self._tell(event.raw)
            case End():
                self._end(event.verdict, event.raw, event.arguments)
            case Broken() if self._start is not None:
                self._end(_broken(self._start, event), event.raw, "")
            case Said():
                raw, verdict, arguments = event.raw, event.verdict, event.arguments
                self._add(Candidate(verdict=verdict, at=at, size=len(raw), text=raw[:_MAX_SHOWN], arguments=arguments))
            case Note():
                # How far its dialect had read: what the note shows may go on into text that is none of it.
                size = event.reach or event.size or len(event.seen)
                self._add(Candidate(verdict=event.verdict, at=at, size=size, text=event.seen))
            case _ if self._start is not None:
                self._tell(event.raw)
            case _:
                pass

    def _tell(self, raw: str) -> None:
        """An event accounts for this part of the call under way."""
        if self._begun + _MAX_SHOWN > MAX_TEXT and self._told < _MAX_SHOWN:
            self._shown = Tape(fresh=0) if self._shown is None else self._shown
            self._shown.add(raw)
        self._told += len(raw)

    def _end(self, verdict: Verdict, raw: str, arguments: str) -> None:
        """The call under way is over, with this at its end."""
        self._tell(raw)
        begun, size = self._begun, self._told
        if size == len(raw):
            text = raw
        elif self._shown is not None:
            text = self._shown.text()
        else:
            text = self._pack().between(begun, begun + min(size, _MAX_SHOWN))
        self._told, self._start, self._shown = 0, None, None
        self._add(Candidate(verdict=verdict, at=begun, size=size, text=text[:_MAX_SHOWN], arguments=arguments))

    def _pack(self) -> Tape:
        """Put what has come by pieces to the rest."""
        packed = self._packed = Tape(fresh=0) if self._packed is None else self._packed
        packed.add("".join(self._pieces))
        self._pieces.clear()
        self._packed_to = self.size
        return packed

    def _add(self, candidate: Candidate) -> None:
        if len(self.candidates) < _MAX_CANDIDATES:
            self.candidates.append(candidate)


def _broken(start: Start, event: Broken) -> Verdict:
    """What is said of a call that began to flow and did not end."""
    verdict = Verdict(dialect=start.dialect, name=start.name, score=0, accepted=False)
    return refused(verdict, Reason.of(event.reason), event.reason)
