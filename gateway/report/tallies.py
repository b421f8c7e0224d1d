"""What one pass over the records keeps: counters and bounded choices, one small class per part of the report."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import get_args

from attrs import define, field, frozen

from gateway.core.call_class import CallClass
from gateway.core.records import CallRecord, LabelRecord, RequestRecord, Stage
from gateway.report.intervals import rate
from gateway.report.sketches import Chosen, Counts, Distinct, Quantiles, draw
from gateway.report.tree import (
    Bin,
    Calibration,
    Confidence,
    ConfigurationShare,
    Cost,
    Example,
    Failure,
    Funnel,
    Noise,
    Review,
    Side,
    Sign,
    Sliced,
    StructuredCalls,
    Suspects,
    Threshold,
    Volume,
)

__all__ = [
    "ConfidenceTally",
    "CostTally",
    "DiffTally",
    "HourTally",
    "Labels",
    "NoiseTally",
    "Pair",
    "ReviewTally",
    "SideTally",
    "SuspectTally",
    "VolumeTally",
    "is_sent",
    "last_labels",
    "pair",
]

SENT = frozenset({"delivered", "would_deliver"})
ON_PURPOSE = frozenset(
    {"low_confidence", "provenance", "unsayable", "slice_off", "over_budget", "disabled", "not_listed"}
)
"""Why a candidate that could be read was left alone."""
COUNTED_SIGNS = ("in_fence", "undeclared", "schema", "echo", "native_beside")
PROSE_NEXT = "prose_next"
"""The client's next message goes on as if there had been no call. In untouched arms most do, so it is a weak sign."""
STAGES: tuple[str, ...] = get_args(Stage)
THRESHOLDS = (50, 60, 70, 75, 80, 85, 90, 92, 95, 97, 99, 100)
BINS = (0, 50, 60, 70, 75, 80, 85, 90, 95, 98, 101)
"""Edges of the bins, in hundredths."""

_STAGE = {stage: place for place, stage in enumerate(STAGES)}
_EXAMPLES = 3
_SAMPLE = 50
_WRONG_SHOWN = 10
_STRATA_SHOWN = 24
_PER_STRATUM = 2
_MAX_TEXT = 1200
_MAX_NAME = 64
_HOUR = 3600

Labels = Mapping[tuple[str, int], LabelRecord]


@frozen
class Pair:
    """A candidate beside the request that it belongs to, with its lot."""

    record: RequestRecord
    call: CallRecord
    lot: int
    label: LabelRecord | None

    @property
    def is_suspect(self) -> bool:
        return not _COUNTED.isdisjoint(self.call.signs)

    def example(self, *, with_text: bool = True) -> Example:
        """The candidate as the report shows it."""
        record, call = self.record, self.call
        return Example(
            id=f"{record.id}:{call.number}",
            at=record.at,
            model=record.model[:_MAX_NAME],
            strategy=record.strategy[:_MAX_NAME],
            arm=record.arm,
            dialect=call.dialect[:_MAX_NAME],
            tool=call.tool[:_MAX_NAME],
            score=call.score / 100,
            decision=call.decision,
            reason=call.reason[:_MAX_NAME],
            reasons=tuple(reason[:_MAX_TEXT] for reason in call.reasons[:16]),
            signs=tuple(sign[:_MAX_NAME] for sign in call.signs[:16]),
            before=_clipped(call.before) if with_text else "",
            after=_clipped(call.after) if with_text else "",
            label=None if self.label is None else "right" if self.label.is_right else "wrong",
        )


_COUNTED = frozenset(COUNTED_SIGNS)


def is_sent(call: CallRecord) -> bool:
    """The call reached the client, or would have."""
    return call.decision in SENT


def is_meant(call: CallRecord) -> bool:
    """It was plainly meant as a call; records of older versions say so by naming its tool."""
    return bool(call.tool) if call.meant is None else call.meant


