"""A call that was written as text, all the way to the client and into the records; and who is transformed."""

import asyncio
import json
from typing import Any

import attrs
import openai
import pytest

from gateway.config.load import load
from gateway.core.records import FeedbackRecord, OutcomeRecord, RequestRecord
from gateway.traffic.recent_answers import MAX_ANSWERS, Answered, RecentAnswers, is_completion_id
from tests.support.chat import hear_stream
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import DONE, STREAM_HEAD, answer, answer_json, completion, event, stream, text
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


# --- Who is transformed and who is not: dry run, canary, control, the kill switch, and what is recorded of each


LOOKED = "I will look.\n<read_file>\n<path>a.py</path>\n</read_file>"

READ_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]

# What the gateway itself would never write: odd spacing, an unknown field, a comment, no [DONE].
ODD = (
    b'data:  {"id":"c-1","choices":[{"index":0,"delta":{"content":"I will look.\\n<read_file>"},"x":1}]}\n\n',
    b": a comment\n\n",
    b'data: {"id":"c-1","choices":[{"index":0,"delta":{"content":"\\n<path>a.py</path>\\n</read_file>"}}]}\r\n\r\n',
    b'data: {"id":"c-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
)


async def heard(client, running, body=None):
    """What a client makes of a streamed answer."""
    return hear_stream((await ask(client, running.url, body or asked())).body)


def asked(*, model="some-model", streamed=True, **fields):
    return chat(model=model, stream=streamed, tools=READ_TOOLS, **fields)


async def records(running, kind):
    assert await running.upkeep.recorder.flush(5)
    return [record async for record in running.upkeep.store.scan(kind)]


