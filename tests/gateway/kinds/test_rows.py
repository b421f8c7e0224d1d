"""The table of kinds: a row says all, and nothing outside goes by a kind's name."""

import ast

# ruff: noqa: E501 - words to draw from stand in dense lists
import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import GatewayError
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.ask import GeminiOptions
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.openai import OpenAiKind
from gateway.kinds.qwen_web.dialogue import QwenWebKind
from gateway.kinds.responses.dialogue import ResponsesKind
from gateway.kinds.rows import KINDS
from gateway.kinds.shared.port import Dialogue, HttpAsk, Reply, Situation
from gateway.surfaces.responses.surface import RESPONSES
from gateway.wire.chat_request import parse_request
from strategies.base import Options
from strategies.factory import load_strategies
from tests.support.anthropic_server import AnthropicServer
from tests.support.cost import assert_linear
from tests.support.gemini_server import GeminiServer
from tests.support.kinds import TOOLS, Call, Driver, Exchange, Got, Turn, comparable, conversation, in_pieces, sse
from tests.support.openai_server import ResponsesServer
from tests.support.qwen_web_server import QwenWebServer
from tests.support.reading import together
from tests.support.rooms import modules, room_of

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def called(name: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "read_file", "arguments": "{}"}}


@pytest.mark.parametrize("name", KINDS)
def test_a_row_makes_the_kind_of_its_name(name: str) -> None:
    row = KINDS[name]
    assert row.made(None).name == name
    if row.options is not None:
        options = row.options()
        assert getattr(row.made(options), "options", None) is options
        assert getattr(row.made(None), "options", None) == options


@pytest.mark.parametrize("name", KINDS)
def test_a_row_names_a_strategy_that_exists_and_can_serve_the_kind(name: str) -> None:
    row = KINDS[name]
    assert row.strategy is None or row.strategy in load_strategies().strategies
    assert row.takes_tools or row.strategy == "xml_prompt", "tools have no other way to such a server"


SENT = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PICTURE}}]},
    {"role": "assistant", "content": None, "tool_calls": [*map(called, "ab")]},
    {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "b's"}]},
    {"role": "tool", "tool_call_id": "a", "content": "a's"},
    {"role": "user", "content": "words behind results"},
    {"role": "assistant", "content": [{"type": "text", "text": "<tool_call>"}], "reasoning_content": "Well."},
    {"role": "user", "content": [{"type": "text", "text": "go on"}]},
]


def test_what_the_client_sent_is_left_as_it_is() -> None:
    """The messages of a long conversation are decoded once, and each of its turns has the same."""
    raw = json.dumps({"model": "m", "messages": SENT, "tools": TOOLS, "stream": True}).encode()
    for row in KINDS.values():
        request = parse_request(raw)
        with suppress(GatewayError):
            kind = row.made(None)
            assert kind.begin(request.body, raw, situation=SITUATION, known={}).ask.body
        assert request.body["messages"] == SENT, row
    for name, strategy in load_strategies().strategies.items():
        request = parse_request(raw)
        strategy.prepare(request, Options())
        assert request.body["messages"] == SENT, name


