"""`toolgate try`: one answer through the reader, with everything it saw and why it decided so."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, assert_never

import click
import msgspec
from attrs import evolve, field, frozen

from gateway.cli.options import colour_option, json_option
from gateway.config.declared.values import hundredths
from gateway.core.errors import ClientError
from gateway.core.events import Args, Broken, Drop, End, Event, Note, Said, Start, Text, Verdict
from gateway.core.tools import Tool, ToolSet
from gateway.report.words import visible
from gateway.wire.chat_request import parse_request
from strategies.base import AnswerReader, Options
from strategies.dialects.rows import TABLE
from strategies.reading.factory import reader_factory
from strategies.schema.known_tools import known_tools

__all__ = ["Reading", "declared_tools", "pieces", "read", "read_with", "show", "try_", "well_known_tools"]

_SCHEMA_VERSION = 1
_MAX_ANSWER_BYTES = 64 << 20


@frozen(kw_only=True)
class Reading:
    """What one answer consists of, neighbouring text joined."""

    events: tuple[Event, ...]
    min_confidence: int = field(default=90)

    @property
    def calls(self) -> list[End]:
        return [event for event in self.events if isinstance(event, End)]

    @property
    def rejected(self) -> list[Verdict]:
        return [event.verdict for event in self.events if isinstance(event, Note)]

    @property
    def text(self) -> str:
        return "".join(event.raw for event in self.events if isinstance(event, Text))


@click.command(name="try", short_help="Show the calls in a model's answer, with scores and reasons.")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--tools", "tools_file", type=click.File("rb"), help="JSON file with the request's tools.")
@click.option("--model", default="unknown", show_default=True, help="Model that wrote the answer.")
@click.option("--dialect", help="Dialect that the model was asked to write.")
@click.option("--chunks", type=click.IntRange(1), default=1, show_default=True, help="Read it in this many pieces.")
@click.option("--min-confidence", default="0.90", show_default=True, help="Score below which a candidate is text.")
@click.option("--finish", default="stop", show_default=True, help="Finish reason of the answer, such as length.")
@json_option
@colour_option
def try_(
    file: BinaryIO,
    tools_file: BinaryIO | None,
    model: str,
    dialect: str | None,
    chunks: int,
    min_confidence: str,
    finish: str,
    as_json: bool,
) -> None:
    """Read a model's answer from FILE (or - for stdin) and show the calls in it, with scores and reasons.

    Without --tools the well-known tools of coding agents count as declared.

    \b
    Examples:
      toolgate try answer.txt
      pbpaste | toolgate try --tools tools.json --min-confidence 0.85
      toolgate try answer.txt --model qwen3 --dialect hermes --chunks 50 --json
    """
    if dialect is not None and dialect not in {row.id for row in TABLE}:
        raise click.BadParameter(f"there is no {dialect!r}; see `toolgate dialects`", param_hint="--dialect")
    try:
        threshold = hundredths(min_confidence)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--min-confidence") from error
    tools = declared_tools(tools_file.read(_MAX_ANSWER_BYTES)) if tools_file else well_known_tools()
    reading = read(
        pieces(_answer_text(file), chunks),
        tools=tools,
        options=Options(min_confidence=threshold, dialect=dialect),
        model=model,
        prompted=dialect,
        finish=finish,
    )
    show(reading, as_json=as_json)


def _answer_text(file: BinaryIO) -> str:
    data = file.read(_MAX_ANSWER_BYTES + 1)
    if len(data) > _MAX_ANSWER_BYTES:
        raise click.ClickException("the answer is larger than 64 MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException("the answer is not UTF-8 text") from error


def declared_tools(content: bytes) -> ToolSet:
    """The tools of a file in the form of a request's `tools`, alone or inside a whole request."""
    try:
        document = msgspec.json.decode(content)
        tools = document.get("tools") if isinstance(document, dict) else document
        question = [{"role": "user", "content": ""}]
        body = msgspec.json.encode({"model": "none", "messages": question, "tools": tools})
        return parse_request(body).tools
    except ClientError as error:
        raise click.BadParameter(error.message, param_hint="--tools") from error
    except (ValueError, RecursionError) as error:
        raise click.BadParameter("the file is not valid JSON", param_hint="--tools") from error


