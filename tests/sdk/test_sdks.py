"""The official SDKs through the gateway, in Python and JavaScript: tool round trips, chains of answers, and faults."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response

from gateway.app import Gateway
from tests.sdk.conftest import Route
from tests.support.faulty_upstream import (
    STREAM_HEAD,
    Connection,
    FaultyUpstream,
    Received,
    answer_json,
    event,
    stream,
    text,
)

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


# --- The Responses API: its stream helper, chains, answers that are kept


RESPONSES_TOOLS: Any = [
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
ASKED: str = QUESTION["content"]
Start = Callable[..., Awaitable[Gateway]]


@asynccontextmanager
async def responses_sdk(running: Gateway, **more: Any) -> AsyncIterator[AsyncOpenAI]:
    options: dict[str, Any] = {"api_key": "any", "max_retries": 0, "timeout": 20, **more}
    async with AsyncOpenAI(base_url=f"{running.url}/v1", **options) as client:
        yield client


async def respond(client: AsyncOpenAI, streamed: bool, **request: Any) -> Response:
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
async def test_a_tool_round_trip_of_responses_is_completed(demo_gateway: Start, route: Route, streamed: bool) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    async with responses_sdk(running) as client:
        asked = await respond(client, streamed, model=route.model, input=ASKED, tools=RESPONSES_TOOLS, store=False)
        [call] = [item for item in asked.output if item.type == "function_call"]
        assert (call.name, call.arguments.replace(" ", "")) == ("get_weather", '{"city":"Paris","days":3}')
        assert "<" not in asked.output_text
        items: list[Any] = [
            {"role": "user", "content": ASKED},
            *asked.output,
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 degrees"},
        ]
        told = await respond(client, streamed, model=route.model, input=items, tools=RESPONSES_TOOLS, store=False)
    assert outputs(told) == ["message"]
    assert "sunny, 21 degrees" in told.output_text
    assert told.usage is not None
    assert told.usage.total_tokens == told.usage.input_tokens + told.usage.output_tokens


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_goes_on_from_an_answer_s_id(demo_gateway: Start, streamed: bool) -> None:
    running = await demo_gateway()
    async with responses_sdk(running) as client:
        asked = await respond(client, streamed, model="demo-hermes", input=ASKED, tools=RESPONSES_TOOLS)
        [call] = [item for item in asked.output if item.type == "function_call"]
        output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 degrees"}]
        told = await respond(
            client, streamed, model="demo-hermes", input=output, tools=RESPONSES_TOOLS, previous_response_id=asked.id
        )
        assert "sunny, 21 degrees" in told.output_text
        assert (await client.responses.retrieve(told.id)).output_text == told.output_text
        listed = [item async for item in client.responses.input_items.list(asked.id)]
        assert [item.type for item in listed] == ["message"]
        await client.responses.delete(asked.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(asked.id)
        with pytest.raises(openai.BadRequestError) as caught:
            await respond(client, streamed, model="demo-hermes", input=output, previous_response_id=told.id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_another_client_finds_nothing(demo_gateway: Start) -> None:
    running = await demo_gateway(GATEWAY_API_KEYS="one,two")
    async with responses_sdk(running, api_key="one") as one, responses_sdk(running, api_key="two") as two:
        made = await one.responses.create(model="demo-prose", input="Hello")
        assert (await one.responses.retrieve(made.id)).id == made.id
        with pytest.raises(openai.NotFoundError):
            await two.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError):
            await two.responses.create(model="demo-prose", input="Hello", previous_response_id=made.id)


async def test_a_conversation_is_made_shorter_and_goes_on(demo_gateway: Start) -> None:
    running = await demo_gateway()
    async with responses_sdk(running) as client:
        short = await client.responses.compact(model="demo-prose", input=ASKED)
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
    async with responses_sdk(running) as client:
        with pytest.raises(fault) as caught:
            await client.responses.create(model="demo-prose", **request_)
    assert caught.value.param == param


async def test_a_key_that_does_not_open_is_refused(demo_gateway: Start) -> None:
    running = await demo_gateway(GATEWAY_API_KEYS="right")
    async with responses_sdk(running, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.responses.create(model="demo-prose", input="x")


async def test_nothing_is_made_in_the_background(demo_gateway: Start) -> None:
    running = await demo_gateway()
    async with responses_sdk(running) as client:
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel("resp_123")


async def test_a_stream_that_is_left_is_left(demo_gateway: Start) -> None:
    running = await demo_gateway()
    async with responses_sdk(running) as client:
        async with client.responses.stream(model="demo-prose", input="Tell me a lot.") as answer:
            first = await anext(aiter(answer))
            assert first.type == "response.created"
        told = await client.responses.create(model="demo-prose", input="Hello")
    assert told.status == "completed"


# --- Anthropic's SDK, on the Messages API


MESSAGES_TOOLS: Any = [
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


@asynccontextmanager
async def messages_sdk(running: Gateway, **more: Any) -> AsyncIterator[AsyncAnthropic]:
    options: dict[str, Any] = {"api_key": "any", "max_retries": 0, "timeout": 20, **more}
    async with AsyncAnthropic(base_url=running.url, **options) as client:
        yield client


async def say(client: AsyncAnthropic, streamed: bool, **request: Any) -> Message:
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
async def test_a_tool_round_trip_of_messages_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route, streamed: bool
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    async with messages_sdk(running) as client:
        asked = await say(client, streamed, model=route.model, messages=[QUESTION], tools=MESSAGES_TOOLS)
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
        told = await say(client, streamed, model=route.model, messages=messages, tools=MESSAGES_TOOLS)
    assert told.stop_reason == "end_turn"
    assert [block.type for block in told.content] == ["text"]
    assert "sunny, 21 degrees" in "".join(block.text for block in told.content if block.type == "text")


@anthropic.beta_async_tool
async def get_weather(city: str, days: int) -> str:
    """What the weather is like in a city."""
    return f"sunny, {20 + days} degrees in {city}"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_its_tool_runner_goes_on_without_a_thread(
    demo_gateway: Callable[..., Awaitable[Gateway]], streamed: bool
) -> None:
    running = await demo_gateway()
    said = ""
    async with messages_sdk(running) as client:
        runner: Any = client.beta.messages.tool_runner(
            model="demo-xml", max_tokens=1000, messages=[QUESTION], tools=[get_weather], stream=streamed
        )
        async for answer in runner:
            message = await answer.get_final_message() if streamed else answer
            said = "".join(block.text for block in message.content if block.type == "text")
    assert "sunny, 23 degrees in Paris" in said


async def test_a_plain_question_gets_its_plain_answer_in_messages(
    demo_gateway: Callable[..., Awaitable[Gateway]],
) -> None:
    running = await demo_gateway()
    async with messages_sdk(running) as client:
        said = await say(client, True, model="demo-prose", messages=[QUESTION], tools=MESSAGES_TOOLS)
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
    async with messages_sdk(running) as client:
        with pytest.raises(raised) as fault:
            await say(client, streamed, model="m", messages=[QUESTION])
    assert "in the server's words" in str(fault.value)
    assert fault.value.request_id


async def test_a_stream_that_breaks_raises(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = stream(event({"content": "Let me"}), b'data: {"error": {"message": "gone"}}\n\n')
    running = await gateway(upstream.url)
    async with messages_sdk(running) as client:
        with pytest.raises(anthropic.APIStatusError, match="gone"):
            await say(client, True, model="m", messages=[QUESTION])


async def test_an_answer_that_is_left_is_left_at_the_server_too(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    async def endless(connection: Connection, received: Received) -> None:
        del received
        await connection.send(STREAM_HEAD, event({"content": "Let me "}))
        await connection.until_gone()

    upstream.script = endless
    running = await gateway(upstream.url)
    async with (
        messages_sdk(running) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[QUESTION]) as answer,
    ):
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
    async with messages_sdk(running) as client:
        assert (
            await client.messages.count_tokens(model="m", messages=[QUESTION], tools=MESSAGES_TOOLS)
        ).input_tokens > 0
        assert [model.id async for model in client.models.list()] == ["a", "b"]


# --- The JavaScript SDKs: OpenAI's, Vercel's and Anthropic's each complete a tool round trip


NODE = Path(__file__).parent / "node"
HAS_NODE = shutil.which("node") is not None and (NODE / "node_modules").is_dir()


def in_node(test: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a program of another process."""
    needed = pytest.mark.skipif(
        not HAS_NODE and "TOOLGATE_CI" not in os.environ,
        reason="needs node, and `npm ci` in tests/sdk/node",
    )
    marked: Callable[..., Any] = pytest.mark.system(needed(test))
    return marked


