"""What `toolgate probe` asks of a model server, and how a reply is judged: empty where it is as wanted, else why not.

Each question is one that an agent asks all day, with the least that a reply has to show: nobody's prose is judged.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from gateway.wire.chat_request import declared_tool
from strategies.schema.tool_schema import schema_of

__all__ = ["ABILITIES", "OTHERS", "UNDER_RULE", "Answer", "Reply", "Task"]

_LONG_CHARS = 24_000
_BYTES_PER_TOKEN = 8
"""No tokenizer makes less of plain words: fewer tokens than that, and the beginning was not read."""
Answer = dict[str, Any]
Judge = Callable[["Reply"], str]
"""Empty where the reply is as wanted, else what is wrong with it."""


def _tool(name: str, description: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters, **more}
    return {"type": "function", "function": function}


_TEXT = {"type": "string"}
_READ = _tool("read_file", "Read a file.", {"path": _TEXT})
_WEATHER = _tool("get_weather", "The weather in a city.", {"city": _TEXT})
_NOTE = _tool("add_note", "Keep a note.", {"text": _TEXT})
_EVENT = _tool(
    "create_event",
    "Put an event into the calendar.",
    {
        "title": _TEXT,
        "when": {
            "type": "object",
            "properties": {"day": {"type": "integer"}, "month": {"type": "integer"}},
            "required": ["day", "month"],
        },
        "guests": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]},
        },
    },
)
_PAST = {"id": "call_probe000000000000000000", "type": "function"}
_CODE = "heron-4417"


@frozen
class Reply:
    """One answer of a server, or what came in its place."""

    status: int
    body: Answer
    asked: Mapping[str, Any]

    @property
    def message(self) -> Answer:
        choices = self.body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        return message if isinstance(message, dict) else {}

    @property
    def content(self) -> str:
        content = self.message.get("content")
        return content if isinstance(content, str) else ""

    @property
    def calls(self) -> list[Answer]:
        calls = self.message.get("tool_calls")
        return [each for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []

    @property
    def fault(self) -> str:
        """What is wrong with the answer as such."""
        error = self.body.get("error")
        if self.status == 200 and not error:
            return ""
        said = error.get("message") if isinstance(error, dict) else error
        return f"{self.status}: {str(said or 'no answer')[:160]}"


@frozen(kw_only=True)
class Task:
    """Something that is asked of a server, and how its reply is judged."""

    name: str
    body: Mapping[str, Any]
    judge: Judge
    streams: bool = False


def _ask(said: str, *tools: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": said}], **({"tools": list(tools)} if tools else {}), **more}


def _called(reply: Reply) -> str:
    """At least one call, of a tool that was offered, with arguments that fit."""
    if reply.fault:
        return reply.fault
    if not reply.calls:
        return "no call" if reply.content.strip() else "nothing: no call and no text"
    tools = {tool.name: tool for tool in map(declared_tool, reply.asked["tools"]) if tool is not None}
    for call in reply.calls:
        function = call.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name not in tools:
            return f"a call of {str(name)[:60]!r}, which was not offered"
        try:
            arguments = json.loads(function["arguments"]) if isinstance(function, dict) else None
        except (ValueError, TypeError, KeyError):
            return "arguments that are no JSON"
        if not isinstance(arguments, dict):
            return "arguments that are no object"
        fault = schema_of(tools[name]).check(arguments)
        if fault:
            return f"arguments that do not fit: {fault[:120]}"
    return ""


def _two(reply: Reply) -> str:
    return _called(reply) or ("" if len(reply.calls) >= 2 else "one call in place of two")


def _of(name: str) -> Judge:
    def judge(reply: Reply) -> str:
        found = _called(reply)
        return found or ("" if reply.calls[0]["function"]["name"] == name else "a call of another tool")

    return judge


def _answered(reply: Reply) -> str:
    return reply.fault or ("" if reply.content.strip() or reply.calls else "nothing: no call and no text")


def _unmixed(reply: Reply) -> str:
    return reply.fault or ("its thoughts stand in the text" if "<think>" in reply.content else "")


def _told_apart(reply: Reply) -> str:
    found = _called(reply)
    ids = [call.get("id") for call in reply.calls]
    return found or ("" if all(ids) and len(set(map(str, ids))) == len(ids) else "calls without ids of their own")


def _read_whole(reply: Reply) -> str:
    found = _called(reply)
    usage = reply.body.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if isinstance(tokens, int) and 0 < tokens < len(json.dumps(reply.asked)) // _BYTES_PER_TOKEN:
        return f"only {tokens} tokens of the prompt were read"
    if not found and not isinstance(tokens, int) and _CODE not in json.dumps(reply.calls):
        return "the beginning of the prompt was not read"
    return found


def _long() -> dict[str, Any]:
    words = "The committee met again and came to no conclusion that had not been there before. "
    said = f"The code word is {_CODE}.\n\n{words * (_LONG_CHARS // len(words))}\n\nKeep the code word with add_note."
    return _ask(said, _NOTE)


def _after_result() -> dict[str, Any]:
    call = {**_PAST, "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
    return {
        "messages": [
            {"role": "user", "content": "What is the weather in Oslo? Answer in one sentence."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "3 degrees, light snow"},
        ],
        "tools": [_WEATHER],
    }


_CALL = _ask("Read the file notes/today.txt. Use the tool read_file.", _READ)
_NESTED = _ask("Put a dinner with Ada and Grace on the 24th of March into the calendar, with create_event.", _EVENT)
_STRICT_READ = {**_READ, "function": {**_READ["function"], "strict": True}}
_NAMED = {"type": "function", "function": {"name": "add_note"}}

ABILITIES: tuple[Task, ...] = (
    Task(name="native", body=_CALL, judge=_called),
    Task(name="streamed", body=_CALL, judge=_called, streams=True),
    Task(
        name="parallel",
        body=_ask("Call get_weather twice in one message: for Oslo, and for Lima.", _WEATHER, parallel_tool_calls=True),
        judge=_two,
    ),
    Task(name="required", body=_ask("Good morning.", _NOTE, tool_choice="required"), judge=_called),
    Task(name="named", body=_ask("Good morning.", _READ, _NOTE, tool_choice=_NAMED), judge=_of("add_note")),
    Task(name="strict", body=_ask("Read the file notes/today.txt.", _STRICT_READ), judge=_called),
    Task(name="long_prompt", body=_long(), judge=_read_whole),
    Task(name="nested_schema", body=_NESTED, judge=_called),
    Task(name="tool_result", body=_after_result(), judge=_answered),
)
OTHERS: tuple[Task, ...] = (
    Task(name="reasoning", body=_ask("How much is 17 times 3?"), judge=_unmixed),
    Task(name="ids", body=_CALL, judge=_told_apart),
)
UNDER_RULE: tuple[Task, ...] = (
    Task(name="call", body=_CALL, judge=_called),
    Task(name="streamed", body=_CALL, judge=_called, streams=True),
    Task(name="nested", body=_NESTED, judge=_called),
    Task(name="result", body=_after_result(), judge=_answered, streams=True),
)
"""What every rule is tried at: what an agent does all day."""
