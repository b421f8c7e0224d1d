"""What the file tools of models and clients do to files, as small models of the real ones.

The clients' tools behave as their programs do, with what makes them dangerous: Roo's `apply_diff` compares lines with
white space folded, takes the nearest of several places, trims and re-indents; OpenCode's `edit` falls back to trimmed
lines. The models' tools behave as their descriptions say. A file is its text; a tool that cannot do its work raises.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import frozen

from gateway.core.tools import Tool
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.base import CallBack, Refusal
from strategies.mapping.mappings import MAPPINGS, Mapped

Files = dict[str, str]
Arguments = Mapping[str, Any]

JS_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
JS_S = f"[{JS_SPACE}]"


class ToolError(Exception):
    """A tool that could not do what it was asked for."""


# --- the models' tools -----------------------------------------------------------------------------------------------


def text_editor(files: Files, arguments: Arguments, *, file_endings: bool = False) -> None:
    """`file_endings` puts inserted lines in with the line ends of the file, which is as the client's tool has it."""
    path = arguments["path"]
    match arguments["command"]:
        case "create":
            files[path] = arguments["file_text"]
        case "str_replace":
            files[path] = _replaced_once(_file(files, path), arguments["old_str"], arguments.get("new_str", ""))
        case "insert":
            ending = _ending(_file(files, path)) if file_endings else "\n"
            lines = _file(files, path).split(ending)
            at = arguments["insert_line"]
            if at > len(lines):
                raise ToolError("no such line")
            inserted = arguments["insert_text"].removesuffix("\n").split("\n")
            files[path] = ending.join([*lines[:at], *inserted, *lines[at:]])
        case command:
            raise ToolError(command)


def patch_tool(files: Files, operations: list[tuple[str, str, list[str], list[str]]]) -> None:
    """A patch that is already taken apart: (what, path, old lines, new lines)."""
    for what, path, old, new in operations:
        if what == "add":
            files[path] = "".join(f"{line}\n" for line in new)
        elif what == "delete":
            _file(files, path)
            del files[path]
        else:
            files[path] = _lines_replaced_once(_file(files, path), old, new)


def _lines_replaced_once(text: str, old: list[str], new: list[str]) -> str:
    ending = _ending(text)
    lines = _lf(text).split("\n")
    places = [at for at in range(len(lines)) if lines[at : at + len(old)] == old]
    if len(places) != 1:
        raise ToolError(f"{len(places)} places")
    at = places[0]
    return ending.join([*lines[:at], *new, *lines[at + len(old) :]])


def _file(files: Files, path: str) -> str:
    if path not in files:
        raise ToolError(f"no file {path}")
    return files[path]


def _ending(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _replaced_once(text: str, old: str, new: str) -> str:
    ending = _ending(text)
    found, old, new = _lf(text), _lf(old), _lf(new)
    if not old or count(found, old) != 1:
        raise ToolError("not exactly once")
    result = found.replace(old, new, 1)
    return result.replace("\n", ending)


def count(text: str, part: str) -> int:
    """How often a part stands in a text, overlapping ones too."""
    at, times = text.find(part), 0
    while at >= 0:
        times += 1
        at = text.find(part, at + 1)
    return times


# --- Roo -------------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(
    rf"(?:^|\n)(?<!\\)<<<<<<< SEARCH>?{JS_S}*\n"
    rf"((?::start_line:{JS_S}*(\d+){JS_S}*\n))?((?::end_line:{JS_S}*(\d+){JS_S}*\n))?((?<!\\)-------{JS_S}*\n)?"
    rf"([\s\S]*?)(?:\n)?(?:(?<=\n)(?<!\\)======={JS_S}*\n)([\s\S]*?)(?:\n)?"
    r"(?:(?<=\n)(?<!\\)>>>>>>> REPLACE)(?=\n|\Z)"
)
_ESCAPED = ("<<<<<<<", "=======", ">>>>>>>", "-------", ":end_line:", ":start_line:")
_NUMBER = re.compile(rf"{JS_S}*\d+{JS_S}+\|(?!\|)")
_STRIP = re.compile(rf"{JS_S}*\d+{JS_S}+\|(?!\|){JS_S}?(.*)\Z")


