"""Calls without markers of their own: what is held, when it is let go, what work it costs, and which settings apply."""

import json
import sys
from collections.abc import Callable

import pytest

from gateway.core.events import Text
from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.reading.factory import reader_factory
from tests.support.reading import AGENT_TOOLS, read, read_every_way, tool

JSON = '{"name": "read", "arguments": {"filePath": "/a"}}'

PATCHING = ToolSet([*AGENT_TOOLS, tool("apply_patch", "patchText")])


def shown(parts: list[str], **options) -> str:
    """What has gone out as text once these parts have come, before the end."""
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(**options), model="")()
    events = [event for part in parts for event in reader.feed(part)]
    return "".join(event.raw for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ('{"version": 1, ', '{"version": 1, '),
        ('{\n  "dependencies": {', '{\n  "dependencies": {'),
        ('{"name": "left-pad", ', '{"name": "left-pad", '),
        ("[1, 2", "[1, 2"),
        ("[docs](x", "[docs](x"),
        ("{ read,", "{ read,"),
        ("Action: hire ", "Action: hire "),
    ],
)
def test_what_is_refuted_goes_out_at_once(text, out):
    assert shown(list(text)) == out


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "re',
        '{"name": "read", "arguments": {"filePath": "/a',
        "[read(file",
        'read(filePath="x',
        "Action: read\n",
    ],
)
def test_what_may_become_a_call_is_held(text):
    assert shown(list(f"So.\n{text}")).rstrip() == "So."


def test_a_document_behind_the_first_key_is_not_held():
    assert shown(['{"compilerOptions": {', '"name": "read", "arguments": {}']) == (
        '{"compilerOptions": {"name": "read", "arguments": {}'
    )


@pytest.mark.parametrize(
    "text",
    [JSON, f"```json\n{JSON}\n```", f"[{JSON}]", '[read(filePath="/a")]', 'default_api.read(filePath="/a")'],
)
def test_recovery_of_json_can_be_switched_off(text):
    def calls(prompted: str | None, *, restricted: bool) -> int:
        make = reader_factory(
            tools=AGENT_TOOLS,
            options=Options(recovery_json=False),
            model="",
            prompted=prompted,
            restricted=restricted,
        )
        reader = make()
        events = [*reader.feed(text), *reader.finish("stop")]
        return sum(type(event).__name__ == "End" for event in events)

    assert calls(None, restricted=True) == 0
    assert calls(None, restricted=False) == 1


def test_scores_tell_where_the_call_stood():
    assert read(f"```tool_call\n{JSON}\n```").scores == [95]
    assert read(f"```tool_call\n{JSON}\n```", confidence_json_block=91).scores == [91]
    assert read(f"```json\n{JSON}\n```").scores == [92]
    assert read(JSON).scores == [92]
    assert read(f"{JSON}\nand so on", min_confidence=70).scores == [70]
    assert read(JSON, prompted="json_bare").scores == [99]
    assert read(f"{JSON}\nand so on", prompted="json_bare").calls == []


def test_the_second_unknown_argument_leaves_bare_json_below_the_threshold():
    text = '{"name": "read", "arguments": {"filePath": "/a", "colour": "red"}}'
    assert read(text).calls == [("read", '{"filePath":"/a","colour":"red"}')]
    text = '{"name": "read", "arguments": {"filePath": "/a", "colour": "red", "mood": "blue"}}'
    assert read(text).calls == []
    assert read(text, min_confidence=88).calls == [("read", '{"filePath":"/a","colour":"red","mood":"blue"}')]


def test_another_family_is_off_once_a_call_was_made():
    text = f"<read><filePath>/x</filePath></read>\n{JSON}"
    assert [name for name, _ in read_every_way(text).calls] == ["read"]


def test_an_object_behind_a_refused_marker_is_not_bare():
    assert read_every_way(f"<tool_call>\n{JSON}", reason="length").calls == []


def test_nesting_is_bounded():
    deep = '{"name": "read", "arguments": ' + '{"a":' * 80 + "1" + "}" * 81
    assert read_every_way(deep, splits=10).calls == []
    assert read_every_way('[read(filePath="a", x=' + "[" * 80 + "]" * 80 + ")]", splits=10).calls == []


