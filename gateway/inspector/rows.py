"""One line for each answer: what became of it, as a sign and a word, and how the next turn fared."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from attrs import frozen

from gateway.core.records import Arm, OutcomeRecord, RequestRecord
from gateway.report.facts.candidates import is_meant
from gateway.report.words import result_words

__all__ = [
    "CallHead",
    "Head",
    "Looks",
    "Next",
    "Row",
    "Seen",
    "Told",
    "broken",
    "head_of",
    "kind_of",
    "next_of",
    "row_of",
    "scores_of",
    "shown_call",
    "words_of",
]

Kind = Literal["delivered", "would", "text", "cut", "repaired", "overheard", "native", "prose", "error"]
_SENT: Mapping[str, Kind] = {"delivered": "delivered", "would_deliver": "would", "repaired": "repaired"}
_TURN_S = 60.0
"""A request tells all that it tells at once."""
_BEFORE: Mapping[Kind, str] = {
    "delivered": "",
    "would": "would be ",
    "repaired": "asked again, then ✓ ",
    "text": "stayed text: ",
    "overheard": "overheard: ",
}
_SIGNS: Mapping[Kind, str] = {
    "delivered": "✓",
    "would": "◇",
    "repaired": "↻",
    "text": "✗",
    "cut": "✗",
    "overheard": "◇",
    "native": "=",
    "prose": "·",
    "error": "!",
}


@frozen(kw_only=True)
class CallHead:
    """Of a candidate, what its line shows."""

    number: int
    dialect: str
    tool: str
    score: int
    decision: str
    reason: str = ""
    meant: bool | None = None
    signs: tuple[str, ...] = ()


@frozen(kw_only=True)
class Head:
    """Of a request's record, what its line shows: the rest of it is not even decoded."""

    id: str
    at: float
    key: str = ""
    model: str = ""
    arm: Arm = "live"
    strategy: str = "none"
    tools: int = 0
    status: int = 200
    healthy: bool = True
    end: str = "completed"
    error: str | None = None
    finish_reason: str | None = None
    native_calls: int = 0
    native_tools: tuple[str, ...] = ()
    duration_s: float = 0.0
    calls: tuple[CallHead, ...] = ()


