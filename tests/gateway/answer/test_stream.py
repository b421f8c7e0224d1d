"""An answer on its way through: byte for byte where nothing is recognised, exactly one shape where something is."""

import json
from typing import Any

import pytest

from gateway.answer.stream import StreamExchange
from gateway.core.errors import UpstreamBadReply, UpstreamDisconnected
from gateway.core.limits import Limits
from tests.support.chat import (
    DONE,
    answer_body,
    answer_events,
    chunks_of,
    event,
    hear_body,
    hear_stream,
    numbered_ids,
    prepared,
    stream,
    whole,
)

CALL = "<read>\n<filePath>/a.py</filePath>\n</read>"


def per_character(text: str) -> list[str]:
    return list(text)


def test_call_comes_in_the_shape_that_clients_read():
    out, exchange = stream(answer_events(["Let me look.\n\n", CALL[:9], CALL[9:], "\n"]), prepared())
    chunks = list(chunks_of(out))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[1] == {"content": "Let me look."}
    start = deltas[2]["tool_calls"][0]
    assert start == {
        "index": 0,
        "id": "call_000000000000000000000001",
        "type": "function",
        "function": {"name": "read", "arguments": ""},
    }
    assert deltas[3] == {"tool_calls": [{"index": 0, "function": {"arguments": '{"filePath":"/a.py"}'}}]}
    assert deltas[4] == {}
    assert chunks[4]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[5] is None
    assert all(chunk["id"] == "chatcmpl-1" and chunk["system_fingerprint"] == "fp" for chunk in chunks if chunk)
    assert exchange.facts.calls[0].verdict.name == "read"


def test_first_chunk_of_a_call_carries_the_role_when_nothing_did():
    events = [event({"content": CALL}), event({}, "stop"), DONE]
    assert hear_stream(stream(events, prepared())[0]).roles == ["assistant"]


def test_white_space_before_a_wrappers_closer_is_no_content():
    calls = [
        f"<tool_call>\n<function=read>\n<parameter=filePath>\n{n}\n</parameter>\n</function>\n</tool_call>"
        for n in "ab"
    ]
    text = f"One.\n\n{calls[0]}\n\nTwo.\n\n{calls[1]}\n"
    assert hear_stream(stream(answer_events(list(text)), prepared())[0]).content == "One.\n\nTwo."


def test_a_role_beside_text_that_is_held_is_given_before_the_call():
    events = [event({"role": "assistant", "content": CALL[:9]}), event({"content": CALL[9:]}), event({}, "stop"), DONE]
    heard = hear_stream(stream(events, prepared())[0])
    assert heard.roles == ["assistant"]


@pytest.mark.parametrize(
    "text",
    [
        "Plain words with trailing space \n\n and more. ",
        "a < b and `<read>` and <readers> <",
        "<read>\n<filePath>unclosed",
        "```python\nprint('<read>')\n```\nok",
        "emoji \U0001f600 and \u2028 and \\u003c",
        "   \n\n",
    ],
)
@pytest.mark.parametrize("wait", [False, True])
def test_unrecognised_answer_is_the_upstreams_own_bytes(text, wait):
    for parts in ([text], per_character(text), [text[:5], text[5:]]):
        events = answer_events(parts)
        out, exchange = stream(events, prepared(wait=wait))
        assert out == b"".join(events)
        assert not exchange.facts.calls
    body = answer_body(text)
    assert whole(body, prepared(wait=wait))[0] == body


def test_answer_that_is_not_read_is_relayed_whatever_it_holds():
    events = answer_events([CALL], "stop")
    assert stream(events, prepared(tools=None))[0] == b"".join(events)
    assert whole(answer_body(CALL), prepared(tools=None))[0] == answer_body(CALL)


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
def test_bytes_may_be_cut_anywhere(cut):
    text = "Größe \U0001f600: " + CALL
    data = b"".join(answer_events([text[:8], text[8:]]))
    whole_out, _ = stream([data], prepared())
    out, _ = stream([data[at : at + cut] for at in range(0, len(data), cut)], prepared())
    assert hear_stream(out).meaning == hear_stream(whole_out).meaning
    assert hear_stream(out).calls


def test_json_escapes_are_content_like_any_other():
    data = b"".join(answer_events([CALL])).replace(b"<", b"\\u003c").replace(b">", b"\\u003e")
    assert hear_stream(stream([data], prepared())[0]).calls


def test_a_native_call_behind_one_from_the_text_is_another_call():
    native = {"index": 0, "id": "n", "type": "function", "function": {"name": "glob", "arguments": '{"pattern'}}
    rest = {"index": 0, "function": {"arguments": '":"*"}'}}
    deltas = [{"content": CALL}, {"tool_calls": [native]}, {"tool_calls": [rest]}]
    out, exchange = stream([*map(event, deltas), event({}, "tool_calls"), DONE], prepared())
    calls = [(call["name"], call["arguments"]) for call in hear_stream(out).calls]
    assert calls == [("read", '{"filePath":"/a.py"}'), ("glob", '{"pattern":"*"}')]
    assert exchange.facts.mended["index_repeated"] == 2


