"""Requests to Gemini."""

import json
from typing import Any

import pytest

from gateway.core.errors import InvalidRequest
from gateway.kinds.gemini.ask import SKIP_CHECK, GeminiOptions
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.shared.port import Dialogue, Situation
from tests.support.gemini_server import GeminiServer
from tests.support.kinds import PICTURE, PING, READ, RUN, Call, Driver, Turn

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}


def begin(body: dict[str, Any], **options: Any) -> Dialogue:
    situation = Situation(now=5.0, make_id=lambda _: "call_made", answer_id="chatcmpl-1")
    kind = GeminiKind(GeminiOptions(**options))
    return kind.begin({"model": "gemini-3-flash", **body}, b"", situation=situation, known={})


def sent(*messages: Any, options: dict[str, Any] | None = None, **fields: Any) -> Any:
    return json.loads(begin({"messages": list(messages) or [USER], **fields}, **options or {}).ask.body)


def parts_of(*messages: Any, **fields: Any) -> list[list[str]]:
    return [[next(iter(part)) for part in content["parts"]] for content in sent(*messages, **fields)["contents"]]


def test_the_model_is_part_of_the_path_and_cannot_leave_it() -> None:
    assert begin({"messages": [USER]}).ask.path == "/models/gemini-3-flash:generateContent"
    asked = begin({"messages": [USER], "model": "../../x?y#z", "stream": True}).ask
    assert asked.path == "/models/..%2F..%2Fx%3Fy%23z:streamGenerateContent"
    assert asked.query == (("alt", "sse"),)


def test_system_text_is_the_system_instruction() -> None:
    request = sent({"role": "system", "content": "A"}, USER, {"role": "developer", "content": "B"})
    assert request["systemInstruction"] == {"parts": [{"text": "A"}, {"text": "B"}]}
    assert request["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_system_text_alone_is_what_the_user_says() -> None:
    assert sent({"role": "system", "content": "A"}) == {"contents": [{"role": "user", "parts": [{"text": "A"}]}]}


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        sent({"role": "user", "content": ""})


def test_results_stand_alone_in_the_order_of_their_calls() -> None:
    request = sent(
        USER,
        {"role": "assistant", "content": "x", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "user", "content": "go on"},
    )
    results = [part["functionResponse"] for part in request["contents"][2]["parts"]]
    assert [(result["id"], result["response"]["output"]) for result in results] == [("c1", "one"), ("c2", "two")]
    assert request["contents"][3] == {"role": "user", "parts": [{"text": "go on"}]}


def test_ids_are_told_only_to_models_that_have_them() -> None:
    history = [
        USER,
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "R"},
    ]
    old = sent(*history, model="gemini-2.5-flash")["contents"]
    assert "id" not in old[1]["parts"][0]["functionCall"]
    assert "id" not in old[2]["parts"][0]["functionResponse"]
    assert "thoughtSignature" not in old[1]["parts"][0]
    new = sent(*history, model="gemini-flash-latest")["contents"]
    assert new[1]["parts"][0]["functionCall"]["id"] == new[2]["parts"][0]["functionResponse"]["id"] == "c1"


def test_pictures_of_a_result_go_with_it_or_behind_it() -> None:
    content = [
        {"type": "text", "text": "seen"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    ]
    history = [
        USER,
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    assert parts_of(*history, model="gemini-2.5-pro")[2:] == [["functionResponse"], ["inlineData"]]
    new = sent(*history)["contents"]
    assert len(new) == 3
    picture = {"inlineData": {"mimeType": "image/png", "data": PICTURE}}
    assert new[2]["parts"][0]["functionResponse"]["parts"] == [picture]


def test_pictures_sounds_and_files_are_passed_on() -> None:
    content = [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png?x=1"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,BBBB"}},
        {"type": "file", "file": {"file_id": "https://files/1"}},
    ]
    assert sent({"role": "user", "content": content})["contents"][0]["parts"] == [
        {"fileData": {"fileUri": "https://example.com/a.png?x=1", "mimeType": "image/png"}},
        {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "BBBB"}},
        {"fileData": {"fileUri": "https://files/1"}},
    ]


def test_functions_are_declared_in_words_that_are_taken() -> None:
    declared = sent(tools=[READ, RUN, PING])["tools"][0]["functionDeclarations"]
    read, run, ping = declared
    assert read["parameters"]["properties"]["mode"] == {"type": "string", "enum": ["text"]}
    assert read["parameters"]["properties"]["range"] == {
        "type": "array",
        "items": {"type": "integer"},
        "nullable": True,
    }
    assert run["parameters"]["properties"]["timeout"] == {"type": "integer", "minimum": 1, "nullable": True}
    assert "parameters" not in ping
    assert b"$" not in json.dumps(declared).encode()