def pair(record: RequestRecord, call: CallRecord, labels: Labels) -> Pair:
    """A candidate with its lot and its label."""
    lot = draw(record.id, call.number, has_text=bool(call.before or call.after))
    return Pair(record, call, lot, labels.get((record.id, call.number)) if labels else None)


def last_labels(records: Iterable[LabelRecord]) -> Labels:
    """Of each candidate the label that counts."""
    return {(record.request_id, record.number): record for record in sorted(records, key=lambda record: record.at)}


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ... ({len(text)} characters)"


def _examples() -> "Chosen[Example]":
    return Chosen(_EXAMPLES)


@define
class _Tries:
    calls: int = 0
    tries: int = 0


def _by_name() -> "Counts[_Tries]":
    return Counts(_Tries)


@define
class _Failing:
    count: int = 0
    examples: "Chosen[Example]" = field(factory=_examples)


@define
class SideTally:
    """Tries and their ends, in the untouched arms or in the live one."""

    requests: int = 0
    requests_with_calls: int = 0
    overheard: int = 0
    repaired: int = 0
    calls: int = 0
    refused: int = 0
    left_alone: int = 0
    by_dialect: "Counts[_Tries]" = field(factory=_by_name)
    by_tool: "Counts[_Tries]" = field(factory=_by_name)
    by_strategy: "Counts[_Tries]" = field(factory=_by_name)
    by_model: "Counts[_Tries]" = field(factory=_by_name)
    stages: list[int] = field(factory=lambda: [0] * len(STAGES))
    failures: "Counts[_Failing]" = field(factory=lambda: Counts(_Failing, limit=40))
    verdicts: Counter[str] = field(factory=Counter)

    def add(self, record: RequestRecord) -> None:
        self.requests += 1
        if record.verdict is not None:
            self.verdicts[record.verdict] += 1
        if any(is_sent(call) or call.decision == "repaired" for call in record.calls):
            self.requests_with_calls += 1

    def add_call(self, candidate: Pair) -> None:
        call = candidate.call
        if call.decision == "overheard":
            self.overheard += 1
            return
        self.stages[_STAGE[call.stage]] += 1
        if call.decision == "repaired":
            self.repaired += 1
        elif is_sent(call):
            self.calls += 1
            self._try(candidate, 1)
        elif is_meant(call):
            self._refuse(candidate)

    def _refuse(self, candidate: Pair) -> None:
        reason = candidate.call.reason or "unknown"
        if reason in ON_PURPOSE:
            self.left_alone += 1
        else:
            self.refused += 1
            self._try(candidate, 0)
        failing = self.failures.at(reason[:_MAX_NAME])
        failing.count += 1
        failing.examples.offer(candidate.lot, candidate.example)

    def _try(self, candidate: Pair, calls: int) -> None:
        record, call = candidate.record, candidate.call
        for names, name in (
            (self.by_dialect, call.dialect),
            (self.by_tool, call.tool),
            (self.by_strategy, record.strategy),
            (self.by_model, record.model),
        ):
            tries = names.at(name[:_MAX_NAME])
            tries.tries += 1
            tries.calls += calls

    def figures(self) -> Side:
        reached = [sum(self.stages[place:]) for place in range(len(STAGES))]
        return Side(
            requests=self.requests,
            requests_with_calls=self.requests_with_calls,
            calls=self.calls,
            refused=self.refused,
            left_alone=self.left_alone,
            overheard=self.overheard,
            repaired=self.repaired,
            success=rate(self.calls, self.calls + self.refused),
            by_dialect=_sliced(self.by_dialect),
            by_tool=_sliced(self.by_tool),
            by_strategy=_sliced(self.by_strategy),
            by_model=_sliced(self.by_model),
            funnel=tuple(Funnel(stage=stage, candidates=reached[place]) for stage, place in _STAGE.items()),
            failures=tuple(
                Failure(
                    reason=reason,
                    count=failing.count,
                    on_purpose=reason in ON_PURPOSE,
                    examples=tuple(failing.examples.items()),
                )
                for reason, failing in sorted(self.failures.items(), key=lambda item: (-item[1].count, item[0]))
            ),
            verdicts=dict(sorted(self.verdicts.items())),
        )


