"""Sample values: those of every required and the first optional parameter, and right to the schema."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.schema.tool_schema import schema_of
from strategies.writing.samples import sample_arguments
from tests.strategies.writing.test_documentation import tool


def test_samples_are_every_required_and_the_first_optional_parameter() -> None:
    probe = tool({name: {"type": "string"} for name in "abcd"}, "b", "d")
    assert list(sample_arguments(probe)) == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("name", "schema", "value"),
    [
        ("filePath", {"type": "string"}, "src/main.py"),
        ("workdir", {"type": "string"}, "src"),
        ("command", {"type": "string"}, "ls -la"),
        ("oldString", {"type": "string"}, "first version"),
        ("city", {"type": "string"}, "Paris"),
        ("anything", {}, "example"),
        ("when", {"type": "string", "format": "date"}, "2025-01-31"),
        ("mode", {"type": "string", "enum": ["<bad>", "good"]}, "good"),
        ("mode", {"const": "only"}, "only"),
        ("level", {"enum": [None, ["x"], "<b>", 7]}, 7),
        ("path", {"type": "string", "default": "lib"}, "lib"),
        ("limit", {"type": "integer", "default": 50}, 50),
        ("limit", {"type": "integer", "maximum": 5}, 5),
        ("n", {"type": "integer", "exclusiveMinimum": 7}, 8),
        ("ratio", {"type": "number", "exclusiveMaximum": 1}, 0),
        ("force", {"type": "boolean"}, True),
        ("none", {"type": "null"}, None),
        ("ids", {"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ("reply", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
    ],
)
def test_sample_values_fit_type_and_name(name: str, schema: dict[str, Any], value: Any) -> None:
    probe = tool({name: schema}, name)
    sample = sample_arguments(probe)
    assert sample == {name: value}
    assert schema_of(probe).check(sample) is None


FIELD = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "integer", "minimum": 3, "maximum": 9},
            {"type": "boolean"},
            {"type": ["number", "null"]},
            {"enum": ["x", "y"]},
        ]
    ),
    lambda inner: (
        inner.map(lambda items: {"type": "array", "items": items})
        | st.dictionaries(st.sampled_from(["path", "n", "note"]), inner, max_size=3).map(
            lambda fields: {"type": "object", "properties": fields, "required": list(fields)[:1]}
        )
        | inner.map(lambda form: {"anyOf": [{"type": "null"}, form]})
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["filePath", "content", "limit", "deep"]), FIELD, max_size=4), st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_samples_fit_their_own_schema(fields: dict[str, Any], count: int) -> None:
    probe = tool(fields, *list(fields)[:count])
    assert schema_of(probe).check(sample_arguments(probe)) is None
