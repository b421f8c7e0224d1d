"""Models that are shown another surface of tools: what they are sent, what their calls become, what is refused."""

import json

import pytest

from tests.support.chat import hear_body, hear_stream
from tests.support.client import ask, chat, get
from tests.support.faulty_upstream import DONE, answer_json, completion, event, in_turn, stream, text


def tool(name, *optional, **properties):
    schema = {
        "type": "object",
        "properties": {**properties, **{name: {"type": "number"} for name in optional}},
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


STRING = {"type": "string"}
OPENCODE = [
    tool("read", "offset", "limit", filePath=STRING),
    tool("write", filePath=STRING, content=STRING),
    tool("edit", filePath=STRING, oldString=STRING, newString=STRING),
    tool("bash", command=STRING),
]
EDITOR = "str_replace_based_edit_tool"
REPLACE = {"command": "str_replace", "path": "a.py", "old_str": "x = 1", "new_str": "x = 2"}
PATCH = (
    "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2"
    "\n*** Update File: b.py\n@@\n-y = 1\n+y = 2\n*** End Patch"
)


def request(*, streamed=True, model="claude-x", **fields):
    return chat(model=model, stream=streamed, tools=OPENCODE, **fields)


def native(name, arguments, call_id="toolu_1"):
    """A structured call, cut in the middle of its arguments."""
    half = len(arguments) // 2
    first = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments[:half]}}
    return stream(
        event({"role": "assistant", "content": "I will edit."}),
        event({"tool_calls": [first]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": arguments[half:]}}]}),
        event(finish="tool_calls"),
        DONE,
    )


def whole(name, arguments, call_id="toolu_1"):
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    answer = completion("I will edit.", tool_calls=[call])
    answer["choices"][0]["finish_reason"] = "tool_calls"
    return answer_json(answer)


def heard(got, streamed):
    return hear_stream(got.body) if streamed else hear_body(got.body)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_structured_call_becomes_one_of_the_clients_tools(gateway, upstream, client, streamed):
    upstream.script = (native if streamed else whole)(EDITOR, json.dumps(REPLACE))
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor")
    told = heard(await ask(client, running.url, request(streamed=streamed)), streamed)
    sent = [each["function"]["name"] for each in upstream.requests[0].json["tools"]]
    assert sent == [EDITOR, "bash"]
    [call] = told.calls
    assert (told.content, told.finish, call["id"], call["name"]) == ("I will edit.", "tool_calls", "toolu_1", "edit")
    assert json.loads(call["arguments"]) == {"filePath": "a.py", "oldString": "x = 1", "newString": "x = 2"}
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_mapped_calls_total{result="translated"} 1.0' in exposition


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("model", ["claude-x", "some-model", "qwen3-coder"])
async def test_one_call_of_the_model_may_be_several_of_the_client(gateway, upstream, client, streamed, model):
    arguments = json.dumps({"input": PATCH})
    written = f"<apply_patch>\n<input>{PATCH}</input>\n</apply_patch>"
    by_text = model == "qwen3-coder"
    if by_text:
        upstream.script = (
            stream(text(written), event(finish="stop"), DONE) if streamed else answer_json(completion(written))
        )
    else:
        upstream.script = (native if streamed else whole)("apply_patch", arguments)
    running = await gateway(upstream.url, TOOL_MAP="apply_patch")
    told = heard(await ask(client, running.url, request(streamed=streamed, model=model)), streamed)
    assert [(each["name"], json.loads(each["arguments"])["filePath"]) for each in told.calls] == [
        ("edit", "a.py"),
        ("edit", "b.py"),
    ]
    first, second = (each["id"] for each in told.calls)
    assert second == f"{first}_2of2"
    history = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": each["id"],
                    "type": "function",
                    "function": {"name": each["name"], "arguments": each["arguments"]},
                }
                for each in told.calls
            ],
        },
        *({"role": "tool", "tool_call_id": each["id"], "content": "done"} for each in told.calls),
    ]
    await ask(client, running.url, request(streamed=streamed, model=model, messages=history))
    shown = json.dumps(upstream.requests[-1].json["messages"])
    assert "*** Begin Patch" in shown
    assert "oldString" not in shown


@pytest.mark.parametrize("streamed", [True, False])
async def test_what_cannot_be_told_exactly_goes_back_to_the_model(gateway, upstream, client, streamed, log):
    undo = json.dumps({"command": "undo_edit", "path": "a.py"})
    upstream.script = in_turn((native if streamed else whole)(EDITOR, undo), whole(EDITOR, json.dumps(REPLACE)))
    running = await gateway(upstream.url, TOOL_MAP="*=claude_text_editor")
    told = heard(await ask(client, running.url, request(streamed=streamed)), streamed)
    assert [(call["name"], json.loads(call["arguments"])["newString"]) for call in told.calls] == [("edit", "x = 2")]
    assert told.content == "I will edit."
    *_, asked, result = upstream.requests[1].json["messages"]
    assert asked["tool_calls"][0]["function"]["name"] == EDITOR
    assert (result["role"], result["tool_call_id"]) == ("tool", asked["tool_calls"][0]["id"])
    assert result["content"].startswith("Error: ")
    assert "`str_replace`" in result["content"]
    assert (await log.record("request_repaired"))["reason"] == "untranslatable"


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_that_stays_untranslatable_is_left_for_the_client_to_refuse(gateway, upstream, client, streamed):
    undo = json.dumps({"command": "undo_edit", "path": "a.py"})
    upstream.script = in_turn((native if streamed else whole)(EDITOR, undo), whole(EDITOR, undo))
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor")
    told = heard(await ask(client, running.url, request(streamed=streamed)), streamed)
    assert [(call["name"], call["arguments"]) for call in told.calls] == [(EDITOR, undo)]
    assert len(upstream.requests) == 2
    exposition = (await get(client, f"{running.url}/metrics")).body.decode()
    assert 'toolgate_mapped_calls_total{result="refused"} 1.0' in exposition


