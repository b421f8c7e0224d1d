"""The tools that a Responses request declares, as chat functions.

They stand in `tools`, in namespaces in there, in `additional_tools` items of the input, and in what a search for tools
has found; what was found stays, at the end of the list, so that the beginning of the prompt is the same in every turn.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from gateway.core.errors import InvalidRequest
from gateway.surfaces.bridges import APPLY_PATCH, LOCAL_SHELL, SHELL, custom_function, function, is_server_tool
from gateway.surfaces.toolnames import ToolKind, ToolNames
from gateway.wire.known_texts import adopt, made_of

__all__ = ["Declared", "declared_tools", "readable_tools"]

# Its client declares the tool by its type alone.
_SEARCH_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do."}},
    "required": ["query"],
}
_TYPED: Mapping[str, tuple[ToolKind, str, Mapping[str, Any]]] = {
    "local_shell": ("local_shell", "Runs a command on the user's machine and returns its output.", LOCAL_SHELL),
    "shell": ("shell", "Runs shell commands on the user's machine and returns their output.", SHELL),
    "apply_patch": ("apply_patch", "Creates, changes or deletes one file by a diff.", APPLY_PATCH),
}
"""Tools that have a type of their own; the type is the name."""
_NAMED: Mapping[str, ToolKind] = {"function": "function", "custom": "custom"}
_MAX_LEFT_OUT = 32


class Declared(Struct, kw_only=True, eq=False):
    """What the model is shown, and what was left out."""

    names: ToolNames = field(default_factory=ToolNames)
    functions: list[dict[str, Any]] = field(default_factory=list)
    choice: Any = None
    dropped: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Tools that only the vendor's own server could run, by their types."""
    is_searched: bool = False
    """The client itself searches for tools: what is marked as deferred is shown only once it was found."""

    def declare(self, tools: Iterable[object], *, found: bool = False) -> None:
        """Take in a list of tools; `found` by a search they are shown whatever they are marked with."""
        for tool in tools:
            if not isinstance(tool, dict):
                self.dropped.append("tool")
            elif tool.get("type") == "namespace":
                self._namespace(tool, found=found)
            else:
                self._one(tool, None, "", found=found)

    def _namespace(self, tool: dict[str, Any], *, found: bool) -> None:
        name, inner = tool.get("name"), tool.get("tools")
        if not isinstance(name, str) or not name or not isinstance(inner, list):
            self.dropped.append("tool")
            return
        for each in inner:
            if isinstance(each, dict):
                self._one(each, name, _text(tool, "description"), found=found)
            else:
                self.dropped.append("tool")

    def _one(self, tool: dict[str, Any], namespace: str | None, about: str, *, found: bool) -> None:
        kind = tool.get("type")
        kind = kind if isinstance(kind, str) else ""
        if _is_hosted(kind, tool):
            self.dropped.append("server_tool")
            if len(self.left_out) < _MAX_LEFT_OUT and kind not in self.left_out:
                self.left_out.append(kind)
        elif tool.get("defer_loading") is True and self.is_searched and not found:
            return
        elif kind in _NAMED:
            self._named(_NAMED[kind], tool, namespace, about)
        elif kind == "tool_search":
            parameters = tool.get("parameters")
            shape = parameters if isinstance(parameters, dict) else _SEARCH_PARAMETERS
            self._show("tool_search", function("tool_search", _text(tool, "description"), shape))
        elif kind in _TYPED:
            typed, about, shape = _TYPED[kind]
            self._show(typed, function(kind, about, shape))
        else:
            self.dropped.append("tool")

    def _named(self, kind: ToolKind, tool: dict[str, Any], namespace: str | None, about: str) -> None:
        # Cursor sends chat's own form to the one path and this one to the other.
        inner = tool.get(kind)
        tool = inner if isinstance(inner, dict) else tool
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            self.dropped.append("tool")
            return
        known = len(self.names)
        flat = self.names.add(name, namespace=namespace, kind=kind)
        if len(self.names) == known:
            return
        description = _text(tool, "description") or about
        if kind == "custom":
            self.functions.append(custom_function(flat, description, tool.get("format")))
            return
        parameters = tool.get("parameters")
        shape = parameters if isinstance(parameters, dict) else None
        self.functions.append(function(flat, description, shape, strict=tool.get("strict")))

    def _show(self, kind: ToolKind, told: dict[str, Any]) -> None:
        known = len(self.names)
        self.names.add(told["function"]["name"], kind=kind)
        if len(self.names) > known:
            self.functions.append(told)

    def choose(self, choice: object) -> None:
        """Take in what `tool_choice` demands."""
        if not isinstance(choice, dict):
            self.choice = choice if choice in ("auto", "none", "required") else None
        elif choice.get("type") == "allowed_tools":
            self._allow(choice)
        else:
            flat = self._chosen(choice)
            self.choice = None if flat is None else {"type": "function", "function": {"name": flat}}

    def _allow(self, choice: dict[str, Any]) -> None:
        tools = choice.get("tools")
        entries = [each for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
        own = [each for each in entries if not is_server_tool(_text(each, "type"))]
        allowed = {self._chosen(each) for each in own}
        self.functions = [each for each in self.functions if each["function"]["name"] in allowed]
        self.choice = "required" if choice.get("mode") == "required" else "auto"

    def _chosen(self, choice: dict[str, Any]) -> str | None:
        """The flat name of the tool that is meant; None where it is none that there can be."""
        kind = _text(choice, "type")
        if kind in ("function", "custom"):
            inner = choice.get(kind)
            choice = inner if isinstance(inner, dict) else choice
            name, namespace = _text(choice, "name"), _text(choice, "namespace") or None
        else:
            name, namespace = kind, None
        flat = self.names.flat(name, namespace)
        if self.names.own(flat) is not None:
            return flat
        if kind in ("function", "custom", "tool_search") or kind in _TYPED:
            raise InvalidRequest(f"tool_choice names {name[:64]!r}, which is not among the tools", param="tool_choice")
        if _is_hosted(kind, choice):
            raise _not_here(kind)
        return None

    def check(self) -> None:
        """Raise where the model would be asked for what only the vendor's server can do."""
        if self.left_out and not self.functions and self.choice != "none":
            raise _not_here(self.left_out[0])


def declared_tools(body: Mapping[str, Any], items: Iterable[object], *, offered: bool = True) -> Declared:
    """What a request declares, in its fields and among the items of its input; raises `InvalidRequest`.

    What is not `offered` still has the names under which the history shows it.
    """
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise InvalidRequest("tools must be a list", param="tools")
    declared = readable_tools(body, items)
    if not offered:
        declared.functions, declared.left_out = [], []
        return declared
    declared.choose(body.get("tool_choice"))
    declared.check()
    return declared


def _declared(tools: list[Any]) -> Declared:
    """What stands in `tools` alone."""
    declared = Declared(is_searched=any(_searches(tool) for tool in tools))
    declared.declare(tools)
    adopt(tools, declared.functions)
    return declared


def readable_tools(body: Mapping[str, Any], items: Iterable[object]) -> Declared:
    """The tools of a request that have a form in chat, whatever else it demands."""
    given = body.get("tools")
    tools = given if isinstance(given, list) else []
    first = made_of(given, "responses", lambda: _declared(tools))
    declared = Declared(
        names=first.names.copy(),
        functions=first.functions,
        dropped=list(first.dropped),
        left_out=list(first.left_out),
        is_searched=first.is_searched,
    )
    for item in items:
        if isinstance(item, dict) and item.get("type") in ("additional_tools", "tool_search_output"):
            more = item.get("tools")
            if declared.functions is first.functions:  # which others are shown, too
                declared.functions = list(first.functions)
            declared.declare(more if isinstance(more, list) else (), found=True)
    return declared


def _searches(tool: object) -> bool:
    return isinstance(tool, dict) and tool.get("type") == "tool_search" and tool.get("execution") == "client"


def _is_hosted(kind: str, tool: Mapping[str, Any]) -> bool:
    """Whether the vendor's own server runs it."""
    if kind == "shell":
        environment = tool.get("environment")
        return isinstance(environment, dict) and _text(environment, "type").startswith("container")
    if kind == "tool_search":  # the server searches, where nothing else is said; all is shown then
        return not _searches(tool)
    return is_server_tool(kind)


def _not_here(kind: str) -> InvalidRequest:
    return InvalidRequest(
        f"the tool {kind[:64]!r} is run by its vendor's own servers; this model cannot use it", param="tools"
    )


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""
