"""The guide is true: its commands exist, and those that can run here are run, in order, against a real gateway."""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest
from attrs import frozen

from gateway.cli.root import cli
from tests.deploy.proxy import DEPLOY, replace_once
from tests.support.faulty_upstream import FaultyUpstream, answer_json
from tests.support.processes import free_port, free_ports

README = (DEPLOY / "README.md").read_text(encoding="utf-8")
ROOT = DEPLOY.parent
OTHER_PROGRAMS = {
    *(
        "apt-get",
        "cp",
        "curl",
        "docker",
        "echo",
        "export",
        "install",
        "kubectl",
        "ln",
        "nginx",
        "printf",
        "python3",
        "rm",
        "sed",
    ),
    *("sqlite3", "systemctl", "touch", "/opt/toolgate/bin/pip"),
}
MAY_SAY = {"report": {0, 4}, "rollout promote": {0, 3}, "rollout resume": {0, 3}}
"""Exit codes that are an answer and no failure, where the guide names them."""


@frozen(kw_only=True)
class Block:
    """One block of shell commands, and whether it can be run here."""

    mark: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.strip().splitlines()


BLOCKS = [
    Block(mark=mark, text=body)
    for mark, body in re.findall(r"(?:^<!-- (\w+) -->\n)?^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
]
LINES = [line for block in BLOCKS for line in block.lines]
TOOLGATE = [shlex.split(line)[1:] for line in LINES if line.startswith("toolgate ")]


def test_every_block_says_whether_it_is_run() -> None:
    assert README.count("```sh\n") == len(BLOCKS)
    assert {block.mark for block in BLOCKS} == {"run", "checked"}


def test_the_guide_has_ten_steps() -> None:
    assert re.findall(r"^## (\d+)\. ", README, re.MULTILINE) == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize("arguments", TOOLGATE, ids=" ".join)
def test_every_command_exists_with_its_options(arguments: list[str]) -> None:
    """Parsed as in earnest, and not carried out."""
    command: click.Command = cli
    rest, parent = list(arguments), click.Context(cli, info_name="toolgate")
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(parent, name)
        assert found is not None, f"toolgate has no command {name}"
        command = found
    command.make_context(arguments[0], rest, parent=parent)


def test_other_programs_are_known_and_their_files_there() -> None:
    for line in LINES:
        words = shlex.split(line.strip("()"))
        first = next(word for word in words if "=" not in word and word not in ("umask", "077", "&&"))
        assert first == "toolgate" or first in OTHER_PROGRAMS or line.startswith(("key=", "next=")), line
        for word in words:
            if word.startswith("deploy/"):
                assert list(ROOT.glob(word)), line


def test_the_minimal_proxy_is_the_one_in_the_file() -> None:
    assert f"```nginx\n{(DEPLOY / 'nginx' / 'minimal.conf').read_text()}```" in README


def test_the_paths_of_the_guide_are_those_of_the_service() -> None:
    unit = (DEPLOY / "systemd" / "toolgate.service").read_text()
    for path in ("/opt/toolgate/bin/", "/etc/toolgate/toolgate.env", "/etc/toolgate/upstream-key"):
        assert path in unit
        assert path in README


def neighbouring_ports(number: int) -> int:
    """The first of so many ports in a row that were free a moment ago."""
    for _ in range(100):
        ports = free_ports(number)
        if ports[-1] - ports[0] == number - 1:
            return ports[0]
    raise AssertionError("no such ports")


@frozen(kw_only=True)
class Machine:
    """A folder that stands for a machine: its own /etc, /var, /run, and a copy of deploy/ that knows them."""

    root: Path
    moved: dict[str, str]

    def localised(self, text: str) -> str:
        """The text with the paths and ports of this machine."""
        for old, new in self.moved.items():
            text = text.replace(old, new)
        return text

    def install(self, upstream: str) -> None:
        """Everything that a real machine has before the first step, and the programs of step one."""
        for folder in ("etc/systemd/system", "var/lib/toolgate", "var/backups", "run/toolgate", "bin", "state"):
            (self.root / folder).mkdir(parents=True)
        self.moved["http://127.0.0.1:8000/v1"] = upstream
        shutil.copytree(DEPLOY, self.root / "deploy")
        for path in (self.root / "deploy").rglob("*"):
            if path.suffix in (".env", ".service"):
                path.write_text(self.localised(path.read_text()))
        for path in (self.root / "deploy" / "env").glob("*.env"):
            path.write_text(f"{path.read_text()}METRICS_PORT={neighbouring_ports(4)}\n")
        self._program(
            "toolgate", _TOOLGATE.format(codes=json.dumps({k: list(v) for k, v in MAY_SAY.items()}), root=ROOT)
        )
        unit = self.root / "etc/systemd/system/toolgate.service"
        service = Path(__file__).with_name("service.py")
        words = shlex.join([sys.executable, str(service), str(unit), str(self.root / "state")])
        self._program("systemctl", f'#!/bin/sh\nexec {words} "$@"\n')

    def _program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "HOME": str(self.root), "LANG": "C.UTF-8"}

    async def stop(self) -> None:
        """End what systemctl started."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.root / "state" / "pid").read_text()), signal.SIGTERM)


_TOOLGATE = f"""#!{sys.executable}
import os, sys
sys.path.insert(0, "{{root}}")
if sys.argv[1:2] == ["serve"]:
    os.environ["PYTHONPATH"] = "{{root}}"
    os.execv(sys.executable, [sys.executable, "-m", "gateway", "serve"])
