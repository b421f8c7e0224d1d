"""Clients that mean it ill: what they send reaches no model server, and costs no other client of a gateway anything."""

import asyncio
import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.core.records import FeedbackRecord, OutcomeRecord
from tests.attacks.conftest import CALL, HONEST, TOOLS, Arena, all_of, calls_of
from tests.support.client import ask, chat, exchange, get, open_connection, post_bytes
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    completion,
    event,
    stream,
    text,
)
from tests.support.processes import Program, is_alive, until

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

SECOND = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"

NO_HTTP = {
    "two lengths": POST + b"Content-Length: 4\r\nContent-Length: 40\r\n\r\n{}{}" + SECOND,
    "a length and chunks": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "chunks twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "a size that is none": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + SECOND,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + SECOND,
    "a length in words": POST + b"Content-Length: 1_0\r\n\r\n0123456789" + SECOND,
    "a folded header": POST + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n" + SECOND,
    "a nul in a header": POST + b"X-A: b\0c\r\nContent-Length: 0\r\n\r\n" + SECOND,
    "a lone return": POST + b"X-A: b\rContent-Length: 0\r\n\r\n" + SECOND,
    "a blank before the colon": POST + b"Content-Length : 2\r\n\r\n{}" + SECOND,
    "a long header": POST + b"X-A: " + b"a" * 20_000 + b"\r\n\r\n" + SECOND,
    "many headers": POST + b"".join(b"X-%d: a\r\n" % number for number in range(400)) + b"\r\n" + SECOND,
    "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n",
    "no version": b"GET /v1/models\r\n\r\n",
    "another version": b"GET /v1/models HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "the preface of http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}