def roo_apply_diff(files: Files, arguments: Arguments) -> None:
    path, diff = arguments["path"], _roo_undone(arguments["diff"])
    text = _file(files, path)
    _roo_check(diff)
    blocks = [(int(m[2] or 0), m[6], m[7]) for m in _BLOCK.finditer(diff)]
    if not blocks:
        raise ToolError("no blocks")
    ending = _ending(text)
    lines = re.split(r"\r?\n", text)
    delta = 0
    for start, search, replacement in sorted(blocks, key=lambda block: block[0]):
        before = len(lines)
        lines = _roo_block(lines, start + (delta if start else 0), _roo_unescaped(search), _roo_unescaped(replacement))
        delta += len(lines) - before
    files[path] = ending.join(lines)


def _roo_undone(text: str) -> str:
    """As for every model that is no Claude."""
    for entity, char in zip(
        ("&lt;", "&gt;", "&quot;", "&#39;", "&apos;", "&#91;", "&#93;", "&lsqb;", "&rsqb;", "&amp;"),
        "<>\"''[][]&",
        strict=True,
    ):
        text = text.replace(entity, char)
    return text


def _roo_check(diff: str) -> None:
    state = 0
    for line in diff.split("\n"):
        marker = line.strip(JS_SPACE)
        if state == 2 and marker.startswith((":start_line:", ":end_line:")):
            raise ToolError("hint in the replacement")
        is_marker = marker == "=======" or marker.startswith(("<<<<<<<", ">>>>>>>"))
        expected = ("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE")[state]
        if is_marker and marker != expected:
            raise ToolError(f"marker {marker}")
        state = (state + 1) % 3 if marker == expected else state
    if state:
        raise ToolError("unfinished block")


def _roo_unescaped(text: str) -> str:
    for marker in _ESCAPED:
        text = re.sub(rf"^\\{re.escape(marker)}", marker, text, flags=re.MULTILINE)
    return text


def _roo_block(lines: list[str], start: int, search: str, replacement: str) -> list[str]:
    if _numbered(search) and (_numbered(replacement) or not replacement.strip(JS_SPACE)):
        start = start or int(search.split("\n")[0].split("|")[0])
        search, replacement = _stripped(search), _stripped(replacement)
    if search == replacement:
        raise ToolError("identical")
    searched = re.split(r"\r?\n", search) if search else []
    replaced = re.split(r"\r?\n", replacement) if replacement else []
    if not searched:
        raise ToolError("empty search")
    at = _roo_place(lines, searched, start)
    matched, base = _indent(lines[at]), _indent(searched[0])
    made = []
    for line in replaced:
        own = _indent(line)
        level = len(own) - len(base)
        indent = matched[: max(0, len(matched) + level)] if level < 0 else matched + own[len(base) :]
        made.append(indent + line.strip(JS_SPACE))
    return [*lines[:at], *made, *lines[at + len(searched) :]]


def _roo_place(lines: list[str], searched: list[str], start: int) -> int:
    wanted = _roo_folded("\n".join(searched))
    size, low, high = len(searched), 0, len(lines)
    if start:
        if _roo_folded("\n".join(lines[start - 1 : start - 1 + size])) == wanted:
            return start - 1
        low, high = max(0, start - 41), min(len(lines), start + size + 40)
    left = (low + high) // 2
    right = left + 1
    while left >= low or right <= high - size:
        if left >= low:
            if _roo_folded("\n".join(lines[left : left + size])) == wanted:
                return left
            left -= 1
        if right <= high - size:
            if _roo_folded("\n".join(lines[right : right + size])) == wanted:
                return right
            right += 1
    raise ToolError("no match")


