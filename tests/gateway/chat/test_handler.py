"""What goes on beside a request does it no harm: faults in it, long histories, odd texts, and clients in a hurry."""

import asyncio
import io
import json

import attrs
import pytest
from multidict import CIMultiDict

from gateway.chat import enrolment as arms
from gateway.chat import handler as handlers
from gateway.core.records import OutcomeRecord, RequestRecord
from gateway.state.memory import MemoryStore
from tests.support.client import TOOLS, ask, chat, get, open_connection, post_bytes
from tests.support.faulty_upstream import DONE, STREAM_HEAD, answer_json, completion, event, in_turn, stream, text

CALL = "<read_file>\n<path>a.py</path>\n</read_file>"
ANSWER = (text("hello"), event(finish="stop"), DONE)
TOLD = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "no such tool"},
]
MODES = [
    {},
    {"TRANSFORM_MODE": "dry_run"},
    {"TRANSFORM_MODE": "canary", "CANARY_PERCENT": "0"},
    {"TRANSFORM_MODE": "off"},
]


def fails(*_args, **_kwargs):
    raise LookupError("on purpose")


async def records(running, kind):
    assert await running.upkeep.recorder.flush(5)
    return [record async for record in running.upkeep.store.scan(kind)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (arms, "conversation_key"),
        (arms, "last_answer"),
        (arms, "outcome_records"),
        (handlers, "learn_from"),
        (handlers, "_audit"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_fault_beside_an_answer_costs_no_answer(
    gateway, upstream, client, monkeypatch, mode, where, name, streamed
):
    monkeypatch.setattr(where, name, fails)
    upstream.script = stream(*ANSWER) if streamed else answer_json(completion("hello"))
    running = await gateway(upstream.url, **mode)
    body = chat(stream=streamed, tools=TOOLS, messages=TOLD, model="some-model")
    got = await ask(client, running.url, body)
    assert got.status == 200
    assert got.body == (b"".join(ANSWER) if streamed else json.dumps(completion("hello")).encode())
    assert upstream.last.json == body


async def test_outcomes_of_an_arm_that_somebody_chose_do_not_count(gateway, upstream, client, monkeypatch):
    upstream.script = stream(*ANSWER)
    running = await gateway(
        upstream.url, TRANSFORM_MODE="canary", CANARY_FORCE_HEADER="X-Arm", TRUSTED_PROXIES="127.0.0.1"
    )
    heard = []
    monkeypatch.setattr(type(running.shared.rollout), "outcome", lambda *_, **more: heard.append(more["bad"]))
    body = chat(tools=TOOLS, messages=TOLD)
    await ask(client, running.url, body, headers={"X-Arm": "live"})
    assert heard == []
    await ask(client, running.url, body)
    assert heard == [True]
    assert len(await records(running, OutcomeRecord)) == 2


async def test_a_slice_that_is_off_stays_text_after_a_refusal_of_native_tools(gateway, upstream, client):
    refusal = answer_json({"error": {"message": "m does not support tools"}}, status="400 Bad Request")
    upstream.script = in_turn(refusal, stream(text(CALL), event(finish="stop"), DONE))
    running = await gateway(upstream.url)
    agent = running.upkeep.agent
    agent._obey(attrs.evolve(agent._state, slices_off=("xml_prompt/generic_xml",)))
    got = await ask(client, running.url, chat(model="some-model", tools=TOOLS))
    assert got.headers["X-Toolgate-Strategy"] == "xml_prompt"
    assert got.content == CALL


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_can_be_rated_at_once_in_every_arm(gateway, upstream, client, mode, streamed):
    upstream.script = stream(*ANSWER) if streamed else answer_json(completion("hello"))
    running = await gateway(upstream.url, **mode)
    await ask(client, running.url, chat(stream=streamed))
    rating = {"completion_id": "chatcmpl-1", "rating": "good"}
    async with client.post(f"{running.url}/v1/feedback", json=rating) as response:
        assert response.status == 200


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", ["gpt-4o", "some-model"])
async def test_half_a_character_goes_up_as_it_came(gateway, upstream, client, mode, model):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url, **mode)
    body = json.dumps(chat(model=model, tools=TOOLS, messages=[{"role": "user", "content": "cut \ud83d"}])).encode()
    async with client.post(f"{running.url}/v1/chat/completions", data=body) as response:
        assert response.status == 200
    assert upstream.last.body == body


async def test_half_a_character_is_told_in_a_prompt_of_ours(gateway, upstream, client):
    upstream.script = stream(text(CALL), event(finish="stop"), DONE)
    running = await gateway(upstream.url, AUDIT_BODIES="full")
    body = json.dumps(chat(model="qwen3", tools=TOOLS, messages=[{"role": "user", "content": "cut \ud83d"}])).encode()
    async with client.post(f"{running.url}/v1/chat/completions", data=body) as response:
        assert b"read_file" in await response.read()
    assert upstream.last.json["messages"][-1]["content"] == "cut \ufffd"


@pytest.mark.parametrize("mode", [{}, {"TRANSFORM_MODE": "dry_run"}])
async def test_a_client_that_leaves_with_its_whole_answer_has_not_aborted_it(gateway, upstream, log, mode):
    async def script(connection, received):
        await connection.send(STREAM_HEAD, *ANSWER)
        await connection.until_gone()

    upstream.script = script
    running = await gateway(upstream.url, **mode)
    reader, writer = await open_connection(running.url)
    writer.write(post_bytes(chat(tools=TOOLS, model="some-model")))
    await asyncio.wait_for(reader.readuntil(DONE), 5)
    writer.close()
    await writer.wait_closed()
    ended = await log.record("request_ended")
    assert (ended["end"], ended["status"]) == ("completed", 200)
    [record] = await records(running, RequestRecord)
    assert (record.end, record.error, record.healthy) == ("completed", None, True)


async def test_the_record_of_a_client_that_left_names_no_fault_of_ours(gateway, upstream, log):
    async def script(connection, received):
        await connection.send(STREAM_HEAD, text("hello there, all is well.\n"), text("More"))
        await connection.until_gone()

    upstream.script = script
    running = await gateway(upstream.url)
    reader, writer = await open_connection(running.url)
    writer.write(post_bytes(chat(tools=TOOLS, model="some-model")))
    await asyncio.wait_for(reader.readuntil(b"well."), 5)
    writer.close()
    await writer.wait_closed()
    assert (await log.record("request_ended"))["end"] == "client_abort"
    [record] = await records(running, RequestRecord)
    assert (record.end, record.error, record.healthy) == ("client_abort", None, True)


async def test_only_as_much_of_a_body_is_masked_as_is_kept(gateway, upstream, client):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url, AUDIT_BODIES="full")
    seen: list[int] = []
    mask = running.shared.mask

    def counting(text):
        seen.append(len(text))
        return mask(text)

    running.shared.mask = counting
    messages = [{"role": "user", "content": "password=x " * 300_000}]
    body = io.BytesIO(json.dumps(chat(stream=False, messages=messages)).encode())
    async with client.post(f"{running.url}/v1/chat/completions", data=body) as response:
        assert response.status == 200
    [record] = await records(running, RequestRecord)
    assert len(record.request_body) == 1 << 18
    assert "password=x" not in record.request_body
    assert max(seen) < 1 << 19


