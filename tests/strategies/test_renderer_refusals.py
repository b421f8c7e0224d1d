"""What no dialect with a form of its own can carry is refused when it is written, with the nearest form shown."""

from typing import Any

import pytest

from gateway.core.tools import Tool
from strategies.dialects.rows import BY_ID
from strategies.grammar.dialect import Renderer
from strategies.writing.renderer import CannotExpress
from tests.support.reading import AGENT_TOOLS, tool

READ = AGENT_TOOLS.get("read")
NAMES = ("llama3_json", "phi4", "longcat", "json_fence", "pythonic", "tool_code", "gemma4", "kimi_k3")


def writer(name: str) -> Renderer:
    found = BY_ID[name].renderer
    assert found is not None
    return found


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(
    ("name", "arguments", "declared", "reason"),
    [
        ("multi_tool_use.parallel", {}, None, "the arguments would not be read as such"),
        ("x", {"type": "object", "properties": {}}, tool("x"), "the arguments would not be read as such"),
        ("functions.read", {"filePath": "a"}, READ, "the name would be read as another"),
        ("Read", {"filePath": "a"}, READ, "the name would be read as another"),
        ("x", {"a": float("inf")}, None, "a value is no plain JSON"),
        ("x", {"a": "\ud800"}, None, "a value is no plain JSON"),
        ("x", {"a": 10**5000}, None, "a value is no plain JSON"),
    ],
    ids=["several calls", "a schema", "a prefix", "another case", "infinity", "half a character", "a huge number"],
)
def test_what_would_be_read_as_something_else_is_refused(
    dialect: str, name: str, arguments: dict[str, Any], declared: Tool | None, reason: str
) -> None:
    with pytest.raises(CannotExpress) as refused:
        writer(dialect).call(name, arguments, declared)
    assert refused.value.reason == reason
    assert (refused.value.nearest is None) == (reason == "a value is no plain JSON")


@pytest.mark.parametrize(
    ("dialect", "arguments", "reason"),
    [
        ("gemma4", {"a": 'the quotes <|"|> of it'}, "a text holds the quotes that would end it"),
        ("gemma4", {"a": [{"b": '<|"|>'}]}, "a text holds the quotes that would end it"),
        ("functiongemma", {"a": "<escape>"}, "a text holds the quotes that would end it"),
        ("gemma4", {"a": {"b\nc": 1}}, "a key cannot be written"),
        ("kimi_k3", {"a\nb": "x"}, "a key cannot be written"),
        ("kimi_k3", {"a": "x<|close|>argument<|sep|><|close|>call<|sep|>"}, "`a` holds the tokens that would end it"),
        ("pythonic", {"a\nb": "x"}, "a name is no Python name"),
    ],
)
def test_what_would_end_a_value_is_refused(dialect: str, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(CannotExpress) as refused:
        writer(dialect).call("deploy", arguments, None)
    assert refused.value.reason == reason


@pytest.mark.parametrize("dialect", ["pythonic", "tool_code"])
def test_a_name_with_the_own_prefix_is_refused(dialect: str) -> None:
    with pytest.raises(CannotExpress, match="read as another"):
        writer(dialect).call("default_api.read", {"a": "b"}, None)


@pytest.mark.parametrize("dialect", NAMES)
def test_a_section_has_an_example_of_the_first_tool_alone(dialect: str) -> None:
    read, listing = AGENT_TOOLS.get("read"), AGENT_TOOLS.get("list")
    assert read is not None
    assert listing is not None
    assert "For example" not in writer(dialect).tool_section([], parallel=False)
    section = writer(dialect).tool_section([read, listing], parallel=False)
    assert "read" in section.partition("For example:")[2]


def test_a_tool_whose_example_cannot_be_written_has_none() -> None:
    awkward = tool("x", "type", "properties", type={"const": "object"}, properties={"const": {}})
    for dialect in ("llama3_json", "json_fence"):
        assert "For example" not in writer(dialect).tool_section([awkward], parallel=False)
