"""Names of tools and parameters: which are the same in another spelling, and which are never reached by more."""

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.events import End, Start
from gateway.core.tools import Tool, ToolSet
from gateway.wire.structured_calls import NativeCalls
from strategies.dialects.rows import TABLE
from strategies.schema.known_tools import known_tools
from strategies.schema.names import acts, repair_name, resolve, resolve_parameter
from strategies.schema.tool_schema import schema_of
from tests.support.reading import read, tool


def tools(*names: str) -> ToolSet:
    return ToolSet(Tool(name=name) for name in names)


def schema(*names: str, tool: str = "tool"):
    return schema_of(Tool(name=tool, parameters={"properties": {name: {"type": "string"} for name in names}}))


@pytest.mark.parametrize(
    ("written", "declared", "mends"),
    [
        ("read_file", "read_file", ()),
        (' "read_file" ', "read_file", ("name_cleaned",)),
        ("read_file</arg_value>", "read_file", ("name_cleaned",)),
        ("read_file<arg_key>path", "read_file", ("name_cleaned",)),
        ("read_file[ARGS]", "read_file", ("name_cleaned",)),
        ("read_file(", "read_file", ("name_cleaned",)),
        ("read_file:0", "read_file", ("name_cleaned",)),
        ("functions.read_file", "read_file", ("name_prefix",)),
        ("default_api.read_file:", "read_file", ("name_cleaned", "name_prefix")),
        ("Read_File", "read_file", ("name_case",)),
        ("readFile", "read_file", ("name_folded",)),
        ("read-file", "read_file", ("name_folded",)),
        ("read_ file", "read_file", ("name_folded",)),
        ("functions.ReadFile", "read_file", ("name_prefix", "name_folded")),
        ("functions.functions.read_file", "read_file", ("name_prefix",)),
        ("google:mcp:files:read_file", "read_file", ("name_prefix",)),
        ("files/read_file:0", "read_file", ("name_cleaned", "name_prefix")),
        ("functions.cat", "read", ("name_prefix", "name_alias")),
        ("mcp__git__log", "mcp--git--log", ("name_folded",)),
        ("cat", "read", ("name_alias",)),
        ("run_shell_command", "bash", ("name_alias",)),
        ("TodoWrite", "update_todo_list", ("name_alias",)),
        ("create_file", "write_to_file", ("name_alias",)),
        ("ls", "list_files", ("name_alias",)),
    ],
)
def test_a_name_leads_to_the_one_tool_it_means(written, declared, mends):
    found = resolve(written, tools(declared, "zebra"))
    assert found is not None
    assert (found.tool.name, found.mends) == (declared, mends)


@pytest.mark.parametrize(
    ("written", "declared"),
    [
        ("", ("read",)),
        ("functions.", ("read",)),
        ("zebra", ("read",)),
        ("READ", ("read", "Read")),
        ("read-file", ("read_file", "readFile")),
        ("cat", ("read", "read_file")),
        ("ls", ("bash",)),
        ("search", ("Search", "SEARCH", "grep")),
        ("<read>", ("read",)),
        ("x" * 10_000, ("read",)),
    ],
)
def test_a_name_that_means_none_or_several_leads_nowhere(written, declared):
    assert resolve(written, tools(*declared)) is None


def test_an_exact_name_wins_over_all_folding():
    found = resolve("Read", tools("read", "Read"))
    assert found is not None
    assert (found.tool.name, found.mends) == ("Read", ())


def test_aliases_can_be_left_out():
    assert resolve("cat", tools("read"), aliases=False) is None
    assert resolve("READ", tools("read"), aliases=False) is not None


@settings(max_examples=200)
@given(name=st.text(max_size=40))
def test_any_name_is_answered(name):
    found = resolve(name, tools("read_file", "bash"))
    assert found is None or found.tool.name in ("read_file", "bash")


@pytest.mark.parametrize(
    ("written", "declared", "meant", "mends"),
    [
        ("path", ("path",), "path", ()),
        ("Path", ("path",), "path", ("parameter_case",)),
        ("file_path", ("filePath",), "filePath", ("parameter_case",)),
        ("filepath", ("path",), "path", ("parameter_alias",)),
        ("file", ("path",), "path", ("parameter_alias",)),
        ("cmd", ("command",), "command", ("parameter_alias",)),
        ("old_text", ("oldString", "newString"), "oldString", ("parameter_alias",)),
        ("workdir", ("cwd",), "cwd", ("parameter_alias",)),
        ("text", ("path", "content"), "content", ("parameter_alias",)),
        ("text", ("content",), "text", ()),
        ("pattern", ("regex",), "pattern", ()),
        ("zebra", ("path",), "zebra", ()),
        ("path", (), "path", ()),
        ("file", ("path", "filename"), "file", ()),
        ("PATH", ("path", "Path"), "PATH", ()),
    ],
)
def test_a_parameter_is_led_to_the_one_it_means(written, declared, meant, mends):
    assert resolve_parameter(written, schema(*declared), ()) == (meant, mends)


