"""Clients of tags: which one sends a request, how their tools take arguments, and what their forms cannot say."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.core.client import Client
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.clients import recognise
from strategies.clients.client_parser import Rules, see
from strategies.clients.cline import CLINE
from strategies.clients.profile import Profile
from strategies.clients.prompt_tools import PromptTool, prompt_tools
from strategies.clients.roo import KILO, ROO
from strategies.clients.tag_arguments import PLAIN, Form, diffs, file_writing, follow_up, listing, reading, server_call
from strategies.clients.text_client import text_client
from tests.support.cost import assert_linear
from tests.support.tag_clients import CLIENTS, CLINE_TOOLS, PARAMETERS, ROO_TOOLS, parse, prompt

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


NOBODY = Client()


def request(*messages: dict[str, Any]) -> ChatRequest:
    return parse_request(msgspec.json.encode({"model": "m", "messages": list(messages)}))


def told(text: object, role: str = "system") -> ChatRequest:
    return request({"role": role, "content": text}, {"role": "user", "content": "go on"})


def profile_of(asked: ChatRequest, client: Client = NOBODY) -> Profile | None:
    found = recognise(asked, client)
    return found.profile if found is not None else None


@pytest.mark.parametrize(("client", "tools"), [("cline", CLINE_TOOLS), ("roo", ROO_TOOLS)])
def test_tools_tell_a_client_whose_prompt_does_not_name_it(client: str, tools: dict[str, list[str]]) -> None:
    text = prompt(client, tools).replace("You are", "Be")
    found = profile_of(told(text))
    assert found is not None
    assert found.id == client


@pytest.mark.parametrize("client", CLIENTS)
def test_a_prompt_that_cannot_be_taken_apart_has_the_tools_whose_tags_it_shows(client: str) -> None:
    """The client has to say who it is; their parameters are the well-known ones."""
    asked = told("TOOL USE\n\nWrite <read_file><path>x</path></read_file> or <list_files>, never <nothing>.")
    assert recognise(asked, NOBODY) is None
    found = recognise(asked, CLIENTS[client])
    assert found is not None
    assert set(found.prompted) == {"read_file", "list_files"}
    assert "path" in found.prompted["list_files"].parameters
    assert found.render("list_files", {"path": "src", "recursive": True}) is not None


@pytest.mark.parametrize("client", CLIENTS)
def test_a_prompt_that_shows_no_tags_has_no_tools(client: str) -> None:
    assert recognise(told("TOOL USE is described elsewhere: read_file, list_files."), CLIENTS[client]) is None


def test_a_prompt_without_tools_makes_no_client() -> None:
    assert text_client(ROO, "Write no tags.", True) is None


def test_a_prompt_in_parts_is_one_prompt() -> None:
    whole = prompt("roo")
    half = len(whole) // 2
    cut = whole.rfind("\n", 0, half)
    parts = [{"type": "text", "text": whole[:cut]}, {"type": "image_url"}, {"type": "text", "text": whole[cut + 1 :]}]
    found = profile_of(told([*parts, "odd"]))
    assert found is not None
    assert found.id == "roo"


@pytest.mark.parametrize("content", [None, 3, {"text": "x"}])
def test_a_prompt_of_another_shape_is_none(content: object) -> None:
    assert recognise(told(content), CLIENTS["roo"]) is None


def test_a_prompt_in_the_users_message_counts_where_the_client_names_itself() -> None:
    asked = request({"role": "user", "content": prompt("cline")})
    assert profile_of(asked) is None
    named = profile_of(asked, CLIENTS["cline"])
    assert named is not None
    assert named.id == "cline"


def test_a_prompt_larger_than_any_clients_is_not_looked_at() -> None:
    assert recognise(told(prompt("roo") + "x" * (1 << 18)), CLIENTS["roo"]) is None


# --- What the clients see: the same as their rules, restated elsewhere, say


PIECES = (
    *("<write_to_file>", "</write_to_file>", "<list_files>", "</list_files>", "<path>", "</path>", "<content>"),
    *("</content>", "<recursive>", "</recursive>", "x", "\n", " ", "\u00a0", "\ufeff", "\x1f", "<", ">", "/", "</"),
)

TOOLS = ("write_to_file", "list_files", "attempt_completion")


@pytest.mark.parametrize("profile", [ROO, KILO, CLINE], ids=lambda profile: profile.id)
def test_it_is_what_the_client_itself_would_see(profile):
    rng = random.Random(profile.id)
    calls = 0
    for _ in range(2000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 24)))
        if rng.random() < 0.7:
            text = f"<write_to_file>\n<path>a</path>\n<content>{text}</content>\n</write_to_file>"
        uses = [use for use in parse(text, profile.id, tools=TOOLS) if not use.partial]
        seen = see(text, profile.rules, TOOLS, PARAMETERS)
        assert (seen.name, seen.values) == (uses[0].name, uses[0].params) if seen else uses == [], text
        calls += seen is not None
    assert calls > 500


def test_a_value_beyond_the_bound_is_lost():
    text = "<list_files>\n<path>{}</path>\n</list_files>"
    rules = Rules(max_value=20)
    for value, kept in (("x" * 13, {"path": "x" * 13}), ("x" * 14, {}), ("\U0001f600" * 7, {})):
        seen = see(text.format(value), rules, TOOLS, PARAMETERS)
        assert seen is not None
        assert seen.values == kept


def test_a_files_outer_fence_and_its_line_numbers_are_taken_off():
    text = "<write_to_file>\n<path>a</path>\n<content>\n{}\n</content>\n</write_to_file>"
    for written, kept in (
        ("```py\nx\n```", "x"),
        ("1 | a\n2 | b", "a\nb"),
        ("1 | a\nb", "1 | a\nb"),
        ("0 || a\n1 || b", "0 || a\n1 || b"),
        ("x```", ""),
    ):
        seen = see(text.format(written), ROO.rules, TOOLS, PARAMETERS)
        assert seen is not None
        assert seen.values["content"] == kept


@pytest.mark.cost
@pytest.mark.parametrize("piece", ["</content>", "<content>", "<path>", "</path>", "<", "x", "</write_to_file"])
def test_it_costs_linear_time(piece):
    def seeing(size: int) -> Callable[[], object]:
        content = piece * (size // len(piece))
        text = f"<write_to_file>\n<path>a</path>\n<content>{content}</content>\n</write_to_file>"
        return lambda: see(text, KILO.rules, TOOLS, PARAMETERS)

    assert_linear(seeing, 1 << 16)


# --- What the prompt of a client says of its tools


ONE = """# Tools

