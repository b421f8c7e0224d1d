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
from gateway.core.limits import Limits
from gateway.wire.chat_request import parse_request
from strategies.base import CallTerms, Options, Prepared
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
