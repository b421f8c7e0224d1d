"""The text editor that Claude models know: one tool, `str_replace_based_edit_tool`, and its commands.

| command | client | what is exact about it |
| --- | --- | --- |
| `view` of a file | read_file, read, Read | `view_range` is the first and last line, -1 the end; each client's count |
| `view` of a directory | list_files, list | a path that ends with `/`, or is `.` or `..`; any other is taken for a |
| | | file, and the client's tool says if it is none: reading changes nothing |
| `create` | write_to_file, write | writes over a file that is there, as most clients' tools do; others say so |
| `str_replace` | edit, editor, search_replace | the text as it is |
| `str_replace` | apply_diff, replace_in_file | whole lines; refused where the block would not carry them (`blocks`) |
| `insert` | insert_content, editor | behind line `insert_line`, so before line `insert_line` + 1 |

Refused: an empty `old_str` (a client would write over the file), `insert` without such a tool, arguments of another
command. `str_replace` without `new_str` deletes.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gateway.core.tools import Tool
from strategies.base import Refusal
from strategies.mapping.client_arguments import BlockText, Offset
from strategies.mapping.client_tools import Client
from strategies.mapping.operations import (
    Create,
    Insert,
    Lines,
    Listing,
    Operation,
    Replace,
    View,
    as_bare_text,
    is_number,
    view,
)

__all__ = ["TEXT_EDITOR", "TextEditor"]

Arguments = Mapping[str, Any]
# By the commands of https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/text-editor-tool; `new_str` for the
# text of `insert` is what its first version called it.
_TAKES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "view": ("view_range",),
        "create": ("file_text",),
        "str_replace": ("old_str", "new_str"),
        "insert": ("insert_line", "insert_text", "new_str"),
    }
)
_DOES: Mapping[str, tuple[type[Operation], ...]] = MappingProxyType(
    {"view": (View, Listing), "create": (Create,), "str_replace": (Replace,), "insert": (Insert,)}
)
_HERE = (".", "..", "/")
_SAYS: Mapping[str, str] = MappingProxyType(
    {
        "view": "`view` shows a file, or the lines `view_range` of it; the path of a directory ends with `/`.",
        "create": "`create` writes `file_text` as the whole file, over one that is there.",
        "str_replace": "`str_replace` puts `new_str` where `old_str` stands; it must stand exactly once in the file.",
        "insert": "`insert` puts the lines of `insert_text` behind line `insert_line`; 0 is the start of the file.",
    }
)
_WHOLE_LINES = (
    " Here `old_str` and `new_str` are whole lines with their indentation, and the lines of `old_str` must stand only "
    "once even if white space is not counted."
)
_PARAMETERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "file_text": {"type": "string", "description": "For `create`: the content of the file."},
        "old_str": {"type": "string", "description": "For `str_replace`: the text to replace, exactly as it stands."},
        "new_str": {"type": "string", "description": "For `str_replace`: what stands there then; without it, nothing."},
        "insert_line": {"type": "integer", "description": "For `insert`: the line behind which the text is put."},
        "insert_text": {"type": "string", "description": "For `insert`: the lines to put there."},
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "For `view` of a file: its first and its last line, counted from 1; -1 is the end.",
        },
    }
)


class TextEditor:
    """`str_replace_based_edit_tool`."""

    name = "str_replace_based_edit_tool"
    does: frozenset[type[Operation]] = frozenset({View, Listing, Create, Replace, Lines, Insert})

    def tool(self, client: Client) -> Tool:
        """The tool with the commands that the client can carry out."""
        commands = [command for command, kinds in _DOES.items() if any(map(client.can, kinds))]
        said = " ".join(_SAYS[command] for command in commands)
        if isinstance(client.form(Replace), BlockText):
            said += _WHOLE_LINES
        takes = {key for command in commands for key in _TAKES[command]}
        # With a tool of which nobody knows how it counts, a range would be off by one for some.
        if isinstance(form := client.form(View), Offset) and form.base is None:
            takes.discard("view_range")
        return Tool(
            name=self.name,
            description=f"Views, creates and edits files. {said}",
            parameters={
                "type": "object",
                "properties": {
                    "command": {"type": "string", "enum": commands, "description": "What to do."},
                    "path": {"type": "string", "description": "The path of the file or directory."},
                    **{key: dict(schema) for key, schema in _PARAMETERS.items() if key in takes},
                },
                "required": ["command", "path"],
            },
        )

    def read(self, arguments: Arguments) -> tuple[Operation, ...] | Refusal:
        """What a call of the model does."""
        given = {key: value for key, value in arguments.items() if value is not None}
        command, path = given.pop("command", None), given.pop("path", None)
        if not isinstance(command, str) or command not in _READERS:
            return Refusal(f"`command` must be one of {', '.join(f'`{name}`' for name in _READERS)}.")
        if not isinstance(path, str) or not path:
            return Refusal("`path` must be the path of a file or directory.")
        strange = [key for key in given if key not in _TAKES[command]]
        # A model that mixes two commands has meant one of them: which is not for us to choose.
        if strange:
            return Refusal(f"`{command}` does not take `{_shown(strange[0])}`.")
        operation = _READERS[command](path, given)
        return operation if isinstance(operation, Refusal) else (operation,)

    def write(self, operations: Sequence[Operation]) -> tuple[Arguments, ...] | None:
        """One call for each operation."""
        calls = [_written(operation) for operation in operations]
        return None if None in calls else tuple(call for call in calls if call is not None)


TEXT_EDITOR = TextEditor()


def _view(path: str, given: Arguments) -> Operation | Refusal:
    lines = given.get("view_range")
    if path in _HERE or path.endswith("/") or path.endswith(("/.", "/..")):
        if lines:
            return Refusal("`view_range` is for a file; the path of a directory ends with `/`.")
        return Listing(path if path in _HERE or not path.endswith("/") else path[:-1])
    if lines is None or lines == []:
        return View(path)
    if not isinstance(lines, list) or len(lines) != 2 or not all(map(is_number, lines)):
        return Refusal("`view_range` must be two line numbers, the first and the last.")
    first, last = lines
    if first < 1 or (last != -1 and last < first):
        return Refusal(
            "`view_range` counts lines from 1, and its end is not before its start; -1 is the end of the file."
        )
    return view(path, first, None if last == -1 else last)


def _create(path: str, given: Arguments) -> Operation | Refusal:
    text = given.get("file_text")
    return Create(path, text) if isinstance(text, str) else Refusal("`create` needs `file_text`, the whole content.")


def _str_replace(path: str, given: Arguments) -> Operation | Refusal:
    old, new = given.get("old_str"), given.get("new_str", "")
    if not isinstance(old, str) or not isinstance(new, str):
        return Refusal("`str_replace` needs the texts `old_str` and `new_str`.")
    if not old:
        return Refusal("`old_str` is empty, so there is no place to put `new_str`; `create` writes a whole file.")
    return Replace(path, old, new)


def _insert(path: str, given: Arguments) -> Operation | Refusal:
    after, text = given.get("insert_line"), given.get("insert_text", given.get("new_str"))
    if not isinstance(text, str) or not text or ("insert_text" in given and "new_str" in given):
        return Refusal("`insert` needs `insert_text`, the lines to insert.")
    if not is_number(after) or after < 0:
        return Refusal("`insert_line` must be the number of a line, or 0 for the start of the file.")
    # A line that is put in brings its own end.
    return Insert(path, after, text.removesuffix("\n"))


_READERS: Mapping[str, Callable[[str, Arguments], Operation | Refusal]] = MappingProxyType(
    {"view": _view, "create": _create, "str_replace": _str_replace, "insert": _insert}
)


def _written(operation: Operation) -> Arguments | None:
    path = operation.path
    match operation:
        case View(first=None):
            return {"command": "view", "path": path}
        case View(first=first, last=last):
            return {"command": "view", "path": path, "view_range": [first, -1 if last is None else last]}
        case Listing():
            return {"command": "view", "path": path if path in _HERE else f"{path}/"}
        case Create(content=content):
            return {"command": "create", "path": path, "file_text": content}
        case Replace(old=old, new=new):
            return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}
        case Lines():
            return _written(as_bare_text(operation))
        case Insert(after=after, text=text):
            return {"command": "insert", "path": path, "insert_line": after, "insert_text": f"{text}\n"}
        case _:
            return None


def _shown(key: str) -> str:
    return key[:40].replace("`", "'")
