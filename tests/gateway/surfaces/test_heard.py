"""What is heard of a chat answer: the same for every cut, and calls only when nothing can take them back."""

import json
import zlib
from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import InvalidRequest, UpstreamBadReply, UpstreamRejected
from gateway.surfaces.chat import CHAT, KEEP_ALIVE, telling
from gateway.surfaces.heard import Heard, hear_whole
from gateway.surfaces.port import Situation
from gateway.surfaces.seals import MAX_SEAL, Seals
from gateway.surfaces.turns import MISSING_RESULT, Turns, text_part

Told = list[tuple[Any, ...]]


class Teller:
    """Writes down what it is told, neighbouring pieces of text as one."""

    def __init__(self) -> None:
        self.told: Told = []

    def _text(self, kind: str, body: bytes) -> None:
        if self.told and self.told[-1][0] == kind:
            body = self.told.pop()[1] + body
        self.told.append((kind, body))

    def text(self, body: bytes) -> None:
        self._text("text", body)

    def refusal(self, body: bytes) -> None:
        self._text("refusal", body)

    def reasoning(self, body: bytes) -> None:
        self._text("reasoning", body)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        self.told.append(("call", call_id, name, arguments))

    def finish_reason(self, reason: str, stopped_at: str | None = None) -> None:
        self.told.append(("finish_reason", reason))

    def usage(self, told: Any) -> None:
        self.told.append(("usage", told))

    def error(self, error: Any) -> None:
        self.told.append(("error", error))

    def plain(self, body: bytes, reason: str, stopped_at: str | None, usage: Any) -> None:
        self.text(body)
        self.finish_reason(reason, stopped_at)
        if usage is not None:
            self.usage(usage)
        self.end()

    def end(self) -> None:
        self.told.append(("end",))


def sse(*events: object) -> bytes:
    return b"".join(
        b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n" for event in events
    )


def chunk(reason: str | None = None, **delta: object) -> dict[str, object]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def piece(index: int | None, arguments: object = None, call_id: str | None = None, name: str | None = None) -> object:
    function: dict[str, object] = {"arguments": arguments}
    if name:
        function["name"] = name
    call: dict[str, object] = {"function": function}
    if index is not None:
        call["index"] = index
    if call_id:
        call["id"] = call_id
    return chunk(tool_calls=[call])


def heard(stream: bytes, *cuts: int) -> Told:
    teller = Teller()
    hearing = Heard(teller, max_event_bytes=1 << 16)
    at = 0
    for cut in (*sorted(cuts), len(stream)):
        hearing.feed(stream[at:cut])
        at = cut
    hearing.finish()
    return teller.told


