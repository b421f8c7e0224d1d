"""What opens like a call of a dialect and is none: its text comes back whole, and the note says why."""

import json
from typing import Any

import pytest

from gateway.core.tools import Tool, ToolSet
from tests.support.reading import INTEGER, STRING, read, read_every_way, tool

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
