"""The way out of a reader: what has been read goes out at once, waits with what holds it, or was only a draft.

An event passes four places, each of which may keep it: what the mode under way holds (`Held`), the drafts of an answer
that may have begun inside its reasoning (`Drafts`), markup without a call (`Remains`), and the copies of calls
(`Copies`). Their order is fixed: only what stands as a call may be a draft, and only what is no draft may be a copy.
"""

from collections.abc import Collection, Mapping

from attrs import define, field

from gateway.core.events import Args, Drop, End, Event, Note, Start, Text
from strategies.grammar.dialect import Context
from strategies.reading.drafts import Drafts, meets_closer
from strategies.reading.left_out import REMAINS, THOUGHT, Copies, Remains

__all__ = ["Held", "Outlet", "as_text", "joined"]


@define
class Held:
    """Events that stand only if what follows them allows it."""

    events: list[Event] = field(factory=list)
    calls: int = 0
    families: set[str] = field(factory=set)
    """Those that have made a call in it."""
    refused: bool = False
    """A call inside was refused, so there is more than calls."""
    cut: bool = False
    """The answer was cut inside a call."""

    @property
    def size(self) -> int:
        return sum(len(event.raw) for event in self.events)

    def add(self, event: Event, families: Mapping[str, str]) -> None:
        self.events.append(event)
        if isinstance(event, End):
            self.calls += 1
            self.families.add(families[event.verdict.dialect])
        elif isinstance(event, Note):
            self.refused = True

    def keep(self, dialects: Collection[str]) -> None:
        """No calls but those of these dialects may stand: the others are text."""
        kept: list[Event] = []
        call: list[Event] = []
        self.calls = 0
        for event in self.events:
            if isinstance(event, Start | Args):
                call.append(event)
            elif isinstance(event, End) and event.verdict.dialect in dialects:
                kept += (*call, event)
                self.calls += 1
                call.clear()
            elif isinstance(event, End):
                # Its raw text goes out in its place: what is no call has to be read as the model wrote it.
                kept += (Text(part.raw) for part in (*call, event))
                call.clear()
            else:
                kept.append(event)
        self.events = kept

    def decided(self, *, accept: bool) -> list[Event]:
        """What they come to: calls, if they may be and there are any, else text."""
        return self.events if accept and self.calls else as_text(self.events)

    def said(self) -> str:
        """The text behind the last call."""
        pieces: list[str] = []
        for event in reversed(self.events):
            if not isinstance(event, Text):
                break
            pieces.append(event.raw)
        return "".join(reversed(pieces))


