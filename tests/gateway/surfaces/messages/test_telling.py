"""An answer told in blocks: the same for every cut of the chat stream, and never out of order."""

import json
from typing import Any

import pytest
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamBadReply
from gateway.surfaces.messages.telling import PING, THINKING, MessagesTelling, Terms
from gateway.surfaces.seals import Seals
from gateway.wire.chat_reshape import stream_to_body
from tests.support.chat import event_ends
from tests.support.strict_clients import Heard, events_of, hear

SEALS = Seals(b"k" * 32, "who")
USAGE = {"prompt_tokens": 840, "completion_tokens": 31, "prompt_tokens_details": {"cached_tokens": 512}}
TOLD_USAGE = {
    "input_tokens": 328,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 512,
    "output_tokens": 31,
}


def telling(**more: Any) -> MessagesTelling:
    terms: dict[str, Any] = {"message_id": "msg_1", "model": "m", "thinking": "shown", "seals": SEALS, **more}
    return MessagesTelling(Terms(**terms))


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


DONE = b"data: [DONE]\n\n"


def chunk(reason: str | None = None, **delta: object) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "other", "choices": [choice]}


def call(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return chunk(tool_calls=[{"index": index, "function": function, **({"id": call_id} if call_id else {})}])


RICH = (
    sse(
        chunk(role="assistant", content=None),
        chunk(reasoning_content="Let me "),
        chunk(reasoning_content="see."),
        chunk(content="I read “ä” "),
        chunk(content="and 🙂.\n"),
        call(0, "", "call_1", "Read"),
        call(0, '{"file_path": "a'),
        call(0, '\\n.py"}'),
        call(1, "", "call_2", "List"),
        call(1, "{}"),
        chunk("tool_calls"),
        {"choices": [], "usage": USAGE},
    )
    + DONE
)


def streamed(stream: bytes, *cuts: int, told: MessagesTelling | None = None) -> Heard:
    told = told or telling()
    out, at = [told.begin(812)], 0
    for cut in (*sorted(cuts), len(stream)):
        out.append(told.feed(stream[at:cut]))
        at = cut
    return hear(b"".join([*out, told.finish()]))


def test_everything_is_told_in_blocks() -> None:
    heard = streamed(RICH)
    thought, text, first, second = heard.content
    assert thought["thinking"] == "Let me see."
    assert SEALS.open(thought["signature"], purpose=THINKING) == {"text": "Let me see."}
    assert text["text"] == "I read “ä” and 🙂.\n"
    assert (first["id"], first["name"], first["input"]) == ("call_1", "Read", {"file_path": "a\n.py"})
    assert (second["id"], second["name"], second["input"]) == ("call_2", "List", {})
    assert heard.stop_reason == "tool_use"
    assert heard.usage == TOLD_USAGE
    assert heard.is_whole


@given(st.lists(st.integers(0, len(RICH)), max_size=20))
def test_every_cut_tells_the_same(cuts: list[int]) -> None:
    assert streamed(RICH, *cuts) == streamed(RICH)


def test_a_whole_answer_is_what_its_stream_comes_to() -> None:
    body = telling().whole(stream_to_body(RICH))
    message = json.loads(body)
    Message.model_validate(message)
    heard = streamed(RICH)
    whole = Heard(message["content"], message["stop_reason"], message["stop_sequence"], message["usage"])
    assert whole.meaning == heard.meaning
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use", "tool_use"]


WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
PART = st.one_of(
    WORDS.map(lambda text: ("text", text)),
    WORDS.map(lambda text: ("thought", text)),
    st.tuples(st.just("call"), st.dictionaries(WORDS, st.one_of(WORDS, st.integers(), st.none()), max_size=3)),
)


@given(st.lists(PART, max_size=8), st.sampled_from(["stop", "length", "content_filter", "tool_calls"]), st.data())
def test_any_answer_is_told_in_order_however_it_is_cut(
    parts: list[tuple[str, Any]], reason: str, data: st.DataObject
) -> None:
    events: list[Any] = []
    for at, (kind, value) in enumerate(parts):
        if kind == "call":
            number = sum(before == "call" for before, _ in parts[:at])
            arguments = json.dumps(value)
            half = data.draw(st.integers(0, len(arguments)))
            events += [call(number, arguments[:half], f"call_{number}", "Read"), call(number, arguments[half:])]
        else:
            events.append(chunk(**{"content" if kind == "text" else "reasoning": value}))
    stream = sse(*events, chunk(reason)) + DONE
    cuts = data.draw(st.one_of(st.just(event_ends(stream)), st.lists(st.integers(0, len(stream)), max_size=8)))
    heard = streamed(stream, *cuts)
    assert heard.is_whole
    said = [part for part in parts if part[0] != "text" or part[1]]
    assert "".join(b["text"] for b in heard.content if b["type"] == "text") == "".join(
        v for k, v in said if k == "text"
    )
    assert [b["input"] for b in heard.content if b["type"] == "tool_use"] == [v for k, v in said if k == "call"]
    whole = json.loads(telling().whole(stream_to_body(stream)))
    assert whole["stop_reason"] == heard.stop_reason


def test_pieces_of_calls_that_run_side_by_side_are_put_in_order() -> None:
    stream = sse(
        call(0, '{"a"', "one", "f"),
        call(1, '{"b"', "two", "g"),
        chunk(content="between"),
        call(0, ":1}"),
        call(1, ":2}"),
        chunk("tool_calls"),
    )
    heard = streamed(stream + DONE)
    assert [block.get("input") for block in heard.content if block["type"] == "tool_use"] == [{"a": 1}, {"b": 2}]


def test_a_long_call_flows_while_it_comes() -> None:
    told = telling()
    told.begin()
    assert b"content_block_start" in told.feed(sse(call(0, "", "one", "Write")))
    assert b"input_json_delta" in told.feed(sse(call(0, '{"content": "abc')))
    assert b"content_block_stop" not in told.feed(sse(call(0, '"}')))
    assert b"content_block_stop" in told.feed(sse(chunk("tool_calls")))


def test_a_call_that_a_limit_cut_off_never_ends() -> None:
    stream = sse(call(0, '{"a":1}', "one", "f"), call(1, '{"b":', "two", "g"), chunk("length")) + DONE
    heard = streamed(stream)
    assert heard.stop_reason == "max_tokens"
    assert heard.open_block
    assert heard.is_whole
    message = json.loads(telling().whole(stream_to_body(stream)))
    assert [block["input"] for block in message["content"]] == [{"a": 1}]


def test_half_a_character_costs_no_call() -> None:
    stream = sse(call(0, '{"a": "\\ud83d"}', "one", "f"), chunk("tool_calls")) + DONE
    assert streamed(stream).stop_reason == "tool_use"
    message = json.loads(telling().whole(stream_to_body(stream)))
    assert [block["input"] for block in message["content"]] == [{"a": "\ud83d"}]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"x"', "{} {}", "nothing", '{"a": "\\ud83d", "b": NaN}'])
def test_arguments_that_are_no_object_are_no_call(arguments: str) -> None:
    stream = sse(chunk(content="x"), call(0, arguments, "one", "f"), chunk("tool_calls")) + DONE
    told = telling()
    heard = streamed(stream, told=told)
    assert heard.open_block
    assert heard.stop_reason == "end_turn"
    assert told.dropped == {"cut_call": 1}


@pytest.mark.parametrize(
    ("reason", "content", "told"),
    [("stop", "x", "end_turn"), ("length", "x", "max_tokens"), ("content_filter", "x", "end_turn")],
)
def test_why_an_answer_ends(reason: str, content: str, told: str) -> None:
    assert streamed(sse(chunk(content=content), chunk(reason)) + DONE).stop_reason == told


def test_an_empty_answer_has_no_block() -> None:
    heard = streamed(sse(chunk(content=""), chunk("stop")) + DONE)
    assert heard.content == []
    assert heard.stop_reason == "end_turn"
    assert streamed(sse(chunk("content_filter")) + DONE).stop_reason == "refusal"


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
def test_the_sequence_that_an_answer_stopped_at_is_named(field: str) -> None:
    last = chunk("stop")
    last["choices"][0][field] = "END"
    heard = streamed(sse(chunk(content="x"), last) + DONE, told=telling(stops=("END",)))
    assert (heard.stop_reason, heard.stop_sequence) == ("stop_sequence", "END")
    assert streamed(sse(chunk(content="x"), last) + DONE).stop_reason == "end_turn"


def test_thoughts_that_nobody_asked_for_are_left_out_and_counted() -> None:
    told = telling(thinking="hidden")
    heard = streamed(RICH, told=told)
    assert [block["type"] for block in heard.content] == ["text", "tool_use", "tool_use"]
    assert told.dropped == {"thinking": 1}


def test_thoughts_that_are_not_displayed_travel_in_their_seal() -> None:
    thought = streamed(RICH, told=telling(thinking="omitted")).content[0]
    assert thought["thinking"] == ""
    assert SEALS.open(thought["signature"], purpose=THINKING) == {"text": "Let me see."}


def test_a_thought_too_long_for_a_seal_is_signed_all_the_same() -> None:
    noise = "".join(chr(0x4E00 + (at * 7919) % 20000) for at in range(150_000))
    heard = streamed(sse(chunk(reasoning=noise), chunk(content="x"), chunk("stop")) + DONE)
    assert heard.content[0]["thinking"] == noise
    assert SEALS.open(heard.content[0]["signature"], purpose=THINKING) == {"text": ""}


def test_names_of_tools_are_the_clients_own() -> None:
    told = telling(own_name=lambda flat: flat.upper())
    assert (
        streamed(sse(call(0, "{}", "one", "read"), chunk("tool_calls")) + DONE, told=told).content[0]["name"] == "READ"
    )


def test_a_call_without_an_id_gets_one() -> None:
    stream = sse(call(0, "{}", None, "f"), call(1, "{}", None, "g"), chunk("tool_calls")) + DONE
    ids = [block["id"] for block in streamed(stream).content]
    assert all(each.startswith("toolu_") for each in ids)
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "no", "code": "rate_limit_exceeded"}, "rate_limit_error"),
        ({"message": "no", "code": "draining", "type": "overloaded_error"}, "overloaded_error"),
        ({"message": "no", "code": "upstream_disconnected", "type": "upstream_error"}, "api_error"),
        ({"message": "prompt is too long: 9000 tokens > 8192 maximum"}, "invalid_request_error"),
        ({"code": 5}, "api_error"),
    ],
)
def test_an_error_ends_the_answer_without_an_end(error: dict[str, Any], kind: str) -> None:
    stream = sse(chunk(content="Let me"), call(0, '{"a"', "one", "f"), {"error": error}) + sse(chunk("stop")) + DONE
    heard = streamed(stream)
    assert heard.error is not None
    assert heard.error["type"] == kind
    assert heard.error["message"]
    assert not heard.is_whole
    assert heard.open_block


