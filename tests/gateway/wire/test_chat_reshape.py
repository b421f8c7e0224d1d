"""Servers that do not answer as they were asked: whole answers as streams, streams as whole answers."""

import json

import pytest

from gateway.core.errors import UpstreamBadReply, UpstreamTruncated
from gateway.wire.chat_reshape import body_to_stream, stream_to_body
from tests.support.chat import DONE, answer_body, answer_events, event, hear_body, hear_stream

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
