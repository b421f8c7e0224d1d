"""Responses clients before servers that speak their wire: the request as it came, the answer as it comes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.app import Gateway
from tests.support.faulty_upstream import STREAM_HEAD, Connection, FaultyUpstream, Received, answer, answer_json
from tests.support.kinds import Call, Turn
from tests.support.openai_server import ResponsesServer
from tests.support.strict_clients import checked_events, events_of, whole_chat

Start = Callable[..., Awaitable[Gateway]]
TASK: dict[str, Any] = {
    "model": "gpt-5.5",
    "input": [{"role": "user", "content": "Read  a.txt."}],
    "tools": [{"type": "web_search"}, {"type": "function", "name": "read", "parameters": {"type": "object"}}],
    "brand_new": {"x": 1.50},
}
TURN = Turn(text="Reading.", thought="hm", calls=(Call("call_1", "read", {"path": "a"}),))
NATIVE = {"UPSTREAM_KIND": "responses", "UPSTREAM_API_KEY": "sk-resp", "STRATEGY_RULES": "*=native"}


async def post(client: aiohttp.ClientSession, running: Gateway, body: Any) -> tuple[int, bytes, Any]:
    headers = {"Content-Type": "application/json", "session-id": "s", "originator": "codex_exec"}
    async with client.post(f"{running.url}/v1/responses", data=body, headers=headers) as response:
        return response.status, await response.read(), response.headers


def stream_of(turn: Turn) -> bytes:
    server = ResponsesServer()
    return server.stream(turn, server.response(turn, {"model": "gpt-5.5"}))


def streaming(data: bytes) -> Callable[[Connection, Received], Awaitable[None]]:
    async def script(connection: Connection, _: Received) -> None:
        await connection.send(STREAM_HEAD, *(data[at : at + 37] for at in range(0, len(data), 37)))

    return script


async def test_every_byte_is_the_server_s(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    data = stream_of(TURN)
    upstream.script = streaming(data)
    running = await gateway(upstream.url, **NATIVE)
    sent = json.dumps({**TASK, "stream": True}, indent=1).encode()
    status, body, _ = await post(client, running, sent)
    assert status == 200
    assert body == data
    [asked] = upstream.requests
    assert (asked.target, asked.body) == ("/v1/responses", sent)
    assert asked.headers["session-id"] == "s"
    assert asked.headers["authorization"] == "Bearer sk-resp"


async def test_a_whole_answer_is_the_server_s_too(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    server = ResponsesServer()
    data = json.dumps(server.response(TURN, {"model": "gpt-5.5"}), indent=2).encode()
    upstream.script = answer(data, headers={"Content-Type": "application/json"})
    running = await gateway(upstream.url, **NATIVE)
    _, body, _ = await post(client, running, json.dumps(TASK).encode())
    assert body == data


@pytest.mark.parametrize("mode", ["off", "dry_run"])
async def test_untouched_answers_take_the_same_way(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, mode: str
) -> None:
    data = stream_of(TURN)
    upstream.script = streaming(data)
    running = await gateway(upstream.url, **{**NATIVE, "STRATEGY_RULES": "*=recovery"}, TRANSFORM_MODE=mode)
    _, body, _ = await post(client, running, json.dumps({**TASK, "stream": True}).encode())
    assert body == data


async def test_a_server_that_may_have_the_wire_is_asked_by_it_and_then_no_more(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    async def script(connection: Connection, received: Received) -> None:
        if received.target == "/v1/responses":
            await answer_json({"detail": "Not Found"}, status="404 Not Found")(connection, received)
        else:
            await answer_json(json.loads(whole_chat("stop", content="hello")))(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="*=native")
    for _ in range(2):
        status, body, _ = await post(client, running, json.dumps(TASK).encode())
        assert (status, json.loads(body)["output"][0]["content"][0]["text"]) == (200, "hello")
    assert [asked.target for asked in upstream.requests] == [
        *("/v1/responses", "/v1/chat/completions", "/v1/chat/completions")
    ]


FUNCTION = TASK["tools"][1]
VENDORS: list[Any] = [
    {"background": True},
    {"conversation": "conv_1"},
    {"prompt": {"id": "pmpt_1"}},
    {"previous_response_id": "resp_68a1f0c2d4e6b8a0c2d4e6f80a1b2c3d4e5f60718293a4b5"},
    {"input": [{"type": "item_reference", "id": "rs_68a1f0c2"}]},
    {"tools": [{"type": "web_search"}]},
    {"tools": [{"type": "web_search"}, FUNCTION], "tool_choice": {"type": "web_search"}},
]


@pytest.mark.parametrize("rule", ["native", "recovery", "xml_prompt"])
@pytest.mark.parametrize("kept", ["redacted", "none"])
async def test_what_only_the_server_has_goes_to_it(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, rule: str, kept: str
) -> None:
    data = stream_of(Turn(text="Done."))
    upstream.script = streaming(data)
    running = await gateway(upstream.url, **{**NATIVE, "STRATEGY_RULES": f"*={rule}"}, AUDIT_BODIES=kept)
    for more in VENDORS:
        sent = json.dumps({"model": "gpt-5.5", "input": "x", "tools": [FUNCTION], "stream": True, **more}).encode()
        status, body, _ = await post(client, running, sent)
        assert (status, body) == (200, data), more
        assert (upstream.last.target, upstream.last.body) == ("/v1/responses", sent)


async def test_what_only_the_vendor_has_is_refused_where_the_server_turns_out_to_have_no_such_wire(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json({"detail": "Not Found"}, status="404 Not Found")
    running = await gateway(upstream.url, STRATEGY_RULES="*=native")
    for _ in range(2):
        status, body, _ = await post(client, running, json.dumps({**TASK, "background": True}).encode())
        assert (status, json.loads(body)["error"]["param"]) == (400, "background")
    assert [asked.target for asked in upstream.requests] == ["/v1/responses"]


async def test_an_answer_that_the_server_does_not_know_says_nothing_of_its_wire(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    error = {"message": "Response with id 'resp_1' not found.", "param": "response_id", "code": 404}
    upstream.script = answer_json({"error": error}, status="404 Not Found")
    running = await gateway(upstream.url, STRATEGY_RULES="*=native")
    for _ in range(2):
        body = json.dumps({**TASK, "previous_response_id": "resp_1"}).encode()
        assert (await post(client, running, body))[0] == 404
    assert [asked.target for asked in upstream.requests] == ["/v1/responses"] * 2


async def test_what_was_kept_here_goes_on_here_whatever_the_server_speaks(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    async def script(connection: Connection, received: Received) -> None:
        if received.target == "/v1/chat/completions":
            await answer_json(json.loads(whole_chat("stop", content="hello")))(connection, received)
        else:
            whole = ResponsesServer().response(Turn(text="other"), {"model": "m"})
            await answer_json(whole)(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="gpt-*=native,*=recovery")
    _, body, _ = await post(client, running, json.dumps({**TASK, "model": "llama"}).encode())
    first = json.loads(body)["id"]
    for previous, said in ((first, "hello"), (None, "other")):
        asked = {**TASK, "previous_response_id": previous}
        told = json.loads((await post(client, running, json.dumps(asked).encode()))[1])
        assert told["output"][0]["content"][0]["text"] == said


THEIRS = "resp_68a1f0c2d4e6b8a0c2d4e6f80a1b2c3d4e5f60718293a4b5"


@pytest.mark.parametrize(
    ("method", "rest"),
    [("GET", "?include=x"), ("GET", "/input_items?limit=2"), ("DELETE", ""), ("POST", "/cancel")],
)
async def test_what_the_server_keeps_is_found_there(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, method: str, rest: str
) -> None:
    upstream.script = answer_json({"of": "the server"})
    running = await gateway(upstream.url, **NATIVE)
    path = f"/v1/responses/{THEIRS}{rest}"
    async with client.request(method, running.url + path) as response:
        assert (response.status, await response.json()) == (200, {"of": "the server"})
    assert (upstream.last.method, upstream.last.target) == (method, path)
    assert upstream.last.headers["authorization"] == "Bearer sk-resp"


async def test_what_was_made_here_is_asked_of_no_server_and_what_nobody_has_is_not_found(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json({"detail": "Not Found"}, status="404 Not Found")
    running = await gateway(upstream.url)
    for name in ("resp_aB3dE6gH9jK2mN5pQ8sT1vWx", THEIRS):
        async with client.get(f"{running.url}/v1/responses/{name}") as response:
            assert (response.status, (await response.json())["error"]["param"]) == (404, "response_id")
    assert [asked.target for asked in upstream.requests] == [f"/v1/responses/{THEIRS}"]


async def test_a_summary_is_asked_for_by_its_own_path(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    whole = {"id": "resp_1", "object": "response.compaction", "output": [{"type": "compaction", "id": "cmp_1"}]}

    async def script(connection: Connection, received: Received) -> None:
        if received.target == "/v1/responses/compact":
            await answer_json(whole)(connection, received)
        else:
            await answer_json({}, status="404 Not Found")(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, **NATIVE)
    async with client.post(f"{running.url}/v1/responses/compact", json={"model": "gpt-5.5", "input": "x"}) as response:
        assert await response.json() == whole


async def test_a_stream_that_is_cut_ends_with_the_failure_of_this_wire(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    data = stream_of(TURN)
    cut = data[: data.index(b"event: response.completed")]

    async def script(connection: Connection, _: Received) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        await connection.send(head)
        await connection.send_chunked(cut, last=False)

    upstream.script = script
    running = await gateway(upstream.url, **NATIVE)
    _, body, _ = await post(client, running, json.dumps({**TASK, "stream": True}).encode())
    assert body.startswith(cut)
    *_, before, failed = events_of(body)
    assert (failed["type"], failed["response"]["id"]) == ("response.failed", before.get("response_id", "resp_9"))
    assert failed["sequence_number"] == before["sequence_number"] + 1


TEXT = 'Let me see.\n\n<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


async def test_a_call_in_the_text_is_recovered_on_the_same_wire(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = streaming(stream_of(Turn(text=TEXT)))
    running = await gateway(upstream.url, **{**NATIVE, "STRATEGY_RULES": "*=recovery"})
    for more in ({}, {"previous_response_id": THEIRS}, {"tools": TASK["tools"], "tool_choice": TASK["tools"][0]}):
        sent = json.dumps({**TASK, "tools": TASK["tools"][1:], "stream": True, **more}).encode()
        _, told, _ = await post(client, running, sent)
        final = checked_events(told)[-1]["response"]
        assert [item["type"] for item in final["output"]] == ["message", "function_call"]
        assert final["output"][0]["content"][0]["text"] == "Let me see."
        assert final["output"][1]["call_id"].startswith("call_")
        assert (upstream.last.target, upstream.last.body) == ("/v1/responses", sent)


LEAK = 'Let me see.\n\nassistant to=functions.read commentary json\n{"path": "a.txt"}'


async def test_a_leak_of_the_family_is_a_call_on_the_same_wire_and_markup_stays_where_calls_are_forbidden(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    data = stream_of(Turn(text=LEAK))
    upstream.script = streaming(data)
    function = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"path": {}}}}
    task = {**TASK, "tools": [function], "stream": True}
    keeps, drops = await gateway(upstream.url, **NATIVE), await gateway(upstream.url, **NATIVE, NONE_MARKUP="drop")
    final = checked_events((await post(client, keeps, json.dumps(task).encode()))[1])[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["message", "function_call"]
    assert (final["output"][1]["name"], final["output"][1]["arguments"]) == ("read", '{"path":"a.txt"}')
    forbids = json.dumps({**task, "tool_choice": "none"}).encode()
    assert (await post(client, keeps, forbids))[1] == data
    final = checked_events((await post(client, drops, forbids))[1])[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["message"]
    assert final["output"][0]["content"][0]["text"].strip() == "Let me see."


PATCH = "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y <z> & 'w'\n*** End Patch"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_free_form_tool_is_called_as_what_it_is(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, stream: bool
) -> None:
    turn = Turn(text=f"<tool_call>\n{json.dumps({'name': 'apply_patch', 'arguments': {'input': PATCH}})}\n</tool_call>")
    data = json.dumps(ResponsesServer().response(turn, {"model": "m"})).encode()
    whole = answer(data, headers={"Content-Type": "application/json"})
    upstream.script = streaming(stream_of(turn)) if stream else whole
    running = await gateway(upstream.url, **{**NATIVE, "STRATEGY_RULES": "*=recovery"})
    sent = {**TASK, "tools": [{"type": "custom", "name": "apply_patch"}], "stream": stream}
    _, told, _ = await post(client, running, json.dumps(sent).encode())
    final = checked_events(told)[-1]["response"] if stream else json.loads(told)
    [call] = final["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    assert upstream.last.target == "/v1/responses"


@pytest.mark.parametrize("rule", ["native", "recovery"])
async def test_a_silent_server_is_covered_by_events_of_its_own_answer(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, rule: str
) -> None:
    data = stream_of(Turn(text="some words"))
    begun, rest = data[: (at := data.index(b"event: response.output_text.done"))], data[at:]
    going_on = asyncio.Event()

    async def script(connection: Connection, _: Received) -> None:
        await connection.send(STREAM_HEAD, begun)
        await going_on.wait()
        await connection.send(rest)

    upstream.script = script
    running = await gateway(upstream.url, **{**NATIVE, "STRATEGY_RULES": f"*={rule}"}, GATEWAY_KEEPALIVE_S="0.05")
    sent = json.dumps({**TASK, "tools": [FUNCTION], "stream": True})
    headers = {"Content-Type": "application/json"}
    async with client.post(f"{running.url}/v1/responses", data=sent, headers=headers) as response:
        told = b""
        while told.count(b"event: response.in_progress") < 3:
            told += await response.content.readany()
        going_on.set()
        told += await response.content.read()
    events = events_of(told)
    assert {event["response"]["id"] for event in events if "response" in event} == {"resp_9"}
    own = [event for event in events if event not in events_of(data)]
    assert {event["type"] for event in own} == {"response.in_progress"}
    assert [event for event in events if event not in own] == events_of(data)
    assert {event["sequence_number"] for event in own} == {events_of(begun)[-1]["sequence_number"] + 1}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_call_that_was_broken_is_asked_for_once_more(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, stream: bool
) -> None:
    broken = Turn(text='Let me see.\n\n<tool_call>\n{"name": "read", "arguments": {"path": \n</tool_call>')
    right = Turn(text='<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>')

    async def script(connection: Connection, received: Received) -> None:
        turn = broken if received.body == sent else right
        if received.json.get("stream"):
            await streaming(stream_of(turn))(connection, received)
        else:
            await answer_json(ResponsesServer().response(turn, {"model": "m"}))(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, **{**NATIVE, "STRATEGY_RULES": "*=recovery"})
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    sent = json.dumps({**TASK, "tools": [{**FUNCTION, "parameters": schema}], "stream": stream}).encode()
    _, told, _ = await post(client, running, sent)
    final = checked_events(told)[-1]["response"] if stream else json.loads(told)
    said, called = final["output"]
    assert said["content"][0]["text"] == "Let me see."
    assert json.loads(called["arguments"]) == {"path": "a.txt"}
    assert len(upstream.requests) == 2
