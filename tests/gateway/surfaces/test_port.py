"""Clients of Messages and of Responses over real sockets: what the model server is asked, and what they are told."""

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
from tests.support.anthropic_server import AnthropicServer
from tests.support.chat import answer_body, event
from tests.support.client import exchange, post_bytes, status_of
from tests.support.faulty_upstream import DONE, STREAM_HEAD, Connection, FaultyUpstream, Received, answer_json
from tests.support.kinds import Call, Turn, listening
from tests.support.strict_clients import call, checked_body, checked_events, chunk, events_of, hear, sse, whole_chat

Start = Callable[..., Awaitable[Gateway]]
TOOL = {"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
TEXT = "What is in a.py?"
QUESTION = {"role": "user", "content": [{"type": "text", "text": TEXT}]}


def ask(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 32_000, "messages": [QUESTION], **more}


async def post(
    client: aiohttp.ClientSession, running: Gateway, body: Any, path: str = "/v1/messages", **headers: str
) -> tuple[int, Any, bytes]:
    async with client.post(running.url + path, json=body, headers=headers) as answer:
        return answer.status, answer.headers, await answer.read()


async def metric(client: aiohttp.ClientSession, running: Gateway, name: str, **labels: str) -> float:
    async with client.get(running.url + "/metrics") as answer:
        text = await answer.text()
    for line in text.splitlines():
        if line.startswith(name) and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def streams(*pieces: bytes) -> Callable[[Connection, Received], Awaitable[None]]:
    async def script(connection: Connection, received: Received) -> None:
        if not received.target.endswith("/chat/completions"):
            await answer_json({"error": {"message": "no such path"}}, status="404 Not Found")(connection, received)
            return
        await connection.send(STREAM_HEAD, *pieces)

    return script


async def test_what_goes_to_a_chat_server_is_chat(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(json.loads(answer_body("Nothing.")))
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    headers = {
        "anthropic-beta": "x",
        "anthropic-version": "2023-06-01",
        "X-Claude-Code-Session-Id": "s",
        "x-api-key": "k",
    }
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1"}
    body = ask(system=[billing, {"type": "text", "text": "Be brief."}], tools=[TOOL, SEARCH], metadata={"user_id": "u"})
    status, told, raw = await post(client, running, body, "/v1/messages?beta=true", **headers)
    assert status == 200
    assert json.loads(raw)["content"] == [{"type": "text", "text": "Nothing."}]
    assert told["X-Toolgate-Dropped"] == "web_search"
    assert told["request-id"] == told["X-Request-Id"]
    sent = upstream.last
    assert sent.target == "/v1/chat/completions"
    assert sent.json["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
    assert [tool["function"]["name"] for tool in sent.json["tools"]] == ["Read"]
    assert not [name for name in sent.headers if name.startswith(("anthropic-", "x-claude-"))]
    assert sent.headers["authorization"] == "Bearer k"
    dropped = {"surface": "messages", "what": "billing_header"}
    assert await metric(client, running, "toolgate_surface_dropped_total", **dropped) == 1
    path = {"surface": "messages", "kind": "openai", "path": "converted"}
    assert await metric(client, running, "toolgate_surface_path_total", **path) == 1
    assert await metric(client, running, "toolgate_requests_total", route="messages", arm="live") == 1


async def test_a_call_written_as_text_is_a_block(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    parts = ["I look.\n", "<tool_call>\n", '{"name": "Read", "arguments"', ': {"path": "a.py"}}\n</tool_call>']
    upstream.script = streams(
        event({"role": "assistant", "content": ""}),
        *(event({"content": part}) for part in parts),
        event({}, "stop"),
        DONE,
    )
    running = await gateway(upstream.url)
    status, _, raw = await post(client, running, ask(tools=[TOOL], stream=True))
    assert status == 200
    heard = hear(raw)
    text, call = heard.content
    assert text["text"] == "I look."
    assert (call["name"], call["input"]) == ("Read", {"path": "a.py"})
    assert call["id"].startswith("call_")
    assert heard.stop_reason == "tool_use"


async def test_the_beginning_comes_with_the_head_and_a_silent_server_is_covered(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    going_on = asyncio.Event()

    async def script(connection: Connection, received: Received) -> None:
        del received
        await connection.send(STREAM_HEAD)
        await going_on.wait()
        await connection.send(event({"content": "x"}), event({}, "stop"), DONE)

    upstream.script = script
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.05", STRATEGY_RULES="*=recovery")
    async with client.post(running.url + "/v1/messages", json=ask(stream=True)) as answer:
        got = b""
        while b"ping" not in got:
            got += await answer.content.readany()
        assert events_of(got[: got.rindex(b"\n\n") + 2])[0]["type"] == "message_start"
        going_on.set()
        got += await answer.content.read()
    heard = hear(got)
    assert heard.pings
    assert heard.is_whole


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_server_alone_with_server_tools_is_refused(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession, stream: bool
) -> None:
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    status, _, raw = await post(client, running, ask(tools=[SEARCH], stream=stream))
    error = json.loads(raw)
    assert status == 400
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert "web_search" in error["error"]["message"]
    assert error["request_id"]
    assert not upstream.requests


TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
ERRORS: list[Any] = [
    (400, {"error": {"message": "odd field"}}, 400, "invalid_request_error", "odd field"),
    (429, {"error": {"message": "slow down"}}, 429, "rate_limit_error", "slow down"),
    (404, {"error": {"message": "no model"}}, 404, "not_found_error", "no model"),
    (503, {"error": {"message": "busy"}}, 529, "overloaded_error", "busy"),
    (500, {"error": {"message": "boom"}}, 502, "api_error", "boom"),
    (
        400,
        {"error": {"message": TOO_LONG}},
        400,
        "invalid_request_error",
        "prompt is too long: 9000 tokens > 8192 maximum (This model's",
    ),
]


@pytest.mark.parametrize(("status", "payload", "told", "kind", "words"), ERRORS)
async def test_errors_are_told_in_anthropics_words(
    gateway: Start,
    upstream: FaultyUpstream,
    client: aiohttp.ClientSession,
    status: int,
    payload: Any,
    told: int,
    kind: str,
    words: str,
) -> None:
    upstream.script = answer_json(payload, status=f"{status} Odd")
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    got, headers, raw = await post(client, running, ask(stream=True))
    error = json.loads(raw)
    assert (got, error["error"]["type"]) == (told, kind)
    assert words in error["error"]["message"]
    assert headers["request-id"] == error["request_id"]


async def test_a_wrong_key_and_a_body_that_is_none(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url, GATEWAY_API_KEYS="the-key-of-this-gateway")
    status, _, raw = await post(client, running, ask())
    assert (status, json.loads(raw)["error"]["type"]) == (401, "authentication_error")
    upstream.script = answer_json(json.loads(answer_body("x")))
    for name, value in (("x-api-key", "the-key-of-this-gateway"), ("Authorization", "Bearer the-key-of-this-gateway")):
        assert (await post(client, running, ask(), **{name: value}))[0] == 200
    key = {"x-api-key": "the-key-of-this-gateway"}
    for body in ({}, {"model": "m"}, {"model": "m", "messages": []}, {"model": "m", "messages": [{"role": "x"}]}, 7):
        status, _, raw = await post(client, running, body, **key)
        assert (status, json.loads(raw)["error"]["type"]) == (400, "invalid_request_error"), body


@pytest.mark.parametrize("cut", [b"", b'data: {"error": {"message": "gone"}}\n\n'])
async def test_a_stream_that_breaks_has_no_end(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession, cut: bytes
) -> None:
    upstream.script = streams(event({"content": "Let me"}), cut)
    running = await gateway(upstream.url)
    heard = hear((await post(client, running, ask(stream=True)))[2])
    assert heard.error is not None
    assert heard.error["type"] == "api_error"
    assert not heard.is_whole


async def test_the_length_that_a_server_can_give_is_learned_from_its_refusal(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    limits: list[int] = []

    async def script(connection: Connection, received: Received) -> None:
        limits.append(received.json["max_tokens"])
        if limits[-1] > 8192:
            words = "max_tokens is too large: 32000. This model supports at most 8192 completion tokens"
            await answer_json({"error": {"message": words}}, status="400 Bad Request")(connection, received)
        else:
            await answer_json(json.loads(answer_body("x")))(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    assert (await post(client, running, ask()))[0] == 200
    assert (await post(client, running, ask()))[0] == 200
    assert limits == [32_000, 8192, 8192]


async def test_a_request_in_chat_keeps_its_length(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    words = "max_tokens is too large: 32000. This model supports at most 8192 completion tokens"
    upstream.script = answer_json({"error": {"message": words}}, status="400 Bad Request")
    running = await gateway(upstream.url)
    assert (await post(client, running, ask(), "/v1/chat/completions"))[0] == 400
    assert len(upstream.requests) == 1


TURN = Turn(
    text="I look.\nnaïve 🙂",
    thought="Hm.",
    signature="U0lH",
    calls=(Call("toolu_1", "Read", {"path": "a.py"}),),
    fresh=5,
)
ARMS: list[Any] = [
    {},
    {"TRANSFORM_MODE": "off"},
    {"TRANSFORM_MODE": "dry_run"},
    {"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "0", "CANARY_REST": "control"},
    {"KILL_SWITCH": "true"},
    {"TOOL_CALLING_ENABLED": "false"},
]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("arm", ARMS, ids=str)
async def test_a_server_that_speaks_messages_is_left_alone(
    gateway: Start, client: aiohttp.ClientSession, arm: dict[str, str], stream: bool
) -> None:
    server = AnthropicServer([TURN])
    async with listening(server) as url:
        environ = {"UPSTREAM_KIND": "anthropic", "UPSTREAM_API_KEY": "sk-ant", **arm}
        running = await gateway(url + "/v1", **environ)
        body = ask(tools=[TOOL], stream=stream, model="claude-x", metadata={"user_id": "u"})
        status, headers, raw = await post(client, running, body)
        path = {"surface": "messages", "kind": "anthropic", "path": "same_wire"}
        assert await metric(client, running, "toolgate_surface_path_total", **path) == 1
        tokens = {"type": "output", "upstream": "default"}
        assert await metric(client, running, "toolgate_tokens_total", **tokens) == TURN.output
    assert status == 200
    assert server.requests == [body]
    message = json.dumps(server.message(TURN, "claude-x"), ensure_ascii=False).encode()
    assert raw == (server.stream(TURN, "claude-x") if stream else message)
    assert headers["X-Toolgate-Arm"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("arm", ARMS, ids=str)
async def test_an_answer_in_chat_is_told_in_messages_in_every_arm(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession, arm: dict[str, str], stream: bool
) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "Read", "arguments": '{"path": "a"}'}}

    async def script(connection: Connection, received: Received) -> None:
        if not received.target.endswith("/chat/completions"):
            await answer_json({"error": {"message": "no such path"}}, status="404 Not Found")(connection, received)
        elif received.json.get("stream"):
            pieces = (event({"content": "I look."}), event({"tool_calls": [call]}), event({}, "tool_calls"), DONE)
            await connection.send(STREAM_HEAD, *pieces)
        else:
            await answer_json(json.loads(answer_body("I look.", "tool_calls", tool_calls=[call])))(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery", **arm)
    status, headers, raw = await post(client, running, ask(tools=[TOOL], stream=stream))
    assert status == 200
    told = hear(raw).content if stream else json.loads(raw)["content"]
    assert [block["type"] for block in told] == ["text", "tool_use"]
    assert told[1]["input"] == {"path": "a"}
    assert headers["Content-Type"].startswith("text/event-stream" if stream else "application/json")


async def test_a_name_that_is_no_header_is_told_in_plain_letters(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(json.loads(answer_body("x")))
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    odd = {"type": "web_search_20250305", "name": "a\r\nX-Evil: 1 ä"}
    status, headers, _ = await post(client, running, ask(tools=[TOOL, odd]))
    assert (status, headers["X-Toolgate-Dropped"]) == (200, "a__X-Evil__1__")
    assert "X-Evil" not in headers


async def test_server_tools_go_to_the_server_that_runs_them(gateway: Start, client: aiohttp.ClientSession) -> None:
    server = AnthropicServer([Turn(text="Found.")])
    async with listening(server) as url:
        running = await gateway(url + "/v1", UPSTREAM_KIND="anthropic", UPSTREAM_API_KEY="sk-ant")
        status, headers, _ = await post(
            client, running, ask(tools=[SEARCH], model="claude-x"), "/v1/messages?beta=true"
        )
    assert status == 200
    assert server.requests[0]["tools"] == [SEARCH]
    assert "X-Toolgate-Dropped" not in headers


async def test_a_server_is_asked_once_whether_it_speaks_messages(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    async def script(connection: Connection, received: Received) -> None:
        if received.target.endswith("/chat/completions"):
            await answer_json(json.loads(answer_body("x")))(connection, received)
        else:
            await answer_json({"detail": "Not Found"}, status="404 Not Found")(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="*=native")
    for _ in range(2):
        status, _, raw = await post(client, running, ask())
        assert status == 200
        assert json.loads(raw)["content"] == [{"type": "text", "text": "x"}]
    assert [each.target for each in upstream.requests] == ["/v1/messages", *["/v1/chat/completions"] * 2]


async def test_where_calls_are_mended_a_server_is_asked_in_chat(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json(json.loads(answer_body("x")))
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    await post(client, running, ask())
    assert [each.target for each in upstream.requests] == ["/v1/chat/completions"]


async def test_a_fault_of_the_server_in_its_own_words(gateway: Start, client: aiohttp.ClientSession) -> None:
    server = AnthropicServer([])
    async with listening(server) as url:
        running = await gateway(url + "/v1", UPSTREAM_KIND="anthropic", UPSTREAM_API_KEY="sk-ant")
        status, _, raw = await post(client, running, ask(model="claude-x", odd=1))
    assert status == 400
    assert json.loads(raw)["request_id"] == "req_011"


async def test_tokens_are_counted_by_who_can(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    body = {"model": "m", "messages": [QUESTION]}
    async with listening(AnthropicServer([])) as url:
        running = await gateway(url + "/v1", UPSTREAM_KIND="anthropic", UPSTREAM_API_KEY="sk-ant")
        _, headers, raw = await post(client, running, body, "/v1/messages/count_tokens")
    assert headers["X-Toolgate-Tokens"] == "counted"
    assert json.loads(raw)["input_tokens"] > 0

    async def script(connection: Connection, received: Received) -> None:
        if received.target.endswith("/chat/completions"):
            answer = {**json.loads(answer_body("x")), "usage": {"prompt_tokens": 20, "completion_tokens": 1}}
            await answer_json(answer)(connection, received)
        else:
            await answer_json({"detail": "Not Found"}, status="404 Not Found")(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    _, headers, raw = await post(client, running, body, "/v1/messages/count_tokens")
    assert headers["X-Toolgate-Tokens"] == "estimate"
    await post(client, running, ask())
    _, headers, raw = await post(client, running, {**ask()}, "/v1/messages/count_tokens")
    assert headers["X-Toolgate-Tokens"] == "learned"
    assert json.loads(raw) == {"input_tokens": 21}
    assert await metric(client, running, "toolgate_token_counts_total", source="learned") == 1


async def test_what_answers_tell_of_tokens_is_written_now_and_then(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(connection: Connection, received: Received) -> None:
        # The second half tells figures that no tokenizer makes: of those there is nothing to write.
        tokens = 20 if len(upstream.requests) <= 32 else 1_000_000
        usage = {"prompt_tokens": tokens, "completion_tokens": 1}
        await answer_json({**json.loads(answer_body("x")), "usage": usage})(connection, received)

    upstream.script = script
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    written: list[int] = []

    async def remember(*_: object) -> None:
        written.append(len(upstream.requests))

    monkeypatch.setattr(type(running.shared.sessions), "remember", remember)
    for _ in range(64):
        await post(client, running, ask())
    assert written == [1, 2, 4, 8, 16, 32]


async def test_models_are_listed_in_anthropics_form_for_those_who_ask_so(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.script = answer_json({"object": "list", "data": [{"id": "a", "created": 1_700_000_000}, {"id": "b"}]})
    running = await gateway(upstream.url)
    async with client.get(running.url + "/v1/models?limit=1000", headers={"anthropic-version": "2023-06-01"}) as answer:
        told = await answer.json()
    assert [(each["type"], each["id"], each["display_name"]) for each in told["data"]] == [
        ("model", "a", "a"),
        ("model", "b", "b"),
    ]
    assert told["data"][0]["created_at"] == "2023-11-14T22:13:20Z"
    assert (told["first_id"], told["last_id"], told["has_more"]) == ("a", "b", False)
    async with client.get(running.url + "/v1/models") as answer:
        assert (await answer.json())["object"] == "list"


async def test_a_head_of_the_front_page_is_empty(gateway: Start, client: aiohttp.ClientSession) -> None:
    running = await gateway("http://127.0.0.1:9/v1")
    async with client.head(running.url + "/") as answer:
        assert answer.status == 200
        assert await answer.read() == b""


async def test_a_conversation_is_known_by_the_session_of_its_client(
    gateway: Start, upstream: FaultyUpstream, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.script = answer_json(json.loads(answer_body("x")))
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    session = {"X-Claude-Code-Session-Id": "one"}
    first = ask(messages=[{"role": "user", "content": "a"}])
    other = ask(messages=[{"role": "user", "content": "b"}])
    records: list[Any] = []
    monkeypatch.setattr(type(running.shared.keeps), "put", lambda _self, record: records.append(record))
    for body, headers in ((first, session), (other, session), (other, {})):
        await post(client, running, body, **headers)
    keys = [record.key for record in records]
    assert keys[0] == keys[1] != keys[2]
    assert {record.surface for record in records} == {"messages"}
    assert all(record.completion_id.startswith("msg_") for record in records)


Script = Callable[[Connection, Received], Awaitable[None]]
TASK: dict[str, Any] = {"model": "gpt-4o", "input": "Read a.txt.", "tools": [{"type": "function", "name": "read"}]}


async def post_responses(
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
    status, body, headers = await post_responses(
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
    events = checked_events((await post_responses(client, running, body))[1])
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
    events = checked_events((await post_responses(client, running, {**TASK, "stream": True}))[1])
    assert [event["type"] for event in events].count("response.in_progress") > 2


@pytest.mark.parametrize("streams", [False, True])
async def test_a_stream_that_is_cut_has_failed_and_is_cut(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, streams: bool
) -> None:
    upstream.script = streaming(chunk(content="so"), call(0, "c", "read", "{}"))
    running = await gateway(upstream.url)
    status, body, _ = await post_responses(client, running, {**TASK, "stream": streams})
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
    events = checked_events((await post_responses(client, running, {**TASK, "stream": True}))[1])
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "hello"


async def test_what_does_not_fit_the_model_has_the_code_for_it(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    message = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"
    upstream.script = in_chat_alone(answer_json({"error": {"message": message}}, status="400 Bad Request"))
    running = await gateway(upstream.url)
    status, body, _ = await post_responses(client, running, TASK)
    assert (status, json.loads(body)["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("arm", ["off", "dry_run", "canary"])
async def test_untouched_arms_are_told_too(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession, arm: str
) -> None:
    upstream.script = streaming(chunk(content="<read>"), call(0, "", "read", "{}"), chunk("tool_calls"), b"[DONE]")
    running = await gateway(upstream.url, TRANSFORM_MODE=arm, CANARY_PERCENT="0")
    events = checked_events((await post_responses(client, running, {**TASK, "stream": True}))[1])
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message", "function_call"]


async def test_what_is_left_out_is_named(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    body = {**TASK, "tools": [*TASK["tools"], {"type": "web_search"}]}
    _, _, headers = await post_responses(client, running, body)
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
    status, _, _ = await post_responses(client, running, pack(json.dumps(TASK).encode()), Content_Encoding=coding)
    assert status == 200
    assert "content-encoding" not in upstream.requests[-1].headers


async def test_a_packed_request_is_held_to_the_size_of_what_is_in_it(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url, GATEWAY_MAX_BODY_BYTES="64KiB")
    body = json.dumps({**TASK, "input": "x" * (1 << 20)}).encode()
    status, _, _ = await post_responses(client, running, gzip.compress(body), Content_Encoding="gzip")
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
    status, body, _ = await post_responses(client, running, TASK, path="/v1/chat/completions")
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == "hello"
    assert upstream.requests[0].json["tools"][0]["function"]["name"] == "read"
    upstream.script = streaming(chunk(content="hi"), chunk("stop"), b"[DONE]")
    _, body, _ = await post_responses(client, running, {**TASK, "stream": True}, path="/v1/chat/completions")
    assert b'"content": "hi"' in body
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_chat_request_without_messages_and_input_is_refused_as_before(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    running = await gateway(upstream.url)
    status, body, _ = await post_responses(client, running, {"model": "m"}, path="/v1/chat/completions")
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
    made = checked_body((await post_responses(client, running, TASK))[1])
    rated = {"completion_id": made["id"], "rating": "good"}
    assert (await post_responses(client, running, rated, path="/v1/feedback"))[0] == 200


async def test_the_record_says_which_wire_was_spoken(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = answering(content="hello")
    running = await gateway(upstream.url)
    made = checked_body((await post_responses(client, running, TASK))[1])
    assert await running.upkeep.recorder.flush(5)
    [record] = [each async for each in running.upkeep.store.scan(RequestRecord)]
    assert (record.surface, record.route, record.completion_id) == ("responses", "responses", made["id"])


async def test_an_open_item_of_a_failed_answer_is_never_done(
    upstream: FaultyUpstream, gateway: Start, client: aiohttp.ClientSession
) -> None:
    upstream.script = streaming(chunk(content="so"), {"error": {"message": "gone", "type": "server_error"}})
    running = await gateway(upstream.url)
    events = events_of((await post_responses(client, running, {**TASK, "stream": True}))[1])
    assert [event["type"] for event in events][-1] == "response.failed"
    assert "response.output_item.done" not in [event["type"] for event in events]
