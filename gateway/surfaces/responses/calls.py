"""Calls between chat and Responses: each comes back as what its tool was declared, and stands so in history.

A call that cannot be what its tool takes is told as a function's: no client runs it under that name, and its complaint
tells the model what was wrong (https://github.com/openai/codex/issues/23186).
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.surfaces.bridges import CUSTOM_INPUT, is_cut_patch, read_input
from gateway.surfaces.toolnames import ToolName, ToolNames

__all__ = ["CALLS", "call_item", "cut_text", "history_call", "is_mended"]

CALLS = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "tool_search_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
    }
)
_SHELL = ("bash", "-lc")
"""What a command line is run by where a list of words was asked for."""
_OPERATIONS = ("create_file", "update_file", "delete_file")


def call_item(names: ToolNames, flat: str, call_id: str, arguments: str) -> dict[str, Any]:
    """The item of a call, without its id and its status."""
    meant = names.meant(flat)
    tool = names.own(meant) if meant is not None else None
    if tool is not None and tool.kind != "function":
        item = _own_item(tool, arguments)
        if item is not None:
            return _placed({"call_id": call_id, **item}, tool)
    item = {"type": "function_call", "call_id": call_id, "name": flat if tool is None else tool.own}
    return _placed({**item, "arguments": arguments}, tool)


def is_mended(item: Mapping[str, Any], arguments: str) -> bool:
    """Whether the text of a free-form tool did not stand where the model was asked for it."""
    found = read_input(arguments) if item["type"] == "custom_tool_call" else None
    return found is not None and found.is_mended


def cut_text(names: ToolNames, flat: str, arguments: str) -> str | None:
    """The text of a call that brings half of a patch, which is no call."""
    meant = names.meant(flat)
    tool = names.own(meant) if meant is not None else None
    if tool is None or tool.kind != "custom":
        return None
    found = read_input(arguments)
    return found.text if found is not None and is_cut_patch(found.text) else None


def _placed(item: dict[str, Any], tool: ToolName | None) -> dict[str, Any]:
    if tool is not None and tool.namespace is not None and item["type"] in ("function_call", "custom_tool_call"):
        item["namespace"] = tool.namespace
    return item


def _own_item(tool: ToolName, arguments: str) -> dict[str, Any] | None:
    if tool.kind == "custom":
        found = read_input(arguments)
        return None if found is None else {"type": "custom_tool_call", "name": tool.own, "input": found.text}
    told = _object(arguments)
    if told is None:
        return None
    match tool.kind:
        case "tool_search":
            return {"type": "tool_search_call", "execution": "client", "arguments": told}
        case "local_shell":
            return _local_shell(told)
        case "shell":
            return _shell(told)
        case "apply_patch":
            return _apply_patch(told)
        case _:
            return None


def _local_shell(told: dict[str, Any]) -> dict[str, Any] | None:
    command = told.get("command")
    # Models write the line that they would type; the API has a list of words.
    words = [*_SHELL, command] if isinstance(command, str) else command
    if not _are_words(words):
        return None
    action: dict[str, Any] = {"type": "exec", "command": words, "env": {}, "timeout_ms": _count(told, "timeout_ms")}
    place = told.get("working_directory")
    action["working_directory"] = place if isinstance(place, str) else None
    return {"type": "local_shell_call", "action": action}


def _shell(told: dict[str, Any]) -> dict[str, Any] | None:
    commands = told.get("commands")
    lines = [commands] if isinstance(commands, str) else commands
    if not _are_words(lines):
        return None
    bounds = {name: _count(told, name) for name in ("timeout_ms", "max_output_length")}
    return {"type": "shell_call", "action": {"commands": lines, **bounds}, "environment": {"type": "local"}}


def _apply_patch(told: dict[str, Any]) -> dict[str, Any] | None:
    kind, path, diff = told.get("type"), told.get("path"), told.get("diff")
    if kind not in _OPERATIONS or not isinstance(path, str) or (kind != "delete_file" and not isinstance(diff, str)):
        return None
    operation = {"type": kind, "path": path}
    return {
        "type": "apply_patch_call",
        "operation": {**operation, "diff": diff} if kind != "delete_file" else operation,
    }


def history_call(names: ToolNames, item: Mapping[str, Any]) -> tuple[str, str]:
    """The flat name and the arguments of a call in a request's history."""
    match item.get("type"):
        case "custom_tool_call":
            text = item.get("input")
            return _flat(names, item), _json({CUSTOM_INPUT: text if isinstance(text, str) else ""})
        case "tool_search_call":
            told = item.get("arguments")
            return names.flat("tool_search"), told if isinstance(told, str) else _json(_dict(told))
        case "local_shell_call":
            action = _dict(item.get("action"))
            shown = {name: action[name] for name in ("command", "working_directory", "timeout_ms") if action.get(name)}
            return names.flat("local_shell"), _json(shown)
        case "shell_call":
            action = _dict(item.get("action"))
            shown = {name: action[name] for name in ("commands", "timeout_ms", "max_output_length") if action.get(name)}
            return names.flat("shell"), _json(shown)
        case "apply_patch_call":
            operation = _dict(item.get("operation"))
            shown = {name: operation[name] for name in ("type", "path", "diff") if name in operation}
            return names.flat("apply_patch"), _json(shown)
    arguments = item.get("arguments")
    return _flat(names, item), arguments if isinstance(arguments, str) else _json(_dict(arguments))


def _flat(names: ToolNames, item: Mapping[str, Any]) -> str:
    name, namespace = item.get("name"), item.get("namespace")
    return names.flat(name if isinstance(name, str) else "", namespace if isinstance(namespace, str) else None)


def _object(arguments: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(value: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a character
        return json.dumps(value)


def _are_words(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _count(told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