def test_recovered_call_gives_way_to_a_native_one():
    native = {"index": 0, "id": "call_n", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    events = [
        event({"role": "assistant", "content": "x " + CALL}),
        event({"tool_calls": [native]}),
        event({}, "tool_calls"),
        DONE,
    ]
    out, exchange = stream(events, prepared(wait=True))
    assert out == b"".join(events)
    assert exchange.facts.native_calls == 1


def test_usage_and_unknown_fields_survive():
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    events = [
        event({"role": "assistant", "content": CALL, "reasoning_content": "hm", "x_own": 1}),
        event({}, "stop"),
        b"data: " + json.dumps({"id": "1", "choices": [], "usage": usage}).encode() + b"\n\n",
        DONE,
    ]
    out, exchange = stream(events, prepared())
    chunks = [chunk for chunk in chunks_of(out) if chunk]
    assert any(chunk["choices"] and chunk["choices"][0]["delta"].get("reasoning_content") == "hm" for chunk in chunks)
    assert chunks[-1]["usage"] == usage
    assert exchange.facts.usage == {"input": 3, "output": 4}


def test_cut_stream_becomes_an_error_event_and_its_text_comes_back():
    events = answer_events(["Hm. ", "<read>\n<filePath>/a"])[:3]
    heard = hear_stream(stream(events, prepared())[0])
    assert heard.error["code"] == "upstream_truncated"
    assert heard.content == "Hm. <read>\n<filePath>/a"
    assert not heard.done
    broken = hear_stream(stream(events, prepared(), UpstreamDisconnected("gone"))[0])
    assert broken.error["code"] == "upstream_disconnected"
    assert broken.content == heard.content


def test_cut_stream_makes_no_call_that_was_waiting():
    events = answer_events([CALL])[:2]
    heard = hear_stream(stream(events, prepared(wait=True))[0])
    assert heard.calls == []
    assert heard.content == CALL
    assert heard.error


def test_missing_done_is_added():
    events = answer_events(["hi"])[:-1]
    out, exchange = stream(events, prepared())
    assert out == b"".join(events) + DONE
    assert exchange.facts.mended["done_missing"] == 1


def test_missing_finish_before_done_still_delivers():
    events = [event({"role": "assistant", "content": CALL}), DONE]
    heard = hear_stream(stream(events, prepared())[0])
    assert heard.finish == "tool_calls"
    assert heard.done


@pytest.mark.parametrize("bad", [b"data: {broken\n\n", b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'])
def test_event_that_would_crash_clients_becomes_an_error(bad):
    out, _ = stream([*answer_events(["hi"])[:2], bad], prepared())
    assert hear_stream(out).error["code"] == "upstream_bad_reply"
    assert bad not in out


def test_event_without_end_is_bounded():
    out, _ = stream([b"data: " + b"x" * 5000], prepared(), limits=Limits(max_event_bytes=1000))
    assert hear_stream(out).error["code"] == "upstream_bad_reply"


def test_upstream_error_event_is_passed_and_ends_the_stream():
    fault = b'data: {"error": {"message": "overloaded", "code": "x"}}\n\n'
    out, exchange = stream([*answer_events(["<read>"])[:2], fault, DONE], prepared())
    assert out.endswith(fault)
    assert hear_stream(out).content == "<read>"
    assert exchange.finished


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_line_ends_bom_comments_and_a_last_event_without_blank_line(newline):
    data = b"\xef\xbb\xbf: hello\n\n" + b"".join(answer_events([CALL]))
    data = data.rstrip(b"\n").replace(b"\n", newline)
    for parts in ([data], [data[at : at + 1] for at in range(len(data))]):
        out, _ = stream([bytes(part) for part in parts], prepared())
        heard = hear_stream(out)
        assert heard.calls
        assert heard.done
        assert not out.startswith(b"\xef\xbb\xbf")


def test_incremental_arguments_flow_and_add_up():
    text = (
        "<think></think>Ok.\n<write>\n<filePath>/a</filePath>\n<content>\n" + "line <b>\n" * 20 + "</content>\n</write>"
    )
    events = answer_events([text[at : at + 4] for at in range(0, len(text), 4)])
    out, exchange = stream(events, prepared(stream_arguments="incremental"))
    buffered, _ = stream(events, prepared())
    assert hear_stream(out).meaning == hear_stream(buffered).meaning
    arguments = [chunk for chunk in chunks_of(out) if chunk and chunk["choices"][0]["delta"].get("tool_calls")]
    assert len(arguments) > 20
    assert exchange.facts.held_bytes_max < 10_000


def test_incremental_call_that_breaks_ends_in_an_error_and_no_completed_call():
    events = answer_events(["<think></think>\n<write>\n<filePath>/a</filePath>\n<content>\nrm -r"], "length")
    out, exchange = stream(events, prepared(stream_arguments="incremental"))
    heard = hear_stream(out)
    assert heard.error
    assert not heard.done
    with pytest.raises(json.JSONDecodeError):
        json.loads(heard.calls[0]["arguments"])
    assert exchange.facts.broken


NATIVE = {"index": 0, "type": "function", "function": {"name": "read", "arguments": {"filePath": "/a"}}}


def choices(*deltas, finish=None):
    found = [{"index": at, "delta": delta, "finish_reason": finish} for at, delta in enumerate(deltas)]
    return b"data: " + json.dumps({"id": "1", "choices": found}).encode() + b"\n\n"


@pytest.mark.parametrize("tools", [None, "read"])
def test_native_faults_are_mended_in_any_stream(tools):
    how = prepared(tools=None) if tools is None else prepared(wait=True)
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    events = [event({"tool_calls": [NATIVE]}, usage=usage), event({}, "stop"), DONE]
    out, exchange = stream(events, how)
    heard = hear_stream(out)
    assert heard.calls[0]["arguments"] == '{"filePath":"/a"}'
    assert heard.finish == "tool_calls"
    assert exchange.facts.mended["arguments_object"] == 1
    assert exchange.facts.mended["finish_reason"] == 1
    chunks = [chunk for chunk in chunks_of(out) if chunk]
    assert "usage" not in chunks[0]
    assert chunks[-1]["usage"] == usage
    assert chunks[-1]["choices"] == []


def test_chunk_of_a_shape_nobody_knows_goes_on_as_it_came():
    odd = b'data: {"choices": "none", "x": 1}\n\n'
    events = [odd, *answer_events(["hi"])]
    assert stream(events, prepared())[0] == b"".join(events)


def test_half_a_character_in_an_event_is_passed_on():
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "\\ud83d"}, "finish_reason": null}]}\n\n'
    events = [half, *answer_events(["hi"])]
    out, exchange = stream(events, prepared())
    assert out == b"".join(events)
    assert exchange.facts.failure is None


