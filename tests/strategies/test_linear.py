"""Work grows with the answer's length, whatever the answer holds, and is done in turns that do not grow with it.

Counted, not timed: the functions that are called, in Python and in C, and the characters that cursors copy.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from gateway.core.events import End, Event
from gateway.core.limits import Limits
from gateway.core.tools import Tool, ToolSet
from gateway.wire.json_scan import JsonScanner
from strategies.base import Options
from strategies.dialects.rows import BY_ID
from strategies.reading.factory import reader_factory
from strategies.reading.reader import Reader
from strategies.text.cursor import Cursor
from tests.bench.linear import FILLER, grown
from tests.support.cost import steps
from tests.support.reading import AGENT_TOOLS, tool

pytestmark = pytest.mark.cost

MOST = 1.2
"""How much more a character may cost in a longer answer."""
SIZE, TIMES = 1_700, 4
"""A square is as much to be seen as at 6,000 characters and twice as many."""
COPIED = 64
"""How many copied characters cost as much as a call."""
TOO_MANY = 100_000_000
PIECE = 7
"""Characters per piece where the answer comes as a stream."""

OPEN = "<write>\n<filePath>a</filePath>\n<content>\n"
BODY = "x = [1, 2]  # done\n"
ANSWERS: dict[str, Callable[[int], str]] = {
    "prose": lambda size: "Some words of prose, and more of them.\n" * (size // 39),
    "prose full of brackets": lambda size: "a < b <c> </d> <e/> << " * (size // 23),
    "prose full of backticks": lambda size: "`a` ``b`` ` ``` x` " * (size // 19),
    "prose full of openers": lambda size: "<read> <tool_call> <bash <function= <invoke name= {\n[\n" * (size // 55),
    "openers behind a lone backtick": lambda size: "` " + "<read> `` <write>" * (size // 17),
    "openers at line starts": lambda size: '<read>\n<tool_call>\n{"name\n<bash>\nread\n' * (size // 38),
    "one character": lambda size: "<" * size,
    "braces": lambda size: "{" * size,
    "brackets at line starts": lambda size: "[\n" * (size // 2),
    "blank lines": lambda size: "\n" * size,
    "spaces": lambda size: "a" + " " * size,
    "backticks": lambda size: "`" * size,
    "tildes at line starts": lambda size: "~~~\n" * (size // 4),
    "a call": lambda size: OPEN + BODY * (size // 19) + "</content>\n</write>",
    "a call that never ends": lambda size: OPEN + BODY * (size // 19),
    "a document full of brackets that never ends": lambda size: OPEN + "<i>a</i> < </" * (size // 13),
    "a document full of its own closers": lambda size: OPEN + "</content> x " * (size // 13) + "</content></write>",
    "a document full of provisional ends": lambda size: OPEN + "</content></write> x\n" * (size // 21),
    "a document full of calls": lambda size: (
        OPEN + "<write><filePath>b</filePath><content>c</content></write>\n" * (size // 58) + "</content></write>"
    ),
    "a document full of nested openers": lambda size: OPEN + "<write><filePath>" * (size // 17),
    "a document of closing brackets": lambda size: OPEN + "<![CDATA[" + "]]> " * (size // 4),
    "a long attribute": lambda size: '<read filePath="' + "a" * size,
    "a long list of lines": lambda size: "<write>\n" + "filePath: a\n" * (size // 12),
    "a block of lines": lambda size: (
        "<write>\nfilePath: a\ncontent: |\n" + "  x </write> y\n" * (size // 15) + "</write>"
    ),
    "hermes": lambda size: (
        '<tool_call>\n{"name": "write", "arguments": {"filePath": "a", "content": "' + "abc " * (size // 4) + '"}}\n'
    ),
    "hermes that never ends": lambda size: (
        '<tool_call>\n{"name": "write", "arguments": {"content": "' + "ab\\n" * (size // 4)
    ),
    "hermes in pieces": lambda size: '<tool_call>\n{"name": "read", "arguments": {"filePath": "a"}}\n' * (size // 64),
    "hermes broken": lambda size: "<tool_call>\n{'name': 'read', \"x\n</tool_call>\n" * (size // 44),
    "hermes opened again and again": lambda size: '<tool_call>{"a": "' * (size // 18),
    "calls": lambda size: "<read>\n<filePath>a</filePath>\n</read>\n" * (size // 38),
    "refused calls": lambda size: "<read>\n<filePath>a</filePath>\n<limit>x</limit>\n</read>\n" * (size // 55),
    "calls without closers": lambda size: "<read>\n<filePath>a\n" * (size // 19),
    "documents whose calls have no closers": lambda size: (
        "<function=write><parameter=filePath>a</parameter><parameter=content>b</parameter>" * (size // 82)
    ),
    "lines that prefix calls": lambda size: "read\n<filePath>a</filePath>\n" * (size // 28),
    "fences": lambda size: "```xml\n<read>\n<filePath>a</filePath>\n</read>\n```\n" * (size // 50),
    "an open fence": lambda size: "```xml\n<read>\n<filePath>a</filePath>\n</read>\n" * (size // 46),
    "a fence of short lines": lambda size: "```py\n" + "x\n" * (size // 2),
    "fences of nothing": lambda size: "```\n```\n" * (size // 8),
    "inline code that never ends": lambda size: "` x. <read><filePath>a</filePath></read> " * (size // 41),
    "a lone backtick before a long paragraph": lambda size: (
        "` x.\n<read>\n<filePath>a</filePath>\n" + "b c\n" * (size // 4)
    ),
    "a call behind a refused document": lambda size: (
        OPEN + "` x <i>\n" * (size // 8) + "</content>\n</other>\n<read>\n<filePath>a</filePath>\n</read>"
    ),
    "a fence of spaces": lambda size: "```\n" + " " * size,
    "drafts in reasoning that began in the prompt": lambda size: (
        ("<read>\n<filePath>a</filePath>\n</read>\nNo.\n" * (size // 44)) + "</think>Done."
    ),
    "a draft and reasoning that is opened and closed": lambda size: (
        "<read>\n<filePath>a</filePath>\n</read>\n" + "a <think> b </think> c\n" * (size // 23)
    ),
    "a draft and an invented result without end": lambda size: (
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "a"}}\n</tool_call>\n<tool_response>\n'
        + "a <think> b </think> c\n" * (size // 23)
    ),
    "a draft and an open fence": lambda size: (
        "<read>\n<filePath>a</filePath>\n</read>\n```py\n" + "a <think> b </think> c\n" * (size // 23)
    ),
    "reasoning": lambda size: "<think>\n" + "<tool_call>\n{ not yet\n" * (size // 22),
    "reasoning with drafts": lambda size: (
        "<think>\n" + '<tool_call>\n{"name": "read", "arguments": {"filePath": "a"}}\n</tool_call>\n' * (size // 76)
    ),
}


@contextmanager
def copies() -> Iterator[list[int]]:
    """How many characters the cursors' windows held whenever more came."""
    push = Cursor.push
    found = [0]

    def counting(cursor: Cursor, text: str) -> None:
        push(cursor, text)
        found[0] += len(cursor.text)

    Cursor.push = counting  # type: ignore[method-assign,assignment]
    try:
        yield found
    finally:
        Cursor.push = push  # type: ignore[method-assign]


