"""`toolgate replay`: answers of the past through today's readers, and what has changed in how they are read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import attrs
import click
import msgspec
from attrs import define, evolve, field, frozen

from gateway.cli.look.try_ import Reading, declared_tools, pieces, read, read_with, well_known_tools
from gateway.cli.options import json_option
from gateway.cli.store import Period, Progress, effective_settings, on_store, period_options
from gateway.config.load import Settings
from gateway.core.client import Client
from gateway.core.errors import GatewayError
from gateway.core.events import End, Said
from gateway.core.ports import Store
from gateway.core.records import RequestRecord
from gateway.core.tools import ToolSet
from gateway.kinds.rows import DEFAULT_KIND
from gateway.process.exits import EXIT_FINDINGS
from gateway.report.cases import Call, Case, case_of, masked, parse_fixture
from gateway.report.words import visible
from gateway.telemetry.redaction import Redactor
from gateway.wire.chat_request import parse_request
from strategies.base import Prepared
from strategies.clients import recognise
from strategies.factory import Capability, ClientStyle, ToolExecutionFactory, load_strategies

__all__ = ["Reread", "Rereader", "replay"]

_SCHEMA_VERSION = 1
_MAX_FILE_BYTES = 1 << 30
_MAX_SHOWN = 1000
_UNTOUCHED = frozenset({"control", "dry_run"})


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
        tools = declared_tools(tools_file.read(_MAX_FILE_BYTES)) if tools_file else well_known_tools()
        for case in _cases(file.read(_MAX_FILE_BYTES), model):
            result.add(rereader.plain(case, tools) if _is_plain(case) else rereader.read(case))
    _show(result, as_json=as_json)
    context.exit(EXIT_FINDINGS if fail_on and result.differences else 0)


@frozen(kw_only=True)
class Reread:
    """A case and how it is read today; `fault` says why it could not be."""

    case: Case
    calls: tuple[Call, ...] = ()
    text: str = ""
    reasons: tuple[str, ...] = ()
    fault: str = ""
    is_same: bool = True


@frozen
class Rereader:
    """Reads cases as the gateway would with these settings."""

    _settings: Settings
    _factory: ToolExecutionFactory
    _strategies: Mapping[str, Any]
    _redactor: Redactor

    @classmethod
    def of(cls, settings: Settings) -> "Rereader":
        strategies = load_strategies().strategies
        factory = ToolExecutionFactory(strategies, rules=settings.all_rules(), auto_detect=settings.auto_detect)
        return cls(settings, factory, strategies, Redactor(settings.secrets()))

    def mask(self, text: str) -> str:
        """The text without credentials, as records hold it."""
        return self._redactor.mask(text)

    def read(self, case: Case) -> Reread:
        """The answer, in the light of the request that it answers."""
        try:
            prepared = self._prepared(case)
        except GatewayError as error:
            return Reread(case=case, fault=f"the request is refused today: {error.message}")
        if prepared.make_reader is None:
            return self._compared(case, (), case.answer, ())
        reading = read_with(
            prepared.make_reader(),
            pieces(case.answer, 1),
            finish=case.finish,
            min_confidence=self._settings.min_confidence,
        )
        calls = _calls(reading)
        return self._compared(case, calls[:1] if prepared.shape.first_only else calls, reading.text, _reasons(reading))

    def plain(self, case: Case, tools: ToolSet) -> Reread:
        """An answer of which nothing else is known."""
        options = self._settings.strategy_options()
        reading = read(
            pieces(case.answer, 1), tools=tools, options=options, model=case.model, prompted=None, finish=case.finish
        )
        return self._compared(case, _calls(reading), reading.text, _reasons(reading))

    def _prepared(self, case: Case) -> Prepared:
        """By the strategy that it had then, where there is one: what was learned of a model is not kept for ever."""
        body = {"model": case.model, "messages": [{"role": "user", "content": ""}], **case.request}
        request = parse_request(msgspec.json.encode(body))
        reads_tags = self._factory.auto_detect and recognise(request, Client()) is not None
        style: ClientStyle = "xml_text" if reads_tags else "native"
        selection = self._factory.decide(DEFAULT_KIND, case.model, style, request, Capability())
        then = self._strategies.get(case.strategy)
        if then is not None and case.strategy != selection.strategy.name:
            selection = evolve(selection, strategy=then, dialect=None)
        if case.arm in _UNTOUCHED:
            selection = self._factory.unprompted(selection)
        return selection.strategy.prepare(request, self._settings.strategy_options(selection.dialect))

    def _compared(self, case: Case, calls: tuple[Call, ...], text: str, reasons: tuple[str, ...]) -> Reread:
        is_same = case.expected is None or self._told(calls) == self._told(case.expected)
        return Reread(case=case, calls=calls, text=text, reasons=reasons, is_same=is_same)

    def _told(self, calls: Iterable[Call]) -> list[Any]:
        """Calls as they compare: what a record says has lost its secrets."""
        return [masked([call.name, call.arguments], self.mask) for call in calls]


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


def _calls(reading: Reading) -> tuple[Call, ...]:
    return tuple(
        Call(event.verdict.name, _decoded(event.arguments)) for event in reading.events if isinstance(event, End | Said)
    )


def _reasons(reading: Reading) -> tuple[str, ...]:
    return tuple(f"{verdict.name or 'no tool'}: {'; '.join(verdict.reasons)}" for verdict in reading.rejected)


def _decoded(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments


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
            click.echo(visible(line))
    for reason, count in sorted(result.skipped.items()):
        click.echo(f"{count} records {_SKIPPED[reason]}.", err=True)
    words = "difference" if result.differences == 1 else "differences"
    click.echo(f"{result.read} answers read, {result.differences} {words}.")


def _lines(reread: Reread) -> Iterator[str]:
    yield f"{reread.case.id}  {reread.case.model}"
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
