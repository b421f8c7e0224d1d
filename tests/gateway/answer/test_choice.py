"""One choice of an answer: read by itself among others, its calls numbered, and calls of its reasoning."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.answer.stages.thoughts import Thoughts
from gateway.answer.stream import StreamExchange
from gateway.core.errors import UpstreamBadReply, UpstreamDisconnected
from gateway.core.events import IN_REASONING
from gateway.core.limits import Limits
from gateway.wire.chat_chunks import REASONING_FIELDS, Delta
from tests.gateway.answer.test_second_answer import OPEN, Streamed, Whole
from tests.gateway.answer.test_second_answer import prepared as asking
from tests.gateway.answer.test_stream import CALL, NATIVE, choices, per_character
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
from tests.support.cost import steps
from tests.support.golden import cases

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


# --- Calls inside reasoning fields: what stands at the very end was meant, all else was only thought


HERMES = '<tool_call>\n{"name": "read", "arguments": {"filePath": "a.py"}}\n</tool_call>'
CODER = "<tool_call>\n<function=read>\n<parameter=filePath>\na.py\n</parameter>\n</function>\n</tool_call>"
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    '{"filePath": "a.py"}<|tool_call_end|><|tool_calls_section_end|>'
)
DSML = (
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n<｜DSML｜parameter name="filePath" string="true">a.py'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
)
TAGS = "<read>\n<filePath>a.py</filePath>\n</read>"
READS = ("read", {"filePath": "a.py"})
WAYS = {
    "recovery": prepared(prompted=None, wait=True, reasons=True),
    "prompted": prepared(first_only=True, reasons=True),
    "incremental": prepared(stream_arguments="incremental", reasons=True),
}

CALLS = {
    "alone": HERMES,
    "behind words": f"I have to look at it first.\n\n{HERMES}\n",
    "in the line of words": f"Let me look at it. {HERMES}",
    "qwen": f"Look.\n{CODER}",
    "kimi": f"Look.{KIMI}",
    "deepseek": f"Look.\n\n{DSML}",
    "its reasoning ends behind it": f"Look.\n{HERMES}\n</think>\n\n",
    "its reasoning ends in front of it": f"Look.\n</think>\n\n{HERMES}",
    "another family's end": f"Look.\n{HERMES}[/THINK]",
    "the end of a turn": f"Look.\n{HERMES}<|im_end|>",
    "a closer too many": f"Look.\n{CODER}</tool_call>\n",
    "a draft before it": f"Either\n{HERMES.replace('a.py', 'b.py')}\nor rather this.\n{HERMES}",
}
NO_CALLS = {
    "a draft": f"I could do\n{HERMES}\nbut I have what I need.",
    "words behind its reasoning": f"Look.\n{HERMES}\n</think>\n\nIt is done.",
    "not complete": f"Look.\n{HERMES[:-30]}",
    "tags": f"Look.\n{TAGS}",
    "bare data": 'Look.\n{"name": "read", "arguments": {"filePath": "a.py"}}',
    "in a fence": f"Look.\n```xml\n{HERMES}\n```",
    "in a fence that is not closed": f"Look.\n```\n{HERMES}",
    "in code": f"I write `{HERMES}`",
    "an example": f"A call looks like this, for example:\n\n{HERMES}\n\nWhat a form.",
    "of no tool": f"Look.\n{HERMES.replace('read', 'launch')}",
    "without what is required": "Look.\n" + HERMES.replace("filePath", "limit").replace('"a.py"', "3"),
    "half a marker": "Look.\n<tool_call",
    "nothing": "I have nothing to say.",
    "white space": "\n \n",
}


def thought(text: str, size: int = 5, field: str = "reasoning_content") -> list[bytes]:
    return [event({field: text[at : at + size]}) for at in range(0, len(text), size)]


def answer(*middle: bytes, finish: str = "stop") -> list[bytes]:
    return [event({"role": "assistant", "content": ""}), *middle, event({}, finish), DONE]


def said(text: str, finish: str = "stop", **message: Any) -> bytes:
    return answer_body(None, finish, reasoning_content=text, **message)


def calls_of(heard: Any) -> list[tuple[str, Any]]:
    return [(call["name"], json.loads(call["arguments"])) for call in heard.calls]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", CALLS.values(), ids=CALLS)
def test_a_call_at_the_end_of_reasoning_is_a_call(text: str, way: str):
    events = answer(*thought(text))
    out, exchange = stream(events, WAYS[way])
    heard = hear_stream(out)
    assert (calls_of(heard), heard.finish, heard.content) == ([READS], "tool_calls", None)
    assert out.startswith(b"".join(events[:-2])), "the field is the model server's own"
    assert heard.done
    (call,) = exchange.facts.calls
    assert IN_REASONING in call.verdict.reasons

    body, read = whole(said(text), WAYS[way])
    heard = hear_body(body)
    assert (calls_of(heard), heard.finish, heard.content) == ([READS], "tool_calls", None)
    assert json.loads(body)["choices"][0]["message"]["reasoning_content"] == text
    assert [IN_REASONING in each.verdict.reasons for each in read.facts.calls] == [True]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS)
@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
def test_what_was_only_thought_is_nothing(text: str, way: str, finish: str):
    events = answer(*thought(text), finish=finish)
    out, exchange = stream(events, WAYS[way])
    assert out == b"".join(events)
    body = said(text, finish)
    assert whole(body, WAYS[way])[0] == body
    assert (exchange.facts.calls, exchange.facts.refused) == ([], [])


CALLED = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]}
LEGACY = {"function_call": {"name": "bash", "arguments": "{}"}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
@pytest.mark.parametrize(
    "other", [{"content": "Done."}, CALLED, LEGACY, {"refusal": "I cannot."}, {"audio": {"id": "a"}}], ids=str
)
def test_where_anything_else_came_reasoning_is_not_read(other: dict[str, Any], finish: str, way: str):
    for events in (
        answer(*thought(HERMES), event(other), finish=finish),
        answer(event(other), *thought(HERMES), finish=finish),
    ):
        heard = hear_stream(stream(events, WAYS[way])[0])
        assert [call["name"] for call in heard.calls if call["name"] == "read"] == []
        assert heard.content == other.get("content")
    message = {"content": None, **other}
    body, _ = whole(answer_body(finish=finish, reasoning_content=HERMES, **message), WAYS[way])
    assert [name for name, _ in calls_of(hear_body(body)) if name == "read"] == []


@pytest.mark.parametrize("finish", ["length", "content_filter", "cut", ""])
def test_an_answer_that_did_not_end_by_itself_is_not_read(finish: str):
    events = answer(*thought(HERMES), finish=finish)
    assert stream(events, WAYS["recovery"])[0] == b"".join(events)
    body = said(HERMES, finish)
    assert whole(body, WAYS["recovery"])[0] == body


def test_a_stream_that_breaks_off_makes_no_call():
    events = answer(*thought(HERMES))[:-2]
    out, _ = stream(events, WAYS["recovery"], UpstreamDisconnected("gone"))
    assert out.startswith(b"".join(events))
    assert hear_stream(out).calls == []
    out, _ = stream([*events, DONE], WAYS["recovery"])
    assert hear_stream(out).calls == [], "nobody said that it was over"


def test_a_request_that_does_not_want_it_is_left_alone():
    how = prepared(prompted=None, wait=True)
    events = answer(*thought(HERMES))
    assert stream(events, how)[0] == b"".join(events)
    assert whole(said(HERMES), how)[0] == said(HERMES)


def test_a_structured_call_behind_the_finish_takes_its_place():
    late = event({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "bash"}}]})
    out, _ = stream([*answer(*thought(HERMES))[:-1], late, DONE], WAYS["recovery"])
    assert b'"read"' not in out


@pytest.mark.parametrize("field", REASONING_FIELDS)
def test_each_of_the_fields_is_read(field: str):
    out, _ = stream(answer(*thought(HERMES, field=field)), WAYS["recovery"])
    assert calls_of(hear_stream(out)) == [READS]
    assert calls_of(hear_body(whole(answer_body(None, **{field: HERMES}), WAYS["recovery"])[0])) == [READS]


def test_what_is_told_in_two_fields_is_one_call():
    both = [event({"reasoning": part, "reasoning_content": part}) for part in (HERMES[:20], HERMES[20:])]
    out, _ = stream(answer(*both), WAYS["recovery"])
    assert calls_of(hear_stream(out)) == [READS]


@pytest.mark.parametrize("way", WAYS)
def test_the_cuts_do_not_matter(way: str):
    rng = random.Random(5)
    for text in (*CALLS.values(), *NO_CALLS.values()):
        wanted = hear_stream(stream(answer(*thought(text)), WAYS[way])[0]).meaning
        for _ in range(4):
            cuts = sorted({0, len(text), *(rng.randrange(len(text)) for _ in range(rng.randint(0, 9)))})
            parts = [event({"reasoning": text[one:other]}) for one, other in pairwise(cuts)]
            data = b"".join(answer(*parts))
            places = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(5))})
            pieces = [data[one:other] for one, other in pairwise(places)]
            assert hear_stream(stream(pieces, WAYS[way])[0]).meaning == wanted


def test_all_calls_at_the_end_go_out_unless_one_is_wanted():
    second = HERMES.replace("a.py", "b.py")
    heard = hear_stream(stream(answer(*thought(f"Both.\n{HERMES}\n{second}")), WAYS["recovery"])[0])
    assert calls_of(heard) == [READS, ("read", {"filePath": "b.py"})]
    assert len({call["id"] for call in heard.calls}) == 2
    out, exchange = stream(answer(*thought(f"Both.\n{HERMES}\n{second}")), WAYS["prompted"])
    assert (calls_of(hear_stream(out)), exchange.facts.undelivered) == ([READS], 1)


def test_several_choices_are_read_each_by_itself():
    parts = [
        event({"reasoning": HERMES}, index=0),
        event({"reasoning": f"{HERMES} but no"}, index=1),
        event({"content": "Hello"}, index=2),
        event({"reasoning": HERMES.replace("a.py", "d.py")}, index=3),
        *(event({}, "stop", index=index) for index in (3, 1, 2, 0)),
        DONE,
    ]
    out, _ = stream(parts, WAYS["recovery"])
    found = [hear_stream(out, index) for index in range(4)]
    assert [calls_of(each) for each in found] == [[READS], [], [], [("read", {"filePath": "d.py"})]]
    assert [each.finish for each in found] == ["tool_calls", "stop", "stop", "tool_calls"]


def test_white_space_is_no_content():
    blank = [event({"content": "\n"}), event({"content": "\n"})]
    for events in (answer(*blank, *thought(HERMES)), answer(*thought(HERMES), *blank)):
        assert calls_of(hear_stream(stream(events, WAYS["recovery"])[0])) == [READS]
    assert calls_of(hear_body(whole(answer_body("\n\n", reasoning=HERMES), WAYS["recovery"])[0])) == [READS]


def test_events_that_bring_the_finish_or_the_usage_with_the_last_thought():
    last = event({"reasoning": HERMES[30:]}, "stop", usage={"completion_tokens": 9})
    out, exchange = stream([event({"role": "assistant", "reasoning": HERMES[:30]}), last, DONE], WAYS["recovery"])
    heard = hear_stream(out)
    assert (calls_of(heard), heard.finish, heard.roles) == ([READS], "tool_calls", ["assistant"])
    told = "".join(
        choice["delta"].get("reasoning") or ""
        for line in out.split(b"\n\n")
        if line.startswith(b"data: {")
        for choice in json.loads(line[6:])["choices"]
    )
    assert told == HERMES
    assert exchange.facts.usage == {"output": 9}


def test_a_long_thought_is_read_in_turns_and_one_too_long_not_at_all():
    exchange = StreamExchange(WAYS["recovery"], make_id=numbered_ids(), limits=Limits())
    exchange.feed(b"".join(answer(*thought("I think < so. " * 20_000 + "\n" + HERMES, 9000))[:-1]))
    out, turns = exchange.step(DONE), 0
    while exchange.busy:
        out, turns = out + exchange.step(), turns + 1
    assert turns > 20
    assert calls_of(hear_stream(out + exchange.finish())) == [READS]

    thoughts = Thoughts()
    for _ in range(5):
        thoughts.add(Delta(reasoning=b'"%b"' % (b"x" * (1 << 20))))  # type: ignore[arg-type]
    assert thoughts.is_full
    events = answer(*thought("x" * (5 << 20), 1 << 20), event({"reasoning": f"\n{HERMES}"}))
    assert stream(events, WAYS["recovery"])[0] == b"".join(events)


def read_as(text: str, **fields: Any) -> list[tuple[str, Any]]:
    """The calls of a whole answer that holds this and no more."""
    return calls_of(hear_body(whole(answer_body(**{"content": None, **fields}), WAYS["recovery"])[0])) if text else []


def test_texts_that_are_no_calls_are_none_in_reasoning_either():
    negatives = Path(__file__).parents[2] / "data" / "negatives.jsonl"
    texts = [json.loads(line)["text"] for line in negatives.read_text(encoding="utf-8").split("\n") if line]
    assert len(texts) > 500
    for text in texts:
        assert whole(said(text), WAYS["recovery"])[0] == said(text)


def test_what_models_wrote_is_in_reasoning_what_it_is_in_an_answer_or_nothing():
    found = 0
    for case in cases()[::3]:
        calls = read_as(case.text, reasoning=case.text)
        if calls:
            found += 1
            wanted = read_as(case.text, content=case.text)
            assert [call for call in wanted if call in calls][-len(calls) :] == calls, case.id
        thought = f"{case.text}\n\nBut wait, I know that already."
        assert read_as(thought, reasoning=thought) == [], case.id
    assert found > 60, "too few to show anything"


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_says_what_the_whole_answer_says(way: str):
    """Whatever comes beside the reasoning, before it or behind it, and however it ends."""
    rng = random.Random(way)
    thoughts = (
        *CALLS.values(),
        *NO_CALLS.values(),
        "",
        HERMES + "\n" + HERMES,
        HERMES + HERMES.replace("a.py", "c.py"),
    )
    given = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"filePath":"a.py"}'}}
    other = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    for _ in range(120):
        message: dict[str, Any] = {"content": rng.choice(("", "", None, " \n", "Done.", f"Look.\n{HERMES}"))}
        if thought_of := rng.choice(thoughts):
            message["reasoning_content"] = thought_of
        if rng.random() < 0.3:
            message["tool_calls"] = [rng.choice((given, other))]
        finish = rng.choice(("stop", "tool_calls", "length", "function_call"))
        deltas = [{"content": message["content"]}] if message["content"] else []
        deltas += [{"tool_calls": [{"index": 0, **call}]} for call in message.get("tool_calls", ())]
        text = message.get("reasoning_content", "")
        deltas += [{"reasoning_content": text[at : at + 7]} for at in range(0, len(text), 7)]
        if rng.random() < 0.7:  # some servers think first, some tell it last
            deltas = [
                *(each for each in deltas if "reasoning_content" in each),
                *(each for each in deltas if "reasoning_content" not in each),
            ]
        streamed = hear_stream(stream(answer(*map(event, deltas), finish=finish), WAYS[way])[0])
        told = hear_body(whole(answer_body(message.pop("content"), finish, **message), WAYS[way])[0])
        assert (calls_of(streamed), streamed.finish) == (calls_of(told), told.finish), (message, finish)
        assert (streamed.content or "").strip() == (told.content or "").strip()


@pytest.mark.parametrize("way", WAYS)
def test_ends_that_are_told_twice_or_late_make_one_call(way: str):
    end = event({}, "stop")
    usage = event({}, usage={"completion_tokens": 3})
    for events in (
        [*thought(HERMES), end, end, DONE],
        [*thought(HERMES), end, usage, end, DONE],
        [*thought(HERMES[:40]), end, *thought(HERMES[40:]), DONE],
        [*thought(HERMES), event({}, "tool_calls"), b": alive\n\n", DONE],
        [*thought(HERMES), end],
    ):
        out, exchange = stream(events, WAYS[way])
        assert [json.loads(arguments) for arguments in arguments_in(out)] == [READS[1]]
        assert len(exchange.facts.calls) == 1
    out, _ = stream([*thought(HERMES), end, *thought(" But no."), DONE], WAYS[way])
    assert arguments_in(out) == []


def arguments_in(out: bytes) -> list[str]:
    """The arguments of each call in a stream, however its ends are told."""
    found: dict[int, str] = {}
    for chunk in chunks_of(out):
        for choice in (chunk or {}).get("choices", []):
            for call in choice["delta"].get("tool_calls") or []:
                found[call["index"]] = found.get(call["index"], "") + call["function"].get("arguments", "")
    return list(found.values())


def test_an_error_behind_the_end_does_not_take_the_call_back():
    out, _ = stream([*thought(HERMES), event({}, "stop"), b'data: {"error": {"message": "no"}}\n\n'], WAYS["recovery"])
    assert (len(arguments_in(out)), hear_stream(out).error) == (1, {"message": "no"})
