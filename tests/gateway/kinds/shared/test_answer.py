"""An answer told as OpenAI chat: streamed and whole say the same, however it came in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamBadReply
from gateway.core.ports import Memory
from gateway.kinds.shared.answer import Answer, Feed, Usage, gathered, is_stream
from gateway.kinds.shared.dialogue import TranslatingDialogue
from gateway.kinds.shared.faults import Fault, fault_of_status, waiting_time
from gateway.kinds.shared.memory import MAX_KEYS, Place, key_of_answer, keys_of_history
from gateway.kinds.shared.port import Reply, Situation
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


# --- What all dialogues with servers of other wires do alike, whatever the kind


LATER = Situation(now=1.0, make_id=str)

BODY = {"model": "m", "stream": True}


class Plain(TranslatingDialogue):
    """A wire of single words."""

    def _event(self, data: bytes) -> None:
        value = json.loads(data)
        if "error" in value:
            self._refuse(value["error"])
        self._answer.text(value.get("text", ""))
        self._answer.finish_reason = value.get("end")

    def _whole(self, body: bytes) -> None:
        if b"text" not in body:
            raise UpstreamBadReply("no text")
        self._answer.text(json.loads(body)["text"])

    def _fault(self, value: Any, status: int) -> Fault | None:
        return fault_of_status(status, value["error"]) if "error" in value else None

    def _kept(self) -> bytes | None:
        return b"kept" if "keep" in self._answer.content else None

    def _key(self, message: Any) -> str | None:
        return message["content"] or None


def dialogue() -> Plain:
    return Plain(BODY, LATER, ttl_s=3.0)


def test_a_stream_is_complete_behind_its_reason_and_then_remembered() -> None:
    talk = dialogue()
    assert not talk.may_be_void
    assert b"keep it" in talk.feed(b'data: {"text": "keep it"}\n\n')
    assert talk.remember() == ()
    assert b'"stop"' in talk.feed(b'data: {"end": "stop"}\n\n') + talk.finish()
    assert talk.remember() == (Memory(key="keep it", value=b"kept", ttl_s=3.0),)
    assert talk.remember({"content": "delivered"}) == (Memory(key="delivered", value=b"kept", ttl_s=3.0),)
    assert talk.finish() == b""


@pytest.mark.parametrize("said", [b"", b'data: {"text": "keep it"}\n\n'])
def test_a_stream_without_a_reason_has_no_end(said: bytes) -> None:
    talk = dialogue()
    assert b"[DONE]" not in talk.feed(said) + talk.finish()
    assert talk.remember() == ()


def test_what_is_not_worth_keeping_or_has_no_name_is_not_kept() -> None:
    for text, delivered in (("other", None), ("keep", {"content": ""})):
        talk = dialogue()
        talk.answered(200, {}, json.dumps({"text": text}).encode())
        assert talk.remember(delivered) == ()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b'{"text": "a"}', (200, "choices")),
        (201, b'{"text": "a"}', (201, "choices")),
        (200, b'data: {"text": "a", "end": "stop"}\n\n', (200, "choices")),
        (200, b'data: {"text": "a"}\n\n', (502, "error")),
        (200, b'{"error": "no"}', (500, "error")),
        (200, b"{}", (502, "error")),
        (200, b"\xff", (502, "error")),
        (429, b'{"error": "slow"}', (429, "error")),
        (302, b"", (502, "error")),
    ],
)
def test_a_whole_answer_is_a_completion_or_an_error(status: int, body: bytes, told: tuple[int, str]) -> None:
    reply = dialogue().answered(status, {}, body)
    assert isinstance(reply, Reply)
    assert (reply.status, told[1] in json.loads(reply.body)) == (told[0], True)


def test_a_fault_in_a_stream_is_told_once() -> None:
    talk = dialogue()
    assert b"slow down" in talk.feed(b'data: {"error": "slow down"}\n\ndata: {"text": "b"}\n\n')
    assert talk.feed(b'data: {"text": "c", "end": "stop"}\n\n') + talk.finish() == b""
    assert talk.remember() == ()


# --- When to come again, as servers say it


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("47", 47.0),
        (" 3 ", 3.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:50 -0000", 30.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("Tue, 99 Nov 2023 22:00:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_seconds_and_dates_are_read(told: str, seconds: float | None) -> None:
    assert waiting_time({"Retry-After": told}, NOW) == seconds


def test_nothing_said_is_nothing_to_wait_for() -> None:
    assert waiting_time({}, NOW) is None


# --- What tells one answer from another: its calls or its text, and where it stands


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def key(*before: dict[str, Any], answer: str = "Done.", scope: str = "s") -> str | None:
    return key_of_answer("k", said("assistant", answer), Place.after(list(before)), scope=scope)


def test_the_same_words_in_another_place_are_another_answer() -> None:
    first, go_on = said("user", "Do it."), said("user", "Go on.")
    keys = [
        key(first),
        key(said("user", "Do that.")),
        key(first, said("assistant", "Done."), go_on),
        key(first, said("assistant", "Done."), go_on, said("assistant", "Done."), go_on),
        key(first, scope="other"),
        key(first, answer="Not done."),
    ]
    assert len(set(keys)) == len(keys)


def test_what_may_be_rendered_anew_does_not_count() -> None:
    plain = key(said("user", "Do it."))
    assert key(said("system", "Be brief."), said("user", [{"type": "text", "text": "Do it."}])) == plain
    assert key(said("user", "Do it."), answer=" Done.\n") == plain


def test_the_key_at_the_end_is_found_in_the_history_that_follows() -> None:
    history = [said("user", "one"), said("assistant", "A"), said("tool", "x"), said("user", "two")]
    last = said("assistant", "B")
    found = keys_of_history("k", {"messages": [*history, last, said("user", "three")]}, scope="s")
    assert found[0] == key_of_answer("k", last, Place.after(history), scope="s")
    assert len(found) == 2


def test_of_a_long_history_the_newest_answers_are_looked_up() -> None:
    messages = [said("assistant", str(number)) for number in range(MAX_KEYS + 9)]
    found = keys_of_history("k", {"messages": ["odd", *messages]}, scope="s")
    assert len(found) == MAX_KEYS
    assert found[0] == key_of_answer("k", messages[-1], Place.after(messages[:-1]), scope="s")
    assert keys_of_history("k", {"messages": 5}, scope="s") == ()
    assert key_of_answer("k", said("assistant", None), Place(), scope="s") is None
