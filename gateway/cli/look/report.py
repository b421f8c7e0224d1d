"""`toolgate report`: what a period of records says, and `toolgate report label`: what people say of single calls."""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import attrs
import click
import msgspec
from attrs import frozen

from gateway.cli.options import colour_option, json_option
from gateway.cli.store import Period, Progress, effective_settings, on_store, output, period_options
from gateway.config.load import Settings
from gateway.core.ports import Store
from gateway.core.records import RequestRecord
from gateway.core.version import __version__
from gateway.process.exits import EXIT_FINDINGS, EXIT_NOT_ENOUGH
from gateway.report.facts.tree import Example, Figures, ReportRules
from gateway.report.figures import gather
from gateway.report.readiness import GATES, NOT_ENOUGH, NOT_READY
from gateway.report.words import moment, visible
from gateway.rereading.labelling import keep_label
from gateway.rollout.codec import STATE_KEY, state_of
from gateway.rollout.stages import RolloutState

__all__ = ["exit_code", "report", "rules_of"]

_NOT_READY = "not-ready"
_FAIL_ON = (_NOT_READY, *(gate.replace("_", "-") for gate in GATES))


@click.group(invoke_without_command=True, short_help="Say what the records show: is the next step safe?")
@period_options
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--html", "html_file", type=click.Path(dir_okay=False, allow_dash=True), help="Write one HTML file.")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(_FAIL_ON),
    help="Exit with 3 if the verdict is not ready, or if this gate is not met; may be given more than once.",
)
@colour_option
@click.pass_context
def report(
    context: click.Context,
    since: float | None,
    until: float | None,
    days: float | None,
    as_json: bool,
    as_markdown: bool,
    html_file: str | None,
    fail_on: tuple[str, ...],
) -> None:
    """Say what the records of a period show: is the next step of the rollout safe, and what could go wrong?

    Exits with 3 if a gate of --fail-on is not met, 4 if there is not enough data, 5 if the store cannot be read.

    \b
    Examples:
      toolgate report
      toolgate report --days 1 --json
      toolgate report --since 2026-01-31 --html week.html
      toolgate report --fail-on not-ready --fail-on noise --markdown
      toolgate report label --sample 50
    """
    if context.invoked_subcommand is not None:
        return
    if as_json + as_markdown + (html_file == "-") > 1:
        raise click.UsageError("only one document goes to stdout: --json, --markdown or --html -")
    figures = _figures(effective_settings(), Period.of(since, until, days))
    if html_file is not None:
        from gateway.report.shown.html import render as render_html

        with output(html_file, is_private=True) as file:
            file.write(render_html(figures).encode())
        if html_file != "-":
            click.echo(f"Wrote {html_file}.", err=True)
    if as_json:
        click.echo(document(figures))
    elif as_markdown:
        from gateway.report.shown.markdown import render as render_markdown

        click.echo(render_markdown(figures), nl=False)
    elif html_file is None:
        from gateway.cli.look.terminal import show

        if sys.stderr.isatty():
            click.echo("Each answer, before and after, in a browser: toolgate inspect", err=True)
        show(figures, colour=context.color)
    context.exit(exit_code(figures, fail_on))


@report.command(short_help="Say whether a candidate was read rightly.")
@click.argument("candidate", required=False)
@click.argument("verdict", required=False, type=click.Choice(["right", "wrong"]))
@click.option("--sample", type=click.IntRange(1, 50), help="Ask for this many calls of the report's random sample.")
@click.option("--note", default="", help="Why.")
@click.option("--by", default="", help="Who says so.")
@click.option("--dry-run", is_flag=True, help="Only say what would be kept.")
@period_options
def label(
    candidate: str | None,
    verdict: str | None,
    sample: int | None,
    note: str,
    by: str,
    dry_run: bool,
    since: float | None,
    until: float | None,
    days: float | None,
) -> None:
    """Say whether a candidate was read rightly: a call that was meant as one, or a text that was none.

    CANDIDATE is a request's id, with a colon and the candidate's number unless it is the first. The last label of a
    candidate counts. With --sample the calls to look at are shown one after the other, on a terminal.

    \b
    Examples:
      toolgate report label 6f1c0a52:0 wrong --note "an example in a manual"
      toolgate report label 6f1c0a52 right --by anna
      toolgate report label --sample 50
    """
    settings = effective_settings()
    if sample is not None:
        if candidate is not None:
            raise click.UsageError("--sample takes no candidate")
        _label_sample(settings, Period.of(since, until, days), sample, by=by, dry_run=dry_run)
        return
    if candidate is None or verdict is None:
        raise click.UsageError("name a candidate and say right or wrong, or use --sample")
    if since is not None or until is not None or days is not None:
        raise click.UsageError("a period goes with --sample only")
    said = _Said(is_right=verdict == "right", by=by, note=note, dry_run=dry_run)
    on_store(settings, lambda store: _label_one(store, candidate, said))


