"""Kimi K2: which tool an id names, whatever has become of it, and where the objects behind ids end."""

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import INTEGER, read, read_every_way, tool

ARGUMENTS = '{"filePath": "a.py"}'
READ = ("read", '{"filePath":"a.py"}')
TOOLS = ToolSet([tool("read", "filePath"), tool("read2", "path"), tool("count", "n", n=INTEGER)])


def call(written: str, arguments: str = ARGUMENTS) -> str:
    return f"<|tool_call_begin|>{written}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


def section(*calls: str) -> str:
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *(("functions.read:0", "read"), ("read:7", "read"), ("functions.read : 3", "read")),
        *(("functions_read_3", "read"), ("functionsread3", "read"), ("read", "read"), ("read.4", "read")),
    ],
)
def test_an_id_names_its_tool_however_a_client_has_damaged_it(written: str, name: str) -> None:
    assert read_every_way(section(call(written))).calls == [(name, READ[1])]


def test_of_two_names_that_an_id_may_begin_with_the_longer_one_counts() -> None:
    assert read(section(call("functionsread21", '{"path": "a"}')), tools=TOOLS).calls == [("read2", '{"path":"a"}')]
    assert read(section(call("functionsread1")), tools=TOOLS).calls == [READ]


def test_a_bare_counter_is_a_call_where_one_tool_alone_takes_the_arguments() -> None:
    assert read_every_way(section(call("3", '{"n": 4}')), tools=TOOLS).calls == [("count", '{"n":4}')]
    assert ("the id names no tool",) in read_every_way(section(call("3", '{"m": 4}')), tools=TOOLS).notes
    both = ToolSet([tool("count", "n", n=INTEGER), tool("weigh", "n", n=INTEGER)])
    assert read_every_way(section(call("3", '{"n": 4}')), tools=both).calls == []


def test_words_before_the_first_call_of_a_section_are_for_nobody() -> None:
    found = read_every_way(section("I read it. ", call("functions.read:0")))
    assert (found.calls, found.text) == ([READ], "")


def test_a_call_may_stand_without_its_section_and_without_its_end() -> None:
    assert read_every_way(call("functions.read:0")).calls == [READ]
    assert read_every_way(call("functions.read:0").removesuffix("<|tool_call_end|>")).calls == [READ]
    assert read(call("functions.read:0")[:-25], reason="length").calls == []


def test_a_section_without_a_call_is_markup_without_one() -> None:
    for text in (section(), section("Nothing to do.")):
        found = read_every_way(text)
        assert (found.calls, found.text) == ([], "")
        assert found.dropped == [("remains", text)]


@pytest.mark.parametrize("behind", ["", "\n", "<|tool_call_end|>", "<|tool_calls_section_end|>"])
def test_of_calls_that_have_lost_their_tokens_ids_and_objects_are_left(behind: str) -> None:
    text = f"functions.read:0{ARGUMENTS}{behind}functions.read:1{ARGUMENTS.replace('a.py', 'b.py')}{behind}"
    assert read_every_way(text, model="kimi-k2").calls == [READ, ("read", '{"filePath":"b.py"}')]


@pytest.mark.parametrize("behind", ['"', ", more", ': "x"', "\\n{", '\n",\n"limit": 3}'])
def test_an_object_of_these_that_goes_on_is_no_call(behind: str) -> None:
    text = f"functions.read:0{ARGUMENTS}{behind}"
    found = read_every_way(text, model="kimi-k2")
    assert (found.calls, found.text) == ([], text)
    assert found.notes == [("more of the object",)]


def test_an_object_behind_which_a_line_begins_that_is_the_rest_of_a_text_is_no_call() -> None:
    text = f'functions.read:0{ARGUMENTS}\n{{", "limit": 3}}'
    assert (read_every_way(text, model="kimi-k2").calls, read(text, model="kimi-k2").text) == ([], text)


@pytest.mark.parametrize("text", [section(call("")), section("<|tool_call_begin|>functions.read:0 later")])
def test_without_an_id_or_an_object_there_is_no_call(text: str) -> None:
    found = read_every_way(text)
    assert found.calls == []
    assert ("no id",) in found.notes


@pytest.mark.parametrize("text", [f"functions.read:{ARGUMENTS}", "functions.read:0 is its name"])
def test_without_its_tokens_an_id_needs_its_number_and_its_object(text: str) -> None:
    found = read_every_way(text, model="kimi-k2")
    assert (found.calls, found.text) == ([], text)
