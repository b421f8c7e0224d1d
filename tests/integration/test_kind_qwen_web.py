"""A server that keeps its chats, through a gateway: what becomes of them when a conversation goes other ways."""

import asyncio
import json

import pytest

from gateway.wire.chat_reshape import stream_to_body
from tests.support.client import TOOLS, ask, chat
from tests.support.qwen_web_server import QwenWebServer
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.turns import Turn
from tests.support.wire_server import listening

CREATE = "/api/v2/chats/new"
SYSTEM = {"role": "system", "content": "Be brief."}
BROKEN = "<read_file>\n<path>a.py"
WHOLE = "<read_file>\n<path>a.py</path>\n</read_file>"


def asked(text):
    return {"role": "user", "content": text}


@pytest.fixture
def server():
    return QwenWebServer()


@pytest.fixture
async def address(server, no_leaks):
    async with listening(server) as url:
        yield url


@pytest.fixture
async def redis(tmp_path):
    server = await RedisServer(tmp_path).start()
    yield server
    await server.close()


@pytest.fixture
def start(gateway, address, tmp_path):
    path = tmp_path / "toolgate.toml"
    path.write_text(
        f'[upstreams.web]\nkind = "qwen_web"\nurl = "{address}"\napi_key = "web-token"\n'
        f'[upstreams.other]\nkind = "qwen_web"\nurl = "{address}/v1"\napi_key = "web-token"\n'
        '[[models]]\nmatch = "here"\nupstream = "web"\nsend_as = "qwen3-max"\n'
        '[[models]]\nmatch = "there"\nupstream = "other"\nsend_as = "qwen3-max"\n'
    )

    async def started(**environ):
        return await gateway(None, GATEWAY_CONFIG=str(path), **environ)

    return started


async def say(client, running, messages, *, stream=True, headers=None, **fields):
    """One request; the message that comes back."""
    body = chat(**{"model": "qwen3-max", "messages": messages, "stream": stream, **fields})
    got = await ask(client, running.url, body, headers=headers or {})
    assert got.status == 200, got.body
    return json.loads(stream_to_body(got.body) if stream else got.body)["choices"][0]["message"]


