"""Writes the dialects that have no tokens of their own: JSON in a fence, Python calls, ReAct, Qwen-Agent.

Each is a form of one call and a way to put several together. What its reader would not take for the same call is
refused by `CannotExpress`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.grammar.bare_data import checked
from strategies.grammar.dialect import Context
from strategies.grammar.json_calls import drafts_of
from strategies.text.cursor import Reject
from strategies.text.python_text import PythonFault, read_calls
from strategies.writing.prompt import shielded
from strategies.writing.renderer import CannotExpress
from strategies.writing.token_renderer import family_section, json_text, reads_back

__all__ = ["BlockRenderer", "listed", "python_call"]

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_CALLEE = re.compile(r"[^\W\d]\w*(?:-\w+)*(?:\.[^\W\d]\w*(?:-\w+)*)*")
_SEVERAL = "Several calls may stand in one message, one behind the other."
_RULES = (
    "Give every required argument with the type that its schema names, and no argument that it does not know.",
    "The call is the last thing in your message: write nothing behind it and wait for the result.",
    "Never write or guess a result yourself.",
    "Where no tool is needed, answer in plain text.",
)

Form = Callable[[str, Mapping[str, Any]], str]


def _joined(rendered: Sequence[str]) -> str:
    return "\n".join(rendered)


def _plain(text: str) -> str:
    return text


def listed(rendered: Sequence[str]) -> str:
    """Lists of one call each as one list of all."""
    return "[" + ", ".join(text.removeprefix("[").removesuffix("]") for text in rendered) + "]" if rendered else ""


@frozen(kw_only=True)
class BlockRenderer:
    """One such dialect, from its form."""

    id: str
    form: Form
    """One call from its name and arguments; raises `CannotExpress`."""
    shown: str
    """The form as the model is told it."""
    wrap: Callable[[str], str] = _plain
    """What stands around a call."""
    join: Callable[[Sequence[str]], str] = _joined
    answer: Callable[[str, str], str] = field(default=lambda name, content: f"Tool result ({name}):\n{content}")
    """A result from the tool's name and the content."""
    marks: tuple[re.Pattern[str], ...] = ()
    """What a result must not be able to write, each with one group that a shield goes in front of."""
    markerless: bool = True
    """Arguments that look like a placeholder are not read as a call's."""
    result_separator: str = "\n\n"

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        return family_section(tools, self.shown, self.call, parallel=parallel, several=_SEVERAL, rules=_RULES)

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        try:
            text = self.wrap(self.form(name, arguments))
        except CannotExpress as error:
            raise CannotExpress(error.reason, error.nearest and self.wrap(error.nearest)) from None
        # A history that reads back as something else would teach the model the wrong form.
        fault = reads_back(name, arguments, tool) or self._placeholder(name, arguments, tool)
        if fault is not None:
            raise CannotExpress(fault, text)
        return text

    def calls(self, rendered: Sequence[str]) -> str:
        return self.join(rendered)

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        return self.answer(" ".join(name.split()), shielded(content, *self.marks))

    def _placeholder(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str | None:
        # A call with a marker of its own is read as one whatever its arguments look like.
        if tool is None or not self.markerless:
            return None
        context = Context(tools=ToolSet([tool]), options=Options())
        try:
            checked(drafts_of({"name": name, "arguments": dict(arguments)}, context, form="bare"), context)
        except Reject as refusal:
            return refusal.reason
        return None


def python_call(name: str, arguments: Mapping[str, Any]) -> str:
    """`name(key=value, ...)`; raises `CannotExpress` for what Python's syntax or the reader's bounds do not carry."""
    written = ", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())
    text = f"{name}({written})"
    if not _CALLEE.fullmatch(name) or not all(_IDENTIFIER.fullmatch(key) for key in arguments):
        # Names of MCP tools hold hyphens and dots, which only the callee may have.
        raise CannotExpress("a name is no Python name", text)
    # Not reasoned about but tried: what the reader takes for the same call can be shown to a model.
    try:
        (found,) = read_calls(text)
    except (PythonFault, ValueError):
        raise CannotExpress("the arguments would not be read as such", text) from None
    if found.name != name or found.positional or json_text(found.arguments) != json_text(dict(arguments)):
        raise CannotExpress("an argument would be read as another value", text)
    return text


def _literal(value: Any, depth: int = 0) -> str:
    if depth > _MAX_DEPTH:
        raise CannotExpress("nested too deep")
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, dict):
        members = (f"{json_text(str(key))}: {_literal(held, depth + 1)}" for key, held in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(held, depth + 1) for held in value) + "]"
    return json_text(value)


_MAX_DEPTH = 60