def test_nothing_but_the_table_and_the_kinds_goes_by_a_kinds_name() -> None:
    names = KINDS.keys() - {RESPONSES.name}  # what clients speak has the same name as what servers speak
    named = [
        f"{module}:{node.lineno} {node.value}"
        for module, path in modules().items()
        if room_of(module) != "gateway.kinds" and any(name in path.read_text("utf-8") for name in names)
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert named == []


# --- The kind that needs no translation


RAW = b'{ "model":"m", "messages":[] , "stream":true }'


def test_every_byte_goes_through_as_it_is() -> None:
    dialogue = OpenAiKind().begin({"stream": True}, RAW, situation=Situation(now=1.0, make_id=str), known={})
    assert dialogue.ask.body is RAW
    assert (dialogue.ask.path, dialogue.ask.streams, dialogue.again) == ("/chat/completions", True, None)
    piece = b"data: \xff half"
    assert dialogue.feed(piece) is piece
    assert dialogue.finish() == b""
    assert dialogue.answered(418, {}, piece) == Reply(status=418, body=piece)
    assert dialogue.remember() == ()


def test_the_key_is_a_bearer() -> None:
    kind = OpenAiKind()
    assert kind.credentials("k") == (("Authorization", "Bearer k"),)
    assert kind.credentials(None) == ()
    assert kind.keys({}) == ()
    assert kind.models(RAW) is RAW
    assert (kind.models_ask().method, kind.models_ask().path) == ("GET", "/models")


# --- The same conversations through every kind: OpenAI clients see no difference, and no server has cause to refuse.


MakeDriver = Callable[[list[Turn]], Driver]


def anthropic(model: str) -> MakeDriver:
    return lambda turns: Driver(kind=AnthropicKind(), server=AnthropicServer(turns), key="sk-ant", model=model)


def gemini(model: str, options: GeminiOptions) -> MakeDriver:
    return lambda turns: Driver(kind=GeminiKind(options), server=GeminiServer(turns), key="AIza", model=model)


def responses(model: str) -> MakeDriver:
    return lambda turns: Driver(kind=ResponsesKind(), server=ResponsesServer(turns), key="sk-resp", model=model)


def qwen_web(turns: list[Turn]) -> Driver:
    return Driver(kind=QwenWebKind(), server=QwenWebServer(turns), key="web-token", model="qwen3-max")


WITH_CALLS: dict[str, MakeDriver] = {
    "anthropic": anthropic("claude-sonnet-4-5"),
    "anthropic_adaptive": anthropic("claude-opus-4-7"),
    "responses": responses("gpt-4o"),
    "responses_thinking": responses("gpt-5.5"),
    "gemini": gemini("gemini-3-flash", GeminiOptions()),
    "gemini_older": gemini("gemini-2.5-pro", GeminiOptions(schema_field="parametersJsonSchema")),
}


def check(exchanges: list[Exchange], gots: list[Got]) -> None:
    for exchange, got in zip(exchanges, gots, strict=True):
        turn, usage = exchange.turn, got.completion["usage"]
        assert comparable(got.message) == turn.message()
        assert got.finish_reason == turn.finish_reason
        assert usage["prompt_tokens"] == turn.fresh + turn.cached
        assert usage["completion_tokens"] == turn.output
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def some_of_them() -> list[Any]:
    """Each conversation through a third of the kinds, and each kind with a third of them; all where it may take long."""
    return [
        pytest.param(
            range(start + (number + part) % 3, start + 20, 3),
            kind,
            marks=[pytest.mark.long] if part else [],
            id=f"{kind}-{start}-{part}",
        )
        for start in range(0, 200, 20)
        for number, kind in enumerate(WITH_CALLS)
        for part in range(3)
    ]


@pytest.mark.parametrize(("seeds", "kind"), some_of_them())
def test_an_answer_is_the_same_through_every_kind(seeds: range, kind: str) -> None:
    together("seed", {str(seed): seed for seed in seeds})(same_through)(kind=kind)


def same_through(seed: int, kind: str) -> None:
    exchanges = conversation(seed)
    make = WITH_CALLS[kind]
    driver = make([exchange.turn for exchange in exchanges])
    driver.cut = in_pieces(1 + seed % 17)
    streamed = driver.converse(exchanges, stream=True)
    check(exchanges, streamed)
    whole = make([exchange.turn for exchange in exchanges]).converse(exchanges, stream=False)
    check(exchanges, whole)
    for one, other in zip(streamed, whole, strict=True):
        assert one.completion["usage"] == other.completion["usage"]
        assert one.completion["id"] == other.completion["id"]


@pytest.mark.parametrize("first", range(0, 200, 10))
def test_a_server_that_keeps_the_conversation_has_all_of_it(first: int) -> None:
    together("seed", {str(seed): seed for seed in range(first, first + 10)})(kept_whole)()


def kept_whole(seed: int) -> None:
    exchanges = [exchange for exchange in conversation(seed, with_calls=False) if exchange.turn.end == "stop"]
    driver = qwen_web([exchange.turn for exchange in exchanges])
    driver.cut = in_pieces(1 + seed % 17)
    check(exchanges, driver.converse(exchanges, stream=True))
    server = driver.server
    assert isinstance(server, QwenWebServer)
    assert [path for path, _ in server.requests].count("/api/v2/chats/new") == min(1, len(exchanges))
    if exchanges:
        said = [text for _, text in server.line("chat-1", f"answer-chat-1-{len(exchanges)}")]
        assert said[-1] == exchanges[-1].turn.text
        assert len(said) == sum(len(exchange.news) + 1 for exchange in exchanges)
    whole = qwen_web([exchange.turn for exchange in exchanges])
    check(exchanges, whole.converse(exchanges, stream=False))


# --- Whatever clients and servers send, however it is cut: no foreign exception, the same bytes, in linear time


TURN = Turn(
    text="I read é🙂 it.",
    thought="hm, well",
    signature="U0lH",
    calls=(Call("c1", "run", {"command": "ls", "n": [1, 2]}),),
)

SITUATION = Situation(now=1.0, make_id=lambda _: "call_made", max_event_bytes=1 << 16)

BODY = {"model": "gemini-3", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def anthropic_stream(turn: Turn) -> bytes:
    return AnthropicServer().stream(turn, "m")


def gemini_stream(turn: Turn) -> bytes:
    return b"".join(sse(chunk, end="\r\n") for chunk in GeminiServer().chunks(turn, "m"))


def qwen_stream(turn: Turn) -> bytes:
    return b"".join(sse(event) for event in QwenWebServer().events(turn, "c", None, "r"))


def responses_stream(turn: Turn) -> bytes:
    server = ResponsesServer()
    request = {"model": "m", "include": ["reasoning.encrypted_content"]}
    return server.stream(turn, server.response(turn, request))


STREAMS: dict[str, Callable[[Turn], bytes]] = {
    "anthropic": anthropic_stream,
    "gemini": gemini_stream,
    "qwen_web": qwen_stream,
    "responses": responses_stream,
}


def dialogue_of(kind: str) -> Dialogue:
    dialogue = KINDS[kind].make().begin(BODY, b"", situation=SITUATION, known={})
    if kind == "qwen_web":
        assert isinstance(dialogue.answered(200, {}, b'{"success": true, "data": {"id": "c"}}'), HttpAsk)
    return dialogue


def read(kind: str, pieces: list[bytes]) -> bytes:
    dialogue = dialogue_of(kind)
    out = b"".join(dialogue.feed(piece) for piece in pieces) + dialogue.finish()
    assert dialogue.finish() == b""
    assert dialogue.feed(pieces[-1] if pieces else b"") == b""
    for memory in dialogue.remember():
        json.loads(memory.value)
    return out


def check_stream(out: bytes) -> None:
    events = out.split(b"\n\n")
    assert events.pop() == b""
    assert all(event.startswith(b"data: ") for event in events)
    data = [event.removeprefix(b"data: ") for event in events]
    assert data.count(b"[DONE]") <= 1
    assert b"[DONE]" not in data[:-1]
    told = [json.loads(event) for event in data if event != b"[DONE]"]
    errors = ["error" in event for event in told]
    assert True not in errors[:-1]
    if data and data[-1] == b"[DONE]":
        assert not any(errors)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


JUNK = st.sampled_from(
    [b"", b"\n", b"\r", b"\n\n", b"\r\n\r\n", b"data:", b'"', b"{", b"}", b"null", b"\xff", b"\\ud83d", b"-1", b"[]", b": x\n\n"]
) | st.binary(max_size=8)  # fmt: skip


@pytest.mark.parametrize("kind", STREAMS)
@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_stream_gives_the_same_bytes_however_it_is_broken_and_cut(kind: str, data: st.DataObject) -> None:
    stream = STREAMS[kind](TURN)
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(stream)))
        end = min(len(stream), start + data.draw(st.integers(0, 30)))
        stream = stream[:start] + data.draw(JUNK) + stream[end:]
    whole = read(kind, [stream])
    check_stream(whole)
    assert read(kind, cut(stream, data.draw(st.lists(st.integers(0, 5000), max_size=30)))) == whole
    assert read(kind, [stream[place : place + 1] for place in range(len(stream))]) == whole


