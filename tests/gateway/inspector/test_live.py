"""What is told to pages that listen, to slow ones too."""

import asyncio
from typing import Any, ClassVar

from gateway.core.ports import StoreError
from gateway.core.records import OutcomeRecord, RequestRecord
from gateway.inspector import live
from gateway.inspector.live import MAX_WAITING, Event, Hub, events_behind, told
from gateway.inspector.reader import Reader
from gateway.state.memory import MemoryStore


def requests(count: int, first: int = 0) -> list[RequestRecord]:
    return [
        RequestRecord(id=f"r{number}", at=float(number), key="k", model="m", upstream="u")
        for number in range(first, first + count)
    ]


async def state() -> dict[str, Any]:
    return {"state": "off"}


def a_hub() -> tuple[MemoryStore, Hub]:
    store = MemoryStore()
    return store, Hub(store, Reader(store), state)


async def test_a_page_that_does_not_read_is_let_go_and_catches_up_by_its_cursor():
    store, hub = a_hub()
    await hub._look()
    with hub.listening() as queue:
        for first in range(0, 3000, 400):
            await store.append(requests(400, first))
            await hub._look()
        got = [queue.get_nowait() for _ in range(queue.qsize())]
        assert queue not in hub._listeners
    rows = [event for event in got if event is not None and event.name == "row"]
    assert got[-1] is None
    assert len(got) == MAX_WAITING + 1
    rest = [event async for event in events_behind(store, hub.reader, rows[-1].cursor)]
    ids = [event.data["id"] for event in (*rows, *rest)]
    assert ids == [f"r{number}" for number in range(3200)]


async def test_every_page_that_listens_is_told_once():
    store, hub = a_hub()
    await hub._look()
    with hub.listening() as one, hub.listening() as other:
        outcome = OutcomeRecord(
            at=9.0, key="k", arm="live", strategy="s", dialect="d", epoch=0, outcome="accepted", reported_by="r5"
        )
        await store.append([*requests(2), outcome])
        await hub._look()
        await hub._look()
        for queue in (one, other):
            told_now = [queue.get_nowait() for _ in range(queue.qsize())]
            assert [event.name for event in told_now if event] == ["row", "row", "outcome", "state"]


def test_an_event_is_one_line_of_json_whatever_a_model_wrote():
    data = {"what": "\n\ndata: x\r\nevent: state\u2028\u0000</script>"}
    text = told(Event("row", "1.2", data)).decode()
    assert text.startswith("id: 1.2\nevent: row\ndata: {")
    assert text.count("\n") == 4
    assert "\r" not in text


class Failing(MemoryStore):
    """Fails as often as it has faults."""

    faults: ClassVar[list[str]] = []

    async def end(self) -> str:
        if self.faults:
            raise StoreError(self.faults.pop())
        return await super().end()


async def test_a_store_that_does_not_answer_is_told_of_once_and_so_is_that_it_does_again(monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0)
    monkeypatch.setattr(Failing, "faults", ["the store is locked", "the store is locked"])
    store = Failing()
    hub = Hub(store, Reader(store), state)
    with hub.listening() as queue:
        polling = asyncio.create_task(hub.run())
        events = [await queue.get() for _ in range(3)]
        polling.cancel()
        await asyncio.wait([polling])
    assert [(event.name, event.data) for event in events if event] == [
        ("store", {"fault": "the store is locked"}),
        ("state", {"state": "off"}),
        ("store", {"fault": ""}),
    ]
    assert hub.fault == ""