def _roo_folded(text: str) -> str:
    for quotes, plain in (("“”", '"'), ("‘’", "'"), ("…", "..."), ("—–", "-"), ("\u00a0", " ")):
        for quote in quotes:
            text = text.replace(quote, plain)
    return re.sub(f"{JS_S}+", " ", text).strip(JS_SPACE)


def _numbered(text: str) -> bool:
    return all(map(_NUMBER.match, re.split(r"\r?\n", text)))


def _stripped(text: str) -> str:
    return "\n".join(m[1] if (m := _STRIP.match(line)) else line for line in re.split(r"\r?\n", text))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip("\t "))]


def roo_insert_content(files: Files, arguments: Arguments) -> None:
    path, line = arguments["path"], arguments["line"]
    lines = files[path].split("\n") if path in files else []
    at = line - 1
    files[path] = "\n".join([*lines[:at], *arguments["content"].split("\n"), *lines[at:]])


def roo_write(files: Files, arguments: Arguments) -> None:
    _fenced_write(files, arguments, undo=True)


def cline_write(files: Files, arguments: Arguments) -> None:
    _fenced_write(files, arguments, undo=False)


def _fenced_write(files: Files, arguments: Arguments, *, undo: bool) -> None:
    content = arguments["content"]
    if content.startswith("```"):
        content = "\n".join(content.split("\n")[1:])
    if content.endswith("```"):
        content = "\n".join(content.split("\n")[:-1])
    if arguments.get("line_count", content.count("\n") + 1) != content.count("\n") + 1:
        raise ToolError("the content was cut")
    content = _roo_undone(content) if undo else content
    files[arguments["path"]] = _stripped(content) if _numbered(content) else content


# --- Cline -----------------------------------------------------------------------------------------------------------

_CLINE = (
    re.compile(r"[-]{3,} SEARCH>?|[<]{3,} SEARCH>?"),
    re.compile(r"[=]{3,}"),
    re.compile(r"[+]{3,} REPLACE>?|[>]{3,} REPLACE>?"),
)


def cline_replace_in_file(files: Files, arguments: Arguments) -> None:
    path = arguments["path"]
    text = _file(files, path)
    ending = _ending(text)
    content, done, result, state = _lf(text), 0, "", 0
    search: list[str] = []
    at = end = 0
    for line in arguments["diff"].split("\n"):
        if _CLINE[state].fullmatch(line):
            if state == 0:
                search = []
            elif state == 1:
                at, end = _cline_place(content, search, done)
                result += content[done:at]
            else:
                done = end
            state = (state + 1) % 3
        elif state == 1:
            search.append(line)
        elif state == 2:
            result += f"{line}\n"
    if state:
        raise ToolError("unfinished block")
    files[path] = (result + content[done:]).replace("\n", ending)


def _cline_place(content: str, search: list[str], start: int) -> tuple[int, int]:
    text = "".join(f"{line}\n" for line in search)
    at = content.find(text, start)
    if at >= 0:
        return at, at + len(text)
    lines = content.split("\n")
    for first in range(len(lines) - len(search) + 1):
        if [line.strip() for line in lines[first : first + len(search)]] == [line.strip() for line in search]:
            at = sum(len(line) + 1 for line in lines[:first])
            end = sum(len(line) + 1 for line in lines[: first + len(search)])
            if at >= start:
                return at, min(end, len(content))
    raise ToolError("no match")


def cline_editor(files: Files, arguments: Arguments) -> None:
    path, new, old = arguments["path"], arguments["new_text"], arguments.get("old_text")
    if arguments.get("insert_line") is not None:
        text = _file(files, path)
        lines, at = re.split(r"\r\n|\n", text), arguments["insert_line"] - 1
        if not 0 <= at <= len(lines):
            raise ToolError("no such line")
        files[path] = _ending(text).join([*lines[:at], *re.split(r"\r\n|\n", new), *lines[at:]])
    elif path not in files:
        files[path] = new
    elif old is None:
        raise ToolError("the file is there")
    else:
        files[path] = _replaced_once(files[path], old, new)


