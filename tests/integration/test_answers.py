"""Answers of all dialects through the untouched arms: every byte is the model server's own.

Streamed and whole, in any cuts; also when the strategy that reads beside fails in every place, gives rubbish, or takes
too long. `pytest --answers PATH` lets other answers through in place of the golden cases.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import frozen
from canitoolcall.checks import compare, expected_as_result
from canitoolcall.fixtures import Fixture, load_fixtures
from canitoolcall.results import ParsedToolCall, ParseResult, Status

from gateway.answer.stream import StreamExchange
from gateway.core.records import RequestRecord
from tests.bench.lateness import CUTS
from tests.support.client import TOOLS, Answer, ask, chat, get
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
from tests.support.golden import SAMPLES
from tests.support.reading import pieces

ARMS = {
    "dry_run": {"TRANSFORM_MODE": "dry_run"},
    "control": {"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "0"},
}

MODELS = ("some-model", "qwen3-coder", "gpt-4o", "m:thinking")

"""Of several strategies, and of none in particular."""

CLIENTS = 8

FEW = 10

"""Every so many answers are enough for one way to fail."""

PLUG_INS = """
import time
from strategies.base import Prepared

def fail():
    raise RuntimeError("broken")

class Reader:
    idle = True

    def feed(self, text):
        return []

    def finish(self, reason):
        return []

class Strategy:
    make_reader = Reader

    def prepare(self, request, options):
        return Prepared(strategy=self.name, body=b"{}", make_reader=self.make_reader)

class Prepare(Strategy):
    name = "fails_to_prepare"

    def prepare(self, request, options):
        fail()

class Make(Strategy):
    name = "fails_to_make"

    def make_reader(self):
        fail()

class Feed(Strategy):
    name = "fails_to_feed"

    class make_reader(Reader):
        def feed(self, text):
            fail()

class Finish(Strategy):
    name = "fails_to_finish"

    class make_reader(Reader):
        def finish(self, reason):
            fail()

class Deep(Strategy):
    name = "recurses"

    class make_reader(Reader):
        def feed(self, text):
            return self.feed(text)

class Idle(Strategy):
    name = "fails_to_idle"

    class make_reader(Reader):
        @property
        def idle(self):
            fail()

class Rubbish(Strategy):
    name = "gives_rubbish"

    class make_reader(Reader):
        def feed(self, text):
            return [None, text, 7]

class Nothing(Strategy):
    name = "gives_nothing"

    class make_reader(Reader):
        def feed(self, text):
            return None

class Slow(Strategy):
    name = "is_slow"

    class make_reader(Reader):
        def feed(self, text):
            due = time.thread_time() + 0.003
            while time.thread_time() < due:
                pass
            return []
