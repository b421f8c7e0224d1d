"""The documents are true: what they show is run, what they list is compared with the code."""

import ast
import asyncio
import contextlib
import importlib.metadata
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import click
import pytest
from attrs import frozen

from gateway.app import Gateway
from gateway.cli.root import cli
from gateway.config.load import load, settings_table_markdown
from gateway.core import errors
from gateway.core.errors import GatewayError
from gateway.core.version import __version__
from gateway.telemetry.metrics import metrics_table_markdown
from strategies.factory import FALLBACK, GROUP, MODEL_STRATEGIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted(path for path in ROOT.rglob("*.md") if not {"golden", "node_modules", ".venv"} & set(path.parts))
URL = "http://127.0.0.1:8080"
TOOLGATE = ".venv/bin/toolgate"
INSTALL = "python3 -m venv .venv && .venv/bin/pip install ."
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


SHELL = [block for block in blocks(README) if block.language == "sh"]
RUN_HERE = [block for block in SHELL if block.text.startswith(("curl ", "printf "))]
CHECKED = [line for block in SHELL if block not in RUN_HERE for line in block.text.splitlines()]
CONFIGURATIONS = [block for block in blocks(README) if block.language == "json" and URL in block.text]
TABLES = [block for block in blocks(README) if block.language == "toml"]
PYTHON = [block for block in blocks(README) if block.language == "python"]


def part(name: str) -> str:
    """What stands between the marks of a generated table."""
    found = re.search(rf"<!-- {name}\b[^>]*-->\n(.*?)\n<!-- end of {name} -->", README, re.DOTALL)
    assert found is not None
    return found[1].strip()


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
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
    assert TABLES


@pytest.mark.parametrize("command", CHECKED)
def test_what_the_readme_tells_to_type_can_be_typed(command: str) -> None:
    """Commands that end in a server, an installation or somebody else's program are checked instead of run."""
    if command in (INSTALL, TESTS):
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


@pytest.mark.parametrize("block", TABLES, ids=range(len(TABLES)))
def test_tables_of_upstreams_and_models_can_be_loaded(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "toolgate.toml"
    path.write_text(block.text, encoding="utf-8")
    settings = load({"GATEWAY_CONFIG": str(path)})
    assert settings.routes.upstreams
    assert settings.routes.models


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


def test_the_settings_in_the_readme_are_those_of_the_code() -> None:
    assert part("settings") == settings_table_markdown().strip(), "run `toolgate settings --markdown`"


def test_settings_named_in_the_readme_exist() -> None:
    known = set(re.findall(r"^\| `([A-Z_]+)` \|", settings_table_markdown(), re.MULTILINE))
    named = set(re.findall(r"\b(?:GATEWAY|UPSTREAM|TRANSFORM|TOOL|STREAM|METRICS|RECOVERY)_[A-Z_]*[A-Z]\b", README))
    assert named - known == set()


def test_the_metrics_in_the_readme_are_those_of_the_code() -> None:
    assert part("metrics") == metrics_table_markdown().strip()
    named = set(re.findall(r"\btoolgate_[a-z_]+_(?:total|seconds|bytes|ratio)\b", README))
    assert all(f"`{name}` |" in part("metrics") for name in named)


def test_every_error_that_can_occur_is_in_the_readme() -> None:
    used = {
        node.id
        for package in ("gateway", "strategies")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Name)
    }
    classes = [getattr(errors, name) for name in errors.__all__ if name in used]
    families = {base for each in classes for base in each.__mro__[1:]}
    leaves = [each for each in classes if issubclass(each, GatewayError) and each not in families]
    assert {words(code)[0]: int(status) for code, status, _ in rows("Errors")} == {
        each.code: each.status for each in leaves
    }


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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_changelog_knows_this_version() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
