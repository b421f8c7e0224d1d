"""The official Python SDK through the gateway: a whole tool round trip, and every fault as its own exception."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessage

from gateway.app import Gateway
from tests.sdk.conftest import Route
from tests.support.faulty_upstream import STREAM_HEAD, FaultyUpstream, event, stream, text

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Says what the weather is like in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
            },
        },
    }
]
QUESTION: Any = {"role": "user", "content": "What will the weather be in Paris for 3 days?"}


@asynccontextmanager
async def sdk(running: Gateway, key: str = "any", retries: int = 0) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=retries, timeout=20) as client:
        yield client


async def ask(client: AsyncOpenAI, streamed: bool, **request: Any) -> tuple[ChatCompletionMessage, str | None]:
    """The message and its finish reason, streamed through the SDK's own accumulator or not."""
    if not streamed:
        choice = (await client.chat.completions.create(**request)).choices[0]
        return choice.message, choice.finish_reason
    async with client.chat.completions.stream(**request) as answer:
        async for _ in answer:
            pass
        final = (await answer.get_final_completion()).choices[0]
    return final.message, final.finish_reason


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_tool_round_trip_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route, streamed: bool
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    messages: list[Any] = [QUESTION]
    async with sdk(running) as client:
        asked, finish = await ask(client, streamed, model=route.model, messages=messages, tools=TOOLS)
        assert finish == "tool_calls"
        [call] = asked.tool_calls or []
        assert call.type == "function"
        assert call.id.startswith("call_")
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Paris", "days": 3}
        assert "<" not in (asked.content or "")
        messages += [
            asked.model_dump(include={"role", "content", "tool_calls"}, mode="json"),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"},
        ]
        told, finish = await ask(client, streamed, model=route.model, messages=messages, tools=TOOLS)
    assert finish == "stop"
    assert not told.tool_calls
    assert "sunny, 21 degrees" in (told.content or "")


async def test_a_plain_question_gets_its_plain_answer(demo_gateway: Callable[..., Awaitable[Gateway]]) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        said, finish = await ask(client, True, model="demo-prose", messages=[QUESTION], tools=TOOLS)
        assert (await client.models.retrieve("demo-xml")).id == "demo-xml"
    assert finish == "stop"
    assert not said.tool_calls
    assert said.content


@pytest.mark.parametrize("strategy", ["native", "recovery", "xml_prompt"])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_cut_stream_raises(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream, strategy: str, reset: bool
) -> None:
    async def cut(connection: Any, received: Any) -> None:
        await connection.send(STREAM_HEAD, text("Half an ans"))
        if reset:
            connection.reset()

    upstream.script = cut
    running = await gateway(upstream.url, STRATEGY_RULES=f"*={strategy}")
    seen = ""
    async with sdk(running) as client:
        with pytest.raises(openai.APIError) as raised:  # noqa: PT012 - the answer begins well and raises on the way
            answer = await client.chat.completions.create(model="m", messages=[QUESTION], tools=TOOLS, stream=True)
            async for chunk in answer:
                seen += chunk.choices[0].delta.content or ""
    assert seen == "Half an ans"
    assert raised.value.code in ("upstream_truncated", "upstream_disconnected")


async def test_a_whole_stream_does_not_raise(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = stream(text("whole"), event(finish="stop"))
    running = await gateway(upstream.url)
    async with sdk(running) as client:
        said, finish = await ask(client, True, model="m", messages=[QUESTION], tools=TOOLS)
    assert (said.content, finish) == ("whole", "stop")


async def test_a_wrong_key_is_an_authentication_error(demo_gateway: Callable[..., Awaitable[Gateway]]) -> None:
    running = await demo_gateway(GATEWAY_API_KEYS="right")
    async with sdk(running, key="wrong") as client:
        with pytest.raises(openai.AuthenticationError) as raised:
            await client.models.list()
    assert raised.value.code == "unauthenticated"
    assert raised.value.request_id
    async with sdk(running, key="right") as client:
        assert [model.id async for model in client.models.list()]


async def test_a_bad_request_is_a_bad_request_error(demo_gateway: Callable[..., Awaitable[Gateway]]) -> None:
    running = await demo_gateway(STRATEGY_RULES="*=xml_prompt", TOOL_CALLING_MAX_TOOLS="1")
    two = [*TOOLS, {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}]
    orphan: Any = {"role": "tool", "tool_call_id": "call_unknown", "content": "x"}
    async with sdk(running) as client:
        with pytest.raises(openai.BadRequestError) as too_many:
            await client.chat.completions.create(model="demo-xml", messages=[QUESTION], tools=two)
        with pytest.raises(openai.BadRequestError) as no_call:
            await client.chat.completions.create(model="demo-xml", messages=[QUESTION, orphan], tools=TOOLS)
    assert too_many.value.code == "too_many_tools"
    assert no_call.value.code == "invalid_tool_results"


async def test_an_unknown_model_is_a_not_found_error(demo_gateway: Callable[..., Awaitable[Gateway]]) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        with pytest.raises(openai.NotFoundError) as raised:
            await client.chat.completions.create(model="no-such", messages=[QUESTION])
    assert raised.value.code == "model_not_found"
