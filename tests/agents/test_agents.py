"""Claude Code and Codex, the real agents, and a scripted model behind the gateway, whatever wire its server speaks."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field, frozen

from gateway.app import Gateway
from gateway.surfaces.responses.compaction import INSTRUCTION
from strategies.asking.renderers import renderer
from tests.support.anthropic_server import AnthropicServer
from tests.support.gemini_server import GeminiServer
from tests.support.kinds import Answered, Call, Turn, WireServer, listening
from tests.support.openai_server import OpenAiServer, ResponsesServer
from tests.support.qwen_web_server import QwenWebServer


async def said_by(command: tuple[str, ...], folder: Path, home: Path, **environ: str) -> list[dict[str, Any]]:
    """What the program says, event by event, working in a folder; it must end well and in time."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            # It must find nobody else.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
            **environ,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, (out[-2000:], err[-2000:])
    return [json.loads(line) for line in out.splitlines()]


# --- A model that reads, edits and runs, whatever wire its server speaks and in whatever form it writes its calls.
# What it does next is told by what stands in the request: no counting, as agents ask for other things beside.


READ_TEXT = "alpha-7731"

"""Stands in the file that is read, and nowhere else before."""

WRITTEN_TEXT = "beta-4402"

RUN_TEXT = "gamma-9913"

DONE = "All three steps are done: omega-5521."


@define
class Step:
    """A call, and the text in a request by which it is known to have been made."""

    name: str
    arguments: dict[str, Any]
    mark: str
    is_known_by_name: bool = True
    """No other step calls this tool: a result with its name says that it was made."""


@define
class Script:
    """A server that answers as the script says, through `server`, which speaks the wire."""

    server: Any
    steps: list[Step]
    task: str
    """A text of the task's own: requests without it are others than the agent's work."""
    dialect: str | None = None
    """The form in which calls are written into the text; None: structured."""
    seen: list[tuple[str, dict[str, str], bytes]] = field(factory=list)
    """What was asked: targets, headers and bodies."""
    _made: int = 0

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        """The answer to one HTTP request."""
        self.seen.append((target, headers, body))
        if method == "POST" and body:
            self.server.turns = [self._turn(body.decode())]
        wire: WireServer = self.server
        return wire.respond(method, target, headers, body)

    def _turn(self, text: str) -> Turn:
        told = json.loads(text) if text else {}
        text = json.dumps(told, ensure_ascii=False)
        done = next((number for number in range(len(self.steps), 0, -1) if self._is_done(number - 1, text)), 0)
        if not done and self.task not in text:
            return Turn(text="Fine.")
        if done == len(self.steps):
            return Turn(text=DONE)
        step = self.steps[done]
        self._made += 1
        said = f"Step {done + 1}. "
        if self.dialect is None:
            return Turn(text=said, calls=(Call(f"call_{self._made}_{done}", step.name, step.arguments),))
        written = renderer(self.dialect)
        return Turn(text=said + "\n\n" + written.calls([written.call(step.name, step.arguments, None)]))

    def _is_done(self, number: int, text: str) -> bool:
        step = self.steps[number]
        # A server that keeps the conversation itself is sent the results alone.
        return step.mark in text or (step.is_known_by_name and f"Tool Result: {step.name}]" in text)


HERE = Path(__file__).parent / "claude"

CLAUDE = HERE / "node_modules" / ".bin" / "claude"

KEY = "gateway-key-of-the-tests"

TASK = "bring notes.txt into order"

OPENAI = {"UPSTREAM_API_KEY": "sk-open"}


@frozen
class Way:
    """What the model's server speaks, in which form the model writes its calls, and under which settings."""

    server: Callable[[], Any]
    dialect: str | None
    environ: dict[str, str]
    path: str

    @asynccontextmanager
    async def served(self, gateway: Callable[..., Awaitable[Gateway]], script: Script) -> AsyncIterator[str]:
        """The address of a gateway before the model that goes by the script."""
        async with listening(script) as url:
            yield (await gateway(url + self.path, GATEWAY_API_KEYS=KEY, **self.environ)).url


