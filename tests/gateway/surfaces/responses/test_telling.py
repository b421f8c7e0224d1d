"""Answers told as events: every event by the SDK's own types, the same for every cut, and whole as streamed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamBadReply
from gateway.surfaces.responses.ask import shared_members
from gateway.surfaces.responses.telling import ResponsesTelling, Terms
from gateway.surfaces.seals import Seals
from gateway.surfaces.toolnames import ToolNames
from tests.support.strict_clients import (
    call,
    checked_body,
    checked_events,
    chunk,
    events_of,
    final_of,
    sse,
    whole_chat,
)

UNIQUE = "aB3dE6gH9jK2mN5pQ8sT1vWx"
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 'ä'\n+x = \"😀\"\t\\n\n*** End Patch\n"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
SEALS = Seals(b"k", "who")


def names() -> ToolNames:
    table = ToolNames()
    table.add("read")
    table.add("close_agent", namespace="multi_agent_v1")
    table.add("apply_patch", kind="custom")
    table.add("tool_search", kind="tool_search")
    table.add("local_shell", kind="local_shell")
    table.add("shell", kind="shell")
    return table


def telling(**more: Any) -> ResponsesTelling:
    body = {"model": "m", "tools": [{"type": "web_search"}], "instructions": "Be brief.\n", "metadata": {"a": "b"}}
    terms = Terms(unique=UNIQUE, created=7, shared=shared_members(body), names=names(), **more)
    return ResponsesTelling(terms)


def told(*events: object, cuts: tuple[int, ...] = (), **more: Any) -> bytes:
    stream = sse(*events)
    answer = telling(**more)
    out = [answer.begin()]
    at = 0
    for cut in (*sorted(cuts), len(stream)):
        out.append(answer.feed(stream[at:cut]))
        at = cut
    return b"".join((*out, answer.finish()))


def types(stream: bytes) -> list[str]:
    return [event["type"].removeprefix("response.") for event in checked_events(stream)]


RICH = (
    chunk(role="assistant", content=None),
    chunk(reasoning_content="Let me "),
    chunk(reasoning_content="see"),
    chunk(content="I'll “patch”"),
    chunk(content=" it\n"),
    call(0, "call_a", "apply_patch", json.dumps({"input": PATCH})),
    call(1, "call_b", "multi_agent_v1__close_agent", '{"target": "x"}'),
    chunk("tool_calls"),
    {"choices": [], "usage": USAGE},
    b"[DONE]",
)


def test_an_answer_is_told_in_the_order_of_the_api() -> None:
    assert types(told(*RICH)) == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]


def test_the_final_object_holds_all_of_it() -> None:
    final = final_of(told(*RICH))
    assert (final["id"], final["status"], final["model"]) == (f"resp_{UNIQUE}", "completed", "m")
    assert final["usage"]["total_tokens"] == 13
    assert (final["instructions"], final["metadata"]) == ("Be brief.\n", {"a": "b"})
    thought, message, patch, close = final["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me see"}]
    assert message["content"][0]["text"] == "I'll “patch” it\n"
    assert (patch["type"], patch["name"], patch["input"], patch["call_id"]) == (
        "custom_tool_call",
        "apply_patch",
        PATCH,
        "call_a",
    )
    assert (close["name"], close["namespace"], close["arguments"]) == (
        "close_agent",
        "multi_agent_v1",
        '{"target": "x"}',
    )
    assert [item["id"].partition("_")[0] for item in final["output"]] == ["rs", "msg", "ctc", "fc"]
    assert {len(item["id"].partition("_")[2]) for item in final["output"]} == {24}


@given(st.lists(st.integers(0, len(sse(*RICH))), max_size=12))
def test_every_cut_tells_the_same(cuts: list[int]) -> None:
    assert told(*RICH, cuts=tuple(cuts)) == told(*RICH)


def test_a_whole_answer_is_the_final_object() -> None:
    calls = [
        {"id": "call_a", "function": {"name": "apply_patch", "arguments": json.dumps({"input": PATCH})}},
        {"id": "call_b", "function": {"name": "multi_agent_v1__close_agent", "arguments": '{"target": "x"}'}},
    ]
    message = {"reasoning_content": "Let me see", "content": "I'll “patch” it\n", "tool_calls": calls}
    body = telling().whole(whole_chat("tool_calls", usage=USAGE, **message))
    assert checked_body(body) == final_of(told(*RICH))


def test_a_patch_arrives_byte_for_byte() -> None:
    events = checked_events(told(call(0, "c", "apply_patch", json.dumps({"input": PATCH})), chunk("tool_calls")))
    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == PATCH


def test_an_empty_answer_is_one_message_with_one_empty_text() -> None:
    final = final_of(told(chunk(role="assistant", content=""), chunk("stop"), b"[DONE]"))
    assert [item["content"] for item in final["output"]] == [
        [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]
    ]


def test_text_behind_a_call_is_a_second_message() -> None:
    final = final_of(told(chunk(content="a"), call(0, "c", "read", "{}"), chunk(content="b"), chunk("tool_calls")))
    assert [item["type"] for item in final["output"]] == ["message", "function_call", "message"]


def test_a_thought_between_texts_is_an_item_of_its_own() -> None:
    final = final_of(told(chunk(content="a"), chunk(reasoning="hm"), chunk(content="b"), chunk("stop")))
    assert [item["type"] for item in final["output"]] == ["message", "reasoning", "message"]


def test_a_refusal_is_a_part_of_its_own() -> None:
    final = final_of(told(chunk(content="a"), chunk(refusal="I can"), chunk(refusal="not"), chunk("stop")))
    assert [part["type"] for part in final["output"][0]["content"]] == ["output_text", "refusal"]
    assert final["output"][0]["content"][1]["refusal"] == "I cannot"


def test_a_limit_makes_it_incomplete_and_a_cut_call_no_item() -> None:
    stream = told(chunk(content="so"), call(0, "c", "read", '{"path": "a'), chunk("length"), b"[DONE]")
    final = final_of(stream)
    assert (final["status"], final["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [(item["type"], item["status"]) for item in final["output"]] == [("message", "incomplete")]
    assert types(stream)[-1] == "incomplete"


def test_a_whole_call_beside_a_limit_is_one() -> None:
    final = final_of(told(call(0, "c", "read", '{"path": "a"}'), chunk("length")))
    assert [item["type"] for item in final["output"]] == ["function_call"]
    assert final["status"] == "incomplete"


def test_a_filter_makes_it_incomplete() -> None:
    final = final_of(told(chunk(content="so"), chunk("content_filter")))
    assert final["incomplete_details"] == {"reason": "content_filter"}


def test_an_error_leaves_open_what_is_open() -> None:
    stream = told(chunk(content="so"), {"error": {"message": "busy", "code": "overloaded"}})
    assert types(stream)[-2:] == ["output_text.delta", "failed"]
    assert events_of(stream)[-1]["response"]["error"] == {"code": "server_is_overloaded", "message": "busy"}
    assert events_of(stream)[-1]["response"]["output"] == []


def test_a_cut_stream_has_failed() -> None:
    stream = told(chunk(content="so"), call(0, "c", "read", "{}"), call(1, "d", "read", "{"))
    events = checked_events(stream)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message", "function_call"]


def test_nothing_is_told_behind_the_end() -> None:
    whole = told(*RICH)
    assert told(*RICH, chunk(content="more"), {"error": {"message": "late"}}) == whole


def test_the_keep_alive_is_an_event_that_clients_count() -> None:
    answer = telling()
    assert answer.keep_alive() == b": keep-alive\n\n", "before the head it has no id that could be said"
    first, waiting = answer.begin(), answer.keep_alive()
    rest = answer.feed(sse(chunk(content="x"))) + answer.keep_alive() + answer.feed(sse(chunk("stop"), b"[DONE]"))
    events = checked_events(first + waiting + rest)
    assert [event["type"] for event in events].count("response.in_progress") == 3
    assert answer.keep_alive() == b"", "behind the end neither"


def test_a_thought_is_sealed_for_who_asked() -> None:
    item = final_of(told(chunk(reasoning_content="ä\n"), chunk("stop"), seals=SEALS))["output"][0]
    assert SEALS.open(item["encrypted_content"], purpose="reasoning") == {"text": "ä\n"}
    assert final_of(told(chunk(reasoning_content="x"), chunk("stop")))["output"][0]["encrypted_content"] is None


@pytest.mark.parametrize(
    ("name", "arguments", "item"),
    [
        ("read", "{}", {"type": "function_call", "name": "read", "arguments": "{}"}),
        ("functions.read", "{}", {"type": "function_call", "name": "read"}),
        ("multi_agent_v1.close_agent", "{}", {"name": "close_agent", "namespace": "multi_agent_v1"}),
        ("close_agent", "{}", {"name": "close_agent", "namespace": "multi_agent_v1"}),
        ("unknown", '{"a": 1}', {"type": "function_call", "name": "unknown", "arguments": '{"a": 1}'}),
        (
            "tool_search",
            '{"query": "x"}',
            {"type": "tool_search_call", "arguments": {"query": "x"}, "execution": "client"},
        ),
        ("tool_search", "no", {"type": "function_call", "name": "tool_search", "arguments": "no"}),
        ("apply_patch", '{"a": "x", "b": "y"}', {"type": "function_call", "name": "apply_patch"}),
    ],
)
def test_a_call_comes_back_as_what_was_declared(name: str, arguments: str, item: dict[str, Any]) -> None:
    found = final_of(told(call(0, "c", name, arguments), chunk("tool_calls")))["output"][0]
    assert found | item == found


@pytest.mark.parametrize(
    ("arguments", "mended"),
    [('{"input": "x"}', {}), ("x y", {"custom_input": 1}), ('{"patch": "x"}', {"custom_input": 1})],
)
def test_a_text_that_stood_elsewhere_than_it_was_asked_for_is_counted(arguments: str, mended: dict[str, int]) -> None:
    answer = telling()
    answer.feed(sse(call(0, "c", "apply_patch", arguments), chunk("tool_calls"), b"[DONE]"))
    assert answer.mended == mended


def test_shells_come_back_in_their_own_shape() -> None:
    local = call(0, "c", "local_shell", '{"command": ["ls", "-l"], "timeout_ms": 5}')
    line = call(1, "d", "local_shell", '{"command": "ls | wc"}')
    lines = call(2, "e", "shell", '{"commands": ["ls", "pwd"]}')
    one, other, third = final_of(told(local, line, lines, chunk("tool_calls")))["output"]
    assert one["action"]["command"] == ["ls", "-l"]
    assert one["action"]["timeout_ms"] == 5
    assert other["action"]["command"] == ["bash", "-lc", "ls | wc"]
    assert third["action"]["commands"] == ["ls", "pwd"]


def test_half_a_patch_is_text() -> None:
    cut = PATCH.partition("*** End")[0]
    final = final_of(told(call(0, "c", "apply_patch", json.dumps({"input": cut})), chunk("tool_calls")))
    assert [item["type"] for item in final["output"]] == ["message"]
    assert final["output"][0]["content"][0]["text"] == cut


def test_a_call_without_an_id_gets_one() -> None:
    found = final_of(told(call(0, "", "read", "{}"), chunk("tool_calls")))["output"][0]
    assert found["call_id"].startswith("call_")
    assert len(found["call_id"]) > 20


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 3}, {"prompt_tokens": "3", "completion_tokens": 1}])
def test_what_is_not_known_of_the_usage_is_not_guessed(usage: Any) -> None:
    events = (chunk(content="x"), chunk("stop"), {"choices": [], "usage": usage})
    assert final_of(told(*events))["usage"] is None


def test_the_usage_is_told_in_the_words_of_the_api() -> None:
    usage = {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert final_of(told(chunk("stop"), {"choices": [], "usage": usage}))["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 13,
    }


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b"data: x"])
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(UpstreamBadReply):
        telling().whole(body)


def test_many_items_keep_ids_of_their_own() -> None:
    events = [call(number, f"call_{number}", "read", "{}") for number in range(200)]
    final = final_of(told(*events, chunk("tool_calls")))
    assert len({item["id"] for item in final["output"]}) == 200


@given(
    st.lists(st.tuples(st.sampled_from(["content", "reasoning_content", "refusal"]), st.text(max_size=6)), max_size=12)
)
def test_streamed_and_whole_say_the_same(said: list[tuple[str, str]]) -> None:
    final = final_of(told(*[chunk(**{field: text}) for field, text in said], chunk("stop"), b"[DONE]"))
    shown = "".join(part.get("text", part.get("refusal", "")) for item in final["output"] for part in item["content"])
    assert shown == "".join(text for _, text in said)