def test_a_call_of_another_name_than_declared_is_text():
    for text in (f"```json\n{JSON}\n```", JSON, '[read(filePath="/a")]', "Action: read\nAction Input: /a"):
        assert read(text.replace("read", "zap")).calls == []


def test_an_unclosed_comment_swallows_nothing():
    for text in (f"{JSON} <!-- and\nthen", '✿FUNCTION✿: list\n✿ARGS✿: {"path": "."} <!-- and\nthen'):
        found = read_every_way(text)
        assert found.calls == []
        assert found.text == text


@pytest.mark.parametrize("key", ["command", "cmd", "script"])
def test_react_takes_a_text_for_the_only_required_parameter(key):
    tools = ToolSet([tool("run", key)])
    found = read_every_way("Action: run\nAction Input: ls -la\nObservation: x", tools=tools)
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == [("run", {key: "ls -la"})]


def test_react_reads_pairs_of_a_tool_with_several_parameters():
    found = read_every_way('Action: read\nAction Input: filePath="/a", limit=2\nThought: ok')
    assert found.calls == [("read", '{"filePath":"/a","limit":2}')]


def test_a_placeholder_is_found_in_bounded_time():
    value = "<your" + " a" * 30 + "!"
    assert read(JSON.replace("/a", value)).calls


def work(text: str, **how) -> int:
    """How many calls of functions reading costs."""
    count = 0

    def hook(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(hook)
    try:
        read([text[at : at + 64] for at in range(0, len(text), 64)], tools=PATCHING, recovery_shell=True, **how)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "id": 17',
        '{"id": 10',
        '{"type": "object"',
        '{"type": "message"',
        '{"index": 3, "title"',
        '[\n  {"title"',
        '{"items": [\n  {"n',
        '{"thought": "x", "answer',
    ],
)
def test_an_object_is_text_as_soon_as_it_can_be_no_call(text: str) -> None:
    assert shown([text]) == text


@pytest.mark.parametrize(
    "head",
    ['"id": "call_1", ', '"id": 1, ', '"index": 0, ', '"type": "function", ', '"type": "tool_use", "id": "x y", ', ""],
)
def test_what_calls_are_numbered_and_named_by_makes_no_record_of_one(head: str) -> None:
    text = "{" + head + JSON[1:]
    assert not shown([text[:-1]])
    assert read_every_way(text).calls == read_every_way(JSON).calls != []


HOSTILE: dict[str, Callable[[int], str]] = {
    "braces": lambda size: "{\n" * size,
    "brackets": lambda size: "[\n" * size,
    "lists": lambda size: "[{\n" * size,
    "names": lambda size: '{"name": "read",\n' * size,
    "open objects": lambda size: '{"name": "read", "arguments": {\n' * size,
    "objects": lambda size: (JSON + "\n") * size,
    "refused objects": lambda size: (JSON + "\nx\n") * size,
    "fences": lambda size: f"```json\n{JSON}\n```\n" * size,
    "refused fences": lambda size: f"```json\n{JSON}\n```\nx\n" * size,
    "one open fence": lambda size: "```json\n" + (JSON + "\n") * size,
    "open calls": lambda size: "read(\n" * size,
    "open lists of calls": lambda size: "[read(\n" * size,
    "refused calls": lambda size: 'read(filePath="a")\nx\n' * size,
    "open quotes": lambda size: "read(filePath='" + "it's " * size,
    "tool code": lambda size: "<tool_code>\n" * size,
    "actions": lambda size: "Action: read\n" * size,
    "open inputs": lambda size: 'Action: bash\nAction Input: {"command": "ls"\n' * size,
    "flowers": lambda size: "✿FUNCTION✿: read\n✿ARGS✿: {" * size,
    "heredocs": lambda size: "Let me see.\n```bash\n" + "cat <<A <<B\n" * size,
    "shell fences": lambda size: "Let me see.\n```bash\nls\n```\n" * size,
    "substitutions": lambda size: "Let me see.\n```bash\nls " + "$(ls " * size,
    "patches": lambda size: "*** Begin Patch\n*** Add File: a\n" * size,
    "ends of reasoning": lambda size: "</think>[" * size,
    "comments": lambda size: JSON + " /* */" * size,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_costs_linear_work(name):
    make = HOSTILE[name]
    work(make(20))
    assert work(make(800)) < 2.6 * work(make(400)) + 2000
