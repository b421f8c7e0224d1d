"""One golden case for each row: the model's call, the client's, and the way back through the history."""

import json
from typing import Any

import pytest

from strategies.base import Refusal
from strategies.mapping.client_tools import ROWS
from strategies.mapping.mappings import MAPPINGS
from tests.support.chat import hear_body, hear_stream
from tests.support.client import ask, chat, get
from tests.support.edit_tools import CLIENTS, Surface, back, calls, schema, shown, tool
from tests.support.faulty_upstream import DONE, answer_json, completion, event, in_turn, stream, text

EDITOR = "str_replace_based_edit_tool"
ROO_BLOCK = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE"
CLINE_BLOCK = "------- SEARCH\na\n=======\nb\n+++++++ REPLACE"
WRITE = tool("write_to_file", "path* content*")

VIEW = {"command": "view", "path": "f.py"}
RANGE = {**VIEW, "view_range": [3, 7]}
OPEN = {**VIEW, "view_range": [3, -1]}
HEAD = {**VIEW, "view_range": [1, 5]}
HERE = {"command": "view", "path": "."}
DIRECTORY = {"command": "view", "path": "src/"}
CREATE = {"command": "create", "path": "f.py", "file_text": "a\nb\n"}
REPLACE = {"command": "str_replace", "path": "f.py", "old_str": "a", "new_str": "b"}
DELETE_LINE = {"command": "str_replace", "path": "f.py", "old_str": "a\n", "new_str": ""}
INSERT = {"command": "insert", "path": "f.py", "insert_line": 0, "insert_text": "x\ny\n"}

GOLDEN: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("roo", VIEW, "read_file", {"path": "f.py"}),
    ("roo", RANGE, "read_file", {"path": "f.py", "start_line": 3, "end_line": 7}),
    ("roo", OPEN, "read_file", {"path": "f.py", "start_line": 3}),
    ("roo", DIRECTORY, "list_files", {"path": "src", "recursive": False}),
    ("roo", HERE, "list_files", {"path": ".", "recursive": False}),
    ("roo", CREATE, "write_to_file", {"path": "f.py", "content": "a\nb\n", "line_count": 3}),
    ("roo", REPLACE, "apply_diff", {"path": "f.py", "diff": ROO_BLOCK}),
    ("roo", DELETE_LINE, "apply_diff", {"path": "f.py", "diff": "<<<<<<< SEARCH\na\n=======\n>>>>>>> REPLACE"}),
    ("roo", INSERT, "insert_content", {"path": "f.py", "line": 1, "content": "x\ny"}),
    ("kilo", VIEW, "read_file", {"files": [{"path": "f.py"}]}),
    ("roo_native", RANGE, "read_file", {"path": "f.py", "mode": "slice", "offset": 3, "limit": 5}),
    ("roo_native", VIEW, "read_file", {"path": "f.py", "mode": "slice", "offset": None, "limit": None}),
    ("roo_native", REPLACE, "search_replace", {"file_path": "f.py", "old_string": "a", "new_string": "b"}),
    ("cline", VIEW, "read_file", {"path": "f.py"}),
    ("cline", REPLACE, "replace_in_file", {"path": "f.py", "diff": CLINE_BLOCK}),
    ("cline_sdk", RANGE, "read_files", {"files": [{"path": "f.py", "start_line": 3, "end_line": 7}]}),
    ("cline_sdk", VIEW, "read_files", {"files": [{"path": "f.py"}]}),
    ("cline_sdk", REPLACE, "editor", {"path": "f.py", "old_text": "a", "new_text": "b"}),
    ("cline_sdk", INSERT, "editor", {"path": "f.py", "insert_line": 1, "new_text": "x\ny"}),
    ("cline_sdk", CREATE, "editor", {"path": "f.py", "new_text": "a\nb\n"}),
    ("opencode", VIEW, "read", {"filePath": "f.py"}),
    ("opencode", RANGE, "read", {"filePath": "f.py", "offset": 3, "limit": 5}),
    ("opencode", OPEN, "read", {"filePath": "f.py", "offset": 3}),
    ("opencode", HEAD, "read", {"filePath": "f.py", "limit": 5}),
    ("opencode", CREATE, "write", {"filePath": "f.py", "content": "a\nb\n"}),
    ("opencode", REPLACE, "edit", {"filePath": "f.py", "oldString": "a", "newString": "b", "replaceAll": False}),
    ("opencode_old", RANGE, "read", {"filePath": "f.py", "offset": 2, "limit": 5}),
    ("opencode_old", DIRECTORY, "list", {"path": "src"}),
    ("qwen", VIEW, "read_file", {"file_path": "f.py"}),
    ("qwen", DIRECTORY, "list_directory", {"path": "src"}),
    ("qwen", CREATE, "write_file", {"file_path": "f.py", "content": "a\nb\n"}),
    (
        "qwen",
        REPLACE,
        "edit",
        {"file_path": "f.py", "old_string": "a", "new_string": "b", "replace_all": False},
    ),
    ("claude", RANGE, "Read", {"file_path": "f.py", "offset": 3, "limit": 5}),
    ("claude", CREATE, "Write", {"file_path": "f.py", "content": "a\nb\n"}),
    ("claude", REPLACE, "Edit", {"file_path": "f.py", "old_string": "a", "new_string": "b", "replace_all": False}),
    ("pi", REPLACE, "edit", {"path": "f.py", "edits": [{"oldText": "a", "newText": "b"}]}),
]