def _way(*how: Any, id: str) -> Any:
    return pytest.param(Way(*how), id=id)


def begun(folder: Path, notes: str) -> Path:
    """Where the agent works."""
    folder.mkdir()
    (folder / "notes.txt").write_text(notes)
    return folder


WAYS: list[Any] = [
    _way(OpenAiServer, None, {**OPENAI, "STRATEGY_RULES": "*=native"}, "/v1", id="native"),
    _way(OpenAiServer, None, OPENAI, "/v1", id="recovery, native calls"),
    _way(OpenAiServer, "tag_xml", OPENAI, "/v1", id="recovery, tags"),
    _way(OpenAiServer, "tag_xml", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt"}, "/v1", id="tags"),
    _way(OpenAiServer, "hermes", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt:hermes"}, "/v1", id="hermes"),
    _way(
        OpenAiServer, "qwen3_coder", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt:qwen3_coder"}, "/v1", id="qwen3_coder"
    ),
    _way(AnthropicServer, None, {"UPSTREAM_KIND": "anthropic", "UPSTREAM_API_KEY": "sk-ant"}, "/v1", id="anthropic"),
    _way(GeminiServer, None, {"UPSTREAM_KIND": "gemini", "UPSTREAM_API_KEY": "AIza"}, "/v1beta", id="gemini"),
    _way(QwenWebServer, "tag_xml", {"UPSTREAM_KIND": "qwen_web", "UPSTREAM_API_KEY": "web-token"}, "", id="qwen_web"),
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


@pytest.mark.system
@pytest.mark.skipif(not CLAUDE.exists(), reason="needs claude")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", WAYS)
async def test_it_reads_edits_and_runs(gateway: Callable[..., Awaitable[Gateway]], tmp_path: Path, way: Way) -> None:
    folder = begun(tmp_path / "work", f"first line\n{READ_TEXT}\n")
    (tmp_path / "home").mkdir()
    async with way.served(gateway, Script(way.server(), steps(folder), TASK, way.dialect)) as url:
        said = await claude(folder, tmp_path / "home", url, f"Please {TASK}.")
    assert said[-1]["result"] == DONE
    assert (folder / "notes.txt").read_text() == f"first line\n{WRITTEN_TEXT}\n"
    assert (folder / "run.txt").read_text() == f"{RUN_TEXT}\n"
    calls = blocks(said, "assistant", "tool_use")
    assert [call["name"] for call in calls] == ["Read", "Edit", "Bash"]
    assert not [result for result in blocks(said, "user", "tool_result") if result.get("is_error")]
    assert not any("<" in block["text"] for block in blocks(said, "assistant", "text"))


@pytest.mark.skipif(not CLAUDE.exists(), reason="needs claude")
@pytest.mark.timeout(180)
def test_the_program_is_the_one_that_is_pinned() -> None:
    wanted = json.loads((HERE / "package.json").read_bytes())["dependencies"]["@anthropic-ai/claude-code"]
    package = HERE / "node_modules" / "@anthropic-ai" / "claude-code" / "package.json"
    assert json.loads(package.read_bytes())["version"] == wanted
    assert "resolved" not in (HERE / "package-lock.json").read_text()
    assert shutil.which("node") is not None


# --- The real Codex, headless, through a gateway: it runs, patches and calls tool servers, whatever the model speaks.


CODEX_HOME = Path(__file__).parent / "codex"

CODEX = CODEX_HOME / "node_modules" / ".bin" / "codex"

STAMPED = "delta-3307"

NATIVE = {**OPENAI, "STRATEGY_RULES": "*=native"}

CODEX_WAYS: list[Any] = [
    _way(OpenAiServer, None, NATIVE, "/v1", id="native"),
    _way(OpenAiServer, "tag_xml", {**OPENAI, "STRATEGY_RULES": "*=recovery"}, "/v1", id="recovery, tags"),
    _way(OpenAiServer, "tag_xml", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt"}, "/v1", id="tags"),
    _way(OpenAiServer, "hermes", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt:hermes"}, "/v1", id="hermes"),
    _way(
        OpenAiServer, "qwen3_coder", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt:qwen3_coder"}, "/v1", id="qwen3_coder"
    ),
    _way(AnthropicServer, None, {"UPSTREAM_KIND": "anthropic", "UPSTREAM_API_KEY": "sk-ant"}, "/v1", id="anthropic"),
    _way(
        ResponsesServer,
        "tag_xml",
        {"UPSTREAM_KIND": "responses", "UPSTREAM_API_KEY": "sk-resp", "STRATEGY_RULES": "*=recovery"},
        "/v1",
        id="responses, tags on its own wire",
    ),
    _way(
        ResponsesServer,
        "hermes",
        {"UPSTREAM_KIND": "responses", "UPSTREAM_API_KEY": "sk-resp", "STRATEGY_RULES": "*=xml_prompt:hermes"},
        "/v1",
        id="responses",
    ),
    _way(GeminiServer, None, {"UPSTREAM_KIND": "gemini", "UPSTREAM_API_KEY": "AIza"}, "/v1beta", id="gemini"),
    _way(QwenWebServer, "tag_xml", {"UPSTREAM_KIND": "qwen_web", "UPSTREAM_API_KEY": "web-token"}, "", id="qwen_web"),
]

PATCH = f"""\
*** Begin Patch
*** Update File: notes.txt
@@
 first <line> & "more"
-{READ_TEXT}
+{WRITTEN_TEXT}\\n 'ä'
*** End Patch
"""

STEPS = [
    Step("exec_command", {"cmd": "cat notes.txt"}, READ_TEXT, is_known_by_name=False),
    Step("apply_patch", {"input": PATCH}, WRITTEN_TEXT),
    Step("exec_command", {"cmd": f"echo {RUN_TEXT} | tee run.txt"}, RUN_TEXT, is_known_by_name=False),
]


def prepared(home: Path, config: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(config)


async def codex(
    folder: Path, home: Path, url: str, prompt: str, *, model: str = "gpt-5.5", more: str = "", config: str = ""
) -> list[dict[str, Any]]:
    """What the program says, event by event."""
    config = (
        config
        or f"""\
model = "{model}"
model_provider = "toolgate"

[model_providers.toolgate]
name = "toolgate"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "TOOLGATE_KEY"
stream_max_retries = 0
request_max_retries = 0
{more}"""
    )
    await asyncio.to_thread(prepared, home, config)
    command = (
        str(CODEX),
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        prompt,
    )
    return await said_by(command, folder, home, CODEX_HOME=str(home), TOOLGATE_KEY=KEY, CODEX_API_KEY=KEY)


def items(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The items of a kind that were completed."""
    return [event["item"] for event in said if event["type"] == "item.completed" and event["item"]["type"] == kind]


@pytest.mark.system
@pytest.mark.skipif(not CODEX.exists(), reason="needs codex")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", CODEX_WAYS)
async def test_it_runs_and_patches(gateway: Callable[..., Awaitable[Gateway]], tmp_path: Path, way: Way) -> None:
    folder = begun(tmp_path / "work", f'first <line> & "more"\n{READ_TEXT}\n')
    script = Script(way.server(), STEPS, TASK, way.dialect)
    async with way.served(gateway, script) as url:
        said = await codex(folder, tmp_path / "home", url, f"Please {TASK}.")
    messages = [item["text"] for item in items(said, "agent_message")]
    assert messages[-1] == DONE
    assert not any("<" in text for text in messages)
    assert (folder / "notes.txt").read_text() == f"first <line> & \"more\"\n{WRITTEN_TEXT}\\n 'ä'\n"
    assert (folder / "run.txt").read_text() == f"{RUN_TEXT}\n"
    ran = items(said, "command_execution")
    assert [item["exit_code"] for item in ran] == [0, 0]
    assert [item["status"] for item in items(said, "file_change")] == ["completed"]
    assert not items(said, "error")
    asked = b"".join(body for _, _, body in script.seen)
    for complaint in (b"unsupported call", b"failed to parse function arguments", b"incompatible payload", b"aborted"):
        assert complaint not in asked


class Shortened(Script):
    """The conversation grows too long with its first answer: the client has it made shorter."""

    def _turn(self, text: str) -> Turn:
        if INSTRUCTION.splitlines()[0] in text:
            return Turn(text=f"To do: {TASK}. Read: {READ_TEXT}.")
        turn = super()._turn(text)
        return evolve(turn, fresh=200_000) if turn.text.startswith("Step 1.") else turn


@pytest.mark.system
@pytest.mark.skipif(not CODEX.exists(), reason="needs codex")
@pytest.mark.timeout(180)
async def test_with_its_own_provider_it_goes_on_without_a_socket_and_with_a_shorter_conversation(
    gateway: Callable[..., Awaitable[Gateway]], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text(f'first <line> & "more"\n{READ_TEXT}\n')
    script = Shortened(OpenAiServer(), STEPS, TASK)
    async with listening(script) as url:
        running = await gateway(f"{url}/v1", GATEWAY_API_KEYS=KEY, **OPENAI, STRATEGY_RULES="*=recovery")
        config = f"""\
model = "gpt-5.5"
openai_base_url = "{running.url}/v1"
model_auto_compact_token_limit = 100000
"""
        said = await codex(folder, tmp_path / "home", running.url, f"Please {TASK}.", config=config)
    assert items(said, "agent_message")[-1]["text"] == DONE
    assert (folder / "run.txt").read_text() == f"{RUN_TEXT}\n"
    assert not items(said, "error")
    asked = [body.decode() for _, _, body in script.seen]
    [shortened] = [number for number, text in enumerate(asked) if INSTRUCTION.splitlines()[0] in text]
    assert f"To do: {TASK}" in asked[shortened + 1]


TOOL_SERVER = f"""
[mcp_servers.stamps]
command = "{sys.executable}"
args = ["{CODEX_HOME / "mcp_server.py"}"]
"""

STAMP = Step("mcp__stamps__stamp", {"text": "a & b"}, STAMPED)

SEARCH = Step("tool_search", {"query": "stamp a text"}, "Loaded: ")


@pytest.mark.system
@pytest.mark.skipif(not CODEX.exists(), reason="needs codex")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("model", "steps"),
    [pytest.param("some-model", [STAMP], id="at once"), pytest.param("gpt-5.5", [SEARCH, STAMP], id="searched for")],
)
@pytest.mark.parametrize(
    ("dialect", "environ"),
    [
        pytest.param(None, NATIVE, id="native"),
        pytest.param("hermes", {**OPENAI, "STRATEGY_RULES": "*=xml_prompt:hermes"}, id="hermes"),
    ],
)
async def test_it_calls_a_tool_of_a_server_of_its_own(
    gateway: Callable[..., Awaitable[Gateway]],
    tmp_path: Path,
    model: str,
    steps: list[Step],
    dialect: str | None,
    environ: dict[str, str],
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    script = Script(OpenAiServer(), steps, TASK, dialect)
    async with listening(script) as url:
        running = await gateway(f"{url}/v1", GATEWAY_API_KEYS=KEY, **environ)
        said = await codex(folder, tmp_path / "home", running.url, f"Please {TASK}.", model=model, more=TOOL_SERVER)
    assert items(said, "agent_message")[-1]["text"] == DONE
    [called] = items(said, "mcp_tool_call")
    assert (called["server"], called["tool"], called["status"]) == ("stamps", "stamp", "completed")
    assert called["arguments"] == {"text": "a & b"}
    assert STAMPED in json.dumps(called["result"])


@pytest.mark.skipif(not CODEX.exists(), reason="needs codex")
@pytest.mark.timeout(180)
def test_codex_is_the_one_that_is_pinned() -> None:
    wanted = json.loads((CODEX_HOME / "package.json").read_bytes())["dependencies"]["@openai/codex"]
    package = CODEX_HOME / "node_modules" / "@openai" / "codex" / "package.json"
    assert json.loads(package.read_bytes())["version"] == wanted
    assert "resolved" not in (CODEX_HOME / "package-lock.json").read_text()
