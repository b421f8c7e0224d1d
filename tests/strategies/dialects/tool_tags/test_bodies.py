"""What may stand between a tool's tags in place of parameters, and what of that could be anybody's words."""

import json
from typing import Any

import pytest

from gateway.core.tools import Tool, ToolSet
from tests.support.reading import INTEGER, STRING, read, read_every_way, tool

READ = ("read", '{"filePath":"a.py"}')
TOOLS = ToolSet(
    [
        *(tool("read_file", "path"), tool("write_file", "path", "content"), tool("send_message", "message")),
        *(tool("find", "pattern", limit=INTEGER), tool("tag", "names", names={"type": "array", "items": STRING})),
    ]
)


def calls_of(text: str, **how: Any) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in read_every_way(text, tools=TOOLS, **how).calls]


def left(text: str, **how: Any) -> list[str]:
    """Why it stayed text."""
    found = read_every_way(text, tools=TOOLS, **how)
    assert (found.calls, found.text) == ([], text)
    return [reason for note in found.notes for reason in note]


# --- Attributes


@pytest.mark.parametrize(
    "text",
    [
        '<read_file path="a.py"/>',
        "<read_file path='a.py' />",
        '<read_file id="7" path="a.py"></read_file>',
        '<read_file type="function" path="a.py"/>',
    ],
)
def test_attributes_of_a_tag_are_parameters_and_noise_is_none(text: str) -> None:
    assert calls_of(text) == [("read_file", {"path": "a.py"})]


@pytest.mark.parametrize(
    "text", ['<read_file colour="red"/>', "<read_file path=a.py/>", '<read_file path="a.py/>', '<read_filepath="a"/>']
)
def test_an_attribute_of_something_else_leaves_the_tag_to_others(text: str) -> None:
    left(text)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("x = &quot;1&quot;&#10;y", 'x = "1"\ny'),
        ("&lt;p&gt; &apos;a&apos;", "<p> 'a'"),
        ("ls &amp;&amp; pwd", "ls && pwd"),
        ("&amp;lt; &#38;amp;", "&lt; &amp;"),
        ("&#x41;&#65;", "AA"),
        ("a &quot;b&quot; && c <d>", 'a "b" && c <d>'),
    ],
)
def test_entities_in_an_attribute_are_undone_once(written: str, value: str) -> None:
    text = f'<write_file path="a.py" content="{written}"/>'
    assert calls_of(text) == [("write_file", {"path": "a.py", "content": value})]


@pytest.mark.parametrize("value", ["a && b", "a &nbsp; b", "&", "&#0;", "&#xD800; a", "&#99999999;", "<p> & 5"])
def test_an_attribute_without_entities_stays_as_it_is(value: str) -> None:
    text = f'<write_file path="a.py" content="{value}"/>'
    assert calls_of(text) == [("write_file", {"path": "a.py", "content": value})]


@pytest.mark.parametrize("value", ["<p>a &amp; b</p>", "a && b &lt; c", "&nbsp;&lt;"])
def test_an_attribute_with_some_signs_escaped_and_some_not_is_asked_for_again(value: str) -> None:
    assert "entities can be read in several ways" in left(f'<write_file path="a.py" content="{value}"/>')


def test_a_name_may_stand_in_an_attribute() -> None:
    body = "<path>a.py</path></tool>"
    for opener in ('<tool name="read_file">', "<tool name='read_file'>"):
        assert calls_of(opener + body) == [("read_file", {"path": "a.py"})]
    left(f'<tool name="read_file>{body}')


# --- JSON


def test_an_object_between_the_tags_holds_the_parameters() -> None:
    assert calls_of('<find>{"pattern": "x", "limit": 3}</find>') == [("find", {"pattern": "x", "limit": 3})]
    assert calls_of('<find>\n{"pattern": "x", "limit": "3"}}\n</find>') == [("find", {"pattern": "x", "limit": 3})]
    assert "no parameter of this tool" in left('<find>{"where": "x"}</find>')
    assert "value not closed" in left('<find>{"pattern": "x"')


# --- The sole value


def test_the_only_required_text_may_stand_alone_on_a_line() -> None:
    assert calls_of("<read_file>src/a.py</read_file>") == [("read_file", {"path": "src/a.py"})]


@pytest.mark.parametrize(
    "text",
    [
        "<read_file>the whole manual</read_file>",
        "<read_file>a.py\nb.py</read_file>",
        "<read_file> </read_file>",
        "<write_file>a.py</write_file>",
        "<tag>x</tag>",
    ],
    ids=["words for a path", "two lines", "nothing", "two required", "a list"],
)
def test_what_may_be_words_is_no_sole_value(text: str) -> None:
    left(text)


