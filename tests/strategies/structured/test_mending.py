"""Arguments that are mended where there is one reading of them, and left alone where there are more, or none."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gateway.core.call_class import CallClass
from gateway.core.tools import Tool, ToolSet
from strategies.structured.judge import NoJson, arguments_in, declared, judge, judging
from strategies.structured.mending import MAX_CHARS, mended
from tests.support.cost import assert_linear

READ = Tool(
    name="read",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer"},
            "deep": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "opts": {"type": "object", "properties": {"n": {"type": "number"}}, "additionalProperties": False},
            "how": {"type": "string", "enum": ["line_by_line", "whole"]},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)

A = {"path": "a"}

A5 = {"path": "a", "limit": 5}


@pytest.mark.parametrize(
    ("text", "meant", "step"),
    [
        ('{"path":"a","limit":5,}', A5, "trailing_comma"),
        ("{'path': 'a', 'deep': True}", {"path": "a", "deep": True}, "python_literal"),
        ('```json\n{"path":"a"}\n```', A, "fence"),
        ("~~~\n{'path':'a'}\n~~~\n", A, "fence"),
        ('"{\\"path\\":\\"a\\"}"', A, "double_encoded"),
        (json.dumps(json.dumps(json.dumps(A))), A, "double_encoded"),
        ('{\\"path\\": \\"a\\", \\"limit\\": \\"5\\"}', A5, "double_encoded"),
        ("<parameter=path>a</parameter>\n<parameter=limit>\n5\n</parameter>", A5, "parameter_tags"),
        ('<parameter name="path">a</parameter></invoke>', A, "parameter_tags"),
        ('{"path":"a</parameter>\\n<parameter=limit>\\n5\\n</parameter>","deep":"true"}',
         {**A5, "deep": True}, "parameter_tags"),
        ('{"path":"a","limit":"5</parameter>"}', A5, "parameter_tags"),
        ('{"path":"a"}{"path":"a"}', A, "copies_joined"),
        ('{"path":"a"} {"path": "a"}', A, "copies_joined"),
        ('{}{"path":"a"}', A, "copies_joined"),
        ('{{"path":"a"}', A, "copies_joined"),
        ('{"path":"a","limit":"5"}', A5, "typed_string"),
        ('{"path":"a","deep":"True"}', {"path": "a", "deep": True}, "typed_string"),
        ('{"path":"a","tags":"[\\"x\\"]"}', {"path": "a", "tags": ["x"]}, "stringified"),
        ('{"path":"a","opts":"{\\"n\\": \\"1.5\\"}"}', {"path": "a", "opts": {"n": 1.5}}, "stringified"),
        ('{"Path":"a"}', A, "parameter_case"),
        ('{"file_path":"a"}', A, "parameter_alias"),
        ('{"path":5}', {"path": "5"}, "number_as_text"),
        ('{"arguments":{"path":"a"}}', A, "wrapped"),
        ('{"name":"read","arguments":{"path":"a"}}', A, "wrapped"),
        ('{"path":"a\nb"}', {"path": "a\nb"}, "control_chars"),
        ('{"path":"C:\\Users\\bob"}', {"path": "C:\\Users\\bob"}, "bad_escape"),
        ('{"path":"a"}}', A, "surplus_braces"),
        ('{{"path": "a"}}', A, "copies_joined"),
        ('{"path":"a"}<|tool_call_end|><|tool_calls_section_end|>', A, "markup"),
        ('{"path":"a"}\n```<｜tool▁call▁end｜>', A, "markup"),
        ('{"path":"a","limit":"5"}\n</tool_call>\n', A5, "markup"),
        ('<|constrain|>json<|message|>{"path":"a"}<|call|>', A, "markup"),
        ('[ARGS]{"path":"a",}', A, "markup"),
        ('<tool_call>{"name":"read","arguments":{"path":"a"}}</tool_call>', A, "markup"),
        ("<function=read>\n<parameter=path>\na\n</parameter>\n</function>", A, "markup"),
        ('```json\n{"path":"a"}', A, "markup"),
        ('{"path":"a"};', A, "markup"),
        ('{"path":"a"}' * 3, A, "copies_joined"),
        ('{"pa{"path": {"path": "a{"path": "a"}', A, "copies_joined"),
        ('null{"path":"a"}', A, "copies_joined"),
        ('{"path":"a"}{}', A, "copies_joined"),
        ('[{"path":"a"}]', A, "list_unwrapped"),
        (json.dumps([json.dumps(A)]), A, "list_unwrapped"),
        ('{"arguments":{"Path":"a","limit":"5"}}', A5, "wrapped"),
        (json.dumps({"input": json.dumps(A)}), A, "wrapped"),
        (json.dumps({"tool": "read", "parameters": json.dumps(A5)}), A5, "wrapped"),
        ('{"args":{"arguments":{"path":"a"}}}', A, "wrapped"),
        ('{"read":{"path":"a"}}', A, "wrapped"),
        ('{"path":"a","limit":"None","tags":"null","deep":"undefined"}', A, "null_dropped"),
        ('{"path":"a","tags":"x"}', {"path": "a", "tags": ["x"]}, "item_alone"),
        ('{"path":"a","how":"Line By-Line"}', {"path": "a", "how": "line_by_line"}, "enum_spelling"),
        ('{"path":"a","limit":"5","path":"a"}', A5, "typed_string"),
        ('{"path":3.10}', {"path": "3.10"}, "number_as_text"),
        ('{"path":1e5,}', {"path": "1e5"}, "number_as_text"),
    ],
)  # fmt: skip
def test_what_can_mean_one_thing_is_mended(text: str, meant: Any, step: str) -> None:
    found = mended(text, declared(READ))
    assert found is not None
    assert json.loads(found.arguments) == meant
    assert step in found.steps
    assert judge("read", found.arguments, ToolSet([READ])).is_valid


@pytest.mark.parametrize(
    "text",
    [
        '{"path":"a","limit":5',
        '{"path":"a","limit":',
        '{"path":"a","limit":"five"}',
        '{"path":"a","more":1}',
        '{"path":"a","opts":{"n":1,"more":2}}',
        '{"path":"a"b"}',
        '{"path":"a"}{"path":"b"}',
        '{"path":"a"} and more',
        '{"path":"a","limit":NaN}',
        '{"path":"a","limit":5,"limit":"x"}',
        '{"path":"a","limit":5,"Limit":"6"}',
        '{"PATH":"a","Path":"b"}',
        '{"path":"a</parameter><parameter=path>b","limit":"5"}',
        '{"path":null}',
        '{"name":"write","arguments":{"path":"a"}}',
        "",
        "null",
        "[]",
        "{",
        "<parameter=path>a</parameter> <parameter=path>b</parameter>",
        '{"path":"a"}<|tool_call_end|><|tool_call_begin|>functions.read:1<|tool_call_argument_begin|>{"path":"b"}',
        '{"path": "a <|tool_call_begin|> functions.read:1 <|tool_call_argument_begin|> {"path": "b"}',
        '{"path":"a"<|tool_call_end|>',
        "<function=write>\n<parameter=path>\na\n</parameter>\n</function>",
        '<tool_call>{"name":"write","arguments":{"path":"a"}}</tool_call>',
        '[{"path":"a"},{"path":"b"}]',
        '{"path":"a","tags":"x, y"}',
        '{"path":"a","tags":{"0":"x"}}',
        '{"path":"a","limit":""}{}{"limit":1}',
        '{"path":"a","limit":"5","n":1e999}',
        '{"path":"null","limit":"x"}',
        '{"path":"a","how":"lines"}',
        '{"arguments":{"path":"a"},"limit":5}',
        '{"input":"a"}',
        '{"input":"5"}',
        '{"path":' + "1" * 5_000 + "}",
        "undefined",
        '{"path":"a","path":"b","limit":"5"}',
    ],
)
def test_what_is_not_certain_is_left_alone(text: str) -> None:
    assert mended(text, declared(READ)) is None


@pytest.mark.parametrize("text", ["null", "[]", "None", "undefined", '"null"', '""', '"{}"'])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    found = mended(text, declared(Tool(name="now", parameters={"type": "object", "properties": {}})))
    assert found is not None
    assert found.arguments == "{}"


def test_a_list_alone_is_the_only_argument_that_is_one() -> None:
    item = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    todos = {"type": "array", "items": item}
    tool = declared(
        Tool(name="todo", parameters={"type": "object", "properties": {"todos": todos}, "required": ["todos"]})
    )
    for text in ('[{"text":"a"}]', '{"todos":{"text":"a"}}', '[{"todos":[{"text":"a"}]}]'):
        found = mended(text, tool)
        assert found is not None
        assert json.loads(found.arguments) == {"todos": [{"text": "a"}]}
    assert mended('{"todos":{"item":{"text":"a"}}}', tool) is None


def test_an_empty_object_behind_may_be_another_call() -> None:
    tool = Tool(name="list", parameters={"type": "object", "properties": {"path": {"type": "string"}}})
    assert mended('{"path":"a"}{}', declared(tool)) is None


def test_a_missing_one_that_may_be_null_is_null() -> None:
    tool = Tool(
        name="find",
        parameters={
            "type": "object",
            "properties": {"q": {"type": "string"}, "n": {"type": ["integer", "null"]}},
            "required": ["q", "n"],
        },
    )
    found = mended('{"q": "x"}', declared(tool))
    assert found is not None
    assert json.loads(found.arguments) == {"q": "x", "n": None}


def test_a_file_may_hold_the_tags_that_another_value_may_not() -> None:
    properties = {"path": {"type": "string"}, "content": {"type": "string"}, "n": {"type": "integer"}}
    tool = declared(Tool(name="write", parameters={"type": "object", "properties": properties, "required": ["path"]}))
    tags = "x</parameter>\\n<parameter=n>5</parameter>"
    assert mended('{"path":"a","content":"' + tags + '","n":"6"}', tool) is not None
    assert mended('{"path":5,"content":"' + tags + '"}', tool) is None
    found = mended('{"content":"' + tags.replace("n>5", "path>5") + '"}', tool)
    assert found is not None
    assert json.loads(found.arguments) == {"content": "x", "path": "5"}


def test_what_is_too_long_is_left_alone() -> None:
    assert mended('{"path":"' + "a" * MAX_CHARS + '","limit":"5"}', declared(READ)) is None


@pytest.mark.cost
@pytest.mark.parametrize(
    "unit", ["{", "{}", '{"a":', "<parameter=a>", "</parameter>", "```\n", "<|a|>", ";", "}<|a|>", '\\"', "'", "[1,"]
)
def test_damage_costs_its_length(unit: str) -> None:
    def work_of(size: int) -> Callable[[], object]:
        text = '{"path":"' + unit * (size // len(unit))
        return lambda: (mended(text, declared(READ)), mended(unit * (size // len(unit)), declared(READ)))

    assert_linear(work_of, 1 << 12)


# --- The class of a structured call: one each, in order, as the reference library has it


READ_SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["fast", "slow"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "at": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["path"],
    "additionalProperties": False,
}

EDIT = {
    "type": "object",
    "properties": {
        "edits": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/edit"}},
        "note": {"type": ["string", "null"]},
    },
    "required": ["edits", "note"],
    "$defs": {"edit": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}},
}

SCHEMAS: dict[str, dict[str, Any]] = {"read": READ_SCHEMA, "edit": EDIT, "now": {}}

TOOLS = ToolSet(Tool(name=name, parameters=schema) for name, schema in SCHEMAS.items())


def wanted(name: str, text: str) -> str:
    """What the reference says of a call."""
    try:
        told = json.loads(text or "{}", parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return "invalid_json"
    schema = SCHEMAS.get(name)
    if schema is None:
        return "unknown_name"
    if isinstance(told, dict):
        spare = {key for key in schema.get("properties", {}) if key not in schema.get("required", [])}
        told = {key: value for key, value in told.items() if value is not None or key not in spare}
    is_valid = isinstance(told, dict) and Draft202012Validator(schema).is_valid(told)
    return "valid" if is_valid else "schema_mismatch"


def drawn(source: random.Random) -> tuple[str, str]:
    """A call, right or damaged somewhere."""
    value: Any = {
        "path": source.choice(["a.py", "", "ä", 5, None]) if source.random() < 0.5 else "a.py",
        "limit": source.choice([1, 5, 0, "5", 2.0, 2.5, None, True]),
        "mode": source.choice(["fast", "Fast", None]),
        "tags": source.choice([["a"], ["a", 1], "a", [], ["a"] * 4]),
        "at": source.choice([1, None, "1"]),
        "edits": source.choice([[{"old": "a"}], [], [{"new": "a"}], '[{"old": "a"}]']),
        "note": source.choice(["x", None]),
        "more": 1,
    }
    kept = {key: value[key] for key in value if source.random() < (0.9 if key in ("path", "edits", "note") else 0.2)}
    name = source.choice(["read", "edit", "now", "Read", "functions.read", ""])
    if name in SCHEMAS and source.random() < 0.6:
        kept = {key: item for key, item in kept.items() if key in SCHEMAS[name].get("properties", kept)}
    text = json.dumps(kept, ensure_ascii=source.random() < 0.5)
    damage = source.random()
    if damage < 0.1:
        at = source.randrange(len(text))
        text = text[:at] + text[at + 1 :]
    elif damage < 0.16:
        text = source.choice(["", "[]", "null", '"x"', "5", text + text, f"```json\n{text}\n```", text[:-1], str(kept)])
    return name, text


def test_ten_thousand_mixed_calls_have_the_classes_of_the_reference() -> None:
    source = random.Random(14)
    counted: Counter[str] = Counter()
    for _ in range(10_000):
        name, text = drawn(source)
        found = judge(name, text, TOOLS)
        assert found.call_class == wanted(name, text), (name, text, found.fault)
        assert bool(found.fault) == (not found.is_valid)
        counted[found.call_class] += 1
    assert min(counted[each] for each in CallClass) > 500


@pytest.mark.parametrize(
    ("text", "call_class"),
    [
        ("  ", "schema_mismatch"),
        ('{"path": "a", "limit": null}', "valid"),
        ('{"path": null}', "schema_mismatch"),
        ('{"path": "a", "limit": 1e999}', "schema_mismatch"),
        ('{"path": "\\ud800"}', "valid"),
        ('{"path": "a", "limit": NaN}', "invalid_json"),
        ('{"path": "a", "limit": ' + "9" * 5000 + "}", "schema_mismatch"),
        ('{"path": ' + "[" * 100_000, "invalid_json"),
        ('\ufeff{"path": "a"}', "invalid_json"),
    ],
)
def test_texts_at_the_edge(text: str, call_class: str) -> None:
    assert judge("read", text, TOOLS).call_class == call_class


def test_a_tool_without_a_schema_takes_nothing_at_all() -> None:
    assert judge("now", "", TOOLS).is_valid
    assert judge("now", '{"a": 1}', TOOLS).is_valid
    assert judge("now", "[1]", TOOLS).call_class == "schema_mismatch"


MANY = ",".join(["[[[[[1]]]]]"] * 5_600)
LOOSE = ToolSet([Tool(name="read", parameters={"properties": {"path": {"type": "string"}}, "required": ["path"]})])


@pytest.mark.parametrize(
    "text",
    [
        f'{{"path": "a", "more": [{MANY}]}}',
        f'{{"path": 5, "more": [{MANY}], "path": "a"}}',
        f'{{"path": "a", "more": [{MANY}]',
        f'{{"path": "a", "more": [{MANY},]}}',
        f'{{"path": "a", "more": [{MANY}] "x"}}',
        f'{{"path": "a", "more": [{MANY}]}} more',
        f"[{MANY}]",
        f'{{"path": "a", "more": {"[" * 200}{MANY}{"]" * 200}}}',
    ],
)
def test_arguments_that_hold_very_much_are_told_in_turns_as_others_are(text: str) -> None:
    try:
        expected = {"path": arguments_in(text)["path"]} if isinstance(arguments_in(text), dict) else []
    except NoJson:
        expected = None
    found = list(judging("read", text, LOOSE))
    assert len(found) > 3 or expected is not None
    told = json.dumps(expected) if expected is not None else "{"
    assert judge("read", text, LOOSE).call_class == judge("read", told, LOOSE).call_class


@pytest.mark.parametrize("depth", [100, 500, 900, *range(940, 1_000, 3), 5_000])
@pytest.mark.parametrize(("opener", "closer"), [('{"arguments":', "}"), ('{"a":', "}"), ("[", "]")])
def test_arguments_of_any_depth_are_refused_and_no_more(opener: str, closer: str, depth: int) -> None:
    assert mended(opener * depth + '{"path": "a"}' + closer * depth, declared(READ)) is None
