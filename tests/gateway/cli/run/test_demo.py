"""`toolgate demo`: the same answer twice, as it was written and as it arrives."""

import subprocess
import sys

from click.testing import CliRunner

from gateway.cli.root import cli
from gateway.demo.script import MODELS
from tests.gateway.cli.test_root import process_environment


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
