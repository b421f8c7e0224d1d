"""The Responses API over real sockets: what comes in, what the model server is asked, what goes out."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.app import Gateway
from gateway.core.records import RequestRecord
from tests.support.client import exchange, post_bytes, status_of
from tests.support.faulty_upstream import STREAM_HEAD, Connection, FaultyUpstream, Received, answer_json
from tests.support.responses_events import call, checked_body, checked_events, chunk, events_of, sse, whole_chat

Start = Callable[..., Awaitable[Gateway]]
Script = Callable[[Connection, Received], Awaitable[None]]
TASK: dict[str, Any] = {"model": "gpt-4o", "input": "Read a.txt.", "tools": [{"type": "function", "name": "read"}]}


async def post(
    client: aiohttp.ClientSession, running: Gateway, body: Any, path: str = "/v1/responses", **headers: str
) -> tuple[int, bytes, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with client.post(f"{running.url}{path}", data=data, headers=sent) as response:
        return response.status, await response.read(), response.headers


def in_chat_alone(script: Script) -> Script:
    """A server that has no other path."""

    async def scripted(connection: Connection, received: Received) -> None:
        is_chat = received.target == "/v1/chat/completions"
        await (script if is_chat else answer_json({}, status="404 Not Found"))(connection, received)

    return scripted


def streaming(*events: object) -> Script:
    async def script(connection: Connection, _: Received) -> None:
        await connection.send(STREAM_HEAD, *(sse(event) for event in events))

    return in_chat_alone(script)


def answering(**message: Any) -> Script:
    return in_chat_alone(answer_json(json.loads(whole_chat("stop", **message))))


async def test_the_model_server_is_asked_in_chat(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    status, body, headers = await post(
        client, running, TASK, session_id="s", thread_id="t", x_codex_turn_metadata="m", originator="codex_exec"
    )
    assert status == 200
    assert checked_body(body)["output"][0]["content"][0]["text"] == "hello"
    assert headers["X-Toolgate-Strategy"] == "native"
    asked = upstream.requests[-1]
    assert asked.target == "/v1/chat/completions"
    assert asked.json["messages"] == [{"role": "user", "content": "Read a.txt."}]
    assert asked.json["tools"][0]["function"]["name"] == "read"
    assert not {"session-id", "thread-id", "x-codex-turn-metadata"} & set(asked.headers)


async def test_a_call_in_the_text_comes_back_as_a_call(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    text = 'Let me see.\n\n<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    body = {**TASK, "model": "llama", "stream": True, "tools": [{**TASK["tools"][0], "parameters": schema}]}
    upstream.script = streaming(*[chunk(content=letter) for letter in text], chunk("stop"), b"[DONE]")
    running = await gateway(upstream.url)
    events = checked_events((await post(client, running, body))[1])
    said, called = events[-1]["response"]["output"]
    assert said["content"][0]["text"] == "Let me see."
    assert (called["name"], json.loads(called["arguments"])) == ("read", {"path": "a.txt"})
    assert called["call_id"].startswith("call_")


async def test_a_silent_answer_is_kept_alive_by_events(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    async def script(connection: Connection, _: Received) -> None:
        await connection.send(STREAM_HEAD)
        await asyncio.sleep(0.5)
        await connection.send(sse(chunk(content="late"), chunk("stop"), b"[DONE]"))

    upstream.script = in_chat_alone(script)
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.1")
    events = checked_events((await post(client, running, {**TASK, "stream": True}))[1])
    assert [event["type"] for event in events].count("response.in_progress") > 2


@pytest.mark.parametrize("streams", [False, True])
async def test_a_stream_that_is_cut_has_failed_and_is_cut(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, streams: bool
) -> None:
    upstream.script = streaming(chunk(content="so"), call(0, "c", "read", "{}"))
    running = await gateway(upstream.url)
    status, body, _ = await post(client, running, {**TASK, "stream": streams})
    if not streams:
        assert status == 502
        return
    events = checked_events(body)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"


async def test_an_answer_that_is_asked_to_stream_and_does_not_is_streamed(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    events = checked_events((await post(client, running, {**TASK, "stream": True}))[1])
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "hello"


async def test_what_does_not_fit_the_model_has_the_code_for_it(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    message = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"
    upstream.script = in_chat_alone(answer_json({"error": {"message": message}}, status="400 Bad Request"))
    running = await gateway(upstream.url)
    status, body, _ = await post(client, running, TASK)
    assert (status, json.loads(body)["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("arm", ["off", "dry_run", "canary"])
async def test_untouched_arms_are_told_too(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, arm: str
) -> None:
    upstream.script = streaming(chunk(content="<read>"), call(0, "", "read", "{}"), chunk("tool_calls"), b"[DONE]")
    running = await gateway(upstream.url, TRANSFORM_MODE=arm, CANARY_PERCENT="0")
    events = checked_events((await post(client, running, {**TASK, "stream": True}))[1])
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message", "function_call"]


async def test_what_is_left_out_is_named(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    body = {**TASK, "tools": [*TASK["tools"], {"type": "web_search"}]}
    _, _, headers = await post(client, running, body)
    assert headers["X-Toolgate-Dropped"] == "web_search"


async def test_a_web_socket_is_refused_at_once(gateway: Start, upstream: FaultyUpstream) -> None:
    running = await gateway(upstream.url)
    head = b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    answer = await exchange(running.url, head + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n")
    assert status_of(answer) == 426
    assert upstream.requests == []


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_packed_request_is_read(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    status, _, _ = await post(client, running, pack(json.dumps(TASK).encode()), Content_Encoding=coding)
    assert status == 200
    assert "content-encoding" not in upstream.requests[-1].headers


async def test_a_packed_request_is_held_to_the_size_of_what_is_in_it(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url, GATEWAY_MAX_BODY_BYTES="64KiB")
    body = json.dumps({**TASK, "input": "x" * (1 << 20)}).encode()
    status, _, _ = await post(client, running, gzip.compress(body), Content_Encoding="gzip")
    assert status == 413


@pytest.mark.parametrize("coding", ["zstd", "br", "compress", "gzip, zstd"])
async def test_a_request_that_is_packed_in_another_way_is_refused(
    upstream: FaultyUpstream, gateway: Start, coding: str
) -> None:
    running = await gateway(upstream.url)
    for path in ("/v1/responses", "/v1/messages", "/v1/chat/completions"):
        answer = await exchange(
            running.url, post_bytes(TASK, f"Content-Encoding: {coding}", "Connection: close", path=path)
        )
        assert status_of(answer) == 415
    assert upstream.requests == []


async def test_a_chat_request_in_the_words_of_responses_is_answered_as_chat(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    status, body, _ = await post(client, running, TASK, path="/v1/chat/completions")
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == "hello"
    assert upstream.requests[0].json["tools"][0]["function"]["name"] == "read"
    upstream.script = streaming(chunk(content="hi"), chunk("stop"), b"[DONE]")
    _, body, _ = await post(client, running, {**TASK, "stream": True}, path="/v1/chat/completions")
    assert b'"content": "hi"' in body
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_chat_request_without_messages_and_input_is_refused_as_before(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url)
    status, body, _ = await post(client, running, {"model": "m"}, path="/v1/chat/completions")
    assert (status, json.loads(body)["error"]["param"]) == (400, "messages")


async def test_no_request_with_an_id_goes_upstream(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url)
    async with client.get(f"{running.url}/v1/responses/resp_{'x' * 24}") as response:
        assert response.status == 404
    async with client.put(f"{running.url}/v1/responses/resp_{'x' * 24}") as response:
        assert response.status == 404
    async with client.get(f"{running.url}/v1/responses") as response:
        assert response.status == 404
    assert upstream.requests == []


async def test_an_answer_is_known_by_its_id_wherever_one_is_named(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    made = checked_body((await post(client, running, TASK))[1])
    rated = {"completion_id": made["id"], "rating": "good"}
    assert (await post(client, running, rated, path="/v1/feedback"))[0] == 200


async def test_the_record_says_which_wire_was_spoken(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    made = checked_body((await post(client, running, TASK))[1])
    assert await running.upkeep.recorder.flush(5)
    [record] = [each async for each in running.upkeep.store.scan(RequestRecord)]
    assert (record.surface, record.route, record.completion_id) == ("responses", "responses", made["id"])


async def test_an_open_item_of_a_failed_answer_is_never_done(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = streaming(chunk(content="so"), {"error": {"message": "gone", "type": "server_error"}})
    running = await gateway(upstream.url)
    events = events_of((await post(client, running, {**TASK, "stream": True}))[1])
    assert [event["type"] for event in events][-1] == "response.failed"
    assert "response.output_item.done" not in [event["type"] for event in events]
