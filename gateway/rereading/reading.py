"""One answer through the reader, with everything that it saw and why it decided so."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from attrs import evolve, field, frozen

from gateway.core.errors import ClientError
from gateway.core.events import End, Event, Note, Said, Text, Verdict
from gateway.core.sentences import furthest, why
from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import parse_request
from strategies.base import AnswerReader, Options
from strategies.base.tries import Tries
from strategies.reading.factory import reader_factory
from strategies.schema.known_tools import known_tools

__all__ = [
    "BadTools",
    "Reading",
    "Try",
    "declared_tools",
    "document",
    "pieces",
    "read",
    "read_with",
    "remarks",
    "tools_in",
    "well_known_tools",
]

_SCHEMA_VERSION = 1


class BadTools(ValueError):
    """What was given as tools holds none, and why."""


@frozen(kw_only=True)
class Try:
    """What was made of the same characters: the reading that came furthest, and the others."""

    verdict: Verdict
    others: tuple[Verdict, ...] = ()


@frozen(kw_only=True)
class Reading:
    """What one answer consists of, neighbouring text joined."""

    events: tuple[Event, ...]
    finish: str = "stop"
    min_confidence: int = field(default=90)

    @property
    def calls(self) -> list[End | Said]:
        return [event for event in self.events if isinstance(event, End | Said)]

    @property
    def notes(self) -> list[Verdict]:
        """Every reading that came to no call."""
        return [event.verdict for event in self.events if isinstance(event, Note)]

    @property
    def rejected(self) -> list[Try]:
        """What was meant as a call and stayed text, one for each span."""
        return [each for each in self.tries().values() if each.verdict.meant]

    def tries(self) -> dict[int, Try]:
        """The tries by the number of the event that is the first to tell of each."""
        groups: dict[int, list[Verdict]] = {}
        tries, last = Tries(), 0
        for number, event in enumerate(self.events):
            is_same = tries.is_same(event)
            if not isinstance(event, Note) or event.verdict.accepted:
                continue
            last = last if is_same else number
            groups.setdefault(last, []).append(event.verdict)
        return {number: _try(verdicts) for number, verdicts in groups.items()}

    @property
    def text(self) -> str:
        return "".join(event.raw for event in self.events if isinstance(event, Text))


def _try(verdicts: list[Verdict]) -> Try:
    best = furthest(verdicts)
    return Try(verdict=best, others=tuple(each for each in verdicts if each is not best))


def tools_in(content: bytes) -> ToolSet:
    """The tools of a document in the form of a request's `tools`, alone or inside a whole request; `BadTools`."""
    try:
        value = msgspec.json.decode(content)
    # A document that nests too deep is no fault of ours to show a trace for.
    except (ValueError, RecursionError) as error:
        raise BadTools("the file is not valid JSON") from error
    return declared_tools(value)


def declared_tools(value: Any) -> ToolSet:
    """The tools of a request, as OpenAI, Anthropic or Gemini write them, alone or inside a whole request."""
    tools = value.get("tools") if isinstance(value, dict) and "tools" in value else value
    if isinstance(tools, list):
        tools = [entry for each in tools for entry in _as_functions(each)]
    # Through the parser of requests: what it refuses of tools here is what it would refuse in earnest.
    body = {"model": "none", "messages": [{"role": "user", "content": ""}], "tools": tools}
    try:
        return parse_request(msgspec.json.encode(body)).tools
    except ClientError as error:
        raise BadTools(error.message) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise BadTools("the tools are not valid JSON") from error


def _as_functions(tool: Any) -> list[Any]:
    """One entry of a list of tools in the form of OpenAI's; what is none of the forms stays for the parser to judge."""
    if not isinstance(tool, Mapping):
        return [tool]
    # Both spellings, as Google's API takes either: https://protobuf.dev/programming-guides/json/#field-names
    gemini = tool.get("functionDeclarations", tool.get("function_declarations"))
    if isinstance(gemini, list):
        return [_function(each, "parameters", "parametersJsonSchema") for each in gemini]
    if "input_schema" in tool:
        return [_function(tool, "input_schema")]
    if "function" not in tool and isinstance(tool.get("name"), str):
        return [_function(tool, "parameters")]
    return [tool]


def _function(tool: Any, *schemas: str) -> Any:
    if not isinstance(tool, Mapping):
        return tool
    schema = next((tool[key] for key in schemas if key in tool), {"type": "object", "properties": {}})
    told = {"name": tool.get("name"), "description": tool.get("description", ""), "parameters": _lowered(schema, 0)}
    return {"type": "function", "function": told}


