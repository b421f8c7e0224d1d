"""What opens like a call of a dialect and is none: its text comes back whole, and the note says why."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.events import Text
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.reading.factory import reader_factory
from tests.support.reading import AGENT_TOOLS, INTEGER, STRING, read, read_every_way, tool

PYTHON = ToolSet([tool("python", "code")])

COUNT = ToolSet([tool("python", "n", n=INTEGER)])

SAVE = ToolSet(
    [tool("save", "path", line=INTEGER, extra={"type": "object"}, tags={"type": "array", "items": STRING})],
)

CODE = "<|channel|>commentary to=functions.python code<|message|>x = 1"

INTERPRETER = "<|action_start|><|interpreter|>\nx = 1"

LEGACY, LEGACY_END = "<function_calls>\n<invoke>\n", "</invoke>\n</function_calls>"

FLOWER = "✿FUNCTION✿: "

GEMMA, GEMMA_END = "<|tool_call>call:save{", "}<tool_call|>"

SHELL = {"recovery_shell": True, "min_confidence": 80}

REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "harmony: code for nobody": (CODE, "unknown_tool", {}),
    "harmony: code for a tool that takes a number": (CODE, "no arguments", {"tools": COUNT}),
    "harmony: code that was cut": (CODE, "cut", {"tools": PYTHON, "reason": "length"}),
    "hermes: a comment that never ends": (
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n<!-- never ends',
        "comment never ends",
        {},
    ),
    "hermes: words behind a mended object": (
        '<tool_call>\n{"name": "read", "arguments": {\'filePath\': \'/a"b\'}} and more\n</tool_call>',
        "text after the object",
        {},
    ),
    "internlm: code that was cut": (INTERPRETER, "cut", {"tools": PYTHON, "reason": "length"}),
    "invoke: another element than the name": (f"{LEGACY}<tool>read</tool>{LEGACY_END}", "no name", {}),
    "invoke: a name that is not closed": (f"{LEGACY}<tool_name>read</name>{LEGACY_END}", "no name", {}),
    "invoke: nobody's name": (
        f"{LEGACY}<tool_name>nobody</tool_name>\n<parameters>\n</parameters>\n{LEGACY_END}",
        "unknown tool",
        {},
    ),
    "invoke: words in the place of the parameters": (
        f"{LEGACY}<tool_name>read</tool_name>\nthe file /a{LEGACY_END}",
        "no parameters",
        {},
    ),
    "json: a list that holds more than objects": (
        '```json\n[{"name": "read", "arguments": {"filePath": "/a"}}, 3]\n```',
        "no object",
        {},
    ),
    "llama: a built-in's call that breaks off": ("<|python_tag|>search.call(query=", "not a plain value", {}),
    "llama: a built-in's call in an expression": (
        '<|python_tag|>search.call(query="x") + 1',
        "text behind a call",
        {},
    ),
    "llama: a built-in's call and another's": (
        '<|python_tag|>search.call(query="x"); os.remove(path="y")',
        "not a built-in's call",
        {},
    ),
    "functionary: code that was cut": (">>>python\nx = 1", "cut", {"tools": PYTHON, "reason": "length"}),
    "qwen3_coder: half an opener": ("<tool_call>\nfunction=read\n<parameter=x>\n", "no function inside", {}),
    "qwen_agent: code for a tool that takes none": (
        f"{FLOWER}read\n✿ARGS✿: ```\nx\n```",
        "code for a tool that takes none",
        {},
    ),
    "qwen_agent: code that never ends": (f"{FLOWER}bash\n✿ARGS✿: ```sh\nls", "fence is not closed", {}),
    "qwen_agent: a comment that never ends": (
        f'{FLOWER}bash\n✿ARGS✿: {{"command": "ls"}} <!-- x',
        "comment never ends",
        {},
    ),
    "qwen_agent: a name at a cut": (f"{FLOWER}todoread", "cut", {"reason": "length"}),
    "python: a member without its colon": ('[read(filePath={"a" 1})]', "missing colon", {}),
    "python: a member twice": ('[read(filePath={"a": 1, "a": 2})]', "`a` is given twice", {}),
    "python: no number": ('[bash(command="ls", timeout=1.2.3)]', "not a number", {}),
    "python: a constructor with a position": (
        '```tool_code\nread(filePath=Path("a"))\n```',
        "not a plain value",
        {},
    ),
    "harmony: a header without end": ("<|channel|>" * 14 + "x", "no header", {}),
    "gemma: half a character": (f'{GEMMA}path:"a\\ud83d"{GEMMA_END}', "JSON: surrogate", {"tools": SAVE}),
    "glm: a schema below the tool's name": (
        'read\n{"type": "object", "properties": {"filePath": {"type": "string"}}}',
        "no arguments of this tool",
        {},
    ),
    "function: words in the place of a parameter": ("<function=list>\n< b\n</function>", "no parameter", {}),
    "function: an empty parameter at a cut": (
        "<function=list>\n<parameter=path/>\n",
        "cut",
        {"reason": "length"},
    ),
    "tag: an empty parameter at a cut": ("<list><path/>\n", "cut", {"reason": "length"}),
    "tag: closed by another": ("<list><path/></foo>", "not closed", {}),
    "glm: a key of nobody": (
        "<tool_call>nobody</arg_key><arg_value>/a</arg_value></tool_call>",
        "no name",
        {},
    ),
    "gemma: a parameter twice": (f'{GEMMA}path:<|"|>a<|"|>,path:<|"|>b<|"|>{GEMMA_END}', "`path` is given twice", {}),
    "gemma: a member twice": (
        f'{GEMMA}path:<|"|>a<|"|>,extra:{{k:1,k:2}}{GEMMA_END}',
        "`k` is given twice",
        {},
    ),
    "gemma: a bare word beyond all bounds": (f"{GEMMA}path:{'x' * 5000}{GEMMA_END}", "value not closed", {}),
    "gemma: a JSON string that never ends": (f'{GEMMA}path:"a', "value not closed", {}),
    "function: names as text, and nobody's": (
        "<function=write>\n<parameter>nobody</parameter> a\n<parameter>content</parameter> x\n</function>",
        "not closed",
        {},
    ),
    "function: names as text, and no end": (
        "<function=write>\n<parameter>filePath</parameter> a\n<parameter>content</parameter> x < y",
        "value not closed",
        {},
    ),
    "tag: JSON that cannot be mended": (
        '<read>{"filePath": "/a" "limit"}</read>',
        "missing comma or closing brace",
        {},
    ),
    "tag: YAML whose document never ends": (
        "<write>\nfilePath: a.py\ncontent: |\n  x\n",
        "value not closed",
        {},
    ),
    "tag: short words without end": (
        f"<read>{''.join(f'<x{number}>a</x{number}>' for number in range(12))}<filePath>/a</filePath></read>",
        "no parameter of this tool",
        {},
    ),
    "tag: below its name, cut": ("read\n<filePath>/a</filePath>\n", "cut", {"reason": "length"}),
    "shell: a tool that takes no command": (
        "I'll look.\n\n```bash\nls -la\n```",
        "no parameter for a command",
        {"tools": ToolSet([tool("bash", "text")]), **SHELL},
    ),
}


@pytest.mark.parametrize(("text", "reason", "how"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_call_stays_text(text: str, reason: str, how: dict[str, Any]) -> None:
    found = read_every_way(text, **how)
    assert found.calls == []
    assert found.text == text
    assert reason in [given for note in found.notes for given in note]


ACCEPTED: dict[str, tuple[str, list[Tool], dict[str, Any]]] = {
    "harmony: code": (CODE, [tool("python", "code")], {"code": "x = 1"}),
    "internlm: code without its closer": (INTERPRETER, [tool("python", "code")], {"code": "x = 1"}),
    "deepseek: no arguments": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>stop<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [tool("stop")],
        {},
    ),
    "functionary: a name and the end of the message": (
        'read\n{"path": "/a"} <|eot_id|>',
        [tool("read", "path")],
        {"path": "/a"},
    ),
    "gemma: a number beyond all bounds is a text": (
        f"{GEMMA}path:a,extra:{{n:1e99999}}{GEMMA_END}",
        [*SAVE],
        {"path": "a", "extra": {"n": "1e99999"}},
    ),
    "gemma: an object without quotes": (
        "call:save{extra:{a:1},path:b}",
        [*SAVE],
        {"extra": {"a": 1}, "path": "b"},
    ),
    "json: a comment that the answer's end ends": (
        '```json\n{"name": "read", "arguments": {"path": "/a"}}\n// as asked',
        [tool("read", "path")],
        {"path": "/a"},
    ),
    "tag: a space in a closer": ("<read><path>a</path ></read >", [tool("read", "path")], {"path": "a"}),
    "gemma: lists and numbers without quotes": (
        "call:save{tags:[x,y],path:a,line:3}",
        [*SAVE],
        {"tags": ["x", "y"], "path": "a", "line": 3},
    ),
    "kimi_k3: a call before another section": (
        '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>a'
        "<|close|>argument<|sep|><|close|>call<|sep|><|open|>message<|sep|>",
        [tool("read", "path")],
        {"path": "a"},
    ),
    "python: comments around a call": (
        '```tool_code\n# look first\n# then read\nread(path="a")\n# done\n```',
        [tool("read", "path")],
        {"path": "a"},
    ),
    "qwen_agent: code for a tool that runs some": (
        f"{FLOWER}bash\n✿ARGS✿: ```sh\nls\n```",
        [tool("bash", "command")],
        {"command": "ls"},
    ),
    "shell: a list of commands": (
        "I'll look.\n\n```bash\nls -la\n```",
        [tool("bash", "commands", commands={"type": "array", "items": STRING})],
        {"commands": ["ls -la"]},
    ),
    "tag: YAML without a value": ("<show>\nname:\n</show>", [tool("show", "name")], {"name": ""}),
    "tag: a name in another spelling": (
        "<tool_use>\n<name>Read</name>\n<path>a</path>\n</tool_use>",
        [tool("read", "path")],
        {"path": "a"},
    ),
    "tag: a document below the tool's name": (
        "write\n<path>a</path>\n<content>\nx\n</content>\n",
        [tool("write", "path", "content")],
        {"path": "a", "content": "x"},
    ),
}


@pytest.mark.parametrize(("text", "tools", "arguments"), ACCEPTED.values(), ids=ACCEPTED)
def test_an_unusual_form_is_read(text: str, tools: list[Tool], arguments: dict[str, Any]) -> None:
    how = SHELL if text.startswith("I'll") else {}
    found = read_every_way(text, tools=ToolSet(tools), **how)
    assert [(name, json.loads(given)) for name, given in found.calls] == [(tools[0].name, arguments)]


@pytest.mark.parametrize("lost", ["<arg_key><arg_key>", "<arg_key>\n<arg_key>"])
def test_a_doubled_key_tag_costs(lost: str) -> None:
    """GLM: a tag that stands twice is a mend like one that is missing."""
    plain = "<tool_call>read\n<arg_key>filePath</arg_key>\n<arg_value>/a</arg_value>\n</tool_call>"
    doubled = read_every_way(plain.replace("<arg_key>", lost))
    assert doubled.calls == read_every_way(plain).calls != []
    assert doubled.scores < read_every_way(plain).scores


def test_another_spelling_of_the_name_costs() -> None:
    mended = read_every_way("<tool_use>\n<name>Read</name>\n<filePath>/a</filePath>\n</tool_use>")
    plain = read_every_way("<tool_use>\n<name>read</name>\n<filePath>/a</filePath>\n</tool_use>")
    assert mended.calls == plain.calls
    assert mended.scores < plain.scores


@pytest.mark.parametrize(
    "text",
    [
        "<function=list>\n<parameter=path/>\n<parameter=path/>\n</function>",
        '<function_calls><invoke name="list">' + '<parameter name="path"/>' * 2 + "</invoke></function_calls>",
        "<list><path/><path/></list>",
    ],
)
def test_an_empty_parameter_given_twice_breaks_a_call_that_flows(text: str) -> None:
    """What was streamed cannot be taken back, and two of a name are no arguments."""
    assert read_every_way(text).calls == [("list", '{"path":""}')]
    flowed = read(text, reasoned=True, stream_arguments="incremental")
    assert (flowed.calls, flowed.broken) == ([], ["parameter given twice"])


@pytest.mark.parametrize("form", ["default_api.{}", "print(default_api.{})"])
def test_bare_calls_of_the_own_prefix_follow_each_other(form: str) -> None:
    text = "\n".join(form.format(f'read(filePath="{path}")') for path in ("/a", "/b"))
    found = read_every_way(text)
    assert found.calls == [("read", '{"filePath":"/a"}'), ("read", '{"filePath":"/b"}')]
    assert set(found.dialects) == {"tool_code"}


# --- Calls without markers of their own: what is held, when it is let go, what work it costs, and which settings
# apply.


JSON = '{"name": "read", "arguments": {"filePath": "/a"}}'

PATCHING = ToolSet([*AGENT_TOOLS, tool("apply_patch", "patchText")])


def shown(parts: list[str], **options) -> str:
    """What has gone out as text once these parts have come, before the end."""
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(**options), model="")()
    events = [event for part in parts for event in reader.feed(part)]
    return "".join(event.raw for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ('{"version": 1, ', '{"version": 1, '),
        ('{\n  "dependencies": {', '{\n  "dependencies": {'),
        ('{"name": "left-pad", ', '{"name": "left-pad", '),
        ("[1, 2", "[1, 2"),
        ("[docs](x", "[docs](x"),
        ("{ read,", "{ read,"),
        ("Action: hire ", "Action: hire "),
    ],
)
def test_what_is_refuted_goes_out_at_once(text, out):
    assert shown(list(text)) == out


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "re',
        '{"name": "read", "arguments": {"filePath": "/a',
        "[read(file",
        'read(filePath="x',
        "Action: read\n",
    ],
)
def test_what_may_become_a_call_is_held(text):
    assert shown(list(f"So.\n{text}")).rstrip() == "So."


def test_a_document_behind_the_first_key_is_not_held():
    assert shown(['{"compilerOptions": {', '"name": "read", "arguments": {}']) == (
        '{"compilerOptions": {"name": "read", "arguments": {}'
    )


@pytest.mark.parametrize(
    "text",
    [JSON, f"```json\n{JSON}\n```", f"[{JSON}]", '[read(filePath="/a")]', 'default_api.read(filePath="/a")'],
)
def test_recovery_of_json_can_be_switched_off(text):
    def calls(prompted: str | None, *, restricted: bool) -> int:
        make = reader_factory(
            tools=AGENT_TOOLS,
            options=Options(recovery_json=False),
            model="",
            prompted=prompted,
            restricted=restricted,
        )
        reader = make()
        events = [*reader.feed(text), *reader.finish("stop")]
        return sum(type(event).__name__ == "End" for event in events)

    assert calls(None, restricted=True) == 0
    assert calls(None, restricted=False) == 1


def test_scores_tell_where_the_call_stood():
    assert read(f"```tool_call\n{JSON}\n```").scores == [95]
    assert read(f"```tool_call\n{JSON}\n```", confidence_json_block=91).scores == [91]
    assert read(f"```json\n{JSON}\n```").scores == [92]
    assert read(JSON).scores == [92]
    assert read(f"{JSON}\nand so on", min_confidence=70).scores == [70]
    assert read(JSON, prompted="json_bare").scores == [99]
    assert read(f"{JSON}\nand so on", prompted="json_bare").calls == []


def test_the_second_unknown_argument_leaves_bare_json_below_the_threshold():
    text = '{"name": "read", "arguments": {"filePath": "/a", "colour": "red"}}'
    assert read(text).calls == [("read", '{"filePath":"/a","colour":"red"}')]
    text = '{"name": "read", "arguments": {"filePath": "/a", "colour": "red", "mood": "blue"}}'
    assert read(text).calls == []
    assert read(text, min_confidence=88).calls == [("read", '{"filePath":"/a","colour":"red","mood":"blue"}')]


def test_another_family_is_off_once_a_call_was_made():
    text = f"<read><filePath>/x</filePath></read>\n{JSON}"
    assert [name for name, _ in read_every_way(text).calls] == ["read"]


def test_an_object_behind_a_refused_marker_is_not_bare():
    assert read_every_way(f"<tool_call>\n{JSON}", reason="length").calls == []


def test_nesting_is_bounded():
    deep = '{"name": "read", "arguments": ' + '{"a":' * 80 + "1" + "}" * 81
    assert read_every_way(deep, splits=10).calls == []
    assert read_every_way('[read(filePath="a", x=' + "[" * 80 + "]" * 80 + ")]", splits=10).calls == []


def test_a_call_of_another_name_than_declared_is_text():
    for text in (f"```json\n{JSON}\n```", JSON, '[read(filePath="/a")]', "Action: read\nAction Input: /a"):
        assert read(text.replace("read", "zap")).calls == []


def test_an_unclosed_comment_swallows_nothing():
    for text in (f"{JSON} <!-- and\nthen", '✿FUNCTION✿: list\n✿ARGS✿: {"path": "."} <!-- and\nthen'):
        found = read_every_way(text)
        assert found.calls == []
        assert found.text == text


@pytest.mark.parametrize("key", ["command", "cmd", "script"])
def test_react_takes_a_text_for_the_only_required_parameter(key):
    tools = ToolSet([tool("run", key)])
    found = read_every_way("Action: run\nAction Input: ls -la\nObservation: x", tools=tools)
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == [("run", {key: "ls -la"})]


def test_react_reads_pairs_of_a_tool_with_several_parameters():
    found = read_every_way('Action: read\nAction Input: filePath="/a", limit=2\nThought: ok')
    assert found.calls == [("read", '{"filePath":"/a","limit":2}')]


def test_a_placeholder_is_found_in_bounded_time():
    value = "<your" + " a" * 30 + "!"
    assert read(JSON.replace("/a", value)).calls


def work(text: str, **how) -> int:
    """How many calls of functions reading costs."""
    count = 0

    def hook(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(hook)
    try:
        read([text[at : at + 64] for at in range(0, len(text), 64)], tools=PATCHING, recovery_shell=True, **how)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "id": 17',
        '{"id": 10',
        '{"type": "object"',
        '{"type": "message"',
        '{"index": 3, "title"',
        '[\n  {"title"',
        '{"items": [\n  {"n',
        '{"thought": "x", "answer',
    ],
)
def test_an_object_is_text_as_soon_as_it_can_be_no_call(text: str) -> None:
    assert shown([text]) == text


@pytest.mark.parametrize(
    "head",
    ['"id": "call_1", ', '"id": 1, ', '"index": 0, ', '"type": "function", ', '"type": "tool_use", "id": "x y", ', ""],
)
def test_what_calls_are_numbered_and_named_by_makes_no_record_of_one(head: str) -> None:
    text = "{" + head + JSON[1:]
    assert not shown([text[:-1]])
    assert read_every_way(text).calls == read_every_way(JSON).calls != []


HOSTILE: dict[str, Callable[[int], str]] = {
    "braces": lambda size: "{\n" * size,
    "brackets": lambda size: "[\n" * size,
    "lists": lambda size: "[{\n" * size,
    "names": lambda size: '{"name": "read",\n' * size,
    "open objects": lambda size: '{"name": "read", "arguments": {\n' * size,
    "objects": lambda size: (JSON + "\n") * size,
    "refused objects": lambda size: (JSON + "\nx\n") * size,
    "fences": lambda size: f"```json\n{JSON}\n```\n" * size,
    "refused fences": lambda size: f"```json\n{JSON}\n```\nx\n" * size,
    "one open fence": lambda size: "```json\n" + (JSON + "\n") * size,
    "open calls": lambda size: "read(\n" * size,
    "open lists of calls": lambda size: "[read(\n" * size,
    "refused calls": lambda size: 'read(filePath="a")\nx\n' * size,
    "open quotes": lambda size: "read(filePath='" + "it's " * size,
    "tool code": lambda size: "<tool_code>\n" * size,
    "actions": lambda size: "Action: read\n" * size,
    "open inputs": lambda size: 'Action: bash\nAction Input: {"command": "ls"\n' * size,
    "flowers": lambda size: "✿FUNCTION✿: read\n✿ARGS✿: {" * size,
    "heredocs": lambda size: "Let me see.\n```bash\n" + "cat <<A <<B\n" * size,
    "shell fences": lambda size: "Let me see.\n```bash\nls\n```\n" * size,
    "substitutions": lambda size: "Let me see.\n```bash\nls " + "$(ls " * size,
    "patches": lambda size: "*** Begin Patch\n*** Add File: a\n" * size,
    "ends of reasoning": lambda size: "</think>[" * size,
    "comments": lambda size: JSON + " /* */" * size,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_costs_linear_work(name):
    make = HOSTILE[name]
    work(make(20))
    assert work(make(800)) < 2.6 * work(make(400)) + 2000
