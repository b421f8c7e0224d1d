"""The page on strategies and dialects is true: its example runs, its tables are those of the code."""

import inspect
import json
import re
import textwrap
from pathlib import Path

import pytest

from gateway.core.events import End, Event, Text
from gateway.core.tools import ToolSet
from strategies.base import Options
from strategies.dialects.rows import TABLE
from strategies.grammar.confidence import FORMS, cost
from strategies.grammar.dialect import Context, Dialect
from strategies.reading.active import Grammar
from strategies.reading.reader import Reader
from strategies.text.cursor import Cursor
from strategies.text.tolerant_json import CHOSEN
from tests.fixtures.example_dialect import heron
from tests.fixtures.example_dialect.heron import HERON
from tests.support.golden import parse
from tests.support.pages import part
from tests.support.reading import AGENT_TOOLS, pieces

STRATEGIES = Path(__file__).parents[2] / "strategies"
PAGE = (STRATEGIES / "README.md").read_text(encoding="utf-8") if (STRATEGIES / "README.md").exists() else ""


def cells(head: str) -> list[list[str]]:
    """The cells of the table whose first column bears this head."""
    found = re.search(rf"^\| {head} \|.*\n\|[ |-]*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].splitlines()]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def read(*parts: str, tools: ToolSet = AGENT_TOOLS, reason: str = "stop", rows: tuple[Dialect, ...] = (HERON,)) -> str:
    """The calls and the text of an answer, read by these dialects beside all others; nothing may be lost."""
    context = Context(tools=tools, options=Options())
    reader = Reader(context, Grammar.of(context, [*TABLE, *rows]))
    events: list[Event] = [event for part in parts for event in reader.feed(part)]
    events += reader.finish(reason)
    assert "".join(event.raw for event in events) == "".join(parts)
    calls = [(event.name, event.arguments) for event in events if isinstance(event, End)]
    return json.dumps([calls, "".join(event.raw for event in events if isinstance(event, Text))])


ANSWERS = {
    "its example": (HERON.example, 1),
    "words around": (f"Reading.\n{HERON.example}\nThen more.", 1),
    "the end marker in a string": ('<<call bash>>{"command": "echo \'<<end>>\'"}<<end>>', 1),
    "JSON to be mended": ("<<call list>>{'path': 'a',}<<end>>", 1),
    "two calls": (f"{HERON.example}\n{HERON.example}", 2),
    "no end marker": (HERON.example.removesuffix("<<end>>"), 1),
    "an undeclared name": ("<<call launch>>{}<<end>>", 1),
    "inline code": (f"Write `{HERON.example.replace(chr(10), '')}`.", 0),
    "a required argument missing": ("<<call read>>{}<<end>>", 0),
    "an unclosed object": ('<<call bash>>{"command": "ls', 0),
    "an opener in prose": ("You can <<call me>> later.", 0),
    "an invented result": (f"{HERON.example}\n<<result read>>\nx = 1\n<<end>>\n{HERON.example}", 1),
}


def test_the_page_quotes_the_example() -> None:
    source = Path(inspect.getsourcefile(heron) or "").read_text(encoding="utf-8")
    assert part(PAGE, "example") == f"```python\n{source.rstrip()}\n```"


@pytest.mark.parametrize("name", ANSWERS)
def test_the_example_is_read_as_it_says_however_it_is_cut(name: str) -> None:
    text, calls = ANSWERS[name]
    whole = read(text)
    assert len(json.loads(whole)[0]) == calls
    assert read(*text) == whole
    for cut in range(len(text)):
        assert read(*pieces(text, [cut])) == whole


def test_the_golden_case_of_the_page_is_one() -> None:
    found = re.search(r"^   ```text\n(   # heron\n.*?)^   ```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    (case,) = parse("heron", textwrap.dedent(found[1]))
    expected = [[call["name"], json.dumps(call["arguments"], separators=(",", ":"))] for call in case.expected["calls"]]
    calls, text = json.loads(read(*case.text))
    assert calls == expected
    assert text.strip() == case.expected["content"]


def test_the_example_completes_nothing_that_was_cut() -> None:
    cut = HERON.example.removesuffix("<<end>>")
    assert json.loads(read(cut, reason="length")) == [[], cut]


def test_what_the_example_writes_it_reads() -> None:
    assert HERON.renderer is not None
    assert HERON.renderer.id == HERON.id
    arguments = {"filePath": "<<end>>\n<<call read>>", "content": '"\\\u00e9'}
    text = HERON.renderer.call("write", arguments, AGENT_TOOLS.get("write"))
    ((name, given),) = json.loads(read(text))[0]
    assert (name, json.loads(given)) == ("write", arguments)


def test_without_its_row_the_example_is_text() -> None:
    assert json.loads(read(HERON.example, rows=())) == [[], HERON.example]


def test_every_primitive_of_the_cursor_is_told() -> None:
    machinery = {
        "offset",
        "push",
        "final",
        "pending",
        "text",
        "pos",
        "eof",
        "cut",
        "anchor",
        "floor",
        "is_last",
        "literal_breaks",
        "source",
        "paused",
    }
    public = {name for name in vars(Cursor) if not name.startswith("_")} - machinery
    told = [words(row[0])[0] for row in cells("primitive")]
    assert {name.partition("(")[0] for name in told} == public
    for name in told:
        signature = inspect.signature(getattr(Cursor, name.partition("(")[0]))
        assert name.partition("(")[2].rstrip(")") == ", ".join(list(signature.parameters)[1:])


def test_every_level_is_told() -> None:
    assert [row[0] for row in cells("level")] == ["A", "B", "C", "D", "E"]
    assert {row.level for row in TABLE} <= set("ABCDE")


def test_the_base_values_are_those_of_the_code() -> None:
    assert {words(row[0])[0]: int(row[1]) for row in cells("form")} == FORMS


def test_the_costs_are_those_of_the_code() -> None:
    told = {mend: int(row[1]) for row in cells("mend") for mend in words(row[0])}
    assert {mend: cost(mend) for mend in told} == told
    assert told.keys() >= CHOSEN
    assert cost("any other mend") == 2


def test_every_module_is_named_once() -> None:
    named = [name.rstrip("/") for row in cells("module") for name in words(row[0])]
    modules = {path.name for path in STRATEGIES.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}
    assert sorted(named) == sorted(modules - {"__init__.py"})
