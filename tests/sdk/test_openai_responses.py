"""OpenAI's own Python SDK on the Responses API: its stream helper, whole tool round trips, chains, faults."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from gateway.app import Gateway
from tests.sdk.conftest import Route

TOOLS: Any = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Says what the weather is like in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    }
]
QUESTION = "What will the weather be in Paris for 3 days?"
Start = Callable[..., Awaitable[Gateway]]


@asynccontextmanager
async def sdk(running: Gateway, **more: Any) -> AsyncIterator[AsyncOpenAI]:
    options: dict[str, Any] = {"api_key": "any", "max_retries": 0, "timeout": 20, **more}
    async with AsyncOpenAI(base_url=f"{running.url}/v1", **options) as client:
        yield client


async def ask(client: AsyncOpenAI, streamed: bool, **request: Any) -> Response:
    """The response, streamed through the SDK's own helper or not."""
    if not streamed:
        made: Response = await client.responses.create(**request)
        return made
    async with client.responses.stream(**request) as answer:
        numbers = [event.sequence_number async for event in answer]
        assert numbers == list(range(len(numbers)))
        final: Response = await answer.get_final_response()
        return final


def outputs(response: Response) -> list[str]:
    return [item.type for item in response.output]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_tool_round_trip_is_completed(demo_gateway: Start, route: Route, streamed: bool) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    async with sdk(running) as client:
        asked = await ask(client, streamed, model=route.model, input=QUESTION, tools=TOOLS, store=False)
        [call] = [item for item in asked.output if item.type == "function_call"]
        assert (call.name, call.arguments.replace(" ", "")) == ("get_weather", '{"city":"Paris","days":3}')
        assert "<" not in asked.output_text
        items: list[Any] = [
            {"role": "user", "content": QUESTION},
            *asked.output,
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 degrees"},
        ]
        told = await ask(client, streamed, model=route.model, input=items, tools=TOOLS, store=False)
    assert outputs(told) == ["message"]
    assert "sunny, 21 degrees" in told.output_text
    assert told.usage is not None
    assert told.usage.total_tokens == told.usage.input_tokens + told.usage.output_tokens


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_goes_on_from_an_answer_s_id(demo_gateway: Start, streamed: bool) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        asked = await ask(client, streamed, model="demo-hermes", input=QUESTION, tools=TOOLS)
        [call] = [item for item in asked.output if item.type == "function_call"]
        output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 degrees"}]
        told = await ask(
            client, streamed, model="demo-hermes", input=output, tools=TOOLS, previous_response_id=asked.id
        )
        assert "sunny, 21 degrees" in told.output_text
        assert (await client.responses.retrieve(told.id)).output_text == told.output_text
        listed = [item async for item in client.responses.input_items.list(asked.id)]
        assert [item.type for item in listed] == ["message"]
        await client.responses.delete(asked.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(asked.id)
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(client, streamed, model="demo-hermes", input=output, previous_response_id=told.id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_another_client_finds_nothing(demo_gateway: Start) -> None:
    running = await demo_gateway(GATEWAY_API_KEYS="one,two")
    async with sdk(running, api_key="one") as one, sdk(running, api_key="two") as two:
        made = await one.responses.create(model="demo-prose", input="Hello")
        assert (await one.responses.retrieve(made.id)).id == made.id
        with pytest.raises(openai.NotFoundError):
            await two.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError):
            await two.responses.create(model="demo-prose", input="Hello", previous_response_id=made.id)


async def test_a_conversation_is_made_shorter_and_goes_on(demo_gateway: Start) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        short = await client.responses.compact(model="demo-prose", input=QUESTION)
        assert [item.type for item in short.output] == ["compaction"]
        items: Any = [*short.output, {"role": "user", "content": "Go on."}]
        told = await client.responses.create(model="demo-prose", input=items)
    assert told.status == "completed"


@pytest.mark.parametrize(
    ("request_", "fault", "param"),
    [
        ({"input": "x", "background": True}, openai.BadRequestError, "background"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, openai.BadRequestError, "tools"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, openai.BadRequestError, "input[0].id"),
    ],
)
async def test_a_fault_of_the_request_is_an_exception_that_says_so(
    demo_gateway: Start, request_: Any, fault: type[openai.APIStatusError], param: str
) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        with pytest.raises(fault) as caught:
            await client.responses.create(model="demo-prose", **request_)
    assert caught.value.param == param


async def test_a_key_that_does_not_open_is_refused(demo_gateway: Start) -> None:
    running = await demo_gateway(GATEWAY_API_KEYS="right")
    async with sdk(running, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.responses.create(model="demo-prose", input="x")


async def test_nothing_is_made_in_the_background(demo_gateway: Start) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel("resp_123")


async def test_a_stream_that_is_left_is_left(demo_gateway: Start) -> None:
    running = await demo_gateway()
    async with sdk(running) as client:
        async with client.responses.stream(model="demo-prose", input="Tell me a lot.") as answer:
            first = await anext(aiter(answer))
            assert first.type == "response.created"
        told = await client.responses.create(model="demo-prose", input="Hello")
    assert told.status == "completed"
