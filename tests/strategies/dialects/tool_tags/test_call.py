"""One tag-per-tool call: what the tags around it mean, where its documents end, and what each mend costs."""

import json

import pytest

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.dialects.tool_tags.call import TagCall, parameter_of, tag_parts
from strategies.grammar.dialect import Context
from tests.strategies.dialects.tool_tags.test_tag import HEAD
from tests.support.reading import AGENT_TOOLS, BOOLEAN, INTEGER, STRING, read_every_way, tool


def test_an_argument_that_a_strict_schema_rules_out_does_not_flow():
    loose = tool("find", "city")
    strict = Tool(name="find", parameters={**loose.parameters, "additionalProperties": False})
    text = "<find>\n<city>Rome</city>\n<mood>sunny</mood>\n</find>"
    found = read_every_way(text, tools=ToolSet([strict]))
    assert found.calls == [("find", '{"city":"Rome"}')]
    assert found.scores == [95]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<read>\n<filePath>a</filePath>\n</read>", 97),
        ("<read>\n<filePath>a</filePath>\n", 95),
        ("<read>\n<filePath>a</filePath>\n</tool>", 95),
        ("<read>\n<file_path>a</file_path>\n</read>", 95),
        ("<read>\n<filePath>a</file_path>\n</read>", 95),
        ("<read>\n<filePath>a</filePath>\n<hue>b</hue>\n</read>", 95),
        ("read\n<filePath>a</filePath>", 95),
        ("<read>\n<filePath>a\n</read>", 85),
        ("<read>\n<filePath>a\n<limit>3</limit>\n</read>", 92),
    ],
)
def test_each_mend_costs(text: str, score: int):
    found = read_every_way(text, min_confidence=80)
    assert found.scores == [score]


def test_a_tool_known_only_from_the_registry_is_a_call():
    found = read_every_way("<codebase_search>\n<query>where</query>\n</codebase_search>")
    assert found.calls == [("codebase_search", '{"query":"where"}')]
    assert found.scores == [96]


def test_a_second_value_joins_a_list_and_replaces_an_empty_scalar():
    tools = ToolSet([tool("tag", "name", labels={"type": "array", "items": STRING}, level=INTEGER)])
    text = "<tag>\n<name></name>\n<labels>a</labels>\n<name>x</name>\n<labels>b</labels>\n<level>2</level>\n</tag>"
    (call,) = read_every_way(text, tools=tools).calls
    assert json.loads(call[1]) == {"name": "x", "labels": ["a", "b"], "level": 2}


def test_the_first_of_two_documents_counts():
    text = "<write><filePath>a</filePath><content>one</content><content>two</content></write>"
    found = read_every_way(text)
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"filePath": "a", "content": "one"}]


def test_a_document_ends_where_another_tool_is_called():
    text = (
        HEAD + "say </content> here\n</content>\n</write>\n<read>\n<filePath>b</filePath>\n</read>\n"
        "<write>\n<filePath>c</filePath>\n<content>\nd\n</content>\n</write>"
    )
    calls = [(name, json.loads(arguments)) for name, arguments in read_every_way(text).calls]
    assert calls == [
        ("write", {"filePath": "a.py", "content": "say </content> here"}),
        ("read", {"filePath": "b"}),
        ("write", {"filePath": "c", "content": "d"}),
    ]


def test_stray_closers_inside_a_document_end_nothing():
    text = HEAD + "x </tool> y </tool_call> z </invoke>.\n</content>\n</write>"
    (call,) = read_every_way(text).calls
    assert json.loads(call[1])["content"] == "x </tool> y </tool_call> z </invoke>."


def test_a_document_that_ends_in_one_of_several_stray_closers_is_in_doubt():
    """The last one may be a closer too many, or part of the document as the others are."""
    text = HEAD + "x </tool> y </tool_call> z </invoke>\n</content>\n</write>"
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)


def test_flags_are_read_in_any_case():
    tools = ToolSet([tool("go", "fast", fast=BOOLEAN)])
    assert read_every_way("<go><fast>TRUE</fast></go>", tools=tools).calls == [("go", '{"fast":true}')]
    assert read_every_way("<go><fast>1</fast></go>", tools=tools).calls == []


def test_stray_closers_end_no_document_even_where_the_operator_accepts_more():
    text = HEAD + 'Example:\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>\nmore'
    assert read_every_way(text, min_confidence=80).calls == []


# --- What a tag means


def under_way(name: str = "write", tag: str = "") -> TagCall:
    declared = AGENT_TOOLS.get(name)
    assert declared is not None
    context = Context(tools=AGENT_TOOLS, options=Options())
    return TagCall(tag=tag or name, tool=declared, schema=context.schema(declared), context=context)


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        *(
            ("</content>", ("close", "content")),
            ("</write>", ("call_close", "")),
            ("</tool_call>", ("stray_close", "")),
        ),
        *(("</think>", ("noise", "")), ("</filePath>", ("other_close", "filePath")), ("</b>", ("other", ""))),
        *(
            ("<filePath>", ("param", "filePath")),
            ("<write>", ("call_open", "write")),
            ("<read>", ("next_call", "read")),
        ),
        *(("<filePath/>", ("param", "filePath")), ("<b>", ("param", "b")), ("<b c='d'>", ("other", ""))),
        ("<parameter=filePath>", ("param", "filePath")),
    ],
)
def test_a_tag_inside_a_value_is_told_by_its_kind(tag: str, kind: tuple[str, str]) -> None:
    assert under_way().kind(tag, "content") == kind


def test_a_foreign_closer_closes_a_parameter_that_was_opened_by_its_name() -> None:
    call = under_way()
    assert call.kind("</parameter>", "content")[0] != "close"
    call.by_attribute = True
    assert call.kind("</parameter>", "content") == ("close", "content")


@pytest.mark.parametrize(
    ("tag", "closes", "mends"),
    [
        ("</write>", True, []),
        ("</tool_call>", True, ["call_closer_wrong"]),
        ("</b>", False, []),
        ("<write>", False, []),
    ],
)
def test_a_closer_of_another_kind_costs_where_it_is_taken_for_the_calls(
    tag: str, closes: bool, mends: list[str]
) -> None:
    call = under_way()
    assert call.is_closer(tag) is closes
    assert call.mends == mends


def test_a_tag_opens_the_next_call_unless_it_is_a_parameter() -> None:
    assert [found and found.name for found in map(under_way().next_tool, ("<read>", "<write>", "<b>", "</read>"))] == [
        *("read", "write", None, None)
    ]
    find_tool = tool("find", "read")
    context = Context(tools=ToolSet([find_tool, tool("read", "filePath")]), options=Options())
    find = TagCall(tag="find", tool=find_tool, schema=context.schema(find_tool), context=context)
    assert find.next_tool("<read>") is None


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        *(("<a>", (False, "a", False)), ("</a>", (True, "a", False)), ("<a/>", (False, "a", True))),
        *(("<read_ file>", (False, "read_file", False)), ("<a b='c'>", None), ("<1>", None)),
    ],
)
def test_a_plain_tag_has_three_parts(tag: str, parts: tuple[bool, str, bool] | None) -> None:
    assert tag_parts(tag) == parts


def test_a_parameter_may_be_named_in_an_attribute() -> None:
    assert parameter_of('<parameter name="a">') == parameter_of("<param=a>") == ("a", False)
    assert parameter_of("<arg='a' />") == ("a", True)
    assert parameter_of("<value=a>") is None
