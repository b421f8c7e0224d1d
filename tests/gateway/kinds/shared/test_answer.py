"""An answer told as OpenAI chat: streamed and whole say the same, however it came in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamBadReply
from gateway.kinds.shared.answer import Answer, Feed, Usage, gathered, is_stream
from gateway.kinds.shared.port import Situation
from gateway.wire.chat_reshape import stream_to_body

SITUATION = Situation(now=5.9, make_id=str, answer_id="chatcmpl-9")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), TEXTS),
        st.tuples(st.just("reasoning"), TEXTS),
        st.tuples(st.just("call"), st.lists(TEXTS, max_size=3)),
    ),
    max_size=8,
)


def answer(*, stream: bool, usage: bool = True) -> Answer:
    return Answer.to({"model": "m", "stream": stream, "stream_options": {"include_usage": usage}}, SITUATION)


def told(one: Answer, steps: list[tuple[str, Any]], reason: str | None) -> Answer:
    for what, said in steps:
        if what == "text":
            one.text(said)
        elif what == "reasoning":
            one.reasoning(said)
        else:
            number = one.call(f"c{len(one.message().get('tool_calls', ()))}", "run")
            for piece in said:
                one.arguments(number, piece)
    one.usage = Usage(prompt=3, completion=2, cached=1, reasoning=0)
    one.finish_reason = reason
    one.end()
    return one


@given(STEPS, st.sampled_from([None, "stop", "length", "content_filter"]))
def test_a_stream_says_what_the_body_says(steps: list[tuple[str, Any]], reason: str | None) -> None:
    whole = json.loads(told(answer(stream=False), steps, reason).body())
    streaming = told(answer(stream=True), steps, reason)
    streamed = json.loads(stream_to_body(streaming.take()))
    assert streaming.take() == b""
    [one], [other] = whole.pop("choices"), streamed.pop("choices")
    assert whole == streamed
    assert one["finish_reason"] == other["finish_reason"]
    for message in (one["message"], other["message"]):
        message["content"] = message.get("content") or ""
    assert one["message"] == other["message"]


def test_the_usage_is_told_in_openais_words() -> None:
    assert Usage(prompt=3, completion=2).fields() == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert Usage(cached=0, reasoning=0).fields()["prompt_tokens_details"] == {"cached_tokens": 0}
    assert b'"usage"' not in told(answer(stream=True, usage=False), [], "stop").take()


def test_an_answer_has_the_servers_name_until_it_has_begun() -> None:
    one = answer(stream=True)
    assert (one.id, one.model, one.created) == ("chatcmpl-9", "m", 5)
    one.identify("r1", None)
    one.identify("", 3)
    assert (one.id, one.model) == ("r1", "m")
    one.open()
    one.identify("r2", "other")
    assert (one.id, one.model) == ("r1", "m")


def feed(one: Answer, *, most: int = 100) -> Feed:
    def on_event(data: bytes) -> None:
        if data == b"bad":
            raise UpstreamBadReply("bad")
        one.text(data.decode())
        if data == b"end":
            one.end()

    return Feed(on_event, one, max_event_bytes=most)


@pytest.mark.parametrize("fault", [b"data: bad\n\n", b"data: " + b"x" * 200])
def test_a_fault_is_told_once_and_ends_the_stream(fault: bytes) -> None:
    one = answer(stream=True)
    source = feed(one)
    out = source.feed(b"data: a\n\n" + fault)
    assert out.count(b'"error"') == 1
    assert source.fault is not None
    assert source.feed(b"data: b\n\n") + source.finish(one.end) == b""
    assert b"[DONE]" not in out


def test_nothing_is_read_behind_the_end_and_empty_events_say_nothing() -> None:
    one = answer(stream=True)
    source = feed(one)
    assert source.feed(b": alive\n\ndata: \n\ndata: [DONE]\n\n") == b""
    out = source.feed(b"data: end\n\ndata: more\n\n")
    assert out.endswith(b"data: [DONE]\n\n")
    assert b"more" not in out
    assert source.finish(one.end) == b""


def test_a_stream_that_was_read_whole_is_a_body_or_a_fault() -> None:
    one = answer(stream=False)
    assert gathered(feed(one), one, b"data: a\n\ndata: end\n\n", lambda: None).status == 200
    cut = answer(stream=False)
    assert gathered(feed(cut), cut, b"data: a\n\n", lambda: None).status == 502
    bad = answer(stream=False)
    assert b'"bad"' in gathered(feed(bad), bad, b"data: bad\n\n", lambda: None).body


@pytest.mark.parametrize(
    ("body", "streams"),
    [(b"data: x", True), (b"\xef\xbb\xbf\r\n event: x", True), (b": hi", True), (b'{"data": 1}', False), (b"", False)],
)
def test_a_stream_is_known_by_how_it_begins(body: bytes, streams: bool) -> None:
    assert is_stream(body) is streams
