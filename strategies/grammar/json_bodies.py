"""An object as the body of a call whose name stands elsewhere: read, mended, brought to the tool's schema.

It is written as JSON, as the keywords of a Python call, or as the attributes of a tag.
"""

import re
from typing import Protocol

from strategies.grammar.json_calls import renaming
from strategies.grammar.json_payload import read_surplus
from strategies.schema.tool_schema import ToolSchema
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.entities import TwoReadings, attribute_value
from strategies.text.python_text import PythonFault, bracketed, reading_calls
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, Parsed, parsing
from strategies.text.turns import Turns

__all__ = ["LOOSELY", "Target", "attribute_arguments", "json_arguments", "python_arguments"]

LOOSELY = "loosely"
"""The hint of a pass that reads broken JSON up to the closer, not by its braces."""


class Target(Protocol):
    """The call that takes the arguments."""

    mends: list[str]
    values: dict[str, object]
    schema: ToolSchema


def json_arguments(cur: Cursor, call: Target, closer: str, hint: object) -> Steps:
    """Read the object the cursor stands on into `call`; its braces say where it ends, in a second pass the closer."""
    pieces = Taken(cur)
    loosely = hint == LOOSELY
    complete = yield from (cur.until(closer, pieces.add) if loosely else cur.json(pieces.add))
    text = pieces.text()
    call.mends += yield from read_surplus(cur)
    schema = call.schema
    parsed = (yield from cur.work(_parsed(text, schema))) if complete else None
    opened = None
    if parsed and not text[parsed.end :].strip():
        opened = yield from cur.work(schema.opening(parsed.value))
    if parsed is None or opened is None:
        raise Reject("JSON is broken", again=not loosely and not cur.cut, hint=LOOSELY, attempted=True)
    call.mends += (*parsed.steps, *opened.mends)
    yield from _give(cur, call, opened.arguments)


def python_arguments(cur: Cursor, call: Target) -> Steps:
    """Read the keywords between the brackets that the cursor stands on into `call`."""
    pieces = Taken(cur)
    if not (yield from bracketed(cur, pieces.add)):
        raise Reject("brackets are not closed", attempted=True)
    try:
        (found,) = yield from cur.work(reading_calls(f"call{pieces.text()}"))
    except PythonFault as fault:
        raise Reject(fault.reason, attempted=True) from None
    if found.positional:
        raise Reject("positional argument", attempted=True)
    call.mends += found.mends
    yield from _give(cur, call, found.arguments)


def attribute_arguments(cur: Cursor, call: Target) -> Steps:
    """Read `KEY="VALUE"` pairs into `call`, if one begins here; what holds more than texts is refused."""
    values: dict[str, object] = {}
    while (key := (yield from _attribute(cur, call))) is not None:
        value: str = yield from cur.match(_ATTRIBUTE_VALUE, _LONGEST_ATTRIBUTE)
        if key in values or not (yield from cur.lit('"')):
            raise Reject("attributes are broken", attempted=True)
        try:
            values[key] = attribute_value(value)
        except TwoReadings as doubt:
            raise Reject(str(doubt), attempted=True) from None
        if values[key] != value:
            call.mends.append("entities")
        yield from cur.ws()
    if values:
        yield from _give(cur, call, values)
    return bool(values)


def _attribute(cur: Cursor, call: Target) -> Steps:
    """Consume a key with what stands between it and its value; None where there is none."""
    cur.anchor = start = cur.offset
    key: str | None = (yield from cur.match(_ATTRIBUTE_KEY, 64)) or None
    if key is not None and not (yield from cur.lit('="')):
        # Where a value without quotes ends, nothing says: https://github.com/ml-explore/mlx-lm/pull/792
        if key in call.schema.properties and (yield from cur.starts("=")):
            raise Reject("a value without quotes", attempted=True)
        key = None
    if key is None:
        cur.back(start)
    cur.anchor = None
    return key


_ATTRIBUTE_KEY = re.compile(r"[\w-]*")
_ATTRIBUTE_VALUE = re.compile(r'[^"<>\\]*')
_LONGEST_ATTRIBUTE = 1 << 12


def _give(cur: Cursor, call: Target, arguments: dict[str, object]) -> Steps:
    """Put arguments under the schema's own names and into its types."""
    named, mends = yield from cur.work(renaming(arguments, call.schema))
    adapted = yield from cur.work(call.schema.adapting(named))
    call.values.update(adapted.arguments)
    call.mends += (*mends, *adapted.mends)


def _parsed(text: str, schema: ToolSchema) -> Turns[Parsed | None]:
    try:
        return (yield from parsing(text, closed=True, body_keys=schema.body_keys, known_keys=tuple(schema.properties)))
    except JsonFault:
        return None
