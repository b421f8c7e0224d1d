"""A broken call asked for again over the wire: what the model server and the client get, and what is written down."""

import asyncio
import json

import pytest

from tests.support.client import TOOLS, ask, chat, get, post_bytes
from tests.support.faulty_upstream import (
    DONE,
    STREAM_HEAD,
    answer_json,
    close_at_once,
    completion,
    event,
    hang,
    in_turn,
    stream,
    text,
)

ROLE = event({"role": "assistant", "content": ""})

FINISH = event(finish="stop")

USAGE = event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8})

OPEN = "<read_file>\n<path>src/a.py"

GOOD = "<read_file>\n<path>src/a.py</path>\n</read_file>"

FIRST = (ROLE, text("I look."), text("\n"), text(OPEN), FINISH, USAGE, DONE)

SECOND = answer_json(completion(f"Sorry.\n{GOOD}"))

MODELS = ["deepseek-chat", "qwen3"]


def calls_of(answer):
    """The calls of an answer, streamed or not."""
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        deltas = [choice["delta"] for chunk in answer.chunks for choice in chunk.get("choices", [])]
        starts = [call["function"] for delta in deltas for call in delta.get("tool_calls") or []]
        return [("".join(part.get("name", "") for part in starts), "".join(part["arguments"] for part in starts))]
    calls = answer.json["choices"][0]["message"]["tool_calls"]
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


CALL = [("read_file", '{"path":"src/a.py"}')]


async def metrics_of(client, running) -> str:
    return (await get(client, f"{running.url}/metrics")).body.decode()


@pytest.mark.parametrize("model", MODELS)
async def test_a_broken_call_in_a_stream_is_asked_for_again(gateway, upstream, client, log, model):
    upstream.script = in_turn(stream(*FIRST), SECOND)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model, tools=TOOLS), headers={"X-Request-Id": "mine-1"})
    assert got.content == "I look."
    assert calls_of(got) == CALL
    assert got.is_done
    assert [chunk["usage"]["total_tokens"] for chunk in got.chunks if chunk.get("usage")] == [16]
    assert {chunk["id"] for chunk in got.chunks} == {"chatcmpl-1"}
    first, second = upstream.requests
    assert first.json["stream"] is True
    assert second.json["stream"] is False
    assert second.headers["x-request-id"] == first.headers["x-request-id"]
    assert second.headers.get("authorization") == first.headers.get("authorization")
    assert second.json["messages"][-2]["content"] == f"I look.\n{OPEN}"
    assert "`<path>` was not closed" in second.json["messages"][-1]["content"]
    record = await log.record("request_repaired")
    assert (record["request_id"], record["reason"], record["result"]) == ("mine-1", "value not closed", "repaired")
    ended = await log.record("request_ended")
    assert ended["usage"] == {"input": 6, "output": 10}
    assert "src/a.py" not in await log.until("request_ended")
    exposition = await metrics_of(client, running)
    assert 'toolgate_repairs_total{result="repaired"} 1.0' in exposition
    assert 'toolgate_upstream_requests_total{code="2xx",upstream="default"} 2.0' in exposition
    assert 'toolgate_upstream_request_duration_seconds_count{code="2xx",upstream="default"} 2.0' in exposition


@pytest.mark.parametrize("model", MODELS)
async def test_a_broken_call_in_a_whole_answer_is_asked_for_again(gateway, upstream, client, model):
    upstream.script = in_turn(answer_json(completion(f"I look.\n{OPEN}")), SECOND)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model, stream=False, tools=TOOLS))
    choice = got.json["choices"][0]
    assert choice["message"]["content"] == "I look."
    assert choice["finish_reason"] == "tool_calls"
    assert calls_of(got) == CALL
    assert got.json["usage"] == {"prompt_tokens": 6, "completion_tokens": 10, "total_tokens": 16}


