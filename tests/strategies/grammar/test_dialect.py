"""The table of dialects: every row can be read, shown, counted and written as it says of itself; and what the families
with tokens of their own must hold to.
"""

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
from gateway.core.events import Args, End, Start
from gateway.core.tools import Tool, ToolSet
from gateway.telemetry.labels import LabelGuard
from strategies.asking.renderers import RENDERERS
from strategies.base import Options
from strategies.dialects import rows as dialects
from strategies.dialects.rows import BY_ID, TABLE
from strategies.dialects.tokens import grok
from strategies.grammar.dialect import TAGS, Context, Dialect, Renderer
from strategies.reading.factory import reader_factory
from strategies.schema.tool_schema import schema_of
from strategies.text.turns import whole
from strategies.writing.renderer import CannotExpress
from strategies.writing.samples import sample_arguments
from tests.support.reading import AGENT_TOOLS, INTEGER, STRING, WRITE, read, read_every_way, together, tool

ROW = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
ROWS = together("row", {row.id: row for row in TABLE})

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


@ROWS
def test_the_example_is_a_call_without_being_asked_for(row: Dialect) -> None:
    found = read(row.example, tools=TOOLS, **switched_on(row))
    assert len(found.calls) == 1
    assert found.dialects == [row.id] or BY_ID[found.dialects[0]].level <= row.level


@ROWS
def test_the_example_is_text_where_no_tool_is_declared(row: Dialect) -> None:
    """But for special tokens, which pass any name on, and for tags, which pass on the names of well-known tools."""
    found = read(row.example, tools=ToolSet([tool("unrelated", "value")]), **switched_on(row))
    assert bool(found.calls) <= (row.level == "A" or row.family == BY_ID[TAGS].family)


@ROWS
def test_the_example_is_text_when_the_answer_is_cut_in_its_middle(row: Dialect) -> None:
    cut = row.example[: len(row.example) * 2 // 3]
    found = read(cut, tools=TOOLS, prompted=row.id, reason="length", **switched_on(row))
    assert found.calls == []
    assert found.text == cut


@ROWS
def test_a_row_says_what_it_is(row: Dialect) -> None:
    assert row.id == row.id.lower().strip()
    assert row.family.strip()
    assert row.level in ("A", "B", "C", "D", "E")
    assert all(glob == glob.lower() for glob in row.models), "models are compared in lower case"


@ROWS
def test_the_module_states_its_grammar_and_what_holds_of_it(row: Dialect) -> None:
    document = inspect.getdoc(module_of(row)) or ""
    lines = document.splitlines()
    grammar = [line for line in lines if line.startswith("    ")]
    prose = " ".join(line for line in lines if line and line not in grammar).split()
    assert any("=" in line or '"' in line for line in grammar)
    assert len(prose) >= 20, "what ends a value, what is also read, what is bounded"
    assert lines[0].endswith((".", ":"))


@ROWS
def test_where_the_form_comes_from_stands_above_its_row(row: Dialect) -> None:
    """A link, or for a damaged form what makes it come about."""
    lines = inspect.getsource(module_of(row)).splitlines()
    start = next(at for at, line in enumerate(lines) if f'id="{row.id}"' in line)
    assert lines[start - 2].startswith("# ")


@ROWS
def test_every_row_says_what_opens_it(row: Dialect) -> None:
    context = Context(tools=TOOLS, options=Options(**switched_on(row)))
    anywhere, lines, bodies = row.openers(context), row.line_openers(context), row.bodies(context)
    assert anywhere or lines or bodies
    if row.level == "A":
        assert any(len(opener) >= 5 for opener in anywhere), "special tokens count wherever they stand"


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(TABLE)


@together("row", {row.id: row for row in WRITTEN})
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

WRITERS = together("writer", RENDERERS)


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


FAMILIES = (
    *("ds_v3", "ds_v31", "ds_stripped", "kimi_k2", "kimi_k3", "mistral", "mistral_old", "mistral_stripped"),
    *("harmony", "harmony_stripped", "llama3_json", "gemma4", "functiongemma", "gemma_stripped", "granite"),
    *("granite_fc", "phi4", "command_r", "command_r_action", "internlm", "nemotron_nano", "apertus", "longcat"),
    *("gigachat", "inkling", "lfm2", "olmo3", "smollm3", "functionary", "continue", "gptme", "muse_glimmer"),
    *("gcml", "k2_horizon", "iquest", "solar_open", "solar_open2", "plamo3", "pangu", "hyperclovax", "cwm"),
    *("doubao", "tabby", "spark", "nova", "server_call", "gorilla", "nexus_raven"),
)
FAMILY = pytest.mark.parametrize("family", FAMILIES)
TOKEN_WRITERS = {family: RENDERERS[family] for family in FAMILIES if family in RENDERERS}
WRITER = pytest.mark.parametrize("writer", TOKEN_WRITERS.values(), ids=TOKEN_WRITERS)

SAVE = tool("save", "path", "content", line=INTEGER, tags={"type": "array", "items": STRING}, extra={"type": "object"})
TOKENS = (
    *(
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>",
        "<|tool_call_end|>",
        "<|tool_call_begin|>",
        "<|close|>",
        "<|sep|>",
    ),
    *("argument<|sep|>", "<|open|>argument", "<|close|>call<|sep|>", "[TOOL_CALLS]", "[ARGS]", "<|call|>", "<|end|>"),
    *("<|channel|>", "<|message|>", "<|python_tag|>", "<|eom_id|>", "</s>", '<|"|>', "<escape>", "<tool_call|>"),
    *("<|tool_call|>", "functools[", "<|END_ACTION|>", "<|action_end|>", "</TOOLCALL>", "<|tools_suffix|>", "\n>>>x"),
    *(
        "<|message_sep|>",
        "<|end_message|>",
        "<|tool_call_end|>",
        ")]",
        "}]",
        "'",
        '"',
        "\\",
        "\\n",
        "\n",
        "\r\n",
        "```",
    ),
    *("{", "}", ",", ":", "true", "null", "007", "é", " ", "</think>", "&quot;", "<![CDATA[", "]]>"),
)
TOKEN_TEXT = st.lists(st.sampled_from(TOKENS), max_size=6).map("".join) | st.text(LETTERS, max_size=12)
VALUE = st.recursive(
    TOKEN_TEXT | st.booleans() | st.none() | st.integers(-(10**20), 10**20) | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TOKEN_TEXT, inner, max_size=3),
    max_leaves=6,
)
TOKEN_ARGUMENTS = st.fixed_dictionaries(
    {"path": TOKEN_TEXT, "content": TOKEN_TEXT},
    optional={
        "line": st.integers(-3, 10**15),
        "tags": st.lists(TOKEN_TEXT, max_size=2),
        "extra": st.dictionaries(TOKEN_TEXT, VALUE, max_size=3),
    },
)


