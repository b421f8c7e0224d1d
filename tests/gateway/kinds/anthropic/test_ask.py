"""Requests to Anthropic's Messages."""

import json
from typing import Any

import pytest

from gateway.core.errors import InvalidRequest
from gateway.kinds.anthropic.ask import AnthropicOptions
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.shared.port import Dialogue, Situation
from tests.support.kinds import PICTURE, READ, RUN

USER = {"role": "user", "content": "hi"}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}


def begin(body: dict[str, Any], *, known: dict[str, bytes] | None = None, **options: Any) -> Dialogue:
    kind = AnthropicKind(AnthropicOptions(**options))
    situation = Situation(now=5.0, make_id=lambda _: "call_made", answer_id="chatcmpl-1")
    return kind.begin({"model": "claude-sonnet-4-5", **body}, b"", situation=situation, known=known or {})


def sent(*messages: Any, options: dict[str, Any] | None = None, **fields: Any) -> Any:
    return json.loads(begin({"messages": list(messages) or [USER], **fields}, **options or {}).ask.body)


def test_leading_system_text_is_the_system() -> None:
    request = sent({"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, USER)
    assert [block["text"] for block in request["system"]] == ["A", "B"]
    assert [message["role"] for message in request["messages"]] == ["user"]


def test_later_system_text_joins_the_system() -> None:
    request = sent(USER, {"role": "assistant", "content": "x"}, {"role": "system", "content": "late"}, USER)
    assert [block["text"] for block in request["system"]] == ["late"]


def test_later_system_text_stays_in_its_place_if_that_is_set() -> None:
    request = sent(USER, {"role": "system", "content": "late"}, USER, options={"late_system": "inline"})
    assert "system" not in request
    assert [message["role"] for message in request["messages"]] == ["user", "system", "user"]


def test_system_text_alone_is_what_the_user_says() -> None:
    request = sent({"role": "system", "content": "Say hello."})
    assert request["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]
    assert "system" not in request


def test_neighbours_of_one_role_are_merged() -> None:
    request = sent(USER, {"role": "user", "content": "more"}, {"role": "assistant", "content": "a"})
    assert [message["role"] for message in request["messages"]] == ["user", "assistant"]
    assert len(request["messages"][0]["content"]) == 2


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        sent({"role": "user", "content": "  \n"})


def test_an_answer_that_would_be_first_follows_the_user() -> None:
    request = sent({"role": "assistant", "content": "a"}, USER)
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]


def test_an_answer_to_go_on_with_ends_without_white_space() -> None:
    assert sent(USER, {"role": "assistant", "content": "{ \n"})["messages"][-1]["content"][0]["text"] == "{"


def test_empty_text_is_left_out() -> None:
    content = [{"type": "text", "text": ""}, {"type": "text", "text": " \n"}, {"type": "text", "text": "x"}]
    request = sent({"role": "user", "content": content}, {"role": "assistant", "content": "", "tool_calls": [CALL]})
    assert request["messages"][0]["content"] == [{"type": "text", "text": "x"}]
    assert [block["type"] for block in request["messages"][1]["content"]] == ["tool_use"]


def test_results_stand_before_what_the_user_says() -> None:
    results = [
        {"role": "user", "content": "stop"},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "R"},
    ]
    request = sent(USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, *results)
    assert [block["type"] for block in request["messages"][-1]["content"]] == ["tool_result", "text"]


def test_a_result_may_hold_pictures() -> None:
    content = [
        {"type": "text", "text": "seen"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    ]
    request = sent(
        USER,
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": content},
    )
    result = request["messages"][-1]["content"][0]
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert result["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PICTURE}


def test_pictures_by_address_and_documents_are_passed_on() -> None:
    content = [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aMOp"}},
        {"type": "file", "file": {"file_id": "file_1"}},
    ]
    blocks = sent({"role": "user", "content": content})["messages"][0]["content"]
    assert blocks[0] == {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    assert blocks[1] == {"type": "document", "source": pdf, "title": "a.pdf"}
    assert blocks[2]["source"] == {"type": "text", "media_type": "text/plain", "data": "hé"}
    assert blocks[3] == {"type": "document", "source": {"type": "file", "file_id": "file_1"}}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64"}},
        {"type": "video"},
    ],
)
def test_a_part_that_cannot_be_sent_is_named(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        sent({"role": "user", "content": [part]})
    assert raised.value.param is not None
    assert raised.value.param.startswith("messages[0]")


@pytest.mark.parametrize(
    ("choice", "single", "wanted"),
    [
        (None, None, None),
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ({"type": "function", "function": {"name": "run"}}, None, {"type": "tool", "name": "run"}),
    ],
)
def test_the_choice_of_tools_is_told(choice: Any, single: bool | None, wanted: Any) -> None:
    fields = {"tool_choice": choice, "parallel_tool_calls": single}
    request = sent(tools=[RUN], **{key: value for key, value in fields.items() if value is not None})
    assert request.get("tool_choice") == wanted


def test_only_the_allowed_tools_are_told() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "run"}}]}
    request = sent(tools=[READ, RUN], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [tool["name"] for tool in request["tools"]] == ["run"]
    assert request["tool_choice"] == {"type": "any"}


def test_a_history_with_calls_has_its_tools_told() -> None:
    request = sent(
        USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "toolu_1", "content": "R"}
    )
    assert request["tools"] == [{"name": "run", "input_schema": {"type": "object"}}]
    assert request["tool_choice"] == {"type": "none"}


