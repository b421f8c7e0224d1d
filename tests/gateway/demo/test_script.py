"""The demo: each model writes its call in its own way, right to the schema, and ends the task on a result."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tools import Tool
from gateway.demo.script import MODELS, ScriptedAnswer, answer
from gateway.demo.server import DemoServer, Pace, start_demo
from strategies.writing.prompt import section
from strategies.writing.renderer import GenericTags, Hermes

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
        },
    },
}
READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
TOOLS = [READ, WEATHER]


def asked(text: str, model: str = "demo-native", **fields: Any) -> ScriptedAnswer:
    return answer({"model": model, "messages": [{"role": "user", "content": text}], "tools": TOOLS} | fields)


def called(text: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    call = asked(text, **fields).call
    assert call is not None
    return call.name, json.loads(call.arguments)


@pytest.fixture
async def demo() -> AsyncIterator[DemoServer]:
    server = await start_demo(Pace(tokens_per_s=0, pause_s=0))
    yield server
    await server.close()


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("What is the weather in Paris?", "get_weather", {"city": "Paris", "unit": "celsius"}),
        (
            "Weather for New York in fahrenheit for 3 days",
            *("get_weather", {"city": "New York", "days": 3, "unit": "fahrenheit"}),
        ),
        ("Please read the file src/app/main.py.", "read_file", {"path": "src/app/main.py"}),
        ("read README.md", "read_file", {"path": "README.md"}),
    ],
)
def test_the_call_fits_what_was_asked(text, name, arguments):
    assert called(text) == (name, arguments)


def test_what_the_question_does_not_say_is_a_sample_that_fits():
    name, arguments = called("How is the weather?")
    assert name == "get_weather"
    assert arguments["unit"] in ("celsius", "fahrenheit")
    assert isinstance(arguments["city"], str)


def test_a_named_tool_choice_is_followed():
    choice = {"type": "function", "function": {"name": "read_file"}}
    assert called("weather weather weather", tool_choice=choice)[0] == "read_file"


def test_each_model_has_its_own_form():
    text = "What is the weather in Paris?"
    written = '{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}'
    tags = "<get_weather>\n<city>Paris</city>\n<unit>celsius</unit>\n</get_weather>"
    assert asked(text, "demo-hermes").text == f"<tool_call>\n{written}\n</tool_call>"
    assert asked(text, "demo-json").text == f"```json\n{written}\n```"
    assert asked(text, "demo-xml").text.endswith(tags)
    assert asked(text, "demo-slow").text.endswith(tags)
    assert len(asked(text, "demo-slow").pieces) == 2
    assert asked(text, "demo-broken").text.endswith("<city>Paris</city>\n<unit>celsius")
    for model in MODELS:
        assert (asked(text, model).call is not None) == (model == "demo-native")
    assert "<" not in asked(text, "demo-prose").text


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize(
    "result",
    [
        {"role": "tool", "tool_call_id": "call_1", "content": '18 degrees, "sunny"'},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": '18 degrees, "sunny"'}]},
        {
            "role": "user",
            "content": '[Tool Result: get_weather]\nTool Call ID: call_1\n\nResult:\n18 degrees, "sunny"',
        },
    ],
)
def test_a_result_ends_the_task_in_prose_that_quotes_it(model, result):
    reply = answer({"model": model, "messages": [{"role": "user", "content": "?"}, result], "tools": TOOLS})
    assert reply.call is None
    assert "The tool answered: \"18 degrees, 'sunny'\"" in reply.text


@pytest.mark.parametrize("fields", [{"tools": []}, {"tools": None}, {"tool_choice": "none"}])
def test_without_tools_there_is_no_call(fields):
    assert asked("What is the weather in Paris?", **fields).call is None


@pytest.mark.parametrize("renderer", [GenericTags(), Hermes()])
def test_tools_described_in_the_prompt_are_found(renderer):
    tools = [
        Tool(name=tool["function"]["name"], parameters=tool["function"]["parameters"])  # type: ignore[index]
        for tool in TOOLS
    ]
    system = "You are helpful.\n\n" + section(renderer, tools, parallel=False)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Weather in Rome, in fahrenheit?"}]
    call = answer({"model": "demo-native", "messages": messages}).call
    assert call is not None
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Rome", "unit": "fahrenheit"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, JSON, JSON, st.sampled_from(list(MODELS)))
def test_any_request_gets_an_answer(messages, tools, choice, model):
    assert answer({"model": model, "messages": messages, "tools": tools, "tool_choice": choice})
    user = [{"role": "user", "content": messages}]
    function = {"type": "function", "function": {"name": "x", "parameters": tools}}
    assert answer({"model": model, "messages": user, "tools": [function], "tool_choice": choice})


async def events(response: aiohttp.ClientResponse) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in (await response.text()).split("\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("model", list(MODELS))
async def test_a_stream_says_what_the_whole_answer_says(demo, model):
    body = {"model": model, "messages": [{"role": "user", "content": "Weather in Paris?"}], "tools": TOOLS}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{demo.url}/chat/completions", json=body) as response:
            whole = (await response.json())["choices"][0]
        async with session.post(f"{demo.url}/chat/completions", json={**body, "stream": True}) as response:
            assert response.content_type == "text/event-stream"
            choices = [choice for event in await events(response) for choice in event["choices"]]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    functions = [
        call["function"] for choice in choices for call in choice["delta"].get("tool_calls", []) if "function" in call
    ]
    assert choices[0]["delta"]["role"] == "assistant"
    assert choices[-1]["finish_reason"] == whole["finish_reason"]
    assert (content or None) == whole["message"]["content"]
    if model == "demo-native":
        [call] = whole["message"]["tool_calls"]
        assert "".join(function.get("arguments", "") for function in functions) == call["function"]["arguments"]
    else:
        assert not functions
        assert len(choices) > 5


async def test_usage_comes_when_it_is_asked_for(demo):
    body = {"model": "demo-prose", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{demo.url}/chat/completions", json=body) as response:
            assert all("usage" not in event for event in await events(response))
        body["stream_options"] = {"include_usage": True}
        async with session.post(f"{demo.url}/chat/completions", json=body) as response:
            last = (await events(response))[-1]
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]


async def test_the_models_are_listed_and_another_is_not_found(demo):
    assert demo.url.startswith("http://127.0.0.1:")
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{demo.url}/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == list(MODELS)
        for body, status in ((b'{"model": "gpt"}', 404), (b"[]", 404), (b"{", 400), (b"[" * 100_000, 400)):
            async with session.post(f"{demo.url}/chat/completions", data=body) as response:
                assert response.status == status
                assert (await response.json())["error"]["message"]


async def test_closing_does_not_wait_for_a_pause():
    server = await start_demo(Pace(tokens_per_s=0, pause_s=3600))
    body = {"model": "demo-slow", "messages": [{"role": "user", "content": "Weather?"}], "tools": TOOLS, "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/chat/completions", json=body) as response,
    ):
        await response.content.readany()
        await server.close()
        with pytest.raises(aiohttp.ClientError):
            await response.read()