def _sliced(names: "Counts[_Tries]") -> tuple[Sliced, ...]:
    ordered = sorted(names.items(), key=lambda item: (-item[1].tries, item[0]))
    return tuple(Sliced(name=name, success=rate(tries.calls, tries.tries)) for name, tries in ordered)


@define
class _Weighed:
    calls: int = 0
    examples: "Chosen[Example]" = field(factory=_examples)


@define
class SuspectTally:
    """Calls with signs against them."""

    calls: int = 0
    suspected: int = 0
    signs: "Counts[_Weighed]" = field(factory=lambda: Counts(_Weighed, limit=20))

    def add_call(self, candidate: Pair) -> None:
        self.calls += 1
        if candidate.is_suspect:
            self.suspected += 1
        for sign in candidate.call.signs:
            self._weigh(sign[:_MAX_NAME], candidate.lot, candidate.example)

    def add_prose(self, lot: int, example: Example) -> None:
        """The client went on as if this had not been a call."""
        self._weigh(PROSE_NEXT, lot, lambda: example)

    def _weigh(self, sign: str, lot: int, make: Callable[[], Example]) -> None:
        weighed = self.signs.at(sign)
        weighed.calls += 1
        weighed.examples.offer(lot, make)

    def figures(self) -> Suspects:
        for sign in (*COUNTED_SIGNS, PROSE_NEXT):
            self.signs.at(sign)
        ordered = sorted(self.signs.items(), key=lambda item: (item[0] == PROSE_NEXT, -item[1].calls, item[0]))
        return Suspects(
            calls=self.calls,
            suspected=rate(self.suspected, self.calls),
            signs=tuple(
                Sign(
                    sign=sign,
                    calls=weighed.calls,
                    counts=sign in COUNTED_SIGNS,
                    examples=tuple(weighed.examples.items()),
                )
                for sign, weighed in ordered
            ),
        )


@define
class ReviewTally:
    """The calls to look at, and the labels of those that were looked at."""

    sample: "Chosen[Example]" = field(factory=lambda: Chosen(_SAMPLE))
    wrong: "Chosen[Example]" = field(factory=lambda: Chosen(_WRONG_SHOWN))
    right_calls: int = 0
    labelled_calls: int = 0
    right_refusals: int = 0
    labelled_refusals: int = 0

    def add_call(self, candidate: Pair) -> None:
        sent = is_sent(candidate.call)
        if sent:
            self.sample.offer(candidate.lot, candidate.example)
        label = candidate.label
        if label is None:
            return
        if sent:
            self.labelled_calls += 1
            self.right_calls += label.is_right
        else:
            self.labelled_refusals += 1
            self.right_refusals += label.is_right
        if not label.is_right:
            self.wrong.offer(candidate.lot, candidate.example)

    def figures(self) -> Review:
        return Review(
            sample=tuple(self.sample.items()),
            labelled=self.labelled_calls + self.labelled_refusals,
            precision=rate(self.right_calls, self.labelled_calls),
            refusals=rate(self.right_refusals, self.labelled_refusals),
            wrong=tuple(self.wrong.items()),
        )


@define
class DiffTally:
    """A few candidates of every kind there is: tool, dialect and decision."""

    strata: "Counts[_Stratum]" = field(factory=lambda: Counts(_Stratum))

    def add_call(self, candidate: Pair) -> None:
        call = candidate.call
        stratum = self.strata.at(f"{call.tool[:_MAX_NAME]}\0{call.dialect[:_MAX_NAME]}\0{call.decision}")
        stratum.count += 1
        if call.before or call.after:
            stratum.chosen.offer(candidate.lot, candidate.example)

    def figures(self) -> tuple[Example, ...]:
        ordered = sorted(self.strata.items(), key=lambda item: (-item[1].count, item[0]))
        chosen = [stratum.chosen.items() for _, stratum in ordered]
        by_turn = [items[turn] for turn in range(_PER_STRATUM) for items in chosen if turn < len(items)]
        return tuple(by_turn[:_STRATA_SHOWN])


