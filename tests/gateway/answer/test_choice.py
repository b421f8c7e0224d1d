"""One choice of an answer among others: read by itself, its calls numbered, its end told as what it is."""

import json

import pytest

from gateway.answer.stream import StreamExchange
from gateway.core.errors import UpstreamBadReply
from gateway.core.limits import Limits
from tests.gateway.answer.test_second_answer import OPEN, Streamed, Whole
from tests.gateway.answer.test_second_answer import prepared as asking
from tests.gateway.answer.test_stream import CALL, NATIVE, choices, per_character
from tests.support.chat import (
    DONE,
    answer_body,
    answer_events,
    event,
    hear_body,
    hear_stream,
    numbered_ids,
    prepared,
    stream,
    whole,
)
from tests.support.cost import steps

TWO_CALLS = f"Both.\n{CALL}\nand\n<read>\n<filePath>/b.py</filePath>\n</read>\nbye"


def test_role_is_given_once():
    events = [event({"role": "assistant", "content": CALL}), event({}, "stop"), DONE]
    assert hear_stream(stream(events, prepared())[0]).roles == ["assistant"]
    assert hear_stream(stream(answer_events([CALL]), prepared())[0]).roles == ["assistant"]


def test_only_the_first_call_goes_out_when_one_is_asked_for():
    out, exchange = stream(answer_events(per_character(TWO_CALLS)), prepared(first_only=True))
    heard = hear_stream(out)
    assert heard.meaning == ("Both.", [("read", '{"filePath":"/a.py"}')], "tool_calls")
    assert exchange.facts.undelivered == 1
    assert hear_body(whole(answer_body(TWO_CALLS), prepared(first_only=True))[0]).meaning == heard.meaning


def test_all_calls_go_out_in_order_with_the_text_between():
    heard = hear_stream(stream(answer_events(per_character(TWO_CALLS)), prepared())[0])
    assert heard.meaning == (
        "Both.\nand",
        [("read", '{"filePath":"/a.py"}'), ("read", '{"filePath":"/b.py"}')],
        "tool_calls",
    )
    assert len({call["id"] for call in heard.calls}) == 2
    assert hear_body(whole(answer_body(TWO_CALLS), prepared())[0]).meaning == heard.meaning


def test_trailing_text_is_dropped_and_counted_or_kept():
    dropped, exchange = stream(answer_events([CALL, "\nDone now."]), prepared())
    assert hear_stream(dropped).content is None
    assert exchange.facts.dropped["trailing"]
    kept, _ = stream(answer_events([CALL, "\nDone now."]), prepared(keep_trailing=True))
    assert hear_stream(kept).content == "\nDone now."
    assert hear_body(whole(answer_body(CALL + "\nDone now."), prepared(keep_trailing=True))[0]).content == "\nDone now."


def test_length_stays_length():
    text = f"{CALL}\n<read>\n<filePath>/b"
    heard = hear_stream(stream(answer_events([text], "length"), prepared())[0])
    assert heard.finish == "length"
    assert len(heard.calls) == 1
    cut = "<read>\n<filePath>/b"
    assert stream(answer_events([cut], "length"), prepared())[0] == b"".join(answer_events([cut], "length"))


def test_two_choices_are_read_apart():
    events = [
        event({"role": "assistant", "content": ""}, index=0),
        event({"role": "assistant", "content": ""}, index=1),
        event({"content": CALL[:10]}, index=0),
        event({"content": "plain"}, index=1),
        event({"content": CALL[10:]}, index=0),
        event({}, "stop", index=1),
        event({}, "stop", index=0),
        DONE,
    ]
    out, _ = stream(events, prepared())
    assert hear_stream(out, 0).meaning == (None, [("read", '{"filePath":"/a.py"}')], "tool_calls")
    assert hear_stream(out, 1).meaning == ("plain", [], "stop")


def test_several_choices_in_one_chunk_of_an_answer_that_is_not_read():
    right = choices({"content": "a"}, {"content": "b"})
    wrong = choices({"tool_calls": [NATIVE]}, {"content": "c"})
    end = choices({}, {}, finish="stop")
    out, exchange = stream([right, wrong, end, DONE], prepared(tools=None))
    assert out.startswith(right)
    assert hear_stream(out, 0).calls[0]["name"] == "read"
    assert hear_stream(out, 0).finish == "tool_calls"
    assert hear_stream(out, 1).meaning == ("bc", [], "stop")
    assert exchange.facts.native_calls == 1


def test_several_choices_in_one_chunk_are_read_apart():
    events = [choices({"content": CALL}, {"content": "plain"}), choices({}, {}, finish="stop"), DONE]
    out, _ = stream(events, prepared())
    assert hear_stream(out, 0).calls
    assert hear_stream(out, 1).meaning == ("plain", [], "stop")


def test_as_many_choices_as_are_asked_for_are_read_each_by_itself_and_no_more():
    asked = Limits(max_choices=3)
    parts = [event({"content": f"Well.\n{CALL}"}, index=at) for at in range(3)]
    ends = [event({}, "stop", index=at) for at in range(3)]
    out, exchange = stream([*parts, *ends, DONE], prepared(), limits=asked)
    assert exchange.facts.failure is None
    assert [hear_stream(out, at).calls[0]["name"] for at in range(3)] == ["read"] * 3
    for index in (3, 8_000, -1):
        out, exchange = stream([*parts, event({"content": "x"}, index=index), DONE], prepared(), limits=asked)
        assert exchange.facts.failure == "upstream_bad_reply"
    crowd = event({"content": "x"}).replace(b'"choices": [', b'"choices": [' + b'{"index": 0, "delta": {}}, ' * 3)
    assert stream([crowd, DONE], prepared(), limits=asked)[1].facts.failure == "upstream_bad_reply"
    body = json.loads(answer_body("x"))
    body["choices"] *= 200
    with pytest.raises(UpstreamBadReply):
        whole(json.dumps(body).encode(), prepared())


@pytest.mark.parametrize("how", [prepared(), prepared(tools=None)], ids=["read", "unread"])
def test_sums_over_choices_and_calls_are_not_made_anew_for_each_event(how):
    """Many choices, and calls in many of them: twice as many cost twice as much."""

    def cost(count: int) -> int:
        call = {"index": 0, "id": "x", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        parts = [
            part
            for at in range(count)
            for part in (
                event({"tool_calls": [{**call, "id": f"c{at}"}]}, index=at),
                event({"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}, index=at),
                event({}, "tool_calls", index=at),
            )
        ]
        exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits(max_choices=count))
        return steps(lambda: [exchange.feed(part) for part in [*parts, DONE]], most=10_000_000)

    assert cost(400) < 2.6 * cost(200)


def test_several_choices_are_not_repaired() -> None:
    two = json.loads(answer_body(OPEN))
    two["choices"].append({**two["choices"][0], "index": 1})
    body = json.dumps(two).encode()
    assert Whole(body, asking()).out == body
    parts = [event({"content": OPEN}), event({"content": "x"}, index=1), event({}, "stop"), event({}, "stop", index=1)]
    run = Streamed([*parts, DONE], asking())
    assert run.asked == []
    assert hear_stream(run.out, 0).content == OPEN
    assert hear_stream(run.out, 1).content == "x"
