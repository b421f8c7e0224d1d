"""Upstreams that refuse native tools, models that make nothing of them, and what is remembered of both."""

import json
import time
from datetime import datetime
from typing import Any

import pytest

from gateway.traffic.lesson_rules import ENOUGH, LESSON_S, PROBED, WEEK_S, Terms
from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import DONE, answer_json, completion, event, in_turn, stream, text

ROLE = event({"role": "assistant", "content": ""})

FINISH = event(finish="stop")

GOOD = "<read_file>\n<path>src/a.py</path>\n</read_file>"

CALL = ("read_file", '{"path":"src/a.py"}')

OLLAMA = {"error": {"message": "registry.ollama.ai/library/gemma3:4b does not support tools", "type": "api_error"}}

VLLM = {
    "object": "error",
    "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}

OPENROUTER = {"error": {"message": 'No endpoints found that support tool use. Try disabling "read".', "code": 404}}

LLAMA_CPP = {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}

REFUSALS = [("400 Bad", OLLAMA), ("400 Bad", VLLM), ("404 None", OPENROUTER), ("500 Oops", LLAMA_CPP)]


def refusal(body: Any = OLLAMA, status: str = "400 Bad Request") -> Any:
    return answer_json(body, status=status)


async def metrics_of(client, running) -> str:
    return (await get(client, f"{running.url}/metrics")).body.decode()


@pytest.mark.parametrize(("status", "body"), REFUSALS)
@pytest.mark.parametrize("model", ["gpt-4o", "gemma3:4b"])
async def test_a_refusal_is_answered_with_tools_in_the_prompt(gateway, upstream, client, log, model, status, body):
    upstream.script = in_turn(refusal(body, status), stream(ROLE, text(GOOD), FINISH, DONE))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model=model, tools=TOOLS))
    assert got.status == 200
    assert got.headers["X-Toolgate-Strategy"] == "xml_prompt"
    assert got.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    first, second = upstream.requests
    assert "tools" in first.json
    assert "tools" not in second.json
    assert "read_file" in second.json["messages"][0]["content"]
    record = await log.record("native_fallback")
    assert (record["reason"], record["model"]) == ("refused", model)
    assert (await log.record("request_ended"))["reason"] == "refused"
    exposition = await metrics_of(client, running)
    assert 'toolgate_native_fallbacks_total{reason="refused",upstream="default"} 1.0' in exposition


async def test_it_is_remembered_for_an_hour(gateway, upstream, client):
    upstream.script = in_turn(refusal(), answer_json(completion(GOOD)))
    running = await gateway(upstream.url)
    request = chat(model="gemma3:4b", stream=False, tools=TOOLS)
    for _ in range(2):
        got = await ask(client, running.url, request)
        assert got.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "read_file"
    assert ["tools" in received.json for received in upstream.requests] == [True, False, False]
    other = await ask(client, running.url, chat(model="gemma3:27b", stream=False, tools=TOOLS))
    assert other.headers["X-Toolgate-Strategy"] == "recovery"
    lessons = running.shared.lessons
    assert lessons.recall("default", "gemma3:4b", 0.0).until == pytest.approx(LESSON_S, abs=5)
    lessons._wall = lambda: time.time() + LESSON_S
    assert lessons.recall("default", "gemma3:4b", 0.0) is None
    assert LESSON_S == 3600


async def test_models_tell_what_was_learned(gateway, upstream, client):
    upstream.script = in_turn(refusal(), answer_json(completion(GOOD)))
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(model="gemma3:4b", stream=False, tools=TOOLS))
    upstream.script = answer_json({"object": "list", "data": [{"id": "gemma3:4b"}, {"id": "gemma3:27b"}]})
    learned, other = (await get(client, f"{running.url}/v1/models")).json["data"]
    assert learned["toolgate"]["strategy"] == "xml_prompt"
    assert learned["toolgate"]["learned"]["reason"] == "refused"
    assert 3590 < learned["toolgate"]["learned"]["seconds_left"] <= 3600
    assert other["toolgate"] == {"strategy": "recovery", "upstream": "default"}
    one = (await get(client, f"{running.url}/v1/models/gemma3:4b")).json
    assert one["toolgate"]["learned"]["native_tools"] is False