ALONE: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # a tool that no client above has, the model's call, the arguments
    (
        tool("read_file", "files*:array"),
        RANGE,
        {"files": [{"path": "f.py", "line_ranges": [[3, 7]]}]},
    ),
    (tool("Read", "filepath*"), VIEW, {"filepath": "f.py"}),
    (tool("List", "dirpath*"), DIRECTORY, {"dirpath": "src"}),
    (tool("LS", "path*"), DIRECTORY, {"path": "src"}),
    (
        tool("edit", "file_path* old_string* new_string* replace_all:boolean"),
        REPLACE,
        {"file_path": "f.py", "old_string": "a", "new_string": "b", "replace_all": False},
    ),
    (
        tool("edit_file", "file_path* old_string* new_string* expected_replacements:number"),
        REPLACE,
        {"file_path": "f.py", "old_string": "a", "new_string": "b", "expected_replacements": 1},
    ),
    (
        tool("replace", "file_path* old_string* new_string*"),
        REPLACE,
        {"file_path": "f.py", "old_string": "a", "new_string": "b"},
    ),
]


def history(name: str, arguments: object) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ]


def check(client: Surface, mapping: str, model: dict[str, Any], name: str, arguments: dict[str, Any]) -> None:
    assert calls(back(client.mapped(mapping), model)) == [(name, arguments)]
    mapped = client.mapped(mapping, history(name, arguments))
    (call,) = mapped.request.messages[1]["tool_calls"]
    assert call["function"]["name"] == mapped.surface.name
    assert calls(mapped.back(call["function"]["name"], call["function"]["arguments"])) == [(name, arguments)]
    assert json.loads(call["function"]["arguments"]) == model


@pytest.mark.parametrize(("client", "model", "name", "arguments"), GOLDEN)
def test_text_editor(client: str, model: dict[str, Any], name: str, arguments: dict[str, Any]) -> None:
    check(CLIENTS[client], "claude_text_editor", model, name, arguments)


@pytest.mark.parametrize(("declared", "model", "arguments"), ALONE, ids=[row[0]["function"]["name"] for row in ALONE])
def test_a_tool_on_its_own(declared: dict[str, Any], model: dict[str, Any], arguments: dict[str, Any]) -> None:
    check(Surface((declared, WRITE), {}), "claude_text_editor", model, declared["function"]["name"], arguments)


PATCH = "*** Begin Patch\n*** Update File: f.py\n@@\n-a\n+b\n*** End Patch"
TWO = "*** Begin Patch\n*** Update File: f.py\n@@\n x\n-a\n+b\n@@\n-c\n*** End Patch"
ADD = "*** Begin Patch\n*** Add File: f.py\n+a\n+\n*** End Patch"
DELETE = "*** Begin Patch\n*** Delete File: f.py\n*** End Patch"
PATCHES: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [
    ("roo", PATCH, [("apply_diff", {"path": "f.py", "diff": ROO_BLOCK})]),
    (
        "roo",
        TWO,
        [
            (
                "apply_diff",
                {
                    "path": "f.py",
                    "diff": "<<<<<<< SEARCH\nx\na\n=======\nx\nb\n>>>>>>> REPLACE\n\n"
                    "<<<<<<< SEARCH\nc\n=======\n>>>>>>> REPLACE",
                },
            )
        ],
    ),
    ("roo", ADD, [("write_to_file", {"path": "f.py", "content": "a\n\n", "line_count": 3})]),
    ("kilo", DELETE, [("delete_file", {"path": "f.py"})]),
    ("cline", PATCH, [("replace_in_file", {"path": "f.py", "diff": CLINE_BLOCK})]),
    ("opencode", ADD, [("write", {"filePath": "f.py", "content": "a\n\n"})]),
    (
        "opencode",
        TWO,
        [
            ("edit", {"filePath": "f.py", "oldString": "x\na\n", "newString": "x\nb\n", "replaceAll": False}),
            ("edit", {"filePath": "f.py", "oldString": "c\n", "newString": "", "replaceAll": False}),
        ],
    ),
    ("pi", PATCH, [("edit", {"path": "f.py", "edits": [{"oldText": "a\n", "newText": "b\n"}]})]),
    (
        "claude",
        PATCH,
        [("Edit", {"file_path": "f.py", "old_string": "a\n", "new_string": "b\n", "replace_all": False})],
    ),
]


