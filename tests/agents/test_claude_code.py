"""The real Claude Code, headless, through a gateway: it reads, edits and runs, whatever the model server speaks."""

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.app import Gateway
from tests.support.agents import said_by
from tests.support.anthropic_server import AnthropicServer
from tests.support.gemini_server import GeminiServer
from tests.support.openai_server import OpenAiServer
from tests.support.qwen_web_server import QwenWebServer
from tests.support.scripted_model import DONE, READ_TEXT, RUN_TEXT, WRITTEN_TEXT, Script, Step
from tests.support.wire_server import listening

HERE = Path(__file__).parent / "claude"
CLAUDE = HERE / "node_modules" / ".bin" / "claude"
KEY = "gateway-key-of-the-tests"
TASK = "bring notes.txt into order"

pytestmark = [
    pytest.mark.skipif(not CLAUDE.exists(), reason="needs claude"),
    pytest.mark.timeout(180),
]

OPENAI = {"UPSTREAM_API_KEY": "sk-open"}
WAYS: list[Any] = [
    pytest.param(OpenAiServer, None, {**OPENAI, "STRATEGY_RULES": "*=native"}, "/v1", id="native"),
    pytest.param(OpenAiServer, None, OPENAI, "/v1", id="recovery, native calls"),
    pytest.param(OpenAiServer, "tag_xml", OPENAI, "/v1", id="recovery, tags"),
    pytest.param(OpenAiServer, "tag_xml", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt"}, "/v1", id="tags"),
    pytest.param(OpenAiServer, "hermes", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt:hermes"}, "/v1", id="hermes"),
    pytest.param(
        OpenAiServer, "qwen3_coder", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt:qwen3_coder"}, "/v1", id="qwen3_coder"
    ),
    pytest.param(
        AnthropicServer, None, {"UPSTREAM_KIND": "anthropic", "UPSTREAM_API_KEY": "sk-ant"}, "/v1", id="anthropic"
    ),
    pytest.param(GeminiServer, None, {"UPSTREAM_KIND": "gemini", "UPSTREAM_API_KEY": "AIza"}, "/v1beta", id="gemini"),
    pytest.param(
        QwenWebServer, "tag_xml", {"UPSTREAM_KIND": "qwen_web", "UPSTREAM_API_KEY": "web-token"}, "", id="qwen_web"
    ),
]


def steps(folder: Path) -> list[Step]:
    """Read a file, change it, run a command."""
    notes = str(folder / "notes.txt")
    change = {"file_path": notes, "old_string": READ_TEXT, "new_string": WRITTEN_TEXT}
    command = {"command": f"echo {RUN_TEXT} > run.txt", "description": "Write a file"}
    return [
        Step("Read", {"file_path": notes}, READ_TEXT),
        Step("Edit", change, WRITTEN_TEXT),
        Step("Bash", command, RUN_TEXT),
    ]


async def claude(folder: Path, home: Path, url: str, prompt: str) -> list[dict[str, Any]]:
    """What the program says, event by event."""
    return await said_by(
        (
            *(str(CLAUDE), "-p", prompt, "--output-format", "stream-json", "--verbose"),
            *("--permission-mode", "acceptEdits", "--allowedTools", "Read,Edit,Bash"),
        ),
        folder,
        home,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_AUTH_TOKEN=KEY,
        ANTHROPIC_MODEL="some-model",
        ANTHROPIC_SMALL_FAST_MODEL="some-model",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_MAX_RETRIES="0",
    )


def blocks(said: list[dict[str, Any]], role: str, kind: str) -> list[dict[str, Any]]:
    """The blocks of a kind in the messages of one side."""
    messages = [event["message"] for event in said if event["type"] == role]
    return [block for message in messages for block in message["content"] if block["type"] == kind]


@pytest.mark.parametrize(("server", "dialect", "environ", "path"), WAYS)
async def test_it_reads_edits_and_runs(
    gateway: Callable[..., Awaitable[Gateway]],
    tmp_path: Path,
    server: Callable[[], Any],
    dialect: str | None,
    environ: dict[str, str],
    path: str,
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text(f"first line\n{READ_TEXT}\n")
    script = Script(server(), steps(folder), TASK, dialect)
    async with listening(script) as url:
        (tmp_path / "home").mkdir()
        running = await gateway(url + path, GATEWAY_API_KEYS=KEY, **environ)
        said = await claude(folder, tmp_path / "home", running.url, f"Please {TASK}.")
    assert said[-1]["result"] == DONE
    assert (folder / "notes.txt").read_text() == f"first line\n{WRITTEN_TEXT}\n"
    assert (folder / "run.txt").read_text() == f"{RUN_TEXT}\n"
    calls = blocks(said, "assistant", "tool_use")
    assert [call["name"] for call in calls] == ["Read", "Edit", "Bash"]
    assert not [result for result in blocks(said, "user", "tool_result") if result.get("is_error")]
    assert not any("<" in block["text"] for block in blocks(said, "assistant", "text"))


def test_the_program_is_the_one_that_is_pinned() -> None:
    wanted = json.loads((HERE / "package.json").read_bytes())["dependencies"]["@anthropic-ai/claude-code"]
    package = HERE / "node_modules" / "@anthropic-ai" / "claude-code" / "package.json"
    assert json.loads(package.read_bytes())["version"] == wanted
    assert "resolved" not in (HERE / "package-lock.json").read_text()
    assert shutil.which("node") is not None
