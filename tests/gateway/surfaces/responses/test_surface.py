"""Responses requests as chat requests."""

import json
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core.errors import ClientError, GatewayError
from gateway.surfaces.port import Asked, Server, Situation
from gateway.surfaces.responses.surface import COMPACT, RESPONSES
from gateway.surfaces.responses.telling import ResponsesTelling
from gateway.surfaces.seals import Seals
from tests.support.responses_events import checked_body, checked_events, chunk, final_of, sse, whole_chat

KEPT = {"responses_ttl_s": 60.0, "responses_max_bytes": 1 << 20, "audit_bodies": "redacted"}
UNIQUE = "aB3dE6gH9jK2mN5pQ8sT1vWx"
SITUATION = Situation(now=7.0, request_id="req_1", unique=UNIQUE, secret=b"k", scope="alice", options=KEPT)
SEALS = Seals(b"k", "alice")
READ = {"type": "function", "name": "read", "parameters": {"type": "object"}}
Json = dict[str, Any]


def accept(situation: Situation = SITUATION, known: Any = None, surface: Any = RESPONSES, **body: Any) -> Asked:
    raw = json.dumps({"model": "m", **body}).encode()
    asked: Asked = surface.accept(raw, situation, known or {})
    if asked.refusal is not None:
        raise asked.refusal
    return asked


def chat(*items: Any, server: Server = Server(), **body: Any) -> list[Json]:  # noqa: B008 - frozen
    situation = replace(SITUATION, server=lambda _model: server)
    return accept(situation, input=list(items), **body).request.messages


def said(role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


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


def _given(server: Server, _model: str) -> Server:
    return server


def test_a_text_is_one_message_of_the_user() -> None:
    request = accept(input="hi", instructions="Be brief.").request
    assert request.messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert "tools" not in request.body


def test_fields_that_chat_has_are_the_same() -> None:
    body = accept(
        input="hi",
        stream=True,
        temperature=0.5,
        top_p=0.9,
        user="u",
        parallel_tool_calls=False,
        service_tier="flex",
        max_output_tokens=50,
        tools=[READ],
        tool_choice="required",
    ).request.body
    assert (
        body
        | {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "top_p": 0.9,
            "user": "u",
            "parallel_tool_calls": False,
            "service_tier": "flex",
            "max_tokens": 50,
            "tool_choice": "required",
        }
        == body
    )


@pytest.mark.parametrize(("model", "field"), [("gpt-5.5", "max_completion_tokens"), ("qwen3", "max_tokens")])
def test_a_limit_is_asked_for_in_the_words_of_the_model(model: str, field: str) -> None:
    raw = json.dumps({"model": model, "input": "x", "max_output_tokens": 9000}).encode()
    situation = replace(SITUATION, server=lambda _model: Server(max_output_tokens=4096))
    assert RESPONSES.accept(raw, situation, {}).request.body[field] == 4096


def test_a_form_of_the_answer_is_asked_for() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    body = accept(input="x", text={"format": form, "verbosity": "low"}).request.body
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert "verbosity" not in body
    assert "response_format" not in accept(input="x", text={"format": {"type": "text"}}).request.body


def test_an_effort_is_asked_for_where_the_model_takes_one() -> None:
    for server, expected in ((Server(takes_effort=True), "high"), (Server(takes_effort=False), None)):
        situation = replace(SITUATION, server=partial(_given, server))
        body = accept(situation, input="x", reasoning={"effort": "high", "summary": "auto"}).request.body
        assert body.get("reasoning_effort") == expected


def test_what_chat_has_no_word_for_is_counted_and_never_refused() -> None:
    asked = accept(input="x", metadata={}, client_metadata={}, prompt_cache_key="k", brand_new=1)
    assert sorted(asked.dropped) == ["client_metadata", "metadata", "other", "prompt_cache_key"]


@pytest.mark.parametrize(
    ("field", "value"), [("background", True), ("conversation", "conv_1"), ("prompt", {"id": "p"})]
)
def test_what_only_the_vendor_has_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ClientError) as caught:
        accept(input="x", **{field: value})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", field)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": 7},
        {"input": []},
        {"input": "x", "model": ""},
        {"input": "x", "stream": "yes"},
        {"input": [7]},
        {"input": [{"role": "king", "content": "x"}]},
        {"input": [{"role": "user", "content": 7}]},
        {"input": [{"type": "reasoning", "summary": []}]},
        {"input": "x", "max_output_tokens": 0},
        {"input": [{"role": "user", "content": "x"}] * 8193},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * 1025}]},
    ],
)
def test_what_is_no_request_is_refused(body: Json) -> None:
    with pytest.raises(ClientError):
        accept(**body)


