"""The one equality: however an answer is cut, into chunks and bytes, the client hears what the whole answer says."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import End
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.dialects.rows import BY_ID, TABLE
from strategies.grammar.dialect import Renderer
from strategies.reading.factory import reader_factory
from strategies.writing.renderer import CannotExpress
from tests.support.chat import DONE, answer_body, event, hear_body, hear_stream, prepared, stream, whole
from tests.support.fragments import NOISE as NOISES
from tests.support.fragments import fragments
from tests.support.reading import BOOLEAN, INTEGER, STRING, pieces, tool
from tests.support.reading import read as read_calls

EXAMPLES = [row.example for row in TABLE if row.example]

NOISE = [
    "<",
    "</",
    "`",
    "```\n",
    "\n",
    "\n\n",
    " ",
    "a < b",
    "<read>",
    "</read>",
    "<think>",
    "</think>",
    "{",
    '{"name": ',
    "Größe",
    "\U0001f600",
    "\u2028",
    "\\",
    '"',
    "\x00",
    "> ",
    "for example:\n",
]

FRAGMENTS = st.lists(st.sampled_from([*EXAMPLES, *NOISE]) | st.text(max_size=12), max_size=8).map("".join)

FINISHES = st.sampled_from(["stop", "length", "tool_calls"])


def escaped(text: str, rng: random.Random) -> bytes:
    """The text as a JSON string, some characters as escapes, as servers in other languages write them."""
    out = []
    for char in text:
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        out.append(json.dumps(char)[1:-1] if rng.random() < 0.3 else f"\\u{ord(char):04x}" if char in "<>&" else plain)
    return '"'.join(("", "".join(out), "")).encode()


def cut(text: str, rng: random.Random) -> list[str]:
    at, parts = 0, []
    while at < len(text):
        size = rng.choice((1, 1, 2, 3, 5, 8, 40))
        parts.append(text[at : at + size])
        at += size
    return parts


@given(text=FRAGMENTS, finish=FINISHES, seed=st.integers(0, 1 << 30), first=st.booleans(), wait=st.booleans())
@settings(max_examples=250, deadline=None)
def test_stream_says_what_the_whole_answer_says(text, finish, seed, first, wait):
    rng = random.Random(seed)
    how = prepared(prompted=None, first_only=first, wait=wait)
    expected = hear_body(whole(answer_body(text, finish), how)[0])
    events = [event({"role": "assistant", "content": ""})]
    for part in cut(text, rng):
        mark = "\ufffc\ufffc"
        head, tail = event({"content": mark}).split(json.dumps(mark, ensure_ascii=False).encode())
        events.append(head + escaped(part, rng) + tail)
    events += [event({}, finish), DONE]
    data = b"".join(events)
    pieces = []
    while data:
        size = rng.choice((1, 2, 7, 64, 500, 4000))
        pieces.append(data[:size])
        data = data[size:]
    out, _ = stream(pieces, how)
    heard = hear_stream(out)
    assert heard.done
    assert heard.error is None
    assert heard.meaning == expected.meaning
    if not heard.calls:
        assert out == b"".join(events)
        assert (heard.content or "") == text


@given(text=FRAGMENTS, seed=st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_incremental_stream_is_cut_independent(text, seed):
    rng = random.Random(seed)
    how = prepared(stream_arguments="incremental")
    heard = []
    for parts in ([text] if text else [], cut(text, rng)):
        events = [*(event({"role": "assistant", "content": part}) for part in parts), event({}, "stop"), DONE]
        heard.append(hear_stream(stream(events, how)[0]))
    assert heard[0].meaning == heard[1].meaning
    assert (heard[0].error is None) == (heard[1].error is None)


# --- What the renderers write for hostile arguments is read back as the same call, or refused when it is written


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
    sources = (own, NOISES, fragments())
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


# --- Values that are written as nested tags are read by the schema, however the items of an array are named


STEP = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "minutes": {"type": "integer"},
        "done": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"city": {"type": "string"}, "lat": {"type": "number"}}},
    },
    "required": ["title"],
}

PLAN = Tool(
    name="make_plan",
    parameters={
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "steps": {"type": "array", "items": STEP},
            "first": STEP,
            "sizes": {"type": "array", "items": {"type": "number"}},
            "mode": {"type": "string", "enum": ["fast", "slow"]},
            "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["name"],
    },
)

WORDS = st.text(alphabet="abc 1.,é東&'-", min_size=1, max_size=12).map(str.strip).filter(bool)

NUMBERS = st.integers(-1000, 1000) | st.floats(-100, 100).map(lambda number: round(number, 3))

PLACES = st.fixed_dictionaries({"city": WORDS}, optional={"lat": NUMBERS})

STEPS = st.fixed_dictionaries(
    {"title": WORDS},
    optional={
        "minutes": st.integers(0, 99),
        "done": st.booleans(),
        "labels": st.lists(WORDS, min_size=2, max_size=3),
        "place": PLACES,
    },
)

PLANS = st.fixed_dictionaries(
    {"name": WORDS},
    optional={
        "steps": st.lists(STEPS, min_size=1, max_size=3),
        "first": STEPS,
        "sizes": st.lists(NUMBERS, min_size=1, max_size=3),
        "mode": st.sampled_from(["fast", "slow"]),
        "limits": st.dictionaries(st.sampled_from(["low", "high"]), st.integers(0, 9), min_size=1),
    },
)

ITEM_NAMES: dict[str, Callable[[str], str]] = {
    "item": lambda _key: "item",
    "singular": lambda key: key.removesuffix("s"),
    "same": lambda key: key,
}


def written(key: str, value: Any, style: str, indent: str | None) -> Iterator[str]:
    """The lines of one value; `style` names the items of arrays."""
    deeper = None if indent is None else indent + "  "
    if isinstance(value, list) and style == "repeated":
        for item in value:
            yield from written(key, item, style, indent)
        return
    if isinstance(value, list | dict):
        yield f"{indent or ''}<{key}>"
        members = [(ITEM_NAMES[style](key), item) for item in value] if isinstance(value, list) else value.items()
        for name, item in members:
            yield from written(name, item, style, deeper)
        yield f"{indent or ''}</{key}>"
        return
    text = value if isinstance(value, str) else json.dumps(value)
    yield f"{indent or ''}<{key}>{text}</{key}>"


@given(PLANS, st.sampled_from([*ITEM_NAMES, "repeated"]), st.sampled_from(["", "\n", "\r\n"]))
@settings(max_examples=200, deadline=None)
def test_nested_tags_are_read_by_the_schema(plan: dict[str, Any], style: str, newline: str) -> None:
    indent = "  " if newline else None
    lines = [line for key, value in plan.items() for line in written(key, value, style, indent)]
    found = read_calls(newline.join(["<make_plan>", *lines, "</make_plan>"]), tools=ToolSet([PLAN]))
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == [("make_plan", plan)]
