"""ReAct: what an input stands for, and where there is no telling."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import STRING, read_every_way, tool


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
