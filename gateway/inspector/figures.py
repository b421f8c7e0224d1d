"""The figures above the list: those of the report, over a short period, and how often each model leaks."""

import time
from typing import Any

import attrs
from attrs import define, field

from gateway.core.ports import Store
from gateway.core.records import OutcomeRecord, RequestRecord
from gateway.report.facts.intervals import Rate, rate
from gateway.report.facts.sketches import Quantiles
from gateway.report.tallies.leaks import LeakTally

__all__ = ["PERIODS", "Figures"]

PERIODS = {"5m": 300.0, "1h": 3600.0, "24h": 86_400.0, "7d": 7 * 86_400.0}
_FRESH = 20
"""The time that adding up took, times this, is how long the sum is good."""
_UNTOUCHED = frozenset({"control", "dry_run"})


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
        leaks, added, bad = LeakTally(), Quantiles(), {"live": [0, 0], "untouched": [0, 0]}
        async for record in self.store.scan(RequestRecord, since=since):
            leaks.add(record)
            if record.tools:
                added.add(record.overhead_s * 1000)
                _count(bad, record.arm, is_bad=not record.healthy, is_turn=True)
        async for outcome in self.store.scan(OutcomeRecord, since=since):
            leaks.add_outcome(outcome)
            _count(bad, outcome.arm, is_bad=outcome.outcome != "accepted", is_turn=False)
        told = leaks.figures()
        return {
            "since": since,
            "answers": told.answers,
            "conversations": told.conversations,
            "native": told.native,
            "leaked": _shown(told.leaked),
            "became": _shown(told.became),
            "stayed_text": told.stayed_text,
            "bad": {side: _shown(rate(hits, of)) for side, (hits, of) in bad.items()},
            "added_ms_p95": added.spread().p95,
            "models": [
                {**attrs.asdict(each), "leaked": _shown(each.leaked), "became": _shown(each.became)}
                for each in told.models[:50]
            ],
        }


def _count(bad: dict[str, list[int]], arm: str, *, is_bad: bool, is_turn: bool) -> None:
    """A turn is bad where its answer failed, or the next one says so."""
    side = "live" if arm == "live" else "untouched" if arm in _UNTOUCHED else None
    if side is not None:
        bad[side][0] += is_bad
        bad[side][1] += is_turn


def _shown(found: Rate) -> dict[str, Any]:
    return {
        "share": found.share,
        "low": found.low,
        "high": found.high,
        "hits": found.hits,
        "of": found.of,
        "too_few": found.too_few,
    }
