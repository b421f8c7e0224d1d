"""Patches as text: what is no complete patch for a tool that takes one stays text."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import Reading, read_every_way, tool

BEGIN = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n"
END = "*** End Patch"
HEREDOC = "apply_patch <<'EOF'\n"


def patched(text: str, *, parameter: str = "patchText", reason: str = "stop") -> Reading:
    tools = ToolSet([tool("apply_patch", parameter)])
    return read_every_way(text, tools=tools, reason=reason, recovery_shell=True, min_confidence=80)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"*** Begin Patch of the coat\n{END}", "no patch"),
        (f"*** Begin Patch\nx = 2\n{END}", "no patch"),
        (f"{BEGIN}x = 3\n{END}", "not a line of a patch"),
        (f"{HEREDOC}ls\nEOF\n", "no patch"),
        (f"apply_patch <<\n{BEGIN}more\n{END}", "no heredoc"),
        (f"{HEREDOC}{BEGIN}{END}\nEND\n", "heredoc never ends"),
    ],
    ids=["title", "no section", "foreign line", "other heredoc", "no word", "other word"],
)
def test_what_is_no_patch_stays_text(text: str, reason: str) -> None:
    found = patched(text)
    assert found.calls == []
    assert found.text == text
    assert (reason,) in found.notes


def test_a_complete_patch_counts_where_its_heredoc_never_ends() -> None:
    found = patched(f"{HEREDOC}{BEGIN}{END}")
    assert found.text == HEREDOC
    assert len(found.calls) == 1


@pytest.mark.parametrize("blank", ["\n", " \n", "\t\n"])
def test_blank_lines_belong_to_a_patch(blank: str) -> None:
    (call,) = patched(f"{BEGIN}{blank}+y\n{END}").calls
    assert json.loads(call[1]) == {"patchText": f"{BEGIN}{blank}+y\n{END}"}


def test_the_last_line_of_a_cut_answer_may_go_on() -> None:
    found = patched(BEGIN + END, reason="length")
    assert found.calls == []
    assert ("cut",) in found.notes
    assert len(patched(f"{BEGIN}{END}\n", reason="length").calls) == 1


def test_a_tool_without_a_parameter_for_a_patch_gets_none() -> None:
    found = patched(BEGIN + END, parameter="text")
    assert found.calls == []
    assert found.notes == [("no parameter for a patch",)]
