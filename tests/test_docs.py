"""The documents are true: what they show is run, what they list is compared with the code."""

import ast
import asyncio
import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import shlex
import sys
import tokenize
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path

import aiohttp
import attrs
import click
import pytest
from attrs import frozen

from gateway.app import Gateway
from gateway.cli.root import cli
from gateway.config.load import DECLARED, load
from gateway.core.version import __version__
from gateway.front.routes import ROWS
from gateway.kinds.rows import KINDS
from gateway.process import exits
from gateway.telemetry.metrics import CATALOGUE
from strategies.dialects.rows import TABLE
from strategies.factory import FALLBACK, GROUP, MODEL_STRATEGIES
from tests.conftest import Log
from tests.support.faulty_upstream import FaultyUpstream, answer_json, completion
from tests.support.golden import cases
from tests.support.pages import PAGES, ROOT, TABLES, anchors, filled, is_address, leaves, links, part

TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}

README = TEXTS["README.md"]

SHOWN = (README, TEXTS["deploy/CLIENTS.md"], TEXTS["deploy/SETTINGS.md"])

"""The pages whose examples are for those who try it; the guide of `deploy` has tests of its own."""

OF_TODAY = [name for name in TEXTS if name != "CHANGELOG.md"]

"""The pages that tell what is, and not also what was."""

MOST_BYTES = 14_000

HOUSE = ("gateway", "strategies", "tests", "grafana", "deploy")

UNCLOSED = "<read>\n<filePath>src/app.py\n</read>"

READ = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {"type": "object", "properties": {"filePath": {"type": "string"}}, "required": ["filePath"]},
    },
}

URL = "http://127.0.0.1:8080"

TOOLGATE = ".venv/bin/toolgate"

START = "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/toolgate serve"

TESTS = "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest"


@frozen(kw_only=True)
class Block:
    """One fenced block, and the one behind it, which shows what comes out."""

    language: str
    text: str
    shown: str = ""