## read_file
Description: Request to read.
Parameters:
- path: (required) where
  - inner: (required) not one of its own
- start_line: (optional) from here
- end_line: to here
Usage:
<read_file>
<path>a</path>
<start_line>1</start_line>
</read_file>

Example: the same
<read_file>
<other>b</other>
</read_file>

# Guidelines
- rule: (required) no parameter
"""


def test_a_section_gives_name_parameters_and_what_is_required():
    assert prompt_tools(ONE) == (
        PromptTool(name="read_file", parameters=("path", "start_line", "end_line"), required=frozenset({"path"})),
    )


def test_whole_prompts_give_all_their_tools():
    for client, tools in (("roo", ROO_TOOLS), ("cline", CLINE_TOOLS)):
        found = {tool.name: tool for tool in prompt_tools(prompt(client))}
        assert list(found) == list(tools)
        for name, parameters in tools.items():
            assert found[name].parameters == tuple(parameter.rstrip("*") for parameter in parameters)
            expected = {parameter[:-1] for parameter in parameters if parameter.endswith("*")}
            assert found[name].required == expected


def test_a_section_without_usage_is_no_tool():
    assert prompt_tools("## read_file\nDescription: x\nParameters:\n- path: (required) y\n") == ()
    assert prompt_tools("## Some notes\n<notes>\n</notes>\n") == ()
    assert prompt_tools("") == ()


def test_parameters_that_only_the_usage_shows_are_taken_from_it():
    (tool,) = prompt_tools("## x_tool\nUsage:\n<x_tool>\n<one>\n<two>deep</two>\n</one>\n<three>y</three>\n</x_tool>\n")
    assert tool.parameters == ("one", "three")
    (tool,) = prompt_tools("## x_tool\r\nUsage:\r\n<x_tool>\r\n<one>a</one>\r\n</x_tool>\r\n")
    assert tool.parameters == ("one",)


def test_the_first_section_of_a_name_counts_and_there_are_not_endlessly_many():
    section = "## x{}\nUsage:\n<x{}>\n<a>1</a>\n</x{}>\n"
    assert len(prompt_tools(section.format(1, 1, 1) + section.format(1, 1, 1).replace("<a>", "<b>"))) == 1
    assert len(prompt_tools("".join(section.format(n, n, n) for n in range(1000)))) == 256