def test_comments_keep_their_place():
    events = [b": ping\n\n", *answer_events(["hi <re"])[:2], b": ping\n\n", *answer_events(["ad"])[1:]]
    assert stream(events, prepared())[0] == b"".join(events)


def test_held_events_that_all_differ_are_bounded_and_their_text_is_not_lost():
    text = "<write>\n<filePath>/a</filePath>\n<content>\n" + "x" * 40_000
    parts = [text[at : at + 10] for at in range(0, len(text), 10)]
    pad = "p" * 1500
    events = [event({"content": part}, nonce=f"{at}{pad}") for at, part in enumerate(parts)]
    out, exchange = stream([*events, event({}, "stop"), DONE], prepared())
    assert hear_stream(out).content == text
    assert exchange.facts.held_bytes_max < 6 << 20


def test_nothing_is_read_behind_the_end():
    exchange = stream(answer_events(["hi"]), prepared())[1]
    assert exchange.feed(event({"content": "more"})) == b""
    assert exchange.finish() == b""


def test_empty_answer_is_a_truncated_one():
    assert hear_stream(stream([], prepared())[0]).error["code"] == "upstream_truncated"


def test_bad_last_event_without_its_end_becomes_an_error():
    out, _ = stream([*answer_events(["hi"])[:2], b"data: {broken"], prepared())
    assert hear_stream(out).error["code"] == "upstream_bad_reply"


def test_whole_answer_with_native_faults_is_mended():
    call = {"type": "function", "function": {"name": "read", "arguments": {"filePath": "/a"}}}
    out, exchange = whole(answer_body(None, "stop", tool_calls=[call]), prepared(tools=None))
    heard = hear_body(out)
    assert heard.calls[0]["arguments"] == '{"filePath":"/a"}'
    assert heard.finish == "tool_calls"
    assert exchange.facts.native_calls == 1
    right = answer_body(
        None, "tool_calls", tool_calls=[{**call, "id": "c", "function": {"name": "r", "arguments": ""}}]
    )
    assert whole(right, prepared(tools=None))[0] == right


def test_whole_answer_that_is_no_object_is_refused():
    with pytest.raises(UpstreamBadReply):
        whole(b"[1]", prepared())
    assert whole(b'{"choices": [1, {"message": 2}]}', prepared())[0] == b'{"choices": [1, {"message": 2}]}'


