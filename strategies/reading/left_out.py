"""What is left out of an answer although nothing is wrong with it: copies of calls, and markup without a call.

Models stammer: the same call stands there again, with the same arguments and nothing but white space and markup
between. A file appended twice or a command run twice is not what was meant; reading a file twice does no harm.

Servers that show special tokens leave more of them behind than those of a call: the header of a message whose text is
the answer, the tokens around a response, a section without a call in it. Such remains say nothing to anybody. They are
left out once a call of the same family was taken from the message, and where they stand at the answer's edge; in the
middle of an answer they may be what it is about, and stay. Reasoning that is empty, or only its end, is left out at
the start, where the reasoning came in a field of its own or nothing but a call follows.
"""

from collections.abc import Collection, Mapping

from attrs import frozen

from gateway.core.events import Args, Broken, Drop, End, Event, Note, Said, Start, Text
from strategies.grammar.dialect import Context
from strategies.grammar.lexicon import REASONING, REASONING_ENDS
from strategies.schema.known_tools import only_reads

__all__ = ["REMAINS", "THOUGHT", "TURN", "Copies", "Remains"]

REMAINS = "remains"
"""Why such markup is left out."""
THOUGHT = "thought"
"""The family of what opens and closes reasoning."""
TURN = "turn"
"""The family of what ends a turn in any."""
_TAIL = 64


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
        # Asked once here, so that whoever wants all calls pays nothing for it.
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
                # The first character that differs ends the wait: only a call that is the same so far is held.
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
                # Behind the beginning of a call that may be a copy everything keeps its order.
                (self._call or out).append(event)

    def _end(self, end: End, out: list[Event]) -> None:
        call = (end.name, end.arguments)
        if self._call and call == self._last:
            # `_last` stays: a third one in a row is a copy as much as the second.
            out.append(Drop("".join(event.raw for event in (*self._call, end)), "duplicate"))
            self._call = []
            return
        self._pass(out)
        out.append(end)
        tool = self._context.find(end.name)
        may_repeat = only_reads(end.name) or (tool is not None and tool.only_reads)
        # By its well-known name, or by what the client says of the tool: reading twice may mean to see a change.
        self._last = None if may_repeat else call

    def _pass(self, out: list[Event]) -> None:
        """The call under way is no copy."""
        out += self._call
        self._call = []


@frozen
class _Kept:
    """An event that waits for what follows, and whether it was left open what becomes of it."""

    event: Event
    is_open: bool


class Remains:
    """Passes on the events of one choice; remains wait until what follows them says whether they are text."""

    __slots__ = ("_families", "_glued", "_is_doubtful", "_is_silent", "_kept", "_speaking", "_tail", "reasoned")

    def __init__(self, families: Mapping[str, str]) -> None:
        self._families = families
        self._kept: list[_Kept] = []
        self._speaking: set[str] = set()
        """The families whose markup is certain to be markup in this answer."""
        self._glued = True
        """No blank within a line stands before what comes next, as it does before a word that is talked about."""
        self._is_doubtful = False
        """A candidate was refused, so its markup stays with it."""
        self._is_silent = True
        """Nothing was said yet."""
        self._tail = ""
        """The last that was said."""
        self.reasoned = False
        """The answer's reasoning comes in a field of its own."""

    @property
    def waits(self) -> bool:
        return bool(self._kept)

    @property
    def held(self) -> int:
        """How many characters wait here."""
        return sum(len(kept.event.raw) for kept in self._kept)

    def say(self, text: str) -> None:
        """Text goes out that is no part of a call."""
        if text:
            self._is_silent = self._is_silent and text.isspace()
            self._tail = (self._tail + text)[-_TAIL:]
            self._glued = text[-1] not in " \t"

    @property
    def _at_start(self) -> bool:
        """Nothing was said yet, or nothing behind the reasoning."""
        return self._is_silent or self._tail.rstrip().endswith(REASONING_ENDS)

    def told(self, events: list[Event]) -> list[Event]:
        """The same events; those that have to wait come later."""
        out: list[Event] = []
        for event in events:
            self._take(event, out)
        return out

    def finish(self, *, cut: bool) -> list[Event]:
        """The answer ends here: what stands alone at its edge is left out."""
        families = {kept.event.family for kept in self._kept if kept.is_open and isinstance(kept.event, Drop)}
        # Counted by the sign that special tokens begin with.
        count = sum(kept.event.raw.count("<") for kept in self._kept if kept.is_open)
        # One sign behind a blank may be a word that the answer is about; several are markup.
        # An answer that was cut may have been about to say why the markup stands there.
        is_edge = not cut and not self._is_doubtful and (self._glued or count > 1)
        return self._decided(families - {THOUGHT} if is_edge else ())

    def _take(self, event: Event, out: list[Event]) -> None:
        match event:
            case Drop(reason="remains"):
                self._take_remains(event, out)
            case Text() if not event.raw.isspace():
                is_left_out = self.reasoned and self._is_over()
                out += self._decided({THOUGHT} if is_left_out else ())
                self.say(event.raw)
                out.append(event)
            case Note() if not event.verdict.accepted:
                self._is_doubtful = True
                out += self._decided(())
                out.append(event)
            case Text() | Note() | Drop() if self._kept:
                self._kept.append(_Kept(event, is_open=False))
            case Text():
                self.say(event.raw)
                out.append(event)
            case Start():
                # A call shows that its family's markup is markup here, and that reasoning before it was reasoning.
                family = self._families.get(event.dialect, "")
                out += self._decided({family, THOUGHT})
                self._is_silent = False
                self._tail = ""
                out.append(event)
            case End():
                # Only where the call is whole: one that breaks proves nothing about the tokens around it.
                self._speaking.add(self._families.get(event.verdict.dialect, ""))
                out.append(event)
            case Said():
                out += self._decided(())
                out.append(event)
            case _:
                out.append(event)

    def _take_remains(self, event: Drop, out: list[Event]) -> None:
        # Servers leave such tokens without any call, too: https://github.com/vllm-project/vllm/issues/56184
        is_thought = event.family == THOUGHT
        if is_thought and not self._is_silent:
            self.say(event.raw)
            out.append(Text(event.raw))
            return
        is_end = event.family == TURN
        is_decided = (
            bool(self._speaking) if is_end else event.family in self._speaking or (not is_thought and self._at_start)
        )
        if is_decided:
            self._speaking.add(event.family)
        elif is_end:
            out += self._decided(())
            self.say(event.raw)
            out.append(Text(event.raw))
            return
        # Behind something that waits it waits too, or the order of what the client reads would change.
        if is_decided and not self._kept:
            out.append(event)
        else:
            self._kept.append(_Kept(event, is_open=not is_decided))

    def _is_over(self) -> bool:
        """Whether the last that waits of reasoning is its end."""
        marks = [kept.event.raw for kept in self._kept if isinstance(kept.event, Drop) and kept.is_open]
        return bool(marks) and marks[-1] not in REASONING

    def _decided(self, left_out: Collection[str]) -> list[Event]:
        """What has waited: the remains of these families left out, all others as the text they are."""
        kept, self._kept = self._kept, []
        out: list[Event] = []
        for each in kept:
            event = each.event
            is_text = each.is_open and isinstance(event, Drop) and event.family not in left_out
            out.append(Text(event.raw) if is_text else event)
            if isinstance(out[-1], Text):
                self.say(event.raw)
        return out