@pytest.mark.parametrize("model", ["some-model", "qwen3-coder", "gpt-4o"])
@pytest.mark.parametrize("mode", [{"TRANSFORM_MODE": "dry_run"}, {"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "0"}])
async def test_an_untouched_stream_is_the_upstreams_byte_for_byte(gateway, upstream, client, mode, model):
    upstream.script = stream(*ODD)
    running = await gateway(upstream.url, **mode)
    body = asked(model=model)
    got = await ask(client, running.url, body)
    assert got.body == b"".join(ODD)
    assert got.headers["X-Toolgate-Arm"] == ("dry_run" if mode["TRANSFORM_MODE"] == "dry_run" else "control")
    assert upstream.requests[0].json == body


async def test_an_untouched_whole_answer_is_the_upstreams_byte_for_byte(gateway, upstream, client):
    upstream.script = answer(json.dumps(completion(LOOKED), indent=3).encode() + b"\n \n")
    running = await gateway(upstream.url, TRANSFORM_MODE="dry_run")
    plain = await ask(client, upstream.url.removesuffix("/v1"), asked(streamed=False))
    got = await ask(client, running.url, asked(streamed=False))
    assert got.body == plain.body
    assert got.headers["Content-Type"] == plain.headers["Content-Type"]


async def test_a_dry_run_records_what_it_would_have_done(gateway, upstream, client, log):
    upstream.script = stream(text(LOOKED[:20]), text(LOOKED[20:]), event(finish="stop"), DONE)
    running = await gateway(upstream.url, TRANSFORM_MODE="dry_run")
    assert (await ask(client, running.url, asked())).content == LOOKED
    [record] = await records(running, RequestRecord)
    assert (record.arm, record.strategy, record.verdict, record.noise) == ("dry_run", "recovery", "would_change", False)
    [call] = record.calls
    assert (call.tool, call.decision, call.stage, call.declared) == ("read_file", "would_deliver", "sent", True)
    assert json.loads(call.after) == {"name": "read_file", "arguments": {"path": "a.py"}}
    assert call.before == LOOKED
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert f'toolgate_dryrun_verdicts_total{{dialect="{call.dialect}",verdict="would_change"}} 1.0' in exposition
    assert 'toolgate_recovered_calls_total{dialect="' not in exposition
    assert 'toolgate_transform_skips_total{reason="control_arm"} 1.0' in exposition
    ended = await log.record("request_ended")
    assert ended["verdict"] == "would_change"
    assert ended["would_call"][0]["tool"] == "read_file"
    assert "calls" not in ended


async def test_the_control_arm_need_not_be_read(gateway, upstream, client):
    upstream.script = stream(text(LOOKED), event(finish="stop"), DONE)
    running = await gateway(upstream.url, TRANSFORM_MODE="canary", CANARY_PERCENT="0", CANARY_REST="control")
    assert (await ask(client, running.url, asked())).content == LOOKED
    [record] = await records(running, RequestRecord)
    assert (record.arm, record.verdict, record.calls, record.finish_reason) == ("control", None, (), "stop")


async def test_the_canary_is_transformed_and_the_rest_is_not(gateway, upstream, client):
    upstream.script = stream(text(LOOKED), event(finish="stop"), DONE)
    running = await gateway(upstream.url, TRANSFORM_MODE="canary", CANARY_PERCENT="50")
    arms = []
    for number in range(60):
        message = [{"role": "user", "content": f"conversation {number}"}]
        got = await ask(client, running.url, asked(messages=message))
        again = await ask(client, running.url, asked(messages=[*message, {"role": "user", "content": "more"}]))
        assert got.headers["X-Toolgate-Arm"] == again.headers["X-Toolgate-Arm"]
        assert (hear_stream(got.body).finish == "tool_calls") is (got.headers["X-Toolgate-Arm"] == "live")
        arms.append(got.headers["X-Toolgate-Arm"])
    assert 10 < arms.count("live") < 50
    assert set(arms) == {"live", "control"}


async def test_a_sticky_header_tells_conversations_apart(gateway, upstream, client):
    upstream.script = stream(text("hello"), event(finish="stop"), DONE)
    running = await gateway(
        upstream.url, TRANSFORM_MODE="canary", CANARY_PERCENT="50", CANARY_STICKY_HEADER="X-Session"
    )
    arms: dict[str, set[str]] = {}
    for number in range(40):
        session = f"s{number % 20}"
        got = await ask(client, running.url, asked(user=str(number)), headers={"X-Session": session})
        arms.setdefault(session, set()).add(got.headers["X-Toolgate-Arm"])
    assert all(len(seen) == 1 for seen in arms.values())
    assert len({next(iter(seen)) for seen in arms.values()}) == 2


@pytest.mark.parametrize(("trusted", "arm"), [("127.0.0.0/8,::1", "live"), ("10.0.0.0/8", "control")])
async def test_an_arm_is_forced_by_those_who_are_trusted(gateway, upstream, client, trusted, arm):
    upstream.script = stream(text(LOOKED), event(finish="stop"), DONE)
    running = await gateway(
        upstream.url,
        TRANSFORM_MODE="canary",
        CANARY_PERCENT="0",
        CANARY_FORCE_HEADER="X-Arm",
        TRUSTED_PROXIES=trusted,
    )
    got = await ask(client, running.url, asked(), headers={"X-Arm": "live"})
    assert got.headers["X-Toolgate-Arm"] == arm
    assert (await ask(client, running.url, asked(), headers={"X-Arm": "sideways"})).headers["X-Toolgate-Arm"] == (
        "control"
    )


async def test_the_kill_switch_holds_from_the_next_request_on(gateway, upstream, client, tmp_path):
    upstream.script = stream(text(LOOKED), event(finish="stop"), DONE)
    switch = tmp_path / "kill"
    running = await gateway(upstream.url, KILL_SWITCH_FILE=str(switch))
    assert (await heard(client, running)).finish == "tool_calls"
    switch.touch()
    async with asyncio.timeout(2):
        while (await ask(client, running.url, asked())).headers["X-Toolgate-Arm"] != "off":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await heard(client, running)).finish == "stop"
    switch.unlink()
    async with asyncio.timeout(2):
        while (await ask(client, running.url, asked())).headers["X-Toolgate-Arm"] != "live":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    settings = load(
        {"GATEWAY_PORT": "0", "STORE_URL": "memory://", "UPSTREAM_URL": upstream.url, "KILL_SWITCH": "true"}
    )
    running.reload(settings)
    assert (await ask(client, running.url, asked())).headers["X-Toolgate-Arm"] == "off"


async def test_the_next_request_tells_how_a_call_fared(gateway, upstream, client, log):
    upstream.script = stream(text(LOOKED), event(finish="stop"), DONE)
    running = await gateway(upstream.url)
    for result in ("print(1)", "Error: Missing value for required parameter 'path'"):
        [call] = (await heard(client, running)).calls
        history = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call_of(call)]},
        ]
        told = {"role": "tool", "tool_call_id": call["id"], "content": result}
        for _ in range(3):  # sent again, it is the same outcome
            await ask(client, running.url, asked(messages=[*history, told]))
    outcomes = await records(running, OutcomeRecord)
    assert [(each.outcome, each.reason) for each in outcomes] == [("accepted", ""), ("rejected", "missing_argument")]
    assert {(each.arm, each.strategy, each.dialect) for each in outcomes} == {("live", "recovery", "generic_xml")}
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    for outcome in ("accepted", "rejected"):
        labels = f'arm="live",dialect="generic_xml",outcome="{outcome}",strategy="recovery"'
        assert f"toolgate_outcomes_total{{{labels}}} 1.0" in exposition
    assert (await log.record("answer_rejected"))["reason"] == "missing_argument"
    kept = await records(running, RequestRecord)
    assert [record.follows for record in kept] == ["nothing", *["tool_result"] * 3] * 2


