"""The items of a Responses input as turns of chat: messages, calls and their results, thoughts."""

import json
from typing import Any

import pytest

from gateway.surfaces.port import Server
from tests.gateway.surfaces.responses.test_surface import (
    READ,
    SEALS,
    Json,
    accept,
    chat,
    said,
    thought,
)
from tests.support.strict_clients import chunk, final_of, sse


def called(call_id: str, name: str = "read", arguments: str = "{}", **more: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def result(call_id: str, output: Any = "ok", kind: str = "function_call_output") -> Json:
    return {"type": kind, "call_id": call_id, "output": output}


def shape(messages: list[Json]) -> list[str]:
    return [
        message["role"] + "".join(f"+{call['id']}" for call in message.get("tool_calls", ()))
        if message["role"] != "tool"
        else f"tool {message['tool_call_id']}"
        for message in messages
    ]


def test_leading_system_text_is_one_message_and_later_text_a_reminder() -> None:
    messages = chat(
        said("developer", "Permissions."), said("user", "hi"), said("developer", "Now."), instructions="Base."
    )
    assert messages == [
        {"role": "system", "content": "Base.\n\nPermissions."},
        {"role": "user", "content": "hi\n\n<system-reminder>\nNow.\n</system-reminder>"},
    ]


@pytest.mark.parametrize(("late", "roles"), [("inline", ["user", "system"]), ("first", ["system", "user"])])
def test_later_system_text_goes_where_the_server_wants_it(late: Any, roles: list[str]) -> None:
    assert shape(chat(said("user", "hi"), said("developer", "Now."), server=Server(late_system=late))) == roles


def test_a_message_without_a_type_is_one() -> None:
    assert chat({"role": "user", "content": "a"}) == [{"role": "user", "content": "a"}]


def test_pictures_and_files_stay_parts() -> None:
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "high"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "hologram"},
    ]
    asked = accept(input=[{"role": "user", "content": parts}])
    assert asked.request.messages[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}},
    ]
    assert asked.dropped.count("part") == 2


def test_what_an_assistant_did_at_once_is_one_message_with_its_results_behind_it() -> None:
    items = [
        *(said("user", "go"), {"type": "reasoning", "summary": [], "content": []}),
        *(called("a"), said("assistant", "Reading."), called("b"), result("b"), result("a"), called("c"), result("c")),
    ]
    messages = chat(*items)
    assert shape(messages) == ["user", "assistant+a+b", "tool a", "tool b", "assistant+c", "tool c"]
    assert messages[1]["content"] == "Reading."


def test_calls_and_results_that_lack_each_other_are_mended() -> None:
    asked = accept(input=[said("user", "go"), called("a"), said("user", "well?"), result("x", "late")])
    assert [message["role"] for message in asked.request.messages] == ["user", "assistant", "tool", "user"]
    assert asked.request.messages[2]["content"] == "No result was recorded for this call."
    assert "[Tool Result: late]" in asked.request.messages[3]["content"]
    assert sorted(asked.mended) == ["missing_result", "orphan_result"]


def test_a_result_that_comes_late_still_follows_its_call() -> None:
    items = [said("user", "go"), called("a"), said("developer", "careful"), result("a")]
    assert shape(chat(*items)) == ["user", "assistant+a", "tool a", "user"]


