"""What the page asks of the store: a page of rows, one answer, its conversation, what is new since a cursor."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from gateway.core.ports import Store, Written
from gateway.core.reasons import Reason
from gateway.core.records import LabelRecord, OutcomeRecord, RequestRecord
from gateway.inspector.detail import detail_of
from gateway.inspector.filters import Filter
from gateway.inspector.rows import CallHead, Head, Next, Row, Seen, head_of, next_of, row_of, shown_call
from gateway.report.facts.candidates import last_labels

__all__ = ["Page", "Reader"]

_FIRST_CHUNK = 200
_CHUNK = 4000
_LATER_S = 3600.0
"""How long after an answer its conversation is looked at for what became of it."""
_MAX_OUTCOMES = 20_000
_LABELS_FRESH_S = 1.0
_TURNS = 20
_UNKNOWN = Next()
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
    _labels: dict[str, dict[int, bool]] = field(init=False, factory=dict)
    _labels_at: float = field(init=False, default=float("-inf"))

    async def page(self, wanted: Filter, *, before: str, limit: int) -> Page:
        """The newest rows that match."""
        labels = await self.labels()
        if wanted.asks_for_label and not labels:
            return Page((), "")
        found: list[Row] = []
        chunk = limit if not wanted.terms else _FIRST_CHUNK
        while True:
            written = await self.store.latest(Head, before, chunk, wanted.holding)
            heads = [(each.cursor, each.record) for each in written]
            outcomes = await self._outcomes(heads) if wanted.asks("outcome") else {}
            for cursor, head in heads:
                next_, said = _next(head, outcomes) if outcomes else _UNKNOWN, labels.get(head.id, _UNLABELLED)
                if wanted.matches(Seen(head, next_, said)):
                    found.append(row_of(head, cursor=cursor, next_=next_, labels=said))
                    if len(found) == limit:
                        return Page(await self._with_next(found), cursor)
            if len(heads) < chunk:
                return Page(await self._with_next(found), "")
            before, chunk = heads[-1][0], _CHUNK
            await asyncio.sleep(0)  # others have their turn between two chunks

    async def row(self, cursor: str, record: RequestRecord) -> Row:
        """The row of a record that has just been written."""
        head = head_of(record)
        return row_of(head, cursor=cursor, next_=Next(), labels=(await self.labels()).get(head.id))

    async def record(self, request_id: str) -> tuple[str, RequestRecord] | None:
        """The request of this id that was written last."""
        if not request_id or len(request_id) > 256:
            return None
        holding = (request_id,) if request_id.isascii() and not set(request_id) & set('"\\') else ()
        before = ""
        while True:
            page = await self.store.latest(Head, before, _CHUNK, holding)
            for each in page:
                if each.record.id == request_id:
                    return await self._whole(each, holding)
            if len(page) < _CHUNK:
                return None
            before = page[-1].cursor

    async def _whole(self, found: Written[Head], holding: Sequence[str]) -> tuple[str, RequestRecord] | None:
        """The record, whose head has been found."""
        async for record in self.store.scan(
            RequestRecord, since=found.record.at, until=found.record.at + 1e-3 + abs(found.record.at) * 1e-12
        ):
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
        outcomes = await self._outcomes([(cursor, head)])
        row = row_of(head, cursor=cursor, next_=_next(head, outcomes), labels=(await self.labels()).get(record.id))
        shown = shown_call(head)
        would = next((call.setting for call in record.calls if shown is not None and call.number == shown.number), "")
        others = await self._others_under(head, shown, period_s) if would and shown is not None else None
        return detail_of(record, row, await self._turns(head), others)

    async def _others_under(self, head: Head, shown: CallHead, period_s: float) -> dict[str, int] | None:
        """What else of the period a threshold at this candidate's score would have let through."""
        if shown.reason != Reason.LOW_CONFIDENCE:
            return None
        since = time.time() - period_s
        count = with_signs = 0
        for written in await self.store.latest(Head, "", _CHUNK, (f'"reason":"{shown.reason}"',)):
            if written.record.at < since or written.record.id == head.id:
                continue
            for call in written.record.broken:
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
            page = await self.store.latest(Head, before, _CHUNK, (f'"key":"{head.key}"',))
            for each in page:
                turn = each.record
                if turn.key == head.key and since <= turn.at < until:
                    row = row_of(turn, cursor=each.cursor, next_=Next())
                    found.append({"id": turn.id, "at": turn.at, "sign": row.sign, "what": row.what})
            if len(page) < _CHUNK:
                break
            before = page[-1].cursor
        return found[:_TURNS][::-1]

    async def _with_next(self, rows: Sequence[Row]) -> tuple[Row, ...]:
        """The rows with how each one's next turn fared, as far as that is known."""
        outcomes = await self._outcomes([(row.cursor, row.head) for row in rows])
        return tuple(
            row_of(row.head, cursor=row.cursor, next_=_next(row.head, outcomes), labels=row.labels) for row in rows
        )

    async def _outcomes(self, heads: Iterable[tuple[str, Head]]) -> Mapping[str, Sequence[OutcomeRecord]]:
        """What the conversations of these answers told later, by conversation."""
        times = [head.at for _, head in heads]
        keys = {head.key for _, head in heads}
        if not times:
            return {}
        found: dict[str, list[OutcomeRecord]] = defaultdict(list)
        count = 0
        async for outcome in self.store.scan(OutcomeRecord, since=min(times), until=max(times) + _LATER_S):
            if outcome.key in keys:
                found[outcome.key].append(outcome)
                count += 1
                if count >= _MAX_OUTCOMES:
                    break
        return found


def _next(head: Head, outcomes: Mapping[str, Sequence[OutcomeRecord]]) -> Next:
    return next_of(head.at, outcomes.get(head.key, ()))