RICH = sse(
    chunk(role="assistant", content=None),
    chunk(reasoning_content="Let me "),
    chunk(reasoning_content="see\n"),
    chunk(content="I'll read “ä”\t"),
    chunk(content="\ud83d"),
    chunk(content="\ude00"),
    piece(0, "", "call_1", "read"),
    piece(0, '{"path": "a\ud83d'),
    piece(0, '\ude00"}'),
    piece(1, "{}", "call_2", "list"),
    chunk("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 3}},
    b"[DONE]",
)

RICH_TOLD: Told = [
    ("reasoning", b"Let me see\\n"),
    ("text", rb"I'll read \u201c\u00e4\u201d\t\ud83d\ude00"),
    ("call", "call_1", "read", '{"path": "a😀"}'),
    ("call", "call_2", "list", "{}"),
    ("finish_reason", "tool_calls"),
    ("usage", {"prompt_tokens": 3}),
    ("end",),
]


def test_everything_is_told_in_order() -> None:
    assert heard(RICH) == RICH_TOLD


@given(st.lists(st.integers(0, len(RICH)), max_size=12))
def test_every_cut_tells_the_same(cuts: list[int]) -> None:
    assert heard(RICH, *cuts) == RICH_TOLD


def test_the_joined_bodies_are_the_body_of_the_text() -> None:
    body = next(each[1] for each in heard(RICH) if each[0] == "text")
    assert json.loads(b'"' + body + b'"') == "I'll read “ä”\t😀"


def test_a_whole_call_is_told_when_the_next_one_begins() -> None:
    stream = sse(piece(0, '{"a": 1}', "one", "f"), piece(1, '{"b":', "two", "g"))
    assert heard(stream) == [("call", "one", "f", '{"a": 1}')]


def test_a_cut_stream_tells_no_end_and_no_open_call() -> None:
    assert heard(sse(chunk(content="x"), piece(0, '{"a": 1}', "one", "f"))) == [("text", b"x")]


def test_pieces_of_parallel_calls_that_interleave_are_put_in_order() -> None:
    stream = sse(
        piece(0, '{"a"', "one", "f"),
        piece(1, '{"b"', "two", "g"),
        piece(0, ":1}"),
        piece(1, ":2}"),
        chunk("tool_calls"),
    )
    assert heard(stream)[:2] == [("call", "one", "f", '{"a":1}'), ("call", "two", "g", '{"b":2}')]


def test_parallel_calls_that_all_have_the_same_number_stay_apart() -> None:
    stream = sse(piece(0, "{}", "one", "f"), piece(0, "{}", "two", "f"), chunk("stop"))
    assert [each[1] for each in heard(stream) if each[0] == "call"] == ["one", "two"]


def test_pieces_without_a_number_belong_to_the_call_that_is_open() -> None:
    stream = sse(piece(None, '{"a"', "one", "f"), piece(None, ":1}"), piece(None, "{}", "two", "g"), chunk("stop"))
    assert heard(stream)[:2] == [("call", "one", "f", '{"a":1}'), ("call", "two", "g", "{}")]


def test_a_name_and_an_id_that_are_said_again_are_one() -> None:
    stream = sse(piece(0, '{"a"', "one", "f"), piece(0, ":1}", "one", "f"), chunk("tool_calls"))
    assert heard(stream)[0] == ("call", "one", "f", '{"a":1}')


def test_arguments_as_an_object_are_their_text() -> None:
    assert heard(sse(piece(0, {"a": "ü"}, "one", "f"), chunk("stop")))[0] == ("call", "one", "f", '{"a": "\\u00fc"}')


def test_what_a_limit_cut_off_is_no_call_and_a_whole_one_before_it_is() -> None:
    stream = sse(piece(0, '{"a":1}', "one", "f"), piece(1, '{"b":', "two", "g"), chunk("length"), b"[DONE]")
    assert heard(stream) == [("call", "one", "f", '{"a":1}'), ("finish_reason", "length"), ("end",)]


def test_broken_arguments_are_told_as_they_are_where_no_limit_cut_them() -> None:
    assert heard(sse(piece(0, '{"a":', "one", "f"), chunk("tool_calls")))[0] == ("call", "one", "f", '{"a":')


def test_text_behind_a_call_comes_behind_it() -> None:
    stream = sse(piece(0, "{}", "one", "f"), chunk(content="done"), chunk("stop"))
    assert heard(stream)[:2] == [("call", "one", "f", "{}"), ("text", b"done")]


def test_an_error_ends_the_answer() -> None:
    stream = sse(chunk(content="x"), piece(0, "{}", "one", "f"), {"error": {"message": "no"}}, chunk(content="y"))
    assert heard(stream) == [("text", b"x"), ("call", "one", "f", "{}"), ("error", {"message": "no"})]


def test_an_event_that_is_too_long_is_an_error() -> None:
    assert heard(b"data: " + b"x" * (1 << 17))[0][0] == "error"


def test_a_finish_without_done_is_an_end_all_the_same() -> None:
    assert heard(sse(chunk(content="x"), chunk("stop")))[-1] == ("end",)


@pytest.mark.parametrize(
    "noise", [b": hi\n\n", sse([]), sse({"choices": 7}), sse(b"{no"), sse({"choices": [{"index": 1}]})]
)
def test_what_says_nothing_is_passed_over(noise: bytes) -> None:
    stream = sse(chunk(content="x")) + noise + sse(chunk(content="y"), chunk("stop"))
    assert heard(stream)[0] == ("text", b"xy")


def test_only_the_first_choice_is_told() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    assert heard(sse(other, chunk(content="x"))) == [("text", b"x")]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert heard(b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\n') == [("text", "a\ufffdb".encode())]


def test_a_content_in_parts_is_its_texts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert heard(sse(chunk(content=parts))) == [("text", b"ab")]


def whole(body: object) -> Told:
    teller = Teller()
    hear_whole(body if isinstance(body, bytes) else json.dumps(body).encode(), teller)
    return teller.told


def test_a_whole_answer_tells_the_same() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a😀"}'}}
    other = {"id": "call_2", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    message = {
        "role": "assistant",
        "reasoning_content": "Let me see\n",
        "content": "I'll read “ä”\t😀",
        "tool_calls": [call, other],
    }
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}
    assert whole(body) == RICH_TOLD


def test_a_whole_answer_without_a_reason_has_ended_well() -> None:
    assert whole({"choices": [{"message": {"content": "x"}}]}) == [("text", b"x"), ("finish_reason", "stop"), ("end",)]


@pytest.mark.parametrize("body", [b"", b"[]", {}, {"choices": []}, {"choices": [{"delta": {}}]}, {"error": {}}])
def test_what_is_no_answer_is_a_bad_reply(body: object) -> None:
    with pytest.raises(UpstreamBadReply):
        whole(body)


def test_many_pieces_beside_an_open_call_are_not_read_again_for_each() -> None:
    stream = sse(piece(0, '{"a": "' + "x" * 50_000, "one", "f"), *[chunk(content="y")] * 2_000, chunk("stop"))
    teller = Teller()
    hearing = Heard(teller, max_event_bytes=1 << 20)
    hearing.feed(stream)
    assert hearing._calls == []
    assert teller.told[0] == ("text", b"y" * 2_000)


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        (["a\ud83d", "b"], rb"a\ufffdb"),
        (["\ude00b"], rb"\ufffdb"),
        (["a\ud83d", "\ude00"], rb"a\ud83d\ude00"),
        (["\ud83d"], rb"\ufffd"),
        (["\ud83d\ud83d", "\ude00"], rb"\ufffd\ud83d\ude00"),
        (["\\ud83d", "x"], rb"\\ud83dx"),
    ],
)
def test_half_a_character_waits_for_its_other_half(pieces: list[str], body: bytes) -> None:
    stream = sse(*[chunk(content=each) for each in pieces], chunk("stop"))
    assert heard(stream)[0] == ("text", body)