"""

BROKEN: dict[str, tuple[str, set[str | None]]] = {
    "fails_to_prepare": ("Prepare", {"would_fail"}),
    "fails_to_make": ("Make", {"would_fail"}),
    "fails_to_feed": ("Feed", {"would_fail"}),
    "fails_to_finish": ("Finish", {"would_fail"}),
    "recurses": ("Deep", {"would_fail"}),
    "fails_to_idle": ("Idle", {"would_fail", "identical"}),  # not every answer asks
    "gives_rubbish": ("Rubbish", {"would_fail"}),
    "gives_nothing": ("Nothing", {"would_fail"}),
    "is_slow": ("Slow", {"dropped"}),
}

"""The class of each, and what its reading may come to."""


@frozen(kw_only=True)
class Case:
    """One answer, as the model server sends it and as it was asked for."""

    number: int
    label: dict[str, Any]
    streamed: bool

    @property
    def request(self) -> dict[str, Any]:
        return chat(
            model=MODELS[self.number % len(MODELS)],
            stream=self.streamed,
            tools=self.label["tools"],
            messages=[{"role": "user", "content": f"case {self.number}"}],
        )

    @property
    def body(self) -> bytes:
        rng = random.Random(self.label["id"])
        if not self.streamed:
            return json.dumps(completion(self.label["text"]), indent=rng.choice((None, 1))).encode() + b" \n"
        written: str = self.label["text"]
        cuts = sorted(rng.choices(range(len(written) + 1), k=rng.randint(0, 12)))
        events = [event({"role": "assistant", "content": ""}), *map(text, pieces(written, cuts))]
        events += [event(finish="stop"), *[b"data: [DONE]\n\n"] * (rng.random() < 0.8)]
        if rng.random() < 0.3:
            events.insert(rng.randrange(len(events)), b": a comment\n\n")
        if rng.random() < 0.3:
            events = [each.replace(b"\n", b"\r\n") for each in events]
        return b"".join(events)

    @property
    def packets(self) -> list[bytes]:
        rng = random.Random(self.number)
        cuts = sorted(rng.choices(range(len(self.body) + 1), k=rng.randint(0, 20)))
        ends = [*cuts, len(self.body)]
        return [self.body[begin:end] for begin, end in zip([0, *cuts], ends, strict=True) if end > begin]


def cases(labels: list[dict[str, Any]], *, streamed: bool, step: int = 1) -> list[Case]:
    return [
        Case(number=number, label=label, streamed=streamed) for number, label in enumerate(labels) if not number % step
    ]


async def differing(client: aiohttp.ClientSession, url: str, upstream: FaultyUpstream, work: list[Case]) -> list[str]:
    """Ask for all of them, several at a time; those whose answer is another one, or was asked for in other words."""
    by_number = {case.number: case for case in work}
    asked: dict[int, Any] = {}

    async def script(connection: Connection, received: Received) -> None:
        number = int(received.json["messages"][-1]["content"].split()[-1])
        asked[number] = received.json
        case = by_number[number]
        head = STREAM_HEAD
        if not case.streamed:
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(case.body)}\r\n".encode()
            head += b"Connection: close\r\n\r\n"
        await connection.send(head, *case.packets)

    upstream.script = script
    found: list[str] = []
    left = iter(work)

    async def one() -> None:
        for case in left:
            answer: Answer = await ask(client, url, case.request)
            is_same = answer.status == 200 and answer.body == case.body and asked[case.number] == case.request
            assert answer.headers["X-Toolgate-Arm"] in ARMS
            if not is_same:
                found.append(f"{case.label['id']}: {answer.status} {answer.body[:200]!r}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(one())
    return found


async def verdicts(running: Any) -> Counter[str | None]:
    assert await running.upkeep.recorder.flush(10)
    return Counter([record.verdict async for record in running.upkeep.store.scan(RequestRecord)])


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("arm", ARMS)
async def test_every_answer_is_the_model_servers_byte_for_byte(
    gateway: Any,
    upstream: FaultyUpstream,
    client: aiohttp.ClientSession,
    answers: list[dict[str, Any]],
    arm: str,
    streamed: bool,
) -> None:
    running = await gateway(upstream.url, TRANSFORM_BUDGET_MS="60000", LOG_LEVEL="error", **ARMS[arm])
    work = cases(answers, streamed=streamed)
    assert await differing(client, running.url, upstream, work) == []
    found = await verdicts(running)
    assert found.total() == len(work)
    assert found["dropped"] == 0
    assert found["would_change"] > len(work) // 4, "the answers were read beside"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
async def test_a_budget_of_a_millisecond_harms_nothing(
    gateway: Any, upstream: FaultyUpstream, client: aiohttp.ClientSession, answers: list[dict[str, Any]], streamed: bool
) -> None:
    running = await gateway(upstream.url, TRANSFORM_BUDGET_MS="1", LOG_LEVEL="error", **ARMS["dry_run"])
    # No machine reads half a megabyte of openers in a millisecond.
    long = {"id": "long", "text": "Look:\n<read>\n<filePath>a\n" * 20_000, "tools": answers[0]["tools"]}
    work = [*cases(answers, streamed=streamed, step=4), Case(number=len(answers), label=long, streamed=streamed)]
    assert await differing(client, running.url, upstream, work) == []
    assert (await verdicts(running))["dropped"] > 0


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies that fail, each in its way, installed as anybody's."""
    (tmp_path / "toolgate_broken.py").write_text(PLUG_INS)
    info = tmp_path / "toolgate_broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolgate-broken\nVersion: 1\n")
    points = [f"{name} = toolgate_broken:{where}" for name, (where, _) in BROKEN.items()]
    (info / "entry_points.txt").write_text("\n".join(["[toolgate.strategies]", *points, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize("name", BROKEN)
async def test_a_strategy_that_fails_beside_harms_nothing(
    gateway: Any, upstream: FaultyUpstream, client: aiohttp.ClientSession, answers: list[dict[str, Any]], name: str
) -> None:
    wanted = BROKEN[name][1]
    budget_ms = "1" if "dropped" in wanted else "60000"
    running = await gateway(
        upstream.url, STRATEGY_RULES=f"*={name}", TRANSFORM_BUDGET_MS=budget_ms, LOG_LEVEL="error", **ARMS["dry_run"]
    )
    for streamed in (True, False):
        work = cases(answers, streamed=streamed, step=FEW)
        assert await differing(client, running.url, upstream, work) == []
    found = await verdicts(running)
    assert set(found) <= wanted
    assert any(found[verdict] for verdict in wanted)
    exposition = running.shared.telemetry.render("")[0].decode()
    counted = [line for line in exposition.splitlines() if line.startswith("toolgate_dryrun_verdicts_total{")]
    for verdict in wanted & set(found):
        [line] = [line for line in counted if f'verdict="{verdict}"' in line and not line.endswith(" 0.0")]
        assert line.endswith(f" {found[verdict]}.0")


# --- Events through the running gateway over sockets, in lock-step: the next is sent when the one before has arrived.


BEHIND = 1

"""How many events may have been sent behind one that has not arrived."""

LATE_MODELS = ["gpt-4o", "qwen3-coder", "deepseek-chat"]


class Arrived:
    """What the client has, and who waits for it."""

    def __init__(self) -> None:
        self.body = b""
        self._changed = asyncio.Condition()

    async def add(self, data: bytes) -> None:
        self.body += data
        async with self._changed:
            self._changed.notify_all()

    async def until(self, size: int) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(lambda: len(self.body) >= size), 20)


def in_step(events: list[bytes], arrived: Arrived):
    """Sends an event when all but the last one before it have come through the gateway."""

    async def script(connection, received):
        await connection.send(STREAM_HEAD)
        ends = [0]
        for data in events:
            await connection.send(data)
            ends.append(ends[-1] + len(data))
            await arrived.until(ends[max(0, len(ends) - 1 - BEHIND)])

    return script


@pytest.mark.parametrize("model", LATE_MODELS)
@pytest.mark.parametrize("cut", ["words", "random"])
async def test_each_event_arrives_before_the_next_but_one_is_sent(gateway, upstream, client, model, cut):
    parts = list(CUTS[cut](SAMPLES["english"][1]))
    events = [*map(text, parts), event(finish="stop"), DONE]
    arrived = Arrived()
    upstream.script = in_step(events, arrived)
    running = await gateway(upstream.url)
    body = chat(model=model, tools=TOOLS)
    async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
        async for data in response.content.iter_any():
            await arrived.add(data)
    assert arrived.body == b"".join(events)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_stream_late_events_total{strategy="xml_prompt"} 0.0' in exposition


async def test_events_that_leave_late_are_counted(gateway, upstream, client):
    parts = ["First.", "\n", "\n", "```json", "\n", "{", '"name"', ": ", '"nobody"', "}\n```\n"]
    events = [*map(text, parts), event(finish="stop"), DONE]
    upstream.script = stream(*events)
    running = await gateway(upstream.url)
    body = chat(model="qwen3-coder", tools=TOOLS)
    take = StreamExchange.step

    def by_one(self: StreamExchange, data: bytes = b"") -> bytes:
        return b"".join(take(self, one) for one in cut(data)) if data else take(self)

    async def exposed() -> float:
        told = (await get(client, f"{running.url}/metrics")).body.decode()
        return float(told.partition('toolgate_stream_late_events_total{strategy="xml_prompt"} ')[2].partition("\n")[0])

    assert await exposed() == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamExchange, "step", by_one)
        async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
            assert await response.read() == b"".join(events)
    assert await exposed() == 6


def cut(data: bytes) -> list[bytes]:
    """The events of a read, as if each had been read by itself."""
    return [one + b"\n\n" for one in data.split(b"\n\n") if one]


@pytest.mark.parametrize("model", LATE_MODELS)
@pytest.mark.parametrize("kind", SAMPLES)
async def test_bytes_are_the_servers_own_however_many_come_at_once(gateway, upstream, client, model, kind):
    events = [*map(text, CUTS["tokens"](SAMPLES[kind][0])), event(finish="stop"), DONE]
    upstream.script = stream(*[b"".join(events[at : at + 7]) for at in range(0, len(events), 7)])
    running = await gateway(upstream.url)
    body = chat(model=model, tools=TOOLS)
    async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
        assert await response.read() == b"".join(events)


LISTED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "neutral_suite.json").read_bytes())
FIXTURES = load_fixtures()
PARTS = 6
"""In so many parts they are tested."""
SHARE = 0.98
"""Of the fixtures without reasoning, so many have the suite's text."""