class Candidate(Protocol):
    """Of a candidate, what says what became of it."""

    @property
    def dialect(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def score(self) -> int: ...
    @property
    def decision(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def meant(self) -> bool | None: ...


class Looks(Protocol):
    """What became of an answer, as far as a filter asks: its head or its brief."""

    @property
    def model(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def healthy(self) -> bool: ...
    @property
    def error(self) -> object: ...
    @property
    def native_calls(self) -> int: ...
    @property
    def native_tools(self) -> Sequence[str]: ...
    @property
    def calls(self) -> Sequence["Candidate"]: ...


C = TypeVar("C", bound="Candidate")


def _sent(calls: Sequence[C]) -> Sequence[C]:
    return [call for call in calls if call.decision in _SENT]


def broken(calls: Sequence[C]) -> Sequence[C]:
    """The candidates that were meant as calls and stayed text."""
    return [call for call in calls if call.decision == "refused" and is_meant(call)]


class Told(NamedTuple):
    """Of an outcome's record what says how an answer fared; the turn that reported it as a checksum."""

    at: float
    outcome: str
    reason: str
    reported_by: int


@frozen
class Next:
    """How the next turn of the conversation took the answer."""

    word: str = ""
    """`accepted`, `rejected` or `complained`; empty while it is unknown."""
    reason: str = ""


@frozen
class Seen:
    """What a filter asks of an answer, before there is a line of it."""

    head: Head
    next: Next
    labels: Mapping[int, bool]

    def words(self, key: str) -> Sequence[str]:
        match key:
            case "id":
                return (self.head.id,)
            case "outcome":
                return (self.next.word or "unknown", kind_of(self.head))
            case "label":
                return ["right" if is_right else "wrong" for is_right in self.labels.values()]
            case _:
                return words_of(self.head, key)

    @property
    def scores(self) -> Sequence[int]:
        return scores_of(self.head)


def words_of(looks: Looks, key: str) -> Sequence[str]:
    """All that a filter can ask of it under a key, but for what stands beside it."""
    match key:
        case "model":
            return (looks.model,)
        case "arm":
            return (looks.arm,)
        case "tool":
            return [*looks.native_tools, *(call.tool for call in looks.calls)]
        case "dialect":
            return [call.dialect for call in looks.calls]
        case "reason":
            return [call.reason for call in broken(looks.calls)]
        case "decision":
            # What only looked like a call is on no line, so no filter finds it.
            return [call.decision for call in looks.calls if call.decision != "refused" or is_meant(call)]
        case _:
            return ()


def scores_of(looks: Looks) -> Sequence[int]:
    """In hundredths, of all candidates that were judged."""
    return [call.score for call in looks.calls if call.score]


@frozen(kw_only=True)
class Row:
    """One line of the list."""

    head: Head
    cursor: str
    kind: Kind
    sign: str
    what: str
    tool: str
    dialect: str
    score: int | None
    next: Next
    labels: Mapping[int, bool]

    @property
    def seen(self) -> Seen:
        """What a filter asks of it."""
        return Seen(self.head, self.next, self.labels)

    def document(self) -> dict[str, Any]:
        head = self.head
        return {
            "id": head.id,
            "cursor": self.cursor,
            "at": head.at,
            "model": head.model,
            "arm": head.arm,
            "kind": self.kind,
            "sign": self.sign,
            "what": self.what,
            "tool": self.tool,
            "dialect": self.dialect,
            "score": None if self.score is None else self.score / 100,
            "next": self.next.word,
            "next_reason": self.next.reason,
            "next_words": result_words("next turn", self.next.reason),
            "ms": round(head.duration_s * 1000),
            "key": head.key,
            "label": next(("right" if is_right else "wrong" for is_right in self.labels.values()), None),
            "number": self._number(),
        }

    def _number(self) -> int | None:
        """The candidate that a label of this line is about."""
        shown = shown_call(self.head.calls)
        return None if shown is None else shown.number


def shown_call(calls: Sequence[C]) -> C | None:
    """The candidate that a line and its detail are about: a call, else the broken one that came furthest."""
    # The first that went out: the others stand in the detail.
    if sent := _sent(calls):
        return sent[0]
    overheard = (call for call in calls if call.decision == "overheard")
    return max(broken(calls), key=lambda call: call.score, default=None) or next(overheard, None)


def row_of(head: Head, *, cursor: str, next_: Next, labels: Mapping[int, bool] | None = None) -> Row:
    """The line of a record."""
    kind = kind_of(head)
    shown = shown_call(head.calls)
    return Row(
        head=head,
        cursor=cursor,
        kind=kind,
        sign=_SIGNS[kind],
        what=_what(head, kind, shown),
        tool=shown.tool if shown else next(iter(head.native_tools), ""),
        dialect=shown.dialect if shown else "",
        score=shown.score if shown and shown.score else None,
        next=next_,
        labels=labels or {},
    )


def kind_of(looks: Looks) -> Kind:
    """What happened, in one word."""
    shown = shown_call(looks.calls)
    # Before the errors: the client has its call, whatever came behind it.
    if shown is not None and shown.decision in _SENT:
        return _SENT[shown.decision]
    # An error that ended an answer says less of it than the candidates that it held.
    if not looks.healthy or (looks.error and not looks.calls):
        return "error"
    if shown is not None and shown.decision == "refused":
        return "cut" if shown.reason == "cut" else "text"
    if looks.native_calls:
        return "native"
    # Last, as a call that nobody offered a tool for changes nothing for the client.
    return "prose" if shown is None else "overheard"


def _what(head: Head, kind: Kind, shown: CallHead | None) -> str:
    match kind:
        case "error":
            return (
                head.error if head.error and head.end != "client_abort" else result_words("end", head.end) or head.end
            )
        case "native":
            return _of_native(head)
        case "prose":
            return kind
        case "cut":
            return f"cut {'by length' if head.finish_reason == 'length' else 'off'}: {_named(head, shown)}"
        case _:
            return f"{_BEFORE[kind]}{_named(head, shown)}"


def _named(head: Head, shown: CallHead | None) -> str:
    """The call that a line is about, and how many more there are."""
    sent, left = _sent(head.calls), broken(head.calls)
    name = (shown.tool if shown else "") or "a call"
    more = len(sent or left) - 1
    return f"{name}{f' +{more}' if more > 0 else ''}{f', {len(left)} stayed text' if sent and left else ''}"


def _of_native(head: Head) -> str:
    name = next(iter(head.native_tools), "") or "call"
    return f"native {name}" + (f" +{head.native_calls - 1}" if head.native_calls > 1 else "")


def next_of(at: float, outcomes: Iterable[OutcomeRecord | Told], request_id: str = "") -> Next:
    """How an answer of that time fared, from what its conversation told later: the first turn behind it speaks.

    What its own request told is of the answer before it, though it was told later than the request began.
    """
    # By both, as an outcome's record holds the id and what stands beside it a checksum.
    own = {request_id, hash(request_id)} if request_id else set()
    later = sorted(
        (each for each in outcomes if each.at > at and each.reported_by not in own), key=lambda each: each.at
    )
    turn = [each for each in later if each.reported_by == later[0].reported_by and each.at <= later[0].at + _TURN_S]
    # One word against it outweighs the rest: a turn may bring a result for each of several calls.
    for each in turn:
        if each.outcome == "rejected":
            return Next("rejected", each.reason)
    if any(each.outcome == "no_tool_used" for each in turn):
        return Next("complained")
    return Next("accepted") if turn else Next()


def head_of(record: RequestRecord) -> Head:
    """Of a request's record, what its line shows."""
    return Head(
        id=record.id,
        at=record.at,
        key=record.key,
        model=record.model,
        arm=record.arm,
        strategy=record.strategy,
        tools=record.tools,
        status=record.status,
        healthy=record.healthy,
        end=record.end,
        error=record.error,
        finish_reason=record.finish_reason,
        native_calls=record.native_calls,
        native_tools=record.native_tools,
        duration_s=record.duration_s,
        calls=tuple(
            CallHead(
                number=call.number,
                dialect=call.dialect,
                tool=call.tool,
                score=call.score,
                decision=call.decision,
                reason=call.reason,
                meant=call.meant,
                signs=call.signs,
            )
            for call in record.calls
        ),
    )