def test_ids_of_other_makers_stay_apart_in_letters_that_are_taken() -> None:
    ids = ["call:1", "call.1", "call_1"]
    calls = [{**CALL, "id": call_id} for call_id in ids]
    results = [{"role": "tool", "tool_call_id": call_id, "content": call_id} for call_id in ids]
    request = sent(USER, {"role": "assistant", "tool_calls": calls}, *results)
    told = [block["id"] for block in request["messages"][1]["content"]]
    assert len(set(told)) == 3
    assert all(name.replace("_", "").replace("-", "").isalnum() for name in told)
    assert [block["tool_use_id"] for block in request["messages"][2]["content"]] == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"a": 12345678901234567890123, "b": 1.0}', '{"a": 12345678901234567890123, "b": 1.0}'),
        ("", "{}"),
        ({"a": 1}, '{"a":1}'),
        ('{"a": ', r'{"arguments":"{\"a\": "}'),
        ("[1]", '{"arguments":"[1]"}'),
        (None, "{}"),
    ],
)
def test_arguments_of_a_history_are_an_object_with_its_numbers_as_they_were(arguments: Any, told: str) -> None:
    call = {"id": "toolu_1", "function": {"name": "run", "arguments": arguments}}
    body = begin({"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}).ask.body.decode()
    assert f'"input":{told}' in body


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-3-haiku-20240307", 4096),
        ("claude-3-5-sonnet-20241022", 8192),
        ("claude-sonnet-4-20250514", 32000),
        ("x", 8192),
    ],
)
def test_a_request_without_a_limit_gets_one_that_the_model_takes(model: str, limit: int) -> None:
    assert sent(model=model)["max_tokens"] == limit


