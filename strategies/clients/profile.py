"""What is known of one client of tags."""

from collections.abc import Mapping

from attrs import field, frozen

from strategies.clients.client_parser import Rules
from strategies.clients.tag_arguments import PLAIN, Form

__all__ = ["Profile"]


@frozen(kw_only=True, eq=False)
class Profile:
    """A client: how it is recognised, its tools, how it reads values, and which forms its tools take."""

    id: str
    agents: tuple[str, ...]
    """How its `User-Agent` begins."""
    titles: tuple[str, ...]
    """Its `X-Title`."""
    phrases: tuple[str, ...]
    """Words that only its own system prompt holds."""
    tools: tuple[str, ...]
    rules: Rules
    escapes: bool = False
    """Values whose entities it undoes are written with entities where that is needed."""
    forms: Mapping[str, Form] = field(factory=dict)
    aliases: Mapping[str, str] = field(factory=dict)
    """Names that models give a tool, and the tool."""

    def form(self, tool: str) -> Form:
        return self.forms.get(tool, PLAIN)
