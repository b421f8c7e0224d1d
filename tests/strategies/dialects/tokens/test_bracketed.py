"""Calls between markers in square brackets: what stands between them, and words in brackets that are none."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import INTEGER, STRING, read_every_way, tool

OBJECT = '{"filePath": "a.py"}'
READ = ("read", '{"filePath":"a.py"}')
SAVE = ToolSet([tool("save", "path", line=INTEGER, tags={"type": "array", "items": STRING})])


def arrows(members: str, *, name: str = '"read"') -> str:
    return f"[TOOL_CALL]\n{{tool => {name}, args => {{\n{members}\n}}}}\n[/TOOL_CALL]"


def reasons(text: str, **how: object) -> list[str]:
    found = read_every_way(text, **how)  # type: ignore[arg-type]
    assert (found.calls, found.text) == ([], text)
    return [reason for note in found.notes for reason in note]


@pytest.mark.parametrize(
    "text",
    [
        *(f"[{opener}read({OBJECT})]" for opener in ("Tool call: ", "Calling tool: ", "Tool call:")),
        *(f"[Tool Call: read]\nArguments: {OBJECT}", f"[Tool Call: read (ID: call_1)]\nArguments: {OBJECT}"),
        f'[TOOL_REQUEST]{{"name": "read", "arguments": {OBJECT}}}[END_TOOL_REQUEST]',
        f'[TOOL_CALL]\n{{"name": "read", "arguments": {OBJECT}}}\n[/TOOL_CALL]',
        f"<|recipient|>read<|content|>{OBJECT}<|stop|>",
        f"<|from|>assistant\n<|recipient|>read<|content|>{OBJECT}",
    ],
)
def test_each_kind_of_bracket_holds_a_call(text: str) -> None:
    assert read_every_way(text).calls == [READ]


def test_a_tool_without_arguments_needs_no_object() -> None:
    tools = ToolSet([tool("stop")])
    for text in ("[Calling tool: stop]", "[Calling tool: stop()]", "[Calling tool: stop( )]"):
        assert read_every_way(text, tools=tools).calls == [("stop", "{}")]


@pytest.mark.parametrize("text", ["[Tool call: see below]", "[Calling tool: none of them]", "[Tool Call: a(b)]"])
def test_words_in_brackets_are_words(text: str) -> None:
    assert reasons(text)


@pytest.mark.parametrize(
    ("members", "arguments"),
    [
        ('--path "a"', {"path": "a"}),
        ("--path 'it\\'s'", {"path": "it's"}),
        ('--path "a", --line 3', {"path": "a", "line": 3}),
        ('--path "a"\n--tags ["x", "y"]', {"path": "a", "tags": ["x", "y"]}),
    ],
)
def test_arrows_give_keys_and_values(members: str, arguments: dict[str, object]) -> None:
    for name in ('"save"', "'save'", "save"):
        ((found, given),) = read_every_way(arrows(members, name=name), tools=SAVE).calls
        assert (found, json.loads(given)) == ("save", arguments)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ('--path "a" --path "b"', "`path` is given twice"),
        ('path "a"', "no key"),
        ('-- "a"', "no key"),
        ("--path 'a", "value not closed"),
        ("--path a b", "JSON: "),
    ],
)
def test_arrows_that_could_mean_two_things_are_text(members: str, reason: str) -> None:
    assert any(told.startswith(reason) for told in reasons(arrows(members, name='"save"'), tools=SAVE))


def test_what_stands_behind_an_object_or_names_nobody_leaves_text() -> None:
    assert "unknown_tool" in reasons(arrows('--path "a"'), tools=SAVE)
    assert "no arguments" in reasons(f"[Calling tool: read({OBJECT} and more)]")
