"""An answer that is read beside goes through untouched, whatever the reading comes to."""

import random
from collections.abc import Callable
from datetime import date
from typing import Any

import msgspec
import pytest
from attrs import define, evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.answer.same_wire import SameWireStream, hearing
from gateway.answer.watch import WatchedBody, WatchedStream, WatchTerms
from gateway.core.errors import InternalError, UpstreamTimeout
from gateway.core.events import Event, Text
from gateway.core.limits import Limits
from gateway.core.rules import IgnoreRule
from gateway.kinds.shared.port import Situation
from gateway.wire.chat_request import parse_request
from strategies.base import Options, Prepared
from strategies.recovery import RecoveryStrategy
from tests.bench.lateness import tokens
from tests.support.anthropic_server import AnthropicServer
from tests.support.chat import DONE, answer_body, answer_events, chunks_of, event, prepared
from tests.support.kinds import Call, Turn

CALL = "<read>\n<filePath>/a.py</filePath>\n</read>"
BROKEN = "<read>\n<filePath>/a.py\n</read>"
TODAY = date(2026, 1, 15)


@define
class Ticking:
    """A clock that goes on by so much whenever it is looked at."""

    step: float = 0.0
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Raising:
    """A reader that raises in its first piece or at its end."""

    idle = True

    def __init__(self, *, at_end: bool = False) -> None:
        self._at_end = at_end

    def feed(self, text: str) -> list[Event]:
        if not self._at_end:
            raise RuntimeError(text)
        return [Text(text)]

    def finish(self, reason: str) -> list[Event]:
        raise ValueError(reason)


class Lying:
    """A reader whose events have nothing to do with its text, nor with events."""

    idle = True

    def feed(self, text: str) -> Any:
        return [text]

    def finish(self, reason: str) -> Any:
        return None


def beside(how: Prepared | None = None, *, step: float = 0.0, **terms: Any) -> WatchTerms:
    return WatchTerms(prepared=how, clock=Ticking(step), budget_s=1.0, today=TODAY, **terms)


def reading(make: Callable[[], Any]) -> Prepared:
    return Prepared(strategy="test", body=b"", make_reader=make)


def streamed(parts: list[bytes], terms: WatchTerms) -> WatchedStream:
    """Put a stream through; its bytes must be the same."""
    stream = WatchedStream(terms)
    for part in parts:
        assert stream.feed(part) == part
        assert not stream.held
        assert stream.ask_again is None
    assert stream.finish() == b""
    return stream


def unread(parts: list[bytes], terms: WatchTerms, passed: list[bytes]) -> WatchedStream:
    """The same, each part unread where it may be: those have `passed`."""
    stream = WatchedStream(terms)
    for part in parts:
        out = stream.passes(part)
        assert (stream.feed(part) if out is None else out) == part
        passed += [] if out is None else [part]
    assert stream.finish() == b""
    return stream


def told(stream: WatchedStream) -> list[Any]:
    """What is told of an answer."""
    facts = stream.facts
    texts = [(at, each.text, each.finish, each.calls, each.size) for at, each in facts.transcripts.items()]
    ends = [facts.finish_reasons, facts.usage, facts.completion_id, facts.failure, facts.native_calls, stream.finished]
    return [texts, ends, facts.calls, facts.refused, facts.intents, facts.dropped, stream.verdict, stream.noise()]


def whole(body: bytes, terms: WatchTerms) -> WatchedBody:
    exchange = WatchedBody(terms)
    assert exchange.transform(body) == body
    return exchange


def native(**function: Any) -> bytes:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}", **function}}
    return event({"tool_calls": [call]})


# What the reading comes to


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("Hello.", "identical"), (f"Look.\n\n{CALL}", "would_change"), (f"Look.\n\n{BROKEN}", "would_fail")],
)
def test_verdict_says_what_would_have_become_of_the_answer(text: str, verdict: str) -> None:
    stream = streamed(answer_events([text]), beside(prepared()))
    body = whole(answer_body(text), beside(prepared()))
    assert stream.verdict == body.verdict == verdict
    assert stream.finished
    assert stream.facts.read
    assert body.facts.read
    assert [call.arguments for call in stream.facts.calls] == [call.arguments for call in body.facts.calls]


