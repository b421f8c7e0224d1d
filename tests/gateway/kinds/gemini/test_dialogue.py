"""What Gemini's answers and faults come to."""

import json
from typing import Any

import pytest

from gateway.kinds.gemini.ask import GeminiOptions
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.shared.port import Dialogue, Reply, Situation
from tests.support.gemini_server import GeminiServer, error_body
from tests.support.kinds import sse

USER = {"role": "user", "content": "hi"}


def begin(body: dict[str, Any], **options: Any) -> Dialogue:
    situation = Situation(now=5.0, make_id=lambda _: "call_made", answer_id="chatcmpl-1")
    kind = GeminiKind(GeminiOptions(**options))
    return kind.begin({"model": "gemini-3-flash", **body}, b"", situation=situation, known={})


def test_names_that_are_not_taken_are_told_differently_and_come_back() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("7zip", "_7zip", "a/b")]
    dialogue = begin({"messages": [USER], "tools": tools})
    declared = json.loads(dialogue.ask.body)["tools"][0]["functionDeclarations"]
    names = [function["name"] for function in declared]
    assert len(set(names)) == 3
    parts = [{"functionCall": {"name": name, "args": {}}} for name in names]
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    reply = dialogue.answered(200, {}, json.dumps(body).encode())
    assert isinstance(reply, Reply)
    calls = json.loads(reply.body)["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["7zip", "_7zip", "a/b"]


def streamed(*chunks: dict[str, Any], **fields: Any) -> str:
    dialogue = begin({"messages": [USER], "stream": True, **fields})
    return (b"".join(dialogue.feed(sse(chunk, end="\r\n")) for chunk in chunks) + dialogue.finish()).decode()


def answered(candidate: dict[str, Any], **fields: Any) -> Any:
    body = json.dumps({"candidates": [candidate], **fields}).encode()
    reply = begin({"messages": [USER]}).answered(200, {}, body)
    assert isinstance(reply, Reply)
    return json.loads(reply.body)["choices"][0]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("OTHER", "stop"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_finish_reasons_are_told(reason: str, told: str) -> None:
    assert answered({"content": {"parts": [{"text": "x"}]}, "finishReason": reason})["finish_reason"] == told


def test_a_blocked_prompt_is_a_filtered_answer() -> None:
    body = b'{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}}'
    reply = begin({"messages": [USER]}).answered(200, {}, body)
    assert isinstance(reply, Reply)
    choice = json.loads(reply.body)["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("content_filter", "")
    assert '"finish_reason":"content_filter"' in streamed(json.loads(body))


def test_a_call_that_could_not_be_read_comes_as_text() -> None:
    words = "Malformed function call: print(default_api.run(command='ls'))"
    choice = answered({"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": words})
    assert choice["message"]["content"] == words
    assert choice["finish_reason"] == "stop"


def test_calls_without_an_id_get_one() -> None:
    parts = [{"functionCall": {"name": "run"}}, {"functionCall": {"name": "run", "id": "x", "args": {"b": 1.0}}}]
    calls = answered({"content": {"parts": parts}, "finishReason": "STOP"})["message"]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_made", "x"]
    assert [call["function"]["arguments"] for call in calls] == ["{}", '{"b":1.0}']


def test_a_stream_that_ends_without_a_reason_says_no_done() -> None:
    told = streamed({"candidates": [{"content": {"parts": [{"text": "half"}]}}]})
    assert "half" in told
    assert "[DONE]" not in told


def test_an_error_within_the_stream_ends_it_without_done() -> None:
    told = streamed(error_body(503, "UNAVAILABLE", "The model is overloaded."), {"candidates": []})
    assert json.loads(told.removeprefix("data: "))["error"]["code"] == "overloaded"


@pytest.mark.parametrize(
    ("status", "body", "told_status", "code"),
    [
        (400, error_body(400, "INVALID_ARGUMENT", "API key not valid. Please pass"), 401, "invalid_api_key"),
        (400, error_body(400, "INVALID_ARGUMENT", "bad"), 400, "invalid_request"),
        (
            400,
            error_body(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            400,
            "context_length_exceeded",
        ),
        (404, error_body(404, "NOT_FOUND", "models/x is not found"), 404, "not_found"),
        (403, error_body(403, "PERMISSION_DENIED", "no"), 403, "permission_denied"),
        (503, error_body(503, "UNAVAILABLE", "overloaded"), 503, "overloaded"),
        (500, error_body(500, "INTERNAL", "oops"), 500, "server_error"),
        (200, error_body(500, "INTERNAL", "oops"), 500, "server_error"),
        (429, [error_body(429, "RESOURCE_EXHAUSTED", "quota")], 429, "rate_limit_exceeded"),
        (502, None, 502, "server_error"),
    ],
)
def test_errors_are_told_in_the_words_that_agents_know(status: int, body: Any, told_status: int, code: str) -> None:
    reply = begin({"messages": [USER]}).answered(status, {}, json.dumps(body).encode())
    assert isinstance(reply, Reply)
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (told_status, code)


@pytest.mark.parametrize(("delay", "wait"), [("37s", 37.0), ("0.5s", 1.0), ("soon", None), ("9" * 30 + "s", None)])
def test_how_long_to_wait_is_told(delay: str, wait: float | None) -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    body = json.dumps(error_body(429, "RESOURCE_EXHAUSTED", "quota", detail)).encode()
    reply = begin({"messages": [USER]}).answered(429, {}, body)
    assert isinstance(reply, Reply)
    assert reply.retry_after_s == wait


def test_models_that_talk_are_listed_in_openais_form() -> None:
    server = GeminiServer()
    body = server.respond("GET", "/v1beta/models", {"x-goog-api-key": "AIza"}, b"").body
    assert [model["id"] for model in json.loads(GeminiKind().models(body))["data"]] == ["gemini-3-flash"]


def test_an_answer_that_says_nothing_is_not_remembered() -> None:
    dialogue = begin({"messages": [USER]})
    parts = [{"text": "", "thoughtSignature": "U0lH"}]
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    assert isinstance(dialogue.answered(200, {}, json.dumps(body).encode()), Reply)
    assert dialogue.remember() == ()


def test_models_are_asked_for() -> None:
    asked = GeminiKind().models_ask()
    assert (asked.method, asked.path) == ("GET", "/models")
