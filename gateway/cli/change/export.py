"""`toolgate export`: records as training pairs or as regression fixtures, one JSON document per line."""

from typing import Any, BinaryIO

import click
import msgspec
from attrs import define

from gateway.cli.look.replay import Rereader
from gateway.cli.store import Period, Progress, effective_settings, on_store, output, period_options
from gateway.config.load import Settings
from gateway.core.ports import Store
from gateway.core.records import LabelRecord, RequestRecord
from gateway.process.exits import EXIT_NOT_ENOUGH
from gateway.report.cases import Case, case_of, fixture, is_confirmed, is_doubted, masked
from gateway.report.tallies import Labels, last_labels

__all__ = ["export"]

_SCHEMA_VERSION = 1
_ASKED = ("messages", "tools", "tool_choice", "parallel_tool_calls")


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
    exporter = _Exporter(Rereader.of(settings), kind)
    with output(path, is_private=True) as file:
        _write(settings, period, exporter, file)
    click.echo(exporter.summary(), err=True)
    context.exit(0 if exporter.written else EXIT_NOT_ENOUGH)


@define
class _Exporter:
    """Chooses records and makes lines of them."""

    rereader: Rereader
    kind: str
    written: int = 0
    without_bodies: int = 0
    left_out: int = 0

    def line(self, record: RequestRecord, labels: Labels) -> bytes | None:
        """One line, or nothing for a record that is left out."""
        if not record.calls:
            return None
        case = case_of(record)
        if isinstance(case, str):
            self.without_bodies += 1
            return None
        document = self._document(record, case, labels)
        if document is None:
            self.left_out += 1
            return None
        self.written += 1
        return msgspec.json.encode(document) + b"\n"

    def _document(self, record: RequestRecord, case: Case, labels: Labels) -> dict[str, Any] | None:
        if is_doubted(record, labels):
            return None
        if self.kind == "fixtures":
            return fixture(case, self.rereader.mask)
        if not case.expected or not record.healthy or record.end != "completed" or not is_confirmed(record, labels):
            return None
        return self._pair(record, case)

    def _pair(self, record: RequestRecord, case: Case) -> dict[str, Any]:
        calls = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for number, call in enumerate(case.expected or ())
        ]
        answer = {"role": "assistant", "content": self._content(case), "tool_calls": calls}
        asked = {name: case.request[name] for name in _ASKED if name in case.request}
        pair: dict[str, Any] = masked(
            {
                "schema_version": _SCHEMA_VERSION,
                "id": record.id,
                "model": record.model,
                **asked,
                "messages": [*asked.get("messages", ()), answer],
            },
            self.rereader.mask,
        )
        return pair

    def _content(self, case: Case) -> str | None:
        """The text beside the calls, where today's reading agrees on what is call and what is text."""
        again = self.rereader.read(case)
        return (again.text.strip() or None) if again.is_same and not again.fault else None

    def summary(self) -> str:
        words = f"{self.written} {self.kind} written, {self.left_out} left out for what speaks against them"
        if self.without_bodies:
            words += f"; {self.without_bodies} records hold no bodies (AUDIT_BODIES=full keeps them)"
        return f"{words}."


def _write(settings: Settings, period: Period, exporter: _Exporter, file: BinaryIO) -> None:
    async def work(store: Store) -> None:
        labels = last_labels([label async for label in store.scan(LabelRecord)])
        async for record in store.scan(RequestRecord, since=period.since, until=period.until):
            progress.reached(1, record.at)
            line = exporter.line(record, labels)
            if line is not None:
                file.write(line)

    with Progress(period) as progress:
        on_store(settings, work)
