"""A request that is sent again for the call that its first answer broke, and what its second answer holds.

Which choice of an answer waits for that, and what may be asked still, `SecondRound` says.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import evolve, field, frozen

from gateway.answer.stages import GuardedReader
from gateway.answer.stages.thoughts import ENDS, calling_in_reasoning
from gateway.core.events import END_REASONS, End, Event, Note, Start, Verdict
from gateway.wire.chat_chunks import BadChunk, decode_object, has_reasoning
from strategies.base import AsksAgain, BrokenCall, Prepared, Refusal, Translates
from strategies.mapping.answers import Translation, translation_of
from strategies.schema.structured import function_of
from strategies.structured.judge import Judged, declared, judge
from strategies.structured.mending import mended
from strategies.text.turns import Turns, whole

if TYPE_CHECKING:
    from gateway.answer.choice import Choice
    from gateway.answer.facts import Facts

__all__ = ["SecondAnswer", "SecondCall", "SecondRequest", "SecondRound", "read_second_answer", "unusable_calls"]

NATIVE = "native"
MAX_CHARS = 1 << 18
"""Arguments that can be asked for again: longer ones cost too much to be written twice."""
STEP = 1 << 14
"""Characters that are read in one turn."""


@frozen(kw_only=True)
class SecondRequest:
    """One more request, and why."""

    reason: str
    number: int
    _ask: AsksAgain
    _broken_calls: tuple[BrokenCall, ...]

    @classmethod
    def of(cls, ask: AsksAgain, broken_calls: Sequence[BrokenCall]) -> "SecondRequest":
        """The request that follows these broken calls."""
        return cls(
            reason=ask.reason(broken_calls[-1]), number=len(broken_calls), ask=ask, broken_calls=tuple(broken_calls)
        )

    def body(self) -> bytes:
        """What to send."""
        return self._ask.body(self._broken_calls)


@frozen(kw_only=True)
class SecondCall:
    """A call of a second answer; the verdict is there when it was read from text."""

    name: str
    arguments: str
    dialect: str
    verdict: Verdict | None = None
    part: tuple[int, int] = (1, 1)


@frozen(kw_only=True)
class SecondAnswer:
    """The calls of a second answer, what it cost, and, when it has none, what may be asked once more."""

    calls: tuple[SecondCall, ...] = ()
    replaced: Mapping[str, SecondCall] = field(factory=dict)
    """By the ids of structured calls that did not fit: what is told in the place of each."""
    usage: Any = None
    broken_call: BrokenCall | None = None


class SecondRound:
    """The second answers of one answer, in whichever shape that one comes."""

    __slots__ = ("_broken_calls", "_facts", "_left", "_prepared", "choice")

    def __init__(self, prepared: Prepared, facts: "Facts", asks: int) -> None:
        self._prepared = prepared
        self._facts = facts
        self._left = asks if prepared.ask_again is not None else 0
        """How often it may still be asked again."""
        self._broken_calls: list[BrokenCall] = []
        self.choice: Choice | None = None
        """The choice that waits."""

    @property
    def may_ask(self) -> bool:
        """Something may still be asked again."""
        return self._left > 0

    @property
    def wanted(self) -> SecondRequest | None:
        """What is to be asked now."""
        if self.choice is None or self._prepared.ask_again is None:
            return None
        return SecondRequest.of(self._prepared.ask_again, self._broken_calls)

    def refused(self, translation: Translation | None, reason: str, content: str = "") -> BrokenCall | None:
        """The broken call that structured calls are which cannot be translated, where it may be asked for again."""
        if translation is None or not self._left or reason not in END_REASONS:
            return None
        return translation.broken_call(content)

    def wait(self, choice: "Choice", broken_call: BrokenCall) -> None:
        """The choice has ended with this, and waits for a second answer."""
        self._facts.broken_calls += not broken_call.calls
        self.choice, self._broken_calls = choice, [broken_call]

    def read(self, body: bytes) -> SecondAnswer | None:
        """What a second answer holds; `None` where it is one broken call more, and is asked again itself."""
        return whole(self.reading(body))

    def reading(self, body: bytes) -> Turns[SecondAnswer | None]:
        """The same in turns."""
        second = yield from reading_second_answer(body, self._prepared, self._broken_calls)
        self._left -= 1
        self._facts.add_usage(second.usage)
        if not second.calls and self._left and second.broken_call is not None:
            self._broken_calls.append(second.broken_call)
            return None
        self._facts.has_second_answer = bool(second.calls)
        return second

    @property
    def unusable(self) -> tuple[object, ...]:
        """The structured calls of the first answer, where those were what was broken."""
        return self._broken_calls[0].calls

    def end(self) -> "Choice | None":
        """No more is asked: the choice that waited."""
        choice, self.choice = self.choice, None
        return choice


def read_second_answer(body: bytes, prepared: Prepared, broken_calls: Sequence[BrokenCall]) -> SecondAnswer:
    """Look for calls in the answer that follows these broken calls, all in one go."""
    return whole(reading_second_answer(body, prepared, broken_calls))


def reading_second_answer(body: bytes, prepared: Prepared, broken_calls: Sequence[BrokenCall]) -> Turns[SecondAnswer]:
    """Look for calls in the answer that follows these broken calls; whatever else it says is none of the client's."""
    ask = prepared.ask_again
    try:
        answer = decode_object(body)
    except BadChunk:
        return SecondAnswer()
    usage = answer.get("usage")
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if ask is None or not isinstance(choice, dict) or not isinstance(message, dict):
        return SecondAnswer(usage=usage)
    reason = choice.get("finish_reason")
    if broken_calls[0].faults:
        return evolve((yield from _replacing(message, reason, prepared, ask, broken_calls)), usage=usage)
    told = reason if isinstance(reason, str) else "stop"
    calls, broken_call = yield from _calls(message, told, prepared, ask, broken_calls)
    # What one call of the model became goes out as a whole or not at all.
    made = [group for group in _grouped(calls) if any(ask.satisfies(call.name) for call in group)]
    return SecondAnswer(
        calls=tuple(call for group in made[: 1 if prepared.shape.first_only else None] for call in group),
        usage=usage,
        # What was cut would be cut again.
        broken_call=broken_call if reason in END_REASONS else None,
    )


