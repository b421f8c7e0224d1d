"""What is kept: defaults are not written, what was written is read, and no credential stands in it."""

import asyncio
import inspect
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import aiohttp
import attrs
import msgspec
import pytest
from attrs import define

from gateway.core import records
from gateway.core.records import (
    RECORDS,
    Brief,
    BriefCall,
    CallRecord,
    FeedbackRecord,
    LabelRecord,
    OtherReading,
    Record,
    RequestRecord,
)
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import (
    DONE,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    event,
    text,
    whole_or_streamed,
)
from tests.support.processes import Program
from tests.support.stores import RedisServer, needs_redis
from tests.support.week import week


def request(**fields: Any) -> RequestRecord:
    return RequestRecord(id="r", at=1.0, key="k", model="m", upstream="u", **fields)


def test_every_kind_of_record_has_a_name_to_be_kept_under() -> None:
    assert {*RECORDS.values()} == {*get_args(Record)}
    assert len(RECORDS) == len(get_args(Record))


def test_of_a_plain_request_only_what_it_has_is_written() -> None:
    written = msgspec.json.decode(msgspec.json.encode(request()))
    assert written == {"id": "r", "at": 1.0, "key": "k", "model": "m", "upstream": "u"}
    written = msgspec.json.decode(msgspec.json.encode(request(stream=True, status=200, end="completed", tools=2)))
    assert {*written} == {"id", "at", "key", "model", "upstream", "stream", "tools"}


def test_a_request_of_every_kind_is_read_as_it_was_written() -> None:
    made = week(200)
    assert any(each.calls for each in made.requests)
    for each in made.requests:
        assert msgspec.json.decode(msgspec.json.encode(each), type=RequestRecord) == each


def test_a_field_of_a_later_version_is_passed_over() -> None:
    raw = msgspec.json.decode(msgspec.json.encode(request(tools=1)))
    assert msgspec.convert({**raw, "of_tomorrow": [1]}, RequestRecord) == request(tools=1)


@pytest.mark.parametrize("wrong", [{"arm": "sideways"}, {"at": "today"}, {"verdict": "maybe"}, {"calls": [{}]}])
def test_a_word_that_is_none_is_no_record(wrong: dict[str, Any]) -> None:
    raw = msgspec.json.decode(msgspec.json.encode(request()))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**raw, **wrong}, RequestRecord)


def test_briefs_are_lists_and_can_be_counted_by_themselves() -> None:
    call = BriefCall("hermes", "read", 97, "delivered")
    brief = Brief("m", "live", native_calls=1, calls=(call,), tools=1)
    raw = msgspec.json.encode(brief)
    assert raw.startswith(b'["m","live",true')
    assert msgspec.json.decode(raw, type=Brief) == brief
    assert {brief: 1}[Brief("m", "live", native_calls=1, calls=(call,), tools=1)] == 1
    assert msgspec.json.decode(b'["m","off"]', type=Brief) == Brief("m", "off"), "as an earlier version wrote it"


