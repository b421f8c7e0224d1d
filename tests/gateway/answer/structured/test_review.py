"""Structured calls held to what was declared, streamed at every cut and whole: right, asked again, or as they came."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.answer.body import BodyExchange
from gateway.answer.stream import StreamExchange
from gateway.core.limits import Limits
from gateway.core.tools import ToolSet
from gateway.wire.chat_request import parse_request
from strategies.base import CallTerms, Options, Prepared
from strategies.native import NativeStrategy
from strategies.recovery import RecoveryStrategy
from strategies.structured.judge import judge
from tests.support.chat import DONE, answer_body, event, hear_body, hear_stream, numbered_ids

READ = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["path"],
    "additionalProperties": False,
}
WRITE = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}
    for name, schema in (("read_it", READ), ("write", WRITE), ("now", {"type": "object", "properties": {}}))
]
REQUEST = parse_request(
    json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}).encode()
)
RIGHT = '{"path":"a"}'
RIGHTS = [RIGHT, '{"limit": null, "path":"ä\\n"}', ' {"path" : "a", "tags": ["x"] }\n', '{"path":"a","deep":false}']
MENDED = {
    '{"path":"a","limit":5,}': {"path": "a", "limit": 5},
    "{'path': 'a', 'deep': True}": {"path": "a", "deep": True},
    '```json\n{"path":"a"}\n```': {"path": "a"},
    '"{\\"path\\":\\"a\\"}"': {"path": "a"},
    "<parameter=path>a</parameter>\n<parameter=limit>5</parameter>": {"path": "a", "limit": 5},
    '{"path":"a"}{"path":"a"}': {"path": "a"},
    '{}{"path":"a"}': {"path": "a"},
    '{"path":"a","limit":"5"}': {"path": "a", "limit": 5},
    '{"path":"a","tags":"[\\"x\\"]"}': {"path": "a", "tags": ["x"]},
    '{"path":"a","deep":"True"}': {"path": "a", "deep": True},
    '{"Path":"a"}': {"path": "a"},
    '{"path":7}': {"path": "7"},
}
BROKEN = [
    '{"path":"a","limit":5',
    '{"path":"a","limit":"five"}',
    '{"path":"a","more":1}',
    "{}",
    "null",
    "[]",
    "read a",
    '{"path":"a"}{"path":"b"}',
]


def prepared(strategy: Any = None, *, mends: bool = True, **terms: Any) -> Prepared:
    result: Prepared = (strategy or RecoveryStrategy()).prepare(REQUEST, Options())
    return replace(result, calls=CallTerms(tools=REQUEST.tools, mends=mends, **terms))


def entry(
    arguments: str | None, *, name: str | None = None, index: int = 0, call_id: str | None = None
) -> dict[str, Any]:
    """One entry of `tool_calls` in a delta."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    found: dict[str, Any] = {"index": index, "function": function}
    return {"id": call_id, "type": "function", **found} if call_id else found


def streamed(pieces: Sequence[str], *, name: str = "read_it", index: int = 0, call_id: str = "c1") -> list[bytes]:
    """One call in pieces, as most servers tell it."""
    first = event({"tool_calls": [entry("", name=name, index=index, call_id=call_id)]})
    return [first, *(event({"tool_calls": [entry(piece, index=index)]}) for piece in pieces)]


def stream_of(*calls: list[bytes], finish: str = "tool_calls", before: Sequence[bytes] = ()) -> list[bytes]:
    head = [event({"role": "assistant", "content": None}), *before]
    return [*head, *(each for call in calls for each in call), event({}, finish), DONE]


def whole_of(*calls: tuple[str, str], content: str | None = None, finish: str = "tool_calls") -> bytes:
    return answer_body(
        content,
        finish,
        tool_calls=[
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(calls, 1)
        ],
    )


SECOND = whole_of(("read_it", RIGHT))


