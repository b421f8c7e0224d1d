"""How a client's tool takes its arguments: into what it does to a file, and back.

A form reads the past strictly: arguments whose meaning it could not write again are not its own (`None`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from attrs import frozen

from strategies.base import Refusal
from strategies.clients.client_parser import is_numbered
from strategies.mapping.operations import (
    Create,
    Delete,
    Insert,
    Lines,
    Listing,
    Operation,
    Replace,
    View,
    as_lines,
    as_text,
    is_number,
    view,
)
from strategies.mapping.search_replace import Blocks

__all__ = [
    "BlockText",
    "Content",
    "Editor",
    "Edits",
    "FileList",
    "Form",
    "JustPath",
    "LineBefore",
    "Offset",
    "Strings",
    "Window",
]

Kind = TypeVar("Kind")
Kinds = tuple[type[Operation], ...]
Given = Mapping[str, Any]
Written = dict[str, Any] | Refusal
_PLACED = (
    "A place given by a line behind `@@` or by `*** End of File` is not possible here: write `@@` alone and add lines "
    "of the file around the change until they stand only once in it."
)
_NO_LINES = "Lines cannot be chosen with this client's tool: leave `view_range` out."


class Form(Protocol):
    """One way of taking arguments; the path is taken care of outside."""

    optional: ClassVar[tuple[str, ...]] = ()
    """The parameters it may write where they are declared."""
    many: ClassVar[bool] = False
    """One call takes several operations on one file."""

    @property
    def does(self) -> Kinds:
        """What the tool does."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The parameters it needs beside the path."""
        ...

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None: ...

    def write(self, operations: Sequence[Operation]) -> Written: ...


@frozen
class JustPath(Form):
    """A tool that takes a path and nothing else."""

    kind: type[View] | type[Listing] | type[Delete]
    keys: ClassVar[tuple[str, ...]] = ()

    @property
    def does(self) -> Kinds:
        return (self.kind,)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        return None if given else (self.kind(path),)

    def write(self, operations: Sequence[Operation]) -> Written:
        (operation,) = operations
        if isinstance(operation, View) and operation.first is not None:
            return Refusal(_NO_LINES)
        return {}


@frozen
class Window(Form):
    """The first and the last line to read, counted from 1."""

    start: str
    end: str
    does: ClassVar[Kinds] = (View,)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.start, self.end)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        found = _window(path, given, self.start, self.end)
        return None if found is None else (found,)

    def write(self, operations: Sequence[Operation]) -> Written:
        operation = _one(operations, View)
        return _window_of(operation, self.start, self.end)


@frozen
class Offset(Form):
    """The line to begin with and how many; `base` is the number of the first line, `None` where nobody says it."""

    base: int | None
    start: ClassVar[str] = "offset"
    limit: ClassVar[str] = "limit"
    does: ClassVar[Kinds] = (View,)
    keys: ClassVar[tuple[str, ...]] = (start, limit)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        if not given.keys() <= {self.start, self.limit}:
            return None
        first, limit = 1, given.get(self.limit)
        # Told and checked apart from the limit: either may be missing.
        if self.start in given:
            offset = given[self.start]
            # Clients count lines from 0 or from 1, and not all say which; off by one is a wrong line edited.
            if self.base is None or not is_number(offset) or offset < self.base:
                return None
            first = offset - self.base + 1
        if limit is not None and (not is_number(limit) or limit < 1):
            return None
        return (view(path, first, None if limit is None else first + limit - 1),)

    def write(self, operations: Sequence[Operation]) -> Written:
        operation = _one(operations, View)
        # The first line of a window that is not told is the first of the file.
        first, last = operation.first or 1, operation.last
        written = {} if last is None else {self.limit: last - first + 1}
        if first == 1:
            return written
        if self.base is None:
            return Refusal(
                "Only a range that begins with line 1 can be viewed here: let it begin with 1, or leave it out."
            )
        return {self.start: first - 1 + self.base, **written}


