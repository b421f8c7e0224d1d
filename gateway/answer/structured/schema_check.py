"""Structured calls held against the schemas that their tools were declared with.

A model server that was told a simpler schema may make calls that fit only that one. In an answer that comes whole such
calls are asked for again, as those without usable arguments are; what a stream has delivered can only be counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from attrs import evolve, field, frozen
from msgspec.structs import replace

from gateway.core.events import Note
from gateway.core.tools import Tool
from gateway.kinds.lowering.without import without
from gateway.kinds.rows import KINDS
from gateway.kinds.shared.port import Kind
from gateway.wire.chat_request import declared_tool
from strategies.base import AsksAgain, BrokenCall, Prepared
from strategies.schema.structured import arguments_of, call_id, function_name, function_of
from strategies.schema.tool_schema import ToolSchema, schema_of

__all__ = ["Fitting", "held_to_schemas"]


def held_to_schemas(prepared: Prepared, kind: Kind, keywords: Sequence[str]) -> Prepared:
    """The same, its structured calls held against those schemas that a server of this kind is not told whole."""
    if prepared.ask_again is None or not (keywords or KINDS[kind.name].is_translated):
        return prepared
    schemas = {
        tool.name: schema_of(tool)
        for tool in _tools(prepared.body)
        if not kind.can_say(tool.parameters) or without(tool.parameters, keywords) != tool.parameters
    }
    return replace(prepared, ask_again=Fitting(ask=prepared.ask_again, schemas=schemas)) if schemas else prepared


@frozen(kw_only=True)
class Fitting:
    """Asks again as `ask` does, for calls that do not fit as well."""

    ask: AsksAgain
    schemas: Mapping[str, ToolSchema] = field(repr=False)
    """By tool; of those alone that the server was told less of."""

    @property
    def required(self) -> bool:
        return self.ask.required

    def satisfies(self, name: str) -> bool:
        return self.ask.satisfies(name)

    def is_broken_call(self, note: Note) -> bool:
        return self.ask.is_broken_call(note)

    def is_usable(self, name: object, arguments: object) -> bool:
        """Whether a structured call can be delivered; an empty object stands for no arguments in particular."""
        if not self.ask.is_usable(name, arguments):
            return False
        return arguments == {} or self._fault(cast(str, name), arguments) is None

    def is_echo(self, name: str, arguments: str, broken_calls: Sequence[BrokenCall]) -> bool:
        return self.ask.is_echo(name, arguments, broken_calls)

    def reason(self, broken_call: BrokenCall) -> str:
        return self.ask.reason(broken_call)

    def body(self, broken_calls: Sequence[BrokenCall]) -> bytes:
        """The request that asks again, with what was wrong."""
        return self.ask.body([self._told(broken_call) for broken_call in broken_calls])

    def faults(self, calls: Sequence[Any]) -> Iterator[tuple[int, str, str]]:
        """Which of the calls do not fit, by their place, with their tools, and why."""
        for at, call in enumerate(calls):
            name = function_name(call)
            fault = self._fault(name, function_of(call).get("arguments")) if name is not None else None
            if name is not None and fault is not None:
                yield at, name, fault

    def _told(self, broken_call: BrokenCall) -> BrokenCall:
        told = {
            call_id(broken_call.calls[at], at): f"the tool was not run: {fault}"
            for at, _, fault in self.faults(broken_call.calls)
        }
        return evolve(broken_call, refusals={**told, **broken_call.refusals}) if told else broken_call

    def _fault(self, name: str, arguments: object) -> str | None:
        schema = self.schemas.get(name)
        given = arguments_of(arguments) if schema is not None else None
        return None if schema is None or given is None else schema.check(given)


def _tools(body: bytes) -> Iterator[Tool]:
    try:
        tools = msgspec.json.decode(body).get("tools")
    except (ValueError, RecursionError, AttributeError):
        return
    yield from filter(None, map(declared_tool, tools if isinstance(tools, list) else ()))
