"""The gateway's ports: what is answered without the model server."""

import asyncio
import io
import json
import threading

import aiohttp
import openai
import pytest
from aiohttp.test_utils import make_mocked_request
from yarl import URL

from gateway.front.server import _Exposition
from tests.support.client import TOOLS, ask, chat, exchange, get, post_bytes
from tests.support.faulty_upstream import (
    DONE,
    answer,
    answer_json,
    completion,
    event,
    paused,
    stream,
    text,
)
from tests.support.processes import until


async def test_metrics_are_written_once_for_all_who_ask_meanwhile() -> None:
    class Telemetry:
        def __init__(self) -> None:
            self.written: list[str] = []
            self.go_on = threading.Event()

        def set(self, name: str, labels: dict[str, str], value: float) -> None:
            pass

        def settle(self) -> None:
            pass

        def render(self, accept: str) -> tuple[bytes, str]:
            self.written.append(accept)
            assert self.go_on.wait(20.0)
            return str(len(self.written)).encode(), "text/plain"

    telemetry = Telemetry()
    exposition = _Exposition(telemetry)  # type: ignore[arg-type]
    first = asyncio.ensure_future(exposition.answer(make_mocked_request("GET", "/metrics")))
    await until(lambda: telemetry.written)
    others = [asyncio.ensure_future(exposition.answer(make_mocked_request("GET", "/metrics"))) for _ in range(50)]
    await asyncio.sleep(0)
    others[0].cancel()
    telemetry.go_on.set()
    assert (await first).body == b"1"
    assert {(await each).body for each in others[1:]} == {b"2"}, "what came after it was asked for"
    assert (await exposition.answer(make_mocked_request("GET", "/metrics"))).body == b"3"


ANSWER = (event({"role": "assistant", "content": ""}), text("hel"), text("lo"), event(finish="stop"), DONE)


