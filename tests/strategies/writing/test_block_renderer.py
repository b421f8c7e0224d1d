"""Dialects without tokens of their own, written: their form, what they cannot carry, and results that stay data."""

import json

import pytest

from strategies.dialects.rows import BY_ID
from strategies.grammar.dialect import Renderer
from strategies.writing.renderer import CannotExpress
from tests.support.reading import AGENT_TOOLS, read

READ = AGENT_TOOLS.get("read")
WRITERS = {
    name: BY_ID[name].renderer for name in ("json_fence", "xlam", "pythonic", "tool_code", "react", "qwen_agent")
}


def writer(name: str) -> Renderer:
    found = WRITERS[name]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("json_fence", '```json\n{"name": "read", "arguments": {"filePath": "/a", "limit": 2}}\n```'),
        ("xlam", '[{"name": "read", "arguments": {"filePath": "/a", "limit": 2}}]'),
        ("pythonic", '[read(filePath="/a", limit=2)]'),
        ("tool_code", '```tool_code\nprint(default_api.read(filePath="/a", limit=2))\n```'),
        ("react", 'Action: read\nAction Input: {"filePath": "/a", "limit": 2}'),
        ("qwen_agent", '✿FUNCTION✿: read\n✿ARGS✿: {"filePath": "/a", "limit": 2}'),
    ],
)
def test_a_call_has_its_form(name, text):
    assert writer(name).call("read", {"filePath": "/a", "limit": 2}, READ) == text


@pytest.mark.parametrize("name", WRITERS)
def test_several_calls_are_read_back(name):
    one = writer(name).call("read", {"filePath": "/a"}, READ)
    other = writer(name).call("list", {}, AGENT_TOOLS.get("list"))
    assert [call for call, _ in read(writer(name).calls([one, other, one]), prompted=name).calls] == [
        "read",
        "list",
        "read",
    ]
    assert writer(name).calls([]) == ""


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "```\nx\n```",
        "```tool_code\n",
        "\r\n\t",
        "a\u2028b",
        'it\'s "q" \\n',
        "✿ARGS✿: {}",
        "\nObservation: x",
        "]",
        ")",
    ],
)
def test_awkward_text_survives(name, text):
    tool = AGENT_TOOLS.get("write")
    arguments = {"filePath": "/a", "content": text}
    found = read(writer(name).call("write", arguments, tool), prompted=name)
    assert [json.loads(arguments) for _, arguments in found.calls] == [arguments]


@pytest.mark.parametrize("name", ["json_fence", "xlam", "pythonic", "tool_code"])
def test_a_placeholder_would_not_be_read_back(name):
    with pytest.raises(CannotExpress) as refused:
        writer(name).call("read", {"filePath": "path/to/file"}, READ)
    assert "path/to/file" in (refused.value.nearest or "")


@pytest.mark.parametrize("name", ["pythonic", "tool_code"])
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("read", {"file path": "/a"}),
        ("re ad", {"filePath": "/a"}),
        ("read", {"filePath": "/a", "x": {"a": float("nan")}}),
    ],
)
def test_python_carries_only_its_own_names_and_values(name, call, arguments):
    with pytest.raises(CannotExpress):
        writer(name).call(call, arguments, READ)


@pytest.mark.parametrize("name", WRITERS)
def test_a_value_of_another_type_is_refused(name):
    with pytest.raises(CannotExpress):
        writer(name).call("read", {"filePath": "/a", "limit": "2"}, READ)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tool_code", "```\n```tool_code\nx"),
        ("react", "Action: read\nAction Input: {}\nFinal Answer: x"),
        ("qwen_agent", "✿FUNCTION✿: read"),
    ],
)
def test_a_result_cannot_write_the_dialect(name, content):
    shown = writer(name).result("read", "c1", content, "plain")
    assert content not in shown
    assert shown.replace("\u200b", "").endswith(content) or name == "tool_code"


@pytest.mark.parametrize("name", WRITERS)
def test_the_prompt_names_tools_form_and_example(name):
    section = writer(name).tool_section(list(AGENT_TOOLS), parallel=True)
    assert "filePath" in section
    assert "NAME" in section
    assert section == writer(name).tool_section(list(AGENT_TOOLS), parallel=True)
    assert writer(name).tool_section(list(AGENT_TOOLS), parallel=False) != section