# --- exact edits: OpenCode, Claude Code, Qwen Code, pi ---------------------------------------------------------------


def opencode_edit(files: Files, arguments: Arguments) -> None:
    path, old, new = arguments["filePath"], arguments["oldString"], arguments["newString"]
    if old == new:
        raise ToolError("identical")
    if not old:
        files[path] = new
        return
    text = _file(files, path)
    ending = _ending(text)
    content, old, new = _lf(text), _lf(old), _lf(new)
    for found in (old, *_line_trimmed(content, old)):
        if count(content, found) == 1:
            files[path] = content.replace(found, new, 1).replace("\n", ending)
            return
    raise ToolError("not found, or more than once")


def _line_trimmed(content: str, old: str) -> list[str]:
    lines, wanted = content.split("\n"), old.split("\n")
    if wanted[-1] == "":
        wanted.pop()
    trimmed = [line.strip() for line in wanted]
    return [
        "\n".join(lines[at : at + len(wanted)])
        for at in range(len(lines) - len(wanted) + 1)
        if [line.strip() for line in lines[at : at + len(wanted)]] == trimmed
    ]


def strict_edit(files: Files, arguments: Arguments) -> None:
    """Claude Code's and Qwen Code's `edit`, and what Roo calls `search_replace`."""
    if arguments["old_string"] == arguments["new_string"]:
        raise ToolError("identical")
    path = arguments["file_path"]
    files[path] = _replaced_once(_file(files, path), arguments["old_string"], arguments["new_string"])


def pi_edit(files: Files, arguments: Arguments) -> None:
    for edit in arguments["edits"]:
        strict_edit(
            files, {"file_path": arguments["path"], "old_string": edit["oldText"], "new_string": edit["newText"]}
        )


def plain_write(files: Files, arguments: Arguments) -> None:
    path = next(arguments[key] for key in ("filePath", "file_path", "path") if key in arguments)
    files[path] = arguments["content"]


def delete_file(files: Files, arguments: Arguments) -> None:
    _file(files, arguments["path"])
    del files[arguments["path"]]


Run = Callable[[Files, Arguments], None]
ROO: Mapping[str, Run] = {
    "apply_diff": roo_apply_diff,
    "insert_content": roo_insert_content,
    "write_to_file": roo_write,
    "delete_file": delete_file,
}
CLINE: Mapping[str, Run] = {"replace_in_file": cline_replace_in_file, "write_to_file": cline_write}
CLINE_SDK: Mapping[str, Run] = {"editor": cline_editor}
OPENCODE: Mapping[str, Run] = {"edit": opencode_edit, "write": plain_write}
QWEN: Mapping[str, Run] = {"edit": strict_edit, "write_file": plain_write}
CLAUDE: Mapping[str, Run] = {"Edit": strict_edit, "Write": plain_write}
PI: Mapping[str, Run] = {"edit": pi_edit, "write": plain_write}


def schema(row: str) -> dict[str, Any]:
    """`name*:type`, `*` for required; a type is a JSON type, with `?` for null."""
    properties: dict[str, Any] = {}
    required = []
    for entry in row.split():
        name, _, kind = entry.partition(":")
        if name.endswith("*"):
            name = name[:-1]
            required.append(name)
        kind = kind or "string"
        properties[name] = {"type": [kind[:-1], "null"] if kind.endswith("?") else kind}
    return {"type": "object", "properties": properties, "required": required}


def tool(name: str, row: str, description: str = "") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema(row)}}


@frozen
class Surface:
    """A client: its tools, and the programs behind them."""

    tools: tuple[dict[str, Any], ...]
    runs: Mapping[str, Run]

    def request(self, messages: list[dict[str, Any]] | None = None, **more: Any) -> ChatRequest:
        messages = messages if messages is not None else [{"role": "user", "content": "hi"}]
        return parse_request(msgspec.json.encode({"model": "m", "messages": messages, "tools": self.tools} | more))

    def mapped(self, mapping: str, messages: list[dict[str, Any]] | None = None, **more: Any) -> Mapped:
        found = MAPPINGS[mapping].of(self.request(messages, **more))
        assert found is not None
        return found

    def run(self, files: Files, calls: tuple[CallBack, ...]) -> None:
        for call in calls:
            self.runs[call.name](files, json.loads(call.arguments))


