"""`toolgate rollout`: see where the rollout stands, and change it, through the store that the gateways share."""

import getpass
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn

import click

from gateway.cli.options import json_option
from gateway.cli.store import effective_settings, on_store
from gateway.config.load import Settings
from gateway.process.exits import EXIT_FAILED, EXIT_FINDINGS, EXIT_USAGE
from gateway.report.rollout_document import decision_document, rollout_document
from gateway.report.words import visible
from gateway.rollout.gates import Gate
from gateway.rollout.operating import (
    OPERATOR,
    VERBS,
    Busy,
    Decide,
    Done,
    GatesUnmet,
    Stored,
    change,
    decided,
    last_of_slices,
    newest_decisions,
    read,
)
from gateway.rollout.stages import Cooling, Refused, RolloutState

__all__ = ["rollout"]

_SCHEMA_VERSION = 1
_WATCH_S = 2.0
_HISTORY = 20


@click.group()
def rollout() -> None:
    """See and change who gets transformed answers.

    All commands work on the store that STORE_URL names, which every gateway reads more than once a second. Those that
    change something ask first; without a terminal they need --yes.

    \b
    Examples:
      toolgate rollout status --watch
      toolgate rollout history
      toolgate rollout promote --yes
      toolgate rollout rollback --reason "wrong paths in edits" --yes
      toolgate rollout slice recovery/hermes off --reason "half of its edits fail" --yes
      toolgate rollout resume --reason "fixed in 1.4.2" --yes
      toolgate rollout kill --yes

    Exit codes: 0 done, 1 not possible in this state, 2 wrong use, 3 a gate is not met, 5 the store cannot be reached,
    78 a fault in the settings.
    """


_dry = click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def _said(_: click.Context, __: click.Parameter, reason: str) -> str:
    """A reason that can be kept and shown anywhere."""
    if not reason.strip():
        raise click.BadParameter("say something")
    # It is shown on pages and in terminals later, where it must not move a cursor or hide a line.
    return visible(reason)


def _changing(default_reason: str) -> Callable[[Callable[..., Mapping[str, Any]]], Callable[..., None]]:
    """Makes a command of a verb of its name; the function says what was given besides. Without a default, `--reason`
    has to be given."""
    known: dict[str, Any] = {"default": default_reason, "show_default": True} if default_reason else {"required": True}
    reason = click.option("--reason", callback=_said, help="Why; kept in the record of the decision.", **known)

    def command_of(more: Callable[..., Mapping[str, Any]]) -> Callable[..., None]:
        @wraps(more)
        def command(*, yes: bool, dry_run: bool, as_json: bool, reason: str, **given: Any) -> None:
            verb = VERBS[more.__name__.removesuffix("_")]
            _change(verb(_who(), reason, more(**given)), yes=yes, dry_run=dry_run, as_json=as_json)

        return reason(_yes(_dry(json_option(command))))

    return command_of


@rollout.command(short_help="Print where the rollout stands, and what the next step needs.")
@click.option("--watch", is_flag=True, help="Print it again whenever it changes, until Ctrl-C.")
@json_option
def status(as_json: bool, watch: bool) -> None:
    """Print where the rollout stands, the judge's evidence, and the gates before the next step.

    \b
    Examples:
      toolgate rollout status
      toolgate rollout status --watch
      toolgate rollout status --json | jq .state
    """
    settings = effective_settings()
    stored = _stored(settings)
    # Run from another machine, or with another file: what is shown is the store's, the gates are judged by these.
    if stored.is_known and stored.state.digest != settings.rollout_rules().digest():
        click.echo("note: the rollout settings given here are not those in force", err=True)
    shown = _documented(stored, settings)
    _show(shown, as_json=as_json)
    while watch:
        time.sleep(_WATCH_S)
        now = _documented(_read(settings), settings)
        # Only a change is printed, so that a log of it holds the rollout's history and nothing else.
        if now != shown:
            shown = now
            _begin_anew()
            _show(shown, as_json=as_json)


@rollout.command(short_help="Print the last decisions: what, when, who, why, by which numbers.")
@click.option("--last", "most", type=click.IntRange(1, 1000), default=_HISTORY, show_default=True, help="How many.")
@json_option
def history(most: int, as_json: bool) -> None:
    """Print the last decisions over the rollout, the newest first: what, when, by whom, why, and by which numbers.

    \b
    Examples:
      toolgate rollout history
      toolgate rollout history --last 100 --json
    """
    found = on_store(effective_settings(), lambda store: newest_decisions(store, most=most))
    decisions = [decision_document(record) for record in found]
    if as_json:
        click.echo(json.dumps({"schema_version": _SCHEMA_VERSION, "decisions": decisions}, indent=2))
        return
    if not decisions:
        click.echo("no decision has been recorded")
    for each in decisions:
        where = "" if each["slice"] == "all" else f" {each['slice']}"
        # A slice changes no state of the rollout: an arrow from it to itself would say nothing.
        moved = "" if each["before"] == each["after"] else f", {each['before']} -> {each['after']}"
        click.echo(f"{each['at']}  {each['decision']}{where}{moved}  by {each['by']}: {each['reason']}")
        for line in _evidence_lines(each):
            click.echo(f"    {line}")


