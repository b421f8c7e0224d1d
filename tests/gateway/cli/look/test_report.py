"""`toolgate report` and its labels: from a store on disk to documents and exit codes."""

import asyncio
import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli.look.report import report
from gateway.core.ports import Store
from gateway.core.records import LabelRecord, Record
from gateway.rollout.codec import STATE_KEY, encoded
from gateway.rollout.stages import RolloutState
from gateway.state.opening import open_store
from tests.support.week import Week, week

PERIOD = ("--since", "2026-09-21T14:00", "--until", "2026-09-28T14:00")
ROOT = Path(__file__).parents[4]


async def filled(path: Path, made: Week) -> None:
    store = opened(path)
    await store.open()
    records = list(made.records())
    for start in range(0, len(records), 500):
        await store.append(records[start : start + 500])
    await store.close()


def opened(path: Path) -> Store:
    return open_store(f"sqlite:///{path}", prefix="", timeout_ms=2000)


async def kept(path: Path, kind: type[Record]) -> list[Any]:
    store = opened(path)
    await store.open()
    found = [record async for record in store.scan(kind)]
    await store.close()
    return found


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    asyncio.run(filled(folder / "week.db", week(1200)))
    asyncio.run(filled(folder / "clean.db", week(3000, arms=("dry_run",), clean=True)))
    asyncio.run(filled(folder / "empty.db", Week(requests=(), outcomes=(), feedback=(), labels=(), decisions=())))
    return folder


def settings(path: Path, **more: str) -> dict[str, str | None]:
    own = [name for name in os.environ if name.startswith(("STORE_", "TRANSFORM_", "CANARY_", "GATEWAY_", "UPSTREAM_"))]
    return {**dict.fromkeys(own), "STORE_URL": f"sqlite:///{path}", "TRANSFORM_MODE": "dry_run", **more}


def run(*arguments: str, environ: Mapping[str, str | None], text: str | None = None) -> Result:
    return CliRunner().invoke(report, [*arguments], env=environ, input=text, prog_name="toolgate report")


def test_the_terminal_is_told_the_verdict_first(stores):
    result = run(*PERIOD, environ=settings(stores / "clean.db"))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("READY  Every gate is met.")
    assert result.stderr == ""


def test_json_is_one_document_on_stdout(stores):
    result = run(*PERIOD, "--json", environ=settings(stores / "week.db"))
    told = json.loads(result.stdout)
    assert told["schema_version"] == 1
    assert told["volume"]["requests"] == 1200
    assert told["mode"] == "dry_run"
    assert result.stderr == ""


def test_markdown_goes_to_stdout(stores):
    result = run(*PERIOD, "--markdown", environ=settings(stores / "week.db"))
    assert result.stdout.startswith("# Toolgate report: not ready\n")


def test_html_goes_into_its_file_and_beside_another_document(stores, tmp_path):
    target = tmp_path / "week.html"
    result = run(*PERIOD, "--html", str(target), "--json", environ=settings(stores / "week.db"))
    assert json.loads(result.stdout)["volume"]["requests"] == 1200
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert target.stat().st_mode & 0o777 == 0o600, "it quotes what models wrote"
    assert result.stderr == f"Wrote {target}.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["week.html"]


def test_html_on_stdout_is_the_only_document(stores):
    assert run(*PERIOD, "--html", "-", environ=settings(stores / "week.db")).stdout.startswith("<!DOCTYPE html>")
    assert run(*PERIOD, "--html", "-", "--json", environ=settings(stores / "week.db")).exit_code == 2
    assert run(*PERIOD, "--markdown", "--json", environ=settings(stores / "week.db")).exit_code == 2


