"""Calls held against the schemas that a server was not told whole."""

import json
from typing import Any

from gateway.answer.structured.schema_check import Fitting, held_to_schemas
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.openai import OpenAiKind
from gateway.wire.chat_request import parse_request
from strategies.base import BrokenCall, Options, Prepared
from strategies.native import NativeStrategy

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}}, "required": ["n"]}
PLAIN = {"type": "object", "properties": {"s": {"type": "string"}}}


def prepared(**schemas: Any) -> Prepared:
    tools = [{"type": "function", "function": {"name": name, "parameters": each}} for name, each in schemas.items()]
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "tools": tools}
    return NativeStrategy().prepare(parse_request(json.dumps(body).encode()), Options())


def call(name: str, arguments: Any, call_id: str = "c") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def fitting() -> Fitting:
    held = held_to_schemas(prepared(pick=SCHEMA, plain=PLAIN), OpenAiKind(), ["enum"]).ask_again
    assert isinstance(held, Fitting)
    return held


def test_only_tools_that_were_told_differently_are_held() -> None:
    assert set(fitting().schemas) == {"pick"}
    whole = prepared(plain=PLAIN)
    assert held_to_schemas(whole, OpenAiKind(), ["enum"]) is whole
    assert held_to_schemas(whole, AnthropicKind(), ()) is whole
    assert held_to_schemas(whole, GeminiKind(), ()) is whole
    assert held_to_schemas(prepared(), OpenAiKind(), ["enum"]).ask_again is None


def test_kinds_know_what_they_cannot_say() -> None:
    union = {"type": "object", "anyOf": [{"required": ["a"]}]}
    assert not AnthropicKind().can_say(union)
    assert AnthropicKind().can_say({"$schema": "x", **SCHEMA})
    assert not GeminiKind().can_say({**PLAIN, "additionalProperties": False})
    assert GeminiKind().can_say({"type": "object", "properties": {}})
    assert OpenAiKind().can_say(union)


def test_a_call_is_usable_if_it_fits() -> None:
    held = fitting()
    assert held.is_usable("pick", '{"n": 1}')
    assert not held.is_usable("pick", '{"n": 3}')
    assert not held.is_usable("pick", "")
    assert not held.is_usable("pick", "[1]")
    assert held.is_usable("plain", '{"s": 5}')
    assert not held.is_usable("unknown", "{}")
    assert held.is_usable("pick", {})


def test_what_is_wrong_is_told_with_the_call() -> None:
    attempt = BrokenCall(content="", calls=(call("pick", '{"n": 3}'), call("plain", "{}", "d")))
    messages = json.loads(fitting().body([attempt]))["messages"]
    assert "must be" in messages[-2]["content"]
    assert "not run" in messages[-2]["content"]
    assert messages[-1]["tool_call_id"] == "d"


def test_every_call_of_a_message_is_told_its_own_fault() -> None:
    nameless = {**call("pick", '{"n": 3}'), "id": 7}
    attempt = BrokenCall(content="", calls=(nameless, call("plain", "{oops", "d"), call("plain", "{}", "e")))
    told = json.loads(fitting().body([attempt]))["messages"][-3:]
    assert [message["tool_call_id"] for message in told] == ["call_0", "d", "e"]
    assert "must be" in told[0]["content"]
    assert "not a JSON object" in told[1]["content"]
    assert "another call" in told[2]["content"]