ELSEWHERE = {
    "another host": (b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n", b"421"),
    "another host in the target": (b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n", b"421"),
    "no host": (b"GET /v1/models HTTP/1.1\r\n", b"4"),
    "a page of another site": (
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n",
        b"403",
    ),
    "a path that climbs": (b"GET /v1/../admin HTTP/1.1\r\nHost: localhost\r\n", b"40"),
    "a path that climbs by halves": (b"GET /v1/..;/admin HTTP/1.1\r\nHost: localhost\r\n", b"40"),
    "a path that climbs escaped": (b"GET /v1/..%5cadmin HTTP/1.1\r\nHost: localhost\r\n", b"40"),
    "a proxy asked for": (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n", b"4"),
}


async def test_what_is_no_http_is_refused_and_reaches_nobody(arena: Arena) -> None:
    await arena.begin()
    answers = await all_of(*(arena.send(data) for data in NO_HTTP.values()))
    for name, got in zip(NO_HTTP, answers, strict=True):
        assert got.startswith((b"HTTP/0.9 400", b"HTTP/1.0 400", b"HTTP/1.1 400")), (name, got)
        assert len(got.split(b"HTTP/")) == 2, (name, "a second request was answered")
    assert arena.upstream.requests == []


async def test_who_asks_for_another_place_is_refused(arena: Arena) -> None:
    await arena.begin()
    answers = await all_of(*(arena.send(data + b"Connection: close\r\n\r\n") for data, _ in ELSEWHERE.values()))
    for (name, (_, status)), got in zip(ELSEWHERE.items(), answers, strict=True):
        assert got.split(b" ")[1].startswith(status), (name, got[:200])
    assert arena.upstream.requests == []


GOOD = chat(stream=False)

NO_REQUEST = {
    "nothing": b"",
    "a list": b"[]",
    "half": json.dumps(GOOD).encode()[:-9],
    "deep lists": b'{"model": ' + b"[" * 100_000,
    "deep objects": b'{"model":' * 50_000,
    "no utf-8": b'{"model": "\xff\xfe", "messages": []}',
    "utf-16": json.dumps(GOOD).encode("utf-16"),
    "no model": json.dumps({**GOOD, "model": None}).encode(),
    "a model that is a list": json.dumps({**GOOD, "model": ["m"]}).encode(),
    "a model with a line break": json.dumps({**GOOD, "model": "m\r\nX-Evil: 1"}).encode(),
    "a model twice": json.dumps(GOOD).encode()[:-1] + b', "model": "other"}',
    "messages twice": json.dumps(GOOD).encode()[:-1] + b', "m\\u0065ssages": [{"role": "user"}]}',
    "no messages": json.dumps({**GOOD, "messages": []}).encode(),
    "messages of numbers": json.dumps({**GOOD, "messages": [1, 2]}).encode(),
    "a role that is none": json.dumps({**GOOD, "messages": [{"role": 5}]}).encode(),
    "stream in words": json.dumps({**GOOD, "stream": "yes"}).encode(),
    "tools in words": json.dumps({**GOOD, "tools": "all"}).encode(),
}


async def test_what_is_no_request_is_a_400_and_reaches_nobody(arena: Arena) -> None:
    await arena.begin()
    answers = await all_of(*(arena.post(data) for data in NO_REQUEST.values()))
    for name, (status, body) in zip(NO_REQUEST, answers, strict=True):
        assert status == 400, (name, status, body)
        assert json.loads(body)["error"]["code"] == "invalid_request", name
    assert arena.upstream.requests == []


async def test_bodies_above_their_bound_are_refused_whatever_they_are_packed_in(arena: Arena) -> None:
    await arena.begin(GATEWAY_MAX_BODY_BYTES="64KiB")
    large = json.dumps({**GOOD, "pad": "x" * 4_000_000}).encode()
    plain, packed = await all_of(
        arena.post(large[:200_000]), arena.post(gzip.compress(large), **{"Content-Encoding": "gzip"})
    )
    assert (plain[0], packed[0]) == (413, 413)
    assert arena.upstream.requests == []


async def test_who_drips_holds_nothing_up(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads, first and second ones, and bodies that bring just enough: all are ended, and others are served."""
    monkeypatch.setattr("gateway.front.connection.HEAD_TIMEOUT_S", 0.4)
    await arena.begin(GATEWAY_BODY_TIMEOUT_S="0.6", GATEWAY_MAX_CONCURRENCY="20")
    arena.upstream.script = answer_json(completion("hello"))

    async def drips(*begun: bytes, piece: bytes) -> None:
        reader, writer = await open_connection(arena.url)
        for part in begun:
            writer.write(part)
        ended = asyncio.ensure_future(_to_the_end(reader))
        while not ended.done():
            writer.write(piece)
            await asyncio.sleep(0.02)
        writer.transport.abort()

    heads = [drips(b"GET /v1/models HT", piece=b"x") for _ in range(15)]
    seconds = [drips(post_bytes(GOOD), b"POST /v1/ch", piece=b"x") for _ in range(5)]
    bodies = [drips(POST + b"Content-Length: 33000000\r\n\r\n", piece=b" " * 20_000) for _ in range(5)]
    await all_of(*heads, *seconds, *bodies)
    monkeypatch.undo()  # on a busy machine an honest head may take as long


async def _to_the_end(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(65536):
            pass
    except ConnectionError:
        return


async def test_who_leaves_takes_the_model_servers_work_along(arena: Arena) -> None:
    await arena.begin()

    async def quiet(connection, received):
        await connection.send(STREAM_HEAD, text("hello"))
        await connection.until_gone()

    arena.upstream.script = quiet

    async def leaves(number: int) -> None:
        reader, writer = await open_connection(arena.url)
        writer.write(post_bytes(chat()))
        if number % 2:
            await reader.readuntil(b"hello")
        else:
            await arena.upstream.asked.wait()
        writer.transport.abort()

    await all_of(*(leaves(number) for number in range(20)))
    await arena.upstream.until_all_gone(20)


async def test_who_does_not_read_is_dropped_and_the_model_server_not_read_either(arena: Arena) -> None:
    await arena.begin(CLIENT_WRITE_TIMEOUT_S="0.3")
    sent = 0

    async def floods(connection, received):
        nonlocal sent
        await connection.send(STREAM_HEAD)
        while not connection.gone.is_set():
            await connection.send(text("x" * 60_000))
            sent += 60_000

    arena.upstream.script = floods
    _, writer = await open_connection(arena.url)
    writer.write(post_bytes(chat()))
    await arena.upstream.asked.wait()
    await arena.upstream.until_all_gone(20)
    writer.transport.abort()
    assert sent < 60_000_000


async def test_without_a_right_key_nothing_is_asked_and_no_key_goes_up(arena: Arena) -> None:
    await arena.begin(GATEWAY_API_KEYS="sk-right-0001", UPSTREAM_API_KEY="sk-ours-0002")
    wrong = ("sk-wrong", "sk-right-0002", "", " sk-right-0001x", "ſk-right-0001")
    for key in wrong:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/feedback"):
            status, body = await arena.post(json.dumps(GOOD).encode(), path, Authorization=f"Bearer {key}")
            assert status == 401, (key, path)
            assert b"sk-" not in body
    assert arena.upstream.requests == []
    await arena.ask()
    assert "sk-right-0001" not in str(arena.upstream.last)
    written = await arena.log.until('"event":"request_ended"')
    assert "sk-right-0001" not in written
    assert "sk-ours-0002" not in written


# --- Real workers under a mixed attack: none dies of it, and who means it well is served all the while


FLOOD = [event(choices=[{"index": number, "delta": {"content": "x"}} for number in range(4000)]), DONE]

ENDLESS = text('{"name": "' + '\\"' * 50_000)


async def serves(connection: Connection, received: Received) -> None:
    """An honest answer, unless the model's name says what to do."""
    pieces = {
        "flood": FLOOD,
        "endless": [ENDLESS, ENDLESS],
        "cut": [text(CALL[:20])],
    }.get(received.json["model"], [text("I look.\n"), text(CALL), event(finish="stop"), DONE])
    await connection.send(STREAM_HEAD, *pieces)


@pytest.mark.system
async def test_workers_live_through_all_of_it(
    upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    upstream.script = serves
    async with Program(tmp_path, UPSTREAM_URL=upstream.url, GATEWAY_WORKERS="2", REPAIR_ATTEMPTS="0") as started:
        program = await started.serving()
        workers = set(program.workers.values())
        over = asyncio.Event()
        served = 0

        async def means_well() -> None:
            nonlocal served
            while not over.is_set():
                got = await ask(client, program.url, chat(model="honest", tools=TOOLS))
                assert calls_of(got) == [("read_file", {"path": "a.py"})]
                served += 1

        async def model(name: str) -> None:
            await ask(client, program.url, chat(model=name, tools=TOOLS))

        async def leaves() -> None:
            _, writer = await open_connection(program.url)
            writer.write(post_bytes(chat(model="honest", tools=TOOLS)))
            await writer.drain()
            writer.transport.abort()

        honest = [asyncio.ensure_future(means_well()) for _ in range(3)]
        sends: list[Any] = [exchange(program.url, data, seconds=30) for data in NO_HTTP.values()]
        posts = [
            exchange(program.url, post_bytes(data, "Connection: close"), seconds=30) for data in NO_REQUEST.values()
        ]
        models = [model(name) for name in ("flood", "endless", "cut") * 3]
        async with asyncio.timeout(60):
            await asyncio.gather(*sends, *posts, *models, *(leaves() for _ in range(20)))
        over.set()
        await asyncio.gather(*honest)
        assert served >= 3
        assert set(program.workers.values()) == workers
        assert all(map(is_alive, workers))
        os.kill(min(workers), signal.SIGKILL)
        await until(lambda: len(set(program.workers.values()) - workers) == 1)
        await model("honest")
        assert not [line for line in program.lines if "Traceback" in line or "internal_error" in line]


EVE, ADA = "sk-eve-0001", "sk-ada-0002"
CANARY = {
    "GATEWAY_API_KEYS": f"{ADA},{EVE}",
    "TRANSFORM_MODE": "canary",
    "CANARY_PERCENT": "50",
    "CANARY_SALT": "always-the-same",
    "ROLLOUT_AUTO": "rollback",
}
FAULT = "Error: Missing value for required parameter 'path'"


class Town:
    """The arena with a clock in hand: seconds pass when it says so."""

    def __init__(self, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arena = arena
        self.now = 1_800_000_000.0
        self._patch = monkeypatch

    async def begin(self, **settings: str) -> None:
        running = await self.arena.begin(**CANARY, **settings)
        self.agent = running.upkeep.agent
        self._patch.setattr(self.agent, "clock", lambda: self.now)
        self._patch.setattr(running.upkeep.store._store, "wall", lambda: self.now)
        await self.second()

    async def second(self) -> None:
        """A second passes, and all that was counted in it is judged."""
        await self.agent.tick()
        self.now += 1.0
        await self.agent.tick()

    async def asked(self, key: str, *said: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        """A request: its arm, and the conversation with its answer."""
        got = await self.arena.ask(key=key, messages=list(said))
        found = [
            call for chunk in got.chunks for each in chunk["choices"] for call in each["delta"].get("tool_calls", ())
        ]
        answer: dict[str, Any] = {"role": "assistant", "content": CALL}
        if found:
            function = {"name": "read_file", "arguments": '{"path": "a.py"}'}
            answer |= {
                "content": None,
                "tool_calls": [{"id": found[0]["id"], "type": "function", "function": function}],
            }
        return got.headers["X-Toolgate-Arm"], [*said, answer]

    async def turn(self, key: str, number: int, result: str) -> str:
        """A conversation of two requests: a call, and what became of it. Returns its arm."""
        arm, told = await self.asked(key, {"role": "user", "content": f"conversation {number} of {key}"})
        if "tool_calls" in told[-1]:
            said = {"role": "tool", "tool_call_id": told[-1]["tool_calls"][0]["id"], "content": result}
        else:
            said = {"role": "user", "content": "[Tool Result: read_file]\n\nResult:\nfine"}
        await self.asked(key, *told, said)
        return arm

    @property
    def state(self) -> tuple[str, tuple[str, ...]]:
        snapshot = self.agent.snapshot()
        return snapshot.state, tuple(self.agent.slices_off)


@pytest.fixture
def town(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(arena, monkeypatch)


async def test_forged_rejections_of_one_key_take_nothing_back(town: Town) -> None:
    """It reads in which arm it is, and reports faults in live conversations alone."""
    await town.begin()
    await town.turn(ADA, 0, "fine")
    for number in range(24):
        await town.turn(EVE, number, FAULT)
        await town.turn(EVE, 1000 + number, FAULT)
        await town.second()
    assert town.state == ("canary", ())
    assert max(town.agent.snapshot().statistics.values()) < town.agent.rules.judge().limit
    for number in range(60):
        await town.turn(ADA, number, FAULT)
        await town.turn(ADA, 1000 + number, FAULT)
        await town.second()
        if town.state != ("canary", ()):
            break
    assert town.state != ("canary", ()), "a fault that both see is one"


async def test_one_follow_up_sent_again_and_again_is_one_outcome(town: Town) -> None:
    await town.begin()
    await town.turn(ADA, 0, "fine")
    for number in range(50):
        arm, told = await town.asked(EVE, {"role": "user", "content": f"again {number}"})
        if arm == "live":
            break
    told.append({"role": "tool", "tool_call_id": told[-1]["tool_calls"][0]["id"], "content": FAULT})
    for _ in range(6):
        await town.asked(EVE, *told)
        await town.second()
    running = town.arena.running
    assert await running.upkeep.recorder.flush(5)
    rejected = [one async for one in running.upkeep.store.scan(OutcomeRecord) if one.outcome == "rejected"]
    assert len(rejected) == 1
    metrics = (await get(town.arena.client, f"{town.arena.url}/metrics")).body.decode()
    counted = [line for line in metrics.splitlines() if "toolgate_outcomes_total{" in line and "rejected" in line]
    assert [line.rpartition(" ")[2] for line in counted if not line.endswith(" 0.0")] == ["1.0"]


async def test_requests_that_fail_by_their_own_doing_switch_nothing_off(town: Town) -> None:
    """Answers that break in live conversations of one key, however many."""
    await town.begin()
    await town.turn(ADA, 0, "fine")
    broken = stream(text("I look.\n"), text(CALL[:30]))
    for number in range(50):
        said = [{"role": "user", "content": f"break {number}"}]
        town.arena.upstream.script = HONEST
        arm = (await town.arena.ask(key=EVE, messages=said)).headers["X-Toolgate-Arm"]
        if arm == "live":
            town.arena.upstream.script = broken
            await town.arena.ask(key=EVE, messages=said)
        await town.second()
    assert town.state == ("canary", ())


async def test_nobody_rates_the_answers_of_others(town: Town) -> None:
    arena = town.arena
    await arena.begin(GATEWAY_API_KEYS=f"{ADA},{EVE}", STORE_URL="memory://")
    await arena.ask(key=ADA)
    rating = b'{"completion_id": "chatcmpl-1", "rating": "bad"}'
    status, body = await arena.post(rating, "/v1/feedback", Authorization=f"Bearer {EVE}")
    assert status == 404, body
    arena.running.shared.answers._answers.clear()  # as after a restart: it is looked for in the store
    assert await arena.running.upkeep.recorder.flush(5)
    assert (await arena.post(rating, "/v1/feedback", Authorization=f"Bearer {EVE}"))[0] == 404
    assert (await arena.post(rating, "/v1/feedback", Authorization=f"Bearer {ADA}"))[0] == 200
    assert await arena.running.upkeep.recorder.flush(5)
    assert len([one async for one in arena.running.upkeep.store.scan(FeedbackRecord)]) == 1


async def test_no_flood_of_names_takes_the_series_of_others(town: Town) -> None:
    arena = town.arena
    await arena.begin(GATEWAY_API_KEYS=f"{ADA},{EVE}", METRICS_LABEL_CAP="8")
    for number in range(30):
        await arena.ask(f"eve-{number}", key=EVE)
    await arena.ask("the-model-of-ada", key=ADA)
    metrics = (await get(arena.client, f"{arena.url}/metrics", headers=arena.headers(ADA))).body.decode()
    assert 'model="the-model-of-ada"' in metrics
    assert len({line for line in metrics.splitlines() if "by_model_total{" in line and 'model="eve-' in line}) > 0


@pytest.mark.parametrize("written", ["does not support tools", "does \\u006eot\\n support  tools"])
async def test_words_of_one_client_teach_nothing_about_the_server(arena: Arena, written: str) -> None:
    """A server quotes what it refuses: it would be asked in another way for an hour, whoever asks."""
    await arena.begin(GATEWAY_API_KEYS=f"{ADA},{EVE}")
    told = " ".join(json.loads(f'"{written}"').split())

    async def quotes(connection: Connection, received: Received) -> None:
        if "tools" not in received.json:
            await HONEST(connection, received)
        else:
            error = {"message": f"invalid description: this {told}", "type": "invalid_request_error"}
            await answer_json({"error": error}, status="400 Bad Request")(connection, received)

    arena.upstream.script = quotes
    tool = json.loads(json.dumps(TOOLS[0]))
    tool["function"]["description"] = "X"
    body = json.dumps(chat(tools=[tool]))
    data = body.replace('"X"', f'"{written}"').encode()
    assert (await arena.post(data, Authorization=f"Bearer {EVE}"))[0] in (200, 400)
    arena.upstream.script = HONEST
    await arena.ask(key=ADA, model="gpt-4o")
    assert "tools" in arena.upstream.last.json
