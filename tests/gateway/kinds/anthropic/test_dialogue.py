"""What the answers and faults of Anthropic's Messages come to."""

import json
from typing import Any

import pytest

from gateway.core.errors import UpstreamBadReply
from gateway.kinds.anthropic.ask import AnthropicOptions
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.shared.port import Dialogue, Reply, Situation
from tests.support.anthropic_server import AnthropicServer, error_body
from tests.support.kinds import RUN, Call, Driver, Turn, sse

USER = {"role": "user", "content": "hi"}


def begin(body: dict[str, Any], *, known: dict[str, bytes] | None = None, **options: Any) -> Dialogue:
    kind = AnthropicKind(AnthropicOptions(**options))
    situation = Situation(now=5.0, make_id=lambda _: "call_made", answer_id="chatcmpl-1")
    return kind.begin({"model": "claude-sonnet-4-5", **body}, b"", situation=situation, known=known or {})


def events(*events: dict[str, Any]) -> bytes:
    return b"".join(sse(event, name=event["type"]) for event in events)


START = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}}


def streamed(*pieces: bytes, **fields: Any) -> str:
    dialogue = begin({"messages": [USER], "stream": True, **fields})
    return (b"".join(dialogue.feed(piece) for piece in pieces) + dialogue.finish()).decode()


def test_interleaved_thoughts_keep_their_order() -> None:
    blocks = [
        {"type": "thinking", "thinking": "one", "signature": "S1"},
        {"type": "text", "text": "a"},
        {"type": "redacted_thinking", "data": "ENC"},
        {"type": "tool_use", "id": "t1", "name": "run", "input": {}},
        {"type": "thinking", "thinking": "two", "signature": "S2"},
        {"type": "text", "text": "bc"},
        {"type": "tool_use", "id": "t2", "name": "run", "input": {}},
    ]
    dialogue = begin({"messages": [USER]})
    message = {"id": "msg_1", "type": "message", "model": "m", "content": blocks, "stop_reason": "tool_use"}
    reply = dialogue.answered(200, {}, json.dumps(message).encode())
    assert isinstance(reply, Reply)
    answer = json.loads(reply.body)["choices"][0]["message"]
    assert (answer["content"], answer["reasoning_content"]) == ("abc", "onetwo")
    known = {memory.key: memory.value for memory in dialogue.remember()}
    again = begin({"messages": [USER, answer], "reasoning_effort": "high"}, known=known)
    assert json.loads(again.ask.body)["messages"][1]["content"] == blocks


def test_an_error_within_the_stream_ends_it_without_done() -> None:
    told = streamed(events(START, {**error_body("overloaded_error", "Overloaded"), "type": "error"}), events(START))
    assert "[DONE]" not in told
    assert json.loads(told.rstrip().rpartition("data: ")[2]) == {
        "error": {"message": "Overloaded", "type": "server_error", "param": None, "code": "overloaded"}
    }


def test_a_stream_that_ends_too_early_says_no_done() -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "half"}}
    told = streamed(events(START, block))
    assert "half" in told
    assert "[DONE]" not in told
    assert '"finish_reason":"' not in told


def test_nothing_follows_the_end_of_a_message() -> None:
    end: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    late = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "late"}}
    assert streamed(events(START, *end, late)).endswith("data: [DONE]\n\n")


def test_usage_is_told_only_if_asked_for() -> None:
    end: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    assert "usage" not in streamed(events(START, *end))
    assert '"completion_tokens":4' in streamed(events(START, *end), stream_options={"include_usage": True})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("read", "told"), [(70, 70), (0, 0), (None, None)])
