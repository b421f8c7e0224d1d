"""Hermes: where an object ends, what may stand around it, what it costs."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import AGENT_TOOLS, INTEGER, STRING, read, read_every_way, tool

OBJECT = '{"name": "read", "arguments": {"filePath": "/a"}}'

CALLS = [("read", '{"filePath":"/a"}')]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (f"<tool_call>\n{OBJECT}\n</tool_call>", 97),
        (f"<tool_call>{OBJECT}</tool_call>", 97),
        (f"<tool_call>\n{OBJECT}", 95),
        (f"<tool_call>\n{OBJECT}\n</tool>", 95),
        (f"<tool_call>\n{OBJECT}}}\n</tool_call>", 95),
        (f"{OBJECT}\n</tool_call>", 95),
        (f"<tool_call>\n{OBJECT.replace('read', 'Read')}\n</tool_call>", 95),
        (f"<tool_call>\n{OBJECT[:-1]},}}\n</tool_call>", 95),
    ],
)
def test_each_mend_costs(text: str, score: int) -> None:
    found = read_every_way(text)
    assert found.calls == CALLS
    assert found.scores == [score]


def test_the_prompted_form_counts_highest() -> None:
    assert read(f"<tool_call>\n{OBJECT}\n</tool_call>", prompted="hermes").scores == [99]


def test_an_undeclared_tool_passes_only_where_the_form_was_asked_for() -> None:
    text = '<tool_call>\n{"name": "launch", "arguments": {"at": "noon"}}\n</tool_call>'
    assert read_every_way(text).calls == []
    assert read_every_way(text, prompted="hermes").calls == [("launch", '{"at":"noon"}')]


@pytest.mark.parametrize("closer", ["</tool_call>", "\\n</tool_call>\\n", "<tool_call>", '{\\"name\\": \\"bash\\"}'])
def test_markup_in_a_string_is_data(closer: str) -> None:
    text = (
        f'<tool_call>\n{{"name": "write", "arguments": {{"filePath": "a", "content": "x {closer} y"}}}}\n</tool_call>'
    )
    (call,) = read_every_way(text).calls
    assert json.loads(call[1])["content"] == json.loads(f'"x {closer} y"')


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\n",
        "<tool_call>\n{",
        "<tool_call>\n{}\n</tool_call>",
        "<tool_call>\n[]\n</tool_call>",
        "<tool_call>\n[1, 2]\n</tool_call>",
        "<tool_call>\n[" + OBJECT + ", 7]\n</tool_call>",
        '<tool_call>\n"read"\n</tool_call>',
        '<tool_call>\n{"name": 5, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "read", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "read", "arguments": "not JSON"}\n</tool_call>',
        "<tool_call>\n{not json at all\n</tool_call>",
        "<tool_call>\n" + '{"a":' * 100 + "1" + "}" * 100 + "\n</tool_call>",
        f"<tool_call>\n{OBJECT}\nand so on\n</tool_call>",
        "<tool_call name='read",
        f'{{"color": {OBJECT}}}\n</tool_call>',
        "<tool_call>\n" + OBJECT + "<code>\nx",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    found = read_every_way(text)
    assert found.calls == []
    assert found.text == text


@pytest.mark.parametrize("size", range(2, len("</tool_call>")))
def test_a_closer_that_the_answer_ends_in_is_one(size: int) -> None:
    text = f"<tool_call>\n{OBJECT}\n" + "</tool_call>"[:size]
    assert read_every_way(text).calls == CALLS
    assert read_every_way(text, reason="length").calls == []


def test_unescaped_quotes_are_read_by_the_schema_of_the_named_tool() -> None:
    tools = ToolSet([tool("note", "text", title=STRING), tool("run", "command", "input")])
    text = '<tool_call>\n{"name": "note", "arguments": {"title": "t", "text": "say "hi" now"}}\n</tool_call>'
    (call,) = read_every_way(text, tools=tools, prompted="hermes").calls
    assert json.loads(call[1]) == {"title": "t", "text": 'say "hi" now'}


def test_arguments_of_one_tag_do_not_leak_into_the_next() -> None:
    text = f'<tool_call>\n{OBJECT}\n{{"name": "todoread"}}\n</tool_call>\n<tool_call>\n{OBJECT}\n</tool_call>'
    assert read_every_way(text).calls == [*CALLS, ("todoread", "{}"), *CALLS]


def test_a_tool_without_arguments_may_stand_alone() -> None:
    assert read_every_way('<tool_call>\n{"name": "todoread"}\n</tool_call>').calls == [("todoread", "{}")]


# --- What stands behind Llama's tag: objects, a built-in's call, or code


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
