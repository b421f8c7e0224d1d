"""The figures above the list: those of the report, over a short period, and how often each model leaks."""

import time
from typing import Any

import attrs
from attrs import define, field

from gateway.core.ports import Counted, Store
from gateway.core.records import Brief, OutcomeRecord, RequestRecord
from gateway.report.facts.candidates import UNTOUCHED
from gateway.report.facts.intervals import Rate, rate
from gateway.report.facts.sketches import Quantiles
from gateway.report.tallies.leaks import LeakTally

__all__ = ["PERIODS", "Figures"]

PERIODS = {"5m": 300.0, "1h": 3600.0, "24h": 86_400.0, "7d": 7 * 86_400.0}
_FRESH = 20
"""The time that adding up took, times this, is how long the sum is good."""


@define
class Figures:
    """Adds up a period; what has just been added up is not added up again."""

    store: Store
    _made: dict[str, tuple[float, dict[str, Any]]] = field(init=False, factory=dict)

    async def of(self, period: str) -> dict[str, Any]:
        """The figures of the period that ends now."""
        until, found = self._made.get(period, (0.0, {}))
        started = time.monotonic()
        if started < until:
            return found
        found = await self._added_up(PERIODS[period])
        ended = time.monotonic()
        self._made[period] = (ended + max(1.0, _FRESH * (ended - started)), found)
        return found

    async def _added_up(self, seconds: float) -> dict[str, Any]:
        since = time.time() - seconds
        sums = await _summed(self.store, since)
        told = sums.leaks.figures()
        return {
            "since": since,
            "answers": told.answers,
            "conversations": told.conversations,
            "native": told.native,
            "leaked": _shown(told.leaked),
            "became": _shown(told.became),
            "stayed_text": told.stayed_text,
            "bad": {side: _shown(rate(hits, of)) for side, (hits, of) in sums.bad.items()},
            "added_ms_p95": sums.added_ms_p95,
            "models": [
                {**attrs.asdict(each), "leaked": _shown(each.leaked), "became": _shown(each.became)}
                for each in told.models[:50]
            ],
        }


@define
class _Sums:
    leaks: LeakTally = field(factory=LeakTally)
    bad: dict[str, list[int]] = field(factory=lambda: {"live": [0, 0], "untouched": [0, 0]})
    added_ms_p95: float | None = None

    def add(self, brief: Brief, many: int) -> None:
        """So many answers to requests with tools."""
        self.leaks.count(brief, many)
        self.count(brief.arm, is_bad=not brief.healthy, turns=many, count=many)

    def count(self, arm: str, *, is_bad: bool, turns: int = 0, count: int = 1) -> None:
        """A turn is bad where its answer failed, or the next one says so."""
        side = "live" if arm == "live" else "untouched" if arm in UNTOUCHED else None
        if side is not None:
            self.bad[side][0] += count * is_bad
            self.bad[side][1] += turns


async def _summed(store: Store, since: float) -> _Sums:
    sums = _Sums()
    counted = await store.counted(since, sums.add)
    return await _read(store, since) if counted is None else _with(sums, counted)


def _with(sums: _Sums, counted: Counted) -> _Sums:
    sums.added_ms_p95 = None if counted.added_s is None else counted.added_s * 1000
    sums.leaks.more_conversations = counted.conversations
    for arm, word, many in counted.fared:
        sums.count(arm, is_bad=word != "accepted", count=many)
    for model, many in counted.rejected:
        sums.leaks.count_rejected(model, many)
    return sums


async def _read(store: Store, since: float) -> _Sums:
    """The same from the records themselves; the store reads them in pages, and between two others have their turn."""
    sums, added = _Sums(), Quantiles()
    async for record in store.scan(RequestRecord, since=since):
        sums.leaks.add(record)
        if record.tools:
            added.add(record.overhead_s * 1000)
            sums.count(record.arm, is_bad=not record.healthy, turns=1)
    async for outcome in store.scan(OutcomeRecord, since=since):
        sums.leaks.add_outcome(outcome)
        sums.count(outcome.arm, is_bad=outcome.outcome != "accepted")
    sums.added_ms_p95 = added.spread().p95
    return sums


def _shown(found: Rate) -> dict[str, Any]:
    return {
        "share": found.share,
        "low": found.low,
        "high": found.high,
        "hits": found.hits,
        "of": found.of,
        "too_few": found.too_few,
    }