class Run:
    """An answer that goes through, asked again with a second one as often as it wants."""

    def __init__(
        self, parts: Sequence[bytes] | bytes, how: Prepared, second: bytes | None = None, *, asks: int = 1
    ) -> None:
        self.asked: list[Any] = []
        if isinstance(parts, bytes):
            body = BodyExchange(how, make_id=numbered_ids(), limits=Limits(), asks=asks)
            self.exchange: StreamExchange | BodyExchange = body
            self.out = body.transform(parts)
            self._ask(second, whole=True)
            self.heard = hear_body(self.out)
        else:
            stream = StreamExchange(how, make_id=numbered_ids(), limits=Limits(), asks=asks)
            self.exchange = stream
            self.outs = [stream.feed(part) for part in parts]
            self.out = b"".join(self.outs)
            self._ask(second, whole=False)
            self.out += stream.finish()
            assert not stream.held
            self.heard = hear_stream(self.out)
        self.facts = self.exchange.facts

    def _ask(self, second: bytes | None, *, whole: bool) -> None:
        while (wanted := self.exchange.ask_again) is not None:
            self.asked.append(json.loads(wanted.body()))
            more = self.exchange.no_second_answer() if second is None else self.exchange.second_answer(second)
            self.out = more if whole else self.out + more

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(call["name"], call["arguments"]) for call in self.heard.calls]

    @property
    def classes(self) -> dict[str, int]:
        return {each.value: number for each, number in self.facts.structured.classes.items()}


def cuts(text: str) -> list[list[str]]:
    """The text whole, in two pieces at every place, and character by character."""
    return [[text], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))]


@pytest.mark.parametrize("strategy", [RecoveryStrategy(), NativeStrategy()])
@pytest.mark.parametrize("arguments", RIGHTS)
def test_what_is_right_goes_out_byte_for_byte(arguments: str, strategy: Any) -> None:
    for pieces in cuts(arguments):
        parts = stream_of(streamed(pieces))
        run = Run(parts, prepared(strategy))
        assert run.out == b"".join(parts)
        assert run.classes == {"valid": 1}
        assert not run.facts.structured.outcomes
    body = whole_of(("read_it", arguments))
    assert Run(body, prepared(strategy)).out == body


@pytest.mark.parametrize(("arguments", "meant"), MENDED.items())
def test_what_can_mean_one_thing_is_told_so(arguments: str, meant: Any) -> None:
    runs = [Run(stream_of(streamed(pieces)), prepared()) for pieces in cuts(arguments)]
    for run in [*runs, Run(whole_of(("read_it", arguments)), prepared())]:
        assert [(name, json.loads(text)) for name, text in run.told] == [("read_it", meant)]
        assert run.heard.calls[0]["id"] == "c1"
        assert run.heard.finish == "tool_calls"
        assert run.asked == []
        assert run.facts.structured.outcomes == {"mended": 1}
        assert "valid" not in run.classes


@pytest.mark.parametrize("second", [SECOND, None, answer_body("No."), whole_of(("write", '{"path":"a","content":""}'))])
@pytest.mark.parametrize("arguments", BROKEN)
def test_what_cannot_be_told_is_asked_again_and_else_goes_out_as_it_came(arguments: str, second: bytes | None) -> None:
    for pieces in cuts(arguments):
        parts = stream_of(streamed(pieces))
        run = Run(parts, prepared(), second)
        assert len(run.asked) == 1
        said = run.asked[0]["messages"][-1]
        assert said["role"] == "tool"
        assert said["content"].startswith("Error: the tool was not run: ")
        if second is SECOND:
            assert run.told == [("read_it", RIGHT)]
            assert run.facts.structured.outcomes == {"asked": 1}
        else:
            assert run.out == b"".join(parts)
            assert run.facts.structured.outcomes == {"untouched": 1}
    body = whole_of(("read_it", arguments))
    run = Run(body, prepared(), second)
    assert len(run.asked) == 1
    if second is SECOND:
        assert run.told == [("read_it", RIGHT)]
    else:
        assert run.out == body