def test_what_is_refused_is_read_as_far_as_that_goes() -> None:
    odd = {"type": "item_reference", "id": "rs_of_the_vendor"}
    body = {"model": "m", "input": [odd, 7, said("user", "Go on.")], "tools": [READ, {"type": "web_search"}]}
    asked = RESPONSES.accept(json.dumps({**body, "previous_response_id": "resp_6f"}).encode(), SITUATION, {})
    assert isinstance(asked.refusal, ClientError)
    assert asked.request.messages == [{"role": "user", "content": "Go on."}]
    assert [tool["function"]["name"] for tool in asked.request.body["tools"]] == ["read"]
    assert not asked.is_bound


def test_what_was_sealed_here_is_told_to_no_server_that_speaks_the_wire() -> None:
    seal = SEALS.seal({"text": "hm"}, purpose="reasoning")
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal}
    assert accept(input=[said("user", "x"), thought]).is_bound
    assert not accept(input=[said("user", "x"), {**thought, "encrypted_content": "gAAAA"}]).is_bound
    known, last = chain_of(1)
    assert gone_on(known, SITUATION, input="x", previous_response_id=last).is_bound


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


def thought(text: str, **more: Any) -> Json:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        **more,
    }


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


def test_the_conversation_is_what_the_client_calls_it() -> None:
    assert accept(input="x").conversation is None
    assert accept(input="x", prompt_cache_key="k").conversation == "k"
    situation = replace(SITUATION, headers={"session-id": "s", "thread-id": "t"})
    assert accept(situation, input="x", prompt_cache_key="k").conversation == "s"
    assert accept(replace(SITUATION, headers={"thread-id": "t"}), input="x").conversation == "t"


def test_tools_that_are_left_out_are_named() -> None:
    assert accept(input="x", tools=[READ, {"type": "web_search"}]).left_out == ("web_search",)


# Answers that are kept


def answered(asked: Asked, text: str = "hello") -> tuple[Json, dict[str, bytes]]:
    telling = asked.tell()
    assert isinstance(telling, ResponsesTelling)
    final = checked_body(telling.whole(whole_chat("stop", content=text)))
    return final, {memory.key: memory.value for memory in telling.remember()}


def gone_on(known: dict[str, bytes], situation: Situation, **body: Any) -> Asked:
    """The request, with the store asked as often as it wants."""
    asked = accept(situation, {}, **body)
    found: dict[str, bytes] = {}
    for _ in range(4):
        if not asked.recall:
            return asked
        found |= {key: known.get(key, b"") for key in asked.recall}
        asked = accept(situation, found, **body)
    raise AssertionError("it asks and asks")


def chain_of(length: int) -> tuple[dict[str, bytes], str]:
    known: dict[str, bytes] = {}
    last: str | None = None
    for number in range(length):
        situation = replace(SITUATION, unique=f"{number:04d}".ljust(24, "x"))
        more = {} if last is None else {"previous_response_id": last}
        asked = gone_on(known, situation, input=f"question {number}", instructions="Once.", **more)
        final, kept = answered(asked, f"answer {number}")
        last = final["id"]
        known |= kept
    assert last is not None
    return known, last


def test_a_chain_of_answers_is_the_whole_conversation() -> None:
    known, last = chain_of(4)
    asked = gone_on(known, SITUATION, input="and now?", previous_response_id=last)
    assert [message["content"] for message in asked.request.messages] == [
        *("question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2", "question 3", "answer 3"),
        "and now?",
    ], "instructions are those of one request alone"


def test_an_answer_that_is_not_to_be_kept_is_not() -> None:
    assert answered(accept(input="x", store=False))[1] == {}
    assert answered(accept(input="x", store=False))[0]["store"] is False
    final, kept = answered(accept(input="x"))
    assert final["store"] is True
    assert len(kept) == 1


def test_an_answer_is_kept_once() -> None:
    telling = accept(input="x").tell()
    telling.whole(whole_chat("stop", content="x"))
    assert len(telling.remember()) == 1
    assert telling.remember() == ()


def test_a_large_answer_is_not_kept() -> None:
    situation = replace(SITUATION, options={**KEPT, "responses_max_bytes": 100})
    told, kept = answered(accept(situation, input="x"))
    assert (told["store"], kept) == (False, {})
    assert answered(accept(input="x"))[0]["store"] is True


@pytest.mark.parametrize(
    ("options", "setting"),
    [({**KEPT, "responses_ttl_s": 0.0}, "RESPONSES_TTL_S"), ({**KEPT, "audit_bodies": "none"}, "AUDIT_BODIES")],
)
def test_where_none_are_kept_it_says_by_which_setting(options: Any, setting: str) -> None:
    situation = replace(SITUATION, options=options)
    assert answered(accept(situation, input="x"))[0]["store"] is False
    with pytest.raises(ClientError, match=setting):
        accept(situation, input="x", previous_response_id=f"resp_{UNIQUE}")


