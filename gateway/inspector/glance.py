"""What a filter makes of a request's brief: whether the request can be one of those that are looked for at all.

Where this says yes the row itself is asked again, so it may say yes too often, and never no too often.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from attrs import frozen

from gateway.core.ports import NEXT, Glance
from gateway.core.records import Brief
from gateway.inspector.filters import Filter
from gateway.inspector.rows import kind_of, scores_of, words_of

__all__ = ["by_conversation", "by_dialect", "by_id", "by_reason", "looking"]

_BESIDE = ("id", "label", "outcome")
"""What no brief can say by itself."""


def by_id(request_id: str) -> Glance:
    """The requests of this id."""
    return Glance(ids=(request_id,))


def by_conversation(key: str) -> Glance:
    """The requests of this conversation."""
    return Glance(key=key)


def by_reason(reason: str) -> Glance:
    """The requests with a candidate that stayed text for this reason."""
    return Glance(brief=lambda brief: NEXT if any(call.reason == reason for call in brief.calls) else ())


def by_dialect(dialect: str) -> Glance:
    """The requests with a candidate in this dialect."""
    return Glance(brief=lambda brief: NEXT if any(call.dialect == dialect for call in brief.calls) else ())


def looking(wanted: Filter, labels: Mapping[str, Mapping[int, bool]]) -> Glance:
    """What a filter looks for; `labels` is what people said of candidates, by request and number."""
    ids = set(wanted.ids) if wanted.ids else None
    if wanted.asks_for_label:
        said = {each for each, found in labels.items() if _has_label(wanted, found.values())}
        ids = said if ids is None else said & ids
    of_ids = wanted.only("id")
    return Glance(
        brief=_brief(wanted) if wanted.but("id", "label").terms else None,
        ids=ids,
        has_id=(lambda name: of_ids.matches(_Words((name,)))) if wanted.asks_for_ids else None,
        also=wanted.bare,
    )


def _has_label(wanted: Filter, found: Iterable[bool]) -> bool:
    return wanted.only("label").matches(_Words(tuple("right" if is_right else "wrong" for is_right in found)))


def _brief(wanted: Filter) -> Callable[[Brief], Collection[str]]:
    """What a filter makes of briefs; what the next turn must have said depends on what happened alone."""
    rest, outcome = wanted.but(*_BESIDE), wanted.only("outcome")
    asks_for_kind = not outcome.values("outcome") <= {"unknown", *NEXT}
    by_kind: dict[str, Collection[str]] = {}

    def words(brief: Brief) -> Collection[str]:
        if not rest.matches(_Looked(brief)):
            return ()
        if not outcome.terms:
            return NEXT
        kind = kind_of(brief) if asks_for_kind else ""
        if kind not in by_kind:
            by_kind[kind] = [word for word in NEXT if outcome.matches(_Words((word or "unknown", kind)))]
        return by_kind[kind]

    return words


@frozen
class _Looked:
    brief: Brief

    def words(self, key: str) -> Sequence[str]:
        return words_of(self.brief, key)

    @property
    def scores(self) -> Sequence[int]:
        return scores_of(self.brief)


@frozen
class _Words:
    """What one thing is said of, whatever it is asked."""

    said: tuple[str, ...]
    scores: Sequence[int] = ()

    def words(self, key: str) -> Sequence[str]:
        return self.said