def test_a_file_that_cannot_be_written_is_said_to_be_one(stores, tmp_path):
    result = run(*PERIOD, "--html", str(tmp_path / "no" / "a.html"), environ=settings(stores / "week.db"))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_a_link_stays_a_link_and_a_pipe_a_pipe(stores, tmp_path):
    (tmp_path / "shown.html").symlink_to(tmp_path / "week.html")
    (tmp_path / "week.html").write_text("older")
    run(*PERIOD, "--html", str(tmp_path / "shown.html"), environ=settings(stores / "week.db"))
    assert (tmp_path / "shown.html").is_symlink()
    assert (tmp_path / "week.html").read_text().startswith("<!DOCTYPE html>")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        run(*PERIOD, "--html", str(tmp_path / "pipe"), environ=settings(stores / "week.db"))
        assert reader.communicate(timeout=10)[0].endswith("</html>\n")
    assert (tmp_path / "pipe").is_fifo()


def test_gates_that_are_not_met_are_3_only_when_asked_for(stores):
    environ = settings(stores / "week.db")
    assert run(*PERIOD, environ=environ).exit_code == 0
    assert run(*PERIOD, "--fail-on", "not-ready", environ=environ).exit_code == 3
    assert run(*PERIOD, "--fail-on", "noise", environ=environ).exit_code == 3
    assert run(*PERIOD, "--fail-on", "calls", environ=environ).exit_code == 0
    assert run(*PERIOD, "--fail-on", "nonsense", environ=environ).exit_code == 2


def test_too_little_data_is_4_and_still_reported(stores):
    result = run("--json", environ=settings(stores / "empty.db"))
    assert result.exit_code == 4
    assert json.loads(result.stdout)["readiness"]["verdict"] == "not enough data"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--since", "yesterday"),
        ("--since", "1e3d"),
        ("--since", "-1d"),
        ("--days", "0"),
        ("--days", "-1"),
        ("--days", "nan"),
        ("--until", "1969-12-31"),
        ("--since", "1h", "--days", "1"),
        ("--since", "1h", "--until", "2h"),
    ],
)
def test_a_period_that_is_none_is_a_mistake_of_use(stores, arguments):
    assert run(*arguments, environ=settings(stores / "week.db")).exit_code == 2


def test_ages_and_zones_are_understood(stores):
    environ = settings(stores / "week.db")
    utc = json.loads(run("--since", "2026-09-21T14:00", "--until", "2026-09-22", "--json", environ=environ).stdout)
    zone = ("--since", "2026-09-21T16:00+02:00", "--until", "2026-09-21T19:00-05:00")
    assert json.loads(run(*zone, "--json", environ=environ).stdout)["volume"] == utc["volume"]
    age = json.loads(run("--since", "36h", "--json", environ=environ).stdout)["period"]
    assert age["until"] - age["since"] == pytest.approx(36 * 3600, abs=5)
    default = json.loads(run("--json", environ=environ).stdout)["period"]
    assert default["until"] - default["since"] == pytest.approx(7 * 86400, abs=1e-3)
    oldest = json.loads(
        run("--since", "9" * 400 + "d", "--until", "2026-09-28T14:00", "--json", environ=environ).stdout
    )
    assert oldest["volume"]["requests"] == 1200


def test_no_colour_codes_where_there_is_no_terminal(stores):
    assert "\x1b" not in run(*PERIOD, environ=settings(stores / "week.db")).output


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "own.db"
    asyncio.run(filled(path, week(1200, arms=("dry_run",))))
    return path


@pytest.mark.parametrize(("killed", "mode"), [(False, "canary"), (True, "off")])
def test_where_the_rollout_stands_beats_where_the_settings_began(store, killed, mode):
    async def promote() -> None:
        shared = opened(store)
        await shared.open()
        await shared.put(STATE_KEY, encoded(RolloutState(state="canary", percent=2500, killed=killed)))
        await shared.close()

    asyncio.run(promote())
    assert json.loads(run(*PERIOD, "--json", environ=settings(store)).stdout)["mode"] == mode


def first_call(path: Path) -> str:
    told = json.loads(run(*PERIOD, "--json", environ=settings(path)).stdout)
    return str(next(each["id"] for each in told["review"]["sample"] if each["label"] is None))


