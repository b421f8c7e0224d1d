"""Hermes: one JSON object, or a list of them, inside `<tool_call>`.

    call   = "<tool_call>" ws ( object | array ) ws "</tool_call>"
    object = JSON with a name and an argument container, in any order

The object's brace decides where it ends, never the textual closer, so a closer inside a string is data; only JSON
that is broken is read up to the closer and mended. Also read: other wrappers, the name as an attribute or as the key,
flat arguments, arguments as a string, code beside the object, several objects in one tag, a closer that is wrong or
missing at the end. Depth and length are bounded by the cursor and the reader.
"""

import re
from collections.abc import Generator
from typing import Any

from attrs import evolve

from strategies.cursor import Cursor, Reject, Steps
from strategies.dialect import Arguments, Context, Dialect, Draft, Opening
from strategies.jsonish import JsonFault, parse
from strategies.objects import drafts_of

__all__ = ["HERMES"]

_WRAPPERS = (
    "tool_call",
    "function_call",
    "tool",
    "tools",
    "response",
    "json",
    "xml",
    "JSON",
    "tool_use",
    "toolcall",
    "TOOLCALL",
    "action",
)
_NAME_RUN = re.compile(r"[A-Za-z0-9_.:/-]*")
_WRONG_CLOSERS = (
    "</think>",
    "</tool>",
    "</tool_response>",
    "<tool_call>",
    "</tools>",
    "</function_call>",
    "</tool_calls>",
)


def _parse(
    cur: Cursor, context: Context, opening: Opening, arguments: Arguments
) -> Generator[Draft | None, None, None]:
    cur.pos += len(opening.marker)
    wrapper = opening.marker.strip("<> ")
    name = None if opening.marker.endswith(">") else (yield from _name_attribute(cur))
    yield from cur.ws()
    if (yield from cur.peek(1)) not in ("{", "["):
        raise Reject("no JSON inside")
    closer = f"</{wrapper}>"
    found: list[Draft] = []
    while True:
        found += yield from _value(cur, context, name, closer, seen=bool(found))
        yield from cur.ws()
        if (yield from cur.peek(1)) in (",", ";"):
            cur.pos += 1
            yield from cur.ws()
        if (yield from cur.peek(1)) != "{":
            break
    mends = yield from _end(cur, closer)
    for draft in found:
        yield _with(draft, mends)


def _value(cur: Cursor, context: Context, name: str | None, closer: str, *, seen: bool) -> Steps:
    """One object or list; where its braces do not parse, what stands before the closer."""
    pieces: list[str] = []
    cur.anchor = start = cur.offset
    value: Any = None
    steps: tuple[str, ...] = ()
    if (yield from cur.json(pieces.append)):
        try:
            parsed = parse("".join(pieces), closed=True)
            value, steps = parsed.value, parsed.steps
        except JsonFault:
            value = None
    if value is None:
        if seen:
            raise Reject("JSON", attempted=True)
        value, steps = yield from _mended(cur, context, start, closer)
    cur.anchor = None
    code = yield from _code(cur)
    return drafts_of(value, context, form="hermes", steps=steps, name=name, code=code)


def _mended(cur: Cursor, context: Context, start: int, closer: str) -> Steps:
    """JSON that is broken: everything up to the closer, through the whole ladder."""
    cur.back(start)
    pieces: list[str] = []
    if not (yield from cur.until(closer, pieces.append)):
        raise Reject("JSON is not closed", attempted=True)
    text = "".join(pieces)
    keys = {key for tool in context.tools for key in context.schema(tool).properties}
    bodies = {key for tool in context.tools for key in context.schema(tool).body_keys}
    try:
        parsed = parse(text, closed=True, body_keys=sorted(bodies), known_keys=sorted(keys | _CALL_KEYS))
    except JsonFault as fault:
        raise Reject(f"JSON: {fault.reason}", attempted=True) from None
    if text[parsed.end :].strip():
        raise Reject("text after the object", attempted=True)
    return parsed.value, parsed.steps


_CALL_KEYS = frozenset({"name", "arguments", "parameters"})


def _code(cur: Cursor) -> Steps:
    """`<code>` behind the object (code interpreters): belongs into the arguments."""
    cur.anchor = start = cur.offset
    yield from cur.ws()
    if not (yield from cur.lit("<code>")):
        cur.back(start)
        cur.anchor = None
        return None
    cur.anchor = None
    pieces: list[str] = []
    if not (yield from cur.until("</code>", pieces.append)):
        raise Reject("code is not closed", attempted=True)
    cur.pos += len("</code>")
    return "".join(pieces).strip("\n")


def _end(cur: Cursor, closer: str) -> Steps:
    """The closer, or what stands in its place; returns the mends."""
    yield from cur.ws()
    if (yield from cur.lit(closer)):
        return ()
    if (yield from cur.at_end()):
        if cur.cut:
            raise Reject("cut", attempted=True)
        return ("call_closer_missing",)
    for wrong in _WRONG_CLOSERS:
        if (yield from cur.starts(wrong)):
            if wrong.startswith("</"):
                cur.pos += len(wrong)
            else:
                yield from _lone_opener(cur, wrong)
            return ("call_closer_wrong",)
    raise Reject("text after the object", attempted=True)


def _lone_opener(cur: Cursor, opener: str) -> Steps:
    """`<tool_call>` in place of the closer: consumed at the end of the answer, else it opens the next call."""
    cur.anchor = start = cur.offset
    cur.pos += len(opener)
    yield from cur.ws()
    if not (yield from cur.at_end()):
        cur.back(start)
    cur.anchor = None


def _with(draft: Draft, mends: tuple[str, ...]) -> Draft:
    return evolve(draft, mends=(*draft.mends, *mends)) if mends else draft


def _name_attribute(cur: Cursor) -> Steps:
    """`<tool_call name="read">`."""
    yield from cur.ws()
    if not (yield from cur.lit("name=")):
        raise Reject("no name")
    quote = yield from cur.lits(('"', "'"))
    name: Any = yield from cur.match(_NAME_RUN, 64)
    if (quote and not (yield from cur.lit(quote))) or not (yield from cur.lit(">")) or not name:
        raise Reject("no name")
    return name


HERMES = Dialect(
    id="hermes",
    family="tool_call",
    level="B",
    openers=lambda _context: (*(f"<{wrapper}>" for wrapper in _WRAPPERS), "<tool_call "),
    parse=_parse,
    results=("<tool_response>",),
    models=("qwen2.5*", "qwen3*", "qwq*", "hermes*", "granite-4*", "ernie*", "mimo*", "jan*"),
    carriers=("", "json", "xml", "tool_call", "tool_code", "tool", "tools", "function"),
    example='<tool_call>\n{"name": "read", "arguments": {"filePath": "src/app.py"}}\n</tool_call>',
)
