"""`toolgate reload`: have a running gateway read its settings anew, and say what became of it."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click
from attrs import evolve, frozen

from gateway.cli.options import Amount, json_option
from gateway.cli.store import on_store
from gateway.config.load import inspect
from gateway.process.exits import EXIT_FAILED, EXIT_SETTINGS, EXIT_UNREACHABLE, EXIT_USAGE
from gateway.process.status import Status, read_status
from gateway.report.words import moment
from gateway.rollout.operating import read

__all__ = ["Outcome", "reload"]

_SCHEMA_VERSION = 1
_LOOK_S = 0.05
_TICK_S = 1.0
"""Within this time every worker has looked at the rollout's state, and put new settings into force."""
_OURS = (b"gateway", b"toolgate")


@frozen(kw_only=True)
class Outcome:
    """What became of the request."""

    code: int
    message: str
    faults: tuple[str, ...] = ()
    pid: int | None = None


@click.command(short_help="Have the running gateway read its settings anew.")
@click.option("--restart", is_flag=True, help="Replace the worker processes, one after the other, without a cut.")
@click.option(
    "--pid-file",
    envvar="GATEWAY_PID_FILE",
    type=click.Path(dir_okay=False),
    help="File that the gateway wrote its process id to; by default what GATEWAY_PID_FILE says.",
)
@click.option(
    "--timeout", "timeout_s", type=Amount(0), default=120.0, show_default=True, help="Seconds to wait for the outcome."
)
@click.option("--dry-run", is_flag=True, help="Find the gateway, and ask it for nothing.")
@json_option
@click.pass_context
def reload(
    context: click.Context, restart: bool, pid_file: str | None, timeout_s: float, dry_run: bool, as_json: bool
) -> None:
    """Have the running gateway read GATEWAY_ENV_FILE, GATEWAY_CONFIG and key files anew.

    Settings with a fault change nothing: the faults are printed, and the exit code is 78. With --restart new worker
    processes come up with the new settings before the old ones drain, which needs GATEWAY_WORKERS of 2 or more. Exits
    with 5 if no gateway is found.

    \b
    Examples:
      toolgate reload
      toolgate reload --restart
      toolgate reload --pid-file /run/toolgate/pid --json
    """
    pid_file = pid_file or inspect(os.environ)[0].pid_file  # it may be named in GATEWAY_ENV_FILE
    if pid_file is None:
        raise click.UsageError("which gateway? Set GATEWAY_PID_FILE for it and for this command, or give --pid-file.")
    outcome = ask(pid_file, restart=restart, timeout_s=timeout_s, dry_run=dry_run)
    if outcome.code == 0 and not dry_run and (note := _rollout_note()):
        outcome = evolve(outcome, message=f"{outcome.message}; {note}")
    if as_json:
        document = {
            "schema_version": _SCHEMA_VERSION,
            "ok": outcome.code == 0,
            "message": outcome.message,
            "pid": outcome.pid,
            "faults": outcome.faults,
        }
        click.echo(json.dumps(document, indent=2))
    else:
        for fault in outcome.faults:
            click.echo(f"fault: {fault}", err=True)
        click.echo(outcome.message, err=outcome.code != 0)
    context.exit(outcome.code)


def _rollout_note() -> str:
    """What keeps the settings from saying alone who is live, as far as the store of these settings can be read."""
    settings = inspect(os.environ)[0]
    time.sleep(_TICK_S)
    try:
        stored = on_store(settings, lambda store: read(store, settings.rollout_rules(), time.time()))
    except click.ClickException:  # the gateway may have another store than this command was told of
        return ""
    state = stored.state
    if not stored.is_known:
        return ""
    if state.killed:
        return "the kill switch is on, so everything is relayed untouched until `toolgate rollout unkill`"
    if state.state == "rolled_back":
        left = f" until {moment(state.cooldown_until)} (cool-down)" if time.time() < state.cooldown_until else ""
        return f"the rollout stays rolled back{left}, then `toolgate rollout resume`"
    if state.state == "paused":
        return f"the rollout stays paused ({state.reason}) until `toolgate rollout resume`"
    if state.slices_off:
        return f"{', '.join(state.slices_off)} stays off until `toolgate rollout slice ... on`"
    return ""


def ask(pid_file: str, *, restart: bool, timeout_s: float, dry_run: bool = False) -> Outcome:
    """Signal the gateway, and wait until its pid file says how it went."""
    try:
        before = read_status(pid_file)
    except OSError as error:
        return Outcome(code=EXIT_UNREACHABLE, message=f"no gateway: cannot read {pid_file}: {error.strerror}")
    except ValueError as error:
        return Outcome(code=EXIT_UNREACHABLE, message=f"no gateway: {error}")
    if not _is_ours(before.pid):
        return Outcome(
            code=EXIT_UNREACHABLE,
            message=f"no gateway: process {before.pid} of {pid_file} is none, or none any more",
            pid=before.pid,
        )
    if restart and before.workers == 1:
        return Outcome(
            code=EXIT_USAGE,
            message="a lone process has nobody to hand over to: set GATEWAY_WORKERS to 2 or more, "
            "or restart the service",
            pid=before.pid,
        )
    what = "restart" if restart else "reload"
    if dry_run:
        return Outcome(code=0, message=f"process {before.pid} would {what}", pid=before.pid)
    try:
        os.kill(before.pid, signal.SIGUSR2 if restart else signal.SIGHUP)
    except OSError as error:
        message = f"process {before.pid} cannot be signalled: {error.strerror}"
        return Outcome(code=EXIT_UNREACHABLE, message=message, pid=before.pid)
    return _outcome(pid_file, before, restart=restart, timeout_s=timeout_s)


def _outcome(pid_file: str, before: Status, *, restart: bool, timeout_s: float) -> Outcome:
    count: Callable[[Status], int] = (lambda status: status.restarts) if restart else (lambda status: status.reloads)
    due = time.monotonic() + timeout_s
    while time.monotonic() < due:
        try:
            status = read_status(pid_file)
        except (OSError, ValueError):
            return Outcome(code=EXIT_UNREACHABLE, message="the gateway has ended", pid=before.pid)
        if status.pid == before.pid and count(status) > count(before):
            return _told(status, restart=restart)
        time.sleep(_LOOK_S)
    message = f"process {before.pid} has said nothing for {timeout_s:g} s: see its log"
    return Outcome(code=EXIT_FAILED, message=message, pid=before.pid)


def _told(status: Status, *, restart: bool) -> Outcome:
    if status.faults:
        message = f"nothing was {'restarted' if restart else 'reloaded'}: the old settings stay in force"
        return Outcome(code=EXIT_SETTINGS, message=message, faults=status.faults, pid=status.pid)
    message = f"all {status.workers} workers were replaced" if restart else "the new settings are in force"
    return Outcome(code=0, message=message, pid=status.pid)


def _is_ours(pid: int) -> bool:
    """A pid that was given to another program meanwhile must not be signalled: SIGHUP ends most of them."""
    proc = Path("/proc")
    # Only Linux has it; elsewhere the file is believed.
    if not proc.is_dir():
        return True
    try:
        command = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return any(name in command for name in _OURS)