def test_a_label_is_kept_and_counts_in_the_next_report(store):
    candidate = first_call(store)
    before = json.loads(run(*PERIOD, "--json", environ=settings(store)).stdout)["review"]["precision"]
    result = run("label", candidate, "wrong", "--by", "anna", "--note", "an example", environ=settings(store))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"Kept: {candidate} is wrong.\n"
    after = json.loads(run(*PERIOD, "--json", environ=settings(store)).stdout)["review"]["precision"]
    assert (after["of"], after["hits"]) == (before["of"] + 1, before["hits"])
    label = asyncio.run(kept(store, LabelRecord))[-1]
    assert (f"{label.request_id}:{label.number}", label.is_right, label.by, label.note) == (
        candidate,
        False,
        "anna",
        "an example",
    )


def test_the_number_may_be_left_out_for_the_first_candidate(store):
    candidate = next(each for each in [first_call(store)] if each.endswith(":0"))
    assert run("label", candidate.removesuffix(":0"), "right", environ=settings(store)).exit_code == 0
    assert asyncio.run(kept(store, LabelRecord))[-1].number == 0


def test_what_is_not_there_gets_no_label(store):
    count = len(asyncio.run(kept(store, LabelRecord)))
    for candidate in ("nobody", "nobody:3", "req-000001:99"):
        result = run("label", candidate, "right", environ=settings(store))
        assert result.exit_code == 1, candidate
        assert candidate.partition(":")[0] in result.stderr
    assert run("label", "req-000001", environ=settings(store)).exit_code == 2
    assert run("label", "req-000001", "perhaps", environ=settings(store)).exit_code == 2
    assert run("label", first_call(store), "right", "--dry-run", environ=settings(store)).exit_code == 0
    assert len(asyncio.run(kept(store, LabelRecord))) == count


def test_questions_need_a_terminal(store):
    result = run("label", "--sample", "5", environ=settings(store), text="r\n")
    assert result.exit_code == 2
    assert "terminal" in result.stderr


def read_until(terminal: int, words: str, seen: list[str]) -> None:
    """Read what the program shows until these words come."""
    deadline = time.monotonic() + 30
    while words not in "".join(seen):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{words!r} did not come: {''.join(seen)}"
        seen.append(os.read(terminal, 65536).decode())


@contextmanager
def on_a_terminal(
    environ: Mapping[str, str | None], *arguments: str
) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """The command on a terminal of its own; nobody else holds that terminal's other end."""
    ours, theirs = pty.openpty()
    program = "from gateway.cli.look.report import report; report(prog_name='toolgate report')"
    given = {**os.environ, **{name: value for name, value in environ.items() if value is not None}}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=given
    )
    os.close(theirs)
    try:
        yield ours, process
    finally:
        os.close(ours)
        process.wait(30)


@pytest.mark.system
def test_a_sample_is_asked_about_on_a_terminal(store):
    count = len(asyncio.run(kept(store, LabelRecord)))
    with on_a_terminal(settings(store), "label", "--sample", "50", *PERIOD, "--by", "bo") as (terminal, process):
        for answer in ("r", "w", "s", "q"):
            seen: list[str] = []
            read_until(terminal, "right, wrong, skip or quit", seen)
            shown = "".join(seen)
            assert "as written" in shown
            assert re.search(r"req-\d{6}:\d", shown)
            os.write(terminal, f"{answer}\n".encode())
        assert process.wait(30) == 0
    labels = asyncio.run(kept(store, LabelRecord))
    assert len(labels) == count + 2
    assert sorted(label.is_right for label in labels if label.by == "bo") == [False, True]


@pytest.fixture(autouse=True)
def _private_stores(stores: Path) -> Iterator[None]:
    yield
    assert stat.S_IMODE((stores / "week.db").stat().st_mode) == 0o600
