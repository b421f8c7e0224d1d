"""What the demo models say: pure functions from a chat request to an answer, no model behind them.

Asked by the user with tools at hand, a demo model answers with one call to the tool that fits best, in the textual
form that its name stands for. Given a tool's result, it answers in prose that quotes the result.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from gateway.core.tools import Tool
from gateway.wire.chat_request import declared_tool
from strategies.writing.prompt import MARKER
from strategies.writing.samples import sample_arguments

__all__ = ["MODELS", "NativeCall", "ScriptedAnswer", "answer"]

MODELS: Mapping[str, str] = {
    "demo-native": "answers with structured tool calls",
    "demo-xml": "writes its call as XML tags",
    "demo-hermes": "writes its call as JSON inside <tool_call>",
    "demo-json": "writes its call as a fenced JSON block",
    "demo-prose": "never calls a tool",
    "demo-broken": "begins a call and never closes it",
    "demo-slow": "pauses for long in the middle of its call",
}

_MAX_SYSTEM_CHARS = 1 << 18
_MAX_ASKED_CHARS = 4000
_MAX_QUOTED_CHARS = 300
_RESULT_HEADS = ("[Tool Result:", "Tool Result from ", "<tool_response>")
_WORD = re.compile(r"[a-z]{3,}")
_PARAMETER = re.compile(r"- ([A-Za-z0-9_$.:@-]{1,80}): \((required|optional)\) ([a-z]+)")
_CHOICES = "one of: "
_DECODER = json.JSONDecoder()
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,9}(?:\.\d{1,6})?(?![\w.])")
_FOUND_IN_TEXT: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("url", "uri", "link"), re.compile(r"(https?://[^\s\"'<>]{1,200})")),
    (("path", "file", "dir", "folder"), re.compile(r"((?:[\w.-]{1,80}/){1,20}[\w.-]{0,80}|\b[\w-]{1,80}\.\w{1,8}\b)")),
    (("command", "cmd"), re.compile(r"`([^`\n]{1,200})`")),
    (
        ("city", "location", "place", "country", "town"),
        re.compile(r"\b(?:in|for|at|near|of) ([A-Z][\w'-]{1,40}(?: [A-Z][\w'-]{1,40}){0,2})"),
    ),
    (
        ("query", "pattern", "text", "content", "message", "question", "prompt", "name", "title"),
        re.compile(r"[\"“`]([^\"”`\n]{1,200})[\"”`]"),
    ),
)


@frozen(kw_only=True)
class NativeCall:
    """A call in the wire's own form."""

    name: str
    arguments: str


@frozen(kw_only=True)
class ScriptedAnswer:
    """What a model says, in pieces with a pause between them, or the call it makes in the wire's own form."""

    pieces: tuple[str, ...] = ()
    call: NativeCall | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def answer(body: Mapping[str, Any]) -> ScriptedAnswer:
    """The answer of the model that the request names."""
    model = str(body.get("model"))
    messages = _messages(body)
    last = messages[-1] if messages else {}
    said = _text(last.get("content"))
    # A result is told in the role of a user where the gateway wrote the tools into the prompt.
    if last.get("role") == "tool" or said.startswith(_RESULT_HEADS):
        return ScriptedAnswer(
            pieces=(f'The tool answered: "{_quoted(_result(said))}". That is all I needed, the task is done.',)
        )
    tools = _offered(body, messages)
    # Only a person is answered with a call: an agent's loop must come to its end.
    if model == "demo-prose" or not tools or last.get("role") != "user":
        return ScriptedAnswer(pieces=(_prose(model, said, bool(tools)),))
    # Agents send whole projects, and patterns are tried on this.
    asked = said[:_MAX_ASKED_CHARS]
    tool = _fitting(tools, asked, body.get("tool_choice"))
    return _called(model, tool, _arguments(tool, asked))


def _called(model: str, tool: Tool, arguments: dict[str, Any]) -> ScriptedAnswer:
    lead = f"I will use {tool.name.replace('_', ' ')} for that.\n\n"
    written = json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)
    markup = _markup(tool.name, arguments)
    half = len(markup) // 2
    match model:
        case "demo-native":
            return ScriptedAnswer(call=NativeCall(name=tool.name, arguments=json.dumps(arguments, ensure_ascii=False)))
        case "demo-hermes":
            return ScriptedAnswer(pieces=(f"<tool_call>\n{written}\n</tool_call>",))
        case "demo-json":
            return ScriptedAnswer(pieces=(f"```json\n{written}\n```",))
        case "demo-broken":
            return ScriptedAnswer(pieces=(lead + _unclosed(markup),))
        case "demo-slow":
            return ScriptedAnswer(pieces=(lead + markup[:half], markup[half:]))
        case _:
            return ScriptedAnswer(pieces=(lead + markup,))


def _prose(model: str, said: str, has_tools: bool) -> str:
    if has_tools:
        return (
            "I would look that up with one of the tools, but I only talk: first I would choose a tool, then I would "
            f'wait for its result. You said: "{_quoted(said)}".'
        )
    return f'This is {model}, a scripted demo without a model behind it. You said: "{_quoted(said)}".'