@pytest.mark.parametrize(
    ("second", "result"),
    [
        (answer_json(completion("I will not.")), "failed"),
        (answer_json({"error": {"message": "no"}}, status="500 Oops"), "error"),
        (answer_json([]), "error"),
        (close_at_once, "error"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_when_it_fails_again_the_first_answer_comes_unchanged(
    gateway, upstream, client, log, second, result, streamed
):
    body = completion(f"I look.\n{OPEN}")
    upstream.script = in_turn(stream(*FIRST) if streamed else answer_json(body), second)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="qwen3", stream=streamed, tools=TOOLS))
    assert got.status == 200
    assert got.body == (b"".join(FIRST) if streamed else json.dumps(body).encode())
    assert len(upstream.requests) == 2
    assert (await log.record("request_repaired"))["result"] == result
    assert f'toolgate_repairs_total{{result="{result}"}} 1.0' in await metrics_of(client, running)


async def test_a_refused_connection_is_not_tried_twice(gateway, upstream, client, log):
    """What is asked again is asked once, whatever a first request would be allowed."""

    async def busy(connection, received):
        await answer_json({"error": {"message": "wait"}}, status="429 Busy", headers={"Retry-After": "0"})(
            connection, received
        )

    upstream.script = in_turn(stream(*FIRST), busy)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert got.body == b"".join(FIRST)
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("attempts", ["0", "1", "3"])
async def test_it_is_asked_as_often_as_the_setting_says(gateway, upstream, client, log, attempts):
    upstream.script = in_turn(stream(*FIRST), answer_json(completion(OPEN)))
    running = await gateway(upstream.url, REPAIR_ATTEMPTS=attempts)
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert got.body == b"".join(FIRST)
    assert len(upstream.requests) == 1 + int(attempts)
    written = await log.until("request_ended")
    assert written.count('"event":"request_repaired"') == int(attempts)


@pytest.mark.parametrize("mode", [{"TRANSFORM_MODE": "off"}, {"TOOL_CALLING_ENABLED": "false"}])
async def test_only_live_answers_are_repaired(gateway, upstream, client, mode):
    upstream.script = stream(*FIRST)
    running = await gateway(upstream.url, **mode)
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS, tool_choice="required"))
    assert got.body == b"".join(FIRST)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a_truncated_answer_is_not_repaired(gateway, upstream, client, reason, choice):
    parts = (ROLE, text(f"I look.\n{OPEN}"), event(finish=reason), DONE)
    upstream.script = stream(*parts)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS, tool_choice=choice))
    assert got.body == b"".join(parts)
    assert len(upstream.requests) == 1


async def test_a_cut_stream_is_not_repaired(gateway, upstream, client):
    upstream.script = stream(ROLE, text(f"I look.\n{OPEN}"))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert got.content == f"I look.\n{OPEN}"
    assert got.error == "upstream_truncated"
    assert len(upstream.requests) == 1


async def test_a_finish_without_done_is_repaired_too(gateway, upstream, client):
    upstream.script = in_turn(stream(ROLE, text(OPEN), FINISH), SECOND)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert calls_of(got) == CALL
    assert got.is_done


async def test_a_required_call_is_waited_for(gateway, upstream, client):
    upstream.script = in_turn(stream(ROLE, text("I would rather not."), FINISH, DONE), SECOND)
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="deepseek", tools=TOOLS, tool_choice="required"))
    assert got.content == "I would rather not."
    assert calls_of(got) == CALL
    assert "is required now" in upstream.last.json["messages"][-1]["content"]


async def test_unusable_native_arguments_are_asked_for_again(gateway, upstream, client):
    broken = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "src'}}
    right = {"id": "c2", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"src/a.py"}'}}
    upstream.script = in_turn(
        answer_json(completion(None, tool_calls=[broken])), answer_json(completion(None, tool_calls=[right]))
    )
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="gpt-4o", stream=False, tools=TOOLS))
    assert calls_of(got) == CALL
    assert [message["role"] for message in upstream.last.json["messages"][-2:]] == ["assistant", "tool"]


async def test_the_client_is_kept_alive_while_it_is_asked(gateway, upstream, client):
    async def slowly(connection, received):
        await asyncio.sleep(0.25)
        await SECOND(connection, received)

    upstream.script = in_turn(stream(*FIRST), slowly)
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.05")
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert got.body.count(b": keep-alive\n\n") >= 2
    assert calls_of(got) == CALL


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_leaves_takes_the_second_request_with_it(connect, gateway, upstream, client, log, streamed):
    first = stream(*FIRST) if streamed else answer_json(completion(OPEN))
    asked_again = asyncio.Event()

    async def never(connection, received):
        asked_again.set()
        await hang(connection, received)

    upstream.script = in_turn(first, never)
    running = await gateway(upstream.url)
    _, writer = await connect(running.url)
    writer.write(post_bytes(chat(model="qwen3", stream=streamed, tools=TOOLS)))
    await writer.drain()
    async with asyncio.timeout(2):
        await asked_again.wait()
    writer.transport.abort()
    await upstream.until_all_gone()
    assert await running.shared.under_way.ended(1.0)
    record = await log.record("request_repaired")
    assert (record["reason"], record["result"]) == ("value not closed", "cancelled")
    assert (await log.record("request_ended"))["end"] == "client_abort"
    assert 'toolgate_repairs_total{result="cancelled"} 1.0' in await metrics_of(client, running)
    assert [running.shared.second_questions.take(1) for _ in range(11)] == [*[True] * 10, False]


