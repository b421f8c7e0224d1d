"""JSON values that stand for calls: every shape, and those that hostile or careless models make of them."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.cost import assert_linear
from tests.support.reading import read, read_every_way

LONGCAT = "<longcat_tool_call>{}</longcat_tool_call>"
"""A dialect whose tokens need no declared name."""
READ = {"name": "read", "arguments": {"filePath": "/a"}}


def read_value(value: Any) -> tuple[list[Any], list[str]]:
    text = LONGCAT.format(json.dumps(value))
    found = read_every_way(text)
    if not found.calls:
        assert found.text == text
    return [(name, json.loads(arguments)) for name, arguments in found.calls], [note[-1] for note in found.notes]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "multi_tool_use.parallel", "arguments": {"tool_uses": [READ]}},
        {
            "name": "multi_tool_use.parallel",
            "parameters": {"tool_uses": [{"recipient_name": "functions.read", **READ}]},
        },
        {"tool_calls": [{"id": "1", "type": "function", "function": READ}]},
        {"function_call": READ},
        {"read": {"filePath": "/a"}},
    ],
    ids=["parallel", "parallel with a recipient", "tool_calls", "function_call", "name as key"],
)
def test_every_wrapper_is_taken_off(value: Any) -> None:
    assert read_value(value)[0] == [("read", {"filePath": "/a"})]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"name": "multi_tool_use.parallel", "arguments": {"tool_uses": 3}}, "no object"),
        ({"name": "multi_tool_use.parallel", "arguments": 3}, "no object"),
        ({"name": "multi_tool_use.parallel", "arguments": [READ]}, "no object"),
        ({"name": "multi_tool_use.parallel", "parameters": "x"}, "no object"),
        ({"tool_calls": []}, "no object"),
        ({"tool_calls": [3]}, "no object"),
        ({"tool_calls": [[READ]]}, "no object"),
        ({"name": "launch", "at": "noon"}, "no arguments"),
        ({"name": "two\nlines", "arguments": {}}, "no name"),
        ({"name": " ", "arguments": {}}, "no name"),
        ({"name": "launch", "arguments": 3}, "arguments are not an object"),
    ],
)
def test_a_value_that_is_no_call_stays_text(value: Any, reason: str) -> None:
    assert read_value(value) == ([], [reason])


def test_what_a_call_says_about_itself_is_no_argument() -> None:
    value = {"name": "launch", "id": "1", "thought": "now", "type": "function"}
    assert read_value(value)[0] == [("launch", {})]


@pytest.mark.parametrize(
    ("timeout", "reason"),
    [("NaN", "`timeout` must be a number"), ("-Infinity", "`timeout` must be a number"), ("nan", "JSON: not a value")],
)
def test_what_is_no_number_is_no_argument(timeout: str, reason: str) -> None:
    text = f'```json\n{{"name": "bash", "arguments": {{"command": "x", "timeout": {timeout}}}}}\n```'
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    assert reason in [note[-1] for note in found.notes]


def test_depth_is_bounded_where_braces_do_not_say_where_a_value_ends() -> None:
    deep = "[" * 70 + "]" * 70
    text = LONGCAT.format(f"{{'name': 'bash', 'arguments': {{'command': 'x\"', 'timeout': {deep}}}}}")
    found = read_every_way(text)
    assert found.calls == []
    assert ("JSON: too deep",) in found.notes


@pytest.mark.cost
def test_arguments_under_other_names_cost_the_same_each() -> None:
    def told(count: int) -> Callable[[], object]:
        value = {"name": "read", "arguments": {f"k{number}": number for number in range(count)}}
        return partial(read, LONGCAT.format(json.dumps(value)))

    assert_linear(told, 1_000)