def test_a_result_in_parts_is_its_text_and_its_pictures_follow() -> None:
    output = [{"type": "input_text", "text": "one"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"}]
    messages = chat(said("user", "go"), called("a"), result("a", output))
    assert messages[2]["content"] == "one"
    assert messages[3]["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]


def test_calls_of_all_kinds_stand_in_history_as_the_model_is_shown_them() -> None:
    tools = [
        *({"type": "custom", "name": "apply_patch"}, {"type": "local_shell"}, READ),
        {"type": "tool_search", "execution": "client"},
        {"type": "namespace", "name": "mcp__fs", "tools": [{"type": "function", "name": "list"}]},
    ]
    items = [
        said("user", "go"),
        {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin\n"},
        {"type": "local_shell_call", "call_id": "b", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        called("c", "list", '{"path": "."}', namespace="mcp__fs"),
        {"type": "tool_search_call", "call_id": "d", "execution": "client", "arguments": {"query": "x"}},
        called("e", "mcp__fs.list"),
        *(result("a", kind="custom_tool_call_output"), {"type": "local_shell_call_output", "id": "b", "output": "x"}),
        *(result("c"), {"type": "tool_search_output", "call_id": "d", "tools": [READ]}, result("e")),
    ]
    messages = chat(*items, tools=tools)
    calls = [call["function"] for call in messages[1]["tool_calls"]]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("apply_patch", {"input": "*** Begin\n"}),
        ("local_shell", {"command": ["ls"]}),
        ("mcp__fs__list", {"path": "."}),
        ("tool_search", {"query": "x"}),
        ("mcp__fs__list", {}),
    ]
    assert shape(messages)[2:] == ["tool a", "tool b", "tool c", "tool d", "tool e"]
    assert messages[5]["content"] == "Loaded: read"


def test_an_output_of_a_shell_is_told_with_how_it_ended() -> None:
    output = [
        {"stdout": "out", "stderr": "err", "outcome": {"type": "exit", "exit_code": 2}},
        {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
    ]
    items = [said("user", "go"), {"type": "shell_call", "call_id": "a", "action": {"commands": ["x"]}}]
    messages = chat(*items, {"type": "shell_call_output", "call_id": "a", "output": output})
    assert messages[2]["content"] == "out\nerr\n[exit code 2]\n[timed out]"


def test_what_hosted_tools_left_and_unknown_items_are_dropped() -> None:
    asked = accept(input=[said("user", "go"), {"type": "web_search_call", "id": "w"}, {"type": "new_thing"}])
    assert asked.request.messages == [{"role": "user", "content": "go"}]
    assert sorted(asked.dropped) == ["hosted_item", "item"]


def test_a_message_of_another_agent_is_said_with_its_names() -> None:
    content = [{"type": "input_text", "text": "done"}]
    item = {"type": "agent_message", "author": "worker", "recipient": "main", "content": content}
    assert chat(item)[0]["content"] == "[Message from worker to main]\n\ndone"


def test_a_thought_goes_back_within_its_turn_alone() -> None:
    items = [
        *(said("user", "a"), thought("old"), called("x"), result("x"), said("assistant", "so")),
        *(said("user", "b"), thought("new"), called("y"), result("y")),
    ]
    found = [message.get("reasoning_content") for message in chat(*items) if message["role"] == "assistant"]
    assert found == [None, None, "new"]
    kept = chat(*items, server=Server(history_reasoning="keep"))
    assert [each.get("reasoning_content") for each in kept if each["role"] == "assistant"] == ["old", None, "new"]
    dropped = chat(*items, server=Server(history_reasoning="drop"))
    assert not any("reasoning_content" in each for each in dropped)


def test_a_sealed_thought_wins_and_a_foreign_one_is_dropped() -> None:
    sealed = SEALS.seal({"text": "mine"}, purpose="reasoning")
    one = chat(said("user", "a"), thought("shown", encrypted_content=sealed), called("x"), result("x"))
    assert one[1]["reasoning_content"] == "mine"
    asked = accept(input=[said("user", "a"), {**thought(""), "encrypted_content": "gAAAA"}, called("x"), result("x")])
    assert "reasoning_content" not in asked.request.messages[1]
    assert "seal" in asked.dropped


def test_thoughts_make_the_way_to_the_client_and_back() -> None:
    asked = accept(input="x", include=["reasoning.encrypted_content"], stream=True)
    answer = asked.tell()
    events = (chunk(reasoning_content="I think"), chunk(content="so"), chunk("stop"), b"[DONE]")
    final = final_of(answer.begin() + answer.feed(sse(*events)) + answer.finish())
    back = final["output"][0]
    back["content"] = None  # Codex keeps the seal alone
    messages = chat(said("user", "x"), back, called("c"), result("c"))
    assert messages[1]["reasoning_content"] == "I think"
