"""Asking again for a call that was plainly meant but cannot be used: when that is due, what is said, how it is sent.

A broken call counts where the opener of a declared tool, in a dialect of strong evidence, led to one whose end, values
or types are wrong. Doubt about whether it was a call at all (data in prose, a fence, a quotation, a weak score without
a mend) never asks: the second answer would be the action that the first one was not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from json import dumps
from typing import Any

from msgspec import Struct

from gateway.core.events import Note
from gateway.core.reasons import Reason
from gateway.core.tools import Tool, ToolSet
from gateway.wire.chat_request import TOOL_FIELDS, ChatRequest
from strategies.base import BrokenCall
from strategies.dialects.rows import BY_ID
from strategies.grammar.dialect import Renderer
from strategies.grammar.provenance import Provenance
from strategies.schema.structured import arguments_of, call_id, function_name, function_of
from strategies.schema.tool_schema import schema_of
from strategies.writing.renderer import CannotExpress
from strategies.writing.samples import sample_arguments

__all__ = ["UNTRANSLATABLE", "AskAgain", "Demand", "asking_again", "demanded", "fault_of"]

_FORCING = ("required", "any")

_STRONG = frozenset("ABC")
UNTRANSLATABLE = "the arguments cannot be carried out: "
"""How the reason of a call that was refused by a tool mapping begins; the rest is for the model."""

_FINAL = frozenset({"cut", "too_large", "opener inside a value"})
"""Calls that were broken off by what nobody can mend, or that hold more than one."""
_WEAK_FORMS = ("in_prose", "shell", "shell_lines", "bare", "fence")
_SCHEMA_FAULT = re.compile(r"`|missing required argument|the arguments ")
_MEND = re.compile(r"[a-z_]+ -[0-9]+")
_HEAD = 400
"""Where in a candidate its tool is named."""
_COPIED = (120, 32)
"""A candidate whose beginning the client has sent is a quotation, however its writer went on."""
_MAX_PARAMETERS = 64
_MAX_NAMED = 50
"""Tools that are named to a model which called one that does not exist."""
_NOT_CLOSED = ("missing_braces", "missing_brackets", "missing_quote", "truncated")


class Demand(Struct, frozen=True, kw_only=True):
    """Whether a call must come, and of which tool."""

    required: bool = False
    name: str | None = None


_NO_DEMAND = Demand()


def demanded(choice: object) -> Demand:
    """What a request's `tool_choice` demands."""
    if isinstance(choice, str):
        return Demand(required=True) if choice in _FORCING else _NO_DEMAND
    if not isinstance(choice, dict):
        return _NO_DEMAND
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, dict):
        return Demand(required=allowed.get("mode") in _FORCING)
    name = function_name(choice)
    return Demand(required=name is not None, name=name)


