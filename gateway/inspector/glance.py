"""What a filter makes of a request's brief: whether the request can be one of those that are looked for at all.

Where this says yes the row itself is asked again, so it may say yes too often, and never no too often.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from attrs import define, field, frozen

from gateway.core.ports import Glance
from gateway.core.records import Brief
from gateway.inspector.filters import Filter
from gateway.inspector.rows import WORDS, CallHead, Head, Next, Seen, kind_of
from gateway.state.sqlite_briefs import checksum

__all__ = ["Looking", "by_conversation", "by_dialect", "by_id", "by_reason"]

Labels = frozenset[bool]
_NO_LABELS: Labels = frozenset()
_UNKNOWN = frozenset({""})


def by_id(request_id: str) -> Glance:
    """The requests of this id."""
    wanted = checksum(request_id)
    return lambda _: lambda request, key: request == wanted


def by_conversation(key: str) -> Glance:
    """The requests of this conversation."""
    wanted = checksum(key)
    return lambda _: lambda request, key: key == wanted


def by_reason(reason: str) -> Glance:
    """The requests with a candidate that stayed text for this reason."""
    return lambda brief: any(call.reason == reason for call in brief.calls)


def by_dialect(dialect: str) -> Glance:
    """The requests with a candidate in this dialect."""
    return lambda brief: any(call.dialect == dialect for call in brief.calls)


@frozen
class Looking:
    """A filter, with what people and later turns said."""

    wanted: Filter
    labels: Mapping[int, Labels]
    """By the checksum of the request's id."""
    nexts: Mapping[int, frozenset[str]]
    """What may have been said by the next turn, by the checksum of the conversation's key."""
    _rest: Filter = field(init=False)
    _exact: frozenset[int] = field(init=False)
    """An id stands in no brief: one that was said whole is known by its checksum."""
    _named: frozenset[int] = field(init=False)
    _said: tuple[Labels, ...] = field(init=False)
    _words: tuple[str, ...] = field(init=False)
    _has_kind: bool = field(init=False)

    @_has_kind.default
    def _asks_for_kind(self) -> bool:
        return not self.wanted.values("outcome") <= {"unknown", *WORDS}

    @_rest.default
    def _without_ids(self) -> Filter:
        return self.wanted.but("id")

    @_exact.default
    def _ids(self) -> frozenset[int]:
        return frozenset(map(checksum, self.wanted.ids))

    @_named.default
    def _bare(self) -> frozenset[int]:
        return frozenset(map(checksum, self.wanted.bare))

    @_said.default
    def _labels_that_count(self) -> tuple[Labels, ...]:
        return tuple({_NO_LABELS, *self.labels.values()}) if self.wanted.asks("label") else (_NO_LABELS,)

    @_words.default
    def _words_that_count(self) -> tuple[str, ...]:
        return ("", *WORDS) if self.wanted.asks("outcome") else ("",)

    def __call__(self, brief: Brief) -> Callable[[int, int], bool] | bool:
        seen = _Glimpse(brief, has_kind=self._has_kind)
        allowed = {
            said: frozenset(word for word in self._words if self._rest.matches(seen.when(word, said)))
            for said in self._said
        }
        if not (self._exact or self._named):
            if not any(allowed.values()):
                return False
            if all(len(words) == len(self._words) for words in allowed.values()):
                return True
        return partial(self._may, allowed)

    def _may(self, allowed: Mapping[Labels, frozenset[str]], request: int, key: int) -> bool:
        if self._exact and request not in self._exact:
            return False
        words = allowed[self.labels.get(request, _NO_LABELS) if len(allowed) > 1 else _NO_LABELS]
        return request in self._named or "" in words or not words.isdisjoint(self.nexts.get(key, _UNKNOWN))


@define
class _Glimpse:
    """What a filter asks of a row, of a brief and what may have been said of it."""

    brief: Brief
    next: str = ""
    labels: Labels = _NO_LABELS
    has_kind: bool = True
    """It is asked what happened, too."""
    _kind: str = ""

    def when(self, next_: str, labels: Labels) -> "_Glimpse":
        """The same, if this had been said."""
        self.next, self.labels = next_, labels
        return self

    @property
    def kind(self) -> str:
        if not self._kind:
            self._kind = kind_of(_head(self.brief))
        return self._kind

    def words(self, key: str) -> Sequence[str]:
        brief = self.brief
        match key:
            case "model":
                return (brief.model,)
            case "arm":
                return (brief.arm,)
            case "tool":
                return [*filter(None, brief.native), *(call.tool for call in brief.calls)]
            case "dialect":
                return [call.dialect for call in brief.calls]
            case "outcome":
                return (self.next or "unknown", self.kind) if self.has_kind else (self.next or "unknown",)
            case _:
                return Seen(_head(brief), Next(), dict(enumerate(self.labels))).words(key)

    @property
    def scores(self) -> Sequence[int]:
        return [call.score for call in self.brief.calls if call.score]


def _head(brief: Brief) -> Head:
    calls = tuple(
        CallHead(
            number=number,
            dialect=call.dialect,
            tool=call.tool,
            score=call.score,
            decision=call.decision,
            reason=call.reason,
            meant=call.meant,
        )
        for number, call in enumerate(brief.calls)
    )
    return Head(
        id="",
        at=0.0,
        model=brief.model,
        arm=brief.arm,
        healthy=brief.is_healthy,
        error="error" if brief.has_error else None,
        native_calls=len(brief.native),
        native_tools=tuple(filter(None, brief.native)),
        calls=calls,
    )
