"""Reads an answer whole and in pieces, and says what came out."""

import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, wraps
from typing import Any

import pytest
from attrs import frozen

from gateway.answer.stages import Shaper
from gateway.core.events import Args, Broken, Drop, End, Event, Note, Text
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options, Shape
from strategies.reading.factory import Readers, reader_factory


def run_all(name: str, cases: Mapping[str, Callable[[], None]]) -> None:
    """Run them all, and name those that fail; where one is skipped and none fails, so are they all."""
    failed: dict[str, BaseException] = {}
    skipped: list[BaseException] = []
    for case, work in cases.items():
        try:
            work()
        except pytest.skip.Exception as skip:
            skipped.append(skip)
        except (Exception, pytest.fail.Exception) as fault:  # noqa: BLE001 - each is told below
            fault.add_note(f"where {name} is {case}")
            failed[case] = fault
    if failed:
        told = f"{len(failed)} of {len(cases)} fail, where {name} is {', '.join(failed)}"
        raise BaseExceptionGroup(told, [*failed.values()])
    if skipped:
        raise skipped[0]


def together(name: str, cases: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One test goes through all these cases, as each takes less time than a test of its own; it names all that fail."""
    assert cases

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        assert name in signature.parameters
        assert not inspect.iscoroutinefunction(test)

        @wraps(test)
        def of_all(**given: Any) -> None:
            run_all(name, {case: partial(test, **given, **{name: value}) for case, value in cases.items()})

        others = [each for each in signature.parameters.values() if each.name != name]
        of_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return of_all

    return decorated


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}


def tool(name: str, *required: str, **properties: Any) -> Tool:
    """A tool whose required parameters come first and are strings unless `properties` says otherwise."""
    return Tool(
        name=name,
        parameters={
            "type": "object",
            "properties": {**{key: STRING for key in required if key not in properties}, **properties},
            "required": list(required),
        },
    )


WRITE = Tool(
    name="write",
    parameters={
        "type": "object",
        "properties": {
            "filePath": {"type": "string"},
            "content": {"type": "string"},
            "line": {"type": "integer"},
            "ratio": {"type": "number"},
            "force": {"type": "boolean"},
            "note": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object"},
        },
        "required": ["filePath", "content"],
    },
)
"""A tool with a parameter of each kind."""

AGENT_TOOLS = ToolSet(
    [
        tool("read", "filePath", offset=INTEGER, limit=INTEGER),
        tool("write", "filePath", "content"),
        tool("edit", "filePath", "oldString", "newString", replaceAll=BOOLEAN),
        tool("bash", "command", timeout=INTEGER, description=STRING),
        tool("glob", "pattern", path=STRING),
        tool("grep", "pattern", path=STRING, include=STRING),
        tool("list", path=STRING),
        tool("todoread"),
        tool(
            "todowrite",
            "todos",
            todos={
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"content": STRING, "status": STRING, "priority": STRING},
                    "required": ["content", "status", "priority"],
                },
            },
        ),
        tool("write_to_file", "path", "content"),
        tool("list_files", "path", recursive=BOOLEAN),
    ]
)


@frozen(kw_only=True)
class Reading:
    """What one reading came to."""

    text: str
    calls: list[tuple[str, str]]
    scores: list[int]
    dialects: list[str]
    dropped: list[tuple[str, str]]
    notes: list[tuple[str, ...]]
    broken: list[str]
    streamed: str
    events: list[Event]

    @property
    def content(self) -> str:
        """The text, without the white space in front of calls that does not stay."""
        shaper = Shaper(Shape(keep_trailing=True))
        told = [*shaper.feed(self.events), *shaper.finish("stop")]
        return "".join(event.raw for event in told if isinstance(event, Text))

    @property
    def outcome(self) -> tuple[Any, ...]:
        """What must not depend on the cuts."""
        return (self.text, self.content, self.calls, self.scores, self.dialects, self.broken)


def pieces(text: str, cuts: Iterable[int]) -> Iterator[str]:
    at = 0
    for cut in (*cuts, len(text)):
        yield text[at:cut]
        at = cut


@lru_cache(maxsize=16)
def _readers(tools: ToolSet, model: str, prompted: str | None, options: Options) -> Readers:
    """What one answer after the other is read with: the same answer is, many times."""
    return reader_factory(tools=tools, options=options, model=model, prompted=prompted)


def read(
    parts: str | Sequence[str],
    *,
    tools: ToolSet = AGENT_TOOLS,
    reason: str = "stop",
    model: str = "",
    prompted: str | None = None,
    reasoned: bool = False,
    **options: Any,
) -> Reading:
    """Feed the parts to a reader; the raw text of its events must be the input.

    `reasoned`: the answer has reasoning in a field of its own.
    """
    parts = [parts] if isinstance(parts, str) else list(parts)
    reader = _readers(tools, model, prompted, Options(**options))()
    if reasoned:
        reader.reasoned()
    events: list[Event] = []
    for part in parts:
        events += reader.feed(part)
    events += reader.finish(reason)
    assert "".join(event.raw for event in events) == "".join(parts)
    assert reader.idle
    ends = [event for event in events if isinstance(event, End)]
    return Reading(
        text="".join(event.raw for event in events if isinstance(event, Text)),
        calls=[(event.name, event.arguments) for event in ends],
        scores=[event.verdict.score for event in ends],
        dialects=[event.verdict.dialect for event in ends],
        dropped=[(event.reason, event.raw) for event in events if isinstance(event, Drop)],
        notes=[event.verdict.reasons for event in events if isinstance(event, Note)],
        broken=[event.reason for event in events if isinstance(event, Broken)],
        streamed="".join(event.json for event in events if isinstance(event, Args)),
        events=events,
    )


CUTS = 400
"""At how many places, at most about, an answer is cut."""
APART = 32
"""One reading has cuts so far apart, and others those between: what a cut does is seen by then."""
AT_RANDOM = 5
"""So many readings are cut at places that chance has chosen."""


def read_every_way(text: str, *, splits: int | None = None, **how: Any) -> Reading:
    """Whole, per character, cut at every place, and at random ones: all must agree."""
    whole = read(text, **how)
    step = max(1, len(text) // (splits or CUTS))
    places = range(step, len(text), step)
    readings = min(len(places), -(-APART // step))
    for first in range(readings):
        apart = places[first::readings]
        assert read(list(pieces(text, apart)), **how).outcome == whole.outcome, f"cuts {[*apart]}"
    assert read(list(text), **how).outcome == whole.outcome, "per character"
    rng = random.Random(len(text))
    for _ in range(AT_RANDOM):
        cuts = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randint(1, 40))))
        assert read(list(pieces(text, cuts)), **how).outcome == whole.outcome, f"cuts {cuts}"
    live = {**how, "stream_arguments": "incremental"}
    agrees(text, whole, **live)
    agrees(text, read(text, **{**how, "reasoned": True}), **{**live, "reasoned": True})
    return whole


def agrees(text: str, whole: Reading, **live: Any) -> None:
    """Arguments that flow come to the same, whatever the cuts, unless a call breaks that has begun."""
    streamed = read(text, **live)
    assert read(list(text), **live).outcome == streamed.outcome, "incremental per character"
    if not streamed.broken:
        assert streamed.outcome == whole.outcome, "incremental"
        assert streamed.streamed == "".join(arguments for _, arguments in streamed.calls)
