"""What a renderer writes, the reader of the same dialect gives back."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import End
from gateway.core.tools import Tool, ToolSet
from strategies.asking.renderers import RENDERERS
from strategies.base import Options
from strategies.grammar.dialect import Renderer
from strategies.reading.factory import reader_factory
from strategies.writing.renderer import CannotExpress
from strategies.writing.samples import sample_arguments

WRITE = Tool(
    name="write",
    parameters={
        "type": "object",
        "properties": {
            "filePath": {"type": "string"},
            "content": {"type": "string"},
            "line": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object"},
        },
        "required": ["filePath", "content"],
    },
)
PIECES = (
    *("</content>", "</write>", "<write>", "<filePath>", "</filePath>", "<line>", "</line>", "<path>", "</path>"),
    *("<tool_call>", "</tool_call>", "<parameter=x>", "\n</parameter>\n", "<think>", "</think>", "</tool>"),
    *("<div>", "</div>", "<br/>", '<a href="x">', "</a>", "<!-- c -->", "List<str>", "a < b", "]]>", "<![CDATA["),
    *("&lt;", "&amp;&amp;", "```\n", "```py\n", "{", "}", '"', "\\", "\n", "\r\n", "\r", " ", "\t", "é", "x = 1"),
)
# Beside an escaped backslash these two look like one that was lost before a `b` or an `f`: that is asked about.
LETTERS = st.characters(codec="utf-8", exclude_characters="\b\f")
TEXT = st.lists(st.sampled_from(PIECES), max_size=7).map("".join) | st.text(LETTERS, max_size=30)
ARGUMENTS = st.fixed_dictionaries(
    {"filePath": TEXT, "content": TEXT},
    optional={
        "line": st.integers(-5, 10**12),
        "note": st.none() | TEXT,
        "tags": st.lists(TEXT, max_size=2),
        "options": st.dictionaries(TEXT, TEXT | st.booleans() | st.integers() | st.none(), max_size=2),
    },
)
WRITERS = pytest.mark.parametrize("writer", RENDERERS.values(), ids=RENDERERS)


def read(text: str, tool: Tool, dialect: str) -> list[dict[str, Any]]:
    reader = reader_factory(tools=ToolSet([tool]), options=Options(), model="m", prompted=dialect)()
    events = [*reader.feed(text), *reader.finish("stop")]
    return [json.loads(event.arguments) for event in events if isinstance(event, End)]


def written(writer: Renderer, several: list[dict[str, Any]]) -> list[str]:
    """The calls in the dialect's words; none where it has no words for one of them."""
    try:
        return [writer.call("write", arguments, WRITE) for arguments in several]
    except CannotExpress:
        return []


@given(ARGUMENTS)
@settings(max_examples=200, deadline=None)
def test_a_call_is_read_back_as_it_was(arguments: dict[str, Any]) -> None:
    for writer in RENDERERS.values():
        for rendered in written(writer, [arguments]):
            assert read(f"Now.\n{rendered}", WRITE, writer.id) == [arguments], writer.id


@given(st.lists(ARGUMENTS, min_size=2, max_size=3, unique_by=lambda arguments: json.dumps(arguments, sort_keys=True)))
@settings(max_examples=60, deadline=None)
def test_several_calls_are_read_back_in_order(several: list[dict[str, Any]]) -> None:
    for writer in RENDERERS.values():
        if rendered := written(writer, several):
            assert read(writer.calls(rendered), WRITE, writer.id) == several, writer.id


@WRITERS
def test_the_example_in_the_prompt_is_a_call(writer: Renderer) -> None:
    sample = sample_arguments(WRITE)
    assert read(writer.call("write", sample, WRITE), WRITE, writer.id) == [sample]


@WRITERS
def test_tags_that_mean_a_parameter_by_another_name_stay_in_a_value(writer: Renderer) -> None:
    arguments = {"content": "</path><path>", "filePath": "</file><file>"}
    assert read(writer.call("write", arguments, WRITE), WRITE, writer.id) == [arguments]
