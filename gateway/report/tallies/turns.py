"""What a request tells of the answer before it: calls that were not meant as such, and calls that were missed."""

from collections import OrderedDict

from attrs import define, field, frozen

from gateway.core.records import RequestRecord
from gateway.report.facts.candidates import Pair, Rejections
from gateway.report.facts.sketches import Chosen, Counts, draw
from gateway.report.facts.tree import Example, Miss, Misses
from gateway.report.tallies.review import SuspectTally

__all__ = ["MissTally", "TurnTally"]

_EXAMPLES = 3
_KEPT_IN_FULL = 1000
_MAX_CONVERSATIONS = 100_000
# Who asks the same ten minutes later has done something else meanwhile.
_RETRY_S = 600.0


@frozen
class _Turn:
    """The last answer of a conversation."""

    id: str
    at: float
    has_call: bool
    sent: tuple[tuple[int, Example], ...]
    """Its calls, with their lots."""


@define
class MissTally:
    """Requests that show that a call was wanted and none was found."""

    kinds: "Counts[_Missed]" = field(factory=lambda: Counts(_Missed))
    requests: int = 0
    complaints_met: int = 0

    def miss(self, kind: str, request_id: str) -> None:
        self.requests += 1
        missed = self.kinds.at(kind)
        missed.count += 1
        missed.examples.offer(draw(request_id, 0, has_text=True), lambda: request_id)

    def figures(self) -> Misses:
        for kind in ("complained", "forced", "retried"):
            self.kinds.at(kind)
        return Misses(
            requests=self.requests,
            kinds=tuple(
                Miss(kind=kind, requests=missed.count, examples=tuple(missed.examples.items()))
                for kind, missed in sorted(self.kinds.items(), key=lambda item: (-item[1].count, item[0]))
            ),
            complaints_met=self.complaints_met,
        )


def _ids() -> "Chosen[str]":
    return Chosen(_EXAMPLES)


@define
class _Missed:
    count: int = 0
    examples: "Chosen[str]" = field(factory=_ids)


@define
class TurnTally:
    """Ties each request to the answer before it; of 100,000 conversations at a time, the longest silent go first."""

    suspects: SuspectTally
    misses: MissTally
    rejections: Rejections = field(factory=dict)
    last: "OrderedDict[str, _Turn]" = field(factory=OrderedDict)
    in_full: "Chosen[None]" = field(factory=lambda: Chosen(_KEPT_IN_FULL))

    def add(self, record: RequestRecord, sent: tuple[Pair, ...]) -> None:
        before = self.last.pop(record.key, None)
        if before is not None:
            self._follow(record, before)
        has_call = record.native_calls > 0 or any(call.decision != "refused" for call in record.calls)
        # An answer that failed, or that its client left, does not show whether a call would have come.
        if record.forced and not has_call and record.healthy and record.end == "completed":
            self.misses.miss("forced", record.id)
        self.last[record.key] = _Turn(record.id, record.at, has_call, tuple(map(self._kept, sent)))
        if len(self.last) > _MAX_CONVERSATIONS:
            self.last.popitem(last=False)

    def _kept(self, candidate: Pair) -> tuple[int, Example]:
        """What is remembered of a call: its text only if it may come to be shown."""
        # Texts of a hundred thousand conversations would be gigabytes: the lot decides before, which can be shown.
        with_text = self.in_full.wants(candidate.lot)
        self.in_full.offer(candidate.lot, lambda: None)
        return candidate.lot, candidate.example(with_text=with_text)

    def _follow(self, record: RequestRecord, before: _Turn) -> None:
        match record.follows:
            case "tool_result" if tools := self.rejections.get(record.id):
                for lot, example in before.sent:
                    # A rejection that names no tool may be of any of them.
                    if example.arm == "live" and (example.tool in tools or "" in tools):
                        self.suspects.add_rejected(lot, example)
            case "text":
                for lot, example in before.sent:
                    self.suspects.add_prose(lot, example)
            case "complaint" if before.sent:
                self.misses.complaints_met += 1
            case "complaint" if not before.has_call:
                self.misses.miss("complained", before.id)
            case "nothing" if record.tools and not before.has_call and record.at - before.at <= _RETRY_S:
                self.misses.miss("retried", before.id)
            case _:
                pass
