"""What a turn looks like that a server's parser swallowed, and what only resembles one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answer.rescue.faces import FACES, of_body, of_end, of_error, of_refusal, spoken_tokens
from gateway.answer.rescue.lookout import Lookout
from gateway.core.errors import UpstreamBadReply
from gateway.wire.sse import SseDecoder, SseEvent
from tests.support.faulty_upstream import DONE, event, text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_the_names_are_labels() -> None:
    names = [face.name for face in FACES]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


@pytest.mark.parametrize(
    ("body", "face", "text"),
    [
        ({"error": "EOF"}, "parser_eof", ""),
        ({"message": "Failed to parse input at pos 0: hi", "code": 500}, "parse_input", "hi"),
        ({"error": {"message": "Failed to parse input at pos 7"}}, "parse_input", ""),
        ({"error": {"code": "tool_use_failed", "failed_generation": "a\nb"}}, "failed_generation", "a\nb"),
        ({"error": {"code": "tool_use_failed", "failed_generation": 5}}, "failed_generation", ""),
        ({"error": {"message": "Provider", "metadata": {"raw": '{"error":{"message":"EOF"}}'}}}, "parser_eof", ""),
        ({"error": {"message": "Provider", "metadata": {"raw": "EOF"}}}, "parser_eof", ""),
        ({"error": {"message": "error parsing tool call: raw='it's', err=x"}}, "raw_call", "it's"),
    ],
)
def test_errors_in_the_servers_own_words(body: dict[str, Any], face: str, text: str) -> None:
    for found in (of_error(body), of_refusal(400 if face == "failed_generation" else 500, json.dumps(body).encode())):
        assert found is not None
        assert (found.face.name, found.text) == (face, text)


@pytest.mark.parametrize("payload", [None, b"", b"EOF", b'"EOF"', b"[" * 100_000, b'{"error":' * 5000])
def test_what_is_no_error_is_none(payload: bytes | None) -> None:
    assert of_refusal(500, payload) is None
    assert payload is None or of_body(payload) is None


@given(JSON)
def test_any_json_can_be_looked_at(value: Any) -> None:
    of_error(value)
    of_error({"error": value})
    body = json.dumps({"choices": [{"message": value, "finish_reason": value}], "usage": value}).encode()
    of_body(body)
    assert of_body(json.dumps(value).encode()) is None


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Hello."},
        {"content": [{"type": "text", "text": "x"}]},
        {"content": "", "tool_calls": [{"id": "a"}]},
        {"content": None, "function_call": {"name": "a"}},
        {"content": None, "refusal": "No."},
    ],
)
def test_what_can_be_seen_was_not_swallowed(message: dict[str, Any]) -> None:
    for finish in ("stop", "tool_calls"):
        choice = {"message": message, "finish_reason": finish}
        assert of_body(json.dumps({"choices": [choice], "usage": {"completion_tokens": 99}}).encode()) is None


def test_blanks_cannot_be_seen_and_several_answers_are_none() -> None:
    choice = {"message": {"content": " \n"}, "finish_reason": "stop"}
    answer = {"choices": [choice], "usage": {"completion_tokens": 99}}
    found = of_body(json.dumps(answer).encode())
    assert found is not None
    assert found.face.name == "silent"
    assert of_body(json.dumps({**answer, "choices": [choice, choice]}).encode()) is None
    assert of_body(json.dumps({**answer, "choices": [{**choice, "finish_reason": "length"}]}).encode()) is None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"completion_tokens": 9}, 9),
        ({"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}, 5),
        ({"completion_tokens": 9, "reasoning_tokens": 4}, 5),
        ({"completion_tokens": True}, 0),
        ({"completion_tokens": -3}, 0),
        ({"completion_tokens": "9"}, 0),
        (None, 0),
        ([], 0),
    ],
)
def test_tokens_of_reasoning_say_nothing(usage: Any, tokens: int) -> None:
    assert spoken_tokens(usage) == tokens


def test_an_answer_that_only_reasoned_is_none() -> None:
    assert of_end("stop", {"completion_tokens": 50}, has_reasoned=True) is None
    assert of_end("length", {"completion_tokens": 50}, has_reasoned=False) is None
    assert of_end("tool_calls", None, has_reasoned=True) is not None


# --- A stream watched until something of it can be seen: what goes on at once, what waits, and nothing that is lost.


ROLE = event({"role": "assistant", "content": ""})

THOUGHT = event({"reasoning_content": "Hm."})

FINISH = event(finish="stop")

USAGE = event(choices=[], usage={"completion_tokens": 9})

ERROR = b"data: " + json.dumps({"error": {"message": "EOF"}}).encode() + b"\n\n"

COMMENT = b": here\n\n"

CALL = event({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]})

EVENTS = [ROLE, THOUGHT, FINISH, USAGE, ERROR, COMMENT, CALL, DONE, text("Hi"), text("  "), b"data: nonsense\n\n"]


def lookout(**more: bool) -> Lookout:
    return Lookout(max_event_bytes=1 << 16, **more)


@given(st.lists(st.sampled_from(EVENTS), max_size=8), st.lists(st.integers(1, 400), max_size=12), st.booleans())
def test_all_bytes_go_on_in_order_whatever_the_cuts(events: list[bytes], sizes: list[int], crlf: bool) -> None:
    data = b"".join(events)
    data = data.replace(b"\n", b"\r\n") if crlf else data
    whole, cut = lookout(), lookout()
    told = whole.pass_on(data) + whole.finish()
    pieces, at = [], 0
    for size in sizes:
        pieces.append(cut.pass_on(data[at : at + size]))
        at += size
    pieces += [cut.pass_on(data[at:]), cut.finish()]
    assert b"".join(pieces) == told
    assert cut.is_open == whole.is_open
    assert (cut.swallowed is None) == (whole.swallowed is None)
    assert told + whole.release() == data
    assert b"".join(pieces) + cut.release() == data


def test_the_end_waits_until_something_can_be_seen() -> None:
    watch = lookout()
    assert watch.pass_on(ROLE + COMMENT + THOUGHT + text(" ")) == ROLE + COMMENT + THOUGHT + text(" ")
    assert watch.pass_on(FINISH + USAGE + DONE) == b""
    assert watch.ended
    assert watch.usage == {"completion_tokens": 9}
    assert watch.swallowed is None, "it has reasoned"
    assert watch.release() == FINISH + USAGE + DONE


@pytest.mark.parametrize("seen", [text("Hi"), CALL, event({"content": None, "function_call": {"name": "f"}})])
def test_what_can_be_seen_lets_everything_go(seen: bytes) -> None:
    watch = lookout()
    assert watch.pass_on(FINISH) == b""
    assert watch.pass_on(seen) == FINISH + seen
    assert watch.pass_on(FINISH + DONE) == FINISH + DONE
    assert watch.swallowed is None


def test_usage_that_only_we_have_asked_for_is_kept_back() -> None:
    watch = lookout(drops_usage=True)
    assert watch.pass_on(ROLE + text("Hi") + FINISH + USAGE + DONE) == ROLE + text("Hi") + FINISH + DONE
    assert watch.usage == {"completion_tokens": 9}
    later = lookout(drops_usage=True)
    assert later.pass_on(text("Hi")) == text("Hi")
    filtered = event(choices=[], prompt_filter_results=[])
    assert later.pass_on(filtered + USAGE + DONE) == filtered + DONE


def test_a_silent_stream_is_told_by_its_usage() -> None:
    watch = lookout()
    watch.pass_on(ROLE + FINISH + USAGE + DONE)
    assert watch.swallowed is not None
    assert watch.swallowed.face.name == "silent"


def test_an_error_ends_it() -> None:
    watch = lookout()
    assert watch.pass_on(ROLE + ERROR) == ROLE
    assert watch.ended
    assert watch.swallowed is not None
    assert watch.swallowed.face.name == "parser_eof"


def test_an_event_without_end_is_the_servers_fault() -> None:
    with pytest.raises(UpstreamBadReply):
        lookout().pass_on(b"data: " + b"x" * (1 << 17))


@pytest.mark.parametrize("drops_usage", [False, True])
def test_what_follows_the_first_text_of_a_read_is_not_taken_apart(
    drops_usage: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first read may hold half of the answer: looking at all of it costs every event of it twice."""
    looked: list[int] = []
    feed = SseDecoder.feed

    def counted(decoder: SseDecoder, data: bytes) -> list[SseEvent]:
        looked.append(len(data))
        return feed(decoder, data)

    monkeypatch.setattr(SseDecoder, "feed", counted)
    data = ROLE + text("Hi") + text(" there") * 2000
    assert lookout(drops_usage=drops_usage).pass_on(data) == data
    assert sum(looked) < 4096
