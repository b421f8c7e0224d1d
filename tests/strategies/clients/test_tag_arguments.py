"""How the tools of tag clients take their arguments, and which arguments their forms cannot say."""

import pytest

from strategies.clients.prompt_tools import PromptTool
from strategies.clients.tag_arguments import PLAIN, Form, diffs, file_writing, follow_up, listing, reading, server_call

PLAINLY = PromptTool(
    name="run", parameters=("command", "cwd", "arguments", "timeout"), required=frozenset({"command", "cwd"})
)
WRITING = PromptTool(name="write_to_file", parameters=("path", "content", "line_count"))
LISTING = PromptTool(name="list_files", parameters=("path", "recursive"))
ARGS = PromptTool(name="read_file", parameters=("args",))
PATH = PromptTool(name="read_file", parameters=("path", "start_line", "end_line"))
DIFF_ARGS = PromptTool(name="apply_diff", parameters=("args",))
DIFF_PATH = PromptTool(name="apply_diff", parameters=("path", "diff"))
ASKING = PromptTool(
    name="ask_followup_question", parameters=("question", "follow_up"), required=frozenset({"question", "follow_up"})
)
ASKING_FREELY = PromptTool(name="ask_followup_question", parameters=("question", "options"))
SERVER = PromptTool(name="use_mcp_tool", parameters=("server_name", "tool_name", "arguments"))


def file_of(path: str, *ranges: str) -> str:
    lines = [f"<line_range>{found}</line_range>" for found in ranges]
    return "\n".join(["<file>", f"<path>{path}</path>", *lines, "</file>"])


# Plain parameters


def test_parameters_stand_in_the_order_of_the_prompt_and_the_unknown_behind_them():
    given = {"other": "x", "cwd": "/w", "command": "ls"}
    assert PLAIN.write(given, PLAINLY) == [("command", "ls"), ("cwd", "/w"), ("other", "x")]


def test_a_parameter_that_is_null_is_left_out():
    assert PLAIN.write({"command": "ls", "cwd": None, "other": None}, PLAINLY) == [("command", "ls")]


@pytest.mark.parametrize(
    ("value", "text"),
    [("a\n", "a\n"), (True, "true"), (False, "false"), (7, "7"), (0.5, "0.5"), ("", "")],
)
def test_scalars_are_written_as_text(value: object, text: str):
    assert PLAIN.write({"timeout": value}, PLAINLY) == [("timeout", text)]


def test_an_object_is_written_only_where_the_client_reads_json():
    assert PLAIN.write({"command": {"a": 1}}, PLAINLY) is None
    assert PLAIN.write({"command": ["ls"]}, PLAINLY) is None
    assert PLAIN.write({"arguments": {"a": ["é"]}}, PLAINLY) == [("arguments", '{"a": ["é"]}')]


def test_json_never_holds_the_closer_of_its_own_tag():
    assert PLAIN.write({"arguments": {"a": "</arguments></b>"}}, PLAINLY) == [
        ("arguments", '{"a": "\\u003c/arguments></b>"}')
    ]


def test_the_schema_has_the_parameters_of_the_prompt_and_those_that_are_read_beside_them():
    assert Form(reads=("timeout", "recursive", "extra")).schema(PLAINLY) == {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "cwd": {"type": "string"},
            "arguments": {"type": ["string", "array", "object"]},
            "timeout": {"type": ["integer", "string"]},
            "recursive": {"type": ["boolean", "string"]},
            "extra": {"type": "string"},
        },
        "required": ["command", "cwd"],
        "additionalProperties": False,
    }


def test_a_form_may_ask_for_less_than_the_prompt():
    assert Form(asks=()).schema(PLAINLY)["required"] == []
    assert file_writing.schema(WRITING)["required"] == ["content", "path"]


# Files


@pytest.mark.parametrize(("content", "count"), [("", "1"), ("a", "1"), ("a\nb", "2"), ("a\nb\n", "3")])
def test_the_lines_of_a_written_file_are_counted(content: str, count: str):
    given = {"path": "a", "content": content}
    assert file_writing.write(given, WRITING) == [("path", "a"), ("content", content), ("line_count", count)]


def test_a_count_that_was_given_stays_and_comes_last():
    given = {"line_count": 9, "path": "a", "content": "x"}
    assert file_writing.write(given, WRITING) == [("path", "a"), ("content", "x"), ("line_count", "9")]


@pytest.mark.parametrize("given", [{"path": "a", "content": 3}, {"path": "a"}, {"path": ["a"], "content": "x"}])
def test_a_file_without_text_is_not_written(given: dict[str, object]):
    assert file_writing.write(given, WRITING) is None


