"""Structured calls over the wire: what is told of them, what changes them, and what the model server is asked."""

import asyncio
from typing import Any

import pytest

from tests.support.client import TOOLS, ask, chat, get
from tests.support.faulty_upstream import DONE, STREAM_HEAD, answer_json, completion, event, in_turn, stream

MISFIT = '{"path": 5}'
MENDED = '{"path":"5"}'
BROKEN = '{"path": '
FINE = '{"path": "a"}'
WRITE = {
    "type": "function",
    "function": {"name": "write_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}


def entry(arguments: str, name: str | None = None, index: int = 0) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    head = {"id": f"call_{index}", "type": "function"} if name else {}
    return {"index": index, **head, "function": function}


def told(*calls: tuple[str, str]) -> list[bytes]:
    """A stream of these calls, each in two pieces behind its name."""
    out = [event({"role": "assistant", "content": None})]
    for index, (name, arguments) in enumerate(calls):
        out.append(event({"tool_calls": [entry("", name, index)]}))
        out += [event({"tool_calls": [entry(part, None, index)]}) for part in (arguments[:5], arguments[5:])]
    return [*out, event(finish="tool_calls"), DONE]


def whole(*calls: tuple[str, str]) -> Any:
    body = completion(None)
    body["choices"][0]["finish_reason"] = "tool_calls"
    body["choices"][0]["message"]["tool_calls"] = [
        {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    return answer_json(body)


def answer(streamed: bool, *calls: tuple[str, str]) -> Any:
    return stream(*told(*calls)) if streamed else whole(*calls)


def calls_of(got: Any) -> list[tuple[str, str]]:
    if not got.headers["Content-Type"].startswith("text/event-stream"):
        calls = got.json["choices"][0]["message"]["tool_calls"]
        return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    found: dict[int, list[str]] = {}
    for chunk in got.chunks:
        for choice in chunk.get("choices", []):
            for call in choice["delta"].get("tool_calls") or ():
                pair = found.setdefault(call["index"], ["", ""])
                pair[0] += call["function"].get("name", "")
                pair[1] += call["function"].get("arguments", "")
    return [(name, arguments) for name, arguments in found.values()]


async def metric(client: Any, running: Any, name: str) -> dict[str, float]:
    text = (await get(client, f"{running.url}/metrics")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("model", "settings", "mends"),
    [
        ("deepseek-chat", {}, True),
        ("gpt-4o", {}, False),
        ("gpt-4o", {"STRUCTURED_CALLS": "mend"}, True),
        ("deepseek-chat", {"STRUCTURED_CALLS": "count"}, False),
        ("deepseek-chat", {"STRUCTURED_CALLS": "deepseek*=count,*=mend"}, False),
        ("vendor/gpt-4o", {"STRUCTURED_CALLS": "deepseek*=count,*=mend"}, True),
        ("deepseek-chat", {"STREAM_ARGUMENTS": "incremental", "STRUCTURED_CALLS": "mend"}, False),
        ("deepseek-chat", {"TRANSFORM_MODE": "dry_run"}, False),
        ("deepseek-chat", {"TRANSFORM_MODE": "off"}, False),
    ],
)
async def test_the_setting_says_what_is_changed_and_all_is_counted(
    gateway, upstream, client, model, settings, mends, streamed
):
    upstream.script = answer(streamed, ("read_file", MISFIT))
    running = await gateway(upstream.url, **settings)
    got = await ask(client, running.url, chat(model=model, tools=TOOLS, stream=streamed))
    assert calls_of(got) == [("read_file", MENDED if mends else MISFIT)]
    if not mends and streamed:
        assert b"".join(told(("read_file", MISFIT))) == got.body
    labels = f'{{class="schema_mismatch",model="{model}",upstream="default"}}'
    assert await metric(client, running, f"toolgate_structured_calls_total{labels}") == {
        f"toolgate_structured_calls_total{labels}": 1.0
    }
    assert (await metric(client, running, "toolgate_native_misfits_total{"))[
        'toolgate_native_misfits_total{upstream="default"}'
    ] == 1.0
    outcomes = await metric(client, running, "toolgate_structured_outcomes_total{")
    assert outcomes['toolgate_structured_outcomes_total{outcome="mended",upstream="default"}'] == float(mends)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("second", [FINE, "{oops"])
async def test_what_cannot_be_told_is_asked_for_again_once(gateway, upstream, client, log, streamed, second):
    upstream.script = in_turn(answer(streamed, ("read_file", BROKEN)), whole(("read_file", second)))
    running = await gateway(upstream.url)
    got = await ask(client, running.url, chat(model="deepseek-chat", tools=TOOLS, stream=streamed))
    assert calls_of(got) == [("read_file", FINE if second == FINE else BROKEN)]
    assert len(upstream.requests) == 2
    messages = upstream.requests[1].json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert "the arguments are not valid JSON" in messages[-1]["content"]
    assert (await log.record("request_repaired"))["reason"] == "misfit"
    line = await log.record("structured_calls_misfit")
    assert line["faults"][0]["tool"] == "read_file"


async def test_a_client_that_waits_for_a_held_call_is_kept_company(gateway, upstream, client):
    events = told(("read_file", MISFIT))

    async def script(connection: Any, received: Any) -> None:
        await connection.send(STREAM_HEAD, *events[:3])
        await asyncio.sleep(0.4)
        await connection.send(*events[3:])

    upstream.script = script
    running = await gateway(upstream.url, GATEWAY_KEEPALIVE_S="0.05")
    got = await ask(client, running.url, chat(model="deepseek-chat", tools=TOOLS))
    assert calls_of(got) == [("read_file", MENDED)]
    head, _, rest = got.body.partition(b'"name": "read_file"')
    assert head
    assert rest.count(b": keep-alive\n\n") >= 2


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("model", "settings", "first"),
    [
        ("gpt-4o", {}, FINE),
        ("deepseek-chat", {}, FINE),
        ("deepseek-chat", {"STRUCTURED_CALLS": "mend"}, MENDED),
        ("deepseek-chat", {"STRUCTURED_CALLS": "count"}, MISFIT),
        ("deepseek-chat", {"STREAM_ARGUMENTS": "incremental"}, MISFIT),
        ("deepseek-chat", {"TRANSFORM_MODE": "off"}, None),
        ("deepseek-chat", {"TRANSFORM_MODE": "dry_run"}, None),
    ],
)
async def test_one_call_is_enough_where_the_request_says_so(
    gateway, upstream, client, model, settings, first, streamed
):
    given = [("read_file", FINE if first == FINE else MISFIT), ("write_file", FINE), ("read_file", BROKEN)]
    upstream.script = answer(streamed, *given)
    running = await gateway(upstream.url, **settings)
    body = chat(model=model, tools=[*TOOLS, WRITE], stream=streamed, parallel_tool_calls=False)
    told = calls_of(await ask(client, running.url, body))
    assert told == (given if first is None else [("read_file", first)])
    assert len(upstream.requests) == 1
    counted = await metric(client, running, "toolgate_undelivered_calls_total{")
    assert list(counted.values()) == ([] if first is None else [2.0])


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("model", "settings"), [("gpt-4o", {}), ("deepseek-chat", {}), ("gpt-4o", {"DUPLICATE_CALLS": "keep"})]
)
async def test_a_copy_is_dropped_unless_its_tool_only_reads(gateway, upstream, client, model, settings, streamed):
    calls = [("read_file", FINE), ("read_file", FINE), ("write_file", FINE), ("write_file", FINE)]
    upstream.script = answer(streamed, *calls)
    running = await gateway(upstream.url, **settings)
    got = await ask(client, running.url, chat(model=model, tools=[*TOOLS, WRITE], stream=streamed))
    assert calls_of(got) == (calls if settings else calls[:3])
    counted = await metric(client, running, "toolgate_duplicate_calls_total{")
    assert list(counted.values()) == ([] if settings else [1.0])


async def test_the_list_of_models_tells_how_well_their_calls_fit(gateway, upstream, client):
    listing = answer_json({"object": "list", "data": [{"id": "deepseek-chat"}]})
    upstream.script = in_turn(
        stream(*told(("read_file", MISFIT), ("read_file", FINE), ("open_file", FINE), ("read_file", FINE))), listing
    )
    running = await gateway(upstream.url, STRUCTURED_CALLS="count", DUPLICATE_CALLS="keep")
    await ask(client, running.url, chat(model="deepseek-chat", tools=TOOLS))
    (model,) = (await get(client, f"{running.url}/v1/models")).json["data"]
    assert model["toolgate"]["structured_calls"] == {
        "valid": 2,
        "invalid_json": 0,
        "unknown_name": 1,
        "schema_mismatch": 1,
        "valid_rate": 0.5,
    }


async def test_a_model_without_faults_is_left_alone_until_the_next(gateway, upstream, client, monkeypatch):
    monkeypatch.setattr("gateway.traffic.lesson_rules.CLEAN_CALLS", 2)
    running = await gateway(upstream.url)
    found = []
    for arguments in (FINE, FINE, MISFIT, MISFIT):
        upstream.script = answer(True, ("read_file", arguments))
        found += calls_of(await ask(client, running.url, chat(model="deepseek-chat", tools=TOOLS)))
    assert [text for _, text in found] == [FINE, FINE, MISFIT, MENDED]


async def test_a_wrong_mode_is_refused(gateway, upstream):
    with pytest.raises(Exception, match="STRUCTURED_CALLS: must be auto, count or mend"):
        await gateway(upstream.url, STRUCTURED_CALLS="repair")


async def test_ids_of_kimi_count_on_and_come_back(gateway, upstream, client):
    upstream.script = stream(*told(("read_file", FINE)))
    running = await gateway(upstream.url)
    call = {"id": "call_0", "type": "function", "function": {"name": "read_file", "arguments": FINE}}
    past = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": "x"},
    ]
    body = chat(model="kimi-k2", tools=TOOLS, messages=past)
    await ask(client, running.url, body)
    sent = upstream.requests[0].json["messages"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "functions.read_file:0"
    again = [{**each, "id": "functions.read_file:0"} if each.get("id") else each for each in [entry("", "read_file")]]
    upstream.script = stream(event({"tool_calls": again}), event(finish="tool_calls"), DONE)
    got = await ask(client, running.url, body)
    (begun,) = [call for chunk in got.chunks for call in chunk["choices"][0]["delta"].get("tool_calls") or ()]
    assert begun["id"] == "functions.read_file:1"
