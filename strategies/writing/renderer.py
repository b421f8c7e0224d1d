"""Calls, results and tools written out in a dialect's own syntax, the way its reader takes them back.

`GenericTags` writes a call as one element, its parameters as children: text as it is, other values as JSON. A value
that text alone would not carry (tags of its own call, entities, a code fence around it) stands in a CDATA section,
which a reader takes literally. What not even that carries is refused by `CannotExpress`, which still holds the nearest
form: good enough to be looked at in a history, not to be read back.

`Hermes` writes JSON inside `<tool_call>`; the object's end is found by its braces, so nothing needs a shield.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from json import JSONEncoder
from typing import Any

from gateway.core.tools import Tool
from strategies.grammar.closers import END_IN_TEXT, ends_with_token
from strategies.schema.names import resolve_parameter
from strategies.schema.tool_schema import ToolSchema, schema_of
from strategies.writing.documentation import json_lines, tool_document
from strategies.writing.prompt import shielded
from strategies.writing.samples import sample_arguments

__all__ = [
    "CannotExpress",
    "GenericTags",
    "Hermes",
    "example_of",
    "in_one_frame",
    "labelled_result",
    "numbered",
    "without_tokens",
]

_dumps = JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_NOTHING_DECLARED = Tool(name="undeclared")
_TAG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*\Z")
_NOT_IN_TAG = re.compile(r"[^A-Za-z0-9_.:-]")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos);")
_ANY_TAG = re.compile(r"</?([A-Za-z_][A-Za-z0-9_.:-]*)")
_STRAY = re.compile(r"</(?:tools?|action|xml)>")
_MARKUP_IN_JSON = re.compile(r"<(?=[A-Za-z_/!])|&(?=(?:lt|gt|amp|quot|apos);)")
_BRACKET_LABEL = re.compile("^\\[(\u200b*Tool Result: )", re.MULTILINE)
_PLAIN_LABEL = re.compile("^Tool(\u200b* Result from )", re.MULTILINE)
_RESPONSE_TAG = re.compile("<(\u200b*/?tool_response)")
_CALL_RULES_END = (
    "Never write a result yourself, and never guess what it will be.",
    "If no tool is needed, answer in plain text and write none of these tags.",
)


# Models imitate what their history shows, so a form that would be read as another call must not stand there:
# https://github.com/MoonshotAI/kimi-code/issues/2503
class CannotExpress(ValueError):
    """The dialect cannot carry this call so that reading it back gives the same; `nearest` shows it all the same."""

    def __init__(self, reason: str, nearest: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.nearest = nearest


def labelled_result(name: str, call_id: str, content: str, fmt: str) -> str:
    """A result under a heading that names tool and call; headings inside the content are broken reversibly."""
    # A client's own words: a line break in them would let a result write a heading.
    name, call_id = _label(name), _label(call_id)
    if fmt == "plain":
        return f"Tool Result from {name}:\n{shielded(content, _PLAIN_LABEL)}"
    heading = f"[Tool Result: {name}]\n" + (f"Tool Call ID: {call_id}\n" if call_id else "")
    return f"{heading}\nResult:\n{shielded(content, _BRACKET_LABEL)}"


def _label(text: str) -> str:
    return " ".join(text.split())


def _same(one: object, other: object) -> bool:
    """Equal as JSON: `True` is not `1`, and `1` is not `1.0`."""
    return type(one) is type(other) and (one == other if isinstance(one, str) else _json(one) == _json(other))


def _json(value: object) -> str:
    try:
        return _dumps(value)
    except (RecursionError, TypeError, ValueError):
        raise CannotExpress("a value is no plain JSON") from None


def numbered(rules: Sequence[str]) -> str:
    """The rules, one a line."""
    return "\n".join(f"{number}. {rule}" for number, rule in enumerate(rules, 1))


def example_of(tools: Sequence[Tool], call: Callable[[str, Mapping[str, Any], Tool | None], str]) -> str:
    """An example of a call of the first tool, where it can be written."""
    try:
        return f"\n\nFor example:\n{call(tools[0].name, sample_arguments(tools[0]), tools[0])}" if tools else ""
    except CannotExpress:
        return ""


# Qwen Code has a tool `tool_call`, OpenHands one named `think`: their own tags mean something else to a reader.
_OF_MARKUP = frozenset(
    {
        *("action", "actual_tool_name", "antthinking", "call", "call_tool", "code", "dots_function_call", "end_action"),
        *("end_code", "end_of_turn", "eos", "function", "function-call", "function_call", "function_calls"),
        *("function_results", "functioncall", "iquest_tool_call", "iquestcoder_tool_call", "json", "longcat_tool_call"),
        *("response", "results", "scratch_pad", "start_function_call", "start_function_response", "think", "thinking"),
        *("tool", "tool-call", "tool-use", "tool_call", "tool_calls", "tool_code", "tool_name", "tool_output"),
        *("tool_response", "tool_responses", "tool_result", "tool_use", "toolcall", "tools", "unused94", "unused95"),
        *("use_tool", "user", "xml"),
    }
)
"""Words that are markup in one form or another: a tool of that name is told by an attribute."""


# --- one tag per tool ------------------------------------------------------------------------------------------------


class GenericTags:
    """One element per call: the tool's name as tag, one child per parameter."""

    id = "generic_xml"
    result_separator = "\n\n"

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        words = [tool.name for tool in tools]
        documents = "\n\n".join(tool_document(tool, self._usage(tool), words) for tool in tools)
        rules = _tag_rules(parallel)
        if any(word.lower() in _OF_MARKUP for word in words):
            rules.append('A tool whose usage begins with `<tool name="..."` is called in just that form.')
        return f"{_TAG_INTRODUCTION}\n\nRules:\n{numbered(rules)}\n\n<tools>\n{documents}\n</tools>"

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        schema = schema_of(tool or _NOTHING_DECLARED)
        is_tag = _TAG_NAME.match(name) is not None
        # Tags know fewer signs than names of tools: shown all the same, so that a history keeps the call.
        tag = name if is_tag else _NOT_IN_TAG.sub("_", name)
        opener = f"<{tag}>"
        if name.lower() in _OF_MARKUP:
            tag, opener = "tool", f'<tool name="{name}">'
        lines, fault = [opener], None
        for key, value in arguments.items():
            if not _TAG_NAME.match(key):
                nearest = f"{opener}\n{_json(dict(arguments))}\n</{tag}>"
                raise CannotExpress("a parameter's name cannot be a tag", nearest)
            line, wrong = _child(tag, key, value, schema)
            lines.append(line)
            fault = fault or wrong
        lines.append(f"</{tag}>")
        text = "\n".join(lines) if arguments else f"{opener}</{tag}>"
        if not is_tag:
            fault = "the tool's name cannot be a tag"
        if fault:
            raise CannotExpress(fault, text)
        return text

    def calls(self, rendered: Sequence[str]) -> str:
        return "\n".join(rendered)

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        return labelled_result(name, call_id, content, fmt)

    def _usage(self, tool: Tool) -> str:
        try:
            return self.call(tool.name, sample_arguments(tool), tool)
        except CannotExpress as error:
            return error.nearest or _empty(tool.name)


