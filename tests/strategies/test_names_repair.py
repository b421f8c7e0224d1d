"""Names of structured calls, repaired; and which tools are never reached by more than another spelling."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tools import Tool, ToolSet
from strategies.schema.known_tools import known_tools
from strategies.schema.names import acts, repair_name

LOOKING = ("read_file", "list_files", "grep", "webfetch", "get_weather")
ACTING = ("write_to_file", "bash", "edit", "deleteFile")


def tools(*names: str) -> ToolSet:
    return ToolSet(Tool(name=name) for name in names)


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