async def run(script: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "node", str(NODE / script), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, err.decode()
    return out.decode()


def assert_completed(told: str, finishes: list[str]) -> None:
    """Whole and streamed alike."""
    both = [json.loads(line) for line in told.splitlines()]
    assert len(both) == 2
    for seen in both:
        assert seen["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]
        assert seen["finishes"] == finishes
        assert "sunny, 21 degrees" in seen["answer"]


@in_node
@pytest.mark.parametrize("script", ["openai_sdk.mjs", "ai_sdk.mjs"])
async def test_a_tool_round_trip_in_javascript_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route, script: str
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    told = await run("each.mjs", script, f"{running.url}/v1", route.model, "whole", "streamed")
    assert_completed(told, ["tool_calls", "stop"])


@in_node
async def test_a_tool_round_trip_in_messages_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    told = await run("each.mjs", "anthropic_sdk.mjs", running.url, route.model, "whole", "streamed")
    assert_completed(told, ["tool_use", "end_turn"])


@in_node
async def test_a_tool_round_trip_in_responses_is_completed(
    demo_gateway: Callable[..., Awaitable[Gateway]], route: Route
) -> None:
    running = await demo_gateway(STRATEGY_RULES=route.rules)
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", route.model, "streamed"))
    assert seen["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]
    assert seen["finishes"] == ["completed", "completed"]
    assert "sunny, 21 degrees" in seen["answer"]


@in_node
@pytest.mark.parametrize("way", ["whole", "chained"])
async def test_a_conversation_in_responses_goes_on_whole_and_by_the_id_of_an_answer(
    demo_gateway: Callable[..., Awaitable[Gateway]], way: str
) -> None:
    running = await demo_gateway()
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "demo-hermes", way))
    assert "sunny, 21 degrees" in seen["answer"]
    assert seen["kept"] == (seen["answer"] if way == "chained" else None)


@in_node
async def test_faults_and_cancellation_in_responses_are_the_sdks_own(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = answer_json({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, status="429 Slow")
    running = await gateway(upstream.url)
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "m", "errors"))
    assert seen == {"error": "RateLimitError", "status": 429, "code": "rate_limit_exceeded"}
    upstream.script = stream(event({"content": "Let me"}), b'data: {"error": {"message": "gone"}}\n\n')
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "m", "errors"))
    assert seen == {"error": "response.failed", "code": "server_error"}
    upstream.script = endless
    seen = json.loads(await run("openai_responses.mjs", f"{running.url}/v1", "m", "cancelled"))
    assert seen == {"pieces": 1}
    await upstream.until_all_gone(5)


