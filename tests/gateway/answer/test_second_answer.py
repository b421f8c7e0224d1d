"""A broken call asked for again, without sockets: what waits, what goes out, and what stays byte for byte."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.answer.body import BodyExchange
from gateway.answer.stream import StreamExchange
from gateway.answer.structured.schema_check import held_to_schemas
from gateway.core.errors import UpstreamDisconnected
from gateway.core.limits import Limits
from gateway.kinds.gemini.dialogue import GeminiKind
from gateway.wire.chat_request import parse_request
from strategies.base import Options, Prepared
from strategies.mapping.answers import mapped
from strategies.native import NativeStrategy
from strategies.recovery import RecoveryStrategy
from strategies.xml_prompt import XmlPromptStrategy
from tests.support.chat import (
    DONE,
    Heard,
    answer_body,
    answer_events,
    chunks_of,
    event,
    hear_body,
    hear_stream,
    numbered_ids,
)
from tests.support.cost import assert_linear
from tests.support.edit_tools import CLIENTS
from tests.support.reading import AGENT_TOOLS

TOOLS = [
    {"type": "function", "function": {"name": tool.name, "description": "", "parameters": tool.parameters}}
    for tool in AGENT_TOOLS
]
OPEN = "<read>\n<filePath>/a.py"
WRONG = "<read>\n<filePath>/a.py</filePath>\n<limit>many</limit>\n</read>"
GOOD = "<read>\n<filePath>/a.py</filePath>\n</read>"
OTHER = "<glob>\n<pattern>*.py</pattern>\n</glob>"
CALL = [("read", '{"filePath":"/a.py"}')]
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 8}}
NAMED = {"type": "function", "function": {"name": "read"}}


def prepared(strategy: Any = None, **fields: Any) -> Prepared:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, **fields}
    result: Prepared = (strategy or XmlPromptStrategy()).prepare(parse_request(json.dumps(body).encode()), Options())
    return result


class Streamed:
    """A stream that is asked again with these second answers; `None` stands for one that did not come."""

    def __init__(
        self, parts: Sequence[bytes], how: Prepared, seconds: Sequence[bytes | None] = (), *, asks: int = 1
    ) -> None:
        self.exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=asks)
        self.asked: list[Any] = []
        self.reasons: list[str] = []
        rest = list(seconds)
        self.early = b"".join(self.exchange.feed(part) for part in parts)
        self.out = self.early
        while (ask_again := self.exchange.ask_again) is not None:
            self.asked.append(json.loads(ask_again.body()))
            self.reasons.append(ask_again.reason)
            body = rest.pop(0)
            self.out += self.exchange.no_second_answer() if body is None else self.exchange.second_answer(body)
        assert not rest
        self.out += self.exchange.finish()
        assert not self.exchange.held

    @property
    def heard(self) -> Heard:
        return hear_stream(self.out)


class Whole:
    """The same for an answer that comes whole."""

    def __init__(self, body: bytes, how: Prepared, seconds: Sequence[bytes | None] = (), *, asks: int = 1) -> None:
        self.exchange = BodyExchange(how, make_id=numbered_ids(), limits=Limits(), asks=asks)
        self.asked: list[Any] = []
        rest = list(seconds)
        self.out = self.exchange.transform(body)
        while (ask_again := self.exchange.ask_again) is not None:
            self.asked.append(json.loads(ask_again.body()))
            second = rest.pop(0)
            self.out = self.exchange.no_second_answer() if second is None else self.exchange.second_answer(second)
        assert not rest


def told(heard: Heard) -> list[tuple[str, str]]:
    return [(call["name"], call["arguments"]) for call in heard.calls]


@pytest.mark.parametrize("broken", [OPEN, WRONG])
def test_a_broken_call_is_replaced_by_that_of_the_second_answer(broken: str) -> None:
    run = Streamed(answer_events(["I look.", "\n\n", broken]), prepared(), [answer_body(f"Sorry.\n{GOOD}\nbye")])
    assert hear_stream(run.early).content == "I look."
    assert run.heard.content == "I look."
    assert told(run.heard) == CALL
    assert run.heard.finish == "tool_calls"
    assert run.heard.done
    assert run.exchange.facts.has_second_answer
    assert run.exchange.facts.broken_calls == 1
    assert all(chunk["id"] == "chatcmpl-1" for chunk in chunks_of(run.out) if chunk)


@pytest.mark.parametrize("broken", [OPEN, WRONG, f"{WRONG}\n", f"\n{WRONG} bye"])
def test_both_paths_say_the_same(broken: str) -> None:
    content = f"I look.\n{broken}"
    second = answer_body(GOOD)
    streamed = Streamed(answer_events(list(content)), prepared(), [second])
    whole = Whole(answer_body(content), prepared(), [second])
    assert streamed.heard.meaning == hear_body(whole.out).meaning
    assert streamed.asked == whole.asked


@pytest.mark.parametrize("second", [answer_body("I will not."), answer_body(WRONG), b"no JSON", b"{}", b"[]", None])
@pytest.mark.parametrize("broken", [OPEN, WRONG, f"{WRONG}\nand so on"])
def test_when_it_fails_again_the_first_answer_goes_out_byte_for_byte(broken: str, second: bytes | None) -> None:
    parts = answer_events(["I look.\n", *broken])
    run = Streamed(parts, prepared(), [second])
    assert run.out == b"".join(parts)
    assert not run.exchange.facts.has_second_answer
    body = answer_body(f"I look.\n{broken}")
    assert Whole(body, prepared(), [second]).out == body


THOUGHT = 'I see.\n<tool_call>\n{"name": "read", "arguments": {"filePath": "/a.py"}}\n</tool_call>'


def test_a_second_answer_may_call_within_its_reasoning() -> None:
    run = Streamed(answer_events([OPEN]), prepared(), [answer_body(None, reasoning_content=THOUGHT)])
    assert told(run.heard) == CALL
    for second in (f"{THOUGHT} But no.", THOUGHT[:-20]):
        run = Streamed(answer_events([OPEN]), prepared(), [answer_body(None, reasoning_content=second)])
        assert told(run.heard) == []
    run = Streamed(answer_events([OPEN]), prepared(), [answer_body("I will not.", reasoning_content=THOUGHT)])
    assert told(run.heard) == []
    required = prepared(tool_choice="required")
    events = [event({"role": "assistant"}), event({"reasoning": THOUGHT}), event({}, "stop"), DONE]
    run = Streamed(events, required)
    assert (told(run.heard), run.asked) == (CALL, []), "the call is there: nothing is asked"


def test_no_attempts_left_no_question() -> None:
    parts = answer_events([OPEN])
    run = Streamed(parts, prepared(), asks=0)
    assert run.asked == []
    assert run.out == b"".join(parts)
    assert Whole(answer_body(OPEN), prepared(), asks=0).asked == []


def test_it_is_asked_as_often_as_allowed() -> None:
    failing = answer_body(WRONG)
    run = Streamed(answer_events([OPEN]), prepared(), [failing, failing, answer_body(GOOD)], asks=3)
    assert told(run.heard) == CALL
    assert [len(asked["messages"]) for asked in run.asked] == [4, 6, 8]
    assert run.reasons == ["value not closed", "`limit` must be a number", "`limit` must be a number"]
    assert len(Streamed(answer_events([OPEN]), prepared(), [failing, failing], asks=2).asked) == 2


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_truncated_answer_is_never_repaired(reason: str) -> None:
    parts = answer_events(["I look.\n", OPEN], reason)
    for how in (prepared(), prepared(tool_choice="required")):
        run = Streamed(parts, how)
        assert run.asked == []
        assert run.out == b"".join(parts)
        assert Whole(answer_body(OPEN, reason), how).asked == []


def test_a_stream_without_a_finish_reason_is_not_repaired() -> None:
    run = Streamed([event({"content": OPEN}), DONE], prepared())
    assert run.asked == []
    assert run.heard.content == OPEN


def test_a_stream_that_breaks_off_gives_its_text_and_the_error() -> None:
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits(), asks=1)
    out = exchange.feed(event({"content": WRONG})) + exchange.feed(event({"content": " more"}))
    out += exchange.finish(UpstreamDisconnected("gone"))
    assert hear_stream(out).content == f"{WRONG} more"
    assert hear_stream(out).error is not None


@pytest.mark.parametrize("is_done", [True, False])
def test_an_interruption_while_it_is_asked_gives_the_first_answer(is_done: bool) -> None:
    parts = answer_events([OPEN])
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits(), asks=1)
    out = b"".join(exchange.feed(part) for part in (parts if is_done else parts[:-1]))
    assert exchange.ask_again is not None
    out += exchange.finish(None)
    assert out == b"".join(parts)
    assert exchange.ask_again is None


def test_an_error_while_it_is_asked_does_not_lose_a_complete_answer() -> None:
    parts = answer_events([OPEN])
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits(), asks=1)
    out = b"".join(exchange.feed(part) for part in parts) + exchange.finish(UpstreamDisconnected("gone"))
    assert out == b"".join(parts)


def test_a_call_that_can_be_used_makes_a_broken_one_before_it_text() -> None:
    run = Streamed(answer_events([WRONG, "\n", GOOD]), prepared())
    assert run.asked == []
    assert run.heard.content == WRONG
    assert told(run.heard) == CALL


def test_a_broken_call_behind_a_good_one_is_not_asked_for() -> None:
    run = Streamed(answer_events([GOOD, "\n", WRONG]), prepared(parallel_tool_calls=True))
    assert run.asked == []
    assert told(run.heard) == CALL


def test_an_answer_that_goes_on_at_length_is_not_asked_for() -> None:
    parts = answer_events([WRONG, *(f"\nThis is sentence {number} of it." for number in range(40))])
    run = Streamed(parts, prepared())
    assert run.asked == []
    assert run.out == b"".join(parts)
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits(), asks=1)
    assert sum(bool(exchange.feed(part)) for part in parts[:-2]) > 10


def test_usage_is_summed_where_the_first_answer_tells_it() -> None:
    second = json.dumps({**json.loads(answer_body(GOOD)), "usage": USAGE}).encode()
    usage = event({}, None, usage=USAGE).replace(
        b'"choices": [{"index": 0, "delta": {}, "finish_reason": null}]', b'"choices": []'
    )
    parts = answer_events([OPEN])
    run = Streamed([*parts[:-1], usage, DONE], prepared(), [second])
    summed = {
        "prompt_tokens": 20,
        "completion_tokens": 8,
        "total_tokens": 28,
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    assert [chunk["usage"] for chunk in chunks_of(run.out) if chunk and chunk.get("usage")] == [summed]
    assert run.exchange.facts.usage == {"input": 20, "output": 8}
    first = json.dumps({**json.loads(answer_body(OPEN)), "usage": USAGE}).encode()
    assert json.loads(Whole(first, prepared(), [second]).out)["usage"] == summed


def test_usage_in_the_last_chunk_is_summed_there() -> None:
    second = json.dumps({**json.loads(answer_body(GOOD)), "usage": USAGE}).encode()
    run = Streamed([event({"content": OPEN}), event({}, "stop", usage=USAGE), DONE], prepared(), [second])
    assert [chunk["usage"]["total_tokens"] for chunk in chunks_of(run.out) if chunk and chunk.get("usage")] == [28]


def test_usage_of_a_failed_repair_is_counted_and_not_told() -> None:
    second = json.dumps({**json.loads(answer_body("No.")), "usage": USAGE}).encode()
    parts = [event({"content": OPEN}), event({}, "stop", usage=USAGE), DONE]
    run = Streamed(parts, prepared(), [second])
    assert run.out == b"".join(parts)
    assert run.exchange.facts.usage == {"input": 20, "output": 8}


def test_where_a_call_is_required_nothing_goes_out_before_it() -> None:
    run = Streamed(
        answer_events(["I would rather", " not.", "\n"]), prepared(tool_choice="required"), [answer_body(GOOD)]
    )
    assert hear_stream(run.early).content is None
    assert run.heard.content == "I would rather not."
    assert told(run.heard) == CALL
    assert run.reasons == ["required_call_missing"]
    whole = Whole(answer_body("I would rather not.\n"), prepared(tool_choice="required"), [answer_body(GOOD)])
    assert hear_body(whole.out).meaning == run.heard.meaning


def test_a_required_call_that_comes_is_not_asked_for() -> None:
    run = Streamed(answer_events(["Well.\n", GOOD]), prepared(tool_choice="required"))
    assert run.asked == []
    assert run.heard.content == "Well."
    assert told(run.heard) == CALL


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_answer_where_a_call_is_required_is_asked_again(content: str | None) -> None:
    how = prepared(tool_choice="required")
    assert told(Streamed(answer_events([content] if content else []), how, [answer_body(GOOD)]).heard) == CALL
    assert told(hear_body(Whole(answer_body(content), how, [answer_body(GOOD)]).out)) == CALL
    parts = answer_events([])
    assert Streamed(parts, how, [None]).out == b"".join(parts)


def test_a_call_of_another_tool_than_the_one_demanded_is_replaced() -> None:
    how = prepared(tool_choice=NAMED)
    run = Streamed(answer_events(["So.\n", OTHER]), how, [answer_body(f"{OTHER}\n{GOOD}")])
    assert told(run.heard) == CALL
    assert run.heard.content == "So."
    kept = Streamed(answer_events(["So.\n", OTHER]), how, [None])
    assert told(kept.heard) == [("glob", '{"pattern":"*.py"}')]
    assert kept.heard.finish == "tool_calls"
    assert hear_body(Whole(answer_body(f"So.\n{OTHER}"), how, [None]).out).meaning == kept.heard.meaning
    assert hear_body(Whole(answer_body(f"So.\n{OTHER}"), how, [answer_body(GOOD)]).out).meaning == run.heard.meaning


def test_a_second_answer_may_call_natively() -> None:
    calls = [{"id": "x", "type": "function", "function": {"name": "read", "arguments": '{"filePath":"/a.py"}'}}]
    run = Streamed(answer_events([OPEN]), prepared(RecoveryStrategy()), [answer_body(None, tool_calls=calls)])
    assert told(run.heard) == CALL
    assert run.heard.finish == "tool_calls"
    assert run.exchange.facts.native_calls == 1
    assert run.exchange.facts.calls == []


def test_native_calls_that_come_after_all_end_the_waiting() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "read", "arguments": '{"filePath":"b"}'}}
    parts = [event({"content": WRONG}), event({"tool_calls": [call]}), event({}, "tool_calls"), DONE]
    run = Streamed(parts, prepared(RecoveryStrategy()))
    assert run.asked == []
    assert run.out == b"".join(parts)


def native(arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}


@pytest.mark.parametrize("strategy", [NativeStrategy(), RecoveryStrategy()])
def test_unusable_native_arguments_of_a_whole_answer_are_asked_for_again(strategy: Any) -> None:
    first = answer_body("So.", "tool_calls", tool_calls=[native('{"filePath": ')])
    run = Whole(
        first, prepared(strategy), [answer_body("Ah.", "tool_calls", tool_calls=[native('{"filePath":"/a.py"}')])]
    )
    heard = hear_body(run.out)
    assert told(heard) == CALL
    assert heard.content == "So."
    assert run.exchange.facts.finish_reasons == {0: "tool_calls"}
    assert run.asked[0]["messages"][-1]["role"] == "tool"
    again = Whole(first, prepared(strategy), [answer_body("Ah.", "tool_calls", tool_calls=[native("[]")])])
    assert again.out == first
    assert again.exchange.facts.unusable_calls == 1


@pytest.mark.parametrize(
    "calls",
    [
        [native('{"filePath":"/a.py"}')],
        [native('{"filePath": '), {**native("{}"), "id": "c2"}],
        [native("")],
        [{"id": "c", "type": "custom", "custom": {"name": "x", "input": "y"}}],
        [{**native("oops"), "function": {"name": "unknown", "arguments": "oops"}}],
    ],
)
def test_native_calls_of_which_one_can_be_used_are_left_alone(calls: list[Any]) -> None:
    body = answer_body(None, "tool_calls", tool_calls=calls)
    run = Whole(body, prepared(NativeStrategy()))
    assert run.asked == []
    assert run.out == body


def test_comments_and_further_events_stay_in_their_places() -> None:
    parts = answer_events([OPEN])
    parts[2:2] = [b": still here\n\n"]
    run = Streamed(parts, prepared(), [None])
    assert run.out == b"".join(parts)
    assert b": still here\n\n" in Streamed(parts, prepared(), [answer_body(GOOD)]).out


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 90), max_size=8),
    content=st.sampled_from([OPEN, WRONG, f"Well.\n\n{WRONG}\n", f"a {OPEN}</filePath>\n</read>", f"{OTHER}{WRONG}"]),
    required=st.booleans(),
    helps=st.booleans(),
)
def test_how_the_answer_is_cut_does_not_matter(cuts: list[int], content: str, required: bool, helps: bool) -> None:
    how = prepared(tool_choice="required" if required else "auto")
    edges = [0, *sorted({cut for cut in cuts if cut < len(content)}), len(content)]
    parts = answer_events([content[one:two] for one, two in pairwise(edges)])
    second = answer_body(GOOD if helps else "No.")

    def run(pieces: Sequence[bytes]) -> bytes:
        exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1)
        out = b"".join(exchange.feed(piece) for piece in pieces)
        if exchange.ask_again is not None:
            out += exchange.second_answer(second)
        return out + exchange.finish()

    whole = run([b"".join(parts)])
    assert run(parts) == whole
    exchange = BodyExchange(how, make_id=numbered_ids(), limits=Limits(), asks=1)
    body = exchange.transform(answer_body(content))
    if exchange.ask_again is not None:
        body = exchange.second_answer(second)
    assert hear_stream(whole).meaning == hear_body(body).meaning


def test_what_is_too_long_to_be_written_twice_is_not_asked_for() -> None:
    long = f"<write>\n<filePath>a</filePath>\n<content>{'x' * 300_000}"
    for how in (prepared(), prepared(tool_choice="required")):
        parts = answer_events([long])
        assert Streamed(parts, how).out == b"".join(parts)
        assert Whole(answer_body(long), how).asked == []
    body = answer_body(None, "tool_calls", tool_calls=[native(f'{{"a": "{"x" * 300_000}')])
    assert Whole(body, prepared(NativeStrategy())).asked == []


def test_an_example_that_is_only_repeated_is_no_call() -> None:
    shown = answer_body("<read>\n<filePath>src/main.py</filePath>\n</read>")
    parts = answer_events([OPEN])
    assert Streamed(parts, prepared(), [shown]).out == b"".join(parts)
    calls = [native('{"filePath": "src/main.py", "offset": 1}')]
    assert Streamed(parts, prepared(RecoveryStrategy()), [answer_body(None, tool_calls=calls)]).out == b"".join(parts)
    meant = Streamed(answer_events(["<read>\n<filePath>src/main.py"]), prepared(), [shown])
    assert told(meant.heard) == [("read", '{"filePath":"src/main.py"}')]


def test_a_call_without_arguments_repeats_nothing() -> None:
    how = prepared(tool_choice={"type": "function", "function": {"name": "todoread"}})
    run = Streamed(answer_events(["No."]), how, [answer_body("<todoread></todoread>")])
    assert told(run.heard) == [("todoread", "{}")]


def test_of_several_calls_of_a_second_answer_as_many_are_given_as_of_a_first() -> None:
    second = answer_body(f"{GOOD}\n{OTHER}")
    assert told(Streamed(answer_events([OPEN]), prepared(), [second]).heard) == CALL
    both = Streamed(answer_events([OPEN]), prepared(parallel_tool_calls=True), [second])
    assert [name for name, _ in told(both.heard)] == ["read", "glob"]


def on_other_tools(mapping: str, strategy: Any, options: Options, **fields: Any) -> Prepared:
    """A request whose model sees another tool in the place of the client's."""
    work = CLIENTS["kilo"].mapped(mapping, [{"role": "user", "content": "hi"}], **fields)
    return mapped(strategy.prepare(work.request, options), work, one_at_a_time=False)


