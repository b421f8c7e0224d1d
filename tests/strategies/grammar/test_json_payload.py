"""JSON behind a marker: where a value that had to be mended ends, and what may not stand behind it."""

import json

import pytest

from gateway.core.tools import Tool, ToolSet
from tests.support.reading import STRING, read_every_way, tool

MENDED = """{'filePath': '/a"b'}"""
"""Its braces do not say where it ends, for a quote stands alone in a text."""
CALLS = {
    "ds_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{}",
    "kimi_k2": "<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{}",
    "harmony": "<|channel|>commentary to=functions.read <|constrain|>json<|message|>{}",
    "longcat": '<longcat_tool_call>{{"name": "read", "arguments": {}}}',
    "mistral": "[TOOL_CALLS]read{}",
    "gptme": "@read(call-1): {}",
    "functionary": ">>>read\n{}",
    "qwen_agent": "✿FUNCTION✿: read\n✿ARGS✿: {}",
}
CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@CALL
def test_a_mended_value_may_end_the_answer(call: str) -> None:
    (found,) = read_every_way(call.format(MENDED)).calls
    assert json.loads(found[1]) == {"filePath": '/a"b'}


@CALL
def test_text_behind_a_mended_value_makes_it_text(call: str) -> None:
    text = call.format(MENDED) + " is what I would write."
    found = read_every_way(text)
    assert found.calls == []
    assert found.text == text
    assert ("text after the object",) in found.notes


def test_text_before_the_closer_makes_a_mended_value_text() -> None:
    text = CALLS["longcat"].format(MENDED) + " perhaps </longcat_tool_call>"
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    assert ("text after the object",) in found.notes


@pytest.mark.parametrize("surplus", ["}", "}}", "]", "} ]\n"])
def test_surplus_braces_before_a_closer_are_no_part_of_the_call(surplus: str) -> None:
    call = CALLS["longcat"].format('{"filePath": "/a"}')
    closed = read_every_way(f"{call}{surplus}</longcat_tool_call>")
    assert closed.calls == [("read", '{"filePath":"/a"}')]
    assert closed.scores < read_every_way(f"{call}</longcat_tool_call>").scores
    assert read_every_way(call + surplus).calls == closed.calls
    spoilt = read_every_way(f"{call}{surplus} and so on")
    assert (spoilt.calls, ("text after the object",) in spoilt.notes) == ([], True)


def test_surplus_braces_at_a_cut_are_not_the_end() -> None:
    text = CALLS["longcat"].format('{"filePath": "/a"}') + "}"
    assert read_every_way(text, reason="length").calls == []


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ([tool("python", "lines", lines={"type": "integer"})], None),
        ([tool("python"), tool("ipython", "cell")], "ipython"),
        ([tool("python", "lines", lines={"type": "integer"}), tool("run_python", "code")], "run_python"),
        ([tool("code_interpreter", code=STRING)], "code_interpreter"),
    ],
    ids=["no text", "no parameter", "another tool", "optional"],
)
def test_code_goes_to_a_tool_that_takes_text(declared: list[Tool], name: str | None) -> None:
    found = read_every_way("<|python_tag|>x = 1\nprint(x)", tools=ToolSet(declared))
    assert [called for called, _ in found.calls] == ([name] if name else [])


def test_what_a_torn_object_leaves_behind_it_is_seen_wherever_the_answer_is_cut() -> None:
    # The end of the line may come a character at a time, and the last one of them is no brace.
    text = '[TOOL_CALLSread{"filePath":"a"}[{ments": {"filePath": "src/app.py"}}][TOOL_CALLS]'
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
