"""One client of tags and the tools of its prompt: what the model may mean, and how that is said to the client."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from attrs import define, evolve, field

from gateway.core.tools import Tool, ToolSet
from strategies.clients.client_parser import Rules, Seen, keep_entities, see
from strategies.clients.profile import Profile
from strategies.clients.prompt_tools import PromptTool, prompt_tools
from strategies.clients.tag_arguments import PLAIN
from strategies.schema.known_tools import known
from strategies.schema.tool_schema import BODY_PARAMETERS

__all__ = ["TextClient", "text_client"]


@define(kw_only=True)
class TextClient:
    """Made once for a profile and a prompt."""

    profile: Profile
    rules: Rules
    prompted: Mapping[str, PromptTool]
    tools: ToolSet = field(init=False)
    """What the answer is read with."""
    _names: tuple[str, ...] = field(init=False)
    _parameters: tuple[str, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tools = ToolSet([*map(self._tool, self.prompted.values()), *self._aliases()])
        self._names = tuple(dict.fromkeys((*self.profile.tools, *self.prompted)))
        registered = (tool for name in self.profile.tools for tool in known(name))
        in_registry = (name for tool in registered for name in tool.parameters["properties"])
        in_prompt = (name for tool in self.prompted.values() for name in tool.parameters)
        self._parameters = tuple(dict.fromkeys((*in_registry, *in_prompt)))

    def render(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """The call in the client's own tags; None where the client would not read it as exactly this."""
        tool = self.prompted.get(self.profile.aliases.get(name, name))
        pairs = self.profile.form(tool.name).write(arguments, tool) if tool is not None else None
        if tool is None or pairs is None:
            return None
        children = [self._child(tool.name, key, text) for key, text in pairs]
        rendered = "\n".join((f"<{tool.name}>", *children, f"</{tool.name}>"))
        seen = self.see(rendered)
        meant = seen is not None and seen.name == tool.name and seen.values == self._as_read(pairs)
        return rendered if meant and seen is not None and seen.end == len(rendered) else None

    def reads(self, text: str, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the client itself finds exactly this call in a text."""
        seen, tool = self.see(text), self.prompted.get(name)
        pairs = PLAIN.write(arguments, tool) if tool is not None else None
        return seen is not None and pairs is not None and (seen.name, seen.values) == (name, dict(pairs))

    def see(self, text: str) -> Seen | None:
        """The first call that the client itself finds in a text."""
        return see(text, self.rules, self._names, self._parameters)

    def _as_read(self, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The values as far as the client can be told them: to it, no document it trims ends in a line break."""
        trimmed = BODY_PARAMETERS - self.rules.keeps
        return {key: text.rstrip("\r\n") if key in trimmed else text for key, text in pairs}

    def _child(self, tool: str, key: str, text: str) -> str:
        if self.profile.escapes and (tool, key) in self.rules.decodes:
            text = keep_entities(text).replace(f"</{key}>", f"&lt;/{key}>")
        wrap = "\n" if key in self.rules.keeps or "\n" in text else ""
        return f"<{key}>{wrap}{text}{wrap}</{key}>"

    def _tool(self, tool: PromptTool) -> Tool:
        return Tool(name=tool.name, parameters=self.profile.form(tool.name).schema(tool))

    def _aliases(self) -> list[Tool]:
        return [
            evolve(self._tool(self.prompted[target]), name=alias)
            for alias, target in self.profile.aliases.items()
            if target in self.prompted and alias not in self.prompted
        ]


@lru_cache(maxsize=32)
def text_client(profile: Profile, prompt: str, decodes: bool) -> TextClient | None:
    """The client with the tools of this prompt; `decodes` says whether it undoes entities for the model.

    Where the prompt cannot be taken apart, its tools are the well-known ones whose tags it shows.
    """
    tools = prompt_tools(prompt) or tuple(_known(name) for name in profile.tools if f"<{name}>" in prompt)
    if not tools:
        return None
    rules = profile.rules if decodes else evolve(profile.rules, decodes=frozenset())
    return TextClient(profile=profile, rules=rules, prompted={tool.name: _completed(tool) for tool in tools})


def _known(name: str) -> PromptTool:
    return PromptTool(name=name)


def _completed(tool: PromptTool) -> PromptTool:
    """The tool with the registry's parameters where the prompt names none."""
    variants = known(tool.name)
    if tool.parameters or not variants:
        return tool
    names = dict.fromkeys(name for variant in variants for name in variant.parameters["properties"])
    asked = frozenset(names).intersection(*(variant.parameters["required"] for variant in variants))
    return PromptTool(name=tool.name, parameters=tuple(names), required=asked)
