"""What a turn looks like that a server's parser swallowed, and what only resembles one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answer.rescue.faces import FACES, of_body, of_end, of_error, of_refusal, spoken_tokens

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_the_names_are_labels() -> None:
    names = [face.name for face in FACES]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


@pytest.mark.parametrize(
    ("body", "face", "text"),
    [
        ({"error": "EOF"}, "parser_eof", ""),
        ({"message": "Failed to parse input at pos 0: hi", "code": 500}, "parse_input", "hi"),
        ({"error": {"message": "Failed to parse input at pos 7"}}, "parse_input", ""),
        ({"error": {"code": "tool_use_failed", "failed_generation": "a\nb"}}, "failed_generation", "a\nb"),
        ({"error": {"code": "tool_use_failed", "failed_generation": 5}}, "failed_generation", ""),
        ({"error": {"message": "Provider", "metadata": {"raw": '{"error":{"message":"EOF"}}'}}}, "parser_eof", ""),
        ({"error": {"message": "Provider", "metadata": {"raw": "EOF"}}}, "parser_eof", ""),
        ({"error": {"message": "error parsing tool call: raw='it's', err=x"}}, "raw_call", "it's"),
    ],
)
def test_errors_in_the_servers_own_words(body: dict[str, Any], face: str, text: str) -> None:
    for found in (of_error(body), of_refusal(400 if face == "failed_generation" else 500, json.dumps(body).encode())):
        assert found is not None
        assert (found.face.name, found.text) == (face, text)


@pytest.mark.parametrize("payload", [None, b"", b"EOF", b'"EOF"', b"[" * 100_000, b'{"error":' * 5000])
def test_what_is_no_error_is_none(payload: bytes | None) -> None:
    assert of_refusal(500, payload) is None
    assert payload is None or of_body(payload) is None


@given(JSON)
def test_any_json_can_be_looked_at(value: Any) -> None:
    of_error(value)
    of_error({"error": value})
    body = json.dumps({"choices": [{"message": value, "finish_reason": value}], "usage": value}).encode()
    of_body(body)
    assert of_body(json.dumps(value).encode()) is None


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Hello."},
        {"content": [{"type": "text", "text": "x"}]},
        {"content": "", "tool_calls": [{"id": "a"}]},
        {"content": None, "function_call": {"name": "a"}},
        {"content": None, "refusal": "No."},
    ],
)
def test_what_can_be_seen_was_not_swallowed(message: dict[str, Any]) -> None:
    for finish in ("stop", "tool_calls"):
        choice = {"message": message, "finish_reason": finish}
        assert of_body(json.dumps({"choices": [choice], "usage": {"completion_tokens": 99}}).encode()) is None


def test_blanks_cannot_be_seen_and_several_answers_are_none() -> None:
    choice = {"message": {"content": " \n"}, "finish_reason": "stop"}
    answer = {"choices": [choice], "usage": {"completion_tokens": 99}}
    found = of_body(json.dumps(answer).encode())
    assert found is not None
    assert found.face.name == "silent"
    assert of_body(json.dumps({**answer, "choices": [choice, choice]}).encode()) is None
    assert of_body(json.dumps({**answer, "choices": [{**choice, "finish_reason": "length"}]}).encode()) is None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"completion_tokens": 9}, 9),
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}, 5),
        ({"completion_tokens": 9, "reasoning_tokens": 4}, 5),
        ({"completion_tokens": True}, 0),
        ({"completion_tokens": -3}, 0),
        ({"completion_tokens": "9"}, 0),
        (None, 0),
        ([], 0),
    ],
)
def test_tokens_of_reasoning_say_nothing(usage: Any, tokens: int) -> None:
    assert spoken_tokens(usage) == tokens


def test_an_answer_that_only_reasoned_is_none() -> None:
    assert of_end("stop", {"completion_tokens": 50}, has_reasoned=True) is None
    assert of_end("length", {"completion_tokens": 50}, has_reasoned=False) is None
    assert of_end("tool_calls", None, has_reasoned=True) is not None