def test_what_was_read_from_the_cache_is_told_and_all_input_counts(
    stream: bool, read: int | None, told: int | None
) -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 200, "output_tokens": 4}
    usage |= {} if read is None else {"cache_read_input_tokens": read}
    if stream:
        start = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": usage}}
        end: list[dict[str, Any]] = [
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
        written = streamed(events(start, *end), stream_options={"include_usage": True})
        [got] = [json.loads(line.removeprefix("data: "))["usage"] for line in written.splitlines() if "usage" in line]
    else:
        message = {"content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn", "usage": usage}
        reply = begin({"messages": [USER]}).answered(200, {}, json.dumps(message).encode())
        assert isinstance(reply, Reply)
        got = json.loads(reply.body)["usage"]
    assert got["prompt_tokens"] == 205 + (read or 0)
    assert got["total_tokens"] == got["prompt_tokens"] + got["completion_tokens"]
    assert got.get("prompt_tokens_details", {}).get("cached_tokens") == told


def test_input_that_comes_with_its_block_is_taken() -> None:
    block = {"type": "tool_use", "id": "t", "name": "run", "input": {"a": 1.0}}
    told = streamed(
        events(START, {"type": "content_block_start", "index": 0, "content_block": block}),
        events({"type": "content_block_stop", "index": 0}),
    )
    assert r'"arguments":"{\"a\":1.0}"' in told


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
        (None, "stop"),
    ],
)
def test_stop_reasons_are_told_as_finish_reasons(reason: str | None, told: str) -> None:
    message = {"content": [{"type": "text", "text": "x"}], "stop_reason": reason}
    reply = begin({"messages": [USER]}).answered(200, {}, json.dumps(message).encode())
    assert isinstance(reply, Reply)
    assert json.loads(reply.body)["choices"][0]["finish_reason"] == told


@pytest.mark.parametrize(
    ("status", "body", "told_status", "code"),
    [
        (529, error_body("overloaded_error", "Overloaded"), 529, "overloaded"),
        (429, error_body("rate_limit_error", "slow down"), 429, "rate_limit_exceeded"),
        (401, error_body("authentication_error", "invalid x-api-key"), 401, "invalid_api_key"),
        (404, error_body("not_found_error", "model: x"), 404, "model_not_found"),
        (400, error_body("invalid_request_error", "bad"), 400, "invalid_request"),
        (400, error_body("invalid_request_error", "prompt is too long: 2 > 1"), 400, "context_length_exceeded"),
        (413, error_body("request_too_large", "too large"), 413, "request_too_large"),
        (500, error_body("api_error", "oops"), 500, "server_error"),
        (500, "<html>", 500, "server_error"),
        (418, None, 418, "invalid_request"),
        (301, None, 502, "server_error"),
    ],
)
def test_errors_are_told_in_the_words_that_agents_know(status: int, body: Any, told_status: int, code: str) -> None:
    reply = begin({"messages": [USER]}).answered(status, {}, json.dumps(body).encode())
    assert isinstance(reply, Reply)
    error = json.loads(reply.body)["error"]
    assert (reply.status, error["code"]) == (told_status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"content": 1}', b'{"content": [1]}', b"\xff", b"[" * 9999])
def test_an_answer_that_is_none_is_a_bad_reply(body: bytes) -> None:
    reply = begin({"messages": [USER]}).answered(200, {}, body)
    assert isinstance(reply, Reply)
    assert reply.status == 502
    assert json.loads(reply.body)["error"]["code"] == "upstream_bad_reply"


def test_models_are_listed_in_openais_form() -> None:
    listed = json.loads(AnthropicKind().models(b'{"data": [{"type": "model", "id": "claude-x"}, 1, {}]}'))
    assert listed["data"] == [{"id": "claude-x", "object": "model", "created": 0, "owned_by": "anthropic"}]


