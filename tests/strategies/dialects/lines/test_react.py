"""ReAct: what an input stands for, and where there is no telling."""

import json

import pytest

from gateway.core.events import Note
from gateway.core.tools import ToolSet
from tests.support.reading import INTEGER, STRING, read, read_every_way, tool


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('Action: {"action": "read", "action_input": "/a"}', "read", {"filePath": "/a"}),
        ("Action: list\nAction Input: none", "list", {}),
        ("Action: list\nAction Input:\nObservation: [a.py]", "list", {}),
        ('Action: read\nAction Input: "/a"', "read", {"filePath": "/a"}),
        ('Action: read\nAction Input: "/a" "/b"', "read", {"filePath": '"/a" "/b"'}),
    ],
    ids=["text in an object", "nothing", "nothing before an observation", "quoted", "quotes inside"],
)
def test_plain_text_is_the_one_parameter_that_it_can_be(text: str, name: str, arguments: dict[str, str]) -> None:
    (call,) = read_every_way(text).calls
    assert (call[0], json.loads(call[1])) == (name, arguments)


@pytest.mark.parametrize(
    ("before", "is_call"),
    [
        ("* Read it.\n\n", True),
        ("- Read it.\n", True),
        ("Thought: two points.\n* Read it.\n", True),
        ("* Read it.\n* Say what it does.\n", False),
    ],
)
def test_a_bold_keyword_goes_on_with_the_point_right_above_it(before: str, is_call: bool) -> None:
    calls = read_every_way(f'{before}**Action:** read\n**Action Input:** {{"filePath": "/a"}}').calls
    assert [name for name, _ in calls] == ["read"][:is_call]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('Action: {"action": "edit", "action_input": "/a"}', "input without names"),
        ('Action: {"action": "nobody", "action_input": "/a"}', "arguments are not an object"),
        ('Action: {"name": "read", "filePath": "/a"}', "no arguments"),
        ('Action: read(filePath=open("/a"))', "not a plain value"),
        ('Action: read\nAction Input: filePath="/a" and then', "not a plain value"),
        ("Action: read\nAction Input: ", "no input"),
        ("Action: read\nAction Input:\nObservation: not found", "no input"),
        ("Action: read\nAction Input:\n```\n/a\n", "fence is not closed"),
        ('Action: read\nAction Input:\n```json\n{"filePath": }\n```', "JSON"),
        ('Action: read\nAction Input:\n```json\n{"filePath": "/a"} or "/b"\n```', "text after the object"),
    ],
    ids=lambda part: part[-24:],
)
def test_an_input_that_cannot_be_placed_stays_text(text: str, reason: str) -> None:
    found = read_every_way(text)
    assert found.calls == []
    assert found.text == text
    assert (reason,) in found.notes


def test_a_required_parameter_that_is_no_text_takes_no_plain_input() -> None:
    tools = ToolSet([tool("wait", "seconds", seconds={"type": "integer"}, why=STRING)])
    found = read_every_way("Action: wait\nAction Input: until noon", tools=tools)
    assert found.calls == []
    assert ("input without names",) in found.notes


