"""The text editor of Claude models: what no client's tools can say is refused, and all else leaves the same files."""

import random
from collections import Counter
from typing import Any

import pytest

from strategies.base import Refusal
from tests.strategies.mapping.test_client_arguments import (
    EDITS,
    assert_leads_back,
    changed,
    file,
    line,
    lines_of,
    only_ends_differ,
    places,
    replaced,
    span,
)
from tests.support.edit_tools import (
    CLIENTS,
    Files,
    Surface,
    ToolError,
    back,
    text_editor,
    tool,
)

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("roo", {}, "`command` must be one of"),
    ("roo", {"command": "undo_edit", "path": "f"}, "`command` must be one of"),
    ("roo", {"command": ["view"], "path": "f"}, "`command` must be one of"),
    ("roo", {"command": "view"}, "`path`"),
    ("roo", {"command": "view", "path": 3}, "`path`"),
    ("roo", {"command": "view", "path": "f", "old_str": "x"}, "`view` does not take `old_str`"),
    ("roo", {"command": "view", "path": "f", "view_range": [0, 3]}, "counts lines from 1"),
    ("roo", {"command": "view", "path": "f", "view_range": [5, 3]}, "counts lines from 1"),
    ("roo", {"command": "view", "path": "f", "view_range": [5]}, "two line numbers"),
    ("roo", {"command": "view", "path": "f", "view_range": [True, 3]}, "two line numbers"),
    ("roo", {"command": "view", "path": "src/", "view_range": [1, 3]}, "is for a file"),
    ("roo", {"command": "create", "path": "f"}, "`file_text`"),
    ("roo", {"command": "create", "path": "f", "file_text": "```py\nx\n```\n"}, "begins with a code fence"),
    ("roo", {"command": "create", "path": "f", "file_text": "x\n```"}, "ends with a code fence"),
    ("roo", {"command": "create", "path": "f", "file_text": "1 | a\n2 | b"}, "line numbers"),
    ("opencode", replaced("", "x"), "`old_str` is empty"),
    ("opencode", {"command": "str_replace", "path": "f"}, "needs the texts"),
    ("opencode", {"command": "insert", "path": "f", "insert_line": 1, "insert_text": "x"}, "no tool that inserts"),
    ("roo", {"command": "insert", "path": "f", "insert_line": -1, "insert_text": "x"}, "`insert_line` must be"),
    ("roo", {"command": "insert", "path": "f", "insert_line": 1, "insert_text": ""}, "needs `insert_text`"),
    ("claude", {"command": "view", "path": "src/"}, "no tool that shows a directory"),
    ("cline", {"command": "view", "path": "f", "view_range": [1, 2]}, "leave `view_range` out"),
    ("pi", {"command": "view", "path": "f", "view_range": [2, 3]}, "begins with line 1"),
    ("kilo", {"command": "view", "path": "f", "view_range": [2, -1]}, "needs a last line"),
    ("roo", replaced("a\n", "b"), "ends with a line break"),
    ("roo", replaced("a", ""), "To delete whole lines"),
    ("roo", replaced("a", None), "To delete whole lines"),
    ("roo", replaced("a\rb", "c"), "carriage return"),
    ("roo", replaced("\na", "b"), "blank line"),
    ("roo", replaced("a", "\nb"), "blank line"),
    ("roo", replaced("a\n\n", "b\n"), "blank line"),
    ("roo", replaced("\n", "\n\n"), "not blank"),
    ("roo", replaced("a", "b "), "ends with white space"),
    ("roo", replaced("a", "b\u00a0"), "ends with white space"),
    ("roo", replaced("\ta", "    a"), "tabs and spaces"),
    ("roo", replaced("1 | a", "2 | b"), "line numbers"),
    ("roo", replaced("  =======", "b"), "looks like a marker"),
    ("roo", replaced("\\>>>>>>> x", "b"), "looks like a marker"),
    ("roo", replaced("a", "a\n  :start_line:3"), "looks like a marker"),
    ("cline", replaced("===", "b"), "is a marker"),
    ("cline", replaced("a", "+++++++ REPLACE"), "is a marker"),
    ("cline", replaced(" ", "b"), "not blank"),
]