@rollout.command(short_help="Freeze the share; nothing is promoted until `resume`.")
@_changing("paused by hand")
def pause() -> Mapping[str, Any]:
    """Freeze the share; nothing is promoted until `resume`. The judge goes on.

    \b
    Example:
      toolgate rollout pause --reason "upstream maintenance" --yes
    """
    return {}


@rollout.command(short_help="End a pause or a rollback, or switch slices on again.")
@_changing("")
def resume() -> Mapping[str, Any]:
    """End a pause or, once it has cooled down, a rollback; or switch slices on again.

    A rolled back rollout begins again with a dry run or the first step of the canary.

    \b
    Example:
      toolgate rollout resume --reason "fixed in 1.4.2" --yes
    """
    return {}


@rollout.command(short_help="Go on to the next step, and after the last one to full.")
@click.option("--force", is_flag=True, help="Go on though gates are not met.")
@_changing("promoted by hand")
def promote(force: bool) -> Mapping[str, Any]:
    """Go on to the next step of CANARY_STEPS, and after the last one to full.

    Names the gates that are not met and exits with 3, unless --force is given.

    \b
    Examples:
      toolgate rollout promote --dry-run
      toolgate rollout promote --yes
      toolgate rollout promote --force --reason "tested elsewhere" --yes
    """
    return {"force": force}


@rollout.command(short_help="Let nobody be live any more, until `resume`.")
@_changing("rolled back by hand")
def rollback() -> Mapping[str, Any]:
    """Let nobody be live any more; what holds then is ROLLBACK_MODE, until `resume`.

    \b
    Example:
      toolgate rollout rollback --reason "wrong paths in edits" --yes
    """
    return {}


@rollout.command(short_help="Relay everything untouched, from within a second on.")
@_changing("killed by hand")
def kill() -> Mapping[str, Any]:
    """Relay everything untouched, from within a second on, in every gateway of the store.

    \b
    Example:
      toolgate rollout kill --yes
    """
    return {}


@rollout.command()
@_changing("switch turned off by hand")
def unkill() -> Mapping[str, Any]:
    """Turn the kill switch off again: what held before holds again.

    \b
    Example:
      toolgate rollout unkill --reason "false alarm" --yes
    """
    return {}


@rollout.command(name="slice", short_help="Switch a strategy's dialect off, or on again.")
@click.argument("named", metavar="STRATEGY/DIALECT")
@click.argument("switch", type=click.Choice(["off", "on"]))
@_changing("")
def slice_(named: str, switch: str) -> Mapping[str, Any]:
    """Switch a strategy's dialect off, or on again: its calls stay text, all else goes on.

    \b
    Examples:
      toolgate rollout slice recovery/hermes off --reason "half of its edits fail" --yes
      toolgate rollout slice recovery/hermes on --reason "fixed in 1.4.2" --yes
    """
    from strategies.dialects.rows import TABLE  # here: nothing else needs it, and it is slow to import

    # The strategy is not looked up: plug-ins of the gateway need not be installed where this runs.
    strategy, _, dialect = named.partition("/")
    dialects = {row.id for row in TABLE}
    if not strategy or dialect not in dialects:
        known = ", ".join(sorted(dialects))
        raise click.BadParameter(f"{named!r} is no STRATEGY/DIALECT; the dialects are {known}")
    return {"strategy": strategy, "dialect": dialect, "off": switch == "off"}


