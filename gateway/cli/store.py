"""What the commands on the store have in common: its opening, the period, and their exit codes."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import click
from attrs import frozen

from gateway.cli.options import Amount
from gateway.config.load import Settings, load
from gateway.core.addresses import store_address
from gateway.core.errors import ConfigError
from gateway.core.ports import Store, StoreError
from gateway.process.exits import EXIT_SETTINGS, EXIT_UNREACHABLE

__all__ = [
    "Moment",
    "Period",
    "Progress",
    "effective_settings",
    "on_store",
    "output",
    "period_options",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
# A longer age means from the beginning, and must not lead out of the years that `datetime` knows.
_OLDEST_S = 50 * 365 * 86_400.0
_DEFAULT_DAYS = 7.0
_MAX_DAYS = 36_500.0
_PATIENCE_MS = 2000
"""Whoever types a command waits longer for the store than a request may."""


class StoreUnreachable(click.ClickException):
    """The store cannot be read."""

    exit_code = EXIT_UNREACHABLE


class FaultySettings(click.ClickException):
    """The settings do not say which store."""

    exit_code = EXIT_SETTINGS

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self._faults = faults

    def show(self, file: IO[Any] | None = None) -> None:
        for fault in self._faults:
            click.echo(f"fault: {fault}", err=file is None, file=file)


class Moment(click.ParamType[float]):
    """An ISO 8601 date or time, in UTC unless it says otherwise, or an age such as 90m, 24h, 7d, 2w."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        try:
            if text[-1:] in _UNITS and text[:-1].replace(".", "", 1).isdecimal() and text.isascii():
                age = float(text[:-1]) * _UNITS[text[-1]]
                return (datetime.now(UTC) - timedelta(seconds=min(age, _OLDEST_S))).timestamp()
            at = datetime.fromisoformat(text)
            # UTC, as in everything that is printed: the same command means the same on every machine.
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            self.fail(
                f"{text[:40]!r} is neither a time such as 2026-01-31T12:00 nor an age such as 24h", param, context
            )


@frozen
class Period:
    """What `--since`, `--until` and `--days` come to."""

    since: float
    until: float

    @classmethod
    def of(cls, since: float | None, until: float | None, days: float | None) -> "Period":
        if since is not None and days is not None:
            raise click.UsageError("--since and --days exclude each other")
        end = until if until is not None else datetime.now(UTC).timestamp()
        start = since if since is not None else end - timedelta(days=days or _DEFAULT_DAYS).total_seconds()
        start = max(0.0, start)
        # An empty period looks like a store without records.
        if not start < end:
            raise click.UsageError("the period ends before it begins")
        return cls(start, end)


def period_options(command: F) -> F:
    """Adds `--since`, `--until` and `--days` to a command."""
    for option in (
        click.option("--until", type=Moment(), help="End of the period; now by default."),
        click.option(
            "--since", type=Moment(), help="Begin of the period: 2026-01-31T12:00 (UTC) or an age such as 24h."
        ),
        click.option(
            "--days",
            type=Amount(0, _MAX_DAYS, min_open=True),
            help="Length of the period in days; 7 by default.",
        ),
    ):
        command = option(command)
    return command


def effective_settings() -> Settings:
    """The settings as a start would read them; their faults end the command with 78."""
    try:
        return load(os.environ)
    except ConfigError as error:
        raise FaultySettings(tuple(error.faults)) from error


def on_store(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do it with the store of these settings open; whatever that cannot do ends the command with 5."""
    return asyncio.run(_with_store(settings, work))


async def _with_store(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    from gateway.state.opening import open_store  # here: the store's libraries are slow to import

    _check_is_there(settings.store_url)
    timeout_ms = max(settings.store_timeout_ms, _PATIENCE_MS)
    store = open_store(settings.store_url, prefix=settings.store_prefix, timeout_ms=timeout_ms)
    try:
        try:
            await store.open()
            return await work(store)
        finally:
            await store.close()  # one that could not be opened has a connection that ends, too
    except StoreError as error:
        raise StoreUnreachable(f"the store cannot be used: {error}") from error


def _check_is_there(url: str) -> None:
    """A command makes no store of its own: that would answer for a gateway that has another."""
    address = store_address(url)
    if address.kind == "memory":
        raise click.UsageError(
            "STORE_URL is memory://, which lives inside the gateway's own process: nothing outside can read or change "
            "it. Give the gateway and this command a sqlite:/// or redis:// address."
        )
    if address.file is not None and not address.file.is_file():
        raise StoreUnreachable(
            f"there is no store {address.file.absolute()}: has a gateway run with this STORE_URL, and in this folder?"
        )


class Progress:
    """A bar on stderr while a period is read, if that is a terminal."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._bar = (
            click.progressbar(length=1000, label="Reading records", file=sys.stderr) if sys.stderr.isatty() else None
        )
        self._done = 0

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)

    def reached(self, _count: int, at: float) -> None:
        """So many records are read, the last one of that time."""
        if self._bar is None:
            return
        done = int(1000 * (at - self._period.since) / (self._period.until - self._period.since))
        self._bar.update(max(0, done - self._done))
        self._done = max(self._done, done)


@contextmanager
def output(path: str, *, is_private: bool = False) -> Iterator[BinaryIO]:
    """Where a document goes: stdout for `-`, else a file that is there whole or not at all.

    A private one can be read by its owner alone. What is there and is no file, such as a pipe or a device, is written
    to and stays what it is.
    """
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # `/dev/stdout` and named pipes: to put a file in their place would break who reads there.
    is_special = os.path.exists(path) and not os.path.isfile(path)
    # A public file is left to the umask, as from any other program.
    mode = 0o600 if is_private else 0o666
    try:
        # A link stays one: what it leads to is replaced, not the link.
        with open(path, "wb") if is_special else _replacing(Path(os.path.realpath(path)), mode) as file:
            yield file
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _replacing(target: Path, mode: int) -> Iterator[BinaryIO]:
    # In the same folder: a file can be put in another's place only within one disk.
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        # With its mode from the beginning: a private one must not be readable even for a moment.
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
        part.replace(target)
    finally:
        # Behind a failure no half of a file stays; behind the replacing there is none any more.
        with suppress(OSError):
            part.unlink()