_TAG_INTRODUCTION = (
    "# Tools\n\n"
    "You can use the tools described below. To use one, write its call as XML in your answer. "
    "The call is carried out for you, and the next message brings you its result."
)


def _tag_rules(parallel: bool) -> list[str]:
    amount = (
        "You may write several calls in one message, one after the other, if none needs the result of another."
        if parallel
        else "Write exactly one call per message."
    )
    return [
        amount,
        "The form is exact: the tool's name is the outer tag, and inside it every parameter has a tag of its own. "
        "Spell all names as listed, add no attributes and close every tag.",
        "Give every required parameter. Leave out optional ones that you do not need, and invent none.",
        "Write text as it is: no escaping, no quotation marks around it. Text of several lines begins on the line "
        "after the opening tag and ends on the line before the closing tag.",
        "Write numbers, true, false and null plainly, and objects and arrays as JSON.",
        "Do not put a call into a code block. You may say in a sentence what you are about to do, but only before it.",
        "End your message after the call and wait for the result.",
        *_CALL_RULES_END,
    ]


def _empty(tag: str) -> str:
    return f"<{tag}></{tag}>"


def _child(tag: str, key: str, value: object, schema: ToolSchema) -> tuple[str, str | None]:
    """One parameter's element, and why it would not be read back as it was."""
    # JSON may hold a closing tag in a string, but not its escape.
    text = value if isinstance(value, str) else _MARKUP_IN_JSON.sub(_escaped, _json(value))
    is_body = schema.prop(key).body
    fault = _fault(key, value, text, schema, is_body)
    if isinstance(value, str) and not _stands_bare(text, is_body, (tag, key), schema):
        return f"<{key}><![CDATA[{text}]]></{key}>", fault
    wrap = "\n" if is_body and "\n" in text else ""
    return f"<{key}>{wrap}{text}{wrap}</{key}>", fault


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _fault(key: str, value: object, text: str, schema: ToolSchema, is_body: bool) -> str | None:
    read = schema.from_text(key, text)
    if read.fault is not None or not _same(read.value, value):
        return f"`{key}` would be read as another type"
    if not is_body and text != text.strip():
        return f"`{key}` would lose its outer white space"
    # CDATA knows no escape for its own end: https://www.w3.org/TR/xml/#sec-cdata-sect
    if "]]>" in text and re.search(rf"\]\]>\s*</(?:{re.escape(key)}|parameter)", text):
        return f"`{key}` holds the end of a CDATA section before its own closing tag"
    return None


