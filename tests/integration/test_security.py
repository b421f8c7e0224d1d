"""The rows S9 to S14 of deploy/FAULTS.md, as far as a single gateway can show them."""

import hashlib
import json

import pytest

from tests.support.client import TOOLS, ask, chat, exchange, get, post_bytes
from tests.support.faulty_upstream import DONE, answer_json, completion, event, raw, stream, text

JSON = {"Content-Type": "application/json"}
WHOLE = (text("hello"), event(finish="stop"), DONE)


@pytest.mark.parametrize("model", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\x7f", " "])
async def test_s9_control_characters_in_a_model_name_are_refused(gateway, upstream, client, model):
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model))
    assert (got.status, got.json["error"]["param"]) == (400, "model")
    assert upstream.requests == []


async def test_s9_an_unsafe_request_id_is_not_reflected(gateway, upstream, client):
    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, headers={"X-Request-Id": "a" * 65})
    assert got.headers["X-Request-Id"].startswith("req_")
    assert upstream.last.headers["x-request-id"] == got.headers["X-Request-Id"]


async def test_s9_a_header_of_the_upstream_cannot_split_the_answer(gateway, upstream, client):
    upstream.script = raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nX-Odd: \xff\xfe\r\nX-Tab: a\tb\r\n"
        b"X-Good: \xc3\xa4\r\n\r\n" + b"".join(WHOLE)
    )
    running = await gateway(upstream.url)
    got = await exchange(running.url, post_bytes(chat(), "Connection: close"))
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert b"X-Odd" not in got
    assert b"X-Tab" not in got
    assert got.count(b"HTTP/1.1") == 1


async def test_s10_no_secret_is_seen_anywhere(gateway, upstream, client, log):
    ours, theirs = "sk-ours-5f1e", "sk-theirs-77aa"
    upstream.script = answer_json(
        {"error": {"message": f"{ours} is wrong", "code": "x"}}, status="400 X", headers={"X-Request-Id": "up"}
    )
    running = await gateway(upstream.url, UPSTREAM_API_KEY=ours, GATEWAY_API_KEYS=theirs)
    bodies = []
    for key in (theirs, "sk-wrong-0001"):
        headers = {"Authorization": f"Bearer {key}"}
        bodies.append((await ask(client, running.url, headers=headers)).body)
        bodies.append((await get(client, f"{running.url}/v1/models", headers=headers)).body)
        bodies.append((await get(client, f"{running.url}/v1/files?key=sk-query-42", headers=headers)).body)
    bodies.append((await get(client, f"{running.url}/metrics")).body)
    seen = b"".join(bodies).decode() + await log.until('"route":"relay"')
    for secret in (ours, theirs, "sk-wrong-0001", "sk-query-42"):
        assert secret not in seen


async def test_s11_without_a_right_key_nothing_goes_upstream(gateway, upstream, client):
    digest = hashlib.sha256(b"sk-hashed").hexdigest()
    running = await gateway(upstream.url, GATEWAY_API_KEYS=f"sk-one,sha256:{digest}")
    for headers in ({}, {"Authorization": "Bearer sk-two"}, {"Authorization": "Basic sk-one"}, {"X-Api-Key": "no"}):
        for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/v1/files")):
            async with client.request(method, running.url + path, headers=headers) as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert (await response.json())["error"]["code"] == "unauthenticated"
    assert upstream.requests == []
    upstream.script = stream(*WHOLE)
    for key in ("sk-one", "sk-hashed"):
        assert (await ask(client, running.url, headers={"Authorization": f"Bearer {key}"})).content == "hello"


async def test_s11_a_key_that_opens_the_gateway_is_never_forwarded(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate")
    headers = {"Authorization": "Bearer sk-gate", "X-Api-Key": "sk-gate"}
    await ask(client, running.url, chat(stream=False), headers=headers)
    await get(client, f"{running.url}/v1/files", headers=headers)
    assert len(upstream.requests) == 2
    for received in upstream.requests:
        assert "sk-gate" not in str(received)


async def test_s11_the_clients_key_goes_upstream_when_nobody_else_has_one(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=False), headers={"Authorization": "Bearer sk-client"})
    assert upstream.last.headers["authorization"] == "Bearer sk-client"