class AskAgain(Struct, frozen=True, kw_only=True, dict=True):
    """Asks the same model for one request's call again."""

    request: ChatRequest
    tools: ToolSet
    messages: Sequence[dict[str, Any]]
    """The conversation as it went upstream."""
    demand: Demand = _NO_DEMAND
    renderer: Renderer | None = None
    """What wrote the tools into the prompt; without one the model has them as native tools."""
    pins: bool = False
    """The server is known to take a `tool_choice` that names a tool: the second answer is held to the one meant."""
    strict: bool = False
    """It is known to hold calls to the schemas of tools that are marked as strict."""
    translated_name: str | None = None
    """What the demanded call is for the client, where the model was shown another tool in the place of its own."""

    @cached_property
    def _provenance(self) -> Provenance:
        return Provenance(self.request.messages)

    @property
    def required(self) -> bool:
        """An answer without a call cannot be used."""
        return self.demand.required

    def satisfies(self, name: str) -> bool:
        """Whether a call of this tool is one that the request asks for."""
        return self.demand.name is None or name == (self.translated_name or self.demand.name)

    def is_broken_call(self, note: Note) -> bool:
        """Whether what stayed text was plainly meant as a call of a declared tool, and was no quotation."""
        verdict = note.verdict
        if not note.seen or not verdict.meant or not verdict.reasons or not self._is_strong(verdict.dialect):
            return False
        # A name that nobody offered may be the name of an element that the text is about.
        if verdict.refusal is Reason.UNKNOWN_TOOL:
            return False
        is_worth_asking = _may_be_asked_again(verdict.reasons) if verdict.score else verdict.reasons[-1] not in _FINAL
        tool = self.tool_of(note) if is_worth_asking else None
        return tool is not None and not self._is_copied(note, tool)

    def is_usable(self, name: object, arguments: object) -> bool:
        """Whether a structured call names a declared tool and has an object for arguments."""
        return isinstance(name, str) and name in self.tools and arguments_of(arguments) is not None

    def is_echo(self, name: str, arguments: str, broken_calls: Sequence[BrokenCall]) -> bool:
        """Whether a call's arguments are those of the example, and not what the model had meant before."""
        tool = self.tools.get(name)
        # Only an example that was shown can be echoed.
        if tool is None or not any(tool in self._shown(broken_call) for broken_call in broken_calls):
            return False
        shown, given = sample_arguments(tool), arguments_of(arguments)
        if given is None or any(key not in shown or shown[key] != given[key] for key in given):
            return False
        said = "".join(broken_call.content + dumps(broken_call.calls, default=str) for broken_call in broken_calls)
        # Where the model itself had written the value, it is no echo though the example happens to have it.
        return any(isinstance(value, str) and value not in said for value in given.values())

    def reason(self, broken_call: BrokenCall) -> str:
        """In a few words, without anything the model wrote, why it is asked again."""
        if broken_call.refusals:
            return "untranslatable"
        if broken_call.faults:
            return "misfit"
        if broken_call.calls:
            return "bad_arguments"
        if not broken_call.notes:
            return "required_call_missing"
        reason = broken_call.notes[0].verdict.reasons[-1]
        return "untranslatable" if reason.startswith(UNTRANSLATABLE) else reason

    def body(self, broken_calls: Sequence[BrokenCall]) -> bytes:
        """The request that asks again, behind everything that was answered so far."""
        # As it went upstream, so that the server's prompt cache still holds all but the last turn.
        messages = [*self.messages]
        for broken_call in broken_calls:
            messages.extend(self._correction(broken_call))
        own = self._held_to(broken_calls) if self.renderer is None else dict.fromkeys(TOOL_FIELDS)
        return self.request.replace(messages=messages, stream=False, stream_options=None, **own)

    def _held_to(self, broken_calls: Sequence[BrokenCall]) -> dict[str, Any]:
        """The fields that hold a native answer to the tool that was meant, where exactly one was."""
        meant = {tool.name: tool for tool in self._shown(broken_calls[-1])} if broken_calls else {}
        # With two that may be meant, holding it to one of them would choose for the model.
        if len(meant) != 1:
            return {}
        (tool,) = meant.values()
        held: dict[str, Any] = {}
        if self.pins and self.demand.name is None:
            held["tool_choice"] = {"type": "function", "function": {"name": tool.name}}
        if self.strict and _may_be_strict(tool):
            tools = self.request.body.get("tools")
            held["tools"] = [_strict(each, tool.name) for each in tools] if isinstance(tools, list) else tools
        return held

    def tool_of(self, note: Note) -> Tool | None:
        """The declared tool that a candidate names."""
        tool = self.tools.get(note.verdict.name)
        if tool is not None:
            return tool
        # The longest first, as an alternation takes what comes first: `read_file` before `read`.
        names = sorted(self.tools.names, key=len, reverse=True)
        named = re.search(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", note.seen[:_HEAD])
        return self.tools.get(named[0]) if names and named else None

    def _is_strong(self, dialect: str) -> bool:
        row = BY_ID.get(dialect)
        return (row is not None and row.level in _STRONG) or (self.renderer is not None and dialect == self.renderer.id)

    def _is_copied(self, note: Note, tool: Tool) -> bool:
        seen = note.seen.strip()
        heads = (seen, *(seen[:size] for size in _COPIED))
        return any(self._provenance.quotes(head, tool.name, {"": None}) for head in heads)

    # What is said

    def _correction(self, broken_call: BrokenCall) -> Iterator[dict[str, Any]]:
        if broken_call.calls:
            yield {
                "role": "assistant",
                # Null beside calls, as some templates put an empty text into the prompt and others refuse it.
                "content": broken_call.content or None,
                "tool_calls": [_readable(call, at) for at, call in enumerate(broken_call.calls)],
            }
            for at, call in enumerate(broken_call.calls):
                yield {
                    "role": "tool",
                    "tool_call_id": call_id(call, at),
                    "content": self._on_call(call, at, broken_call),
                }
            return
        if broken_call.content.strip():
            yield {"role": "assistant", "content": broken_call.content}
        yield {"role": "user", "content": self._on_broken_call(broken_call)}

    def _shown(self, broken_call: BrokenCall) -> list[Tool]:
        """The tools whose form is shown after this broken call."""
        names = [function_name(call) for call in broken_call.calls]
        if not names and _is_unknown(broken_call):
            return []
        if not names:
            meant = self.tool_of(broken_call.notes[0]) if broken_call.notes else None
            names = [meant.name if meant is not None else self.demand.name or next(iter(self.tools.names), None)]
        return [tool for name in names if name is not None and (tool := self.tools.get(name)) is not None]

    def _on_broken_call(self, broken_call: BrokenCall) -> str:
        if _is_unknown(broken_call):
            return self._on_unknown()
        note = broken_call.notes[0] if broken_call.notes else None
        tool = self.tool_of(note) if note is not None else None
        if note is None or tool is None:
            return self._on_missing(next(iter(self._shown(broken_call)), None))
        said = f"Your last message was meant as a call of the tool `{tool.name}`, but it could not be used"
        return f"{said}: {fault_of(note, tool)}. {self._again(tool)}"

    def _on_missing(self, tool: Tool | None) -> str:
        said = "Your last message holds no call that can be used, but a call"
        if tool is None:
            return f"{said} of one of the tools is required now."
        if self.demand.name is not None:
            return f"{said} of the tool `{tool.name}` is required now. {self._again(tool)}"
        form = self._form(tool)
        return f"{said} of one of the tools is required now. This is how `{tool.name}` is called:\n\n{form}"

    def _on_unknown(self) -> str:
        said = f"Your last message calls a tool that does not exist. {self._offered()}"
        return f"{said} Write the whole call again, of the one among them that you meant."

    def _offered(self) -> str:
        names = [*self.tools.names]
        told = ", ".join(f"`{name}`" for name in names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
        return f"The tools are {told}."

    def _on_call(self, call: Mapping[str, Any], at: int, broken_call: BrokenCall) -> str:
        refusal = broken_call.refusals.get(call_id(call, at))
        if refusal:
            return f"Error: {refusal}"
        fault = broken_call.faults.get(call_id(call, at))
        if fault:
            return self._on_misfit(call, fault)
        if arguments_of(function_of(call).get("arguments")) is None:
            return self._on_arguments(call)
        return "Not done, as another call of the same message could not be."

    def _on_arguments(self, call: Mapping[str, Any]) -> str:
        said = "The tool was not run: the arguments of the call are not a JSON object."
        tool = self.tools.get(function_name(call) or "")
        return f"{said} {self._again(tool)}" if tool else f"{said} Call it again with valid arguments."

    def _on_misfit(self, call: Mapping[str, Any], fault: str) -> str:
        tool = self.tools.get(function_name(call) or "")
        if tool is not None:
            return f"Error: the tool was not run: {fault}. {self._again(tool)}"
        return f"Error: there is no such tool. {self._offered()} Call the one among them that you meant."

    def _again(self, tool: Tool) -> str:
        if self.renderer is None:
            return f"Call `{tool.name}` again, with arguments of your own in this form:\n\n{self._form(tool)}"
        return f"Write the whole call now, in exactly this form with your own values:\n\n{self._form(tool)}"

    def _form(self, tool: Tool) -> str:
        """The right form of a call."""
        arguments = sample_arguments(tool)
        if self.renderer is None:
            return dumps(arguments, ensure_ascii=False)
        try:
            return self.renderer.call(tool.name, arguments, tool)
        except CannotExpress as error:
            return error.nearest or ""


def asking_again(
    request: ChatRequest,
    *,
    messages: Sequence[dict[str, Any]] | None = None,
    tools: ToolSet | None = None,
    demand: Demand | None = None,
    renderer: Renderer | None = None,
) -> AskAgain | None:
    """How this request is asked again, as it came or as a `renderer` wrote it; never for several choices."""
    offered = request.tools if tools is None else tools
    # Of several answers one could be right already, and all would be paid for again.
    if not offered.names or request.body.get("n") not in (None, 1):
        return None
    return AskAgain(
        request=request,
        tools=offered,
        messages=request.messages if messages is None else messages,
        demand=demand or (_NO_DEMAND if request.tool_choice is None else demanded(request.tool_choice)),
        renderer=renderer,
    )


def _may_be_strict(tool: Tool) -> bool:
    """Strict schemas name every parameter as required: https://platform.openai.com/docs/guides/structured-outputs."""
    schema = tool.parameters
    required, properties = schema.get("required"), schema.get("properties")
    if schema.get("additionalProperties") is not False or not isinstance(properties, dict):
        return False
    return isinstance(required, list) and set(map(str, required)) == set(properties)


def _strict(entry: Any, name: str) -> Any:
    function = function_of(entry)
    # A copy: the request is the client's, and others may have the same tools.
    return {**entry, "function": {**function, "strict": True}} if function.get("name") == name else entry


def _is_unknown(broken_call: BrokenCall) -> bool:
    """Whether the broken call named a tool that does not exist."""
    return any(note.verdict.refusal is Reason.UNKNOWN_TOOL for note in broken_call.notes)


def _may_be_asked_again(reasons: Sequence[str]) -> bool:
    """Whether a complete candidate was refused for its arguments or for how it was written, not for what it is."""
    last = reasons[-1]
    if last.startswith("confidence "):
        return not reasons[0].startswith(_WEAK_FORMS) and any(_MEND.fullmatch(reason) for reason in reasons)
    return _SCHEMA_FAULT.match(last) is not None


# --- what is wrong ---------------------------------------------------------------------------------------------------


def fault_of(note: Note, tool: Tool) -> str:
    """What is wrong with a candidate, in words that its writer can act on."""
    reasons = note.verdict.reasons
    last = reasons[-1]
    if _SCHEMA_FAULT.match(last):
        return last
    if last.startswith("JSON: "):
        return f"its JSON is not valid ({last.removeprefix('JSON: ')})"
    if "JSON" in last or any(reason.startswith(_NOT_CLOSED) for reason in reasons):
        return "its JSON is not complete"
    unclosed = _unclosed(note, tool)
    if unclosed:
        return f"`{unclosed}` was not closed"
    if any(reason.startswith("call_closer") for reason in reasons):
        return "its closing tag is missing or wrong"
    if last.startswith("confidence "):
        return "it is not written exactly in the required form"
    return f"it is not written in the required form ({last})"


def _unclosed(note: Note, tool: Tool) -> str | None:
    """The last parameter's tag that nothing closes."""
    seen = note.seen
    if note.size > len(seen):
        return None
    opened: list[tuple[int, str]] = []
    for name in list(schema_of(tool).properties)[:_MAX_PARAMETERS]:
        for opening, closing in (
            (f"<{name}>", f"</{name}>"),
            (f"<parameter={name}>", "</parameter>"),
            (f'<parameter name="{name}">', "</parameter>"),
        ):
            at = seen.rfind(opening)
            if at >= 0 and closing not in seen[at : _next_parameter(seen, at + len(opening), closing)]:
                opened.append((at, opening))
    return max(opened)[1] if opened else None


def _next_parameter(seen: str, start: int, closing: str) -> int:
    """Where a closing tag that many parameters share can no longer be this one's."""
    following = seen.find("<parameter", start) if closing == "</parameter>" else -1
    return len(seen) if following < 0 else following


# --- structured calls ------------------------------------------------------------------------------------------------


def _readable(call: Mapping[str, Any], at: int) -> dict[str, Any]:
    """A call with arguments that a server's template can decode: what is no object is shown under one name."""
    arguments = function_of(call).get("arguments")
    shown = arguments if isinstance(arguments, str) else dumps(arguments)
    return {
        "id": call_id(call, at),
        "type": "function",
        "function": {
            "name": function_name(call) or "",
            # Templates decode the arguments and fail as a whole where they are no JSON.
            "arguments": dumps({"arguments": shown}) if arguments_of(shown) is None else shown,
        },
    }
