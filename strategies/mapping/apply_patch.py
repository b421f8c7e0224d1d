"""The patch tool that GPT models know: `apply_patch` with one `input`.

| part of a patch | client | what is exact about it |
| --- | --- | --- |
| `Add File` | write, write_to_file | every line with its end |
| `Update File` | edit, search_replace | a call for each hunk, its lines with their ends; they must stand exactly once |
| `Update File` | apply_diff, replace_in_file | a call for each file, a block for each hunk |
| `Delete File` | delete_file | |

A tool that wants its text to stand exactly once can do without a hunk's `@@ line` and `*** End of File`: either the
lines stand once, and that is the place, or it fails. Blocks take the nearest of several places, so there both are
refused. Refused too: `Move to` (no client has a tool for it), a hunk that only adds (no place), `Delete File` and
`Add File` without such a tool. The end of a file's last line stays as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from gateway.core.tools import Tool
from strategies.base import Refusal
from strategies.mapping.client_arguments import BlockText
from strategies.mapping.client_tools import Client
from strategies.mapping.operations import Create, Delete, Lines, Operation, Replace, of_text
from strategies.mapping.patches import Add, BadPatch, Hunk, Remove, Section, Update, read_patch, write_patch

__all__ = ["APPLY_PATCH", "ApplyPatch"]

# https://github.com/openai/codex/blob/main/codex-rs/apply-patch/apply_patch_tool_instructions.md
_INPUT = "input"
_FORM = (
    "Changes files by a patch. It begins with `*** Begin Patch` and ends with `*** End Patch`; between them stands a "
    "part for each file."
)
_ADD = " `*** Add File: PATH`, then every line of the new file behind a `+`."
_UPDATE = (
    " `*** Update File: PATH`, then one or more changes: `@@` on a line of its own, then lines that stay behind a "
    "space, lines that go behind a `-`, lines that come behind a `+`. The lines that stay and go are given exactly as "
    "they stand in the file, and must stand there only once: add lines around them until they do."
)
_LOOSE = " White space does not count for that."
_DELETE = " `*** Delete File: PATH`."
_EXAMPLE = "\n*** Begin Patch\n*** Update File: src/app.py\n@@\n def main():\n-    run()\n+    start()\n*** End Patch"


class ApplyPatch:
    """`apply_patch`."""

    name = "apply_patch"
    does: frozenset[type[Operation]] = frozenset({Create, Replace, Lines, Delete})

    def tool(self, client: Client) -> Tool:
        """The tool with the parts that the client can carry out."""
        loose = isinstance(client.form(Lines), BlockText)
        said = "".join(
            text
            for does, text in ((Create, _ADD), (Lines, _UPDATE + (_LOOSE if loose else "")), (Delete, _DELETE))
            if client.can(does)
        )
        return Tool(
            name=self.name,
            description=f"{_FORM}{said}{_EXAMPLE if client.can(Lines) else ''}",
            parameters={
                "type": "object",
                "properties": {_INPUT: {"type": "string", "description": "The whole patch."}},
                "required": [_INPUT],
            },
        )

    def read(self, arguments: Mapping[str, Any]) -> tuple[Operation, ...] | Refusal:
        """What a patch does, its hunks in order."""
        text = arguments.get(_INPUT)
        if not isinstance(text, str) or len(arguments) != 1:
            return Refusal("The arguments must be `input`, the whole patch as one text, and nothing else.")
        try:
            sections = read_patch(text)
        except BadPatch as bad:
            return Refusal(f"The patch cannot be read at line {bad.line}: {bad.reason}.")
        operations: list[Operation] = []
        for section in sections:
            made = _operations(section)
            if isinstance(made, Refusal):
                return made
            operations += made
        return tuple(operations)

    def write(self, operations: Sequence[Operation]) -> tuple[Mapping[str, Any], ...] | None:
        """One patch for all operations."""
        sections: list[Section] = []
        for operation in operations:
            section = _section(of_text(operation) if isinstance(operation, Replace) else operation)
            if section is None:
                return None
            last = sections[-1] if sections else None
            if isinstance(section, Update) and isinstance(last, Update) and last.path == section.path:
                sections[-1] = evolve(last, hunks=last.hunks + section.hunks)
            else:
                sections.append(section)
        return ({_INPUT: write_patch(sections)},)


APPLY_PATCH = ApplyPatch()


def _operations(section: Section) -> list[Operation] | Refusal:
    match section:
        case Add(path, lines):
            return [Create(path, "".join(f"{line}\n" for line in lines))]
        case Remove(path):
            return [Delete(path)]
        case Update():
            return _changes(section)


def _changes(section: Update) -> list[Operation] | Refusal:
    # To write the file anew and delete the old one would need its content, which is not here.
    if section.move is not None:
        return Refusal("`*** Move to` is not possible here: none of the tools moves a file.")
    changes: list[Operation] = []
    for number, hunk in enumerate(section.hunks, 1):
        # Codex puts such lines behind the `@@` line or at the end; a tool that replaces text has nothing to look for.
        if not any(hunk.old):
            return Refusal(
                f"Change {number} of `{section.path[:60]}` gives no line of the file, so there is no place for it: "
                "include a line beside the place, behind a space."
            )
        changes.append(Lines(section.path, hunk.old, hunk.new, placed=bool(hunk.context or hunk.at_end)))
    return changes


def _section(operation: Operation | None) -> Section | None:
    """The part of a patch that says this; the writing is checked by reading it again."""
    match operation:
        # A patch gives each line of a new file its end, so a content without the last one cannot be said.
        case Create(path=path, content=content) if not content or content.endswith("\n"):
            return Add(path, tuple(content.split("\n")[:-1]))
        case Delete(path=path):
            return Remove(path)
        case Lines(path=path, old=old, new=new):
            return Update(path=path, hunks=(Hunk(old=old, new=new),))
        case _:
            return None