@frozen
class FileList(Form):
    """A list of files, each with its lines, of which one call here names one."""

    key: str
    ranges: str | None = None
    """The list of ranges of a file; `None` for `start_line` and `end_line`."""
    does: ClassVar[Kinds] = (View,)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        files = given.get(self.key)
        if len(given) != 1 or not isinstance(files, list) or not files:
            return None
        views = [self._file(entry) for entry in files]
        # All or none: a past call of which one file cannot be said again would come back as another call.
        return None if None in views else tuple(found for found in views if found is not None)

    def _file(self, entry: object) -> View | None:
        if not isinstance(entry, dict):
            return None
        rest = {key: value for key, value in entry.items() if value is not None}
        path = rest.pop("path", None)
        if not isinstance(path, str) or not path:
            return None
        if self.ranges is None:
            return _window(path, rest, "start_line", "end_line")
        ranges = rest.pop(self.ranges, [])
        # A view has one range: several could not be said again.
        if rest or not isinstance(ranges, list) or len(ranges) > 1:
            return None
        if not ranges:
            return View(path)
        ends = ranges[0]
        if not isinstance(ends, list) or len(ends) != 2:
            return None
        return _window(path, {"start": ends[0], "end": ends[1]}, "start", "end")

    def write(self, operations: Sequence[Operation]) -> Written:
        files: list[dict[str, Any]] = []
        for operation in (_one([each], View) for each in operations):
            if self.ranges is None:
                files.append({"path": operation.path, **_window_of(operation, "start_line", "end_line")})
            elif operation.first is None:
                files.append({"path": operation.path})
            elif operation.last is None:
                return Refusal("A range needs a last line here: give `view_range` two line numbers.")
            else:
                files.append({"path": operation.path, self.ranges: [[operation.first, operation.last]]})
        return {self.key: files}


@frozen
class Content(Form):
    """A whole file, and the number of its lines; `cleans` is a tool that strips odd ends."""

    cleans: bool = False
    key: ClassVar[str] = "content"
    count: ClassVar[str] = "line_count"
    does: ClassVar[Kinds] = (Create,)
    keys: ClassVar[tuple[str, ...]] = (key,)
    optional: ClassVar[tuple[str, ...]] = (count,)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        content = given.get(self.key)
        if not isinstance(content, str) or not given.keys() <= {self.key, self.count}:
            return None
        # A past call with a wrong count could not be written again as it was.
        if self.count in given and given[self.count] != _lines_of(content):
            return None
        return None if self._fault(content) else (Create(path, content),)

    def write(self, operations: Sequence[Operation]) -> Written:
        operation = _one(operations, Create)
        fault = self._fault(operation.content)
        if fault is not None:
            return Refusal(fault)
        # Counted for the model, which was never asked: Roo holds the count against the text to find what was left out.
        return {self.key: operation.content, self.count: _lines_of(operation.content)}

    # In the extension, before the file is written, whatever the content is:
    # https://github.com/RooCodeInc/Roo-Code/blob/716a2dca86e45f39ffbea1c72af510a8e21cd4e3/src/core/tools/writeToFileTool.ts
    def _fault(self, content: str) -> str | None:
        """What the tool of Roo and Cline would take away."""
        if not self.cleans:
            return None
        if content.startswith("```"):
            return "The content begins with a code fence, which this client would strip: begin it with another line."
        if content.endswith("```"):
            return "The content ends with a code fence, which this client would strip: end it with a line break."
        if is_numbered(content.split("\n")):
            return "Every line begins with a number and `|`, which this client would strip as line numbers."
        return None


@frozen(kw_only=True)
class Strings(Form):
    """An old text that must stand once, and the new one."""

    old: str
    new: str
    does: ClassVar[Kinds] = (Replace,)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.old, self.new)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        # A further key, such as the one to replace all, means another change than this one can say.
        if given.keys() != {self.old, self.new}:
            return None
        old, new = given[self.old], given[self.new]
        return (Replace(path, old, new),) if isinstance(old, str) and old and isinstance(new, str) else None

    def write(self, operations: Sequence[Operation]) -> Written:
        change = as_text(operations[0]) if isinstance(operations[0], Lines) else _one(operations, Replace)
        # OpenCode replaced all of the file: https://github.com/anomalyco/opencode/issues/23517; others put the new text
        # between any two characters: https://github.com/langchain-ai/deepagents/issues/5589.
        # An empty old text makes some clients write over the whole file, and others insert at its start.
        if not change.old:
            return Refusal("The old text is empty, so there is no place to put the new one.")
        return {self.old: change.old, self.new: change.new}


