"""A chat that the server keeps: what is sent when, and what becomes of chats that changed or are gone."""

import json
from typing import Any

import pytest

from gateway.core.errors import InvalidRequest, UpstreamRejected
from gateway.kinds.qwen_web.dialogue import QwenWebKind, QwenWebOptions
from gateway.kinds.shared.port import HttpAsk, Reply, Situation
from gateway.traffic.lesson_rules import refuses_tools
from tests.support.kinds import PING, Driver, Turn, sse
from tests.support.qwen_web_server import QwenWebServer, fault_body

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "hi"}
CREATE, COMPLETE = "/api/v2/chats/new", "/api/v2/chat/completions"


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def driver(*texts: str, faults_as_events: bool = False) -> Driver:
    server = QwenWebServer([Turn(text=text) for text in texts], faults_as_events=faults_as_events)
    return Driver(kind=QwenWebKind(), server=server, key="web-token", model="qwen3-max")


def server_of(client: Driver) -> QwenWebServer:
    assert isinstance(client.server, QwenWebServer)
    return client.server


def ask(client: Driver, *messages: dict[str, Any], stream: bool = True) -> str:
    got = client.ask({"model": "qwen3-max", "messages": list(messages), "stream": stream})
    assert got.status == 200, got.body
    content = got.message["content"]
    assert isinstance(content, str)
    return content


def test_the_first_request_makes_a_chat_and_sends_system_and_message() -> None:
    client = driver("A")
    ask(client, SYSTEM, USER)
    (create, made), (complete, sent) = server_of(client).requests
    assert (create, complete) == (CREATE, COMPLETE)
    assert made["models"] == ["qwen3-max"]
    assert sent["messages"] == [SYSTEM, USER]
    assert sent["parent_id"] is None


def test_a_later_request_sends_only_what_is_new() -> None:
    client = driver("A", "B")
    ask(client, SYSTEM, USER)
    ask(client, SYSTEM, USER, said("A"), asked("more"))
    paths = [path for path, _ in server_of(client).requests]
    assert paths == [CREATE, COMPLETE, COMPLETE]
    sent = server_of(client).requests[-1][1]
    assert sent["messages"] == [asked("more")]
    assert (sent["chat_id"], sent["parent_id"]) == ("chat-1", "answer-chat-1-1")


def test_two_ways_on_from_one_answer_are_two_branches() -> None:
    client = driver("A", "B", "C", "D", "E")
    ask(client, USER)
    ask(client, USER, said("A"), asked("left"))
    ask(client, USER, said("A"), asked("right"))
    ask(client, USER, said("A"), asked("left"), said("B"), asked("go"))
    ask(client, USER, said("A"), asked("right"), said("C"), asked("go"))
    server = server_of(client)
    assert list(server.chats) == ["chat-1"]
    left, right = (server.line("chat-1", f"answer-chat-1-{number}") for number in (4, 5))
    assert [text for _, text in left] == ["hi", "A", "left", "B", "go", "D"]
    assert [text for _, text in right] == ["hi", "A", "right", "C", "go", "E"]


@pytest.mark.parametrize(
    "history",
    [
        [asked("other"), said("A"), asked("more")],
        [USER, said("A, edited"), asked("more")],
        [SYSTEM, USER, said("A"), asked("more")],
        [USER, asked("and"), said("A"), asked("more")],
    ],
)
def test_an_edited_history_is_a_new_chat_with_all_of_it(history: list[dict[str, Any]]) -> None:
    client = driver("A", "B")
    ask(client, USER)
    ask(client, *history)
    assert list(server_of(client).chats) == ["chat-1", "chat-2"]
    assert server_of(client).requests[-1][1]["messages"] == history


def test_white_space_around_an_answer_makes_no_new_chat() -> None:
    client = driver("A\n", "B")
    ask(client, USER)
    ask(client, USER, {"role": "assistant", "content": [{"type": "text", "text": "A"}]}, asked("more"))
    assert list(server_of(client).chats) == ["chat-1"]


