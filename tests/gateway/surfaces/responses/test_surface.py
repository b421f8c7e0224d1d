"""Responses requests as chat requests: their fields, what is refused, and summaries."""

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
from tests.support.strict_clients import checked_body, checked_events, chunk, sse, whole_chat

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


def thought(text: str, **more: Any) -> Json:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        **more,
    }


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