def _lowered(schema: Any, depth: int) -> Any:
    """Gemini writes the names of types in capitals."""
    # Deeper than this no tool is declared, and a document may nest as deep as JSON lets it.
    if not isinstance(schema, Mapping) or depth > 32:
        return schema
    lowered = {key: _lowered(value, depth + 1) for key, value in schema.items()}
    kind = schema.get("type")
    return {**lowered, "type": kind.lower()} if isinstance(kind, str) and kind.isupper() else lowered


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
    return Reading(events=tuple(_joined(events)), finish=finish, min_confidence=min_confidence)


def remarks(text: str, *, tools: ToolSet, options: Options, model: str) -> list[str]:
    """What was left alone on purpose though a call stands there: each with the setting that would read it, if any."""

    def calls(answer: str, with_options: Options) -> list[End | Said]:
        return read([answer], tools=tools, options=with_options, model=model, prompted=None, finish="stop").calls

    found: list[str] = []
    for name, more in (
        ("RECOVERY_SHELL", evolve(options, recovery_shell=True)),
        ("RECOVERY_JSON", evolve(options, recovery_json=True)),
    ):
        # Read again with the setting, not guessed from the text: only what would be a call is told as one.
        if more != options and (read_then := calls(text, more)):
            what = "a shell block" if name == "RECOVERY_SHELL" else "a block of JSON"
            found.append(f"{what} was left alone: with {name}=true it is a call of `{read_then[0].verdict.name}`")
    # All quotations as one text: a call may go over several lines of it.
    quoted = "\n".join(line.lstrip()[1:].lstrip(" ") for line in text.split("\n") if line.lstrip().startswith(">"))
    if quoted and (read_then := calls(quoted, options)):
        found.append(f"a call of `{read_then[0].verdict.name}` was left alone, as it stands in a quotation")
    for body in _fenced(text):
        if read_then := calls(body, options):
            name = read_then[0].verdict.name
            found.append(f"a call of `{name}` was left alone, as it stands in a code fence and may be an example")
            break
    return found


def _fenced(text: str) -> Iterator[str]:
    """The bodies of the first code fences."""
    parts = text.split("```")
    # Every second part stands between two fences; the bound keeps a text of nothing but fences from costing its square.
    for body in parts[1:64:2]:
        yield body.partition("\n")[2]


def document(reading: Reading, *, remarks_: Sequence[str] = ()) -> dict[str, Any]:
    """A reading as one JSON document."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "calls": [
            {"name": call.verdict.name, "arguments": call.arguments, **_judged(call.verdict)} for call in reading.calls
        ],
        "rejected": [_rejected(each, reading.finish) for each in reading.rejected],
        "remarks": list(remarks_),
        "text": reading.text,
        # Together the raw texts are the answer, character by character.
        "events": [{"event": type(event).__name__.lower(), "raw": event.raw} for event in _flowing(reading.events)],
    }


def _rejected(each: Try, finish: str) -> dict[str, Any]:
    told = why(each.verdict, finish)
    return {
        "name": each.verdict.name,
        **_judged(each.verdict),
        "reason": told.reason.value,
        "sentence": told.sentence,
        "setting": told.setting,
        "others": [{"dialect": other.dialect, "score": other.score / 100} for other in each.others],
    }


def _judged(verdict: Verdict) -> dict[str, Any]:
    return {"dialect": verdict.dialect, "score": verdict.score / 100, "reasons": list(verdict.reasons)}


def _merged(variants: Sequence[Tool]) -> Tool:
    schemas = [tool.parameters for tool in variants]
    # All that any variant takes, and of what they want only what every one does: more would refuse calls of another.
    properties = {name: schema for each in schemas for name, schema in each.get("properties", {}).items()}
    required = set(properties).intersection(*(each.get("required", ()) for each in schemas))
    return evolve(
        variants[0],
        parameters={"type": "object", "properties": properties, "required": sorted(required)},
    )


def _joined(events: Sequence[Event], *, across_notes: bool = False) -> Iterator[Event]:
    """Neighbouring text as one; a note keeps its place unless text is joined across notes too."""
    texts: list[str] = []
    for event in events:
        if isinstance(event, Text):
            texts.append(event.raw)
            continue
        if texts and not (across_notes and isinstance(event, Note)):
            yield Text("".join(texts))
            texts = []
        yield event
    if texts:
        yield Text("".join(texts))


def _flowing(events: Sequence[Event]) -> Iterator[Event]:
    """The events with the text of each stretch as one, behind the notes that stand in it."""
    return _joined(events, across_notes=True)
