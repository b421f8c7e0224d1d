"""Patches written into the answer: where the envelope is a call, and what it may hold."""

import json

import pytest

from gateway.core.tools import ToolSet
from tests.support.reading import AGENT_TOOLS, read, read_every_way, tool

BEGIN, END = "*** Begin Patch\n", "*** End Patch"
PATCH = f"{BEGIN}*** Update File: a\n@@\n-x\n+y\n{END}"
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
        (f"{BEGIN}*** Update File: a\nfoo\n{END}", "not a line of a patch"),
        (f"{BEGIN}*** Update File: a\n@@\n+y\n", "patch never ends"),
        (f"{BEGIN}@@\n+y\n{END}", "no patch"),
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