@pytest.mark.parametrize("arguments", [*RIGHTS, *MENDED, *BROKEN])
def test_what_is_only_counted_is_not_touched(arguments: str) -> None:
    wanted = judge("read_it", arguments, REQUEST.tools).call_class
    for pieces in cuts(arguments):
        parts = stream_of(streamed(pieces))
        run = Run(parts, prepared(mends=False), SECOND)
        assert run.out == b"".join(parts)
        assert run.outs == parts
        assert run.classes == {wanted.value: 1}
        assert run.asked == []
    assert Run(whole_of(("read_it", arguments)), prepared(mends=False)).classes == {wanted.value: 1}


def test_the_name_goes_out_at_once_and_the_arguments_when_they_are_whole() -> None:
    parts = stream_of(streamed(['{"path"', ':"a"}']))
    run = Run(parts, prepared())
    assert run.outs[:2] == parts[:2]
    assert run.outs[2:4] == [b"", b""]
    assert run.outs[4] == b"".join(parts[2:5])


def test_an_unknown_name_waits_for_the_whole_call() -> None:
    parts = stream_of(streamed([RIGHT], name="open_it"))
    run = Run(parts, prepared(), SECOND)
    assert run.outs[1:4] == [b"", b"", b""]
    assert run.told == [("read_it", RIGHT)]
    assert run.heard.calls[0]["id"] == "c1"
    assert "there is no such tool" in run.asked[0]["messages"][-1]["content"]
    assert run.classes == {"unknown_name": 1}
    assert Run(parts, prepared(), None).out == b"".join(parts)


@pytest.mark.parametrize("arguments", [RIGHT, '{"path":"a","limit":"5",}'])
@pytest.mark.parametrize(("names", "places"), [(["", "read_it"], 1), (["rea", "d_", "it"], 1), (["", "read_it"], 2)])
def test_a_name_that_comes_late_stands_where_the_call_begins(arguments: str, names: list[str], places: int) -> None:
    first, *more = [event({"tool_calls": [entry("", name=name)]}) for name in names]
    first = event({"tool_calls": [entry("", name=names[0], call_id="c1")]})
    written = [event({"tool_calls": [entry(piece)]}) for piece in (arguments[:4], arguments[4:])]
    call = [first, *more, *written] if places == 1 else [first, written[0], *more, written[1]]
    how = replace(prepared(), rename=lambda name: name if name == "read_it" else None)
    run = Run(stream_of(call), how)
    wanted = json.loads(arguments.replace('"5",', "5"))
    assert [(name, json.loads(text)) for name, text in run.told] == [("read_it", wanted)]


def test_a_long_file_is_not_held_beyond_four_kib() -> None:
    text = json.dumps({"path": "a", "content": "x" * 20_000})
    pieces = [text[at : at + 100] for at in range(0, len(text), 100)]
    parts = stream_of(streamed(pieces, name="write"))
    run = Run(parts, prepared())
    assert run.out == b"".join(parts)
    held = 0
    for part, out in zip(parts, run.outs, strict=True):
        held += len(part) - len(out)
        assert held < 41 * len(parts[5])
    assert all(out == part for out, part in zip(run.outs[45:-2], parts[45:-2], strict=True))


@pytest.mark.parametrize("wrong", ['{"file_path":"a","content":', '{"arguments":{"path":"a","content":'])
def test_a_long_file_waits_whose_other_names_the_tool_would_take(wrong: str) -> None:
    text = wrong + json.dumps("x" * 6_000) + "}" * wrong.count("{")
    run = Run(stream_of(streamed([text[at : at + 100] for at in range(0, len(text), 100)], name="write")), prepared())
    assert json.loads(run.told[0][1]) == {"path": "a", "content": "x" * 6_000}


def test_what_turns_out_wrong_later_goes_out_as_it_came() -> None:
    text = '{"path": "a", "content": "' + "x" * 6_000 + '", "content": 5}'
    parts = stream_of(streamed([text[at : at + 100] for at in range(0, len(text), 100)], name="write"))
    run = Run(parts, prepared(), SECOND)
    assert run.out == b"".join(parts)
    assert run.asked == []
    assert run.classes == {"schema_mismatch": 1}
    assert run.facts.structured.outcomes == {"late": 1}