def blocks(text: str) -> Iterator[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for (language, body), (_, shown) in zip(found, [*found[1:], ("", "")], strict=True):
        yield Block(language=language, text=body.strip(), shown=shown.strip())


BLOCKS = [block for page in SHOWN for block in blocks(page)]

SHELL = [block for block in BLOCKS if block.language == "sh"]

RUN_HERE = [block for block in SHELL if block.text.startswith(("curl ", "printf "))]

CHECKED = [line for block in SHELL if block not in RUN_HERE for line in block.text.splitlines()]

CONFIGURATIONS = [block for block in BLOCKS if block.language == "json" and URL in block.text]

FILES = [block for block in BLOCKS if block.language == "toml" and URL not in block.text]

AGENTS_FILES = [block for block in BLOCKS if block.language == "toml" and URL in block.text]

PYTHON = [block for block in BLOCKS if block.language == "python"]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the first page."""
    section = README.split(f"# {heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def without_chance(text: str) -> str:
    """The output without what differs from run to run."""
    return re.sub(r'"(chatcmpl-|call_)[0-9A-Za-z]{24}"|(?<="created": )\d+', "-", text)


async def shell(command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", command, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.mark.parametrize("block", RUN_HERE, ids=lambda block: block.text.split()[0])
async def test_what_the_readme_shows_comes_out(gateway: Callable[..., Awaitable[Gateway]], block: Block) -> None:
    running = await gateway(None)
    python = shlex.quote(sys.executable)
    command = block.text.replace(URL, running.url).replace(TOOLGATE, f"{python} -m gateway")
    assert without_chance((await shell(command)).strip()) == without_chance(block.shown)


def test_the_readme_has_something_to_run() -> None:
    assert {block.text.split()[0] for block in RUN_HERE} == {"curl", "printf"}
    assert CONFIGURATIONS
    assert PYTHON
    assert FILES


@pytest.mark.parametrize("command", CHECKED)
def test_what_the_readme_tells_to_type_can_be_typed(command: str) -> None:
    """Commands that end in a server, an installation or somebody else's program are checked instead of run."""
    if command in (START, TESTS):
        return
    first, *arguments = shlex.split(command)
    if first == "cline":
        assert f"{URL}/v1" in arguments
        return
    environ = {}
    while "=" in first:
        name, _, environ[name] = first.partition("=")
        first, *arguments = arguments
    assert first == TOOLGATE
    found: click.Command = cli
    context = click.Context(cli, info_name="toolgate")
    while isinstance(found, click.Group) and arguments and not arguments[0].startswith("-"):
        named = found.get_command(context, arguments.pop(0))
        assert named is not None
        found = named
    found.make_context("toolgate", arguments, parent=context)
    assert load(environ).port == int(URL.rpartition(":")[2])


@pytest.mark.parametrize("block", FILES, ids=range(len(FILES)))
def test_tables_of_upstreams_and_models_can_be_loaded(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text(block.text, encoding="utf-8")
    settings = load({"GATEWAY_CONFIG": str(path)})
    assert settings.routes.upstreams
    assert settings.routes.models


@pytest.mark.parametrize("block", AGENTS_FILES, ids=range(len(AGENTS_FILES)))
def test_files_of_agents_can_be_read_and_name_the_gateway(block: Block) -> None:
    told = tomllib.loads(block.text)
    provider = told["model_providers"][told["model_provider"]]
    assert (provider["base_url"], provider["wire_api"]) == (f"{URL}/v1", "responses")


def test_the_gates_run_the_readmes_own_test_command() -> None:
    assert TESTS in README
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f'"{TESTS}"' in script
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_configurations_for_clients_are_whole(block: Block) -> None:
    assert json.dumps(json.loads(block.text)).count(f'"{URL}/v1"') == 1


@pytest.mark.parametrize("block", PYTHON, ids=range(len(PYTHON)))
async def test_the_python_example_runs(gateway: Callable[..., Awaitable[Gateway]], block: Block) -> None:
    running = await gateway(None)
    told = io.StringIO()

    def example() -> None:
        names: dict[str, object] = {}
        with contextlib.redirect_stdout(told):
            exec(compile(block.text.replace(URL, running.url), "README.md", "exec"), names)  # noqa: S102 - ours
        names["client"].close()  # type: ignore[attr-defined]

    await asyncio.to_thread(example)
    assert "Hello" in told.getvalue()


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_code(name: str) -> None:
    assert filled(TEXTS[name], TABLES[name]) == TEXTS[name], "run `python -m tests.support.pages`"


@pytest.mark.parametrize("name", OF_TODAY)
def test_settings_and_metrics_that_are_named_exist(name: str) -> None:
    settings = {entry.name for entry in DECLARED}
    settings |= {f"{entry.name}_FILE" for entry in DECLARED if entry.is_secret}
    groups = "|".join(sorted({entry.name.partition("_")[0] for entry in DECLARED if "_" in entry.name}))
    assert set(re.findall(rf"(?<![\w$])(?:{groups})_[A-Z_]*[A-Z]\b(?!\()", TEXTS[name])) - settings == set()
    metrics = {metric.name for metric in CATALOGUE}
    assert set(re.findall(r"\btoolgate_[a-z_]+_(?:total|seconds|bytes|ratio)\b", TEXTS[name])) - metrics == set()


def test_every_route_is_told() -> None:
    told = TEXTS["deploy/SETTINGS.md"].partition("## Routes")[2].partition("\n## ")[0]
    assert [path for method, path in ROWS if f"`{method} {path}`" not in told] == []


def test_every_kind_of_model_server_is_told_with_its_options() -> None:
    page = TEXTS["deploy/SETTINGS.md"]
    assert [name for name in KINDS if f"`{name}`" not in README or f"`{name}`" not in page] == []
    told = dict(re.findall(r"`\[upstreams\.NAME\.(\w+)\]`\s\((.*?)\)", page, re.DOTALL))
    options = {name: row.options for name, row in KINDS.items() if row.options is not None}
    assert told.keys() == options.keys()
    for name, each in options.items():
        assert told[name].startswith("every") or set(words(told[name])) >= {field.name for field in attrs.fields(each)}


def test_every_error_can_occur() -> None:
    used = {
        node.id
        for package in ("gateway", "strategies")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Name)
    }
    assert [each for each in leaves() if each.__name__ not in used] == []


def test_every_exit_code_is_told() -> None:
    told = re.findall(r"^\| (\d+) \|", part(TEXTS["deploy/SETTINGS.md"], "exit codes"), re.MULTILINE)
    assert set(map(int, told)) == {0, *(code for name, code in vars(exits).items() if name.startswith("EXIT_"))}


def test_the_first_page_is_short_and_begins_with_what_to_type() -> None:
    assert len(README.encode()) < MOST_BYTES
    first = [line for block in blocks(README) if block.language == "sh" for line in block.text.splitlines()][:2]
    assert first == [START, TESTS]


async def test_the_lines_on_markup_that_is_still_printed_hold(
    gateway: Callable[..., Awaitable[Gateway]], upstream: FaultyUpstream, client: aiohttp.ClientSession, log: Log
) -> None:
    """What each line names is there: headers, the arm, the list of models, the log's words, the threshold."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Read."}], "tools": [READ]}

    async def asked(**settings: str) -> tuple[aiohttp.ClientResponse, bool]:
        upstream.script = answer_json(completion(UNCLOSED))
        running = await gateway(upstream.url, REPAIR_ATTEMPTS="0", **settings)
        async with client.post(f"{running.url}/v1/chat/completions", json=body) as response:
            message = (await response.json())["choices"][0]["message"]
            return response, bool(message.get("tool_calls"))

    response, called = await asked()
    assert (response.headers["X-Toolgate-Strategy"], response.headers["X-Toolgate-Arm"]) == ("recovery", "live")
    assert not called
    (refused,) = (await log.record("request_ended"))["refused"]
    assert refused["tool"] == "read"
    assert refused["reasons"]
    response, called = await asked(TRANSFORM_MODE="dry_run")
    assert (response.headers["X-Toolgate-Arm"], called) == ("dry_run", False)
    response, called = await asked(STRATEGY_RULES="m=native")
    assert (response.headers["X-Toolgate-Strategy"], called) == ("native", False)
    assert (await asked(TRANSFORM_MIN_CONFIDENCE="0.85"))[1]


def test_the_figures_of_the_first_page_are_so() -> None:
    negatives = (ROOT / "tests" / "data" / "negatives.jsonl").read_bytes().count(b"\n")
    told = [int(figure.replace(",", "")) for figure in re.findall(r"\| over ([\d,]+)", README)]
    counted = [len(TABLE), len(cases()), negatives]
    assert all(0.8 * found < figure < found for figure, found in zip(told, counted, strict=True)), counted


def test_the_table_of_strategies_is_that_of_the_factory() -> None:
    documented = {words(cells[0])[0]: words(cells[3]) for cells in rows("Strategies")}
    built_in = {point.name for point in importlib.metadata.entry_points(group=GROUP) if point.value.startswith("strat")}
    assert documented.keys() == built_in
    assert {(glob, name) for name, globs in documented.items() for glob in globs} == set(MODEL_STRATEGIES)
    assert "everything else" in next(cells[3] for cells in rows("Strategies") if words(cells[0]) == [FALLBACK])


@pytest.mark.parametrize("point", importlib.metadata.entry_points(group=GROUP), ids=lambda point: point.name)
def test_every_strategy_says_in_a_sentence_what_it_does(point: importlib.metadata.EntryPoint) -> None:
    said = point.load().__doc__ or ""
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    lost = []
    for path, anchor in links(TEXTS[name]):
        target = (ROOT / name).parent / path if path else ROOT / name
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            lost.append(f"{path}#{anchor}")
    assert lost == []


@pytest.mark.parametrize("name", OF_TODAY)
def test_files_and_modules_that_are_named_are_there(name: str) -> None:
    page, here = TEXTS[name], (ROOT / name).parent
    files = {file for file in re.findall(r"`([\w./-]+)`", page) if file.endswith(".py") or file.split("/")[0] in HOUSE}
    lost = [file for file in files if "/" in file and not (ROOT / file).exists() and not (here / file).exists()]
    lost += [file for file in files if "/" not in file and not (here / file).exists()]
    dotted = set(re.findall(rf"(?<![\w./@-])(?:{'|'.join(HOUSE)})(?:\.\w+)+(?![\w/])", page))
    assert lost + [each for each in dotted if not each.endswith((".py", ".md")) and not is_named(each)] == []


def is_named(dotted: str) -> bool:
    """A module of the project, or what one of them holds."""
    owner, _, name = dotted.rpartition(".")
    with contextlib.suppress(ImportError):
        return importlib.util.find_spec(dotted) is not None or hasattr(importlib.import_module(owner), name)
    return False


def test_links_and_headings_are_read_as_they_are_shown() -> None:
    page = "# A `new` one!\n\n```sh\n# no heading [a](b)\n```\n## 5. nginx\n### 5. nginx\n"
    assert anchors(page) == {"a-new-one", "5-nginx", "5-nginx-1"}
    page = f"{page}[b](#x) ![c](d/e.png) [f](g.md#h-i)\n"
    assert list(links(page)) == [("", "x"), ("d/e.png", ""), ("g.md", "h-i")]


def test_the_changelog_knows_this_version() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# --- Comments say why: what they name elsewhere can be found there


ADDRESS = re.compile(r"https?://[^\s()]+?(?=[.,;:]?(?:[\s()]|$))")

BARE = re.compile(r"(?<![\w/])[\w.-]+/[\w.-]+#\d+")


@cache
def comments() -> list[tuple[str, str]]:
    found = []
    for package in ("gateway", "strategies"):
        for path in sorted((ROOT / package).rglob("*.py")):
            words = io.StringIO(path.read_text(encoding="utf-8")).readline
            found += [
                (path.relative_to(ROOT).as_posix(), token.string)
                for token in tokenize.generate_tokens(words)
                if token.type == tokenize.COMMENT
            ]
    return found


def test_every_address_in_a_comment_can_lead_somewhere() -> None:
    named = [(path, address) for path, comment in comments() for address in ADDRESS.findall(comment)]
    assert len(named) > 100
    assert [each for each in named if not is_address(each[1])] == []


def test_a_thread_is_named_by_its_address() -> None:
    assert [(path, comment) for path, comment in comments() if BARE.search(comment)] == []
