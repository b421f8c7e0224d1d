"""Qwen3-Coder: functions and parameters in tags that carry the name."""

import json

import pytest

from tests.support.reading import read, read_every_way


def call(body: str, name: str = "bash") -> str:
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def parameter(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


@pytest.mark.parametrize("text", [call(parameter("command", "ls")), call(parameter("command", "ls"))[12:-13]])
def test_the_wrapper_may_be_missing(text: str) -> None:
    assert read_every_way(text).calls == [("bash", '{"command":"ls"}')]


@pytest.mark.parametrize("document", ["a\n\n b", "</b> < c", call(parameter("command", "inner")), "x\n</parameter>\ny"])
def test_a_document_is_kept_whole(document: str) -> None:
    text = call(parameter("filePath", "a.md") + parameter("content", document), name="write")
    found = read_every_way(text)
    assert [json.loads(arguments)["content"] for _, arguments in found.calls] == [document]


def test_a_call_without_what_its_tool_requires_is_none() -> None:
    text = call(parameter("timeout", "3"))
    assert read_every_way(text).calls == []


def test_a_call_that_was_cut_off_is_none() -> None:
    text = call(parameter("command", "rm -rf build"))[:-50]
    found = read(text, reason="length")
    assert (found.calls, found.text) == ([], text)
