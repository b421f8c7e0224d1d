"""Answers at their edges: what nobody asked for, what says nothing, what breaks at the very end."""

import itertools
import json
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.stages import GuardedReader
from gateway.answer.stream import StreamExchange
from gateway.answer.watch import WatchedStream
from gateway.core.errors import GatewayError
from gateway.core.limits import Limits
from gateway.wire.chat_request import parse_request
from strategies.base import Options
from strategies.native import NativeStrategy
from strategies.xml_prompt import XmlPromptStrategy
from tests.gateway.answer.test_watch import beside
from tests.support.chat import DONE, answer_body, answer_events, event, hear_body, hear_stream, prepared, stream, whole
from tests.support.chat import numbered_ids as ids
from tests.support.client import ENDS, cuts, dispatched, joined, joined_by

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


# --- No byte of a stream is dropped or added on its way, whatever ends its lines and wherever it is cut


DATA = b'data:{"choices":[{"index":0,"delta":{"content":"%b"}}]}'

FINISH = b'data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'

LINES = [DATA % b"a", b"", b":c", b"", FINISH, b"", b"data:[DONE]", b""]

HELD = [DATA % b"<read", b"", b":c", b"", DATA % b"y", b"", FINISH, b"", b"data:[DONE]", b""]

READ = pytest.mark.parametrize("how", [prepared(), prepared(tools=None)], ids=["read", "watched"])


def mixtures(lines: list[bytes]) -> list[bytes]:
    """The lines with every two pairs of line ends behind them, in turn."""
    found = []
    for pairs in itertools.product(itertools.product(ENDS, repeat=2), repeat=2):
        ends = itertools.cycle(itertools.chain.from_iterable(pairs))
        found.append(joined(lines, itertools.islice(ends, len(lines))))
    return [data for data in found if data is not None]


def at_line_ends(data: bytes) -> list[int]:
    """The places before, within and behind each line end."""
    near = {at + by for at in range(len(data)) if data[at] in b"\r\n" for by in (0, 1)}
    return sorted(near - {0, len(data)})


@READ
@pytest.mark.parametrize("lines", [LINES, HELD], ids=["flowing", "held"])
def test_an_answer_goes_through_as_it_came(how, lines):
    for data in mixtures(lines)[:: 3 if lines is HELD else 1]:
        for pieces in cuts(data, places=at_line_ends(data)):
            out, exchange = stream(pieces, how)
            assert out == data, pieces
            assert exchange.facts.failure is None


@READ
def test_every_other_mixture_of_line_ends_goes_through(how):
    for data in joined_by(LINES)[::2]:
        for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
            assert stream(pieces, how)[0] == data


@READ
@pytest.mark.parametrize("end", ENDS)
def test_an_answer_that_is_cut_one_place_everywhere_goes_through(how, end):
    data = b"".join(line + end for line in HELD)
    for at in range(1, len(data)):
        assert stream([data[:at], data[at:]], how)[0] == data


@READ
def test_a_stream_that_ends_without_its_last_line_ends_is_completed(how):
    """A strict reader gets every event, and `[DONE]` behind them where the model server left that out."""
    for data in mixtures(LINES):
        for end in at_line_ends(data):
            if data[:end].count(b"stop") and data[:end].rstrip(b"\r\n").endswith((b"}", b"]")):
                for pieces in ([data[:end]], [data[at : at + 1] for at in range(end)]):
                    out = stream(pieces, how)[0]
                    assert dispatched(out) == dispatched(data)


def test_a_call_between_odd_line_ends_is_read():
    call = DATA % b"<read>\\n<filePath>/a.py</filePath>\\n</read>"
    for data in mixtures([call, b"", *LINES]):
        heard = hear_stream(stream([data[at : at + 1] for at in range(len(data))], prepared())[0])
        assert [each["name"] for each in heard.calls] == ["read"]
        assert heard.done


def test_an_untouched_answer_goes_through_and_comments_fit_between_its_events():
    for data in mixtures(LINES):
        for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
            untouched, out, told = WatchedStream(beside(prepared())), b"", b""
            for piece in pieces:
                out += untouched.feed(piece)
                told += piece + (b": keep-alive\n\n" if untouched.at_boundary else b"")
            assert out + untouched.finish() == data
            assert dispatched(told) == dispatched(data)
            assert untouched.finished


def test_blank_lines_go_through_and_events_without_data_do_not():
    """The SDK reads an event that has a field and no data as broken JSON."""
    kept = [b"\n", b": a\n\n", b"\n\n", DATA % b"x" + b"\n\n", b"\n: b\n: c\n\n", FINISH + b"\n\n", DONE]
    sent = [*kept[:3], b"event: ping\n\n", *kept[3:5], b"\n: d\nid: 4\n\n", *kept[5:]]
    assert stream(sent, prepared())[0] == b"".join(kept)