def finish_of(fixture: Fixture) -> str:
    return "length" if fixture.truncated else "stop"


async def serve(connection: Connection, received: Received) -> None:
    """The answer of the fixture that the request names, cut where it says."""
    place, *cuts = (int(word) for word in received.json["user"].split())
    fixture = FIXTURES[place]
    if not received.json.get("stream"):
        whole = completion(fixture.raw_output)
        whole["choices"][0]["finish_reason"] = finish_of(fixture)
        await answer_json(whole)(connection, received)
        return
    parts = pieces(fixture.raw_output, range(1, len(fixture.raw_output)) if cuts == [-1] else cuts)
    events = [event({"role": "assistant", "content": ""}), *map(text, parts), event(finish=finish_of(fixture)), DONE]
    await stream(b"".join(events))(connection, received)


def result_of(answer: Answer, *, streamed: bool) -> ParseResult:
    """What an agent sees of an answer."""
    if not streamed:
        message = answer.json["choices"][0]["message"]
        calls = [call["function"] for call in message.get("tool_calls") or []]
        content = message["content"]
    else:
        assert answer.is_done
        made: dict[int, dict[str, str]] = {}
        for chunk in answer.chunks:
            for choice in chunk["choices"]:
                for part in choice["delta"].get("tool_calls") or []:
                    call = made.setdefault(part["index"], {"name": "", "arguments": ""})
                    call["name"] += part["function"].get("name") or ""
                    call["arguments"] += part["function"].get("arguments") or ""
        calls = [made[place] for place in sorted(made)]
        content = answer.content
    return ParseResult(
        content=content or None,
        reasoning_content=None,
        tool_calls=tuple(ParsedToolCall(call["name"], call["arguments"]) for call in calls),
    )


