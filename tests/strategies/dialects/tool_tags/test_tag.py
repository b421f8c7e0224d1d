"""Tags per tool: when a call is committed, how its arguments flow, and words that are none."""

import pytest

from gateway.core.events import Args, Start
from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.dialects.tool_tags.nested_forms import adapt_forms, holds_args, is_adapted
from strategies.reading.factory import reader_factory
from strategies.schema.tool_schema import ToolSchema, schema_of
from tests.support.reading import AGENT_TOOLS, INTEGER, STRING, read, read_every_way, tool

HEAD = "<write>\n<filePath>a.py</filePath>\n<content>\n"


def flowing(prompted: str | None = "generic_xml"):
    options = Options(stream_arguments="incremental")
    reader = reader_factory(tools=AGENT_TOOLS, options=options, model="m", prompted=prompted)()
    reader.reasoned()
    return reader


def said(events) -> str:
    return "".join(event.json for event in events if isinstance(event, Args))


def test_nothing_is_shown_before_the_first_parameter():
    reader = flowing()
    assert reader.feed("<write>") == []
    assert reader.feed("\n<filePa") == []
    (start,) = reader.feed("th>")
    assert isinstance(start, Start)
    assert start.name == "write"


def test_a_document_flows_line_by_line():
    reader = flowing()
    said_first = said(reader.feed(HEAD + "one\ntwo\n"))
    assert said_first == '{"filePath":"a.py","content":"one\\ntwo'
    assert said(reader.feed("three")) == "\\nthree"
    assert said(reader.feed("\n</content>\n</write>")) + said(reader.finish("stop")) == '"}'


def test_what_may_be_markup_does_not_flow():
    reader = flowing()
    assert said(reader.feed(HEAD + "a</cont")).endswith('"a')
    assert said(reader.feed("ent is text\n")) == "</content is text"


def test_a_number_is_given_whole():
    reader = flowing()
    assert said(reader.feed("<read>\n<limit>12")) == ""
    assert said(reader.feed("3</limit>\n<filePath>")) == '{"limit":123'


@pytest.mark.parametrize("value", ["```\nx", "<![CDATA[x", "a &lt; b"])
def test_what_may_be_taken_off_again_is_held(value: str):
    assert said(flowing().feed(HEAD + value + "z" * 50)).count("z") == 0


def test_a_cut_call_that_flowed_is_broken_and_never_closed():
    reader = flowing()
    events = reader.feed(HEAD + "one\ntwo\nthree") + reader.finish("length")
    assert said(events).endswith("two\\nthree")
    assert [type(event).__name__ for event in events][-1] == "Broken"


def test_what_a_broken_call_holds_is_no_call():
    found = read(HEAD + "x\n<read>\n<filePath>b</filePath>\n</read>\n", reasoned=True, stream_arguments="incremental")
    assert found.broken == ["value not closed"]
    assert found.calls == []


def test_the_prompted_form_counts_highest():
    assert read("<read>\n<filePath>a</filePath>\n</read>", prompted="generic_xml").scores == [99]


@pytest.mark.parametrize(
    "text",
    [
        "<read> the docs and <write> some",
        "<read>\n\n\nwords",
        "<readme>\n<filePath>a</filePath>\n</readme>",
        "<read filePath=a>",
        "<read filePath='a",
        "<READ>",
        "<read\n",
        "< read>\n<filePath>a</filePath>\n</read>",
        "<read>\n<b>bold</b>\n<filePath>",
        "<write_to_ nowhere>\n<path>a</path>",
        "read: a book\n",
        "<tool_use>\nnothing\n</tool_use>",
        "<tool_name>read</tool_name> is its name",
        "<tool name=",
    ],
)
def test_words_that_look_like_a_tool_are_text(text: str):
    found = read_every_way(text)
    assert found.calls == []
    assert found.text == text


@pytest.mark.parametrize("text", ["<read> the docs", "<list>\n<li>x</li>", "<write>words", "read\nme"])
def test_words_that_look_like_a_tool_are_given_back_at_once(text: str):
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m")()
    given = "".join(event.raw for event in reader.feed(text + " and more of it, " * 20))
    assert len(given) > len(text) + 300


def test_deep_markup_does_not_recurse():
    nested = {"type": "object", "properties": {}}
    tools = ToolSet([tool("plan", "tree", tree=nested)])
    deep = "<a>" * 5_000 + "x" + "</a>" * 5_000
    found = read(f"<plan>\n<tree>{deep}</tree>\n</plan>", tools=tools)
    assert len(found.calls) <= 1


