"""How a stream's reads are cut before they are read: at the ends of events, wherever there are any."""

import asyncio
import json
import re
from random import Random
from typing import Any

import pytest
from attrs import evolve

from gateway.chat.enrolment import EQUAL, looping_tool
from gateway.chat.pump import PIECE_BYTES
from gateway.request.state import RequestState
from gateway.wire.calm import Gone, Lane, lane_of
from gateway.wire.sse import block_of
from tests.bench.counts import EVENT_HEAD, ROUTES
from tests.bench.requests import LAST_CHUNK, PROSE
from tests.support.faulty_upstream import Connection, FaultyUpstream, Received, completion

EVENT = b"data: " + b"x" * 100 + b"\n\n"


def test_a_long_read_is_cut_behind_an_event():
    data = EVENT * 400
    piece = block_of(data, PIECE_BYTES)
    assert PIECE_BYTES - len(EVENT) < len(piece) <= PIECE_BYTES
    assert len(piece) % len(EVENT) == 0


def test_an_event_longer_than_a_piece_is_cut_all_the_same():
    assert len(block_of(b"data: " + b"x" * PIECE_BYTES * 2 + b"\n\n", PIECE_BYTES)) == PIECE_BYTES


# --- When a conversation goes round in a circle


def pair(at: int, *, name: str = "f", arguments: str = "{}", result: Any = "r") -> list[dict[str, Any]]:
    call = {"id": f"c{at}", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{at}", "content": result},
    ]


def test_four_equal_calls_with_equal_results() -> None:
    messages = [{"role": "user", "content": "hi"}, *(each for at in range(EQUAL) for each in pair(at))]
    assert looping_tool(messages) == "f"
    assert looping_tool(messages[:-1]) is None, "the last has no result yet"
    assert looping_tool([*messages, {"role": "user", "content": "go on"}]) is None, "somebody said something"


@pytest.mark.parametrize("more", [{"name": "g"}, {"arguments": '{"a":1}'}, {"result": "other"}])
@pytest.mark.parametrize("place", range(EQUAL))
def test_any_difference_ends_it(more: dict[str, Any], place: int) -> None:
    messages = [each for at in range(EQUAL) for each in pair(at, **(more if at == place else {}))]
    assert looping_tool(messages) is None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "tool"},
        {"role": "assistant", "tool_calls": {}},
    ],
)
def test_odd_histories_are_none(message: dict[str, Any]) -> None:
    assert looping_tool([message] * 9) is None
    assert looping_tool([]) is None


STRATEGIES = [
    *(("chat", "recovery"), ("chat", "native"), ("chat, watched", "recovery")),
    *((f"{wire}, same wire", strategy) for wire in ("messages", "responses") for strategy in ("native", "recovery")),
]


@pytest.mark.parametrize(("route", "strategy"), STRATEGIES)
async def test_events_that_come_one_by_one_are_the_servers_own_and_are_counted(
    upstream: FaultyUpstream, gateway: Any, client: Any, log: Any, monkeypatch: pytest.MonkeyPatch,
    route: str, strategy: str,
) -> None:  # fmt: skip
    way, words = ROUTES[route], ["Well", *PROSE.split()[:90], "{", "<", "calm", *PROSE.split()[:40], "end"]
    sent = [way.begin, *(way.word(at, f" {word}") for at, word in enumerate(words)), way.end(len(words))]
    data, by_lane = b"".join(sent[:-1]), 0  # the end tells another text than was said, which would be a change

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(EVENT_HEAD)
        for each in filter(None, sent):
            await connection.send_chunked(each, last=False)
            for _ in range(6):  # so that each is a read of its own
                await asyncio.sleep(0)
        await connection.send(LAST_CHUNK)

    def counted(*how: Any, **rest: Any) -> Lane:
        lane = lane_of(*how, **rest)

        def takes(chunk: bytes) -> bool:
            nonlocal by_lane
            goes = lane.takes(chunk)
            by_lane += goes
            return goes

        return evolve(lane, takes=takes)

    monkeypatch.setattr("gateway.chat.pump.lane_of", counted)
    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES=f"bench={strategy}", **way.environ)
    async with client.post(running.url + way.path, json=way.ask(True)) as response:
        told = await response.read()
    assert told.startswith(data)
    record = await log.record("request_ended")
    assert (record["status"], record["bytes_out"]) == (200, len(told))
    assert by_lane > len(words) / 4, "too few to show anything"


WORDS = [
    "Well",
    ", I",
    " will look ",
    "into it ",
    "and",
    " then ",
    ". ",
    ".\n",
    "\n\n",
    " ",
    "  ",
    "line.\nNext ",
    "e.g.\n- a ",
]
MARKS = [
    "<",
    "x < y ",
    "<read>",
    "`ls` ",
    "[1] ",
    "\nAction",
    ": read",
    "\nto=",
    "func",
    "tion ",
    "assi",
    "st ",
    '{"a"',
    "~~",
]
CALL_TOLD = "<write><path>/a.py</path></write>"


async def ended(log: Any, request: str) -> dict[str, Any]:
    """What the log says of this request, once it has ended."""
    async with asyncio.timeout(5):
        while True:
            for fields in map(json.loads, (await log.until(request)).splitlines()):
                if (fields["event"], fields.get("request_id")) == ("request_ended", request):
                    return dict(fields)
            await asyncio.sleep(0.01)


