"""Which tool a candidate names that could not be read to its end: its name, or nothing.

What is found here is shown to people and counted; nothing is called by it.
"""

import re

from strategies.grammar.dialect import Context

__all__ = ["is_name", "named_tool"]

_HEAD = 1 << 10
"""Where in a candidate its tool is named."""
_NAME = r"([A-Za-z_][\w.:/-]{0,127})"
_IS_NAME = re.compile(_NAME)
_WHOLE = re.compile(r"[\w.:/-]{1,128}")
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"""[<\s](?:function|tool|invoke|call|action|[\w-]+:(?:invoke|function|tool))(?:\s+name)?\s*=\s*["']?{_NAME}""",
        rf"""["'](?:name|tool|tool_name|function_name|function|recipient_name|action|tool_call)["']\s*:\s*["']{_NAME}["']""",
        rf"<(?:tool_name|name|function_name|invoke|function)>\s*{_NAME}\s*<",
        rf"(?:to=|functions\.){_NAME}",
        rf"call:\s?{_NAME}\s*[{{(]",
        rf"(?i:action|tool|function):\s*{_NAME}\s*$",
        rf"(?:^|[\[\s>|\u2581]){_NAME}\s*[({{]",
    )
)
_MARKUP = frozenset(
    "action answer arguments args call code content default_api execute false function function_call function_calls "
    "functions input invoke item json name none null object param parameter parameters print python result string "
    "think tool tool_call tool_calls tool_code tool_input tool_name tool_use tools true type value xml".split()
)
"""Words of the markup itself: a tool is called so only if the request says so."""


def named_tool(seen: str, marker: str, context: Context) -> str:
    """The tool that a candidate names, which begins with `marker`; empty where it names none."""
    opened = _IS_NAME.search(marker)
    if opened is not None and _is_tool(opened[1], context):
        return opened[1]
    head = seen[:_HEAD]
    for form in _FORMS:
        for found in form.finditer(head):
            # At the end of a sentence it brings the full stop along.
            name = found[1].rstrip(".:/-")
            if name.lower() not in _MARKUP or context.find(name) is not None:
                return name
    return ""


def is_name(name: str) -> bool:
    """Whether this may be the name of a tool, and is no word of the markup."""
    return _WHOLE.fullmatch(name) is not None and name.lower() not in _MARKUP


def _is_tool(name: str, context: Context) -> bool:
    return context.find(name) is not None or bool(context.known(name))
