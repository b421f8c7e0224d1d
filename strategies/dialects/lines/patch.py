"""A patch in the form of `apply_patch`, written into the answer; only where the operator asked for it.

    patch = "*** Begin Patch" newline section { section } "*** End Patch"
    section = "*** " ( "Add" | "Update" | "Delete" ) " File: " PATH newline { line }

The envelope goes to the tool as it is. It must be complete, end the message, hold nothing but lines of a patch and be
the only one, as a part of a change is none; in a heredoc of a shell fence it is the shell's, where the request declares
a tool that runs commands.
"""

from collections.abc import Generator

from attrs import evolve

from strategies.dialects.lines.shell import SHELL_FENCES, shell_tool
from strategies.grammar.bare_data import ends_message, may_stand
from strategies.grammar.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.grammar.fences import read_line
from strategies.text.cursor import Cursor, Reject, Steps

__all__ = ["APPLY_PATCH"]

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_HEREDOC = "apply_patch <<"
_TOOLS = ("apply_patch", "patch")
# OpenCode's, Codex's, and what others call it.
_KEYS = ("patchText", "input", "patch")
_SECTIONS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ")
_LINES = ("+", "-", " ", "@@", "*** ")


def _openers(context: Context) -> tuple[str, ...]:
    # A patch that is shown for review looks like one that is meant: https://github.com/gptme/gptme/issues/1472
    if not context.options.recovery_shell or not any(map(context.find, _TOOLS)):
        return ()
    return (_BEGIN, _HEREDOC)


def _may_open(context: Context, opening: Opening) -> bool:
    fence = opening.fence
    if fence is None:
        return may_stand(opening) and not opening.before.rstrip().endswith(_END)
    return fence.info not in SHELL_FENCES or shell_tool(context) is None


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    tool = next(tool for tool in map(context.find, _TOOLS) if tool is not None)
    key = next((key for key in _KEYS if key in context.schema(tool).properties), None)
    if key is None:
        raise Reject("no parameter for a patch")
    word = (yield from _heredoc(cur)) if opening.marker == _HEREDOC else ""
    text: str = yield from _envelope(cur)
    if word and (yield from _line(cur)).strip() != word:
        raise Reject("heredoc never ends", attempted=True)
    draft = Draft(name=tool.name, tool=tool, arguments={key: text}, form="bare")
    end = cur.offset
    if opening.fence is None and not (yield from ends_message(cur)):
        raise Reject("text behind the patch")
    yield draft if opening.fence is not None else evolve(draft, end=end)


def _heredoc(cur: Cursor) -> Steps:
    """`apply_patch <<'EOF'`: the word that ends it."""
    cur.pos += len(_HEREDOC)
    word: str = (yield from _line(cur)).strip(" \t\r\n'\"")
    if not word.isalnum():
        raise Reject("no heredoc")
    return word


def _line(cur: Cursor) -> Steps:
    pieces: list[str] = []
    yield from read_line(cur, pieces.append)
    return "".join(pieces)


def _envelope(cur: Cursor) -> Steps:
    """The patch, line by line; a line that no patch has ends it as text."""
    lines: list[str] = [(yield from _line(cur))]
    if lines[0].rstrip() != _BEGIN:
        raise Reject("no patch")
    while True:
        line: str = yield from _line(cur)
        if not line:
            raise Reject("patch never ends", attempted=True)
        if line.rstrip() == _END:
            if cur.cut and not line.endswith("\n"):
                raise Reject("cut", attempted=True)
            return "".join(lines) + line.rstrip()
        if len(lines) == 1 and not line.startswith(_SECTIONS):
            raise Reject("no patch")
        if not line.startswith(_LINES) and line.strip():
            raise Reject("not a line of a patch", attempted=True)
        lines.append(line)


# https://github.com/openai/codex/blob/main/codex-rs/apply-patch/apply_patch_tool_instructions.md
APPLY_PATCH = Dialect(
    id="apply_patch",
    family="patch",
    level="C",
    line_openers=_openers,
    may_open=_may_open,
    parse=_parse,
    carriers=("", "diff", "patch", "text", "bash", "sh", "shell"),
    example="*** Begin Patch\n*** Update File: src/app.py\n@@\n-x = 1\n+x = 2\n*** End Patch",
)