class Outlet:
    """The events of one choice from where they are read to where they are taken."""

    __slots__ = (
        "_context",
        "_copies",
        "_families",
        "_out",
        "callers",
        "drafts",
        "fresh",
        "held",
        "is_silent",
        "is_speaking",
        "is_thought_over",
        "remains",
    )

    def __init__(self, context: Context, families: Mapping[str, str]) -> None:
        self._context = context
        self._families = families
        self._out: list[Event] = []
        self._copies = Copies(context)
        self.remains = Remains(families)
        self.callers: set[str] = set()
        """The families that have made a call."""
        self.fresh = False
        """Nothing but white space has come since the last call."""
        self.is_silent = True
        """Nothing has come, behind reasoning if there is any, but white space and markup that says nothing."""
        self.is_speaking = False
        """Markup of its own has come where the answer begins: its server shows special tokens."""
        self.is_thought_over = False
        """Reasoning has begun or ended: what is outside of it is no draft."""
        self.held: Held | None = None
        """What the mode under way holds."""
        self.drafts: Drafts | None = None
        """All from the first call on, while it may turn out that the answer began inside its reasoning."""

    @property
    def idle(self) -> bool:
        """Nothing waits here."""
        return self.held is None and self.drafts is None and not self.remains.waits

    @property
    def is_told(self) -> bool:
        """All that was read has been taken."""
        return self.idle and not self._out

    @property
    def is_plain(self) -> bool:
        """Nothing but text has come so far: behind a call results and left-over tokens count, too."""
        return self.idle and not self.callers and not self.fresh and not self.is_speaking

    @property
    def size(self) -> int:
        """How many characters wait here."""
        size = self.remains.held + (self.held.size if self.held is not None else 0)
        return size + self.drafts.held if self.drafts is not None else size

    def hold(self) -> Held:
        """All that comes from now on waits, until it is let go."""
        self.held = Held()
        return self.held

    def pass_by(self, text: str) -> None:
        """Text goes out on another way: nothing waits in front of it."""
        self.fresh = self.fresh and text.isspace()
        self.is_silent = self.is_silent and text.isspace()
        self.remains.say(text)
        self._copies.say(text)

    def show(self, text: Text) -> None:
        """Text goes out that will still be looked at, but never be more than text."""
        self.is_silent = self.is_silent and text.raw.isspace()
        # Past what is held and the drafts: text that may go out already has nothing in front of it that waits.
        self._out.append(text)

    def add(self, event: Event) -> str | None:
        """An event has been read; the closer of reasoning that it meets, if it does."""
        if event.raw:
            if not isinstance(event, Text):
                self.fresh = True
            elif not event.raw.isspace():
                self.fresh = False
            is_blank = event.raw.isspace() if isinstance(event, Text) else isinstance(event, Drop)
            # Only at the answer's edge: in the middle the same markup may be what the answer is about.
            if isinstance(event, Drop) and event.reason == REMAINS and event.family != THOUGHT:
                self.is_speaking = self.is_speaking or self.is_silent
            self.is_silent = self.is_silent and is_blank
        if self.held is not None:
            self.held.add(event, self._families)
            return None
        return self.tell(event)

    def tell(self, event: Event) -> str | None:
        """An event is decided, but for what a closer of reasoning may still make of it; the closer that it meets."""
        if isinstance(event, End):
            self.callers.add(self._families[event.verdict.dialect])
        # Templates that open the reasoning in the prompt leave only its closer in the answer: what stands before it was
        # thought, and its calls were not meant.
        if self.drafts is None and not self.is_thought_over and self._may_be_draft(event):
            self.drafts = Drafts()
        if self.drafts is None:
            self._out.append(event)
            return None
        self.drafts.add(event)
        # Text is asked about where it is read; within a call a closer can only stand in what was taken out with it.
        is_over = self.is_thought_over or not isinstance(event, End | Drop)
        return None if is_over else meets_closer(event.raw)

    def _may_be_draft(self, event: Event) -> bool:
        """Whether a call begins here, or the fence around one; what the client reads in the text does not wait."""
        if isinstance(event, Drop):
            return event.reason == "carrier"
        return isinstance(event, Start) and not self._context.is_read_by_client(event.dialect, event.name)

    def end_thought(self, closer: str) -> None:
        """Reasoning ends here that has begun before the answer."""
        self.is_thought_over = True
        if self.drafts is not None:
            self._out += self.drafts.close(closer)
            # Nothing waits any more: what follows has no drafts to decide about.
            if not self.drafts.held:
                self.fall()

    def stand(self, *, in_fence: bool) -> None:
        """No reasoning has ended behind the calls that wait, so they are none of its drafts."""
        drafts, self.drafts = self.drafts, None
        if drafts is not None:
            self._out += drafts.fall() if in_fence and drafts.ends_in_fence() else drafts.stand()

    def fall(self) -> None:
        """The calls that wait were drafts: the answer begins behind them."""
        drafts, self.drafts = self.drafts, None
        if drafts is not None:
            self._out += drafts.fall()
            # What was only thought says nothing of the family in which the answer calls.
            self.callers.clear()

    def taken(self) -> list[Event]:
        """What is decided since the last time."""
        out, self._out = self._out, []
        # Joined before each, as both pay by the event. What is left out as markup must not part a call from its copy.
        return self._copies.told(joined(self.remains.told(joined(out))))

    def finish(self, *, cut: bool) -> list[Event]:
        """The same where the answer ends."""
        out, self._out = self._out, []
        ends = self.remains.told(joined(out)) + self.remains.finish(cut=cut)
        return self._copies.told(joined(ends))


def as_text(events: list[Event]) -> list[Event]:
    """The same with the raw text of each call in its place."""
    return [event if isinstance(event, Note | Text) else Text(event.raw) for event in events]


def joined(events: list[Event]) -> list[Event]:
    """The same with each run of text in one piece, up to where it is firm: whoever takes them pays by the event."""
    if len(events) < 2:
        return events
    out: list[Event] = []
    run: list[str] = []
    for event in events:
        if isinstance(event, Text):
            run.append(event.raw)
            if not event.firm:
                continue
        if run:
            out.append(Text("".join(run), isinstance(event, Text)))
            run = []
        if not isinstance(event, Text):
            out.append(event)
    if run:
        out.append(Text("".join(run)))
    return out