async def test_the_metrics_of_ids_and_names_from_outside_stay_few(gateway, upstream, client):
    upstream.script = answer_json(completion("hello"))
    running = await gateway(upstream.url, METRICS_LABEL_CAP="5")
    for number in range(40):
        call = {"id": f"call_{number:024d}", "function": {"name": f"tool{number}", "arguments": "{}"}}
        told = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "no such tool"},
        ]
        await ask(client, running.url, chat(stream=False, model=f"model-{number}", tools=TOOLS, messages=told))
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'outcome="rejected"' in exposition
    assert sum(f"model-{number}" in exposition for number in range(40)) <= 5
    assert "tool39" not in exposition
    assert "call_0000" not in exposition


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "429 Slow", "500 Oops", "401 No"])
async def test_an_error_of_the_upstream_is_the_same_in_every_arm(gateway, upstream, client, status, streamed):
    fault = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    upstream.script = answer_json(fault, status=status, headers={"Retry-After": "37"})
    told = set()
    for mode in MODES:
        running = await gateway(upstream.url, **mode)
        got = await ask(client, running.url, chat(stream=streamed, tools=TOOLS))
        told.add((got.status, got.body, got.headers["Content-Type"], got.headers.get("Retry-After")))
        assert got.headers["X-Toolgate-Strategy"] == (
            "passthrough" if mode.get("TRANSFORM_MODE") == "off" else "native"
        )
    [(code, body, _, wait)] = told
    assert b"context_length_exceeded" in body
    assert (str(code), wait) == (status[:3] if status[0] == "4" else "502", "37")


@pytest.mark.parametrize("mode", MODES)
async def test_headers_that_come_twice_go_on_twice(gateway, upstream, client, mode):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nLink: a\r\nLink: b\r\nConnection: close\r\n\r\n"
    upstream.script = stream(*ANSWER, head=head)
    running = await gateway(upstream.url, **mode)
    got = await ask(client, running.url)
    assert CIMultiDict(got.headers).getall("Link") == ["a", "b"]


async def test_clients_of_different_keys_hold_different_conversations(gateway, upstream, client):
    upstream.script = stream(*ANSWER)
    running = await gateway(upstream.url, GATEWAY_API_KEYS="finch-one-key,finch-two-key")
    for headers in ({"X-Api-Key": "finch-one-key"}, {"X-Api-Key": "finch-two-key"}):
        for _ in range(2):
            await ask(client, running.url, headers=headers)
    keys = [record.key for record in await records(running, RequestRecord)]
    assert len(set(keys)) == 2
    await ask(client, running.url, headers={"Authorization": "Bearer finch-one-key"})
    assert (await records(running, RequestRecord))[-1].key in keys


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streamed", [True, False])
async def test_nobody_waits_for_a_store_that_never_answers(gateway, upstream, client, monkeypatch, mode, streamed):
    """Whoever waited for it would wait for ever: no clock has to tell. Once it answers, it has all of them."""
    upstream.script = stream(*ANSWER) if streamed else answer_json(completion("hello"))
    running = await gateway(upstream.url, STORE_TIMEOUT_MS="60000", **mode)
    answers, waited = asyncio.Event(), []

    def frozen(name):
        method = getattr(MemoryStore, name)

        async def waits(self, *args, **kwargs):
            waited.append(name)
            await answers.wait()
            return await method(self, *args, **kwargs)

        return waits

    with monkeypatch.context() as patch:
        for name in ("append", "find_answer", "get", "put", "swap", "tally", "blocks", "trim"):
            patch.setattr(MemoryStore, name, frozen(name))
        body = chat(stream=streamed, tools=TOOLS, messages=TOLD, model="some-model")
        got = await asyncio.gather(*(ask(client, running.url, body) for _ in range(30)))
        assert [(answer.status, b"hello" in answer.body) for answer in got] == [(200, True)] * 30
        while "append" not in waited:  # noqa: ASYNC110 - who writes the records tells nobody
            await asyncio.sleep(0.01)
        answers.set()
    assert len(await records(running, RequestRecord)) == 30