def _markup(name: str, arguments: Mapping[str, Any]) -> str:
    lines = [f"<{key}>{_raw(value)}</{key}>" for key, value in arguments.items()]
    return "\n".join([f"<{name}>", *lines, f"</{name}>"])


def _unclosed(markup: str) -> str:
    """The call up to the middle of its last value."""
    head = markup[: markup.rindex("</")]
    return head[: head.rindex("</")] if "</" in head else head


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _messages(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    messages = body.get("messages")
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def _text(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _result(said: str) -> str:
    """A tool's own words, out of what the gateway writes around them for models without a tool role."""
    head, marker, content = said.partition("\nResult:\n")
    return content if marker and head.startswith(_RESULT_HEADS) else said


def _quoted(text: str) -> str:
    """The beginning on one line; the quotation marks around it stay the only ones."""
    return " ".join(text[:_MAX_QUOTED_CHARS].replace('"', "'").split())


def _offered(body: Mapping[str, Any], messages: Iterable[Mapping[str, Any]]) -> list[Tool]:
    if body.get("tool_choice") == "none":
        return []
    declared = body.get("tools")
    if isinstance(declared, list) and declared:
        return [tool for tool in map(declared_tool, declared) if tool is not None]
    return [
        tool
        for message in messages
        if message.get("role") in ("system", "developer")
        for tool in _described(_text(message.get("content"))[:_MAX_SYSTEM_CHARS])
    ]


def _described(system: str) -> list[Tool]:
    """The tools of a prompt section: either one heading and one line per parameter, or one JSON object per line."""
    _, marker, section = system.partition(MARKER)
    if not marker:
        return []
    tools: list[Tool] = []
    fields: dict[str, Any] = {}
    required: list[str] = []
    for line in section.split("\n"):
        if line.startswith("## "):
            fields, required = {}, []
            schema = {"type": "object", "properties": fields, "required": required}
            tools.append(Tool(name=line[3:].strip(), parameters=schema))
        elif line.startswith("{"):
            tools += _from_json(line)
        elif match := _PARAMETER.match(line):
            fields[match[1]] = {"type": match[3], **_choices(line)}
            if match[2] == "required":
                required.append(match[1])
    return tools


def _choices(line: str) -> dict[str, Any]:
    """The values that the line says a parameter may have: JSON, with commas between them."""
    position = line.find(_CHOICES)
    values: list[Any] = []
    while position >= 0:
        try:
            value, end = _DECODER.raw_decode(line, position + 2 if values else position + len(_CHOICES))
        except (ValueError, RecursionError):
            break
        values.append(value)
        position = end if line.startswith(", ", end) else -1
    return {"enum": values} if values else {}


def _from_json(line: str) -> list[Tool]:
    try:
        tool = declared_tool(json.loads(line))
    except (ValueError, RecursionError):
        return []
    return [tool] if tool is not None else []


def _fitting(tools: Sequence[Tool], asked: str, choice: object) -> Tool:
    """The tool that the request insists on, else the one that shares most words with what was asked."""
    function = choice.get("function") if isinstance(choice, dict) else None
    wanted = function.get("name") if isinstance(function, dict) else None
    words = set(_WORD.findall(asked.lower()))

    def shared(tool: Tool) -> tuple[bool, int, int]:
        name = set(_WORD.findall(tool.name.lower()))
        about = set(_WORD.findall(tool.description[:_MAX_ASKED_CHARS].lower()))
        return tool.name == wanted, len(words & name), len(words & about)

    # The first of several that fit alike: the same question gets the same tool.
    return max(tools, key=shared)


def _arguments(tool: Tool, asked: str) -> dict[str, Any]:
    """Every required argument, read from the question where it says one, a fitting sample otherwise."""
    properties = tool.parameters.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    needed = tool.parameters.get("required")
    samples = sample_arguments(tool)
    arguments = {}
    # In the order of the schema, not of the question: the same answer, byte by byte, each time.
    for name, schema in fields.items():
        found = _found(name, schema if isinstance(schema, dict) else {}, asked)
        if found is not None:
            arguments[name] = found
        elif isinstance(needed, list) and name in needed:
            arguments[name] = samples.get(name)
    return arguments


def _found(name: str, schema: Mapping[str, Any], asked: str) -> Any:
    """The value that the question itself gives for a parameter."""
    enum = schema.get("enum")
    if isinstance(enum, list):
        lowered = asked.lower()
        return next((value for value in enum if isinstance(value, str) and value.lower() in lowered), None)
    match schema.get("type"):
        case "string" | None:
            return _found_text(name.lower(), asked)
        case "integer" | "number" as kind:
            number = _NUMBER.search(asked)
            if number is None:
                return None
            return int(float(number[0])) if kind == "integer" else float(number[0])
        case _:
            return None


def _found_text(name: str, asked: str) -> str | None:
    for words, pattern in _FOUND_IN_TEXT:
        if any(word in name for word in words):
            match = pattern.search(asked)
            return match[1].rstrip(".,?!") if match else None
    return None
