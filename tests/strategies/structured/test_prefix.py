"""Beginnings of arguments: every one of right arguments is right, and none that has gone wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tools import Tool, ToolSet
from strategies.structured.judge import declared, judge
from strategies.structured.prefix import is_right_so_far

TOOL = Tool(
    name="edit",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer", "maximum": 10},
            "deep": {"type": "boolean"},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string"}, "n": {"type": "number"}},
                    "additionalProperties": False,
                },
            },
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)
TEXT = st.text(max_size=12)
RIGHT = st.fixed_dictionaries(
    {"path": TEXT},
    optional={
        "limit": st.integers(-20, 10) | st.none(),
        "deep": st.booleans(),
        "edits": st.lists(st.fixed_dictionaries({"old": TEXT}, optional={"n": st.floats(allow_nan=False)}), max_size=3),
        "note": TEXT | st.none(),
    },
)


@given(RIGHT, st.booleans(), st.sampled_from([None, 1]))
def test_every_beginning_of_right_arguments_is_right(value: dict[str, object], ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent, allow_nan=True)
    if not judge("edit", text, ToolSet([TOOL])).is_valid:
        return  # infinite numbers
    for end in range(len(text) + 1):
        assert is_right_so_far(text[:end], declared(TOOL)), text[:end]


@pytest.mark.parametrize(
    "text",
    [
        '{"path": 5',
        '{"Path":',
        '{"path":"a\n',
        '{"path":"\\x',
        '{"path":"\\u12g',
        "[",
        '"',
        "x",
        "{}",
        "{'path'",
        "```json",
        '{"path":"a","limit":11,',
        '{"path":"a","limit":"1',
        '{"path":"a","edits":["x',
        '{"path":"a","edits":[{"zz":',
        '{"path":"a","edits":[{"n":1.}',
        '{"path":"a"}{',
        '{"path":"a","deep":T',
        '{"path":"a",}',
        '{"path":"a" "limit"',
        "<parameter=path>",
    ],
)
def test_what_has_gone_wrong_is_told(text: str) -> None:
    assert not is_right_so_far(text, declared(TOOL))


def test_what_nests_too_deep_is_not_called_right() -> None:
    tool = Tool(name="any", parameters={})
    assert is_right_so_far('{"a":[[[', declared(tool))
    assert not is_right_so_far('{"a":' + "[" * 4000, declared(tool))