def test_facts_say_what_would_have_been_delivered() -> None:
    facts = streamed(answer_events(["Look.\n\n", CALL]), beside(prepared())).facts
    (call,) = facts.calls
    assert (call.verdict.name, call.arguments) == ("read", '{"filePath":"/a.py"}')
    assert facts.completion_id == "chatcmpl-1"
    assert facts.finish_reasons == {0: "stop"}
    assert facts.failure is None
    assert facts.transcripts[0].text == f"Look.\n\n{CALL}"


def test_there_is_no_verdict_before_the_end_or_without_a_reader() -> None:
    stream = WatchedStream(beside(prepared()))
    stream.feed(b"".join(answer_events([CALL])))
    assert stream.verdict is None
    assert streamed(answer_events([CALL]), beside()).verdict is None
    assert streamed(answer_events([CALL]), beside(Prepared(strategy="native", body=b""))).verdict is None
    assert WatchedBody(beside(prepared())).verdict is None
    assert whole(answer_body(CALL), beside()).verdict is None


def test_native_calls_take_the_place_of_those_in_the_text() -> None:
    events = answer_events(["Look.\n\n", CALL])
    stream = streamed([*events[:2], native(), *events[2:]], beside(prepared()))
    assert stream.verdict == "identical"
    assert stream.facts.native_calls == 1
    assert stream.facts.calls == []
    assert stream.facts.transcripts[0].calls == []


def test_call_before_a_native_one_is_read() -> None:
    events = answer_events(["Look.\n\n", CALL, "\n"])
    stream = streamed([*events[:4], native(), *events[4:]], beside(prepared()))
    assert stream.verdict == "identical"
    assert [name for _, name, _ in stream.facts.transcripts[0].calls] == ["read"]


def test_what_could_be_mended_is_not_counted_as_mended() -> None:
    parts = [event({"role": "assistant"}), native(arguments={"filePath": "/a"}), event({}, "stop"), DONE]
    facts = streamed(parts, beside(prepared())).facts
    assert facts.native_calls == 1
    assert not facts.mended


def test_known_differences_are_ignored_until_their_day() -> None:
    rules = (IgnoreRule(dialect="generic_*", tool="re?d", until=date(2026, 2, 1)),)
    answer = answer_events(["Look.\n\n", CALL])
    assert streamed(answer, beside(prepared(), ignore=rules)).verdict == "ignored"
    assert streamed(answer, beside(prepared(), ignore=(evolve(rules[0], until=TODAY),))).verdict == "would_change"
    assert streamed(answer, beside(prepared(), ignore=(evolve(rules[0], tool="write"),))).verdict == "would_change"
    two = answer_events([f"Look.\n\n{CALL}\n<bash>\n<command>ls</command>\n</bash>"])
    assert len(streamed(two, beside(prepared(), ignore=rules)).facts.calls) == 2
    assert streamed(two, beside(prepared(), ignore=rules)).verdict == "would_change"


# Faults of the reading


@pytest.mark.parametrize("make", [Raising, lambda: Raising(at_end=True), Lying, lambda: 1 / 0])
def test_a_reader_that_fails_costs_the_verdict_alone(make: Callable[[], Any]) -> None:
    answer = answer_events(["one", "two"])
    stream = streamed(answer, beside(reading(make)))
    assert stream.verdict == "would_fail"
    assert stream.finished
    assert stream.facts.completion_id == "chatcmpl-1"
    assert stream.facts.failure is None
    assert whole(answer_body("one two"), beside(reading(make))).verdict == "would_fail"


def test_a_call_that_breaks_after_it_began_would_fail() -> None:
    parts = answer_events(["<think></think>Look.\n\n<write>\n<filePath>a</filePath>\n<content>\n", "x" * 99, "\n"])
    stream = streamed(parts, beside(prepared(stream_arguments="incremental")))
    assert stream.facts.broken
    assert stream.verdict == "would_fail"
    assert stream.facts.failure is None


def test_reading_stops_when_its_time_is_over() -> None:
    answer = answer_events(["Look.\n\n", *CALL])
    stream = streamed(answer, beside(prepared(), step=0.2))
    assert stream.verdict == "dropped"
    assert stream.facts.calls == []
    assert stream.finished
    assert stream.facts.finish_reasons == {0: "stop"}
    assert stream.noise() is None
    body = whole(answer_body("word " * 50_000 + CALL), beside(prepared(), step=0.3))
    assert body.verdict == "dropped"
    assert body.noise() is None


def test_time_is_looked_at_only_while_reading() -> None:
    clock = Ticking(1.0)
    stream = WatchedStream(WatchTerms(prepared=prepared(), clock=clock, budget_s=1.5, today=TODAY))
    for _ in range(9):
        stream.feed(event({"content": "x"}))
    assert clock.now == 4.0


