"""A conversation with structured tool calls, rewritten as the text that the model's dialect is made of.

An assistant's calls become their own syntax in its text, and the results that answer them become one user message.
What the client wrote is not touched: user and system text stays as it is, a result's content too but for our own
headings in it. Results are checked as they come: what is certain is mended, every other fault is named at once.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from json import dumps
from typing import Any

from attrs import define, field, frozen
from msgspec import Struct

from gateway.core.errors import InvalidToolResults
from gateway.core.tools import Tool, ToolSet
from strategies.asking.beginnings import Beginnings, Same
from strategies.grammar.dialect import Renderer
from strategies.schema.structured import arguments_of
from strategies.writing.renderer import CannotExpress

__all__ = ["History", "render_history"]

# Of an id or a name in an error, which the client chose.
_MAX_QUOTED = 80
_RESULT_ROLES = ("tool", "function")
_NAMELESS = "unknown_tool"
_MOST_KEPT, _LONGEST_KEPT = 4096, 2048
"""Calls that are remembered as they were written, and letters of the arguments of one."""


class History(Struct, frozen=True):
    """The messages to send; `rendered` says whether any of them held tool calls or results."""

    messages: list[dict[str, Any]]
    rendered: bool
    warnings: tuple[str, ...] = ()


@frozen
class _Call:
    """A call of the past: what its result is shown under, and where it stood among the calls of its message."""

    name: str
    order: int = 0


@define
class _Result:
    """A tool's result, waiting for those beside it."""

    name: str
    call_id: str
    text: str
    parts: list[dict[str, Any]]
    order: int


def render_history(messages: Sequence[dict[str, Any]], *, renderer: Renderer, tools: ToolSet, fmt: str) -> History:
    """The same conversation as text; raises `InvalidToolResults` that names every fault of the tool results."""
    about = Same(renderer, tools), fmt
    # A conversation comes again with each of its turns, and grows at its end alone.
    known = _beginnings.find(about, messages)
    rewriting = _Rewriting(renderer=renderer, tools=tools, fmt=fmt) if known is None else known.state.copied()
    begin = 0 if known is None else len(known.messages)
    for index, message in enumerate(messages[begin:], begin):
        rewriting.take(index, message)
    # Only what was worth rewriting, and never a fault: the client may send the mended message next.
    if rewriting.rendered and not rewriting.faults:
        _beginnings.keep(about, messages, rewriting.copied(), known)
    return rewriting.finish()


_beginnings: "Beginnings[_Rewriting]" = Beginnings()


