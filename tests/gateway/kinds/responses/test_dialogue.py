"""What a Responses server says, as chat."""

import json
from typing import Any

import pytest

from gateway.kinds.responses.ask import ResponsesOptions
from gateway.kinds.responses.dialogue import ResponsesKind
from gateway.kinds.shared.port import Reply, Situation
from tests.support.kinds import READ, Call, Driver, Turn, comparable, sse
from tests.support.openai_server import ResponsesServer, error_body

SITUATION = Situation(now=1.0, make_id=lambda _: "call_made", answer_id="chatcmpl-1")
HELLO: Any = {"role": "user", "content": "hello"}


def driver(*turns: Turn, **more: Any) -> Driver:
    return Driver(kind=ResponsesKind(**more), server=ResponsesServer(list(turns)), key="sk-resp", model="gpt-5.5")


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5.5", "messages": list(messages) or [HELLO], **fields}


def sent(made: Driver) -> Any:
    return json.loads(made.asks[-1].body)


@pytest.mark.parametrize("stream", [False, True])
def test_sealed_thoughts_go_back_to_where_they_stood(stream: bool) -> None:
    turn = Turn(text="Reading.", thought="hm", calls=(Call("call_1", "read_file", {"path": "a"}),))
    made = driver(turn, Turn(text="done"))
    asked = body(tools=[READ], stream=stream)
    message = made.ask(asked).message
    result = {"role": "tool", "tool_call_id": "call_1", "content": "text"}
    made.ask(body(HELLO, message, result, tools=[READ], stream=stream))
    items = sent(made)["input"]
    assert [item["type"] for item in items] == [
        *("message", "reasoning", "message", "function_call", "function_call_output")
    ]
    assert items[1]["encrypted_content"]


def test_thoughts_for_another_model_stay_away() -> None:
    made = driver(Turn(text="a", thought="hm"), Turn(text="b"))
    message = made.ask(body()).message
    made.ask({**body(HELLO, message, HELLO), "model": "gpt-6"})
    assert [item["type"] for item in sent(made)["input"]] == ["message"] * 3


@pytest.mark.parametrize(
    ("model", "fields", "options", "asks"),
    [
        ("gpt-4o", {}, "auto", False),
        ("gpt-5.5", {}, "auto", True),
        ("openai/o3", {}, "auto", True),
        ("local", {"reasoning_effort": "high"}, "auto", True),
        ("local", {}, "on", True),
        ("gpt-5.5", {}, "off", False),
    ],
)
def test_sealed_thoughts_are_asked_of_models_that_think(model: str, fields: Any, options: Any, asks: bool) -> None:
    made = driver(Turn(text="a"), options=ResponsesOptions(thoughts=options))
    made.ask({**body(**fields), "model": model})
    assert ("include" in sent(made)) is asks


def test_what_is_only_told_at_the_end_of_an_item_is_told() -> None:
    turn = Turn(text="Reading.", thought="hm", calls=(Call("call_1", "read_file", {"path": "ä"}),))
    made = driver(turn)
    assert isinstance(made.server, ResponsesServer)
    made.server.tells_pieces = False
    assert comparable(made.ask(body(tools=[READ], stream=True)).message) == turn.message()


def test_everything_has_its_place_in_the_request() -> None:
    made = driver(Turn(text="{}"))
    made.ask(
        body(
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "Please."},
            HELLO,
            {"role": "system", "content": "Now."},
            tools=[{"type": "function", "function": {**READ["function"], "strict": True}}],  # type: ignore[dict-item]
            tool_choice={"type": "function", "function": {"name": "read_file"}},
            parallel_tool_calls=False,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            max_tokens=50,
            reasoning_effort="low",
            temperature=0.5,
            prompt_cache_key="k",
            stop=["x"],
            seed=1,
        )
    )
    asked = sent(made)
    assert asked["instructions"] == "Be brief.\n\nPlease."
    assert [item["role"] for item in asked["input"]] == ["user", "developer"]
    assert asked["tools"][0]["strict"] is True
    assert asked["tool_choice"] == {"type": "function", "name": "read_file"}
    assert asked["text"]["format"] == {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    assert (asked["max_output_tokens"], asked["reasoning"]["effort"]) == (50, "low")
    assert (asked["parallel_tool_calls"], asked["store"]) == (False, False)
    assert not {"stop", "seed", "messages"} & asked.keys()


def test_strictness_is_never_left_to_the_server() -> None:
    made = driver(Turn(text="a"))
    made.ask(body(tools=[READ]))
    assert sent(made)["tools"][0]["strict"] is False


def fed(*events: Any) -> str:
    dialogue = ResponsesKind().begin(body(stream=True), b"{}", situation=SITUATION, known={})
    out = b"".join(dialogue.feed(sse(event)) for event in events) + dialogue.finish()
    return out.decode()


CREATED = {"type": "response.created", "response": {"id": "resp_1", "model": "m"}}
ADDED = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "msg_1"}}
DELTA = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hi"}


TOO_LONG = {"type": "invalid_request_error", "message": "prompt is too long"}
FAILED = {"object": "response", "status": "failed", "output": [], "error": {"code": "server_error", "message": "x"}}


def failed(error: Any) -> Any:
    return {"type": "response.failed", "response": {"error": error}}


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "x"}}},
            "rate_limit_exceeded",
        ),
        ({"type": "error", "code": "server_error", "message": "x"}, "server_error"),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}},
            "context_length_exceeded",
        ),
        ({"type": "response.failed", "response": {}}, "server_error"),
        ({"type": "response.output_text.delta", "output_index": 7, "delta": "x"}, "upstream_bad_reply"),
    ],
)
def test_a_fault_in_the_stream_ends_it_with_its_code(event: Any, code: str) -> None:
    told = fed(CREATED, ADDED, DELTA, event, DELTA)
    assert f'"code":"{code}"' in told
    assert "[DONE]" not in told
    assert told.count('"content":"hi"') == 1


def test_a_stream_that_ends_early_says_no_end() -> None:
    assert "[DONE]" not in fed(CREATED, ADDED, DELTA)


def test_items_that_only_the_vendor_knows_are_passed_over() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    told = fed(
        CREATED,
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {**ADDED, "output_index": 1},
        {**DELTA, "output_index": 1},
        {"type": "response.completed", "response": {"status": "completed"}},
    )
    assert '"content":"hi"' in told
    assert "[DONE]" in told


def answered(status: int, value: Any) -> Reply:
    dialogue = ResponsesKind().begin(body(), b"{}", situation=SITUATION, known={})
    told = dialogue.answered(status, {}, json.dumps(value).encode())
    assert isinstance(told, Reply)
    return told


@pytest.mark.parametrize(
    ("status", "value", "expected"),
    [
        (429, error_body("slow", kind="rate_limit_error", code="rate_limit_exceeded"), (429, "rate_limit_exceeded")),
        (400, error_body("maximum context length is 9"), (400, "context_length_exceeded")),
        (401, error_body("no", code="invalid_api_key"), (401, "invalid_api_key")),
        (503, {"detail": "x"}, (503, "overloaded")),
        (200, FAILED, (500, "server_error")),
        (200, {"object": "list"}, (502, "upstream_bad_reply")),
        (200, {"error": {"message": "x", "code": "insufficient_quota"}}, (429, "insufficient_quota")),
    ],
)
def test_a_refusal_is_told_in_the_words_of_chat(status: int, value: Any, expected: Any) -> None:
    reply = answered(status, value)
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == expected


def test_a_wrong_key_is_a_wrong_key() -> None:
    made = driver(Turn(text="x"))
    made.key = "other"
    assert made.ask(body()).status == 401