# --- Actions as ReAct agents write them: every form of the input, and what leaves them text


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('Action: {"action": "bash", "action_input": "ls"}\nObservation: x', "bash", {"command": "ls"}),
        ('Action: {"action": "bash", "action_input": {"command": "ls"}}', "bash", {"command": "ls"}),
        ('Action: read(filePath="/a")\nObservation: x', "read", {"filePath": "/a"}),
        ('Action: `read(filePath="/a", limit=2)`\n', "read", {"filePath": "/a", "limit": 2}),
        ("Action: bash\nAction Input: ```sh\nls -la\n```\nObservation: x", "bash", {"command": "ls -la"}),
        ('Action: bash\nAction Input: ```json\n{"command": "ls"}\n```\n', "bash", {"command": "ls"}),
        ('Action: bash\nAction Input: "ls -la"\n', "bash", {"command": "ls -la"}),
        ('Action: glob\nAction Input: "a" "b"\n', "glob", {"pattern": '"a" "b"'}),
        ("Action: list\nAction Input: src\n", "list", {"path": "src"}),
        ("Action: todoread\nAction Input: None\n", "todoread", {}),
        ("Action: todoread\nThought: then", "todoread", {}),
        ("Action 2: bash\nAction Input 2: ls\n", "bash", {"command": "ls"}),
    ],
)
def test_every_form_of_an_input_is_read(text: str, name: str, arguments: dict[str, object]) -> None:
    found = read_every_way(text)
    assert [(called, json.loads(given)) for called, given in found.calls] == [(name, arguments)]
    assert found.dialects == ["react"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('Action: {"action": "bash"}', "no arguments"),
        ('Action: {"action": "zap", "action_input": "ls"}', "arguments are not an object"),
        ('Action: read(filePath="/a"', "brackets are not closed"),
        ('Action: read(filePath=open("a"))', "not a plain value"),
        ('Action: bash\nAction Input: ```json\n{"command" "ls"\n```\n', "JSON"),
        ("Action: bash\nAction Input: ```sh", "fence is not closed"),
        ("Action: bash\nAction Input: ```sh\nls", "fence is not closed"),
        ('Action: read\nAction Input: filePath="/a", limit=foo()\nThought: ok', "not a plain value"),
        ("Action: edit\nAction Input: /a\n", "input without names"),
        ("Action: bash\nAction Input: \nObservation: x", "no input"),
        ("Action: read\nThought: x", "no input"),
        ("Action plan: bash", "no action"),
    ],
)
def test_an_action_that_cannot_be_read_stays_text(text: str, reason: str) -> None:
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    assert reason in [noted[-1] for noted in found.notes]


@pytest.mark.parametrize("text", ["Action: bash\nAction Input: ls", "Action: todoread"])
def test_an_action_that_was_cut_is_no_call(text: str) -> None:
    assert read(text).calls != []
    assert read(text, reason="length").calls == []


def test_a_text_is_not_made_a_number() -> None:
    tools = ToolSet([tool("size", "n", n=INTEGER)])
    assert read_every_way("Action: size\nAction Input: 5\n", tools=tools).calls == []


SURE = [
    (r'"{\"filePath\": \"/a\"}"', {"filePath": "/a"}),
    ('\'{"filePath": "/a"}\'', {"filePath": "/a"}),
    ("filePath=/a", {"filePath": "/a"}),
    ("filePath = /a", {"filePath": "/a"}),
    ("filePath: /a", {"filePath": "/a"}),
    ('filePath: "/a"', {"filePath": "/a"}),
    ('"filePath": "/a"', {"filePath": "/a"}),
    ('"filePath": "/a", "limit": 3', {"filePath": "/a", "limit": 3}),
    ("<filePath>/a</filePath>", {"filePath": "/a"}),
]


@pytest.mark.parametrize(("given", "arguments"), SURE, ids=[given for given, _ in SURE])
def test_an_input_with_the_name_of_its_parameter_is_that_parameter(given: str, arguments: dict[str, object]) -> None:
    (call,) = read_every_way(f"Action: read\nAction Input: {given}").calls
    assert (call[0], json.loads(call[1])) == ("read", arguments)


@pytest.mark.parametrize(
    "given",
    [
        "filePath = /a, limit = 3",
        "filePath: /a; limits: 3",
        "filePath: /a limit: 3",
        "filePath: /a\nlimit: 3",
        "limit: 3",
        "filePath:",
        'filePath: "/a',
        'filePath: {"a": 1}',
        '"filePath": /a',
        "\"{'filePath': }\"",
        r'"{\"filePath\": \q}"',
        '["/a"]',
        "('/a')",
        '["/a", "/b"]',
        "<filePath>/a",
        "<filePath>/a</filePath><limit>3</limit>",
    ],
)
def test_an_input_of_which_nobody_can_tell_what_belongs_to_which_name_is_doubt(given: str) -> None:
    text = f"Action: read\nAction Input: {given}"
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    assert any(note.verdict.meant for note in found.events if isinstance(note, Note) and note.verdict is not None)


@pytest.mark.parametrize(
    "given",
    [
        "timeouts: 3",
        "HOME=/a ls",
        "(cd /a && ls)",
        "[ -f a ] && ls",
        "sed s=a=b=",
        "https://a.org",
        "timeout==5",
        '["a]',
    ],
)
def test_a_command_may_begin_with_any_other_word_and_a_sign(given: str) -> None:
    (call,) = read_every_way(f"Action: bash\nAction Input: {given}").calls
    assert json.loads(call[1]) == {"command": given}


