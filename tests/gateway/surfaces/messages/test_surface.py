"""Messages requests as chat: every field and block in its place, and what has none left out and counted."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import GatewayError
from gateway.surfaces.messages.surface import MESSAGES
from gateway.surfaces.messages.telling import THINKING
from gateway.surfaces.port import Asked, Server, Situation
from gateway.surfaces.seals import Seals
from gateway.surfaces.turns import MISSING_RESULT

SEALS = Seals(b"s" * 32, "scope")
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PICTURE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def accept(server: Server | None = None, **body: Any) -> Asked:
    situation = Situation(
        now=0.0,
        request_id="req_1",
        unique="u" * 24,
        secret=b"s" * 32,
        scope="scope",
        server=lambda model: server or Server(),
    )
    full = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x"}], **body}
    return MESSAGES.accept(json.dumps(full).encode(), situation, {})


def chat(server: Server | None = None, **body: Any) -> dict[str, Any]:
    asked = accept(server, **body)
    assert asked.refusal is None
    assert json.loads(asked.request.raw) == asked.request.body
    return asked.request.body


def told(*messages: Any, server: Server | None = None, **body: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = chat(server, messages=list(messages), **body)["messages"]
    return made


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(call_id: str, name: str = "Read", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def called(call_id: str, name: str = "Read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_plain_fields() -> None:
    made = chat(temperature=0.5, top_p=0.9, top_k=4, stop_sequences=["END"], stream=True)
    assert made == {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "stop": ["END"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_limit_is_there_in_any_case_and_never_above_what_the_server_gives() -> None:
    assert chat(max_tokens=None)["max_tokens"] == 4096
    assert chat(Server(max_output_tokens=50))["max_tokens"] == 50
    assert chat(model="gpt-5.5")["max_completion_tokens"] == 100


def test_the_system_text_leads_without_the_line_that_changes_each_time() -> None:
    billing = text("x-anthropic-billing-header: cc_version=2; cch=1")
    asked = accept(system=[billing, text("One."), text("Two.", cache_control={"type": "ephemeral"})])
    assert asked.request.messages[0] == {"role": "system", "content": "One.\n\nTwo."}
    assert asked.dropped == ("billing_header",)
    assert chat(system="One.")["messages"][0] == {"role": "system", "content": "One."}


def test_marks_for_a_cache_go_to_servers_that_take_them() -> None:
    mark = {"type": "ephemeral"}
    server = Server(keeps_cache_control=True)
    made = chat(server, system=[text("One.", cache_control=mark)], messages=[user(text("x", cache_control=mark))])
    assert made["messages"] == [
        {"role": "system", "content": [text("One.", cache_control=mark)]},
        {"role": "user", "content": [text("x", cache_control=mark)]},
    ]


@pytest.mark.parametrize(
    ("late", "messages"),
    [
        (
            "user",
            [{"role": "user", "content": "a\n\n<system-reminder>\nlate\n</system-reminder>\n\nb"}],
        ),
        (
            "inline",
            [
                {"role": "user", "content": "a"},
                {"role": "system", "content": "late"},
                {"role": "user", "content": "b"},
            ],
        ),
        ("first", [{"role": "system", "content": "late"}, {"role": "user", "content": "a\n\nb"}]),
    ],
)
def test_system_text_in_the_middle_goes_where_the_server_takes_it(late: Any, messages: Any) -> None:
    given = [user(text("a")), {"role": "system", "content": [text("late")]}, user(text("b"))]
    assert told(*given, server=Server(late_system=late)) == messages


def test_calls_and_results_are_turns() -> None:
    made = told(
        user(text("go")),
        assistant(text("I "), text("look."), use("one", path="ä"), use("two", "List")),
        user(result("two", [text("b"), PICTURE]), result("one", "a"), text("and now?")),
    )
    assert made == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [called("one", arguments='{"path":"ä"}'), called("two", "List")],
        },
        {"role": "tool", "tool_call_id": "one", "content": "a"},
        {"role": "tool", "tool_call_id": "two", "content": "b"},
        {"role": "user", "content": [PICTURE_PART, text("and now?")]},
    ]


def test_what_is_missing_of_a_turn_is_mended_and_counted() -> None:
    messages = [user(text("go")), assistant(use("one")), user(result("other", "late"), text("on"))]
    asked = accept(messages=messages)
    assert asked.request.messages[2:] == [
        {"role": "tool", "tool_call_id": "one", "content": MISSING_RESULT},
        {"role": "user", "content": "[Tool Result: late]\n\non"},
    ]
    assert sorted(asked.mended) == ["missing_result", "orphan_result"]


@pytest.mark.parametrize(
    ("content", "made"),
    [
        ("it broke", "[error] it broke"),
        ("<tool_use_error>Error: No such tool available: X</tool_use_error>",) * 2,
        ("Error: no", "Error: no"),
        ("", "[error] "),
    ],
)
def test_a_result_that_is_an_error_says_so(content: str, made: str) -> None:
    assert (
        told(user(text("go")), assistant(use("one")), user(result("one", content, is_error=True)))[2]["content"] == made
    )


def test_documents_pictures_and_finds_are_parts() -> None:
    plain = {"type": "document", "title": "Notes", "source": {"type": "text", "data": "words"}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    find = {"type": "search_result", "title": "T", "source": "http://x", "content": [text("found")]}
    linked = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    [message] = told(user(plain, pdf, find, linked, PICTURE))
    assert message["content"] == [
        text("Notes\n\nwords"),
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,aGk="}},
        text("T\nhttp://x\nfound"),
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        PICTURE_PART,
    ]


def test_what_a_server_of_anthropic_did_is_left_out_and_counted() -> None:
    odd = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "mcp_tool_use", "id": "m", "name": "x", "input": {}},
        {"type": "of_next_month"},
    ]
    asked = accept(messages=[user(text("go")), assistant(text("a"), *odd)], metadata={}, betas=[], next_month=1)
    assert asked.request.messages[1] == {"role": "assistant", "content": "a"}
    assert sorted(asked.dropped) == sorted(
        ["metadata", "betas", "other", "server_tool_use", "server_tool_result", "server_tool_result", "other"]
    )


def thought(words: str = "", signature: str | None = None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature or ""}


def test_thoughts_of_the_turn_that_goes_on_go_back() -> None:
    sealed = SEALS.seal({"text": "sealed"}, purpose=THINKING)
    history = [
        user(text("first")),
        assistant(thought("old"), text("a")),
        user(text("second")),
        assistant(thought("shown", "foreign"), use("one")),
        user(result("one"), text("<system-reminder>x</system-reminder>")),
        assistant(thought("", sealed), use("two")),
        user(result("two")),
    ]
    made = [message for message in told(*history) if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in made] == [None, "shown", "sealed"]
    kept = [m for m in told(*history, server=Server(history_reasoning="keep")) if m["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in kept] == ["old", "shown", "sealed"]
    left = [m for m in told(*history, server=Server(history_reasoning="drop")) if m["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in left] == [None, None, None]


def test_a_foreign_seal_is_left_out_and_counted() -> None:
    other = Seals(b"s" * 32, "another client").seal({"text": "theirs"}, purpose=THINKING)
    for signature in ("x", "tg1.x", other):
        asked = accept(messages=[user(text("a")), assistant(thought("", signature), text("b")), user(text("c"))])
        assert asked.dropped == ("foreign_seal",)
        assert "reasoning_content" not in asked.request.messages[1]


TOOL = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}, "strict": True}
DECLARED = {
    "type": "function",
    "function": {"name": "Read", "description": "Reads.", "parameters": {"type": "object"}, "strict": True},
}


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        (None, {}),
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "Read"}, {"tool_choice": {"type": "function", "function": {"name": "Read"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
    ],
)
def test_tools_and_the_choice_among_them(choice: Any, fields: dict[str, Any]) -> None:
    made = chat(tools=[TOOL], **({"tool_choice": choice} if choice else {}))
    assert made["tools"] == [DECLARED]
    assert {name: made[name] for name in ("tool_choice", "parallel_tool_calls") if name in made} == fields


def test_a_vendors_tools_that_the_client_runs_have_the_vendors_parameters() -> None:
    made = chat(tools=[{"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "edit"}])
    names = [tool["function"]["name"] for tool in made["tools"]]
    assert names == ["bash", "edit"]
    assert "command" in made["tools"][0]["function"]["parameters"]["properties"]
    assert all(tool["function"]["description"] for tool in made["tools"])


def test_a_deferred_tool_is_shown_once_it_was_asked_for_and_behind_all_others() -> None:
    deferred = [{**TOOL, "name": name, "defer_loading": True} for name in ("A", "B", "DeferredToolPlaceholder")]
    found = [{"type": "tool_reference", "tool_name": "B"}]
    asking = {"name": "ToolSearch", "input_schema": {"type": "object"}}
    tools = [*deferred, asking]
    assert [tool["function"]["name"] for tool in chat(tools=tools)["tools"]] == ["ToolSearch"]
    history = [user(text("go")), assistant(use("one", "ToolSearch")), user(result("one", found))]
    made = chat(tools=tools, messages=history)
    assert [tool["function"]["name"] for tool in made["tools"]] == ["ToolSearch", "B"]
    assert made["messages"][2]["content"] == "Loaded: B"


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def test_tools_of_anthropics_server_are_left_out_beside_others() -> None:
    asked = accept(tools=[TOOL, SEARCH], tool_choice={"type": "any"})
    assert [tool["function"]["name"] for tool in asked.request.body["tools"]] == ["Read"]
    assert asked.left_out == ("web_search",)
    assert asked.dropped == ("server_tool",)


REFUSED: list[Any] = [
    ({"tools": [SEARCH]}, "web_search"),
    ({"tools": [TOOL, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "web_search"),
    ({"tools": [TOOL, {"type": "mcp_toolset", "mcp_server_name": "s"}]}, "mcp_servers"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "Write"}}, "not declared"),
    ({"tools": [7]}, "object"),
    ({"tools": 7}, "list"),
    ({"messages": []}, "empty"),
    ({"messages": [{"role": "developer", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": [text("x")] * 1025}]}, "1024"),
    ({"messages": [{"role": "user", "content": "x"}] * 8193}, "8192"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"thread": {"type": "create"}}, "thread"),
    ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread"),
    ({"stream": 1}, "stream"),
]


@pytest.mark.parametrize(("body", "words"), REFUSED)
def test_what_cannot_be_had_in_chat_says_why(body: dict[str, Any], words: str) -> None:
    asked = accept(**body)
    assert asked.refusal is not None
    assert asked.refusal.status == 400
    assert words in asked.refusal.message
    assert asked.request.model == "m"


def test_the_form_of_the_answer_and_the_effort() -> None:
    schema = {"type": "object"}
    form = {"format": {"type": "json_schema", "schema": schema}, "effort": "high"}
    made = chat(output_config=form, model="gpt-oss-120b")
    assert made["response_format"]["json_schema"]["schema"] == schema
    assert made["reasoning_effort"] == "high"
    assert "reasoning_effort" not in chat(output_config=form)
    assert chat(Server(takes_effort=True), output_config=form)["reasoning_effort"] == "high"


def test_a_wish_to_think_goes_where_it_is_understood() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert "thinking" not in chat(thinking=thinking)
    assert chat(Server(knows_messages=True), thinking=thinking)["thinking"] == thinking
    made = chat(Server(thinking="chat_template_kwargs"), thinking=thinking)
    assert made["chat_template_kwargs"] == {"enable_thinking": True}


FIELDS = ["type", "text", "role", "content", "id", "name", "input", "source", "tool_use_id"]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=20,
)
KINDS = st.sampled_from(["text", "image", "document", "tool_use", "tool_result", "thinking", "search_result", "x", 7])


@pytest.mark.parametrize("words", ["", "Hm."])
@pytest.mark.parametrize(("signature", "is_bound"), [("tg1.whoever-has-sealed-it", True), ("U0lH", False)])
def test_what_was_sealed_here_is_told_to_no_server_that_speaks_the_wire(
    words: str, signature: str, is_bound: bool
) -> None:
    asked = accept(messages=[user(text("a")), assistant(thought(words, signature), text("b")), user(text("c"))])
    assert asked.is_bound is is_bound


MORE = {name: JSON for name in (*FIELDS[1:], "thinking", "signature", "title", "is_error")}
BLOCKS = st.lists(st.fixed_dictionaries({"type": KINDS}, optional=MORE), max_size=4)
MESSAGES_GIVEN = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": BLOCKS | st.text()}),
    max_size=6,
)


@given(MESSAGES_GIVEN, JSON, JSON, JSON)
def test_whatever_comes_is_a_request_or_a_refusal(messages: Any, tools: Any, choice: Any, system: Any) -> None:
    try:
        asked = accept(messages=messages, tools=tools, tool_choice=choice, system=system)
    except GatewayError:
        return
    if asked.refusal is None:
        roles = [message["role"] for message in asked.request.messages]
        assert "user" in roles or "assistant" in roles
        for at, message in enumerate(asked.request.messages):
            if message["role"] == "tool":
                assert asked.request.messages[at - 1]["role"] in ("assistant", "tool")