# --- Structured children inside parameters, brought to the schema that the tool declares


ARRAY = {"type": "array"}

FILES = schema_of(tool("read_file", files=ARRAY))

LINES = schema_of(tool("read_file", "path", start_line=INTEGER, end_line=INTEGER))

WINDOW = schema_of(tool("read_file", "filePath", offset=INTEGER, limit=INTEGER))

SOLE = schema_of(tool("read_file", "target_file"))

ARGS = schema_of(tool("read_file", "args"))

DIFF = schema_of(tool("apply_diff", "path", "diff"))

ASKS = schema_of(tool("ask_followup_question", "question", follow_up=ARRAY))

ASKS_TEXT = schema_of(tool("ask_followup_question", "question", follow_up=STRING))


def args_of(*ranges: str) -> dict[str, str]:
    lines = "".join(f"<line_range>{found}</line_range>" for found in ranges)
    return {"args": f"<file><path> a </path>{lines}</file>"}


@pytest.mark.parametrize(
    ("schema", "ranges", "expected"),
    [
        (LINES, ["10-19"], {"path": "a", "start_line": 10, "end_line": 19}),
        (WINDOW, ["10-19"], {"filePath": "a", "offset": 10, "limit": 10}),
        (SOLE, ["10-19"], {"target_file": "a"}),
        (LINES, [], {"path": "a"}),
        (LINES, ["1-2", "4-5"], {"path": "a"}),
        (LINES, ["all"], {"path": "a"}),
        (LINES, ["1-x"], {"path": "a"}),
        (FILES, ["1-2", "x", "4-5"], {"files": [{"path": "a", "line_ranges": [[1, 2], [4, 5]]}]}),
        (FILES, ["x"], {"files": [{"path": "a"}]}),
    ],
)
def test_lines_of_a_file_become_what_the_tool_declares(
    schema: ToolSchema, ranges: list[str], expected: dict[str, object]
) -> None:
    assert adapt_forms("read_file", schema, args_of(*ranges)) == [expected]


def test_a_tool_of_one_file_is_called_once_per_file() -> None:
    args = "<file><path>a</path></file>\n<file><path>b</path></file>\n<file><path>never closed"
    assert adapt_forms("read_file", LINES, {"args": args}) == [{"path": "a"}, {"path": "b"}]
    assert adapt_forms("read_file", FILES, {"args": args}) == [{"files": [{"path": "a"}, {"path": "b"}]}]


def test_args_without_a_file_or_of_their_own_are_left_alone() -> None:
    assert adapt_forms("read_file", LINES, {"args": "a.py"}) == [{"args": "a.py"}]
    assert not holds_args("read_file", ARGS)
    assert adapt_forms("read_file", ARGS, args_of()) == [args_of()]
    assert adapt_forms("list_files", LINES, args_of()) == [args_of()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"path": "a", "start_line": "3", "end_line": 9}, {"path": "a", "line_ranges": [[3, 9]]}),
        ({"path": "a", "start_line": "3"}, {"path": "a"}),
        ({"path": "a", "start_line": "three", "end_line": "9"}, {"path": "a"}),
        ({"path": "a", "start_line": "3", "end_line": "9" * 12}, {"path": "a"}),
    ],
)
def test_one_path_becomes_a_list_of_files(values: dict[str, object], expected: dict[str, object]) -> None:
    assert adapt_forms("read_file", FILES, values) == [{"files": [expected]}]


def test_a_diff_gets_the_line_where_it_starts_once() -> None:
    def diff(content: str, start: str) -> str:
        return f"<diff><content>{content}</content><start_line>{start}</start_line></diff>"

    first = diff("\n<<<<<<< SEARCH\nx\n", "7")
    marked = diff("<<<<<<< SEARCH\n:start_line:3\n-------\ny", "9")
    wrapped = diff("<![CDATA[\n<<<<<<< SEARCH\n</content>\n]]>", "?")
    values = {"args": f"<file><path>a</path>{first}{marked}{wrapped}</file>"}
    assert adapt_forms("apply_diff", DIFF, values) == [
        {
            "path": "a",
            "diff": "<<<<<<< SEARCH\n:start_line:7\n-------\nx\n\n"
            "<<<<<<< SEARCH\n:start_line:3\n-------\ny\n\n<<<<<<< SEARCH\n</content>",
        }
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<suggest mode="code"> Yes </suggest><suggest>No</suggest>', [("Yes", "code"), ("No", None)]),
        ("<suggestion>Yes</suggestion>", [("Yes", None)]),
        ("<suggest>Yes</suggest><suggest>No", [("Yes", None)]),
        ("<suggest>Yes</suggest><suggest", [("Yes", None)]),
        ("<suggests>Yes</suggest><suggest>No</suggest>", [("No", None)]),
        ("- Yes\n\n2. No\n", [("Yes", None), ("No", None)]),
    ],
)
def test_suggestions_become_a_list(text: str, expected: list[tuple[str, str | None]]) -> None:
    given = {"question": "Go?", "follow_up": text}
    found = [{"text": said, "mode": mode} for said, mode in expected]
    assert is_adapted("ask_followup_question", ASKS)
    assert adapt_forms("ask_followup_question", ASKS, given) == [{"question": "Go?", "follow_up": found}]


