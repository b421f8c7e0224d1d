"""Calls in reasoning that began in the prompt: drafts, told by the closer that comes later without an opener."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.answer.stages import Shaper
from gateway.core.events import Drop, End, Event, Start, Text
from strategies.base import Options, Shape
from strategies.dialects.rows import TABLE
from strategies.grammar.lexicon import REASONING
from strategies.reading.factory import reader_factory
from tests.support.reading import AGENT_TOOLS, Reading, pieces, read, together

ROWS = [row for row in TABLE if row.example]
WORDS = (
    "No, that is too early.",
    "The user wants the newest log, so the folder has to be known first.\n\nThen the rest follows.",
    "Hmm. Wait!\n- one\n- two",
    "Could that work?\n\n```py\nprint(1)\n```\n\nProbably not.",
    "It is `a < b` here.",
    "x",
)
ANSWERS = ("", "\n\nNothing to do: it is 4.", "\n\nDone.\n\n")
CALL = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
DRAFT = "<read>\n<filePath>/draft</filePath>\n</read>"
WAYS: tuple[dict[str, Any], ...] = ({}, {"stream_arguments": "incremental"})


def cuts_of(text: str, rng: random.Random) -> list[list[str]]:
    """Whole, by characters, and at random places."""
    places = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randint(1, 30))))
    at = rng.randrange(len(text) + 1)
    return [[text], list(text), list(pieces(text, places)), [text[:at], text[at:]]]


def draft_of(rng: random.Random, example: str, *, words: bool) -> str:
    """Thought in which one or two calls are drafted."""
    drafts = [f"{example}\n"] * rng.randint(1, 2)
    told = [f"{rng.choice(WORDS)}\n\n" if rng.random() < 0.7 else "" for _ in drafts]
    last = f"{rng.choice(WORDS)}\n" if words or rng.random() < 0.6 else ""
    return "".join(part for pair in zip(told, drafts, strict=True) for part in pair) + last


def shaped(parts: Sequence[str], **options: Any) -> list[tuple[str, str]]:
    """The calls that a client gets who takes one of a message."""
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(**options), model="")()
    shaper = Shaper(Shape(first_only=True))
    events: list[Event] = []
    for part in parts:
        events += shaper.feed(reader.feed(part))
    events += [*shaper.feed(reader.finish("stop")), *shaper.finish("stop")]
    assert "".join(event.raw for event in events) == "".join(parts)
    return [(event.name, event.arguments) for event in events if isinstance(event, End)]


def answer_alone(opener: str, closer: str, answer: str) -> Reading:
    """What is read in the answer where the reasoning before it has its opener, and nothing in doubt."""
    head = f"{opener}\nx\n{closer}"
    found = read(head + answer)
    assert found.text.startswith(head)
    return Reading(**{**_fields(found), "text": found.text[len(head) :]})


def _fields(found: Reading) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Reading.__annotations__}


def some_of_them():
    """Every closer behind a quarter of the dialects, and every dialect before a quarter of the closers; else all."""
    closers = [*REASONING.values()]
    return [
        pytest.param(
            row, closers[(number + part) % 4 :: 4], marks=[pytest.mark.long] if part else [], id=f"{row.id}-{part}"
        )
        for number, row in enumerate(ROWS)
        for part in range(4)
    ]


@pytest.mark.parametrize(("row", "closers"), some_of_them())
def test_what_stands_behind_the_closer_is_the_answer(row, closers):
    together("closer", {closer: closer for closer in closers})(answered_behind)(row=row)


def answered_behind(row, closer):
    """Each dialect has each kind of answer behind some closers, and each closer behind some dialects."""
    rng = random.Random(f"{row.id} {closer}")
    opener = next(opener for opener, closes in REASONING.items() if closes == closer)
    kind = (ROWS.index(row) + [*REASONING.values()].index(closer)) % 3
    thought = draft_of(rng, row.example, words=closer == "<|end|>")
    answer = rng.choice(ANSWERS[1:]) if kind == 0 else f"\n\n{rng.choice((row, *ROWS)).example}\n"
    if kind == 2:
        answer = f"\n\nReading now.{answer}"
    alone = answer_alone(opener, closer, answer)
    text = thought + closer + answer
    for how in WAYS:
        for parts in cuts_of(text, rng):
            found = read(parts, **how)
            assert found.calls == alone.calls, (how, parts)
            assert found.text == thought + closer + alone.text
            assert not found.broken
        assert shaped(cuts_of(text, rng)[2], **how) == alone.calls[:1]


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_calls_of_an_answer_without_a_closer_count(row):
    rng = random.Random(row.id)
    for _ in range(4):
        text = draft_of(rng, row.example, words=False)
        expected = read(text, reasoned=True)
        for how in WAYS:
            for parts in cuts_of(text, rng):
                assert read(parts, **how).outcome == expected.outcome, (how, parts)


def test_text_before_a_call_flows_and_nothing_behind_it_is_said_before_its_end():
    for how in WAYS:
        reader = reader_factory(tools=AGENT_TOOLS, options=Options(**how), model="")()
        assert [event.raw for event in reader.feed("Let me look. ")] == ["Let me look. "]
        assert reader.feed(f"\n{DRAFT}\n")[0] == Text("\n")
        assert reader.feed("That should do.") == []
        assert not reader.idle
        assert reader.held == len(f"{DRAFT}\nThat should do.")
        assert isinstance(reader.finish("stop")[0], Start)
        assert reader.idle
        assert reader.held == 0


@pytest.mark.parametrize(
    "before", ["<think>\n</think>\n", "<think>Easy.</think>", "Easy.\n</think>\n\n", "[THINK]x[/THINK]"]
)
def test_nothing_waits_once_reasoning_is_over(before):
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="")()
    events = reader.feed(f"{before}{DRAFT}\nN")  # behind its closer another one may come that was exchanged with it
    assert any(isinstance(event, End) for event in events)
    found = read(f"{before}{DRAFT}\nWell.\n</think>\nDone.")
    assert [name for name, _ in found.calls] == ["read"]


def test_nothing_waits_where_the_answer_has_a_field_for_reasoning():
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(stream_arguments="incremental"), model="")()
    reader.reasoned()
    assert isinstance(reader.feed(DRAFT[:-20])[0], Start)
    assert read(f"{DRAFT}\nWell.\n</think>\nDone.", reasoned=True).calls == [("read", '{"filePath":"/draft"}')]


def test_what_waits_stands_as_soon_as_reasoning_turns_out_to_have_a_field():
    reader = reader_factory(tools=AGENT_TOOLS, options=Options(), model="")()
    assert reader.feed(f"{DRAFT}\nSo.") == []
    events = reader.reasoned()
    assert "".join(event.raw for event in events) == f"{DRAFT}\nSo."
    assert [event.name for event in events if isinstance(event, End)] == ["read"]
    assert reader.idle
    assert reader.feed(" And more") == [Text(" And more")]


@pytest.mark.parametrize(
    "behind",
    [
        "I left `</think>` out.",
        'I left "</think>" out.',
        "It stands in:\n```\n</think>\n```\nas you see.",
        "Then <think>it is</think> done.",
        "\n<think>\nIt is.\n</think>\nDone.",
        "\n<thinking>\nIt is.\n</thinking>\nDone.",
        "The end is </thinking-hard>.",
    ],
)
def test_a_closer_that_is_mentioned_or_has_an_opener_makes_no_drafts(behind):
    text = f"Now.\n{DRAFT}\n{behind}"
    for how in WAYS:
        for parts in cuts_of(text, random.Random(behind)):
            assert read(parts, **how).calls == [("read", '{"filePath":"/draft"}')]


@pytest.mark.parametrize(
    "thought",
    [
        f"{CALL}\n<tool_response>\nfoo\n</tool_response>\nSo it is foo.\n",
        f"{CALL}\nAnd in code:\n```py\nx = 1\n",
        f"{CALL}\n`a\n\n",
        f"{CALL}\nor <write> with\n<filePath>x\n",
        f"For example:\n{CALL}\n",
        f"{CALL}\nfor example:\n{CALL}\n",
        f"```json\n{CALL}\n```\n",
        '```tool_code\n{"name": "read", "arguments": {"filePath": "/a"}}\n```\nNo.\n',
        '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n',
        f'{CALL}\nNo.\n<tool_call>\n{{"name": "read", "arguments": {{"filePath": "/a"}}}}\n',
        f"{CALL}\nI see <think> in it.\n" + "</think>",
        f"{CALL}\n</tool_call>",
    ],
)
def test_whatever_the_thought_is_full_of_it_makes_no_call(thought):
    text = f"{thought}</think>\n\nNo need: it is 4."
    for how in WAYS:
        for parts in cuts_of(text, random.Random(thought)):
            found = read(parts, **how)
            assert found.calls == []
            assert found.text == text


@pytest.mark.parametrize(
    "thought",
    [
        f"{CALL}\n<tool_response>\nfoo\n</tool_response>\nSo it is foo.\n",
        f"{CALL}\nor <write> with\n<filePath>x\n",
        DRAFT,
    ],
)
def test_the_answer_is_read_whatever_the_thought_is_full_of(thought):
    text = f"{thought}</think>\n\n```json\n{CALL.split(chr(10))[1]}\n```"
    for how in WAYS:
        for parts in cuts_of(text, random.Random(thought)):
            assert read(parts, **how).calls == [("read", '{"filePath":"/a"}')]


@pytest.mark.parametrize(
    "end", ["</think>", "\n</think>\n", "</think></think>", "</think><|im_end|>", "</think>\n</tool_call>"]
)
def test_a_call_that_meets_the_closer_counts_where_nothing_follows(end):
    for before in ("", "So.\n", f"{DRAFT}\nNo.\n"):
        for call in (CALL, CALL.removesuffix("</tool_call>")):
            text = before + call + end
            for how in WAYS:
                for parts in cuts_of(text, random.Random(text)):
                    found = read(parts, **how)
                    assert found.calls == [("read", '{"filePath":"/a"}')], parts
                    assert found.text.startswith(before)


def test_a_token_that_ends_turns_and_reasoning_makes_no_drafts_at_the_end():
    text = f"{CALL}\nThat reads it.<|end|>"
    for parts in cuts_of(text, random.Random(1)):
        assert read(parts).calls == [("read", '{"filePath":"/a"}')]
        assert read([*parts, "\n"]).calls == [("read", '{"filePath":"/a"}')]
        assert read([*parts, "<|start|>assistant<|channel|>final<|message|>No."]).calls == []


def test_a_draft_loses_nothing():
    text = f"```json\n{CALL}\n```\n{CALL}</tool_call><|im_end|>\nNo.</think>Done."
    found = read(text)
    assert found.text == text
    assert not [event for event in found.events if isinstance(event, Drop)]
