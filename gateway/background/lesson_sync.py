"""What was learned of models, by all processes: each keeps its own copy, and the store brings them together.

In the store is one JSON document, a list of `[upstream, model, reason, until, since, rule, able]` by the wall clock,
as monotonic clocks of different machines have nothing in common. Of two lessons the one that was learned later holds;
one without a rule says that what was learned before holds no longer.
"""

import time
from collections.abc import Callable, Mapping

import msgspec
from attrs import define, field, frozen

from gateway.core.ports import Store, StoreError
from gateway.traffic.lesson_rules import FOR_AN_HOUR, LESSON_S, MAX_PAIRS, PROMPTED, WEEK_S, Lesson, Terms

__all__ = ["SharedLessons"]

_KEY = "lessons"
_MAX_NAME = 200
"""A client chooses the model's name; a longer one is kept in this process alone."""

Pair = tuple[str, str]
Row = tuple[str, str, str, float, float, str, list[str]]
OldRow = tuple[str, str, str, float]
"""Of versions to 0.3, which may share a store while one takes the place of the other."""

_ROWS = msgspec.json.Decoder(list[Row])
_OLD_ROWS = msgspec.json.Decoder(list[OldRow])
_ENDED = ""
"""The rule of a lesson that ends another one."""


@frozen
class _Learned:
    reason: str
    until: float
    since: float = 0.0
    rule: str = PROMPTED
    able: frozenset[str] = frozenset()


@define
class SharedLessons:
    """Lessons that all processes of a store learn from each other, whenever each calls `sync`."""

    _store: Store
    _wall: Callable[[], float] = time.time
    _lessons: dict[Pair, _Learned] = field(init=False, factory=dict)
    _document: bytes | None = field(init=False, default=None)
    _theirs: dict[Pair, _Learned] = field(init=False, factory=dict)
    is_still: bool = field(init=False, default=True)
    """The others know all that this process does."""

    def learn(self, upstream: str, model: str, reason: str, now: float, terms: Terms = FOR_AN_HOUR) -> None:
        """From now on, for so long."""
        del now
        wall = self._wall()
        self.is_still = False
        self._lessons[upstream, model] = _Learned(reason, wall + terms.seconds, wall, terms.rule, terms.able)
        if len(self._lessons) > MAX_PAIRS:
            self._lessons = _bounded(self._lessons)

    def forget(self, upstream: str, model: str, now: float) -> None:
        """What was learned of it holds no longer, here and elsewhere."""
        self.learn(upstream, model, "ended", now, Terms(rule=_ENDED, seconds=WEEK_S))

    def recall(self, upstream: str, model: str, now: float) -> Lesson | None:
        """What holds now; `until` and `since` are told by the caller's own clock."""
        learned = self._lessons.get((upstream, model))
        if learned is None or learned.rule == _ENDED:
            return None
        wall = self._wall()
        if learned.until <= wall:
            return None
        until, since = now + learned.until - wall, now + learned.since - wall
        return Lesson(reason=learned.reason, until=until, rule=learned.rule, since=since, able=learned.able)

    async def sync(self) -> None:
        """Take over what others learned and tell them what they do not know; while the store is away, nothing."""
        try:
            document = (await self._store.get(_KEY)).get(_KEY)
            self._take_over(document)
            shared = {pair: learned for pair, learned in self._lessons.items() if _is_shareable(pair)}
            self.is_still = not any(self._is_news(pair, learned) for pair, learned in shared.items())
            if not self.is_still:
                await self._store.swap(_KEY, document, _encoded(shared))  # who loses the race tries again next time
        except StoreError:
            return

    def _take_over(self, document: bytes | None) -> None:
        now = self._wall()
        if document != self._document:
            self._document = document
            self._theirs = _decoded(document, now)
        lessons = {**self._theirs, **self._lessons}
        for pair, learned in self._theirs.items():
            if _is_later(learned, lessons[pair]):
                lessons[pair] = learned
        self._lessons = _bounded({pair: learned for pair, learned in lessons.items() if learned.until > now})

    def _is_news(self, pair: Pair, learned: _Learned) -> bool:
        theirs = self._theirs.get(pair)
        return theirs is None or _is_later(learned, theirs)


def _is_later(one: _Learned, other: _Learned) -> bool:
    # The end as well: of two lessons of one moment all processes have to keep the same one.
    return (one.since, one.until) > (other.since, other.until)


def _bounded(lessons: Mapping[Pair, _Learned]) -> dict[Pair, _Learned]:
    """The latest ones."""
    if len(lessons) <= MAX_PAIRS:
        return dict(lessons)
    latest = sorted(lessons.items(), key=lambda lesson: lesson[1].until, reverse=True)
    return dict(latest[:MAX_PAIRS])


def _is_shareable(pair: Pair) -> bool:
    # A lone surrogate in a model's name, which JSON can say, would keep the whole document from being encoded.
    return all(len(name) <= _MAX_NAME and name.isprintable() for name in pair)


def _encoded(lessons: Mapping[Pair, _Learned]) -> bytes:
    return msgspec.json.encode(
        [(*pair, each.reason, each.until, each.since, each.rule, sorted(each.able)) for pair, each in lessons.items()]
    )


def _decoded(document: bytes | None, now: float) -> dict[Pair, _Learned]:
    """What cannot be read counts as nothing; a clock that is ahead does not make lessons last longer."""
    return {
        (upstream, model): _Learned(reason, min(until, now + WEEK_S), min(since, now), rule, frozenset(able))
        for upstream, model, reason, until, since, rule, able in _rows(document, now)[:MAX_PAIRS]
    }


def _rows(document: bytes | None, now: float) -> list[Row]:
    if document is None:
        return []
    # The present form first: rows of the older one are shorter, so neither is taken for the other.
    try:
        return _ROWS.decode(document)
    except (ValueError, RecursionError):
        pass
    try:
        old = _OLD_ROWS.decode(document)
    except (ValueError, RecursionError):
        return []
    # The older form did not say when a lesson was learned; all of them lasted equally long.
    return [(*row[:3], min(row[3], now + LESSON_S), row[3] - LESSON_S, PROMPTED, []) for row in old]