def test_schemas_go_whole_if_that_is_set() -> None:
    declared = sent(tools=[RUN], options={"schema_field": "parametersJsonSchema"})["tools"][0]["functionDeclarations"]
    run: Any = RUN
    assert declared[0]["parametersJsonSchema"] == run["function"]["parameters"]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "run"}}, {"mode": "ANY", "allowedFunctionNames": ["run"]}),
    ],
)
def test_the_choice_of_tools_is_told(choice: Any, wanted: Any) -> None:
    assert sent(tools=[READ, RUN], tool_choice=choice)["toolConfig"] == {"functionCallingConfig": wanted}


def test_without_a_choice_nothing_is_told_of_it() -> None:
    assert "toolConfig" not in sent(tools=[READ])
    assert "tools" not in sent()


def test_the_generation_is_configured() -> None:
    schema = {"$schema": "x", "type": "object"}
    request = sent(
        temperature=1.5,
        top_p=0.5,
        seed=4,
        stop=["a", "b"],
        max_tokens=9,
        reasoning_effort="low",
        response_format={"type": "json_schema", "json_schema": {"schema": schema}},
    )
    assert request["generationConfig"] == {
        "temperature": 1.5,
        "topP": 0.5,
        "seed": 4,
        "maxOutputTokens": 9,
        "stopSequences": ["a", "b"],
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True},
    }


@pytest.mark.parametrize(
    ("model", "effort", "told"),
    [
        ("gemini-2.0-flash", "high", None),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0, "includeThoughts": False}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128, "includeThoughts": False}),
        ("gemini-2.5-pro", "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
        ("gemini-2.5-pro", "xhigh", {"thinkingBudget": 24576, "includeThoughts": True}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "medium", "includeThoughts": True}),
        ("gemini-3-flash", "minimal", {"thinkingLevel": "minimal", "includeThoughts": True}),
        ("gemma-3", "high", None),
    ],
)
def test_effort_is_told_in_the_form_of_the_model(model: str, effort: str, told: dict[str, Any] | None) -> None:
    assert sent(model=model, reasoning_effort=effort).get("generationConfig", {}).get("thinkingConfig") == told


THINKING = Turn(
    text="I look.",
    signature="U0lH",
    calls=(Call("c1", "run", {"command": "ls", "timeout": 1}), Call("c2", "ping", {})),
)


def history_of(client: Driver, *turns: dict[str, Any]) -> Any:
    body = {"model": client.model, "messages": [USER], "tools": [RUN, PING]}
    assert client.ask(body).status == 200
    got = client.ask({**body, "messages": [USER, *turns]})
    assert got.status == 200, got.body
    return json.loads(client.asks[-1].body)["contents"]


def driver(*turns: Turn) -> Driver:
    return Driver(kind=GeminiKind(), server=GeminiServer(list(turns)), key="AIza", model="gemini-3-flash")


def test_a_signature_goes_back_with_its_call() -> None:
    calls = [CALL, {"id": "c2", "function": {"name": "ping", "arguments": "{}"}}]
    results = [{"role": "tool", "tool_call_id": call_id, "content": "R"} for call_id in ("c1", "c2")]
    contents = history_of(
        driver(THINKING, Turn(text="done")), {"role": "assistant", "content": "I look.", "tool_calls": calls}, *results
    )
    assert [part.get("thoughtSignature") for part in contents[1]["parts"]] == [None, "U0lH", None]


def test_a_signature_goes_back_with_its_text() -> None:
    contents = history_of(
        driver(Turn(text="Hello.", signature="U0lH"), Turn(text="done")),
        {"role": "assistant", "content": "Hello."},
        USER,
    )
    assert contents[1]["parts"] == [{"text": "Hello.", "thoughtSignature": "U0lH"}]


def test_a_call_from_elsewhere_asks_to_skip_the_check() -> None:
    call = {**CALL, "id": "call_elsewhere"}
    result = {"role": "tool", "tool_call_id": "call_elsewhere", "content": "R"}
    contents = history_of(
        driver(THINKING, Turn(text="done")),
        {"role": "assistant", "tool_calls": [call, CALL]},
        result,
        {"role": "tool", "tool_call_id": "c1", "content": "R"},
    )
    assert contents[1]["parts"][0]["thoughtSignature"] == SKIP_CHECK


def test_more_than_one_choice_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        sent(n=2)


def test_only_the_allowed_tools_are_told() -> None:
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "run"}}]}
    request = sent(tools=[READ, RUN], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [function["name"] for function in request["tools"][0]["functionDeclarations"]] == ["run"]
    assert request["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}


def test_an_answer_that_would_be_first_follows_the_user() -> None:
    assert [content["role"] for content in sent({"role": "assistant", "content": "a"}, USER)["contents"]] == [
        "user",
        "model",
        "user",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({"a": 1}, {"a": 1}), ("", {}), (None, {}), ("{half", {"arguments": "{half"}), ('{"a": 1.0}', {"a": 1.0})],
)
def test_arguments_of_a_history_are_an_object(arguments: Any, told: Any) -> None:
    call = {"id": "c1", "function": {"name": "run", "arguments": arguments}}
    parts = sent(USER, {"role": "assistant", "tool_calls": [call]})["contents"][1]["parts"]
    assert parts[0]["functionCall"]["args"] == told