def calls_of(result: ParseResult) -> ParseResult:
    return ParseResult(content=None, reasoning_content=None, tool_calls=result.tool_calls)


def expected_calls(fixture: Fixture) -> ParseResult:
    if fixture.expected is None:
        return ParseResult(content=None, reasoning_content=None, tool_calls=())
    return calls_of(expected_as_result(fixture.expected))


def has_text(fixture: Fixture, found: ParseResult) -> bool:
    """Whether the visible text is the suite's, but for white space at its edges."""
    said = ParseResult(content=found.content, reasoning_content=None, tool_calls=())
    if fixture.expected is None:
        assert fixture.expected_error is not None
        wanted = fixture.raw_output if fixture.expected_error.accept == ("content_passthrough",) else found.content
    else:
        wanted = fixture.expected.content
    return compare(ParseResult(content=wanted, reasoning_content=None, tool_calls=()), said) != Status.FAIL


def is_asserted(fixture: Fixture) -> bool:
    """Whether the suite says what is visible, and no reasoning stands in it."""
    return fixture.expected is None or not fixture.expected.reasoning_content


def cuts_of(fixture: Fixture, *, every: bool) -> Iterator[list[int]]:
    """Per character, and at random; or in two at every place."""
    size = len(fixture.raw_output)
    yield [-1]
    if every:
        yield from ([place] for place in range(1, size))
        return
    rng = random.Random(fixture.id)
    yield sorted(rng.sample(range(size + 1), min(size, rng.randint(1, 8))))