@pytest.mark.parametrize(("client", "patch", "expected"), PATCHES)
def test_patches(client: str, patch: str, expected: list[tuple[str, dict[str, Any]]]) -> None:
    surface = CLIENTS[client]
    found = surface.mapped("apply_patch").back("apply_patch", json.dumps({"input": patch}))
    assert calls(found) == expected
    assert not isinstance(found, tuple) or [call.number for call in found] == list(range(1, len(expected) + 1))
    past = [
        {
            "id": call.id("call_1"),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in (found if isinstance(found, tuple) else ())
    ]
    mapped = surface.mapped("apply_patch", [{"role": "assistant", "content": None, "tool_calls": past}])
    (call,) = mapped.request.messages[0]["tool_calls"]
    assert (call["id"], json.loads(call["function"]["arguments"])) == ("call_1", {"input": patch})


def test_every_row_has_a_golden_case() -> None:
    covered = {(name, frozenset(arguments)) for _, _, name, arguments in GOLDEN}
    covered |= {(tool["function"]["name"], frozenset(arguments)) for tool, _, arguments in ALONE}
    covered |= {(name, frozenset(arguments)) for _, _, expected in PATCHES for name, arguments in expected}
    missing = [
        (row.client, row.name)
        for row in ROWS
        if not any(name == row.name and (not row.path or set(row.path) & keys) for name, keys in covered)
    ]
    assert missing == []


# --- what the model is shown -----------------------------------------------------------------------------------------


def test_tools_without_a_counterpart_stay_in_their_place() -> None:
    mapped = CLIENTS["opencode"].mapped("claude_text_editor")
    assert mapped.tools.names == ("bash", EDITOR)
    assert [entry["function"]["name"] for entry in mapped.request.body["tools"]] == ["bash", EDITOR]
    assert mapped.request.body["tools"][0] == CLIENTS["opencode"].tools[0]


def test_reading_tools_stay_beside_a_patch_tool() -> None:
    assert CLIENTS["roo"].mapped("apply_patch").tools.names == (
        "read_file",
        "list_files",
        "apply_patch",
        "insert_content",
        "execute_command",
    )


@pytest.mark.parametrize(
    ("client", "commands", "missing"),
    [
        ("roo", ["view", "create", "str_replace", "insert"], set()),
        ("cline", ["view", "create", "str_replace"], {"insert_line", "insert_text"}),
        ("pi", ["view", "create", "str_replace"], {"insert_line"}),
    ],
)
def test_the_editor_shows_what_the_client_can_do(client: str, commands: list[str], missing: set[str]) -> None:
    parameters = shown(CLIENTS[client].mapped("claude_text_editor")).parameters
    assert parameters["properties"]["command"]["enum"] == commands
    assert not missing & parameters["properties"].keys()


def test_a_client_of_lines_is_told_to_the_model() -> None:
    assert "whole lines" in shown(CLIENTS["roo"].mapped("claude_text_editor")).description
    assert "whole lines" not in shown(CLIENTS["opencode"].mapped("claude_text_editor")).description


@pytest.mark.parametrize("client", CLIENTS)
def test_the_client_is_known(client: str) -> None:
    expected = {"roo_native": "roo", "opencode_old": "opencode", "kilo": "roo", "cline_sdk": "cline", "pi": "opencode"}
    assert CLIENTS[client].mapped("claude_text_editor").client == expected.get(client, client)


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_same_request_gives_the_same_bytes(client: str, mapping: str) -> None:
    past = history("x", {})
    assert CLIENTS[client].mapped(mapping, past).request.raw == CLIENTS[client].mapped(mapping, past).request.raw


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_other_clients_are_left_alone(mapping: str) -> None:
    own = tool(MAPPINGS[mapping].surface.name, "input*")
    for tools in (
        (),
        (tool("get_weather", "city*"),),
        (tool("read_file", "path*"),),
        (tool("write_to_file", "path* body*"),),
        (tool("write_to_file", "path* content* approve*:boolean"),),
        (tool("edit", "filePath* oldString*"),),
        (own, *CLIENTS["opencode"].tools),
    ):
        assert MAPPINGS[mapping].of(Surface(tools, {}).request()) is None


def test_a_strict_schema_is_given_its_nulls() -> None:
    client = Surface((tool("write", "content* filePath* mode*:string?"),), {})
    assert calls(back(client.mapped("claude_text_editor"), CREATE))[0][1]["mode"] is None
    assert schema("a*:string?")["properties"]["a"]["type"] == ["string", "null"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ({"type": "function", "function": {"name": "edit"}}, {"type": "function", "function": {"name": EDITOR}}),
        ({"type": "function", "function": {"name": "bash"}}, {"type": "function", "function": {"name": "bash"}}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": n}} for n in ("edit", "bash", "write")],
                },
            },
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": n}} for n in (EDITOR, "bash")],
                },
            },
        ),
        ({"type": "allowed_tools", "allowed_tools": None}, {"type": "allowed_tools", "allowed_tools": None}),
    ],
)
def test_a_choice_by_name_is_translated(choice: Any, expected: Any) -> None:
    mapped = CLIENTS["opencode"].mapped("claude_text_editor", tool_choice=choice)
    assert mapped.request.tool_choice == mapped.request.body["tool_choice"] == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "null"}]}, True),
        ({"type": "null"}, True),
        ({"anyOf": "null"}, False),
        ({"type": "string"}, False),
        ("null", False),
    ],
)
def test_a_parameter_that_must_be_given_and_may_be_null_is_null(mode: Any, expected: bool) -> None:
    declared = tool("write", "content* filePath* mode*")
    declared["function"]["parameters"]["properties"]["mode"] = mode
    mapped = MAPPINGS["claude_text_editor"].of(Surface((declared,), {}).request())
    assert (mapped is not None) is expected


