import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.json_scan import JsonScanner, JsonTooDeep
from tests.support.cost import assert_linear

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def end_in_pieces(pieces: list[str]) -> int:
    """The end in the joined text, found piece by piece."""
    scanner = JsonScanner()
    before = 0
    for piece in pieces:
        end = scanner.feed(piece)
        if end >= 0:
            return before + end
        before += len(piece)
    return -1


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ('{"a":1} tail', 7),
        ("[]", 2),
        ('"x" y', 3),
        ('"a\\"b" c', 6),
        ("[[1],[2]]]", 9),
        ('{"a":"}"}', 9),
        ('{"a":"\\\\"}x', 10),
        ('{"a":"line\nbreak"}', 18),
        ("-12.5e+3,", 8),
        ("true}", 4),
        ("null ", 4),
        (",", 0),
    ],
)
def test_finds_the_end(text, end):
    assert JsonScanner().feed(text) == end


@pytest.mark.parametrize("text", ["{", '{"a":"}', '"abc', '"abc\\', "[[]", "12", "tru", '{"a":"\\"}', ""])
def test_says_when_the_value_is_still_open(text):
    assert JsonScanner().feed(text) == -1


def test_begins_where_it_is_told():
    assert JsonScanner().feed('xx{"a":1}', 2) == 9


def test_stays_at_the_end_once_found():
    scanner = JsonScanner()
    assert scanner.feed("[] rest") == 2
    assert scanner.feed("more") == 0


def test_knows_a_scalar():
    scalar, container = JsonScanner(), JsonScanner()
    scalar.feed("12")
    container.feed("[12")
    assert scalar.is_scalar
    assert not container.is_scalar


def test_the_depth_bound_is_exact():
    assert JsonScanner(64).feed("[" * 64 + "]" * 64) == 128
    with pytest.raises(JsonTooDeep):
        JsonScanner(64).feed("[" * 65 + "]" * 65)


def test_the_depth_bound_holds_over_pieces():
    scanner = JsonScanner(3)
    for _ in range(3):
        scanner.feed('{"a":')
    with pytest.raises(JsonTooDeep):
        scanner.feed("{")


def test_brackets_in_strings_are_no_depth():
    text = json.dumps({"a": "[" * 1000})
    assert JsonScanner(2).feed(text) == len(text)


@settings(max_examples=150)
@given(value=JSON, tail=st.sampled_from(["", " ", "}", "]x", '"', "</a>", ","]), data=st.data())
def test_any_cut_finds_the_same_end(value, tail, data):
    text = json.dumps(value, ensure_ascii=False) + tail
    whole = JsonScanner().feed(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert end_in_pieces(pieces) == whole
    assert end_in_pieces(list(text)) == whole


@settings(max_examples=150)
@given(text=st.text(alphabet='{}[]"\\a1,: \n', max_size=60), data=st.data())
def test_any_cut_of_rubbish_finds_the_same_end(text, data):
    cut = data.draw(st.integers(0, len(text)))
    whole = JsonScanner().feed(text)
    assert end_in_pieces([text[:cut], text[cut:]]) == whole
    assert end_in_pieces(list(text)) == whole


@settings(max_examples=100)
@given(value=JSON)
def test_the_end_is_that_of_the_standard_decoder(value):
    text = json.dumps([value]) + "]}"
    assert JsonScanner(1000).feed(text) == json.JSONDecoder().raw_decode(text)[1]


@pytest.mark.cost
@pytest.mark.parametrize("piece", ["[]", '"a"', "[1]", '"\\""', " ", '{"a":"\\n"},', '"\\'])
def test_time_grows_with_the_text(piece):
    def scanning(size: int) -> Callable[[], object]:
        text = "[" + piece * (size // len(piece))
        return lambda: JsonScanner().feed(text)

    assert_linear(scanning, 1 << 15)