async def test_a_slice_that_is_off_stays_text(gateway, upstream, client):
    upstream.script = stream(text(LOOKED), event(finish="stop"), DONE)
    running = await gateway(upstream.url)
    agent = running.upkeep.agent
    agent._obey(attrs.evolve(agent._state, slices_off=("recovery/generic_xml",)))
    got = await heard(client, running)
    assert (got.content, got.finish) == (LOOKED, "stop")
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_transform_skips_total{reason="slice_off"} 1.0' in exposition


@pytest.mark.parametrize("audit", ["none", "redacted", "full"])
async def test_records_keep_as_much_text_as_they_may(gateway, upstream, client, audit):
    secret = "sk-finch-1234567890"
    upstream.script = stream(text(f"key {secret}\n{LOOKED}"), event(finish="stop"), DONE)
    running = await gateway(upstream.url, AUDIT_BODIES=audit)
    await ask(client, running.url, asked(messages=[{"role": "user", "content": f"my key is {secret}"}]))
    [record] = await records(running, RequestRecord)
    assert secret not in str(record)
    assert bool(record.calls[0].before) is (audit != "none")
    assert (record.request_body is not None) is (audit == "full")
    assert (record.answer_text is not None) is (audit == "full")


@pytest.mark.parametrize(("header", "form"), [("Authorization", "Bearer {}"), ("X-Api-Key", "{}")])
async def test_records_hold_no_key_that_their_client_came_with(gateway, upstream, client, header, form):
    key = "finch in the hedge, 1234"
    upstream.script = stream(text(f"you are {key}\n{LOOKED}"), event(finish="stop"), DONE)
    running = await gateway(upstream.url, AUDIT_BODIES="full")
    body = asked(messages=[{"role": "user", "content": f"I am {key}"}])
    await ask(client, running.url, body, headers={header: form.format(key)})
    [record] = await records(running, RequestRecord)
    assert "I am [redacted]" in record.request_body
    assert record.answer_text.startswith("you are [redacted]")
    assert key not in str(record)


async def test_a_silent_untouched_stream_is_kept_alive_between_events_only(gateway, upstream, client):
    half = asyncio.Event()

    async def script(connection, received):
        await connection.send(STREAM_HEAD, ODD[0], ODD[2][:30])
        await half.wait()
        await connection.send(ODD[2][30:], ODD[3], DONE)

    upstream.script = script
    running = await gateway(upstream.url, TRANSFORM_MODE="dry_run", GATEWAY_KEEPALIVE_S="0.05")
    asking = asyncio.ensure_future(ask(client, running.url, asked()))
    await asyncio.sleep(0.3)
    half.set()
    got = await asking
    assert got.body == ODD[0] + ODD[2] + ODD[3] + DONE


def call_of(call):
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}


# --- `POST /v1/feedback`: what is taken, counted and written down, and what is refused and why


COMMENT = "The second file was never read."


async def rate(session, url, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(f"{url}/v1/feedback", data=data) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("rating", ["good", "bad"])
async def test_an_answer_can_be_rated(gateway, upstream, client, log, streamed, rating):
    upstream.script = (
        stream(text("hello"), event(finish="stop"), DONE) if streamed else answer_json(completion("hello"))
    )
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=streamed), headers={"X-Request-Id": "mine-1"})
    status, said = await rate(
        client, running.url, {"completion_id": "chatcmpl-1", "rating": rating, "comment": COMMENT}
    )
    assert (status, said) == (200, {"object": "feedback", "completion_id": "chatcmpl-1", "rating": rating})
    assert len(upstream.requests) == 1
    record = await log.record("feedback_given")
    assert (record["rated_request"], record["rating"], record["has_comment"]) == ("mine-1", rating, True)
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert f'toolgate_feedback_total{{rating="{rating}"}} 1.0' in exposition
    assert await running.upkeep.recorder.flush(5)
    [kept] = [each async for each in running.upkeep.store.scan(FeedbackRecord)]
    assert (kept.completion_id, kept.rating, kept.comment) == ("chatcmpl-1", rating, COMMENT)
    assert (kept.request_id, kept.strategy, kept.arm) == ("mine-1", "passthrough", "live")


