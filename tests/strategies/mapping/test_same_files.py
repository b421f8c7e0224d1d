"""A model's edit and the client's calls for it leave the same file, over many edits of files that look real."""

import random
from collections import Counter

import pytest

from strategies.base import CallBack, Refusal
from tests.strategies.mapping.surfaces import CLIENTS, Surface, back
from tests.support.edit_tools import Files, ToolError, count, patch_tool, text_editor

EDITS = 250
"""For each client and surface: over both surfaces and all clients more than four thousand."""
WORDS = ("total", "items", "value", "naïve", "größe", "文件", "user", "index", "🎉", "config", "x", "return")
ODD = (
    "<<<<<<< SEARCH",
    "=======",
    ">>>>>>> REPLACE",
    "-------",
    "------- SEARCH",
    "+++++++ REPLACE",
    ":start_line:5",
    "\\=======",
    "   =======",
    "*** End Patch",
    "*** Update File: a.py",
    "@@ def f():",
    "12 | code",
    "```",
    "a" * 20_000,
    "trailing   ",
    "\tindented with a tab",
    "“quoted”",
    "&lt;b&gt; &amp;amp;",
    "",
)


def line(rng: random.Random, number: int, odd: bool) -> str:
    if odd and rng.random() < 0.1:
        return rng.choice(ODD)
    if rng.random() < 0.1:
        return ""
    indent = "    " * rng.randrange(4)
    return f"{indent}{rng.choice(WORDS)}_{number} = {rng.choice(WORDS)}({rng.randrange(10_000)})"


def file(rng: random.Random, odd: bool) -> str:
    lines = [line(rng, number, odd) for number in range(rng.choice((1, 3, 12, 40)))]
    ending = rng.choice(("\n", "\n", "\n", "\r\n"))
    return ending.join(lines) + rng.choice((ending, ending, ending, ""))


def span(rng: random.Random, lines: list[str]) -> tuple[int, int]:
    first = rng.randrange(len(lines))
    return first, min(len(lines), first + rng.randrange(1, 5))


def changed(rng: random.Random, old: list[str], odd: bool) -> list[str]:
    new = list(old)
    match rng.randrange(4):
        case 0:
            new[rng.randrange(len(new))] = line(rng, rng.randrange(10**6), odd)
        case 1:
            at = rng.randrange(len(new) + 1)
            new[at:at] = [line(rng, rng.randrange(10**6), odd) for _ in range(rng.randrange(1, 4))]
        case 2:
            del new[rng.randrange(len(new))]
        case _:
            new = [line(rng, rng.randrange(10**6), odd) for _ in range(rng.randrange(1, 4))]
    return new


def lines_of(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def places(text: str, old: list[str]) -> int:
    """Where the lines stand if white space is not counted: what a client of blocks is told to make sure of."""
    lines = ["".join(one.split()) for one in lines_of(text)]
    wanted = ["".join(one.split()) for one in old]
    return sum(lines[at : at + len(wanted)] == wanted for at in range(len(lines)))


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
def test_text_editor(name: str, odd: bool) -> None:
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


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "odd"])
@pytest.mark.parametrize("name", CLIENTS)
def test_patch(name: str, odd: bool) -> None:
    client = CLIENTS[name]
    mapped = client.mapped("apply_patch")
    rng = random.Random(f"{name} {odd} patch")
    seen: Counter[str] = Counter()
    while seen.total() < EDITS:
        text = file(rng, odd)
        made = patch(rng, text, odd)
        if made is None:
            continue
        written, operations = made
        wanted: Files = {"a.py": text}
        try:
            patch_tool(wanted, operations)
        except ToolError:
            continue
        found = back(mapped, {"input": written})
        if isinstance(found, Refusal):
            seen["refused"] += 1
            continue
        files: Files = {"a.py": text}
        try:
            client.run(files, found)
        except ToolError:
            # The text stands within other lines too, or at the end of a file without a last line break.
            seen["failed"] += 1
            continue
        assert files == wanted or only_ends_differ(files, wanted), (text, written, found)
        assert_leads_back(client, "apply_patch", found)
        seen["same"] += 1
    assert seen["same"] > EDITS * (0.3 if odd else 0.6), seen


def assert_leads_back(client: Surface, mapping: str, made: tuple[CallBack, ...]) -> None:
    """What the client did is one call of the model in the past, and that call would be made the same again."""
    past = [
        {"id": call.id("c"), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in made
    ]
    mapped = client.mapped(mapping, [{"role": "assistant", "content": None, "tool_calls": past}])
    (call,) = mapped.request.messages[0]["tool_calls"]
    assert call["id"] == "c"
    assert mapped.back(call["function"]["name"], call["function"]["arguments"]) == made


def only_ends_differ(files: Files, wanted: Files) -> bool:
    """A client may give the last line of a file the line break that it did not have, when it is edited."""
    return all(files[path].rstrip("\r\n") == wanted[path].rstrip("\r\n") for path in wanted)


def patch(rng: random.Random, text: str, odd: bool) -> tuple[str, list[tuple[str, str, list[str], list[str]]]] | None:
    lines = lines_of(text)
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return None
    if rng.random() < 0.1:
        new = [line(rng, n, odd) for n in range(rng.randrange(1, 5))]
        body = "".join(f"+{one}\n" for one in new)
        return f"*** Begin Patch\n*** Add File: b.py\n{body}*** End Patch", [("add", "b.py", [], new)]
    hunks, operations = [], []
    at = 0
    for _ in range(rng.randrange(1, 4)):
        if at >= len(lines):
            break
        first, last = span(rng, lines[at:])
        old = lines[at + first : at + last]
        if places(text, old) != 1:
            return None
        new = changed(rng, old, odd)
        if new == old:
            return None
        at += last
        hunks.append("@@\n" + "".join(f"-{one}\n" for one in old) + "".join(f"+{one}\n" for one in new))
        operations.append(("update", "a.py", old, new))
    return f"*** Begin Patch\n*** Update File: a.py\n{''.join(hunks)}*** End Patch", operations


def test_the_model_of_the_editor_counts_overlaps() -> None:
    assert count("aaa", "aa") == 2
