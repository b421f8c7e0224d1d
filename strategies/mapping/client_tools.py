"""The tools with which clients read and change files: one row for each that has a counterpart.

A declared tool is a row's if it has the row's name and parameters and asks for nothing that the row does not give; of
several rows that fit, the first. Of several tools that do the same, calls go to the one whose row stands first here,
which goes by exact text before lines.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from attrs import Factory, field, frozen

from gateway.core.tools import Tool, ToolSet
from strategies.base import Refusal
from strategies.clients.client_parser import keep_entities, undo_entities
from strategies.mapping.client_arguments import (
    BlockText,
    Content,
    Editor,
    Edits,
    FileList,
    Form,
    JustPath,
    LineBefore,
    Offset,
    Strings,
    Window,
)
from strategies.mapping.operations import Create, Delete, Insert, Lines, Listing, Operation, Replace, View
from strategies.mapping.search_replace import CLINE_BLOCKS, ROO_BLOCKS
from strategies.schema.structured import function_name
from strategies.schema.tool_schema import schema_of
from strategies.schema.values import is_same

__all__ = ["ROWS", "Client", "ClientCall", "ClientTool", "Row"]

_ZERO = re.compile(r"\b(?:0|zero)-(?:based|indexed)\b", re.IGNORECASE)
_ONE = re.compile(r"\b(?:1|one)-(?:based|indexed)\b", re.IGNORECASE)
_READS_BOTH = "file or directory"
_CLINE = "replace_in_file"
"""The tool by which Cline, which shares names with Roo, is told from it."""
_MISSING: Mapping[type[Operation], str] = MappingProxyType(
    {
        View: "This client has no tool that shows a file.",
        Listing: "This client has no tool that shows a directory: use another of the tools for it.",
        Create: "This client has no tool that writes a whole file.",
        Replace: "This client has no tool that replaces text in a file: write the whole file.",
        Lines: "This client has no tool that replaces text in a file: write the whole file.",
        Insert: "This client has no tool that inserts lines: replace a line with itself and the new ones.",
        Delete: "This client has no tool that deletes a file.",
    }
)


@frozen(kw_only=True)
class Row:
    """One tool of one client."""

    client: str
    name: str
    form: Form
    path: tuple[str, ...] = ("path",)
    """What the path may be called; empty for a form that has its paths within."""
    fixed: Mapping[str, Any] = field(factory=dict)
    """Values that a call gives where the parameter is declared, and that the past may leave out."""
    marked: tuple[str, ...] = ()
    """Parameters that only this variant of the tool has."""
    undone: str | None = None
    """The parameter in which the tool undoes entities, for a model that is no Claude."""


_PATHS = ("filePath", "file_path", "path", "absolute_path", "filepath")
_ONCE: Mapping[str, Any] = MappingProxyType({"replaceAll": False})
_EDIT = Strings(old="old_string", new="new_string")

ROWS: tuple[Row, ...] = (
    # Roo and Kilo; Cline shares names with them
    Row(client="roo", name="read_file", form=Window("start_line", "end_line")),
    Row(client="roo", name="read_file", form=Offset(1), fixed={"mode": "slice"}, marked=("mode",)),
    Row(client="roo", name="read_file", form=FileList("files", "line_ranges"), path=()),
    Row(client="qwen", name="read_file", form=Offset(None), path=_PATHS),
    Row(client="roo", name="list_files", form=JustPath(Listing), fixed={"recursive": False}),
    Row(client="roo", name="write_to_file", form=Content(cleans=True), undone="content"),
    Row(client="roo", name="edit", form=_EDIT, path=("file_path",), fixed={"replace_all": False}),
    Row(client="roo", name="search_replace", form=_EDIT, path=("file_path",)),
    # A number of replacements that is told has the client refuse where the text stands more often.
    Row(client="roo", name="edit_file", form=_EDIT, path=("file_path",), fixed={"expected_replacements": 1}),
    Row(client="roo", name="apply_diff", form=BlockText("diff", ROO_BLOCKS), undone="diff"),
    Row(client="roo", name="insert_content", form=LineBefore("line", "content")),
    Row(client="kilo", name="delete_file", form=JustPath(Delete)),
    # Cline
    Row(client="cline", name="read_file", form=JustPath(View), path=("path", "absolutePath")),
    Row(client="cline", name="read_files", form=FileList("files"), path=()),
    Row(
        client="cline",
        name="editor",
        form=Editor(
            edit=Strings(old="old_text", new="new_text"),
            insert=LineBefore("insert_line", "new_text"),
            content="new_text",
        ),
    ),
    Row(client="cline", name="replace_in_file", form=BlockText("diff", CLINE_BLOCKS), path=("path", "absolutePath")),
    # OpenCode, Kilo since it is one; pi
    Row(client="opencode", name="read", form=Offset(None), path=_PATHS),
    Row(client="opencode", name="list", form=JustPath(Listing)),
    Row(client="opencode", name="write", form=Content(), path=_PATHS),
    Row(client="opencode", name="edit", form=Strings(old="oldString", new="newString"), path=_PATHS, fixed=_ONCE),
    Row(client="pi", name="edit", form=Edits(key="edits", each=Strings(old="oldText", new="newText"))),
    # Qwen Code, Gemini CLI
    Row(client="qwen", name="list_directory", form=JustPath(Listing), path=("path", "dir_path")),
    Row(client="qwen", name="write_file", form=Content(), path=_PATHS),
    Row(client="qwen", name="replace", form=_EDIT, path=_PATHS),
    # Claude Code, Continue
    Row(client="claude", name="Read", form=Offset(1), path=_PATHS),
    Row(client="continue", name="Read", form=JustPath(View), path=_PATHS),
    Row(client="claude", name="LS", form=JustPath(Listing)),
    Row(client="continue", name="List", form=JustPath(Listing), path=("dirpath",)),
    Row(client="claude", name="Write", form=Content(), path=_PATHS),
    Row(client="claude", name="Edit", form=_EDIT, path=_PATHS, fixed={"replace_all": False}),
)


@frozen(kw_only=True)
class ClientCall:
    """One call of a client's tool."""

    name: str
    arguments: Mapping[str, Any]


