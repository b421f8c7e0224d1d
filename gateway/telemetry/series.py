"""The numbers behind the metrics: a list of floats per series, found by its label values, read only when scraped.

A request touches some twenty series, so feeding one is a look-up and an addition, without a lock: each series is fed
by one thread, and a scrape that meets an addition sees the number before it or the one after.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from operator import itemgetter
from typing import Any, Literal

from prometheus_client.metrics_core import Metric as Sampled
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from gateway.telemetry.labels import LabelGuard

__all__ = ["Families", "Family", "HistogramFamily", "Series"]

Series = list[float]
Kind = Literal["counter", "gauge", "histogram"]
Key = Callable[[Mapping[str, str]], Any]


class Family:
    """One counter or gauge and its series."""

    __slots__ = ("_guard", "_help", "_kind", "_labels", "_name", "_series", "key", "known")

    def __init__(self, name: str, help: str, kind: Kind, labels: tuple[str, ...], guard: LabelGuard) -> None:
        self._name = name
        self._help = help
        self._kind = kind
        self._labels = labels
        self._guard = guard
        self.key: Key = itemgetter(*labels) if labels else _no_key
        """What of some labels tells the series."""
        self._series: dict[tuple[str, ...], Series] = {}
        self.known: dict[Any, Series] = {}
        """The series by the label values as they come, where those may stand as they are."""
        if not labels:
            self.series({})

    def add(self, labels: Mapping[str, str], amount: float) -> None:
        self.series(labels)[0] += amount

    def set(self, labels: Mapping[str, str], value: float) -> None:
        self.series(labels)[0] = value

    def series(self, labels: Mapping[str, str]) -> Series:
        """The series with these labels, which begins at 0; their values are bounded."""
        key = self.key(labels)
        known = self.known.get(key)
        return self._find(key, labels) if known is None else known

    def clear(self) -> None:
        """Forget every series."""
        self.known.clear()
        self._series.clear()

    def sampled(self) -> Sampled:
        """What a scrape is given."""
        name = self._name.removesuffix("_total") if self._kind == "counter" else self._name
        sampled = Sampled(name, self._help, self._kind)
        for values, series in list(self._series.items()):
            sampled.add_sample(self._name, dict(zip(self._labels, values, strict=True)), series[0])
        return sampled

    def _find(self, key: Any, labels: Mapping[str, str]) -> Series:
        raw = tuple(labels[label] for label in self._labels)
        values = tuple(self._guard.bounded(label, value) for label, value in zip(self._labels, raw, strict=True))
        series = self._series.setdefault(values, self._new())
        if values == raw:  # a hostile value must not make the cache grow either
            self.known[key] = series
        return series

    def _new(self) -> Series:
        return [0.0]


class HistogramFamily(Family):
    """One histogram and its series: the sum, then how many fell into each bucket, the last one without an edge."""

    __slots__ = ("_exemplars", "_names", "edges")

    def __init__(
        self, name: str, help: str, labels: tuple[str, ...], guard: LabelGuard, edges: tuple[float, ...]
    ) -> None:
        self.edges = edges
        self._names = tuple(map(_written, (*edges, float("inf"))))
        self._exemplars: dict[tuple[int, int], Exemplar] = {}
        """The last traced value of each bucket, by the series and the bucket's place."""
        super().__init__(name, help, "histogram", labels, guard)

    def observe(self, labels: Mapping[str, str], value: float) -> None:
        series = self.series(labels)
        series[0] += value
        series[1 + bisect_left(self.edges, value)] += 1

    def observe_traced(self, labels: Mapping[str, str], value: float, trace: str, now: float) -> None:
        """Like `observe`, with the trace that the value belongs to."""
        self.observe(labels, value)
        at = bisect_left(self.edges, value)
        self._exemplars[id(self.series(labels)), at] = Exemplar({"trace_id": trace}, value, now)

    def sampled(self) -> Sampled:
        sampled = Sampled(self._name, self._help, self._kind)
        exemplars = self._exemplars
        for values, series in list(self._series.items()):
            labels = dict(zip(self._labels, values, strict=True))
            total, *buckets = series
            counts = list(accumulate(buckets))
            for at, (name, count) in enumerate(zip(self._names, counts, strict=True)):
                exemplar = exemplars.get((id(series), at)) if exemplars else None
                sampled.add_sample(f"{self._name}_bucket", {**labels, "le": name}, count, exemplar=exemplar)
            sampled.add_sample(f"{self._name}_count", labels, counts[-1])
            sampled.add_sample(f"{self._name}_sum", labels, total)
        return sampled

    def _new(self) -> Series:
        return [0.0] * (2 + len(self.edges))


class Families(Collector):
    """All families of one registry, in their order; `settle` adds what their series do not hold yet."""

    def __init__(self, families: Iterable[Family], settle: Callable[[], None]) -> None:
        self._families = tuple(families)
        self._settle = settle

    def collect(self) -> Iterator[Sampled]:
        self._settle()
        for family in self._families:
            yield family.sampled()


def _no_key(labels: Mapping[str, str]) -> tuple[str, ...]:
    return ()


def _written(edge: float) -> str:
    return str(floatToGoString(edge))  # type: ignore[no-untyped-call]
