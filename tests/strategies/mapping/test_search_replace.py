"""SEARCH/REPLACE blocks: what is written is read back, what a tool would change is refused, and reading is strict."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.base import Refusal
from strategies.mapping.operations import Lines
from strategies.mapping.search_replace import CLINE_BLOCKS, ROO_BLOCKS, Blocks, parted
from tests.strategies.mapping.test_client_arguments import LINES

BOTH = pytest.mark.parametrize("blocks", [ROO_BLOCKS, CLINE_BLOCKS], ids=["roo", "cline"])


def change(old: str, new: str | None) -> Lines:
    return Lines("f", tuple(old.split("\n")), () if new is None else tuple(new.split("\n")))


def block(blocks: Blocks, old: str, new: str | None) -> str:
    return "\n".join([blocks.search, old, "=======", *([] if new is None else [new]), blocks.replace])


@BOTH
@given(st.lists(st.builds(Lines, st.just("f"), LINES, LINES | st.just(())), min_size=1, max_size=3))
def test_written_blocks_are_read_as_they_were(blocks: Blocks, changes: list[Lines]) -> None:
    text = blocks.write(changes)
    if isinstance(text, str):
        assert blocks.read("f", text) == tuple(map(blocks.trim, changes))


@BOTH
@pytest.mark.parametrize("new", ["b", "b\nc", None])
def test_several_changes_stand_apart_by_a_blank_line(blocks: Blocks, new: str | None) -> None:
    written = blocks.write([change("a", new), change("x", "y")])
    assert written == f"{block(blocks, 'a', new)}\n\n{block(blocks, 'x', 'y')}"


@BOTH
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: f"Now:\n{text}",
        lambda text: text.replace("=======", "======"),
        lambda text: text.rsplit("\n", 1)[0],
        lambda text: text.replace("\na\n", "\n"),
        lambda _: "",
    ],
    ids=["returns", "words", "divider", "no end", "no old text", "nothing"],
)
def test_what_is_no_block_to_the_letter_is_none(blocks: Blocks, damage: Callable[[str], str]) -> None:
    text = block(blocks, "a", "b")
    assert blocks.read("f", text) == (change("a", "b"),)
    assert blocks.read("f", damage(text)) is None


def test_markers_in_a_file_are_escaped_for_the_tool_that_undoes_it() -> None:
    assert ROO_BLOCKS.write([change("=======", ":start_line:3")]) == block(ROO_BLOCKS, "\\=======", "\\:start_line:3")
    assert isinstance(CLINE_BLOCKS.write([change("=======", "b")]), Refusal)
    assert CLINE_BLOCKS.write([change("a=======", "b")]) == block(CLINE_BLOCKS, "a=======", "b")


def test_a_hint_is_no_part_of_a_block_that_is_read() -> None:
    text = block(ROO_BLOCKS, ":start_line:3\n-------\na", "b")
    assert ROO_BLOCKS.read("f", text) is None
    assert CLINE_BLOCKS.read("f", block(CLINE_BLOCKS, ":start_line:3\na", "b")) == (change(":start_line:3\na", "b"),)


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("\na\n", "\nb\n", ("a", "b")),
        ("a\n\n", "b\n\n", ("a", "b")),
        ("\na", "b", ("\na", "b")),
        ("a\n ", "b\n\t", ("a\n ", "b\n\t")),
        ("a\n\nb", "a\n\nc", ("a\n\nb", "a\n\nc")),
    ],
)
def test_blank_lines_that_both_texts_begin_or_end_with_are_left_out(old: str, new: str, left: tuple[str, str]) -> None:
    assert ROO_BLOCKS.trim(change(old, new)) == change(*left)
    assert CLINE_BLOCKS.trim(change(old, new)) == change(old, new)


@BOTH
def test_nothing_but_blank_lines_cannot_be_found(blocks: Blocks) -> None:
    assert isinstance(blocks.write([change(" ", "b")]), Refusal)
    assert isinstance(blocks.write([change("\n\n", "\n\n\n")]), Refusal)


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("\ta", "\t\tb", False),
        ("\ta", "b", False),
        ("\ta", "  b", True),
        ("  a", "\tb", True),
        ("a", "b \t", True),
        ("1 | a", "2 | b", True),
        ("1 | a", "b", False),
    ],
)
def test_an_indentation_that_the_tool_would_move_is_refused(old: str, new: str, refused: bool) -> None:
    assert isinstance(ROO_BLOCKS.write([change(old, new)]), Refusal) is refused
    assert not isinstance(CLINE_BLOCKS.write([change(old, new)]), Refusal)


def test_a_line_is_its_indentation_and_the_rest() -> None:
    assert parted("\t  a b ") == ("\t  ", "a b ")
    assert parted("a") == ("", "a")
    assert parted(" \t") == (" \t", "")