def test_a_stream_that_ends_too_early_is_an_error() -> None:
    heard = streamed(sse(chunk(content="Let me")))
    assert heard.error is not None
    assert heard.error["type"] == "api_error"
    assert streamed(sse(chunk(content="x"), chunk("stop"))).is_whole


def test_a_client_that_waits_is_pinged_until_the_end() -> None:
    told = telling()
    assert events_of(told.begin(7))[0]["message"]["usage"]["input_tokens"] == 7
    assert told.keep_alive() == PING
    assert events_of(PING) == [{"type": "ping"}]
    told.feed(RICH)
    assert told.keep_alive() == b""


def test_usage_that_nobody_told_is_an_estimate() -> None:
    heard = streamed(sse(chunk(content="x" * 36), chunk("stop")) + DONE)
    assert (heard.usage["input_tokens"], heard.usage["output_tokens"]) == (812, 10)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b'{"error": {}}'])
def test_what_is_no_answer_is_a_bad_reply(body: bytes) -> None:
    with pytest.raises(UpstreamBadReply):
        telling().whole(body)


def test_numbers_that_cannot_be_held_stay_as_they_are_written() -> None:
    body = stream_to_body(sse(call(0, '{"n": 1e999, "m": 1' + "0" * 400 + "}", "one", "f"), chunk("tool_calls")) + DONE)
    assert b'"n": 1e999' in telling().whole(body)
