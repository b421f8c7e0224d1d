"""Messages events through chat and back: an answer without a call is the server's own, byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.surfaces.carrier import named_event
from gateway.surfaces.messages.carrier import MessagesCarrier
from tests.support.anthropic_server import AnthropicServer
from tests.support.chat import SAYINGS, event_ends, read_stream, read_whole, reading
from tests.support.kinds import Call, Turn, conversations
from tests.support.strict_clients import hear

CALL = 'I look.\n\n<tool_call>\n{"name": "Read", "arguments": {"path": "a.py"}}\n</tool_call>'
SERVER = AnthropicServer()


def read(stream: bytes, *cuts: int) -> bytes:
    return read_stream(MessagesCarrier(), stream, *cuts)


PLAIN = [
    Turn(text="Plain words, in some pieces.\n\nAnd more 🙂."),
    Turn(text="I look.", thought="Hm.", signature="U0lH", calls=(Call("toolu_1", "Read", {"path": "a.py"}),)),
    Turn(calls=(Call("toolu_1", "Read", {}), Call("toolu_2", "Read", {"path": "b"}))),
    Turn(text="cut o", end="length"),
    Turn(text="a < b, and <tool_call> is how some models begin"),
    Turn(text='```json\n{"a": 1}\n```'),
    Turn(),
]


@pytest.mark.parametrize("turn", PLAIN, ids=str)
def test_an_answer_without_a_call_goes_on_as_it_came(turn: Turn) -> None:
    stream = SERVER.stream(turn, "m")
    assert read(stream) == stream


@given(st.sampled_from(PLAIN), st.data())
def test_an_answer_without_a_call_goes_on_as_it_came_whatever_the_cuts(turn: Turn, data: st.DataObject) -> None:
    stream = SERVER.stream(turn, "m")
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert read(stream, *cuts) == stream


def test_answers_of_whole_conversations_go_on_as_they_came() -> None:
    for exchanges in conversations(20):
        for exchange in exchanges:
            stream = SERVER.stream(exchange.turn, "m")
            assert read(stream) == stream


@given(st.lists(st.sampled_from(SAYINGS), max_size=12))
def test_what_goes_on_unread_is_what_reading_it_would_tell(said: list[str]) -> None:
    stream = SERVER.stream(Turn(text="".join(said)), "m")
    ends = event_ends(stream)
    assert read(stream, *ends) == read_stream(MessagesCarrier(), stream, *ends, reads_all=True)


def test_words_of_one_text_go_on_unread() -> None:
    exchange, unread = reading(MessagesCarrier()), 0
    for word in SERVER.stream(PLAIN[0], "m").split(b"\n\n")[:-1]:
        passes = exchange.listens()
        is_unread = passes is not None and passes(word + b"\n\n") is not None
        unread += is_unread
        if not is_unread:
            exchange.step(word + b"\n\n")
    assert unread >= 3


@given(st.data())
def test_a_call_in_the_text_is_a_block_behind_all_others(data: st.DataObject) -> None:
    stream = SERVER.stream(Turn(text=CALL, thought="Hm.", signature="U0lH", fresh=5, output=7), "m")
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    heard = hear(read(stream, *cuts))
    thought, text, call = heard.content
    assert (thought["thinking"], thought["signature"]) == ("Hm.", "U0lH")
    assert text["text"] == "I look."
    assert (call["name"], call["input"]) == ("Read", {"path": "a.py"})
    assert call["id"].startswith("call_")
    assert heard.stop_reason == "tool_use"
    assert heard.usage["output_tokens"] == 7
    assert heard.is_whole


def test_where_the_server_calls_too_the_text_stays_text() -> None:
    stream = SERVER.stream(Turn(text=CALL, calls=(Call("toolu_1", "Read", {"path": "a.py"}),)), "m")
    heard = hear(read(stream))
    assert [block["type"] for block in heard.content if block["type"] != "text"] == ["tool_use"]
    assert "".join(block["text"] for block in heard.content if block["type"] == "text") == CALL


ALL_CALL = CALL.removeprefix("I look.")


def test_a_block_that_is_all_call_is_not_left_behind_empty() -> None:
    stream = SERVER.stream(Turn(text=ALL_CALL), "m")
    assert [block["type"] for block in hear(read(stream)).content] == ["tool_use"]


def test_what_comes_behind_a_block_that_was_all_call_moves_up() -> None:
    stream = SERVER.stream(Turn(text=ALL_CALL), "m")
    thought: tuple[tuple[str, dict[str, Any]], ...] = (
        ("content_block_start", {"content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        ("content_block_delta", {"delta": {"type": "thinking_delta", "thinking": "Hm."}}),
        ("content_block_delta", {"delta": {"type": "signature_delta", "signature": "U0lH"}}),
        ("content_block_stop", {}),
    )
    told = b"".join(named_event(kind, {"index": 1, **fields}) for kind, fields in thought)
    end = stream.index(b"event: message_delta")
    heard = hear(read(stream[:end] + told + stream[end:]))
    assert [block["type"] for block in heard.content] == ["thinking", "tool_use"]


def test_a_tool_is_called_by_the_name_that_its_client_knows() -> None:
    stream = SERVER.stream(Turn(text=CALL), "m")
    heard = hear(read_stream(MessagesCarrier(lambda name: f"own {name}"), stream))
    assert heard.content[-1]["name"] == "own Read"


TWICE = '{"name": "Read", "arguments": {"path": "a.py"}}'


def test_text_that_is_cut_like_text_before_it_stays_in_its_place() -> None:
    """Words are known by their text and their order: one that a call was made of must not stand for another."""
    stream = SERVER.stream(Turn(text=f"{TWICE}a {TWICE}\n\n{TWICE}", thought="Hm.", end="length"), "m")
    heard = hear(read(stream))
    assert "".join(block["text"] for block in heard.content if block["type"] == "text").startswith(TWICE)
    assert heard.stop_reason == "max_tokens"
    assert heard.is_whole


def test_what_is_found_out_is_told() -> None:
    exchange = reading(MessagesCarrier())
    exchange.step(SERVER.stream(Turn(text="x", fresh=5, cached=7, output=3), "m"))
    exchange.close()
    assert exchange.facts.usage == {"input": 12, "output": 3}
    assert exchange.facts.completion_id == json.loads(json.dumps(SERVER.message(Turn(text="x"), "m")))["id"]


def test_an_error_of_the_server_goes_on_in_its_own_words() -> None:
    error = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    stream = SERVER.stream(Turn(text="some words"), "m")
    stream = stream[: stream.index(b"event: content_block_stop")] + error
    assert read(stream) == stream


def whole(turn: Turn) -> tuple[bytes, dict[str, Any]]:
    raw = json.dumps(SERVER.message(turn, "m"), ensure_ascii=False).encode()
    told = read_whole("messages", raw, MessagesCarrier().whole)
    return raw, {} if told is raw else json.loads(told)


@pytest.mark.parametrize("turn", PLAIN, ids=str)
def test_a_whole_answer_without_a_call_is_the_servers_own(turn: Turn) -> None:
    assert whole(turn)[1] == {}


def test_a_call_in_a_whole_answer_is_a_block() -> None:
    _, told = whole(Turn(text=CALL, thought="Hm.", signature="U0lH"))
    assert [block["type"] for block in told["content"]] == ["thinking", "text", "tool_use"]
    assert told["content"][1]["text"] == "I look."
    assert told["content"][2]["input"] == {"path": "a.py"}
    assert told["stop_reason"] == "tool_use"
