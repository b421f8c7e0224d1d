"""Histories of other wires as chat's turns."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.surfaces.turns import MISSING_RESULT, Turns, text_part

STEP = st.one_of(
    st.tuples(st.just("text"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("user"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("system"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("call"), st.sampled_from("abc")),
    st.tuples(st.just("result"), st.sampled_from("abcd")),
)


def made(steps: list[tuple[str, str]]) -> tuple[list[dict[str, Any]], Turns]:
    turns = Turns()
    for kind, value in steps:
        match kind:
            case "text":
                turns.text(value)
            case "user":
                turns.user([text_part(value)])
            case "system":
                turns.system(value)
            case "call":
                turns.call(value, "f", "{}")
            case "result":
                turns.result(value, f"of {value}")
    return turns.finished(), turns


@given(st.lists(STEP, max_size=12))
def test_every_call_is_followed_by_its_result_whatever_came_between(steps: list[tuple[str, str]]) -> None:
    messages, _ = made(steps)
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = list(dict.fromkeys(call["id"] for call in message.get("tool_calls", ())))
    assert not waiting


def test_a_result_that_comes_late_follows_its_call() -> None:
    messages, turns = made([("user", "go"), ("call", "a"), ("system", "note"), ("result", "a"), ("text", "done")])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert turns.mended == []


def test_a_turn_whose_calls_are_answered_is_over() -> None:
    messages, _ = made([("call", "a"), ("result", "a"), ("call", "b"), ("result", "b")])
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "tool"]


def test_what_is_missing_is_said() -> None:
    messages, turns = made([("call", "a"), ("user", "on"), ("result", "d")])
    assert messages[1]["content"] == MISSING_RESULT
    assert messages[2]["content"] == "on\n\n[Tool Result: of d]"
    assert sorted(turns.mended) == ["missing_result", "orphan_result"]
