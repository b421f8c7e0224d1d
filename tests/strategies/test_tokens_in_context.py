"""Special tokens in code fences, inline code and reasoning: where they are a call and where they are talked about."""

import pytest

from tests.support.reading import read_every_way

CALL = '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"filePath": "/a"}<|tool_call_end|>'
SHORT = '[TOOL_CALLS]read[ARGS]{"filePath": "/a"}'
SECTION = (
    '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|>'
    '<|open|>argument key="filePath" type="string"<|sep|>/a'
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)

CALLS = {
    "a fence that closes at the end": f"Go.\n```text\nfoo\n{CALL}\nbar\n```\n",
    "a fence that never closes": f"Go.\n```python\nx = 1\n{CALL}\n",
    "a fence of nothing else": f"Go.\n```\n{CALL}\n```\n",
    "a fence of more than calls, and the end": f"Go.\n```\n{CALL}\njunk\n```\n",
    "behind a token in a fence that opened nothing": f"x\n```c\n<|tool_call_begin|> nothing\n```\n{CALL}",
    "behind a fence of code": f"```c\nint x;\n```\n{CALL}\nok",
    "reasoning that closes with nothing behind it": f"<think>now {CALL}</think>\n",
    "reasoning that never closes": f"<think>now {CALL}",
    "behind words in quotes": f'He said "no"{SHORT}',
    "behind an end of a tag": f"x > y.\n{CALL}",
    "a fence of more than calls, with a fence begun in it": f"Go.\n```\n{CALL}\n~~~py\njunk\n```\n",
    "behind a message of thought": f"<|channel|>analysis<|message|>now<|end|>{CALL}",
}
TEXTS = {
    "a fence with prose behind it": f"See:\n```\n{CALL}\n```\nThat is the form.",
    "a fence of more than calls, with prose behind it": f"See:\n```\n{CALL}\njunk\n```\nThat is the form.",
    "a line of a fence with prose behind it": f"See:\n```\nfoo {CALL} bar\n```\nThat is the form.",
    "a fence announced as an example": f"For example:\n```\n{CALL}\n```\n",
    "a fence of code announced as an example": f"For example:\n```python\nx\n{CALL}\n```\n",
    "a fence within a fence, with words behind it": f"Write:\n````markdown\n```\n{CALL}\n```\nThat is the form.\n````",
    "a quoted line": f"The page says:\n> {CALL}\nand no more.",
    "a quoted line with a section around the call": f"The page says:\n> {SECTION}\nand no more.",
    "in quotes": f'It writes "{SHORT}" then.',
    "in single quotes": f"It writes ('{SHORT}') then.",
    "in low quotes": f"Es schreibt „{SHORT}“.",
    "in corner brackets": f"モデルは「{SHORT}」と書く。",
    "inline code": f"Write `{SHORT}` to call.",
    "reasoning, then an answer": f"<think>maybe {CALL}</think>\nNo.",
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
    assert len(read_every_way(f"x\n```c\n{CALL} and {CALL}\n```").calls) == 2


def test_weaker_calls_beside_tokens_stay_text() -> None:
    tag = "<read>\n<filePath>/b</filePath>\n</read>"
    found = read_every_way(f"Go.\n```\n{tag}\n{CALL}\njunk\n```\n")
    assert found.calls == [("read", '{"filePath":"/a"}')]
    assert tag in found.text


def test_a_result_directly_behind_a_call_is_dropped() -> None:
    found = read_every_way(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>list<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>a.py<｜tool▁output▁end｜><｜tool▁outputs▁end｜>" + CALL
    )
    assert found.calls == [("list", "{}")]
    assert found.dropped[-1][0] == "invented_result"
