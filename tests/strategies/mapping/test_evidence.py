"""A change that lost the indentation of its first line is refused where the conversation shows that it did."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from strategies.base import Refusal
from tests.strategies.mapping.surfaces import CLIENTS, back

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