def test_both_ways_of_counting_named_at_once_name_none() -> None:
    reader = tool("read", "filePath* offset:integer limit:integer", "0-based, or is it 1-based?")
    mapped = Surface((reader, CLIENTS["opencode"].tools[2]), {}).mapped("claude_text_editor")
    assert isinstance(back(mapped, RANGE), Refusal)
    assert "view_range" not in shown(mapped).parameters["properties"]


def test_the_description_of_the_parameter_may_tell_how_lines_are_counted() -> None:
    reader = tool("read", "filePath* offset:integer limit:integer")
    reader["function"]["parameters"]["properties"]["offset"]["description"] = "Where to start (0-based)"
    mapped = Surface((reader, CLIENTS["opencode"].tools[2]), {}).mapped("claude_text_editor")
    assert calls(back(mapped, RANGE))[0][1]["offset"] == 2


# --- Over the wire: what models are sent, what their calls become, and what is refused


def declared(name, *optional, **properties):
    schema = {
        "type": "object",
        "properties": {**properties, **{name: {"type": "number"} for name in optional}},
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


STRING = {"type": "string"}
OPENCODE = [
    declared("read", "offset", "limit", filePath=STRING),
    declared("write", filePath=STRING, content=STRING),
    declared("edit", filePath=STRING, oldString=STRING, newString=STRING),
    declared("bash", command=STRING),
]
CHANGE = {"command": "str_replace", "path": "a.py", "old_str": "x = 1", "new_str": "x = 2"}
TWO_FILES = (
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
    upstream.script = (native if streamed else whole)(EDITOR, json.dumps(CHANGE))
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
    arguments = json.dumps({"input": TWO_FILES})
    written = f"<apply_patch>\n<input>{TWO_FILES}</input>\n</apply_patch>"
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
    upstream.script = in_turn((native if streamed else whole)(EDITOR, undo), whole(EDITOR, json.dumps(CHANGE)))
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
        native("apply_patch", json.dumps({"input": TWO_FILES})), whole("apply_patch", json.dumps({"input": TWO_FILES}))
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
    arguments = json.dumps(CHANGE)
    call = {"index": 0, "id": "toolu_1", "function": {"name": EDITOR, "arguments": arguments[:-5]}}
    upstream.script = stream(event({"tool_calls": [call]}), event(finish="length"), DONE)
    running = await gateway(upstream.url, TOOL_MAP="claude_text_editor")
    told = hear_stream((await ask(client, running.url, request())).body)
    assert (told.finish, [each["name"] for each in told.calls]) == ("length", [EDITOR])
    assert len(upstream.requests) == 1


def edit_call(arguments=None):
    function = {"name": EDITOR, "arguments": json.dumps(CHANGE) if arguments is None else arguments}
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