def sent(server):
    """What each message request brought: how many messages, and behind which answer."""
    return [
        (len(request["messages"]), request["parent_id"] is not None)
        for path, request in server.requests
        if path != CREATE
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_edited_history_is_another_chat(start, server, client, stream):
    server.turns = [Turn(text=text) for text in ("A", "B", "C")]
    running = await start()
    first = [SYSTEM, asked("one"), await say(client, running, [SYSTEM, asked("one")], stream=stream), asked("two")]
    await say(client, running, first, stream=stream)
    edited = [SYSTEM, asked("eins"), first[2], asked("two")]
    await say(client, running, edited, stream=stream)
    assert len(server.chats) == 2
    assert sent(server) == [(2, False), (1, True), (4, False)]


async def test_two_ways_on_from_one_answer_are_branches_of_one_chat(start, server, client):
    server.turns = [Turn(text=text) for text in ("A", "B1", "B2", "C1", "C2")]
    running = await start()
    root = [asked("one"), await say(client, running, [asked("one")])]

    async def branch(name):
        way = [*root, asked(name)]
        way.append(await say(client, running, way))
        await say(client, running, [*way, asked(f"more {name}")])

    await asyncio.gather(branch("left"), branch("right"))
    [(chat_id, messages)] = server.chats.items()
    assert sent(server) == [(1, False), *[(1, True)] * 4]
    lines = [server.line(chat_id, answer) for answer in list(messages)[-2:]]
    for line in lines:
        said = [text for role, text in line if role == "user"]
        assert said in (["one", "left", "more left"], ["one", "right", "more right"])
    assert lines[0] != lines[1]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("faults_as_events", [True, False])
async def test_a_chat_that_is_gone_is_made_again_with_all_that_was_said(
    start, server, client, stream, faults_as_events
):
    server.turns = [Turn(text=text) for text in ("A", "B", "C")]
    server.faults_as_events = faults_as_events
    running = await start()
    history = [SYSTEM, asked("one")]
    history += [await say(client, running, history, stream=stream), asked("two")]
    server.chats.clear()
    answer = await say(client, running, history, stream=stream)
    assert answer["content"] == "B"
    await say(client, running, [*history, answer, asked("three")], stream=stream)
    assert sent(server) == [(2, False), (1, True), (4, False), (1, True)]


async def test_a_chat_that_cannot_be_made_again_leaves_the_status_free(start, server, client):
    server.turns, server.faults_as_events = [Turn(text="A")], True
    running = await start()
    history = [asked("one"), await say(client, running, [asked("one")]), asked("two")]
    server.chats.clear()
    server.makes_chats = False
    got = await ask(client, running.url, chat(model="qwen3-max", messages=history))
    assert (got.status, got.json["error"]["message"]) == (429, "later")


async def test_a_chat_made_again_may_answer_without_a_stream(start, server, client):
    server.turns, server.faults_as_events = [Turn(text="A"), Turn(text="B"), Turn(text="C")], True
    running = await start()
    history = [asked("one"), await say(client, running, [asked("one")]), asked("two")]
    server.chats.clear()
    server.streams = False
    history += [await say(client, running, history), asked("three")]
    assert history[-2]["content"] == "B"
    await say(client, running, history)
    assert sent(server) == [(1, False), (1, True), (3, False), (1, True)]


@pytest.mark.parametrize("stream", [True, False])
async def test_no_answer_is_whole_before_its_conversation_is_kept(start, server, client, monkeypatch, stream):
    server.turns = [Turn(text="A")]
    running = await start()
    asked_to_keep, may_keep, got = asyncio.Event(), asyncio.Event(), bytearray()
    keep = type(running.shared.sessions).remember

    async def kept_late(*arguments):
        asked_to_keep.set()
        await may_keep.wait()
        await keep(*arguments)

    async def read():
        body = chat(model="qwen3-max", messages=[asked("one")], stream=stream)
        async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
            async for piece in response.content.iter_any():
                got.extend(piece)

    monkeypatch.setattr(type(running.shared.sessions), "remember", kept_late)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        await asked_to_keep.wait()
        await asyncio.sleep(0.05)
        early = bytes(got)
        may_keep.set()
    assert b"[DONE]" not in early
    assert stream or early == b""
    assert got.endswith(b"[DONE]\n\n") if stream else json.loads(bytes(got))


async def test_no_client_goes_on_with_the_chat_of_another(start, server, client):
    server.turns = [Turn(text=text) for text in ("A", "B")]
    running = await start(GATEWAY_API_KEYS="one,two")
    history = [asked("one")]
    answer = await say(client, running, history, headers={"Authorization": "Bearer one"})
    await say(client, running, [*history, answer, asked("two")], headers={"Authorization": "Bearer two"})
    assert sent(server) == [(1, False), (3, False)]


async def test_no_server_is_asked_for_the_chat_of_another(start, server, client):
    server.turns = [Turn(text=text) for text in ("A", "B", "C")]
    running = await start()
    history = [asked("one")]
    history += [await say(client, running, history, model="here"), asked("two")]
    await say(client, running, history, model="there")
    await say(client, running, history, model="here")
    assert sent(server) == [(1, False), (3, False), (1, True)]


async def test_a_repaired_answer_begins_a_chat_in_which_it_was_right(start, server, client):
    server.turns = [Turn(text=text) for text in (BROKEN, WHOLE, "Done.")]
    running = await start()
    history = [asked("look")]
    answer = await say(client, running, history, tools=TOOLS)
    [call] = answer["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "text"}
    assert (await say(client, running, [*history, answer, result], tools=TOOLS))["content"] == "Done."
    last = list(server.chats.values())[-1]
    [message] = last.values()
    assert BROKEN not in [news["content"] for news in message.news]


@needs_redis
@pytest.mark.parametrize("stream", [True, False])
async def test_without_the_store_the_whole_history_is_said_again(redis, start, server, client, stream):
    server.turns = [Turn(text=text) for text in ("A", "B", "C", "D")]
    one, other = await start(STORE_URL=redis.url), await start(STORE_URL=redis.url)
    history = [asked("one")]
    history += [await say(client, one, history, stream=stream), asked("two")]
    await redis.kill()
    history += [await say(client, other, history, stream=stream), asked("three")]
    history += [await say(client, other, history, stream=stream), asked("four")]
    await say(client, one, history, stream=stream)
    await redis.start()  # the gateways have something to write when they close
    # Who has answered before goes by its own memory; who has not begins anew.
    assert sent(server) == [(1, False), (3, False), (1, True), (7, False)]
