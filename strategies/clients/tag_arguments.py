"""How the tools of tag clients take their arguments: what a model may give, and the parameters it becomes.

A form that cannot say the arguments exactly says nothing (`None`): the call then stays what the model wrote.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from json import dumps
from typing import Any

from attrs import field, frozen

from strategies.clients.prompt_tools import PromptTool
from strategies.text.strict_json import JsonFault, loads_strict

__all__ = ["PLAIN", "Form", "Pairs", "diffs", "file_writing", "follow_up", "listing", "reading", "server_call"]

Pairs = list[tuple[str, str]]
"""Parameters and their texts, in the order in which they are written."""
Write = Callable[[Mapping[str, Any], PromptTool], Pairs | None]

_ANY: Mapping[str, Any] = {"type": ["string", "array", "object"]}
_STRING: Mapping[str, Any] = {"type": "string"}
_NUMBER: Mapping[str, Any] = {"type": ["integer", "string"]}
_BOOLEAN: Mapping[str, Any] = {"type": ["boolean", "string"]}
_JSON_VALUES = frozenset({"arguments", "options", "allowed_domains", "blocked_domains"})
_TYPES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("recursive", "requires_approval", "needs_more_exploration", "use_regex", "ignore_case"), _BOOLEAN),
    **dict.fromkeys(("line_count", "start_line", "end_line", "line", "timeout"), _NUMBER),
    **dict.fromkeys((*_JSON_VALUES, "args", "files", "follow_up", "suggestions"), _ANY),
}
_WHOLE = re.compile(r"[0-9]{1,9}")
_MODE = re.compile(r"[A-Za-z0-9_-]+")
_ITEM = re.compile(r"[ \t]*+(?:[-*+]|[0-9]{1,3}[.)])[ \t]++(.++)(?<=\S)\Z")
_ENTITY = re.compile(r"&(?:[a-z]+|#[0-9]+);")
_TAIL = re.compile(r"</(?=arguments)")


def _plain(arguments: Mapping[str, Any], tool: PromptTool) -> Pairs | None:
    pairs: Pairs = []
    known = [key for key in tool.parameters if key in arguments]
    for key in (*known, *(key for key in arguments if key not in tool.parameters)):
        if arguments[key] is None:
            continue
        text = _said(key, arguments[key])
        if text is None:
            return None
        pairs.append((key, text))
    return pairs


@frozen(kw_only=True)
class Form:
    """One tool's way with its arguments."""

    reads: tuple[str, ...] = ()
    """Parameters that a model may give beside those of the prompt."""
    asks: tuple[str, ...] | None = None
    """The parameters without which there is no call; None leaves it to the prompt."""
    write: Write = field(default=_plain)

    def schema(self, tool: PromptTool) -> dict[str, Any]:
        """What a model may give, as the schema of the tool."""
        names = dict.fromkeys((*tool.parameters, *self.reads))
        return {
            "type": "object",
            "properties": {name: _TYPES.get(name, _STRING) for name in names},
            "required": sorted(tool.required if self.asks is None else self.asks),
            "additionalProperties": False,
        }


PLAIN = Form()


