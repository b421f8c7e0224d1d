"""Harmony: messages to a tool, and what stands in the other channels."""

import pytest

from tests.support.reading import read, read_every_way

CALL = (
    '<|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"filePath": "a.py"}<|call|>'
)
READ = ("read", '{"filePath":"a.py"}')


def test_a_message_to_a_declared_tool_is_a_call() -> None:
    assert read_every_way(CALL).calls == [READ]


def test_the_token_behind_the_last_call_may_be_missing() -> None:
    assert read_every_way(CALL.removesuffix("<|call|>")).calls == [READ]


def test_a_call_that_was_cut_off_is_none() -> None:
    text = CALL[: CALL.index("a.py") + 1]
    assert read(text, reason="length").calls == []


def test_a_message_to_nobody_is_no_call() -> None:
    assert read_every_way(CALL.replace(" to=functions.read", "")).calls == []


@pytest.mark.parametrize("before", ["Let me look", "Let me look.", "It was"])
def test_a_role_may_be_glued_to_the_last_word_before_it(before: str) -> None:
    assert read_every_way(before + 'assistantcommentary to=functions.read json{"filePath": "a.py"}').calls == [READ]