async def endless(connection: Connection, received: Received) -> None:
    await connection.send(STREAM_HEAD, event({"content": "Words."}))
    await connection.until_gone()


@in_node
async def test_faults_and_cancellation_in_messages_are_the_sdks_own(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream
) -> None:
    upstream.script = answer_json({"error": {"message": "slow down"}}, status="429 Too Many Requests")
    running = await gateway(upstream.url)
    seen = json.loads(await run("anthropic_sdk.mjs", running.url, "m", "errors"))
    assert seen == {"error": "RateLimitError", "status": 429, "type": "rate_limit_error"}
    upstream.script = stream(event({"content": "Let me"}), b'data: {"error": {"message": "gone"}}\n\n')
    seen = json.loads(await run("anthropic_sdk.mjs", running.url, "m", "errors"))
    assert seen["error"] in ("APIError", "AnthropicError")
    upstream.script = endless
    seen = json.loads(await run("anthropic_sdk.mjs", running.url, "m", "cancelled"))
    assert seen == {"pieces": 1}
    await upstream.until_all_gone(5)


@in_node
def test_the_pinned_packages_are_the_ones_that_ran() -> None:
    wanted = json.loads((NODE / "package.json").read_bytes())["dependencies"]
    found = {
        name: json.loads((NODE / "node_modules" / name / "package.json").read_bytes())["version"] for name in wanted
    }
    assert found == wanted
    assert "resolved" not in (NODE / "package-lock.json").read_text()