@pytest.mark.parametrize("as_events", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("loses", ["chat", "answer"])
def test_a_chat_that_is_gone_is_made_again_with_the_whole_history(loses: str, stream: bool, as_events: bool) -> None:
    client = driver("A", "B", "C", faults_as_events=as_events)
    ask(client, SYSTEM, USER, stream=stream)
    server = server_of(client)
    if loses == "chat":
        del server.chats["chat-1"]
    else:
        server.chats["chat-1"].clear()
    history = [SYSTEM, USER, said("A"), asked("more")]
    assert ask(client, *history, stream=stream) == "B"
    assert server.requests[-1][1]["messages"] == history
    assert ask(client, *history, said("B"), asked("on"), stream=stream) == "C"
    assert server.requests[-1][1]["messages"] == [asked("on")]


def test_a_chat_that_was_just_made_is_not_made_again() -> None:
    client = driver()
    server = server_of(client)
    dialogue = client.kind.begin(
        {"model": "q", "messages": [USER]}, b"", situation=Situation(now=1.0, make_id=str), known={}
    )
    ask = dialogue.answered(200, {}, b'{"success": true, "data": {"id": "chat-9"}}')
    assert isinstance(ask, HttpAsk)
    reply = dialogue.answered(200, {}, json.dumps(fault_body("Not_Found", "no such chat")).encode())
    assert isinstance(reply, Reply)
    assert (reply.status, json.loads(reply.body)["error"]["message"]) == (404, "no such chat")
    assert server.requests == []


def test_what_the_client_got_names_the_conversation() -> None:
    client = driver("<ping></ping>", "B")
    call = {"id": "c1", "type": "function", "function": {"name": "ping", "arguments": '{"b": 1, "a": 2}'}}
    delivered = {"role": "assistant", "content": None, "tool_calls": [call]}
    client.ask({"model": "qwen3-max", "messages": [USER], "stream": True}, delivered=delivered)
    sent_back = {**call, "function": {"name": "ping", "arguments": '{"a":2,"b":1}'}}
    history = [USER, {"role": "assistant", "content": "", "tool_calls": [sent_back]}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "R"}
    original = {"model": "qwen3-max", "messages": [*history, result]}
    rendered = {"model": "qwen3-max", "messages": [USER, said("<ping></ping>"), asked("[Tool Result: ping]")]}
    keys = client.kind.keys(original, scope="s")
    known = {key: client.store[key] for key in keys}
    dialogue = client.kind.begin(
        rendered, b"", situation=Situation(now=1.0, make_id=str, scope="s"), known=known, original=original
    )
    sent = json.loads(dialogue.ask.body)
    assert sent["messages"] == [asked("[Tool Result: ping]")]
    assert sent["parent_id"] == "answer-chat-1-1"


def test_sessions_of_another_client_are_out_of_reach() -> None:
    body = {"model": "q", "messages": [USER, said("A"), USER]}
    assert QwenWebKind().keys(body, scope="a") != QwenWebKind().keys(body, scope="b")
    assert QwenWebKind().keys({"model": "q", "messages": [USER]}) == ()


def test_tools_are_refused_in_words_that_the_gateway_knows() -> None:
    with pytest.raises(UpstreamRejected) as raised:
        QwenWebKind().begin(
            {"model": "q", "messages": [USER], "tools": [PING]},
            b"",
            situation=Situation(now=1.0, make_id=str),
            known={},
        )
    assert refuses_tools(raised.value.upstream_status, raised.value.payload)


def test_every_word_of_the_wire_can_be_changed() -> None:
    names = {"parent_id": "parentId", "chat_id": "cid", "response_id": "rid", "phase": "stage", "id": "chatId"}
    options = QwenWebOptions(
        create_path="/new",
        complete_path="/say",
        names=names,
        extra_fields={"feature": 1},
        answer_phases=frozenset({"a"}),
    )
    situation = Situation(now=1.0, make_id=str)
    body = {"model": "q", "messages": [USER], "stream": True}
    dialogue = QwenWebKind(options).begin(body, b"", situation=situation, known={})
    assert dialogue.ask.path == "/new"
    ask = dialogue.answered(200, {}, b'{"success": true, "data": {"chatId": "c"}}')
    assert isinstance(ask, HttpAsk)
    assert (ask.path, ask.query) == ("/say", (("cid", "c"),))
    sent = json.loads(ask.body)
    assert (sent["cid"], sent["parentId"], sent["feature"]) == ("c", None, 1)
    told = dialogue.feed(
        sse({"choices": [{"delta": {"content": "x", "stage": "a", "status": "finished"}}], "rid": "r"})
    )
    assert b'"content":"x"' in told + dialogue.finish()
    assert json.loads(dialogue.remember()[0].value) == {"chat_id": "c", "parent_id": "r"}


def in_chat(stream: bool = True) -> Any:
    body = {"model": "q", "messages": [USER], "stream": stream, "stream_options": {"include_usage": True}}
    dialogue = QwenWebKind().begin(body, b"", situation=Situation(now=1.0, make_id=str), known={})
    dialogue.answered(200, {}, b'{"success": true, "data": {"id": "c"}}')
    return dialogue


def delta(content: str, phase: str, status: str = "typing") -> bytes:
    choice = {"delta": {"role": "assistant", "content": content, "phase": phase, "status": status}}
    return sse({"choices": [choice], "response_id": "r"})


def test_thoughts_are_reasoning_and_their_end_is_not_the_answers() -> None:
    dialogue = in_chat()
    told = dialogue.feed(delta("hm", "think") + delta("", "think", "finished")).decode() + dialogue.finish().decode()
    assert '"reasoning_content":"hm"' in told
    assert "[DONE]" not in told
    assert dialogue.remember() == ()


def test_a_stream_that_breaks_off_is_not_remembered() -> None:
    dialogue = in_chat()
    assert b"[DONE]" not in dialogue.feed(delta("half", "answer")) + dialogue.finish()
    assert dialogue.remember() == ()


def test_a_fault_within_the_stream_ends_it_without_done() -> None:
    dialogue = in_chat()
    told = dialogue.feed(
        delta("half", "answer") + sse(fault_body("Internal", "oops")) + delta("x", "answer", "finished")
    )
    assert (told + dialogue.finish()).rstrip().endswith(b'"code":"Internal"}}')


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (200, "RateLimited", 429),
        (200, "Unauthorized", 401),
        (200, "Bad_Request", 400),
        (200, "Odd", 502),
        (503, "Odd", 503),
    ],
)
@pytest.mark.parametrize("step", ["create", "say"])
def test_faults_get_a_status(step: str, status: int, code: str, told: int) -> None:
    dialogue = in_chat(stream=False)
    if step == "create":
        body = {"model": "q", "messages": [USER]}
        dialogue = QwenWebKind().begin(body, b"", situation=Situation(now=1.0, make_id=str), known={})
    reply = dialogue.answered(status, {}, json.dumps(fault_body(code, "why")).encode())
    assert isinstance(reply, Reply)
    error = json.loads(reply.body)["error"]
    assert (reply.status, error["code"], error["message"]) == (told, code, "why")