def test_a_listing_needs_no_arguments_and_keeps_those_it_has():
    assert listing.write({}, LISTING) == [("path", "."), ("recursive", "false")]
    assert listing.write({"path": "src", "recursive": None}, LISTING) == [("path", "src"), ("recursive", "false")]
    assert listing.write({"recursive": True}, LISTING) == [("path", "."), ("recursive", "true")]


def test_elements_that_the_model_wrote_itself_stay():
    given = {"args": "<file><path>a</path></file>", "path": None}
    assert reading.write(given, ARGS) == [("args", "<file><path>a</path></file>")]


@pytest.mark.parametrize(
    "given",
    [
        {"path": "a", "start_line": 1, "end_line": 5},
        {"path": "a", "start_line": "1", "end_line": " 5 "},
        {"path": "a", "end_line": 5},
        {"path": "a", "offset": 1, "limit": 5},
        {"path": "a", "limit": 5},
        {"path": "a", "line_range": "1-5"},
        {"path": "a", "line_ranges": [[1, 5]]},
        {"path": "a", "line_ranges": ["1-5"]},
        {"files": [{"path": "a", "line_ranges": [[1, 5]]}]},
        {"file": {"path": "a", "line_range": "1-5"}},
        {"files": '[{"path": "a", "start_line": 1, "end_line": 5}]'},
        {"args": {"file": [{"path": "a", "line_range": "1-5"}]}},
        {"args": {"files": {"path": "a", "line_range": "1-5"}}},
        {"args": '{"file": {"path": "a", "line_range": "1-5"}}'},
        {"args": [{"file": {"path": "a", "line_range": "1-5"}}]},
    ],
)
def test_every_way_to_ask_for_lines_of_a_file_becomes_the_same(given: dict[str, object]):
    assert reading.write(given, ARGS) == [("args", file_of("a", "1-5"))]
    assert reading.write(given, PATH) == [("path", "a"), ("start_line", "1"), ("end_line", "5")]


def test_an_offset_is_where_the_lines_begin():
    assert reading.write({"path": "a", "offset": 10, "limit": 5}, ARGS) == [("args", file_of("a", "10-14"))]


def test_many_files_and_ranges_go_into_one_call():
    given = {"files": ["a", {"path": "b", "line_ranges": ["1-2", [4, 5]]}]}
    assert reading.write(given, ARGS) == [("args", f"{file_of('a')}\n{file_of('b', '1-2', '4-5')}")]


@pytest.mark.parametrize("given", [{"files": ["a", "b"]}, {"path": "a", "line_ranges": ["1-2", "4-5"]}])
def test_a_prompt_of_one_path_cannot_say_many(given: dict[str, object]):
    assert reading.write(given, PATH) is None
    assert reading.write(given, ARGS) is not None


def test_a_whole_file_has_no_lines():
    assert reading.write({"path": "a"}, PATH) == [("path", "a")]
    assert reading.write({"files": "a"}, PATH) == [("path", "a")]


def test_text_that_only_begins_like_json_is_a_path():
    assert reading.write({"files": "[slug].tsx"}, PATH) == [("path", "[slug].tsx")]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"files": []},
        {"files": [3]},
        {"files": [["a"]]},
        {"files": ["a"], "path": "b"},
        {"path": ""},
        {"path": 3},
        {"path": "a", "encoding": "utf-8"},
        {"path": "a", "start_line": 3},
        {"path": "a", "offset": 3},
        {"path": "a", "start_line": 1, "end_line": -1},
        {"path": "a", "start_line": True, "end_line": 4},
        {"path": "a", "start_line": "one", "end_line": 4},
        {"path": "a", "start_line": 1.5, "end_line": 4},
        {"path": "a", "line_range": "1-2-3"},
        {"path": "a", "line_range": "1"},
        {"path": "a", "line_ranges": 5},
        {"path": "a", "line_ranges": [[1, 2, 3]]},
        {"path": "a", "line_ranges": [7]},
    ],
)
def test_a_reading_that_is_not_certain_is_not_said(given: dict[str, object]):
    assert reading.write(given, ARGS) is None
    assert reading.write(given, PATH) is None


@pytest.mark.parametrize("path", ["a<b", "a&amp;b", "a&#38;b", " a", "a ", "a\nb"])
def test_a_path_that_elements_would_change_is_said_only_as_a_parameter(path: str):
    assert reading.write({"path": path}, ARGS) is None
    assert reading.write({"path": path}, PATH) == [("path", path)]


def test_a_path_with_an_ampersand_alone_can_be_said():
    assert reading.write({"path": "a & b"}, ARGS) == [("args", file_of("a & b"))]


# Diffs


def test_a_diff_is_put_into_elements_where_the_prompt_wants_them():
    assert diffs.write({"path": "a", "diff": "<<<<<<< SEARCH"}, DIFF_ARGS) == [
        (
            "args",
            "<file>\n<path>a</path>\n<diff>\n<content>\n<<<<<<< SEARCH\n</content>\n</diff>\n</file>",
        )
    ]