def edit(command: str, **arguments: Any) -> str:
    body = "".join(f"<{key}>{value}</{key}>\n" for key, value in {"command": command, **arguments}.items())
    return f"<str_replace_based_edit_tool>\n{body}</str_replace_based_edit_tool>"


VIEW, CREATE = edit("view", path="a.py"), edit("create", path="a.py", file_text="x")


def test_a_demanded_tool_is_the_clients_own_where_the_model_sees_another() -> None:
    choice = {"type": "function", "function": {"name": "read_file"}}
    how = on_other_tools("claude_text_editor", XmlPromptStrategy(), Options(), tool_choice=choice)
    assert [name for name, _ in told(Streamed(answer_events([VIEW]), how).heard)] == ["read_file"]
    assert told(Streamed(answer_events(["No."]), how, [answer_body(CREATE)]).heard) == []
    assert [name for name, _ in told(Streamed(answer_events(["No."]), how, [answer_body(VIEW)]).heard)] == ["read_file"]


PATCH = "*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n*** End Patch"


def patch(text: str) -> dict[str, Any]:
    return {
        "id": "p",
        "type": "function",
        "function": {"name": "apply_patch", "arguments": json.dumps({"input": text})},
    }


@pytest.mark.parametrize("demanded", ["write_to_file", "delete_file"])
def test_all_that_one_call_became_is_given_together_and_nothing_of_a_further_one(demanded: str) -> None:
    choice = {"type": "function", "function": {"name": demanded}}
    how = on_other_tools("apply_patch", RecoveryStrategy(), Options(calls_per_message="first"), tool_choice=choice)
    second = answer_body(None, "tool_calls", tool_calls=[patch(PATCH), patch(PATCH.replace(": ", ": c/"))])
    run = Streamed(answer_events(["No."]), how, [second])
    assert [name for name, _ in told(run.heard)] == ["write_to_file", "delete_file"]