@define
class _Stratum:
    count: int = 0
    chosen: "Chosen[Example]" = field(factory=lambda: Chosen(_PER_STRATUM))


def _scores() -> list[int]:
    return [0] * 101


@define
class ConfidenceTally:
    """Candidates by score, in whole hundredths."""

    sent: list[int] = field(factory=_scores)
    refused: list[int] = field(factory=_scores)
    applicable: list[int] = field(factory=_scores)
    """Those that only the threshold decides on."""
    suspected: list[int] = field(factory=_scores)
    labelled: list[int] = field(factory=_scores)
    wrong: list[int] = field(factory=_scores)

    def add_call(self, candidate: Pair) -> None:
        call = candidate.call
        score = min(max(call.score, 0), 100)
        sent = is_sent(call)
        (self.sent if sent else self.refused)[score] += 1
        if not sent and call.reason != "low_confidence":
            return
        self.applicable[score] += 1
        self.suspected[score] += candidate.is_suspect
        if candidate.label is not None:
            self.labelled[score] += 1
            self.wrong[score] += candidate.label.is_right is not sent

    def figures(self) -> Confidence:
        bins = list(pairwise(BINS))
        return Confidence(
            histogram=tuple(
                Bin(low=low / 100, high=high / 100, sent=sum(self.sent[low:high]), refused=sum(self.refused[low:high]))
                for low, high in bins
            ),
            calibration=tuple(
                Calibration(
                    low=low / 100,
                    high=high / 100,
                    right=rate(sum(self.labelled[low:high]) - sum(self.wrong[low:high]), sum(self.labelled[low:high])),
                )
                for low, high in bins
            ),
            thresholds=tuple(self._at(threshold) for threshold in THRESHOLDS),
        )

    def _at(self, threshold: int) -> Threshold:
        applied, suspected, labelled, wrong = (
            sum(counts[threshold:]) for counts in (self.applicable, self.suspected, self.labelled, self.wrong)
        )
        by_labels = not rate(0, labelled).too_few
        return Threshold(
            threshold=threshold / 100,
            applied=applied,
            suspected=suspected,
            labelled=labelled,
            labelled_wrong=wrong,
            estimated_wrong=round(applied * wrong / labelled, 1) if by_labels else float(suspected),
            basis="labels" if by_labels else "signs",
        )


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
        configured = self.configurations.at(f"{record.version[:_MAX_NAME]}\0{record.config[:_MAX_NAME]}")
        configured.requests += 1
        configured.first = min(configured.first, at)
        configured.last = max(configured.last, at)

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
        self.surfaces.at(record.surface[:_MAX_NAME]).value += 1
        self.strategies.at(record.strategy[:_MAX_NAME]).value += 1
        self.models.at(record.model[:_MAX_NAME]).value += 1
        self.ends.at(record.end[:_MAX_NAME]).value += 1
        if record.structured:
            self.structured.at(record.model[:_MAX_NAME]).update(record.structured)
        for kind, tokens in record.usage.items():
            self.tokens.at(kind[:_MAX_NAME]).value += tokens

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
    ordered = sorted(models.items(), key=lambda item: (-item[1].total(), item[0]))
    return tuple(
        StructuredCalls(
            model=model,
            valid=rate(counts[CallClass.VALID], sum(counts[each] for each in CallClass)),
            invalid_json=counts[CallClass.INVALID_JSON],
            unknown_name=counts[CallClass.UNKNOWN_NAME],
            schema_mismatch=counts[CallClass.SCHEMA_MISMATCH],
        )
        for model, counts in ordered
    )


def _values(counts: "Counts[_Number]") -> dict[str, int]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1].value, item[0]))
    return {name: number.value for name, number in ordered}