async def test_a_client_that_leaves_between_comments_takes_it_with_it_too(connect, gateway, upstream, log):
    upstream.script = in_turn(stream(*FIRST), hang)
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.05")
    reader, writer = await connect(running.url)
    writer.write(post_bytes(chat(model="qwen3", tools=TOOLS)))
    await writer.drain()
    await reader.readuntil(b": keep-alive\n\n")
    writer.transport.abort()
    await upstream.until_all_gone()
    assert await running.shared.under_way.ended(1.0)
    assert (await log.record("request_repaired"))["result"] == "cancelled"


async def test_without_budget_nothing_is_asked(gateway, upstream, client, log):
    upstream.script = stream(*FIRST)
    running = await gateway(upstream.url)
    while running.shared.second_questions.take(1):
        pass
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert got.body == b"".join(FIRST)
    assert len(upstream.requests) == 1
    assert (await log.record("repair_left_out"))["result"] == "no_budget"
    assert 'toolgate_repairs_total{result="no_budget"} 1.0' in await metrics_of(client, running)


async def test_a_second_answer_that_does_not_come_in_time_is_given_up(gateway, upstream, client, log):
    upstream.script = in_turn(stream(*FIRST), hang)
    running = await gateway(upstream.url, UPSTREAM_FIRST_BYTE_TIMEOUT_S="0.3", GATEWAY_KEEPALIVE_S="0.1")
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert got.body.replace(b": keep-alive\n\n", b"") == b"".join(FIRST)
    assert got.is_done
    assert (await log.record("request_repaired"))["result"] == "error"


async def test_the_whole_answers_time_holds_for_both_requests(gateway, upstream, client):
    upstream.script = in_turn(stream(*FIRST), hang)
    running = await gateway(upstream.url, UPSTREAM_TOTAL_TIMEOUT_S="0.4", GATEWAY_KEEPALIVE_S="0.1")
    got = await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    assert got.body.replace(b": keep-alive\n\n", b"") == b"".join(FIRST)


async def test_a_restart_does_not_cost_the_first_answer(gateway, upstream, client):
    asked_again = asyncio.Event()

    async def never(connection, received):
        asked_again.set()
        await hang(connection, received)

    upstream.script = in_turn(stream(*FIRST), never)
    running = await gateway(upstream.url, GATEWAY_DRAIN_S="0.2")
    asking = asyncio.create_task(ask(client, running.url, chat(model="qwen3", tools=TOOLS)))
    async with asyncio.timeout(2):
        await asked_again.wait()
    await running.drain()
    assert (await asking).body == b"".join(FIRST)


async def test_a_second_answer_that_streams_is_read_all_the_same(gateway, upstream, client):
    upstream.script = in_turn(stream(*FIRST), stream(ROLE, text(GOOD), FINISH, DONE))
    running = await gateway(upstream.url)
    assert calls_of(await ask(client, running.url, chat(model="qwen3", tools=TOOLS))) == CALL


async def test_a_streamed_request_is_answered_from_its_head_on(gateway, upstream, connect):
    """What stands before the attempt is not held back by it."""

    async def pausing(connection, received):
        await connection.send(STREAM_HEAD, *FIRST[:2], text("\n" + OPEN))
        await connection.until_gone()

    upstream.script = pausing
    running = await gateway(upstream.url)
    reader, writer = await connect(running.url)
    writer.write(post_bytes(chat(model="qwen3", tools=TOOLS)))
    await writer.drain()
    async with asyncio.timeout(2):
        await reader.readuntil(b"I look.")


async def test_a_retry_has_its_reason_in_the_log_too(gateway, upstream, client, log):
    busy = answer_json({"error": {"message": "wait"}}, status="429 Busy", headers={"Retry-After": "0"})
    upstream.script = in_turn(busy, answer_json(completion("hello")))
    running = await gateway(upstream.url)
    assert (await ask(client, running.url, chat(stream=False))).status == 200
    assert (await log.record("request_retried"))["reason"] == "upstream_rejected"
    assert len(upstream.requests) == 2


