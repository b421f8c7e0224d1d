"""The class of a structured call, and what is wrong with it.

Arguments that are blank are none, as clients have it: https://github.com/vercel/ai/blob/main/packages/ai/src/generate-text/parse-tool-call.ts
"""

import json
from collections.abc import Mapping
from typing import Any
from weakref import finalize

import msgspec
from attrs import frozen

from gateway.core.call_class import CallClass
from gateway.core.tools import Tool, ToolSet
from gateway.wire.json_scan import JsonScanner, JsonTooDeep
from strategies.schema.document import has_type
from strategies.schema.tool_schema import ToolSchema, schema_of
from strategies.structured.validity import Validity
from strategies.text.strict_json import SPACE, MembersHook, cutting, decoding, skip
from strategies.text.turns import LONG, Turns, let_go, whole

__all__ = ["Declared", "Judged", "NoJson", "arguments_in", "declared", "judge", "judging"]

_MAX_NESTING = 128
_MANY = 10_000
"""Objects and lists in a long text from which on it is read in parts: half a million of them take 50 ms and more."""
_MOST_DIGITS = 4000
"""Of a whole number that Python turns into one."""


class NoJson(ValueError):
    """A text is no JSON, or none that can be looked into."""


@frozen
class Judged:
    """A call's class; for one that is not valid, why, in words for its writer."""

    call_class: CallClass
    fault: str = ""

    @property
    def is_valid(self) -> bool:
        """The call is what its tool takes."""
        return self.call_class is CallClass.VALID


@frozen
class Declared:
    """One tool's schema, for those who convert and for those who judge."""

    schema: ToolSchema
    validity: Validity

    def fault(self, arguments: Mapping[str, Any]) -> str | None:
        """Why these are no arguments of this tool; an optional one that is null counts as left out."""
        try:
            # Strict schemas have models name every parameter: null there is how an optional one is left out.
            fault = self.validity.fault(arguments)
            if fault is None or None not in arguments.values():
                return fault
            kept = {
                name: value for name, value in arguments.items() if value is not None or not self._is_optional(name)
            }
            return self.validity.fault(kept) if len(kept) < len(arguments) else fault
        # What nests deeper than can be walked is taken to fit: a fault nobody found must not cost a right call.
        except RecursionError:
            return None

    def _is_optional(self, name: str) -> bool:
        return name in self.schema.properties and name not in self.schema.required

    def takes_text(self, name: str) -> bool:
        """Whether a text may stand under this name."""
        return has_type("", self.schema.prop(name).types)


_known: dict[int, Declared] = {}
"""By the identity of tools that live."""


def declared(tool: Tool) -> Declared:
    """What this tool declares, made once; it is kept as long as the tool is."""
    found = _known.get(id(tool))
    if found is None:
        schema = schema_of(tool)
        found = _known[id(tool)] = Declared(schema, Validity(schema.root))
        # Ids are given again once an object is gone, so the entry has to go with it.
        finalize(tool, _known.pop, id(tool)).atexit = False
    return found


def judge(name: str, arguments: str, tools: ToolSet) -> Judged:
    """The class of a call with this name and this text of arguments, all of it."""
    return whole(judging(name, arguments, tools))


def judging(name: str, arguments: str, tools: ToolSet) -> Turns[Judged]:
    """The same in turns."""
    is_long = len(arguments) > LONG
    try:
        told = (yield from _reading(arguments)) if is_long else arguments_in(arguments)
    except NoJson as error:
        return Judged(CallClass.INVALID_JSON, str(error))
    found = _held_to(name, told, tools)
    if is_long:
        # A large value is let go in turns: Python would free all of it in one go.
        held = [told]
        del told
        while let_go(held):
            yield
    return found


def _held_to(name: str, told: object, tools: ToolSet) -> Judged:
    """The class of a call with these arguments."""
    tool = tools.get(name)
    if tool is None:
        return Judged(CallClass.UNKNOWN_NAME, f"`{name}` is none of the tools")
    if not isinstance(told, dict):
        return Judged(CallClass.SCHEMA_MISMATCH, "the arguments must be an object")
    fault = declared(tool).fault(told)
    return Judged(CallClass.SCHEMA_MISMATCH if fault is not None else CallClass.VALID, fault or "")


def _reading(text: str) -> Turns[Any]:
    """What `arguments_in` says of a long text: where it holds very much, in parts."""
    start = skip(SPACE, text, 0)
    if not text.startswith(("{", "["), start) or text.count("{") + text.count("[") < _MANY:
        return arguments_in(text)
    try:
        cuts = yield from cutting(text, start, _MAX_NESTING)
    except JsonTooDeep:
        return arguments_in(text)
    if not cuts:
        raise NoJson("the arguments are not valid JSON (they have no end)")
    if text[cuts[-1].at :].strip():
        raise NoJson(f"the arguments are not valid JSON (extra data at character {cuts[-1].at})")
    try:
        return (yield from decoding(text, start, cuts, _decoder, dict))
    except ValueError as error:
        raise NoJson(f"the arguments are not valid JSON ({getattr(error, 'msg', error)})") from None


def _decoder(members: MembersHook) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=members, parse_constant=_refuse, parse_int=_whole)


def arguments_in(text: str) -> Any:
    """What a text of JSON says; raises `NoJson`. Numbers may be out of every range, characters may be half ones."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        # The bound comes first: Python's parser recurses.
        JsonScanner(_MAX_NESTING).feed(text.lstrip())
    except JsonTooDeep:
        raise NoJson("the arguments are nested too deeply") from None
    # Python's own parser takes what JSON's grammar takes and the faster one refuses: 1e999, half a character.
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise NoJson(f"the arguments are not valid JSON ({_words(error)})") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _whole(digits: str) -> int | float:
    # Python refuses to make a number of more digits, as that takes the square of their count.
    return int(digits) if len(digits) < _MOST_DIGITS else float(digits)


def _words(error: Exception) -> str:
    told = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
    return told[:1].lower() + told[1:] + place