def counted(work: Callable[[], object]) -> float:
    """What it costs."""
    with copies() as copied:
        calls = steps(work, most=TOO_MANY)
    return calls + copied[0] / COPIED


def feed(reader: Any, text: str, piece: int) -> None:
    for at in range(0, len(text), piece):
        reader.feed(text[at : at + piece])


def cost(text: str, piece: int, options: Options) -> float:
    """What reading the answer costs."""
    reader = reader_factory(tools=AGENT_TOOLS, options=options, model="m", prompted=None)()

    def reading() -> None:
        feed(reader, text, piece)
        reader.finish("stop")

    return counted(reading)


def assert_linear(make: Callable[[int], str], piece: int, options: Options) -> None:
    """Four times the text costs about four times as much; what may be read again, up to a bound, is longer at first."""
    size, growth = SIZE, 0.0
    for _ in range(4):
        once, more = (cost(make(times * size), piece, options) for times in (1, TIMES))
        growth = more / once / TIMES
        if growth <= MOST:
            return
        size *= 3
    pytest.fail(f"a character costs {growth:.2f} times as much at {size} characters")


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_streamed_answer_is_read_in_linear_time(answer: str) -> None:
    assert_linear(ANSWERS[answer], PIECE, Options())


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_whole_answer_is_read_in_linear_time(answer: str) -> None:
    assert_linear(ANSWERS[answer], 1 << 30, Options())


