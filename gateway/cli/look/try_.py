"""`toolgate try`: one answer through the reader, with everything it saw and why it decided so."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, assert_never

import click

from gateway.cli.options import colour_option, json_option, tools_of
from gateway.config.declared.values import hundredths
from gateway.core.events import Args, Broken, Drop, End, Note, Said, Start, Text, Verdict
from gateway.core.sentences import why
from gateway.core.tools import Tool, ToolSet
from gateway.report.words import visible
from gateway.rereading.reading import (
    Reading,
    Try,
    document,
    pieces,
    read,
    remarks,
    well_known_tools,
)
from gateway.surfaces.chat import CHAT
from gateway.surfaces.messages.surface import MESSAGES
from gateway.surfaces.port import Situation, Surface
from gateway.surfaces.responses.surface import RESPONSES
from gateway.wire.chat_chunks import encode_object
from gateway.wire.sse import DONE, encode
from strategies.base import Options
from strategies.dialects.rows import TABLE

__all__ = ["try_"]

_MAX_ANSWER_BYTES = 64 << 20
_SURFACES: Mapping[str, Surface] = {surface.name: surface for surface in (CHAT, RESPONSES, MESSAGES)}


@click.command(name="try", short_help="Show the calls in a model's answer, with scores and reasons.")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--tools", "tools_file", type=click.File("rb"), help="JSON file with the request's tools.")
@click.option("--model", default="unknown", show_default=True, help="Model that wrote the answer.")
@click.option("--dialect", help="Dialect that the model was asked to write.")
@click.option("--chunks", type=click.IntRange(1), default=1, show_default=True, help="Read it in this many pieces.")
@click.option("--min-confidence", default="0.90", show_default=True, help="Score below which a candidate is text.")
@click.option("--finish", default="stop", show_default=True, help="Finish reason of the answer, such as length.")
@click.option("--surface", type=click.Choice(sorted(_SURFACES)), help="Show the events that a client gets.")
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
    surface: str | None,
    as_json: bool,
) -> None:
    """Read a model's answer from FILE (or - for stdin) and show the calls in it, with scores and reasons.

    Without --tools the well-known tools of coding agents count as declared. The file holds the tools of a request as
    OpenAI, Anthropic or Gemini write them, or a whole request.

    \b
    Examples:
      toolgate try answer.txt
      pbpaste | toolgate try --tools tools.json --min-confidence 0.85
      toolgate try answer.txt --model qwen3 --dialect hermes --chunks 50 --json
      toolgate try answer.txt --tools tools.json --surface responses
    """
    if dialect is not None and dialect not in {row.id for row in TABLE}:
        raise click.BadParameter(f"there is no {dialect!r}; see `toolgate dialects`", param_hint="--dialect")
    try:
        threshold = hundredths(min_confidence)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--min-confidence") from error
    tools = tools_of(tools_file) if tools_file else well_known_tools()
    text, options = _answer_text(file), Options(min_confidence=threshold, dialect=dialect)
    reading = read(pieces(text, chunks), tools=tools, options=options, model=model, prompted=dialect, finish=finish)
    if surface is not None:
        click.echo(told_events(_SURFACES[surface], reading, tools, model), nl=False)
        return
    is_silent = not reading.calls and not reading.rejected
    left_alone = remarks(text, tools=tools, options=options, model=model) if is_silent else []
    if as_json:
        click.echo(json.dumps(document(reading, remarks_=left_alone), indent=2))
    else:
        _show(reading, left_alone)


def told_events(surface: Surface, reading: Reading, tools: ToolSet, model: str) -> bytes:
    """The stream that a client of another wire gets for the answer, as far as it was read."""
    declared = [_declared(tool, surface) for tool in tools]
    asked = {
        "model": model,
        "stream": True,
        "tools": declared,
        "input": "...",
        "messages": [{"role": "user", "content": "..."}],
    }
    if surface is not CHAT:
        del asked["messages" if surface is RESPONSES else "input"]
    situation = Situation(now=0.0, request_id="req_0", unique="0" * 24, secret=b"try", scope="try")
    telling = surface.accept(json.dumps(asked).encode(), situation, {}).tell()
    out = [telling.begin(), *(telling.feed(_chunk(delta)) for delta in _deltas(reading))]
    # A cut answer stays one, whatever calls it holds.
    is_called = bool(reading.calls) and reading.finish == "stop"
    out.append(telling.feed(_chunk({}, "tool_calls" if is_called else reading.finish) + encode(DONE)))
    return b"".join((*out, telling.finish()))


def _declared(tool: Tool, surface: Surface) -> dict[str, Any]:
    if surface is MESSAGES:
        return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
    told = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", **told} if surface is RESPONSES else {"type": "function", "function": told}


def _deltas(reading: Reading) -> Iterator[dict[str, Any]]:
    number, text = 0, ""
    for event in reading.events:
        if isinstance(event, Text):
            text += event.raw
        elif isinstance(event, End | Said):
            if text.strip():
                yield {"content": text.rstrip()}
            text = ""
            function = {"name": event.verdict.name, "arguments": event.arguments}
            yield {"tool_calls": [{"index": number, "id": f"call_{number}", "type": "function", "function": function}]}
            number += 1
    if text.strip() or not number:
        yield {"content": text}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    told = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": "-"}
    return encode_object({**told, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _answer_text(file: BinaryIO) -> str:
    """The text of a file with a model's answer."""
    data = file.read(_MAX_ANSWER_BYTES + 1)
    if len(data) > _MAX_ANSWER_BYTES:
        raise click.ClickException("the answer is larger than 64 MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise click.ClickException("the answer is not UTF-8 text") from error


def _show(reading: Reading, left_alone: Sequence[str]) -> None:
    tries = {number: each for number, each in reading.tries().items() if each.verdict.meant}
    texts: list[str] = []
    for number, event in enumerate(reading.events):
        if isinstance(event, Text):
            texts.append(event.raw)
            continue
        if number in tries or not isinstance(event, Note):
            _text(texts)
        match event:
            case Drop():
                click.echo(f"{click.style('dropped', fg='yellow')} {visible(repr(event.raw))}: {event.reason}")
            case Start() | Args():
                pass
            case End() | Said():
                name = event.verdict.name
                click.echo(f"{click.style('call', fg='green', bold=True)} {visible(name)} {visible(event.arguments)}")
                click.echo(f"    {_verdict(event.verdict)}")
            case Broken():
                click.echo(f"{click.style('broken', fg='red', bold=True)} {visible(event.reason)}")
            case Note():
                for line in _of_try(tries[number], reading.finish) if number in tries else ():
                    click.echo(line)
            case _:
                assert_never(event)
    _text(texts)
    for remark in left_alone:
        click.echo(f"{click.style('left alone', fg='yellow')} {visible(remark)}")
    click.echo(_summary(reading))


def _of_try(found: Try, finish: str) -> Iterator[str]:
    verdict = found.verdict
    yield f"{click.style('not a call', fg='yellow', bold=True)} {visible(verdict.name)}".rstrip()
    yield f"    {visible(why(verdict, finish).sentence)}"
    yield f"    {_verdict(verdict)}"
    if found.others:
        dialects = ", ".join(dict.fromkeys(other.dialect for other in found.others))
        yield f"    read in other ways too: {visible(dialects)}"


def _verdict(verdict: Verdict) -> str:
    reasons = "; ".join(verdict.reasons) or "no mends"
    return visible(f"score {verdict.score / 100:.2f}, dialect {verdict.dialect or 'none'}: {reasons}")


def _summary(reading: Reading) -> str:
    calls, rejected = len(reading.calls), len(reading.rejected)
    words = f"{calls} call{'s' if calls != 1 else ''}"
    if rejected:
        words += f", {rejected} candidate{'s' if rejected != 1 else ''} left as text"
    return f"{words}."


def _text(texts: list[str]) -> None:
    """Show what has come of text so far."""
    if texts:
        click.secho("text", fg="blue")
        for line in "".join(texts).split("\n"):
            click.echo(f"    {visible(line)}")
        texts.clear()