def test_half_a_character_in_a_whole_answer_is_replaced() -> None:
    assert whole({"choices": [{"message": {"content": "a\ud83d"}}]})[0] == ("text", rb"a\ufffd")


# --- The surface of chat: every byte as it is, and the words of errors that chat clients know


SITUATION = Situation(now=0.0, request_id="req_1", unique="a" * 24, secret=b"", scope="")


@given(st.lists(st.binary()))
def test_every_byte_of_an_answer_goes_through(pieces: list[bytes]) -> None:
    told = telling()
    out = told.begin(7) + b"".join(map(told.feed, pieces)) + told.finish()
    assert out == b"".join(pieces)
    assert told.whole(out) == out
    assert told.is_identity
    assert told.answer_id is None
    assert told.remember() == ()


def test_what_waits_is_told_by_a_comment() -> None:
    assert telling().keep_alive() == KEEP_ALIVE
    assert KEEP_ALIVE == b": keep-alive\n\n"


def test_a_request_keeps_its_bytes() -> None:
    raw = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "odd": 1}'
    asked = CHAT.accept(raw, SITUATION, {})
    assert asked.request.raw is raw
    assert asked.recall == asked.dropped == asked.mended == asked.left_out == ()


def test_an_error_is_in_openais_words_and_the_servers_own_stay() -> None:
    status, body = CHAT.error(InvalidRequest("no", param="model"), status=400, request_id="req_1")
    assert status == 400
    assert msgspec.json.decode(body)["error"]["param"] == "model"
    own = UpstreamRejected("x", status=429, payload=b'{"error":{"message":"slow"}}')
    assert CHAT.error(own, status=429, request_id="req_1") == (429, b'{"error":{"message":"slow"}}')
    assert CHAT.head("req_1") == {}


# --- Histories of other wires as chat's turns