def _said(key: str, value: object) -> str | None:
    """A value as a tag's text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return dumps(value)
    if key not in _JSON_VALUES:
        return None
    # JSON in a tag named `arguments` ends at the first closing tag, so the value must not hold one.
    return _TAIL.sub(r"\\u003c/", dumps(value, ensure_ascii=False))


# Files


def _write_file(arguments: Mapping[str, Any], tool: PromptTool) -> Pairs | None:
    pairs = _plain({key: value for key, value in arguments.items() if key != "line_count"}, tool)
    content = arguments.get("content")
    if pairs is None or not isinstance(content, str):
        return None
    # Roo Code refuses a file without the number of its lines, to see that it was not cut; most models miscount.
    count = arguments.get("line_count")
    return [*pairs, ("line_count", str(count if count is not None else content.count("\n") + 1))]


file_writing = Form(reads=("line_count",), asks=("path", "content"), write=_write_file)


def _list(arguments: Mapping[str, Any], tool: PromptTool) -> Pairs | None:
    given = {key: value for key, value in arguments.items() if value is not None}
    # Clients refuse the call without them, and a model that leaves them out means just this.
    return _plain({"path": ".", "recursive": False, **given}, tool)


listing = Form(reads=("path", "recursive"), asks=(), write=_list)


@frozen
class _File:
    path: str
    ranges: tuple[tuple[int, int], ...] = ()


def _read(arguments: Mapping[str, Any], tool: PromptTool) -> Pairs | None:
    given = {key: value for key, value in arguments.items() if value is not None}
    args = given.get("args")
    if isinstance(args, str) and len(given) == 1 and "<" in args:
        return [("args", args)]
    try:
        files = _files(given)
    except (TypeError, ValueError, KeyError):
        return None
    if "args" in tool.parameters or "path" not in tool.parameters:
        return _args_of(files)
    (first, *others) = files
    if others or len(first.ranges) > 1:
        return None
    ends = first.ranges[0] if first.ranges else ()
    return [
        ("path", first.path),
        *((key, str(end)) for key, end in zip(("start_line", "end_line"), ends, strict=False)),
    ]


def _args_of(files: list[_File]) -> Pairs | None:
    """The files as elements; their paths are read as markup, so not every character can be said."""
    lines = []
    for file in files:
        # These elements go through a real XML parser at the client.
        if not _is_plain(file.path) or "\n" in file.path:
            return None
        ranges = [f"<line_range>{start}-{end}</line_range>" for start, end in file.ranges]
        lines += ["<file>", f"<path>{file.path}</path>", *ranges, "</file>"]
    return [("args", "\n".join(lines))]


def _is_plain(text: str) -> bool:
    """Whether a text that is read as markup stays what it is."""
    return text == text.strip() and "<" not in text and _ENTITY.search(text) is None


def _files(given: Mapping[str, Any]) -> list[_File]:
    """All files that are asked for, in whatever way; raises where that is not certain."""
    many = given.get("files", given.get("args", given.get("file")))
    if many is None:
        return [_file(given)]
    if given.keys() - {"files", "args", "file"}:
        raise ValueError("files twice")
    many = _decoded(many)
    if isinstance(many, dict) and (many.keys() & {"file", "files"}):
        return _files(many)
    entries = many if isinstance(many, list) else [many]
    if not entries:
        raise ValueError("no files")
    return [_file(entry) for entry in map(_unwrapped, entries)]


def _decoded(value: object) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return loads_strict(value)
        except JsonFault:
            return value
    return value


def _unwrapped(entry: object) -> object:
    return entry["file"] if isinstance(entry, dict) and entry.keys() == {"file"} else entry


def _file(entry: Any) -> _File:
    if isinstance(entry, str):
        return _File(entry)
    path = entry["path"]
    if not isinstance(path, str) or not path:
        raise ValueError("no path")
    known = {"path", "start_line", "end_line", "line_range", "line_ranges", "offset", "limit"}
    if entry.keys() - known:
        raise ValueError("more than a file")
    return _File(path, tuple(_ranges(entry)))


def _ranges(entry: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    ranges = entry.get("line_ranges") or entry.get("line_range") or []
    for item in [ranges] if isinstance(ranges, str) else ranges:
        start, end = item.split("-") if isinstance(item, str) else item
        yield _number(start), _number(end)
    if "offset" in entry or "limit" in entry:
        start = _number(entry.get("offset", 1))
        yield start, start + _number(entry["limit"]) - 1
    elif "start_line" in entry or "end_line" in entry:
        yield _number(entry.get("start_line", 1)), _number(entry["end_line"])


def _number(value: object) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError("no line number")


reading = Form(reads=("args", "path", "files", "start_line", "end_line"), asks=(), write=_read)


def _diff(arguments: Mapping[str, Any], tool: PromptTool) -> Pairs | None:
    if "args" not in tool.parameters or "path" in tool.parameters or "args" in arguments:
        return _plain(arguments, tool) if arguments.keys() & {"args", "diff"} else None
    path, diff = arguments.get("path"), arguments.get("diff")
    if not isinstance(path, str) or not isinstance(diff, str) or "</content>" in diff or diff != diff.strip():
        return None
    if not _is_plain(path):
        return None
    text = f"<file>\n<path>{path}</path>\n<diff>\n<content>\n{diff}\n</content>\n</diff>\n</file>"
    return [("args", text)]


diffs = Form(reads=("path", "diff"), asks=(), write=_diff)


# Questions


def _ask(arguments: Mapping[str, Any], tool: PromptTool) -> Pairs | None:
    question = arguments.get("question")
    key = next((key for key in ("follow_up", "suggestions", "options") if arguments.get(key) is not None), None)
    if not isinstance(question, str) or (key is None and "follow_up" in tool.required):
        return None
    if key is None:
        return [("question", question)]
    given = arguments[key]
    if isinstance(given, str) and "<suggest" in given and "<suggestion" not in given:
        return [("question", question), ("follow_up", given)]
    lines = [_suggestion(entry) for entry in _suggestions(given)]
    if not lines or None in lines:
        return None
    return [("question", question), ("follow_up", "\n".join(filter(None, lines)))]


def _suggestions(given: object) -> list[Any]:
    given = _decoded(given)
    if isinstance(given, dict):
        given = given.get("suggest", given.get("suggestions", given))
    if isinstance(given, list):
        return given
    if not isinstance(given, str):
        return [given]
    items = [_ITEM.match(line.rstrip(" \t")) for line in given.strip().split("\n")]
    return [item.group(1) for item in items if item] if all(items) else [given]


def _suggestion(entry: object) -> str | None:
    text, mode = entry, None
    if isinstance(entry, dict):
        if entry.keys() - {"text", "mode", "answer", "suggest"}:
            return None
        text = entry.get("text", entry.get("answer", entry.get("suggest")))
        mode = entry.get("mode")
    if not isinstance(text, str) or not text or not _is_plain(text):
        return None
    if mode is None:
        return f"<suggest>{text}</suggest>"
    if not isinstance(mode, str) or not _MODE.fullmatch(mode):
        return None
    return f'<suggest mode="{mode}">{text}</suggest>'


follow_up = Form(reads=("question", "follow_up", "suggestions", "options"), asks=("question",), write=_ask)


# Servers


def _call_server(arguments: Mapping[str, Any], tool: PromptTool) -> Pairs | None:
    given = arguments.get("arguments")
    if given is not None and not isinstance(_decoded(given), dict):
        return None
    return _plain(arguments, tool)


server_call = Form(write=_call_server)
