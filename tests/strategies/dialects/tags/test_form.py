"""Calls with raw parameters, as all their dialects read them: commit points, ends, what hostile text costs."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from gateway.core.events import Args, Start
from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.dialects.rows import BY_ID
from strategies.grammar.dialect import Arguments, Context, Opening
from strategies.reading.factory import reader_factory
from strategies.text.cursor import Cursor, Reject, Steps
from tests.support.reading import AGENT_TOOLS, STRING, read, read_every_way, tool

TOKEN_M3 = "]<]minimax[>["


@frozen
class Written:
    """How one dialect writes a call."""

    dialect: str
    opening: str
    name: Callable[[str], str]
    param: Callable[[str, str], str]
    close: str
    closing: str

    def call(self, name: str, **values: str) -> str:
        return self.name(name) + "".join(self.param(key, value) for key, value in values.items()) + self.close

    def block(self, *calls: str) -> str:
        return self.opening + "".join(calls) + self.closing


def invoke(prefix: str = "") -> tuple[Callable[[str], str], Callable[[str, str], str], str]:
    return (
        lambda name: f'<{prefix}invoke name="{name}">',
        lambda key, value: f'<{prefix}parameter name="{key}">{value}</{prefix}parameter>',
        f"</{prefix}invoke>",
    )


FORMS = [
    Written(
        "qwen3_coder",
        "",
        lambda name: f"<tool_call><function={name}>",
        lambda key, value: f"<parameter={key}>{value}</parameter>",
        "</function></tool_call>",
        "",
    ),
    Written(
        "seed_oss",
        "",
        lambda name: f"<seed:tool_call><function={name}>",
        lambda key, value: f"<parameter={key}>{value}</parameter>",
        "</function></seed:tool_call>",
        "",
    ),
    Written(
        "glm",
        "",
        lambda name: f"<tool_call>{name}",
        lambda key, value: f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
        "</tool_call>",
        "",
    ),
    Written(
        "hy3",
        "<tool_calls>",
        lambda name: f"<tool_call>{name}<tool_sep>",
        lambda key, value: f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
        "</tool_call>",
        "</tool_calls>",
    ),
    Written("claude_invoke", "<function_calls>", *invoke(), "</function_calls>"),
    Written("minimax_m2", "<minimax:tool_call>", *invoke(), "</minimax:tool_call>"),
    Written("step3", "<｜tool_calls_begin｜>", *invoke("steptml:"), "<｜tool_calls_end｜>"),
    Written("dsml", "<｜DSML｜tool_calls>", *invoke("｜DSML｜"), "</｜DSML｜tool_calls>"),
    Written(
        "minimax_m3",
        f"{TOKEN_M3}<tool_call>",
        lambda name: f'{TOKEN_M3}<invoke name="{name}">',
        lambda key, value: f"{TOKEN_M3}<{key}>{value}{TOKEN_M3}</{key}>",
        f"{TOKEN_M3}</invoke>",
        f"{TOKEN_M3}</tool_call>",
    ),
]
EVERY_FORM = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.dialect)


def calls_of(text: str, **how: Any) -> list[tuple[str, dict[str, object]]]:
    return [(name, json.loads(arguments)) for name, arguments in read_every_way(text, **how).calls]


@EVERY_FORM
def test_two_commands_on_one_line_stay_two(form: Written) -> None:
    text = form.block(form.call("bash", command="make"), form.call("bash", command="make test"))
    assert calls_of(text) == [("bash", {"command": "make"}), ("bash", {"command": "make test"})]


@EVERY_FORM
def test_two_commands_with_prose_between_stay_two(form: Written) -> None:
    text = f"{form.block(form.call('bash', command='a'))} and then {form.block(form.call('bash', command='b'))}"
    found = calls_of(text)
    assert found[0] == ("bash", {"command": "a"})
    assert found[1:] in ([], [("bash", {"command": "b"})])


@EVERY_FORM
def test_value_with_angle_brackets_and_quotes_survives(form: Written) -> None:
    value = 'if (a < b && "c" > d) { <T> </T> &lt; } \\n'
    text = form.block(form.call("write", filePath="a.c", content=value + "x"))
    assert calls_of(text) == [("write", {"filePath": "a.c", "content": value + "x"})]


@EVERY_FORM
def test_cut_answer_completes_no_call(form: Written) -> None:
    text = form.block(form.call("bash", command="rm -rf build"))
    for size in range(len(text) - len(form.close + form.closing)):
        assert read(text[:size], reason="length").calls == []


@EVERY_FORM
def test_prefix_of_a_command_is_never_a_call(form: Written) -> None:
    text = form.block(form.call("bash", command="rm -rf build/objects"))
    complete = text.index("objects") + len("objects")
    for size in range(complete):
        assert read(text[:size]).calls == []


@EVERY_FORM
def test_missing_required_argument_is_no_call(form: Written) -> None:
    text = form.block(form.call("write", filePath="a"))
    found = read_every_way(text)
    assert found.calls == []
    assert found.text == text


@EVERY_FORM
def test_string_is_never_converted(form: Written) -> None:
    for value in ("007", "true", "null", '{"a": 1}', "[1]", "1.10"):
        text = form.block(form.call("grep", pattern=value))
        assert calls_of(text) == [("grep", {"pattern": value})]


@EVERY_FORM
def test_command_flows_before_it_is_complete(form: Written) -> None:
    reader = reader_factory(
        tools=AGENT_TOOLS, options=Options(stream_arguments="incremental"), model="", prompted=form.dialect
    )()
    reader.reasoned()
    text = form.block(form.call("bash", command="echo one two three four five && true"))
    events = [event for char in text[: text.index("true")] for event in reader.feed(char)]
    assert any(isinstance(event, Start) and event.name == "bash" for event in events)
    shown = "".join(event.json for event in events if isinstance(event, Args))
    assert shown.startswith('{"command":"echo one two three')
    assert "five" in shown


@EVERY_FORM
def test_broken_call_that_has_begun_is_visible(form: Written) -> None:
    text = form.block(form.call("bash", command="echo one two three"))
    found = read(text[: text.index("three")], reasoned=True, stream_arguments="incremental", prompted=form.dialect)
    assert found.calls == []
    assert found.broken
    assert not found.streamed.endswith("}")


@EVERY_FORM
def test_typed_parameters_follow_nested_schemas(form: Written) -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}, "label": STRING}, "required": ["x"]}
    tools = ToolSet([tool("plot", "points", points={"type": "array", "items": point})])
    text = form.block(form.call("plot", points='[{"x": 1, "label": "7"}]'))
    assert calls_of(text, tools=tools) == [("plot", {"points": [{"x": 1, "label": "7"}]})]


@EVERY_FORM
def test_windows_line_ends_are_markup_where_line_ends_are(form: Written) -> None:
    text = form.block(form.call("write", filePath="a", content="x\r\ny"))
    assert calls_of(text) == [("write", {"filePath": "a", "content": "x\r\ny"})]


def test_prototype_key_is_dropped() -> None:
    text = "<function=list>\n<parameter=path>a</parameter>\n<parameter=__proto__>b</parameter>\n</function>"
    assert calls_of(text) == [("list", {"path": "a"})]


def test_parameter_given_twice_differently_is_left_alone() -> None:
    text = "<tool_call><function=list><parameter=path>a</parameter><parameter=path>b</parameter></function></tool_call>"
    assert calls_of(text) == []
    assert calls_of(text, min_confidence=85) == [("list", {"path": "b"})]


def test_array_parameter_given_twice_is_a_list() -> None:
    tools = ToolSet([tool("tag", names={"type": "array", "items": STRING})])
    text = (
        "<tool_call><function=tag><parameter=names>a</parameter><parameter=names>b</parameter></function></tool_call>"
    )
    assert [json.loads(arguments) for _, arguments in read(text, tools=tools).calls] == [{"names": ["a", "b"]}]


def test_cdata_is_unwrapped() -> None:
    content = '<param name="content"><![CDATA[ </param> ]]></param>'
    text = f'<function name="write"><param name="filePath">a</param>{content}</function>'
    assert calls_of(text) == [("write", {"filePath": "a", "content": " </param> "})]


HOSTILE = {
    "openers": "<tool_call>\n<function=write>\n",
    "calls on one line": "<tool_call><function=bash><parameter=command>ls</parameter></function></tool_call> x ",
    "calls that lack an argument": "<function=edit><parameter=oldString>a</parameter></function>. ",
    "unclosed values": "<tool_call><function=bash><parameter=command>a",
    "unclosed pairs": "<tool_call>bash<arg_key>command</arg_key><arg_value>a",
    "ends": "</parameter></function>x",
    "begin tokens": "<｜tool_calls_begin｜>",
    "tokens": TOKEN_M3,
    "nested nodes": f"{TOKEN_M3}<todos>",
    "node calls": f'{TOKEN_M3}<invoke name="todowrite">{TOKEN_M3}<todos>',
    "token openers": '<｜DSML｜invoke name="write"><｜DSML｜parameter name="content" string="true">',
    "unclosed strings": '<function=bash>{"command": "',
    "names as text": "<parameter>command</parameter>",
}
STARTS = ("", "<tool_call><function=write><parameter=filePath>a</parameter><parameter=content>")


@pytest.mark.parametrize("start", STARTS, ids=["text", "document"])
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_costs_linear_work(piece: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in tags that grammars look at, for one size and four times that size."""
    looked = 0
    tag = Cursor.tag

    def counted(self: Cursor) -> Steps:
        nonlocal looked
        looked += 1
        return tag(self)

    monkeypatch.setattr(Cursor, "tag", counted)
    work = []
    for size in (8_000, 32_000):
        looked = 0
        text = (start + piece * (size // len(piece) + 1))[:size]
        reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="")()
        for at in range(0, len(text), 1_000):
            reader.feed(text[at : at + 1_000])
        reader.finish("stop")
        work.append(looked)
    assert work[1] <= 5 * work[0] + 50


def test_deep_nodes_are_refused_without_recursion_faults() -> None:
    opener = f'{TOKEN_M3}<invoke name="todowrite">'
    context = Context(tools=AGENT_TOOLS, options=Options())
    text = opener + f"{TOKEN_M3}<todos>" * 5_000
    row = BY_ID["minimax_m3"]
    steps = row.parse(Cursor(text, eof=True), context, Opening(marker=opener, before=""), Arguments(None))
    with pytest.raises(Reject, match="nested_too_deep"):
        list(steps)
