"""JSON values that stand for calls: every shape, and those that hostile or careless models make of them."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gateway.core.events import End
from strategies.base import Options
from strategies.reading.factory import reader_factory
from strategies.text.tolerant_json import parse
from tests.support.cost import assert_linear
from tests.support.reading import AGENT_TOOLS, read, read_every_way

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


FORMS = ("{}", "<tool_call>{}</tool_call>", "```json\n{}\n```", "[TOOL_CALLS][{}]", LONGCAT)
LS = {"command": "ls"}
PWD = {"command": "pwd"}


def stays(text: str) -> list[str]:
    found = read_every_way(text)
    assert (found.calls, found.text) == ([], text)
    return [reason for note in found.notes for reason in note]


@pytest.mark.parametrize(
    "inner",
    [
        '{"name":"write","arguments":{"filePath":"a.py","content":"x","content":"y"}}',
        '{"name":"write","arguments":{"filePath":"a.py","content":"","content":"y"}}',
        '{"name":"bash","name":"todoread","arguments":{"command":"ls"}}',
        '{"name":"bash","arguments":{"command":"ls"},"arguments":{"command":"pwd"}}',
        '{"name":"bash","arguments":{"command":"ls","timeout":1,"timeout":true}}',
        "{'name':'bash','arguments':{'command':'ls','command':'pwd'}}",
        '{"name":"bash","arguments":"{\\"command\\":\\"ls\\",\\"command\\":\\"pwd\\"}"}',
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_one_key_with_two_values_is_no_call(form: str, inner: str) -> None:
    stays(form.format(inner))


@pytest.mark.parametrize(
    "inner",
    [
        '{"name":"bash","name":"bash","arguments":{"command":"ls"}}',
        '{"name":"bash","arguments":{"command":"ls","command":"ls"}}',
        '{"name":"bash","arguments":{"command":"ls"},"arguments":{"command": "ls"}}',
        "{'name':'bash','arguments':{'command':'ls','command':'ls'}}",
    ],
)
def test_one_key_with_the_same_value_twice_is_mended(inner: str) -> None:
    found = read_every_way(f"<tool_call>{inner}</tool_call>")
    assert found.calls == [("bash", json.dumps(LS, separators=(",", ":")))]
    reasons = next(event.verdict.reasons for event in found.events if isinstance(event, End) and event.verdict)
    assert "key_repeated -2" in reasons


def test_keys_of_a_long_object_are_compared_across_its_parts() -> None:
    filler = ",".join(f'"k{number}":{number}' for number in range(12_000))
    for second, reason in (("ls", "key_repeated"), ("pwd", "duplicate_keys")):
        text = f'{{"command":"ls","timeout":{{}},{filler},"command":"{second}"}}'
        assert parse(text).steps == (reason,)
    assert parse(f'{{"timeout":{{}},{filler},"timeout":{{}}}}').steps == ("duplicate_keys",)


@pytest.mark.parametrize(
    "value",
    [
        {"name": "bash", "arguments": LS, "parameters": PWD},
        {"name": "bash", "arguments": {}, "input": PWD},
        {"name": "bash", "tool": "todoread", "arguments": LS},
        {"name": "bash", "tool": "todoread", "command": "ls"},
        {"name": "bash", "tool": "launch", "arguments": LS},
        {"name": "bash", "function": {"name": "todoread", "arguments": {}}},
        {"name": "bash", "arguments": LS, "function": {"name": "todoread"}},
        {"name": "bash", "arguments": LS, "function": {"name": "bash", "arguments": PWD}},
    ],
)
def test_what_says_two_things_is_no_call(value: dict[str, Any]) -> None:
    stays(f"<tool_call>{json.dumps(value)}</tool_call>")
    assert read_value(value)[0] == []


@pytest.mark.parametrize(
    "value",
    [
        {"name": "bash", "arguments": LS, "parameters": LS},
        {"name": "bash", "arguments": LS, "parameters": {}, "input": None},
        {"name": "bash", "tool": "functions.bash", "arguments": LS},
        {"name": "bash", "function": {"name": "bash", "arguments": LS}},
        {"name": "bash", "function": {"name": "bash"}, "arguments": LS},
    ],
)
def test_what_says_one_thing_twice_is_a_call(value: dict[str, Any]) -> None:
    assert read_value(value)[0] == [("bash", LS)]


@pytest.mark.parametrize("given", ['""', '" "', "[]", "null", '"null"', "{}"])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_in_the_place_of_arguments_is_none(form: str, given: str) -> None:
    text = form.format(f'{{"name":"todoread","arguments":{given}}}')
    assert read_every_way(text).calls == [("todoread", "{}")]
    stays(form.format(f'{{"name":"bash","arguments":{given}}}'))


@pytest.mark.parametrize("given", ["[1]", '"x"', "[[]]", "0", "false"])
def test_something_else_is_no_arguments(given: str) -> None:
    stays(f'<tool_call>{{"name":"todoread","arguments":{given}}}</tool_call>')


@pytest.mark.parametrize("given", ["null", " null ", "", None])
def test_no_arguments_are_no_command(given: str | None) -> None:
    assert read_value({"name": "bash", "arguments": given})[0] == []


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


@pytest.mark.parametrize("form", FORMS)
def test_members_of_a_block_without_a_value_say_nothing(form: str) -> None:
    block = {"id": "toolu_1", "input": LS, "name": "bash", "type": "tool_use", "cache_control": None, "caller": None}
    assert read_every_way(form.format(json.dumps(block))).calls == [("bash", '{"command":"ls"}')]
    assert read_every_way(form.format(block)).calls == [("bash", '{"command":"ls"}')]


@pytest.mark.parametrize(
    "more", [{"result": None}, {"error": None}, {"version": 1}, {"parameters": None, "output": ""}]
)
def test_a_record_of_a_call_is_none(more: dict[str, Any]) -> None:
    stays(json.dumps({"name": "bash", "arguments": LS, **more}))


WORDS = {"type": "text", "text": "Let me look:\\n\n"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": LS}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parts", [[WORDS, USE], [{**WORDS, "text": ""}, USE], [WORDS, USE, {**USE, "input": PWD}]])
def test_words_before_the_calls_of_a_message_go_with_it(form: str, parts: list[Any]) -> None:
    if form == FORMS[3]:
        form = "[TOOL_CALLS]{}"
    found = read_every_way(form.format(json.dumps(parts)))
    assert [json.loads(told) for _, told in found.calls] == [part["input"] for part in parts[1:]]
    assert found.content == ""


@pytest.mark.parametrize(
    "parts",
    [
        [WORDS],
        [USE, WORDS],
        [WORDS, {**WORDS, "type": "image"}],
        [WORDS, WORDS],
        [{**WORDS, "text": "x" * 501}, USE],
        [{**WORDS, "name": "bash"}, USE],
        [{"type": "text", "text": 3}, USE],
        [WORDS, {**USE, "type": "tool_result"}],
    ],
)
def test_other_parts_of_a_message_are_no_calls(parts: list[Any]) -> None:
    stays(json.dumps(parts))


@pytest.mark.parametrize(
    "begun", ['[{"type": "text", "text": "\\n', '[{"type": "text", "text": "a"}, {"type": "image", "']
)
def test_a_message_of_words_alone_is_not_held(begun: str) -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=None)()
    events = reader.feed(begun + "x" * 600)
    assert "".join(event.raw for event in events) == begun + "x" * 600


JSON = '{"name": "bash", "arguments": {"command": "ls"}}'
ODD = {
    "a comment behind": f"{JSON} // list",
    "a comment on a line": f"{JSON} // list\n",
    "another comment": f"{JSON} /* list */",
    "entities": JSON.replace('"', "&quot;"),
    "entities by number": JSON.replace('"', "&#34;"),
    "escaped": JSON.replace('"', '\\"'),
    "literal breaks": JSON.replace(", ", ",\\n  ").replace('{"name', '{\\n  "name').replace("}}", "}\\n}"),
    "a mark": f"\ufeff{JSON}",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
@pytest.mark.parametrize("form", FORMS[:3])
def test_json_is_mended_in_one_way_wherever_it_stands(form: str, text: str) -> None:
    assert read_every_way(form.replace("{}", text)).calls == [("bash", '{"command":"ls"}')]


@pytest.mark.parametrize(
    "text",
    [
        f"{JSON} / list",
        f"{JSON} /* list",
        JSON.replace('"', "&quot;").replace("ls", "a && b &lt; c"),
        JSON.replace('"', "&quot;").replace("&quot;ls&quot;", '"ls"'),
        JSON.replace('"', '\\"').replace('\\"ls\\"', '"ls"'),
        JSON.replace('"', '\\"').replace("bash", "launch"),
        JSON.replace("{", "{\\t").replace("bash", "launch"),
    ],
)
@pytest.mark.parametrize("form", FORMS[:3])
def test_json_of_which_half_is_odd_is_no_call(form: str, text: str) -> None:
    found = read_every_way(form.replace("{}", text))
    assert (found.calls, found.text) == ([], form.replace("{}", text))


ODDLY_BEGUN = [
    '{\\"name\\": \\"Alice\\", ',
    '{\\"id\\": 1, ',
    "{\\nabc ",
    '\ufeff{"a": 1, ',
    '\ufeff{"name": "Alice", ',
]


@pytest.mark.parametrize("begun", ODDLY_BEGUN)
def test_odd_json_that_is_no_call_is_not_held(begun: str) -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=None)()
    assert "".join(event.raw for event in reader.feed(begun + "x" * 600)) == begun + "x" * 600


DOUBLED = [
    '{{"name": "bash", "arguments": {"command": "echo {{x}}"}}}',
    '{{"name": "bash", "arguments": {{"command": "echo {{x}}"}}}}',
    '{"name": "bash", "arguments": {{"command": "echo {{x}}"}}}',
    '{{\n  "name": "bash",\n  "arguments": {{\n    "command": "echo {{x}}"\n  }}\n}}',
]


@pytest.mark.parametrize("text", DOUBLED)
@pytest.mark.parametrize("form", FORMS)
def test_braces_of_a_template_are_those_of_an_object(form: str, text: str) -> None:
    found = read_every_way(form.replace("{}", text))
    assert found.calls == [("bash", '{"command":"echo {{x}}"}')]


@pytest.mark.parametrize(
    "text",
    [
        "{{name}}",
        '{{ "name": {{ tool }} }}',
        '{{"name": "launch", "arguments": {}}}',
        '{{"name": "bash", "arguments": {"command": "ls"}}',
        '{{"name": "bash"}, "arguments": {"command": "ls"}}',
        '{{{"name": "bash", "arguments": {"command": "ls"}}}}',
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_other_braces_of_a_template_are_none(form: str, text: str) -> None:
    found = read_every_way(form.replace("{}", text), undeclared_tools="text")
    assert found.calls == []
