"""Families of one token or a pair of tokens: JSON ends by its braces, Python by its brackets."""

import json

import pytest

from tests.support.reading import read, read_every_way

CALL = '{"name": "bash", "arguments": {"command": %s}}'


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("<TOOLCALL>[", "]</TOOLCALL>"),
        ("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
        ("<|tool_call|>[", "]<|/tool_call|>"),
        ("<|tool_call|>", ""),
        ("<function_call> ", ""),
        ("functools[", "]"),
        ("<|action_start|><|plugin|>\n", "<|action_end|>"),
        ("<|tool_call_start|>[", "]<|tool_call_end|>"),
    ],
)
def test_a_closer_inside_a_string_is_data(opening: str, closing: str) -> None:
    command = f"echo '{closing.strip()}' ]}}"
    found = read_every_way(opening + CALL % json.dumps(command) + closing)
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"command": command}]
    assert found.text == ""


@pytest.mark.parametrize(
    "text",
    [
        '<|tool_call_start|>[bash(command="ls ]")]<|tool_call_end|>',
        '<function_calls>\nbash(command="ls ]")\n</function_calls>',
        '<code>\nbash(command="ls ]")\n</code>',
    ],
)
def test_python_between_tokens_ends_by_its_brackets(text: str) -> None:
    assert read_every_way(text).calls == [("bash", '{"command":"ls ]"}')]


@pytest.mark.parametrize("opening", ["functools[", "<TOOLCALL>[", "<|tool_call|>", "<|action_start|><|plugin|>\n"])
def test_a_call_that_was_cut_off_is_none(opening: str) -> None:
    text = opening + (CALL % '"rm -rf build"')[:-6]
    found = read(text, reason="length")
    assert (found.calls, found.text) == ([], text)


def test_a_word_that_only_ends_like_the_opener_opens_nothing() -> None:
    text = "my" + "functools[" + CALL % '"ls"' + "]"
    assert read_every_way(text).text == text


def test_code_for_the_interpreter_needs_a_tool_that_runs_it() -> None:
    text = "<|action_start|><|interpreter|>\nprint(1)<|action_end|>"
    assert read(text).calls == []