BASH = tool("bash", "command*")
CLIENTS = {
    "roo": Surface(
        (
            tool("read_file", "path* start_line:integer end_line:integer"),
            tool("list_files", "path* recursive:boolean"),
            tool("write_to_file", "path* content* line_count*:integer"),
            tool("apply_diff", "path* diff*"),
            tool("insert_content", "path* line*:integer content*"),
            tool("execute_command", "command*"),
        ),
        ROO,
    ),
    "kilo": Surface(
        (
            tool("read_file", "files*:array"),
            tool("write_to_file", "path* content*"),
            tool("apply_diff", "path* diff*"),
            tool("delete_file", "path*"),
        ),
        ROO,
    ),
    "roo_native": Surface(
        (
            tool("read_file", "path* mode*:string? offset*:integer? limit*:integer?"),
            tool("list_files", "path* recursive*:boolean"),
            tool("write_to_file", "path* content*"),
            tool("search_replace", "file_path* old_string* new_string*"),
        ),
        {"write_to_file": roo_write, "search_replace": strict_edit},
    ),
    "cline": Surface(
        (
            tool("read_file", "path*"),
            tool("list_files", "path* recursive:boolean"),
            tool("write_to_file", "path* content*"),
            tool("replace_in_file", "path* diff*"),
        ),
        CLINE,
    ),
    "cline_sdk": Surface(
        (
            tool("read_files", "files*:array"),
            tool("editor", "path* old_text:string? new_text* insert_line:integer?"),
        ),
        CLINE_SDK,
    ),
    "opencode": Surface(
        (
            BASH,
            tool("read", "filePath* offset:integer limit:integer", "Reads a file or directory. Lines are 1-indexed."),
            tool("write", "content* filePath*"),
            tool("edit", "filePath* oldString* newString* replaceAll:boolean"),
        ),
        OPENCODE,
    ),
    "opencode_old": Surface(
        (
            tool("read", "filePath* offset:integer limit:integer", "The offset is 0-based."),
            tool("list", "path ignore:array"),
            tool("write", "content* filePath*"),
            tool("edit", "filePath* oldString* newString* replaceAll:boolean"),
        ),
        OPENCODE,
    ),
    "qwen": Surface(
        (
            tool("read_file", "file_path* offset:integer? limit:integer? pages:string?"),
            tool("list_directory", "path*"),
            tool("write_file", "file_path* content* record_as_artifact:boolean"),
            tool("edit", "file_path* old_string* new_string* replace_all:boolean"),
        ),
        QWEN,
    ),
    "claude": Surface(
        (
            tool("Read", "file_path* offset:integer limit:integer pages"),
            tool("Write", "file_path* content*"),
            tool("Edit", "file_path* old_string* new_string* replace_all:boolean"),
        ),
        CLAUDE,
    ),
    "pi": Surface(
        (
            tool("read", "path* offset:number limit:number"),
            tool("edit", "path* edits*:array"),
            tool("write", "path* content*"),
        ),
        PI,
    ),
}


def back(mapped: Mapped, arguments: Mapping[str, Any]) -> tuple[CallBack, ...] | Refusal:
    return mapped.back(mapped.surface.name, json.dumps(arguments))


def calls(found: tuple[CallBack, ...] | Refusal) -> list[tuple[str, dict[str, Any]]]:
    assert not isinstance(found, Refusal), found.text
    return [(call.name, json.loads(call.arguments)) for call in found]


def shown(mapped: Mapped) -> Tool:
    found = mapped.tools.get(mapped.surface.name)
    assert found is not None
    return found