@define
class _Rewriting:
    renderer: Renderer
    tools: ToolSet
    fmt: str
    _messages: list[dict[str, Any]] = field(factory=list, init=False)
    _results: list[_Result] = field(factory=list, init=False)
    _calls: dict[str, _Call] = field(factory=dict, init=False)
    _open: dict[str, _Call] = field(factory=dict, init=False)
    """Calls of the last assistant message that no result has answered."""
    _functions: dict[str, _Call] = field(factory=dict, init=False)
    faults: list[tuple[str, str]] = field(factory=list, init=False)
    _warnings: list[str] = field(factory=list, init=False)
    rendered: bool = field(default=False, init=False)

    def copied(self) -> "_Rewriting":
        """The same, to go on from here another time; there are no faults yet."""
        other = _Rewriting(renderer=self.renderer, tools=self.tools, fmt=self.fmt)
        other._messages, other._results = [*self._messages], [*self._results]
        other._calls, other._open, other._functions = {**self._calls}, {**self._open}, {**self._functions}
        other._warnings, other.rendered = [*self._warnings], self.rendered
        return other

    def take(self, index: int, message: dict[str, Any]) -> None:
        if message["role"] in _RESULT_ROLES:
            self.rendered = True
            self._take_result(index, message)
            return
        # Results stand in front of what follows them, whoever says that.
        self._flush()
        if message["role"] == "assistant" and ("tool_calls" in message or "function_call" in message):
            self._messages.append(self._assistant(index, message))
        else:
            self._messages.append(_flattened(message))

    def finish(self) -> History:
        self._flush()
        if self.faults:
            text = "; ".join(f"{place}: {fault}" for place, fault in self.faults)
            raise InvalidToolResults(f"the tool results cannot be used: {text}", param=self.faults[0][0])
        return History(self._messages, self.rendered, tuple(self._warnings))

    # --- calls ---

    def _assistant(self, index: int, message: dict[str, Any]) -> dict[str, Any]:
        # Calls that were never answered are given up: a result without an id cannot mean them any more.
        self._open = {}
        kept = {key: value for key, value in message.items() if key not in ("tool_calls", "function_call")}
        rendered = self._structured(index, message.get("tool_calls"))
        old = message.get("function_call")
        if isinstance(old, dict):
            name = _name_of(old)
            self._functions[name] = _Call(name)
            rendered.append(self._call(index, name, old.get("arguments")))
        # An empty list of calls is none, and some servers refuse to see one.
        if not rendered:
            return _flattened(kept)
        self.rendered = True
        return {**kept, "content": _with_calls(kept.get("content"), self.renderer.calls(rendered))}

    def _structured(self, index: int, calls: object) -> list[str]:
        rendered: list[str] = []
        for order, call in enumerate(calls if isinstance(calls, list) else []):
            if not isinstance(call, dict):
                self._warnings.append(f"messages[{index}].tool_calls[{order}] is no object and was left out")
                continue
            name, arguments = _name_and_arguments(call)
            given = call.get("id")
            # A call without an id can still be answered, where it is the only one that waits.
            call_id = given if isinstance(given, str) and given else f"call_{index}_{order}"
            self._calls[call_id] = self._open[call_id] = _Call(name, order)
            rendered.append(self._call(index, name, arguments))
        return rendered

    def _call(self, index: int, name: str, arguments: object) -> str:
        tool = self.tools.get(name)
        # Whole files are not remembered: a few of them would take all the room.
        if isinstance(arguments, str) and len(arguments) <= _LONGEST_KEPT:
            text, fault = _kept(_Same(self.renderer, tool), name, arguments)
        else:
            text, fault = _written(self.renderer, name, arguments, tool)
        if fault:
            self._warnings.append(f"messages[{index}]: a call is shown in its nearest form: {fault}")
        return text

    # --- results ---

    def _take_result(self, index: int, message: Mapping[str, Any]) -> None:
        place = f"messages[{index}]"
        found = self._answered(place, message) if message["role"] == "tool" else self._old_answered(place, message)
        content = message.get("content")
        # A result without content is a client's fault, and a model that sees none calls again for ever.
        if content is None:
            self.faults.append((f"{place}.content", "content is missing"))
        elif not isinstance(content, str | list):
            self.faults.append((f"{place}.content", "content is neither text nor a list of parts"))
        elif found is not None:
            call_id, call = found
            text, parts = _split(content)
            self._results.append(_Result(call.name, call_id, text, parts, call.order))

    def _answered(self, place: str, message: Mapping[str, Any]) -> tuple[str, _Call] | None:
        """The call that a result belongs to; an id that is not there is certain when only one call waits."""
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            call_id = self._certain_id(message.get("name"))
            if call_id is None:
                self.faults.append((f"{place}.tool_call_id", "tool_call_id is missing"))
                return None
            self._warnings.append(f"{place}: the missing tool_call_id was the only call without a result")
        call = self._calls.get(call_id)
        if call is None:
            fault = f"no earlier assistant message holds the call {_quoted(call_id)}"
            self.faults.append((f"{place}.tool_call_id", fault))
            return None
        self._open.pop(call_id, None)
        return call_id, call

    def _certain_id(self, name: object) -> str | None:
        waiting = [call_id for call_id, call in self._open.items() if not isinstance(name, str) or call.name == name]
        return waiting[0] if len(waiting) == 1 else None

    def _old_answered(self, place: str, message: Mapping[str, Any]) -> tuple[str, _Call] | None:
        name = message.get("name")
        call = self._functions.get(name) if isinstance(name, str) else None
        if call is None:
            fault = f"no earlier assistant message calls the function {_quoted(name)}"
            self.faults.append((f"{place}.name", fault))
            return None
        return "", call

    def _flush(self) -> None:
        """Results that stand side by side become one user message, in the order of their calls."""
        if not self._results:
            return
        pieces: list[dict[str, Any]] = []
        # Templates put results behind each other, and models go by the order of their own calls.
        for result in sorted(self._results, key=lambda result: result.order):
            text = self.renderer.result(result.name, result.call_id, result.text, self.fmt)
            # One part for as long as nothing but text comes: templates put breaks of their own between parts.
            if pieces and pieces[-1].get("type") == "text":
                pieces[-1] = _text_part(pieces[-1]["text"] + self.renderer.result_separator + text)
            else:
                pieces.append(_text_part(text))
            pieces.extend(result.parts)
        plain = len(pieces) == 1
        self._messages.append({"role": "user", "content": pieces[0]["text"] if plain else pieces})
        self._results = []


