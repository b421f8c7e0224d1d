"""The promises: however an answer is cut, into chunks and bytes, the client hears what the whole answer says; a call
that one answer brings in several forms (text, `tool_calls`, `function_call`) is given once, in any order; and the
reader's own, over texts that Hypothesis grows from the markup of every dialect.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import Args, Broken, End, Event, Start, Text
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.dialects.rows import BY_ID, TABLE
from strategies.grammar.dialect import Renderer
from strategies.reading.factory import reader_factory
from strategies.writing.renderer import CannotExpress
from tests.support.chat import (
    DONE,
    HEAD,
    answer_body,
    chunks_of,
    event,
    hear_body,
    hear_stream,
    prepared,
    stream,
    whole,
)
from tests.support.fragments import (
    KEYS,
    NAMES,
    VALUES,
    Way,
    check,
    events_of,
    examples,
    fragments,
    story,
    ways,
)
from tests.support.fragments import (
    NOISE as NOISES,
)
from tests.support.reading import APART, BOOLEAN, INTEGER, STRING, pieces, tool
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


ORDERS = 600
A, B = ("read", '{"filePath":"/a.py"}'), ("glob", '{"pattern":"*"}')
FORMS = {
    A: "<read>\n<filePath>/a.py</filePath>\n</read>",
    B: "<glob>\n<pattern>*</pattern>\n</glob>",
}
SPACED = {A: '{ "filePath": "/a.py" }', B: '{"pattern": "\\u002a"}'}


class Answer:
    """An answer in which calls come in some forms, whole and in events of a random order."""

    def __init__(self, seed: int, *, repeats: bool, behind: str = "") -> None:
        rng = random.Random(seed)
        forms = {form: rng.sample((A, B), rng.randint(0, 2)) for form in ("text", "native")}
        forms["legacy"] = rng.sample((A, B), rng.randint(0, 1))
        if not repeats:
            forms["native"] = [call for call in forms["native"] if call not in forms["text"]]
            forms["legacy"] = [call for call in forms["legacy"] if call not in forms["text"] + forms["native"]]
        words = rng.choice(("", "Let me look.\n", "Well\n\n"))
        self.content = words + "\n".join(FORMS[call] for call in forms["text"]) + rng.choice(("", "\n", "\nDone."))
        self.content += behind
        self.native = [_native(at, call, rng) for at, call in enumerate(forms["native"])]
        self.legacy = [
            {"name": name, "arguments": rng.choice((told, SPACED[name, told]))} for name, told in forms["legacy"]
        ]
        lines = [
            [{"content": piece} for piece in _cut(self.content, rng)],
            [{"tool_calls": [delta]} for call in self.native for delta in _deltas(call, rng)],
            [{"function_call": delta} for call in self.legacy for delta in _pieces(call, rng)],
        ]
        self.reason = rng.choice(("stop", "tool_calls", "function_call"))
        self.events = list(_woven(lines, rng))
        last_text = max((at for at, delta in enumerate(self.events) if "content" in delta), default=-1)
        self.finish_at = rng.randint(last_text + 1, len(self.events)) if rng.random() < 0.5 else len(self.events)
        self.said = {call for calls in forms.values() for call in calls}

    @property
    def streamed(self) -> list[bytes]:
        sent = [event(delta) for delta in self.events]
        end = [event({}, self.reason)]
        if self.is_short:
            end = [event(self.events[-1], self.reason)]
            sent.pop()
        return [event({"role": "assistant"}), *sent[: self.finish_at], *end, *sent[self.finish_at :], DONE]

    @property
    def is_short(self) -> bool:
        """The last event brings the finish, too."""
        return bool(self.events) and self.finish_at == len(self.events) and len(self.events) % 3 == 0

    @property
    def body(self) -> bytes:
        message: dict[str, object] = {"role": "assistant", "content": self.content or None}
        if self.native:
            message["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"} for call in self.native
            ]
        if self.legacy:
            message["function_call"] = self.legacy[0]
        return json.dumps(
            {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": self.reason}]}
        ).encode()


def _native(at, call, rng):
    arguments = rng.choice((call[1], SPACED[call]))
    return {"index": at, "id": f"n{at}", "type": "function", "function": {"name": call[0], "arguments": arguments}}


def _deltas(call, rng):
    if rng.random() < 0.4:
        return [call]
    arguments = call["function"]["arguments"]
    cut = rng.randint(0, len(arguments))
    first = {**call, "function": {**call["function"], "arguments": arguments[:cut]}}
    return [first, {"index": call["index"], "function": {"arguments": arguments[cut:]}}]


def _pieces(call, rng):
    cut = rng.randint(0, len(call["arguments"]))
    return rng.choice(
        ([call], [{**call, "arguments": call["arguments"][:cut]}, {"arguments": call["arguments"][cut:]}])
    )


def _cut(text, rng):
    pieces = []
    while text:
        size = rng.choice((3, 9, 30, 200))
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def _woven(lines, rng):
    """One event of one line after the other, each line in its own order; now and then two of them in one event."""
    lines = [line[:] for line in lines if line]
    while lines:
        line = rng.choice(lines)
        delta = dict(line.pop(0))
        other = rng.choice(lines)
        if other is not line and other and rng.random() < 0.2:
            delta.update(other.pop(0))
        lines = [left for left in lines if left]
        yield delta


def _canonical(calls):
    return sorted((name, json.dumps(json.loads(arguments))) for name, arguments in calls)


def heard_in(out):
    """The calls that a client gets, whatever it does with a finish reason, and whether their indexes are in order."""
    calls: list[list[str]] = []
    legacy, finishes = ["", ""], []
    for chunk in chunks_of(out):
        for choice in chunk["choices"] if chunk else ():
            delta = choice["delta"]
            for call in delta.get("tool_calls") or ():
                if call["index"] == len(calls):
                    calls.append([call["function"]["name"], "", call["id"]])
                assert call["index"] < len(calls)
                assert call.get("id", calls[call["index"]][2]) == calls[call["index"]][2]
                calls[call["index"]][1] += call["function"].get("arguments") or ""
            if piece := delta.get("function_call"):
                legacy = [legacy[0] + (piece.get("name") or ""), legacy[1] + (piece.get("arguments") or "")]
            finishes += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert len({call[2] for call in calls}) == len(calls)
    return _canonical([(name, told) for name, told, _ in calls] + ([legacy] if legacy[0] else [])), finishes


def of_message(body):
    choice = json.loads(body)["choices"][0]
    message = choice["message"]
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    functions += [message["function_call"]] if message.get("function_call") else []
    return _canonical((function["name"], function["arguments"]) for function in functions), [choice["finish_reason"]]


def pieces_of(data, seed):
    rng = random.Random(seed)
    while data:
        size = rng.choice((40, 300, 3000))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("wait", [False, True], ids=["xml_prompt", "recovery"])
@pytest.mark.parametrize("arguments", ["buffered", "incremental"])
def test_no_call_is_given_twice_and_streamed_is_whole(wait, arguments):
    how = prepared(wait=wait, stream_arguments=arguments)
    for seed in range(ORDERS):
        answer = Answer(seed, repeats=True)
        out, exchange = stream(pieces_of(b"".join(answer.streamed), seed), how)
        (streamed, finishes), (told, reasons) = heard_in(out), of_message(whole(answer.body, how)[0])
        assert streamed == told, (seed, answer.events)
        assert len({tuple(call) for call in streamed}) == len(streamed), (seed, answer.events)
        assert exchange.facts.failure is None
        if not wait:
            assert set(streamed) == set(_canonical(answer.said)), (seed, answer.events)
        if answer.finish_at == len(answer.events):
            assert finishes == reasons, (seed, answer.events)


@pytest.mark.parametrize("wait", [False, True], ids=["xml_prompt", "recovery"])
def test_calls_that_differ_are_all_given(wait):
    how = prepared(wait=wait)
    for seed in range(ORDERS):
        answer = Answer(seed, repeats=False)
        out, exchange = stream(answer.streamed, how)
        streamed, told = heard_in(out)[0], of_message(whole(answer.body, how)[0])[0]
        assert streamed == told, (seed, answer.events)
        assert "call_repeated" not in exchange.facts.mended
        assert "repeated" not in exchange.facts.dropped


def test_structured_calls_alone_go_through_as_they_came():
    how = prepared(wait=True)
    for seed in range(ORDERS):
        answer = Answer(seed, repeats=False)
        is_plain = "<" not in answer.content and answer.finish_at == len(answer.events)
        if is_plain and answer.reason == ("tool_calls" if answer.native else "function_call"):
            data = b"".join(answer.streamed)
            assert stream([data], how)[0] == data
            assert whole(answer.body, how)[0] == answer.body


PIECE = (
    st.sampled_from(fragments())
    | st.sampled_from(NOISES)
    | st.sampled_from((*NAMES, *KEYS, *VALUES))
    | st.sampled_from(examples())
    | st.text(max_size=6)
)
ANSWER = st.lists(PIECE, max_size=16).map("".join)
WAY = st.sampled_from(ways())
CUTS = st.lists(st.integers(0, 400), max_size=12)
CONFIGURED = settings(max_examples=400, deadline=None)


def cut_at(text: str, places: list[int]) -> list[str]:
    return list(pieces(text, sorted(place for place in places if place <= len(text))))


@given(ANSWER, WAY, CUTS)
@CONFIGURED
def test_reading_never_depends_on_the_cuts_and_loses_nothing(text: str, way: Way, places: list[int]) -> None:
    check(text, way, sorted(place for place in places if place <= len(text)))


@given(ANSWER, WAY)
@CONFIGURED
def test_reading_character_by_character_is_reading_whole(text: str, way: Way) -> None:
    check(text, way, range(1, len(text)))


@given(ANSWER, ANSWER, ANSWER, WAY)
@CONFIGURED
def test_what_was_said_stands_whatever_comes_next(text: str, one: str, other: str, way: Way) -> None:
    def said(tail: str) -> tuple[list[tuple[str, str]], list[Event]]:
        events, counts = events_of(way, [text, tail])
        return story(events[: counts[0]]), events

    first, events = said(one)
    assert "".join(event.raw for event in events) == text + one
    assert said(other)[0] == first


@given(ANSWER, WAY)
@CONFIGURED
def test_every_call_that_starts_ends_or_breaks_once(text: str, way: Way) -> None:
    events, _ = events_of(way, [text])
    state = "text"
    for told in events:
        if isinstance(told, Start):
            assert state == "text"
            state = "call"
        elif isinstance(told, Args):
            assert state == "call"
        elif isinstance(told, End | Broken):
            assert state == "call"
            state = "text"
        elif isinstance(told, Text):
            assert state == "text"
    assert state == "text"


@given(st.text(max_size=200), WAY, CUTS)
@CONFIGURED
def test_any_text_at_all_comes_back(text: str, way: Way, places: list[int]) -> None:
    events, _ = events_of(way, cut_at(text, places))
    assert "".join(event.raw for event in events) == text


@pytest.mark.parametrize("example", examples())
def test_every_example_of_the_table_survives_every_cut(example: str) -> None:
    for way in ways()[-3:]:
        for first in range(1, min(APART, len(example))):
            check(example, way, range(first, len(example), APART))
