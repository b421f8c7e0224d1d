"""Requests: what the gateway itself relies on is checked, with the place of the fault."""

import json
from typing import Any

import pytest
from attrs import evolve

from gateway.core.errors import InvalidRequest
from gateway.wire.openai_chat import parse_request

USER = {"role": "user", "content": "hi"}


def raw(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[1]", None),
        (b"{", None),
        (b"[" * 100_000, None),
        (raw(model=" "), "model"),
        (raw(model="a\nb"), "model"),
        (raw(model=None), "model"),
        (raw(stream="yes"), "stream"),
        (raw(messages=[]), "messages"),
        (raw(messages={"role": "user"}), "messages"),
        (raw(messages=[USER, {"content": "x"}]), "messages[1]"),
        (raw(parallel_tool_calls="yes"), "parallel_tool_calls"),
        (raw(parallel_tool_calls=0), "parallel_tool_calls"),
        (raw(tools={}), "tools"),
        (raw(tools=[{}, 3]), "tools[1]"),
        (raw(tool_choice=[]), "tool_choice"),
    ],
)
def test_a_request_that_cannot_be_read_names_its_fault(body: bytes, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(body)
    assert refused.value.param == param


def test_what_is_no_function_with_a_name_is_no_tool() -> None:
    """It goes up with the request all the same: the upstream may know it."""
    named = {"type": "function", "function": {"name": "read", "description": 3, "parameters": "none"}}
    odd = [{"type": "web_search"}, {"function": "x"}, {"function": {"name": ""}}, {"function": {"name": 5}}]
    request = parse_request(raw(tools=[*odd, named]))
    assert request.tools.names == ("read",)
    (tool,) = request.tools
    assert (tool.description, tool.parameters) == ("", {})
    assert json.loads(request.raw)["tools"] == [*odd, named]


@pytest.mark.parametrize("value", [None, True, False])
def test_parallel_calls_are_allowed_forbidden_or_left_open(value: bool | None) -> None:
    assert parse_request(raw(parallel_tool_calls=value)).parallel is value


def test_half_a_character_is_told_as_such_and_stays_in_the_bytes() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"a \\ud83d b \\ud83d\\ude00 \\\\ud83d"}]}'
    request = parse_request(raw)
    assert request.raw == raw
    assert request.messages[0]["content"] == "a \ufffd b \U0001f600 \\ud83d"
    assert json.loads(request.replace(model="n")) == {**request.body, "model": "n"}


@pytest.mark.parametrize("fault", [b"NaN", b"1e999", b'"\\udc00', b"[" * 5000 + b"]" * 5000, b'"\xff"'])
def test_half_a_character_excuses_no_other_fault(fault: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}],"x":' + fault + b"}")


def test_a_renamed_request_is_what_its_bytes_say() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    asked = parse_request(raw(tools=tools, tool_choice="auto", stream=True, user=None, parallel_tool_calls=False))
    renamed = asked.renamed("other")
    again = parse_request(renamed.raw)
    assert again.body == renamed.body == {**asked.body, "model": "other"}
    assert [*again.tools] == [*renamed.tools]
    assert evolve(again, tools=asked.tools) == renamed
    assert asked.model == asked.body["model"] == "m"


@pytest.mark.parametrize("model", [" ", "a\nb"])
def test_no_request_is_renamed_to_what_is_no_name(model: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(raw()).renamed(model)