async def test_a_stream_comes_through(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    got = await ask(client, running.url)
    assert got.status == 200
    assert got.content == "hello"
    assert got.is_done
    assert got.headers["Content-Type"] == "text/event-stream"
    assert got.headers["X-Accel-Buffering"] == "no"
    assert got.headers["Cache-Control"] == "no-cache, no-transform"
    assert got.headers["X-Toolgate-Strategy"] == "passthrough"
    assert got.headers["X-Toolgate-Arm"] == "live"
    assert got.headers["X-Request-Id"].startswith("req_")


async def test_without_tools_every_byte_is_the_upstreams(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    assert (await ask(client, running.url)).body == b"".join(ANSWER)


async def test_the_request_goes_up_as_it_came(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    payload = (
        b'{ "model":"gpt-4o", "stream":true,"odd":{"b":1.0,"a":[]},\n "messages":[{"role":"user","content":"\\u00e4"}]}'
    )
    async with client.post(f"{running.url}/v1/chat/completions", data=payload) as response:
        await response.read()
    assert upstream.last.body == payload
    assert upstream.last.headers["accept-encoding"] == "identity"
    assert upstream.last.headers["content-type"] == "application/json"
    assert upstream.last.target == "/v1/chat/completions"


async def test_a_whole_answer_comes_through(gateway, upstream, client):
    upstream.script = answer_json(completion(), headers={"x-ratelimit-remaining-requests": "9"})
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(stream=False))
    assert got.json == completion()
    assert got.headers["Content-Type"].startswith("application/json")
    assert got.headers["x-ratelimit-remaining-requests"] == "9"


async def test_the_strategy_of_the_model_is_told(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    for model, strategy in (("gpt-4o", "native"), ("qwen3-coder", "xml_prompt"), ("deepseek", "recovery")):
        got = await ask(client, running.url, chat(model=model, tools=TOOLS))
        assert got.headers["X-Toolgate-Strategy"] == strategy
        assert got.content == "hello"
    assert "tools" not in upstream.requests[1].json
    assert upstream.requests[2].json["tools"] == TOOLS


async def test_mode_off_relays_what_would_be_read(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url, TRANSFORM_MODE="off")
    got = await ask(client, running.url, chat(model="qwen3-coder", tools=TOOLS))
    assert got.headers["X-Toolgate-Arm"] == "off"
    assert got.headers["X-Toolgate-Strategy"] == "passthrough"
    assert upstream.last.json["tools"] == TOOLS


async def test_tool_calling_switched_off_takes_the_tools_out(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url, TOOL_CALLING_ENABLED="false")
    await ask(client, running.url, chat(model="deepseek", tools=TOOLS, tool_choice="auto"))
    assert "tools" not in upstream.last.json
    assert "tool_choice" not in upstream.last.json


async def test_a_large_request_goes_up_whole(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    body = chat(stream=False, padding="x" * 3_000_000)
    payload = io.BytesIO(json.dumps(body).encode())
    async with client.post(f"{running.url}/v1/chat/completions", data=payload) as response:
        assert response.status == 200
    assert upstream.last.json == body
    assert "transfer-encoding" not in upstream.last.headers


async def test_models_carry_what_the_gateway_would_do_with_them(gateway, upstream, client):
    upstream.script = answer_json({"object": "list", "data": [{"id": "qwen3", "odd": 1}, {"id": "org/gpt-4o"}]})
    running = await gateway(upstream.url)
    got = (await get(client, f"{running.url}/v1/models")).json
    assert got["data"] == [
        {"id": "qwen3", "odd": 1, "toolgate": {"strategy": "xml_prompt", "upstream": "default"}},
        {"id": "org/gpt-4o", "toolgate": {"strategy": "native", "upstream": "default"}},
    ]
    one = await get(client, f"{running.url}/v1/models/org/gpt-4o")
    assert one.json == got["data"][1]
    missing = await get(client, f"{running.url}/v1/models/nope")
    assert (missing.status, missing.error) == (404, "unknown_model")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 3}', b"[" * 100_000])
async def test_a_list_of_models_that_is_none_is_the_upstreams_fault(gateway, upstream, client, body):
    upstream.script = answer(body)
    running = await gateway(upstream.url)
    got = await get(client, f"{running.url}/v1/models")
    assert (got.status, got.error) == (502, "upstream_bad_reply")


async def test_any_other_route_is_relayed_untouched(gateway, upstream, client):
    upstream.script = answer(b"\x00\x01raw", status="201 Created", headers={"Content-Type": "audio/x", "X-Odd": "1"})
    running = await gateway(upstream.url)
    url = URL(f"{running.url}/v1/audio/sp%65ech?voice=a%20b&x=%2F", encoded=True)
    async with client.put(url, data=b"\xff\x00bytes", headers={"Content-Type": "audio/wav"}) as response:
        assert response.status == 201
        assert await response.read() == b"\x00\x01raw"
        assert response.headers["X-Odd"] == "1"
        assert response.headers["Content-Type"] == "audio/x"
        assert "X-Toolgate-Strategy" not in response.headers
    last = upstream.last
    assert (last.method, last.target, last.body) == ("PUT", "/v1/audio/sp%65ech?voice=a%20b&x=%2F", b"\xff\x00bytes")
    assert last.headers["content-type"] == "audio/wav"
    assert last.headers["content-length"] == "7"


async def test_an_encoded_answer_is_relayed_as_it_is_encoded(gateway, upstream, client):
    upstream.script = answer(b"not really gzip", headers={"Content-Encoding": "gzip"})
    running = await gateway(upstream.url)
    request = b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n"
    got = await exchange(running.url, request)
    assert b"Content-Encoding: gzip" in got
    assert got.endswith(b"not really gzip")
    assert upstream.last.headers["accept-encoding"] == "gzip"


async def test_an_error_of_a_relayed_route_is_the_clients_to_see(gateway, upstream, client):
    upstream.script = answer_json({"detail": "no such key sk-ours"}, status="418 Teapot", headers={"X-Odd": "1"})
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours")
    got = await get(client, f"{running.url}/v1/files")
    assert got.status == 418
    assert got.json == {"detail": "no such key ********"}
    assert got.headers["X-Odd"] == "1"


async def test_a_relayed_upload_without_a_length_streams_up(gateway, upstream, client):
    upstream.script = answer_json({})
    running = await gateway(upstream.url)

    async def pieces():
        yield b"one"
        yield b"two"

    async with client.post(f"{running.url}/v1/files", data=pieces()) as response:
        assert response.status == 200
    assert upstream.last.body == b"onetwo"


async def test_a_relayed_stream_comes_as_it_comes(gateway, upstream, connect):
    go_on = asyncio.Event()

    upstream.script = paused(go_on, b"event: response.created\ndata: {}\n\n", b"data: not json at all\n\n")
    running = await gateway(upstream.url)
    reader, writer = await connect(running.url)
    writer.write(post_bytes({"input": "x"}, "Connection: close", path="/v1/audio/speech"))
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"X-Accel-Buffering: no" in head
    await reader.readuntil(b"data: {}\n\n")
    go_on.set()
    assert b"data: not json at all\n\n" in await reader.read()


async def test_a_relayed_answer_that_breaks_off_is_not_made_to_look_whole(gateway, upstream, client, log):
    async def script(connection, received):
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await connection.send_chunked(b"half", last=False)
        connection.reset()

    upstream.script = script
    running = await gateway(upstream.url)
    with pytest.raises(aiohttp.ClientPayloadError):
        await get(client, f"{running.url}/v1/files")
    record = await log.record("request_ended")
    assert (record["end"], record["error"]) == ("upstream_error", "upstream_disconnected")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1/a/../../x",
        "/v1/..;/x",
        "/v1/..;a=b/x",
        "/v1/..%3b/x",
        "/v1/.;/x",
        "/v1/..%5cx",
        "/v1/..%5Cx",
        "/v1/a%5c..%5c..%5cx",
        "/v1/%2e%2e%2fadmin",
        "/v1/a%2f..%2f..%2fx",
        "/v1/..%255cx",
        "/v1/%252e%252e/x",
        "/v1/%25252e%25252e/x",
        "/v1/..%00/x",
        "/v1/..%20/x",
        "/v1/%2525252525252565",
        "/v1/files/a%00.json",
        "/v1/files%0a/x",
        "/v1/%7f",
        "/v1/..%09;/x",
        "/v1/..%c0%afx",
        "/v1/%c0%ae%c0%ae/x",
        "/v1/%25c0%25ae%25c0%25ae/x",
        "/v1/%u002e%u002e/x",
        "/v1/..%u2216x",
        "/v1/%ef%bc%8e%ef%bc%8e/x",
        "/v1/..%ef%bc%8fx",
        "/v1/%ef%bc%85c0%ae",
    ],
)
async def test_a_path_cannot_climb_out_of_the_api(gateway, upstream, path):
    running = await gateway(upstream.url)
    got = await exchange(running.url, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 404")
    assert upstream.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/a..b",
        "/v1/files/...",
        "/v1/files/..a",
        "/v1/a%2Fb/c;d=1",
        "/v1/100%25",
        "/v1/x%252Fy",
        "/v1//x",
        "/v1/%C3%BC",
    ],
)
async def test_a_path_that_only_looks_odd_goes_up_as_it_is(gateway, upstream, path):
    running = await gateway(upstream.url)
    got = await exchange(running.url, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 200")
    assert upstream.last.target == path


async def test_health_readiness_and_metrics_need_no_upstream_and_no_key(gateway, upstream, client):
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate")
    assert (await get(client, f"{running.url}/healthz")).json == {"status": "ok"}
    assert (await get(client, f"{running.url}/readyz")).json == {"status": "ready"}
    for url in (f"{running.url}/metrics", running.metrics_url):
        assert b"toolgate_requests_total" in (await get(client, url)).body
    got = await get(client, f"{running.url}/nothing")
    assert (got.status, got.error) == (404, "not_found")
    assert got.headers["X-Request-Id"]
    assert (await get(client, running.metrics_url.replace("/metrics", "/v1/models"))).status == 404
    assert upstream.requests == []


async def test_the_clients_id_and_trace_are_kept(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    got = await ask(client, running.url, headers={"X-Request-Id": "mine-1", "traceparent": trace})
    assert got.headers["X-Request-Id"] == "mine-1"
    assert upstream.last.headers["traceparent"] == trace
    assert upstream.last.headers["x-request-id"] == "mine-1"


async def test_a_client_that_asks_first_is_told_to_go_on(gateway, upstream):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    request = post_bytes(chat(stream=False), "Expect: 100-continue", "Connection: close")
    got = await exchange(running.url, request)
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_an_old_client_gets_its_stream_too(gateway, upstream):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    payload = json.dumps(chat()).encode()
    head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(payload)
    got = await exchange(running.url, head + payload)
    assert got.endswith(b"".join(ANSWER))


async def test_the_openai_client_is_served(gateway, upstream):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url)
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="sk-x") as sdk:
        chunks = await sdk.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "x"}], stream=True
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]) == "hello"