@pytest.mark.parametrize(("client", "arguments", "said"), REFUSED)
def test_text_editor(client: str, arguments: dict[str, Any], said: str) -> None:
    found = back(CLIENTS[client].mapped("claude_text_editor"), arguments)
    assert isinstance(found, Refusal)
    assert found.text.startswith("Nothing was done. ")
    assert said in found.text


def test_a_client_without_an_edit_tool_is_told_to_write() -> None:
    client = Surface((tool("write", "filePath* content*"),), {})
    found = back(client.mapped("claude_text_editor"), replaced("a", "b"))
    assert isinstance(found, Refusal)
    assert "write the whole file" in found.text
    assert "read it" not in found.text
    found = back(client.mapped("claude_text_editor"), {"command": "view", "path": "f"})
    assert isinstance(found, Refusal)
    assert "no tool that shows a file" in found.text


def replacement(rng: random.Random, text: str, whole: bool, odd: bool) -> dict[str, str] | None:
    lines = lines_of(text)
    if not whole and rng.random() < 0.5:
        flat = "\n".join(lines)
        first = rng.randrange(len(flat) + 1)
        old = flat[first : first + rng.randrange(1, 80)]
        return {"old_str": old, "new_str": rng.choice(("", "new", old + "+", "a\nb"))} if old else None
    first, last = span(rng, lines)
    old_lines = lines[first:last]
    if whole and places(text, old_lines) != 1:
        return None
    new_lines = changed(rng, old_lines, odd)
    if last < len(lines) and rng.random() < 0.5:
        return {
            "old_str": "".join(f"{one}\n" for one in old_lines),
            "new_str": "".join(f"{one}\n" for one in new_lines),
        }
    return {"old_str": "\n".join(old_lines), "new_str": "\n".join(new_lines)}


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
@pytest.mark.parametrize("name", CLIENTS)
def test_the_text_editor_makes_the_same_files(name: str, odd: bool) -> None:
    client = CLIENTS[name]
    mapped = client.mapped("claude_text_editor")
    whole = name in ("roo", "kilo", "cline")
    rng = random.Random(f"{name} {odd} editor")
    seen: Counter[str] = Counter()
    while seen.total() < EDITS:
        text = file(rng, odd)
        arguments = text_edit(rng, text, whole, odd)
        wanted: Files = {"a.py": text}
        try:
            text_editor(wanted, arguments, file_endings=name == "cline_sdk")
        except ToolError:
            continue
        if wanted["a.py"] == text:
            continue
        found = back(mapped, arguments)
        if isinstance(found, Refusal):
            seen["refused"] += 1
            continue
        files: Files = {} if arguments["command"] == "create" else {"a.py": text}
        client.run(files, found)
        assert files == wanted or (name == "cline" and only_ends_differ(files, wanted)), (text, arguments, found)
        assert_leads_back(client, "claude_text_editor", found)
        seen["same"] += 1
    assert seen["same"] > EDITS * (0.3 if odd or whole else 0.75), seen


def text_edit(rng: random.Random, text: str, whole: bool, odd: bool) -> dict[str, object]:
    kind = rng.random()
    if kind < 0.1:
        return {"command": "create", "path": "a.py", "file_text": file(rng, odd)}
    if kind < 0.2:
        inserted = "\n".join(line(rng, n, odd) for n in range(rng.randrange(1, 4))) + rng.choice(("", "\n"))
        at = rng.randrange(len(text.split("\n")) + 1)
        return {"command": "insert", "path": "a.py", "insert_line": at, "insert_text": inserted}
    found = replacement(rng, text, whole, odd)
    return {"command": "str_replace", "path": "a.py", **(found or {"old_str": "", "new_str": ""})}
