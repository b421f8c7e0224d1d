"""Hostile answers, made of pieces of every dialect's markup, and what must hold for each of them."""

import random
import re
from collections.abc import Iterator, Sequence
from functools import cache

from attrs import field, frozen

from gateway.core.events import Args, Broken, Drop, End, Event, Note, Start, Text
from gateway.core.limits import Limits
from strategies.base import Options
from strategies.dialects.rows import TABLE
from strategies.grammar.dialect import Context
from strategies.grammar.lexicon import LEFTOVERS, REASONING
from strategies.reading.factory import reader_factory
from strategies.reading.reader import Reader
from tests.support.reading import AGENT_TOOLS, pieces

NAMES = ("read", "write", "edit", "bash", "todowrite", "todoread", "list", "read_file", "unknown_tool")
KEYS = ("filePath", "content", "command", "oldString", "newString", "limit", "todos", "path", "args", "nobody")
VALUES = ("/a.py", "5", "true", "null", '"x"', "ls -la", "a < b && c > d", "x\n\ny", "[1, 2]", '{"a": 1}', "é🧪", "")
NOISE = (
    *(
        " ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
        "\r",
        "<",
        ">",
        "</",
        "/>",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        "\\",
        ",",
        ":",
    ),
    *(
        "`",
        "``",
        "```",
        "```xml\n",
        "```json\n",
        "\n```\n",
        "~~~\n",
        "> ",
        "- ",
        "1. ",
        "    ",
        "|",
        "=",
        "&lt;",
        "&amp;",
    ),
    *(
        "<![CDATA[",
        "]]>",
        "<div>",
        "</div>",
        "<!-- c -->",
        "For example:\n",
        "Let me look.\n",
        "I will do it",
        "\ud83e",
    ),
    *("\u200b", "\ufeff", "\u2028", "\x00", "é", "🧪", "<args>", "</args>", "<file>", "</file>", "<item>", "</item>"),
    *('{"name": ', '"arguments": {', '"filePath": "/a"', "|\n  block\n", "key: value\n", "filePath: /a\n"),
)
LONG = ("word ", "`", "` ", "<", "\n", " ", "- a\n", "<read> ", "x\n")
_TOKEN = re.compile(r"<[^<>\n]{0,60}>|\w+|\s+|[^\w\s]")


@cache
def fragments() -> tuple[str, ...]:
    """Openers, closers, results and example tokens of all dialects, with names, keys, values and noise."""
    context = Context(tools=AGENT_TOOLS, options=Options())
    found: list[str] = []
    for row in TABLE:
        found += [*sorted(row.openers(context)), *row.line_openers(context), *row.results]
        found += [f"```{info}\n" for info in row.carriers]
        found += _TOKEN.findall(row.example)
    tags = [f"<{name}>" for name in (*NAMES, *KEYS)]
    found += [*tags, *(tag.replace("<", "</") for tag in tags), *(f"<parameter={key}>" for key in KEYS)]
    found += [f"</{opener[1:]}" for opener in found if re.fullmatch(r"<\w+>", opener)]
    found += [*REASONING, *REASONING.values(), *LEFTOVERS]
    return tuple(dict.fromkeys(found))


@cache
def examples() -> tuple[str, ...]:
    """A whole call of each dialect."""
    return tuple(row.example for row in TABLE if row.example)


def hostile_text(rng: random.Random) -> str:
    """A random answer: pieces, whole examples, examples with a piece missing, doubled or put in."""
    parts: list[str] = []
    for _ in range(rng.randint(1, 14)):
        kind = rng.random()
        if kind < 0.45:
            parts.append(rng.choice(fragments()))
        elif kind < 0.7:
            parts.append(rng.choice(NOISE))
        elif kind < 0.85:
            parts.append(rng.choice((*NAMES, *KEYS, *VALUES)))
        elif kind < 0.92:
            parts.append(rng.choice(examples()))
        elif kind < 0.9205:
            parts.append(rng.choice(LONG) * rng.randint(50, 1500))
        else:
            parts.append(_damaged(rng, rng.choice(examples())))
    return "".join(parts)


def _damaged(rng: random.Random, example: str) -> str:
    tokens = _TOKEN.findall(example)
    at = rng.randrange(len(tokens))
    match rng.randrange(4):
        case 0:
            del tokens[at]
        case 1:
            tokens[at] = rng.choice(fragments())
        case 2:
            tokens.insert(at, rng.choice(NOISE))
        case _:
            tokens.insert(at, tokens[at])
    return "".join(tokens)