def _replacing(
    message: dict[str, Any], reason: object, prepared: Prepared, ask: AsksAgain, broken_calls: Sequence[BrokenCall]
) -> Turns[SecondAnswer]:
    """The calls of a message that may stand in the place of structured ones, each of which has one at most."""
    tools = prepared.calls.tools
    if message.get("tool_calls"):
        told = _native_calls(message["tool_calls"], prepared.rename)
    else:
        told, _ = yield from _text_calls(message, reason if isinstance(reason, str) else "stop", prepared, ask)
    texts = []
    for call in told:
        texts.append((call, judge(call.name, call.arguments, tools)))
        yield
    # Those that fit as they are come first: no mended one may take the place of one of them.
    usable = [call for call, judged in texts if judged.is_valid]
    for call, judged in texts:
        tool = tools.get(call.name)
        found = mended(call.arguments, declared(tool)) if tool is not None and not judged.is_valid else None
        usable += [evolve(call, arguments=found.arguments)] if found is not None else []
    usable = [call for call in usable if not ask.is_echo(call.name, call.arguments, broken_calls)]
    first = broken_calls[0]
    replaced: dict[str, SecondCall] = {}
    for broken in first.calls:
        name = function_of(broken).get("name")
        same = next((call for call in usable if call.name == name), None)
        # What named no tool may be told by any call that is left, unless the client has seen that name already.
        if same is None and broken["id"] not in first.told and name not in tools:
            same = next(iter(usable), None)
        if same is not None:
            usable.remove(same)
            replaced[broken["id"]] = same
    again = None if replaced or reason not in END_REASONS else _misfits(message, texts)
    return SecondAnswer(calls=tuple(replaced.values()), replaced=replaced, broken_call=again)