def test_what_is_wrong_from_the_beginning_is_held_however_long_it_is() -> None:
    text = "{'path': 'a', 'content': '" + "x" * 9_000 + "'}"
    run = Run(stream_of(streamed(list(text), name="write")), prepared())
    assert json.loads(run.told[0][1]) == {"path": "a", "content": "x" * 9_000}


def test_of_several_calls_each_is_judged_by_itself() -> None:
    bad, good = '{"path":"a","limit":"x"}', '{"path":"b"}'
    calls = [
        streamed(['{"path":"a",', '"limit":"5"}']),
        streamed([bad], index=1, call_id="c2"),
        streamed([good], index=2, call_id="c3"),
    ]
    run = Run(stream_of(*calls), prepared(), SECOND)
    assert run.told == [("read_it", '{"path":"a","limit":5}'), ("read_it", RIGHT), ("read_it", good)]
    assert [call["id"] for call in run.heard.calls] == ["c1", "c2", "c3"]
    assert run.classes == {"schema_mismatch": 2, "valid": 1}
    assert len(run.asked[0]["messages"]) == 3
    body = whole_of(("read_it", '{"path":"a","limit":"5"}'), ("read_it", bad), ("read_it", good))
    assert Run(body, prepared(), SECOND).told == run.told


def test_a_right_call_goes_out_when_the_next_begins() -> None:
    parts = stream_of(streamed([RIGHT]), streamed([RIGHT], name="now", index=1, call_id="c2"))
    run = Run(parts, prepared())
    assert run.outs[3] == parts[2]
    assert run.out == b"".join(parts)


def test_calls_of_one_event_are_judged_by_themselves() -> None:
    entries = [
        entry('{"path":"a","limit":"5"}', name="read_it", call_id="c1"),
        entry(RIGHT, name="read_it", index=1, call_id="c2"),
    ]
    run = Run([event({"role": "assistant", "tool_calls": entries}), event({}, "tool_calls"), DONE], prepared())
    assert run.told == [("read_it", '{"path":"a","limit":5}'), ("read_it", RIGHT)]


def test_pieces_that_come_in_turns_find_their_calls() -> None:
    one, two = list('{"path":"a","limit":"5"}'), list('{"path":"b","deep":"true"}')
    parts = [
        event({"tool_calls": [entry("", name="read_it", call_id="c1")]}),
        event({"tool_calls": [entry("", name="read_it", index=1, call_id="c2")]}),
    ]
    for at in range(max(len(one), len(two))):
        parts += [
            event({"tool_calls": [entry(text[at], index=n)]}) for n, text in enumerate((one, two)) if at < len(text)
        ]
    run = Run([*parts, event({}, "tool_calls"), DONE], prepared(drops_copies=lambda _: True))
    assert [json.loads(text) for _, text in run.told] == [{"path": "a", "limit": 5}, {"path": "b", "deep": True}]


@pytest.mark.parametrize("arguments", ['{"path":"a","limit":"5"', '{"path":"a","limit":"5"}', '{"path":"a",}'])
@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_call_that_was_cut_off_is_what_it_is(finish: str, arguments: str) -> None:
    parts = stream_of(streamed([arguments]), finish=finish)
    run = Run(parts, prepared(), SECOND)
    assert run.out == b"".join(parts)
    assert run.asked == []
    assert run.classes == {}
    body = whole_of(("read_it", arguments), finish=finish)
    assert Run(body, prepared(), SECOND).out == body


def test_an_answer_that_breaks_off_gives_what_came() -> None:
    parts = stream_of(streamed(['{"path":"a","limit":']))[:-2]
    run = Run(parts, prepared())
    assert run.out.startswith(b"".join(parts))
    assert run.heard.error is not None
    assert run.classes == {}