KEYS = st.sampled_from(
    ["type", "index", "message", "content_block", "delta", "usage", "error", "content", "text", "thinking", "signature",
     "id", "name", "input", "partial_json", "stop_reason", "candidates", "parts", "functionCall", "args", "finishReason",
     "promptFeedback", "blockReason", "usageMetadata", "promptTokenCount", "choices", "phase", "status", "success", "data",
     "response.created", "response_id", "code", "details", "model", "role", "stop_details", "input_tokens"]
)  # fmt: skip

SCALARS = st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats() | st.text(max_size=4) | st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
     "error", "text", "tool_use", "thinking", "text_delta", "thinking_delta", "input_json_delta", "STOP", "answer", "think",
     "finished", "end_turn", "MALFORMED_FUNCTION_CALL"]
)  # fmt: skip

VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=5), max_leaves=20)


@pytest.mark.parametrize("kind", STREAMS)
@settings(max_examples=120, deadline=None)
@given(st.lists(VALUES, max_size=6))
def test_events_of_any_shape_harm_nothing(kind: str, events: list[Any]) -> None:
    check_stream(read(kind, [b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)]))


@pytest.mark.parametrize("kind", STREAMS)
@settings(max_examples=80, deadline=None)
@given(status=st.integers(100, 599), value=VALUES | st.binary(max_size=40))
def test_answers_of_any_shape_come_to_a_reply(kind: str, status: int, value: Any) -> None:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    told = dialogue_of(kind).answered(status, {}, body)
    assert isinstance(told, Reply)
    assert isinstance(json.loads(told.body), dict)
    assert 200 <= told.status < 300 or told.status >= 400


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "odd"])},
        optional={
            "content": st.text(max_size=5) | VALUES | st.lists(
                st.fixed_dictionaries(
                    {"type": st.sampled_from(["text", "image_url", "file", "input_audio", "refusal"])},
                    optional={"text": VALUES, "image_url": VALUES, "file": VALUES, "input_audio": VALUES},
                ), max_size=3),
            "tool_calls": VALUES | st.lists(
                st.fixed_dictionaries(
                    {"function": st.fixed_dictionaries({"name": st.text(max_size=5)}, optional={"arguments": VALUES})},
                    optional={"id": VALUES},
                ), max_size=3),
            "tool_call_id": VALUES,
            "name": VALUES,
        },
    ),
    max_size=6,
)  # fmt: skip

FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "n", "max_tokens", "temperature", "top_p", "stop", "user",
          "reasoning_effort", "response_format", "stream_options", "thinking")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(messages=MESSAGES, fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4))
def test_requests_of_any_shape_are_sent_or_refused(kind: str, messages: list[Any], fields: dict[str, Any]) -> None:
    body = {"model": "claude-sonnet-4-5", "messages": messages, **fields}
    maker = KINDS[kind].make()
    known = dict.fromkeys(maker.keys(body), b'{"model": "claude-sonnet-4-5", "items": [["r", {}], ["t", -5], 1]}')
    try:
        dialogue = maker.begin(body, b"{}", situation=SITUATION, known=known)
    except GatewayError:
        return
    json.loads(dialogue.ask.body)


@pytest.mark.parametrize("kind", STREAMS)
def test_nesting_without_end_is_refused(kind: str) -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = {"a": deep}
    body = {**BODY, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}], "x": deep}]}
    tools = [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"properties": {"p": {"default": deep, "const": deep}}}},
        }
    ]
    for request in (body, {**body, "tools": tools}, {**body, "messages": [{"role": "user", "content": [deep]}]}):
        KINDS[kind].make().keys(request)
        with suppress(GatewayError):
            KINDS[kind].make().begin(request, b"", situation=SITUATION, known={})


@pytest.mark.cost
@pytest.mark.parametrize("kind", STREAMS)
def test_work_grows_with_what_is_sent_and_no_faster(kind: str) -> None:
    def reading(size: int) -> Callable[[], None]:
        stream = STREAMS[kind](Turn(text="ab 🙂 " * size, calls=()))
        pieces = cut(stream, list(range(0, len(stream), 1500)))

        def told() -> None:
            assert read(kind, pieces).endswith(b"[DONE]\n\n")

        return told

    assert_linear(reading, 2000)


@pytest.mark.cost
@pytest.mark.parametrize("kind", STREAMS)
def test_long_histories_are_sent_in_linear_time(kind: str) -> None:
    def sending(turns: int) -> Callable[[], None]:
        messages: list[dict[str, Any]] = []
        for number in range(turns):
            calls = [{"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}]
            messages.append({"role": "user", "content": "go"})
            messages.append({"role": "assistant", "content": "ok", "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "R"})
        tools = {} if kind == "qwen_web" else {"tools": TOOLS}
        body = {**BODY, "messages": messages, **tools}

        def sent() -> None:
            KINDS[kind].make().keys(body)
            KINDS[kind].make().begin(body, b"", situation=SITUATION, known={})

        return sent

    assert_linear(sending, 500)


@pytest.mark.parametrize("kind", STREAMS)
def test_an_event_without_end_is_a_fault(kind: str) -> None:
    dialogue = dialogue_of(kind)
    out = b"".join(dialogue.feed(b"data: " + b"x" * 5000) for _ in range(40)) + dialogue.finish()
    assert json.loads(out.removeprefix(b"data: "))["error"]["code"] == "upstream_bad_reply"
