"""Ids that a family insists on: what the server said is what it hears again, whatever the client makes of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.wire.chat_request import parse_request
from gateway.wire.structured_calls import NativeCalls
from strategies.asking.family_ids import known_ids
from strategies.asking.past_calls import mend
from strategies.base import Options

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


def mended(model: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = {"model": model, "messages": messages, "tools": [TOOL]}
    return mend(parse_request(json.dumps(body).encode()), Options()).messages


def answered(model: str, messages: list[dict[str, Any]], ids: list[str]) -> list[str]:
    """The ids that the client gets for the server's."""
    known = known_ids(model, messages)
    made = iter(range(100))
    native = NativeCalls(
        lambda _: f"call_made{next(made)}",
        taken_ids=known.taken if known else (),
        next_id=known.next_id if known else None,
    )
    calls = [{"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in ids]
    native.mend_message(calls)
    return [str(call["id"]) for call in calls]


def conversation(model: str, turns: list[list[str]], told: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Ids as clients get them, and as the server gets them in the end; `told` is what the client makes of its own."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    got: list[str] = []
    for ids in turns:
        given = answered(model, mended(model, messages), ids)
        got += given
        calls = [
            {"id": told(each), "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in given
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": told(each), "content": "y"} for each in given]
    sent = mended(model, messages)
    called = [call["id"] for message in sent for call in message.get("tool_calls", [])]
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == called
    return got, called


@pytest.mark.parametrize("told", [str, lambda each: each.replace(".", "_").replace(":", "_")], ids=["kept", "cleaned"])
@pytest.mark.parametrize(
    "turns",
    [
        [["functions.read:0"], ["functions.read:1", "functions.read:2"], ["functions.read:3"]],
        [["functions.read:0"], ["functions.read:0", "functions.read:1"], ["functions.read:0"]],
        [["functions.read:0", "functions.read:0"], ["functions.read:0"]],
    ],
)
def test_kimis_ids_count_on_both_ways(turns: list[list[str]], told: Callable[[str], str]) -> None:
    got, sent = conversation("kimi-k2-instruct", turns, told)
    assert sent == [f"functions.read:{at}" for at in range(len(sent))]
    assert got == sent


def test_mistrals_ids_come_back_as_they_were() -> None:
    got, sent = conversation("mistral-small", [["a1B2c3D4e"], ["Z9y8X7w6V", "a1B2c3D4e"]], str)
    assert got == sent
    assert got[:2] == ["a1B2c3D4e", "Z9y8X7w6V"]
    assert len(set(got)) == 3
    assert all(len(each) == 9 and each.isalnum() for each in got)


def test_other_families_keep_what_they_have() -> None:
    assert known_ids("deepseek-chat", [{"role": "assistant", "tool_calls": [{"id": "call_0"}]}]) is None
    assert answered("deepseek-chat", [], ["call_0", "call_0"]) == ["call_0", "call_made0"]


@pytest.mark.parametrize("calls", [None, 5, [None, {"id": 5}], {}])
def test_a_strange_history_tells_nothing(calls: Any) -> None:
    known = known_ids("kimi-k2", [{"role": "assistant", "tool_calls": calls}, {"role": "user"}])
    assert known is not None
    assert known.taken == frozenset()