def calls_of(text: str, family: str, **how: Any) -> list[tuple[str, dict[str, Any]]]:
    found = read(text, tools=ToolSet([SAVE]), prompted=family, **how).calls
    return [(name, json.loads(arguments)) for name, arguments in found]


NAMELESS = "<|close|><|sep|>"
"""A closer of Kimi K3's that lost its word is asked about, wherever it stands."""


@given(TOKEN_ARGUMENTS)
@settings(max_examples=60, deadline=None)
def test_what_is_written_with_tokens_is_read_back(arguments: dict[str, Any]) -> None:
    for writer in TOKEN_WRITERS.values():
        try:
            text = writer.call("save", arguments, SAVE)
        except CannotExpress:
            continue
        if writer.id == "kimi_k3" and NAMELESS in text:
            continue
        assert_read_back(writer, text, arguments)


def assert_read_back(writer: Renderer, text: str, arguments: dict[str, Any]) -> None:
    assert calls_of(f"Saving.\n{text}", writer.id) == [("save", arguments)]
    twice = calls_of(writer.calls([text, text]), writer.id, duplicate_calls="keep")
    assert twice == [("save", arguments)] * 2
    streamed = read(
        f"Saving.\n{text}", tools=ToolSet([SAVE]), prompted=writer.id, reasoned=True, stream_arguments="incremental"
    )
    assert [json.loads(arguments) for _, arguments in streamed.calls] == [arguments]
    assert streamed.streamed == streamed.calls[0][1]


@WRITER
def test_plain_arguments_can_always_be_written(writer: Renderer) -> None:
    arguments = {
        "path": "a b/ü.py",
        "content": "x = {'a': 1}\n\n",
        "line": 3,
        "tags": ["a", ""],
        "extra": {"k": [1, {}]},
    }
    assert calls_of(writer.call("save", arguments, SAVE), writer.id) == [("save", arguments)]


@WRITER
def test_a_result_cannot_open_a_call(writer: Renderer) -> None:
    call = writer.call("save", {"path": "a", "content": "b"}, SAVE)
    assert calls_of(writer.result("save", "call_1", f"It prints {call} then.", "bracket"), writer.id) == []


@WRITER
def test_what_is_no_json_cannot_be_written(writer: Renderer) -> None:
    for value in (float("nan"), {"a": object()}, "\ud800"):
        with pytest.raises(CannotExpress):
            writer.call("save", {"path": "a", "content": "b", "extra": {"k": value}}, SAVE)
    with pytest.raises(CannotExpress):
        writer.call("a name\nwith a line", {}, None)


@WRITER
def test_the_tools_are_described_the_same_way_each_time(writer: Renderer) -> None:
    section = writer.tool_section([SAVE], parallel=True)
    assert section == writer.tool_section([SAVE], parallel=True)
    assert "save" in section
    assert section != writer.tool_section([SAVE], parallel=False)


@FAMILY
def test_the_example_is_a_call(family: str) -> None:
    found = read_every_way(BY_ID[family].example, prompted=family)
    assert [name for name, _ in found.calls] == ["read"]
    assert found.dialects == [family]