async def test_what_was_repaired_is_on_the_requests_record(gateway, upstream, client, log):
    upstream.script = in_turn(stream(*FIRST), SECOND)
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(model="qwen3", tools=TOOLS))
    record = await log.record("request_ended")
    assert (record["repaired"], record["completion_id"]) == (True, "chatcmpl-1")
    assert record["calls"][0]["tool"] == "read_file"
    series = 'toolgate_transforms_total{arm="live",dialect="generic_xml",outcome="success",strategy="xml_prompt"} 1.0'
    assert series in await metrics_of(client, running)


async def test_the_first_connection_is_let_go_before_the_second_request(gateway, upstream, client):
    """A server with one place would not answer while the first answer still holds it."""

    async def lingering(connection, received):
        await connection.send(STREAM_HEAD, *FIRST)
        await connection.until_gone()

    async def one_at_a_time(connection, received):
        async with asyncio.timeout(0.5):
            await upstream.connections[0].gone.wait()
        await SECOND(connection, received)

    upstream.script = in_turn(lingering, one_at_a_time)
    running = await gateway(upstream.url)
    assert calls_of(await ask(client, running.url, chat(model="qwen3", tools=TOOLS))) == CALL


# --- A call of a tool that does not exist, in special tokens: asked about once, then delivered under the name it has.


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


# --- A call that its tool does not take, in special tokens: asked for again, then delivered as the model wrote it


UNFIT = "<|tool_call>call:read_file{}<tool_call|>"

OTHER = '<|tool_call>call:read_file{limit:<|"|>all<|"|>}<tool_call|>'

UNFIT_COUNTED = 'toolgate_unfit_calls_total{dialect="gemma4"} 1.0'

HEAD = "I look.\n"


def first_unfit(said, *, streamed):
    return stream(ROLE, text(said), FINISH, DONE) if streamed else answer_json(completion(said))


def said_in(got, *, streamed):
    return got.content if streamed else got.json["choices"][0]["message"]["content"]


async def asked(client, running, *, streamed):
    return await ask(client, running.url, chat(model="gemma-4-27b", stream=streamed, tools=TOOLS))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("second", ["I cannot.", OTHER])
async def test_what_was_asked_for_in_vain_goes_out_as_it_was_written(gateway, upstream, client, streamed, second):
    upstream.script = in_turn(first_unfit(HEAD + UNFIT, streamed=streamed), answer_json(completion(second)))
    running = await gateway(upstream.url)
    got = await asked(client, running, streamed=streamed)
    assert calls_of(got) == [("read_file", "{}")]
    assert said_in(got, streamed=streamed) == "I look."
    assert b'"finish_reason":"tool_calls"' in got.body.replace(b" ", b"")
    assert "missing required argument" in upstream.requests[1].json["messages"][-1]["content"]
    assert len(upstream.requests) == 2
    assert UNFIT_COUNTED in await metrics_of(client, running)


async def test_several_of_them_go_out_in_their_order(gateway, upstream, client):
    upstream.script = in_turn(first_unfit(HEAD + UNFIT + OTHER, streamed=False), answer_json(completion("I cannot.")))
    got = await asked(client, await gateway(upstream.url), streamed=False)
    assert calls_of(got) == [("read_file", "{}"), ("read_file", '{"limit":"all"}')]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_right_second_call_is_better(gateway, upstream, client, streamed):
    right = '<|tool_call>call:read_file{path:<|"|>src/a.py<|"|>}<tool_call|>'
    upstream.script = in_turn(first_unfit(HEAD + UNFIT, streamed=streamed), answer_json(completion(right)))
    running = await gateway(upstream.url)
    assert calls_of(await asked(client, running, streamed=streamed)) == CALL
    assert UNFIT_COUNTED not in await metrics_of(client, running)


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        (UNFIT, {"UNFIT_CALLS": "text"}),
        (UNFIT, {"REPAIR_ATTEMPTS": "0"}),
        (f"{UNFIT} That is how.", {}),
        (UNFIT.replace("read_file", "readFile"), {}),
        ("<read_file>\n<limit>all</limit>\n</read_file>", {}),
        ("```\n" + UNFIT + "\n```", {}),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_everything_else_stays_the_text_it_was(gateway, upstream, client, said, settings, streamed):
    upstream.script = in_turn(first_unfit(HEAD + said, streamed=streamed), answer_json(completion("I cannot.")))
    got = await asked(client, await gateway(upstream.url, **settings), streamed=streamed)
    assert b'"tool_calls":' not in got.body
    assert said_in(got, streamed=streamed) == HEAD + said
