"""What is learned of a model beside refusals: that it calls natively, that prompts are cut, that it goes round."""

import json
import time
from datetime import datetime
from typing import Any

import pytest

from gateway.traffic.lesson_rules import ENOUGH, PROBED, WEEK_S
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import DONE, answer_json, completion, event, in_turn, stream

MODEL = "qwen3-32b"
NATIVE = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
BAD = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path'}}
TAGS = "<read_file>\n<path>src/a.py</path>\n</read_file>"
UNTOUCHED = {"X-Arm": "control"}
FORCED = {
    "TRANSFORM_MODE": "canary",
    "CANARY_PERCENT": "100",
    "CANARY_FORCE_HEADER": "X-Arm",
    "TRUSTED_PROXIES": "127.0.0.0/8",
}


def native(*calls: dict[str, Any]) -> Any:
    return answer_json(completion(None, tool_calls=list(calls or (NATIVE,))))


async def strategy_of(client: Any, running: Any, **more: Any) -> str:
    got = await ask(client, running.url, {**chat(model=MODEL, stream=False, tools=TOOLS), **more})
    return str(got.headers["X-Toolgate-Strategy"])


async def teach(client: Any, running: Any, times: int = ENOUGH) -> None:
    for _ in range(times):
        await ask(client, running.url, chat(model=MODEL, stream=False, tools=TOOLS), headers=UNTOUCHED)


async def test_a_model_that_calls_natively_is_left_to(gateway, upstream, client, log):
    upstream.script = native()
    running = await gateway(upstream.url, **FORCED)
    assert await strategy_of(client, running) == "xml_prompt"
    await teach(client, running, ENOUGH - 1)
    assert await strategy_of(client, running) == "xml_prompt"
    await teach(client, running, 1)
    assert (await log.record("native_learned"))["model"] == MODEL
    assert await strategy_of(client, running) == "recovery"
    assert "tools" in upstream.last.json
    await log.until('"reason":"learned_native"')
    upstream.script = answer_json({"object": "list", "data": [{"id": MODEL}]})
    (told,) = (await get(client, f"{running.url}/v1/models")).json["data"]
    assert told["toolgate"]["strategy"] == "recovery"
    learned = told["toolgate"]["learned"]
    assert (learned["native_tools"], learned["reason"], learned["rule"]) == (True, "learned_native", "recovery")
    assert WEEK_S - 60 < learned["seconds_left"] <= WEEK_S
    assert abs(datetime.fromisoformat(learned["since"]).timestamp() - running.shared.wall()) < 600


async def test_streams_teach_as_well_and_so_does_the_dry_run(gateway, upstream, client):
    delta = {"tool_calls": [{"index": 0, **NATIVE}]}
    upstream.script = stream(event({"role": "assistant"}), event(delta), event(finish="tool_calls"), DONE)
    running = await gateway(upstream.url, TRANSFORM_MODE="dry_run")
    for _ in range(ENOUGH):
        await ask(client, running.url, chat(model=MODEL, tools=TOOLS))
    assert running.shared.lessons.recall("default", MODEL, 0.0).reason == "learned_native"


@pytest.mark.parametrize("bad", [native(BAD), answer_json(completion(TAGS))])
async def test_one_bad_answer_among_twenty_teaches_nothing_and_one_among_the_next_ends_it(
    gateway, upstream, client, log, bad
):
    running = await gateway(upstream.url, **FORCED)
    upstream.script = native()
    await teach(client, running, ENOUGH - 1)
    upstream.script = bad
    await teach(client, running, 1)
    upstream.script = native()
    await teach(client, running, ENOUGH - 1)
    assert await strategy_of(client, running) == "xml_prompt"
    await teach(client, running, 1)
    assert await strategy_of(client, running) == "recovery"
    upstream.script = bad
    await strategy_of(client, running)
    assert (await log.record("native_unlearned"))["model"] == MODEL
    assert await strategy_of(client, running) == "xml_prompt"


async def test_a_conversation_that_was_prompted_stays_so(gateway, upstream, client):
    running = await gateway(upstream.url, **FORCED)
    upstream.script = answer_json(completion(TAGS))
    first = await ask(client, running.url, chat(model=MODEL, stream=False, tools=TOOLS))
    call = first.json["choices"][0]["message"]["tool_calls"][0]
    upstream.script = native()
    await teach(client, running)
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "text"},
    ]
    assert await strategy_of(client, running, messages=history) == "xml_prompt"
    assert await strategy_of(client, running) == "recovery"
    own = json.loads(json.dumps(history).replace(call["id"], "c1"))
    assert await strategy_of(client, running, messages=own) == "recovery"


@pytest.mark.parametrize("setting", [{"NATIVE_FALLBACK": "false"}, {"STRATEGY_RULES": "qwen3*=xml_prompt"}])
async def test_a_rule_wins_and_it_can_be_switched_off(gateway, upstream, client, setting):
    upstream.script = native()
    running = await gateway(upstream.url, **FORCED, **setting)
    await teach(client, running)
    assert await strategy_of(client, running) == "xml_prompt"


