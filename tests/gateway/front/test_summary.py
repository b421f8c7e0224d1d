"""What requests of every kind leave behind, field by field: the line of the log, what is counted, and the record.

The expectations are data, one entry for each request. What differs from run to run is shown as a mark: times, ports
and the digest of settings that hold one.
"""

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import field, frozen

from gateway.core.records import RequestRecord
from gateway.core.version import __version__
from strategies.recovery import RecoveryStrategy
from tests.support.client import TOOLS, ask, chat, get, open_connection, post_bytes
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    Script,
    answer_json,
    completion,
    event,
    hang,
    in_turn,
    stream,
    text,
)

EXPECTED = json.loads((Path(__file__).parents[2] / "data" / "summaries.json").read_text())

ROLE = event({"role": "assistant", "content": ""})
FINISH = event(finish="stop")
USAGE = event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8})
CALL = "I look.\n<read_file>\n<path>a.py</path>\n</read_file>"
CUT_CALL = "I look.\n<read_file>\n<path>a.py"
OWN_KEY = "a-word-that-opens-the-gateway"
EDITOR = {"command": "view", "path": "a.py"}
READ = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {"type": "object", "properties": {"filePath": {"type": "string"}}, "required": ["filePath"]},
    },
}
KINDS_OF_TIME = re.compile(r"_s$|^(at|timestamp)$")


def at_once(*pieces: bytes) -> Script:
    """A stream that comes in one read: what is held, and for how many events, depends on how it is cut."""
    return stream(b"".join(pieces))


def told(content: str) -> Script:
    return at_once(ROLE, text(content), FINISH, USAGE, DONE)


def tool_calls(name: str, arguments: dict[str, Any], **more: Any) -> Script:
    call = {"index": 0, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}, **more}
    return at_once(ROLE, event({"tool_calls": [call]}), event(finish="tool_calls"), USAGE, DONE)


Does = Callable[[Any, Any, str, "Case"], Awaitable[None]]


async def asks(client: Any, upstream: Any, url: str, case: "Case") -> None:
    await ask(client, url, case.body, headers={"X-Request-Id": "mine", **case.headers})


async def leaves(client: Any, upstream: Any, url: str, case: "Case") -> None:
    """Go as soon as the first words are there, or as soon as the model server has been asked."""
    reader, writer = await open_connection(url)
    writer.write(post_bytes(case.body, "X-Request-Id: mine"))
    await (reader.readuntil(b"hello") if case.body["stream"] else upstream.asked.wait())
    writer.transport.abort()


async def lists(client: Any, upstream: Any, url: str, case: "Case") -> None:
    await get(client, f"{url}/v1/models", headers={"X-Request-Id": "mine"})


async def relays(client: Any, upstream: Any, url: str, case: "Case") -> None:
    await get(client, f"{url}/v1/files?a=1", headers={"X-Request-Id": "mine"})


async def begins(connection: Any, received: Any) -> None:
    await connection.send(STREAM_HEAD, ROLE + text("hello"))
    await connection.until_gone()


@frozen(kw_only=True)
class Case:
    """One request: what the model server does, what is asked under which settings, and by whom."""

    name: str
    script: Script
    body: dict[str, Any] = field(factory=lambda: chat(model="some-model", tools=TOOLS))
    settings: dict[str, str] = field(factory=dict)
    headers: dict[str, str] = field(factory=dict)
    does: Does = asks
    prepares: bool = True
    """The strategy does not fail."""


