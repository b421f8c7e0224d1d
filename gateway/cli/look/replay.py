"""`toolgate replay`: answers of the past through today's readers, and what has changed in how they are read."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

import attrs
import click
import msgspec
from attrs import define, field

from gateway.cli.options import json_option, tools_of
from gateway.cli.store import Period, Progress, effective_settings, on_store, period_options
from gateway.config.load import Settings
from gateway.core.ports import Store
from gateway.core.records import RequestRecord
from gateway.process.exits import EXIT_FINDINGS
from gateway.report.cases import Call, Case, case_of, parse_fixture
from gateway.report.words import visible
from gateway.rereading.reading import well_known_tools
from gateway.rereading.rereader import Reread, Rereader

__all__ = ["replay"]

_SCHEMA_VERSION = 1
_MAX_FILE_BYTES = 1 << 30
_MAX_SHOWN = 1000


@click.command(short_help="Read answers again, and show what is read differently.")
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--store", "from_store", is_flag=True, help="Take the answers of the store (needs AUDIT_BODIES=full).")
@period_options
@click.option("--tools", "tools_file", type=click.File("rb"), help="JSON file with the tools of a plain answer.")
@click.option("--model", default="unknown", show_default=True, help="Model that wrote a plain answer.")
@click.option("--fail-on", type=click.Choice(["differences"]), help="Exit with 3 if anything is read differently.")
@json_option
@click.pass_context
def replay(
    context: click.Context,
    file: BinaryIO | None,
    from_store: bool,
    since: float | None,
    until: float | None,
    days: float | None,
    tools_file: BinaryIO | None,
    model: str,
    fail_on: str | None,
    as_json: bool,
) -> None:
    """Read answers again with this version and these settings, and show what is read differently than before.

    FILE (or - for stdin) holds lines of `toolgate export --fixtures`, or one plain answer. With --store the answers
    that a period's records hold are read again.

    \b
    Examples:
      toolgate replay fixtures.jsonl --fail-on differences
      toolgate replay answer.txt --tools tools.json --model qwen3
      toolgate replay --store --days 1 --json
    """
    # Neither both nor none of them.
    if (file is None) is not from_store:
        raise click.UsageError("name a FILE or use --store")
    if not from_store and (since, until, days) != (None, None, None):
        raise click.UsageError("a period goes with --store only")
    settings = effective_settings()
    rereader = Rereader.of(settings)
    result = _Result()
    if file is None:
        _from_store(settings, Period.of(since, until, days), rereader, result)
    else:
        tools = tools_of(tools_file) if tools_file else well_known_tools()
        # Bounded, as the file is held whole: lines may refer to nothing, but the first decides what all of it is.
        for case in _cases(file.read(_MAX_FILE_BYTES), model):
            result.add(rereader.plain(case, tools) if _is_plain(case) else rereader.read(case))
    _show(result, as_json=as_json)
    # A word of its own for CI: faults of the command itself exit otherwise.
    context.exit(EXIT_FINDINGS if fail_on and result.differences else 0)


@define
class _Result:
    """What replaying came to."""

    read: int = 0
    differences: int = 0
    faults: int = 0
    skipped: Counter[str] = field(factory=Counter)
    shown: list[Reread] = field(factory=list)

    def add(self, reread: Reread) -> None:
        self.read += 1
        self.faults += bool(reread.fault)
        is_different = not reread.is_same or bool(reread.fault)
        self.differences += is_different
        # The rest is counted and not shown: a change that touches all answers is told by its first thousand.
        if (is_different or reread.case.expected is None) and len(self.shown) < _MAX_SHOWN:
            self.shown.append(reread)


def _from_store(settings: Settings, period: Period, rereader: Rereader, result: _Result) -> None:
    async def work(store: Store) -> None:
        async for record in store.scan(RequestRecord, since=period.since, until=period.until):
            progress.reached(1, record.at)
            case = case_of(record)
            if isinstance(case, str):
                result.skipped[case] += 1
            else:
                result.add(rereader.read(case))

    with Progress(period) as progress:
        on_store(settings, work)


def _is_plain(case: Case) -> bool:
    return not case.request and case.expected is None


def _cases(content: bytes, model: str) -> Iterator[Case]:
    lines = [line for line in content.split(b"\n") if line.strip()]
    cases = [parse_fixture(line) for line in lines[:1]]
    # The first line is no fixture: the file is one answer, in which any line may look like JSON.
    if not cases or cases[0] is None:
        yield Case(id="answer", answer=_text(content), model=model)
        return
    for number, line in enumerate(lines, 1):
        case = parse_fixture(line)
        if case is None:
            raise click.ClickException(f"line {number} holds no answer")
        yield case


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException("the answer is not UTF-8 text") from error


_SKIPPED = {
    "no_text": "hold no text to read (AUDIT_BODIES=full keeps it)",
    "no_request": "hold no whole request",
    "other_calls": "have native calls, or calls of a second answer",
}


def _show(result: _Result, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(_document(result))).decode())
        return
    for reread in result.shown:
        for line in _lines(reread):
            # Answers hold whatever models wrote, control characters of terminals too.
            click.echo(visible(line))
    for reason, count in sorted(result.skipped.items()):
        # Beside the result: who pipes that must not find these lines in it.
        click.echo(f"{count} records {_SKIPPED[reason]}.", err=True)
    words = "difference" if result.differences == 1 else "differences"
    click.echo(f"{result.read} answers read, {result.differences} {words}.")


def _lines(reread: Reread) -> Iterator[str]:
    surface = "" if reread.case.surface == "chat" else f"  {reread.case.surface}"
    yield f"{reread.case.id}  {reread.case.model}{surface}"
    if reread.fault:
        yield f"  {reread.fault}"
        return
    if reread.case.expected is not None:
        yield from (f"  - {_told(call)}" for call in reread.case.expected)
    yield from (f"  + {_told(call)}" for call in reread.calls)
    if not reread.calls:
        yield "  + no call"
    yield from (f"    left as text: {reason}" for reason in reread.reasons)


def _told(call: Call) -> str:
    return f"{call.name} {msgspec.json.encode(call.arguments).decode()}"


def _document(result: _Result) -> dict[str, Any]:
    return {
        "schema_version": _SCHEMA_VERSION,
        "read": result.read,
        "differences": result.differences,
        "faults": result.faults,
        "skipped": dict(sorted(result.skipped.items())),
        "results": [
            {
                "id": reread.case.id,
                "model": reread.case.model,
                "surface": reread.case.surface,
                "same": reread.is_same and not reread.fault,
                "fault": reread.fault,
                "before": None
                if reread.case.expected is None
                else [attrs.asdict(call) for call in reread.case.expected],
                "after": [attrs.asdict(call) for call in reread.calls],
                "left_as_text": list(reread.reasons),
            }
            for reread in result.shown
        ],
    }