def test_a_whole_answer_is_read_too() -> None:
    message = {"role": "assistant", "content": "x", "reasoning_content": "hm"}
    body = {
        "success": True,
        "data": {"response_id": "r", "choices": [{"message": message}], "usage": {"input_tokens": 3}},
    }
    reply = in_chat(stream=False).answered(200, {}, json.dumps(body).encode())
    assert isinstance(reply, Reply)
    answer = json.loads(reply.body)
    assert answer["choices"][0]["message"] == message
    assert answer["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"<html>", b"data: {}\n\n", b"data: \xff\n\n"])
def test_an_answer_that_is_none_is_a_fault_of_the_server(body: bytes) -> None:
    reply = in_chat(stream=False).answered(200, {}, body)
    assert isinstance(reply, Reply)
    assert reply.status == 502
    assert json.loads(reply.body)["error"]["type"] == "server_error"


def test_token_and_cookies_go_into_headers() -> None:
    headers = dict(QwenWebKind().credentials("t", "a=b"))
    assert headers == {"Authorization": "Bearer t", "Cookie": "a=b"}


def test_models_are_asked_for_and_listed() -> None:
    kind = QwenWebKind()
    asked = kind.models_ask()
    body = QwenWebServer().respond("GET", asked.path, {"authorization": "Bearer web-token"}, b"").body
    assert [model["id"] for model in json.loads(kind.models(body))["data"]] == ["qwen3-max"]


@pytest.mark.parametrize(("status", "body", "told"), [(500, b"<html>", 500), (200, b"{}", 502), (301, b"", 502)])
def test_a_chat_that_is_not_made_is_a_fault_of_the_server(status: int, body: bytes, told: int) -> None:
    request = {"model": "q", "messages": [USER]}
    dialogue = QwenWebKind().begin(request, b"", situation=Situation(now=1.0, make_id=str), known={})
    reply = dialogue.answered(status, {}, body)
    assert isinstance(reply, Reply)
    assert reply.status == told


def test_nothing_is_read_of_an_answer_that_is_void() -> None:
    client = driver("A")
    ask(client, USER)
    body = {"model": "qwen3-max", "messages": [USER, said("A"), USER], "stream": True}
    known = {key: client.store[key] for key in client.kind.keys(body, scope="s")}
    situation = Situation(now=1.0, make_id=str, scope="s")
    dialogue = client.kind.begin(body, b"", situation=situation, known=known)
    gone = sse(fault_body("Not_Found", "gone"))
    assert dialogue.feed(gone + gone + delta("late", "answer", "finished")) == b""
    assert dialogue.again is not None
    assert dialogue.feed(delta("late", "answer", "finished")) + dialogue.finish() == b""
    assert dialogue.remember() == ()


def test_a_conversation_without_messages_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        QwenWebKind().begin({"model": "q", "messages": []}, b"", situation=Situation(now=1.0, make_id=str), known={})


def test_a_conversation_that_nests_without_end_has_no_session() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert QwenWebKind().keys({"model": "q", "messages": [USER, {"role": "assistant", "content": [deep]}]}) == ()
    broken = {"id": "c", "function": {"name": "f", "arguments": "{"}}
    assert QwenWebKind().keys({"model": "q", "messages": [USER, {"role": "assistant", "tool_calls": [broken]}]})