def test_search_tools_have_aliases_of_their_own():
    assert resolve_parameter("query", schema("pattern", tool="grep"), ()) == ("pattern", ("parameter_alias",))


def test_a_key_of_no_name_means_no_parameter():
    assert resolve_parameter("", schema("_"), ()) == ("", ())


@pytest.mark.parametrize("written", ["Path", "filePath"])
def test_a_parameter_that_is_set_is_not_set_again(written):
    assert resolve_parameter(written, schema("path"), {"path"}) == (written, ())


LOOKING = ("read_file", "list_files", "grep", "webfetch", "get_weather")

ACTING = ("write_to_file", "bash", "edit", "deleteFile")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("read_file", "read_file"),
        ("Read_File", "read_file"),
        ("readFile", "read_file"),
        ("read-file", "read_file"),
        ("functions.read_file", "read_file"),
        ("read_file:0", "read_file"),
        ("rg", "grep"),
        ("WriteToFile", "write_to_file"),
        ("BASH", "bash"),
        ("delete_file", "deleteFile"),
        ("functions.bash", "bash"),
        ("default_api:write_to_file", "write_to_file"),
        ("google:mcp:shell:Bash", "bash"),
    ],
)
def test_a_name_that_means_one_tool_is_repaired(written: str, meant: str) -> None:
    assert repair_name(written, tools(*LOOKING, *ACTING)) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        "functions.bash:0",
        "functions.shell",
        "rebash",
        "bash:0",
        "shell",
        "write_file",
        "Write",
        "str_replace",
        "zebra",
        "run",
    ],
)
def test_a_tool_that_acts_is_reached_by_its_own_name_alone(written: str) -> None:
    assert repair_name(written, tools(*LOOKING, *ACTING)) is None


@pytest.mark.parametrize("rest", ['({"path": "a"})', '(path="a")', '[ARGS]{"path": "a"}', "( a"])
def test_a_name_that_holds_arguments_is_none(rest: str) -> None:
    assert repair_name(f"read_file{rest}", tools(*LOOKING)) is None
    assert repair_name("read_file( )", tools(*LOOKING)) == "read_file"


def test_aliases_lead_to_declared_tools_that_do_not_act() -> None:
    aliases = {"forecast": "get_weather", "look": "bash", "gone": "missing", "See-It": "readFile"}
    declared = tools(*LOOKING, *ACTING)
    assert repair_name("Forecast", declared, aliases) == "get_weather"
    assert repair_name("see_it", declared, aliases) == "read_file"
    assert repair_name("look", declared, aliases) is None
    assert repair_name("gone", declared, aliases) is None


def test_aliases_of_the_operator_go_before_the_table() -> None:
    assert repair_name("rg", tools("grep", "ripgrep2"), {"rg": "ripgrep2"}) == "ripgrep2"
    assert repair_name("rg", tools("grep"), {"rg": "bash"}) is None


def test_two_aliases_that_differ_are_none() -> None:
    declared = tools("read_file", "get_weather")
    assert repair_name("look", declared, {"look": "read_file", "LOOK": "get_weather"}) is None


def test_two_tools_of_one_spelling_are_none() -> None:
    assert repair_name("Read-File", tools("read_file", "readFile")) is None


@pytest.mark.parametrize("name", LOOKING)
def test_tools_that_look_do_not_act(name: str) -> None:
    assert not acts(name)


@pytest.mark.parametrize("name", [*ACTING, "runSQL", "execPython", "writefile", "REMOVE_ALL", "SQLRun", "x" * 300])
def test_tools_that_write_or_execute_act(name: str) -> None:
    assert acts(name)


def test_every_known_tool_with_content_or_a_command_acts() -> None:
    bodies = {"content", "diff", "patch", "patchText", "command", "new_string", "newString", "arguments"}
    for name, variants in known_tools().items():
        if any(bodies & variant.parameters["properties"].keys() for variant in variants):
            assert acts(name), name


@given(st.text(max_size=300), st.lists(st.sampled_from([*LOOKING, *ACTING]), unique=True))
def test_a_repaired_name_is_declared(name: str, declared: list[str]) -> None:
    found = repair_name(name, tools(*declared))
    assert found is None or found in declared
    if found is not None and acts(found):
        name = re.split("[.:/]", name)[-1]
        assert name.casefold().translate(str.maketrans("", "", "-_ ")) == found.casefold().replace("_", "")