def test_the_key_and_the_version_go_into_headers() -> None:
    assert dict(AnthropicKind().credentials("k")) == {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    bearer = AnthropicKind(AnthropicOptions(auth="bearer")).credentials("k")
    assert dict(bearer) == {"Authorization": "Bearer k", "anthropic-version": "2023-06-01"}
    assert dict(AnthropicKind().credentials(None)) == {"anthropic-version": "2023-06-01"}


def test_blocks_that_only_the_server_knows_are_passed_over() -> None:
    told = streamed(
        events(START, {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use"}}),
        events({"type": "content_block_stop", "index": 0}, {"type": "content_block_stop", "index": 7}),
        events({"type": "content_block_start", "index": 1, "content_block": {"type": "thinking", "thinking": "hm"}}),
        events({"type": "message_stop"}),
    )
    assert "error" not in told
    assert '"reasoning_content":"hm"' in told
    assert told.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("index", [None, "0", -1, True])
def test_a_block_without_a_number_is_a_bad_reply(index: Any) -> None:
    block = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": "x"}}
    assert '"code":"upstream_bad_reply"' in streamed(events(START, block))


def test_half_a_character_is_replaced() -> None:
    told = streamed(
        b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a\\ud83d"}}\n\n'
    )
    assert '"content":"a?"' in told


def test_models_are_asked_for() -> None:
    asked = AnthropicKind().models_ask()
    assert (asked.method, asked.path) == ("GET", "/models")
    with pytest.raises(UpstreamBadReply):
        AnthropicKind().models(b"[]")


# --- Signed thoughts over turns


CALL = {"id": "toolu_1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}


def driver(*turns: Turn, model: str = "claude-sonnet-4-5") -> Driver:
    return Driver(kind=AnthropicKind(), server=AnthropicServer(list(turns)), key="sk-ant", model=model)


THINKING = Turn(thought="hm", signature="SIG", text="I look.", calls=(Call("toolu_1", "run", {"command": "ls"}),))


def second_request(client: Driver, answer: dict[str, Any]) -> Any:
    body = {"model": client.model, "messages": [USER], "tools": [RUN], "reasoning_effort": "high"}
    assert client.ask(body).status == 200
    result = {"role": "tool", "tool_call_id": "toolu_1", "content": "R"}
    got = client.ask({**body, "messages": [USER, answer, result]})
    assert got.status == 200, got.body
    return json.loads(client.asks[-1].body)


def test_signed_thoughts_are_put_back_where_they_stood() -> None:
    request = second_request(
        driver(THINKING, Turn(text="done")), {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
    )
    content = request["messages"][1]["content"]
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use"]
    assert content[0] == {"type": "thinking", "thinking": "hm", "signature": "SIG"}
    assert request["thinking"]["type"] == "enabled"


def test_thoughts_come_back_though_the_client_changed_the_text() -> None:
    request = second_request(
        driver(THINKING, Turn(text="done")), {"role": "assistant", "content": "I", "tool_calls": [CALL]}
    )
    assert [block["type"] for block in request["messages"][1]["content"]] == ["thinking", "text", "tool_use"]


def test_manual_thinking_pauses_where_its_thoughts_are_lost() -> None:
    client = driver(THINKING, Turn(text="done"))
    calls = [{**CALL, "id": "call_from_elsewhere"}]
    body = {"model": client.model, "messages": [USER], "tools": [RUN], "reasoning_effort": "high"}
    client.ask(body)
    result = {"role": "tool", "tool_call_id": "call_from_elsewhere", "content": "R"}
    got = client.ask({**body, "messages": [USER, {"role": "assistant", "tool_calls": calls}, result]})
    assert got.status == 200, got.body
    assert "thinking" not in json.loads(client.asks[-1].body)


def test_thoughts_of_another_model_are_not_put_back() -> None:
    client = driver(THINKING, Turn(text="done"))
    client.ask({"model": "claude-sonnet-4-5", "messages": [USER], "tools": [RUN], "reasoning_effort": "high"})
    answer = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "toolu_1", "content": "R"}
    got = client.ask({"model": "claude-opus-4-6", "messages": [USER, answer, result], "tools": [RUN]})
    assert got.status == 200
    assert b'"thinking"' not in client.asks[-1].body


def test_thoughts_of_another_client_are_out_of_reach() -> None:
    kind = AnthropicKind()
    body = {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}]}
    assert set(kind.keys(body, scope="a")).isdisjoint(kind.keys(body, scope="b"))


def test_a_mark_stays_with_an_answer_whose_thoughts_come_back() -> None:
    client = driver(THINKING, Turn(text="done"))
    text = {"type": "text", "text": "I look.", "cache_control": {"type": "ephemeral"}}
    request = second_request(client, {"role": "assistant", "content": [text], "tool_calls": [CALL]})
    content = request["messages"][1]["content"]
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use"]
    assert content[-1]["cache_control"] == {"type": "ephemeral"}


def test_a_text_of_the_clients_own_stands_behind_the_thoughts() -> None:
    turn = Turn(thought="hm", signature="SIG", calls=(Call("toolu_1", "run", {}),))
    request = second_request(
        driver(turn, Turn(text="done")), {"role": "assistant", "content": "mine", "tool_calls": [CALL]}
    )
    assert [block["type"] for block in request["messages"][1]["content"]] == ["thinking", "text", "tool_use"]


def test_what_is_remembered_but_cannot_be_read_is_nothing() -> None:
    body = {"model": "claude-opus-4-6", "messages": [USER, {"role": "assistant", "content": "x"}, USER]}
    for value in (b"junk", b"[]", b'{"model": "claude-opus-4-6", "items": [3, ["r", 1], ["x", 2]]}'):
        known = dict.fromkeys(AnthropicKind().keys(body), value)
        assert json.loads(begin(body, known=known).ask.body)["messages"][1]["content"] == [
            {"type": "text", "text": "x"}
        ]