def well_known_tools() -> ToolSet:
    """The tools of common coding agents, as if a request had declared them; variants of a name are merged."""
    return ToolSet(_merged(variants) for variants in known_tools().values())


def pieces(text: str, count: int) -> list[str]:
    """The text cut into that many pieces, as a stream would bring it."""
    if not text:
        return []
    length = max(1, -(-len(text) // count))
    return [text[start : start + length] for start in range(0, len(text), length)]


def read(
    chunks: Iterable[str], *, tools: ToolSet, options: Options, model: str, prompted: str | None, finish: str
) -> Reading:
    """Feed the pieces to the reader that an answer of this model would get."""
    reader = reader_factory(tools=tools, options=options, model=model, prompted=prompted)()
    return read_with(reader, chunks, finish=finish, min_confidence=options.min_confidence)


def read_with(reader: AnswerReader, chunks: Iterable[str], *, finish: str, min_confidence: int) -> Reading:
    """Feed the pieces to a reader."""
    events: list[Event] = []
    for chunk in chunks:
        events += reader.feed(chunk)
    events += reader.finish(finish)
    return Reading(events=tuple(_joined(events)), min_confidence=min_confidence)


def show(reading: Reading, *, as_json: bool) -> None:
    """Print a reading: for people, or as one JSON document."""
    if as_json:
        click.echo(json.dumps(_document(reading), indent=2))
        return
    for event in reading.events:
        for line in _described(event, reading.min_confidence):
            click.echo(line)
    click.echo(_summary(reading))


def _merged(variants: Sequence[Tool]) -> Tool:
    schemas = [tool.parameters for tool in variants]
    properties = {name: schema for each in schemas for name, schema in each.get("properties", {}).items()}
    required = set(properties).intersection(*(each.get("required", ()) for each in schemas))
    return evolve(
        variants[0],
        parameters={"type": "object", "properties": properties, "required": sorted(required)},
    )


def _joined(events: Sequence[Event]) -> Iterator[Event]:
    text = ""
    for event in events:
        if isinstance(event, Text):
            text += event.raw
            continue
        if text and not isinstance(event, Note):
            yield Text(text)
            text = ""
        yield event
    if text:
        yield Text(text)


def _described(event: Event, min_confidence: int) -> Iterator[str]:
    match event:
        case Text():
            yield click.style("text", fg="blue")
            yield from _indented(event.raw)
        case Drop():
            yield f"{click.style('dropped', fg='yellow')} {visible(repr(event.raw))}: {event.reason}"
        case Start() | Args():
            return
        case End() | Said():
            name = event.verdict.name
            yield f"{click.style('call', fg='green', bold=True)} {visible(name)} {visible(event.arguments)}"
            yield f"    {_verdict(event.verdict)}"
        case Broken():
            yield f"{click.style('broken', fg='red', bold=True)} {visible(event.reason)}"
        case Note():
            yield f"{click.style('not a call', fg='yellow', bold=True)} {visible(event.verdict.name)}"
            yield f"    {_verdict(event.verdict)}"
            if 0 < event.verdict.score < min_confidence:
                yield f"    below the threshold of {min_confidence / 100:.2f}"
        case _:
            assert_never(event)


def _verdict(verdict: Verdict) -> str:
    reasons = "; ".join(verdict.reasons) or "no mends"
    return visible(f"score {verdict.score / 100:.2f}, dialect {verdict.dialect or 'none'}: {reasons}")


def _summary(reading: Reading) -> str:
    calls, rejected = len(reading.calls), len(reading.rejected)
    words = f"{calls} call{'s' if calls != 1 else ''}"
    if rejected:
        words += f", {rejected} candidate{'s' if rejected != 1 else ''} left as text"
    return f"{words}."


def _document(reading: Reading) -> dict[str, Any]:
    return {
        "schema_version": _SCHEMA_VERSION,
        "calls": [
            {"name": call.name, "arguments": call.arguments, **_verdict_document(call.verdict)}
            for call in reading.calls
        ],
        "rejected": [{"name": verdict.name, **_verdict_document(verdict)} for verdict in reading.rejected],
        "text": reading.text,
        "events": [{"event": type(event).__name__.lower(), "raw": event.raw} for event in reading.events],
    }


def _verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {"dialect": verdict.dialect, "score": verdict.score / 100, "reasons": list(verdict.reasons)}


def _indented(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield f"    {visible(line)}"
