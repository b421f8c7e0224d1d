"""The clients whose tools are mapped, as requests, and what their calls do to files."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import frozen

from gateway.core.tools import Tool
from gateway.wire.chat_request import ChatRequest, parse_request
from strategies.base import CallBack, Refusal
from strategies.mapping.mappings import MAPPINGS, Mapped
from tests.support import edit_tools


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
    runs: Mapping[str, edit_tools.Run]

    def request(self, messages: list[dict[str, Any]] | None = None, **more: Any) -> ChatRequest:
        messages = messages if messages is not None else [{"role": "user", "content": "hi"}]
        return parse_request(msgspec.json.encode({"model": "m", "messages": messages, "tools": self.tools} | more))

    def mapped(self, mapping: str, messages: list[dict[str, Any]] | None = None, **more: Any) -> Mapped:
        found = MAPPINGS[mapping].of(self.request(messages, **more))
        assert found is not None
        return found

    def run(self, files: edit_tools.Files, calls: tuple[CallBack, ...]) -> None:
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
        edit_tools.ROO,
    ),
    "kilo": Surface(
        (
            tool("read_file", "files*:array"),
            tool("write_to_file", "path* content*"),
            tool("apply_diff", "path* diff*"),
            tool("delete_file", "path*"),
        ),
        edit_tools.ROO,
    ),
    "roo_native": Surface(
        (
            tool("read_file", "path* mode*:string? offset*:integer? limit*:integer?"),
            tool("list_files", "path* recursive*:boolean"),
            tool("write_to_file", "path* content*"),
            tool("search_replace", "file_path* old_string* new_string*"),
        ),
        {"write_to_file": edit_tools.roo_write, "search_replace": edit_tools.strict_edit},
    ),
    "cline": Surface(
        (
            tool("read_file", "path*"),
            tool("list_files", "path* recursive:boolean"),
            tool("write_to_file", "path* content*"),
            tool("replace_in_file", "path* diff*"),
        ),
        edit_tools.CLINE,
    ),
    "cline_sdk": Surface(
        (
            tool("read_files", "files*:array"),
            tool("editor", "path* old_text:string? new_text* insert_line:integer?"),
        ),
        edit_tools.CLINE_SDK,
    ),
    "opencode": Surface(
        (
            BASH,
            tool("read", "filePath* offset:integer limit:integer", "Reads a file or directory. Lines are 1-indexed."),
            tool("write", "content* filePath*"),
            tool("edit", "filePath* oldString* newString* replaceAll:boolean"),
        ),
        edit_tools.OPENCODE,
    ),
    "opencode_old": Surface(
        (
            tool("read", "filePath* offset:integer limit:integer", "The offset is 0-based."),
            tool("list", "path ignore:array"),
            tool("write", "content* filePath*"),
            tool("edit", "filePath* oldString* newString* replaceAll:boolean"),
        ),
        edit_tools.OPENCODE,
    ),
    "qwen": Surface(
        (
            tool("read_file", "file_path* offset:integer? limit:integer? pages:string?"),
            tool("list_directory", "path*"),
            tool("write_file", "file_path* content* record_as_artifact:boolean"),
            tool("edit", "file_path* old_string* new_string* replace_all:boolean"),
        ),
        edit_tools.QWEN,
    ),
    "claude": Surface(
        (
            tool("Read", "file_path* offset:integer limit:integer pages"),
            tool("Write", "file_path* content*"),
            tool("Edit", "file_path* old_string* new_string* replace_all:boolean"),
        ),
        edit_tools.CLAUDE,
    ),
    "pi": Surface(
        (
            tool("read", "path* offset:number limit:number"),
            tool("edit", "path* edits*:array"),
            tool("write", "path* content*"),
        ),
        edit_tools.PI,
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
