"""What was learned of models, by all processes: each keeps its own copy, and the store brings them together.

In the store is one JSON document, a list of `[upstream, model, reason, until]` by the wall clock, as monotonic clocks
of different machines have nothing in common.
"""

import time
from collections.abc import Callable, Mapping

import msgspec
from attrs import define, field, frozen

from gateway.core.ports import Store, StoreError
from gateway.traffic.lesson_rules import LESSON_S, MAX_PAIRS, Lesson

__all__ = ["SharedLessons"]

_KEY = "lessons"
_MAX_NAME = 200
"""A client chooses the model's name; a longer one is kept in this process alone."""

Pair = tuple[str, str]
Row = tuple[str, str, str, float]

_DECODER = msgspec.json.Decoder(list[Row])


@frozen
class _Learned:
    reason: str
    until: float


@define
class SharedLessons:
    """Lessons that all processes of a store learn from each other, whenever each calls `sync`."""

    _store: Store
    _wall: Callable[[], float] = time.time
    _lessons: dict[Pair, _Learned] = field(init=False, factory=dict)
    _document: bytes | None = field(init=False, default=None)
    _theirs: dict[Pair, _Learned] = field(init=False, factory=dict)

    def learn(self, upstream: str, model: str, reason: str, now: float) -> None:
        """From now on, for an hour."""
        self._lessons[upstream, model] = _Learned(reason, self._wall() + LESSON_S)
        if len(self._lessons) > MAX_PAIRS:
            self._lessons = _bounded(self._lessons)

    def recall(self, upstream: str, model: str, now: float) -> Lesson | None:
        """What holds now; `until` is told by the caller's own clock."""
        learned = self._lessons.get((upstream, model))
        left_s = 0.0 if learned is None else learned.until - self._wall()
        return Lesson(reason=learned.reason, until=now + left_s) if learned is not None and left_s > 0 else None

    async def sync(self) -> None:
        """Take over what others learned and tell them what they do not know; while the store is away, nothing."""
        try:
            document = (await self._store.get(_KEY)).get(_KEY)
            self._take_over(document)
            shared = {pair: learned for pair, learned in self._lessons.items() if _is_shareable(pair)}
            if any(self._is_news(pair, learned) for pair, learned in shared.items()):
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
            if learned.until > lessons[pair].until:
                lessons[pair] = learned
        self._lessons = _bounded({pair: learned for pair, learned in lessons.items() if learned.until > now})

    def _is_news(self, pair: Pair, learned: _Learned) -> bool:
        theirs = self._theirs.get(pair)
        return theirs is None or theirs.until < learned.until


def _bounded(lessons: Mapping[Pair, _Learned]) -> dict[Pair, _Learned]:
    """The latest ones."""
    if len(lessons) <= MAX_PAIRS:
        return dict(lessons)
    latest = sorted(lessons.items(), key=lambda lesson: lesson[1].until, reverse=True)
    return dict(latest[:MAX_PAIRS])


def _is_shareable(pair: Pair) -> bool:
    return all(len(name) <= _MAX_NAME and name.isprintable() for name in pair)


def _encoded(lessons: Mapping[Pair, _Learned]) -> bytes:
    return msgspec.json.encode([(*pair, learned.reason, learned.until) for pair, learned in lessons.items()])


def _decoded(document: bytes | None, now: float) -> dict[Pair, _Learned]:
    """What cannot be read counts as nothing; a clock that is ahead does not make lessons last longer."""
    try:
        rows = [] if document is None else _DECODER.decode(document)
    except (ValueError, RecursionError):
        return {}
    return {
        (upstream, model): _Learned(reason, min(until, now + LESSON_S))
        for upstream, model, reason, until in rows[:MAX_PAIRS]
    }
