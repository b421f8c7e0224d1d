"""What is new, told to every page that listens: rows, how next turns fared, and where the rollout stands.

One task asks the store four times a second, however many pages listen. A page that does not read is let go after a
thousand events; it comes back with the cursor of the last one that it has read, and misses none.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog
from attrs import define, field, frozen

from gateway.core.ports import Store, StoreError, Written
from gateway.core.records import DecisionRecord, LabelRecord, OutcomeRecord, RequestRecord
from gateway.inspector.reader import Reader
from gateway.inspector.rows import Row, next_of
from gateway.report.words import result_words

__all__ = ["Event", "Hub", "events_behind", "faulty", "told"]

POLL_S = 0.25
MAX_WAITING = 1000
PAGE = 500
# Who was away for longer reads the page anew: that is faster than so many events.
_MAX_CATCH_UP = 20_000

log = structlog.get_logger("toolgate")


@frozen
class Event:
    """One event of the stream; its id is the cursor to go on from."""

    name: str
    cursor: str
    data: Any
    row: Row | None = None
    """What a page's filter is asked of."""


def told(event: Event) -> bytes:
    """The event as bytes of the stream."""
    head = f"id: {event.cursor}\n" if event.cursor else ""
    return f"{head}event: {event.name}\ndata: ".encode() + msgspec.json.encode(event.data) + b"\n\n"


def faulty(fault: str) -> Event:
    """That the store does not answer, and why; or that it does again."""
    return Event("store", "", {"fault": fault})


async def event_of(written: "Written[Any]", reader: Reader) -> Event | None:
    """What a page is told of a record."""
    match written.record:
        case RequestRecord() as record:
            row = await reader.row("", record)
            return Event("row", written.cursor, row.document(), row)
        case OutcomeRecord() as outcome:
            next_ = next_of(float("-inf"), [outcome])
            data = {
                "key": outcome.key,
                "at": outcome.at,
                "by": outcome.reported_by,
                "next": next_.word,
                "next_reason": next_.reason,
                "next_words": result_words("next turn", next_.reason),
            }
            return Event("outcome", written.cursor, data)
        case LabelRecord() as label:
            reader.forget_labels()
            word = "right" if label.is_right else "wrong"
            return Event("label", written.cursor, {"id": label.request_id, "number": label.number, "label": word})
        case DecisionRecord():
            return Event("state", written.cursor, {"changed": True})
        case _:
            return None


async def events_behind(store: Store, reader: Reader, cursor: str) -> AsyncIterator[Event]:
    """Everything that was written behind a cursor, up to a bound."""
    seen = 0
    while seen < _MAX_CATCH_UP and (page := await store.since(cursor, PAGE)):
        for written in page:
            event = await event_of(written, reader)
            if event is not None:
                yield event
        cursor, seen = page[-1].cursor, seen + len(page)


@define
class Hub:
    """Tells all that listen."""

    store: Store
    reader: Reader
    state: Callable[[], Awaitable[dict[str, Any]]]
    """Where the rollout stands, as a document."""
    cursor: str = ""
    _listeners: set["asyncio.Queue[Event | None]"] = field(init=False, factory=set)
    _state: dict[str, Any] | None = field(init=False, default=None)
    fault: str = field(init=False, default="")
    """Why nothing new is told; empty while the store answers."""

    @contextmanager
    def listening(self) -> Any:
        """A queue of what is new from now on; `None` in it says that too much of it waited."""
        # One place more, for the `None`.
        queue: asyncio.Queue[Event | None] = asyncio.Queue(MAX_WAITING + 1)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    async def run(self) -> None:
        """Ask the store for ever."""
        while True:
            try:
                await self._look()
                self._met("")
            except StoreError as error:
                self._met(str(error))
            await asyncio.sleep(POLL_S)

    def _met(self, fault: str) -> None:
        if bool(fault) is not bool(self.fault):
            if fault:
                log.warning("inspector_store_failed", fault=fault)
            self._tell(faulty(fault))
        self.fault = fault

    async def _look(self) -> None:
        # From the end: what was there before is read by the pages themselves.
        if not self.cursor:
            self.cursor = await self.store.end()
        page = await self.store.since(self.cursor, PAGE)
        for written in page:
            event = await event_of(written, self.reader)
            if event is not None and event.name != "state":
                self._tell(event)
            # Taken down one by one: a fault in the middle of a page must not tell its beginning twice.
            self.cursor = written.cursor
        # While nobody listens, the rollout's state need not be read four times a second.
        if not self._listeners:
            return
        state = await self.state()
        if state != self._state:
            self._state = state
            self._tell(Event("state", self.cursor, state))

    def _tell(self, event: Event) -> None:
        for queue in tuple(self._listeners):
            if queue.qsize() >= MAX_WAITING:
                # It is told so by the `None`, and comes back with the cursor that it has read up to.
                self._listeners.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)