@pytest.mark.parametrize("mends", [True, False])
def test_copies_are_dropped_and_what_follows_keeps_its_place(mends: bool) -> None:
    how = prepared(mends=mends, drops_copies=lambda name: name != "now")
    calls = [
        streamed([RIGHT]),
        streamed(list('{"path": "a"}' if mends else RIGHT), index=1, call_id="c2"),
        streamed(["{}"], index=2, call_id="c3", name="now"),
        streamed(["{}"], index=3, call_id="c4", name="now"),
    ]
    run = Run(stream_of(*calls), how)
    assert run.told == [("read_it", RIGHT), ("now", "{}"), ("now", "{}")]
    assert [call["id"] for call in run.heard.calls] == ["c1", "c3", "c4"]
    assert run.facts.structured.copies == 1
    again = '{"path": "a"}' if mends else RIGHT
    body = whole_of(("read_it", RIGHT), ("read_it", again), ("now", "{}"), ("now", "{}"))
    assert Run(body, how).told == run.told


def test_a_long_copy_waits_until_it_differs() -> None:
    one = json.dumps({"path": "a", "content": "x" * 9_000})
    two = json.dumps({"path": "a", "content": "x" * 8_999 + "y"})
    how = prepared(drops_copies=lambda _: True)
    first = streamed(list(one), name="write")
    copy, other = (streamed(list(text), name="write", index=1, call_id="c2") for text in (one, two))
    assert Run(stream_of(first, copy), how).told == [("write", one)]
    assert Run(stream_of(first, other), how).told == [("write", one), ("write", two)]


@pytest.mark.parametrize("mends", [True, False])
def test_one_call_is_one_call(mends: bool) -> None:
    calls = [streamed([RIGHT]), streamed(["{}"], index=1, call_id="c2", name="now")]
    run = Run(stream_of(*calls), prepared(mends=mends, one_only=True))
    assert run.told == [("read_it", RIGHT)]
    assert run.facts.undelivered == 1
    whole = Run(whole_of(("read_it", RIGHT), ("now", "{}")), prepared(mends=mends, one_only=True))
    assert whole.told == [("read_it", RIGHT)]
    assert whole.facts.undelivered == 1


DSML = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="read_it">\n<｜DSML｜parameter name="path" string="true">a'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_text_beside_tells_what_an_empty_call_lacks(size: int) -> None:
    text = f"I look.\n\n{DSML}"
    before = [event({"content": text[at : at + size]}) for at in range(0, len(text), size)]
    run = Run(stream_of(streamed(["{}"]), before=before), prepared())
    assert [(name, json.loads(told)) for name, told in run.told] == [("read_it", {"path": "a"})]
    assert run.heard.content == "I look."
    assert run.facts.structured.outcomes == {"supplied": 1}
    whole = Run(whole_of(("read_it", "{}"), content=text), prepared())
    assert [(name, json.loads(told)) for name, told in whole.told] == [("read_it", {"path": "a"})]
    assert whole.heard.content == "I look."


def test_text_beside_a_right_call_stays_what_it_is() -> None:
    before = [event({"content": f"I look.\n\n{DSML}"})]
    parts = stream_of(streamed([RIGHT]), before=before)
    run = Run(parts, prepared())
    assert run.out == b"".join(parts)
    body = whole_of(("read_it", RIGHT), content=DSML)
    assert Run(body, prepared()).out == body


def test_a_call_that_none_can_be_held_to_is_not_judged() -> None:
    how = replace(prepared(), calls=CallTerms(tools=ToolSet(), mends=True))
    parts = stream_of(streamed(["{x"]))
    run = Run(parts, how, SECOND)
    assert run.out == b"".join(parts)
    assert run.classes == {}


@pytest.mark.parametrize("strategy", [RecoveryStrategy(), NativeStrategy()])
@pytest.mark.parametrize("words", [{"content": "Done."}, {"content": ""}])
def test_what_comes_behind_the_end_of_its_choice_is_not_counted(words: dict[str, str], strategy: Any) -> None:
    call = stream_of(streamed([RIGHT]))[1:-2]
    exchange = StreamExchange(prepared(strategy), make_id=numbered_ids(), limits=Limits(), asks=1)
    for part in [event({"role": "assistant", **words}), event({}, "stop"), *call, DONE]:
        exchange.feed(part)
    exchange.finish()
    assert exchange.facts.structured.classes == {}
