"""Signed thoughts over turns."""

import json
from typing import Any

from gateway.kinds.anthropic.ask import AnthropicOptions
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.shared.port import Dialogue, Situation
from tests.support.anthropic_server import AnthropicServer
from tests.support.kind_driver import Driver
from tests.support.turns import RUN, Call, Turn

USER = {"role": "user", "content": "hi"}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}


def begin(body: dict[str, Any], *, known: dict[str, bytes] | None = None, **options: Any) -> Dialogue:
    kind = AnthropicKind(AnthropicOptions(**options))
    situation = Situation(now=5.0, make_id=lambda _: "call_made", answer_id="chatcmpl-1")
    return kind.begin({"model": "claude-sonnet-4-5", **body}, b"", situation=situation, known=known or {})


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
