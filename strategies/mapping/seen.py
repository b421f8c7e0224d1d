"""What the conversation has shown of a file, as evidence against a change whose first line lost its indentation.

A client of blocks goes by whole lines and passes over white space: given `if x:` for a line that is indented, it finds
the line and moves all the others. The text alone does not tell; a file that was read does. Nothing is made of what was
not read, and nothing is ever mended by it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategies.mapping.clients import Client
from strategies.mapping.conversation import decoded
from strategies.mapping.forms import BlockText
from strategies.mapping.operations import Lines, Operation, Refusal, Replace, View, as_lines

__all__ = ["cut_line"]

Shown = dict[str, set[str]]
"""The indentations of each line."""
_NUMBER = re.compile(r"[ \t]*[0-9]+ ?[|:] ?")


def cut_line(operations: Sequence[Operation], client: Client, messages: Sequence[Mapping[str, Any]]) -> Refusal | None:
    """Why a change of lines would move others, going by how its file was shown."""
    if not isinstance(client.form(Lines), BlockText):
        return None
    seen: dict[str, Shown] = {}
    for operation in operations:
        change = as_lines(operation) if isinstance(operation, Replace) else operation
        if not isinstance(change, Lines) or not change.old or len(change.old) + len(change.new) < 3:
            continue
        own, rest = _parted(change.old[0])
        if change.path not in seen:
            seen[change.path] = _shown(change.path, client, messages)
        shown = seen[change.path].get(rest, set())
        if own not in shown and any(indentation.endswith(own) for indentation in shown):
            return Refusal(f"The old text must be whole lines: begin it with the indentation of `{rest.strip()[:60]}`.")
    return None


def _parted(line: str) -> tuple[str, str]:
    """A line's indentation and the rest."""
    rest = line.lstrip("\t ")
    return line[: len(line) - len(rest)], rest


def _shown(path: str, client: Client, messages: Sequence[Mapping[str, Any]]) -> Shown:
    """The lines of a file wherever it was read, with and without what may be their numbers."""
    reading: set[str] = set()
    shown: Shown = {}
    for message in messages:
        if message.get("role") == "assistant":
            reading = {call_id for call_id, paths in _reads(client, message.get("tool_calls")) if path in paths}
        elif message.get("role") == "tool" and _id(message.get("tool_call_id")) in reading:
            for indentation, rest in map(_parted, _lines(message.get("content"))):
                shown.setdefault(rest, set()).add(indentation)
    return shown


def _reads(client: Client, calls: object) -> Iterator[tuple[str, frozenset[str]]]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        tool = client.tools.get(name) if isinstance(name, str) else None
        if tool is None or function is None or View not in tool.form.does:
            continue
        operations = tool.read(decoded(function.get("arguments")) or {}) or ()
        yield _id(call.get("id")), frozenset(operation.path for operation in operations)


def _id(call_id: object) -> str:
    return call_id if isinstance(call_id, str) else ""


def _lines(content: object) -> Iterator[str]:
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, dict) else part
        for line in text.replace("\r\n", "\n").split("\n") if isinstance(text, str) else ():
            yield line
            number = _NUMBER.match(line)
            if number is not None:
                yield line[number.end() :]
