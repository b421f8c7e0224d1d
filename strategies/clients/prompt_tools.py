"""The tools that a client's own system prompt documents.

    section   = "## " NAME line { line }                    up to the next heading or ruler
    parameter = "- " NAME ":" [ "(required)" | "(optional)" ] text
    usage     = "<" NAME ">" { "<" PARAMETER ">" } "</" NAME ">"

A section without its usage is no tool. One pass over the lines; prompts are cached by their content.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from attrs import frozen

__all__ = ["PromptTool", "prompt_tools"]

_HEADING = re.compile(r"## ([A-Za-z_][A-Za-z0-9_-]{0,63})\s*\Z")
_PARAMETER = re.compile(r"- ([A-Za-z_][A-Za-z0-9_]{0,63}):\s*(\((?:required|optional)\b)?")
_CHILD = re.compile(r"<([A-Za-z_][A-Za-z0-9_]{0,63})>")
# The prompts part their sections with a row of equals signs.
_ENDS = ("# ", "## ", "====")
_MAX_TOOLS = 256


@frozen(kw_only=True)
class PromptTool:
    """One tool as the prompt describes it, its parameters in the prompt's order."""

    name: str
    parameters: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()


@lru_cache(maxsize=32)
def prompt_tools(prompt: str) -> tuple[PromptTool, ...]:
    """Every tool that the prompt documents, in its order; the first section of a name counts."""
    tools: dict[str, PromptTool] = {}
    for name, lines in _sections(prompt):
        tool = _tool(name, lines) if name not in tools and len(tools) < _MAX_TOOLS else None
        if tool is not None:
            tools[name] = tool
    return tuple(tools.values())


def _sections(prompt: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in prompt.split("\n"):
        if line.startswith(_ENDS):
            if name:
                yield name, lines
            heading = _HEADING.match(line)
            name, lines = (heading.group(1) if heading else ""), []
        elif name:
            lines.append(line)
    if name:
        yield name, lines


def _tool(name: str, lines: list[str]) -> PromptTool | None:
    shown = _usage(name, lines)
    if shown is None:
        return None
    listed = dict(_listed(lines))
    return PromptTool(
        name=name,
        parameters=tuple(dict.fromkeys((*listed, *shown))),
        required=frozenset(parameter for parameter, is_required in listed.items() if is_required),
    )


def _listed(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """The parameters under `Parameters:`, and whether each is required."""
    is_inside = False
    for line in lines:
        if line.startswith("Parameters:"):
            is_inside = True
        elif is_inside and line[:1].isalpha():
            return
        elif is_inside and (match := _PARAMETER.match(line)):
            yield match.group(1), match.group(2) == "(required"


def _usage(name: str, lines: Iterable[str]) -> list[str] | None:
    """The parameters of the first call that is shown; None where there is none."""
    opener, closer = f"<{name}>", f"</{name}>"
    found: list[str] | None = None
    child = ""
    for line in lines:
        text = line.strip()
        if found is None:
            found = [] if text.startswith(opener) else None
            text = text[len(opener) :] if found is not None else ""
        if found is None:
            continue
        if not child and (match := _CHILD.match(text)):
            child = match.group(1)
            found.append(child)
        if child and f"</{child}>" in text:
            child = ""
        # A value that is shown may hold the closing tag itself.
        if not child and closer in text:
            break
    return found
