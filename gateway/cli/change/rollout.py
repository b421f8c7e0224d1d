"""`toolgate rollout`: see where the rollout stands, and change it, through the store that the gateways share."""

import getpass
import json
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import click
from attrs import evolve, frozen

from gateway.cli.options import json_option
from gateway.cli.store import effective_settings, on_store
from gateway.config.load import Settings
from gateway.core.ports import Store, StoreError
from gateway.core.records import DecisionRecord
from gateway.process.exits import EXIT_FAILED, EXIT_FINDINGS, EXIT_USAGE
from gateway.report.words import moment, visible
from gateway.rollout.codec import EVIDENCE_KEY, STATE_KEY, encoded, evidence_of, state_of
from gateway.rollout.evidence import Evidence
from gateway.rollout.gates import Gate, gates, numbers
from gateway.rollout.snapshot import snapshot
from gateway.rollout.stages import (
    Change,
    Cooling,
    Refused,
    RolloutRules,
    RolloutState,
    begun,
    killed,
    paused,
    promoted,
    resumed,
    rolled_back,
    unkilled,
)

__all__ = ["rollout"]

_SCHEMA_VERSION = 1
_ATTEMPTS = 50
_OPERATOR = "operator"


@frozen(kw_only=True)
class _Shared:
    """What the store holds of the rollout; `raw` is what a change has to replace."""

    raw: bytes | None
    state: RolloutState
    rules: RolloutRules
    """Those that the gateways run under; one's own where none has begun."""
    evidence: Evidence
    is_known: bool
    """A gateway, or an operator, has written it."""


Decide = Callable[[_Shared, float], Change]


