"""Patches: what the grammar takes, where it stops, and that what is written is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.mapping.patches import Add, BadPatch, Hunk, Remove, Section, Update, read_patch, write_patch

BEGIN, END = "*** Begin Patch", "*** End Patch"
LINES = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8)
PATHS = st.text("abc/._ ", min_size=1, max_size=8).map(lambda text: f"x{text.strip()}y")
HUNKS = st.builds(
    Hunk,
    old=st.lists(LINES, max_size=4).map(tuple),
    new=st.lists(LINES, min_size=1, max_size=4).map(tuple),
    context=st.sampled_from(["", "def f():"]),
    at_end=st.booleans(),
)
SECTIONS = st.one_of(
    st.builds(Add, path=PATHS, lines=st.lists(LINES, max_size=4).map(tuple)),
    st.builds(Remove, path=PATHS),
    st.builds(Update, path=PATHS, hunks=st.lists(HUNKS, min_size=1, max_size=3).map(tuple), move=st.none() | PATHS),
)


def patch(*lines: str) -> str:
    return "\n".join((BEGIN, *lines, END))


@given(st.lists(SECTIONS, min_size=1, max_size=3).map(tuple))
def test_what_is_written_is_read_back(sections: tuple[Section, ...]) -> None:
    assert read_patch(write_patch(sections)) == sections


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("hello", 1, "the first line"),
        (BEGIN, 1, "the last line"),
        (patch(), 2, "changes no file"),
        (patch("hello"), 2, "a file's part must begin"),
        (patch("*** Add File: "), 2, "a file's part must begin"),
        (patch("*** Update File: a"), 3, "changes nothing"),
        (patch("*** Update File: a", "@@x", "-a"), 3, "must be followed by a space"),
        (patch("*** Update File: a", "@@", "a"), 4, "must begin with a space"),
        (patch("*** Update File: a", "-a", "*** End of File", "-b"), 5, "must begin with `@@`"),
    ],
)
def test_a_bad_patch_says_where_it_stops_being_one(text: str, line: int, reason: str) -> None:
    with pytest.raises(BadPatch, match=reason) as refused:
        read_patch(text)
    assert refused.value.line == line


def test_empty_lines_in_a_change_are_lines_of_the_file_and_those_behind_it_are_not() -> None:
    (update,) = read_patch(patch("*** Update File: a", "@@ here", " b", "", "-c", "+d", "", ""))
    assert update == Update(path="a", hunks=(Hunk(old=("b", "", "c"), new=("b", "", "d"), context="here"),))


def test_carriage_returns_end_lines_too() -> None:
    assert read_patch(patch("*** Add File: a", "+b").replace("\n", "\r\n")) == (Add("a", ("b",)),)
