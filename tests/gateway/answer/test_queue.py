"""Runs of alike events: taken together only where that is certain, and told byte for byte."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.answer import stream as exchange
from gateway.answer.queue import Pending
from gateway.answer.template import Template, text_of
from gateway.wire.chat_chunks import Chunk, decode_chunk
from tests.support.chat import event, hear_stream, prepared, stream

RAW = event({"content": "hello"})
DATA = RAW[len(b"data: ") : -2]


def template() -> Template:
    made = Template.of(RAW, DATA, "hello")
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([b"a", b"", b"b c"], "ab c"),
        ([rb"a\n", rb"\u00e9", rb"\"", rb"\/"], 'a\né"/'),
        (["é".encode(), "😀".encode()], "é😀"),
        ([rb"\ud83d\ude00", rb"a\uD83D\uDE00"], "😀a😀"),
        ([], ""),
    ],
)
def test_bodies_of_strings_are_their_text(contents: list[bytes], text: str) -> None:
    assert text_of(contents) == text


@pytest.mark.parametrize(
    "contents",
    [
        [b'a"', b"b"],
        [b"a\nb"],
        [b"a\x00"],
        [b"a\\", b"n"],
        [rb"\ud83d", rb"\ude00"],
        [rb"\ud83d\ud83d\ude00"],
        [rb"\x41"],
        ["é".encode()[:1], "é".encode()[1:]],
        [b"\xff"],
        [rb"\n" + b"\xff"],
        [rb"\n" + b"\x00a", b"b"],
        [b"a\\", b"\x00n"],
        [rb"\n", b'"', b"b"],
    ],
    ids=[
        "quote",
        "line break",
        "zero",
        "cut escape",
        "halves",
        "half before a pair",
        "no JSON",
        "cut character",
        "no UTF-8",
        "mixed",
        "zero beside an escape",
        "escape cut at a zero",
        "quote beside an escape",
    ],
)
def test_what_is_not_plainly_a_text_is_left_to_the_decoder(contents: list[bytes]) -> None:
    assert text_of(contents) is None


@pytest.mark.parametrize(
    "data",
    [
        RAW[:-2],
        RAW[1:],
        event({"content": "a"}, index=1),
        event({"content": "a"}, "stop"),
        RAW[: RAW.index(b"hello")] + RAW[RAW.index(b"hello") + 5 :][1:],
    ],
    ids=["no end", "no beginning", "another choice", "a finish", "head and tail that share a byte"],
)
def test_events_of_another_form_are_not_made_after_the_template(data: bytes) -> None:
    contents = template().contents(data)
    assert contents is None or text_of(contents) is None


def test_head_and_tail_must_not_overlap() -> None:
    made = Template(head=b"ab", tail=b"bc", data=b"", gap=b"bcab")
    assert made.contents(b"abc") is None
    assert made.contents(b"abbc") == [b""]


@pytest.mark.parametrize("more", [{"logprobs": {"content": []}}, {"note": {"content": "x"}}])
def test_an_event_with_more_than_one_content_makes_no_mould(more: dict[str, Any]) -> None:
    raw = event({"content": "hello"}, **more)
    assert Template.of(raw, raw[6:-2], "hello") is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=12), st.integers(1, 400))
def test_a_run_is_told_byte_for_byte_however_it_comes(texts: list[str], size: int) -> None:
    data = b"".join(event({"content": text}) for text in ["", *texts]) + event({}, "stop") + b"data: [DONE]\n\n"
    out, _ = stream([data[at : at + size] for at in range(0, len(data), size)], prepared())
    assert out == data
    assert hear_stream(out).content == ("".join(texts) or None)


@pytest.mark.parametrize("words", ["so many words ", 'a "word"\n', "ja ", "so 😀 "])
def test_only_the_events_around_a_run_are_taken_apart(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []

    def decode(data: bytes) -> Chunk | None:
        taken.append(data)
        return decode_chunk(data)

    monkeypatch.setattr(exchange, "decode_chunk", decode)
    first, run = (
        event({"role": "assistant", "content": ""}),
        [event({"content": words}).replace("😀".encode(), rb"\ud83d\ude00")] * 50,
    )
    data = b"".join([first, *run, event({}, "stop"), b"data: [DONE]\n\n"])
    out, _ = stream([data], prepared())
    assert out == data
    assert len(taken) == 3, "the role, the content that is the template, the finish"


@pytest.mark.parametrize("last", [event({}, "stop"), b": ping\n\n", RAW[:-9]])
def test_a_run_ends_where_its_last_event_does(last: bytes) -> None:
    assert template().run(RAW * 3 + last) == RAW * 3
    assert template().run(b": ping\n\n" + RAW) == b""
    assert template().run(RAW * 3) == RAW * 3


def test_usage_is_not_looked_for_in_what_is_no_object() -> None:
    pending = Pending(b'data: "usage"\n\n', b'"usage"')
    pending.add_usage({"total_tokens": 3})
    assert pending.render() == b'data: "usage"\n\n'