async def test_an_answer_of_before_a_restart_is_found_in_the_store(gateway, upstream, client, tmp_path):
    upstream.script = answer_json(completion("hello"))
    store = {"STORE_URL": f"sqlite:///{tmp_path}/kept.db"}
    before = await gateway(upstream.url, **store)
    await ask(client, before.url, chat(stream=False))
    await before.close()
    after = await gateway(upstream.url, **store)
    status, _ = await rate(client, after.url, {"completion_id": "chatcmpl-1", "rating": "good"})
    assert status == 200


async def test_an_answer_of_a_server_with_a_key_of_its_own_can_be_rated(gateway, upstream, client, tmp_path):
    """What the client shows is for the default server alone; the one that answered never looked at it."""
    upstream.script = answer_json(completion("hello"))
    routes = tmp_path / "toolgate.toml"
    routes.write_text(
        f'[upstreams.own]\nurl = "{upstream.url}"\napi_key = "k"\n[[models]]\nmatch = "*"\nupstream = "own"\n'
    )
    running = await gateway(upstream.url, GATEWAY_CONFIG=str(routes))
    shown = {"Authorization": "Bearer mine"}
    await ask(client, running.url, chat(stream=False), headers=shown)
    data = json.dumps({"completion_id": "chatcmpl-1", "rating": "good"}).encode()
    async with client.post(f"{running.url}/v1/feedback", data=data, headers=shown) as response:
        assert response.status == 200


async def test_what_a_comment_says_is_for_the_debug_log_alone(gateway, upstream, client, log):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=False))
    await rate(client, running.url, {"completion_id": "chatcmpl-1", "rating": "bad", "comment": COMMENT})
    lines = [json.loads(line) for line in (await log.until("feedback_comment")).splitlines()]
    assert {line["level"] for line in lines if COMMENT in json.dumps(line)} == {"debug"}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"[]", 400, None),
        (b"[" * 5000, 400, None),
        ({}, 400, "completion_id"),
        ({"completion_id": 5, "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "", "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "a b", "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "a\nb", "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "x" * 129, "rating": "good"}, 400, "completion_id"),
        ({"completion_id": "chatcmpl-1"}, 400, "rating"),
        ({"completion_id": "chatcmpl-1", "rating": "fine"}, 400, "rating"),
        ({"completion_id": "chatcmpl-1", "rating": ["good"]}, 400, "rating"),
        ({"completion_id": "chatcmpl-1", "rating": "good", "comment": 5}, 400, "comment"),
        ({"completion_id": "chatcmpl-1", "rating": "good", "comment": "x" * 4001}, 400, "comment"),
        ({"completion_id": "chatcmpl-unknown", "rating": "good"}, 404, "completion_id"),
        ({"completion_id": "chatcmpl-1", "rating": "good", "comment": "x" * 70_000}, 413, None),
    ],
)
async def test_what_cannot_be_taken_is_refused_with_its_reason(gateway, upstream, client, body, status, param):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(stream=False))
    got, said = await rate(client, running.url, body)
    assert got == status
    assert said["error"]["param"] == param
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_feedback_total{rating="good"} 0.0' in exposition


async def test_it_needs_a_key_like_everything_else(gateway, upstream, client):
    running = await gateway(upstream.url, GATEWAY_API_KEYS="sk-gate")
    assert (await rate(client, running.url, {"completion_id": "chatcmpl-1", "rating": "good"}))[0] == 401


async def test_an_answer_with_an_id_that_is_no_string_is_passed_on(gateway, upstream, client):
    upstream.script = stream(event({"content": "x"}, id=7), event(finish="stop", id=7), DONE)
    running = await gateway(upstream.url)
    assert (await ask(client, running.url)).content == "x"
    assert len(running.shared.answers) == 0


def test_only_so_many_answers_are_remembered() -> None:
    answers = RecentAnswers()
    for number in range(MAX_ANSWERS + 5):
        answers.remember(f"chatcmpl-{number}", request_id="r", strategy=None, arm=None)
    assert len(answers) == MAX_ANSWERS
    assert answers.find("chatcmpl-4") is None
    assert answers.find("chatcmpl-5") == Answered(request_id="r", strategy=None, arm=None)
    answers.remember("no\nid", request_id="r", strategy=None, arm=None)
    assert not is_completion_id("no\nid")