@pytest.mark.parametrize(
    "made",
    [
        LabelRecord(at=1.0, request_id="r", number=0, is_right=True),
        FeedbackRecord(at=1.0, completion_id="c", rating="good"),
        OtherReading(dialect="hermes", score=3, reason="parse"),
        CallRecord(number=0, dialect="d", tool="t", score=1, decision="refused", stage="parsed"),
    ],
)
def test_nobody_changes_what_was_kept(made: Any) -> None:
    field = attrs.fields(type(made))[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(made, field, "x")


def test_every_record_says_what_it_is() -> None:
    own = [each for _, each in inspect.getmembers(records, inspect.isclass) if each.__module__ == records.__name__]
    assert [each.__name__ for each in own if not each.__doc__] == []


GATE = "gate-9b1c77-canary"
"""No vendor's form: it is known by what the request came with."""
GATE_OTHER = "gate-52aa01-canary"
WRONG = "wrong-4410-canary"
OURS = "ours-c0ffee11-canary"
SALT = "salt-7730dd-canary"
PASSWORD = "password-store-31-canary"
COOKIE = "cookie-6612-canary"
HEADER_KEY = "header-key-8831-canary"
STICKY = "sticky-session-2210-canary"
QUERY = "sk-query-99a8b7-canary"
VENDORS = ("sk-proj-0011aabb22-canary", "ghp_77aa66bb55cc-canary", "hf_5566ddee77-canary", "gsk_110022ff44-canary")
BEARER = "bearer-in-text-0101-canary"
PAIRS = {"api_key": "pair-a-5512-canary", "password": "pair-b-5513-canary", "secret": "pair-c-5514-canary"}
TOKEN = "pair-d-5515-canary"
IN_ARGUMENT = "sk-argument-7766554433-canary"
IN_COMMENT = "sk-comment-1199228833-canary"
CANARIES = {
    *(GATE, GATE_OTHER, WRONG, OURS, SALT, PASSWORD, COOKIE, HEADER_KEY, STICKY, QUERY, BEARER, TOKEN),
    *(IN_ARGUMENT, IN_COMMENT, *VENDORS, *PAIRS.values()),
}
HARMLESS = "marker-of-harmless-text"
"""Is kept, to show that the search would find what is there."""

SAID = "\n".join(
    [
        f"Authorization: Bearer {BEARER}",
        *(f"{name}={value}" for name, value in PAIRS.items()),
        json.dumps({"token": TOKEN}),
        f"token: {TOKEN}",
        *VENDORS,
        f"I came in with {GATE}; the server's is {OURS}.",
        HARMLESS,
    ]
)
CALL = f"<read_file>\n<path>a.py?key={IN_ARGUMENT}</path>\n</read_file>"
ANSWER = f"{SAID}\n{CALL}"
ARMS = ("live", "control", "off")


async def model(connection: Connection, received: Received) -> None:
    """Repeats what it was sent, and more; refuses and breaks off when it is asked to."""
    body = received.json if received.body else {}
    said = json.dumps(body.get("messages", ""))
    if "refuse" in said:
        error = {"error": {"message": f"key {OURS} of {VENDORS[0]} is not allowed", "code": OURS}}
        await answer_json(error, status="403 Forbidden")(connection, received)
    else:
        pieces = [text(ANSWER[begin : begin + 17]) for begin in range(0, len(ANSWER), 17)]
        end = () if "break" in said else (event(finish="stop"), DONE)
        await whole_or_streamed(ANSWER, *pieces, *end)(connection, received)


@define
class Kept:
    """A store, and all the bytes of it."""

    url: str
    content: Callable[[], Awaitable[bytes]]


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Kept:
    found: Kept = request.getfixturevalue(request.param)
    return found


@pytest.mark.system
@pytest.mark.parametrize("kept", ["sqlite", pytest.param("redis", marks=needs_redis)], indirect=True)
@pytest.mark.parametrize("audit", ["none", "redacted", "full"])
async def test_s10_no_credential_is_kept(
    kept: Kept, upstream: FaultyUpstream, client: aiohttp.ClientSession, tmp_path: Path, audit: str
) -> None:
    upstream.script = model
    (tmp_path / "keys").write_text(f"{GATE}\n{GATE_OTHER}\n")
    environ = {
        "STORE_URL": kept.url,
        "UPSTREAM_URL": upstream.url,
        "UPSTREAM_API_KEY": OURS,
        "GATEWAY_API_KEYS": f"@{tmp_path}/keys",
        "CANARY_SALT": SALT,
        "CANARY_STICKY_HEADER": "X-Session",
        "CANARY_FORCE_HEADER": "X-Arm",
        "TRUSTED_PROXIES": "127.0.0.0/8",
        "AUDIT_BODIES": audit,
        "LOG_LEVEL": "debug",
    }
    seen: list[bytes] = []
    for mode in ("canary", "dry_run"):
        folder = tmp_path / mode
        folder.mkdir()
        async with Program(folder, TRANSFORM_MODE=mode, CANARY_PERCENT="50", **environ) as program:
            await program.serving()
            seen += await traffic(client, program.url, ARMS if mode == "canary" else ("dry_run",))
            program.signal(15)
            assert await program.exit_code() == 0
            log = "\n".join(program.lines).encode()
            assert b'"event":"request_ended"' in log
            above_debug = [line for line in program.lines if '"level":"debug"' not in line]
            assert not any(HARMLESS in line for line in above_debug), "no text of a conversation in a log"
            seen.append(log)
    content = await kept.content()
    assert content.count(b'"route":"') + content.count(b'"bytes_in":') >= 4, "this is where the records are"
    assert (HARMLESS.encode() in content) is (audit != "none")
    assert (b"first line of the question" in content) is (audit == "full")
    for place in (content, *seen):
        assert found_in(place) == []


async def traffic(client: aiohttp.ClientSession, url: str, arms: tuple[str, ...]) -> list[bytes]:
    """Requests of all sorts in these arms; what the gateway said of itself, and its own errors."""
    headers = {
        "Authorization": f"Bearer {GATE}",
        "Cookie": f"session={COOKIE}",
        "X-Api-Key": HEADER_KEY,
        "X-Session": STICKY,
    }
    said: list[bytes] = []
    question = [
        {"role": "system", "content": SAID},
        {"role": "user", "content": f"first line of the question\n{SAID}"},
        {"role": "assistant", "content": None, "tool_calls": [made_call()]},
        {"role": "tool", "tool_call_id": "call_1", "content": f"Error: invalid argument\n{SAID}"},
    ]
    for arm in arms:
        for model_name in ("some-model", "qwen3-coder", "gpt-4o"):
            for streamed in (True, False):
                body = chat(model=model_name, stream=streamed, tools=TOOLS, messages=question, user="somebody")
                answer = await ask(client, url, body, headers={**headers, "X-Arm": arm})
                assert (answer.status, answer.headers["X-Toolgate-Arm"]) == (200, arm)
        for word in ("refuse", "break"):
            messages = [{"role": "user", "content": f"{word} {SAID}"}]
            answer = await ask(client, url, chat(tools=TOOLS, messages=messages), headers={**headers, "X-Arm": arm})
            if word == "refuse":
                said.append(answer.body)
    for key, status in ((WRONG, 401), (GATE_OTHER, 200)):
        got = await get(client, f"{url}/v1/files?key={QUERY}", headers={"Authorization": f"Bearer {key}"})
        assert got.status == status
        said += [got.body] if status == 401 else []  # the other is the model server's
    bad = chat(tools=[{"type": "function", "function": {"name": f"no name {VENDORS[0]}"}}], messages=question)
    await ask(client, url, {**bad, "model": "qwen3-coder"}, headers=headers)
    rated: Any = {"completion_id": "chatcmpl-1", "rating": "bad", "comment": f"It took {IN_COMMENT} for a path"}
    async with client.post(f"{url}/v1/feedback", json=rated, headers=headers) as response:
        assert response.status == 200
        said.append(await response.read())
    said += [(await get(client, f"{url}/{path}")).body for path in ("metrics", "readyz")]
    return said


def made_call() -> dict[str, Any]:
    """A call of the turn before, which the client now reports on."""
    arguments = json.dumps({"path": f"a.py?key={IN_ARGUMENT}"})
    return {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": arguments}}


def found_in(place: bytes) -> list[str]:
    """The canaries in it, and where."""
    return [
        f"{canary}: {place[max(0, at - 120) : at + 60]!r}"
        for canary in sorted(CANARIES)
        if (at := place.find(canary.encode())) >= 0
    ]


@pytest.fixture
async def sqlite(tmp_path: Path) -> Kept:
    folder = tmp_path / "data"
    folder.mkdir()

    async def content() -> bytes:
        with closing(sqlite3.connect(folder / "store.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return b"".join(file.read_bytes() for file in folder.iterdir())

    return Kept(f"sqlite:///{folder}/store.db", content)


@pytest.fixture
async def redis(tmp_path: Path, no_leaks: None) -> AsyncIterator[Kept]:
    server = await RedisServer(tmp_path, "--rdbcompression", "no").start()
    await server.command("CONFIG", "SET", "requirepass", PASSWORD)

    async def content() -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(f"AUTH {PASSWORD}\r\nSAVE\r\n".encode())
        assert [await reader.readline() for _ in range(2)] == [b"+OK\r\n"] * 2
        writer.close()
        await writer.wait_closed()
        return (tmp_path / "dump.rdb").read_bytes()

    yield Kept(f"unix://:{PASSWORD}@{server.path}", content)
    await server.close()
