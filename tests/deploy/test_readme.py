"""The guide is true: its commands exist, and those that can run here are run, in order, against a real gateway."""

import ast
import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import struct
import sys
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

import click
import pytest
from attrs import frozen

from gateway.cli.root import cli
from tests.deploy.proxy import DEPLOY, replace_once
from tests.support.browser import needs_chromium
from tests.support.faulty_upstream import FaultyUpstream, answer_json
from tests.support.pages import faults_of, sources
from tests.support.pictures import MADE_BY, MAKERS, PICTURES, PREVIEWS, chunks, made, shrunk
from tests.support.processes import free_port, free_ports
from tests.support.reading import together

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


@pytest.mark.system
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


# --- The page of faults: every number that a test bears is a row, every row is shown by tests that exist


PAGE = (ROOT / "deploy" / "FAULTS.md").read_text(encoding="utf-8")

GROUPS = "UWPSCOA"

TEST = re.compile(r"\[(test_\w+)\]\(\.\./(tests/[\w/.]+)\)")

BORNE = re.compile(rf"(?<=_)[{GROUPS.lower()}]\d{{1,2}}(?=_)")

SAID = re.compile(rf"\brows? ([{GROUPS}]\d+(?:(?:, | and | to )[{GROUPS}]\d+)*)")


@frozen(kw_only=True)
class Fault:
    """One row of the page."""

    id: str
    fault: str
    done: str
    shown: str
    seen: str


def rows() -> dict[str, Fault]:
    found: dict[str, Fault] = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            name, fault, done, shown, seen = (cell.strip() for cell in line.split("|")[1:-1])
            row = Fault(id=name.strip("`"), fault=fault, done=done, shown=shown, seen=seen)
            assert row.id not in found
            found[row.id] = row
    return found


FAULTS = rows()


@cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_bytes())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def bearing() -> dict[str, set[str]]:
    """The tests that bear a number in their names, by that number."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in defined_in(path.relative_to(ROOT).as_posix()):
            for number in BORNE.findall(test) if test.startswith("test_") else ():
                found.setdefault(number.upper(), set()).add(test)
    return found


def test_the_rows_are_in_their_order_and_say_something() -> None:
    assert len(FAULTS) > 90
    order = [(GROUPS.index(row[0]), int(row[1:])) for row in FAULTS]
    assert order == sorted(order)
    assert all(fault.fault and fault.done for fault in FAULTS.values())


def test_every_number_that_a_test_bears_is_a_row() -> None:
    assert sum(map(len, bearing().values())) > 80
    assert bearing().keys() - FAULTS.keys() == set()


def test_every_number_that_a_test_file_speaks_of_is_a_row() -> None:
    said = [
        (path.name, number)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for numbers in SAID.findall((ast.get_docstring(ast.parse(path.read_bytes())) or "").replace("\n", " "))
        for number in re.findall(r"[A-Z]\d+", numbers)
    ]
    assert len(said) > 8
    assert [each for each in said if each[1] not in FAULTS] == []


@together("row", {row: row for row in FAULTS})
def test_a_row_is_shown_by_tests_that_exist(row: str) -> None:
    shown = TEST.findall(FAULTS[row].shown)
    assert shown
    assert [test for test, path in shown if test not in defined_in(path)] == []
    assert "; ".join(f"[{test}](../{path})" for test, path in shown) == FAULTS[row].shown


def test_a_row_names_one_of_the_tests_that_bear_its_number() -> None:
    named = {row: {test for test, _ in TEST.findall(fault.shown)} for row, fault in FAULTS.items()}
    assert [row for row, bear in sorted(bearing().items()) if not bear & named[row]] == []


def test_where_a_fault_was_seen_is_a_link_that_can_lead_there() -> None:
    assert faults_of(PAGE) == []
    seen = [fault for fault in FAULTS.values() if fault.seen]
    assert len(seen) > 50
    assert [fault.id for fault in seen if [one for one, _ in sources(fault.seen)] != fault.seen.split("; ")] == []


# --- The pictures of the documents are there, small, and made by a command from real runs


MOST_BYTES = 150_000

PAGES = ("README.md", "deploy/README.md")


def _size(picture: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", dict(chunks(picture))[b"IHDR"])
    return width, height


@pytest.mark.parametrize("name", MAKERS)
def test_a_picture_is_made_by_the_command_and_shown_in_a_page(name):
    picture = (PICTURES / f"{name}.png").read_bytes()
    parts = dict(chunks(picture))
    assert parts[b"tEXt"] == MADE_BY
    assert len(picture) < MOST_BYTES
    assert min(_size(picture)) > 400
    assert any(f"pictures/{name}.png)" in (ROOT / page).read_text(encoding="utf-8") for page in PAGES)


def test_no_picture_is_left_that_nobody_makes():
    assert {path.stem for path in PICTURES.iterdir()} == set(MAKERS)


@pytest.mark.parametrize("path", sorted(PREVIEWS.glob("*.png")), ids=lambda path: path.stem)
def test_a_preview_is_made_by_the_same_command(path):
    picture = path.read_bytes()
    assert dict(chunks(picture))[b"tEXt"] == MADE_BY
    assert len(picture) < MOST_BYTES


def test_the_picture_of_the_inspector_stands_on_the_first_screen():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert any("pictures/inspector.png" in line for line in lines[:24])


@needs_chromium
@pytest.mark.long
@pytest.mark.parametrize("name", MAKERS)
async def test_each_picture_can_be_made_anew(name):
    picture = await made(name)
    assert _size(picture) == _size((PICTURES / f"{name}.png").read_bytes())
    assert len(picture) < MOST_BYTES


def _picture(width: int, lines: list[bytes]) -> bytes:
    """Truecolour, each line behind the number of its filter."""
    body = zlib.compress(b"".join(lines))
    head = struct.pack(">IIBBBBB", width, len(lines), 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


def test_a_picture_keeps_its_colours_when_it_is_made_small():
    red, blue, dark = (200, 0, 0), (0, 0, 200), (9, 9, 9)
    plain = b"\0" + bytes(red + blue + dark)
    filtered = [
        plain,
        b"\1"
        + bytes(
            (
                *red,
                *((b - a) % 256 for a, b in zip(red, blue, strict=True)),
                *((b - a) % 256 for a, b in zip(blue, dark, strict=True)),
            )
        ),
        b"\2" + bytes(9),
        b"\4" + bytes(9),
    ]
    parts = dict(chunks(shrunk(_picture(3, filtered))))
    palette = [tuple(parts[b"PLTE"][at : at + 3]) for at in range(0, len(parts[b"PLTE"]), 3)]
    data = zlib.decompress(parts[b"IDAT"])
    lines = [[palette[place] for place in data[at + 1 : at + 4]] for at in range(0, len(data), 4)]
    assert lines[:3] == [[red, blue, dark]] * 3
    assert set(palette) >= {red, blue, dark}
