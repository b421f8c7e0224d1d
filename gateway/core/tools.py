"""The tools of one request, as every strategy and dialect sees them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import field, frozen

__all__ = ["Tool", "ToolSet"]


@frozen(kw_only=True)
class Tool:
    """One function the model may call.

    `known` marks a well-known tool that the request did not declare, `only_reads` one that is declared to change
    nothing (`annotations.readOnlyHint`: https://modelcontextprotocol.io/specification/2025-06-18/schema).
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(factory=dict)
    known: bool = False
    only_reads: bool = False


class ToolSet:
    """The declared tools by name, in the request's order."""

    __slots__ = ("_by_name", "names")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._by_name: dict[str, Tool] = {tool.name: tool for tool in tools}
        self.names = tuple(self._by_name)

    def get(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)