async def test_text_that_cannot_be_translated_is_asked_for_again(gateway, upstream, client):
    wrong = f"<{EDITOR}>\n<command>view</command>\n<path>a.py</path>\n<view_range>[5, 2]</view_range>\n</{EDITOR}>"
    right = f"<{EDITOR}>\n<command>view</command>\n<path>a.py</path>\n</{EDITOR}>"
    upstream.script = in_turn(stream(text(wrong), event(finish="stop"), DONE), answer_json(completion(right)))
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor", STRATEGY_RULES="*=xml_prompt")
    told = hear_stream((await ask(client, running.url, request())).body)
    assert [call["name"] for call in told.calls] == ["read"]
    assert "cannot be carried out" in json.dumps(upstream.requests[1].json["messages"][-1])


async def test_a_client_that_takes_one_call_at_a_time_is_given_one(gateway, upstream, client):
    upstream.script = in_turn(
        native("apply_patch", json.dumps({"input": PATCH})), whole("apply_patch", json.dumps({"input": PATCH}))
    )
    running = await gateway(upstream.url, TOOL_MAP="apply_patch")
    told = hear_stream((await ask(client, running.url, request(parallel_tool_calls=False))).body)
    assert "one change" in upstream.requests[1].json["messages"][-1]["content"]
    assert [call["name"] for call in told.calls] == ["apply_patch"]


async def test_models_without_a_mapping_see_the_clients_tools(gateway, upstream, client, tmp_path):
    upstream.script = stream(text("hello"), event(finish="stop"), DONE)
    config = tmp_path / "toolgate.toml"
    config.write_text(f'upstream_url = "{upstream.url}"\n[[models]]\nmatch = "claude-y"\ntool_map = "none"\n')
    running = await gateway(None, GATEWAY_CONFIG=str(config), TOOL_MAP="claude*=claude_text_editor")
    for model in ("gpt-5", "claude-y"):
        body = request(model=model)
        await ask(client, running.url, body)
        assert upstream.requests[-1].json == body
    await ask(client, running.url, request(model="anthropic/claude-x"))
    assert upstream.requests[-1].json["tools"][0]["function"]["name"] == EDITOR
    plain = chat(model="claude-x")
    await ask(client, running.url, plain)
    assert upstream.requests[-1].json == plain


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_name_of_a_structured_call_is_repaired_where_it_is_certain(gateway, upstream, client, streamed):
    running = await gateway(upstream.url, TOOL_ALIASES="open_it=read,do_it=bash")
    for given, meant in (("Read", "read"), ("open_it", "read"), ("do_it", "do_it"), ("BASH", "bash"), ("rm", "rm")):
        upstream.script = (native if streamed else whole)(given, '{"filePath": "a"}')
        told = heard(await ask(client, running.url, request(streamed=streamed, model="gpt-5")), streamed)
        assert [call["name"] for call in told.calls] == [meant]


async def test_a_cut_call_is_never_told(gateway, upstream, client):
    arguments = json.dumps(REPLACE)
    call = {"index": 0, "id": "toolu_1", "function": {"name": EDITOR, "arguments": arguments[:-5]}}
    upstream.script = stream(event({"tool_calls": [call]}), event(finish="length"), DONE)
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor")
    told = hear_stream((await ask(client, running.url, request())).body)
    assert (told.finish, [each["name"] for each in told.calls]) == ("length", [EDITOR])
    assert len(upstream.requests) == 1


def edit_call(arguments=None):
    function = {"name": EDITOR, "arguments": json.dumps(REPLACE) if arguments is None else arguments}
    return event({"role": "assistant", "tool_calls": [{"index": 0, "id": "toolu_1", "function": function}]})


async def test_a_call_is_told_when_the_server_names_no_finish(gateway, upstream, client):
    upstream.script = stream(edit_call(), DONE)
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor")
    told = hear_stream((await ask(client, running.url, request())).body)
    assert ([call["name"] for call in told.calls], told.finish) == (["edit"], "tool_calls")


@pytest.mark.parametrize("again", ["tool_calls", "stop"])
async def test_a_call_is_told_once_when_the_server_finishes_twice(gateway, upstream, client, again):
    upstream.script = stream(edit_call(), event(finish="tool_calls"), event(finish=again), DONE)
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor")
    got = await ask(client, running.url, request())
    pieces = [call for chunk in got.chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    begun = [call for call in pieces if "id" in call]
    assert [call["function"]["name"] for call in begun] == ["edit"]
    assert got.is_done


async def test_a_choice_that_nobody_asked_for_is_refused_beside_a_mapped_call(gateway, upstream, client):
    chunk = json.loads(edit_call().removeprefix(b"data: "))
    chunk["choices"].insert(0, {"index": 1, "delta": {"content": "or not"}, "finish_reason": None})
    both = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    upstream.script = stream(both, event(finish="tool_calls"), DONE)
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor")
    got = await ask(client, running.url, request(model="gpt-5"))
    assert hear_stream(got.body).calls == []
    assert b"upstream_bad_reply" in got.body
    assert b"or not" not in got.body
