"""Patches as text: what is no complete patch for a tool that takes one stays text."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import AGENT_TOOLS, Reading, read, read_every_way, tool

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