def _stands_bare(text: str, is_body: bool, names: tuple[str, str], schema: ToolSchema) -> bool:
    """Reading it gives the same characters without a shield."""
    if "<" in text and _holds_end(text, is_body, names, schema):
        return False
    # A reader takes off one line break of its layout, and a carriage return would go with it.
    if is_body and (text.endswith("\r") or (text.lstrip().startswith("```") and "\n" in text)):
        return False
    return "<" in text or ">" in text or "&" not in text or not _ENTITY.search(text)


def _holds_end(text: str, is_body: bool, names: tuple[str, str], schema: ToolSchema) -> bool:
    """Its own tags may be taken for the end of the value, or for its shield."""
    for name in {match[1] for match in _ANY_TAG.finditer(text)}:
        if name in names or resolve_parameter(name, schema, ())[0] in schema.properties:
            return True
    if not is_body and "</" in text:
        return True  # short values are also closed by tags that only resemble their own
    if END_IN_TEXT.search(text) or _STRAY.search(text) or ends_with_token(text):
        return True
    return text.lstrip().startswith("<![CDATA[")


# --- JSON in a tool_call tag -----------------------------------------------------------------------------------------


class Hermes:
    """A JSON object with name and arguments inside `<tool_call>`."""

    id = "hermes"
    result_separator = "\n"

    def tool_section(self, tools: Sequence[Tool], *, parallel: bool) -> str:
        return (
            f"# Tools\n\n{_hermes_introduction(parallel)}\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n"
            f"<tools>\n{json_lines(tools)}\n</tools>\n\n{_HERMES_FORM}{example_of(tools, self.call)}\n\n"
            f"Rules:\n{numbered(_hermes_rules(parallel))}"
        )

    def call(self, name: str, arguments: Mapping[str, Any], tool: Tool | None) -> str:
        payload = dict(arguments)
        text = f"<tool_call>\n{_json({'name': name, 'arguments': payload})}\n</tool_call>"
        # Models repeat a tool's schema as its arguments, so the reader takes such an object for no call.
        if "type" in payload and "properties" in payload:
            raise CannotExpress("the arguments look like a schema", text)
        if tool is not None and not _same(dict(schema_of(tool).from_json(payload).arguments), payload):
            raise CannotExpress("an argument would be read as another type", text)
        return text

    def calls(self, rendered: Sequence[str]) -> str:
        return "\n".join(rendered)

    def result(self, name: str, call_id: str, content: str, fmt: str) -> str:
        return f"<tool_response>\n{shielded(content, _RESPONSE_TAG)}\n</tool_response>"


_HERMES_FORM = (
    "For a function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


def _hermes_introduction(parallel: bool) -> str:
    amount = "one or more functions" if parallel else "one function per message"
    return f"You may call {amount} to assist with the user query."


def _hermes_rules(parallel: bool) -> list[str]:
    amount = (
        "Several calls in one message are allowed, each in its own tags, if none needs the result of another."
        if parallel
        else "Write exactly one call per message."
    )
    return [
        amount,
        "Give every required argument, with the type that its schema names, and no others than it knows.",
        "Do not put a call into a code block. You may say in a sentence what you are about to do, but only before it.",
        "End your message after the call and wait for the result.",
        *_CALL_RULES_END,
    ]


def in_one_frame(rendered: Sequence[str], opening: str, between: str, closing: str) -> str:
    """Several calls, each in a frame of its own, as the family frames them together."""
    bodies = (text.removeprefix(opening).removesuffix(closing) for text in rendered)
    return opening + between.join(bodies) + closing if rendered else ""


def without_tokens(content: str, tokens: Iterable[str]) -> str:
    """A result that cannot write the family's own tokens."""
    # Tokenizers read such a token as one sign wherever it stands: a result could end its own turn.
    broken = (re.compile(f"{re.escape(token[:1])}(\u200b*{re.escape(token[1:])})") for token in tokens)
    return shielded(content, *broken)
