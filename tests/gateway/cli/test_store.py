"""What the commands on the store have in common: periods, files that are whole or not there, and exit codes."""

import asyncio
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from gateway.cli.store import Moment, Period, output
from tests.gateway.cli.look.test_report import PERIOD, filled, on_a_terminal, read_until, run, settings
from tests.support.week import week

NOON = datetime(2026, 9, 21, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "own.db"
    asyncio.run(filled(path, week(1200, arms=("dry_run",))))
    return path


# --- Periods


@pytest.mark.parametrize(
    ("text", "at"),
    [
        *(("2026-09-21T12:00", NOON), ("2026-09-21", NOON - 12 * 3600), (" 2026-09-21T14:00+02:00 ", NOON)),
        *(("2026-09-21T12:00:00Z", NOON), (5, 5.0), (7.5, 7.5)),
    ],
)
def test_a_time_is_of_utc_unless_it_says_otherwise(text: object, at: float) -> None:
    assert Moment().convert(text, None, None) == at


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("90m", timedelta(minutes=90)),
        ("24h", timedelta(hours=24)),
        ("1.5d", timedelta(hours=36)),
        ("2w", timedelta(14)),
    ],
)
def test_an_age_is_counted_back_from_now(text: str, age: timedelta) -> None:
    wanted = (datetime.now(UTC) - age).timestamp()
    assert Moment().convert(text, None, None) == pytest.approx(wanted, abs=5)


@pytest.mark.parametrize("text", ["", "now", "1e3d", "-1d", "1.2.3d", "٣d", "24", "2026-13-01", "d"])
def test_what_is_neither_a_time_nor_an_age_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither a time"):
        Moment().convert(text, None, None)


def test_a_period_is_of_seven_days_up_to_now_unless_it_says_otherwise() -> None:
    found = Period.of(None, None, None)
    assert found.until == pytest.approx(datetime.now(UTC).timestamp(), abs=5)
    assert found.until - found.since == pytest.approx(7 * 86400, abs=1e-3)
    assert Period.of(None, NOON, 0.5) == Period(NOON - 43200, NOON)
    assert Period.of(NOON - 9, NOON, None) == Period(NOON - 9, NOON)
    assert Period.of(None, 10.0, 7.0) == Period(0.0, 10.0), "nothing was before 1970"


@pytest.mark.parametrize(("since", "until", "days"), [(1.0, None, 2.0), (5.0, 5.0, None), (6.0, 5.0, None)])
def test_a_period_that_is_none_is_a_mistake_of_use(
    since: float | None, until: float | None, days: float | None
) -> None:
    with pytest.raises(click.UsageError):
        Period.of(since, until, days)


# --- Documents


def test_a_document_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"before")
    with suppress(ZeroDivisionError), output(str(target)) as file:
        file.write(b"aft")
        raise ZeroDivisionError
    assert target.read_bytes() == b"before"
    with output(str(target)) as file:
        file.write(b"after")
        assert target.read_bytes() == b"before"
    assert target.read_bytes() == b"after"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_private_one_is_its_owners_alone_from_the_beginning(tmp_path: Path) -> None:
    with output(str(tmp_path / "out"), is_private=True) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    with output(str(tmp_path / "open")) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o600 == 0o600
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o666 & ~umask


def test_a_link_stays_one_and_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with output(str(tmp_path / "link")) as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"
    with output("/dev/null") as file:
        file.write(b"x")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(click.ClickException, match="cannot be written"), output(str(tmp_path / "no" / "file")):
        pass


# --- Exit codes, and how far it is


def test_a_store_that_cannot_be_read_is_5(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    result = run(environ=settings(missing))
    assert (result.exit_code, missing.exists()) == (5, False)
    assert "no store" in result.stderr
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database" * 500)
    assert run(environ=settings(broken)).exit_code == 5
    nobody = run(environ=settings(missing, STORE_URL="redis://user:hunter2pass@127.0.0.1:1/0"))
    assert nobody.exit_code == 5
    assert "hunter2pass" not in nobody.output


def test_a_store_in_memory_cannot_be_asked_from_elsewhere(tmp_path: Path) -> None:
    result = run(environ=settings(tmp_path, STORE_URL="memory://"))
    assert result.exit_code == 2
    assert "memory://" in result.stderr


def test_faulty_settings_are_78(store: Path) -> None:
    result = run(environ=settings(store, CANARY_PERCENT="200"))
    assert result.exit_code == 78
    assert "fault: CANARY_PERCENT" in result.stderr


@pytest.mark.system
def test_progress_is_shown_on_a_terminal_alone(store: Path) -> None:
    seen: list[str] = []
    with on_a_terminal(settings(store), *PERIOD, "--html", "/dev/null/none") as (terminal, process):
        read_until(terminal, "cannot be written", seen)
        assert process.wait(30) == 1
    assert "Reading records" in "".join(seen)
    assert "Reading records" not in run(*PERIOD, environ=settings(store)).stderr
