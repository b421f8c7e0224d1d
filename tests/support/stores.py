"""Stores that fail on demand, and metrics that can be read back."""

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import define, field

from gateway.core.ports import StoreError
from gateway.core.records import FeedbackRecord, Record
from gateway.state.memory import MemoryStore

__all__ = ["FailingStore", "Gauges", "rating"]


class FailingStore(MemoryStore):
    """In memory; away while `is_away`, and never able to take a record that `refuses` names."""

    is_away = False
    refuses: frozenset[float] = frozenset()
    batches: tuple[int, ...] = ()

    async def append(self, records: Sequence[Record]) -> None:
        self._check()
        if any(record.at in self.refuses for record in records):
            raise StoreError("no")
        await super().append(records)
        self.batches = (*self.batches, len(records))

    async def get(self, *keys: str) -> dict[str, bytes]:
        self._check()
        return await super().get(*keys)

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> None:
        self._check()
        await super().put(key, value, ttl_s=ttl_s)

    async def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        self._check()
        return await super().swap(key, old, new)

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("away")


@define
class Gauges:
    """Metrics, as far as the state package tells any."""

    counts: Counter[tuple[str, ...]] = field(factory=Counter)
    gauges: dict[str, float] = field(factory=dict)

    def count(self, name: str, labels: Mapping[str, str], amount: float = 1) -> None:
        self.counts[name, *labels.values()] += int(amount)

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        raise AssertionError(name)

    def set(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self.gauges[name] = value

    @property
    def lost(self) -> dict[str, int]:
        """Records lost, by reason."""
        return {key[1]: count for key, count in self.counts.items() if key[0] == "toolgate_store_records_lost_total"}


def rating(at: float) -> FeedbackRecord:
    """A small record."""
    return FeedbackRecord(at=at, completion_id="c", rating="good")
