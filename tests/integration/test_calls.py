"""A call that was written as text, all the way from the model server to the client and into the records."""

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import DONE, STREAM_HEAD, answer_json, completion, event, stream, text
from tests.support.tag_clients import CLIENTS, ROO_TOOLS, Use, parse, prompt
from tests.support.tag_clients import TOOLS as TAG_TOOLS

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


# --- Clients whose tools are in their prompt, and requests that ask for tool work without tools, over real sockets.


CALL = '```json\n{"name": "read_file", "arguments": {"path": "src/a.py"}}\n```'


def request(client: str = "roo", *, stream: bool = True, **fields) -> Any:
    messages = [{"role": "system", "content": prompt(client)}, {"role": "user", "content": "<task>fix it</task>"}]
    return {"model": "deepseek-chat", "messages": messages, "stream": stream, **fields}


def headers(client: str) -> dict[str, str]:
    return {"User-Agent": CLIENTS[client].user_agent, "X-Title": CLIENTS[client].title}


@pytest.mark.parametrize("client_name", TAG_TOOLS)
@pytest.mark.parametrize("size", [3, 1000])
async def test_a_call_in_json_arrives_in_the_clients_tags(gateway, upstream, client, client_name, size):
    written = f"I read it.\n\n{CALL}\n"
    upstream.script = stream(
        ROLE, *(text(written[at : at + size]) for at in range(0, len(written), size)), FINISH, DONE
    )
    running = await gateway(upstream.url)
    got = await ask(client, running.url, request(client_name), headers=headers(client_name))
    (use,) = parse(got.content, client_name, tools=TAG_TOOLS[client_name])
    said = {"path": "src/a.py"} if client_name == "cline" else {"args": "<file>\n<path>src/a.py</path>\n</file>"}
    assert use == Use("read_file", said, partial=False)
    assert got.content.startswith("I read it.\n\n<read_file>")
    assert not any(choice["delta"].get("tool_calls") for chunk in got.chunks for choice in chunk["choices"])
    assert got.chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert got.headers["X-Toolgate-Strategy"] == "xml_text"
    assert upstream.last.json == request(client_name)


async def test_a_whole_answer_says_the_same_to_a_client_of_tags(gateway, upstream, client):
    upstream.script = answer_json(completion(CALL))
    running = await gateway(upstream.url)
    message = (await ask(client, running.url, request(stream=False))).json["choices"][0]["message"]
    assert message["content"].startswith("<read_file>\n<args>")
    assert "tool_calls" not in message


async def test_its_own_tags_pass_byte_for_byte(gateway, upstream, client):
    own = "Look:\n<read_file>\n<args>\n<file>\n<path>a</path>\n</file>\n</args>\n</read_file>\nand so on"
    events = (ROLE, *(text(own[at : at + 4]) for at in range(0, len(own), 4)), FINISH, DONE)
    upstream.script = stream(*events)
    running = await gateway(upstream.url)
    assert (await ask(client, running.url, request())).body == b"".join(events)


async def test_the_call_is_counted_and_so_is_what_cannot_be_said(gateway, upstream, client, log):
    unsayable = '```json\n{"name": "attempt_completion", "arguments": {"result": " x"}}\n```'
    running = await gateway(upstream.url)
    upstream.script = stream(ROLE, text(unsayable), FINISH, DONE)
    assert (await ask(client, running.url, request())).content == unsayable
    assert (await log.record("request_ended"))["refused"][0]["reasons"][-1] == "unsayable"
    upstream.script = stream(ROLE, text(CALL), FINISH, DONE)
    await ask(client, running.url, request())
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_transform_skips_total{reason="unsayable"} 1.0' in exposition
    assert 'toolgate_recovered_calls_total{dialect="json_fence"} 1.0' in exposition


async def test_the_reminder_goes_up_where_it_is_asked_for(gateway, upstream, client):
    upstream.script = stream(ROLE, text("ok"), FINISH, DONE)
    running = await gateway(upstream.url, PROMPT_REMINDER="true")
    await ask(client, running.url, request())
    first = upstream.last.json["messages"][0]["content"]
    assert first.startswith(prompt("roo"))
    assert "REMINDER" in first
    await ask(client, running.url, request())
    assert upstream.last.json["messages"][0]["content"] == first


async def test_without_detection_nothing_is_touched(gateway, upstream, client):
    events = (ROLE, text(CALL), FINISH, DONE)
    upstream.script = stream(*events)
    running = await gateway(upstream.url, TOOL_CALLING_AUTO_DETECT="false")
    got = await ask(client, running.url, request(), headers=headers("roo"))
    assert got.body == b"".join(events)
    assert got.headers["X-Toolgate-Strategy"] == "passthrough"


async def test_tools_in_the_request_win_over_those_of_the_prompt(gateway, upstream, client):
    upstream.script = stream(ROLE, text(CALL), FINISH, DONE)
    running = await gateway(upstream.url)
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": schema}}]
    got = await ask(client, running.url, request(tools=tools), headers=headers("roo"))
    assert got.headers["X-Toolgate-Strategy"] == "recovery"
    assert any(choice["delta"].get("tool_calls") for chunk in got.chunks for choice in chunk["choices"])


async def test_a_quotation_of_what_the_client_sent_stays_text(gateway, upstream, client):
    body = request()
    body["messages"].append({"role": "user", "content": f"[read_file for 'notes'] Result:\n1 | notes\n{CALL}"})
    events = (ROLE, text(CALL), FINISH, DONE)
    upstream.script = stream(*events)
    running = await gateway(upstream.url)
    assert (await ask(client, running.url, body)).body == b"".join(events)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_transform_skips_total{reason="provenance"} 1.0' in exposition


@pytest.mark.parametrize("whole", [True, False])
async def test_tool_work_asked_for_without_tools_is_read_beside_and_never_delivered(
    gateway, upstream, client, log, whole
):
    asked = {"model": "m", "stream": not whole, "messages": [{"role": "user", "content": "Read the file src/a.py"}]}
    written = '<tool_call>\n{"name": "read", "arguments": {"filePath": "src/a.py"}}\n</tool_call>'
    events = (ROLE, text(written[:20]), text(written[20:]), FINISH, DONE)
    answer = completion(written)
    upstream.script = answer_json(answer) if whole else stream(*events)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, asked)
    assert got.body == (json.dumps(answer).encode() if whole else b"".join(events))
    record = await log.record("request_ended")
    assert [call["tool"] for call in record["overheard"]] == ["read"]
    assert record["strategy"] == "passthrough"
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_overheard_calls_total{dialect="hermes"} 1.0' in exposition


async def test_a_prompt_that_names_no_known_tool_changes_nothing(gateway, upstream, client):
    body = {
        **request(),
        "messages": [{"role": "system", "content": "## Rules\nDescription: none"}, *request()["messages"][1:]],
    }
    upstream.script = stream(ROLE, text(CALL), FINISH, DONE)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, body, headers=headers("roo"))
    assert got.content == CALL
    assert set(ROO_TOOLS)  # the prompt of this test holds none of them