from gateway.cli.root import main
try:
    main()
except SystemExit as ended:
    said = " ".join(sys.argv[1:])
    may_say = next((codes for words, codes in {{codes}}.items() if said.startswith(words)), [0])
    sys.exit(0 if (ended.code or 0) in may_say else ended.code)
"""


@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("sqlite3") is None and "TOOLGATE_CI" not in os.environ, reason="needs sqlite3")
async def test_the_commands_do_what_they_are_there_for(upstream: FaultyUpstream, tmp_path: Path) -> None:
    upstream.script = answer_json({"object": "list", "data": [{"id": "m", "object": "model"}]})
    port = str(free_port())
    places = {
        path: f"{tmp_path}{path}" for path in ("/etc/toolgate", "/etc/systemd", "/var/lib", "/var/backups", "/run")
    }
    machine = Machine(root=tmp_path, moved={**places, "/opt/toolgate": str(tmp_path), "8080": port})
    machine.install(upstream.url)
    script = "\n".join(machine.localised(block.text) for block in BLOCKS if block.mark == "run")
    (tmp_path / "guide.sh").write_text(f"set -euxo pipefail\n{script}")
    try:
        process = await asyncio.create_subprocess_exec(
            *("bash", "guide.sh"),
            cwd=tmp_path,
            env=machine.environ(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(200):
            out, _ = await process.communicate()
    finally:
        await machine.stop()
    log = tmp_path / "state" / "log"
    assert process.returncode == 0, f"{out.decode()[-3000:]}\n{log.read_text()[-2000:] if log.exists() else ''}"
    assert "reload_failed" not in log.read_text()
    assert (tmp_path / "report.html").stat().st_size > 0
    assert (tmp_path / "var/backups/toolgate.db").stat().st_size > 0
    assert oct((tmp_path / "etc/toolgate/upstream-key").stat().st_mode)[-3:] == "600"
    assert upstream.last.headers["authorization"] == "Bearer key-of-the-model-server"


def test_the_service_of_the_guide_is_started_as_its_unit_says() -> None:
    """What the test's own systemctl reads of the unit file stands there once."""
    unit = (DEPLOY / "systemd" / "toolgate.service").read_text()
    replace_once(unit, "ExecStart=/opt/toolgate/bin/toolgate serve", "")
    replace_once(unit, "LoadCredential=", "")