async def test_switched_off_the_refusal_is_the_clients(gateway, upstream, client):
    upstream.script = refusal()
    running = await gateway(upstream.url, NATIVE_FALLBACK="false")
    got = await ask(client, running.url, chat(model="gemma3:4b", tools=TOOLS))
    assert (got.status, got.json) == (400, OLLAMA)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("400 Bad", {"error": {"message": "This model does not support parallel tool calls"}}),
        ("400 Bad", {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}),
        ("404 None", {"error": {"message": "model not found"}}),
        ("403 No", OLLAMA),
    ],
)
async def test_other_errors_are_the_clients(gateway, upstream, client, status, error):
    upstream.script = refusal(error, status)
    running = await gateway(upstream.url)
    await ask(client, running.url, chat(model="gemma3:4b", tools=TOOLS))
    assert len(upstream.requests) == 1
    assert running.shared.lessons.recall("default", "gemma3:4b", 0.0) is None


@pytest.mark.parametrize("how", [{}, {"tools": TOOLS, "tool_choice": "none"}])
async def test_a_request_without_tools_is_not_asked_again(gateway, upstream, client, how):
    upstream.script = refusal()
    running = await gateway(upstream.url)
    assert (await ask(client, running.url, chat(model="gemma3:4b", **how))).status == 400
    assert len(upstream.requests) == 1


async def test_a_request_that_the_prompt_cannot_hold_keeps_its_refusal(gateway, upstream, client):
    upstream.script = refusal()
    running = await gateway(upstream.url, TOOL_CALLING_MAX_TOOLS="1")
    two = [*TOOLS, {"type": "function", "function": {"name": "other"}}]
    got = await ask(client, running.url, chat(model="gemma3:4b", tools=two))
    assert (got.status, got.json) == (400, OLLAMA)
    assert len(upstream.requests) == 1


async def test_what_comes_of_the_second_request_is_the_clients(gateway, upstream, client):
    upstream.script = in_turn(refusal(), answer_json({"error": {"message": "too long"}}, status="413 Large"))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="gemma3:4b", tools=TOOLS))
    assert (got.status, got.json) == (413, {"error": {"message": "too long"}})
    assert len(upstream.requests) == 2


async def test_a_rule_stands_and_its_requests_are_still_answered(gateway, upstream, client):
    def by_tools(connection, received):
        return (refusal() if "tools" in received.json else answer_json(completion(GOOD)))(connection, received)

    upstream.script = by_tools
    running = await gateway(upstream.url, STRATEGY_RULES="*=native")
    for _ in range(2):
        got = await ask(client, running.url, chat(model="gemma3:4b", stream=False, tools=TOOLS))
        assert got.json["choices"][0]["message"]["tool_calls"]
    assert ["tools" in received.json for received in upstream.requests] == [True, False, True, False]


OPEN = GOOD.removesuffix("</path>\n</read_file>")

NATIVE = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}

BROKEN = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path'}}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(completion(OPEN), "as_text"), (completion(None, tool_calls=[BROKEN]), "bad_arguments")],
)
async def test_calls_that_keep_coming_wrong_are_learned_from(gateway, upstream, client, log, answer, reason):
    upstream.script = answer_json(answer)
    running = await gateway(upstream.url, NATIVE_FALLBACK_WINDOW="5", REPAIR_ATTEMPTS="0")
    request = chat(model="some-model", stream=False, tools=TOOLS)
    strategies = [(await ask(client, running.url, request)).headers["X-Toolgate-Strategy"] for _ in range(6)]
    assert strategies == [*["recovery"] * 5, "xml_prompt"]
    assert (await log.record("native_fallback"))["reason"] == reason
    exposition = await metrics_of(client, running)
    assert f'toolgate_native_fallbacks_total{{reason="{reason}",upstream="default"}} 1.0' in exposition


