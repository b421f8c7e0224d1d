"""The reader at its edges: what it holds, and calls in fences that something follows."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.events import End, Text
from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.dialects.rows import TABLE
from strategies.reading.factory import reader_factory
from strategies.reading.reader import Reader
from strategies.schema.tool_schema import schema_of
from strategies.text.dumping import dumps
from strategies.text.python_text import read_calls
from strategies.text.strict_json import loads_strict
from strategies.text.tolerant_json import parse
from tests.support.reading import AGENT_TOOLS, read, read_every_way, tool

CALL = '<longcat_tool_call>{"name": "read", "arguments": {"filePath": "/a"}}</longcat_tool_call>'

FENCE = '```json\n{"name": "read", "arguments": {"filePath": "/a"}}\n```\n'

READ = [("read", '{"filePath":"/a"}')]


@pytest.mark.parametrize(
    "text",
    [
        "Words, then\n<read>\n<filePath>/a</filePath>\n</read>\nmore",
        f"Words.\n\n{FENCE}\nand words",
        f"```python\nx = 1\n{CALL}\n```\n",
        '<think>\nhm\n<tool_call>\n{"name": "read"',
        "Some `inline <read> code and no end",
    ],
    ids=["tags", "fence", "tokens in a fence", "reasoning", "inline code"],
)
def test_what_is_held_and_what_is_told_are_all_that_came(text: str) -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m")()
    assert isinstance(reader, Reader)
    told = 0
    for count, char in enumerate(text, 1):
        told += sum(len(event.raw) for event in reader.feed(char))
        assert told + reader.held == count
        assert reader.held or reader.idle
    told += sum(len(event.raw) for event in reader.finish("stop"))
    assert (told, reader.held) == (len(text), 0)


@pytest.mark.parametrize(
    "text",
    [
        "Use `ls`, then `cat x`, in ``a ` b`` and so on.",
        "About ~5 of ~~them~~ stay.",
        "1 < 2, a [b] and {c}\nnext line, ",
    ],
)
def test_text_that_comes_at_once_is_told_at_once(text: str) -> None:
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="m")()
    assert reader.feed(text) == [Text(text)]
    assert reader.feed("~/x") == [Text("~/x")]


@pytest.mark.parametrize("fence", ["~~~", "~~~~", "```"])
@pytest.mark.parametrize("info", ["json", ""])
def test_a_fence_may_come_cut_anywhere(fence: str, info: str) -> None:
    found = read_every_way(f'~a ~~b\n{fence}{info}\n{{"name": "read", "arguments": {{"filePath": "/a"}}}}\n{fence}\n')
    assert found.calls == READ


@pytest.mark.parametrize("end", ["<|im_end|>", "</s>", "\n\n<|eot_id|>\n"])
def test_tokens_behind_a_fence_do_not_make_its_call_an_example(end: str) -> None:
    assert read_every_way(f"```python\nx = 1\n{CALL}\n```\n{end}").calls == READ
    assert read_every_way(FENCE + end).calls == READ
    assert read_every_way(f"{FENCE}{end}\n{FENCE}").calls == READ * 2


@pytest.mark.parametrize("end", ["and so on", "<|im_end|> and so on", "</s>\nand so on"])
def test_words_behind_a_fence_make_its_call_an_example(end: str) -> None:
    for text in (f"```python\nx = 1\n{CALL}\n```\n{end}", FENCE + end):
        found = read_every_way(text)
        assert (found.calls, found.text) == ([], text)


# --- Special tokens in code fences, inline code and reasoning: where they are a call and where they are talked about.


KIMI = '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"filePath": "/a"}<|tool_call_end|>'

SHORT = '[TOOL_CALLS]read[ARGS]{"filePath": "/a"}'

SECTION = (
    '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|>'
    '<|open|>argument key="filePath" type="string"<|sep|>/a'
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)

CALLS = {
    "a fence that closes at the end": f"Go.\n```text\nfoo\n{KIMI}\nbar\n```\n",
    "a fence that never closes": f"Go.\n```python\nx = 1\n{KIMI}\n",
    "a fence of nothing else": f"Go.\n```\n{KIMI}\n```\n",
    "a fence of more than calls, and the end": f"Go.\n```\n{KIMI}\njunk\n```\n",
    "behind a token in a fence that opened nothing": f"x\n```c\n<|tool_call_begin|> nothing\n```\n{KIMI}",
    "behind a fence of code": f"```c\nint x;\n```\n{KIMI}\nok",
    "reasoning that closes with nothing behind it": f"<think>now {KIMI}</think>\n",
    "reasoning that never closes": f"<think>now {KIMI}",
    "behind words in quotes": f'He said "no"{SHORT}',
    "behind an end of a tag": f"x > y.\n{KIMI}",
    "a fence of more than calls, with a fence begun in it": f"Go.\n```\n{KIMI}\n~~~py\njunk\n```\n",
    "behind a message of thought": f"<|channel|>analysis<|message|>now<|end|>{KIMI}",
}

TEXTS = {
    "a fence with prose behind it": f"See:\n```\n{KIMI}\n```\nThat is the form.",
    "a fence of more than calls, with prose behind it": f"See:\n```\n{KIMI}\njunk\n```\nThat is the form.",
    "a line of a fence with prose behind it": f"See:\n```\nfoo {KIMI} bar\n```\nThat is the form.",
    "a fence announced as an example": f"For example:\n```\n{KIMI}\n```\n",
    "a fence of code announced as an example": f"For example:\n```python\nx\n{KIMI}\n```\n",
    "a fence within a fence, with words behind it": f"Write:\n````markdown\n```\n{KIMI}\n```\nThat is the form.\n````",
    "a quoted line": f"The page says:\n> {KIMI}\nand no more.",
    "a quoted line with a section around the call": f"The page says:\n> {SECTION}\nand no more.",
    "in quotes": f'It writes "{SHORT}" then.',
    "in single quotes": f"It writes ('{SHORT}') then.",
    "in low quotes": f"Es schreibt „{SHORT}“.",
    "in corner brackets": f"モデルは「{SHORT}」と書く。",
    "inline code": f"Write `{SHORT}` to call.",
    "reasoning, then an answer": f"<think>maybe {KIMI}</think>\nNo.",
    "thought, then an answer": "<|channel|>analysis<|message|>maybe\n<read><filePath>/a</filePath></read>\n<|end|>No.",
    "thought behind a role": (
        "<|start|>assistant<|channel|>analysis<|message|>maybe\n<read><filePath>/a</filePath></read>\n<|end|>No."
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_tokens_are_a_call(name: str) -> None:
    assert read_every_way(CALLS[name]).calls == [("read", '{"filePath":"/a"}')]


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_are_text(name: str) -> None:
    found = read_every_way(TEXTS[name])
    assert found.calls == []
    assert found.text == TEXTS[name]


def test_two_calls_in_one_fence() -> None:
    assert len(read_every_way(f"x\n```c\n{KIMI} and {KIMI}\n```").calls) == 2


def test_weaker_calls_beside_tokens_stay_text() -> None:
    tag = "<read>\n<filePath>/b</filePath>\n</read>"
    found = read_every_way(f"Go.\n```\n{tag}\n{KIMI}\njunk\n```\n")
    assert found.calls == [("read", '{"filePath":"/a"}')]
    assert tag in found.text


def test_a_result_directly_behind_a_call_is_dropped() -> None:
    found = read_every_way(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>list<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>a.py<｜tool▁output▁end｜><｜tool▁outputs▁end｜>" + KIMI
    )
    assert found.calls == [("list", "{}")]
    assert found.dropped[-1][0] == "invented_result"


# --- A number where the schema wants text is that number as it was written, in every dialect


JSON_NUMBERS = ("42", "0", "-0", "1.10", "1e5", "-2.50", "12345678901234567890", "0.1", "1E+2", "3.0")

PYTHON_NUMBERS = ("007", "0x1F", "+5", "1_000", ".5", "5.")

CARRIERS = [row for row in TABLE if '"src/app.py"' in row.example]

NUMBERED = ToolSet([tool("read", "filePath")])


@pytest.mark.parametrize("digits", JSON_NUMBERS)
def test_a_number_is_delivered_as_it_was_written(digits):
    assert len(CARRIERS) > 20
    for row in CARRIERS:
        found = read(row.example.replace('"src/app.py"', digits), tools=NUMBERED, prompted=row.id)
        assert [json.loads(arguments) for _, arguments in found.calls] == [{"filePath": digits}], row.id
        assert any("number_as_text -2" in event.verdict.reasons for event in found.events if isinstance(event, End))


@pytest.mark.parametrize("digits", PYTHON_NUMBERS)
def test_a_number_of_python_is_delivered_as_it_was_written(digits):
    found = read(f"[read(filePath={digits})]", tools=NUMBERED)
    assert [json.loads(arguments) for _, arguments in found.calls] == [{"filePath": digits}]


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "maybe": {"type": ["string", "null"]},
        "words": {"type": "array", "items": {"type": "string"}},
        "word": {"enum": ["1", "2"]},
        "free": {},
    },
}


def test_only_where_text_alone_fits_is_a_number_text():
    schema = schema_of(Tool(name="f", parameters=SCHEMA))
    given = parse('{"text": 1.50, "either": 5, "maybe": 7, "words": [1, "x"], "word": 2, "free": 3}').value
    adapted = schema.from_json(given)
    assert adapted.arguments == {
        "text": "1.50",
        "either": 5,
        "maybe": "7",
        "words": ["1", "x"],
        "word": "2",
        "free": 3,
    }
    assert adapted.mends == ("number_as_text",)
    assert schema.from_json({"text": True}).arguments == {"text": True}


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=200)
def test_a_number_stays_the_number_it_is(value):
    for text in (json.dumps(value), repr(value)):
        assert loads_strict(text) == value
        assert json.loads(dumps(loads_strict(text))) == value
        assert read_calls(f"f(a={text})")[0].arguments == {"a": value}


def test_a_number_too_long_to_write_is_read():
    found = read_calls(f"f(a=0x{'f' * 6000})")[0].arguments
    assert found["a"] == int("f" * 6000, 16)
