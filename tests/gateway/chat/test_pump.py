"""How a stream's reads are cut before they are read: at the ends of events, wherever there are any."""

from typing import Any

import pytest

from gateway.chat.enrolment import EQUAL, looping_tool
from gateway.chat.pump import PIECE_BYTES
from gateway.wire.sse import block_of

EVENT = b"data: " + b"x" * 100 + b"\n\n"


def test_a_long_read_is_cut_behind_an_event():
    data = EVENT * 400
    piece = block_of(data, PIECE_BYTES)
    assert PIECE_BYTES - len(EVENT) < len(piece) <= PIECE_BYTES
    assert len(piece) % len(EVENT) == 0


def test_an_event_longer_than_a_piece_is_cut_all_the_same():
    assert len(block_of(b"data: " + b"x" * PIECE_BYTES * 2 + b"\n\n", PIECE_BYTES)) == PIECE_BYTES


# --- When a conversation goes round in a circle


def pair(at: int, *, name: str = "f", arguments: str = "{}", result: Any = "r") -> list[dict[str, Any]]:
    call = {"id": f"c{at}", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{at}", "content": result},
    ]


def test_four_equal_calls_with_equal_results() -> None:
    messages = [{"role": "user", "content": "hi"}, *(each for at in range(EQUAL) for each in pair(at))]
    assert looping_tool(messages) == "f"
    assert looping_tool(messages[:-1]) is None, "the last has no result yet"
    assert looping_tool([*messages, {"role": "user", "content": "go on"}]) is None, "somebody said something"


@pytest.mark.parametrize("more", [{"name": "g"}, {"arguments": '{"a":1}'}, {"result": "other"}])
@pytest.mark.parametrize("place", range(EQUAL))
def test_any_difference_ends_it(more: dict[str, Any], place: int) -> None:
    messages = [each for at in range(EQUAL) for each in pair(at, **(more if at == place else {}))]
    assert looping_tool(messages) is None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "tool"},
        {"role": "assistant", "tool_calls": {}},
    ],
)
def test_odd_histories_are_none(message: dict[str, Any]) -> None:
    assert looping_tool([message] * 9) is None
    assert looping_tool([]) is None
