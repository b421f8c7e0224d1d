"""`toolgate inspect`: where it listens, and what it says when it cannot."""

import socket
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.run.inspect import inspect, loopback
from gateway.inspector.server import sockets


def run(*arguments, **environ):
    return CliRunner().invoke(inspect, arguments, env=environ)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])  # noqa: S104 - what is refused
def test_it_listens_on_this_machine_alone(host):
    result = run("--host", host)
    assert result.exit_code == 78
    assert "ssh -L" in result.stderr
    assert loopback(host, 1) is None


def test_a_store_in_another_process_cannot_be_read():
    result = run(STORE_URL="memory://")
    assert result.exit_code == 5
    assert "STORE_URL=sqlite:///toolgate.db" in result.stderr


def test_a_port_that_is_taken_leads_to_the_next_unless_it_was_asked_for():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (other,) = sockets("127.0.0.1", port, is_fixed=False)
        assert other.getsockname()[1] > port
        other.close()
        with pytest.raises(OSError, match="in use"):
            sockets("127.0.0.1", port, is_fixed=True)


def test_the_package_brings_every_file_of_the_page():
    root = Path(__file__).parents[4]
    shipped = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["gateway"]
    files = [path.relative_to(root / "gateway") for path in (root / "gateway" / "inspector" / "app").iterdir()]
    assert len(files) >= 8
    assert [path for path in files if not any(path.match(pattern) for pattern in shipped)] == []
    assert "inspector/app" in (root / ".ci" / "run").read_text(), "CI asks the wheel for them"


def test_its_help_has_examples_and_exit_codes():
    told = run("-h" if "-h" in inspect.context_settings.get("help_option_names", ()) else "--help").output
    assert "toolgate inspect --port 9100 --no-open --read-only" in told
    assert "78" in told
