"""Responses clients before servers that speak their wire: the request as it came, the answer as it comes."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.app import Gateway
from tests.support.chat_stream import whole_chat
from tests.support.faulty_upstream import STREAM_HEAD, Connection, FaultyUpstream, Received, answer, answer_json
from tests.support.responses_events import checked_events, events_of
from tests.support.responses_server import ResponsesServer
from tests.support.turns import Call, Turn

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
    [failed] = events_of(body[len(cut) :])
    assert failed["type"] == "response.failed"


TEXT = 'Let me see.\n\n<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


async def test_a_call_in_the_text_is_recovered_on_the_same_wire(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = streaming(stream_of(Turn(text=TEXT)))
    running = await gateway(upstream.url, **{**NATIVE, "STRATEGY_RULES": "*=recovery"})
    body = json.dumps({**TASK, "tools": TASK["tools"][1:], "stream": True}).encode()
    _, told, _ = await post(client, running, body)
    final = checked_events(told)[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["message", "function_call"]
    assert final["output"][0]["content"][0]["text"] == "Let me see."
