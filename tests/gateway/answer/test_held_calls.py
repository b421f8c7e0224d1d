"""Servers that send structured calls in any way: whatever comes, what goes out is what clients can add up."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.answer.body import BodyExchange
from gateway.answer.stream import StreamExchange
from gateway.answer.structured.schema_check import Fitting, held_to_schemas
from gateway.core.limits import Limits
from gateway.kinds.anthropic.dialogue import AnthropicKind
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.kinds.openai import OpenAiKind
from gateway.wire.chat_request import parse_request
from strategies.base import BrokenCall, CallTerms, Options, Prepared
from strategies.native import NativeStrategy
from strategies.recovery import RecoveryStrategy
from tests.support.chat import DONE, answer_body, chunks_of, event, hear_body, hear_stream, numbered_ids
from tests.support.cost import assert_linear

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}, "content": {"type": "string"}},
    "required": ["path"],
}

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("read_it", "write", "run")
]

REQUEST = parse_request(
    json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS}).encode()
)

TEXTS = (
    '{"path":"a"}',
    '{"path":"a","limit":"5"}',
    '{"path":"a","limit":1e999}',
    "{'path': 'a'}",
    '{"path":"\\ud800"}',
    '{"path":"a"}{"path":"a"}',
    "{}",
    "",
    "null",
    '{"path"',
    '"{\\"path\\":\\"a\\"}"',
    '{"path":"' + "x" * 5000 + '"}',
)

FINE = '{"path": "a"}'


def prepared(**terms: Any) -> Prepared:
    how = RecoveryStrategy().prepare(REQUEST, Options())
    return replace(how, calls=CallTerms(tools=REQUEST.tools, **terms))


MODES = (
    prepared(),
    prepared(mends=True),
    prepared(mends=True, drops_copies=lambda _: True),
    prepared(mends=True, one_only=True),
    prepared(drops_copies=lambda _: True),
)

PIECES = st.sampled_from(TEXTS) | st.text('{}[]",:\\ab5 \n', max_size=8)

FUNCTION = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["read_it", "write", "read", "_it", "", None, "functions.read_it", "nope"]),
        "arguments": PIECES | st.sampled_from([None, {"path": "a"}, {"limit": "5", "path": 1}, [1]]),
    },
)

ENTRY = st.fixed_dictionaries(
    {"function": FUNCTION},
    optional={
        "index": st.sampled_from([0, 0, 1, 1, 2, 7, -1, None, True]),
        "id": st.sampled_from(["c1", "c2", "c1", "", None, 5]),
        "type": st.sampled_from(["function", None]),
    },
)

DELTA = st.fixed_dictionaries(
    {"tool_calls": st.lists(ENTRY, max_size=3)}, optional={"content": st.sampled_from([None, "", "Well."])}
)

ANSWER = st.tuples(st.lists(DELTA, max_size=10), st.sampled_from(["tool_calls", "stop", "length", None]))


def run(parts: list[bytes], how: Prepared, second: bytes | None = None) -> bytes:
    exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1)
    out = b"".join(exchange.feed(part) for part in parts)
    while exchange.ask_again is not None:
        out += exchange.no_second_answer() if second is None else exchange.second_answer(second)
    out += exchange.finish()
    assert not exchange.held
    return out


def events_of(answer: tuple[list[Any], str | None]) -> list[bytes]:
    deltas, finish = answer
    return [event({"role": "assistant"}), *map(event, deltas), event({}, finish), DONE]


@given(ANSWER, st.integers(0, len(MODES) - 1), st.sampled_from([None, "second"]))
def test_clients_can_add_up_whatever_came(answer: Any, mode: int, second: str | None) -> None:
    how = MODES[mode]
    call = {"id": "z", "type": "function", "function": {"name": "read_it", "arguments": FINE}}
    again = answer_body(None, "tool_calls", tool_calls=[call]) if second else None
    out = run(events_of(answer), how, again)
    indexes: list[int] = []
    ids: list[str] = []
    for chunk in chunks_of(out):
        for choice in (chunk or {}).get("choices", []):
            for entry in choice["delta"].get("tool_calls") or ():
                if isinstance(entry.get("function"), dict):
                    indexes.append(entry["index"])
                    ids += [entry["id"]] if entry.get("id") else []
    begun = list(dict.fromkeys(indexes))
    assert begun == list(range(len(begun)))
    assert len(set(ids)) == len(ids)
    assert b'"error"' not in out
    state: Any = ChatCompletionStreamState()
    for chunk in chunks_of(out):
        if chunk:
            state.handle_chunk(ChatCompletionChunk.construct(**json.loads(json.dumps(chunk))))


@given(ANSWER, st.integers(0, len(MODES) - 1), st.integers(1, 90))
def test_where_the_bytes_are_cut_changes_nothing(answer: Any, mode: int, size: int) -> None:
    data, how = b"".join(events_of(answer)), MODES[mode]
    assert run([data[at : at + size] for at in range(0, len(data), size)], how) == run([data], how)


@given(
    st.lists(st.tuples(st.sampled_from(["read_it", "write", "nope"]), PIECES), max_size=4),
    st.integers(0, len(MODES) - 1),
)
def test_a_stream_says_what_the_whole_answer_says(calls: list[tuple[str, str]], mode: int) -> None:
    how = MODES[mode]
    entries = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": text}}
        for at, (name, text) in enumerate(calls)
    ]
    second = answer_body(
        None,
        "tool_calls",
        tool_calls=[{"id": "z", "type": "function", "function": {"name": "read_it", "arguments": FINE}}],
    )
    body = BodyExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1 if how.calls.mends else 0)
    out = body.transform(answer_body(None, "tool_calls", tool_calls=entries))
    while body.ask_again is not None:
        out = body.second_answer(second)
    deltas = [event({"tool_calls": [{"index": at, **entry}]}) for at, entry in enumerate(entries)]
    streamed = run([event({"role": "assistant"}), *deltas, event({}, "tool_calls"), DONE], how, second)
    late = any(len(text) > 4096 for _, text in calls)
    assert late or hear_stream(streamed).calls == hear_body(out).calls


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize(
    "text", ['{"path": "a", "content": "%s"}', "{'path': 'a', 'content': '%s'}", '{"content": "%s"}', "%s"]
)
@pytest.mark.cost
def test_long_arguments_in_short_pieces_cost_their_length(text: str, how: Prepared) -> None:
    def work_of(size: int) -> Callable[[], object]:
        told = text % ("x" * size)
        head = {"id": "c", "type": "function", "index": 0, "function": {"name": "write", "arguments": ""}}
        pieces = [{"index": 0, "function": {"arguments": told[at : at + 4]}} for at in range(0, len(told), 4)]
        parts = [event({"tool_calls": [each]}) for each in [head, *pieces]]
        return lambda: run([*parts, event({}, "tool_calls"), DONE], how)

    assert_linear(work_of, 1 << 12)


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.cost
def test_many_calls_cost_their_number(how: Prepared, in_turns: bool) -> None:
    def work_of(size: int) -> Callable[[], object]:
        heads = [
            {"id": f"c{at}", "type": "function", "index": at, "function": {"name": "write", "arguments": '{"path":'}}
            for at in range(size)
        ]
        tails = [{"index": at, "function": {"arguments": f'"{at}", "limit": "x"}}'}} for at in range(size)]
        pairs = zip(heads, tails, strict=True)
        order = [*heads, *tails] if in_turns else [each for pair in pairs for each in pair]
        parts = [event({"tool_calls": [each]}) for each in order]
        return lambda: run([*parts, event({}, "tool_calls"), DONE], how)

    assert_linear(work_of, 1 << 7)


@pytest.mark.parametrize("how", MODES)
@pytest.mark.cost
def test_two_calls_in_turns_cost_their_length(how: Prepared) -> None:
    def work_of(size: int) -> Callable[[], object]:
        heads = [
            {"id": f"c{at}", "type": "function", "index": at, "function": {"name": "write", "arguments": '{"path":"'}}
            for at in range(2)
        ]
        pieces = [{"index": at % 2, "function": {"arguments": "xxxx"}} for at in range(size)]
        parts = [event({"tool_calls": [each]}) for each in [*heads, *pieces]]
        return lambda: run([*parts, event({}, "tool_calls"), DONE], how)

    assert_linear(work_of, 1 << 10)


# --- Calls held against the schemas that a server was not told whole


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}}, "required": ["n"]}

PLAIN = {"type": "object", "properties": {"s": {"type": "string"}}}


def prepared_for(**schemas: Any) -> Prepared:
    tools = [{"type": "function", "function": {"name": name, "parameters": each}} for name, each in schemas.items()]
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "tools": tools}
    return NativeStrategy().prepare(parse_request(json.dumps(body).encode()), Options())


def call(name: str, arguments: Any, call_id: str = "c") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def fitting() -> Fitting:
    held = held_to_schemas(prepared_for(pick=SCHEMA, plain=PLAIN), OpenAiKind(), ["enum"]).ask_again
    assert isinstance(held, Fitting)
    return held


def test_only_tools_that_were_told_differently_are_held() -> None:
    assert set(fitting().schemas) == {"pick"}
    whole = prepared_for(plain=PLAIN)
    assert held_to_schemas(whole, OpenAiKind(), ["enum"]) is whole
    assert held_to_schemas(whole, AnthropicKind(), ()) is whole
    assert held_to_schemas(whole, GeminiKind(), ()) is whole
    assert held_to_schemas(prepared_for(), OpenAiKind(), ["enum"]).ask_again is None


def test_kinds_know_what_they_cannot_say() -> None:
    union = {"type": "object", "anyOf": [{"required": ["a"]}]}
    assert not AnthropicKind().can_say(union)
    assert AnthropicKind().can_say({"$schema": "x", **SCHEMA})
    assert not GeminiKind().can_say({**PLAIN, "additionalProperties": False})
    assert GeminiKind().can_say({"type": "object", "properties": {}})
    assert OpenAiKind().can_say(union)


def test_a_call_is_usable_if_it_fits() -> None:
    held = fitting()
    assert held.is_usable("pick", '{"n": 1}')
    assert not held.is_usable("pick", '{"n": 3}')
    assert not held.is_usable("pick", "")
    assert not held.is_usable("pick", "[1]")
    assert held.is_usable("plain", '{"s": 5}')
    assert not held.is_usable("unknown", "{}")
    assert held.is_usable("pick", {})


def test_what_is_wrong_is_told_with_the_call() -> None:
    attempt = BrokenCall(content="", calls=(call("pick", '{"n": 3}'), call("plain", "{}", "d")))
    messages = json.loads(fitting().body([attempt]))["messages"]
    assert "must be" in messages[-2]["content"]
    assert "not run" in messages[-2]["content"]
    assert messages[-1]["tool_call_id"] == "d"


def test_every_call_of_a_message_is_told_its_own_fault() -> None:
    nameless = {**call("pick", '{"n": 3}'), "id": 7}
    attempt = BrokenCall(content="", calls=(nameless, call("plain", "{oops", "d"), call("plain", "{}", "e")))
    told = json.loads(fitting().body([attempt]))["messages"][-3:]
    assert [message["tool_call_id"] for message in told] == ["call_0", "d", "e"]
    assert "must be" in told[0]["content"]
    assert "not a JSON object" in told[1]["content"]
    assert "another call" in told[2]["content"]
