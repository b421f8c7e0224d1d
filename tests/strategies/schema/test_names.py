import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.tools import Tool, ToolSet
from strategies.schema.names import resolve, resolve_parameter
from strategies.schema.tool_schema import schema_of


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