class _Same:
    """Who writes, and of which tool: the same as these very two alone."""

    __slots__ = ("renderer", "tool")

    def __init__(self, renderer: Renderer, tool: Tool | None) -> None:
        self.renderer = renderer
        self.tool = tool

    def __hash__(self) -> int:
        # By identity: to compare two tools is to compare their schemas.
        return id(self.tool)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.tool is self.tool and other.renderer is self.renderer


def _written(renderer: Renderer, name: str, arguments: object, tool: Tool | None) -> tuple[str, str]:
    """A call in the model's own form, or in the nearest one to it and why."""
    try:
        return renderer.call(name, _decoded(arguments), tool), ""
    except CannotExpress as error:
        return error.nearest or f"{name}: {_as_text(arguments)}", error.reason


@lru_cache(maxsize=_MOST_KEPT)
def _kept(writing: _Same, name: str, arguments: str) -> tuple[str, str]:
    """The same, remembered: a conversation comes again with each of its turns."""
    return _written(writing.renderer, name, arguments, writing.tool)


def _name_and_arguments(call: Mapping[str, Any]) -> tuple[str, object]:
    function = call.get("function")
    if isinstance(function, dict):
        return _name_of(function), function.get("arguments")
    custom = call.get("custom")
    if isinstance(custom, dict):
        return _name_of(custom), {"input": custom.get("input", "")}
    return _NAMELESS, None


def _name_of(function: Mapping[str, Any]) -> str:
    name = function.get("name")
    # Shown under some name: a call that is left out of the history would leave its result without one.
    return name if isinstance(name, str) and name.strip() else _NAMELESS


def _decoded(arguments: object) -> dict[str, Any]:
    """The call's arguments; what is no JSON object is shown as it was, under one name."""
    given = {} if arguments is None else arguments_of(arguments)
    return {"arguments": arguments} if given is None else given


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        return "..."


def _quoted(value: object) -> str:
    text = _as_text(value)
    shown = text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "..."
    return dumps(shown, ensure_ascii=False)


# --- content ---------------------------------------------------------------------------------------------------------


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _split(content: str | list[Any]) -> tuple[str, list[dict[str, Any]]]:
    """The text of all text parts, a line each, and the parts that are something else."""
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    others: list[dict[str, Any]] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(part, dict):
            others.append(part)
        else:
            texts.append(_as_text(part))
    return "\n".join(texts), others


def _flattened(message: dict[str, Any]) -> dict[str, Any]:
    """Plain text parts as one text; a part that says anything more is left as it is, and so are all beside it."""
    content = message.get("content")
    if not isinstance(content, list) or not content:
        return message
    if all(isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text" for part in content):
        return {**message, "content": _split(content)[0]}
    return message


def _with_calls(content: object, calls: str) -> str | list[dict[str, Any]]:
    """An assistant's own words, then its calls."""
    text, others = _split(content) if isinstance(content, str | list) else ("", [])
    said = f"{text}\n{calls}" if text.strip() else calls
    # Pictures first, as the call is the last that the model said.
    return [*others, _text_part(said)] if others else said