@click.group()
def rollout() -> None:
    """See and change who gets transformed answers.

    All commands work on the store that STORE_URL names, which every gateway reads several times a second. Those that
    change something ask first; without a terminal they need --yes.

    \b
    Examples:
      toolgate rollout status --json
      toolgate rollout promote --yes
      toolgate rollout rollback --reason "wrong paths in edits" --yes
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
    return visible(reason)


def _changing(default_reason: str) -> Callable[[Callable[..., Decide]], Callable[..., None]]:
    """Makes a command of a function that says how to decide; without a default, `--reason` has to be given."""
    known: dict[str, Any] = {"default": default_reason, "show_default": True} if default_reason else {"required": True}
    reason = click.option("--reason", callback=_said, help="Why; kept in the record of the decision.", **known)

    def command_of(decision: Callable[..., Decide]) -> Callable[..., None]:
        @wraps(decision)
        def command(*, yes: bool, dry_run: bool, as_json: bool, **given: Any) -> None:
            _change(decision(by=_who(), **given), yes=yes, dry_run=dry_run, as_json=as_json)

        return reason(_yes(_dry(json_option(command))))

    return command_of


@rollout.command(short_help="Print where the rollout stands, and what the next step needs.")
@json_option
def status(as_json: bool) -> None:
    """Print where the rollout stands, the judge's evidence, and the gates before the next step.

    \b
    Examples:
      toolgate rollout status
      toolgate rollout status --json | jq .state
    """
    settings = effective_settings()
    shared = _stored(settings)
    if shared.is_known and shared.state.digest != settings.rollout_rules().digest():
        click.echo("note: the rollout settings given here are not those in force", err=True)
    _show(_document(shared, settings), as_json=as_json)


@rollout.command(short_help="Freeze the share; nothing is promoted until `resume`.")
@_changing("paused by hand")
def pause(by: str, reason: str) -> Decide:
    """Freeze the share; nothing is promoted until `resume`. The judge goes on.

    \b
    Example:
      toolgate rollout pause --reason "upstream maintenance" --yes
    """
    return lambda shared, now: paused(shared.state, now=now, by=by, reason=reason)


@rollout.command(short_help="End a pause or a rollback, or switch slices on again.")
@_changing("")
def resume(by: str, reason: str) -> Decide:
    """End a pause or, once it has cooled down, a rollback; or switch slices on again.

    A rolled back rollout begins again with a dry run or the first step of the canary.

    \b
    Example:
      toolgate rollout resume --reason "fixed in 1.4.2" --yes
    """
    return lambda shared, now: resumed(shared.state, shared.rules, now=now, by=by, reason=reason)


@rollout.command(short_help="Go on to the next step, and after the last one to full.")
@click.option("--force", is_flag=True, help="Go on though gates are not met.")
@_changing("promoted by hand")
def promote(by: str, reason: str, force: bool) -> Decide:
    """Go on to the next step of CANARY_STEPS, and after the last one to full.

    Names the gates that are not met and exits with 3, unless --force is given.

    \b
    Examples:
      toolgate rollout promote --dry-run
      toolgate rollout promote --yes
      toolgate rollout promote --force --reason "tested elsewhere" --yes
    """

    def decide(shared: _Shared, now: float) -> Change:
        found = gates(shared.state, shared.rules, shared.evidence, now)
        change = promoted(shared.state, shared.rules, now=now, by=by, reason=reason, numbers=numbers(found))
        unmet = [gate for gate in found if not gate.is_met]
        if unmet and not force:
            raise _GatesUnmet(unmet)
        return change

    return decide


@rollout.command(short_help="Let nobody be live any more, until `resume`.")
@_changing("rolled back by hand")
def rollback(by: str, reason: str) -> Decide:
    """Let nobody be live any more; what holds then is ROLLBACK_MODE, until `resume`.

    \b
    Example:
      toolgate rollout rollback --reason "wrong paths in edits" --yes
    """
    return lambda shared, now: rolled_back(shared.state, shared.rules, now=now, by=by, reason=reason, numbers={})


@rollout.command(short_help="Relay everything untouched, from within a second on.")
@_changing("killed by hand")
def kill(by: str, reason: str) -> Decide:
    """Relay everything untouched, from within a second on, in every gateway of the store.

    \b
    Example:
      toolgate rollout kill --yes
    """
    return lambda shared, now: killed(shared.state, now=now, by=by, reason=reason)


@rollout.command()
@_changing("switch turned off by hand")
def unkill(by: str, reason: str) -> Decide:
    """Turn the kill switch off again: what held before holds again.

    \b
    Example:
      toolgate rollout unkill --reason "false alarm" --yes
    """
    return lambda shared, now: unkilled(shared.state, now=now, by=by, reason=reason)


class _GatesUnmet(Exception):
    def __init__(self, unmet: list[Gate]) -> None:
        self.unmet = unmet


def _change(decide: Decide, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Decide on what the store holds, ask, and swap; others may change it meanwhile, so decide anew each time."""
    settings = effective_settings()
    shared = _stored(settings)
    change = _decided(decide, shared)
    if dry_run:
        click.echo(f"would change: {_in_words(shared.state, change.state)}", err=True)
        _show(_document(_after(shared, change), settings), as_json=as_json)
        return
    _ask(shared.state, change.state, yes=yes)
    changed = on_store(settings, lambda store: _swapped(store, settings, decide))
    click.echo(f"changed: {_in_words(shared.state, changed.state)}", err=True)
    _show(_document(changed, settings), as_json=as_json)


def _stored(settings: Settings) -> _Shared:
    """What the store holds; of one that nobody uses it is said, as killing that one would kill nothing."""
    shared = on_store(settings, lambda store: _read(store, settings))
    if not shared.is_known:
        click.echo("note: no gateway has used this store yet; this is what one would begin with", err=True)
    return shared


def _decided(decide: Decide, shared: _Shared) -> Change:
    try:
        return decide(shared, time.time())
    except _GatesUnmet as error:
        for gate in error.unmet:
            click.echo(f"gate not met: {gate.name} is {gate.have:g}, needed {gate.need:g}", err=True)
        _leave("not promoted; --force goes on all the same", EXIT_FINDINGS)
    except Cooling as error:
        _leave(str(error), EXIT_FINDINGS)
    except Refused as error:
        _leave(str(error), EXIT_FAILED)


