"""Kinds over real sockets, and the vendors' own clients against the servers that the kinds are held to."""

import json
from typing import Any

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message
from google import genai
from google.genai import types

from gateway.core.ports import Memory
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind
from gateway.kinds.shared.port import HttpAsk, Kind, Reply, Situation
from gateway.wire.chat_reshape import stream_to_body
from tests.support.anthropic_server import AnthropicServer
from tests.support.gemini_server import GeminiServer
from tests.support.kind_driver import comparable
from tests.support.qwen_web_server import QwenWebServer
from tests.support.turns import Call, Exchange, Turn, conversation
from tests.support.wire_server import WireServer, listening

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