CASES = [
    Case(name="stream", script=told("hello"), body=chat()),
    Case(name="whole", script=answer_json(completion()), body=chat(stream=False)),
    Case(name="recovered", script=told(CALL)),
    Case(
        name="recovered whole",
        script=answer_json(completion(CALL)),
        body=chat(model="some-model", stream=False, tools=TOOLS),
    ),
    Case(name="prompted", script=told(CALL), body=chat(model="qwen3-coder", tools=TOOLS, tool_choice="required")),
    Case(name="refused", script=told(CALL.replace("path>", "limit>"))),
    Case(name="below the threshold", script=told(CALL), settings={"TRANSFORM_MIN_CONFIDENCE": "0.98"}),
    Case(name="unfinished", script=at_once(ROLE, text(CUT_CALL), event(finish="length"), DONE)),
    Case(name="native", script=tool_calls("read_file", {"path": "a.py"}, id="call_1")),
    Case(name="native without an id", script=tool_calls("read_file", {"path": "a.py"}), body=chat(tools=TOOLS)),
    Case(
        name="refused by the model server",
        script=answer_json({"error": {"message": "no"}}, status="400 Bad"),
        body=chat(stream=False),
    ),
    Case(
        name="repeated in vain",
        script=answer_json({}, status="503 Busy", headers={"Retry-After": "0"}),
        body=chat(stream=False),
    ),
    Case(name="broken off", script=at_once(ROLE, text("hel"))),
    Case(name="broken off whole", script=stream(b"{", head=b"HTTP/1.1 200 OK\r\n\r\n"), body=chat(stream=False)),
    Case(name="told of an error", script=at_once(ROLE, text("hel"), b'data: {"error": {"message": "no"}}\n\n')),
    Case(name="left in the answer", script=begins, does=leaves),
    Case(name="left before the answer", script=hang, body=chat(stream=False), does=leaves),
    Case(name="dry run", script=told(CALL), settings={"TRANSFORM_MODE": "dry_run"}),
    Case(
        name="dry run whole",
        script=answer_json(completion("hello")),
        body=chat(model="some-model", stream=False, tools=TOOLS),
        settings={"TRANSFORM_MODE": "dry_run"},
    ),
    Case(name="not prepared", script=told(CALL), prepares=False),
    Case(
        name="dry run of what is not prepared",
        script=told(CALL),
        settings={"TRANSFORM_MODE": "dry_run"},
        prepares=False,
    ),
    Case(name="dry run left in the answer", script=begins, does=leaves, settings={"TRANSFORM_MODE": "dry_run"}),
    Case(name="canary", script=told(CALL), settings={"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "100"}),
    Case(name="beside the canary", script=told(CALL), settings={"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "0"}),
    Case(
        name="control",
        script=answer_json(completion(CALL)),
        body=chat(model="some-model", stream=False, tools=TOOLS),
        settings={"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "0", "CANARY_REST": "control"},
    ),
    Case(name="off", script=told(CALL), settings={"TRANSFORM_MODE": "off"}),
    Case(
        name="repaired",
        script=in_turn(told(CUT_CALL), answer_json(completion(CALL))),
        body=chat(model="qwen3", tools=TOOLS),
    ),
    Case(
        name="not repaired",
        script=in_turn(answer_json(completion(CUT_CALL)), answer_json(completion("I will not."))),
        body=chat(model="qwen3", stream=False, tools=TOOLS),
    ),
    Case(
        name="mapped",
        script=tool_calls("str_replace_based_edit_tool", EDITOR, id="call_1"),
        body=chat(model="claude-x", tools=[READ]),
        settings={"TOOL_MAP": "claude_text_editor"},
    ),
    Case(
        name="without native tools",
        script=in_turn(
            answer_json({"error": {"message": "m does not support tools", "type": "api_error"}}, status="400 Bad"),
            told(CALL),
        ),
        body=chat(model="gpt-4o", tools=TOOLS),
    ),
    Case(
        name="overheard",
        script=told(CALL),
        body={**chat(model="some-model"), "messages": [{"role": "user", "content": "read the file a.py"}]},
    ),
    Case(
        name="told of the answer before",
        script=told("hello"),
        body={
            **chat(model="some-model", tools=TOOLS),
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "path is required"},
            ],
        },
    ),
    Case(
        name="kept in full",
        script=answer_json(completion(f"{OWN_KEY}\n{CALL}")),
        body={
            **chat(model="some-model", stream=False, tools=TOOLS),
            "messages": [{"role": "user", "content": f"my key is {OWN_KEY}"}],
        },
        settings={"AUDIT_BODIES": "full", "GATEWAY_API_KEYS": OWN_KEY},
        headers={
            "Authorization": f"Bearer {OWN_KEY}",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        },
    ),
    Case(name="not let in", script=hang, settings={"GATEWAY_API_KEYS": OWN_KEY}),
    Case(name="not understood", script=hang, body={"model": 1}),
    Case(name="models", script=answer_json({"object": "list", "data": [{"id": "m"}]}), does=lists),
    Case(name="relayed", script=answer_json({"object": "file"}), does=relays),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_request_leaves_behind_what_it_always_did(gateway, upstream, client, log, monkeypatch, case):
    upstream.script = case.script
    settings = {"CANARY_SALT": "the-same-in-every-run", **case.settings}
    running = await gateway(upstream.url, **settings)
    if not case.prepares:
        monkeypatch.delattr(RecoveryStrategy, "prepare")
    before = await samples(client, running)
    await case.does(client, upstream, running.url, case)
    line = await log.record("request_ended")
    after = await samples(client, running)
    found = {
        "log": shown(line),
        "metrics": {name: value - before.get(name, 0.0) for name, value in after.items() if value != before.get(name)},
        "records": [shown(record) for record in await records(running)],
    }
    assert json.loads(json.dumps(found)) == EXPECTED.get(case.name)


async def records(running: Any) -> list[dict[str, Any]]:
    assert await running.upkeep.recorder.flush(5)
    return [_said(record) async for record in running.upkeep.store.scan(RequestRecord)]


def _said(record: RequestRecord) -> dict[str, Any]:
    """The fields that are not as they are by default."""
    plain = msgspec.to_builtins(RequestRecord(id="", at=0.0, key="", model="", upstream=""))
    told = msgspec.to_builtins(record)  # which leaves most of the defaults out
    return {name: value for name, value in told.items() if name not in plain or value != plain[name]}


async def samples(client: Any, running: Any) -> dict[str, float]:
    """What is counted, without the gateway's own time: of how long something took, only how often it was taken."""
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    found = {}
    for line in exposition.splitlines():
        name, _, value = line.rpartition(" ")
        is_time = "_seconds" in name and not name.partition("{")[0].endswith("_count")
        if name.startswith("toolgate_") and not is_time and not name.startswith(OTHERS) and "_bucket" not in name:
            found[name] = float(value)
    return dict(sorted(found.items()))


OTHERS = (
    "toolgate_store_",
    "toolgate_shared_state_",
    "toolgate_records_",
    "toolgate_event_loop_",
    "toolgate_log_",
    "toolgate_rollout_",
)
"""Fed by what goes on beside requests."""


def shown(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with a mark for what no two runs have in common."""
    return {name: _shown(name, value) for name, value in sorted(fields.items())}


def _shown(name: str, value: Any) -> Any:
    if KINDS_OF_TIME.search(name):
        return value if value is None else f"a {type(value).__name__}"
    if name == "config":
        return "a digest"
    return "this version" if value == __version__ else value
