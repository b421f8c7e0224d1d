"""What stands behind Llama's tag: objects, a built-in's call, or code."""

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import AGENT_TOOLS, INTEGER, read, read_every_way, tool

TAG = "<|python_tag|>"
TOOLS = ToolSet([tool("brave_search", "query"), tool("python", "code")])


@pytest.mark.parametrize("end", ["", "<|eom_id|>", "\n"])
def test_a_built_in_is_called_by_the_name_before_the_dot(end: str) -> None:
    found = read_every_way(f'{TAG}brave_search.call(query="x"){end}', tools=TOOLS)
    assert found.calls == [("brave_search", '{"query":"x"}')]
    assert found.text.strip() == ""


def test_built_ins_on_lines_of_their_own_are_all_called() -> None:
    text = f'{TAG}brave_search.call(query="x")\nbrave_search.call(query="y")'
    assert read_every_way(text, tools=TOOLS).calls == [
        ("brave_search", '{"query":"x"}'),
        ("brave_search", '{"query":"y"}'),
    ]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("brave_search.call(query=", "not a plain value"),
        ('brave_search.call(query="x"); print(1)', "positional argument"),
        ('brave_search.call(query="x")\nzap(query="y")', "not a built-in's call"),
    ],
)
def test_what_only_begins_like_a_built_in_is_no_call(code: str, reason: str) -> None:
    found = read_every_way(TAG + code, tools=TOOLS)
    assert (found.calls, found.text) == ([], TAG + code)
    assert reason in [noted[-1] for noted in found.notes]


def test_code_is_for_the_tool_that_runs_it() -> None:
    assert read_every_way(f"{TAG}print(1)", tools=TOOLS).calls == [("python", '{"code":"print(1)"}')]


@pytest.mark.parametrize("tools", [AGENT_TOOLS, ToolSet([tool("python", "n", n=INTEGER)])])
def test_code_that_no_tool_takes_as_text_is_no_call(tools: ToolSet) -> None:
    found = read_every_way(f"{TAG}print(1)", tools=tools)
    assert (found.calls, found.notes) == ([], [("no tool that runs code",)])


@pytest.mark.parametrize("code", ['brave_search.call(query="x")', "print(1)"])
def test_code_that_was_cut_is_no_call(code: str) -> None:
    assert read(TAG + code, tools=TOOLS, reason="length").calls == []
