"""Answers at their edges: what nobody asked for, what says nothing, what breaks at the very end."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.stages import GuardedReader
from gateway.answer.stream import StreamExchange
from gateway.core.errors import GatewayError
from gateway.core.limits import Limits
from gateway.wire.chat_request import parse_request
from strategies.base import Options
from strategies.native import NativeStrategy
from strategies.xml_prompt import XmlPromptStrategy
from tests.support.chat import DONE, answer_body, answer_events, event, hear_body, hear_stream, prepared, stream, whole
from tests.support.chat import numbered_ids as ids

CALL = "<read>\n<filePath>/a.py</filePath>\n</read>"
FAULTY = {"index": 0, "function": {"name": "read", "arguments": {"filePath": "/a"}}}
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]


def request(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS, **fields}).encode()


@pytest.mark.parametrize("tools", [True, False])
def test_native_calls_are_left_alone_where_nothing_is_to_be_mended(tools: bool) -> None:
    """Answers that are only watched, or whose tools are switched off."""
    how = replace(prepared() if tools else prepared(tools=None), mend_native=False)
    events = [event({"role": "assistant", "tool_calls": [FAULTY]}), event({}, "stop"), DONE]
    out, exchange = stream(events, how)
    assert out == b"".join(events)
    assert exchange.facts.mended == {}
    body = answer_body(None, "stop", tool_calls=[FAULTY])
    assert whole(body, how)[0] == body


def test_events_that_say_nothing_are_left_out() -> None:
    silent = [b"event: ping\n\n", b"data:\n\n", b"id: 7\n\n"]
    events = answer_events(["a", "b"])
    parts = [part for pair in zip(events, [*silent, *silent], strict=False) for part in pair]
    assert stream([*parts, *events[len(parts) // 2 :]], prepared())[0] == b"".join(events)


def test_a_whole_answer_whose_call_breaks_after_it_began_is_an_error() -> None:
    """As in a stream: part of such a call may be what was meant, and none of it is to be carried out."""
    how = prepared(stream_arguments="incremental")
    broken = "<think>\n</think>\n<write>\n<filePath>/a</filePath>\n<content>\nrm -r"
    exchange = BodyExchange(how, make_id=ids(), limits=Limits())
    with pytest.raises(GatewayError):
        exchange.transform(answer_body(broken))
    assert exchange.facts.broken


def test_a_second_answer_that_nobody_waits_for_changes_nothing() -> None:
    how = XmlPromptStrategy().prepare(parse_request(request()), Options())
    events = answer_events(["plain words"])
    streamed = StreamExchange(how, make_id=ids(), limits=Limits(), asks=1)
    out = b"".join(map(streamed.feed, events))
    assert (streamed.ask_again, streamed.second_answer(answer_body(CALL)), streamed.no_second_answer()) == (
        None,
        b"",
        b"",
    )
    assert out + streamed.finish() == b"".join(events)
    body = answer_body("plain words")
    told = BodyExchange(how, make_id=ids(), limits=Limits(), asks=1)
    assert told.transform(body) == body
    assert (told.ask_again, told.second_answer(answer_body(CALL)), told.no_second_answer()) == (None, body, body)


def test_a_whole_answer_is_asked_for_as_often_as_allowed() -> None:
    how = XmlPromptStrategy().prepare(parse_request(request(tool_choice="required")), Options())
    first = answer_body("I will not.")
    exchange = BodyExchange(how, make_id=ids(), limits=Limits(), asks=2)
    assert exchange.transform(first) == first
    assert exchange.second_answer(answer_body("Still not.")) == first
    assert exchange.ask_again is not None
    assert exchange.ask_again.number == 2
    heard = hear_body(exchange.second_answer(answer_body("<read></read>")))
    assert [call["name"] for call in heard.calls] == ["read"]
    assert exchange.ask_again is None


def test_a_second_answer_of_words_is_none_where_text_is_not_read() -> None:
    broken = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{"}}
    first = answer_body(None, "tool_calls", tool_calls=[broken])
    for reads, calls in ((False, ["{"]), (True, ['{"filePath":"/a.py"}'])):
        how = NativeStrategy().prepare(parse_request(request()), Options(native_leaks=reads))
        exchange = BodyExchange(how, make_id=ids(), limits=Limits(), asks=1)
        assert exchange.transform(first) == first
        assert exchange.ask_again is not None
        second = exchange.second_answer(answer_body(CALL))
        assert (second == first) is not reads
        assert [call["arguments"] for call in hear_body(second).calls] == calls


def test_a_guarded_reader_is_idle_when_its_reader_is_or_is_gone() -> None:
    class Once:
        idle = False

        def feed(self, text: str) -> list[Any]:
            raise RuntimeError

        def finish(self, reason: str) -> list[Any]:
            return []

    reader = GuardedReader(Once)
    assert not reader.idle
    assert "".join(found.raw for found in reader.feed("x")) == "x"
    assert reader.idle


def test_a_call_that_breaks_at_an_end_without_a_finish_is_an_error() -> None:
    parts = [event({"role": "assistant", "content": f"<think></think>{CALL[:-7]}<limit>many"}), DONE]
    out, exchange = stream(parts, prepared(stream_arguments="incremental"))
    heard = hear_stream(out)
    assert heard.error
    assert not heard.done
    assert exchange.facts.broken
