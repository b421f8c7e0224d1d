"""A JSON object as the body of a call whose name stands elsewhere: read, mended, brought to the tool's schema."""

from typing import Protocol

from strategies.grammar.json_calls import renaming
from strategies.grammar.json_payload import read_surplus
from strategies.schema.tool_schema import ToolSchema
from strategies.text.cursor import Cursor, Reject, Steps
from strategies.text.tape import Taken
from strategies.text.tolerant_json import JsonFault, Parsed, parsing
from strategies.text.turns import Turns

__all__ = ["LOOSELY", "Target", "json_arguments"]

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
    named, mends = yield from cur.work(renaming(opened.arguments, schema))
    adapted = yield from cur.work(schema.adapting(named))
    call.values.update(adapted.arguments)
    call.mends += (*mends, *parsed.steps, *opened.mends, *adapted.mends)


def _parsed(text: str, schema: ToolSchema) -> Turns[Parsed | None]:
    try:
        return (yield from parsing(text, closed=True, body_keys=schema.body_keys, known_keys=tuple(schema.properties)))
    except JsonFault:
        return None
