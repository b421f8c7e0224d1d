"""Patterns of schemas: the same answers as a regular expression engine, in linear time, and silence beyond them."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.clients.client_parser import SCRIPT_SPACE
from strategies.schema.patterns import pattern_of
from tests.support.cost import steps

ATOMS = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c_]", r"\d", r"\W", r"\.", r"\x61", r"\u0062", "^", "$"]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?"])


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    row = st.lists(inner, min_size=1, max_size=3).map("".join)
    group = st.tuples(st.sampled_from(["(", "(?:"]), row, REPEATS).map(lambda part: part[0] + part[1] + ")" + part[2])
    return group | st.tuples(row, row).map("|".join)


def _repeated(part: tuple[str, str]) -> str:
    return part[0] if part[0] in "^$" else "".join(part)


PATTERNS = st.recursive(st.tuples(ATOMS, REPEATS).map(_repeated), _joined, max_leaves=8)


def found(source: str, text: str) -> bool | None:
    pattern = pattern_of(source)
    assert pattern is not None, source
    return pattern.matches(text)


@given(PATTERNS, st.text(alphabet="abc-_.1 ", max_size=8))
@settings(max_examples=400, deadline=None)
def test_a_pattern_is_found_where_an_engine_finds_it(source: str, text: str) -> None:
    assert found(source, text) is (re.search(source.replace("$", r"\Z"), text, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("source", "yes", "no"),
    [
        ("^x-", "x-count", "ax-"),
        ("^(a+)+$", "aaaa", "aaab"),
        (r"^([a-\x7a]+)+$", "m", "M"),
        ("^[A-Z][A-Za-z ]+$", "Los Angeles", "los"),
        (r"^\w{3}$", "a_1", "ab"),
        ("^(foo|ba[rz])?$", "", "foobar"),
        ("", "anything", None),
        ("[]a]", None, "a"),
        (r"[\b\-]", "-", "b"),
        ("^.$", "é", "\n"),
        (r"^\s\S$", "\ufeffx", "xx"),
    ],
)
def test_names_are_told_apart(source: str, yes: str | None, no: str | None) -> None:
    assert yes is None or found(source, yes) is True
    assert no is None or found(source, no) is False


def test_white_space_is_what_it_is_to_a_script() -> None:
    for sign in SCRIPT_SPACE:
        assert (found(r"^\s$", sign), found(r"\S", sign)) == (True, False)
    assert found(r"\s", "\u200b\x85\x1f") is False


@pytest.mark.parametrize(
    "source",
    [
        *("(", ")", "a)", "[a", "*a", "a**", "a{", "a{3", "a{3,2}", "a{999}", "{2}", "\\", r"\x6", r"\u00zz", "[b-a]"),
        *("(?=a)", "(?!a)", "(?<n>a)", r"(a)\1", r"\p{L}", r"\bword", "(" * 40 + ")" * 40, "a" * 300, "(a{60}){60}"),
        r"[a-\d]",
    ],
)
def test_what_is_not_understood_says_nothing(source: str) -> None:
    assert pattern_of(source) is None


def test_a_long_name_is_not_looked_at() -> None:
    assert found("^a", "a" * 10_000) is None


@pytest.mark.parametrize("source", ["^(a|aa)+$", "^(a+)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_that_backtracks_elsewhere_takes_few_steps(source: str) -> None:
    def told() -> set[bool | None]:
        return {found(source, "a" * size + "!") for size in range(1, 120)}

    assert told() == {False}
    assert steps(told, most=50_000)
