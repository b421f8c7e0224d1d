"""Patches: what the grammar takes, where it stops, that what is written is read back, and which texts are none."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tools import ToolSet
from strategies.base import Refusal
from strategies.mapping.patches import Add, BadPatch, Hunk, Remove, Section, Update, read_patch, write_patch
from tests.support.edit_tools import CLIENTS, back
from tests.support.reading import AGENT_TOOLS, Reading, read, read_every_way, tool

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


# --- Patches as text: what is no complete patch for a tool that takes one stays text


BEGUN = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n"

HEREDOC = "apply_patch <<'EOF'\n"


def patched(text: str, *, parameter: str = "patchText", reason: str = "stop") -> Reading:
    tools = ToolSet([tool("apply_patch", parameter)])
    return read_every_way(text, tools=tools, reason=reason, recovery_shell=True, min_confidence=80)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"*** Begin Patch of the coat\n{END}", "no patch"),
        (f"*** Begin Patch\nx = 2\n{END}", "no patch"),
        (f"{BEGUN}x = 3\n{END}", "not a line of a patch"),
        (f"{HEREDOC}ls\nEOF\n", "no patch"),
        (f"apply_patch <<\n{BEGUN}more\n{END}", "no heredoc"),
        (f"{HEREDOC}{BEGUN}{END}\nEND\n", "heredoc never ends"),
    ],
    ids=["title", "no section", "foreign line", "other heredoc", "no word", "other word"],
)
def test_what_is_no_patch_stays_text(text: str, reason: str) -> None:
    found = patched(text)
    assert found.calls == []
    assert found.text == text
    assert (reason,) in found.notes


def test_a_complete_patch_counts_where_its_heredoc_never_ends() -> None:
    found = patched(f"{HEREDOC}{BEGUN}{END}")
    assert found.text == HEREDOC
    assert len(found.calls) == 1


@pytest.mark.parametrize("blank", ["\n", " \n", "\t\n"])
def test_blank_lines_belong_to_a_patch(blank: str) -> None:
    (call,) = patched(f"{BEGUN}{blank}+y\n{END}").calls
    assert json.loads(call[1]) == {"patchText": f"{BEGUN}{blank}+y\n{END}"}


def test_the_last_line_of_a_cut_answer_may_go_on() -> None:
    found = patched(BEGUN + END, reason="length")
    assert found.calls == []
    assert ("cut",) in found.notes
    assert len(patched(f"{BEGUN}{END}\n", reason="length").calls) == 1


def test_a_tool_without_a_parameter_for_a_patch_gets_none() -> None:
    found = patched(BEGUN + END, parameter="text")
    assert found.calls == []
    assert found.notes == [("no parameter for a patch",)]


# --- Patches written into the answer: where the envelope is a call, and what it may hold


OPENER, CLOSER = "*** Begin Patch\n", "*** End Patch"

PATCH = f"{OPENER}*** Update File: a\n@@\n-x\n+y\n{CLOSER}"

TOOLS = ToolSet([*AGENT_TOOLS, tool("apply_patch", "patchText")])

SOLE = ToolSet([tool("patch", "input")])


@pytest.mark.parametrize(
    "text",
    [
        PATCH,
        f"Done soon.\n{PATCH}\n",
        f"```diff\n{PATCH}\n```",
        f"apply_patch <<'EOF'\n{PATCH}\nEOF\n",
        f'apply_patch <<"EOF"\n{PATCH}\nEOF',
    ],
)
def test_a_complete_patch_goes_to_the_tool_as_it_is(text: str) -> None:
    found = read_every_way(text, tools=TOOLS, recovery_shell=True)
    assert [(name, json.loads(given)) for name, given in found.calls] == [("apply_patch", {"patchText": PATCH})]
    assert found.dialects == ["apply_patch"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{OPENER}*** Update File: a\nfoo\n{CLOSER}", "not a line of a patch"),
        (f"{OPENER}*** Update File: a\n@@\n+y\n", "patch never ends"),
        (f"{OPENER}@@\n+y\n{CLOSER}", "no patch"),
        (PATCH.replace("Begin Patch", "Begin Patches"), "no patch"),
        (f"apply_patch <<'EOF'\n{PATCH}\nEOX\n", "heredoc never ends"),
        (f"apply_patch <<E-F\n{PATCH}\nE-F\n", "no heredoc"),
        ("apply_patch <<EOF\nls\nEOF", "no patch"),
        (f"{PATCH}\n\nand more", "text behind the patch"),
    ],
)
def test_what_is_no_complete_patch_stays_text(text: str, reason: str) -> None:
    found = read_every_way(text, tools=TOOLS, recovery_shell=True)
    assert (found.calls, found.text) == ([], text)
    assert reason in [noted[-1] for noted in found.notes]


def test_a_patch_whose_end_may_go_on_is_cut() -> None:
    assert read(PATCH, tools=TOOLS, recovery_shell=True, reason="length").notes == [("cut",)]


def test_a_patch_is_text_unless_the_operator_asked_for_it() -> None:
    found = read_every_way(PATCH, tools=TOOLS)
    assert (found.calls, found.notes) == ([], [])


def test_a_heredoc_in_a_shell_fence_is_the_shells_where_there_is_one() -> None:
    text = f"```bash\napply_patch <<'EOF'\n{PATCH}\nEOF\n```"
    assert read_every_way(text, tools=TOOLS, recovery_shell=True).calls == []
    found = read_every_way(text, tools=SOLE, recovery_shell=True)
    assert [(name, json.loads(given)) for name, given in found.calls] == [("patch", {"input": PATCH})]


def test_a_tool_without_a_parameter_for_patches_gets_none() -> None:
    tools = ToolSet([tool("apply_patch", "target")])
    assert read_every_way(PATCH, tools=tools, recovery_shell=True).notes == [("no parameter for a patch",)]