# Noise


def test_the_same_text_in_other_pieces_gives_the_same_calls() -> None:
    answer = answer_events(["Look.\n\n", CALL])
    assert streamed(answer, beside(prepared())).noise() is False
    assert whole(answer_body(f"Look.\n\n{CALL}"), beside(prepared())).noise() is False


class Cut:
    """A reader that reads long pieces and takes all others for text."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    idle = True

    def feed(self, text: str) -> Any:
        return self._inner.feed(text) if len(text) > 100 else [Text(text)]

    def finish(self, reason: str) -> Any:
        return self._inner.finish(reason)


def test_a_reading_that_depends_on_the_cuts_is_told() -> None:
    inner = prepared().make_reader
    assert inner is not None
    make = lambda: Cut(inner())  # noqa: E731
    answer = f"Let me look at this file before anything else is done, for it may hold what we need.\n\n{CALL}"
    stream = streamed(answer_events([answer]), beside(reading(make)))
    assert stream.verdict == "would_change"
    assert stream.noise() is True


def test_noise_has_only_what_is_left_of_the_time() -> None:
    answer = answer_events(["Look.\n\n", CALL])
    stream = streamed(answer, beside(prepared(), step=0.15))
    assert stream.verdict == "would_change"
    assert stream.noise() is None


def test_noise_is_not_told_of_what_was_not_read() -> None:
    stream = WatchedStream(beside(prepared()))
    stream.feed(event({"content": "Hi"}))
    assert stream.noise() is None
    assert streamed(answer_events(["x"]), beside()).noise() is None


# The end of a stream


def test_an_error_after_the_start_is_shown() -> None:
    stream = WatchedStream(beside(prepared()))
    stream.feed(event({"content": "Hi"}))
    *_, last = chunks_of(stream.finish(UpstreamTimeout("late")))
    assert last["error"]["code"] == "upstream_timeout"
    assert stream.facts.failure == "upstream_timeout"
    assert stream.finish(UpstreamTimeout("late")) == b""


def test_an_error_within_an_event_ends_that_event_first() -> None:
    stream = WatchedStream(beside())
    stream.feed(event({"content": "Hi"})[:-20])
    assert not stream.at_boundary
    out = stream.finish(InternalError("x"))
    assert out.startswith(b"\n\ndata: {")


def test_no_error_is_shown_behind_done() -> None:
    stream = WatchedStream(beside())
    stream.feed(b"".join(answer_events(["x"])))
    assert stream.finish(UpstreamTimeout("late")) == b""
    assert stream.facts.failure is None


def test_nothing_is_added_where_done_is_missing() -> None:
    facts = streamed(answer_events(["x"])[:-1], beside()).facts
    assert facts.failure is None
    assert not facts.mended


def test_an_answer_that_ends_too_early_is_counted_and_left_alone() -> None:
    stream = streamed(answer_events(["x"])[:-2], beside(prepared()))
    assert stream.facts.failure == "upstream_truncated"


def test_an_error_of_the_upstream_is_its_own() -> None:
    fault = b'data: {"error": {"message": "out of memory"}}\n\n'
    stream = streamed([event({"content": "x"}), fault], beside(prepared()))
    assert stream.finished
    assert stream.facts.failure == "upstream_error"


def test_what_is_no_event_goes_through_and_is_counted() -> None:
    stream = streamed([b"data: nonsense\n\n", *answer_events([CALL])], beside(prepared()))
    assert stream.facts.failure == "upstream_bad_reply"
    assert stream.verdict == "identical"
    body = whole(b"no JSON", beside(prepared()))
    assert body.facts.failure == "upstream_bad_reply"
    assert body.verdict == "identical"


def test_a_line_without_end_goes_through() -> None:
    stream = WatchedStream(beside(prepared(), limits=Limits(max_event_bytes=100)))
    for _ in range(9):
        assert stream.feed(b"x" * 50) == b"x" * 50
    assert stream.facts.failure == "upstream_bad_reply"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_comments_may_be_sent_between_events_only(end: bytes) -> None:
    data = event({"content": "Hi"}).replace(b"\n", end)
    stream = WatchedStream(beside())
    assert stream.at_boundary
    for at in range(len(data)):
        stream.feed(data[at : at + 1])
        assert stream.at_boundary is (at == len(data) - 1)
    stream.feed(b"")
    assert stream.at_boundary
    stream.feed(data + data[:-1])
    assert not stream.at_boundary


# Untouched, for all that models have written


def test_answers_of_all_kinds_go_through_byte_for_byte(answers: list[dict[str, Any]]) -> None:
    passed: list[bytes] = []
    passed_alone: list[bytes] = []
    count = 0
    for number, label in enumerate(answers):
        request = {"model": "m", "messages": [{"role": "user", "content": "Do it."}], "tools": label["tools"]}
        how = RecoveryStrategy().prepare(parse_request(msgspec.json.encode(request)), Options())
        rng = random.Random(label["id"])
        text: str = label["text"]
        cut = sorted(rng.choices(range(len(text) + 1), k=5))
        pieces = [text[start:end] for start, end in zip([0, *cut], [*cut, len(text)], strict=True)]
        data = b"".join(answer_events(pieces))
        cuts = sorted(rng.choices(range(len(data) + 1), k=9))
        parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert b"".join(parts) == data
        read = streamed([data], beside(how))
        assert read.finished
        assert read.verdict in ("identical", "would_change", "would_fail")
        others = [streamed(parts, beside(how)), streamed(answer_events(list(text)), beside(how))]
        assert {other.verdict for other in others} == {read.verdict}
        if not number % 12:
            words = answer_events(list(tokens(text)))
            for how_read, by in ((how, passed), (None, passed_alone)):
                assert told(unread(words, beside(how_read), by)) == told(streamed(words, beside(how_read)))
            assert told(unread(parts, beside(how), passed)) == told(others[0])
            count += len(words)
        assert [call.arguments for call in read.facts.calls] == [call.arguments for call in others[0].facts.calls]
        assert streamed(parts, beside(reading(Raising))).verdict == "would_fail"
        assert streamed(parts, beside(how, step=0.4)).verdict in ("dropped", "identical")
        whole(answer_body(text), beside(how))
        whole(answer_body(text), beside(reading(Raising)))
    assert len(passed) > 0.03 * count, "events of prose go by unread"
    assert len(passed_alone) > 0.9 * count, "where nobody reads, nearly all do"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([DONE, event({"content": CALL}), b"data: {}\n\n"]), max_size=8)
)
def test_any_bytes_go_through(parts: list[bytes]) -> None:
    stream = WatchedStream(beside(prepared()))
    assert [stream.feed(part) for part in parts] == parts
    assert stream.finish() == b""
    joined = b"".join(parts)
    assert whole(joined, beside(prepared())).verdict is not None


def test_nothing_is_asked_again() -> None:
    stream = WatchedStream(beside(prepared()))
    assert stream.ask_again is None
    assert stream.second_answer(b"x") == stream.no_second_answer() == b""


def test_a_fault_of_ours_while_watching_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> bytes:
        raise RuntimeError

    monkeypatch.setattr("gateway.answer.stream.StreamExchange.step", failing)
    monkeypatch.setattr("gateway.answer.body.BodyExchange._read_choice", failing)
    assert streamed(answer_events([CALL]), beside(prepared())).verdict == "would_fail"
    assert whole(answer_body(CALL), beside(prepared())).verdict == "would_fail"


def test_on_one_wire_nothing_but_words_goes_on_unread() -> None:
    turn = Turn(text="Plain words, in some pieces.\n\nAnd more.", calls=(Call("toolu_1", "Read", {"path": "a.py"}),))
    events = [each + b"\n\n" for each in AnthropicServer().stream(turn, "m").split(b"\n\n")[:-1]]
    situation = Situation(now=0.0, make_id=str)
    dialogue = hearing("messages", "m", situation, stream=True)
    stream = SameWireStream(beside(), dialogue, lambda error, last: b"", wire="messages")
    passed = []
    for each, following in zip(events, [*events[1:], b""], strict=True):
        passes = stream.listens()
        if passes is not None:
            # What comes in one read with a word is read, unless it is one itself.
            both = passes(each + following) is not None
            assert both == (b"text_delta" in each and b"text_delta" in following)
            assert passes(each[:-1]) is passes(each + b"data: x") is None
        if passes is not None and passes(each) is not None:
            assert stream.unheard() == each
            passed.append(each)
        else:
            assert stream.step(each) == each
    words = [each for each in events if b"text_delta" in each]
    assert passed == words[1:]
    assert len(passed) >= 3
    assert stream.close() == b""
    assert stream.facts.native_calls == 1