STEP = st.one_of(
    st.tuples(st.just("text"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("user"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("system"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("call"), st.sampled_from("abc")),
    st.tuples(st.just("result"), st.sampled_from("abcd")),
)


def made(steps: list[tuple[str, str]]) -> tuple[list[dict[str, Any]], Turns]:
    turns = Turns()
    for kind, value in steps:
        match kind:
            case "text":
                turns.text(value)
            case "user":
                turns.user([text_part(value)])
            case "system":
                turns.system(value)
            case "call":
                turns.call(value, "f", "{}")
            case "result":
                turns.result(value, f"of {value}")
    return turns.finished().messages, turns


@given(st.lists(STEP, max_size=12))
def test_every_call_is_followed_by_its_result_whatever_came_between(steps: list[tuple[str, str]]) -> None:
    messages, _ = made(steps)
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = list(dict.fromkeys(call["id"] for call in message.get("tool_calls", ())))
    assert not waiting


def test_a_result_that_comes_late_follows_its_call() -> None:
    messages, turns = made([("user", "go"), ("call", "a"), ("system", "note"), ("result", "a"), ("text", "done")])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert turns.mended == []


def test_a_turn_whose_calls_are_answered_is_over() -> None:
    messages, _ = made([("call", "a"), ("result", "a"), ("call", "b"), ("result", "b")])
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "tool"]


def test_what_is_missing_is_said() -> None:
    messages, turns = made([("call", "a"), ("user", "on"), ("result", "d")])
    assert messages[1]["content"] == MISSING_RESULT
    assert messages[2]["content"] == "on\n\n[Tool Result: of d]"
    assert sorted(turns.mended) == ["missing_result", "orphan_result"]


# --- Seals open for whom they were made, as they were made, and for nobody and nothing else


SEALS = Seals(b"k" * 32, "alice")

VALUES = st.dictionaries(st.text(max_size=8), st.text(max_size=40) | st.integers(-5, 5) | st.none(), max_size=4)


def sealed(value: dict[str, object], seals: Seals = SEALS, purpose: str = "") -> str:
    told = seals.seal(value, purpose=purpose)
    assert told is not None
    return told


@given(VALUES)
def test_what_was_sealed_comes_back(value: dict[str, object]) -> None:
    assert SEALS.open(sealed(value)) == value
    assert sealed(value).startswith("tg1.")


@pytest.mark.parametrize("other", [Seals(b"x" * 32, "alice"), Seals(b"k" * 32, "bob"), Seals(b"k" * 32, "")])
def test_nobody_else_opens_it(other: Seals) -> None:
    assert other.open(sealed({"text": "mine"})) is None


def test_it_opens_for_its_purpose_alone() -> None:
    seal = sealed({"text": "a summary"}, purpose="compaction")
    assert SEALS.open(seal) is None
    assert SEALS.open(seal, purpose="reasoning") is None
    assert SEALS.open(seal, purpose="compaction") == {"text": "a summary"}


def test_credential_and_purpose_do_not_run_together() -> None:
    assert Seals(b"k", "ab").open(sealed({}, Seals(b"k", "a"), "bc"), purpose="c") is None


@given(VALUES, st.data())
def test_an_altered_one_does_not_open(value: dict[str, object], data: st.DataObject) -> None:
    seal = sealed(value)
    at = data.draw(st.integers(0, len(seal) - 1))
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=300).filter(lambda char: char != seal[at]))
    opened = SEALS.open(seal[:at] + other + seal[at + 1 :])
    # The last letter may hold bits that no byte comes from.
    assert opened is None or (at >= len(seal) - 4 and opened == value)


@pytest.mark.parametrize("blob", [None, 7, {}, "", "tg1.", "tg1.####", "tg1." + "A" * 64, "gAAAAABm-foreign", "tg1.é"])
def test_what_is_no_seal_is_nothing(blob: object) -> None:
    assert SEALS.open(blob) is None


def test_what_is_too_large_has_no_seal() -> None:
    assert SEALS.seal({"text": "x" * MAX_SEAL}) is None
    assert SEALS.open("tg1." + "A" * MAX_SEAL) is None


def test_what_cannot_be_read_again_has_no_seal() -> None:
    assert SEALS.seal({"text": "\ud83d"}) is None


def test_what_unpacks_to_more_than_a_seal_may_hold_is_not_unpacked() -> None:
    packed = zlib.compress(b'{"text": "' + b"x" * (8 * MAX_SEAL) + b'"}')
    forged = "tg1." + urlsafe_b64encode(SEALS._check(packed, "") + packed).decode()
    assert len(forged) < MAX_SEAL
    assert SEALS.open(forged) is None


def test_a_seal_shows_no_key() -> None:
    assert "kkk" not in repr(SEALS)
    assert "alice" not in repr(SEALS)
