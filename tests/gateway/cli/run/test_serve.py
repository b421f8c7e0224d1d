"""Options of `toolgate serve`: the settings that matter at a terminal, over environment and files, at a reload too."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import aiohttp
import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from gateway.cli.root import cli
from gateway.cli.run.reload import _rollout_note
from gateway.cli.run.reload import reload as reload_command
from gateway.config.load import load, reload, with_options
from gateway.demo.script import MODELS
from gateway.process.status import read_status
from gateway.rollout.codec import STATE_KEY, encoded
from gateway.rollout.stages import RolloutRules, begun
from gateway.state.opening import open_store
from tests.gateway.cli.test_root import process_environment
from tests.support.client import ask, chat
from tests.support.faulty_upstream import FaultyUpstream, answer_json, completion
from tests.support.processes import SERVE, Program, until

OPTIONS = {"GATEWAY_PORT": ("--port", "9000"), "TRANSFORM_MODE": ("--mode", "dry_run")}


def test_an_option_wins_over_environment_and_file_at_a_reload_too(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("GATEWAY_PORT=7000\nTRANSFORM_MODE=off\nLOG_LEVEL=debug\n")
    environ = with_options({"GATEWAY_ENV_FILE": str(file), "GATEWAY_PORT": "8000"}, OPTIONS)
    for read in (load, reload):
        settings = read(environ)
        assert (settings.port, settings.transform_mode, settings.log_level) == (9000, "dry_run", "debug")
        assert settings.sources["GATEWAY_PORT"] == "option --port"


def test_an_option_replaces_the_other_form_of_a_secret(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("from-the-file\n")
    environ = {"UPSTREAM_API_KEY": "from-the-environment", "UPSTREAM_URL": "http://127.0.0.1:1/v1"}
    options = {"UPSTREAM_API_KEY_FILE": ("--upstream-key-file", str(key))}
    assert load(with_options(environ, options)).upstream_api_key == "from-the-file"


def test_the_file_that_an_option_names_is_read(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.toml"
    file.write_text("upstream_url = 'http://127.0.0.1:1/v1'\nlog_level = 'warning'\n")
    settings = load(with_options({}, {"GATEWAY_CONFIG": ("--config", str(file))}))
    assert (settings.upstream_url, settings.log_level) == ("http://127.0.0.1:1/v1", "warning")


def test_a_value_that_cannot_be_is_told_by_its_option() -> None:
    result = CliRunner().invoke(cli, ["serve", "--port", "70000", "--mode", "some"], env={"METRICS_PORT": "0"})
    assert result.exit_code == 78
    assert "fault: --port (GATEWAY_PORT): must be a whole number" in result.stderr
    assert "fault: --mode (TRANSFORM_MODE): must be off" in result.stderr


@pytest.mark.system
async def test_options_reach_workers_and_outlive_a_reload(upstream: FaultyUpstream, tmp_path: Path) -> None:
    upstream.script = answer_json(completion("hello"))
    command = (*SERVE, "--upstream", upstream.url, "--workers", "2", "--mode", "dry_run")
    async with (
        Program(tmp_path, command=command, UPSTREAM_URL="http://127.0.0.1:1/v1") as program,
        aiohttp.ClientSession() as client,
    ):
        await program.serving()
        answer = await ask(client, program.url, chat(tools=[]))
        assert (answer.status, answer.headers["X-Toolgate-Arm"]) == (200, "dry_run")
        program.signal(signal.SIGHUP)
        await until(lambda: len(program.events("reloaded")) == 2)
        answer = await ask(client, program.url, chat(tools=[]))
        assert (answer.status, answer.headers["X-Toolgate-Arm"]) == (200, "dry_run")
        await until(lambda: len(program.events("model_server_seen")) == 1)


# --- `toolgate demo`: the same answer twice, as it was written and as it arrives


def test_what_was_written_stands_beside_what_arrives() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "demo", "--fast"],
        env=process_environment(NO_COLOR="1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    parts = {part.partition(":")[0]: part for part in done.stdout.split("\n\ndemo-")}
    assert len(parts) == len(MODELS)
    wrote, got = parts["xml"].split("the agent gets")
    assert "<city>Paris</city>" in wrote
    assert "<city>" not in got
    assert 'tool call get_weather {"city":"Paris"}' in got
    wrote, got = parts["broken"].split("the agent gets")
    assert "<city>Paris" in wrote.rstrip()
    assert wrote.partition("the model writes")[2].strip() == got.strip(), "what cannot be read stays what it was"
    assert done.stderr == ""


def test_a_model_that_is_none_is_named_with_those_that_are() -> None:
    result = CliRunner().invoke(cli, ["demo", "demo-xlm"])
    assert result.exit_code == 2
    assert "demo-xml" in result.output


# --- `toolgate reload`: what it says, and with which exit code, for every way in which it can go


ANSWERS = """
import signal, sys, time
from gateway.process.status import PidFile, Status
import os
file = PidFile(sys.argv[1], Status(pid=os.getpid(), workers=int(sys.argv[2])))
faults = sys.argv[3:]
signal.signal(signal.SIGHUP, lambda *_: file.write(file.status.reloaded(faults)))
signal.signal(signal.SIGUSR2, lambda *_: file.write(file.status.restarted(faults)))
file.write()
print("ready", flush=True)
time.sleep(60)
"""


class Gateway:
    """A process that answers as a gateway does."""

    def __init__(self, folder: Path) -> None:
        self.pid_file = folder / "pid"
        self._process: Popen[bytes] | None = None

    def start(self, *faults: str, workers: int = 2, program: str = ANSWERS) -> int:
        command = [sys.executable, "-c", program, str(self.pid_file), str(workers), *faults]
        self._process = Popen(command, stdout=PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self._process.pid

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tmp_path)
    yield made
    made.close()


def run(*arguments: str, pid_file: Path | None = None) -> Result:
    environ = {"GATEWAY_PID_FILE": None if pid_file is None else str(pid_file)}
    return CliRunner().invoke(reload_command, arguments, env=environ, catch_exceptions=False)


def test_new_settings_are_in_force(gateway: Gateway) -> None:
    gateway.start()
    result = run(pid_file=gateway.pid_file)
    assert (result.exit_code, result.stdout) == (0, "the new settings are in force\n")
    again = run("--pid-file", str(gateway.pid_file))
    assert again.exit_code == 0


def test_faults_are_told_and_nothing_happens(gateway: Gateway) -> None:
    gateway.start("GATEWAY_DRAIN_S: must be a number", "STRATEGY_RULES: no such strategy")
    result = run(pid_file=gateway.pid_file)
    assert (result.exit_code, result.stdout) == (78, "")
    assert result.stderr.splitlines() == [
        "fault: GATEWAY_DRAIN_S: must be a number",
        "fault: STRATEGY_RULES: no such strategy",
        "nothing was reloaded: the old settings stay in force",
    ]


def test_all_workers_are_replaced(gateway: Gateway) -> None:
    pid = gateway.start(workers=4)
    result = run("--restart", "--json", pid_file=gateway.pid_file)
    assert json.loads(result.stdout) == {
        "schema_version": 1,
        "ok": True,
        "message": "all 4 workers were replaced",
        "pid": pid,
        "faults": [],
    }


def test_a_lone_process_cannot_be_replaced(gateway: Gateway) -> None:
    gateway.start(workers=1)
    result = run("--restart", pid_file=gateway.pid_file)
    assert result.exit_code == 2
    assert "GATEWAY_WORKERS" in result.stderr


def test_a_dry_run_asks_for_nothing(gateway: Gateway) -> None:
    pid = gateway.start()
    before = gateway.pid_file.read_text()
    assert run("--dry-run", "--restart", pid_file=gateway.pid_file).stdout == f"process {pid} would restart\n"
    assert gateway.pid_file.read_text() == before


def test_without_a_pid_file_it_asks_which_gateway() -> None:
    result = run()
    assert result.exit_code == 2
    assert "GATEWAY_PID_FILE" in result.stderr


@pytest.mark.parametrize("content", [None, "", "nonsense\n"])
def test_without_a_gateway_it_says_so(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    if content is not None:
        path.write_text(content)
    result = run(pid_file=path)
    assert result.exit_code == 5
    assert result.stderr.startswith("no gateway: ")


def test_a_pid_that_is_now_another_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("placeholder")
    with Popen(["sleep", "60"], stdin=DEVNULL) as other:
        (tmp_path / "pid").write_text(f"{other.pid}\n")
        result = run(pid_file=tmp_path / "pid")
        assert result.exit_code == 5
        assert other.poll() is None, "SIGHUP would have ended it"
        other.kill()


def test_a_gateway_that_says_nothing_is_not_waited_for_for_ever(gateway: Gateway) -> None:
    deaf = ANSWERS.replace("file.write(file.status.reloaded(faults))", "None")
    gateway.start(program=deaf)
    result = run("--timeout", "0.2", pid_file=gateway.pid_file)
    assert result.exit_code == 1
    assert "has said nothing for 0.2 s" in result.stderr


@pytest.mark.parametrize("seconds", ["nan", "-1", "soon"])
def test_a_time_that_is_none_asks_the_gateway_for_nothing(gateway: Gateway, seconds: str) -> None:
    gateway.start()
    assert run("--timeout", seconds, pid_file=gateway.pid_file).exit_code == 2
    assert read_status(str(gateway.pid_file)).reloads == 0


def test_a_gateway_that_ends_instead_is_noticed(gateway: Gateway) -> None:
    ending = ANSWERS.replace("file.write(file.status.reloaded(faults))", "(file.remove(), sys.exit(0))")
    gateway.start(program=ending)
    result = run(pid_file=gateway.pid_file)
    assert (result.exit_code, result.stderr) == (5, "the gateway has ended\n")


@pytest.mark.system
async def test_a_lone_gateway_answers_too(tmp_path: Path) -> None:
    settings = tmp_path / "env"
    settings.write_text("LOG_LEVEL=info\n")
    async with Program(tmp_path, GATEWAY_ENV_FILE=str(settings)) as program:
        await program.serving()
        assert (await asyncio.to_thread(run, pid_file=program.pid_file)).exit_code == 0
        settings.write_text("LOG_LEVEL=loud\n")
        refused = await asyncio.to_thread(run, pid_file=program.pid_file)
        assert refused.exit_code == 78
        assert "LOG_LEVEL" in refused.stderr
        os.kill(program.pid, signal.SIGUSR2)
        await program.logged("restart_failed")
        program.signal(signal.SIGTERM)
        assert await program.exit_code() == 0
        assert not program.pid_file.exists()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"state": "rolled_back", "cooldown_until": 4e9}, "stays rolled back until 2096-"),
        ({"state": "rolled_back"}, "stays rolled back, then `toolgate rollout resume`"),
        ({"killed": True}, "until `toolgate rollout unkill`"),
        ({"state": "paused", "reason": "maintenance"}, "stays paused (maintenance)"),
        ({"slices_off": ("recovery/hermes",)}, "recovery/hermes stays off"),
        ({}, "in force\n"),
    ],
)
async def test_what_the_rollout_keeps_from_being_so_is_said(
    tmp_path: Path, state: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_store(url, prefix="toolgate:", timeout_ms=2000)
    await store.open()
    await store.put(STATE_KEY, encoded(evolve(begun(RolloutRules(transform_mode="full"), 0.0, "x"), **state)))
    await store.close()
    monkeypatch.setenv("STORE_URL", url)
    monkeypatch.setattr("gateway.cli.run.reload._TICK_S", 0)
    note = await asyncio.to_thread(_rollout_note)
    assert words in ("the new settings are in force; " + note if note else "in force\n")
