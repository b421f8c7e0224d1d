"""The same conversations with servers of every kind, through a gateway: an OpenAI client sees no difference."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from attrs import evolve, frozen

from gateway.core.tools import Tool
from gateway.wire.chat_reshape import stream_to_body
from strategies.asking.renderers import renderer
from tests.support.anthropic_server import AnthropicServer
from tests.support.gemini_server import GeminiServer
from tests.support.kind_driver import comparable
from tests.support.many_server import HEADER, ManyServers
from tests.support.openai_server import OpenAiServer
from tests.support.qwen_web_server import QwenWebServer
from tests.support.responses_server import ResponsesServer
from tests.support.turns import TOOLS, Call, Exchange, Turn, conversation
from tests.support.wire_server import WireServer, listening

COUNT = 200
AT_ONCE = 12
SEEDS_WHOLE = range(0, COUNT, 2)
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
        pytest.param(False, range(1, COUNT, 2), marks=pytest.mark.long),
        pytest.param(True, range(1, COUNT, 2), marks=pytest.mark.long),
    ],
    ids=["whole", "streamed", "the other whole ones", "other streamed ones"],
)
async def test_every_kind_says_the_same(
    gateway: Start, client: aiohttp.ClientSession, tmp_path: Path, streamed: bool, seeds: range
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
