"""What the renderers write for hostile arguments is read back as the same call, or refused when it is written."""

import json
import random
from typing import Any

import pytest

from gateway.core.events import End
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.dialects.rows import BY_ID
from strategies.grammar.dialect import Renderer
from strategies.reading.factory import reader_factory
from strategies.writing.renderer import CannotExpress
from tests.support.fragments import NOISE, fragments
from tests.support.reading import BOOLEAN, INTEGER, STRING, pieces, tool

CALLS = 2_000
WRITTEN = 0.35
"""The least share of calls that must be expressible, hostile as they are."""
NESTED = {
    "type": "object",
    "properties": {
        "login": STRING,
        "active": BOOLEAN,
        "marks": {"type": "array", "items": INTEGER},
        "inner": {"type": "object", "properties": {"note": STRING}},
    },
}
TOOLS = ToolSet(
    [
        tool("write", "filePath", "content", overwrite=BOOLEAN),
        tool("edit", "filePath", "oldString", "newString", replaceAll=BOOLEAN),
        tool("bash", "command", timeout=INTEGER, description=STRING),
        tool(
            "plan_work",
            "title",
            owner=NESTED,
            steps={"type": "array", "items": NESTED},
            labels={"type": "array", "items": STRING},
            share={"type": "number"},
            note={"type": ["string", "null"]},
            anything={},
        ),
        tool("todoread"),
    ]
)
RENDERERS = {row.id: row.renderer for row in BY_ID.values() if row.id in ("generic_xml", "hermes") and row.renderer}


def text(rng: random.Random) -> str:
    """A string as hostile as a file can be."""
    kind = rng.random()
    if kind < 0.1:
        return ""
    if kind < 0.3:
        return rng.choice(("plain", "/srv/a b.txt", "007", "true", "null", "1e9", "{}", "[1]", '"x"', " padded ", "\n"))
    if kind < 0.5:
        return "".join(
            chr(rng.choice((*range(32, 127), 0xE9, 0x1F9EA, 0x2028, 9, 10, 13))) for _ in range(rng.randint(0, 30))
        )
    own = (
        "</content>",
        "</write>",
        "<write>",
        "</command>",
        "</bash>",
        "</tool_call>",
        "]]>",
        "<filePath>",
        "\r\n",
        "\n",
    )
    sources = (own, NOISE, fragments())
    drawn = (rng.choice(rng.choice(sources)) for _ in range(rng.randint(1, 6)))
    return "".join(drawn).encode("utf-8", "ignore").decode()


def value(rng: random.Random, schema: Any, depth: int = 0) -> Any:
    """A value that fits the schema."""
    kinds = schema.get("type", rng.choice(("string", "integer", "array")))
    kind = rng.choice(kinds) if isinstance(kinds, list) else kinds
    match kind:
        case "object":
            named = schema.get("properties") or {"key": STRING}
            return {name: value(rng, inner, depth + 1) for name, inner in named.items() if rng.random() < 0.7}
        case "array":
            item = schema.get("items", STRING)
            return [value(rng, item, depth + 1) for _ in range(rng.randint(0, 3))]
        case "integer":
            return rng.choice((0, -1, 7, 10**15, rng.randint(-(10**9), 10**9)))
        case "number":
            return rng.choice((0.5, -2.25, 1e300, 3, 10**20))
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            return text(rng)


def arguments_for(rng: random.Random, made: Tool) -> dict[str, Any]:
    named = made.parameters["properties"]
    required = made.parameters["required"]
    keys = [key for key in named if key in required or rng.random() < 0.5]
    rng.shuffle(keys)
    return {key: value(rng, named[key]) for key in keys}


def read(rng: random.Random, answer: str, dialect: str) -> list[tuple[str, str]]:
    reader = reader_factory(tools=TOOLS, options=Options(), model="m", prompted=dialect)()
    cuts = sorted(rng.sample(range(len(answer) + 1), min(3, len(answer))))
    events = [event for part in pieces(answer, cuts) for event in reader.feed(part)]
    events += reader.finish("stop")
    return [(event.name, event.arguments) for event in events if isinstance(event, End)]


@pytest.mark.parametrize("renderer", RENDERERS.values(), ids=RENDERERS)
def test_every_call_that_can_be_written_is_read_back(renderer: Renderer) -> None:
    written = 0
    for number in range(CALLS):
        rng = random.Random(number)
        made = rng.choice(list(TOOLS))
        arguments = arguments_for(rng, made)
        try:
            rendered = renderer.call(made.name, arguments, made)
        except CannotExpress:
            continue
        written += 1
        answer = rng.choice(("", "I will.\n\n")) + rendered + rng.choice(("", "\n"))
        found = [(name, json.loads(given)) for name, given in read(rng, answer, renderer.id)]
        assert found == [(made.name, arguments)], (number, answer)
    assert written > WRITTEN * CALLS


@pytest.mark.parametrize("renderer", RENDERERS.values(), ids=RENDERERS)
def test_calls_in_a_row_are_read_back_in_order(renderer: Renderer) -> None:
    for number in range(CALLS // 4):
        rng = random.Random(-number)
        wanted, rendered = [], []
        for made in rng.choices(list(TOOLS), k=rng.randint(2, 4)):
            arguments = arguments_for(rng, made)
            try:
                rendered.append(renderer.call(made.name, arguments, made))
            except CannotExpress:
                continue
            wanted.append((made.name, arguments))
        found = [(name, json.loads(given)) for name, given in read(rng, renderer.calls(rendered), renderer.id)]
        assert found == wanted, (number, renderer.calls(rendered))