@pytest.mark.parametrize("response_id", ["", "resp_short", f"resp_{UNIQUE}", "x" * 500, "resp_" + "é" * 24, 7])
def test_an_unknown_answer_is_refused_by_its_field(response_id: Any) -> None:
    with pytest.raises(ClientError) as caught:
        gone_on({}, SITUATION, input="x", previous_response_id=response_id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


def test_the_answers_of_another_client_are_unknown() -> None:
    known, last = chain_of(1)
    with pytest.raises(ClientError):
        gone_on(known, replace(SITUATION, scope="bob"), input="x", previous_response_id=last)


def test_an_answer_before_it_that_is_gone_is_unknown() -> None:
    known, last = chain_of(3)
    del known[min(known)]
    with pytest.raises(ClientError):
        gone_on(known, SITUATION, input="x", previous_response_id=last)


def test_a_reference_is_the_item_that_it_names() -> None:
    known, _ = chain_of(1)
    entry = json.loads(next(iter(known.values())))
    ids = [entry["input"][0]["id"], entry["response"]["output"][0]["id"]]
    items = [{"type": "item_reference", "id": each} for each in ids]
    asked = gone_on(known, SITUATION, input=[*items, said("user", "more")])
    assert [message["content"] for message in asked.request.messages] == ["question 0", "answer 0", "more"]


@pytest.mark.parametrize("item_id", ["", "msg_x", f"msg_{UNIQUE}", None, 7])
def test_a_reference_to_nothing_is_refused(item_id: Any) -> None:
    with pytest.raises(ClientError) as caught:
        gone_on({}, SITUATION, input=[{"type": "item_reference", "id": item_id}])
    assert caught.value.code == "item_not_found"


# Conversations made shorter

TRIGGER = {"type": "compaction_trigger"}


def test_a_trigger_asks_for_a_summary_without_tools() -> None:
    request = accept(input=[said("user", "go"), TRIGGER], tools=[READ], tool_choice="required").request
    assert "tools" not in request.body
    assert "tool_choice" not in request.body
    assert request.messages[-1]["role"] == "user"
    assert "summary" in request.messages[-1]["content"]


def test_a_summary_is_one_sealed_item_that_goes_on() -> None:
    telling = accept(input=[said("user", "go"), TRIGGER], stream=True).tell()
    stream = sse(chunk(reasoning_content="hm"), chunk(content="They want ä\n"), chunk(content="x"), chunk("stop"))
    events = checked_events(telling.begin() + telling.feed(stream) + telling.finish())
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["compaction"]
    messages = chat(done[0], said("user", "and?"))
    assert "They want ä\nx" in messages[0]["content"]
    assert telling.remember() == ()


@pytest.mark.parametrize(
    "events", [[chunk("stop")], [chunk(content=" \n"), chunk("stop")], [chunk(content="x"), chunk("length")]]
)
def test_a_summary_that_is_empty_or_cut_is_a_fault(events: list[Json]) -> None:
    telling = accept(input=[said("user", "go"), TRIGGER]).tell()
    told = checked_events(telling.begin() + telling.feed(sse(*events)) + telling.finish())
    assert told[-1]["type"] == "response.failed"
    assert not any(event["type"] == "response.output_item.done" for event in told)


def test_a_path_of_its_own_gives_the_list_alone() -> None:
    telling = accept(surface=COMPACT, input="go").tell()
    body = json.loads(telling.whole(whole_chat("stop", content="short")))
    assert body["object"] == "response.compaction"
    assert [item["type"] for item in body["output"]] == ["compaction"]
    with pytest.raises(GatewayError):
        accept(surface=COMPACT, input="go").tell().whole(whole_chat("stop", content=""))


def test_a_summary_of_another_client_is_dropped() -> None:
    seal = Seals(b"k", "bob").seal({"summary": "secret"}, purpose="compaction")
    for kind in ("compaction", "compaction_summary", "context_compaction"):
        asked = accept(input=[{"type": kind, "encrypted_content": seal}, said("user", "go")])
        assert asked.request.messages == [{"role": "user", "content": "go"}]
        assert "seal" in asked.dropped


# Whatever is sent

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "call_id", "output", "tools", "text", "action", "id"]),
            inner
            | st.sampled_from(
                ["message", "function_call", "reasoning", "namespace", "custom", "user", "item_reference"]
            ),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["input", "tools", "tool_choice", "text", "reasoning", "include", "store"]), JUNK)
)
@example({"input": [{"type": []}]})
def test_no_request_breaks_more_than_itself(body: Json) -> None:
    with suppress(ClientError):
        asked = accept(**body)
        told = json.loads(asked.tell().whole(whole_chat("stop", content="x"))) if not asked.recall else body
        assert asked.recall or told["status"] == "completed"
