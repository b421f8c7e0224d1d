"""Errors in the words that Codex acts on."""

import json
from typing import Any

import pytest

from gateway.core.errors import BreakerOpen, Draining, GatewayError, InvalidRequest, NoCapacity, UpstreamRejected
from gateway.surfaces.responses.errors import error_of, told_fault


@pytest.mark.parametrize("error", [NoCapacity("full"), BreakerOpen("left alone"), Draining("restarting")])
def test_no_room_is_said_in_a_code_that_clients_know(error: GatewayError) -> None:
    status, body = error_of(error, status=503)
    assert status == 503
    assert json.loads(body)["error"]["code"] == "server_is_overloaded"


def test_a_fault_of_the_request_names_its_field() -> None:
    status, body = error_of(InvalidRequest("no", param="input"), status=400)
    assert (status, json.loads(body)["error"]["param"]) == (400, "input")


def test_the_server_s_own_words_stay() -> None:
    payload = b'{"error": {"message": "bad key", "code": "invalid_api_key"}}'
    assert error_of(UpstreamRejected("no", status=404, payload=payload), status=404) == (404, payload)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "the request exceeds the available context size (8192 tokens), try increasing it",
        "prompt is too long: 250000 tokens > 200000 maximum",
    ],
)
def test_what_is_too_long_has_the_code_by_which_clients_shorten(message: str) -> None:
    payload = json.dumps({"error": {"message": message}}).encode()
    status, body = error_of(UpstreamRejected("no", status=413, payload=payload), status=413)
    assert (status, json.loads(body)["error"]["code"]) == (400, "context_length_exceeded")
    assert told_fault({"message": message})["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "x", "code": "rate_limit_exceeded"}, "rate_limit_exceeded"),
        ({"message": "x", "type": "rate_limit_error"}, "rate_limit_exceeded"),
        ({"message": "x", "type": "insufficient_quota", "code": None}, "insufficient_quota"),
        ({"message": "x", "code": "overloaded"}, "server_is_overloaded"),
        ({"message": "x", "type": "invalid_request_error", "code": 7}, "invalid_prompt"),
        ({"message": "x", "code": "upstream_truncated"}, "server_error"),
        ({}, "server_error"),
        ({"message": {"a": 1}, "code": ["b"]}, "server_error"),
    ],
)
def test_a_fault_in_the_stream_has_a_code_of_the_api(error: dict[str, Any], code: str) -> None:
    fault = told_fault(error)
    assert fault["code"] == code
    assert fault["message"]


def test_a_limit_says_how_long_to_wait() -> None:
    error = {"message": "slow down", "code": "rate_limit_exceeded"}
    assert told_fault(error, retry_after_s=2.2)["message"] == "slow down Please try again in 3s."
    assert told_fault(error)["message"] == "slow down Please try again in 5s.", "which Codex reads the time in"
    told = {**error, "message": "Please try again in 20ms."}
    assert told_fault(told, retry_after_s=9)["message"] == "Please try again in 20ms."