def _misfits(message: dict[str, Any], judged: Sequence[tuple[SecondCall, Judged]]) -> BrokenCall | None:
    """The broken call that the calls of a second answer are, none of which can be used."""
    calls: list[Mapping[str, Any]] = [
        {"id": f"again_{at}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for at, (call, _) in enumerate(judged)
    ]
    faults = {
        f"again_{at}": each.fault or "it is not the call that was asked for" for at, (_, each) in enumerate(judged)
    }
    content = message.get("content")
    return (
        BrokenCall(content=content if isinstance(content, str) else "", calls=tuple(calls), faults=faults)
        if calls
        else None
    )


def _calls(
    message: dict[str, Any], reason: str, prepared: Prepared, ask: AsksAgain, broken_calls: Sequence[BrokenCall]
) -> Turns[tuple[list[SecondCall], BrokenCall | None]]:
    """A message's calls, structured or in its text, as the client gets them."""
    if not message.get("tool_calls"):
        calls, broken_call = yield from _text_calls(message, reason, prepared, ask)
        return [call for call in calls if not ask.is_echo(call.name, call.arguments, broken_calls)], broken_call
    calls = _native_calls(message["tool_calls"], prepared.rename)
    calls = [call for call in calls if ask.is_usable(call.name, call.arguments)]
    calls = [call for call in calls if not ask.is_echo(call.name, call.arguments, broken_calls)]
    broken_call = unusable_calls(message, ask)
    if prepared.mapping is not None:
        content = message.get("content")
        calls, refused = _mapped(calls, prepared.mapping, content=content if isinstance(content, str) else "")
        broken_call = broken_call or refused
    return calls, broken_call


def _grouped(calls: Sequence[SecondCall]) -> list[list[SecondCall]]:
    """The calls, those together that are one call of the model."""
    groups: list[list[SecondCall]] = []
    for call in calls:
        if call.part[0] == 1 or not groups:
            groups.append([])
        groups[-1].append(call)
    return groups


def unusable_calls(message: dict[str, Any], ask: AsksAgain) -> BrokenCall | None:
    """The broken call that a message's structured calls are, when none of them has arguments that can be used."""
    calls = [call for call in message["tool_calls"] if isinstance(call, dict)] if _is_list(message) else []
    if not calls or _size(calls) > MAX_CHARS or any(_is_usable(call, ask) for call in calls):
        return None
    content = message.get("content")
    return BrokenCall(content=content if isinstance(content, str) else "", calls=tuple(calls))


def _is_list(message: dict[str, Any]) -> bool:
    return isinstance(message.get("tool_calls"), list)


def _size(calls: Sequence[dict[str, Any]]) -> int:
    return sum(len(str(function_of(call).get("arguments"))) for call in calls)


def _is_usable(call: dict[str, Any], ask: AsksAgain) -> bool:
    """Usable, or of a kind or a tool that is not known here and so not to be judged."""
    function = function_of(call)
    name = function.get("name")
    if not function or not isinstance(name, str):
        return True
    return ask.is_usable(name, function.get("arguments")) or not ask.is_usable(name, {})


def _native_calls(calls: Any, rename: Callable[[str], str | None] | None) -> list[SecondCall]:
    found = []
    for call in calls if isinstance(calls, list) else ():
        function = function_of(call)
        name, arguments = function.get("name"), function.get("arguments")
        if rename is not None and isinstance(name, str):
            name = rename(name) or name
        if isinstance(name, str):
            text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            # Some servers say nothing where a tool takes no arguments, and clients that parse that as JSON fail.
            found.append(SecondCall(name=name, arguments=(text.strip() and text) or "{}", dialect=NATIVE))
    return found


def _mapped(
    calls: Sequence[SecondCall], mapping: Translates, *, content: str
) -> tuple[list[SecondCall], BrokenCall | None]:
    """The client's calls, if all of them can be had."""
    translation = translation_of(mapping, ((f"call_{at}", each.name, each.arguments) for at, each in enumerate(calls)))
    broken_call = translation.broken_call(content)
    if broken_call is not None:
        return [], broken_call
    told = (mapping.back(each.name, each.arguments) for each in calls)
    return [
        SecondCall(name=one.name, arguments=one.arguments, dialect=NATIVE, part=(one.number, one.count))
        for back in told
        if not isinstance(back, Refusal)
        for one in back
    ], None


def _text_calls(
    message: Mapping[str, Any], reason: str, prepared: Prepared, ask: AsksAgain
) -> Turns[tuple[list[SecondCall], BrokenCall | None]]:
    if prepared.make_reader is None:
        return [], None
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    reader = GuardedReader(prepared.make_reader)
    if has_reasoning(message):
        reader.reasoned()
    events: list[Event] = []
    for at in range(0, len(text), STEP):
        events += yield from reader.reading(text[at : at + STEP])
    events += yield from reader.reading(reason=reason)
    if prepared.reads_reasoning and not text.strip() and reason in ENDS:
        events += yield from calling_in_reasoning(message, prepared.make_reader)
    starts = [event for event in events if isinstance(event, Start)]
    ends = [event for event in events if isinstance(event, End)]
    calls = [
        SecondCall(
            name=end.name, arguments=end.arguments, dialect=end.verdict.dialect, verdict=end.verdict, part=start.part
        )
        # Where the reader has failed, a call may have begun that has no end.
        for start, end in zip(starts, ends, strict=False)
        if start.is_declared
    ]
    note = next((event for event in events if isinstance(event, Note) and ask.is_broken_call(event)), None)
    if note is None and not ask.required:
        return calls, None
    return calls, BrokenCall(content=text, notes=() if note is None else (note,))