@frozen(kw_only=True)
class Edits(Form):
    """A list of old and new texts; one call here holds one of them."""

    key: str
    each: Strings
    does: ClassVar[Kinds] = (Replace,)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        edits = given.get(self.key)
        if len(given) != 1 or not isinstance(edits, list) or len(edits) != 1 or not isinstance(edits[0], dict):
            return None
        return self.each.read(path, edits[0])

    def write(self, operations: Sequence[Operation]) -> Written:
        written = self.each.write(operations)
        return written if isinstance(written, Refusal) else {self.key: [written]}


@frozen
class BlockText(Form):
    """SEARCH/REPLACE blocks."""

    key: str
    blocks: Blocks
    does: ClassVar[Kinds] = (Lines,)
    many: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        text = given.get(self.key)
        return self.blocks.read(path, text) if len(given) == 1 and isinstance(text, str) else None

    def write(self, operations: Sequence[Operation]) -> Written:
        changes: list[Lines] = []
        for operation in operations:
            change = as_lines(operation) if isinstance(operation, Replace) else _one([operation], Lines)
            if isinstance(change, Refusal):
                return change
            # The blocks know no place but their own text, so the change could land at another one.
            if change.placed:
                return Refusal(_PLACED)
            changes.append(change)
        text = self.blocks.write(changes)
        return text if isinstance(text, Refusal) else {self.key: text}


@frozen
class LineBefore(Form):
    """The line before which the content is put, counted from 1; its 0, the end of the file, has no counterpart."""

    line: str
    content: str
    does: ClassVar[Kinds] = (Insert,)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.line, self.content)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        if given.keys() != {self.line, self.content}:
            return None
        line, content = given[self.line], given[self.content]
        # Nought is the end of the file here, and its beginning in the model's own tool.
        if not is_number(line) or line < 1 or not isinstance(content, str):
            return None
        return (Insert(path, line - 1, content),)

    def write(self, operations: Sequence[Operation]) -> Written:
        operation = _one(operations, Insert)
        # The model's tool counts the line behind which it is put, this one the line before which.
        return {self.line: operation.after + 1, self.content: operation.text}


@frozen(kw_only=True)
class Editor(Form):
    """One tool for three things: with an old text it replaces, with a line it inserts before it, else it creates."""

    edit: Strings
    insert: LineBefore
    content: str
    does: ClassVar[Kinds] = (Replace, Insert, Create)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.edit.old, self.insert.line, self.content)

    def read(self, path: str, given: Given) -> tuple[Operation, ...] | None:
        if given.keys() != {self.content}:
            # The keys of the three do not overlap: at most one of them takes the arguments.
            return self.edit.read(path, given) or self.insert.read(path, given)
        content = given[self.content]
        return (Create(path, content),) if isinstance(content, str) else None

    def write(self, operations: Sequence[Operation]) -> Written:
        match operations[0]:
            case Create(content=content):
                return {self.content: content}
            case Insert():
                return self.insert.write(operations)
            case _:
                return self.edit.write(operations)


def _one(operations: Sequence[Operation], kind: type[Kind]) -> Kind:
    """The one operation that a form is given, which is of its own kind."""
    (operation,) = operations
    if not isinstance(operation, kind):
        raise TypeError(f"{kind.__name__} was expected")
    return operation


def _lines_of(content: str) -> int:
    return content.count("\n") + 1


def _window(path: str, given: Given, start: str, end: str) -> View | None:
    if not given.keys() <= {start, end}:
        return None
    first, last = given.get(start, 1), given.get(end)
    if not is_number(first) or first < 1 or (last is not None and (not is_number(last) or last < first)):
        return None
    return view(path, first, last)


def _window_of(operation: View, start: str, end: str) -> dict[str, Any]:
    # All of it: a first line that nobody asked for would be read as a range by clients that want both ends.
    if operation.first is None:
        return {}
    return {start: operation.first, **({} if operation.last is None else {end: operation.last})}
