"""Several upstreams: who is asked, what happens when one cannot be had, and what the list of models says."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.support.chat import hear_body, hear_stream
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import (
    DONE,
    FaultyUpstream,
    answer,
    answer_json,
    close_at_once,
    completion,
    event,
    stream,
    text,
)

CALL = "<read_file>\n<path>a.py</path>\n</read_file>"


@pytest.fixture
async def second(no_leaks):
    server = await FaultyUpstream().start()
    yield server
    await server.close()


@pytest.fixture
def tables(tmp_path, upstream, second):
    """Writes the TOML file: `{first}` and `{second}` stand for the addresses of the two upstreams."""

    def write(content: str) -> dict[str, str]:
        path = tmp_path / "toolgate.toml"
        path.write_text(content.replace("{first}", upstream.url).replace("{second}", second.url))
        return {"GATEWAY_CONFIG": str(path)}

    return write


TWO = """
[upstreams.a]
url = "{first}"
models = ["llama*"]
[upstreams.b]
url = "{second}"
api_key = "sk-second-finch"
"""

FALLING = (
    TWO
    + """
[[models]]
match = "*"
upstream = "a"
fallback = "b"
"""
)

WHOLE = (text("hello"), event(finish="stop"), DONE)


async def test_models_go_to_the_upstream_that_serves_them(gateway, upstream, second, client, tables):
    upstream.script = second.script = stream(*WHOLE)
    running = await gateway(None, **tables(TWO + '[[models]]\nmatch = "gpt*"\nupstream = "b"\n'))
    for model in ("llama-3", "gpt-5", "unheard-of"):
        assert (await ask(client, running.url, chat(model=model))).content == "hello"
    assert [each.json["model"] for each in upstream.requests] == ["llama-3", "unheard-of"]
    assert [each.json["model"] for each in second.requests] == ["gpt-5"]
    assert second.requests[0].headers["authorization"] == "Bearer sk-second-finch"
    assert "authorization" not in upstream.requests[0].headers
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_upstream_requests_total{code="2xx",upstream="b"} 1.0' in exposition


async def test_a_model_is_sent_under_the_name_of_its_rule(gateway, upstream, client, tables):
    upstream.script = stream(*WHOLE)
    running = await gateway(
        None, **tables(TWO + '[[models]]\nmatch = "fast"\nupstream = "a"\nsend_as = "llama-3-8b"\n')
    )
    await ask(client, running.url, chat(model="fast", seed=7))
    assert upstream.requests[0].json == chat(model="llama-3-8b", seed=7)


@pytest.mark.parametrize("status", ["429 Slow", "502 Bad", "503 Busy", "504 Late", "529 Busy"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_request_that_was_refused_goes_to_the_fallback(
    gateway, upstream, second, client, tables, status, streamed
):
    upstream.script = answer(b'{"error": {"message": "busy"}}', status=status, headers={"Retry-After": "60"})
    second.script = stream(*WHOLE) if streamed else answer_json(completion("hello"))
    running = await gateway(None, **tables(FALLING))
    got = await ask(client, running.url, chat(stream=streamed))
    assert got.status == 200
    assert b"hello" in got.body
    assert len(upstream.requests) == 1
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_upstream_failovers_total{reason="upstream_rejected",upstream="a"} 1.0' in exposition


async def test_a_server_that_is_not_there_is_left_for_the_fallback(gateway, upstream, second, client, tables):
    second.script = stream(text(CALL), event(finish="stop"), DONE)
    settings = tables(FALLING)
    await upstream.close()
    running = await gateway(None, **settings)
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    heard = hear_stream((await ask(client, running.url, chat(model="m", tools=tools))).body)
    assert [call["name"] for call in heard.calls] == ["read_file"]


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 None", "500 Oops"])
async def test_an_answer_about_the_request_itself_is_final(gateway, upstream, second, client, tables, status):
    upstream.script = answer(b'{"error": {"message": "no"}}', status=status)
    running = await gateway(None, **tables(FALLING))
    assert (await ask(client, running.url, chat())).status >= 400
    assert second.requests == []


async def test_a_request_that_may_have_been_answered_is_not_asked_again(gateway, upstream, second, client, tables):
    upstream.script = close_at_once
    running = await gateway(None, **tables(FALLING))
    got = await ask(client, running.url, chat())
    assert (got.status, got.error) == (502, "upstream_disconnected")
    assert second.requests == []


async def test_the_last_upstreams_fault_is_told(gateway, upstream, second, client, tables):
    upstream.script = answer(b'{"error": {"message": "busy"}}', status="503 Busy", headers={"Retry-After": "60"})
    second.script = answer(b'{"error": {"message": "full", "code": "x"}}', status="429 Full")
    running = await gateway(None, **tables(FALLING))
    got = await ask(client, running.url, chat())
    assert (got.status, got.json["error"]["message"]) == (429, "full")


async def test_what_a_request_tells_of_the_last_answer_counts_once(gateway, upstream, second, client, tables):
    upstream.script = answer(b'{"error": {"message": "busy"}}', status="503 Busy", headers={"Retry-After": "60"})
    second.script = stream(*WHOLE)
    running = await gateway(None, **tables(FALLING))
    call = {"id": "call_x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    told = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_x", "content": "done"},
    ]
    assert (await ask(client, running.url, chat(messages=told))).content == "hello"
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    [line] = [each for each in exposition.splitlines() if "outcomes_total{" in each and 'dialect="native"' in each]
    assert line.endswith(" 1.0")


async def test_rules_choose_strategy_times_and_what_becomes_of_intent(gateway, upstream, client, tables):
    upstream.script = stream(text(CALL), event(finish="stop"), DONE)
    rules = '[[models]]\nmatch = "eager"\nintent = "deliver"\n[[models]]\nmatch = "plain"\nstrategy = "native"\n'
    running = await gateway(None, **tables(TWO + rules))
    asking = [{"role": "user", "content": "Please read the file a.py and tell me what it does."}]
    heard = hear_stream((await ask(client, running.url, chat(model="eager", messages=asking))).body)
    assert [call["name"] for call in heard.calls] == ["read_file"]
    assert hear_stream((await ask(client, running.url, chat(model="shy", messages=asking))).body).content == CALL
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    got = await ask(client, running.url, chat(model="plain", tools=tools))
    assert got.headers["X-Toolgate-Strategy"] == "native"


def listing(*names):
    return answer_json({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


async def test_the_lists_of_models_are_one(gateway, upstream, second, client, tables):
    upstream.script, second.script = listing("llama-3", "both"), listing("both", "qwen3")
    running = await gateway(None, **tables(TWO + '[[models]]\nmatch = "fast"\nsend_as = "llama-3"\nupstream = "a"\n'))
    got = (await get(client, f"{running.url}/v1/models")).json
    told = {entry["id"]: entry["toolgate"] for entry in got["data"]}
    assert [entry["id"] for entry in got["data"]] == ["llama-3", "both", "qwen3", "fast"]
    assert told["llama-3"] == {"strategy": "recovery", "upstream": "a", "kind": "openai"}
    assert told["qwen3"]["strategy"] == "xml_prompt"
    assert told["fast"]["upstream"] == "a"
    one = (await get(client, f"{running.url}/v1/models/qwen3")).json
    assert one["toolgate"] == told["qwen3"]


async def test_an_upstream_without_a_list_does_not_hide_the_others(gateway, upstream, second, client, tables):
    upstream.script, second.script = close_at_once, listing("qwen3")
    running = await gateway(None, **tables(TWO))
    got = await get(client, f"{running.url}/v1/models")
    assert [entry["id"] for entry in got.json["data"]] == ["qwen3"]
    second.script = close_at_once
    assert (await get(client, f"{running.url}/v1/models")).status == 502


async def test_a_reload_brings_other_upstreams(gateway, upstream, second, client, tables):
    from gateway.config.load import load

    upstream.script, second.script = stream(*WHOLE), stream(text("other"), event(finish="stop"), DONE)
    running = await gateway(None, **tables(TWO))
    assert (await ask(client, running.url, chat())).content == "hello"
    running.reload(load({"STORE_URL": "memory://", **tables(TWO.replace("{first}", "{second}"))}))
    assert (await ask(client, running.url, chat())).content == "other"


async def test_no_key_of_an_upstream_is_ever_told(gateway, second, client, tables, log):
    second.script = answer(json.dumps({"error": {"message": "bad key sk-second-finch"}}).encode(), status="400 Bad")
    running = await gateway(None, **tables(TWO + '[[models]]\nmatch = "*"\nupstream = "b"\n'))
    got = await ask(client, running.url, chat())
    assert b"finch" not in got.body
    assert "finch" not in await log.until("request_ended")


async def test_the_strategy_of_a_rule_holds_for_a_model_that_is_sent_under_another_name(
    gateway, upstream, client, tables
):
    upstream.script = stream(*WHOLE)
    rules = """
