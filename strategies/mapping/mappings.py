"""Tool surfaces: a model is shown the tool it was trained on, and its calls become calls of the client's own tools.

A mapping is a table row here and two data tables: what the model's tool can do (`text_editor`, `apply_patch`) and how
the clients' tools take it (`clients`). Between them stand a few operations on files (`operations`), which every tool is
read into and written from. What a client's tools cannot do exactly is refused, in words for the model.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import ChatRequest
from strategies.base import CallBack, Refusal
from strategies.mapping.apply_patch import APPLY_PATCH
from strategies.mapping.client_tools import Client, ClientCall
from strategies.mapping.evidence import Seen
from strategies.mapping.mapped_history import translated
from strategies.mapping.operations import Create, Lines
from strategies.mapping.surface import Surface
from strategies.mapping.text_editor import TEXT_EDITOR
from strategies.schema.structured import arguments_of, function_name
from strategies.text.dumping import dumps

__all__ = [
    "MAPPINGS",
    "Mapped",
    "ToolMapping",
]


@frozen(kw_only=True, eq=False)
class Mapped:
    """A request whose model sees its own tool instead of the client's."""

    request: ChatRequest
    """What the model is sent; its tools are what a text answer is read against."""
    surface: Surface
    demanded: str | None = None
    """Which of the client's tools must be called, where the model is told to call its own instead."""
    tools_of_client: Client = field(repr=False)
    seen: Seen = field(repr=False)
    """What the conversation, as the client has it, shows of files."""

    @property
    def tools(self) -> ToolSet:
        """The tools that the model sees."""
        return self.request.tools

    @property
    def client(self) -> str:
        """Whose tools were found."""
        return self.tools_of_client.name

    def back(self, name: str, arguments: str) -> tuple[CallBack, ...] | Refusal:
        """The client's calls for one call of the model; a call of any other tool is the client's already."""
        if name != self.surface.name:
            return (CallBack(name=name, arguments=arguments),)
        given = arguments_of(arguments)
        if given is None:
            return Refusal("The arguments are not a JSON object.")
        calls = self._calls(given)
        if isinstance(calls, Refusal):
            return Refusal(f"Nothing was done. {calls.text}")
        return tuple(
            CallBack(name=call.name, arguments=dumps(dict(call.arguments)), number=number, count=len(calls))
            for number, call in enumerate(calls, 1)
        )

    def _calls(self, given: Mapping[str, Any]) -> tuple[ClientCall, ...] | Refusal:
        operations = self.surface.read(given)
        if isinstance(operations, Refusal):
            return operations
        return self.seen.cut_line(operations) or self.tools_of_client.calls(operations)


@frozen(kw_only=True, eq=False)
class ToolMapping:
    """One tool surface."""

    id: str
    surface: Surface

    def of(self, request: ChatRequest) -> Mapped | None:
        """The request for the model; `None` where the client has no tools that this surface could stand for."""
        everything = Client.of(request.tools, request.model)
        client = everything.only(self.surface.does)
        # A tool of that name is the client's own, and may do something else.
        if self.surface.name in request.tools or not (client.can(Create) or client.can(Lines)):
            return None
        tool = self.surface.tool(client)
        fields: dict[str, Any] = {
            "tools": _tools(request, tool, client),
            "messages": translated(request.messages, self.surface, client),
        }
        choice = _choice(request.tool_choice, tool.name, client)
        if choice is not request.tool_choice:
            fields["tool_choice"] = choice
        try:
            shown = request.with_tools(ToolSet(_shown(request.tools, tool, client)), choice, **fields)
        # A client's schema may nest deeper than can be copied: then its own tools are shown as they are.
        except RecursionError:
            return None
        return Mapped(
            request=shown,
            surface=self.surface,
            demanded=function_name(request.tool_choice) if choice is not request.tool_choice else None,
            tools_of_client=client,
            seen=Seen(client=everything, messages=request.messages),
        )


def _shown(tools: ToolSet, tool: Tool, client: Client) -> list[Tool]:
    """The tools with the model's where the first of those stood that it stands for."""
    shown: dict[str, Tool] = {}
    for declared in tools:
        one = tool if declared.name in client.tools else declared
        shown.setdefault(one.name, one)
    return list(shown.values())


def _tools(request: ChatRequest, tool: Tool, client: Client) -> list[Any]:
    entries: list[Any] = []
    placed = False
    for entry in request.body.get("tools") or []:
        if function_name(entry) not in client.tools:
            entries.append(entry)
        # One tool stands for several of the client's: it is told once, where the first of them stood.
        elif not placed:
            placed = True
            function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            entries.append({"type": "function", "function": function})
    return entries


def _choice(choice: Any, name: str, client: Client) -> Any:
    """A choice of one of the client's tools becomes one of the model's."""
    if not isinstance(choice, dict):
        return choice
    if function_name(choice) in client.tools:
        return _renamed(choice, name)
    allowed = choice.get("allowed_tools")
    entries = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(allowed, dict) or not isinstance(entries, list):
        return choice
    if not any(function_name(entry) in client.tools for entry in entries):
        return choice
    shown: list[Any] = []
    for entry in entries:
        one = _renamed(entry, name) if function_name(entry) in client.tools else entry
        # Several of the client's may have become the same one.
        if one not in shown:
            shown.append(one)
    return {**choice, "allowed_tools": {**allowed, "tools": shown}}


def _renamed(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**entry, "function": {**entry["function"], "name": name}}


MAPPINGS: Mapping[str, ToolMapping] = MappingProxyType(
    {
        "apply_patch": ToolMapping(id="apply_patch", surface=APPLY_PATCH),
        "claude_text_editor": ToolMapping(id="claude_text_editor", surface=TEXT_EDITOR),
    }
)
"""The tool surfaces by the name that `TOOL_MAP` gives them."""
