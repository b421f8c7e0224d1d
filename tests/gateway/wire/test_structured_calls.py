"""Structured calls as servers really send them: what is certain is mended, what is right is left alone and counted."""

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from gateway.wire.structured_calls import NativeCalls
from tests.support.client import TOOLS, Answer, ask, chat, get
from tests.support.cost import assert_linear
from tests.support.faulty_upstream import DONE, STREAM_HEAD, answer_json, completion, event, in_turn, stream, text


def calls() -> NativeCalls:
    made = iter(range(1, 100))
    return NativeCalls(lambda _dialect: f"call_made_{next(made)}")


def delta(index: int | None = 0, call_id: str | None = None, **function: Any) -> dict[str, Any]:
    """One delta as a server sends it; what is None is left out, except by `null`."""
    found: dict[str, Any] = {"function": function}
    if index is not None:
        found["index"] = index
    if call_id is not None:
        found["id"] = call_id
        found["type"] = "function"
    return found


def joined(deltas: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What a strict client makes of deltas."""
    found: list[dict[str, str]] = []
    for each in deltas:
        function = each.get("function") or {}
        if each["index"] == len(found):
            assert each["id"]
            assert each["type"] == "function"
            found.append({"id": each["id"], "name": function["name"], "arguments": ""})
        else:
            assert "name" not in function
            assert "id" not in each
            assert "type" not in each or each["type"] == "function"
        found[each["index"]]["arguments"] += function.get("arguments") or ""
    return found


def mended(deltas: list[dict[str, Any]]) -> tuple[list[dict[str, str]], list[str]]:
    native = calls()
    for each in deltas:
        native.mend_deltas([each])
    return joined(deltas), native.mended


RIGHT = [
    delta(0, "call_a", name="read", arguments=""),
    delta(0, arguments='{"path"'),
    delta(0, arguments=': "a"}'),
    delta(1, "call_b", name="list", arguments="{}"),
]


def test_what_is_right_is_left_alone() -> None:
    deltas = deepcopy(RIGHT)
    found, faults = mended(deltas)
    assert deltas == RIGHT
    assert faults == []
    assert [call["arguments"] for call in found] == ['{"path": "a"}', "{}"]


@pytest.mark.parametrize("given", [None, ""])
def test_missing_id_is_made_once(given: str | None) -> None:
    first = delta(0, name="read", arguments="")
    if given is not None:
        first["id"] = given
    found, faults = mended([first, delta(0, arguments="{}")])
    assert found == [{"id": "call_made_1", "name": "read", "arguments": "{}"}]
    assert "id_missing" in faults
    assert "type_missing" in faults


def test_arguments_sent_as_an_object_become_their_json() -> None:
    found, faults = mended([delta(0, "call_a", name="read", arguments={"path": "a", "n": [1]})])
    assert json.loads(found[0]["arguments"]) == {"path": "a", "n": [1]}
    assert faults == ["arguments_object"]


def test_null_arguments_are_empty() -> None:
    found, faults = mended([delta(0, "call_a", name="read", arguments=None), delta(0, arguments="{}")])
    assert found[0]["arguments"] == "{}"
    assert faults == ["arguments_null"]


def test_missing_indexes_follow_the_calls() -> None:
    deltas = [
        delta(None, "call_a", name="read", arguments=""),
        delta(None, arguments='{"p":1}'),
        delta(None, "call_b", name="list", arguments=""),
        delta(None, "call_b", arguments="{}"),
    ]
    found, faults = mended(deltas)
    assert [(call["name"], call["arguments"]) for call in found] == [("read", '{"p":1}'), ("list", "{}")]
    assert faults.count("index_missing") == 4


@pytest.mark.parametrize(("key", "value"), [("id", None), ("id", ""), ("id", "call_a"), ("type", None), ("type", "")])
def test_what_later_pieces_repeat_or_leave_null_is_taken_out(key: str, value: str | None) -> None:
    later = delta(0, arguments="{}")
    later[key] = value
    found, faults = mended([delta(0, "call_a", name="read", arguments=""), later])
    assert found[0]["arguments"] == "{}"
    assert faults == [f"{key}_repeated"]


@pytest.mark.parametrize("name", ["read", "", None])
def test_repeated_name_is_taken_out(name: str | None) -> None:
    found, faults = mended([delta(0, "call_a", name="read", arguments=""), delta(0, name=name, arguments="{}")])
    assert found == [{"id": "call_a", "name": "read", "arguments": "{}"}]
    assert faults == ["name_repeated"]


def test_id_and_name_in_every_piece_are_one_call() -> None:
    pieces = ['{"p', '": 1', "}"]
    found, _ = mended([delta(0, "call_a", name="read", arguments=piece) for piece in pieces])
    assert found == [{"id": "call_a", "name": "read", "arguments": '{"p": 1}'}]


def test_parallel_calls_that_all_come_at_index_0_are_told_apart() -> None:
    deltas = [
        delta(0, "call_a", name="read", arguments='{"p": 1}'),
        delta(0, "call_b", name="list", arguments=""),
        delta(0, arguments='{"q": 2}'),
    ]
    found, faults = mended(deltas)
    assert [(call["id"], call["arguments"]) for call in found] == [("call_a", '{"p": 1}'), ("call_b", '{"q": 2}')]
    assert "index_repeated" in faults


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Nothing tells that a call without arguments is over but what comes behind it.
        (("call_a", "now", ""), ("call_b", "read", '{"p": 1}')),
        # Ids are missing, or all the same.
        ((None, "read", '{"p": 1}'), (None, "now", "{}")),
        (("call_a", "read", '{"p": 1}'), ("call_a", "now", "")),
        ((None, "read", '{"p": 1}'), (None, "read", '{"p": 2}')),
    ],
)
def test_what_can_be_no_piece_of_the_call_at_its_index_is_another(first: Any, second: Any) -> None:
    found, _ = mended([delta(0, call_id, name=name, arguments=text) for call_id, name, text in (first, second)])
    assert [(call["name"], call["arguments"]) for call in found] == [first[1:], second[1:]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"p": 1}', '{"p":1}'),
        ("{}", '{"p": 1}'),
        ('{"p": 1}', ""),
        ('{"p": 1}', "\n"),
        ('{"p": 1}', "</call>"),
        ('{"p": 1}', '{"p": 12}'),
    ],
)
def test_a_name_that_comes_again_begins_no_call(first: str, second: str) -> None:
    found, _ = mended([delta(0, "call_a", name="read", arguments=text) for text in (first, second)])
    assert [(call["name"], call["arguments"]) for call in found] == [("read", first + second)]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["edit_ex", "isting", "_file"], "edit_existing_file"),
        (["edit", "_", "existing_file"], "edit_existing_file"),
        (["read", "_file"], "read"),
        (["Read", "Read"], "read"),
        (["edit", "edit_existing_file"], "edit"),
        (["unknown", "unknown"], "unknown"),
    ],
)
def test_a_name_in_pieces_stays_whole_for_clients_that_join_them(names: list[str], told: str) -> None:
    meant = {name: name for name in ("read", "edit_existing_file")} | {"Read": "read", "edit_": "read"}
    native = NativeCalls(lambda _dialect: "call_made", meant.get)
    deltas = [delta(0, "call_a" if not at else None, name=name, arguments="") for at, name in enumerate(names)]
    native.mend_deltas(deltas)
    assert "".join(each["function"].get("name", "") for each in deltas) == told
    assert native.calls == [("call_a", told, "")]


def test_other_id_within_unfinished_arguments_is_the_same_call() -> None:
    deltas = [delta(0, "call_a", name="read", arguments='{"p": '), delta(0, "call_b", name="read", arguments="1}")]
    found, _ = mended(deltas)
    assert found == [{"id": "call_a", "name": "read", "arguments": '{"p": 1}'}]


@pytest.mark.cost
def test_an_id_of_its_own_in_every_piece_costs_linear_time() -> None:
    def mending(size: int) -> Callable[[], None]:
        pieces = ['{"text": "', *["}, "] * size, '"}']

        def mend() -> None:
            native = calls()
            for number, piece in enumerate(pieces):
                native.mend_deltas([delta(0, f"call_{number}", name="write", arguments=piece)])
            assert native.calls == [("call_0", "write", "".join(pieces))]

        return mend

    assert_linear(mending, 8_000)


@pytest.mark.parametrize("first", ["null", '"a"', " [] ", '{"p": "}"}'])
def test_any_whole_value_ends_a_call(first: str) -> None:
    native = calls()
    native.mend_deltas([delta(0, "call_a", name="read", arguments=first)])
    native.mend_deltas([delta(0, "call_b", name="list", arguments="{}")])
    assert [arguments for _, _, arguments in native.calls] == [first, "{}"]


def test_white_space_is_no_value() -> None:
    native = calls()
    for piece in (" ", "\n", '{"p": 1}'):
        native.mend_deltas([delta(0, f"call_{len(piece)}{ord(piece[0])}", name="read", arguments=piece)])
    assert [arguments for _, _, arguments in native.calls] == [' \n{"p": 1}']


def test_delta_without_a_function_gets_an_index_and_no_more() -> None:
    native = calls()
    lone = {"id": "call_a"}
    assert native.mend_deltas([lone])
    assert lone == {"id": "call_a", "index": 0}
    assert not native.mend_deltas("no list")
    assert not native.mend_deltas(["no object"])


def test_whole_message_is_mended_in_place() -> None:
    native = calls()
    message = [
        {"function": {"name": "read", "arguments": {"p": 1}}},
        {"id": "call_b", "type": "function", "function": {"name": "list", "arguments": "{}"}},
        "no object",
        {"id": "call_c", "type": "", "function": {"name": "now"}},
    ]
    assert native.mend_message(message)
    assert message[0] == {
        "id": "call_made_1",
        "type": "function",
        "function": {"name": "read", "arguments": '{"p":1}'},
    }
    assert message[1] == {"id": "call_b", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    assert message[3] == {"id": "call_c", "type": "function", "function": {"name": "now", "arguments": ""}}
    assert native.count == 3
    assert not calls().mend_message({"no": "list"})


def test_a_stop_beside_calls_is_tool_calls() -> None:
    native = calls()
    assert native.finish_reason("stop") == "stop"
    native.mend_deltas([delta(0, "call_a", name="read", arguments="{}")])
    for reason in ("stop", "STOP", "tool_calls", "tool_use", "end_turn", "eos", "eos_token", "COMPLETE"):
        assert native.finish_reason(reason) == "tool_calls"
    for reason in ("length", "content_filter", "model_length", "error", ""):
        assert native.finish_reason(reason) == reason
    assert native.finish_reason(None) is None


def test_a_name_that_comes_late_is_the_calls() -> None:
    deltas = [delta(0, "call_a", arguments=""), delta(0, name="read"), delta(0, name="read", arguments="{}")]
    native = calls()
    native.mend_deltas(deltas)
    assert [each["function"].get("name") for each in deltas] == [None, "read", None]
    assert native.mended == ["name_repeated"]


def test_delta_without_a_function_keeps_its_index() -> None:
    odd = {"index": 3, "type": "custom"}
    native = calls()
    native.mend_deltas([odd])
    assert (odd, native.mended) == ({"index": 3, "type": "custom"}, [])


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


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("model", ["gpt-4o", "deepseek-chat"])
async def test_an_id_that_a_call_before_has_is_no_other_calls(gateway, upstream, client, model, streamed):
    upstream.script = answer(streamed, ("read_file", FINE))
    running = await gateway(upstream.url)
    first = ids_of(await ask(client, running.url, chat(model=model, tools=TOOLS, stream=streamed)))
    call = {"id": first[0], "type": "function", "function": {"name": "read_file", "arguments": FINE}}
    past = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": first[0], "content": "x"},
    ]
    then = ids_of(await ask(client, running.url, chat(model=model, tools=TOOLS, stream=streamed, messages=past)))
    assert len(first) == len(then) == 1
    assert not {*first} & {*then}


def ids_of(got: Answer) -> list[str]:
    """The ids of its calls."""
    found = [chunk["choices"][0]["delta"] for chunk in got.chunks if chunk["choices"]]
    if not found:
        found = [got.json["choices"][0]["message"]]
    return [call["id"] for each in found for call in each.get("tool_calls") or () if "id" in call]


# --- Markup where none should be: in answers of native models, in answers to requests that forbid calls


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