async def read_by(
    session: aiohttp.ClientSession, url: str, place: int, cuts: list[int] | None
) -> tuple[ParseResult, Answer]:
    fixture = FIXTURES[place]
    words = " ".join(map(str, (place, *(cuts or ()))))
    body = chat(model=fixture.reference_model, stream=cuts is not None, tools=list(fixture.tools), user=words)
    answer = await ask(session, url, body)
    assert answer.status == 200, answer.body
    return result_of(answer, streamed=cuts is not None), answer


async def check(session: aiohttp.ClientSession, url: str, place: int, *, every: bool) -> bool:
    """One fixture, whole and in pieces; whether its text is the suite's."""
    fixture = FIXTURES[place]
    whole, _ = await read_by(session, url, place, None)
    assert compare(expected_calls(fixture), calls_of(whole)) is Status.PASS, f"{fixture.id}: {whole}"
    for cuts in cuts_of(fixture, every=every):
        found, _ = await read_by(session, url, place, cuts)
        assert compare(whole, found) is not Status.FAIL, f"{fixture.id} cut at {cuts}: {found}, whole {whole}"
    return has_text(fixture, whole)


async def check_all(session: aiohttp.ClientSession, url: str, places: range, *, every: bool = False) -> None:
    """All of these fixtures; those with another text are listed, and none of them for nothing."""
    others = {
        FIXTURES[place].id
        for place in places
        if not await check(session, url, place, every=every) and is_asserted(FIXTURES[place])
    }
    assert others == LISTED["text"].keys() & {FIXTURES[place].id for place in places}


@pytest.mark.parametrize("part", range(PARTS))
async def test_the_suites_answers_are_read_right(
    gateway: Any, upstream: FaultyUpstream, client: Any, part: int
) -> None:
    upstream.script = serve
    running = await gateway(upstream.url, REPAIR_ATTEMPTS="0", STRATEGY_RULES="*=recovery")
    await check_all(client, running.url, range(part, len(FIXTURES), PARTS))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(24))
async def test_they_are_read_right_in_every_cut(gateway: Any, upstream: FaultyUpstream, client: Any, part: int) -> None:
    upstream.script = serve
    running = await gateway(upstream.url, REPAIR_ATTEMPTS="0", STRATEGY_RULES="*=recovery")
    await check_all(client, running.url, range(part, len(FIXTURES), 24), every=True)


def test_the_list_is_about_this_suite() -> None:
    ids = {fixture.id for fixture in FIXTURES}
    asserted = [fixture for fixture in FIXTURES if is_asserted(fixture)]
    assert LISTED["version"] == version("canitoolcall")
    assert LISTED["fixtures"] == len(FIXTURES)
    assert LISTED["text"].keys() <= ids
    assert all(reason.endswith(".") and len(reason.split()) > 8 for reason in LISTED["text"].values())
    assert 1 - len(LISTED["text"]) / len(asserted) >= SHARE
