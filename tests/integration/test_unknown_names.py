"""A call of a tool that does not exist, in special tokens: asked about once, then delivered under the name it has."""

import json

import pytest

from tests.integration.test_repairs import CALL, FINISH, ROLE, calls_of, metrics_of
from tests.support.client import TOOLS, ask, chat
from tests.support.faulty_upstream import DONE, answer_json, completion, event, in_turn, stream, text

MADE_UP = '<|tool_call>call:launch_rocket{path:<|"|>src/a.py<|"|>}<tool_call|>'
NAMED = '<|tool_call>call:default_api:read_file{path:<|"|>src/a.py<|"|>}<tool_call|>'
AS_WRITTEN = [("launch_rocket", '{"path":"src/a.py"}')]
COUNTED = 'toolgate_undeclared_calls_total{dialect="gemma4"} 1.0'


def first(said: str, *, streamed: bool):
    body = f"I look.\n{said}"
    return stream(ROLE, text(body), FINISH, DONE) if streamed else answer_json(completion(body))


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_model_is_asked_for_a_tool_that_exists(gateway, upstream, client, log, streamed):
    upstream.script = in_turn(first(MADE_UP, streamed=streamed), answer_json(completion(NAMED)))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="gemma-4-27b", stream=streamed, tools=TOOLS))
    assert calls_of(got) == CALL
    told = upstream.requests[1].json["messages"][-1]["content"]
    assert "a tool that does not exist" in told
    assert "`read_file`" in told
    assert "launch_rocket" not in told
    record = await log.record("request_repaired")
    assert (record["reason"], record["result"]) == ("unknown_tool", "repaired")
    assert COUNTED not in await metrics_of(client, running)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("second", ["I cannot.", MADE_UP.replace("rocket", "probe"), "<|tool_call>call:"])
async def test_a_name_that_stays_made_up_goes_out_as_it_was_written(gateway, upstream, client, streamed, second):
    upstream.script = in_turn(first(MADE_UP, streamed=streamed), answer_json(completion(second)))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="gemma-4-27b", stream=streamed, tools=TOOLS))
    assert calls_of(got) == AS_WRITTEN
    assert len(upstream.requests) == 2
    assert COUNTED in await metrics_of(client, running)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("flow", ["buffered", "incremental"])
async def test_it_stays_text_where_the_operator_wants_that(gateway, upstream, client, streamed, flow):
    upstream.script = in_turn(first(MADE_UP, streamed=streamed), answer_json(completion("I cannot.")))
    running = await gateway(upstream.url, UNDECLARED_TOOLS="text", STREAM_ARGUMENTS=flow)
    got = await ask(client, running.url, chat(model="gemma-4-27b", stream=streamed, tools=TOOLS))
    said = got.content if streamed else got.json["choices"][0]["message"]["content"]
    assert b'"tool_calls":' not in got.body
    assert said == f"I look.\n{MADE_UP}"
    assert len(upstream.requests) == 1
    assert COUNTED not in await metrics_of(client, running)


async def test_without_attempts_it_goes_out_at_once(gateway, upstream, client):
    upstream.script = in_turn(first(MADE_UP, streamed=True))
    running = await gateway(upstream.url, REPAIR_ATTEMPTS="0")
    got = await ask(client, running.url, chat(model="gemma-4-27b", tools=TOOLS))
    assert calls_of(got) == AS_WRITTEN
    assert COUNTED in await metrics_of(client, running)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_structured_answer_with_a_namespace_counts_too(gateway, upstream, client, streamed):
    function = {"name": "functions.read_file", "arguments": '{"path":"src/a.py"}'}
    answer = completion(None, tool_calls=[{"id": "c", "type": "function", "function": function}])
    upstream.script = in_turn(first(MADE_UP, streamed=streamed), answer_json(answer))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="gemma-4-27b", stream=streamed, tools=TOOLS))
    assert [(name, json.loads(arguments)) for name, arguments in calls_of(got)] == [("read_file", {"path": "src/a.py"})]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_that_flows_is_asked_about_as_well(gateway, upstream, client, streamed):
    upstream.script = in_turn(first(MADE_UP, streamed=streamed), answer_json(completion(NAMED)))
    running = await gateway(upstream.url, STREAM_ARGUMENTS="incremental")
    got = await ask(client, running.url, chat(model="gemma-4-27b", stream=streamed, tools=TOOLS))
    assert calls_of(got) == CALL


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("form", ["tool_calls", "function_call"])
async def test_a_structured_name_with_a_namespace_is_the_declared_one(gateway, upstream, client, streamed, form):
    function = {"name": "google:mcp:shell:bash", "arguments": '{"command":"ls"}'}
    call = [{"index": 0, "id": "c", "type": "function", "function": function}] if form == "tool_calls" else function
    upstream.script = in_turn(
        stream(ROLE, event({form: call}), event(finish=form), DONE)
        if streamed
        else answer_json(completion(None, **{form: call}))
    )
    running = await gateway(upstream.url)
    bash = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    got = await ask(client, running.url, chat(model="deepseek-chat", stream=streamed, tools=[*TOOLS, bash]))
    assert b'"bash"' in got.body
    assert b"google:mcp" not in got.body
