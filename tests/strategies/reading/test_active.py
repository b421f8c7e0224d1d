"""What the dialects of a request look for, and how a text is told in which nothing can be found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.reading.active import Anchored, grammar_for

LETTERS = "ab_ (:\n<>~=\u2019"


@given(st.lists(st.text(LETTERS, min_size=1, max_size=6), max_size=8), st.text(LETTERS, max_size=40))
def test_a_text_is_found_wherever_it_stands(texts, whole):
    assert Anchored.of(texts).stand_in(whole) is any(text in whole for text in texts)


@pytest.mark.parametrize("prompted", [None, "generic_xml", "hermes"])
def test_something_that_is_looked_for_first_stands_in_each_marker(prompted):
    tools = ToolSet([Tool(name=name) for name in ("read", "read_file", "mcp__a-b__c", "Bash", "functions")])
    grammar = grammar_for(Context(tools=tools, options=Options(), model="m", prompted=prompted))
    for marker in (*grammar.rows, *grammar.line_rows, *grammar.results, "```", "~~~"):
        assert grammar.starts.stand_in(f"so {marker}x"), marker