@frozen(kw_only=True, eq=False)
class ClientTool:
    """A declared tool and its row."""

    tool: Tool
    row: Row
    form: Form
    path: str | None
    properties: frozenset[str]
    nulls: tuple[str, ...]
    """Parameters that a call must name and may leave empty."""
    undone: str | None = None
    """The parameter in which the tool undoes entities."""

    def read(self, arguments: Mapping[str, Any]) -> tuple[Operation, ...] | None:
        """What a call did; `None` for one that could not be said again."""
        fixed = self.row.fixed
        # A value that is always given says nothing of what the call did.
        given = {
            key: value
            for key, value in arguments.items()
            if value is not None and not (key in fixed and is_same(value, fixed[key]))
        }
        text = given.get(self.undone) if self.undone is not None else None
        if self.undone is not None and isinstance(text, str):
            given[self.undone] = undo_entities(text)
        if self.path is None:
            return self.form.read("", given)
        path = given.pop(self.path, None)
        return self.form.read(path, given) if isinstance(path, str) and path else None

    def write(self, operations: Sequence[Operation]) -> ClientCall | Refusal:
        """The one call that does this."""
        written = self.form.write(operations)
        if isinstance(written, Refusal):
            return written
        if self.undone is not None:
            written[self.undone] = keep_entities(written[self.undone])
        if self.path is not None:
            written = {self.path: operations[0].path, **written}
        written = {key: value for key, value in written.items() if key in self.properties}
        fixed = {key: value for key, value in self.row.fixed.items() if key in self.properties}
        return ClientCall(name=self.tool.name, arguments={**dict.fromkeys(self.nulls), **written, **fixed})