@frozen(kw_only=True)
class Way:
    """One configuration under which answers are read."""

    prompted: str | None = None
    reason: str = "stop"
    reasoned: bool = False
    """The answer has reasoning in a field of its own."""
    options: Options = field(factory=Options)

    def reader(self) -> Reader:
        made: Reader = _factory(self.prompted, self.options)()
        if self.reasoned:
            made.reasoned()
        return made


@cache
def _factory(prompted: str | None, options: Options):
    return reader_factory(tools=AGENT_TOOLS, options=options, model="m", prompted=prompted)


@cache
def ways() -> tuple[Way, ...]:
    """Every dialect as the prompted one, and each of the settings that a reader looks at."""
    low = Options(min_confidence=50, recovery_shell=True)
    return (
        *(Way(prompted=row.id) for row in TABLE),
        Way(),
        Way(reason="length"),
        Way(options=low),
        Way(options=low, reason="cut"),
        Way(reasoned=True),
        Way(options=Options(stream_arguments="incremental")),
        Way(options=Options(stream_arguments="incremental"), reasoned=True),
        Way(options=Options(stream_arguments="incremental", min_confidence=50), prompted="generic_xml", reasoned=True),
        Way(options=Options(limits=Limits(max_call_bytes=60))),
    )


def events_of(way: Way, parts: Sequence[str]) -> tuple[list[Event], list[int]]:
    """All events, and how many there were after each part."""
    reader = way.reader()
    events: list[Event] = []
    counts: list[int] = []
    for part in parts:
        events += reader.feed(part)
        counts.append(len(events))
    events += reader.finish(way.reason)
    assert reader.idle
    assert reader.held == 0
    return events, counts


def story(events: Sequence[Event]) -> list[tuple[str, str]]:
    """What the events say, without where text and arguments were cut."""
    told: list[tuple[str, str]] = []
    for event in events:
        for kind, said in _told(event):
            if told and told[-1][0] == kind and kind not in ("start", "end", "broken"):
                told[-1] = (kind, told[-1][1] + said)
            elif said or kind not in ("text", "arguments"):
                told.append((kind, said))
    return told


def _told(event: Event) -> Iterator[tuple[str, str]]:
    match event:
        case Text():
            yield "text", event.raw
        case Drop():
            yield event.reason, event.raw
        case Start():
            yield "start", event.name
        case Args():
            yield "arguments", event.json
        case End():
            yield "end", f"{event.name} {event.arguments} {event.verdict}"
        case Broken():
            yield "broken", event.reason
        case Note():
            return


def check(text: str, way: Way, cuts: Sequence[int]) -> list[Event]:
    """One answer read whole and in pieces: nothing is lost, nothing depends on the cuts, nothing is taken back."""
    whole, _ = events_of(way, [text] if text else [])
    assert "".join(event.raw for event in whole) == text
    parts = list(pieces(text, cuts))
    split, counts = events_of(way, parts)
    assert "".join(event.raw for event in split) == text
    told = story(whole)
    assert story(split) == told
    for count in counts[:: len(counts) // 8 + 1]:
        _assert_begins(told, story(split[:count]))
    calls = [event for event in whole if isinstance(event, End)]
    streamed = "".join(event.json for event in whole if isinstance(event, Args))
    if not any(isinstance(event, Broken) for event in whole):
        assert streamed == "".join(event.arguments for event in calls)
    assert all(event.verdict.accepted for event in calls)
    return whole


def _assert_begins(told: list[tuple[str, str]], begun: list[tuple[str, str]]) -> None:
    if begun:
        assert told[: len(begun) - 1] == begun[:-1]
        kind, said = begun[-1]
        assert told[len(begun) - 1][0] == kind
        assert told[len(begun) - 1][1].startswith(said)


def inputs(seed: int, count: int) -> Iterator[tuple[int, str, Way, list[int]]]:
    """`count` random answers, each with the way to read it and where to cut it."""
    every = ways()
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        text = hostile_text(rng)
        size = rng.choice((1, 2, 5, len(text)))
        cuts = sorted(rng.sample(range(len(text) + 1), min(size, len(text) + 1)))
        if rng.random() < 0.1:
            cuts = list(range(1, len(text)))
        yield number, text, rng.choice(every), cuts
