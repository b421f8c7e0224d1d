"""`toolgate inspect`: where it listens, and what it says when it cannot."""

import asyncio
import socket
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.run.inspect import _opened, inspect, loopback
from gateway.cli.store import effective_settings
from gateway.inspector.server import sockets
from gateway.state.sqlite import SqliteStore


def run(*arguments, **environ):
    return CliRunner().invoke(inspect, arguments, env=environ)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])  # noqa: S104 - what is refused
def test_it_listens_on_this_machine_alone(host):
    result = run("--host", host)
    assert result.exit_code == 78
    assert "ssh -L" in result.stderr
    assert f" {host}, and open" in result.stderr or host in ("0.0.0.0", "::")  # noqa: S104
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


async def test_a_store_that_no_gateway_has_begun_is_waited_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gateway.cli.run.inspect._WAIT_S", 0.01)
    file = tmp_path / "store.db"
    monkeypatch.setenv("STORE_URL", f"sqlite:///{file}")
    waiting = asyncio.create_task(_opened(effective_settings(), asyncio.Event()))
    await asyncio.sleep(0)
    said = capsys.readouterr().err
    assert said == f"There is no store {file} yet: waiting for a gateway to begin it.\n"
    begun = SqliteStore(file, timeout_s=5)
    await begun.open()
    found = await waiting
    assert found is not None
    assert await found.end() == await begun.end()
    assert capsys.readouterr().err == ""
    for store in (found, begun):
        await store.close()