def rules_of(settings: Settings, shared: RolloutState | None = None) -> ReportRules:
    """What figures are held against: the settings, and where the rollout that the gateways share stands by now."""
    mode, percent = (settings.transform_mode, settings.canary_percent) if shared is None else _standing(shared)
    return ReportRules(
        mode=mode,
        percent=percent / 100,
        steps=tuple(step / 100 for step in settings.canary_steps),
        min_requests=settings.canary_step_min_requests,
        min_conversations=settings.canary_step_min_keys,
        budget_ms=settings.transform_budget_ms,
        min_confidence=settings.min_confidence / 100,
        risk_ratio=settings.rollback_risk_ratio,
        evidence=settings.rollback_evidence,
        ignore=settings.dry_run_ignore,
        slices_off=() if shared is None else shared.slices_off,
        standing="" if shared is None else f"since {moment(shared.at)} by {shared.by}: {visible(shared.reason)}",
    )


def _standing(shared: RolloutState) -> tuple[str, int]:
    return ("off" if shared.killed else shared.state), shared.percent


def document(figures: Figures) -> str:
    """The figures as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(_sayable(attrs.asdict(figures)))).decode()


def exit_code(figures: Figures, fail_on: Iterable[str] = ()) -> int:
    """0, or what the verdict and `--fail-on` make of it."""
    wanted = {name.replace("-", "_") for name in fail_on}
    verdict = figures.readiness.verdict
    unmet = {gate.name for gate in figures.readiness.gates if not gate.met}
    if wanted & unmet or ("not_ready" in wanted and verdict == NOT_READY):
        return EXIT_FINDINGS
    return EXIT_NOT_ENOUGH if verdict == NOT_ENOUGH else 0


def _sayable(value: Any) -> Any:
    """The tree without halves of surrogate pairs, which a model's JSON may hold and no encoder takes."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_sayable(key): _sayable(item) for key, item in value.items()}
        case list() | tuple():
            return [_sayable(item) for item in value]
        case _:
            return value


def _now() -> float:
    return datetime.now(UTC).timestamp()


def _figures(settings: Settings, period: Period) -> Figures:
    async def work(store: Store) -> Figures:
        shared = state_of((await store.get(STATE_KEY)).get(STATE_KEY))
        return await gather(
            store,
            rules=rules_of(settings, shared),
            since=period.since,
            until=period.until,
            made_at=_now(),
            version=__version__,
            on_progress=progress.reached,
        )

    with Progress(period) as progress:
        return on_store(settings, work)


@frozen(kw_only=True)
class _Said:
    """What somebody says of a candidate."""

    is_right: bool
    by: str = ""
    note: str = ""
    dry_run: bool = False

    async def keep(self, store: Store, request_id: str, number: int) -> None:
        if not self.dry_run:
            await keep_label(
                store,
                at=_now(),
                request_id=request_id,
                number=number,
                is_right=self.is_right,
                by=self.by,
                note=self.note,
            )
        verb = "Would keep" if self.dry_run else "Kept"
        verdict = "right" if self.is_right else "wrong"
        click.echo(visible(f"{verb}: {request_id}:{number} is {verdict}."), err=True)


async def _label_one(store: Store, candidate: str, said: _Said) -> None:
    request_id, number = await _found(store, candidate)
    await said.keep(store, request_id, number)


async def _found(store: Store, candidate: str) -> tuple[str, int]:
    """The request and number that are meant; an id may hold colons itself."""
    head, colon, tail = candidate.rpartition(":")
    meant = {candidate: 0}
    # Of very many digits Python makes no number.
    if colon and tail.isascii() and tail.isdecimal() and len(tail) < 9:
        meant[head] = int(tail)
    async for request in store.scan(RequestRecord):
        number = meant.get(request.id)
        if number is None:
            continue
        if any(call.number == number for call in request.calls):
            return request.id, number
        raise click.ClickException(f"request {request.id} has no candidate {number}")
    raise click.ClickException(f"there is no request {candidate}")


def _label_sample(settings: Settings, period: Period, count: int, *, by: str, dry_run: bool) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("--sample asks questions and needs a terminal; label single candidates without one")
    figures = _figures(settings, period)
    waiting = [item for item in figures.review.sample if item.label is None][:count]
    if not waiting:
        click.echo("Every call of the sample has its label.", err=True)
        return

    async def work(store: Store) -> None:
        for number, item in enumerate(waiting, 1):
            _show(item, f"{number} of {len(waiting)}")
            answer = click.prompt("right, wrong, skip or quit", type=click.Choice(list("rwsq")), show_choices=True)
            if answer == "q":
                return
            if answer != "s":
                request_id, _, place = item.id.rpartition(":")
                await _Said(is_right=answer == "r", by=by, dry_run=dry_run).keep(store, request_id, int(place))

    on_store(settings, work)


def _show(item: Example, place: str) -> None:
    click.echo()
    click.secho(f"{place}: {visible(item.tool)} as {visible(item.dialect)}, score {item.score:.2f}", bold=True)
    click.echo(visible(f"{item.id}, {item.model}; {'; '.join(item.reasons)}"))
    if item.signs:
        click.secho(visible(f"signs against it: {', '.join(item.signs)}"), fg="yellow")
    for title, text in (("as written", item.before), ("as read", item.after)):
        click.secho(title, fg="blue")
        click.echo(visible(text) if text else "(its text was not kept)")
