"""Markers found as a plain look at each of them finds them, whatever their number and size."""

import re
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.grammar.lexicon import Lexicon, Triggers, lexicon, line_of
from tests.support.cost import assert_linear

WORDS = st.text(alphabet="<ab~", min_size=1, max_size=5)


@given(st.lists(WORDS, max_size=8).map(tuple), st.text(alphabet="<ab~ ", min_size=1, max_size=8), st.data())
def test_markers_are_found_as_by_looking_at_each(markers: tuple[str, ...], text: str, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(text) - 1))
    rest = text[index:]
    lexicon = Lexicon(markers)
    assert lexicon.at(text, index) == max((one for one in markers if rest.startswith(one)), key=len, default=None)
    assert lexicon.may_begin(text, index) is any(one.startswith(rest) and one != rest for one in markers)


@pytest.mark.cost
def test_long_markers_take_the_time_that_they_have() -> None:
    def finding(size: int) -> Callable[[], None]:
        long = "<" + "t" * size

        def find() -> None:
            lexicon = Lexicon((long + "a", long + "b"))
            assert lexicon.may_begin(long, 0)
            assert lexicon.at(long + "b", 0) == long + "b"

        return find

    assert_linear(finding, 10_000)


def test_long_markers_take_the_room_that_they_have() -> None:
    long = "<" + "t" * 200_000
    tracemalloc.start()
    lexicon = Lexicon((long + "a", long + "b"))
    assert lexicon.may_begin(long, 0)
    assert lexicon.at(long + "b", 0) == long + "b"
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("before", ["", " ", "\n", "\t", "(", '"', "\\", "n", "t", "ä"])
@pytest.mark.parametrize("word", ["function", "func", "fun", "f", "<x", "fa"])
def test_of_line_breaks_only_those_are_found_whose_line_may_begin_with_a_marker(before: str, word: str) -> None:
    lexicon = Lexicon(("function.", "<x>"), ("\n",))
    with_lines = Triggers(("function.", "<x>"), (), (), ()).of_lines(frozenset(("{", "x", "tool")))
    text = f"a {before}{word}"
    found = [match.start() for match in lexicon.trigger.finditer(text) if match.group() != "\n"]
    assert [match.start() for match in with_lines.finditer(text)] == found
    for line, is_found in (
        ("{", True),
        (" \n\t{", True),
        ("y", False),
        (" \n", True),
        ("\ny", False),
        ("to", True),
        ("the", False),
    ):
        assert (with_lines.search(f"1\n{line}") is not None) == is_found


@given(st.lists(WORDS, max_size=8).map(tuple), st.text(alphabet="<ab~ ", min_size=1, max_size=8))
def test_all_markers_that_have_begun_are_told(markers: tuple[str, ...], text: str) -> None:
    lexicon = Lexicon(markers)
    for index in range(len(text)):
        rest = text[index:]
        begun = sorted({one for one in markers if one.startswith(rest) and one != rest})
        assert lexicon.begun(text, index) == lexicon.begun(text, index) == begun


@pytest.mark.parametrize(
    ("before", "line"),
    [
        *(("a\nb", "b"), ("a\n", ""), ("a", "a"), ("x</think>", ""), ("a\nx</think> b", " b")),
        *(("x[/THINK]b", "b"), ("<|end|>b</think>c", "c"), ("a > b", "a > b"), ("</thinking", "</thinking")),
    ],
)
def test_the_end_of_reasoning_begins_a_line(before: str, line: str) -> None:
    assert line_of(before) == line


@pytest.mark.parametrize(
    ("text", "stirs"),
    [
        *((b"words", False), (b"a <x", True), (b"a func", True), (b"myfunction", False), (b"a fun", True)),
        *((b"a g", False), (b"say tool", False), (b"saytool", False), (b".tool", True), (b"many ", False)),
        *((b"a\\nword", False), (b"a\\nbar", True), (b"a\\nb", True), (b"a\\n", True), (b"a\\tb", True)),
        *(("é".encode(), False), (b"to \xff", True), (b"hooked", True), ("étool".encode(), True)),
        *(("é func".encode(), True), ("é tool".encode(), False), (b"\\u00e9 func", True), (b"\\u00e9 tool", False)),
    ],
)
def test_in_json_all_that_is_not_plainly_calm_stirs(text: bytes, stirs: bool) -> None:
    """`function` opens within no word, `ooked` also within one, `tool` not behind words and a blank; a line `bar`."""
    triggers = Triggers(("function.", "<x>", "ooked", "tool"), (), ("ooked",), ("tool",))
    assert (triggers.in_json(frozenset(("bar",))).is_in(text)) is stirs


def test_what_begins_nothing_is_passed_over_in_one_loop() -> None:
    """The engine tries every alternative at every character where it cannot tell by the first what may stand there:
    six microseconds for a text of fifty letters, and one where it can."""
    triggers = Triggers(("<a", "func", "analysis", "assi", "to=f", "~~~"), ("`",), ("assi",), ("analysis",))
    in_json = re._parser.parse(triggers.in_json(frozenset({"Action"})).signs.pattern)  # type: ignore[attr-defined]
    assert str(in_json[0][0]) == "IN"
    in_text = re._parser.parse(triggers.of_lines(frozenset({"Action"})).pattern)  # type: ignore[attr-defined]
    assert str(in_text[0][0]) == "BRANCH"
    assert {str(alternative[0][0]) for alternative in in_text[0][1][1]} == {"LITERAL"}


def test_some_starts_may_be_left_out() -> None:
    triggers = Triggers(("<x>",), ("`",), (), ())
    assert triggers.in_json(frozenset()).is_in(b"a `b")
    assert not triggers.in_json(frozenset(), without=("`",)).is_in(b"a `b")
    assert triggers.of_lines(frozenset(), without=("`",)).search("a `b <x") is not None


def test_a_lexicon_is_made_once_for_the_same_markers() -> None:
    assert lexicon(("<a>",)) is lexicon(("<a>",)) is not lexicon(("<a>",), ("`",))
