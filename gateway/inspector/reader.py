"""What the page asks of the store: a page of rows, one answer, its conversation, what is new since a cursor."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from gateway.core.ports import Store, Written
from gateway.core.reasons import Reason
from gateway.core.records import LabelRecord, RequestRecord
from gateway.inspector.detail import detail_of
from gateway.inspector.filters import Filter
from gateway.inspector.glance import by_conversation, by_id, by_reason, looking
from gateway.inspector.outcomes import Outcomes
from gateway.inspector.rows import (
    CallHead,
    Head,
    Next,
    Row,
    Seen,
    Told,
    broken,
    head_of,
    next_of,
    row_of,
    shown_call,
)
from gateway.report.facts.candidates import last_labels

__all__ = ["Page", "Reader"]

# Small, so that a filter that matches much shows its first rows at once; then larger, as it matches little.
_FIRST_CHUNK = 200
_CHUNK = 4000
_LABELS_FRESH_S = 1.0
_TURNS = 20
_UNLABELLED: Mapping[int, bool] = {}
_AROUND_S = 86_400.0


@frozen
class Page:
    """Rows, the newest first, and where to go on."""

    rows: tuple[Row, ...]
    next: str
    """The cursor to ask for what is older; empty where nothing is."""


@define
class Reader:
    """Reads for one page after the other."""

    store: Store
    outcomes: Outcomes = field(init=False)
    _labels: dict[str, dict[int, bool]] = field(init=False, factory=dict)
    _labels_at: float = field(init=False, default=float("-inf"))

    def __attrs_post_init__(self) -> None:
        self.outcomes = Outcomes(self.store)

    async def page(self, wanted: Filter, *, before: str, limit: int) -> Page:
        """The newest rows that match."""
        labels = await self.labels()
        if wanted.asks_for_label and not labels:
            return Page((), "")
        glance = looking(wanted, labels) if wanted.terms else None
        found: list[Row] = []
        chunk = limit if not wanted.terms else _FIRST_CHUNK
        while True:
            written = await self.store.latest(Head, before, chunk, wanted.holding, glance)
            outcomes = await self.outcomes.of([each.record for each in written])
            for each in written:
                head, said = each.record, labels.get(each.record.id, _UNLABELLED)
                next_ = _next(head, outcomes)
                if wanted.matches(Seen(head, next_, said)):
                    found.append(row_of(head, cursor=each.cursor, next_=next_, labels=said))
                    if len(found) == limit:
                        return Page(tuple(found), each.cursor)
            if len(written) < chunk:
                return Page(tuple(found), "")
            before, chunk = written[-1].cursor, _CHUNK
            await asyncio.sleep(0)  # others have their turn between two chunks

    async def row(self, cursor: str, record: RequestRecord) -> Row:
        """The row of a record that has just been written."""
        head = head_of(record)
        return row_of(head, cursor=cursor, next_=Next(), labels=(await self.labels()).get(head.id))

    async def record(self, request_id: str) -> tuple[str, RequestRecord] | None:
        """The request of this id that was written last."""
        if not request_id or len(request_id) > 256:
            return None
        # The store looks for the text as it is written: an escape would be written in another way.
        holding = (request_id,) if request_id.isascii() and not set(request_id) & set('"\\') else ()
        before = ""
        while True:
            page = await self.store.latest(Head, before, _CHUNK, holding, by_id(request_id))
            for each in page:
                if each.record.id == request_id:
                    return await self._whole(each)
            if len(page) < _CHUNK:
                return None
            before = page[-1].cursor

    async def _whole(self, found: Written[Head]) -> tuple[str, RequestRecord] | None:
        """The record, whose head has been found."""
        # The end is exclusive, and two times next to each other are the coarser the larger they are: a little beyond
        # both.
        until = found.record.at + 1e-3 + abs(found.record.at) * 1e-12
        async for record in self.store.scan(RequestRecord, since=found.record.at, until=until):
            if record.id == found.record.id:
                return found.cursor, record
        return None

    async def detail(self, request_id: str, period_s: float) -> dict[str, Any] | None:
        """Everything that is shown of one answer."""
        found = await self.record(request_id)
        if found is None:
            return None
        cursor, record = found
        head = head_of(record)
        outcomes = await self.outcomes.of([head])
        row = row_of(head, cursor=cursor, next_=_next(head, outcomes), labels=(await self.labels()).get(record.id))
        shown = shown_call(head.calls)
        would = next((call.setting for call in record.calls if shown is not None and call.number == shown.number), "")
        others = await self._others_under(head, shown, period_s) if would and shown is not None else None
        return detail_of(record, row, await self._turns(head), others)

    async def _others_under(self, head: Head, shown: CallHead, period_s: float) -> dict[str, int] | None:
        """What else of the period a threshold at this candidate's score would have let through."""
        if shown.reason != Reason.LOW_CONFIDENCE:
            return None
        since = time.time() - period_s
        count = with_signs = 0
        for written in await self.store.latest(
            Head, "", _CHUNK, (f'"reason":"{shown.reason}"',), by_reason(shown.reason)
        ):
            if written.record.at < since or written.record.id == head.id:
                continue
            for call in broken(written.record.calls):
                if call.reason == shown.reason and call.score >= shown.score:
                    count += 1
                    with_signs += bool(call.signs)
        return {"count": count, "with_signs": with_signs}

    async def labels(self) -> Mapping[str, Mapping[int, bool]]:
        """What people said of candidates, by request and number."""
        now = time.monotonic()
        if now - self._labels_at >= _LABELS_FRESH_S:
            records = last_labels([record async for record in self.store.scan(LabelRecord)])
            labels: dict[str, dict[int, bool]] = defaultdict(dict)
            for (request_id, number), record in records.items():
                labels[request_id][number] = record.is_right
            self._labels, self._labels_at = dict(labels), now
        return self._labels

    def forget_labels(self) -> None:
        """One was given: they are read anew."""
        self._labels_at = float("-inf")

    async def _turns(self, head: Head) -> list[dict[str, Any]]:
        """The answers of the same conversation, in their order."""
        if not head.key:
            return []
        since, until = head.at - _AROUND_S, head.at + _AROUND_S
        before, found = "", list[dict[str, Any]]()
        while len(found) < _TURNS:
            page = await self.store.latest(Head, before, _CHUNK, (f'"key":"{head.key}"',), by_conversation(head.key))
            for each in page:
                turn = each.record
                if turn.key == head.key and since <= turn.at < until:
                    row = row_of(turn, cursor=each.cursor, next_=Next())
                    found.append({"id": turn.id, "at": turn.at, "sign": row.sign, "what": row.what})
            if len(page) < _CHUNK:
                break
            before = page[-1].cursor
        return found[:_TURNS][::-1]


def _next(head: Head, outcomes: Mapping[str, Sequence[Told]]) -> Next:
    return next_of(head.at, outcomes.get(head.key, ()), head.id)
