"""How much went through, when, under which settings, and what reading it cost."""

from collections import Counter
from itertools import pairwise

from attrs import define, field

from gateway.core.call_class import CallClass
from gateway.core.records import RequestRecord
from gateway.report.facts.candidates import MAX_NAME, Pair, is_sent
from gateway.report.facts.intervals import rate
from gateway.report.facts.sketches import Chosen, Counts, Distinct, Quantiles, draw
from gateway.report.facts.tree import (
    ConfigurationShare,
    Cost,
    Gap,
    MomentFigure,
    Noise,
    PeriodFigure,
    StructuredCalls,
    Volume,
)

__all__ = ["CostTally", "HourTally", "NoiseTally", "VolumeTally"]

_MENDED = "mended"
_MENDINGS = ("mended", "supplied")
"""What becomes of a structured call that did not fit, and fits when it goes out."""
_HOUR = 3600
_DAY = 86_400
_GAPS_SHOWN = 20
_MOMENTS = 240


@define
class NoiseTally:
    """Readings that were tried again with other cuts."""

    checked: int = 0
    differences: int = 0
    examples: "Chosen[str]" = field(factory=lambda: Chosen(10))

    def add(self, record: RequestRecord) -> None:
        if record.noise is None:
            return
        self.checked += 1
        if record.noise:
            self.differences += 1
            self.examples.offer(draw(record.id, 0, has_text=True), lambda: record.id)

    def figures(self) -> Noise:
        return Noise(checked=self.checked, differences=self.differences, examples=tuple(self.examples.items()))


@define
class CostTally:
    """Time and room that reading takes."""

    overhead_ms: Quantiles = field(factory=Quantiles)
    held_bytes: Quantiles = field(factory=Quantiles)
    first_token_ms: dict[str, Quantiles] = field(factory=dict)
    read: int = 0
    dropped: int = 0

    def add(self, record: RequestRecord, *, read: bool) -> None:
        if read:
            self.read += 1
            self.dropped += record.verdict == "dropped"
            self.overhead_ms.add(record.overhead_s * 1000)
            self.held_bytes.add(record.held_bytes)
        if record.stream and record.first_sent_s is not None and record.upstream_first_s is not None:
            first = self.first_token_ms.setdefault(record.arm, Quantiles())
            first.add(max(0.0, record.first_sent_s - record.upstream_first_s) * 1000)

    def figures(self) -> Cost:
        first = {arm: quantiles.spread() for arm, quantiles in sorted(self.first_token_ms.items())}
        overhead = self.overhead_ms.spread()
        live = first["live"].p50 if "live" in first else None
        untouched = next((first[arm].p50 for arm in ("control", "dry_run") if arm in first), None)
        measured = live is not None and untouched is not None
        change = live - untouched if live is not None and untouched is not None else overhead.p50
        return Cost(
            overhead_ms=overhead,
            held_bytes=self.held_bytes.spread(),
            first_token_ms=first,
            first_token_change_ms=change,
            change_is_measured=measured,
            dropped=rate(self.dropped, self.read),
        )


@define
class _Hour:
    requests: int = 0
    calls: int = 0
    unhealthy: int = 0


