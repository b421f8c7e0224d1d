"""What a request declares, as the model is shown it."""

import json
from typing import Any

import pytest

from gateway.core.errors import (
    BreakerOpen,
    Draining,
    GatewayError,
    InvalidRequest,
    NoCapacity,
    UpstreamRejected,
)
from gateway.surfaces.responses.errors import error_of, told_fault
from gateway.surfaces.responses.tools import Declared, declared_tools

READ = {"type": "function", "name": "read", "description": "Reads.", "parameters": {"type": "object"}, "strict": True}

PATCH = {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "text"}}

AGENTS = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Agents.",
    "tools": [{"type": "function", "name": "close_agent", "parameters": {"type": "object"}}],
}

SEARCH = {"type": "tool_search", "execution": "client", "description": "Finds tools."}

WEB = {"type": "web_search"}


def shown(declared: Declared) -> list[str]:
    return [each["function"]["name"] for each in declared.functions]


def declare(*tools: Any, items: Any = (), **more: Any) -> Declared:
    return declared_tools({"tools": list(tools), **more}, items)


def test_a_function_is_shown_as_it_was_declared() -> None:
    function = declare(READ).functions[0]
    assert function == {
        "type": "function",
        "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object"}, "strict": True},
    }


def test_every_kind_has_a_function() -> None:
    declared = declare(READ, PATCH, AGENTS, SEARCH, {"type": "local_shell"}, {"type": "shell"})
    assert shown(declared) == [
        *("read", "apply_patch", "multi_agent_v1__close_agent", "tool_search", "local_shell", "shell")
    ]
    kinds = [declared.names.own(name).kind for name in shown(declared)]  # type: ignore[union-attr]
    assert kinds == ["function", "custom", "function", "tool_search", "local_shell", "shell"]
    assert declared.functions[2]["function"]["description"] == "Agents."


def test_a_typed_patch_tool_is_shown() -> None:
    declared = declare({"type": "apply_patch"})
    assert shown(declared) == ["apply_patch"]
    assert declared.names.own("apply_patch").kind == "apply_patch"  # type: ignore[union-attr]


def test_what_only_the_vendor_runs_is_left_out_beside_others() -> None:
    declared = declare(
        READ, WEB, {"type": "code_interpreter"}, {"type": "shell", "environment": {"type": "container_auto"}}
    )
    assert shown(declared) == ["read"]
    assert declared.left_out == ["web_search", "code_interpreter", "shell"]
    assert declared.dropped == ["server_tool"] * 3


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [WEB]},
        {"tools": [WEB, {"type": "mcp"}]},
        {"tools": [READ, WEB], "tool_choice": {"type": "web_search"}},
        {"tools": [{"type": "tool_search"}]},
    ],
)
def test_alone_or_forced_it_is_refused_by_name(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"web_search|tool_search"):
        declared_tools(body, ())


def test_alone_but_not_to_be_used_it_is_left_out() -> None:
    assert declare(WEB, tool_choice="none").functions == []


@pytest.mark.parametrize(
    "tool", [7, {"type": "function"}, {"type": "new_thing", "name": "x"}, {"type": "namespace"}, {}]
)
def test_what_is_unknown_is_dropped_and_never_refused(tool: Any) -> None:
    declared = declare(tool)
    assert declared.functions == []
    assert declared.dropped == ["tool"]


def test_a_declaration_in_the_form_of_chat_is_read_too() -> None:
    assert declare({"type": "function", "function": READ}).functions[0]["function"]["description"] == "Reads."


def test_a_deferred_tool_is_shown_once_it_was_found_and_at_the_end() -> None:
    late = {**READ, "name": "late", "defer_loading": True}
    assert shown(declare(late, READ, SEARCH)) == ["read", "tool_search"]
    found = {"type": "tool_search_output", "call_id": "c", "tools": [{**AGENTS}, late]}
    assert shown(declare(late, READ, SEARCH, items=[found])) == [
        *("read", "tool_search", "multi_agent_v1__close_agent", "late")
    ]


def test_without_a_search_by_the_client_everything_is_shown() -> None:
    assert shown(declare({**READ, "defer_loading": True}, {"type": "tool_search"})) == ["read"]


def test_tools_among_the_items_join_the_others() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [PATCH, READ]}
    assert shown(declare(READ, items=[item])) == ["read", "apply_patch"]


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (None, None),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("whatever", None),
        ({"type": "function", "name": "read"}, "read"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "close_agent", "namespace": "multi_agent_v1"}, "multi_agent_v1__close_agent"),
        ({"type": "tool_search"}, "tool_search"),
        ({"type": "new_thing"}, None),
    ],
)
def test_a_choice_is_told_in_the_words_of_chat(choice: Any, told: str | None) -> None:
    found = declare(READ, PATCH, AGENTS, SEARCH, tool_choice=choice).choice
    named = found["function"]["name"] if isinstance(found, dict) else found
    assert named == told


def test_a_choice_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="write"):
        declare(READ, tool_choice={"type": "function", "name": "write"})


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_shown(mode: str) -> None:
    allowed = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "custom", "name": "apply_patch"}, WEB]}
    declared = declare(READ, PATCH, tool_choice=allowed)
    assert (shown(declared), declared.choice) == (["apply_patch"], mode)


def test_the_same_declarations_give_the_same_names() -> None:
    tools = [AGENTS, READ, {**READ, "name": "multi_agent_v1__close_agent"}]
    assert shown(declare(*tools)) == shown(declare(*tools))
    assert len(set(shown(declare(*tools)))) == 3


def test_tools_that_are_no_list_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        declared_tools({"tools": {"a": 1}}, ())


# --- Errors in the words that Codex acts on


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
