"""Structured calls as clients and servers send them: what can be relied on of what may be anything."""

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["arguments_of", "call_id", "function_name", "function_of"]


def function_of(entry: object) -> dict[str, Any]:
    """The function in a declared tool, a call or a choice of a tool; empty where there is none."""
    function = entry.get("function") if isinstance(entry, dict) else None
    return function if isinstance(function, dict) else {}


def function_name(entry: object) -> str | None:
    """The name of that function, if it has one."""
    name = function_of(entry).get("name")
    return name if isinstance(name, str) else None


def call_id(call: Mapping[str, Any], place: int) -> str:
    """The id of a call; one after its place in the message where it has none."""
    given = call.get("id")
    return given if isinstance(given, str) and given else f"call_{place}"


def arguments_of(arguments: object) -> dict[str, Any] | None:
    """The arguments of a call, if they are an object, as such or as its JSON; a blank text is an empty one."""
    if isinstance(arguments, str):
        try:
            # Servers send "" for a tool without parameters, and some clients send it back.
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        # msgspec tells of nesting without end by a RecursionError.
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, dict) else None
