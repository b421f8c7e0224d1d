"""Patches: what the grammar takes, where it stops, and that what is written is read back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from strategies.base import Refusal
from strategies.mapping.patches import Add, BadPatch, Hunk, Remove, Section, Update, read_patch, write_patch
from tests.support.edit_tools import CLIENTS, back

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


# --- A change that lost the indentation of its first line is refused where the conversation shows that it did


FILE = "def f():\n    if x:\n        y()\n"

NUMBERED = "1 | def f():\n2 |     if x:\n3 |         y()\n"

CUT = {"command": "str_replace", "path": "f", "old_str": "if x:\n        y()", "new_str": "if z:\n        y()"}

WHOLE = {**CUT, "old_str": "    if x:\n        y()", "new_str": "    if z:\n        y()"}


def past(content: Any, *, path: str = "f", name: str = "read_file") -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps({"path": path})}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call, None, {"id": "c2", "function": 3}]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
        {"role": "tool", "tool_call_id": "c2", "content": "if x:"},
        {"role": "user", "content": "go on"},
    ]


@pytest.mark.parametrize("client", ["roo", "cline"])
@pytest.mark.parametrize("content", [FILE, NUMBERED, [{"type": "text", "text": NUMBERED}], FILE.replace("\n", "\r\n")])
def test_a_cut_line_is_refused(client: str, content: Any) -> None:
    mapped = CLIENTS[client].mapped("claude_text_editor", past(content))
    found = back(mapped, CUT)
    assert isinstance(found, Refusal)
    assert "begin it with the indentation of `if x:`" in found.text
    assert not isinstance(back(mapped, WHOLE), Refusal)


def test_a_cut_hunk_is_refused() -> None:
    mapped = CLIENTS["roo"].mapped("apply_patch", past(NUMBERED))
    text = "*** Begin Patch\n*** Update File: f\n@@\n-if x:\n+if z:\n         y()\n*** End Patch"
    assert isinstance(back(mapped, {"input": text}), Refusal)
    assert not isinstance(back(mapped, {"input": text.replace("-if", "-    if")}), Refusal)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": FILE}],
        past(FILE, path="g"),
        past(FILE, name="execute_command"),
        past("if x:\n" + FILE),
        past(None),
        [*past(FILE), *past("if x:\n    y()\n")],
    ],
    ids=["said", "another file", "another tool", "both", "nothing", "read again"],
)
def test_without_evidence_nothing_is_refused(messages: list[dict[str, Any]]) -> None:
    assert not isinstance(back(CLIENTS["roo"].mapped("claude_text_editor", messages), CUT), Refusal)


def test_one_line_for_another_may_leave_its_indentation_out() -> None:
    one = {**CUT, "old_str": "if x:", "new_str": "if z:"}
    assert not isinstance(back(CLIENTS["roo"].mapped("claude_text_editor", past(FILE)), one), Refusal)


def test_a_client_of_exact_text_takes_parts_of_lines() -> None:
    call = {"id": "c1", "function": {"name": "read", "arguments": '{"filePath": "f"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": FILE},
    ]
    assert not isinstance(back(CLIENTS["opencode"].mapped("claude_text_editor", messages), CUT), Refusal)


def test_a_long_history_is_gone_through_once_for_any_number_of_calls() -> None:
    class Counted(list[dict[str, Any]]):
        walks = 0

        def __iter__(self) -> Iterator[dict[str, Any]]:
            Counted.walks += 1
            return super().__iter__()

    mapped = CLIENTS["roo"].mapped("claude_text_editor", past(FILE))
    seen = evolve(mapped.seen, messages=Counted(past(FILE)))
    mapped = evolve(mapped, seen=seen)
    assert isinstance(back(mapped, CUT), Refusal)
    for number in range(50):
        back(mapped, {**CUT, "path": f"f{number}"})
    assert Counted.walks == 1