def test_suggestions_stay_where_the_tool_takes_text_or_they_are_a_list() -> None:
    text = {"question": "Go?", "follow_up": "<suggest>Yes</suggest>"}
    assert not is_adapted("ask_followup_question", ASKS_TEXT)
    assert adapt_forms("ask_followup_question", ASKS_TEXT, text) == [text]
    listed = {"question": "Go?", "follow_up": ["Yes"]}
    assert adapt_forms("ask_followup_question", ASKS, listed) == [listed]


LEFT_OUT = {
    "tags": "<read><filePath>a.py</filePath><limit>{}</limit></read>",
    "qwen": "<tool_call>\n<function=read>\n<parameter=filePath>\na.py\n</parameter>\n"
    "<parameter=limit>\n{}\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>read\n<arg_key>filePath</arg_key>\n<arg_value>a.py</arg_value>\n<arg_key>limit</arg_key>\n"
    "<arg_value>{}</arg_value>\n</tool_call>",
    "invoke": '<function_calls>\n<invoke name="read">\n<parameter name="filePath">a.py</parameter>\n'
    '<parameter name="limit">{}</parameter>\n</invoke>\n</function_calls>',
}


@pytest.mark.parametrize("text", LEFT_OUT.values(), ids=LEFT_OUT)
@pytest.mark.parametrize("value", ["", "null", "None", " null "])
def test_a_number_that_is_left_empty_is_left_out(text: str, value: str) -> None:
    found = read_every_way(text.format(value))
    assert found.calls == [("read", '{"filePath":"a.py"}')]
    assert found.broken == []


@pytest.mark.parametrize("text", LEFT_OUT.values(), ids=LEFT_OUT)
@pytest.mark.parametrize("value", ["-", "nothing", "nil", "null 5", "0x10"])
def test_a_number_that_is_none_makes_no_call(text: str, value: str) -> None:
    found = read_every_way(text.format(value))
    assert (found.calls, found.text) == ([], text.format(value))


def test_what_is_left_out_beside_a_value_is_none_or_doubt() -> None:
    text = "<read><filePath>a.py</filePath><limit>{}</limit><limit>{}</limit></read>"
    assert read_every_way(text.format("", "5")).calls == [("read", '{"filePath":"a.py","limit":5}')]
    assert read_every_way(text.format("5", "")).calls == [("read", '{"filePath":"a.py","limit":5}')]
    assert read_every_way(text.format("5", "null")).calls == []


@pytest.mark.parametrize(
    "page",
    [
        "<html>\n<body>\n<read>\n<filePath>/a</filePath>\n</read>\n</body>\n</html>",
        '<?xml version="1.0"?>\n<config>\n  <read>\n    <filePath>/a</filePath>\n  </read>\n</config>',
        "<!DOCTYPE html>\n<read>\n<filePath>/a</filePath>\n</read>",
        "Like so:\n\n<DIV class='x'>\n<read>\n<filePath>/a</filePath>\n</read>\n</DIV>",
        "<svg>\n<read>\n<filePath>/a</filePath>\n</read>\n</svg>",
    ],
)
def test_a_tag_of_a_page_is_no_call_wherever_it_stands_in_it(page: str) -> None:
    found = read_every_way(page)
    assert found.calls == []
    assert found.text == page


@pytest.mark.parametrize(
    "before", ["<div>x</div>\n", "<html>\n<p>x</p>\n</html>\n", "<html>\n\n", "A page has `<html>`:\n", "<p>\n"]
)
def test_behind_a_page_a_tag_is_a_call(before: str) -> None:
    assert read_every_way(f"{before}<read>\n<filePath>/a</filePath>\n</read>").calls == [("read", '{"filePath":"/a"}')]
