"""Options of `toolgate serve`: the settings that matter at a terminal, over environment and files, at a reload too."""

import signal
from pathlib import Path

import aiohttp
from click.testing import CliRunner

from gateway.cli.root import cli
from gateway.config.load import load, reload, with_options
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
