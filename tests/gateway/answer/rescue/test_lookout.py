"""A stream watched until something of it can be seen: what goes on at once, what waits, and nothing that is lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answer.rescue.lookout import Lookout
from gateway.core.errors import UpstreamBadReply
from gateway.wire.sse import SseDecoder, SseEvent
from tests.support.faulty_upstream import DONE, event, text

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