def test_only_calls_without_an_object_for_arguments_count_as_unusable() -> None:
    fine = answer_body(None, "tool_calls", tool_calls=[patch(PATCH)])
    how = on_other_tools("apply_patch", NativeStrategy(), Options())
    moved, cut = patch("*** Begin Patch\n*** Move to: a\n*** End Patch"), patch("")
    cut["function"]["arguments"] = '{"input'
    for first, unusable in (([moved], 0), ([moved, cut], 1), ([cut], 1)):
        run = Whole(answer_body(None, "tool_calls", tool_calls=first), how, [fine])
        assert (run.exchange.facts.has_second_answer, run.exchange.facts.unusable_calls) == (True, unusable)

    misfit, right = (native(arguments) for arguments in ('{"path": 5}', '{"path": "/a"}'))
    misfit["function"]["name"] = right["function"]["name"] = "list"
    held = held_to_schemas(prepared(NativeStrategy()), GeminiKind(), ())
    run = Whole(answer_body(None, tool_calls=[misfit]), held, [answer_body(None, tool_calls=[right])])
    assert (run.exchange.facts.has_second_answer, run.exchange.facts.unusable_calls) == (True, 0)


def test_a_second_answer_that_was_truncated_is_not_asked_for_once_more() -> None:
    run = Streamed(answer_events([OPEN]), prepared(), [answer_body(OPEN, "length")], asks=3)
    assert len(run.asked) == 1


@pytest.mark.cost
@pytest.mark.parametrize("fields", [{}, {"tool_choice": "required"}], ids=["free", "required"])
def test_thousands_of_attempts_cost_no_more_than_their_text(fields: dict[str, str]) -> None:
    def reading(size: int) -> Callable[[], None]:
        content = f"{WRONG}\n" * size
        how = prepared(messages=[{"role": "user", "content": "x" * 200_000}], **fields)
        second = [answer_body(GOOD)] if fields else []
        events = answer_events([content[at : at + 500] for at in range(0, len(content), 500)])

        def read() -> None:
            assert Streamed(events, how, second).heard.done

        return read

    assert_linear(reading, 200)