def test_a_tag_of_a_common_word_takes_no_sole_value() -> None:
    words = ToolSet([tool("read", "path"), tool("fetch_page", "path")])
    assert read_every_way("<read>a.py</read>", tools=words).calls == []
    assert read_every_way("<fetch_page>a.py</fetch_page>", tools=words).calls == [("fetch_page", '{"path":"a.py"}')]


# --- Words for a person


def test_words_for_a_person_are_a_call_at_the_end_of_an_answer_alone() -> None:
    text = "<send_message>\nIt is done. Two files have changed.\n</send_message>"
    assert calls_of(text) == [("send_message", {"message": "It is done. Two files have changed."})]
    left(f"{text}\nAnd so on.")
    left(f"I say {text}")
    plain = ToolSet([tool("answer", "message")])
    assert read_every_way("<answer>\nIt is done.\nAll of it.\n</answer>", tools=plain).calls == []


# --- YAML


def test_lines_of_keys_and_values_are_parameters() -> None:
    text = "<write_file>\npath: a.py\ncontent: |\n  one\n  two\n</write_file>"
    assert calls_of(text) == [("write_file", {"path": "a.py", "content": "one\ntwo\n"})]
    assert calls_of("<find>\npattern: x\nlimit: 3\n</find>") == [("find", {"pattern": "x", "limit": 3})]


def test_a_closer_that_is_indented_is_part_of_the_document() -> None:
    text = "<write_file>\npath: a.xml\ncontent: |\n  </write_file>\n  end\n</write_file>"
    assert calls_of(text) == [("write_file", {"path": "a.xml", "content": "</write_file>\nend\n"})]


@pytest.mark.parametrize("tools", [TOOLS, ToolSet([Tool(name="find", parameters={"type": "object"})])])
def test_lines_without_their_closer_count_where_the_model_has_ended_by_itself(tools: ToolSet) -> None:
    text = "<find>\npattern: x\n"
    how: dict[str, Any] = {"tools": tools, "prompted": "generic_xml"}
    assert read(text, **how).calls == [("find", '{"pattern":"x"}')]
    assert read(text, reason="length", **how).calls == []
    assert read(text.rstrip("\n"), **how).calls == []


def test_a_document_that_the_answer_ends_in_may_have_been_cut() -> None:
    assert "value not closed" in left("<write_file>\npath: a.py\ncontent: |\n  one\n")


def test_keys_of_nobody_are_no_parameters() -> None:
    left("<find>\nwhere: x\n</find>")
    assert "no parameter of this tool" in left("<find>\npattern: x\nwhere: y\n</find>")


# --- Within the tag itself


@pytest.mark.parametrize("body", ["pattern: x\nlimit: 3", "<pattern>x</pattern>\n<limit>3</limit>"])
def test_parameters_may_stand_within_the_tag(body: str) -> None:
    assert calls_of(f"<find\n{body}\n/>") == [("find", {"pattern": "x", "limit": 3})]
    assert "not closed" in left(f"<find\n{body}\n")
    assert "no parameter of this tool" in left("<find\n<pattern>x</pattern>\n<where>y\n/>")


# --- The tool's name as an attribute of a wrapper


FIND = ("find", {"pattern": "x"})
INSIDE = ('{"pattern": "x"}', "<pattern>x</pattern>", "<parameters><pattern>x</pattern></parameters>")


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("wrapper", ["tool", "tool_call", "function_call", "tool_use", "function"])
@pytest.mark.parametrize("head", ['name="find"', "name='find'", 'id="t_1" name="find"', 'name="find" type="function"'])
def test_a_wrapper_may_have_the_name_as_an_attribute(inside: str, wrapper: str, head: str) -> None:
    if wrapper == "function" and " " in head:
        head = 'name="find"'
    assert calls_of(f"<{wrapper} {head}>{inside}</{wrapper}>") == [FIND]
    assert calls_of(f"I look.\n<{wrapper} {head}>\n{inside}\n</{wrapper}>\n") == [FIND]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_use id="t">{"pattern": "x"}</tool_use>',
        '<tool_use name="launch"><pattern>x</pattern></tool_use>',
        '<tool_use name="find" name="read_file"><pattern>x</pattern></tool_use>',
        '<tool_use name="find" colour="red"><pattern>x</pattern></tool_use>',
        '<function_call name="find"><path>x</path></function_call>',
        '<function_call name="find">as in the manual</function_call>',
        '<function_call name="find">{"name": "read_file", "arguments": {"pattern": "x"}}</function_call>',
        '`<tool_use name="find"><pattern>x</pattern></tool_use>` finds it.',
        '<function name="main"><parameters><pattern>x</pattern></parameters></function>',
    ],
)
def test_a_wrapper_that_names_no_tool_or_two_is_none(text: str) -> None:
    left(text)
