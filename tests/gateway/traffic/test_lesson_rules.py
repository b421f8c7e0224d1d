"""What is learned of upstreams: their refusals in their own words, and calls that come in a bad shape."""

import json
from typing import Any

import pytest

from gateway.traffic.lesson_rules import (
    LESSON_S,
    MAX_PAIRS,
    Fault,
    Lessons,
    NativeRecord,
    _refusals,
    quotes_refusal,
    refuses_tools,
)

OPENROUTER = (
    'No endpoints found that support tool use. Try disabling "question". To learn more about provider routing, '
    "visit: https://openrouter.ai/docs/guides/routing/provider-selection"
)
VLLM = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'

REFUSALS: list[tuple[int, Any]] = [
    (400, {"error": {"message": "registry.ollama.ai/library/gemma3:4b does not support tools", "type": "api_error"}}),
    (400, {"error": "registry.ollama.ai/library/Qwen3.5:0.8b does not support tools"}),
    (400, {"object": "error", "message": VLLM, "type": "BadRequestError", "param": None, "code": 400}),
    (400, {"error": {"message": VLLM, "type": "BadRequestError", "param": None, "code": 400}}),
    (400, {"error": {"message": 'tool_choice="required" requires --tool-call-parser to be set'}}),
    (404, {"error": {"message": OPENROUTER, "code": 404}}),
    (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
    (500, {"code": 500, "message": "Unsupported param: tools", "type": "server_error"}),
    (400, {"error": {"message": "`tool calling` is not supported with this model", "type": "invalid_request_error"}}),
    (400, {"error": {"message": "deepseek-reasoner does not support Function Calling"}}),
    (400, {"error": {"code": 400, "message": "Tool use with function calling is unsupported"}}),
    (400, {"error": {"message": "Function calling is not enabled for this model"}}),
    (400, {"message": "This model doesn't support tool use in streaming mode."}),
    (400, {"error": {"message": "<400> InternalError.Algo.InvalidParameter: The tool call is not supported."}}),
    (400, {"error": {"message": "Unsupported parameter: 'tools' is not supported with this model.", "param": "tools"}}),
    (400, {"error": {"message": "Unrecognized request argument supplied: tools"}}),
    (400, {"error": {"message": "Provider returned error", "metadata": {"raw": "m does not support tools"}}}),
    (422, {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted", "type": "extra"}]}),
    (422, {"detail": "Tools are not supported."}),
]

OTHER_ERRORS: list[tuple[int, Any]] = [
    (400, {"error": {"message": "tools[0].function.parameters is not supported: unknown type"}}),
    (400, {"error": {"message": "Unknown parameter: 'tools[0].function.strict'."}}),
    (400, {"error": {"message": "This model does not support parallel tool calls"}}),
    (400, {"error": {"message": "this model does not support tool_choice 'required'"}}),
    (404, {"error": {"message": "No endpoints found that support the provided 'tool_choice' value."}}),
    (400, {"error": {"message": "deepseek-reasoner does not support this tool_choice"}}),
    (400, {"error": {"message": "the keyword 'oneOf' in tools is not supported"}}),
    (400, {"error": {"message": "This model's maximum context length is 8192 tokens", "code": "context_length"}}),
    (422, {"detail": [{"loc": ["body", "tools", 0, "strict"], "msg": "Extra inputs are not permitted"}]}),
    (422, {"detail": [{"loc": ["body", "x"], "msg": "bad", "input": "it does not support tools"}]}),
    (404, {"error": {"message": "The model `nope` does not exist", "code": "model_not_found"}}),
    (429, {"error": {"message": "m does not support tools"}}),
    (503, {"error": {"message": "m does not support tools"}}),
    (400, ["does not support tools"]),
    (400, {"error": {"message": 5}, "message": ["does not support tools"], "detail": [1, {"msg": 2}]}),
]


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_real_refusals_are_recognised(status: int, body: Any) -> None:
    assert refuses_tools(status, json.dumps(body).encode())


@pytest.mark.parametrize(("status", "body"), OTHER_ERRORS)
def test_other_errors_are_not_taken_for_refusals(status: int, body: Any) -> None:
    assert not refuses_tools(status, json.dumps(body).encode())


@pytest.mark.parametrize("payload", [None, b"", b"does not support tools", b'{"error"', b"[" * 100_000])
def test_what_is_no_json_object_refuses_nothing(payload: bytes | None) -> None:
    assert not refuses_tools(400, payload)


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_a_refusal_that_stands_in_the_request_is_a_quotation(status: int, body: Any) -> None:
    payload = json.dumps(body).encode()
    assert not quotes_refusal(status, payload, b'{"model": "m", "tools": [{"function": {"name": "tools"}}]}')
    asked = json.dumps({"messages": [{"role": "user", "content": " ".join(_refusals(status, payload))}]}).encode()
    assert quotes_refusal(status, payload, asked)
    assert quotes_refusal(status, payload, asked.replace(b"o", b"\\u006f").replace(b" ", b"\\n "))


def test_a_lesson_holds_for_an_hour_for_this_model_at_this_upstream() -> None:
    lessons = Lessons()
    lessons.learn("default", "m", "refused", 100.0)
    lesson = lessons.recall("default", "m", 100.0 + LESSON_S - 1)
    assert lesson is not None
    assert lesson.reason == "refused"
    assert lessons.recall("default", "m", 100.0 + LESSON_S) is None
    assert lessons.recall("default", "other", 100.0) is None
    assert lessons.recall("other", "m", 100.0) is None


def test_names_that_clients_make_up_do_not_fill_the_memory() -> None:
    lessons, record = Lessons(), NativeRecord()
    for number in range(MAX_PAIRS + 10):
        lessons.learn("default", f"m{number}", "refused", 0.0)
        record.observe("default", f"m{number}", "as_text", 0.0, window=5, percent=50)
    assert lessons.recall("default", "m9", 0.0) is None
    assert lessons.recall("default", f"m{MAX_PAIRS}", 0.0) is not None
    assert len(record._answers) == MAX_PAIRS


BAD: Fault = "bad_arguments"
TEXT: Fault = "as_text"


def observed(*faults: Fault | None, window: int = 4, percent: int = 50, seconds: float = 1.0) -> list[Fault | None]:
    record = NativeRecord()
    return [
        record.observe("default", "m", fault, at * seconds, window=window, percent=percent)
        for at, fault in enumerate(faults)
    ]


def test_nothing_is_learned_before_the_window_is_full() -> None:
    assert observed(TEXT, TEXT, TEXT) == [None, None, None]
    assert observed(TEXT, TEXT, TEXT, BAD)[-1] == TEXT


def test_the_share_of_the_last_answers_decides() -> None:
    faults = observed(None, None, None, TEXT, BAD, BAD)
    assert faults == [None, None, None, None, TEXT, None]
    assert observed(*[TEXT, None, None, None] * 5) == [None] * 20


def test_a_rate_of_all_allows_no_good_answer() -> None:
    assert observed(*[TEXT] * 4, percent=100)[-1] == TEXT
    assert observed(None, *[TEXT] * 3, percent=100)[-1] is None


def test_answers_of_long_ago_do_not_count() -> None:
    assert observed(*[TEXT] * 4, seconds=LESSON_S / 3) == [None] * 4


def test_after_a_lesson_it_begins_anew() -> None:
    assert observed(*[TEXT] * 8) == [None, None, None, TEXT] * 2
