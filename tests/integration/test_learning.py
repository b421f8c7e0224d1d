"""Upstreams that refuse native tools, models that make nothing of them, and what is remembered of both."""

import json
import time
from typing import Any

import pytest

from gateway.traffic.lesson_rules import LESSON_S
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