@define
class HourTally:
    """Requests by the hour, and which versions and settings were at work."""

    hours: dict[int, _Hour] = field(factory=dict)
    configurations: "Counts[_Configured]" = field(factory=lambda: Counts(_Configured, limit=50))
    first: float | None = None
    last: float | None = None

    def add(self, record: RequestRecord, calls: int) -> None:
        at = record.at
        hour = self.hours.get(int(at // _HOUR))
        if hour is None:
            hour = self.hours[int(at // _HOUR)] = _Hour()
        hour.requests += 1
        hour.calls += calls
        hour.unhealthy += not record.healthy
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        configured = self.configurations.at(f"{record.version[:MAX_NAME]}\0{record.config[:MAX_NAME]}")
        configured.requests += 1
        configured.first = min(configured.first, at)
        configured.last = max(configured.last, at)

    def figures(self, since: float, until: float, requests: int) -> PeriodFigure:
        """The period that was asked for, and how much of it has records."""
        first, end = int(since // _HOUR), max(int(-(-until // _HOUR)), int(since // _HOUR) + 1)
        covered = sorted(hour for hour in self.hours if first <= hour < end)
        gaps = _gaps(covered, first, end)
        longest = sorted(gaps, key=lambda gap: -gap.hours)[:_GAPS_SHOWN]
        step = _HOUR
        while (end - first) * _HOUR / step > _MOMENTS:
            step = _DAY if step == _HOUR else 2 * step
        # A few requests within a minute are no measure of a day.
        days = max(self._span(), _HOUR) / _DAY
        return PeriodFigure(
            since=since,
            until=until,
            first=self.first,
            last=self.last,
            hours=end - first,
            hours_covered=len(covered),
            gaps=tuple(sorted(longest, key=lambda gap: gap.since)),
            gap_count=len(gaps),
            configurations=self.configured(),
            timeline=self._timeline(step),
            timeline_step_s=step,
            requests_per_day=round(requests / days, 2),
        )

    def _span(self) -> float:
        first, last = self.first, self.last
        return last - first if first is not None and last is not None else 0.0

    def _timeline(self, step: int) -> tuple[MomentFigure, ...]:
        pieces: dict[int, list[int]] = {}
        for number, hour in self.hours.items():
            piece = pieces.setdefault(number * _HOUR // step * step, [0, 0, 0])
            piece[0] += hour.requests
            piece[1] += hour.calls
            piece[2] += hour.unhealthy
        return tuple(
            MomentFigure(at=float(at), requests=counts[0], calls=counts[1], unhealthy=counts[2])
            for at, counts in sorted(pieces.items())
        )

    def configured(self) -> tuple[ConfigurationShare, ...]:
        found = [
            ConfigurationShare(
                version=name.partition("\0")[0],
                config=name.partition("\0")[2],
                requests=each.requests,
                first=each.first,
                last=each.last,
            )
            for name, each in self.configurations.items()
        ]
        return tuple(sorted(found, key=lambda each: (each.first, each.version, each.config)))


def _gaps(covered: list[int], first: int, end: int) -> list[Gap]:
    edges = [first - 1, *covered, end]
    return [
        Gap(since=float((left + 1) * _HOUR), until=float(right * _HOUR), hours=right - left - 1)
        for left, right in pairwise(edges)
        if right - left > 1
    ]


@define
class _Configured:
    requests: int = 0
    first: float = float("inf")
    last: float = 0.0


@define
class _Number:
    value: int = 0


def _numbers() -> "Counts[_Number]":
    return Counts(_Number, limit=100)


@define
class VolumeTally:
    """How much went through."""

    requests: int = 0
    streams: int = 0
    with_tools: int = 0
    forced: int = 0
    native_calls: int = 0
    text_calls: int = 0
    candidates: int = 0
    candidates_with_text: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    keys: Distinct = field(factory=Distinct)
    tokens: "Counts[_Number]" = field(factory=_numbers)
    arms: "Counts[_Number]" = field(factory=_numbers)
    surfaces: "Counts[_Number]" = field(factory=_numbers)
    strategies: "Counts[_Number]" = field(factory=_numbers)
    models: "Counts[_Number]" = field(factory=_numbers)
    ends: "Counts[_Number]" = field(factory=_numbers)
    structured: "Counts[Counter[str]]" = field(factory=lambda: Counts(Counter[str], limit=100))

    def add(self, record: RequestRecord) -> None:
        self.requests += 1
        self.streams += record.stream
        self.with_tools += record.tools > 0
        self.forced += record.forced
        self.native_calls += record.native_calls
        self.bytes_in += record.bytes_in
        self.bytes_out += record.bytes_out
        self.keys.add(record.key)
        self.arms.at(record.arm).value += 1
        self.surfaces.at(record.surface[:MAX_NAME]).value += 1
        self.strategies.at(record.strategy[:MAX_NAME]).value += 1
        self.models.at(record.model[:MAX_NAME]).value += 1
        self.ends.at(record.end[:MAX_NAME]).value += 1
        if record.structured:
            counts = self.structured.at(record.model[:MAX_NAME])
            counts.update(record.structured)
            counts[_MENDED] += sum(record.structured_outcomes.get(each, 0) for each in _MENDINGS)
        for kind, tokens in record.usage.items():
            self.tokens.at(kind[:MAX_NAME]).value += tokens

    def add_call(self, candidate: Pair) -> None:
        self.candidates += 1
        self.candidates_with_text += bool(candidate.call.before or candidate.call.after)
        self.text_calls += is_sent(candidate.call) or candidate.call.decision == "repaired"

    def figures(self) -> Volume:
        return Volume(
            requests=self.requests,
            streams=self.streams,
            conversations=self.keys.count(),
            with_tools=self.with_tools,
            forced=self.forced,
            native_calls=self.native_calls,
            text_calls=self.text_calls,
            candidates=self.candidates,
            candidates_with_text=self.candidates_with_text,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            tokens=_values(self.tokens),
            by_arm=_values(self.arms),
            by_surface=_values(self.surfaces),
            by_strategy=_values(self.strategies),
            by_model=_values(self.models),
            by_end=_values(self.ends),
            structured=_structured(self.structured),
        )


def _structured(models: "Counts[Counter[str]]") -> tuple[StructuredCalls, ...]:
    ordered = sorted(models.items(), key=lambda item: (-_calls(item[1]), item[0]))
    return tuple(
        StructuredCalls(
            model=model,
            valid=rate(counts[CallClass.VALID], _calls(counts)),
            delivered_valid=rate(min(counts[CallClass.VALID] + counts[_MENDED], _calls(counts)), _calls(counts)),
            invalid_json=counts[CallClass.INVALID_JSON],
            unknown_name=counts[CallClass.UNKNOWN_NAME],
            schema_mismatch=counts[CallClass.SCHEMA_MISMATCH],
        )
        for model, counts in ordered
    )


def _calls(counts: Counter[str]) -> int:
    return sum(counts[each] for each in CallClass)


def _values(counts: "Counts[_Number]") -> dict[str, int]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1].value, item[0]))
    return {name: number.value for name, number in ordered}