async def test_unusable_arguments_in_streams_count_too(gateway, upstream, client):
    delta = {"tool_calls": [{"index": 0, **BROKEN}]}
    upstream.script = stream(ROLE, event(delta), event(finish="tool_calls"), DONE)
    running = await gateway(upstream.url, NATIVE_FALLBACK_WINDOW="5")
    for _ in range(5):
        await ask(client, running.url, chat(model="gpt-4o", tools=TOOLS))
    assert running.shared.lessons.recall("default", "gpt-4o", 0.0).reason == "bad_arguments"


@pytest.mark.parametrize("rate", ["0.8", "0"])
async def test_the_rate_is_the_operators(gateway, upstream, client, rate):
    good, text_call = completion(None, tool_calls=[NATIVE]), completion(OPEN)
    answers = [answer_json(one) for one in (good, good, text_call, text_call, text_call, good)]
    upstream.script = in_turn(*answers)
    running = await gateway(upstream.url, NATIVE_FALLBACK_WINDOW="5", NATIVE_FALLBACK_RATE=rate)
    for _ in answers:
        await ask(client, running.url, chat(model="some-model", stream=False, tools=TOOLS))
    assert running.shared.lessons.recall("default", "some-model", 0.0) is None


async def test_a_model_whose_calls_are_recovered_goes_on_as_it_does(gateway, upstream, client):
    upstream.script = answer_json(completion(GOOD))
    running = await gateway(upstream.url, NATIVE_FALLBACK_WINDOW="5")
    for _ in range(12):
        got = await ask(client, running.url, chat(model="some-model", stream=False, tools=TOOLS))
        assert got.headers["X-Toolgate-Strategy"] == "recovery"
        assert got.json["choices"][0]["message"]["tool_calls"]


async def test_what_is_switched_off_is_not_got_around_by_asking_in_another_way(gateway, upstream, client, monkeypatch):
    upstream.script = answer_json(completion(GOOD))
    running = await gateway(upstream.url, NATIVE_FALLBACK_WINDOW="5", REPAIR_ATTEMPTS="0")
    monkeypatch.setattr(type(running.shared.rollout), "slices_off", frozenset({"recovery/generic_xml"}))
    for _ in range(12):
        got = await ask(client, running.url, chat(model="some-model", stream=False, tools=TOOLS))
        assert got.headers["X-Toolgate-Strategy"] == "recovery"
        assert got.json["choices"][0]["message"]["content"] == GOOD
    assert running.shared.lessons.recall("default", "some-model", 0.0) is None


async def test_answers_without_calls_teach_nothing(gateway, upstream, client):
    upstream.script = answer_json(completion("Just words."))
    running = await gateway(upstream.url, NATIVE_FALLBACK_WINDOW="5")
    for _ in range(6):
        await ask(client, running.url, chat(model="some-model", stream=False, tools=TOOLS))
    assert running.shared.lessons.recall("default", "some-model", 0.0) is None


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_id_of_a_call_tells_how_it_was_made(gateway, upstream, client, streamed):
    upstream.script = stream(ROLE, text(GOOD), FINISH, DONE) if streamed else answer_json(completion(GOOD))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="deepseek", stream=streamed, tools=TOOLS))
    body = json.dumps(got.chunks) if streamed else got.body.decode()
    call_id = body[body.index("call_") :][:29]
    mark = running.shared.call_ids.read(call_id)
    assert (mark.arm, mark.strategy, mark.dialect) == ("live", "recovery", "generic_xml")


# --- What is learned of a model beside refusals: that it calls natively, that prompts are cut, that it goes round


MODEL = "qwen3-32b"

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
    running.shared.lessons.learn("default", "glm-6", PROBED, 0.0, Terms(rule="recovery", able=able))
    asked = await second(plain, "glm-6")
    assert (asked["tool_choice"], asked["tools"][0]["function"]["strict"]) == (choice, True), "a probe has seen it"
    upstream.script = native(BAD)
    await ask(client, running.url, chat(model="glm-6", stream=False, tools=CLOSED, tool_choice=choice))
    assert "tool_choice" not in await second(plain, "glm-6"), "and an answer has not"
