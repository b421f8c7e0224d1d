"""Kimi K3: where a value between tokens ends, and when there is no telling."""

import json

import pytest

from tests.support.reading import read_every_way

END = "<|close|>argument<|sep|><|close|>call<|sep|>"


def call(value: str, end: str = END, key: str = "command", tool: str = "bash", kind: str = "string") -> str:
    return f'<|open|>call tool="{tool}" index="1"<|sep|><|open|>argument key="{key}" type="{kind}"<|sep|>{value}{end}'


def arguments(text: str) -> list[dict[str, object]]:
    return [json.loads(each) for _, each in read_every_way(text).calls]


@pytest.mark.parametrize(
    "value",
    ["ls", "", " a\n", "a <|close|> b", call("inner"), "<|open|>tools<|sep|>x<|close|>tools<|sep|>", "a &amp; b"],
)
def test_a_value_is_the_text_up_to_its_own_closer(value: str) -> None:
    assert arguments(call(value)) == [{"command": value}]


def test_a_closer_that_is_repeated_ends_the_value_once() -> None:
    assert arguments(call("ls", "<|close|>argument<|sep|>" + END)) == [{"command": "ls"}]
    assert arguments(call(call("inner"), "<|close|>argument<|sep|>" + END)) == []


@pytest.mark.parametrize("key", ["", "a=b"])
def test_an_argument_without_a_key_is_none(key: str) -> None:
    assert arguments(call("ls", key=key)) == []


def test_a_key_that_is_given_twice_is_no_call() -> None:
    again = '<|close|>argument<|sep|><|open|>argument key="command" type="string"<|sep|>pwd' + END
    assert arguments(call("ls", again)) == []


def test_the_type_that_is_written_counts_where_the_schema_allows_it() -> None:
    more = '<|close|>argument<|sep|><|open|>argument key="timeout" type="{}"<|sep|>30' + END
    for kind in ("number", "string"):
        assert arguments(call("ls", more.format(kind))) == [{"command": "ls", "timeout": 30}]
