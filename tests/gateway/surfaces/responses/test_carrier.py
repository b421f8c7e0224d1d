"""Responses events through chat and back: an answer without a call is the server's own, byte for byte."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import UpstreamTimeout
from gateway.surfaces.responses.carrier import ResponsesCarrier
from gateway.surfaces.responses.telling import ResponsesTelling, Terms
from gateway.surfaces.toolnames import ToolNames
from tests.support.chat import SAYINGS, event_ends, read_stream, read_whole, reading
from tests.support.kinds import Call, Turn, conversations
from tests.support.openai_server import ResponsesServer
from tests.support.strict_clients import checked_body, checked_events, events_of

CALL = 'I look.\n\n<tool_call>\n{"name": "Read", "arguments": {"path": "a.py"}}\n</tool_call>'
ALL_CALL = CALL.removeprefix("I look.")
READS = Call("call_1", "Read", {"path": "a.py"})


def carrier() -> ResponsesCarrier:
    names = ToolNames()
    names.add("Read", kind="function")
    terms = Terms(unique="aB3dE6gH9jK2mN5pQ8sT1vWx", created=1, shared=b"", names=names)
    return ResponsesCarrier(lambda: ResponsesTelling(terms))


def stream_of(turn: Turn, *, tells_pieces: bool = True) -> bytes:
    server = ResponsesServer(tells_pieces=tells_pieces)
    return server.stream(turn, server.response(turn, {"model": "m"}))


def read(stream: bytes, *cuts: int) -> bytes:
    return read_stream(carrier(), stream, *cuts)


PLAIN = [
    Turn(text="Plain words, in some pieces.\n\nAnd more 🙂."),
    Turn(text="I look.", thought="Hm.", calls=(READS,)),
    Turn(calls=(Call("call_1", "Read", {}), Call("call_2", "Read", {"path": "b"}))),
    Turn(text="cut o", end="length"),
    Turn(text="a < b, and <tool_call> is how some models begin"),
    Turn(text='```json\n{"a": 1}\n```'),
    Turn(),
]


@pytest.mark.parametrize("turn", PLAIN, ids=str)
def test_an_answer_without_a_call_goes_on_as_it_came(turn: Turn) -> None:
    for tells_pieces in (True, False):
        stream = stream_of(turn, tells_pieces=tells_pieces)
        assert read(stream) == stream


@given(st.sampled_from(PLAIN), st.booleans(), st.data())
def test_an_answer_without_a_call_goes_on_as_it_came_whatever_the_cuts(
    turn: Turn, tells_pieces: bool, data: st.DataObject
) -> None:
    stream = stream_of(turn, tells_pieces=tells_pieces)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert read(stream, *cuts) == stream


@given(st.lists(st.sampled_from(SAYINGS), max_size=12), st.booleans())
def test_what_goes_on_unread_is_what_reading_it_would_tell(said: list[str], is_padded: bool) -> None:
    stream = stream_of(Turn(text="".join(said)))
    if is_padded:  # against who counts bytes, as OpenAI does
        stream = re.sub(rb'("type": ?"response.output_text.delta".*?)\}\n', rb'\1,"obfuscation":"aB3x"}\n', stream)
    ends = event_ends(stream)
    assert read(stream, *ends) == read_stream(carrier(), stream, *ends, reads_all=True)


def test_words_of_one_text_go_on_unread_and_their_numbers_are_known() -> None:
    exchange = reading(carrier())
    words = [each + b"\n\n" for each in stream_of(PLAIN[0]).split(b"\n\n")[:-1]]
    last = max(number for number, each in enumerate(words) if b"output_text.delta" in each)
    unread = 0
    for word in words[: last + 1]:
        passes = exchange.listens()
        is_unread = passes is not None and passes(word) is not None
        unread += is_unread
        if not is_unread:
            exchange.step(word)
    assert unread >= 3
    assert exchange.unheard() in words
    [failed] = events_of(exchange.close(UpstreamTimeout("too slow")))[-1:]
    assert failed["sequence_number"] == last + 1


def test_answers_of_whole_conversations_go_on_as_they_came() -> None:
    for exchanges in conversations(20):
        for exchange in exchanges:
            stream = stream_of(exchange.turn)
            assert read(stream) == stream


@settings(max_examples=12)  # the SDK's own checks of every event are dear
@given(st.booleans(), st.data())
def test_a_call_in_the_text_is_an_item_behind_all_others(tells_pieces: bool, data: st.DataObject) -> None:
    stream = stream_of(Turn(text=CALL, thought="Hm.", fresh=5, output=7), tells_pieces=tells_pieces)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    events = checked_events(read(stream, *cuts), tells_pieces=tells_pieces)
    final = events[-1]["response"]
    assert final == events_of(read(stream))[-1]["response"], "whatever the cuts"
    thought, said, called = final["output"]
    assert thought["summary"][0]["text"] == "Hm."
    assert said["content"][0]["text"] == "I look."
    assert (called["type"], called["name"], json.loads(called["arguments"])) == (
        *("function_call", "Read"),
        {"path": "a.py"},
    )
    assert called["call_id"].startswith("call_")
    assert final["usage"]["output_tokens"] == 7


def test_a_message_that_is_all_call_is_not_left_behind_empty() -> None:
    final = checked_events(read(stream_of(Turn(text=ALL_CALL))))[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["function_call"]


def test_what_comes_behind_a_message_that_was_all_call_moves_up() -> None:
    server = ResponsesServer()
    response = server.response(Turn(text=ALL_CALL), {"model": "m"})
    thought = server.response(Turn(thought="Hm."), {"model": "m"})["output"][0]
    response["output"].append(thought)
    final = checked_events(read(server.stream(Turn(text=ALL_CALL), response)))[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "function_call"]


@pytest.mark.parametrize("left_out", ["response.reasoning_summary_text.delta", "response.reasoning_summary", "nothing"])
@pytest.mark.parametrize("name", ["reasoning_text", "reasoning_summary_text"])
def test_reasoning_that_ends_in_a_call_is_read_once_however_it_comes(left_out: str, name: str) -> None:
    events = stream_of(Turn(thought=CALL)).split(b"\n\n")
    kept = [event for event in events if not event.startswith(b"event: " + left_out.encode())]
    stream = b"\n\n".join(kept).replace(b"reasoning_summary_text", name.encode())
    final = events_of(read(stream))[-1]["response"]
    assert [item["type"] for item in final["output"]][0::2] == ["reasoning", "function_call"]
    assert final["output"][0]["summary"][0]["text"] == CALL
    assert sum(item["type"] == "function_call" for item in final["output"]) == 1


def test_where_the_server_calls_too_the_text_stays_text() -> None:
    stream = stream_of(Turn(text=CALL, calls=(READS,)))
    assert [item["type"] for item in checked_events(read(stream))[-1]["response"]["output"]] == [
        *("message", "function_call")
    ]


def test_a_call_that_the_length_has_cut_is_text() -> None:
    stream = stream_of(Turn(text=CALL[:-20], end="length"))
    assert read(stream) == stream


def test_what_is_found_out_is_told() -> None:
    exchange = reading(carrier())
    exchange.step(stream_of(Turn(text="x", fresh=5, cached=7, output=3)))
    exchange.close()
    assert exchange.facts.usage == {"input": 12, "output": 3}
    assert exchange.facts.completion_id == "resp_9"


def test_a_failure_of_the_server_goes_on_in_its_own_words() -> None:
    stream = stream_of(Turn(text="some words"))
    stream = stream[: stream.index(b"event: response.output_text.done")]
    response = {**ResponsesServer().response(Turn(), {"model": "m"}), "status": "failed", "output": []}
    failed = {"type": "response.failed", "sequence_number": 99, "response": {**response, "error": {"message": "busy"}}}
    stream += b"event: response.failed\ndata: " + json.dumps(failed).encode() + b"\n\n"
    assert read(stream) == stream


def test_an_answer_that_is_cut_has_failed_under_its_own_id_and_number() -> None:
    stream = stream_of(Turn(text="some words"))
    stream = stream[: stream.index(b"event: response.output_text.done")]
    out = read(stream)
    assert out.startswith(stream)
    *_, before, failed = events_of(out)
    assert (failed["type"], failed["response"]["id"]) == ("response.failed", "resp_9")
    assert failed["sequence_number"] == before["sequence_number"] + 1


def whole(turn: Turn) -> tuple[bytes, bytes]:
    raw = json.dumps(ResponsesServer().response(turn, {"model": "m"}), ensure_ascii=False).encode()
    return raw, read_whole("responses", raw, carrier().whole)


@pytest.mark.parametrize("turn", PLAIN, ids=str)
def test_a_whole_answer_without_a_call_is_the_servers_own(turn: Turn) -> None:
    raw, told = whole(turn)
    assert told is raw


@pytest.mark.parametrize(("text", "said"), [(CALL, ["reasoning", "message"]), (ALL_CALL, ["reasoning"])])
def test_a_call_in_a_whole_answer_is_an_item(text: str, said: list[str]) -> None:
    output = checked_body(whole(Turn(text=text, thought="Hm."))[1])["output"]
    assert [item["type"] for item in output] == [*said, "function_call"]
    assert json.loads(output[-1]["arguments"]) == {"path": "a.py"}
    assert "tool_call" not in json.dumps(output[:-1])