async def test_it_holds_for_a_week_and_survives_a_restart(gateway, upstream, client, tmp_path):
    upstream.script = native()
    store = {"STORE_URL": f"sqlite:///{tmp_path / 'toolgate.db'}"}
    running = await gateway(upstream.url, **FORCED, **store)
    await teach(client, running)
    await running.shared.lessons.sync()
    other = await gateway(upstream.url, **FORCED, **store)
    await other.shared.lessons.sync()
    assert await strategy_of(client, other) == "recovery"
    other.shared.lessons.forget("default", MODEL, 0.0)
    await other.shared.lessons.sync()
    await running.shared.lessons.sync()
    assert await strategy_of(client, running) == "xml_prompt", "what has ended, has ended for all"
    await teach(client, running)
    running.shared.lessons._wall = lambda: time.time() + WEEK_S
    assert running.shared.lessons.recall("default", MODEL, 0.0) is None


def history(times: int, *, result: str = "same", arguments: str = "{}") -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    for at in range(times):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": result},
        ]
    return messages


@pytest.mark.parametrize("steer", ["true", "false"])
async def test_a_loop_is_counted_and_told_where_that_is_wished(gateway, upstream, client, log, steer):
    upstream.script = native()
    running = await gateway(upstream.url, LOOP_STEER=steer, METRICS_TOOLS="read_file", METRICS_MODELS="glm-5")
    request = {**chat(model="glm-5", stream=False, tools=TOOLS), "messages": history(4)}
    await ask(client, running.url, request)
    told = upstream.last.json["messages"][-1]["content"]
    assert told.startswith("same")
    assert ("do something else" in told) is (steer == "true")
    assert (await log.record("conversation_loops"))["tool"] == "read_file"
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_conversation_loops_total{model="glm-5",tool="read_file"} 1.0' in exposition
    await ask(client, running.url, {**request, "messages": history(3)})
    assert upstream.last.json["messages"] == history(3)
    assert exposition.count("toolgate_conversation_loops_total{") == 1


async def test_a_prompt_that_is_cut_is_told(gateway, upstream, client, log):
    upstream.script = answer_json({**completion(), "usage": {"prompt_tokens": 4096, "completion_tokens": 2}})
    running = await gateway(upstream.url, METRICS_MODELS="glm-5")
    for size in (20_000, 30_000, 40_000):
        request = {**chat(model="glm-5", stream=False), "messages": [{"role": "user", "content": "x" * size}]}
        await ask(client, running.url, request)
    assert (await log.record("context_cut"))["tokens"] == 4096
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_context_cut_total{model="glm-5",upstream="default"} 1.0' in exposition
    upstream.script = answer_json({"object": "list", "data": [{"id": "glm-5"}]})
    (told,) = (await get(client, f"{running.url}/v1/models")).json["data"]
    assert told["toolgate"]["context_cut"] == {"tokens_read": 4096}


CLOSED = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
                "additionalProperties": False,
            },
        },
    }
]


async def test_a_second_question_is_pinned_and_strict_only_where_that_was_seen_to_work(gateway, upstream, client):
    running = await gateway(upstream.url)
    plain = json.loads(json.dumps(CLOSED).replace('"strict": true, ', ""))

    async def second(tools: list[dict[str, Any]], model: str = "glm-5") -> dict[str, Any]:
        upstream.script = in_turn(native(BAD), native())
        await ask(client, running.url, chat(model=model, stream=False, tools=tools))
        return dict(upstream.last.json)

    asked = await second(plain)
    assert "tool_choice" not in asked
    assert "strict" not in asked["tools"][0]["function"]
    upstream.script = native()
    choice = {"type": "function", "function": {"name": "read_file"}}
    for _ in range(3):
        await ask(client, running.url, chat(model="glm-5", stream=False, tools=CLOSED, tool_choice=choice))
    asked = await second(plain)
    assert asked["tool_choice"] == choice
    assert asked["tools"][0]["function"]["strict"] is True
    upstream.script = native(BAD)
    await ask(client, running.url, chat(model="glm-5", stream=False, tools=CLOSED, tool_choice=choice))
    assert "tool_choice" not in await second(plain), "once it did not"
    able = frozenset({"named", "strict"})
    running.shared.lessons.learn("default", "glm-6", PROBED, 0.0, rule="recovery", able=able)
    asked = await second(plain, "glm-6")
    assert (asked["tool_choice"], asked["tools"][0]["function"]["strict"]) == (choice, True), "a probe has seen it"
    upstream.script = native(BAD)
    await ask(client, running.url, chat(model="glm-6", stream=False, tools=CLOSED, tool_choice=choice))
    assert "tool_choice" not in await second(plain, "glm-6"), "and an answer has not"