@pytest.mark.parametrize("answer", [name for name in ANSWERS if name.startswith("a ")])
def test_arguments_that_flow_are_read_in_linear_time(answer: str) -> None:
    assert_linear(ANSWERS[answer], PIECE, Options(stream_arguments="incremental"))


def costs_to_its_end(dialect: str, size: int, piece: int = 256) -> Iterator[float]:
    """What reading a call costs that is closed, that stays open, and that is cut; until there it is counted once."""
    closed, opened = grown(BY_ID[dialect], size) or ("", "")
    same = len(opened) // piece * piece
    factory = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=dialect)
    so_far: float | None = None
    for text, reason in ((closed, "stop"), (opened, "stop"), (opened, "length")):
        assert text.startswith(opened[:same])
        reader = factory()
        if so_far is None:
            so_far = counted(partial(feed, reader, text[:same], piece))
        else:
            feed(reader, text[:same], piece)
        yield so_far + counted(partial(feed, reader, text[same:], piece)) + counted(partial(reader.finish, reason))


@pytest.mark.parametrize("dialect", [name for name, row in BY_ID.items() if grown(row, 100)])
def test_a_character_of_a_long_call_costs_what_it_costs_in_a_short_one(dialect: str) -> None:
    short, long = 1 << 15, 1 << 18
    for state, once, more in zip(
        ("closed", "open", "cut"), costs_to_its_end(dialect, short), costs_to_its_end(dialect, long), strict=True
    ):
        assert more / long <= MOST * once / short, state


MOST_IN_A_TURN = 30_000
"""Calls of functions: some five milliseconds."""


