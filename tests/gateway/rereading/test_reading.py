"""An answer that is tried: one entry for each span, tools in every vendor's form, and what was left alone."""

import json
from typing import Any

import pytest

from gateway.rereading.reading import BadTools, declared_tools, document, read, remarks, tools_in
from strategies.base import Options

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def tried(text: str, finish: str = "stop", tools: object = TOOLS) -> dict[str, Any]:
    options = Options()
    return document(read([text], tools=declared_tools(tools), options=options, model="m", prompted=None, finish=finish))


UNKNOWN = [
    '<tool_call>\n{"name": "launch_rocket", "arguments": {"x": 1}}\n</tool_call>',
    "<function=launch_rocket>\n<parameter=x>1</parameter>\n</function>",
    '<invoke name="launch_rocket">\n<parameter name="x">1</parameter>\n</invoke>',
    "<tool_call>\n<function=launch_rocket>\n<parameter=x>1</parameter>\n</function>\n</tool_call>",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_call_of_a_tool_that_was_not_offered_is_one_entry_with_its_name(text):
    (entry,) = tried(f"Now:\n{text}\n")["rejected"]
    assert (entry["name"], entry["reason"]) == ("launch_rocket", "unknown_tool")
    assert entry["sentence"] == "`launch_rocket` is not the one tool offered (read_file)"


MEANT = [
    ("<read_file>\n<path>a.py", "stop"),
    ('<tool_call>\n{"name": "read_file", "arguments": {"path": "a', "length"),
    ("<function=read_file>\n<parameter=path>a.py", "stop"),
    ('<invoke name="read_file">\n<parameter name="path">a.py', "stop"),
    ('{"name": "read_file", "arguments": {"path": "a.py"', "length"),
    ('<tool_call>\n{"name": "read_file", "arguments": [1]}\n</tool_call>', "stop"),
]


@pytest.mark.parametrize(("text", "finish"), MEANT)
def test_a_name_is_a_name_and_never_a_piece_of_markup(text, finish):
    entries = tried(text, finish)["rejected"]
    assert len(entries) == 1
    assert entries[0]["name"] in ("read_file", "")
    assert set(entries[0]) == {"name", "dialect", "score", "reasons", "reason", "sentence", "setting", "others"}


def test_two_broken_calls_are_two_entries():
    text = '<tool_call>\n{"name": "%s", "arguments": {}}\n</tool_call>\nand'
    entries = tried(text % "one" + text % "two" + text % "two")["rejected"]
    assert [each["name"] for each in entries] == ["one", "two", "two"]


def test_prose_with_a_marker_is_no_entry():
    assert tried('Write it as `<tool_call>` and mind the {"name": "Alice"} in it.')["rejected"] == []


@pytest.mark.parametrize(
    "tools",
    [
        TOOLS,
        {"tools": TOOLS, "messages": []},
        [{"name": "read_file", "description": "d", "input_schema": SCHEMA}],
        [{"functionDeclarations": [{"name": "read_file", "parameters": {**SCHEMA, "type": "OBJECT"}}]}],
        {"tools": [{"function_declarations": [{"name": "read_file", "parametersJsonSchema": SCHEMA}]}]},
        [{"type": "function", "name": "read_file", "parameters": SCHEMA}],
    ],
)
def test_tools_may_be_written_as_any_vendor_writes_them(tools):
    (tool,) = tools_in(json.dumps(tools).encode())
    assert (tool.name, tool.parameters["type"], tool.parameters["required"]) == ("read_file", "object", ["path"])


@pytest.mark.parametrize("content", [b"{", b"[1]", b'{"tools": 5}', b'"x"', b"[" * 100_000])
def test_what_holds_no_tools_says_so(content):
    with pytest.raises(BadTools):
        tools_in(content)


def left_alone(text: str, **options: object) -> list[str]:
    tools = declared_tools([*TOOLS, {"name": "bash", "input_schema": SHELL}])
    return remarks(text, tools=tools, options=Options(**options), model="m")  # type: ignore[arg-type]


def test_what_was_left_alone_on_purpose_is_said():
    assert left_alone("```bash\nls -la\n```") == [
        "a shell block was left alone: with RECOVERY_SHELL=true it is a call of `bash`"
    ]
    assert "quotation" in left_alone("> <read_file><path>a</path></read_file>")[0]
    assert left_alone("Nothing here.") == []
