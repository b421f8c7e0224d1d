"""What one record says by itself: whether a candidate was sent or meant, whose label counts, which tool it names."""

import re
from collections.abc import Iterable, Mapping
from typing import Protocol, get_args

from attrs import frozen

from gateway.core.records import BriefCall, CallRecord, LabelRecord, OutcomeRecord, RequestRecord, Stage
from gateway.report.facts.sketches import draw
from gateway.report.facts.tree import Example

__all__ = [
    "COUNTED_SIGNS",
    "MAX_NAME",
    "ON_PURPOSE",
    "PROSE_NEXT",
    "REJECTED",
    "STAGES",
    "UNTOUCHED",
    "Labels",
    "Pair",
    "Rejections",
    "is_meant",
    "is_sent",
    "last_labels",
    "pair",
    "rejections",
    "tool_name",
]

SENT = frozenset({"delivered", "would_deliver"})
UNTOUCHED = frozenset({"control", "dry_run"})
"""Arms whose answers are read beside and go out as they came."""
ON_PURPOSE = frozenset(
    {"low_confidence", "provenance", "unsayable", "slice_off", "over_budget", "disabled", "not_listed"}
)
"""Why a candidate that could be read was left alone."""
REJECTED = "rejected"
"""The client reported a fault in the call itself: no such tool, an argument that is missing or of the wrong kind."""
COUNTED_SIGNS = ("in_fence", "undeclared", "schema", "echo", "native_beside", REJECTED)
PROSE_NEXT = "prose_next"
"""The client's next message goes on as if there had been no call. In untouched arms most do, so it is a weak sign."""
STAGES: tuple[str, ...] = get_args(Stage)

MAX_NAME = 64
_MAX_TEXT = 1200
_MAX_REJECTIONS = 100_000
_COUNTED = frozenset(COUNTED_SIGNS)
_NAME = re.compile(r"[\w./:-]+")

Labels = Mapping[tuple[str, int], LabelRecord]
Rejections = Mapping[str, frozenset[str]]
"""By the id of the request that tells it: the tools whose calls the client did not take."""


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
            model=record.model[:MAX_NAME],
            strategy=record.strategy[:MAX_NAME],
            arm=record.arm,
            dialect=call.dialect[:MAX_NAME],
            tool=call.tool[:MAX_NAME],
            score=call.score / 100,
            decision=call.decision,
            reason=call.reason[:MAX_NAME],
            reasons=tuple(reason[:_MAX_TEXT] for reason in call.reasons[:16]),
            signs=tuple(sign[:MAX_NAME] for sign in call.signs[:16]),
            before=_clipped(call.before) if with_text else "",
            after=_clipped(call.after) if with_text else "",
            label=None if self.label is None else "right" if self.label.is_right else "wrong",
        )


def is_sent(call: CallRecord | BriefCall) -> bool:
    """The call reached the client, or would have."""
    return call.decision in SENT


class _Named(Protocol):
    @property
    def tool(self) -> str: ...
    @property
    def meant(self) -> bool | None: ...


def is_meant(call: _Named) -> bool:
    """It was plainly meant as a call; records of older versions say so by naming its tool."""
    return bool(call.tool) if call.meant is None else call.meant


def pair(record: RequestRecord, call: CallRecord, labels: Labels) -> Pair:
    """A candidate with its lot and its label."""
    lot = draw(record.id, call.number, has_text=bool(call.before or call.after))
    return Pair(record, call, lot, labels.get((record.id, call.number)) if labels else None)


def last_labels(records: Iterable[LabelRecord]) -> Labels:
    """Of each candidate the label that counts."""
    # The sorting is stable: of two labels of one moment the one that was written later counts.
    return {(record.request_id, record.number): record for record in sorted(records, key=lambda record: record.at)}


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ... ({len(text)} characters)"


def rejections(records: Iterable[OutcomeRecord]) -> Rejections:
    """Which calls of ours were rejected, by the request that tells it; the first 100,000."""
    found: dict[str, frozenset[str]] = {}
    for record in records:
        if record.outcome == "rejected" and record.arm == "live" and record.dialect != "none" and record.reported_by:
            if record.reported_by in found or len(found) < _MAX_REJECTIONS:
                found[record.reported_by] = found.get(record.reported_by, frozenset()) | {record.tool[:MAX_NAME]}
    return found


def tool_name(call: CallRecord) -> str:
    """The tool as a person takes it for one: a name, or that there was none that could be read."""
    name = call.tool[:MAX_NAME]
    return name if _NAME.fullmatch(name) else "(no name)"
