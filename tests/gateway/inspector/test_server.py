"""The interface of the inspector's own port, over real sockets: what it tells, and what it refuses."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import aiohttp
import pytest
from attrs import frozen
from structlog.testing import capture_logs

from gateway.config.load import load
from gateway.core.ports import StoreError
from gateway.core.records import CallRecord, DecisionRecord, OutcomeRecord, RequestRecord
from gateway.inspector import live
from gateway.inspector.door import HEADERS, KEY_S, Door
from gateway.inspector.filters import parsed
from gateway.inspector.live import MAX_WAITING, Event, Hub, events_behind, told
from gateway.inspector.reader import Reader
from gateway.inspector.server import Inspector, _places, _relay, running, sockets
from gateway.state.memory import MemoryStore
from tests.support.week import evolve

CALL = CallRecord(
    number=0,
    dialect="hermes",
    tool="write_file",
    score=97,
    decision="delivered",
    stage="sent",
    reasons=("hermes 97",),
    threshold=90,
    meant=True,
    before='x <tool_call>{"name": "write_file"}</tool_call>',
    span=(2, 46),
    after='{"name": "write_file", "arguments": {"path": "a"}}',
)

REFUSED = evolve(
    CALL, score=85, decision="refused", reason="low_confidence", after="", setting="TRANSFORM_MIN_CONFIDENCE=0.85"
)


def request(number: int, **fields: Any) -> RequestRecord:
    given = {
        "id": f"r{number}",
        "at": 1000.0 + number,
        "key": f"{number:032x}",
        "model": "m",
        "upstream": "u",
        "tools": 1,
    }
    return RequestRecord(**{**given, "calls": (CALL,), **fields})


@frozen
class Open:
    """A page that was let in."""

    store: MemoryStore
    session: aiohttp.ClientSession
    url: str
    door: Door

    async def get(self, path: str, status: int = 200, **headers: str) -> dict[str, Any]:
        async with self.session.get(self.url + path, headers=headers) as answer:
            assert answer.status == status, await answer.text()
            return dict(await answer.json())

    async def post(self, path: str, body: object, status: int = 200) -> dict[str, Any]:
        headers = {"Origin": self.url, "X-Toolgate-Inspector": "1"}
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            assert answer.status == status, await answer.text()
            return dict(await answer.json())


@pytest.fixture
async def page(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    store = MemoryStore()
    listening = sockets("127.0.0.1", 0, is_fixed=False)
    door = Door(port=listening[0].getsockname()[1])
    writer = None if getattr(request, "param", "") == "read only" else store
    inspector = Inspector(store, load({}), door, "anna", writer=writer)
    async with (
        running(inspector, listening),
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        url = f"http://127.0.0.1:{door.port}"
        async with session.get(f"{url}/?key={door.key}") as answer:
            assert answer.status == 200
            assert answer.url.query_string == ""
        yield Open(store, session, url, door)


async def test_rows_come_newest_first_in_pages_and_filtered(page):
    await page.store.append([request(number, arm="live" if number % 2 else "control") for number in range(25)])
    found = await page.get("/api/rows?limit=10")
    assert (found["schema_version"], [row["id"] for row in found["rows"]][:2]) == (1, ["r24", "r23"])
    more = await page.get(f"/api/rows?limit=10&before={found['next']}")
    assert more["rows"][0]["id"] == "r14"
    last = await page.get(f"/api/rows?limit=10&before={more['next']}")
    assert (len(last["rows"]), last["next"]) == (5, None)
    assert len((await page.get("/api/rows?filter=arm:live"))["rows"]) == 12
    assert (await page.get("/api/rows?filter=tool:nobody"))["rows"] == []
    assert "colour" in (await page.get("/api/rows?filter=colour:red", 400))["error"]["message"]


async def test_the_next_turn_and_labels_stand_on_the_row(page):
    told = OutcomeRecord(
        at=1001.0,
        key=f"{0:032x}",
        arm="live",
        strategy="s",
        dialect="d",
        epoch=0,
        outcome="rejected",
        reason="missing_argument",
        reported_by="later",
    )
    await page.store.append([request(0), told])
    (row,) = (await page.get("/api/rows?filter=outcome:rejected"))["rows"]
    assert (row["next"], row["next_reason"], row["label"]) == ("rejected", "missing_argument", None)
    tally = await page.post("/api/label", {"id": "r0", "number": 0, "verdict": "wrong", "note": "an example"})
    assert (tally["dialect"], tally["right"], tally["wrong"]) == ("hermes", 0, 1)
    (row,) = (await page.get("/api/rows?filter=label:wrong"))["rows"]
    assert row["label"] == "wrong"


async def test_the_detail_tells_before_and_after_why_and_the_setting(page):
    await page.store.append([request(0), request(1, calls=(REFUSED,)), request(2, calls=(REFUSED,), at=1e12)])
    found = await page.get("/api/rows/r0")
    assert found["panes"]["before"][slice(*found["panes"]["span"])].startswith("<tool_call>")
    assert found["panes"]["after"][0]["name"] == "write_file"
    assert found["why"]["steps"] == [{"words": "JSON between tags of a call", "code": "hermes", "points": 0.97}]
    low = await page.get("/api/rows/r1?since=7d")
    assert low["code"] == REFUSED.reason
    assert low["setting"] == "TRANSFORM_MIN_CONFIDENCE=0.85"
    assert low["others_under"] == {"count": 1, "with_signs": 0}
    assert (await page.get("/api/rows/nobody", 404))["error"]["code"] == "not_found"


async def test_what_is_new_comes_by_the_stream_and_a_reconnect_misses_nothing(page):
    await page.store.append([request(0)])
    cursor = await page.store.end()

    async def read(count: int, cursor: str) -> list[tuple[str, str, dict[str, Any]]]:
        events = []
        async with page.session.get(f"{page.url}/api/live", headers={"Last-Event-ID": cursor}) as answer:
            event: dict[str, str] = {}
            async for line in answer.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    event[name] = value
                elif event.get("event") == "row":
                    events.append((event["id"], event["event"], json.loads(event["data"])))
                    if len(events) == count:
                        return events
                if not name:
                    event = {}
        return events

    async with asyncio.timeout(10):
        reading = asyncio.ensure_future(read(3, cursor))
        await asyncio.sleep(0)
        await page.store.append([request(1), request(2)])
        await page.store.append([request(3)])
        events = await reading
        assert [data["id"] for _, _, data in events] == ["r1", "r2", "r3"]
        again = await read(2, events[0][0])
        assert [data["id"] for _, _, data in again] == ["r2", "r3"]


async def test_a_text_is_read_again_with_other_tools_and_nothing_is_stored(page):
    text = '<tool_call>\n{"name": "launch_rocket", "arguments": {}}\n</tool_call>'
    found = await page.post("/api/try", {"text": text, "tools": [{"name": "read_file", "input_schema": {}}]})
    assert found["rejected"][0]["sentence"] == "`launch_rocket` is not the one tool offered (read_file)"
    found = await page.post("/api/try", {"text": text, "tools": [{"name": "launch_rocket", "input_schema": {}}]})
    assert found["calls"][0]["name"] == "launch_rocket"
    assert await page.store.end() in ("0", "")
    for body in (
        {"text": 1},
        {"text": "", "tools": [1]},
        {"text": "", "dialect": "x"},
        {"text": "", "min_confidence": 9},
    ):
        assert "error" in await page.post("/api/try", body, 400)


async def test_a_fixture_says_what_is_missing(page):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": []})
    await page.store.append([request(0), request(1, request_body=body, answer_text="<x>", finish_reason="stop")])
    assert "AUDIT_BODIES=full" in (await page.get("/api/rows/r0/fixture", 409))["error"]["message"]
    line = await page.get("/api/rows/r1/fixture")
    assert (line["answer"], line["expected"][0]["name"]) == ("<x>", "write_file")


async def test_the_rollout_is_changed_with_a_reason_and_by_whom(page):
    assert "why" in (await page.post("/api/rollout/kill", {"reason": " "}, 400))["error"]["message"]
    assert (await page.post("/api/rollout/explode", {"reason": "x"}, 404))["error"]["code"] == "not_found"
    done = await page.post("/api/rollout/kill", {"reason": "wrong paths"})
    assert done["now"]["killed"]
    (decision,) = [record async for record in page.store.scan(DecisionRecord)]
    assert (decision.decision, decision.by, decision.reason) == ("kill", "anna", "wrong paths")
    assert (await page.post("/api/rollout/pause", {"reason": "x"}, 409))["error"]["code"] == "refused"
    off = {"strategy": "recovery", "dialect": "hermes", "off": True, "reason": "bad"}
    await page.post("/api/rollout/unkill", {"reason": "false alarm"})
    state = (await page.post("/api/rollout/slice", off))["now"]
    assert state["slices_off"] == ["recovery/hermes"]
    assert (await page.get("/api/state"))["rollout"]["slices_off"] == ["recovery/hermes"]


@pytest.mark.parametrize("page", ["read only"], indirect=True)
async def test_a_page_that_may_only_read_writes_nothing(page):
    await page.store.append([request(0)])
    before = await page.store.end()
    label = await page.post("/api/label", {"id": "r0", "number": 0, "verdict": "right"}, 403)
    assert label["error"]["code"] == "read_only"
    assert (await page.post("/api/rollout/kill", {"reason": "x"}, 403))["error"]["code"] == "read_only"
    await page.get("/api/rows")
    await page.get("/api/figures?since=5m")
    await page.get("/api/rows/r0")
    assert await page.store.end() == before


async def test_figures_count_what_models_leak(page):
    now, calls = time.time(), [(CALL,), (CALL,), (CALL,), (REFUSED,), *[()] * 6]
    await page.store.append([request(number, at=now - number, calls=calls[number]) for number in range(10)])
    found = await page.get("/api/figures?since=5m")
    assert (found["answers"], found["leaked"]["hits"], found["became"]["hits"], found["stayed_text"]) == (10, 4, 3, 1)
    assert found["bad"]["live"]["too_few"]
    assert found["models"][0]["dialects"] == {"hermes": 4}
    assert "error" in await page.get("/api/figures?since=2h", 400)


PATHS = [
    *("/", "/app/main.js", "/api/rows", "/api/rows/x", "/api/figures", "/api/live", "/api/state"),
    *("/nothing", "/../pyproject.toml"),
]


@pytest.mark.parametrize("path", PATHS)
async def test_nobody_without_the_cookie_sees_anything(page, path):
    async with aiohttp.ClientSession() as stranger, stranger.get(page.url + path) as answer:
        assert answer.status == 401
        assert set(await answer.json()) == {"schema_version", "error"}
        for name, value in HEADERS.items():
            assert answer.headers[name] == value


async def test_every_answer_carries_the_policy(page):
    for path in ("/", "/app/main.js", "/app/page.css", "/api/rows", "/api/rows/nobody", "/app/../server.py", "/x"):
        async with page.session.get(page.url + path) as answer:
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS, path
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_used_key_and_a_cookie_of_an_earlier_start_are_nothing(page):
    async with aiohttp.ClientSession() as stranger:
        async with stranger.get(f"{page.url}/?key={page.door.key}") as answer:
            assert answer.status == 401
        earlier = Door(port=page.door.port)
        async with stranger.get(page.url, cookies={earlier.cookie_name: earlier.cookie}) as answer:
            assert answer.status == 401


ATTACKS = [
    ({"Host": "evil.test"}, 421),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Origin": "http://evil.test"}, 403),
]


@pytest.mark.parametrize(("headers", "status"), ATTACKS)
async def test_other_names_and_pages_are_refused_with_the_cookie_too(page, headers, status):
    await page.get("/api/rows", status, **headers)


async def test_a_simple_post_does_nothing(page):
    await page.store.append([request(0)])
    body = json.dumps({"id": "r0", "number": 0, "verdict": "right"})
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        async with page.session.post(f"{page.url}/api/label", data=body, headers=headers) as answer:
            assert answer.status in (403, 415)
    assert await page.store.end() == "1"


async def test_a_page_that_goes_away_is_no_fault(page):
    with capture_logs() as told:
        for _ in range(3):
            answer = await page.session.get(f"{page.url}/api/live")
            await answer.content.readline()
            answer.close()
            for number in range(3):  # what is written after it has gone
                await page.store.append([request(number)])
                await asyncio.sleep(0.3)
    assert [each for each in told if each["log_level"] == "error"] == []


def test_what_a_store_that_was_begun_anew_has_is_told_again():
    told: list[bytes] = []

    class Response:
        async def write(self, data: bytes) -> None:
            told.append(data)

    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    for cursor in ("6", "7", "1", "2"):  # 6 had been caught up with; then all was pruned, and numbers begin again
        queue.put_nowait(Event("outcome", cursor, {}))
    queue.put_nowait(None)
    asyncio.run(_relay(queue, Response(), parsed(""), start=_places("5"), reached=_places("6")))  # type: ignore[arg-type]
    assert [data.partition(b"\n")[0] for data in told] == [b"id: 7", b"id: 1", b"id: 2"]


# --- Who may come in


HOME = {"Host": "127.0.0.1:8790"}

ACTION = {
    **HOME,
    "Origin": "http://127.0.0.1:8790",
    "Content-Type": "application/json",
    "X-Toolgate-Inspector": "1",
    "Sec-Fetch-Site": "same-origin",
}


@pytest.fixture
def door():
    return Door(port=8790, now=iter(float(at) for at in (0, 1, 2, KEY_S + 9)).__next__)


@pytest.mark.parametrize("host", ["127.0.0.1:8790", "localhost:8790", "[::1]:8790", "LOCALHOST:8790"])
def test_its_own_names_come_in(door, host):
    assert door.stops("GET", {"Host": host}) is None


@pytest.mark.parametrize(
    "host",
    ["", "127.0.0.1", "127.0.0.1:80", "evil.test:8790", "localhost.evil.test:8790", "127.0.0.1:8790.", "0.0.0.0:8790"],
)
def test_other_names_are_misdirected(door, host):
    refusal = door.stops("GET", {"Host": host})
    assert refusal is not None
    assert refusal.status == 421


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {**HOME, "Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {**HOME, "Sec-Fetch-Site": "same-site"}, 403),
        ("GET", {**HOME, "Origin": "http://evil.test"}, 403),
        ("GET", {**HOME, "Origin": "http://localhost:8790"}, 403),
        ("GET", {**HOME, "Origin": "null"}, 403),
        ("DELETE", HOME, 405),
        ("OPTIONS", HOME, 405),
        ("POST", HOME, 403),
        ("POST", {**ACTION, "Content-Type": "text/plain"}, 415),
        ("POST", {**ACTION, "Content-Type": ""}, 415),
        ("POST", {key: value for key, value in ACTION.items() if key != "X-Toolgate-Inspector"}, 403),
        ("POST", {**ACTION, "Origin": "http://127.0.0.1:8791"}, 403),
        ("POST", {**ACTION, "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_what_no_page_of_ours_sends_is_refused(door, method, headers, status):
    refusal = door.stops(method, headers)
    assert refusal is not None
    assert refusal.status == status


def test_an_action_of_the_page_comes_in(door):
    assert door.stops("POST", {**ACTION, "Content-Type": "application/json; charset=utf-8"}) is None


def test_a_key_is_good_once(door):
    assert not door.trades("x" * 43)
    assert door.trades(door.key)
    assert not door.trades(door.key)


def test_a_key_is_good_for_five_minutes():
    times = [0.0]
    door = Door(port=1, now=lambda: times[0])
    times[0] = KEY_S + 1
    assert not door.trades(door.key)


def test_the_cookie_is_another_secret_and_new_at_each_start(door):
    other = Door(port=8790)
    assert len({door.key, door.cookie, other.key, other.cookie}) == 4
    assert min(map(len, (door.key, door.cookie))) >= 43
    assert door.knows({door.cookie_name: door.cookie})
    assert not door.knows({door.cookie_name: other.cookie})
    assert not door.knows({door.cookie_name: door.key})
    assert not door.knows({})
    assert door.cookie not in repr(door)
    assert door.key not in repr(door)


# --- What is told to pages that listen, to slow ones too


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