def _ask(before: RolloutState, after: RolloutState, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        _leave("there is no terminal to ask on: add --yes", EXIT_USAGE)
    if not click.confirm(f"{_in_words(before, after)}. Go on?", err=True):
        _leave("nothing was changed", EXIT_FAILED)


async def _swapped(store: Store, settings: Settings, decide: Decide) -> _Shared:
    for _ in range(_ATTEMPTS):
        shared = await _read(store, settings)
        change = _decided(decide, shared)
        if await store.swap(STATE_KEY, shared.raw, encoded(change.state)):
            await _write_down(store, change.decision)
            return _after(shared, change)
    _leave("others keep changing the rollout; try again", EXIT_FAILED)


async def _write_down(store: Store, decision: DecisionRecord) -> None:
    try:
        await store.append([decision])
    except StoreError as error:
        click.echo(f"warning: it is in force, but could not be recorded: {error}", err=True)


async def _read(store: Store, settings: Settings) -> _Shared:
    values = await store.get(STATE_KEY, EVIDENCE_KEY)
    raw = values.get(STATE_KEY)
    found = state_of(raw)
    state = found or begun(settings.rollout_rules(), time.time(), _OPERATOR)
    return _Shared(
        raw=raw,
        state=state,
        rules=state.rules or settings.rollout_rules(),
        evidence=evidence_of(values.get(EVIDENCE_KEY)) or Evidence(epoch=state.epoch),
        is_known=found is not None,
    )


def _after(shared: _Shared, change: Change) -> _Shared:
    return evolve(shared, raw=None, state=change.state, is_known=True)


def _leave(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    raise click.exceptions.Exit(code)


def _who() -> str:
    try:
        return visible(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return _OPERATOR


def _in_words(before: RolloutState, after: RolloutState) -> str:
    return f"{_stage(before)} -> {_stage(after)}"


def _stage(state: RolloutState) -> str:
    share = f" at {state.percent / 100:g} %" if state.state in ("canary", "full", "paused") else ""
    switch = " (killed)" if state.killed else ""
    return f"{state.state}{share}{switch}"


def _document(shared: _Shared, settings: Settings) -> dict[str, Any]:
    state, rules, evidence = shared.state, shared.rules, shared.evidence
    now = snapshot(state, rules, evidence, killed_here=_switch(settings))
    is_next = state.state in ("dry_run", "canary")
    return {
        "schema_version": _SCHEMA_VERSION,
        "state": now.state,
        "percent": now.percent_effective / 100,
        "percent_target": now.percent_target / 100,
        "step": now.step,
        "epoch": now.epoch,
        "statistic": now.statistics["arms"],
        "statistics": dict(now.statistics),
        "limit": now.limit,
        "since": moment(now.since),
        "reason": now.reason,
        "by": now.by,
        "killed": now.killed,
        "slices_off": list(now.slices_off),
        "slices": dict(now.slices),
        "counts": dict(now.counts),
        "held": list(now.held),
        "cooldown_until": moment(now.cooldown_until) if now.cooldown_until else None,
        "gates": [
            {"name": gate.name, "met": gate.is_met, "have": gate.have, "need": gate.need}
            for gate in (gates(state, rules, evidence, time.time()) if is_next else ())
        ],
    }


def _switch(settings: Settings) -> str:
    """The switch that gateways under these settings see."""
    if settings.kill_switch:
        return "kill_setting"
    path = settings.kill_switch_file
    return "kill_file" if path is not None and os.path.exists(path) else ""


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
    if document["cooldown_until"]:
        rows["cooldown"] = f"until {document['cooldown_until']}"
    for gate in document["gates"]:
        met = "met" if gate["met"] else "not met"
        rows[f"gate {gate['name']}"] = f"{gate['have']:g}, needed {gate['need']:g}: {met}"
    width = max(map(len, rows))
    for name, value in rows.items():
        click.echo(f"{name:<{width}}  {value}")
