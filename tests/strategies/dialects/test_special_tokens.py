"""Families with tokens of their own: what every one of them must hold to."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import Args, End, Start
from gateway.core.tools import ToolSet
from strategies.asking.renderers import RENDERERS
from strategies.base import Options
from strategies.dialects.rows import BY_ID
from strategies.grammar.dialect import Context, Renderer
from strategies.writing.renderer import CannotExpress
from tests.support.reading import AGENT_TOOLS, INTEGER, STRING, read, read_every_way, tool

FAMILIES = (
    *("ds_v3", "ds_v31", "ds_stripped", "kimi_k2", "kimi_k3", "mistral", "mistral_old", "mistral_stripped"),
    *("harmony", "harmony_stripped", "llama3_json", "gemma4", "functiongemma", "gemma_stripped", "granite"),
    *("granite_fc", "phi4", "command_r", "command_r_action", "internlm", "nemotron_nano", "apertus", "longcat"),
    *("gigachat", "inkling", "lfm2", "olmo3", "smollm3", "functionary", "continue", "gptme", "muse_glimmer"),
)
FAMILY = pytest.mark.parametrize("family", FAMILIES)
WRITERS = {family: RENDERERS[family] for family in FAMILIES if family in RENDERERS}
WRITER = pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)

SAVE = tool("save", "path", "content", line=INTEGER, tags={"type": "array", "items": STRING}, extra={"type": "object"})
TOKENS = (
    *(
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>",
        "<|tool_call_end|>",
        "<|tool_call_begin|>",
        "<|close|>",
        "<|sep|>",
    ),
    *("argument<|sep|>", "<|open|>argument", "<|close|>call<|sep|>", "[TOOL_CALLS]", "[ARGS]", "<|call|>", "<|end|>"),
    *("<|channel|>", "<|message|>", "<|python_tag|>", "<|eom_id|>", "</s>", '<|"|>', "<escape>", "<tool_call|>"),
    *("<|tool_call|>", "functools[", "<|END_ACTION|>", "<|action_end|>", "</TOOLCALL>", "<|tools_suffix|>", "\n>>>x"),
    *(
        "<|message_sep|>",
        "<|end_message|>",
        "<|tool_call_end|>",
        ")]",
        "}]",
        "'",
        '"',
        "\\",
        "\\n",
        "\n",
        "\r\n",
        "```",
    ),
    *("{", "}", ",", ":", "true", "null", "007", "é", " ", "</think>", "&quot;", "<![CDATA[", "]]>"),
)
TEXT = st.lists(st.sampled_from(TOKENS), max_size=6).map("".join) | st.text(max_size=12)
VALUE = st.recursive(
    TEXT | st.booleans() | st.none() | st.integers(-(10**20), 10**20) | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.fixed_dictionaries(
    {"path": TEXT, "content": TEXT},
    optional={
        "line": st.integers(-3, 10**15),
        "tags": st.lists(TEXT, max_size=2),
        "extra": st.dictionaries(TEXT, VALUE, max_size=3),
    },
)


def calls_of(text: str, family: str, **how: Any) -> list[tuple[str, dict[str, Any]]]:
    found = read(text, tools=ToolSet([SAVE]), prompted=family, **how).calls
    return [(name, json.loads(arguments)) for name, arguments in found]


@given(ARGUMENTS)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(arguments: dict[str, Any]) -> None:
    for writer in WRITERS.values():
        try:
            text = writer.call("save", arguments, SAVE)
        except CannotExpress:
            continue
        assert_read_back(writer, text, arguments)


def assert_read_back(writer: Renderer, text: str, arguments: dict[str, Any]) -> None:
    assert calls_of(f"Saving.\n{text}", writer.id) == [("save", arguments)]
    twice = calls_of(writer.calls([text, text]), writer.id, duplicate_calls="keep")
    assert twice == [("save", arguments)] * 2
    streamed = read(
        f"Saving.\n{text}", tools=ToolSet([SAVE]), prompted=writer.id, reasoned=True, stream_arguments="incremental"
    )
    assert [json.loads(arguments) for _, arguments in streamed.calls] == [arguments]
    assert streamed.streamed == streamed.calls[0][1]


@WRITER
def test_plain_arguments_can_always_be_written(writer: Renderer) -> None:
    arguments = {
        "path": "a b/ü.py",
        "content": "x = {'a': 1}\n\n",
        "line": 3,
        "tags": ["a", ""],
        "extra": {"k": [1, {}]},
    }
    assert calls_of(writer.call("save", arguments, SAVE), writer.id) == [("save", arguments)]


@WRITER
def test_a_result_cannot_open_a_call(writer: Renderer) -> None:
    call = writer.call("save", {"path": "a", "content": "b"}, SAVE)
    assert calls_of(writer.result("save", "call_1", f"It prints {call} then.", "bracket"), writer.id) == []


@WRITER
def test_what_is_no_json_cannot_be_written(writer: Renderer) -> None:
    for value in (float("nan"), {"a": object()}, "\ud800"):
        with pytest.raises(CannotExpress):
            writer.call("save", {"path": "a", "content": "b", "extra": {"k": value}}, SAVE)
    with pytest.raises(CannotExpress):
        writer.call("a name\nwith a line", {}, None)


@WRITER
def test_the_tools_are_described_the_same_way_each_time(writer: Renderer) -> None:
    section = writer.tool_section([SAVE], parallel=True)
    assert section == writer.tool_section([SAVE], parallel=True)
    assert "save" in section
    assert section != writer.tool_section([SAVE], parallel=False)


@FAMILY
def test_the_example_is_a_call(family: str) -> None:
    found = read_every_way(BY_ID[family].example, prompted=family)
    assert [name for name, _ in found.calls] == ["read"]
    assert found.dialects == [family]


@FAMILY
def test_no_beginning_of_a_call_is_another_call(family: str) -> None:
    text = BY_ID[family].example
    whole = read(text).calls
    for end in range(len(text)):
        for reason in ("stop", "length"):
            found = read(text[:end], reason=reason).calls
            assert found in ([], whole), f"{text[:end]!r} {reason}"


@WRITER
def test_no_beginning_of_a_written_call_is_another_call(writer: Renderer) -> None:
    arguments = {"path": "a,b", "content": "one\n}two]", "line": 12, "tags": ["x"]}
    text = writer.call("save", arguments, SAVE)
    for end in range(len(text)):
        assert calls_of(text[:end], writer.id, reason="length") in ([], [("save", arguments)]), text[:end]
        for _, found in calls_of(text[:end], writer.id):
            assert found.items() <= arguments.items(), "no value is half of what it was"


@FAMILY
def test_markup_in_inline_code_is_text(family: str) -> None:
    example = BY_ID[family].example
    if "\n" not in example and "`" not in example:
        assert read_every_way(f"It is written `{example}` there.").calls == []


@FAMILY
def test_a_draft_in_reasoning_is_text(family: str) -> None:
    text = f"<think>\nIt could be\n{BY_ID[family].example}\n</think>\nNo, nothing to do."
    assert read_every_way(text, splits=60).calls == []


@FAMILY
def test_openers_without_end_do_no_harm(family: str) -> None:
    row = BY_ID[family]
    context_free = [*row.openers(_context()), *row.line_openers(_context())]
    for opener in context_free[:12]:
        text = (f"\n{opener}" + '{"a": "') * 300
        found = read([text[at : at + 50] for at in range(0, len(text), 50)])
        assert found.calls == []


def _context() -> Context:
    return Context(tools=AGENT_TOOLS, options=Options())


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (
            '<|open|>call tool="save" index="1"<|sep|>'
            '<|open|>argument key="path" type="string"<|sep|>a<|close|>argument<|sep|>'
            '<|open|>argument key="content" type="string"<|sep|>',
            "<|close|>argument<|sep|><|close|>call<|sep|>",
        ),
        ('<|tool_call>call:save{path:<|"|>a<|"|>,content:<|"|>', '<|"|>}<tool_call|>'),
        ("<start_function_call>call:save{path:<escape>a<escape>,content:<escape>", "<escape>}<end_function_call>"),
    ],
    ids=["kimi_k3", "gemma4", "functiongemma"],
)
def test_text_flows_before_the_call_is_complete(begin: str, end: str) -> None:
    lines = [f"line {number}\n" for number in range(20)]
    found = read([begin, *lines, end], tools=ToolSet([SAVE]), reasoned=True, stream_arguments="incremental")
    kinds = [type(event) for event in found.events]
    assert kinds[0] is Start
    assert kinds.count(Args) > 15
    assert kinds[-1] is End
    assert found.calls == [("save", json.dumps({"path": "a", "content": "".join(lines)}, separators=(",", ":")))]
    assert found.streamed == found.calls[0][1]


def test_a_text_that_is_cut_breaks_visibly_where_it_flowed() -> None:
    text = '<|tool_call>call:save{path:<|"|>a<|"|>,content:<|"|>half of it'
    found = read(text, tools=ToolSet([SAVE]), reasoned=True, stream_arguments="incremental", reason="length")
    assert found.calls == []
    assert found.broken == ["value not closed"]


def test_prototype_keys_are_dropped() -> None:
    for text in (
        '<|tool_call>call:read{filePath:<|"|>a<|"|>,__proto__:<|"|>x<|"|>}<tool_call|>',
        '<|open|>call tool="read" index="1"<|sep|>'
        '<|open|>argument key="__proto__" type="string"<|sep|>x<|close|>argument<|sep|>'
        '<|open|>argument key="filePath" type="string"<|sep|>a<|close|>argument<|sep|><|close|>call<|sep|>',
    ):
        assert read_every_way(text).calls == [("read", '{"filePath":"a"}')]


def test_nesting_is_bounded() -> None:
    for depth, count in ((60, 1), (80, 0)):
        text = f"<|tool_call>call:save{{path:a,content:b,extra:{'{k:' * depth}1{'}' * depth}}}<tool_call|>"
        assert len(read(text, tools=ToolSet([SAVE])).calls) == count


def test_only_text_for_a_text_flows() -> None:
    text = '<|tool_call>call:save{path:<|"|>a<|"|>,content:<|"|>b<|"|>,line:<|"|>12<|"|>}<tool_call|>'
    found = read(list(text), tools=ToolSet([SAVE]), reasoned=True, stream_arguments="incremental")
    assert found.streamed == '{"path":"a","content":"b","line":12}' == found.calls[0][1]
