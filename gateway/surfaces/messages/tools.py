"""The tools of a Messages request: which the model is shown, as which functions, and which nobody here can run."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from gateway.core.errors import InvalidRequest
from gateway.surfaces.bridges import function, is_server_tool, vendor_parameters
from gateway.surfaces.checks import MAX_TOOLS, bounded
from gateway.surfaces.toolnames import ToolNames
from gateway.wire.known_texts import adopt, made_of

__all__ = ["Tools", "tools_of"]

_CUSTOM = (None, "custom")
_PLACEHOLDER = "DeferredToolPlaceholder"
"""Claude Code declares it where all its other tools wait to be searched for."""
_VENDOR_WORDS = {
    "bash_": "Runs a command line in a shell that keeps its state.",
    "text_editor_": "Shows and edits files: `view` a file or a directory, `create` a file, `str_replace` one text of a "
    "file by another, `insert` text behind a line.",
    "memory_": "Keeps notes in files under /memories: `view`, `create`, `str_replace`, `insert`, `delete`, `rename`.",
}


class Tools(Struct, eq=False):
    """What a request declares."""

    names: ToolNames = field(default_factory=ToolNames)
    functions: list[dict[str, Any]] = field(default_factory=list)
    """As chat declares them."""
    left_out: list[str] = field(default_factory=list)
    """Tools that a vendor's server would run."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Those of the chat request."""


def tools_of(body: Mapping[str, Any], loaded: Callable[[], list[str]], *, keeps_cache_control: bool) -> Tools:
    """The tools of a request; `loaded` names those whose declarations the history has asked for."""
    entries = body.get("tools")
    declared = made_of(
        entries, ("messages", keeps_cache_control), lambda: _declared(entries, keeps_cache_control=keeps_cache_control)
    )
    tools = Tools(names=declared.names.copy(), functions=declared.functions, left_out=list(declared.left_out))
    # Behind all others and in the order in which they were asked for: the beginning of the prompt stays what it was.
    late = declared.deferred and [
        declared.deferred[name] for name in dict.fromkeys(loaded()) if name in declared.deferred
    ]
    if late:
        more = [_function(entry, tools.names, keeps_cache_control=keeps_cache_control) for entry in late]
        tools.functions = [*tools.functions, *more]
    _choose(body, tools)
    return tools


class _Declared(Struct, eq=False):
    """What the entries of `tools` come to, whatever else a request says."""

    names: ToolNames
    functions: list[dict[str, Any]]
    left_out: list[str]
    deferred: dict[str, dict[str, Any]]
    """By name, what is shown once the history has asked for it."""


def _declared(entries: object, *, keeps_cache_control: bool) -> _Declared:
    found = _Declared(ToolNames(), [], [], {})
    for index, entry in enumerate(bounded(entries, MAX_TOOLS, "tools")):
        if not isinstance(entry, dict):
            raise InvalidRequest("each tool must be an object", param=f"tools[{index}]")
        kind, name = entry.get("type"), entry.get("name")
        if kind == "mcp_toolset":  # tools of servers that Anthropic's own would ask: nobody here can run them
            raise InvalidRequest(
                "tools of mcp_servers are run by Anthropic's own server, which is not asked here", param="mcp_servers"
            )
        if _is_servers(entry):
            found.left_out.append(name if isinstance(name, str) and name else str(kind))
        elif not isinstance(name, str) or not name:
            raise InvalidRequest("the tool has no name", param=f"tools[{index}].name")
        elif name == _PLACEHOLDER:
            continue
        elif entry.get("defer_loading") is True:
            found.deferred[name] = entry
        else:
            found.functions.append(_function(entry, found.names, keeps_cache_control=keeps_cache_control))
    adopt(entries, found.functions)
    return found


def _is_servers(entry: Mapping[str, Any]) -> bool:
    """Whether a tool is run by the vendor's own server."""
    kind = entry.get("type")
    if kind in _CUSTOM:
        return False
    if not isinstance(kind, str) or is_server_tool(kind):
        return True
    return vendor_parameters(kind) is None and not isinstance(entry.get("input_schema"), dict)


def _function(entry: Mapping[str, Any], names: ToolNames, *, keeps_cache_control: bool) -> dict[str, Any]:
    kind = entry.get("type")
    parameters = vendor_parameters(kind) if isinstance(kind, str) and kind not in _CUSTOM else None
    description = entry.get("description")
    if not isinstance(description, str) and parameters is not None:
        description = next((words for start, words in _VENDOR_WORDS.items() if str(kind).startswith(start)), "")
    given = entry.get("input_schema")
    flat = names.add(entry["name"], kind="function" if parameters is None else "vendor")
    if parameters is None:
        parameters = given if isinstance(given, dict) else None
    words = description if isinstance(description, str) else ""
    told = function(flat, words, parameters, strict=entry.get("strict"))
    if keeps_cache_control and isinstance(entry.get("cache_control"), dict):
        told["cache_control"] = entry["cache_control"]
    return told


def _choose(body: Mapping[str, Any], tools: Tools) -> None:
    """The fields of the chat request; raises where the model would have to call what nobody here can run."""
    choice = body.get("tool_choice")
    choice = choice if isinstance(choice, dict) else {"type": choice} if isinstance(choice, str) else {}
    mode, name = choice.get("type"), choice.get("name")
    if tools.left_out and (not tools.functions or (mode == "tool" and name in tools.left_out)):
        # Left out without a word the model's own text would be taken for what the tool found.
        named = name if mode == "tool" and name in tools.left_out else tools.left_out[0]
        raise InvalidRequest(
            f"the tool {str(named)[:64]!r} is run by Anthropic's own server, which is not asked here", param="tools"
        )
    if not tools.functions:
        return
    tools.fields["tools"] = tools.functions
    match mode:
        case "any":
            tools.fields["tool_choice"] = "required"
        case "none" | "auto":
            tools.fields["tool_choice"] = mode
        case "tool":
            if not isinstance(name, str) or tools.names.own(flat := tools.names.flat(name)) is None:
                raise InvalidRequest("tool_choice names a tool that is not declared", param="tool_choice")
            tools.fields["tool_choice"] = {"type": "function", "function": {"name": flat}}
    if isinstance(single := choice.get("disable_parallel_tool_use"), bool):
        tools.fields["parallel_tool_calls"] = not single