async def test_s11_our_own_key_takes_the_place_of_the_clients(gateway, upstream, client):
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url, UPSTREAM_API_KEY="sk-ours")
    await ask(client, running.url, chat(stream=False), headers={"Authorization": "Bearer sk-client", "X-Api-Key": "k"})
    assert upstream.last.headers["authorization"] == "Bearer sk-ours"
    assert "x-api-key" not in upstream.last.headers


@pytest.mark.parametrize("model", ["http://127.0.0.1:1/v1", "../../admin", "a\\b"])
async def test_s12_a_model_is_not_an_address(gateway, upstream, client, model):
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model, base_url="http://127.0.0.1:1"))
    assert (got.status, got.error) == (404, "unknown_model")
    assert upstream.requests == []


async def test_s12_a_target_with_an_address_stays_here(gateway, upstream):
    upstream.script = answer_json({})
    running = await gateway(upstream.url)
    request = b"GET http://127.0.0.1:1/v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert (await exchange(running.url, request)).startswith(b"HTTP/1.1 200")
    assert upstream.last.target == "/v1/files"
    assert upstream.last.headers["host"] == f"127.0.0.1:{upstream.port}"


SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATH = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        PATH + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}   " + SMUGGLED,
        PATH + b"Content-Length: +2\r\n\r\n{}" + SMUGGLED,
        PATH + b"Content-Length: -1\r\n\r\n{}" + SMUGGLED,
        PATH + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b" Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
        PATH + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
        PATH.replace(b"HTTP/1.1", b"HTTP/9.1") + b"\r\n" + SMUGGLED,
        b"\x16\x03\x01\x02\x00" + SMUGGLED,
        PATH + b"X-Nul: a\0b\r\n\r\n" + SMUGGLED,
        PATH + b"X-Long: " + b"x" * 9000 + b"\r\n\r\n" + SMUGGLED,
    ],
)
async def test_s13_what_two_servers_could_read_differently_is_refused_and_closed(gateway, upstream, request_bytes):
    running = await gateway(upstream.url)
    got = await exchange(running.url, request_bytes)
    assert got.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert got.count(b"HTTP/1.") == 1
    assert b'"code":"invalid_request"' in got
    assert upstream.requests == []


async def test_s14_hostile_names_add_few_series(gateway, upstream, client):
    upstream.script = stream(*WHOLE)
    running = await gateway(upstream.url)
    before = (await get(client, f"{running.url}/metrics")).body.count(b"\n")
    for number in range(150):
        await ask(client, running.url, chat(model=f"model-{number}"))
    after = (await get(client, f"{running.url}/metrics")).body.count(b"\n")
    assert after - before < 200


DOUBLED = {
    "model": '"gpt-4o-mini"',
    "messages": '[{"role":"user","content":"another"}]',
    "stream": "true",
    "stream_options": "{}",
    "n": "3",
    "user": '"somebody"',
    "tools": "[]",
    "tool_choice": '"none"',
    "parallel_tool_calls": "false",
    "functions": "[]",
    "function_call": '"none"',
}


@pytest.mark.parametrize("model", ["gpt-4o", "deepseek-chat", "qwen3-coder"])
async def test_a_key_that_is_acted_on_may_not_stand_twice(gateway, upstream, client, model):
    """The gateway would go by the last, and a server that gets the body as it came perhaps by the first."""
    upstream.script = answer_json(completion())
    running = await gateway(upstream.url)
    good = {
        **chat(model=model, stream=False, n=1, user="u", stream_options=None),
        "metadata": {"model": {"model": "x"}},
    }
    good |= {
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "functions": None,
        "function_call": None,
    }
    for key, value in DOUBLED.items():
        escaped = "".join(f"\\u{ord(char):04x}" for char in key)
        for spelling in (f'"{key}":{value}', f' "{escaped}"\n:\t{value} ', f'"{key}":{json.dumps(good[key])}'):
            for sent in (json.dumps(good)[:-1] + f",{spelling}}}", f"{{{spelling}," + json.dumps(good)[1:]):
                async with client.post(f"{running.url}/v1/chat/completions", data=sent, headers=JSON) as response:
                    error = (await response.json())["error"]
                assert (response.status, error["code"], error["param"]) == (400, "invalid_request", key)
    assert not upstream.requests
    spaced = (
        json.dumps({**good, "x": 'a "model": 1, "model": 2'}, indent=2)[:-1] + ', "temperature": 1, "temperature": 0}'
    )
    async with client.post(f"{running.url}/v1/chat/completions", data=spaced, headers=JSON) as response:
        assert response.status == 200
