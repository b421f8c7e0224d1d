"""Chunks that are not as they should be: passed on unread where clients can read them, refused where not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamBadReply, UpstreamTruncated
from gateway.wire.chat_chunks import BadChunk, decode_chunk
from gateway.wire.chat_reshape import body_to_stream, stream_to_body
from gateway.wire.usage import summed_usage
from tests.support.chat import DONE, answer_body, answer_events, event, hear_body, hear_stream


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices": 3}',
        b'{"choices": [{"index": "x"}]}',
        rb'{"choices": [{"index": 0, "delta": {"content": "\ud83d"}}]}',
        rb'{"note": "\udc00"}',
    ],
)
def test_an_object_of_another_shape_is_passed_on_unread(data: bytes) -> None:
    assert decode_chunk(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"3",
        b"[1]",
        b'"x"',
        rb'["\ud83d"]',
        b'{"choices": [{"index": 0, "delta": {"content": "\xff"}}]}',
        b'{"choices": [{"index": 0, "delta": {"content": "a\nb"}}]}',
        b'{"note": ' + b"[" * 100_000,
        b'{"note": NaN}',
    ],
    ids=["cut", "number", "list", "text", "half in a list", "no UTF-8", "line break", "depth", "no number"],
)
def test_what_clients_cannot_read_is_refused(data: bytes) -> None:
    with pytest.raises(BadChunk):
        decode_chunk(data)


# --- Servers that do not answer as they were asked: whole answers as streams, streams as whole answers


CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}}


def test_whole_answer_becomes_a_stream_with_its_usage():
    body = json.loads(answer_body("hi"))
    body["usage"] = {"prompt_tokens": 1, "completion_tokens": 2}
    out = body_to_stream(json.dumps(body).encode())
    assert hear_stream(out).meaning == ("hi", [], "stop")
    assert hear_stream(out).done
    assert b'"prompt_tokens":1' in out


def test_calls_of_a_whole_answer_get_their_index():
    heard = hear_stream(body_to_stream(answer_body(None, "tool_calls", tool_calls=[CALL, {**CALL, "id": "call_2"}])))
    assert [call["id"] for call in heard.calls] == ["call_1", "call_2"]


def test_stream_becomes_a_whole_answer():
    deltas = [
        {"role": "assistant", "content": "a", "reasoning_content": "x"},
        {"content": "b", "reasoning_content": "y"},
        {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "read", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    body = stream_to_body(b"".join([*(event(delta) for delta in deltas), event({}, "tool_calls"), DONE]))
    heard = hear_body(body)
    assert heard.meaning == ("ab", [("read", '{"a":1}')], "tool_calls")
    assert json.loads(body)["choices"][0]["message"]["reasoning_content"] == "xy"
    assert json.loads(body)["object"] == "chat.completion"


def test_cut_stream_is_no_whole_answer():
    with pytest.raises(UpstreamTruncated):
        stream_to_body(b"".join(answer_events(["hi"])[:-2]))
    assert hear_body(stream_to_body(b"".join(answer_events(["hi"])[:-1]))).finish == "stop"


def test_error_in_a_stream_stays_the_error():
    fault = {"error": {"message": "no", "code": "x"}}
    assert json.loads(stream_to_body(b"data: " + json.dumps(fault).encode() + b"\n\n")) == fault


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {\n\n",
        b'data: {"choices": [1]}\n\n',
        b'data: {"choices": 3}\n\n',
        b'data: {"choices": [{"index": "a", "delta": {}}, {"index": 1, "delta": {}}]}\n\n',
    ],
)
def test_what_is_no_chat_stream_is_refused(bad):
    with pytest.raises(UpstreamBadReply):
        stream_to_body(bad)


def test_what_is_no_chat_answer_is_refused():
    with pytest.raises(UpstreamBadReply):
        body_to_stream(b"[1]")


def test_comments_and_empty_events_of_a_stream_say_nothing():
    parts = [b": wait\n\n", event({"role": "assistant", "content": "a"}), b"event: ping\n\n", b"data:\n\n"]
    assert hear_body(stream_to_body(b"".join([*parts, event({"content": "b"}, "stop"), DONE]))).content == "ab"


def test_a_field_that_was_told_is_not_unsaid():
    parts = [event({"role": "assistant", "audio": {"id": "x"}}), event({"role": None, "audio": None, "refusal": None})]
    message = json.loads(stream_to_body(b"".join([*parts, event({"content": "a"}, "stop"), DONE])))["choices"][0][
        "message"
    ]
    assert message == {"role": "assistant", "content": "a", "audio": {"id": "x"}, "refusal": None}


# --- Token counts of two answers, told as one


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 4, "b": 2}),
        ({"a": 1}, {"c": 5}, {"a": 1, "c": 5}),
        ({"d": {"x": 1, "y": None}}, {"d": {"x": 2, "y": 3}}, {"d": {"x": 3, "y": 3}}),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"a": True, "b": "s"}, {"a": True, "b": "t"}, {"a": True, "b": "s"}),
        ({"cost": 0.5}, {"cost": 0.25}, {"cost": 0.75}),
    ],
)
def test_numbers_are_added_and_the_rest_stays(one: Any, other: Any, both: Any) -> None:
    assert summed_usage(one, other) == both


@given(JSON, JSON)
def test_any_shape_can_be_added(one: Any, other: Any) -> None:
    summed_usage(one, other)


@given(st.dictionaries(st.text(max_size=2), st.integers(), max_size=4))
def test_nothing_added_changes_nothing(usage: dict[str, int]) -> None:
    assert summed_usage(usage, {}) == usage
    assert summed_usage(usage, dict.fromkeys(usage, 0)) == usage