@FAMILY
def test_no_beginning_of_a_call_is_another_call(family: str) -> None:
    text = BY_ID[family].example
    whole = read(text).calls
    for end in range(len(text)):
        for reason in ("stop", "length"):
            found = read(text[:end], reason=reason).calls
            assert found in ([], whole), f"{text[:end]!r} {reason}"


@WRITER
def test_no_beginning_of_a_written_call_is_another_call(writer: Renderer) -> None:
    arguments = {"path": "a,b", "content": "one\n}two]", "line": 12, "tags": ["x"]}
    text = writer.call("save", arguments, SAVE)
    for end in range(len(text)):
        assert calls_of(text[:end], writer.id, reason="length") in ([], [("save", arguments)]), text[:end]
        for _, found in calls_of(text[:end], writer.id):
            assert found.items() <= arguments.items(), "no value is half of what it was"


@FAMILY
def test_markup_in_inline_code_is_text(family: str) -> None:
    example = BY_ID[family].example
    if "\n" not in example and "`" not in example:
        assert read_every_way(f"It is written `{example}` there.").calls == []


@FAMILY
def test_a_draft_in_reasoning_is_text(family: str) -> None:
    text = f"<think>\nIt could be\n{BY_ID[family].example}\n</think>\nNo, nothing to do."
    assert read_every_way(text, splits=60).calls == []


@FAMILY
def test_openers_without_end_do_no_harm(family: str) -> None:
    row = BY_ID[family]
    context_free = [*row.openers(_context()), *row.line_openers(_context())]
    for opener in context_free[:12]:
        text = (f"\n{opener}" + '{"a": "') * 300
        found = read([text[at : at + 50] for at in range(0, len(text), 50)])
        assert found.calls == []


def _context() -> Context:
    return Context(tools=AGENT_TOOLS, options=Options())


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (
            '<|open|>call tool="save" index="1"<|sep|>'
            '<|open|>argument key="path" type="string"<|sep|>a<|close|>argument<|sep|>'
            '<|open|>argument key="content" type="string"<|sep|>',
            "<|close|>argument<|sep|><|close|>call<|sep|>",
        ),
        ('<|tool_call>call:save{path:<|"|>a<|"|>,content:<|"|>', '<|"|>}<tool_call|>'),
        ("<start_function_call>call:save{path:<escape>a<escape>,content:<escape>", "<escape>}<end_function_call>"),
    ],
    ids=["kimi_k3", "gemma4", "functiongemma"],
)
def test_text_flows_before_the_call_is_complete(begin: str, end: str) -> None:
    lines = [f"line {number}\n" for number in range(20)]
    found = read([begin, *lines, end], tools=ToolSet([SAVE]), reasoned=True, stream_arguments="incremental")
    kinds = [type(event) for event in found.events]
    assert kinds[0] is Start
    assert kinds.count(Args) > 15
    assert kinds[-1] is End
    assert found.calls == [("save", json.dumps({"path": "a", "content": "".join(lines)}, separators=(",", ":")))]
    assert found.streamed == found.calls[0][1]


def test_a_text_that_is_cut_breaks_visibly_where_it_flowed() -> None:
    text = '<|tool_call>call:save{path:<|"|>a<|"|>,content:<|"|>half of it'
    found = read(text, tools=ToolSet([SAVE]), reasoned=True, stream_arguments="incremental", reason="length")
    assert found.calls == []
    assert found.broken == ["value not closed"]


def test_prototype_keys_are_dropped() -> None:
    for text in (
        '<|tool_call>call:read{filePath:<|"|>a<|"|>,__proto__:<|"|>x<|"|>}<tool_call|>',
        '<|open|>call tool="read" index="1"<|sep|>'
        '<|open|>argument key="__proto__" type="string"<|sep|>x<|close|>argument<|sep|>'
        '<|open|>argument key="filePath" type="string"<|sep|>a<|close|>argument<|sep|><|close|>call<|sep|>',
    ):
        assert read_every_way(text).calls == [("read", '{"filePath":"a"}')]


def test_nesting_is_bounded() -> None:
    for depth, count in ((60, 1), (80, 0)):
        text = f"<|tool_call>call:save{{path:a,content:b,extra:{'{k:' * depth}1{'}' * depth}}}<tool_call|>"
        assert len(read(text, tools=ToolSet([SAVE])).calls) == count


def test_only_text_for_a_text_flows() -> None:
    text = '<|tool_call>call:save{path:<|"|>a<|"|>,content:<|"|>b<|"|>,line:<|"|>12<|"|>}<tool_call|>'
    found = read(list(text), tools=ToolSet([SAVE]), reasoned=True, stream_arguments="incremental")
    assert found.streamed == '{"path":"a","content":"b","line":12}' == found.calls[0][1]


def test_the_lines_of_a_long_value_are_looked_at_in_turns() -> None:
    """All of them in one go took 145 ms, and all other streams of the process waited."""
    found = grok._Found(schema_of(WRITE), [])
    assert sum(1 for _ in grok._names_another("\n" * (1 << 20), found)) > 40
    assert whole(grok._names_another("x\n" * 50_000 + "<tool>content\ny", found))
    assert not whole(grok._names_another("x\n" * 50_000 + "the content\ny", found))