def test_limits_of_the_request_and_of_the_settings_come_first() -> None:
    assert sent(max_tokens=5)["max_tokens"] == 5
    assert sent(max_completion_tokens=6, max_tokens=5)["max_tokens"] == 6
    assert sent(options={"max_tokens": 77})["max_tokens"] == 77
    with pytest.raises(InvalidRequest):
        sent(max_tokens=0)


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "told_effort"),
    [
        ("claude-3-5-sonnet-20241022", "high", None, None),
        ("claude-3-7-sonnet-20250219", "low", {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-sonnet-4-5", "medium", {"type": "enabled", "budget_tokens": 8192}, None),
        ("claude-haiku-4-5-20251001", "none", None, None),
        ("claude-opus-4-6", "high", {"type": "adaptive"}, "high"),
        ("claude-opus-4-8", "minimal", {"type": "adaptive"}, "low"),
        ("claude-fable-5", "xhigh", {"type": "adaptive"}, "xhigh"),
        ("claude-mythos-preview", "low", {"type": "adaptive"}, "low"),
        ("kimi-k2", "low", {"type": "enabled", "budget_tokens": 1024}, None),
    ],
)
def test_effort_is_told_in_the_form_of_the_model(
    model: str, effort: str, thinking: dict[str, Any] | None, told_effort: str | None
) -> None:
    request = sent(model=model, reasoning_effort=effort)
    assert request.get("thinking") == thinking
    assert request.get("output_config", {}).get("effort") == told_effort


def test_thoughts_fit_into_the_limit_or_are_left_out() -> None:
    assert sent(reasoning_effort="high", max_tokens=4000)["thinking"]["budget_tokens"] == 2000
    assert "thinking" not in sent(reasoning_effort="high", max_tokens=1500)


def test_a_forced_call_goes_without_thinking() -> None:
    assert "thinking" not in sent(reasoning_effort="high", tools=[RUN], tool_choice="required")


def test_sampling_is_brought_into_range() -> None:
    assert sent(temperature=1.7)["temperature"] == 1.0
    both = sent(temperature=0.2, top_p=0.9)
    assert both["temperature"] == 0.2
    assert "top_p" not in both
    assert "temperature" not in sent(temperature=0.2, reasoning_effort="low")
    assert "temperature" not in sent(temperature=0.2, model="claude-opus-4-7")


def test_stop_words_user_and_format_are_told() -> None:
    schema = {"type": "object", "properties": {}}
    request = sent(
        stop=["END", "\n"],
        user="u1",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    )
    assert request["stop_sequences"] == ["END"]
    assert request["metadata"] == {"user_id": "u1"}
    assert request["output_config"]["format"] == {"type": "json_schema", "schema": schema}


def test_more_than_one_choice_is_refused() -> None:
    with pytest.raises(InvalidRequest) as raised:
        sent(n=2)
    assert raised.value.param == "n"


def test_marks_of_the_prompt_cache_are_kept() -> None:
    mark = {"type": "ephemeral"}
    request = sent({"role": "user", "content": [{"type": "text", "text": "x", "cache_control": mark}]})
    assert request["messages"][0]["content"][0]["cache_control"] == mark
    assert "cache_control" not in request


def test_the_prompt_cache_is_asked_for_only_where_the_client_set_no_marks() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}
    assert sent(options={"prompt_caching": True})["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in sent(marked, options={"prompt_caching": True})


def test_marks_of_the_prompt_cache_stay_with_tools_results_and_answers() -> None:
    mark = {"type": "ephemeral"}
    text = {"type": "text", "text": "x", "cache_control": mark}
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    request = sent(
        USER,
        {"role": "assistant", "content": [text], "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": [text, picture]},
        tools=[{**RUN, "cache_control": mark}],
    )
    result = request["messages"][-1]["content"][0]
    assert result["cache_control"] == mark
    assert all("cache_control" not in block for block in result["content"])
    assert request["tools"][0]["cache_control"] == mark
    assert request["messages"][1]["content"][0]["cache_control"] == mark


def test_a_document_that_is_a_picture_is_told_as_one() -> None:
    files = [
        {"type": "file", "file": {"file_data": "data:image/jpg;base64,AAAA"}},
        {"type": "file", "file": {"file_data": "data:text/plain,h%C3%A9"}},
        {"type": "file", "file": {"file_data": "data:text/plain;base64,!"}},
        "plain",
    ]
    blocks = sent({"role": "user", "content": files})["messages"][0]["content"]
    assert blocks[0] == {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}}
    assert blocks[1]["source"]["data"] == "hé"
    assert blocks[2]["source"]["data"] == ""
    assert blocks[3] == {"type": "text", "text": "plain"}


def test_service_tier_and_top_k_are_passed_on() -> None:
    request = sent(service_tier="auto", top_k=5)
    assert (request["service_tier"], request["top_k"]) == ("auto", 5)
    assert not {"top_k", "temperature"} & set(sent(top_k=float("inf"), temperature=float("nan")))


@pytest.mark.parametrize("messages", [None, {}, [{"role": "odd"}], [3]])
def test_messages_of_no_known_shape_are_refused(messages: Any) -> None:
    with pytest.raises(InvalidRequest):
        begin({"messages": messages})
