"""Calls that are lines of their own: where their values and objects end, and what of such lines is none."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import AGENT_TOOLS, read, read_every_way, tool

READ = ("read", '{"filePath":"a.py"}')
OBJECT = '{"filePath": "a.py"}'


def reasons(text: str, **how: object) -> list[str]:
    found = read_every_way(text, **how)  # type: ignore[arg-type]
    assert (found.calls, found.text) == ([], text)
    return [reason for note in found.notes for reason in note]


# --- Functionary


@pytest.mark.parametrize("line", [">>>read\n", "read\n", ">>>read \r\n", ">>>read\n\n"])
def test_a_name_on_its_line_is_a_call_of_functionary(line: str) -> None:
    assert read_every_way(line + OBJECT).calls == [READ]


def test_without_its_mark_the_object_is_all_of_the_message() -> None:
    assert read_every_way(f">>>read\n{OBJECT}\n>>>read\n{OBJECT}").calls == [READ, READ]
    assert "text after the object" in reasons(f"read\n{OBJECT}\nis what I would write.")
    assert read_every_way(f"Look:\nread\n{OBJECT}").calls == []


def test_code_behind_the_mark_goes_to_the_interpreter() -> None:
    tools = ToolSet([*AGENT_TOOLS, tool("python", "code")])
    found = read_every_way(f">>>python\nprint(1)\n>>>read\n{OBJECT}", tools=tools)
    assert found.calls == [("python", '{"code":"print(1)"}'), READ]
    assert read_every_way(">>>python\nprint(1)", tools=tools).calls == [("python", '{"code":"print(1)"}')]
    assert read_every_way(">>>python\nprint(1)", tools=tools, reason="length").calls == []


# --- Continue


def named(*arguments: tuple[str, str], name: str = "read", fence: str = "```") -> str:
    values = "".join(f"BEGIN_ARG: {key}\n{value}\nEND_ARG\n" for key, value in arguments)
    return f"{fence}tool\nTOOL_NAME: {name}\n{values}{fence}"


def test_an_argument_of_continue_is_the_text_between_its_marks() -> None:
    text = named(("filePath", "a.py"), ("content", "one\n\n  two"), name="write")
    ((name, arguments),) = read_every_way(text).calls
    assert (name, json.loads(arguments)) == ("write", {"filePath": "a.py", "content": "one\n\n  two"})


def test_an_end_mark_inside_a_value_ends_nothing() -> None:
    text = named(("filePath", "a.py"), ("content", "it is written\nEND_ARG\nbehind each"), name="write")
    ((_, arguments),) = read_every_way(text).calls
    assert json.loads(arguments)["content"] == "it is written\nEND_ARG\nbehind each"


def test_a_key_may_stand_on_the_line_of_its_value() -> None:
    assert read_every_way("```tool\nTOOL_NAME: read\nBEGIN_ARG:\nfilePath: 'a.py'\nEND_ARG\n```").calls == [READ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (named(("filePath", "a.py"), ("filePath", "b.py")), "`filePath` is given twice"),
        (named(("", "a.py")), "no key"),
        (named(("filePath", "a.py")).replace("\nEND_ARG", ""), "value not closed"),
        (named(("filePath", "a.py\nBEGIN_ARG: content\nx"), name="write"), "value not closed"),
        (f"{named(('filePath', 'a.py'))[:-4]}\nand more", "value not closed"),
        (named(("path", "x"), name="nobody"), "unknown_tool"),
    ],
    ids=["twice", "no key", "no end", "an end lost", "words", "nobody"],
)
def test_what_is_no_call_of_continue_says_why(text: str, reason: str) -> None:
    assert reason in reasons(text)


def test_a_call_of_continue_in_a_sentence_is_text() -> None:
    bare = named(("filePath", "a.py")).removeprefix("```tool\n").removesuffix("```")
    assert read_every_way(bare).calls == [READ]
    assert read_every_way(f"It is written so:\n{bare}").calls == []


# --- gptme


def test_a_name_behind_its_sign_is_a_call_of_gptme() -> None:
    assert read_every_way(f"I look.\n@read(call-1): {OBJECT}").calls == [READ]
    assert "no arguments" in reasons("@read(call-1): later")
    assert "no call" in reasons(f"@read(a b): {OBJECT}")


# --- CWM


@pytest.mark.parametrize("text", [f"<tool: read>\n{OBJECT}\n</tool>", "<tool: read>\na.py\n</tool>"])
def test_an_object_and_the_only_required_text_are_calls_of_cwm(text: str) -> None:
    assert read_every_way(text).calls == [READ]


def test_a_closer_inside_the_body_of_cwm_ends_nothing() -> None:
    body = '{"filePath": "a.py", "content": "<tool: x>\\n</tool> more"}'
    ((_, arguments),) = read_every_way(f"<tool: write>\n{body}\n</tool>").calls
    assert json.loads(arguments)["content"] == "<tool: x>\n</tool> more"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool: write>\na.py\n</tool>", "no arguments"),
        ('<tool: read>\n{"filePath" "a.py" "b"}\n</tool>', "JSON: "),
        (f"<tool: read>\n{OBJECT}\n", "call not closed"),
        (f"<tool: nobody>\n{OBJECT}\n</tool>", "unknown tool"),
    ],
)
def test_what_is_no_call_of_cwm_says_why(text: str, reason: str) -> None:
    assert any(told.startswith(reason) for told in reasons(text))


def test_a_call_of_cwm_that_was_cut_is_none() -> None:
    text = f"<tool: read>\n{OBJECT}\n</tool>"
    assert read(text, reason="stop").calls == [READ]
    assert read(text, reason="length").calls == []
