"""GLM: keys and values in tags of their own behind the name of the tool."""

import json

import pytest

from tests.support.reading import read, read_every_way


def call(*pairs: tuple[str, str], name: str = "bash", end: str = "</tool_call>") -> str:
    body = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in pairs)
    return f"<tool_call>{name}\n{body}{end}"


def test_values_are_typed_by_the_schema() -> None:
    found = read_every_way(call(("command", "30"), ("timeout", "30")))
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"command": "30", "timeout": 30}]


@pytest.mark.parametrize("value", ["a < b", "echo '</tool_call>' done", "<b>x</b>", "a\n\nb"])
def test_a_value_is_what_stands_between_its_tags(value: str) -> None:
    found = read_every_way(call(("command", value)))
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"command": value}]


def test_calls_follow_each_other() -> None:
    text = call(("command", "a")) + "\n" + call(("filePath", "b"), name="read")
    assert [name for name, _ in read_every_way(text).calls] == ["bash", "read"]


def test_a_key_that_is_given_twice_is_no_call() -> None:
    text = call(("command", "a"), ("command", "b"))
    assert read_every_way(text).calls == []


def test_a_call_that_was_cut_off_is_none() -> None:
    text = call(("command", "rm -rf build"), end="")[:-20]
    found = read(text, reason="length")
    assert (found.calls, found.text) == ([], text)


def test_entities_in_an_attribute_are_undone_once() -> None:
    found = read_every_way('<tool_call>bash command="ls &amp;&amp; echo &quot;a&amp;lt;&quot;"</tool_call>')
    assert found.calls == [("bash", '{"command":"ls && echo \\"a&lt;\\""}')]
    text = '<tool_call>bash command="a && b &amp; c"</tool_call>'
    assert (read_every_way(text).calls, read_every_way(text).text) == ([], text)
