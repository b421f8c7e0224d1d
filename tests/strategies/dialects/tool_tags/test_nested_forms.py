"""Structured children inside parameters, brought to the schema that the tool declares."""

import pytest

from strategies.dialects.tool_tags.nested_forms import adapt_forms, holds_args, is_adapted
from strategies.schema.tool_schema import ToolSchema, schema_of
from tests.support.reading import INTEGER, STRING, tool

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
