"""The page on strategies and dialects is true: its example runs, its tables are those of the code."""

import ast
import asyncio
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path

import aiohttp
import pytest
from attrs import frozen

from gateway.core.events import End, Event, Text
from gateway.core.limits import Limits
from gateway.core.tools import ToolSet
from gateway.wire.chat_request import parse_request
from strategies.base import Options, ToolExecutionStrategy
from strategies.dialects.rows import TABLE
from strategies.grammar.confidence import FORMS, cost
from strategies.grammar.dialect import Context, Dialect
from strategies.reading.active import Grammar
from strategies.reading.reader import Reader
from strategies.text.cursor import Cursor
from strategies.text.tolerant_json import CHOSEN
from tests.fixtures.example_dialect import heron
from tests.fixtures.example_dialect.heron import HERON
from tests.support.client import TOOLS, Answer, ask, chat
from tests.support.faulty_upstream import DONE, FaultyUpstream, event, stream
from tests.support.faulty_upstream import text as text_event
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


# --- Plug-ins: one that is installed as anybody's is found and used, and one that is broken harms only itself


EXAMPLE = ROOT / "tests" / "fixtures" / "third_party_strategy"

CALL = 'CALL read_file {"path": "a.py"}'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed: a folder that a process may put on its path."""
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "example")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, timeout=100)
    return target


@pytest.fixture(scope="module")
def broken_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where plug-ins are installed that cannot be imported, are no strategies, or bear another's name."""
    target = tmp_path_factory.mktemp("broken")
    plug_ins = {
        "raising": "raise RuntimeError('broken at import')",
        "wordless": "class Strategy: pass",
        "misnamed": "class Strategy:\n    name = 'native'\n    def prepare(self, request, options): ...",
    }
    for name, source in plug_ins.items():
        (target / f"toolgate_{name}.py").write_text(source)
        info = target / f"toolgate_{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toolgate-{name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[toolgate.strategies]\n{name} = toolgate_{name}:Strategy\n")
    return target


@pytest.fixture(scope="module")
def strategy() -> ToolExecutionStrategy:
    """The example's strategy, without an installation."""
    spec = importlib.util.spec_from_file_location("line_calls_example", EXAMPLE / "toolgate_line_calls.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    made: ToolExecutionStrategy = module.LineCallsStrategy()
    return made


def read_all(strategy: ToolExecutionStrategy, *parts: str, reason: str = "stop") -> list[str]:
    """The calls of an answer; its raw text must come out as it went in."""
    request = parse_request(json.dumps(chat(tools=TOOLS)).encode())
    prepared = strategy.prepare(request, Options(limits=Limits(max_call_bytes=100)))
    assert prepared.make_reader is not None
    reader = prepared.make_reader()
    events = [event for part in parts for event in reader.feed(part)] + reader.finish(reason)
    assert "".join(event.raw for event in events) == "".join(parts)
    assert reader.idle
    return [event.arguments for event in events if isinstance(event, End)]


@pytest.mark.parametrize("cut", range(len(CALL) + 12))
def test_the_example_reads_the_same_however_the_answer_is_cut(strategy: ToolExecutionStrategy, cut: int) -> None:
    whole = f"Look:\n{CALL}\ndone"
    assert read_all(strategy, whole[:cut], whole[cut:]) == ['{"path": "a.py"}']


@pytest.mark.parametrize(
    "line",
    [
        "Write CALL read_file {}",
        "CALL other {}",
        "CALL read_file {}",
        'CALL read_file {"path"',
        "CALL read_file []",
        'CALL read_file {"path": "' + "x" * 100 + '"}',
        "CALL read_file " + '{"path":' * 10 + "1" + "}" * 10 + "]",
    ],
)
def test_the_example_leaves_all_else_as_text(strategy: ToolExecutionStrategy, line: str) -> None:
    assert read_all(strategy, line) == []


def test_the_example_completes_no_call_that_was_cut_off(strategy: ToolExecutionStrategy) -> None:
    assert read_all(strategy, CALL, reason="length") == []


def environment(*sites: Path, **settings: str) -> dict[str, str]:
    places = os.pathsep.join(map(str, (ROOT, *sites)))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": places, "METRICS_PORT": "0", **settings}


def check(environ: Mapping[str, str]) -> tuple[int, dict[str, list[str]]]:
    command = [sys.executable, "-m", "gateway", "check", "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


@asynccontextmanager
async def served(environ: Mapping[str, str]) -> AsyncIterator[str]:
    """A gateway in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "serve", env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    url = ""
    try:
        async with asyncio.timeout(30):
            while not url:
                line = await process.stderr.readline()
                assert line.startswith(b"{"), (line + await process.stderr.read()).decode()
                entry = json.loads(line)
                url = entry["url"] if entry["event"] == "gateway_started" else ""
        yield url
    finally:
        process.kill()
        await process.communicate()


async def ask_through(environ: Mapping[str, str], upstream: FaultyUpstream, streamed: bool) -> Answer:
    settings = {**environ, "UPSTREAM_URL": upstream.url, "GATEWAY_PORT": "0"}
    async with served(settings) as url, aiohttp.ClientSession() as session:
        return await ask(session, url, chat(stream=streamed, tools=TOOLS))


async def test_an_installed_strategy_reads_an_answer(site: Path, upstream: FaultyUpstream) -> None:
    upstream.script = stream(text_event("I look.\n\nCA"), text_event(CALL[2:]), event(finish="stop"), DONE)
    answer = await ask_through(environment(site, STRATEGY_RULES="*=line_calls"), upstream, streamed=True)
    assert answer.headers["X-Toolgate-Strategy"] == "line_calls"
    assert answer.is_done
    assert answer.content == "I look."
    calls = [
        call
        for chunk in answer.chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls") or []
    ]
    assert calls[0]["function"]["name"] == "read_file"
    assert json.loads("".join(call["function"].get("arguments", "") for call in calls)) == {"path": "a.py"}


def test_an_installed_strategy_may_be_named_in_a_rule(site: Path) -> None:
    assert check(environment(site, STRATEGY_RULES="*=line_calls"))[0] == 0
    code, found = check(environment(STRATEGY_RULES="*=line_calls"))
    assert code == 78
    assert "line_calls" in found["faults"][0]


def test_broken_plug_ins_are_reported(broken_site: Path) -> None:
    code, found = check(environment(broken_site))
    assert code == 0
    assert len(found["warnings"]) == 3
    assert any("broken at import" in warning for warning in found["warnings"])


async def test_broken_plug_ins_do_not_take_the_gateway_down(
    site: Path, broken_site: Path, upstream: FaultyUpstream
) -> None:
    upstream.script = stream(text_event(CALL), event(finish="stop"), DONE)
    answer = await ask_through(environment(broken_site, site), upstream, streamed=True)
    assert (answer.status, answer.content, answer.error) == (200, CALL, None)
