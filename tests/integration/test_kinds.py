"""Kinds over real sockets, and the vendors' own clients against the servers that the kinds are held to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message
from attrs import evolve, frozen
from google import genai
from google.genai import types

from gateway.core.ports import Memory
from gateway.core.tools import Tool
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind
from gateway.kinds.shared.port import HttpAsk, Kind, Reply, Situation
from gateway.wire.chat_reshape import stream_to_body
from strategies.asking.renderers import renderer
from tests.support.anthropic_server import AnthropicServer
from tests.support.client import TOOLS as CHAT_TOOLS
from tests.support.client import ask, chat
from tests.support.gemini_server import GeminiServer
from tests.support.kinds import (
    HEADER,
    TOOLS,
    Call,
    Exchange,
    ManyServers,
    Turn,
    WireServer,
    comparable,
    conversation,
    listening,
)
from tests.support.openai_server import OpenAiServer, ResponsesServer
from tests.support.qwen_web_server import QwenWebServer
from tests.support.stores import RedisServer, needs_redis

SEEDS = range(12)

TURN = Turn(
    text="I look.\nnaïve 🙂",
    thought="Hm, well.",
    signature="U0lH",
    calls=(Call("toolu_1", "run", {"command": "ls", "timeout": 3}), Call("toolu_2", "ping", {})),
    fresh=5,
    cached=7,
    output=21,
    thinking=4,
)

QUESTION = "What is here?"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("turn", [TURN, Turn(text="x", end="length"), Turn(text="", end="content_filter")])
async def test_the_anthropic_client_reads_what_the_server_says(turn: Turn, streams: bool, no_leaks: None) -> None:
    server = AnthropicServer([turn])
    tools: Any = [{"name": call.name, "input_schema": {"type": "object"}} for call in turn.calls]
    request: dict[str, Any] = {
        "model": "claude-opus-5",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        "tools": tools,
    }
    async with listening(server) as url, AsyncAnthropic(api_key="sk-ant", base_url=url, max_retries=0) as client:
        if streams:
            async with client.messages.stream(**request) as stream:
                message: Message = await stream.get_final_message()
        else:
            message = await client.messages.create(**request)
    said = [block.model_dump() for block in message.content]
    assert "".join(block["text"] for block in said if block["type"] == "text") == turn.text
    thoughts = [(block["thinking"], block["signature"]) for block in said if block["type"] == "thinking"]
    assert thoughts == ([(turn.thought, turn.signature)] if turn.thought else [])
    calls = [Call(block["id"], block["name"], block["input"]) for block in said if block["type"] == "tool_use"]
    assert tuple(calls) == turn.calls
    assert message.usage.output_tokens == turn.output
    assert message.usage.cache_read_input_tokens == turn.cached
    ends = {"stop": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
    assert message.stop_reason == ends[turn.end]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("turn", [TURN, Turn(text="x", end="length")])
@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
async def test_the_gemini_client_reads_what_the_server_says(turn: Turn, streams: bool, no_leaks: None) -> None:
    server = GeminiServer([turn])
    async with listening(server) as url:
        client = genai.Client(api_key="AIza", http_options=types.HttpOptions(base_url=url))
        try:
            models = client.aio.models
            if streams:
                told = [
                    part async for part in await models.generate_content_stream(model="gemini-3", contents=QUESTION)
                ]
            else:
                told = [await models.generate_content(model="gemini-3", contents=QUESTION)]
        finally:
            await client.aio.aclose()
            client.close()
    parts: list[types.Part] = [part for answer in told for part in _parts(answer)]
    assert "".join(part.text or "" for part in parts if not part.thought) == turn.text
    assert "".join(part.text or "" for part in parts if part.thought) == turn.thought
    calls = [part.function_call for part in parts if part.function_call]
    assert [(call.id, call.name, call.args or {}) for call in calls] == [
        (call.id, call.name, call.arguments) for call in turn.calls
    ]
    usage = told[-1].usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.thoughts_token_count) == (turn.fresh + turn.cached, turn.thinking)
    assert [part.thought_signature for part in parts if part.thought_signature] == ([b"SIG"] if turn.signature else [])


def _parts(answer: types.GenerateContentResponse) -> list[types.Part]:
    assert answer.candidates
    content = answer.candidates[0].content
    return list(content.parts or []) if content is not None else []


class OverSockets:
    """One client's way through a kind to a server, over HTTP."""

    def __init__(self, kind: Kind, url: str, key: str, session: aiohttp.ClientSession) -> None:
        self._kind = kind
        self._url = url
        self._key = key
        self._session = session
        self._store: dict[str, bytes] = {}

    async def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The whole answer to a request."""
        known = {key: self._store[key] for key in self._kind.keys(body) if key in self._store}
        situation = Situation(now=1.0, make_id=lambda _: "call_made")
        dialogue = self._kind.begin(body, json.dumps(body).encode(), situation=situation, known=known)
        ask: HttpAsk | None = dialogue.ask
        out = b""
        while ask is not None:
            headers = dict((*ask.headers, *self._kind.credentials(self._key)))
            url = self._url + ask.path
            async with self._session.request(
                ask.method, url, params=dict(ask.query), headers=headers, data=ask.body
            ) as response:
                if ask.streams and response.content_type == "text/event-stream":
                    async for data in response.content.iter_any():
                        out += dialogue.feed(data)
                    out += dialogue.finish()
                    ask = dialogue.again
                    continue
                told = dialogue.answered(response.status, dict(response.headers), await response.read())
            ask = told if isinstance(told, HttpAsk) else None
            if isinstance(told, Reply):
                assert told.status == 200, told.body
                out = told.body
        self._keep(dialogue.remember())
        answer: dict[str, Any] = json.loads(stream_to_body(out) if body.get("stream") else out)
        return answer

    def _keep(self, memories: tuple[Memory, ...]) -> None:
        self._store.update({memory.key: memory.value for memory in memories})


async def converse(way: OverSockets, exchanges: list[Exchange], *, model: str, stream: bool) -> None:
    history: list[dict[str, Any]] = []
    for exchange in exchanges:
        history += exchange.news
        answer = await way.answer({"model": model, "messages": history, "stream": stream, **exchange.fields})
        message = answer["choices"][0]["message"]
        assert comparable(message) == exchange.turn.message()
        assert answer["choices"][0]["finish_reason"] == exchange.turn.finish_reason
        history.append({key: value for key, value in message.items() if key != "reasoning_content"})


@pytest.mark.parametrize("kind", ["anthropic", "gemini", "qwen_web"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_conversations_go_through_over_sockets(
    kind: str, seed: int, client: aiohttp.ClientSession, no_leaks: None
) -> None:
    exchanges = conversation(seed, with_calls=kind != "qwen_web")
    if kind == "qwen_web":
        exchanges = [exchange for exchange in exchanges if exchange.turn.end == "stop"]
    turns = [exchange.turn for exchange in exchanges]
    made: dict[str, tuple[Kind, WireServer, str, str]] = {
        "anthropic": (AnthropicKind(), AnthropicServer(turns), "sk-ant", "claude-sonnet-4-5"),
        "gemini": (GeminiKind(), GeminiServer(turns), "AIza", "gemini-3-flash"),
        "qwen_web": (QwenWebKind(), QwenWebServer(turns), "web-token", "qwen3-max"),
    }
    chosen, server, key, model = made[kind]
    async with listening(server) as url:
        way = OverSockets(chosen, f"{url}/v1", key, client)
        await converse(way, exchanges, model=model, stream=seed % 2 == 0)


# --- The same conversations with servers of every kind, through a gateway: an OpenAI client sees no difference


COUNT = 200

AT_ONCE = 12

SEEDS_WHOLE = range(2, COUNT, 5)

SEEDS_STREAMED = range(0, COUNT, 5)

Start = Callable[..., Awaitable[Any]]

Meaning = tuple[dict[str, Any], str, dict[str, int]]


@frozen
class Way:
    """A kind, and how its server is told what to say."""

    model: str
    key: str
    makes: Callable[[list[Turn]], WireServer]
    is_prompted: bool = False


WAYS = {
    "openai": Way("gpt-4o", "sk-open", OpenAiServer),
    "anthropic": Way("claude-sonnet-4-5", "sk-ant", AnthropicServer),
    "responses": Way("gpt-5.5", "sk-resp", ResponsesServer),
    "gemini": Way("gemini-3-flash", "AIza", GeminiServer),
    "qwen_web": Way("qwen3-max", "web-token", QwenWebServer, is_prompted=True),
}

DIALECT = "hermes"

"""Carries every argument; tags would lose white space at the ends of one."""

DECLARED = {
    function["name"]: Tool(name=function["name"], parameters=function["parameters"])
    for function in (cast("dict[str, Any]", tool["function"]) for tool in TOOLS)
}


def written(turn: Turn) -> Turn:
    """What a model says that was told its tools in words."""
    writer = renderer(DIALECT)
    calls = writer.calls([writer.call(call.name, call.arguments, DECLARED[call.name]) for call in turn.calls])
    return evolve(turn, text="\n\n".join(filter(None, (turn.text, calls))), calls=())


def conversations(way: Way) -> Iterator[tuple[int, list[Exchange], WireServer]]:
    """Each conversation with a server of its own."""
    for seed in range(COUNT):
        exchanges = conversation(seed)
        turns = [written(exchange.turn) if way.is_prompted else exchange.turn for exchange in exchanges]
        yield seed, without_copies(exchanges), way.makes(turns)


def without_copies(exchanges: list[Exchange]) -> list[Exchange]:
    """What a client has of equal calls in a row: the first, as a model may stammer, in words and in calls alike."""
    told = []
    gone: set[str] = set()
    for exchange in exchanges:
        news = tuple(each for each in exchange.news if each.get("tool_call_id") not in gone)
        calls: list[Call] = []
        for call in exchange.turn.calls:
            if calls and (calls[-1].name, calls[-1].arguments) == (call.name, call.arguments):
                gone.add(call.id)
            else:
                calls.append(call)
        told.append(evolve(exchange, news=news, turn=evolve(exchange.turn, calls=tuple(calls))))
    return told


def test_equal_calls_stand_in_the_conversations() -> None:
    """All kinds give the first of them."""
    all_of_them = [conversation(seed) for seed in range(COUNT)]
    assert any(without_copies(exchanges) != exchanges for exchanges in all_of_them)
    for seeds in (SEEDS_WHOLE, SEEDS_STREAMED):
        assert any(without_copies(all_of_them[seed]) != all_of_them[seed] for seed in seeds)


@asynccontextmanager
async def serving(start: Start, folder: Path, servers: Mapping[str, Mapping[str, WireServer]]) -> AsyncIterator[str]:
    """A gateway before servers of these kinds; gives its address."""
    tables = []
    async with AsyncExitStack() as stack:
        for kind, of_kind in servers.items():
            url = await stack.enter_async_context(listening(ManyServers(of_kind)))
            way = WAYS[kind]
            tables.append(
                f'[upstreams.{kind}]\nkind = "{kind}"\nurl = "{url}/v1"\n'
                f'api_key = "{way.key}"\nmodels = ["{way.model}"]\n'
            )
        path = folder / "toolgate.toml"
        tables.append(f'[[models]]\nmatch = "qwen*"\nstrategy = "xml_prompt:{DIALECT}"\n')
        path.write_text("".join(tables))
        # A busy machine accepts a connection late.
        yield (await start(None, GATEWAY_CONFIG=str(path), UPSTREAM_CONNECT_TIMEOUT_S="60")).url


@frozen
class Client:
    """An OpenAI client, and what it keeps of one conversation."""

    session: aiohttp.ClientSession
    url: str
    way: Way
    name: str

    async def converse(self, exchanges: list[Exchange], *, stream: bool) -> list[Meaning]:
        """The whole conversation; gives what each answer came to, ids and all."""
        history: list[dict[str, Any]] = []
        heard = []
        ids: dict[str, str] = {}
        for exchange in exchanges:
            history += [_answering(news, ids) for news in exchange.news]
            answer = await self._ask(history, exchange, stream=stream)
            [choice] = answer["choices"]
            message = choice["message"]
            for call, said in zip(exchange.turn.calls, message.get("tool_calls") or (), strict=False):
                ids[call.id] = said["id"]
            heard.append((comparable(message), choice["finish_reason"], answer["usage"]))
            history.append({key: value for key, value in message.items() if key != "reasoning_content"})
        return heard

    async def _ask(self, history: list[dict[str, Any]], exchange: Exchange, *, stream: bool) -> dict[str, Any]:
        body = {"model": self.way.model, "messages": history, "stream": stream, **exchange.fields}
        if "tools" in body:
            body["parallel_tool_calls"] = True
        if stream:
            body["stream_options"] = {"include_usage": True}
        url, headers = f"{self.url}/v1/chat/completions", {HEADER: self.name}
        async with self.session.post(url, json=body, headers=headers) as response:
            data = await response.read()
            assert response.status == 200, (self.name, data)
            answer: dict[str, Any] = json.loads(stream_to_body(data) if stream else data)
            return answer


def _answering(news: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """A result names its call by the id that the client was given."""
    return {**news, "tool_call_id": ids[news["tool_call_id"]]} if "tool_call_id" in news else news


def meant(exchange: Exchange) -> tuple[dict[str, Any], str, dict[str, int]]:
    """What any client should make of the answer."""
    turn = exchange.turn
    prompt = turn.fresh + turn.cached
    usage = {"prompt_tokens": prompt, "completion_tokens": turn.output, "total_tokens": prompt + turn.output}
    return _without_ids(turn.message()), turn.finish_reason, usage


def heard(meaning: Meaning) -> Meaning:
    message, reason, usage = meaning
    kept = {key: usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return _without_ids(message), reason, kept


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [Call("", name, arguments) for _, name, arguments in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls}


@pytest.mark.parametrize(
    ("streamed", "seeds"),
    [
        (False, SEEDS_WHOLE),
        (True, SEEDS_STREAMED),
        pytest.param(False, {*range(COUNT)} - {*SEEDS_WHOLE}, marks=pytest.mark.long),
        pytest.param(True, {*range(COUNT)} - {*SEEDS_STREAMED}, marks=pytest.mark.long),
    ],
    ids=["whole", "streamed", "the other whole ones", "other streamed ones"],
)
async def test_every_kind_says_the_same(
    gateway: Start, client: aiohttp.ClientSession, tmp_path: Path, streamed: bool, seeds: Collection[int]
) -> None:
    servers: dict[str, dict[str, WireServer]] = {kind: {} for kind in WAYS}
    asked: list[tuple[str, int, list[Exchange]]] = []
    for kind, way in WAYS.items():
        for seed, exchanges, server in conversations(way):
            if seed in seeds:
                servers[kind][str(seed)] = server
                asked.append((kind, seed, exchanges))
    room = asyncio.Semaphore(AT_ONCE)
    wrong: list[tuple[str, int, Any, Any]] = []

    async def one(url: str, kind: str, seed: int, exchanges: list[Exchange]) -> None:
        async with room:
            said = await Client(client, url, WAYS[kind], str(seed)).converse(exchanges, stream=streamed)
        for exchange, meaning in zip(exchanges, said, strict=True):
            if heard(meaning) != meant(exchange):
                wrong.append((kind, seed, heard(meaning), meant(exchange)))

    async with serving(gateway, tmp_path, servers) as url, asyncio.TaskGroup() as group:
        for kind, seed, exchanges in asked:
            group.create_task(one(url, kind, seed, exchanges))
    assert not wrong, wrong[0]
    for name, server in servers["qwen_web"].items():
        assert isinstance(server, QwenWebServer)
        assert_each_message_was_sent_once(server, without_copies(conversation(int(name))))


def assert_each_message_was_sent_once(server: QwenWebServer, exchanges: list[Exchange]) -> None:
    """One chat, to which every message of the client was added when it was new."""
    [chat] = server.chats.values()
    assert len(chat) == len(exchanges)
    for said, exchange in zip(chat.values(), exchanges, strict=True):
        roles = [news["role"] for news in said.news]
        assert "assistant" not in roles
        questions = [news["content"] for news in exchange.news if news["role"] == "user"]
        asked = [news["content"] for news in said.news if news["role"] == "user"]
        results = [news for news in exchange.news if news["role"] == "tool"]
        assert asked[bool(results) :] == questions


# --- A server that keeps its chats, through a gateway: what becomes of them when a conversation goes other ways


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
    answer = await say(client, running, history, tools=CHAT_TOOLS)
    [call] = answer["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "text"}
    assert (await say(client, running, [*history, answer, result], tools=CHAT_TOOLS))["content"] == "Done."
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