def _change(decide: Decide, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Decide on what the store holds, ask, and swap."""
    settings = effective_settings()
    stored = _stored(settings)
    # Once before it is asked, so that nobody confirms what cannot be done.
    with _refusals():
        after, _ = decided(decide, stored, time.time())
    # Behind the refusals: a dry run of what cannot be done ends as the real one would.
    if dry_run:
        click.echo(f"would change: {_in_words(stored.state, after.state)}", err=True)
        _show(_documented(after, settings), as_json=as_json)
        return
    _ask(stored.state, after.state, yes=yes)
    # Anew, on what the store holds by then: somebody else may have changed it while this one thought.
    with _refusals():
        done: Done = on_store(settings, lambda store: change(store, settings.rollout_rules(), decide, time.time))
    # No failure: gateways act by the state, and whoever kills one must not be told that he has not.
    if done.unrecorded:
        click.echo(f"warning: it is in force, but could not be recorded: {done.unrecorded}", err=True)
    click.echo(f"changed: {_in_words(stored.state, done.after.state)}", err=True)
    _show(_documented(done.after, settings), as_json=as_json)


@contextmanager
def _refusals() -> Iterator[None]:
    """What the state does not allow ends the command, with words and a code of its own."""
    try:
        yield
    except GatesUnmet as error:
        for gate in error.unmet:
            click.echo(f"gate not met: {gate.name} is {_gate_words(gate)}", err=True)
        _leave(str(error), EXIT_FINDINGS)
    except Cooling as error:
        _leave(str(error), EXIT_FINDINGS)
    except (Refused, Busy) as error:
        _leave(str(error), EXIT_FAILED)


def _stored(settings: Settings) -> Stored:
    """What the store holds; of one that nobody uses it is said, as killing that one would kill nothing."""
    stored = _read(settings)
    if not stored.is_known:
        click.echo("note: no gateway has used this store yet; this is what one would begin with", err=True)
    return stored


def _read(settings: Settings) -> Stored:
    return on_store(settings, lambda store: read(store, settings.rollout_rules(), time.time()))


def _ask(before: RolloutState, after: RolloutState, *, yes: bool) -> None:
    if yes:
        return
    # A pipe at its end would answer for the operator.
    if not sys.stdin.isatty():
        _leave("there is no terminal to ask on: add --yes", EXIT_USAGE)
    if not click.confirm(f"{_in_words(before, after)}. Go on?", err=True):
        _leave("nothing was changed", EXIT_FAILED)


def _leave(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    raise click.exceptions.Exit(code)


def _who() -> str:
    # In a container the user may have no entry, and so no name.
    try:
        return visible(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return OPERATOR


def _in_words(before: RolloutState, after: RolloutState) -> str:
    off, on = (set(one.slices_off) - set(other.slices_off) for one, other in ((after, before), (before, after)))
    moved = f"{_stage(before)} -> {_stage(after)}" if _stage(before) != _stage(after) else _stage(after)
    return ", ".join((moved, *(f"{name} off" for name in sorted(off)), *(f"{name} on" for name in sorted(on))))


def _stage(state: RolloutState) -> str:
    share = f" at {state.percent / 100:g} %" if state.state in ("canary", "full", "paused") else ""
    switch = " (killed)" if state.killed else ""
    return f"{state.state}{share}{switch}"


def _documented(stored: Stored, settings: Settings) -> dict[str, Any]:
    """Where it stands, with the decisions by which slices were switched off."""
    off = stored.state.slices_off
    why = on_store(settings, lambda store: last_of_slices(store, off)) if off else {}
    return rollout_document(stored, killed_here=_switch(settings), now=time.time(), why=why)


def _gate_words(gate: Gate) -> str:
    need = f"{'at least' if gate.bound == 'at_least' else 'at most'} {gate.need:g} needed"
    return f"{gate.have:g}, {need}" if gate.is_known else f"not known yet, as there was no request; {need}"


def _evidence_lines(decision: Mapping[str, Any]) -> Iterator[str]:
    """The numbers that a decision rests on, and requests to look at."""
    if decision["numbers"]:
        yield ", ".join(f"{name} {value:g}" for name, value in decision["numbers"].items())
    if decision["examples"]:
        yield "requests: " + " ".join(visible(id) for id in decision["examples"])


def _switch(settings: Settings) -> str:
    """The switch that gateways under these settings see."""
    if settings.kill_switch:
        return "kill_setting"
    # Looked at here, on this machine: on another one the file may say something else, so it is told as what is seen.
    path = settings.kill_switch_file
    return "kill_file" if path is not None and os.path.exists(path) else ""


def _begin_anew() -> None:
    """On a terminal the new state takes the place of the old one; elsewhere it follows."""
    if sys.stdout.isatty():
        click.clear()
    else:
        click.echo()


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    limit = document["limit"]
    rows = {
        "state": document["state"],
        "live": f"{document['percent']:g} % of conversations (target {document['percent_target']:g} %)",
        "epoch": document["epoch"],
        "since": f"{document['since']} by {document['by']}: {document['reason']}",
        "evidence": ", ".join(f"{test} {value:.2f} of {limit:.2f}" for test, value in document["statistics"].items()),
        "slices off": ", ".join(document["slices_off"]) or "none",
    }
    for each in document["switched_off"]:
        said = f"{each['at']} by {each['by']}: {each['reason']}"
        rows[f"  {each['slice']}"] = "; ".join((said, *_evidence_lines(each)))
    # The whole command, to be copied: names of slices are long.
    for name in document["slices_off"]:
        rows[f"  {name} on"] = f'toolgate rollout slice {name} on --reason "the cause is mended"'
    if document["cooldown_until"]:
        rows["cooldown"] = f"until {document['cooldown_until']}"
    if document["next_step_from"]:
        how = "by itself" if document["promotes_itself"] else "by `toolgate rollout promote`"
        rows["next step"] = f"not before {document['next_step_from']}, {how}"
    for gate in document["gates"]:
        met = "met" if gate["met"] else "not met"
        have = f"{gate['have']:g}" if gate["known"] else "no request yet"
        bound = "at least" if gate["bound"] == "at_least" else "at most"
        rows[f"gate {gate['name']}"] = f"{have}, needed {bound} {gate['need']:g}: {met}"
    width = max(map(len, rows))
    for name, value in rows.items():
        click.echo(f"{name:<{width}}  {value}")
