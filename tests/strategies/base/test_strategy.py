"""A strategy as a third party writes one: installed it is found and used, and a broken one harms only itself."""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.core.events import End
from gateway.core.limits import Limits
from gateway.wire.chat_request import parse_request
from strategies.base import Options, ToolExecutionStrategy
from tests.support.client import TOOLS, Answer, ask, chat
from tests.support.faulty_upstream import DONE, FaultyUpstream, event, stream
from tests.support.faulty_upstream import text as text_event
from tests.support.rooms import ROOT

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


@pytest.mark.system
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


@pytest.mark.system
def test_an_installed_strategy_may_be_named_in_a_rule(site: Path) -> None:
    assert check(environment(site, STRATEGY_RULES="*=line_calls"))[0] == 0
    code, found = check(environment(STRATEGY_RULES="*=line_calls"))
    assert code == 78
    assert "line_calls" in found["faults"][0]


@pytest.mark.system
def test_broken_plug_ins_are_reported(broken_site: Path) -> None:
    code, found = check(environment(broken_site))
    assert code == 0
    assert len(found["warnings"]) == 3
    assert any("broken at import" in warning for warning in found["warnings"])


@pytest.mark.system
async def test_broken_plug_ins_do_not_take_the_gateway_down(
    site: Path, broken_site: Path, upstream: FaultyUpstream
) -> None:
    upstream.script = stream(text_event(CALL), event(finish="stop"), DONE)
    answer = await ask_through(environment(broken_site, site), upstream, streamed=True)
    assert (answer.status, answer.content, answer.error) == (200, CALL, None)