# --- Names with namespaces before them: the declared tool behind them, in every dialect and in both wires


SEGMENTS = ("read", "get", "forget", "edit", "re", "ad", "fs", "mcp", "default_api", "a")

NAMES = st.lists(st.tuples(st.sampled_from(SEGMENTS), st.sampled_from(".:/")), min_size=1, max_size=4).map(
    lambda pairs: "".join(segment + separator for segment, separator in pairs)[:-1]
)

DECLARED = st.lists(NAMES, min_size=1, max_size=5, unique=True)

EXAMPLE_NAME = re.compile(r"\b(?:read|grep|glob)\b")

OPENED_BY_NAME = {
    *(
        "generic_xml",
        "wrapped_xml",
        "prefixed_xml",
        "glm_bare",
        "mistral_stripped",
        "kimi_k2_stripped",
        "ds_stripped",
    ),
    *("functionary", "gptme"),
}

"""Dialects in which the tool's own name opens a call: one with a namespace opens none, and stays text."""

ROWS = [row for row in TABLE if EXAMPLE_NAME.search(row.example)]


def meant(written: str, declared: list[str]) -> str | None:
    """The name itself, or the longest declared one that stands behind one of its separators."""
    behind = [written[match.end() :] for match in re.finditer("[.:/]", written)]
    return next((name for name in (written, *behind) if name in declared), None)


@given(written=NAMES, declared=DECLARED)
@settings(max_examples=40, deadline=None, derandomize=True)
@example(written="default_api:forget", declared=["get", "edit"])
@example(written="a.fs.read", declared=["read", "fs.read"])
@example(written="google:mcp:fs:read", declared=["read"])
def test_text_in_any_dialect_means_the_tool_behind_its_namespaces(written: str, declared: list[str]) -> None:
    tools = ToolSet(tool(name, filePath={"type": "string"}, pattern={"type": "string"}) for name in declared)
    expected = meant(written, declared)
    assert len(ROWS) > 40
    for row in ROWS:
        found = [name for name, _ in read(EXAMPLE_NAME.sub(written, row.example), tools=tools, prompted=row.id).calls]
        if expected is None:
            assert found in ([], [written], [written.removeprefix("default_api.")]), row.id
        elif row.id in OPENED_BY_NAME:
            assert found in ([], [expected]), row.id
        else:
            assert found == [expected], row.id


@given(written=NAMES, declared=DECLARED, data=st.data())
@settings(max_examples=200, deadline=None, derandomize=True)
@example(written="functions.bash", declared=["bash"], data=None)
def test_structured_calls_mean_it_too(written: str, declared: list[str], data: Any) -> None:
    tools = ToolSet(tool(name) for name in declared)
    expected = meant(written, declared) or written

    def native() -> NativeCalls:
        return NativeCalls(lambda _dialect: "call_1", lambda name: repair_name(name, tools))

    whole: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": written, "arguments": "{}"}}
    native().mend_message([whole])
    assert whole["function"] == {"name": expected, "arguments": "{}"}
    legacy = {"name": written, "arguments": "{}"}
    assert native().take_legacy(legacy) == (expected != written)
    assert legacy == {"name": expected, "arguments": "{}"}
    comes_late = data is not None and data.draw(st.booleans())
    first: dict[str, Any] = {"index": 0, "id": "a", "type": "function", "function": {"arguments": ""}}
    late: dict[str, Any] = {"index": 0, "function": {"arguments": "{}"}}
    named = late if comes_late else first
    named["function"]["name"] = written
    streamed = native()
    for delta in [first, *([named] if comes_late else [])]:
        streamed.mend_deltas([delta])
    assert named["function"]["name"] == expected
    assert [name for _, name, _ in streamed.calls] == [expected]


def test_a_call_of_a_tool_that_does_not_exist_says_so_in_every_dialect() -> None:
    tools = ToolSet([tool("other")])
    passed = 0
    for row in ROWS:
        text = EXAMPLE_NAME.sub("launch_rocket", row.example)
        for how in ("buffered", "incremental"):
            for event in read(text, tools=tools, prompted=row.id, stream_arguments=how).events:
                if isinstance(event, Start | End):
                    passed += 1
                    assert not event.is_declared if isinstance(event, Start) else "undeclared" in event.verdict.reasons
    assert passed > 40
    found = read(ROWS[0].example, tools=ToolSet([tool("read", "filePath")]), prompted=ROWS[0].id).events
    assert all(event.is_declared for event in found if isinstance(event, Start))