async def test_a_lane_changes_nothing_but_what_an_event_costs(
    upstream: FaultyUpstream, gateway: Any, client: Any, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, answers, way = Random(7), [], ROUTES["chat"]
    for number in range(40):
        drawn = random.choices(WORDS, k=random.randint(4, 40))
        for _ in range(number % 4):
            drawn.insert(random.randrange(len(drawn)), random.choice(MARKS))
        answers.append([*drawn, CALL_TOLD] if number % 2 else drawn)
    asked: list[str] = []

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(EVENT_HEAD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))  # as it is then closed
        for each in (*(way.word(at, text) for at, text in enumerate(asked)), way.end(len(asked))):
            await connection.send_chunked(each, last=False)
            for _ in range(6):  # so that each is a read of its own
                await asyncio.sleep(0)
        await connection.send(LAST_CHUNK)

    held = 0

    def counted(*how: Any, **rest: Any) -> Lane:
        lane = lane_of(*how, **rest)

        def gone() -> Gone | None:
            nonlocal held
            told = lane.gone()
            held += told is not None and told.held_bytes > 0
            return told

        return evolve(lane, gone=gone)

    monkeypatch.setattr("gateway.chat.pump.lane_of", counted)
    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="bench=recovery")
    fields = ("status", "bytes_out", "calls", "refused", "held_bytes", "end")
    found = []
    for has_lane in (True, False):
        if not has_lane:
            monkeypatch.setattr("gateway.upstream.client.UpstreamReply.open_lane", lambda *how: None)
        told = []
        for asked[:] in answers:
            async with client.post(running.url + way.path, json=way.ask(True)) as response:
                body = re.sub(rb"call_\w+", b"call", await response.read())
            told.append((body, response.headers["X-Request-Id"]))
        records = [await ended(log, request) for _, request in told]
        found.append(
            [(body, [record.get(name) for name in fields]) for (body, _), record in zip(told, records, strict=True)]
        )
    for texts, with_lane, without in zip(answers, *found, strict=True):
        assert with_lane == without, texts
    assert held > len(answers) / 2, "too few to show anything"


async def test_what_a_lane_holds_is_told_before_a_stream_breaks_off(
    upstream: FaultyUpstream, gateway: Any, client: Any
) -> None:
    way = ROUTES["chat"]
    words = ["I ", "will ", "look", " now", " and ", "then "]

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(EVENT_HEAD)
        for at, word in enumerate(words):
            await connection.send_chunked(way.word(at, word), last=False)
            await asyncio.sleep(0.005)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="bench=recovery")
    async with client.post(running.url + way.path, json=way.ask(True)) as response:
        told = await response.read()
    *events, last = [json.loads(each[6:]) for each in told.split(b"\n\n") if each.startswith(b"data: {")]
    assert "".join(each["choices"][0]["delta"]["content"] for each in events) == "".join(words)
    assert "error" in last


# --- When what is there goes out


async def test_the_head_does_not_wait_for_the_first_event(upstream: FaultyUpstream, gateway: Any, client: Any) -> None:
    way, begun = ROUTES["chat"], asyncio.Event()

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(EVENT_HEAD)
        await begun.wait()
        await connection.send_chunked(way.word(0, "Well"), way.end(1))

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="bench=recovery")
    async with asyncio.timeout(10), client.post(running.url + way.path, json=way.ask(True)) as response:
        assert response.status == 200
        begun.set()
        assert (await response.read()).endswith(b"[DONE]\n\n")


@pytest.mark.parametrize("route", ROUTES)
async def test_an_answer_that_is_there_goes_out_in_one_write(
    upstream: FaultyUpstream, gateway: Any, client: Any, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    way, written = ROUTES[route], []
    data = b"".join((way.begin, *(way.word(at, f" w{at}") for at in range(5)), way.end(5)))
    flush = RequestState.flush

    def counted(state: RequestState) -> None:
        written.append(state.owed)
        flush(state)

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(EVENT_HEAD + b"%x\r\n%b\r\n" % (len(data), data) + LAST_CHUNK)

    monkeypatch.setattr(RequestState, "flush", counted)
    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="bench=recovery", **way.environ)
    async with client.post(running.url + way.path, json=way.ask(True)) as response:
        await response.read()
    [out] = filter(None, written)
    assert out.startswith(b"HTTP/1.1 200 OK\r\n")
    assert out.endswith(LAST_CHUNK)


@pytest.mark.parametrize("route", ["chat", "messages", "responses"])
async def test_what_is_told_does_not_wait_for_a_second_answer(
    upstream: FaultyUpstream, gateway: Any, client: Any, route: str
) -> None:
    way, read = ROUTES[route], asyncio.Event()
    words = ("Look here", " now.", "\n", "<read_file>\n<path>/a.py")
    data = b"".join((*(way.word(at, word) for at, word in enumerate(words)), way.end(4)))

    async def script(connection: Connection, received: Received) -> None:
        if received.json["stream"]:
            # As it is then closed: the second question would else go where nobody reads it.
            head = EVENT_HEAD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            await connection.send(head + b"%x\r\n%b\r\n" % (len(data), data) + LAST_CHUNK)
            return
        await read.wait()
        body = json.dumps(completion("<read_file>\n<path>/b.py</path>\n</read_file>")).encode()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    asked = json.loads(json.dumps(way.ask(True)).replace('"read"', '"read_file"'))
    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="bench=recovery")
    got = b""
    async with asyncio.timeout(10), client.post(running.url + way.path, json=asked) as response:
        while b"now." not in got:
            got += await response.content.readany()
        read.set()
        got += await response.read()
    assert b"/b.py" in got, "it was not asked again, so that nothing was shown"
    assert len(upstream.requests) == 2
