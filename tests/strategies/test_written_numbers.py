"""A number where the schema wants text is that number as it was written, in every dialect."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import End
from gateway.core.tools import Tool, ToolSet
from strategies.dialects.rows import TABLE
from strategies.schema.tool_schema import schema_of
from strategies.text.dumping import dumps
from strategies.text.python_text import read_calls
from strategies.text.strict_json import loads_strict
from strategies.text.tolerant_json import parse
from tests.support.reading import read, tool

JSON_NUMBERS = ("42", "0", "-0", "1.10", "1e5", "-2.50", "12345678901234567890", "0.1", "1E+2", "3.0")
PYTHON_NUMBERS = ("007", "0x1F", "+5", "1_000", ".5", "5.")
CARRIERS = [row for row in TABLE if '"src/app.py"' in row.example]
READ = ToolSet([tool("read", "filePath")])


@pytest.mark.parametrize("digits", JSON_NUMBERS)
def test_a_number_is_delivered_as_it_was_written(digits):
    assert len(CARRIERS) > 20
    for row in CARRIERS:
        found = read(row.example.replace('"src/app.py"', digits), tools=READ, prompted=row.id)
        assert [json.loads(arguments) for _, arguments in found.calls] == [{"filePath": digits}], row.id
        assert any("number_as_text -2" in event.verdict.reasons for event in found.events if isinstance(event, End))


@pytest.mark.parametrize("digits", PYTHON_NUMBERS)
def test_a_number_of_python_is_delivered_as_it_was_written(digits):
    found = read(f"[read(filePath={digits})]", tools=READ)
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"filePath": digits}]


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "maybe": {"type": ["string", "null"]},
        "words": {"type": "array", "items": {"type": "string"}},
        "word": {"enum": ["1", "2"]},
        "free": {},
    },
}


def test_only_where_text_alone_fits_is_a_number_text():
    schema = schema_of(Tool(name="f", parameters=SCHEMA))
    given = parse('{"text": 1.50, "either": 5, "maybe": 7, "words": [1, "x"], "word": 2, "free": 3}').value
    adapted = schema.from_json(given)
    assert adapted.arguments == {
        "text": "1.50",
        "either": 5,
        "maybe": "7",
        "words": ["1", "x"],
        "word": "2",
        "free": 3,
    }
    assert adapted.mends == ("number_as_text",)
    assert schema.from_json({"text": True}).arguments == {"text": True}


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=200)
def test_a_number_stays_the_number_it_is(value):
    for text in (json.dumps(value), repr(value)):
        assert loads_strict(text) == value
        assert json.loads(dumps(loads_strict(text))) == value
        assert read_calls(f"f(a={text})")[0].arguments == {"a": value}


def test_a_number_too_long_to_write_is_read():
    found = read_calls(f"f(a=0x{'f' * 6000})")[0].arguments
    assert found["a"] == int("f" * 6000, 16)