@pytest.mark.parametrize("body", ["x = 1; ", "``` ", "</", "<a>", "a\n", "<tool>", "` <read_file>"])
@pytest.mark.parametrize("dialect", ["hermes", "qwen3_coder", "ds_v3", "generic_xml", "pythonic"])
def test_no_turn_at_the_end_of_an_answer_grows_with_it(dialect: str, body: str) -> None:
    _, opened = grown(BY_ID[dialect], 100) or ("", "")
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=dialect)()
    assert isinstance(reader, Reader)
    for part in (opened, *[body * (4096 // len(body))] * 16):
        reader.step(part)
        while reader.busy:
            reader.step()
    steps(lambda: reader.step(reason="stop"), most=MOST_IN_A_TURN)
    while reader.busy:
        steps(reader.step, most=MOST_IN_A_TURN)


def turns(dialect: str, text: str, messages: Sequence[Mapping[str, Any]] = ()) -> Iterator[Callable[[], object]]:
    """Reading an answer, turn by turn; each is done before the next one is asked for."""
    limits = Limits(max_call_bytes=1 << 22)
    options = Options(limits=limits)
    reader = reader_factory(tools=AGENT_TOOLS, options=options, model="m", prompted=dialect, messages=messages)()
    assert isinstance(reader, Reader)
    for at in range(0, len(text), 1 << 14):
        yield partial(reader.step, text[at : at + (1 << 14)])
        while reader.busy:
            yield reader.step
    yield partial(reader.step, reason="stop")
    while reader.busy:
        yield reader.step


def worded(size: int) -> str:
    """Words of which none stands twice."""
    return " ".join(f"w{number:x}_" for number in range(size // 7))


BROKEN = {
    "a list in single quotes and a stray sign": "['" + "a', '" * 20_000 + "' ?]",
    "a list that never ends": "['" + "a', '" * 20_000,
    "a text of lone quotes": '"' + ' "x" y' * 15_000 + '"',
    "a text that was never escaped": '"' + r"\d+ \n \w" * 10_000 + '"',
    "a text of escapes in single quotes": "'" + r"\x41\n\u00e9\r\n" * 6_000 + "'",
    "a text of octal escapes in single quotes": "'" + r"\777\0" * 15_000 + "'",
    "paths": '"' + r"C:\new\Users " * 8_000 + '"',
    "members without quotes and a stray sign": "{" + "".join(f"k{number}: '1', " for number in range(8_000)) + "?}",
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("dialect", ["hermes", "ds_v3", "json_fence", "pythonic", "react"])
def test_no_turn_grows_with_a_broken_value(dialect: str, broken: str) -> None:
    closed, _ = grown(BY_ID[dialect], 100) or ("", "")
    head, tail = closed.split((FILLER * 9)[:100].rstrip())
    for work in turns(dialect, head[:-1] + BROKEN[broken] + tail[1:]):
        steps(work, most=MOST_IN_A_TURN)


@pytest.mark.parametrize("dialect", ["hermes", "generic_xml", "pythonic"])
def test_no_turn_grows_with_what_a_call_is_compared_with(dialect: str) -> None:
    words = worded(1 << 18)
    closed, _ = grown(BY_ID[dialect], 100) or ("", "")
    text = closed.replace((FILLER * 9)[:100].rstrip(), words)
    sent = [{"role": "tool", "content": f'{words} &lt; "\\n" > x\n' * 2 + text}]
    for work in turns(dialect, text, sent):
        steps(work, most=MOST_IN_A_TURN)


MANY: dict[str, Callable[[str], str]] = {
    "hermes": '<tool_call>\n{{"name": "save", "arguments": {{"items": {}}}}}\n</tool_call>'.format,
    "ds_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>save<｜tool▁sep｜>{{"items": {}}}<｜tool▁call▁end｜>'.format,
}
ITEM = {"type": "object", "properties": {"id": {"type": "string"}, "rank": {"type": "integer"}}, "required": ["id"]}


OF_TAGS = ("<save>\n<items>\n", "</items>\n</save>")
OF_FUNCTION = ("<tool_call>\n<function=save>\n<parameter=items>\n", "</parameter>\n</function>\n</tool_call>")
IN_TAGS = "".join(f"<item><id>i{number}</id><rank>{number}</rank></item>\n" for number in range(1_200))


@pytest.mark.parametrize(("opener", "closer"), [OF_TAGS, OF_FUNCTION], ids=["tags", "function"])
def test_no_turn_grows_with_the_number_of_child_tags(opener: str, closer: str) -> None:
    save = tool("save", "items", items={"type": "array", "items": ITEM})
    reader = reader_factory(tools=ToolSet([save]), options=Options(), model="m", prompted=None)()
    assert isinstance(reader, Reader)
    events: list[object] = []
    for work in (partial(reader.step, opener + IN_TAGS + closer), partial(reader.step, reason="stop")):
        steps(lambda work=work: events.extend(work()), most=MOST_IN_A_TURN)  # type: ignore[misc]
        while reader.busy:
            steps(lambda: events.extend(reader.step()), most=MOST_IN_A_TURN)
    assert [event.name for event in events if isinstance(event, End)] == ["save"]


REPEATED: dict[str, str] = {
    "generic_xml": "<save>\n{}</save>|<items>v{}</items>\n",
    "qwen3_coder": "<tool_call>\n<function=save>\n{}</function>\n</tool_call>|<parameter=items>\nv{}\n</parameter>\n",
}


@pytest.mark.parametrize("dialect", REPEATED)
def test_a_parameter_costs_the_same_however_often_it_is_given(dialect: str) -> None:
    save = tool("save", "items", items={"type": "array", "items": {"type": "string"}})
    call, _, one = REPEATED[dialect].partition("|")

    def told(count: int) -> float:
        reader = reader_factory(tools=ToolSet([save]), options=Options(), model="m", prompted=dialect)()
        text = call.format("".join(one.format(number) for number in range(count)))
        events: list[object] = []
        work = steps(lambda: events.extend([*reader.feed(text), *reader.finish("stop")]), most=TOO_MANY)
        values = [json.loads(event.arguments)["items"] for event in events if isinstance(event, End)]
        assert values == [[f"v{number}" for number in range(count)]]
        return work / count

    assert told(400) < MOST * told(100)


@pytest.mark.parametrize("dialect", MANY)
def test_no_turn_grows_much_with_the_number_of_values(dialect: str) -> None:
    save = tool("save", "items", items={"type": "array", "items": ITEM})
    value = json.dumps([{"id": f"i{number}", "rank": number} for number in range(1_200)])
    reader = reader_factory(tools=ToolSet([save]), options=Options(), model="m", prompted=dialect)()
    assert isinstance(reader, Reader)
    events: list[object] = []
    text = MANY[dialect](value)
    for work in (partial(reader.step, text), partial(reader.step, reason="stop")):
        steps(lambda work=work: events.extend(work()), most=MOST_IN_A_TURN)  # type: ignore[misc]
        while reader.busy:
            steps(lambda: events.extend(reader.step()), most=MOST_IN_A_TURN)
    assert [event.name for event in events if isinstance(event, End)] == ["save"]


NAMED: dict[str, Callable[[str], str]] = {
    "hermes": '<tool_call>\n{{"name": "save", "arguments": {}}}\n</tool_call>'.format,
    "ds_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>save<｜tool▁sep｜>{}<｜tool▁call▁end｜>".format,
}


def read_evenly(dialect: str, save: Tool, text: str) -> list[Event]:
    """What the answer says; no turn of reading it costs too much."""
    reader = reader_factory(tools=ToolSet([save]), options=Options(), model="m", prompted=dialect)()
    assert isinstance(reader, Reader)
    events: list[Event] = []
    for work in (partial(reader.step, text), partial(reader.step, reason="stop")):
        steps(lambda work=work: events.extend(work()), most=MOST_IN_A_TURN)  # type: ignore[misc]
        while reader.busy:
            steps(lambda: events.extend(reader.step()), most=MOST_IN_A_TURN)
    return events


@pytest.mark.parametrize("dialect", NAMED)
def test_no_turn_grows_with_the_number_of_unknown_arguments(dialect: str) -> None:
    given = {"items": "a", **{f"argument_{number}": "v" for number in range(4_000)}}
    text = NAMED[dialect](json.dumps(given))
    events = read_evenly(dialect, tool("save", "items", items={"type": "string"}), text)
    assert "".join(event.raw for event in events) == text
    assert not any(isinstance(event, End) for event in events)


MAPPINGS = {
    "a mapping": ("items:\n" + "".join(f"  key_{number}: value {number}\n" for number in range(3_000)), 3_000),
    "a list": ("items:\n" + "".join(f"  - value {number}\n" for number in range(3_000)), 3_000),
    "a block": ("items: |\n" + "  value\n" * 12_000, 72_000),
    "a folded block": ("items: >\n" + "  value\n" * 12_000, 72_000),
    "a plain text": ("items: a\n" + "  value\n" * 12_000, 72_001),
    "a text of escapes": ('items: "' + "value\\n" * 12_000 + '"\n', 72_000),
    "empty lines": ("items: a\n" + "\n" * 20_000, 1),
}


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_no_turn_grows_with_a_mapping_of_yaml(mapping: str) -> None:
    text, size = MAPPINGS[mapping]
    events = read_evenly("generic_xml", tool("save", "items", items={}), f"<save>\n{text}</save>")
    (found,) = [json.loads(event.arguments)["items"] for event in events if isinstance(event, End)]
    assert len(found) == size


@pytest.mark.parametrize("dialect", MANY)
def test_no_turn_grows_with_the_number_of_values_that_are_converted(dialect: str) -> None:
    save = tool("save", "items", items={"type": "array", "items": ITEM})
    value = json.dumps([{"id": f"i{number}", "rank": str(number)} for number in range(2_000)])
    events = read_evenly(dialect, save, MANY[dialect](value))
    (found,) = [json.loads(event.arguments)["items"] for event in events if isinstance(event, End)]
    assert [item["rank"] for item in found] == list(range(2_000))


LONGEST = 5
"""How many times as long as it takes to find the end of a JSON value of the same size a turn may be."""


def seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def longest(dialect: str, text: str) -> float:
    """The longest turn; each at its best, as others use the processor's caches."""
    runs: list[list[float]] = [[seconds(work) for work in turns(dialect, text)] for _ in range(3)]
    best: list[float] = [min(times) for times in zip(*runs, strict=True)]
    return max(best)


@pytest.mark.parametrize("state", ["closed", "open"])
@pytest.mark.parametrize("dialect", ["hermes", "ds_v3", "mistral", "json_fence", "pythonic", "gemma4", "generic_xml"])
def test_no_turn_goes_over_a_long_call_many_times(dialect: str, state: str) -> None:
    closed, opened = grown(BY_ID[dialect], 1 << 20) or ("", "")
    text = closed if state == "closed" else opened
    value = '{"a":"' + FILLER * ((1 << 20) // len(FILLER)) + '"}'
    once = min(seconds(lambda: JsonScanner().feed(value)) for _ in range(5))
    assert longest(dialect, text) <= LONGEST * once


@pytest.mark.parametrize("unit", ["<tool>", "<read> "])
def test_what_opens_nothing_again_and_again_is_hardly_looked_at(unit: str) -> None:
    text = unit * (12_000 // len(unit))
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m", prompted=None)()
    assert steps(lambda: [reader.feed(text), reader.finish("stop")], most=20 * len(text))
