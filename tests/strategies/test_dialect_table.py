"""The table of dialects: every row can be read, shown, counted and written as it says of itself."""

import importlib
import inspect
import json
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cli.root import cli
from gateway.core.events import End
from gateway.core.tools import Tool, ToolSet
from gateway.telemetry.labels import LabelGuard
from strategies.asking.renderers import RENDERERS
from strategies.base import Options
from strategies.dialects import rows as dialects
from strategies.dialects.rows import BY_ID, TABLE
from strategies.grammar.dialect import TAGS, Context, Dialect, Renderer
from strategies.reading.factory import reader_factory
from strategies.writing.renderer import CannotExpress
from strategies.writing.samples import sample_arguments
from tests.support.reading import AGENT_TOOLS, read, read_every_way, tool

ROW = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)

WRITTEN = [row for row in TABLE if row.renderer is not None]

TOOLS = ToolSet([*AGENT_TOOLS, tool("read_file", "path"), tool("apply_patch", "input")])

ON_REQUEST: dict[str, dict[str, Any]] = {"E": {"recovery_shell": True}, "apply_patch": {"recovery_shell": True}}

"""What the operator has to switch on, by level or id."""


def switched_on(row: Dialect) -> dict[str, Any]:
    return ON_REQUEST.get(row.id) or ON_REQUEST.get(row.level, {})


def module_of(row: Dialect) -> ModuleType:
    """Where the row is defined; the table only imports it."""
    source = inspect.getsource(dialects)
    (found,) = [
        module
        for line in source.splitlines()
        if line.startswith("from strategies.dialects.")
        for module in [importlib.import_module(line.split()[1])]
        if any(held is row for held in vars(module).values())
    ]
    return found


@ROW
def test_the_example_is_a_call_of_its_own_dialect_however_it_is_cut(row: Dialect) -> None:
    found = read_every_way(row.example, tools=TOOLS, prompted=row.id, **switched_on(row))
    assert found.dialects == [row.id]
    (name, arguments) = found.calls[0]
    assert name in TOOLS
    assert json.loads(arguments)


@ROW
def test_the_example_is_a_call_without_being_asked_for(row: Dialect) -> None:
    found = read(row.example, tools=TOOLS, **switched_on(row))
    assert len(found.calls) == 1
    assert found.dialects == [row.id] or BY_ID[found.dialects[0]].level <= row.level


@ROW
def test_the_example_is_text_where_no_tool_is_declared(row: Dialect) -> None:
    """But for special tokens, which pass any name on, and for tags, which pass on the names of well-known tools."""
    found = read(row.example, tools=ToolSet([tool("unrelated", "value")]), **switched_on(row))
    assert bool(found.calls) <= (row.level == "A" or row.family == BY_ID[TAGS].family)


@ROW
def test_the_example_is_text_when_the_answer_is_cut_in_its_middle(row: Dialect) -> None:
    cut = row.example[: len(row.example) * 2 // 3]
    found = read(cut, tools=TOOLS, prompted=row.id, reason="length", **switched_on(row))
    assert found.calls == []
    assert found.text == cut


@ROW
def test_a_row_says_what_it_is(row: Dialect) -> None:
    assert row.id == row.id.lower().strip()
    assert row.family.strip()
    assert row.level in ("A", "B", "C", "D", "E")
    assert all(glob == glob.lower() for glob in row.models), "models are compared in lower case"


@ROW
def test_the_module_states_its_grammar_and_what_holds_of_it(row: Dialect) -> None:
    document = inspect.getdoc(module_of(row)) or ""
    lines = document.splitlines()
    grammar = [line for line in lines if line.startswith("    ")]
    prose = " ".join(line for line in lines if line and line not in grammar).split()
    assert any("=" in line or '"' in line for line in grammar)
    assert len(prose) >= 20, "what ends a value, what is also read, what is bounded"
    assert lines[0].endswith((".", ":"))


@ROW
def test_where_the_form_comes_from_stands_above_its_row(row: Dialect) -> None:
    """A link, or for a damaged form what makes it come about."""
    lines = inspect.getsource(module_of(row)).splitlines()
    start = next(at for at, line in enumerate(lines) if f'id="{row.id}"' in line)
    assert lines[start - 2].startswith("# ")


@ROW
def test_every_row_says_what_opens_it(row: Dialect) -> None:
    context = Context(tools=TOOLS, options=Options(**switched_on(row)))
    anywhere, lines, bodies = row.openers(context), row.line_openers(context), row.bodies(context)
    assert anywhere or lines or bodies
    if row.level == "A":
        assert any(len(opener) >= 5 for opener in anywhere), "special tokens count wherever they stand"


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(TABLE)


@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: row.id)
def test_a_renderer_bears_the_id_of_its_row(row: Dialect) -> None:
    assert row.renderer is not None
    assert row.renderer.id == row.id
    assert RENDERERS[row.id] is row.renderer


@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: row.id)
def test_what_a_renderer_writes_is_read_as_its_dialect(row: Dialect) -> None:
    assert row.renderer is not None
    arguments = {"filePath": "docs/ü.md", "limit": 7}
    text = row.renderer.call("read", arguments, AGENT_TOOLS.get("read"))
    found = read_every_way(text, prompted=row.id)
    assert found.dialects == [row.id]
    assert [(name, json.loads(given)) for name, given in found.calls] == [("read", arguments)]


def test_every_dialect_has_a_series_of_its_own() -> None:
    spilled: list[str] = []
    guard = LabelGuard({}, cap=1, on_overflow=spilled.append)
    assert [guard.bounded("dialect", row.id) for row in TABLE] == [row.id for row in TABLE]
    assert spilled == []


def test_the_command_line_lists_every_row() -> None:
    shown = CliRunner().invoke(cli, ["dialects", "--json"])
    assert shown.exit_code == 0
    entries = json.loads(shown.stdout)["dialects"]
    assert [entry["id"] for entry in entries] == [row.id for row in TABLE]
    assert [entry["example"] for entry in entries] == [row.example for row in TABLE]
    assert [entry["can_be_prompted"] for entry in entries] == [row in WRITTEN for row in TABLE]


# --- What a renderer writes, the reader of the same dialect gives back


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


def read_back(text: str, tool: Tool, dialect: str) -> list[dict[str, Any]]:
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
            assert read_back(f"Now.\n{rendered}", WRITE, writer.id) == [arguments], writer.id


@given(st.lists(ARGUMENTS, min_size=2, max_size=3, unique_by=lambda arguments: json.dumps(arguments, sort_keys=True)))
@settings(max_examples=60, deadline=None)
def test_several_calls_are_read_back_in_order(several: list[dict[str, Any]]) -> None:
    for writer in RENDERERS.values():
        if rendered := written(writer, several):
            assert read_back(writer.calls(rendered), WRITE, writer.id) == several, writer.id


@WRITERS
def test_the_example_in_the_prompt_is_a_call(writer: Renderer) -> None:
    sample = sample_arguments(WRITE)
    assert read_back(writer.call("write", sample, WRITE), WRITE, writer.id) == [sample]


@WRITERS
def test_tags_that_mean_a_parameter_by_another_name_stay_in_a_value(writer: Renderer) -> None:
    arguments = {"content": "</path><path>", "filePath": "</file><file>"}
    assert read_back(writer.call("write", arguments, WRITE), WRITE, writer.id) == [arguments]