def test_a_page_may_begin_with_a_tag_that_is_named_as_its_parameter() -> None:
    given = "<html><p>a</p></html>"
    (call,) = read_every_way(f"Action: show\nAction Input: {given}", tools=ToolSet([tool("show", "html")])).calls
    assert json.loads(call[1]) == {"html": given}


@pytest.mark.parametrize("given", ["code = 5", "code = a"])
def test_what_may_be_code_is_not_taken_for_a_name(given: str) -> None:
    found = read_every_way(f"Action: run\nAction Input: {given}", tools=ToolSet([tool("run", "code")]))
    assert found.calls == []


ENDS = [
    "\nObservation",
    "\n**Observation**",
    "\nObservation\n",
    "\nAction Result: b",
    "\n[Observation] b",
    "\n<tool_response>\nb\n</tool_response>\nAction: read\nAction Input: /b",
    "\n\nAnswer: 42",
    "\n\nUser: thanks",
    "\n \nHuman: thanks",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("name", "given", "arguments"),
    [
        ("read", "/a", {"filePath": "/a"}),
        ("bash", "ls -l", {"command": "ls -l"}),
        ("bash", '{"command": "ls"}', {"command": "ls"}),
    ],
)
def test_an_input_ends_where_somebody_else_goes_on(end: str, name: str, given: str, arguments: dict[str, str]) -> None:
    (call,) = read_every_way(f"Action: {name}\nAction Input: {given}{end}").calls
    assert (call[0], json.loads(call[1])) == (name, arguments)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("read", "/a\n\nI will wait for the result."),
        ("read", "/a\n \t\nThat is all."),
        ("say", "Dear all,\n\nAnswer: it is done."),
        ("bash", "cat <<EOF\nObservation: a\nObservation: b"),
    ],
)
def test_an_input_whose_end_cannot_be_told_is_doubt(name: str, given: str) -> None:
    text = f"Action: {name}\nAction Input: {given}"
    tools = ToolSet([tool("read", "filePath"), tool("bash", "command"), tool("say", "message")])
    found = read_every_way(text, tools=tools)
    assert (found.calls, found.text) == ([], text)
    assert any(note.verdict.meant for note in found.events if isinstance(note, Note) and note.verdict is not None)


@pytest.mark.parametrize(
    "given",
    [
        "cd /a\n\nls",
        "ls\nUser: a",
        "cat <<EOF\nObservation: a\nEOF",
        "cat <<EOF\nObservation: a\nThought: b\n\nUser: c\nEOF\nls",
        "cat <<'A' <<-B\nAction: a\nA\nThought: b\n\tB\nls",
        'echo "<<X"',
    ],
)
@pytest.mark.parametrize("behind", ["", "\nObservation: c"])
def test_what_stands_in_a_heredoc_ends_no_command(given: str, behind: str) -> None:
    (call,) = read_every_way(f"Action: bash\nAction Input: {given}{behind}").calls
    assert json.loads(call[1]) == {"command": given}


def test_a_heredoc_that_ends_with_the_answer_is_the_command_as_it_stands() -> None:
    (call,) = read_every_way("Action: bash\nAction Input: cat <<X\nleft open").calls
    assert json.loads(call[1]) == {"command": "cat <<X\nleft open"}


@pytest.mark.parametrize("between", ["Result: a", "It is there.", "[TOOL_RESULT]a[/TOOL_RESULT]", "> a"])
def test_what_was_to_follow_an_action_that_is_none_is_none(between: str) -> None:
    """The first is refused for what stands behind it, and the second goes by a result that nobody gave."""
    first = 'Thought: I look.\nAction: read\nAction Input: {"filePath": "a"}\n'
    second = 'Thought: It can go.\n**Action:** bash\n**Action Input:** {"command": "rm a"}'
    found = read_every_way(f"{first}{between}\n{second}")
    assert (found.calls, found.text) == ([], f"{first}{between}\n{second}")
    assert [name for name, _ in read_every_way(first + second).calls] == ["read", "bash"]
    of_nobody = first.replace("read", "think")
    assert [name for name, _ in read_every_way(f"{of_nobody}{between}\n{second}").calls] == ["bash"]
