"""Writes the dialects whose calls are JSON between tokens of their own.

A call is `opening body closing`; several calls of one message share opening and closing. What reading back would
change (a value of another type, arguments that look like a schema or like a wrapper) is refused by `CannotExpress`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from json import dumps
from typing import Any

from attrs import field, frozen

from gateway.core.tools import Tool, ToolSet
from strategies.base import Options
from strategies.grammar.dialect import Context
from strategies.grammar.json_calls import drafts_of
from strategies.text.cursor import Reject
from strategies.writing.documentation import json_lines
from strategies.writing.renderer import CannotExpress, example_of, in_one_frame, numbered, without_tokens

__all__ = ["JsonRenderer", "Result", "family_section", "json_text", "named_object", "reads_back"]

Result = Callable[[str, str, str], str]
"""A result from the tool's name, the call's id and the content."""

_RULES = (
    "Give every required argument with the type that its schema names, and no argument that it does not know.",
    "Do not put a call into a code block, and write nothing behind it.",
    "Wait for the result of a call; never write or guess one yourself.",
    "Where no tool is needed, answer in plain text without any of these tokens.",
)


def json_text(value: object) -> str:
    """The value as JSON with non-ASCII unescaped; raises `CannotExpress` where it is none."""
    try:
        text = dumps(value, ensure_ascii=False, allow_nan=False)
        # A lone surrogate is a string to Python and no UTF-8 for a server.
        text.encode()
    except (RecursionError, TypeError, ValueError):
        raise CannotExpress("a value is no plain JSON") from None
    return text


def reads_back(name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str | None:
    """Why a reader would not take this call for exactly what it is; `None` where it would."""
    context = Context(tools=ToolSet([tool] if tool else []), options=Options())
    try:
        # Held to what the reader does, and not to a list of rules about it.
        (draft,) = drafts_of({"name": name, "arguments": dict(arguments)}, context, form="special")
    except (Reject, ValueError):
        return "the arguments would not be read as such"
    if draft.name != name:
        return "the name would be read as another"
    read = draft.arguments
    # Models of strict schemas leave out what may be null, and the reader puts it there.
    if draft.tool is not None:
        schema = context.schema(draft.tool)
        read = schema.fill_missing(read).arguments
        fault = schema.check(read)
        if fault is not None:
            return fault
    return None if json_text(read) == json_text(dict(arguments)) else "an argument would be read as another value"


def named_object(name: str, arguments: str, key: str = "arguments") -> str:
    """`{"name": ..., "arguments": {...}}`."""
    return f'{{"name": {json_text(name)}, "{key}": {arguments}}}'


def family_section(
    tools: Sequence[Tool],
    form: str,
    call: Callable[[str, Mapping[str, Any], Tool | None], str],
    *,
    parallel: bool,
    several: str = "Several calls may follow each other.",
    rules: Sequence[str] = _RULES,
) -> str:
    """The tools, the form of a call, an example and the rules, the first of them on how many calls there may be."""
    amount = several if parallel else "Write exactly one call per message."
    return (
        f"# Tools\n\nYou can call these tools:\n<tools>\n{json_lines(tools)}\n</tools>\n\n"
        f"A call has exactly this form:\n{form}{example_of(tools, call)}\n\nRules:\n{numbered((amount, *rules))}"
    )


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@frozen(kw_only=True)
class JsonRenderer:
    """One dialect of the kind, from its tokens."""

    id: str
    body: Callable[[str, str], str] = named_object
    """A call from its name and its arguments' JSON."""
    opening: str = ""
    closing: str = ""
    between: str = ""
    answer: Result = field(default=lambda name, call_id, content: content)
    tokens: tuple[str, ...] = ()
    """What a result must not be able to write."""
    result_separator: str = "\n"

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        form = self.opening + self.body("NAME", "{...}") + self.closing
        return family_section(tools, form, self.call, parallel=parallel)

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        text = self.opening + self.body(name, json_text(dict(arguments))) + self.closing
        fault = reads_back(name, arguments, tool) if _is_name(name) else "the name cannot be written"
        if fault is not None:
            raise CannotExpress(fault, text)
        return text

    def calls(self, rendered: Sequence[str]) -> str:
        return in_one_frame(rendered, self.opening, self.between, self.closing)

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        return self.answer(name, call_id, without_tokens(content, self.tokens))
