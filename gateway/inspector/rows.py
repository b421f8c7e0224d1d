"""One line for each answer: what became of it, as a sign and a word, and how the next turn fared."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from attrs import frozen

from gateway.core.records import Arm, OutcomeRecord, RequestRecord

__all__ = [
    "WORDS",
    "CallHead",
    "Head",
    "Next",
    "Row",
    "Seen",
    "Told",
    "head_of",
    "kind_of",
    "next_of",
    "row_of",
    "shown_call",
]

Kind = Literal["delivered", "would", "text", "cut", "repaired", "overheard", "native", "prose", "error"]
_SENT = {"delivered": "delivered", "would_deliver": "would", "repaired": "repaired"}
WORDS = ("accepted", "rejected", "complained")
"""What a next turn can say of an answer."""
_ENDS = {"client_abort": "the client left"}


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

    @property
    def is_meant(self) -> bool:
        return bool(self.tool) if self.meant is None else self.meant


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

    @property
    def sent(self) -> Sequence[CallHead]:
        return [call for call in self.calls if call.decision in _SENT]

    @property
    def broken(self) -> Sequence[CallHead]:
        return [call for call in self.calls if call.decision == "refused" and call.is_meant]


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
        head = self.head
        match key:
            case "model":
                return (head.model,)
            case "arm":
                return (head.arm,)
            case "id":
                return (head.id,)
            case "outcome":
                return (self.next.word or "unknown", kind_of(head))
            case "label":
                return ["right" if is_right else "wrong" for is_right in self.labels.values()]
            case "tool":
                return [*head.native_tools, *(call.tool for call in head.calls)]
            case "dialect":
                return [call.dialect for call in head.calls]
            case "reason":
                return [call.reason for call in head.broken]
            case "decision":
                return [call.decision for call in head.calls if call.decision != "refused" or call.is_meant]
            case _:
                return ()

    @property
    def scores(self) -> Sequence[int]:
        return [call.score for call in self.head.calls if call.score]


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
            "ms": round(head.duration_s * 1000),
            "key": head.key,
            "label": next(("right" if is_right else "wrong" for is_right in self.labels.values()), None),
            "number": self._number(),
        }

    def _number(self) -> int | None:
        """The candidate that a label of this line is about."""
        shown = shown_call(self.head)
        return None if shown is None else shown.number


def shown_call(head: Head) -> CallHead | None:
    """The candidate that a line and its detail are about: a call, else the broken one that came furthest."""
    if head.sent:
        return head.sent[0]
    overheard = [call for call in head.calls if call.decision == "overheard"]
    return max(head.broken, key=lambda call: call.score, default=None) or next(iter(overheard), None)


def row_of(head: Head, *, cursor: str, next_: Next, labels: Mapping[int, bool] | None = None) -> Row:
    """The line of a record."""
    kind, sign, what = _what(head)
    shown = shown_call(head)
    return Row(
        head=head,
        cursor=cursor,
        kind=kind,
        sign=sign,
        what=what,
        tool=shown.tool if shown else next(iter(head.native_tools), ""),
        dialect=shown.dialect if shown else "",
        score=shown.score if shown and shown.score else None,
        next=next_,
        labels=labels or {},
    )


def kind_of(head: Head) -> Kind:
    """What happened, in one word."""
    return _what(head)[0]


def _what(head: Head) -> tuple[Kind, str, str]:
    if head.sent:
        return _of_sent(head.sent)
    if not head.healthy or (head.error and not head.calls):
        return "error", "!", _ENDS.get(head.end, head.error or head.end)
    if head.broken:
        return _of_broken(head)
    if head.native_calls:
        return "native", "=", _of_native(head)
    shown = shown_call(head)
    if shown is not None:
        return "overheard", "◇", f"overheard: {shown.tool}"
    return "prose", "·", "prose"


def _of_native(head: Head) -> str:
    name = next(iter(head.native_tools), "") or "call"
    return f"native {name}" + (f" +{head.native_calls - 1}" if head.native_calls > 1 else "")


def _of_sent(sent: Sequence[CallHead]) -> tuple[Kind, str, str]:
    name = (sent[0].tool or "a call") + (f" +{len(sent) - 1}" if len(sent) > 1 else "")
    match sent[0].decision:
        case "would_deliver":
            return "would", "◇", f"would be {name}"
        case "repaired":
            return "repaired", "↻", f"asked again, then ✓ {name}"
        case _:
            return "delivered", "✓", name


def _of_broken(head: Head) -> tuple[Kind, str, str]:
    shown = shown_call(head) or head.broken[0]
    name = (shown.tool or "a call") + (f" +{len(head.broken) - 1}" if len(head.broken) > 1 else "")
    if shown.reason == "cut":
        return "cut", "✗", f"cut {'by length' if head.finish_reason == 'length' else 'off'}: {name}"
    return "text", "✗", f"stayed text: {name}"


def next_of(at: float, outcomes: Iterable[OutcomeRecord | Told]) -> Next:
    """How an answer of that time fared, from what its conversation told later: the first turn behind it speaks."""
    later = sorted((each for each in outcomes if each.at > at), key=lambda each: each.at)
    turn = [each for each in later if each.reported_by == later[0].reported_by] if later else []
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
