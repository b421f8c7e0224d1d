"""What becomes of a structured call once it is whole: it goes out as it came, or mended, or it is asked for again.

Each call is judged once. What the model server wrote is counted as it came, whatever becomes of it then.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from attrs import define, field, frozen
from msgspec import Struct

from gateway.core.call_class import CallClass
from gateway.core.events import Args, Drop, End, Event, Said, Start, Text
from gateway.wire.structured_calls import NativeCalls, StructuredCall
from strategies.base import BrokenCall, CallTerms
from strategies.schema.structured import function_of
from strategies.structured.judge import Judged, declared, judge, judging
from strategies.structured.mending import MAX_CHARS, mending
from strategies.text.turns import Turns, whole

__all__ = ["CallFacts", "Review", "Reviewed", "Supplied"]

_MAX_TOLD = 16
"""Faults of one answer that are kept for the log."""
_MAX_WORDS = 200


class CallFacts(Struct):
    """What the structured calls of one answer leave behind for the log and the metrics."""

    classes: Counter[CallClass] = msgspec.field(
        default_factory=partial(Counter.__new__, Counter)
    )  # what `Counter()` does beside, costs
    """How many are of each class, as the model server sent them."""
    outcomes: Counter[str] = msgspec.field(default_factory=partial(Counter.__new__, Counter))
    """What became of those that did not fit: mended, supplied, asked, untouched, late."""
    steps: Counter[str] = msgspec.field(default_factory=partial(Counter.__new__, Counter))
    """By which steps they were mended."""
    names: list[str] = msgspec.field(default_factory=list)
    """Of some of them the tool, as the model server named it."""
    faults: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Tool and fault of some of them."""
    copies: int = 0
    """Those that were dropped as copies of the one before them."""


