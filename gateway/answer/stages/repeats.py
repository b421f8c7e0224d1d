"""The stage that holds calls of the text which may be structured ones of the same answer again."""

from gateway.core.events import Broken, Drop, End, Event, Said, Start
from gateway.wire.structured_calls import CallKey, NativeCalls, key_of

__all__ = ["Repeats", "key_of_event"]


class Repeats:
    """Holds everything from the first call on that has the name of a structured one, until those have ended.

    It is in the list only once the choice has structured calls: without any, nothing can be one of them again.
    """

    __slots__ = ("_call", "_held", "_native")

    def __init__(self, native: NativeCalls) -> None:
        self._native = native
        self._call: list[Event] = []
        """The call of the text under way."""
        self._held: list[Event] = []

    @property
    def held(self) -> bool:
        """Calls of the text are held for the end of structured ones."""
        return bool(self._held)

    @property
    def passes(self) -> bool:
        """No call of the text is under way or held."""
        return not (self._held or self._call)

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if self._held:
                self._held += [*self._call, event]
                self._call = []
            elif self._call or isinstance(event, Start | Said):
                self._call.append(event)
                if not isinstance(event, End | Said | Broken):
                    continue
                # No structured call of this answer goes by that name, so it cannot be one of them.
                if isinstance(event, Broken) or not self._native.may_name(event.verdict.name):
                    out += self._call
                else:
                    self._held += self._call
                self._call = []
            else:
                out.append(event)
        return out

    def finish(self, reason: str) -> list[Event]:
        """Nothing yet: the text may end before the structured calls do (`finish_calls`)."""
        del reason
        return []

    def release(self) -> list[Event]:
        """Nothing: whether a call is one of the others is told at the end of those alone."""
        return []

    def finish_calls(self) -> list[Event]:
        """The structured calls have ended: one of the text that is one of them is dropped."""
        out: list[Event] = []
        call: list[Event] = []
        known = self._native.keys if self._held or self._call else ()
        held, self._held, self._call = [*self._held, *self._call], [], []
        for event in held:
            if call or isinstance(event, Start | Said):
                call.append(event)
            else:
                out.append(event)
            if isinstance(event, End | Said | Broken):
                out += _dropped(call) if key_of_event(event) in known else call
                call = []
        return [*out, *call]


def _dropped(call: list[Event]) -> list[Event]:
    """A call that the client has."""
    return [Drop("".join(event.raw for event in call), "repeated")]


def key_of_event(event: Event) -> CallKey | None:
    """What the end of a call has in common with a structured one that is the same."""
    return key_of(event.verdict.name, event.arguments) if isinstance(event, End | Said) else None