@frozen(eq=False)
class Client:
    """The tools of one request that have a counterpart."""

    tools: Mapping[str, ClientTool]
    _does: Mapping[type[Operation], ClientTool] = field(
        init=False, default=Factory(lambda self: _preferred(self.tools.values()), takes_self=True)
    )

    @classmethod
    def of(cls, tools: ToolSet, model: str) -> "Client":
        """The file tools among the declared ones, as the client uses them with this model."""
        # Roo undoes entities in what other models write, and leaves Claude's text alone; Cline, which shares its names,
        # has no such step.
        plain = "claude" in model or _CLINE in tools
        found = {tool.name: bound for tool in tools if (bound := _bound(tool, plain=plain)) is not None}
        return cls(MappingProxyType(found))

    @property
    def name(self) -> str:
        """Whose tools most of these are."""
        owners = [tool.row.client for tool in self.tools.values()]
        return max(owners, key=owners.count, default="")

    def only(self, does: Iterable[type[Operation]]) -> "Client":
        """The same without the tools that do something else."""
        wanted = frozenset(does)
        return Client(MappingProxyType({n: one for n, one in self.tools.items() if wanted.intersection(one.form.does)}))

    def can(self, does: type[Operation]) -> bool:
        """Whether one of the tools does this."""
        return self._tool(does) is not None

    def form(self, does: type[Operation]) -> Form | None:
        """How the tool that does this takes its arguments."""
        tool = self._tool(does)
        return tool.form if tool is not None else None

    def calls(self, operations: Sequence[Operation]) -> tuple[ClientCall, ...] | Refusal:
        """The calls that do this, in order."""
        calls: list[ClientCall] = []
        for does, path_operations in groupby(operations, key=lambda one: (type(one), one.path)):
            tool = self._tool(does[0])
            if tool is None:
                return Refusal(_MISSING[does[0]])
            group = [_for(tool, one) for one in path_operations]
            for part in [group] if tool.form.many else [[one] for one in group]:
                call = tool.write(part)
                if isinstance(call, Refusal):
                    return call
                calls.append(call)
        return tuple(calls)

    def called(self, call: object) -> ClientTool | None:
        """The tool that a call of a message names."""
        name = function_name(call)
        return self.tools.get(name) if name is not None else None

    def _tool(self, does: type[Operation]) -> ClientTool | None:
        # Text before lines: it can say all that lines say, and a place within a line besides.
        if does in (Replace, Lines):
            return self._does.get(Replace) or self._does.get(Lines)
        if does is Listing and Listing not in self._does:
            reader = self._does.get(View)
            return reader if reader is not None and _READS_BOTH in reader.tool.description.casefold() else None
        return self._does.get(does)


def _for(tool: ClientTool, operation: Operation) -> Operation:
    """What is asked of a tool that shows files and directories alike."""
    return View(operation.path) if isinstance(operation, Listing) and Listing not in tool.form.does else operation


def _preferred(tools: Iterable[ClientTool]) -> Mapping[type[Operation], ClientTool]:
    found: dict[type[Operation], ClientTool] = {}
    for tool in sorted(tools, key=lambda tool: ROWS.index(tool.row)):
        for does in tool.form.does:
            found.setdefault(does, tool)
    return MappingProxyType(found)


def _bound(tool: Tool, *, plain: bool) -> ClientTool | None:
    for row in (row for row in ROWS if row.name == tool.name):
        schema = schema_of(tool)
        names = frozenset(schema.properties)
        if not names.issuperset((*row.form.keys, *row.marked)):
            continue
        path = next((key for key in row.path if key in names), None)
        if path is None and row.path:
            continue
        given = {path, *row.form.keys, *row.form.optional, *row.fixed}
        asked = [key for key in schema.required if key not in given]
        # What the tool requires and the row does not give can only be left empty.
        if all(_may_be_null(tool, key) for key in asked):
            optional = (key for key in row.form.keys if View in row.form.does and row.path and key in schema.required)
            # OpenAI's strict schemas name every parameter as required, and let those be null that are not needed:
            # https://platform.openai.com/docs/guides/structured-outputs
            nulls = tuple(sorted({*asked, *optional}))
            return ClientTool(
                tool=tool,
                row=row,
                form=_form(row, tool),
                path=path,
                properties=names,
                nulls=nulls,
                undone=None if plain else row.undone,
            )
    return None


def _may_be_null(tool: Tool, key: str) -> bool:
    properties = tool.parameters.get("properties")
    schema = properties.get(key) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return False
    kinds = schema.get("type")
    return kinds == "null" or (isinstance(kinds, list) and "null" in kinds) or _any_null(schema)


def _any_null(schema: Mapping[str, Any]) -> bool:
    choices = schema.get("anyOf", schema.get("oneOf"))
    return isinstance(choices, list) and any(isinstance(one, dict) and one.get("type") == "null" for one in choices)


def _form(row: Row, tool: Tool) -> Form:
    """The row's form; where nobody knows how a client counts lines, as its tool says."""
    if not isinstance(row.form, Offset) or row.form.base is not None:
        return row.form
    said = list(_texts(tool))
    # A description that speaks of both ways of counting says nothing of this tool's own.
    zero, one = any(map(_ZERO.search, said)), any(map(_ONE.search, said))
    return Offset(0 if zero else 1) if zero != one else row.form


def _texts(tool: Tool) -> Iterator[str]:
    yield tool.description
    properties = tool.parameters.get("properties")
    schema = properties.get(Offset.start) if isinstance(properties, dict) else None
    text = schema.get("description") if isinstance(schema, dict) else None
    if isinstance(text, str):
        yield text