def test_long_whole_answer_is_read_in_steps():
    exchange = whole(answer_body("short"), prepared())[1]
    results = []

    def working():
        results.append((yield from exchange.steps(answer_body("word " * 20_000 + "\n" + CALL))))

    assert len(list(working())) > 3
    assert hear_body(results[0]).calls


def structured(arguments, **more):
    call = {"index": 0, "id": "call_x", "type": "function", "function": {"name": "read", "arguments": arguments}}
    return event({"role": "assistant", "content": None, "tool_calls": [call]}, **more)


@pytest.mark.parametrize("odd", [5, True, 1.5])
@pytest.mark.parametrize("how", [prepared(tools=None), prepared(wait=True)])
def test_arguments_of_an_unheard_of_kind_are_the_upstreams_affair(odd, how):
    parts = [structured(odd), event({}, "tool_calls"), DONE]
    out, exchange = stream(parts, how)
    assert out == b"".join(parts)
    assert exchange.facts.native_calls == 1


def test_an_empty_finish_reason_is_none():
    parts = [event({"role": "assistant", "content": CALL[:9]}, ""), event({"content": CALL[9:]}, ""), event({}, "stop")]
    heard = hear_stream(stream([*parts, DONE], prepared())[0])
    assert ([call["name"] for call in heard.calls], heard.finish) == (["read"], "tool_calls")
    cut = hear_stream(stream(parts[:1], prepared())[0])
    assert (cut.content, cut.calls, cut.error["code"]) == (CALL[:9], [], "upstream_truncated")
    whole_one = hear_body(whole(answer_body(CALL, ""), prepared())[0])
    assert ([call["name"] for call in whole_one.calls], whole_one.finish) == (["read"], "tool_calls")


@pytest.mark.parametrize("how", [prepared(tools=None), prepared()])
def test_half_a_character_in_a_whole_answer_is_passed_on(how):
    body = b'{"choices":[{"message":{"role":"assistant","content":"a \\ud83d"},"finish_reason":"stop"}]}'
    assert whole(body, how)[0] == body


@pytest.mark.parametrize("usage", [5, "", "none", [1], True, 10**400, {"prompt_tokens": 10**400}])
@pytest.mark.parametrize("how", [prepared(tools=None), prepared()])
def test_a_usage_that_is_none_is_the_upstreams_affair(usage, how):
    parts = [event({"content": "hello"}), event({}, "stop", usage=usage), DONE]
    out, exchange = stream(parts, how)
    assert out == b"".join(parts)
    assert exchange.facts.usage == {}


DRAFTED = "<read>\n<filePath>/draft</filePath>\n</read>\nNo.\n</think>\n\n"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("text", ["Need it.", "", None])
def test_a_call_waits_for_the_end_of_reasoning_unless_that_has_a_field_of_its_own(name: str, text: Any):
    events = [event({"role": "assistant", name: text}), *answer_events([DRAFTED, CALL])[1:]]
    body = answer_body(DRAFTED + CALL, **{name: text})
    for how in (prepared(), prepared(stream_arguments="incremental")):
        heard = hear_stream(stream(events, how)[0])
        assert [call["name"] for call in heard.calls] == ["read"] * (2 if text else 1)
        assert heard.meaning == hear_body(whole(body, how)[0]).meaning
        exchange = StreamExchange(how, make_id=numbered_ids(), limits=Limits())
        out = b"".join(map(exchange.feed, events[:1] + answer_events([CALL, "\nN"])[1:3]))
        assert (b'"tool_calls"' in out) == bool(text)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([event({"role": "assistant", "content": ""})], False),
        ([event({"reasoning_content": "so"})], False),
        ([event({"content": "<re"})], False),
        ([event({"content": "<re"}), event({"content": "al>"})], True),
        ([event({"content": "Well"})], True),
        ([event({"tool_calls": [{"index": 0, "id": "n", "function": {"name": "read", "arguments": ""}}]})], True),
    ],
)
def test_it_is_known_whether_the_client_has_seen_any_of_it(events: list[bytes], expected: bool) -> None:
    exchange = StreamExchange(prepared(), make_id=numbered_ids(), limits=Limits())
    for data in events:
        exchange.feed(data)
    assert exchange.has_spoken is expected


@pytest.mark.parametrize("cut", range(1, len("\n</read>")))
def test_a_call_whose_end_an_untold_end_took_is_no_call(cut):
    """All its values are there: had the model stopped here, it would be one."""
    cut_off = CALL[:-cut]
    for end, failure in (([], "upstream_truncated"), ([event({}, "length"), DONE], None)):
        out, exchange = stream([event({"content": cut_off}), *end], prepared())
        assert exchange.facts.failure == failure
        assert (hear_stream(out).content, hear_stream(out).calls) == (cut_off, [])
