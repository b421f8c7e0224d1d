"""Arguments that are mended where there is one reading of them, and left alone where there are more, or none."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.tools import Tool, ToolSet
from strategies.structured.judge import declared, judge
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
    ],
)
def test_what_is_not_certain_is_left_alone(text: str) -> None:
    assert mended(text, declared(READ)) is None


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
@pytest.mark.parametrize("unit", ["{", "{}", '{"a":', "<parameter=a>", "</parameter>", "```\n", '\\"', "'", "[1,"])
def test_damage_costs_its_length(unit: str) -> None:
    def work_of(size: int) -> Callable[[], object]:
        text = '{"path":"' + unit * (size // len(unit))
        return lambda: (mended(text, declared(READ)), mended(unit * (size // len(unit)), declared(READ)))

    assert_linear(work_of, 1 << 12)