@frozen
class Reviewed:
    """A call and what it should be: `arguments` are there where they are to be others than came."""

    call: StructuredCall
    fault: str = ""
    """Why its tool does not take it as it came; empty where it does."""
    arguments: str | None = None
    steps: tuple[str, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Nobody can tell what it means."""
        return bool(self.fault) and self.arguments is None


@frozen
class Supplied:
    """The events of a text without the calls that were told in the place of structured ones."""

    events: list[Event]
    arguments: Mapping[str, str]
    """By the ids of the structured calls."""


@define(eq=False)
class Review:
    """The calls of one choice: judged, counted, mended."""

    terms: CallTerms
    native: NativeCalls
    _facts: CallFacts
    has_begun: bool = False
    """The calls are being looked at, or have been."""
    is_counted: bool = False
    """What has come was counted; what comes behind the end is not."""
    _known: dict[tuple[int, str, int], Judged] = field(factory=dict)
    """By call, name and size: a long call is looked at once."""
    _reviewed: dict[tuple[int, str, int], Reviewed] = field(factory=dict)

    @property
    def judges(self) -> bool:
        """The request offered tools, so that there is something to hold calls to."""
        return len(self.terms.tools) > 0

    @property
    def mends(self) -> bool:
        """Calls may be changed."""
        return self.terms.mends and self.judges

    def knows(self, call: StructuredCall) -> bool:
        """The call is of a tool that was offered."""
        return call.name in self.terms.tools

    def is_right(self, call: StructuredCall) -> bool:
        """The call, as far as it has come, is one that its tool takes."""
        return self._judged(call, call.name).is_valid

    def _judged(self, call: StructuredCall, name: str) -> Judged:
        return whole(self._judging(call, name))

    def _judging(self, call: StructuredCall, name: str) -> Turns[Judged]:
        # By size as well: the same call is another one once more of it has come.
        key = (id(call), name, call.size)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = yield from judging(name, call.arguments, self.terms.tools)
        return found

    def finish(self, *, is_cut: bool) -> list[Reviewed]:
        """No more comes: those calls that do not fit and may be changed. One that was cut off stays what it is."""
        self.count(is_cut=is_cut)
        if not self.mends:
            return []
        live = [call for call in self.native.live if call.is_function]
        # The last call of a cut answer lacks its end, which nobody may make up.
        found = [whole(self._reviewing(call)) for call in (live[:-1] if is_cut else live)]
        return [each for each in found if each.fault]

    def count(self, *, is_cut: bool) -> None:
        """Count the calls as the server sent them; one that was cut off by a limit or a fault tells nothing."""
        if self.is_counted:
            return
        self.is_counted = True
        self._facts.copies += self.native.copies
        if not self.judges:
            return
        calls = self.native.every
        for call in calls:
            if not call.is_function:  # tools of another kind have no arguments that could be looked at
                continue
            judged = self._judged(call, call.given_name)
            if not (is_cut and call is calls[-1] and not judged.is_valid):
                self._count(call.given_name, judged)

    def count_message(self, message: Mapping[str, Any], *, is_cut: bool) -> None:
        """The same of a whole message as it came."""
        if self.is_counted or not self.judges:
            return
        self.is_counted = True
        given = message.get("tool_calls")
        older = {"function": message.get("function_call")}
        calls = [*(given if isinstance(given, list) else ()), *((older,) if function_of(older).get("name") else ())]
        for call in calls:
            function = function_of(call)
            if function:
                name, arguments = function.get("name"), function.get("arguments")
                name, text = (name if isinstance(name, str) else ""), _text_of(arguments)
                judged = judge(name, text, self.terms.tools)
                if not (is_cut and call is calls[-1] and not judged.is_valid):
                    self._count(name, judged)

    def _count(self, name: str, judged: Judged) -> None:
        self._facts.classes[judged.call_class] += 1
        if len(self._facts.names) < _MAX_TOLD:
            self._facts.names.append(name[:_MAX_WORDS])
        if not judged.is_valid and len(self._facts.faults) < _MAX_TOLD:
            self._facts.faults.append((name[:_MAX_WORDS], judged.fault[:_MAX_WORDS]))

    def work(self) -> Generator[None, None, None]:
        """Look at all that has come, in turns, so that `finish` need not: a long call takes its time."""
        self.has_begun = True
        for call in self.native.every if self.judges else ():
            if call.is_function:
                yield
                yield from self._judging(call, call.given_name)
        for call in self.native.live if self.mends else ():
            if call.is_function:
                yield
                yield from self._reviewing(call)

    def _reviewing(self, call: StructuredCall) -> Turns[Reviewed]:
        """What the whole call should be."""
        key = (id(call), call.name, call.size)
        found = self._reviewed.get(key)
        if found is None:
            judged = yield from self._judging(call, call.name)
            tool = self.terms.tools.get(call.name)
            meant = None
            if tool is not None and not judged.is_valid:
                meant = yield from mending(call.arguments, declared(tool))
            arguments, steps = (meant.arguments, meant.steps) if meant is not None else (None, ())
            found = self._reviewed[key] = Reviewed(call, judged.fault, arguments, steps)
        return found

    def tell(self, reviewed: Reviewed, outcome: str) -> None:
        """Take down what became of a call that did not fit."""
        self._facts.outcomes[outcome] += 1
        if outcome == "mended":
            self._facts.steps.update(reviewed.steps)

    def supplied(self, broken: Sequence[Reviewed], events: Sequence[Event]) -> Supplied:
        """The arguments of calls that stand whole in the text beside them, and the text without those.

        A parser gives an empty call and leaves the block in the content: https://github.com/cline/cline/issues/13348
        """
        told: dict[str, str] = {}
        out: list[Event] = []
        block: list[Event] = []
        # Each block of the text tells one call, and each call is told once.
        wanted = list(broken)
        for event in events:
            if isinstance(event, Start) or block:
                block.append(event)
            elif isinstance(event, Said):
                out.append(Text(event.raw))
            else:
                out.append(event)
            if not isinstance(event, End):
                continue
            match = next((each for each in wanted if self._is_same(each, event)), None)
            if match is not None:
                wanted.remove(match)
                told[match.call.id] = event.arguments
                out.append(Drop("".join(each.raw for each in block), "supplied"))
            else:
                out += map(_as_text, block)
            block = []
        out += map(_as_text, block)
        # Where nothing was told all of it is text, as it came.
        return Supplied(out if told else [Text(each.raw) if isinstance(each, Drop) else each for each in out], told)

    def _is_same(self, broken: Reviewed, end: End) -> bool:
        return end.name == broken.call.name and judge(end.name, end.arguments, self.terms.tools).is_valid

    def broken_call(self, broken: Sequence[Reviewed], told: frozenset[str], content: str = "") -> BrokenCall | None:
        """What is to be asked again; `None` where it costs too much."""
        if not broken or sum(each.call.size for each in broken) > MAX_CHARS:
            return None
        calls = [
            {
                "id": each.call.id,
                "type": "function",
                "function": {"name": each.call.name, "arguments": each.call.arguments},
            }
            for each in broken
        ]
        return BrokenCall(
            content=content,
            calls=tuple(calls),
            faults={each.call.id: each.fault for each in broken},
            told=told,
        )


def _text_of(arguments: object) -> str:
    """Arguments as a text of JSON; some servers send the object itself, or nothing."""
    if isinstance(arguments, str) or arguments is None:
        return arguments or ""
    return msgspec.json.encode(arguments).decode()


def _as_text(event: Event) -> Event:
    return Text(event.raw) if isinstance(event, Start | Args | End) else event
