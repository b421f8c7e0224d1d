"""`toolgate export`: records as training pairs or as regression fixtures, one JSON document per line."""

from typing import BinaryIO

import click

from gateway.cli.store import Period, Progress, effective_settings, on_store, output, period_options
from gateway.config.load import Settings
from gateway.core.ports import Store
from gateway.core.records import LabelRecord, RequestRecord
from gateway.process.exits import EXIT_NOT_ENOUGH
from gateway.report.facts.candidates import last_labels
from gateway.rereading.rereader import Exporter, Rereader

__all__ = ["export"]


@click.command(short_help="Write recorded answers as training pairs or as fixtures.")
@click.option("--pairs", "kind", flag_value="pairs", default=True, help="Conversations with the right calls (default).")
@click.option("--fixtures", "kind", flag_value="fixtures", help="Answers with the calls that they are read as.")
@period_options
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    help="File, which you alone may read; stdout by default.",
)
@click.pass_context
def export(
    context: click.Context,
    kind: str,
    since: float | None,
    until: float | None,
    days: float | None,
    path: str,
) -> None:
    """Write a period's answers as JSON lines: training pairs, or fixtures for `toolgate replay`.

    Records hold requests and answers only with AUDIT_BODIES=full. What people labelled wrong is left out, and from the
    pairs also what has a sign against it that nobody looked at. Credentials are masked once more. Exits with 4 if
    there is nothing to write.

    \b
    Examples:
      toolgate export --pairs --days 30 -o pairs.jsonl
      toolgate export --fixtures --since 24h > fixtures.jsonl
    """
    settings, period = effective_settings(), Period.of(since, until, days)
    exporter = Exporter(Rereader.of(settings), kind)
    with output(path, is_private=True) as file:
        _write(settings, period, exporter, file)
    # The document may go to stdout, where words about it would be a line of it.
    click.echo(exporter.summary(), err=True)
    context.exit(0 if exporter.written else EXIT_NOT_ENOUGH)


def _write(settings: Settings, period: Period, exporter: Exporter, file: BinaryIO) -> None:
    async def work(store: Store) -> None:
        labels = last_labels([label async for label in store.scan(LabelRecord)])
        async for record in store.scan(RequestRecord, since=period.since, until=period.until):
            progress.reached(1, record.at)
            line = exporter.line(record, labels)
            if line is not None:
                file.write(line)

    with Progress(period) as progress:
        on_store(settings, work)
