"""Anthropic's own Python SDK through the gateway: a whole tool round trip, and every fault as its own exception."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message

from gateway.app import Gateway
from tests.sdk.conftest import Route
from tests.support.faulty_upstream import STREAM_HEAD, Connection, FaultyUpstream, Received, answer_json, event, stream

TOOLS: Any = [
    {
        "name": "get_weather",
        "description": "Says what the weather is like in a city.",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    }
]
QUESTION: Any = {"role": "user", "content": "What will the weather be in Paris for 3 days?"}


@asynccontextmanager
async def sdk(running: Gateway, **more: Any) -> AsyncIterator[AsyncAnthropic]:
    options: dict[str, Any] = {"api_key": "any", "max_retries": 0, "timeout": 20, **more}
    async with AsyncAnthropic(base_url=running.url, **options) as client:
        yield client


async def ask(client: AsyncAnthropic, streamed: bool, **request: Any) -> Message:
    """The message, streamed through the SDK's own accumulator or not."""
    request = {"max_tokens": 32_000, **request}
    if not streamed:
        made: Message = await client.messages.create(**request)
        return made
    async with client.messages.stream(**request) as answer:
        async for _ in answer:
            pass
        return await answer.get_final_message()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_tool_round_trip_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route, streamed: bool
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    async with sdk(running) as client:
        asked = await ask(client, streamed, model=route.model, messages=[QUESTION], tools=TOOLS)
        assert asked.stop_reason == "tool_use"
        [call] = [block for block in asked.content if block.type == "tool_use"]
        assert call.name == "get_weather"
        assert call.input == {"city": "Paris", "days": 3}
        assert not any("<" in block.text for block in asked.content if block.type == "text")
        messages: list[Any] = [
            QUESTION,
            {"role": "assistant", "content": asked.content},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 21 degrees"}],
            },
        ]
        told = await ask(client, streamed, model=route.model, messages=messages, tools=TOOLS)
    assert told.stop_reason == "end_turn"
    assert [block.type for block in told.content] == ["text"]
    assert "sunny, 21 degrees" in "".join(block.text for block in told.content if block.type == "text")


async def test_a_plain_question_gets_its_plain_answer(demo_gateway: Callable[..., Awaitable[Gateway]]) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        said = await ask(client, True, model="demo-prose", messages=[QUESTION], tools=TOOLS)
    assert said.stop_reason == "end_turn"
    assert [block.type for block in said.content] == ["text"]
    assert said.id.startswith("msg_")
    assert said.usage.output_tokens > 0


FAULTS: list[Any] = [
    ("400 Bad Request", anthropic.BadRequestError),
    ("404 Not Found", anthropic.NotFoundError),
    ("429 Too Many Requests", anthropic.RateLimitError),
    ("500 Internal Server Error", anthropic.InternalServerError),
    ("503 Service Unavailable", anthropic.OverloadedError),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("status", "raised"), FAULTS)
async def test_every_fault_is_an_exception_of_its_own(
    gateway: Callable[..., Awaitable[Gateway]],
    upstream: FaultyUpstream,
    status: str,
    raised: type[anthropic.APIStatusError],
    streamed: bool,
) -> None:
    upstream.script = answer_json({"error": {"message": "in the server's words"}}, status=status)
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    async with sdk(running) as client:
        with pytest.raises(raised) as fault:
            await ask(client, streamed, model="m", messages=[QUESTION])
    assert "in the server's words" in str(fault.value)
    assert fault.value.request_id


async def test_a_stream_that_breaks_raises(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = stream(event({"content": "Let me"}), b'data: {"error": {"message": "gone"}}\n\n')
    running = await gateway(upstream.url)
    async with sdk(running) as client:
        with pytest.raises(anthropic.APIStatusError, match="gone"):
            await ask(client, True, model="m", messages=[QUESTION])


async def test_an_answer_that_is_left_is_left_at_the_server_too(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    async def endless(connection: Connection, received: Received) -> None:
        del received
        await connection.send(STREAM_HEAD, event({"content": "Let me "}))
        await connection.until_gone()

    upstream.script = endless
    running = await gateway(upstream.url)
    async with sdk(running) as client, client.messages.stream(model="m", max_tokens=9, messages=[QUESTION]) as answer:
        async for piece in answer.text_stream:
            assert piece == "Let me "
            break
    async with asyncio.timeout(5):
        await upstream.until_all_gone(5)


async def test_tokens_are_counted_and_models_are_listed(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = answer_json({"object": "list", "data": [{"id": "a"}, {"id": "b"}]})
    running = await gateway(upstream.url, STRATEGY_RULES="*=recovery")
    async with sdk(running) as client:
        assert (await client.messages.count_tokens(model="m", messages=[QUESTION], tools=TOOLS)).input_tokens > 0
        assert [model.id async for model in client.models.list()] == ["a", "b"]
