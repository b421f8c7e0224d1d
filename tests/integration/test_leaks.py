"""Markup where none should be: in answers of native models, in answers to requests that forbid calls."""

import json
from typing import Any

import pytest

from tests.support.client import TOOLS, Answer, ask, chat, get
from tests.support.faulty_upstream import DONE, answer_json, completion, event, stream, text

INVOKE = '<invoke name="read_file">\n<parameter name="path">a.py</parameter>\n</invoke>'
UNKNOWN = "<web_fetch>\n<url>https://example.org</url>\n<prompt>What is it?</prompt>\n</web_fetch>"
CALL = [("read_file", {"path": "a.py"})]
SHAPES = ("whole", "streamed")


def script(words: str, shape: str) -> Any:
    if shape == "whole":
        return answer_json(completion(words))
    return stream(event({"role": "assistant", "content": ""}), *map(text, words), event(finish="stop"), DONE)


def said(got: Answer) -> tuple[str | None, list[tuple[str, Any]]]:
    if got.chunks:
        calls: dict[int, list[str]] = {}
        for chunk in got.chunks:
            for choice in chunk["choices"]:
                for call in choice["delta"].get("tool_calls") or []:
                    named = calls.setdefault(call["index"], ["", ""])
                    named[0] += call["function"].get("name") or ""
                    named[1] += call["function"].get("arguments") or ""
        return got.content or None, [(name, json.loads(arguments)) for name, arguments in calls.values()]
    message = got.json["choices"][0]["message"]
    calls_of = [call["function"] for call in message.get("tool_calls") or []]
    return message["content"], [(call["name"], json.loads(call["arguments"])) for call in calls_of]


async def metrics_of(client: Any, running: Any) -> str:
    return (await get(client, f"{running.url}/metrics")).body.decode()


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_leak_of_a_native_model_is_a_call(gateway, upstream, client, log, shape):
    upstream.script = script(f"I look.\n\n{INVOKE}", shape)
    running = await gateway(upstream.url)
    asked = chat(model="claude-sonnet-4-5", stream=shape == "streamed", tools=TOOLS)
    got = await ask(client, running.url, asked)
    assert said(got) == ("I look.", CALL)
    assert (await log.record("request_ended"))["strategy"] == "native"
    assert 'toolgate_recovered_calls_total{dialect="bare_invoke"} 1.0' in await metrics_of(client, running)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "how", [{"NATIVE_LEAKS": "false"}, {"TRANSFORM_MODE": "dry_run"}, {"TRANSFORM_MODE": "off"}], ids=str
)
async def test_native_answers_are_left_alone_where_that_is_wanted(gateway, upstream, client, shape, how):
    upstream.script = script(f"I look.\n\n{INVOKE}", shape)
    running = await gateway(upstream.url, **how)
    asked = chat(model="claude-sonnet-4-5", stream=shape == "streamed", tools=TOOLS)
    direct = await ask(client, upstream.url.removesuffix("/v1"), asked)
    assert (await ask(client, running.url, asked)).body == direct.body
    would = 'toolgate_dryrun_verdicts_total{dialect="bare_invoke",verdict="would_change"} 1.0'
    assert (would in await metrics_of(client, running)) is (how.get("TRANSFORM_MODE") == "dry_run")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", ["llama-3.3-70b", "claude-sonnet-4-5", "qwen3-8b"])
@pytest.mark.parametrize("mode", ["keep", "drop"])
async def test_markup_where_calls_are_forbidden_is_counted_and_stays_or_goes(
    gateway, upstream, client, shape, model, mode
):
    upstream.script = script(f"I would look.\n{INVOKE}", shape)
    running = await gateway(upstream.url, NONE_MARKUP=mode)
    asked = chat(model=model, stream=shape == "streamed", tools=TOOLS, tool_choice="none")
    direct = await ask(client, upstream.url.removesuffix("/v1"), asked)
    got = await ask(client, running.url, asked)
    if mode == "keep":
        assert got.body == direct.body
    words, calls = said(got)
    assert ((words or "").strip(), calls) == (f"I would look.\n{INVOKE}" if mode == "keep" else "I would look.", [])
    exposition = await metrics_of(client, running)
    result = "kept" if mode == "keep" else "dropped"
    assert f'toolgate_none_markup_total{{dialect="bare_invoke",result="{result}"}} 1.0' in exposition
    assert "toolgate_overheard_calls_total{" not in exposition


@pytest.mark.parametrize("mode", ["keep", "drop"])
async def test_an_untouched_arm_keeps_all_markup(gateway, upstream, client, mode):
    upstream.script = script(INVOKE, "streamed")
    running = await gateway(upstream.url, NONE_MARKUP=mode, TRANSFORM_MODE="dry_run")
    asked = chat(model="llama-3.3-70b", tools=TOOLS, tool_choice="none")
    direct = await ask(client, upstream.url.removesuffix("/v1"), asked)
    assert (await ask(client, running.url, asked)).body == direct.body
    assert 'toolgate_none_markup_total{dialect="bare_invoke",result="kept"} 1.0' in await metrics_of(client, running)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wanted", ["pass", "text"])
async def test_tags_of_a_well_known_tool_that_was_not_offered(gateway, upstream, client, shape, wanted):
    upstream.script = script(f"I fetch it.\n{UNKNOWN}", shape)
    running = await gateway(upstream.url, UNDECLARED_TOOLS=wanted)
    got = await ask(client, running.url, chat(model="llama-3.3-70b", stream=shape == "streamed", tools=TOOLS))
    words, calls = said(got)
    assert [name for name, _ in calls] == (["web_fetch"] if wanted == "pass" else [])
    assert words == ("I fetch it." if wanted == "pass" else f"I fetch it.\n{UNKNOWN}")
    assert len(upstream.requests) == 1
