"""A call that was written as text, all the way from the model server to the client and into the records."""

import asyncio
from typing import Any

import openai
import pytest

from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import DONE, STREAM_HEAD, answer_json, completion, event, stream, text

WRITTEN = "I read it.\n<read_file>\n<path>src/a.py</path>\n</read_file>"
ROLE = event({"role": "assistant", "content": ""})
FINISH = event(finish="stop")


def called(chunks) -> list[tuple[str, str]]:
    """Name and arguments of the calls that the deltas add up to."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls") or []:
                if "name" in call["function"]:
                    names[call["index"]] = call["function"]["name"]
                arguments[call["index"]] = arguments.get(call["index"], "") + call["function"].get("arguments", "")
    return [(names[index], arguments[index]) for index in sorted(names)]


@pytest.mark.parametrize("model", ["deepseek-chat", "qwen3-coder"])
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_written_call_arrives_as_one(gateway, upstream, client, model, size):
    pieces = [text(WRITTEN[at : at + size]) for at in range(0, len(WRITTEN), size)]
    upstream.script = stream(ROLE, *pieces, FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model, tools=TOOLS))
    assert called(got.chunks) == [("read_file", '{"path":"src/a.py"}')]
    assert got.content == "I read it."
    assert got.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert got.is_done


async def test_a_whole_answer_says_the_same(gateway, upstream, client):
    upstream.script = answer_json(completion(WRITTEN))
    running = await gateway(upstream.url)
    choice = (await ask(client, running.url, chat(model="deepseek", stream=False, tools=TOOLS))).json["choices"][0]
    assert choice["message"]["content"] == "I read it."
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "read_file", "arguments": '{"path":"src/a.py"}'}
    assert len(call["id"]) == len("call_") + 24
    assert choice["finish_reason"] == "tool_calls"


async def test_mode_off_leaves_it_text(gateway, upstream, client):
    upstream.script = stream(ROLE, text(WRITTEN), FINISH, DONE)
    running = await gateway(upstream.url, TRANSFORM_MODE="off")
    got = await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert got.body == b"".join((ROLE, text(WRITTEN), FINISH, DONE))


async def test_a_client_is_kept_alive_while_a_call_is_held(gateway, upstream, client):
    async def slowly(connection, received):
        await connection.send(STREAM_HEAD, ROLE, text(WRITTEN[:40]))
        await asyncio.sleep(0.25)
        await connection.send(text(WRITTEN[40:]), FINISH, DONE)

    upstream.script = slowly
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.05")
    got = await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert got.body.count(b": keep-alive\n\n") >= 2
    assert called(got.chunks) == [("read_file", '{"path":"src/a.py"}')]


async def test_the_openai_client_sees_a_call(gateway, upstream):
    upstream.script = stream(ROLE, text(WRITTEN), FINISH, DONE)
    running = await gateway(upstream.url)
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="sk-x") as sdk:
        messages: Any = [{"role": "user", "content": "x"}]
        tools: Any = TOOLS
        async with sdk.chat.completions.stream(model="deepseek", messages=messages, tools=tools) as chunks:
            final = await chunks.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("read_file", '{"path":"src/a.py"}')


async def test_what_was_done_is_counted_and_written_down(gateway, upstream, client, log):
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    upstream.script = stream(ROLE, text(WRITTEN), FINISH, event(choices=[], usage=usage), DONE)
    running = await gateway(upstream.url)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"X-Request-Id": "mine-7", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    await ask(client, running.url, chat(model="deepseek", tools=TOOLS), headers=headers)
    record = await log.record("request_ended")
    assert record["request_id"] == "mine-7"
    assert record["trace_id"] == trace
    assert (record["model"], record["strategy"], record["arm"], record["status"]) == (
        "deepseek",
        "recovery",
        "live",
        200,
    )
    assert record["calls"][0]["tool"] == "read_file"
    assert record["calls"][0]["score"] >= 0.9
    assert record["usage"] == {"input": 11, "output": 7}
    assert record["end"] == "completed"
    assert "src/a.py" not in await log.until("request_ended")
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    dialect = record["calls"][0]["dialect"]
    for series in (
        f'toolgate_recovered_calls_total{{dialect="{dialect}"}} 1.0',
        f'toolgate_transforms_total{{arm="live",dialect="{dialect}",outcome="success",strategy="recovery"}} 1.0',
        'toolgate_transforms_by_tool_total{arm="live",outcome="success",tool="read_file"} 1.0',
        'toolgate_transforms_by_model_total{arm="live",model="deepseek",outcome="success"} 1.0',
        'toolgate_tokens_total{type="input",upstream="default"} 11.0',
        'toolgate_tokens_total{type="output",upstream="default"} 7.0',
        'toolgate_transform_overhead_seconds_count{phase="total",strategy="recovery"} 1.0',
        "toolgate_hold_seconds_count 1.0",
    ):
        assert series in exposition


async def test_a_call_that_stays_text_is_counted_with_its_reason(gateway, upstream, client, log):
    upstream.script = stream(ROLE, text("<read_file>\n<path>src/a.py"), FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert got.content == "<read_file>\n<path>src/a.py"
    assert (await log.record("request_ended"))["refused"]
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_transform_errors_total{reason="not_closed",strategy="recovery"} 1.0' in exposition
    assert 'outcome="error",strategy="recovery"} 1.0' in exposition


async def test_a_failed_stream_is_unhealthy_and_a_refused_request_is_not(gateway, upstream, client, log):
    upstream.script = stream(ROLE, text("hel"))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(model="deepseek", tools=TOOLS))
    assert (await log.record("request_ended"))["failure"] == "upstream_truncated"
    upstream.script = answer_json({"error": {"code": "context_length_exceeded"}}, status="400 X")
    await ask(client, running.url)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'code="2xx",health="unhealthy",route="chat",stream="true"} 1.0' in exposition
    assert 'code="4xx",health="ok",route="chat",stream="true"} 1.0' in exposition
    assert 'toolgate_stream_ends_total{arm="live",reason="upstream_error"} 1.0' in exposition