def test_a_diff_is_a_parameter_where_the_prompt_has_one():
    assert diffs.write({"path": " a<", "diff": "x\n"}, DIFF_PATH) == [("path", " a<"), ("diff", "x\n")]


def test_elements_of_a_diff_that_the_model_wrote_itself_stay():
    assert diffs.write({"args": "<file></file>"}, DIFF_ARGS) == [("args", "<file></file>")]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": "a"},
        {"diff": "x"},
        {"path": "a", "diff": ["x"]},
        {"path": 1, "diff": "x"},
        {"path": "a", "diff": "x</content>"},
        {"path": "a", "diff": "x\n"},
        {"path": "a", "diff": " x"},
        {"path": "a<", "diff": "x"},
        {"path": "&lt;", "diff": "x"},
        {"path": "a ", "diff": "x"},
    ],
)
def test_a_diff_that_elements_would_change_is_not_said(given: dict[str, object]):
    assert diffs.write(given, DIFF_ARGS) is None


def test_a_diff_parameter_without_a_diff_is_not_said():
    assert diffs.write({"path": "a"}, DIFF_PATH) is None


# Questions


@pytest.mark.parametrize("key", ["follow_up", "suggestions", "options"])
@pytest.mark.parametrize(
    "given",
    [
        ["Yes", "No"],
        [{"text": "Yes"}, {"answer": "No"}],
        [{"suggest": "Yes", "mode": None}, "No"],
        {"suggest": ["Yes", "No"]},
        {"suggestions": ["Yes", "No"]},
        '["Yes", "No"]',
        "- Yes\n- No",
        "1. Yes\n2) No\n",
        "* Yes\n  + No  ",
    ],
)
def test_every_way_to_suggest_answers_becomes_the_same(key: str, given: object):
    assert follow_up.write({"question": "Go?", key: given}, ASKING) == [
        ("question", "Go?"),
        ("follow_up", "<suggest>Yes</suggest>\n<suggest>No</suggest>"),
    ]


def test_a_suggestion_may_change_the_mode():
    given = {"question": "Go?", "follow_up": [{"text": "Yes", "mode": "code"}]}
    assert follow_up.write(given, ASKING) == [
        ("question", "Go?"),
        ("follow_up", '<suggest mode="code">Yes</suggest>'),
    ]


def test_elements_of_suggestions_that_the_model_wrote_itself_stay():
    given = {"question": "Go?", "follow_up": "<suggest>Yes</suggest>"}
    assert follow_up.write(given, ASKING) == [("question", "Go?"), ("follow_up", "<suggest>Yes</suggest>")]


def test_text_that_is_no_list_is_one_suggestion():
    assert follow_up.write({"question": "Go?", "follow_up": "- Yes\nor no"}, ASKING) == [
        ("question", "Go?"),
        ("follow_up", "<suggest>- Yes\nor no</suggest>"),
    ]


def test_a_question_stands_alone_where_the_prompt_lets_it():
    assert follow_up.write({"question": "Go?"}, ASKING_FREELY) == [("question", "Go?")]
    assert follow_up.write({"question": "Go?", "options": None}, ASKING_FREELY) == [("question", "Go?")]
    assert follow_up.write({"question": "Go?"}, ASKING) is None


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        ["Yes", 3],
        ["Yes", " No"],
        ["Yes", "a < b"],
        ["Yes", "R&amp;D"],
        ["Yes", {"text": "No", "icon": "x"}],
        ["Yes", {"mode": "code"}],
        ["Yes", {"text": "No", "mode": 'a"b'}],
        ["Yes", {"text": "No", "mode": 3}],
        "<suggestion>Yes</suggestion>",
        7,
        {"first": "Yes"},
    ],
)
def test_suggestions_that_elements_would_change_are_not_said(given: object):
    assert follow_up.write({"question": "Go?", "follow_up": given}, ASKING) is None


def test_a_question_that_is_no_text_is_not_said():
    assert follow_up.write({"question": ["Go?"], "follow_up": ["Yes"]}, ASKING) is None


# Servers


def test_arguments_of_a_server_are_an_object_however_written():
    for given in ({"a": 1}, '{"a": 1}'):
        assert server_call.write({"server_name": "s", "arguments": given}, SERVER) == [
            ("server_name", "s"),
            ("arguments", '{"a": 1}'),
        ]
    assert server_call.write({"server_name": "s", "arguments": None}, SERVER) == [("server_name", "s")]


@pytest.mark.parametrize("given", ["a=1", "[1]", [1], "{a", 3])
def test_arguments_of_a_server_that_are_no_object_are_not_said(given: object):
    assert server_call.write({"server_name": "s", "arguments": given}, SERVER) is None
