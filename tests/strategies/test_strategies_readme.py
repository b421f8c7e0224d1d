"""The page on strategies and dialects is true: its example runs, its tables are those of the code."""

import ast
import inspect
import json
import re
import textwrap
from functools import lru_cache
from pathlib import Path

import pytest
from attrs import frozen

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
from tests.support.golden import cases, parse
from tests.support.pages import faults_of, part, sources
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
        "awaits",
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
        "made",
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


# --- The page of rules: each has a case or a test, each case stands for a rule, each topic says where it was seen


ROOT = Path(__file__).parents[2]

RULES_PAGE = (ROOT / "strategies" / "RULES.md").read_text(encoding="utf-8")

KINDS = {"malformed", "trap", "example", "rule"}

LINK = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/.]+)\)")

TOPICS = {topic: text for topic, _, text in (part.partition("\n\n") for part in RULES_PAGE.split("\n## ")[1:])}


@frozen(kw_only=True)
class Rule:
    """One row of the page."""

    id: str
    kind: str
    says: str
    beside: str
    seen: str
    """Where it was seen: links, one behind the other."""


def rows() -> list[Rule]:
    found = []
    for line in RULES_PAGE.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0].startswith("`"):
            name, kind, says, beside, seen = cells
            found.append(Rule(id=name.strip("`"), kind=kind, says=says, beside=beside, seen=seen))
    return found


RULES = rows()

SHOWN = {rule for case in cases() for rule in case.rules}


@lru_cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_bytes())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_rules_are_well_formed_and_in_order() -> None:
    assert len(RULES) > 500
    assert len({rule.id for rule in RULES}) == len(RULES)
    at = ("", 0)
    for rule in RULES:
        topic, _, number = rule.id.rpartition("-")
        assert rule.kind in KINDS
        assert rule.says
        assert int(number) == (at[1] + 1 if topic == at[0] else 1), rule.id
        at = (topic, int(number))


def test_every_rule_has_a_case_or_a_test_or_says_why_not() -> None:
    without = [rule for rule in RULES if rule.id not in SHOWN and not LINK.search(rule.beside)]
    assert [rule.id for rule in without if len(rule.beside.split()) <= 10] == []


def test_every_case_stands_for_a_rule_that_can_be_read() -> None:
    assert SHOWN - {rule.id for rule in RULES} == set()
    assert [case.id for case in cases() if not case.rules and len(case.beside) <= 20] == []


def test_what_no_case_can_show_is_tested_elsewhere() -> None:
    for rule in RULES:
        for test, path in LINK.findall(rule.beside):
            assert test in defined_in(path), f"{rule.id}: {path}::{test}"


def test_damaged_forms_are_shown_by_calls_and_by_refusals() -> None:
    """Not every damaged form is mended, and not every one is given up."""
    malformed = {rule.id for rule in RULES if rule.kind == "malformed"}
    calls = [bool(case.expected["calls"]) for case in cases() if malformed & {*case.rules}]
    assert sum(calls) > 100
    assert len(calls) - sum(calls) > 20


def test_every_topic_says_who_writes_it_and_where_that_is_seen() -> None:
    for topic, text in TOPICS.items():
        introduction = text.partition("\n|")[0]
        assert len(introduction.split()) > 5, topic
        assert sources(introduction), topic


def test_what_is_seen_somewhere_is_a_link_to_it() -> None:
    given = [rule for rule in RULES if rule.seen]
    assert len(given) > 100
    assert [rule.id for rule in given if [one for one, _ in sources(rule.seen)] != rule.seen.split("; ")] == []


def test_every_link_to_a_source_is_well_formed() -> None:
    assert faults_of(RULES_PAGE) == []


@pytest.mark.parametrize(
    "page",
    [
        "[a/b#2](https://github.com/a/b/issues/3)",
        "[a](http://github.com/a/b)",
        "[a](https://github.com/a/b/blob/main)",
        "[a](https://huggingface.co/a)",
        "[a](https://elsewhere)",
        "see https://github.com/a/b/issues/3",
        "a/b#3",
    ],
)
def test_a_link_that_is_not_is_found(page: str) -> None:
    assert faults_of(page)
