"""What the conversation has shown of a file, as evidence against a change whose first line lost its indentation.

A client of blocks goes by whole lines and passes over white space: given `if x:` for a line that is indented, it finds
the line and moves all the others. The text alone does not tell; a file that was read does. Nothing is made of what was
not read, and nothing is ever mended by it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from gateway.wire.chat_request import texts_of
from strategies.base import Refusal
from strategies.mapping.client_arguments import BlockText
from strategies.mapping.client_tools import Client
from strategies.mapping.operations import Lines, Operation, Replace, View, as_lines
from strategies.mapping.search_replace import parted
from strategies.schema.structured import arguments_of

__all__ = ["Seen"]

Shown = dict[str, set[str]]
"""The indentations of each line."""
_NUMBER = re.compile(r"[ \t]*[0-9]+ ?[|:] ?")


@define(kw_only=True, eq=False)
class Seen:
    """What a conversation shows of files; it is gone through once, and every file once."""

    client: Client = field(repr=False)
    messages: Sequence[Mapping[str, Any]] = field(repr=False)
    _contents: dict[str, list[Any]] | None = field(default=None, init=False, repr=False)
    """By path, what was read."""
    _shown: dict[str, Shown] = field(factory=dict, init=False, repr=False)

    def cut_line(self, operations: Sequence[Operation]) -> Refusal | None:
        """Why a change of lines would move others, going by how its file was shown."""
        if not isinstance(self.client.form(Lines), BlockText):
            return None
        for operation in operations:
            change = as_lines(operation) if isinstance(operation, Replace) else operation
            # A single line that is replaced by one keeps the file's own indentation.
            if not isinstance(change, Lines) or not change.old or len(change.old) + len(change.new) < 3:
                continue
            own, rest = parted(change.old[0])
            shown = self._lines_of(change.path).get(rest, set())
            # The line as it was given may end an indented one: then the tool would find that, and move the lines by the
            # difference.
            if own not in shown and any(indentation.endswith(own) for indentation in shown):
                return Refusal(
                    f"The old text must be whole lines: begin it with the indentation of `{rest.strip()[:60]}`."
                )
        return None

    def _lines_of(self, path: str) -> Shown:
        """The lines of a file wherever it was read, with and without what may be their numbers."""
        if path not in self._shown:
            if self._contents is None:
                self._contents = _contents(self.client, self.messages)
            shown: Shown = {}
            for content in self._contents.get(path, ()):
                for indentation, rest in map(parted, _lines(content)):
                    shown.setdefault(rest, set()).add(indentation)
            self._shown[path] = shown
        return self._shown[path]


def _contents(client: Client, messages: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The results of reading each file."""
    reading: dict[str, frozenset[str]] = {}
    contents: dict[str, list[Any]] = {}
    for message in messages:
        if message.get("role") == "assistant":
            # Ids come again in other turns: a result belongs to the calls of the message before it.
            reading = {}
            for call_id, paths in _reads(client, message.get("tool_calls")):
                reading[call_id] = paths | reading.get(call_id, frozenset())
        elif message.get("role") == "tool":
            for path in reading.get(_id(message.get("tool_call_id")), ()):
                contents.setdefault(path, []).append(message.get("content"))
    return contents


def _reads(client: Client, calls: object) -> Iterator[tuple[str, frozenset[str]]]:
    for call in calls if isinstance(calls, list) else ():
        tool = client.called(call)
        if tool is None or View not in tool.form.does:
            continue
        operations = tool.read(arguments_of(call["function"].get("arguments")) or {}) or ()
        yield _id(call.get("id")), frozenset(operation.path for operation in operations)


def _id(call_id: object) -> str:
    return call_id if isinstance(call_id, str) else ""


def _lines(content: object) -> Iterator[str]:
    for text in texts_of(content):
        for line in text.replace("\r\n", "\n").split("\n"):
            yield line
            # Clients show files with the number of each line in front, in several forms.
            number = _NUMBER.match(line)
            if number is not None:
                yield line[number.end() :]