[[models]]
match = "fast"
upstream = "a"
send_as = "llama-3-8b"
strategy = "xml_prompt"
[[models]]
match = "clever"
upstream = "a"
send_as = "qwen3-max"
"""
    running = await gateway(None, **tables(TWO + rules))
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
    for model in ("fast", "clever"):
        got = await ask(client, running.url, chat(model=model, tools=[tool]))
        assert got.headers["X-Toolgate-Strategy"] == "xml_prompt"
    upstream.script = listing()
    told = (await get(client, f"{running.url}/v1/models/clever")).json
    assert told["toolgate"]["strategy"] == "xml_prompt"


# --- A model server that keeps its connections: each one serves one request at a time, whatever became of the last.


@pytest.fixture
async def keeping(no_leaks: None) -> AsyncIterator[str]:
    """Answers every request with its own number, some of them broken at first, and keeps every connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        number = asked["messages"][0]["content"]
        is_broken = len(asked["messages"]) == 1 and int(number) % 10 in (0, 5)
        written = f"<read_file>\n<path>{number}.py" + ("" if is_broken else "</path>\n</read_file>")
        if not asked.get("stream"):
            return web.json_response(completion(written))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in (text(written[:12]), text(written[12:]), event(finish="stop"), DONE):
            await response.write(piece)
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{site.port}/v1"
    await runner.cleanup()


async def test_no_answer_reaches_another_request(gateway, keeping, client):
    running = await gateway(keeping, NATIVE_FALLBACK="false")
    client.connector._limit = 0

    async def one(number: int) -> str:
        message = [{"role": "user", "content": str(number)}]
        got = await ask(client, running.url, chat(model="m", tools=TOOLS, stream=bool(number % 2), messages=message))
        assert got.status == 200, got.body
        told = hear_stream(got.body) if number % 2 else hear_body(got.body)
        # Only so many are asked again at a time; the others get their broken call as the text that it is.
        paths = [json.loads(call["arguments"])["path"] for call in told.calls]
        return str(paths[0] if paths else (told.content or "").rpartition(">")[2])

    for _ in range(4):
        told = await asyncio.gather(*(one(number) for number in range(60)))
        assert told == [f"{number}.py" for number in range(60)]
